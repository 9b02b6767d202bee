/* exec_look.c -- LOOK: who holds how much in a group, and who of them is alive. */
#include "store/lmdb/exec.h"

#include <stdlib.h>

struct looking {
    struct exec *exec;
    struct request *request;
    struct lmdb_group *group;
    struct side_group *table; /* NULL: nobody has ever beaten */
    struct side_row **rows;   /* of the table, by name hash */
    bool *named;              /* rows[i] belongs to a consumer */
    size_t row_count;
    bool mark;
};

static int row_order(const void *left, const void *right)
{
    const struct side_row *a = *(struct side_row *const *)left;
    const struct side_row *b = *(struct side_row *const *)right;
    return a->name_hash[0] < b->name_hash[0] ? -1 : a->name_hash[0] > b->name_hash[0];
}

/* The table's rows, sorted, so that ten thousand consumers find theirs without a walk each. */
static int look_rows(struct looking *looking)
{
    struct side *side = &looking->exec->env->side;
    struct arena *arena = &looking->request->arena;
    size_t count = 0;

    if (looking->table == NULL) {
        return IMPEL_OK;
    }
    for (struct side_row *row = side_row_at(side, looking->table->row_first);
         row != NULL && count < SIDE_ROWS_MAX; row = side_row_at(side, row->next)) {
        count++;
    }
    looking->rows = arena_calloc(arena, count, sizeof(struct side_row *));
    looking->named = arena_calloc(arena, count, sizeof(looking->named[0]));
    if (looking->rows == NULL || looking->named == NULL) {
        return exec_nomem(looking->exec);
    }
    for (struct side_row *row = side_row_at(side, looking->table->row_first);
         row != NULL && looking->row_count < count; row = side_row_at(side, row->next)) {
        /* Without the lock (a mere look) a row may be given away under the walk. */
        if (row->group == looking->group->number) {
            looking->rows[looking->row_count++] = row;
        }
    }
    qsort(looking->rows, looking->row_count, sizeof(struct side_row *), row_order);
    return IMPEL_OK;
}

static struct side_row *look_row_of(struct looking *looking, struct impel_bytes name)
{
    struct side_row *found = NULL;
    size_t low = 0;
    size_t high = looking->row_count;
    uint64_t hash[2];

    side_name_hash(name, hash);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (looking->rows[middle]->name_hash[0] < hash[0]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; found == NULL && low < looking->row_count && looking->rows[low]->name_hash[0] == hash[0];
         low++) {
        if (looking->rows[low]->name_hash[1] == hash[1]) {
            looking->named[low] = true;
            found = looking->rows[low];
        }
    }
    return found;
}

static int look_owner(struct looking *looking, struct impel_bytes name, struct side_row *row)
{
    struct request *request = looking->request;
    struct look_owner *owner = &request->look.owners[request->look.owner_count++];
    int64_t now_ms = looking->exec->boot_ms;

    *owner = (struct look_owner){
        .state = exec_owner_state(looking->exec, request, looking->table, row, name, looking->mark),
        .in_table = row != NULL,
        .beat_age_ms = -1,
        .dead_after_ms = -1,
        .seen_age_ms = -1,
    };
    if (row != NULL) {
        int64_t age_ms = now_ms - side_beat_ms(row);
        owner->beat_age_ms = age_ms < 0 ? 0 : age_ms;
        owner->dead_after_ms = row->dead_after_ms;
        owner->token = row->token;
    }
    return exec_copy(looking->exec, request, name, &owner->name);
}

static int look_consumer(struct looking *looking, struct lmdb_consumer *consumer)
{
    struct request *request = looking->request;
    int rc = look_owner(looking, consumer->name, look_row_of(looking, consumer->name));

    struct look_owner *owner = &request->look.owners[request->look.owner_count - 1];
    owner->pending = consumer->pending;
    owner->seen_age_ms = sub_saturating(looking->exec->txn->now_ms, consumer->seen_ms);
    return rc;
}

