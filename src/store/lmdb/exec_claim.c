/* exec_claim.c -- CLAIM_FROM: one walk over an owner's pending entries, judged and acted on row by
 * row in the step in which the judging beat was taken. */
#include "store/lmdb/exec.h"

struct claiming {
    struct exec *exec;
    struct request *request;
    struct lmdb_stream *stream;
    struct lmdb_group *group;
    struct lmdb_consumer *owner;  /* NULL: nobody's rows */
    struct lmdb_consumer *caller; /* who claims; NULL until the first */
    struct lmdb_consumer *heir;   /* HAND_OVER: who gets it */
    int64_t silence_ms;
    bool carries;       /* some entry of the group was requeued: look it up */
    int64_t total;      /* of the row in hand: its deliveries, with what it carries */
    bool forbidden;     /* REQUEUE: by other groups; HAND_OVER: for want of an heir */
    size_t moved_bytes; /* payload that was copied */
    size_t size_bytes;  /* payload that was claimed */
    size_t room[4];     /* of entries, parked, reaped, moved */
};

enum {
    CLAIM_MOVES = CLAIM_REQUEUE | CLAIM_HAND_OVER | CLAIM_PARK,
};

/* One more place at the end of an array of answers, which may move it. */
static void *slot(struct claiming *claiming, void **array, size_t count, size_t *room, size_t size)
{
    if (count == *room) {
        size_t more = *room == 0 ? 16 : *room * 4;
        uint8_t *grown = arena_calloc(&claiming->request->arena, more, size);
        if (grown == NULL) {
            exec_nomem(claiming->exec);
            return NULL;
        }
        if (count > 0) {
            memcpy(grown, *array, count * size);
        }
        *array = grown;
        *room = more;
    }
    return (uint8_t *)*array + count * size;
}

static int settled_add(struct claiming *claiming,
                       struct settled **array,
                       size_t *count,
                       size_t *room,
                       const struct lmdb_pending *row)
{
    void *memory = *array;
    struct settled *place = slot(claiming, &memory, *count, room, sizeof(*place));

    if (place == NULL) {
        return claiming->exec->txn->status;
    }
    *array = memory;
    *place = (struct settled){row->id, claiming->total};
    (*count)++;
    return claiming->carries ? lmdb_carried_delete(claiming->exec->txn, claiming->group, row->id)
                             : IMPEL_OK;
}

static int claim_row(struct claiming *claiming, const struct lmdb_pending *old)
{
    struct exec *exec = claiming->exec;
    struct request *request = claiming->request;
    struct lmdb_pending row = *old;
    struct lmdb_raw raw;
    void *memory = request->claim_from.entries;
    struct delivered *place = slot(claiming, &memory, request->claim_from.entry_count,
                                   &claiming->room[0], sizeof(*place));
    int rc = IMPEL_OK;

    if (place == NULL) {
        return exec->txn->status;
    }
    request->claim_from.entries = memory;
    if (claiming->caller == NULL) {
        rc = lmdb_consumer_open(exec->txn, claiming->group, request->consumer, &claiming->caller);
    }
    rc = rc < 0 ? rc : lmdb_entry_get(exec->txn, claiming->stream, old->id, &raw);
    rc = rc < 0 ? rc : lmdb_raw_entry(exec->txn, &raw, &place->entry);
    if (rc < 0) {
        return rc;
    }
    row.owner = claiming->caller->number;
    row.delivered_ms = exec->txn->now_ms;
    row.deliveries = add_saturating(old->deliveries, 1);
    place->deliveries = row.deliveries;
    place->idle_ms = exec_idle_ms(exec, old);
    place->from = request->claim_from.state;
    place->stream_index = 0;
    claiming->size_bytes += raw.bytes.size;
    request->claim_from.entry_count++;
    claiming->caller->seen_ms = claiming->caller->active_ms = exec->txn->now_ms;
    lmdb_consumer_changed(exec->txn, claiming->caller);
    return lmdb_pending_put(exec->txn, claiming->group, old, &row);
}

/* ---- instead of a claim ---- */

