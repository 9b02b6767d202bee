/* plain.c -- requests that are one command: add, ack, range, trim, groups, call; and two scripts that
 * only look. */
#include "store/redis/redis.h"

#include <string.h>
#include <time.h>

enum {
    ACK_APART_MAX = 16, /* up to so many IDs get an XACK each, so that each has its own answer */
};

/* Commands do not tell the server's time; it is ours, moved by what was seen last. */
static void tell_time(struct op *op)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    op->request->store_now_ms =
        (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000 + op->store->clock_offset_ms;
}

static enum op_next finished(struct op *op)
{
    tell_time(op);
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

static enum op_next failed(struct op *op, int status, const char *why)
{
    struct impel_error err;

    (void)error_set(&err, status, "%s", why);
    op_fail(op, &err);
    return OP_DONE;
}

/* ---- add ---- */

static int add_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    if (request->add.field_count == 0) {
        return IMPEL_ERR_INVALID;
    }
    if (request->add.no_create && op->store->old) {
        return IMPEL_ERR_UNSUPPORTED;
    }
    cmd_begin(op);
    cmd_text(op, "XADD");
    cmd_bytes(op, request->stream);
    if (request->add.no_create) {
        cmd_text(op, "NOMKSTREAM");
    }
    if (request->add.length_max >= 0) {
        cmd_text(op, "MAXLEN");
        cmd_text(op, "=");
        cmd_number(op, request->add.length_max);
    }
    if (id_is_zero(request->add.id)) {
        cmd_text(op, "*");
    } else {
        cmd_id(op, request->add.id);
    }
    for (size_t i = 0; i < request->add.field_count; i++) {
        cmd_bytes(op, request->add.fields[i].name);
        cmd_bytes(op, request->add.fields[i].value);
    }
    cmd_end(op, out);
    return 1;
}

static enum op_next add_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    bool generated = id_is_zero(request->add.id);

    if (reply->kind == VALUE_ERROR) {
        return op_refused(op, reply);
    }
    if (reply->kind == VALUE_NULL) {
        return failed(op, IMPEL_ERR_NOT_FOUND, "no such stream");
    }
    if (reply->kind != VALUE_BULK || id_parse(reply->bytes, 0, &request->add.id) < 0) {
        return op_garbled(op);
    }
    tell_time(op);
    if (generated && request->add.id.seq == 0) {
        request->store_now_ms = (int64_t)request->add.id.ms; /* it is the time that was taken */
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_add = {.name = "XADD", .send = add_send, .take = add_take};

/* ---- ack ---- */

/* Stage 0: XACK. Stage 1, if nothing was acknowledged: is there a group at all? XACK does not say. */
static int ack_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    size_t count = request->ack.item_count;
    size_t apart = count <= ACK_APART_MAX ? 1 : count;

    if (op->stage == 1 || count == 0) {
        op->stage = 1;
        cmd_begin(op);
        cmd_text(op, "XPENDING");
        cmd_bytes(op, request->stream);
        cmd_bytes(op, request->group);
        cmd_text(op, "0-0");
        cmd_text(op, "0-0");
        cmd_text(op, "1");
        cmd_end(op, out);
        return 1;
    }
    op->request->ack.acked = 0;
    for (size_t i = 0; i < count; i += apart) {
        cmd_begin(op);
        cmd_text(op, "XACK");
        cmd_bytes(op, request->stream);
        cmd_bytes(op, request->group);
        for (size_t j = i; j < i + apart; j++) {
            cmd_id(op, request->ack.items[j].id);
        }
        cmd_end(op, out);
    }
    return (int)(count / apart);
}

static enum op_next ack_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    size_t count = request->ack.item_count;

    int64_t acked = reply->kind == VALUE_INTEGER ? reply->integer : 0;

    /* The last of several replies says the same as those before. */
    if (reply->kind == VALUE_ERROR && op->taken + 1 == op->replies) {
        return op_refused(op, reply);
    }
    if (op->stage == 1) {
        return finished(op);
    }
    request->ack.acked += (uint64_t)acked;
    if (op->replies > 1 || count == 1) {
        request->ack.items[op->taken].result = acked > 0 ? ITEM_DONE : ITEM_LOST;
    } else {
        /* Of many at once it is known how many there were, not which: the late ones are taken to be
         * those at the end. */
        for (size_t i = 0; i < count; i++) {
            request->ack.items[i].result = i < (size_t)acked ? ITEM_DONE : ITEM_LOST;
        }
    }
    if (op->taken + 1 < op->replies) {
        return OP_MORE;
    }
    if (request->ack.acked == 0) {
        op->stage = 1;
        return OP_AGAIN;
    }
    return finished(op);
}

const struct op_kind op_ack = {.name = "XACK", .send = ack_send, .take = ack_take};

/* ---- range ---- */