static int look_owners(struct looking *looking)
{
    struct request *request = looking->request;
    struct lmdb_walk walk = {0};
    struct lmdb_consumer *consumer = NULL;
    int rc = look_rows(looking);
    size_t room = looking->row_count + looking->group->consumer_count;

    request->look.owner_count = 0;
    request->look.owners = arena_calloc(&request->arena, room, sizeof(request->look.owners[0]));
    if (rc >= 0 && request->look.owners == NULL) {
        return exec_nomem(looking->exec);
    }
    rc = rc < 0 ? rc : lmdb_walk_consumers(&walk, looking->exec->txn, looking->group);
    while (rc >= 0 && request->look.owner_count < room &&
           (rc = lmdb_next_consumer(&walk, &consumer)) > 0) {
        rc = look_consumer(looking, consumer);
    }
    lmdb_walk_end(&walk);
    /* Rows whose consumer was deleted under them: their workers beat, or are dead. */
    for (size_t i = 0; rc >= 0 && i < looking->row_count; i++) {
        if (!looking->named[i] && request->look.owner_count < room) {
            struct side_row *row = looking->rows[i];
            rc = look_owner(looking, (struct impel_bytes){row->name, row->name_size}, row);
        }
    }
    return rc;
}

/* How much the group has not delivered: exact where it is 0, else a lower bound. */
static int look_undelivered(struct looking *looking)
{
    struct lmdb_group *group = looking->group;
    struct impel_id last;
    int64_t lag = 0;
    int rc = lmdb_stream_last(looking->exec->txn, group->stream, &last);

    looking->request->look.undelivered = 0;
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && id_compare(last, group->last_id) <= 0)) {
        return looking->exec->txn->status;
    }
    bool known = rc >= 0 && lmdb_group_lag(group, &lag);
    looking->request->look.undelivered = known && lag > 0 ? (uint64_t)lag : 1;
    return rc;
}

static int look_cursor(struct looking *looking)
{
    struct sweep_cursor *cursor = &looking->request->look.cursor;
    struct disk_consumer disk;
    struct impel_bytes name;

    *cursor = (struct sweep_cursor){0};
    if (looking->table == NULL || looking->table->cursor_owner == 0) {
        return IMPEL_OK;
    }
    int rc = object_read(looking->exec->txn, OBJECT_CONSUMER, looking->table->cursor_owner, &disk,
                         sizeof(disk), &name);
    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc; /* deleted since */
    }
    cursor->id = (struct impel_id){looking->table->cursor_ms, looking->table->cursor_seq};
    return exec_copy(looking->exec, looking->request, name, &cursor->owner);
}

/* Work is left that somebody with a free handler may have: then others' sweeps do not keep it out. */
static bool work_is_left(struct looking *looking)
{
    struct side *side = &looking->exec->env->side;
    struct side_group *table = looking->table;
    int64_t now_ms = looking->exec->boot_ms;

    for (struct side_row *row = side_row_at(side, table->row_first);
         looking->mark && row != NULL && !side_stale(table, now_ms);
         row = side_row_at(side, row->next)) {
        (void)side_judge(table, row, now_ms);
    }
    return table->left_ms != 0 &&
           (now_ms - table->left_ms) / 2 < looking->request->look.interval_ms;
}

static bool take_stamp(struct looking *looking)
{
    const struct request *request = looking->request;

    if ((request->look.flags & LOOK_STAMP) == 0 || looking->table == NULL) {
        return true;
    }
    int64_t age_ms = looking->exec->boot_ms - looking->table->stamp_ms;
    bool fresh = looking->table->stamp_ms != 0 && age_ms < request->look.interval_ms;
    if (fresh && !((request->look.flags & LOOK_FREE) != 0 && work_is_left(looking))) {
        return false;
    }
    looking->table->stamp_ms = looking->exec->boot_ms;
    return true;
}

int exec_look(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct looking looking = {.exec = exec, .request = request};

    looking.mark = (request->look.flags & LOOK_BEAT) != 0;
    request->look.stamped = false;
    request->look.owner_count = 0;
    int rc =
        looking.mark ? exec_beat_step(exec, request, false, &request->look.beat, NULL) : IMPEL_OK;
    rc = rc < 0 ? rc : exec_find(exec, request, &stream, &looking.group);
    if (rc < 0) {
        return rc;
    }
    looking.table = side_group(&exec->env->side, looking.group->number,
                               (request->look.flags & LOOK_STAMP) != 0);
    request->look.stamped = take_stamp(&looking);
    if (!request->look.stamped) {
        return IMPEL_OK;
    }
    request->look.pending = looking.group->pending;
    rc = look_owners(&looking);
    rc = rc < 0 ? rc : look_undelivered(&looking);
    rc = rc < 0 ? rc : look_cursor(&looking);
    if (rc >= 0 && (request->look.flags & LOOK_STAMP) != 0) {
        rc = lmdb_carried_sweep(exec->txn, looking.group, CARRIED_ROWS_MAX);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}
