/* claim.c -- walking an abandoned owner's pending rows: one script judges, claims, parks and reaps.
 *
 * The entries that it claimed are fetched afterwards, by one XRANGE for each few hundred as a rule:
 * they are the caller's by then, and passing them through the script would cost more than the rest
 * of it. These XRANGEs go out together, so that one answer is read here while the server makes the
 * next. An entry that is trimmed just in between is reaped like those that the script found gone.
 * What is too large for a script to park goes out again in a MULTI each (park.c). */
#include "store/redis/redis.h"

#include <string.h>

enum {
    STAGE_WALK,
    STAGE_FETCH, /* an XRANGE over every FETCH_CHUNK that were claimed */
    STAGE_EACH,  /* XRANGE for each that this did not reach */
    STAGE_GONE,  /* XACK for those that are gone from the stream since */
    STAGE_LARGE, /* one MULTI for each */
    FETCH_CHUNK = 250,
    FETCH_MORE = 8,         /* entries in between that are not ours, beside a quarter */
    CLAIM_BYTES = 16 << 20, /* of entries that are claimed in one step, by those of late */
    CLAIMS_FIRST = 200,     /* while nothing is known of how large entries are here */
    ANSWER_SIZE = 19,
};

struct walking {
    struct impel_id *ids; /* that were claimed, one for each of the request's entries */
    struct large *large;
    size_t large_count;
    struct impel_error why; /* of the MULTI whose replies come in, or of a fetch that failed */
    size_t gone;            /* of those that were asked for one by one */
};

static void walking_free(struct op *op)
{
    struct walking *walking = op->user;

    for (size_t i = 0; walking != NULL && i < walking->large_count; i++) {
        entry_free(walking->large[i].entry);
    }
    op->user = NULL;
}

static enum op_next claim_over(struct op *op, int status)
{
    if (status < 0) {
        (void)error_set(&op->request->error, status, "claim: %s", status_text(status));
    }
    op_finish(op, status);
    return OP_DONE;
}

/* A thousand large entries would not fit into one answer. */
static int64_t claims_max(const struct op *op)
{
    size_t known = op->store->entry_bytes;
    size_t fits = known > 0 ? CLAIM_BYTES / known : CLAIMS_FIRST;
    size_t count = op->request->claim_from.claims_max;

    fits = fits > 0 ? fits : 1;
    return (int64_t)(count < fits ? count : fits);
}

static int send_walk(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    const struct policy *policy = &request->claim_from.policy;

    cmd_script(op, SCRIPT_CLAIM, request->claim_from.dead_letter);
    cmd_bytes(op, request->claim_from.owner);
    cmd_text(op, request->claim_from.nobody ? "1" : "0");
    cmd_id(op, request->claim_from.from);
    cmd_number(op, request->claim_from.rows_max);
    cmd_number(op, op->store->native ? request->claim_from.claims_max : claims_max(op));
    cmd_text(op, request->claim_from.flags & CLAIM_LAST ? "1" : "0");
    cmd_text(op, request->claim_from.flags & CLAIM_SETTLE ? "1" : "0");
    cmd_number(op, policy->min_idle_ms);
    cmd_number(op, policy->max_deliveries);
    cmd_number(op, policy->backoff_base_ms);
    cmd_number(op, policy->backoff_cap_ms);
    cmd_text(op, request->claim_from.flags & CLAIM_REQUEUE     ? "requeue"
                 : request->claim_from.flags & CLAIM_HAND_OVER ? "hand-over"
                 : request->claim_from.flags & CLAIM_PARK      ? "park"
                                                               : "");
    cmd_bytes(op, request->claim_from.heir);
    cmd_text(op, request->claim_from.flags & CLAIM_ALL_GROUPS ? "1" : "0");
    cmd_end(op, out);
    return 1;
}

