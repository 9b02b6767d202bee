/* exec_worker.c -- the workers table as requests see it: beat, look, leave, drop, and the fences.
 *
 * Rows of the table lie in the side file (side.h), consumers in the data file. A worker's first
 * beat makes both, so that whatever a worker can hold has a name in the file. */
#include "store/lmdb/exec.h"

#include <stdlib.h>

/* ---- the rows this handle keeps alive ---- */

static struct exec_ref *
ref_find(struct exec_refs *refs, uint64_t group, const struct request *request)
{
    uint64_t hash = hash_bytes(request->consumer, 0);

    for (size_t i = 0; i < refs->count; i++) {
        struct exec_ref *ref = &refs->items[i];
        if (ref->side.group_number == group && ref->name_hash == hash &&
            token_equal(&ref->token, &request->token)) {
            return ref;
        }
    }
    return NULL;
}

/* Remembers a row just taken. Without memory it is not remembered, which only costs time. */
static void ref_keep(struct exec *exec,
                     const struct side_group *table,
                     const struct side_row *row,
                     const struct request *request)
{
    struct exec_refs *refs = exec->refs;
    struct exec_ref *ref = ref_find(refs, atomic_load(&table->number), request);

    if (ref == NULL && refs->count == refs->room) {
        size_t room = refs->room == 0 ? 8 : refs->room * 2;
        struct exec_ref *items = realloc(refs->items, room * sizeof(*items));
        if (items == NULL) {
            return;
        }
        refs->items = items;
        refs->room = room;
    }
    ref = ref == NULL ? &refs->items[refs->count++] : ref;
    *ref = (struct exec_ref){
        .side = side_ref(&exec->env->side, table, row),
        .token = request->token,
        .name_hash = hash_bytes(request->consumer, 0),
        .dead_after_ms = request->dead_after_ms,
        .beat_ms = exec->boot_ms,
    };
}

static void ref_forget(struct exec_refs *refs, uint64_t group, const struct request *request)
{
    struct exec_ref *ref = ref_find(refs, group, request);
    if (ref != NULL) {
        *ref = refs->items[--refs->count];
    }
}

void exec_beat_own(struct exec *exec)
{
    int64_t now_ms = side_now_ms();

    for (size_t i = 0; i < exec->refs->count; i++) {
        struct exec_ref *ref = &exec->refs->items[i];
        /* One that was silent before this turn began is not kept alive by it. */
        if (exec->boot_ms - ref->beat_ms < ref->dead_after_ms / 2 &&
            side_beat(&exec->env->side, &ref->side, ref->dead_after_ms, now_ms)) {
            ref->beat_ms = now_ms;
        }
    }
}

/* ---- beating ---- */

int exec_beat_fast(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    if (rc < 0) {
        return rc;
    }
    struct exec_ref *ref = ref_find(exec->refs, group->number, request);
    if (ref == NULL || ref->dead_after_ms != request->dead_after_ms ||
        lmdb_consumer_find(exec->txn, group, request->consumer, &consumer) < 0 ||
        !side_beat(&exec->env->side, &ref->side, request->dead_after_ms, exec->boot_ms)) {
        return 0;
    }
    ref->beat_ms = exec->boot_ms;
    request->beat.result = BEAT_TAKEN;
    request->beat.wait_ms = 0;
    return 1;
}

/* The group's table. When the tables are full those of groups that no longer exist are freed. */
static struct side_group *table_of(struct exec *exec, struct lmdb_group *group, bool collect)
{
    struct side *side = &exec->env->side;
    struct side_group *table = collect ? NULL : side_group(side, group->number, true);

    if (table != NULL) {
        return table;
    }
    for (size_t i = 0; i < SIDE_GROUPS_MAX; i++) {
        uint64_t number = atomic_load(&side->groups[i].number);
        struct disk_group disk;
        struct impel_bytes name;
        if (number >= NUMBER_FIRST && number != group->number &&
            object_read(exec->txn, OBJECT_GROUP, number, &disk, sizeof(disk), &name) ==
                IMPEL_ERR_NOT_FOUND) {
            side_group_remove(side, &side->groups[i]);
        }
    }
    return side_group(side, group->number, true);
}

/* Writes the caller's row, unless another token is alive under its name. */
static int write_row(struct exec *exec,
                     struct request *request,
                     struct lmdb_group *group,
                     struct side_group *table,
                     bool first,
                     enum beat_result *result)
{
    struct side *side = &exec->env->side;
    struct side_row *row = side_row(side, table, request->consumer);
    bool mine = row != NULL && token_equal(&row->token, &request->token);
    bool fresh = mine && !side_marked(row);
    struct lmdb_consumer *consumer = NULL;

    if (row != NULL && !mine && !side_judge(table, row, exec->boot_ms)) {
        *result = BEAT_OCCUPIED;
        return IMPEL_OK;
    }
    int rc = lmdb_consumer_open(exec->txn, group, request->consumer, &consumer);
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    row = side_take(side, table, request->consumer, &request->token, request->dead_after_ms,
                    exec->boot_ms);
    if (row == NULL) {
        table = table_of(exec, group, true);
        row = table == NULL ? NULL
                            : side_take(side, table, request->consumer, &request->token,
                                        request->dead_after_ms, exec->boot_ms);
    }
    if (row == NULL) {
        return exec_fail(exec, request, IMPEL_ERR_FULL,
                         "no room for one more worker in the workers table, or on the disk");
    }
    ref_keep(exec, table, row, request);
    *result = first || fresh ? BEAT_TAKEN : BEAT_REVIVED;
    return IMPEL_OK;
}