enum {
    /* A server answers with all that it is asked for, whatever it weighs, and what comes next may be a
     * thousand times as heavy as what came before. Fewer would be slow over a network. */
    RANGE_BLIND_MAX = 32,
};

static uint32_t range_count(const struct request *request)
{
    bool blind = request->range.bytes_max > 0 && request->range.count > RANGE_BLIND_MAX;
    return blind ? RANGE_BLIND_MAX : request->range.count;
}

static int range_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    bool reverse = request->range.reverse;

    cmd_begin(op);
    cmd_text(op, reverse ? "XREVRANGE" : "XRANGE");
    cmd_bytes(op, request->stream);
    cmd_id(op, reverse ? request->range.end : request->range.start);
    cmd_id(op, reverse ? request->range.start : request->range.end);
    cmd_text(op, "COUNT");
    cmd_number(op, range_count(request));
    cmd_end(op, out);
    return 1;
}

static enum op_next range_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (reply->kind == VALUE_ERROR) {
        return op_refused(op, reply);
    }
    request->range.entry_count = 0;
    request->range.entries =
        arena_calloc(&request->arena, reply->item_count + 1, sizeof(struct entry *));
    for (size_t i = 0; request->range.entries != NULL && i < reply->item_count; i++) {
        const struct value *each = item(reply, i);
        struct entry *entry = entry_of(op->store, item(each, 0), item(each, 1));
        if (entry == NULL) {
            return failed(op, IMPEL_ERR_NOMEM, "no memory for the entries of a range");
        }
        request->range.entries[request->range.entry_count++] = entry;
    }
    request->range.cut = range_count(request) < request->range.count &&
                         request->range.entry_count == range_count(request);
    return request->range.entries != NULL ? finished(op)
                                          : failed(op, IMPEL_ERR_NOMEM, "out of memory");
}

const struct op_kind op_range = {.name = "XRANGE", .send = range_send, .take = range_take};

/* ---- groups ---- */

static int group_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    bool create = request->kind == REQUEST_GROUP_CREATE;

    cmd_begin(op);
    cmd_text(op, "XGROUP");
    cmd_text(op, create ? "CREATE" : "SETID");
    cmd_bytes(op, request->stream);
    cmd_bytes(op, request->group);
    if (request->group_set.at_end) {
        cmd_text(op, "$");
    } else {
        cmd_id(op, request->group_set.start);
    }
    if (create && !request->group_set.no_create) {
        cmd_text(op, "MKSTREAM");
    }
    cmd_end(op, out);
    return 1;
}

static enum op_next group_take(struct op *op, const struct value *reply)
{
    op->request->group_set.created =
        op->request->kind == REQUEST_GROUP_CREATE && reply->kind != VALUE_ERROR;
    if (reply->kind == VALUE_ERROR && reply_status(reply->bytes) != IMPEL_ERR_EXISTS) {
        return op_refused(op, reply);
    }
    return finished(op);
}

const struct op_kind op_group = {.name = "XGROUP", .send = group_send, .take = group_take};

/* ---- trim ---- */

static int trim_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    if (request->trim.by_id && op->store->old) {
        return IMPEL_ERR_UNSUPPORTED;
    }
    cmd_begin(op);
    cmd_text(op, "XTRIM");
    cmd_bytes(op, request->stream);
    cmd_text(op, request->trim.by_id ? "MINID" : "MAXLEN");
    cmd_text(op, request->trim.approximate ? "~" : "=");
    if (request->trim.by_id) {
        cmd_id(op, request->trim.id_min);
    } else {
        cmd_number(op, request->trim.length_max > INT64_MAX ? INT64_MAX
                                                            : (int64_t)request->trim.length_max);
    }
    cmd_end(op, out);
    cmd_begin(op);
    cmd_text(op, "EXISTS");
    cmd_bytes(op, request->stream);
    cmd_end(op, out);
    return 2;
}

static enum op_next trim_take(struct op *op, const struct value *reply)
{
    static const char wrong[] = "WRONGTYPE the key is not a stream";

    if (op->taken == 0) {
        op->request->trim.removed = reply->kind == VALUE_INTEGER ? (uint64_t)reply->integer : 0;
        op->user = NULL;
        if (reply->kind == VALUE_ERROR) {
            struct impel_bytes *kept = arena_calloc(&op->request->arena, 1, sizeof(*kept));
            if (kept == NULL || !arena_copy(&op->request->arena, reply->bytes, kept)) {
                op->request->trim.removed = 0;
            }
            op->user = kept;
        }
        return OP_MORE;
    }
    if (op->user != NULL) {
        struct impel_bytes *kept = op->user;
        return op_refused(op, &(struct value){.kind = VALUE_ERROR,
                                              .bytes = kept->size > 0 ? *kept : bytes_of(wrong)});
    }
    if (reply->kind == VALUE_INTEGER && reply->integer == 0) {
        return failed(op, IMPEL_ERR_NO_GROUP, "no such stream");
    }
    return finished(op);
}

