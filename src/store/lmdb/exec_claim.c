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
    int64_t silence_ms;
    size_t room[3]; /* of entries, parked, reaped */
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
    *place = (struct settled){row->id, row->deliveries};
    (*count)++;
    return IMPEL_OK;
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
    request->claim_from.entry_count++;
    claiming->caller->seen_ms = claiming->caller->active_ms = exec->txn->now_ms;
    lmdb_consumer_changed(exec->txn, claiming->caller);
    return lmdb_pending_put(exec->txn, claiming->group, old, &row);
}

/* A row due for a claim: 1 = claimed or counted as left over, 0 = there is no room, stop in front
 * of it. */
static int due_row(struct claiming *claiming, const struct lmdb_pending *row)
{
    struct request *request = claiming->request;
    enum owner_state state = request->claim_from.state;
    bool last = (state == OWNER_DEAD || state == OWNER_FOREIGN) &&
                add_saturating(row->deliveries, 1) >= request->claim_from.policy.max_deliveries &&
                (request->claim_from.flags & CLAIM_LAST) == 0;

    if (!last && request->claim_from.entry_count < request->claim_from.claims_max) {
        int rc = claim_row(claiming, row);
        return rc < 0 ? rc : 1;
    }
    if (request->claim_from.due++ == 0) {
        request->claim_from.due_first = row->id;
    }
    request->claim_from.due_last += last;
    return last || request->claim_from.claims_max == 0;
}

static int park_row(struct claiming *claiming, const struct lmdb_pending *row)
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
        .reason = bytes_of("max-deliveries"),
    };
    int rc = lmdb_entry_get(exec->txn, claiming->stream, row->id, &raw);

    rc = rc < 0 ? rc : lmdb_raw_copy(exec->txn, &raw, &request->arena, &parking.raw);
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
        .deliveries = row->deliveries,
        .exists = exists >= 0,
    };
    int rc = exists < 0 && exists != IMPEL_ERR_NOT_FOUND ? exists : IMPEL_OK;

    if (rc < 0) {
        return rc;
    }
    switch (policy_verdict(&request->claim_from.policy, &view, &wait_ms)) {
    case VERDICT_CLAIM:
        return due_row(claiming, row);
    case VERDICT_PARK:
        rc = settle ? park_row(claiming, row) : rc;
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
    if (request->consumer.size == 0) {
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
    enum owner_state state = request->claim_from.state;
    if (rc >= 0 && state != OWNER_ME && state != OWNER_LIVE &&
        (request->claim_from.nobody || claiming.owner != NULL)) {
        rc = walk(&claiming);
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    table->cursor_owner = claiming.owner == NULL ? 0 : claiming.owner->number;
    table->cursor_ms = request->claim_from.next.ms;
    table->cursor_seq = request->claim_from.next.seq;
    return IMPEL_OK;
}
