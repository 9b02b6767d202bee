/* park.c -- parking: a script copies entries to the dead-letter stream and acknowledges them.
 *
 * Copies that the caller still has are sent only for entries that the stream has no longer: the
 * script asks for them. An entry of more fields than a script can pass to XADD comes back whole and
 * goes out again in one MULTI/EXEC: XADD, then settle.lua, which acknowledges if the fence holds,
 * and takes the copy back if not. */
#include "store/redis/redis.h"

static const struct impel_bytes before = {"before", 6};

enum {
    STAGE_FIRST,  /* no copies */
    STAGE_COPIES, /* those that were asked for */
    STAGE_LARGE,  /* one MULTI for each large entry */
    RESULT_WANTED = 5,
    RESULT_LARGE = 6,
};

/* ---- one large entry ---- */

static void put(struct op *op, const char *name, struct impel_bytes value)
{
    cmd_text(op, name);
    cmd_bytes(op, value);
}

static void put_number(struct op *op, const char *name, int64_t value)
{
    cmd_text(op, name);
    cmd_number(op, value);
}

static void
large_add(struct op *op, const struct large *large, struct impel_bytes dead_letter, struct buf *out)
{
    char id[ID_TEXT_SIZE];

    cmd_begin(op);
    cmd_text(op, "XADD");
    cmd_bytes(op, dead_letter);
    cmd_text(op, "*");
    for (size_t i = 0; i < large->entry->field_count; i++) {
        cmd_bytes(op, large->entry->fields[i].name);
        cmd_bytes(op, large->entry->fields[i].value);
    }
    if (large->requeue) {
        cmd_end(op, out);
        return;
    }
    put(op, "original_id", bytes_of(id_format(large->id, id)));
    put(op, "original_stream", op->request->stream);
    put(op, "original_group", op->request->group);
    put(op, "consumer", large->owner);
    put_number(op, "deliveries", large->total);
    put(op, "reason", large->reason);
    put(op, "error", large->error);
    put_number(op, "last_active_ms", large->last_active_ms);
    put_number(op, "parked_ms", large->parked_ms);
    put_number(op, "impel_fields", 10);
    cmd_end(op, out);
}

static void large_settle(struct op *op,
                         const struct large *large,
                         struct impel_bytes target,
                         struct impel_bytes mode,
                         struct buf *out)
{
    bool by_text = op->by_text;

    op->by_text = true; /* a name that is not known would be found out too late, behind the XADD */
    cmd_script(op, SCRIPT_SETTLE, target);
    op->by_text = by_text;
    cmd_bytes(op, large->owner);
    cmd_id(op, large->id);
    cmd_number(op, large->deliveries);
    cmd_number(op, large->last_active_ms);
    cmd_text(op, large->mine ? "1" : "0");
    cmd_bytes(op, large->row);
    cmd_number(op, large->parked_ms);
    cmd_bytes(op, mode);
    cmd_number(op, large->total);
    cmd_end(op, out);
}

unsigned large_send(struct op *op,
                    const struct large *large,
                    struct impel_bytes dead_letter,
                    struct buf *out)
{
    struct impel_bytes target = large->requeue ? op->request->stream : dead_letter;

    resp_put_command(out, (struct impel_bytes[]){bytes_of("MULTI")}, 1);
    large_settle(op, large, target, before, out);
    large_add(op, large, target, out);
    large_settle(op, large, target, bytes_of(large->requeue ? "requeue" : ""), out);
    resp_put_command(out, (struct impel_bytes[]){bytes_of("EXEC")}, 1);
    return PARK_REPLIES;
}

bool large_take(struct op *op,
                const struct value *reply,
                int *result,
                struct impel_id *copy,
                struct impel_error *why)
{
    char text[200];

    if (op->taken % PARK_REPLIES != PARK_REPLIES - 1) {
        if (reply->kind == VALUE_ERROR && why->status == 0) {
            (void)error_set(why, reply_status(reply->bytes), "%s",
                            bytes_quote(refusal_words(reply->bytes), text, sizeof(text)));
        }
        return false;
    }
    const struct value *settled = item(reply, 2);
    (void)item_id(settled, 2, copy);
    *result = settled->kind == VALUE_ARRAY ? (int)item_number(settled, 1) : ITEM_FAILED;
    if (*result == ITEM_FAILED && why->status == 0) {
        const struct value *error = reply->kind == VALUE_ERROR            ? reply
                                    : item(reply, 1)->kind == VALUE_ERROR ? item(reply, 1)
                                                                          : settled;
        struct impel_bytes bytes =
            error->kind == VALUE_ERROR ? error->bytes : bytes_of("ERR the copy was not added");
        (void)error_set(why, reply_status(bytes), "%s",
                        bytes_quote(refusal_words(bytes), text, sizeof(text)));
    }
    return true;
}

/* ---- the request ---- */

struct parking {
    struct large *large; /* those of the third stage, in the order of their MULTIs */
    size_t large_count;
    struct impel_error why; /* of the MULTI whose replies come in */
};

static void parking_free(struct op *op)
{
    struct parking *parking = op->user;

    for (size_t i = 0; parking != NULL && i < parking->large_count; i++) {
        entry_free(parking->large[i].entry);
    }
    op->user = NULL;
}

static enum op_next park_over(struct op *op, int status)
{
    if (status < 0) {
        (void)error_set(&op->request->error, status, "park: %s", status_text(status));
    }
    op_finish(op, status);
    return OP_DONE;
}