static void
put_range(struct op *op, struct impel_id first, struct impel_id last, size_t count, struct buf *out)
{
    cmd_begin(op);
    cmd_text(op, "XRANGE");
    cmd_bytes(op, op->request->stream);
    cmd_id(op, first);
    cmd_id(op, last);
    cmd_text(op, "COUNT");
    cmd_number(op, (int64_t)count);
    cmd_end(op, out);
}

/* The k-th of the claimed whose entry has not come; `entry_count` if there is none. */
static size_t nth_missing(const struct request *request, size_t k)
{
    size_t i = 0;

    for (; i < request->claim_from.entry_count; i++) {
        if (request->claim_from.entries[i].entry == NULL && k-- == 0) {
            break;
        }
    }
    return i;
}

static int send_fetch(struct op *op, struct buf *out)
{
    const struct walking *walking = op->user;
    size_t all = op->request->claim_from.entry_count;
    int replies = 0;

    for (size_t at = 0; at < all; at += FETCH_CHUNK) {
        size_t count = all - at < FETCH_CHUNK ? all - at : FETCH_CHUNK;
        put_range(op, walking->ids[at], walking->ids[at + count - 1],
                  count == 1 ? 1 : count + count / 4 + FETCH_MORE, out);
        replies++;
    }
    return replies;
}

static int send_each(struct op *op, struct buf *out)
{
    const struct walking *walking = op->user;
    const struct request *request = op->request;
    int replies = 0;

    for (size_t i = 0; i < request->claim_from.entry_count; i++) {
        if (request->claim_from.entries[i].entry == NULL) {
            put_range(op, walking->ids[i], walking->ids[i], 1, out);
            replies++;
        }
    }
    return replies;
}

static int send_gone(struct op *op, struct buf *out)
{
    const struct walking *walking = op->user;
    const struct request *request = op->request;

    cmd_begin(op);
    cmd_text(op, "XACK");
    cmd_bytes(op, request->stream);
    cmd_bytes(op, request->group);
    for (size_t i = 0; i < request->claim_from.entry_count; i++) {
        if (request->claim_from.entries[i].entry == NULL) {
            cmd_id(op, walking->ids[i]);
        }
    }
    cmd_end(op, out);
    return 1;
}

static int claim_send(struct op *op, struct buf *out)
{
    const struct walking *walking = op->user;
    const struct request *request = op->request;
    int replies = 0;

    switch (op->stage) {
    case STAGE_WALK:
        return send_walk(op, out);
    case STAGE_FETCH:
        return send_fetch(op, out);
    case STAGE_EACH:
        return send_each(op, out);
    case STAGE_GONE:
        return send_gone(op, out);
    default:
        break;
    }
    for (size_t i = 0; i < walking->large_count; i++) {
        replies += (int)large_send(op, &walking->large[i], request->claim_from.dead_letter, out);
    }
    return replies;
}

/* ---- the answer ---- */

static bool
read_settled(struct arena *arena, const struct value *from, struct settled **out, size_t *count)
{
    /* One more for each row that may be parked later. */
    *out = arena_calloc(arena, from->item_count + 1, sizeof(**out));
    *count = 0;
    for (size_t i = 0; *out != NULL && i < from->item_count; i++) {
        (*out)[i].deliveries = item_number(item(from, i), 1);
        if (!item_id(item(from, i), 0, &(*out)[i].id)) {
            return false;
        }
        (*count)++;
    }
    return *out != NULL;
}

/* The i-th of the claimed, with the entry where it came along. */
static bool read_one(
    struct op *op, const struct value *from, size_t i, struct impel_id *id, struct delivered *out)
{
    const struct value *row = item(from, i);
    bool whole = row->kind == VALUE_ARRAY;
    size_t at = whole ? 0 : i * 3;

    row = whole ? row : from;
    if (!item_id(row, at, id)) {
        return false;
    }
    out->deliveries = item_number(row, at + 1);
    out->idle_ms = item_number(row, at + 2);
    out->from = op->request->claim_from.state;
    if (whole) {
        out->entry = entry_of(op->store, item(row, 0), item(row, 3));
    }
    return true;
}

