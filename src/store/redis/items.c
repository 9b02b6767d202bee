/* items.c -- what a holder does to its own: retry and adopt, renew, release, and the strict ack. */
#include "store/redis/redis.h"

/* The lowest and the highest ID: between them the script finds the caller's rows by one question. */
static void bounds(struct op *op, const struct request_item *items, size_t count)
{
    struct impel_id low = ID_MAX, high = ID_MIN;

    for (size_t i = 0; i < count; i++) {
        low = id_compare(items[i].id, low) < 0 ? items[i].id : low;
        high = id_compare(items[i].id, high) > 0 ? items[i].id : high;
    }
    cmd_id(op, count > 0 ? low : ID_MIN);
    cmd_id(op, high);
}

static void pairs(struct op *op, const struct request_item *items, size_t count)
{
    bounds(op, items, count);
    for (size_t i = 0; i < count; i++) {
        cmd_id(op, items[i].id);
        cmd_number(op, items[i].deliveries);
    }
}

static int
items_send(struct op *op, enum script_name script, const struct request_item *items, size_t count)
{
    cmd_script(op, script, (struct impel_bytes){NULL, 0});
    pairs(op, items, count);
    return 1;
}

/* ---- retry and adopt ---- */

static int take_send(struct op *op, struct buf *out)
{
    int rc = items_send(op, SCRIPT_TAKE, op->request->items.items, op->request->items.item_count);

    cmd_end(op, out);
    return rc;
}

static enum op_next take_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    char text[ID_TEXT_SIZE];

    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    const struct value *answers = item(reply, 1);
    for (size_t i = 0; i < request->items.item_count; i++) {
        struct request_item *each = &request->items.items[i];
        struct value id = {.kind = VALUE_BULK, .bytes = bytes_of(id_format(each->id, text))};
        each->result = (enum item_result)item_number(item(answers, i), 0);
        if (each->result == ITEM_DONE) {
            each->entry = entry_of(op->store, &id, item(item(answers, i), 1));
        }
        if (each->result == ITEM_DONE && each->entry == NULL) {
            struct impel_error err;
            (void)error_set(&err, IMPEL_ERR_NOMEM, "no memory for an entry");
            op_fail(op, &err);
            return OP_DONE;
        }
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_take = {.name = "retry", .send = take_send, .take = take_take};

/* ---- renew, strict ack ---- */

static void read_results(const struct value *answers, struct request_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        items[i].result = (enum item_result)item_number(answers, i);
    }
}

static int renew_send(struct op *op, struct buf *out)
{
    int rc = items_send(op, SCRIPT_RENEW, op->request->items.items, op->request->items.item_count);

    cmd_end(op, out);
    return rc;
}

static enum op_next renew_take(struct op *op, const struct value *reply)
{
    if (script_answered(op, reply)) {
        read_results(item(reply, 1), op->request->items.items, op->request->items.item_count);
        op_finish(op, IMPEL_OK);
    }
    return OP_DONE;
}

const struct op_kind op_renew = {.name = "renew", .send = renew_send, .take = renew_take};

static int strict_send(struct op *op, struct buf *out)
{
    int rc = items_send(op, SCRIPT_ACK, op->request->ack.items, op->request->ack.item_count);

    cmd_end(op, out);
    return rc;
}

static enum op_next strict_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    read_results(item(reply, 1), request->ack.items, request->ack.item_count);
    request->ack.acked = 0;
    for (size_t i = 0; i < request->ack.item_count; i++) {
        request->ack.acked += request->ack.items[i].result == ITEM_DONE;
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_strict_ack = {
    .name = "strict ack", .send = strict_send, .take = strict_take};

/* ---- release ---- */

static int release_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    cmd_script(op, SCRIPT_RELEASE, (struct impel_bytes){NULL, 0});
    bounds(op, request->items.items, request->items.item_count);
    cmd_text(op, request->items.rest ? "1" : "0");
    for (size_t i = 0; i < request->items.item_count; i++) {
        const struct request_item *each = &request->items.items[i];
        cmd_id(op, each->id);
        cmd_number(op, each->deliveries);
        cmd_text(op, each->give_back ? "1" : "0");
        cmd_number(op, each->idle_ms > 0 ? each->idle_ms : 0);
    }
    cmd_end(op, out);
    return 1;
}

static enum op_next release_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (script_answered(op, reply)) {
        read_results(item(reply, 1), request->items.items, request->items.item_count);
        request->items.rested = (size_t)item_number(reply, 2);
        request->items.more = item_number(reply, 3) != 0;
        op_finish(op, IMPEL_OK);
    }
    return OP_DONE;
}

const struct op_kind op_release = {.name = "release", .send = release_send, .take = release_take};