static int
moved_add(struct claiming *claiming, const struct lmdb_pending *row, struct impel_id copy)
{
    struct request *request = claiming->request;
    void *memory = request->claim_from.moved;
    struct moved *place = slot(claiming, &memory, request->claim_from.moved_count,
                               &claiming->room[3], sizeof(*place));

    if (place == NULL) {
        return claiming->exec->txn->status;
    }
    request->claim_from.moved = memory;
    *place = (struct moved){
        .id = row->id,
        .copy = copy,
        .deliveries = claiming->total,
        .idle_ms = exec_idle_ms(claiming->exec, row),
    };
    request->claim_from.moved_count++;
    return IMPEL_OK;
}

static int move_refused(struct claiming *claiming, int status, const char *why)
{
    struct request *request = claiming->request;

    if (request->claim_from.park_failed++ == 0) {
        error_set(&request->claim_from.park_error, status, "%s", why);
    }
    return IMPEL_OK;
}

/* A copy at the stream's end and the ack, or neither. */
static int requeue_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct lmdb_txn *txn = claiming->exec->txn;
    struct arena *arena = &claiming->request->arena;
    struct impel_field *fields = NULL;
    size_t count = 0;
    struct impel_id copy;
    struct lmdb_raw raw, own;
    int rc = lmdb_entry_get(txn, claiming->stream, row->id, &raw);

    if (rc >= 0 && !lmdb_stream_next_id(claiming->stream, txn->now_ms, &copy)) {
        return move_refused(claiming, IMPEL_ERR_REPLY, "the stream's last ID is used up");
    }
    rc = rc < 0 ? rc : lmdb_raw_copy(txn, &raw, arena, &own);
    rc = rc < 0 ? rc : lmdb_raw_fields(txn, &own, arena, &fields, &count);
    rc = rc < 0 ? rc : lmdb_stream_append(txn, claiming->stream, copy, fields, count, false);
    if (rc == IMPEL_ERR_FULL || rc == IMPEL_ERR_LIMIT) {
        return txn->status < 0 ? txn->status
                               : move_refused(claiming, rc, "there is no room for the copy");
    }
    if (rc < 0) {
        return rc;
    }
    claiming->moved_bytes += own.bytes.size;
    rc = lmdb_pending_delete(txn, claiming->group, row);
    rc = rc < 0 ? rc : lmdb_carried_delete(txn, claiming->group, row->id);
    rc = rc < 0 ? rc : lmdb_carried_put(txn, claiming->group, copy, claiming->total);
    return rc < 0 ? rc : moved_add(claiming, row, copy);
}

static int hand_over_row(struct claiming *claiming, const struct lmdb_pending *old)
{
    struct lmdb_txn *txn = claiming->exec->txn;
    struct lmdb_pending row = *old;

    row.owner = claiming->heir->number;
    row.delivered_ms = txn->now_ms;
    row.deliveries = add_saturating(old->deliveries, 1);
    int rc = lmdb_pending_put(txn, claiming->group, old, &row);
    return rc < 0 ? rc : moved_add(claiming, old, old->id);
}

static int park_row(struct claiming *claiming, const struct lmdb_pending *row, const char *reason);

/* 1 = moved or left as due, 0 = there is no room, stop in front of it. */
static int move_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct request *request = claiming->request;
    unsigned flags = request->claim_from.flags;
    size_t moved = request->claim_from.moved_count + request->claim_from.parked_count;
    int rc;

    if (claiming->forbidden || request->claim_from.claims_max == 0) {
        if (request->claim_from.due++ == 0) {
            request->claim_from.due_first = row->id;
        }
        return 1;
    }
    if (moved >= request->claim_from.claims_max || claiming->moved_bytes >= MOVE_BYTES) {
        return 0;
    }
    if (flags & CLAIM_REQUEUE) {
        rc = requeue_row(claiming, row);
    } else if (flags & CLAIM_HAND_OVER) {
        rc = hand_over_row(claiming, row);
    } else {
        rc = park_row(claiming, row, "abandoned");
    }
    return rc < 0 ? rc : 1;
}

/* What forbids it in this step, whatever row it is. */
static int move_prepare(struct claiming *claiming)
{
    struct request *request = claiming->request;
    unsigned flags = request->claim_from.flags;
    int rc = IMPEL_OK;

    if (flags & CLAIM_REQUEUE) {
        claiming->forbidden = !(flags & CLAIM_ALL_GROUPS) && claiming->stream->group_count > 1;
    } else if (flags & CLAIM_HAND_OVER) {
        rc = lmdb_consumer_find(claiming->exec->txn, claiming->group, request->claim_from.heir,
                                &claiming->heir);
        claiming->forbidden = rc < 0;
        rc = rc == IMPEL_ERR_NOT_FOUND ? claiming->exec->txn->status : rc;
    }
    return rc;
}

