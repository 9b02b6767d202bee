/* claim.c -- XCLAIM and XAUTOCLAIM: taking over pending entries.
 *
 *   XCLAIM key group consumer min-idle id [id ...]
 *          [IDLE ms] [TIME unix-ms] [RETRYCOUNT n] [FORCE] [JUSTID] [LASTID id]
 *   XAUTOCLAIM key group consumer min-idle start [COUNT n] [JUSTID]
 *
 * XCLAIM looks its group up before it reads its words, XAUTOCLAIM after. A row whose entry is gone
 * is removed by both, whatever its idle time. */
#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum {
    AUTOCLAIM_COUNT_DEFAULT = 100,
    AUTOCLAIM_ATTEMPTS = 10, /* rows looked at for each one asked for */
};
/* Above the first, COUNT is refused; between the two Redis finds no memory for it. */
#define AUTOCLAIM_COUNT_MAX      (INT64_MAX / 16)
#define AUTOCLAIM_COUNT_POSSIBLE ((int64_t)1 << 36)

/* What both do to a row, and for whom. */
struct claim {
    struct lmdb_group *group;
    struct lmdb_consumer *consumer;
    int64_t min_idle_ms;
    int64_t delivered_ms; /* to be recorded */
    int64_t deliveries;   /* RETRYCOUNT; -1 = count one more, unless `just_id` */
    bool just_id;
    bool force;
};

/* The owner, the time and the count of `row` (`old` as it is in the store, NULL if new). */
static bool claim_take(struct call *call,
                       const struct claim *claim,
                       const struct lmdb_pending *old,
                       struct lmdb_pending row)
{
    row.owner = claim->consumer->number;
    row.delivered_ms = claim->delivered_ms;
    if (claim->deliveries >= 0) {
        row.deliveries = claim->deliveries;
    } else if (!claim->just_id) {
        row.deliveries = (int64_t)((uint64_t)row.deliveries + 1); /* wraps, as Redis's does */
    }
    call_changed(call, 1);
    claim->consumer->active_ms = lmdb_now_ms(call->txn);
    lmdb_consumer_changed(call->txn, claim->consumer);
    return call_check(call, lmdb_pending_put(call->txn, claim->group, old, &row));
}

/* The claimed entry at the end of the list; `raw` is read before anything is written. */
static bool claim_emit(struct call *call,
                       const struct claim *claim,
                       struct value *list,
                       const struct lmdb_raw *raw)
{
    struct value *item = call_append(call, list);

    if (item == NULL) {
        return false;
    }
    return claim->just_id ? call_bulk_id(call, item, raw->id) : call_entry(call, item, raw);
}

static bool
idle_enough(struct call *call, const struct claim *claim, const struct lmdb_pending *row)
{
    int64_t idle_ms = sub_saturating(lmdb_now_ms(call->txn), row->delivered_ms);
    return row->owner == 0 || claim->min_idle_ms <= 0 || idle_ms >= claim->min_idle_ms;
}

/* ---- XCLAIM ---- */

struct xclaim {
    struct claim claim;
    struct impel_id *ids;
    size_t id_count;
    struct impel_id last_id;
};