/* A script answers a flat list, ID, deliveries, idle of each, and the entries are fetched later; a
 * server of our own answers rows with the entry in each. */
static bool read_claimed(struct op *op, const struct value *from)
{
    struct request *request = op->request;
    struct walking *walking = op->user;
    size_t count = item(from, 0)->kind == VALUE_ARRAY ? from->item_count : from->item_count / 3;

    request->claim_from.entry_count = 0;
    request->claim_from.entries =
        arena_calloc(&request->arena, count + 1, sizeof(struct delivered));
    walking->ids = arena_calloc(&request->arena, count + 1, sizeof(struct impel_id));
    if (request->claim_from.entries == NULL || walking->ids == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!read_one(op, from, i, &walking->ids[i], &request->claim_from.entries[i])) {
            return false;
        }
        request->claim_from.entry_count++;
    }
    return true;
}

static bool read_large(struct op *op, const struct value *from, struct impel_bytes row)
{
    struct request *request = op->request;
    struct walking *walking = op->user;

    if (!arena_copy(&request->arena, row, &row)) {
        return false;
    }
    walking->large = arena_calloc(&request->arena, from->item_count, sizeof(struct large));
    for (size_t i = 0; walking->large != NULL && i < from->item_count; i++) {
        const struct value *each = item(from, i);
        struct large *large = &walking->large[i];
        *large = (struct large){.owner = request->claim_from.owner,
                                .deliveries = item_number(each, 1),
                                .total = item_number(each, 5),
                                .last_active_ms = item_number(each, 2),
                                .parked_ms = request->store_now_ms,
                                .row = row,
                                .entry = entry_of(op->store, item(each, 0), item(each, 3))};
        if (large->entry == NULL ||
            !arena_copy(&request->arena, item_bytes(each, 4), &large->reason)) {
            return false;
        }
        large->requeue = large->reason.size == 0;
        large->id = large->entry->id;
        walking->large_count++;
    }
    return walking->large != NULL;
}

/* A flat list: ID, copy, deliveries, idle of each. */
static bool read_moved(struct request *request, const struct value *from, size_t large)
{
    size_t count = from->item_count / 4;

    request->claim_from.moved_count = 0;
    request->claim_from.moved =
        arena_calloc(&request->arena, count + large + 1, sizeof(struct moved));
    for (size_t i = 0; request->claim_from.moved != NULL && i < count; i++) {
        struct moved *moved = &request->claim_from.moved[i];
        moved->deliveries = item_number(from, i * 4 + 2);
        moved->idle_ms = item_number(from, i * 4 + 3);
        if (!item_id(from, i * 4, &moved->id) || !item_id(from, i * 4 + 1, &moved->copy)) {
            return false;
        }
        request->claim_from.moved_count++;
    }
    return request->claim_from.moved != NULL;
}

static void park_failed(struct request *request, struct impel_bytes why)
{
    char text[250];

    if (request->claim_from.park_failed++ == 0) {
        (void)error_set(&request->claim_from.park_error, reply_status(why), "%s",
                        bytes_quote(refusal_words(why), text, sizeof(text)));
    }
}