const struct op_kind op_trim = {.name = "XTRIM", .send = trim_send, .take = trim_take};

/* ---- any command ---- */

static int call_send(struct op *op, struct buf *out)
{
    if (op->request->call.arg_count == 0) {
        return IMPEL_ERR_INVALID;
    }
    resp_put_command(out, op->request->call.args, op->request->call.arg_count);
    return 1;
}

/* A copy of the tree in the request's arena; false if memory is out. */
static bool copy_value(struct arena *arena, const struct value *from, struct value *to)
{
    *to = *from;
    if (from->bytes.size > 0 && !arena_copy(arena, from->bytes, &to->bytes)) {
        return false;
    }
    if (from->items == NULL) {
        return true;
    }
    to->items = arena_calloc(arena, from->item_count + 1, sizeof(*to->items));
    for (size_t i = 0; to->items != NULL && i < from->item_count; i++) {
        if (!copy_value(arena, &from->items[i], &to->items[i])) {
            return false;
        }
    }
    return to->items != NULL;
}

static enum op_next call_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    request->call.reply = arena_calloc(&request->arena, 1, sizeof(struct value));
    if (request->call.reply == NULL || !copy_value(&request->arena, reply, request->call.reply)) {
        return failed(op, IMPEL_ERR_NOMEM, "no memory for a reply");
    }
    return finished(op);
}

const struct op_kind op_call = {.name = "a command", .send = call_send, .take = call_take};

/* ---- pending rows ---- */

static int pending_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    cmd_script(op, SCRIPT_PENDING, (struct impel_bytes){NULL, 0});
    cmd_id(op, request->pending.start);
    cmd_id(op, request->pending.end);
    cmd_number(op, request->pending.count);
    cmd_text(op, request->pending.by_owner ? "1" : "0");
    cmd_bytes(op, request->pending.owner);
    cmd_end(op, out);
    return 1;
}

static enum op_next pending_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    const struct value *rows = item(reply, 1);
    struct pending_row *out =
        arena_calloc(&request->arena, rows->item_count + 1, sizeof(struct pending_row));
    for (size_t i = 0; out != NULL && i < rows->item_count; i++) {
        const struct value *row = item(rows, i);
        if (!item_id(row, 0, &out[i].id)) {
            return op_garbled(op);
        }
        if (!arena_copy(&request->arena, item_bytes(row, 1), &out[i].owner)) {
            return failed(op, IMPEL_ERR_NOMEM, "out of memory");
        }
        out[i].idle_ms = item_number(row, 2);
        out[i].deliveries = item_number(row, 3);
        out[i].exists = item_number(row, 4) != 0;
        out[i].carried = item_number(row, 5);
    }
    request->pending.rows = out;
    request->pending.row_count = out != NULL ? rows->item_count : 0;
    op_finish(op, out != NULL ? IMPEL_OK : IMPEL_ERR_NOMEM);
    return OP_DONE;
}

const struct op_kind op_pending = {.name = "pending", .send = pending_send, .take = pending_take};

/* ---- a stream and its groups ---- */

static int info_send(struct op *op, struct buf *out)
{
    cmd_script(op, SCRIPT_INFO, (struct impel_bytes){NULL, 0});
    cmd_end(op, out);
    return 1;
}

static bool read_group(struct arena *arena, const struct value *from, struct info_group *to)
{
    to->pending = (uint64_t)item_number(from, 2);
    to->consumers = (uint64_t)item_number(from, 3);
    to->lag = item_number(from, 4);
    to->oldest_idle_ms = item_number(from, 6);
    to->entries_read = item_number(from, 7);
    return arena_copy(arena, item_bytes(from, 0), &to->name) &&
           item_id(from, 1, &to->last_delivered) && item_id(from, 5, &to->first_pending);
}

static enum op_next info_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;

    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    request->info.exists = item_number(reply, 1) != 0;
    request->info.group_count = 0;
    if (!request->info.exists) {
        op_finish(op, IMPEL_OK);
        return OP_DONE;
    }
    request->info.length = (uint64_t)item_number(reply, 2);
    request->info.entries_added = (uint64_t)item_number(reply, 5);
    const struct value *groups = item(reply, 6);
    request->info.groups =
        arena_calloc(&request->arena, groups->item_count + 1, sizeof(struct info_group));
    if (!item_id(reply, 3, &request->info.last_id) || !item_id(reply, 4, &request->info.first_id) ||
        request->info.groups == NULL) {
        return op_garbled(op);
    }
    for (size_t i = 0; i < groups->item_count; i++) {
        if (!read_group(&request->arena, item(groups, i), &request->info.groups[i])) {
            return op_garbled(op);
        }
        request->info.group_count++;
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_info = {.name = "info", .send = info_send, .take = info_take};