/* One option at `*index`, which is then the next one's. */
static bool xclaim_option(struct call *call, size_t *index, struct xclaim *xclaim)
{
    static const char *const numbers[] = {"IDLE", "TIME", "RETRYCOUNT"};
    size_t at = *index;
    size_t which = 0;
    int64_t number = 0;

    if (call_word_is(call, at, "FORCE") || call_word_is(call, at, "JUSTID")) {
        xclaim->claim.force |= call_word_is(call, at, "FORCE");
        xclaim->claim.just_id |= call_word_is(call, at, "JUSTID");
        *index = at + 1;
        return true;
    }
    *index = at + 2;
    while (which < ARRAY_SIZE(numbers) && !call_word_is(call, at, numbers[which])) {
        which++;
    }
    if (at + 1 < call->arg_count && call_word_is(call, at, "LASTID")) {
        return call_id(call, at + 1, 0, &xclaim->last_id);
    }
    if (at + 1 >= call->arg_count || which == ARRAY_SIZE(numbers)) {
        return call_error(call, "ERR Unrecognized XCLAIM option '%.*s'", CALL_TEXT(call->args[at]));
    }
    if (!word_integer(call->args[at + 1], &number)) {
        return call_error(call, "ERR Invalid %s option argument for XCLAIM", numbers[which]);
    }
    if (which == 0) {
        uint64_t now_ms = (uint64_t)lmdb_now_ms(call->txn);
        xclaim->claim.delivered_ms = (int64_t)(now_ms - (uint64_t)number);
    } else if (which == 1) {
        xclaim->claim.delivered_ms = number;
    } else {
        xclaim->claim.deliveries = number;
    }
    return true;
}

static bool xclaim_parse(struct call *call, struct xclaim *xclaim)
{
    int64_t now_ms = lmdb_now_ms(call->txn);
    size_t i = 5;

    if (!word_integer(call->args[4], &xclaim->claim.min_idle_ms)) {
        return call_error(call, "ERR Invalid min-idle-time argument for XCLAIM");
    }
    xclaim->ids = arena_calloc(call->arena, call->arg_count, sizeof(*xclaim->ids));
    if (xclaim->ids == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    for (; i < call->arg_count; i++) {
        if (!word_id(call->args[i], 0, &xclaim->ids[xclaim->id_count])) {
            break;
        }
        xclaim->id_count++;
    }
    xclaim->claim.delivered_ms = -1;
    xclaim->claim.deliveries = -1;
    while (i < call->arg_count) {
        if (!xclaim_option(call, &i, xclaim)) {
            return false;
        }
    }
    if (xclaim->claim.delivered_ms < 0 || xclaim->claim.delivered_ms > now_ms) {
        xclaim->claim.delivered_ms = now_ms;
    }
    return true;
}

static bool xclaim_one(struct call *call, const struct claim *claim, struct impel_id id)
{
    struct lmdb_pending row;
    struct lmdb_raw raw;
    bool exists;
    int rc = lmdb_pending_get(call->txn, claim->group, id, &row);
    bool known = rc >= 0;

    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return false;
    }
    if (!call_entry_exists(call, claim->group->stream, id, &raw, &exists)) {
        return false;
    }
    if (!exists) {
        call_changed(call, known);
        return !known || call_check(call, lmdb_pending_delete(call->txn, claim->group, &row));
    }
    if (!known && !claim->force) {
        return true;
    }
    if (known && !idle_enough(call, claim, &row)) {
        return true;
    }
    if (!claim_emit(call, claim, call->reply, &raw)) {
        return false;
    }
    return known ? claim_take(call, claim, &row, row)
                 : claim_take(call, claim, NULL, (struct lmdb_pending){.id = id, .deliveries = 1});
}

void call_xclaim(struct call *call)
{
    struct xclaim xclaim = {.id_count = 0};
    struct claim *claim = &xclaim.claim;

    if (!call_key_and_group(call, 1, &claim->group) || !xclaim_parse(call, &xclaim)) {
        return;
    }
    if (id_compare(xclaim.last_id, claim->group->last_id) > 0) {
        claim->group->last_id = xclaim.last_id;
        lmdb_group_changed(call->txn, claim->group);
    }
    if (!call_consumer(call, claim->group, call->args[3], &claim->consumer)) {
        return;
    }
    call->reply->kind = VALUE_ARRAY;
    for (size_t i = 0; i < xclaim.id_count; i++) {
        if (!xclaim_one(call, claim, xclaim.ids[i])) {
            return;
        }
    }
}

/* ---- XAUTOCLAIM ---- */

struct xautoclaim {
    struct claim claim;
    struct impel_id start;
    int64_t count;
};

