/* read.c -- new entries. One stream: XREADGROUP as it is, blocking or not. Several, or a small size:
 * a script that goes through them without blocking, since COUNT is for each stream; and if there was
 * nothing a blocking XREADGROUP over all of them, with a COUNT small enough that, as a rule, the sum
 * stays within what was asked for. What is too much nevertheless (several streams served at the same
 * instant) is handed out all the same: it is ours, and losing sight of it would be worse. */
#include "store/redis/redis.h"

#include <string.h>

enum {
    STAGE_SCRIPT = 0, /* of op_read_many */
    STAGE_BLOCK = 1,
};

static void read_lost(struct op *op, const struct impel_error *err)
{
    (void)err;
    store_orphan(op);
}

static int read_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;
    size_t streams = request->read.stream_count;
    size_t count = streams > 0 ? request->read.count / streams : 0;

    if (request->read.size_max > 0 && op->store->entry_bytes > 0) {
        size_t fits = request->read.size_max / op->store->entry_bytes;
        count = count > fits ? fits : count;
    }
    if (streams == 0) {
        return IMPEL_ERR_INVALID;
    }
    cmd_begin(op);
    cmd_text(op, "XREADGROUP");
    cmd_text(op, "GROUP");
    cmd_bytes(op, request->group);
    cmd_bytes(op, request->consumer);
    cmd_text(op, "COUNT");
    cmd_number(op, count > 0 ? (int64_t)count : 1);
    if (request->read.block_ms > 0 && !op->cancelled) {
        cmd_text(op, "BLOCK");
        cmd_number(op, request->read.block_ms);
    }
    cmd_text(op, "STREAMS");
    for (size_t i = 0; i < streams; i++) {
        cmd_bytes(op, request->read.streams[(i + request->read.first) % streams]);
    }
    for (size_t i = 0; i < streams; i++) {
        cmd_text(op, ">");
    }
    cmd_end(op, out);
    return 1;
}

/* Which of the streams an error names: "NOGROUP No such key 'orders' or consumer group ...". */
static size_t named_stream(const struct request *request, struct impel_bytes text)
{
    for (size_t i = 0; i < request->read.stream_count; i++) {
        struct impel_bytes name = request->read.streams[i];
        if (name.size > 0 && text.size > name.size &&
            memmem(text.data, text.size, name.data, name.size) != NULL) {
            return i;
        }
    }
    return 0;
}

static bool
add_entry(struct op *op, size_t index, const struct value *id, const struct value *fields)
{
    struct request *request = op->request;
    struct entry *entry = entry_of(op->store, id, fields);

    if (entry == NULL) {
        return false;
    }
    request->read.entries[request->read.entry_count++] =
        (struct delivered){.entry = entry, .stream_index = index, .deliveries = 1};
    return true;
}

static enum op_next read_failed(struct op *op, int status, const char *why)
{
    struct impel_error err;

    (void)error_set(&err, status, "%s", why);
    op_fail(op, &err);
    return OP_DONE;
}

static bool prepare(struct request *request, size_t count)
{
    request->read.entry_count = 0;
    request->read.entries =
        arena_calloc(&request->arena, count + 1, sizeof(request->read.entries[0]));
    return request->read.entries != NULL;
}

/* {{stream, {{ID, fields}, ...}}, ...}, the streams in the order of asking. */
static bool take_streams(struct op *op, const struct value *reply)
{
    const struct request *request = op->request;
    size_t asked = 0, streams = request->read.stream_count;

    for (size_t i = 0; i < reply->item_count; i++) {
        const struct value *entries = item(item(reply, i), 1);
        struct impel_bytes name = item_bytes(item(reply, i), 0);
        size_t index = 0;
        for (; asked < streams; asked++) {
            index = (asked + request->read.first) % streams;
            if (bytes_equal(request->read.streams[index], name)) {
                break;
            }
        }
        for (size_t j = 0; asked < streams && j < entries->item_count; j++) {
            const struct value *entry = item(entries, j);
            if (!add_entry(op, index, item(entry, 0), item(entry, 1))) {
                return false;
            }
        }
    }
    return true;
}

static enum op_next read_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    size_t count = 0;

    if (reply->kind == VALUE_ERROR) {
        request->read.missing = named_stream(request, reply->bytes);
        return op_refused(op, reply);
    }
    for (size_t i = 0; i < reply->item_count; i++) {
        count += item(item(reply, i), 1)->item_count;
    }
    if (!prepare(request, count) || !take_streams(op, reply)) {
        return read_failed(op, IMPEL_ERR_NOMEM, "no memory for the entries that were read");
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_read = {
    .name = "XREADGROUP", .send = read_send, .take = read_take, .lost = read_lost};

/* ---- several streams ---- */

static int many_send(struct op *op, struct buf *out)
{
    const struct request *request = op->request;

    if (op->stage == STAGE_BLOCK) {
        return read_send(op, out);
    }
    cmd_script(op, SCRIPT_READ, (struct impel_bytes){NULL, 0});
    cmd_number(op, request->read.count);
    cmd_number(op, (int64_t)request->read.size_max);
    cmd_end(op, out);
    return 1;
}

static enum op_next many_take(struct op *op, const struct value *reply)
{
    struct request *request = op->request;
    size_t streams = request->read.stream_count;

    if (op->stage == STAGE_BLOCK) {
        return read_take(op, reply);
    }
    if (!script_answered(op, reply)) {
        return OP_DONE;
    }
    if (reply->item_count == 3) {
        request->read.missing = ((size_t)item_number(reply, 1) + request->read.first) % streams;
        return op_refused(op, &(struct value){.kind = VALUE_ERROR, .bytes = item_bytes(reply, 2)});
    }
    const struct value *entries = item(reply, 1);
    if (!prepare(request, entries->item_count)) {
        return read_failed(op, IMPEL_ERR_NOMEM, "no memory for the entries that were read");
    }
    for (size_t i = 0; i < entries->item_count; i++) {
        const struct value *entry = item(entries, i);
        size_t index = ((size_t)item_number(entry, 0) + request->read.first) % streams;
        if (!add_entry(op, index, item(entry, 1), item(entry, 2))) {
            return read_failed(op, IMPEL_ERR_NOMEM, "no memory for the entries that were read");
        }
    }
    if (entries->item_count == 0 && request->read.block_ms > 0 && !op->cancelled) {
        op->stage = STAGE_BLOCK;
        return OP_AGAIN;
    }
    op_finish(op, IMPEL_OK);
    return OP_DONE;
}

const struct op_kind op_read_many = {
    .name = "XREADGROUP", .send = many_send, .take = many_take, .lost = read_lost};