int exec_beat_step(struct exec *exec,
                   struct request *request,
                   bool first,
                   enum beat_result *result,
                   int64_t *wait_ms)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    if (rc < 0) {
        return rc;
    }
    struct side_group *table = table_of(exec, group, false);
    if (table == NULL) {
        return exec_fail(exec, request, IMPEL_ERR_FULL,
                         "the store has workers in as many groups as it can keep");
    }
    side_note(table, request->dead_after_ms, exec->boot_ms);
    *result = BEAT_TAKEN;
    if (request->consumer.size == 0) {
        return IMPEL_OK;
    }
    rc = write_row(exec, request, group, table, first, result);
    if (rc < 0 || *result != BEAT_OCCUPIED) {
        return rc;
    }
    if (wait_ms == NULL) {
        return exec_fail(exec, request, IMPEL_ERR_REPLACED, "another worker runs under this name");
    }
    struct side_row *other = side_row(&exec->env->side, table, request->consumer);
    *wait_ms = sub_saturating(other->dead_after_ms, side_silence_ms(table, other, exec->boot_ms));
    return IMPEL_OK;
}

int exec_beat(struct exec *exec, struct request *request)
{
    request->beat.wait_ms = 0;
    return exec_beat_step(exec, request, request->beat.first, &request->beat.result,
                          &request->beat.wait_ms);
}

/* ---- judging and fencing ---- */

enum owner_state exec_owner_state(struct exec *exec,
                                  const struct request *request,
                                  struct side_group *table,
                                  struct side_row *row,
                                  struct impel_bytes name,
                                  bool mark)
{
    if (row == NULL) {
        return bytes_equal(name, bytes_of(RELEASED_NAME)) ? OWNER_RELEASED : OWNER_FOREIGN;
    }
    if (request->consumer.size > 0 && bytes_equal(name, request->consumer) &&
        token_equal(&row->token, &request->token)) {
        return OWNER_ME;
    }
    if (side_stale(table, exec->boot_ms)) {
        return OWNER_UNKNOWN;
    }
    bool dead =
        mark ? side_judge(table, row, exec->boot_ms) : side_looks_dead(table, row, exec->boot_ms);
    return dead ? OWNER_DEAD : OWNER_LIVE;
}

int exec_fence(struct exec *exec, struct request *request, struct lmdb_group *group)
{
    struct side_group *table = side_group(&exec->env->side, group->number, false);
    struct side_row *row =
        table == NULL ? NULL : side_row(&exec->env->side, table, request->consumer);

    if (row == NULL) {
        return exec_fail(exec, request, IMPEL_ERR_FENCED, "not in the workers table: beat first");
    }
    if (!token_equal(&row->token, &request->token)) {
        return exec_fail(exec, request, IMPEL_ERR_REPLACED, "another worker runs under this name");
    }
    return side_marked(row) ? exec_fail(exec, request, IMPEL_ERR_FENCED, "was judged dead")
                            : IMPEL_OK;
}

/* ---- going ---- */

/* Takes a worker's row and its consumer away; it holds nothing. */
static int worker_remove(struct exec *exec,
                         struct side_group *table,
                         struct side_row *row,
                         struct lmdb_consumer *consumer)
{
    if (row != NULL) {
        side_remove(&exec->env->side, table, row);
    }
    return consumer == NULL ? exec->txn->status : lmdb_consumer_delete(exec->txn, consumer, NULL);
}

/* The consumer of a name, NULL if there is none. */
static int consumer_find(struct exec *exec,
                         struct lmdb_group *group,
                         struct impel_bytes name,
                         struct lmdb_consumer **out)
{
    int rc = lmdb_consumer_find(exec->txn, group, name, out);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        *out = NULL;
        return exec->txn->status;
    }
    return rc;
}

int exec_leave(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    request->leave.left = false;
    if (rc < 0) {
        return rc;
    }
    struct side_group *table = side_group(&exec->env->side, group->number, false);
    struct side_row *row =
        table == NULL ? NULL : side_row(&exec->env->side, table, request->consumer);
    if (row != NULL && !token_equal(&row->token, &request->token)) {
        return exec_fail(exec, request, IMPEL_ERR_REPLACED, "another worker runs under this name");
    }
    rc = consumer_find(exec, group, request->consumer, &consumer);
    if (rc >= 0 && (consumer == NULL || consumer->pending == 0)) {
        request->leave.left = true;
        if (row != NULL) {
            ref_forget(exec->refs, group->number, request);
            rc = worker_remove(exec, table, row, consumer);
        }
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

int exec_drop(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;
    struct impel_bytes name = request->leave.name;
    enum beat_result beat = BEAT_TAKEN;
    int rc = exec_beat_step(exec, request, false, &beat, NULL);

    request->leave.left = false;
    rc = rc < 0 ? rc : exec_find(exec, request, &stream, &group);
    if (rc < 0) {
        return rc;
    }
    struct side_group *table = side_group(&exec->env->side, group->number, false);
    ASSERT(table != NULL); /* the beat has made it */
    struct side_row *row = side_row(&exec->env->side, table, name);
    rc = consumer_find(exec, group, name, &consumer);
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    if (consumer != NULL && consumer->pending > 0) {
        return IMPEL_OK;
    }
    if (row != NULL) {
        request->leave.left = exec_owner_state(exec, request, table, row, name, true) == OWNER_DEAD;
    } else {
        request->leave.left =
            consumer != NULL && request->leave.inactive_ms >= 0 &&
            sub_saturating(exec->txn->now_ms, consumer->seen_ms) >= request->leave.inactive_ms;
    }
    rc = request->leave.left ? worker_remove(exec, table, row, consumer) : IMPEL_OK;
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}