/* ---- row by row ---- */

/* A row due for a claim: 1 = claimed or counted as left over, 0 = there is no room, stop in front
 * of it. */
static int due_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct request *request = claiming->request;
    enum owner_state state = request->claim_from.state;
    bool last = (state == OWNER_DEAD || state == OWNER_FOREIGN) &&
                add_saturating(claiming->total, 1) >= request->claim_from.policy.max_deliveries &&
                (request->claim_from.flags & CLAIM_LAST) == 0;

    if (!last && request->claim_from.entry_count < request->claim_from.claims_max &&
        claiming->size_bytes < CLAIM_BYTES) {
        int rc = claim_row(claiming, row);
        return rc < 0 ? rc : 1;
    }
    if (request->claim_from.due++ == 0) {
        request->claim_from.due_first = row->id;
    }
    request->claim_from.due_last += last;
    return last || request->claim_from.claims_max == 0;
}

static int park_row(struct claiming *claiming, const struct lmdb_pending *row, const char *reason)
{
    struct exec *exec = claiming->exec;
    struct request *request = claiming->request;
    struct impel_error refused = {0};
    struct lmdb_raw raw;
    struct exec_parking parking = {
        .stream = claiming->stream,
        .group = claiming->group,
        .row = row,
        .dead_letter = request->claim_from.dead_letter,
        .reason = bytes_of(reason),
        .deliveries = claiming->total,
    };
    int rc = lmdb_entry_get(exec->txn, claiming->stream, row->id, &raw);

    rc = rc < 0 ? rc : lmdb_raw_copy(exec->txn, &raw, &request->arena, &parking.raw);
    claiming->moved_bytes += rc < 0 ? 0 : parking.raw.bytes.size;
    rc = rc < 0 ? rc : exec_park(exec, request, &parking, &refused);
    if (rc == 0 && request->claim_from.park_failed++ == 0) {
        request->claim_from.park_error = refused;
    }
    return rc <= 0 ? rc
                   : settled_add(claiming, &request->claim_from.parked,
                                 &request->claim_from.parked_count, &claiming->room[1], row);
}

static int reap_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct request *request = claiming->request;
    int rc = lmdb_pending_delete(claiming->exec->txn, claiming->group, row);

    return rc < 0 ? rc
                  : settled_add(claiming, &request->claim_from.reaped,
                                &request->claim_from.reaped_count, &claiming->room[2], row);
}

/* One row: 1 = go on, 0 = stop in front of it, or a hard error. */
static int walk_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct request *request = claiming->request;
    bool settle = (request->claim_from.flags & CLAIM_SETTLE) != 0;
    int64_t wait_ms = 0;
    int exists = lmdb_entry_get(claiming->exec->txn, claiming->stream, row->id, NULL);
    struct pending_view view = {
        .id = row->id,
        .owner = request->claim_from.state,
        .idle_ms = exec_idle_ms(claiming->exec, row),
        .silence_ms = claiming->silence_ms,
        .exists = exists >= 0,
    };
    int rc = exists < 0 && exists != IMPEL_ERR_NOT_FOUND ? exists : IMPEL_OK;

    claiming->total = 0;
    if (rc >= 0 && claiming->carries && row->deliveries >= 0) {
        rc = lmdb_carried_get(claiming->exec->txn, claiming->group, row->id, &claiming->total);
    }
    if (rc < 0) {
        return rc;
    }
    view.deliveries = claiming->total = add_saturating(claiming->total, row->deliveries);
    switch (policy_verdict(&request->claim_from.policy, &view, &wait_ms)) {
    case VERDICT_CLAIM:
        return request->claim_from.flags & CLAIM_MOVES ? move_row(claiming, row)
                                                       : due_row(claiming, row);
    case VERDICT_PARK:
        rc = settle ? park_row(claiming, row, "max-deliveries") : rc;
        break;
    case VERDICT_REAP:
        rc = settle ? reap_row(claiming, row) : rc;
        break;
    case VERDICT_WAIT:
        request->claim_from.not_due++;
        if (request->claim_from.wait_ms < 0 || wait_ms < request->claim_from.wait_ms) {
            request->claim_from.wait_ms = wait_ms;
        }
        break;
    default:
        break;
    }
    return rc < 0 ? rc : 1;
}