static bool read_walk(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    struct walking *walking = arena_calloc(&request->arena, 1, sizeof(*walking));
    size_t large = item(reply, 15)->item_count;
    size_t failed = (size_t)item_number(reply, 6);

    op->user = walking;
    if (walking == NULL) {
        return false;
    }
    request->claim_from.state = (enum owner_state)item_number(reply, 1);
    request->claim_from.beat = (enum beat_result)item_number(reply, 2);
    request->claim_from.park_failed = 0;
    if (failed > 0) {
        park_failed(request, item_bytes(reply, 7));
        request->claim_from.park_failed = failed;
    }
    request->claim_from.rows = (size_t)item_number(reply, 8);
    request->claim_from.due = (size_t)item_number(reply, 9);
    request->claim_from.due_last = (size_t)item_number(reply, 10);
    request->claim_from.not_due = (size_t)item_number(reply, 12);
    request->claim_from.wait_ms = item_number(reply, 13);
    request->claim_from.due_first = request->claim_from.next = ID_MIN;
    (void)item_id(reply, 11, &request->claim_from.due_first);
    (void)item_id(reply, 14, &request->claim_from.next);
    request->claim_from.other_groups = item_number(reply, 18) != 0;
    return read_claimed(op, item(reply, 3)) && read_moved(request, item(reply, 17), large) &&
           read_settled(&request->arena, item(reply, 4), &request->claim_from.parked,
                        &request->claim_from.parked_count) &&
           read_settled(&request->arena, item(reply, 5), &request->claim_from.reaped,
                        &request->claim_from.reaped_count) &&
           (large == 0 || read_large(op, item(reply, 15), item_bytes(reply, 16)));
}

/* One more in a list of the answer. */
static bool
add_settled(struct request *request, struct settled **list, size_t *count, struct settled settled)
{
    struct settled *more = arena_calloc(&request->arena, *count + 1, sizeof(*more));

    if (more == NULL) {
        return false;
    }
    if (*count > 0) {
        memcpy(more, *list, *count * sizeof(*more));
    }
    more[(*count)++] = settled;
    *list = more;
    return true;
}

/* In the order of IDs among those that a script could move. */
static void
add_moved(struct request *request, const struct large *large, struct impel_id copy, int64_t now_ms)
{
    size_t at = request->claim_from.moved_count++;

    while (at > 0 && id_compare(request->claim_from.moved[at - 1].id, large->id) > 0) {
        request->claim_from.moved[at] = request->claim_from.moved[at - 1];
        at--;
    }
    request->claim_from.moved[at] =
        (struct moved){large->id, copy, large->total, now_ms - large->last_active_ms};
}

static enum op_next take_large(struct op *op, const struct value *reply)
{
    struct walking *walking = op->user;
    struct impel_id copy = ID_MIN;
    int result = ITEM_FAILED;

    if (large_take(op, reply, &result, &copy, &walking->why)) {
        const struct large *large = &walking->large[op->taken / PARK_REPLIES];
        if (result == ITEM_DONE && large->requeue) {
            add_moved(op->request, large, copy, op->request->store_now_ms);
        } else if (result == ITEM_DONE && !add_settled(op->request, &op->request->claim_from.parked,
                                                       &op->request->claim_from.parked_count,
                                                       (struct settled){large->id, large->total})) {
            result = ITEM_FAILED;
        }
        if (result == ITEM_FAILED) {
            park_failed(op->request, bytes_of(walking->why.text));
        }
        walking->why = (struct impel_error){0};
    }
    return op->taken + 1 < op->replies ? OP_MORE : claim_over(op, IMPEL_OK);
}

/* ---- the entries ---- */

/* On to the large ones, if there are any. */
static enum op_next fetched(struct op *op)
{
    const struct walking *walking = op->user;

    if (walking->large_count > 0) {
        op->stage = STAGE_LARGE;
        return OP_AGAIN;
    }
    return claim_over(op, IMPEL_OK);
}

static void take_entry(struct op *op, size_t at, const struct value *from)
{
    struct walking *walking = op->user;
    struct delivered *out = &op->request->claim_from.entries[at];

    out->entry = entry_of(op->store, item(from, 0), item(from, 1));
    if (out->entry == NULL && walking->why.status >= 0) {
        (void)error_set(&walking->why, IMPEL_ERR_NOMEM, "claim: no memory for what was claimed");
    }
}

