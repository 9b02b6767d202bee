/* exec_items.c -- what a holder does to its own: ack, renew, retry, adopt, release, park.
 *
 * All but a plain ack are fenced: the caller's token must stand in the workers table, and each item
 * must still be its own with the deliveries it has seen. An item that is not is left alone. */
#include "store/lmdb/exec.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- ack ---- */

static int ack_item(struct exec *exec,
                    struct request *request,
                    struct lmdb_group *group,
                    const struct lmdb_consumer *caller,
                    struct request_item *item)
{
    struct lmdb_pending row;
    int rc = lmdb_pending_get(exec->txn, group, item->id, &row);

    item->result = ITEM_LOST;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc >= 0 && request->ack.strict &&
        (caller == NULL || row.owner != caller->number || row.deliveries != item->deliveries)) {
        return IMPEL_OK;
    }
    rc = rc < 0 ? rc : lmdb_pending_delete(exec->txn, group, &row);
    if (rc >= 0) {
        item->result = ITEM_DONE;
        request->ack.acked++;
    }
    return rc;
}

int exec_ack(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *caller = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    request->ack.acked = 0;
    if (rc >= 0 && request->ack.strict) {
        rc = exec_fence(exec, request, group);
    }
    if (rc < 0) {
        return rc;
    }
    if (request->ack.strict) {
        rc = lmdb_consumer_find(exec->txn, group, request->consumer, &caller);
        rc = rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
    }
    for (size_t i = 0; rc >= 0 && i < request->ack.item_count; i++) {
        rc = ack_item(exec, request, group, caller, &request->ack.items[i]);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

/* ---- park ---- */

static int
number_text(struct exec *exec, struct request *request, int64_t number, struct impel_bytes *out)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%" PRId64, number);
    return exec_copy(exec, request, bytes_of(text), out);
}

/* The fields that are added to a parked entry, so that it can be understood and put back. */
static int park_added(struct exec *exec,
                      struct request *request,
                      const struct exec_parking *parking,
                      struct impel_field *added)
{
    static const char *const names[PARK_FIELDS] = {
        "original_id", "original_stream", "original_group", "consumer",  "deliveries",
        "reason",      "error",           "last_active_ms", "parked_ms", "impel_fields",
    };
    char id_text[ID_TEXT_SIZE];
    struct lmdb_consumer *owner = NULL;
    int rc = IMPEL_OK;

    for (size_t i = 0; i < PARK_FIELDS; i++) {
        added[i] = (struct impel_field){.name = bytes_of(names[i])};
    }
    rc = exec_copy(exec, request, bytes_of(id_format(parking->row->id, id_text)), &added[0].value);
    added[1].value = parking->stream->name;
    added[2].value = parking->group->name;
    if (rc >= 0 && parking->row->owner != 0) {
        rc = lmdb_consumer_get(exec->txn, parking->group, parking->row->owner, &owner);
        added[3].value = rc < 0 ? added[3].value : owner->name;
    }
    rc = rc < 0 ? rc : number_text(exec, request, parking->deliveries, &added[4].value);
    added[5].value = parking->reason;
    added[6].value = parking->error;
    rc = rc < 0 ? rc : number_text(exec, request, parking->row->delivered_ms, &added[7].value);
    rc = rc < 0 ? rc : number_text(exec, request, exec->txn->now_ms, &added[8].value);
    return rc < 0 ? rc : number_text(exec, request, PARK_FIELDS, &added[9].value);
}

static int park_fields(struct exec *exec,
                       struct request *request,
                       const struct exec_parking *parking,
                       struct impel_field **out,
                       size_t *count)
{
    struct impel_field *own = NULL;
    size_t own_count = 0;
    int rc = IMPEL_OK;

    if (parking->entry != NULL) {
        own_count = parking->entry->field_count;
    } else {
        rc = lmdb_raw_fields(exec->txn, &parking->raw, &request->arena, &own, &own_count);
    }
    if (rc < 0) {
        return rc;
    }
    struct impel_field *fields =
        arena_calloc(&request->arena, own_count + PARK_FIELDS, sizeof(*fields));
    if (fields == NULL) {
        return exec_nomem(exec);
    }
    if (own_count > 0) {
        memcpy(fields, parking->entry != NULL ? parking->entry->fields : own,
               own_count * sizeof(*fields));
    }
    *out = fields;
    *count = own_count + PARK_FIELDS;
    return park_added(exec, request, parking, fields + own_count);
}

int exec_park(struct exec *exec,
              struct request *request,
              const struct exec_parking *parking,
              struct impel_error *err)
{
    struct lmdb_txn *txn = exec->txn;
    struct lmdb_stream *dead = NULL;
    struct impel_field *fields = NULL;
    size_t count = 0;
    struct impel_id id = {(uint64_t)txn->now_ms, 0};

    if (bytes_equal(parking->dead_letter, parking->stream->name)) {
        error_set(err, IMPEL_ERR_INVALID, "the dead-letter stream is the stream itself");
        return 0;
    }
    int rc = lmdb_stream_find(txn, parking->dead_letter, &dead);
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        error_set(err, rc, "the dead-letter key is not a stream");
        return 0;
    }
    if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    if (dead != NULL && !lmdb_stream_next_id(dead, txn->now_ms, &id)) {
        error_set(err, IMPEL_ERR_REPLY, "the dead-letter stream's last ID is used up");
        return 0;
    }
    rc = park_fields(exec, request, parking, &fields, &count);
    rc = rc < 0 ? rc : lmdb_append_check(txn, fields, count, true);
    if (rc == IMPEL_ERR_LIMIT) {
        error_set(err, rc, "the entry is too large for one more stream");
        return 0;
    }
    rc = rc < 0 || dead != NULL ? rc : lmdb_stream_open(txn, parking->dead_letter, &dead);
    rc = rc < 0 ? rc : lmdb_stream_append(txn, dead, id, fields, count, true);
    rc = rc < 0 ? rc : lmdb_pending_delete(txn, parking->group, parking->row);
    return rc < 0 ? rc : 1;
}

