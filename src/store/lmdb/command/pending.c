/* pending.c -- XACK and XPENDING.
 *
 *   XACK key group id [id ...]
 *   XPENDING key group [[IDLE min-idle] start end count [consumer]] */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

/* ---- XACK ---- */

static bool acknowledge(struct call *call, struct lmdb_group *group, struct impel_id id, bool *was)
{
    struct lmdb_pending row;
    int rc = lmdb_pending_get(call->txn, group, id, &row);

    *was = rc >= 0;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return true;
    }
    return call_check(call, rc) && call_check(call, lmdb_pending_delete(call->txn, group, &row));
}

void call_xack(struct call *call)
{
    struct lmdb_stream *stream;
    struct lmdb_group *group;
    int64_t acked = 0;

    if (!call_stream(call, call->args[1], &stream) ||
        !call_group(call, stream, call->args[2], &group)) {
        return;
    }
    if (group == NULL) {
        call_reply_integer(call, 0);
        return;
    }
    struct impel_id *ids = call_ids(call, 3);
    if (ids == NULL) {
        return;
    }
    for (size_t i = 0; i < call->arg_count - 3; i++) {
        bool was;
        if (!acknowledge(call, group, ids[i], &was)) {
            return;
        }
        acked += was ? 1 : 0;
    }
    call_reply_integer(call, acked);
}

/* ---- XPENDING ---- */

struct xpending {
    bool extended;
    int64_t min_idle_ms; /* 0 = all */
    struct impel_id start, end;
    uint64_t count;
    bool by_consumer;
    struct impel_bytes consumer;
};

static bool xpending_parse(struct call *call, struct xpending *pending)
{
    size_t at = 3;
    int64_t count;

    if (call->arg_count != 3 && (call->arg_count < 6 || call->arg_count > 9)) {
        return call_error_syntax(call);
    }
    pending->extended = call->arg_count > 3;
    if (!pending->extended) {
        return true;
    }
    if (call_word_is(call, at, "IDLE")) {
        if (!call_integer(call, at + 1, &pending->min_idle_ms)) {
            return false;
        }
        if (call->arg_count < 8) {
            return call_error_syntax(call);
        }
        at += 2;
    }
    if (!call_integer(call, at + 2, &count) || !call_interval_start(call, at, &pending->start) ||
        !call_interval_end(call, at + 1, &pending->end)) {
        return false;
    }
    pending->count = count < 0 ? 0 : (uint64_t)count;
    pending->by_consumer = at + 3 < call->arg_count;
    if (pending->by_consumer) {
        pending->consumer = call->args[at + 3];
    }
    return true;
}

/* [consumer, count] for each that has any. */
static bool summary_consumers(struct call *call, struct lmdb_group *group, struct value *list)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_consumer *consumer;
    bool good = call_check(call, lmdb_walk_consumers(&walk, call->txn, group));
    int more = 0;

    list->kind = VALUE_ARRAY;
    while (good && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        if (consumer->pending == 0) {
            continue;
        }
        struct value *item = call_append(call, list);
        struct value *pair = item == NULL ? NULL : call_list(call, item, VALUE_ARRAY, 2);
        good = pair != NULL && call_bulk(call, &pair[0], consumer->name) &&
               call_bulk_integer(call, &pair[1], consumer->pending);
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

static void summary(struct call *call, struct lmdb_group *group)
{
    struct lmdb_pending first, last;
    struct value *items = call_list(call, call->reply, VALUE_ARRAY, 4);

    if (items == NULL) {
        return;
    }
    items[0] = value_integer((int64_t)group->pending);
    if (group->pending == 0) {
        items[3].kind = VALUE_NULL_ARRAY;
        return;
    }
    if (call_check(call, lmdb_pending_first(call->txn, group, &first)) &&
        call_check(call, lmdb_pending_last(call->txn, group, &last)) &&
        call_bulk_id(call, &items[1], first.id) && call_bulk_id(call, &items[2], last.id)) {
        summary_consumers(call, group, &items[3]);
    }
}

/* Begins the walk that the words ask for. `*none` if they name a consumer that there is not. */
static bool walk_begin(struct call *call,
                       const struct xpending *pending,
                       struct lmdb_group *group,
                       struct lmdb_walk *walk,
                       bool *none)
{
    struct lmdb_consumer *consumer;

    *none = false;
    if (!pending->by_consumer) {
        return call_check(call, lmdb_walk_pending(walk, call->txn, group, pending->start));
    }
    int rc = lmdb_consumer_find(call->txn, group, pending->consumer, &consumer);
    *none = rc == IMPEL_ERR_NOT_FOUND;
    return *none || (call_check(call, rc) &&
                     call_check(call, lmdb_walk_owned(walk, call->txn, consumer, pending->start)));
}

/* [ID, owner, idle, deliveries] */
static bool extended_row(struct call *call,
                         struct lmdb_group *group,
                         const struct lmdb_pending *row,
                         int64_t idle_ms)
{
    struct impel_bytes owner;
    struct value *item = call_append(call, call->reply);
    struct value *parts = item == NULL ? NULL : call_list(call, item, VALUE_ARRAY, 4);

    if (parts == NULL || !call_owner_name(call, group, row->owner, &owner) ||
        !call_bulk_id(call, &parts[0], row->id) || !call_bulk(call, &parts[1], owner)) {
        return false;
    }
    parts[2] = value_integer(row->owner == 0 ? -1 : idle_ms < 0 ? 0 : idle_ms);
    parts[3] = value_integer(row->deliveries);
    return true;
}

static void extended(struct call *call, const struct xpending *pending, struct lmdb_group *group)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    uint64_t shown = 0;
    bool none;
    bool good = walk_begin(call, pending, group, &walk, &none) && !none;

    call->reply->kind = VALUE_ARRAY;
    while (good && shown < pending->count) {
        int more = lmdb_next_pending(&walk, &row);
        if (!call_check(call, more) || more == 0 || id_compare(row.id, pending->end) > 0) {
            break;
        }
        int64_t idle_ms = sub_saturating(lmdb_now_ms(call->txn), row.delivered_ms);
        if (pending->min_idle_ms != 0 && idle_ms < pending->min_idle_ms) {
            continue;
        }
        good = extended_row(call, group, &row, idle_ms);
        shown++;
    }
    lmdb_walk_end(&walk);
}

void call_xpending(struct call *call)
{
    struct xpending pending = {.extended = false};
    struct lmdb_group *group;

    if (!xpending_parse(call, &pending) || !call_key_and_group(call, 1, &group)) {
        return;
    }
    if (pending.extended) {
        extended(call, &pending, group);
    } else {
        summary(call, group);
    }
}