static bool wanted(const struct op *op, const struct request_item *each)
{
    return op->stage == STAGE_FIRST || (int)each->result == RESULT_WANTED;
}

static void put_item(struct op *op, const struct request_item *each)
{
    const struct entry *copy = op->stage == STAGE_COPIES ? each->copy : NULL;

    cmd_id(op, each->id);
    cmd_number(op, each->deliveries);
    cmd_bytes(op, each->reason);
    cmd_bytes(op, each->error);
    cmd_number(op, copy != NULL ? (int64_t)copy->field_count * 2 : each->copy != NULL ? -2 : -1);
    for (size_t i = 0; copy != NULL && i < copy->field_count; i++) {
        cmd_bytes(op, copy->fields[i].name);
        cmd_bytes(op, copy->fields[i].value);
    }
}

static int park_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    struct impel_id low = ID_MAX, high = ID_MIN;

    if (op->stage == STAGE_LARGE) {
        const struct parking *parking = op->user;
        int replies = 0;
        for (size_t i = 0; i < parking->large_count; i++) {
            replies += (int)large_send(op, &parking->large[i], request->items.dead_letter, out);
        }
        return replies;
    }
    for (size_t i = 0; i < request->items.item_count; i++) {
        struct impel_id id = request->items.items[i].id;
        low = id_compare(id, low) < 0 ? id : low;
        high = id_compare(id, high) > 0 ? id : high;
    }
    cmd_script(op, SCRIPT_PARK, request->items.dead_letter);
    cmd_id(op, request->items.item_count > 0 ? low : ID_MIN);
    cmd_id(op, high);
    for (size_t i = 0; i < request->items.item_count; i++) {
        if (wanted(op, &request->items.items[i])) {
            put_item(op, &request->items.items[i]);
        }
    }
    cmd_end(op, out);
    return 1;
}

static void failed_because(struct op *op, struct impel_bytes why)
{
    char text[250];

    if (op->request->error.status == 0) {
        (void)error_set(&op->request->error, reply_status(why), "park: %s",
                        bytes_quote(refusal_words(why), text, sizeof(text)));
    }
}

/* An entry that has to go out again. */
static bool add_large(struct op *op, struct request_item *each, const struct value *answer)
{
    struct request *request = op->request;
    struct parking *parking = op->user;
    char text[ID_TEXT_SIZE];
    struct value id = {.kind = VALUE_BULK, .bytes = bytes_of(id_format(each->id, text))};

    if (parking == NULL) {
        op->user = parking = arena_calloc(&request->arena, 1, sizeof(*parking));
    }
    if (parking != NULL && parking->large == NULL) {
        parking->large =
            arena_calloc(&request->arena, request->items.item_count, sizeof(*parking->large));
    }
    if (parking == NULL || parking->large == NULL) {
        return false;
    }
    struct large *large = &parking->large[parking->large_count];
    *large = (struct large){.id = each->id,
                            .owner = request->consumer,
                            .deliveries = each->deliveries,
                            .total = each->deliveries,
                            .last_active_ms = item_number(answer, 1),
                            .parked_ms = request->store_now_ms,
                            .error = each->error,
                            .mine = true,
                            .result = each,
                            .entry = entry_of(op->store, &id, item(answer, 2))};
    parking->large_count += large->entry != NULL;
    return large->entry != NULL &&
           arena_copy(&request->arena, item_bytes(answer, 3), &large->reason);
}

static enum op_next take_script(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    bool want_copies = false;
    size_t at = 0;

    for (size_t i = 0; i < request->items.item_count; i++) {
        struct request_item *each = &request->items.items[i];
        if (!wanted(op, each)) {
            continue;
        }
        const struct value *answer = item(item(reply, 1), at++);
        int result = (int)item_number(answer, 0);
        each->result = (enum item_result)result;
        want_copies = want_copies || result == RESULT_WANTED;
        if (result == ITEM_FAILED) {
            failed_because(op, item_bytes(answer, 1));
        } else if (result == RESULT_LARGE && !add_large(op, each, answer)) {
            return park_over(op, IMPEL_ERR_NOMEM);
        }
    }
    if (want_copies && op->stage == STAGE_FIRST) {
        op->stage = STAGE_COPIES;
        return OP_AGAIN;
    }
    if (op->user != NULL) {
        op->stage = STAGE_LARGE;
        return OP_AGAIN;
    }
    return park_over(op, IMPEL_OK);
}

static enum op_next park_take(struct op *op, const struct value *reply)
{
    struct parking *parking = op->user;
    struct impel_id copy;
    int result = ITEM_FAILED;

    if (op->stage != STAGE_LARGE) {
        return script_answered(op, reply) ? take_script(op, reply) : OP_DONE;
    }
    if (large_take(op, reply, &result, &copy, &parking->why)) {
        struct large *large = &parking->large[op->taken / PARK_REPLIES];
        ((struct request_item *)large->result)->result = (enum item_result)result;
        if (result == ITEM_FAILED) {
            failed_because(op, bytes_of(parking->why.text));
        }
        parking->why = (struct impel_error){0};
    }
    return op->taken + 1 < op->replies ? OP_MORE : park_over(op, IMPEL_OK);
}

const struct op_kind op_park = {
    .name = "park", .send = park_send, .take = park_take, .forget = parking_free};