static int item_park(struct exec *exec,
                     struct request *request,
                     struct request_item *item,
                     struct exec_parking *parking,
                     bool exists)
{
    struct impel_error refused = {0};
    int rc = IMPEL_OK;

    parking->dead_letter = request->items.dead_letter;
    parking->deliveries = item->deliveries;
    parking->reason = item->reason;
    parking->error = item->error;
    if (!exists && item->copy == NULL) {
        item->result = ITEM_TRIMMED;
        return lmdb_pending_delete(exec->txn, parking->group, parking->row);
    }
    if (!exists) {
        parking->entry = item->copy;
        parking->reason = bytes_of("trimmed");
    } else {
        struct lmdb_raw raw = parking->raw;
        rc = lmdb_raw_copy(exec->txn, &raw, &request->arena, &parking->raw);
    }
    rc = rc < 0 ? rc : exec_park(exec, request, parking, &refused);
    if (rc == 0) {
        request->error = refused;
    }
    item->result = rc > 0 ? ITEM_DONE : ITEM_FAILED;
    return rc;
}

/* ---- retry, adopt, renew, release ---- */

/* RETRY, ADOPT: the next delivery, to the same holder. */
static int
item_take(struct exec *exec, struct request_item *item, const struct exec_parking *at, bool exists)
{
    struct lmdb_pending row = *at->row;

    if (!exists) {
        item->result = ITEM_TRIMMED;
        return lmdb_pending_delete(exec->txn, at->group, at->row);
    }
    int rc = lmdb_raw_entry(exec->txn, &at->raw, &item->entry);
    row.delivered_ms = exec->txn->now_ms;
    row.deliveries = add_saturating(row.deliveries, 1);
    item->result = ITEM_DONE;
    return rc < 0 ? rc : lmdb_pending_put(exec->txn, at->group, at->row, &row);
}

static int
item_release(struct exec *exec, const struct request_item *item, const struct exec_parking *at)
{
    struct lmdb_consumer *released = NULL;
    struct lmdb_pending row = *at->row;
    int rc = lmdb_consumer_open(exec->txn, at->group, bytes_of(RELEASED_NAME), &released);

    if (rc < 0) {
        return rc;
    }
    row.owner = released->number;
    row.delivered_ms = 1;
    if (item != NULL && item->give_back) {
        row.deliveries -= row.deliveries > 0;
    } else if (item != NULL) {
        row.delivered_ms = sub_saturating(exec->txn->now_ms, item->idle_ms);
    }
    return lmdb_pending_put(exec->txn, at->group, at->row, &row);
}

static int item_apply(struct exec *exec,
                      struct request *request,
                      struct lmdb_consumer *caller,
                      struct request_item *item)
{
    struct lmdb_pending row;
    struct exec_parking at = {.group = caller->group, .stream = caller->group->stream, .row = &row};
    int rc = lmdb_pending_get(exec->txn, at.group, item->id, &row);

    item->result = ITEM_LOST;
    if (rc == IMPEL_ERR_NOT_FOUND ||
        (rc >= 0 && (row.owner != caller->number || row.deliveries != item->deliveries))) {
        return IMPEL_OK;
    }
    rc = rc < 0 ? rc : lmdb_entry_get(exec->txn, at.stream, item->id, &at.raw);
    if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    bool exists = rc >= 0;
    switch (request->kind) {
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
        return item_take(exec, item, &at, exists);
    case REQUEST_RENEW: {
        struct lmdb_pending renewed = row;
        renewed.delivered_ms = exec->txn->now_ms;
        item->result = exists ? ITEM_DONE : ITEM_TRIMMED;
        return exists ? lmdb_pending_put(exec->txn, at.group, &row, &renewed) : exec->txn->status;
    }
    case REQUEST_RELEASE:
        item->result = ITEM_DONE;
        return item_release(exec, item, &at);
    default:
        return item_park(exec, request, item, &at, exists);
    }
}

/* Whatever else the caller owns goes back as well. */
static int release_rest(struct exec *exec, struct request *request, struct lmdb_consumer *caller)
{
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    struct exec_parking at = {.group = caller->group, .stream = caller->group->stream, .row = &row};
    int rc = lmdb_walk_owned(&walk, exec->txn, caller, ID_MIN);

    while (rc >= 0 && (rc = lmdb_next_pending(&walk, &row)) > 0) {
        if (request->items.rested == RELEASE_REST_MAX) {
            request->items.more = true;
            break;
        }
        rc = item_release(exec, NULL, &at);
        request->items.rested++;
    }
    lmdb_walk_end(&walk);
    return rc;
}

int exec_items(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *caller = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    request->items.more = false;
    request->items.rested = 0;
    rc = rc < 0 ? rc : exec_fence(exec, request, group);
    if (rc < 0) {
        return rc;
    }
    rc = lmdb_consumer_find(exec->txn, group, request->consumer, &caller);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        for (size_t i = 0; i < request->items.item_count; i++) {
            request->items.items[i].result = ITEM_LOST;
        }
        return IMPEL_OK;
    }
    for (size_t i = 0; rc >= 0 && i < request->items.item_count; i++) {
        rc = item_apply(exec, request, caller, &request->items.items[i]);
    }
    if (rc >= 0 && request->kind == REQUEST_RELEASE && request->items.rest) {
        rc = release_rest(exec, request, caller);
    }
    if (rc >= 0) {
        caller->seen_ms = exec->txn->now_ms;
        lmdb_consumer_changed(exec->txn, caller);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}
