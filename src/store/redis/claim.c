/* claim.c -- walking an abandoned owner's pending rows: one script judges, claims, parks and reaps;
 * what is too large for it to park goes out again in a MULTI each (park.c). */
#include "store/redis/redis.h"

#include <string.h>

enum {
    STAGE_WALK,
    STAGE_LARGE, /* one MULTI for each */
    LARGE_REPLIES = 4,
    ANSWER_SIZE = 17,
};

struct walking {
    struct large *large;
    size_t large_count;
    struct impel_error why; /* of the MULTI whose replies come in */
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

static int send_walk(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    const struct policy *policy = &request->claim_from.policy;

    cmd_script(op, SCRIPT_CLAIM, request->claim_from.dead_letter);
    cmd_bytes(op, request->claim_from.owner);
    cmd_text(op, request->claim_from.nobody ? "1" : "0");
    cmd_id(op, request->claim_from.from);
    cmd_number(op, request->claim_from.rows_max);
    cmd_number(op, request->claim_from.claims_max);
    cmd_text(op, request->claim_from.flags & CLAIM_LAST ? "1" : "0");
    cmd_text(op, request->claim_from.flags & CLAIM_SETTLE ? "1" : "0");
    cmd_number(op, policy->min_idle_ms);
    cmd_number(op, policy->max_deliveries);
    cmd_number(op, policy->backoff_base_ms);
    cmd_number(op, policy->backoff_cap_ms);
    cmd_end(op, out);
    return 1;
}

static int claim_send(struct op *op, struct buf *out)
{
    const struct walking *walking = op->user;
    const struct request *request = op->request;
    int replies = 0;

    if (op->stage == STAGE_WALK) {
        return send_walk(op, out);
    }
    for (size_t i = 0; i < walking->large_count; i++) {
        replies += large_send(op, &walking->large[i], request->claim_from.dead_letter, out);
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

static bool read_entries(struct op *op, const struct value *from)
{
    struct request *request = op->request;

    request->claim_from.entry_count = 0;
    request->claim_from.entries =
        arena_calloc(&request->arena, from->item_count + 1, sizeof(struct delivered));
    if (request->claim_from.entries == NULL) {
        return false;
    }
    for (size_t i = 0; i < from->item_count; i++) {
        const struct value *each = item(from, i);
        struct delivered *out = &request->claim_from.entries[request->claim_from.entry_count];
        out->entry = entry_of(op->store, item(each, 0), item(each, 3));
        if (out->entry == NULL) {
            return false;
        }
        out->deliveries = item_number(each, 1);
        out->idle_ms = item_number(each, 2);
        out->from = request->claim_from.state;
        request->claim_from.entry_count++;
    }
    return true;
}

static bool read_large(struct op *op, const struct value *from, struct impel_bytes row)
{
    struct request *request = op->request;
    struct walking *walking = arena_calloc(&request->arena, 1, sizeof(*walking));

    if (walking == NULL || !arena_copy(&request->arena, row, &row)) {
        return false;
    }
    op->user = walking;
    walking->large = arena_calloc(&request->arena, from->item_count, sizeof(struct large));
    for (size_t i = 0; walking->large != NULL && i < from->item_count; i++) {
        const struct value *each = item(from, i);
        struct large *large = &walking->large[i];
        *large = (struct large){.owner = request->claim_from.owner,
                                .deliveries = item_number(each, 1),
                                .last_active_ms = item_number(each, 2),
                                .parked_ms = request->store_now_ms,
                                .reason = bytes_of("max-deliveries"),
                                .row = row,
                                .entry = entry_of(op->store, item(each, 0), item(each, 3))};
        if (large->entry == NULL) {
            return false;
        }
        large->id = large->entry->id;
        walking->large_count++;
    }
    return walking->large != NULL;
}

static void park_failed(struct request *request, struct impel_bytes why)
{
    char text[250];

    if (request->claim_from.park_failed++ == 0) {
        (void)error_set(&request->claim_from.park_error, reply_status(why), "%s",
                        bytes_quote(why, text, sizeof(text)));
    }
}

static bool read_walk(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    size_t large = item(reply, 15)->item_count;
    size_t failed = (size_t)item_number(reply, 6);

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
    return read_entries(op, item(reply, 3)) &&
           read_settled(&request->arena, item(reply, 4), &request->claim_from.parked,
                        &request->claim_from.parked_count) &&
           read_settled(&request->arena, item(reply, 5), &request->claim_from.reaped,
                        &request->claim_from.reaped_count) &&
           (large == 0 || read_large(op, item(reply, 15), item_bytes(reply, 16)));
}

/* A large one was parked: the list has to grow by one. */
static bool add_parked(struct request *request, const struct large *large)
{
    size_t count = request->claim_from.parked_count;
    struct settled *more = arena_calloc(&request->arena, count + 1, sizeof(*more));

    if (more == NULL) {
        return false;
    }
    memcpy(more, request->claim_from.parked, count * sizeof(*more));
    more[count] = (struct settled){large->id, large->deliveries};
    request->claim_from.parked = more;
    request->claim_from.parked_count++;
    return true;
}

static enum op_next take_large(struct op *op, const struct value *reply)
{
    struct walking *walking = op->user;
    int result = ITEM_FAILED;

    if (large_take(op, reply, &result, &walking->why)) {
        const struct large *large = &walking->large[op->taken / LARGE_REPLIES];
        if (result == ITEM_DONE && !add_parked(op->request, large)) {
            result = ITEM_FAILED;
        }
        if (result == ITEM_FAILED) {
            park_failed(op->request, bytes_of(walking->why.text));
        }
        walking->why = (struct impel_error){0};
    }
    return op->taken + 1 < op->replies ? OP_MORE : claim_over(op, IMPEL_OK);
}

static enum op_next claim_take(struct op *op, const struct value *reply)
{
    if (op->stage == STAGE_LARGE) {
        return take_large(op, reply);
    }
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
    if (op->user != NULL) {
        op->stage = STAGE_LARGE;
        return OP_AGAIN;
    }
    return claim_over(op, IMPEL_OK);
}

const struct op_kind op_claim = {
    .name = "claim", .send = claim_send, .take = claim_take, .forget = walking_free};