/* Both are in the order of IDs. What makes no sense, or was not reached, is asked for once more. */
static void take_range(struct op *op, const struct value *reply)
{
    const struct walking *walking = op->user;
    const struct request *request = op->request;
    struct impel_id id;
    size_t at = (size_t)op->taken * FETCH_CHUNK;

    for (size_t i = 0; i < reply->item_count; i++) {
        const struct value *each = item(reply, i);
        if (!item_id(each, 0, &id)) {
            continue;
        }
        while (at < request->claim_from.entry_count && id_compare(walking->ids[at], id) < 0) {
            at++;
        }
        if (at < request->claim_from.entry_count && id_equal(walking->ids[at], id) &&
            request->claim_from.entries[at].entry == NULL) {
            take_entry(op, at, each);
        }
    }
}

/* The replies are in the order of those that were missing; each that comes makes the next one the
 * first of those that are missing, except for what is gone. */
static void take_each(struct op *op, const struct value *reply)
{
    struct walking *walking = op->user;
    const struct request *request = op->request;

    if (op->taken == 0) {
        walking->gone = 0;
    }
    size_t at = nth_missing(request, walking->gone);
    ASSERT(at < request->claim_from.entry_count);
    if (reply->item_count > 0) {
        take_entry(op, at, item(reply, 0));
    }
    walking->gone += request->claim_from.entries[at].entry == NULL;
}

/* One of the answers with entries. If any was refused, or memory was out, none counts as gone: it stays
 * pending, and is found there again. */
static enum op_next take_fetched(struct op *op, const struct value *reply)
{
    struct walking *walking = op->user;

    if (reply->kind != VALUE_ARRAY && walking->why.status >= 0) {
        op_refusal(op, reply, &walking->why);
    }
    if (op->stage == STAGE_FETCH) {
        take_range(op, reply);
    } else {
        take_each(op, reply);
    }
    if (op->taken + 1 < op->replies) {
        return OP_MORE;
    }
    if (walking->why.status < 0) {
        op_fail(op, &walking->why);
        return OP_DONE;
    }
    if (nth_missing(op->request, 0) == op->request->claim_from.entry_count) {
        return fetched(op);
    }
    op->stage = op->stage == STAGE_FETCH ? STAGE_EACH : STAGE_GONE;
    return OP_AGAIN;
}

static enum op_next take_gone(struct op *op)
{
    const struct walking *walking = op->user;
    struct request *request = op->request;
    size_t kept = 0;

    for (size_t i = 0; i < request->claim_from.entry_count; i++) {
        struct delivered *each = &request->claim_from.entries[i];
        if (each->entry != NULL) {
            request->claim_from.entries[kept++] = *each;
        } else if (!add_settled(request, &request->claim_from.reaped,
                                &request->claim_from.reaped_count,
                                (struct settled){walking->ids[i], each->deliveries - 1})) {
            return claim_over(op, IMPEL_ERR_NOMEM);
        }
    }
    request->claim_from.entry_count = kept;
    return fetched(op);
}

static enum op_next take_walk(struct op *op, const struct value *reply)
{
    if (reply->kind == VALUE_ERROR && reply_status(reply->bytes) == IMPEL_ERR_REPLACED) {
        op->request->claim_from.beat = BEAT_OCCUPIED;
    }
    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    if (reply->item_count != ANSWER_SIZE) {
        return op_garbled(op);
    }
    if (!read_walk(op, reply)) {
        return claim_over(op, IMPEL_ERR_NOMEM);
    }
    if (nth_missing(op->request, 0) < op->request->claim_from.entry_count) {
        op->stage = STAGE_FETCH;
        return OP_AGAIN;
    }
    return fetched(op);
}

static enum op_next claim_take(struct op *op, const struct value *reply)
{
    switch (op->stage) {
    case STAGE_WALK:
        return take_walk(op, reply);
    case STAGE_FETCH:
    case STAGE_EACH:
        return take_fetched(op, reply);
    case STAGE_GONE:
        return take_gone(op);
    default:
        return take_large(op, reply);
    }
}

const struct op_kind op_claim = {
    .name = "claim", .send = claim_send, .take = claim_take, .forget = walking_free};