static bool xautoclaim_parse(struct call *call, struct xautoclaim *xauto)
{
    if (!word_integer(call->args[4], &xauto->claim.min_idle_ms)) {
        return call_error(call, "ERR Invalid min-idle-time argument for XAUTOCLAIM");
    }
    if (!call_interval_start(call, 5, &xauto->start)) {
        return false;
    }
    xauto->count = AUTOCLAIM_COUNT_DEFAULT;
    for (size_t i = 6; i < call->arg_count; i++) {
        if (call_word_is(call, i, "COUNT") && i + 1 < call->arg_count) {
            i++;
            if (!word_integer(call->args[i], &xauto->count) || xauto->count < 1 ||
                xauto->count > AUTOCLAIM_COUNT_MAX) {
                return call_error(call, "ERR COUNT must be > 0");
            }
        } else if (call_word_is(call, i, "JUSTID")) {
            xauto->claim.just_id = true;
        } else {
            return call_error_syntax(call);
        }
    }
    xauto->claim.delivered_ms = lmdb_now_ms(call->txn);
    xauto->claim.deliveries = -1;
    return true;
}

/* Judges one row: claims it, removes it, or leaves it. `*got` if it counts towards COUNT. */
static bool xautoclaim_one(struct call *call,
                           const struct claim *claim,
                           const struct lmdb_pending *row,
                           struct value *items,
                           bool *got)
{
    struct lmdb_raw raw;
    bool exists;

    *got = false;
    if (!call_entry_exists(call, claim->group->stream, row->id, &raw, &exists)) {
        return false;
    }
    if (!exists) {
        struct value *item = call_append(call, &items[2]);
        *got = true;
        call_changed(call, 1);
        return item != NULL && call_bulk_id(call, item, row->id) &&
               call_check(call, lmdb_pending_delete(call->txn, claim->group, row));
    }
    if (!idle_enough(call, claim, row)) {
        return true;
    }
    *got = true;
    return claim_emit(call, claim, &items[1], &raw) && claim_take(call, claim, row, *row);
}

/* Walks the group's PEL; `*cursor` is where to go on, 0-0 at the end. */
static bool xautoclaim_walk(struct call *call,
                            const struct xautoclaim *xauto,
                            struct value *items,
                            struct impel_id *cursor)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    int64_t left = xauto->count;
    int64_t attempts = mul_saturating(xauto->count, AUTOCLAIM_ATTEMPTS);
    bool good =
        call_check(call, lmdb_walk_pending(&walk, call->txn, xauto->claim.group, xauto->start));

    while (good) {
        int more = lmdb_next_pending(&walk, &row);
        good = call_check(call, more);
        if (!good || more == 0) {
            break;
        }
        if (left == 0 || attempts == 0) {
            *cursor = row.id;
            break;
        }
        bool got;
        good = xautoclaim_one(call, &xauto->claim, &row, items, &got);
        left -= got ? 1 : 0;
        attempts--;
    }
    lmdb_walk_end(&walk);
    return good;
}

void call_xautoclaim(struct call *call)
{
    struct xautoclaim xauto = {.start = ID_MIN};
    struct impel_id cursor = ID_MIN;

    if (!xautoclaim_parse(call, &xauto) || !call_key_and_group(call, 1, &xauto.claim.group)) {
        return;
    }
    if (xauto.count > AUTOCLAIM_COUNT_POSSIBLE) {
        call_error(call, "ERR Insufficient memory, failed allocating transient memory, COUNT too "
                         "high.");
        return;
    }
    struct value *items = call_list(call, call->reply, VALUE_ARRAY, 3);
    if (items == NULL ||
        !call_consumer(call, xauto.claim.group, call->args[3], &xauto.claim.consumer)) {
        return;
    }
    items[1].kind = VALUE_ARRAY;
    items[2].kind = VALUE_ARRAY;
    if (xautoclaim_walk(call, &xauto, items, &cursor)) {
        call_bulk_id(call, &items[0], cursor);
    }
}