static int walk(struct claiming *claiming)
{
    struct lmdb_txn *txn = claiming->exec->txn;
    struct request *request = claiming->request;
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    bool nobody = claiming->owner == NULL;
    int rc = nobody ? lmdb_walk_pending(&walk, txn, claiming->group, request->claim_from.from)
                    : lmdb_walk_owned(&walk, txn, claiming->owner, request->claim_from.from);

    while (rc >= 0 && (rc = lmdb_next_pending(&walk, &row)) > 0) {
        if (request->claim_from.rows == request->claim_from.rows_max) {
            request->claim_from.next = row.id;
            break;
        }
        if (!nobody || row.owner == 0) {
            rc = walk_row(claiming, &row);
        }
        if (rc == 0) {
            request->claim_from.next = row.id;
            break;
        }
        request->claim_from.rows++;
    }
    lmdb_walk_end(&walk);
    return rc;
}

static void claim_prepare(struct request *request)
{
    request->claim_from.entries = NULL;
    request->claim_from.parked = request->claim_from.reaped = NULL;
    request->claim_from.entry_count = request->claim_from.parked_count = 0;
    request->claim_from.reaped_count = request->claim_from.park_failed = 0;
    request->claim_from.rows = request->claim_from.due = request->claim_from.due_last = 0;
    request->claim_from.not_due = 0;
    request->claim_from.wait_ms = -1;
    request->claim_from.due_first = request->claim_from.next = ID_MIN;
    request->claim_from.moved = NULL;
    request->claim_from.moved_count = 0;
    request->claim_from.other_groups = false;
    if (request->consumer.size == 0 && (request->claim_from.flags & CLAIM_MOVES) == 0) {
        request->claim_from.claims_max = 0; /* there is no name to claim under */
    }
}

/* Finds the owner and what it is to the caller, in this step. */
static int claim_judge(struct claiming *claiming, struct side_group *table)
{
    struct exec *exec = claiming->exec;
    struct request *request = claiming->request;
    struct impel_bytes name = request->claim_from.owner;

    if (request->claim_from.nobody) {
        request->claim_from.state = OWNER_NOBODY;
        return IMPEL_OK;
    }
    struct side_row *row = side_row(&exec->env->side, table, name);
    request->claim_from.state = exec_owner_state(exec, request, table, row, name, true);
    if (row != NULL) {
        claiming->silence_ms = side_silence_ms(table, row, exec->boot_ms);
    }
    int rc = lmdb_consumer_find(exec->txn, claiming->group, name, &claiming->owner);
    return rc == IMPEL_ERR_NOT_FOUND ? exec->txn->status : rc;
}

int exec_claim_from(struct exec *exec, struct request *request)
{
    struct claiming claiming = {.exec = exec, .request = request};

    claim_prepare(request);
    int rc = exec_beat_step(exec, request, false, &request->claim_from.beat, NULL);
    rc = rc < 0 ? rc : exec_find(exec, request, &claiming.stream, &claiming.group);
    if (rc < 0) {
        return rc;
    }
    struct side_group *table = side_group(&exec->env->side, claiming.group->number, true);
    if (table == NULL) {
        return exec_fail(exec, request, IMPEL_ERR_FULL, "the workers table is full");
    }
    rc = claim_judge(&claiming, table);
    rc = rc < 0 ? rc : move_prepare(&claiming);
    rc = rc < 0 ? rc : lmdb_carried_any(exec->txn, claiming.group, &claiming.carries);
    enum owner_state state = request->claim_from.state;
    if (rc >= 0 && state != OWNER_ME && state != OWNER_LIVE &&
        (request->claim_from.nobody || claiming.owner != NULL)) {
        rc = walk(&claiming);
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    request->claim_from.other_groups = (request->claim_from.flags & CLAIM_REQUEUE) != 0 &&
                                       claiming.forbidden && request->claim_from.due > 0;
    table->cursor_owner = claiming.owner == NULL ? 0 : claiming.owner->number;
    table->cursor_ms = request->claim_from.next.ms;
    table->cursor_seq = request->claim_from.next.seq;
    table->left_ms = request->claim_from.due > 0 ? exec->boot_ms : table->left_ms;
    return IMPEL_OK;
}
