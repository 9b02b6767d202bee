/* command.c -- writing commands and reading what they answer. */
#include "store/redis/redis.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- out ---- */

void cmd_begin(struct op *op)
{
    buf_clear(&op->store->command);
    op->store->command_args = 0;
}

void cmd_bytes(struct op *op, struct impel_bytes bytes)
{
    resp_put_bulk(&op->store->command, bytes);
    op->store->command_args++;
}

void cmd_text(struct op *op, const char *text)
{
    cmd_bytes(op, bytes_of(text));
}

void cmd_number(struct op *op, int64_t number)
{
    resp_put_bulk_number(&op->store->command, number);
    op->store->command_args++;
}

void cmd_id(struct op *op, struct impel_id id)
{
    char text[ID_TEXT_SIZE];

    cmd_text(op, id_format(id, text));
}

void cmd_end(struct op *op, struct buf *out)
{
    struct buf *command = &op->store->command;

    resp_put_array(out, op->store->command_args);
    buf_append_bytes(out, buf_bytes(command));
    out->failed = out->failed || command->failed;
    if (command->capacity > (size_t)1024 * 1024) {
        buf_release(command); /* one huge entry must not be remembered for ever */
    }
}

static void cmd_token(struct op *op)
{
    char text[TOKEN_SIZE * 2 + 1];

    for (int i = 0; i < TOKEN_SIZE; i++) {
        (void)snprintf(text + (ptrdiff_t)i * 2, 3, "%02x", op->request->token.bytes[i]);
    }
    cmd_text(op, text);
}

void cmd_script(struct op *op, enum script_name script, struct impel_bytes dead_letter)
{
    const struct request *request = op->request;
    bool replays = script == SCRIPT_REPLAY;
    bool buries = script == SCRIPT_CLAIM || script == SCRIPT_PARK || script == SCRIPT_SETTLE;
    bool carries = script == SCRIPT_CLAIM || script == SCRIPT_SETTLE || script == SCRIPT_LOOK ||
                   script == SCRIPT_PENDING || replays;

    cmd_begin(op);
    if (op->store->native && script != SCRIPT_SETTLE) {
        char command[32];
        (void)snprintf(command, sizeof(command), "IMPEL.%s", script_table[script].name);
        cmd_text(op, command);
    } else if (op->by_text) {
        cmd_text(op, "EVAL");
        cmd_bytes(op, script_table[script].text);
    } else {
        cmd_text(op, "EVALSHA");
        cmd_text(op, op->store->script_names[script]);
    }
    if (script == SCRIPT_READ) {
        cmd_number(op, (int64_t)request->read.stream_count);
        for (size_t i = 0; i < request->read.stream_count; i++) {
            size_t index = (i + request->read.first) % request->read.stream_count;
            cmd_bytes(op, request->read.streams[index]);
        }
    } else {
        cmd_number(op, 2 + buries + carries + 2 * replays);
        cmd_bytes(op, request->stream);
        cmd_bytes(op, helper_key(op, request->stream, 'w'));
        if (buries || replays) {
            /* A walk that settles nothing needs a key in its place, of the same slot. */
            cmd_bytes(op, dead_letter.size > 0 ? dead_letter : request->stream);
        }
        if (replays) {
            struct impel_bytes audit = request->replay.audit;
            cmd_bytes(op, audit.size > 0 ? audit : dead_letter);
        }
        if (carries) {
            cmd_bytes(op, helper_key(op, request->stream, 'a'));
        }
    }
    cmd_bytes(op, request->group);
    cmd_bytes(op, request->consumer);
    cmd_token(op);
    cmd_number(op, request->dead_after_ms);
    cmd_text(op, op->store->old ? "1" : "0");
}

/* ---- in ---- */

static const struct value nothing = {.kind = VALUE_NULL};

const struct value *item(const struct value *array, size_t i)
{
    return array->kind == VALUE_ARRAY && i < array->item_count ? &array->items[i] : &nothing;
}

int64_t item_number(const struct value *array, size_t i)
{
    const struct value *value = item(array, i);
    const char *text = value->bytes.data;
    int64_t number = 0;

    if (value->kind == VALUE_INTEGER) {
        return value->integer;
    }
    if (value->kind != VALUE_BULK || value->bytes.size == 0) {
        return 0;
    }
    bool negative = *text == '-';
    for (size_t at = negative; at < value->bytes.size; at++) {
        number =
            add_saturating(mul_saturating(number, 10), negative ? '0' - text[at] : text[at] - '0');
    }
    return number;
}

bool item_id(const struct value *array, size_t i, struct impel_id *out)
{
    const struct value *value = item(array, i);

    return value->kind == VALUE_BULK && id_parse(value->bytes, 0, out) >= 0;
}

struct impel_bytes item_bytes(const struct value *array, size_t i)
{
    return item(array, i)->bytes;
}

struct entry *
entry_of(struct redis_store *store, const struct value *id, const struct value *fields)
{
    struct impel_id parsed;

    if (id->kind != VALUE_BULK || id_parse(id->bytes, 0, &parsed) < 0 ||
        fields->kind != VALUE_ARRAY || fields->item_count % 2 != 0) {
        return NULL;
    }
    size_t count = fields->item_count / 2;
    if (count > store->field_room) {
        struct impel_field *more = realloc(store->fields, count * sizeof(*more));
        if (more == NULL) {
            return NULL;
        }
        store->fields = more;
        store->field_room = count;
    }
    for (size_t i = 0; i < count; i++) {
        store->fields[i] =
            (struct impel_field){fields->items[i * 2].bytes, fields->items[i * 2 + 1].bytes};
    }
    struct entry *entry = entry_new(parsed, store->fields, count);
    if (entry != NULL) {
        /* A moving average over about the last 16. */
        size_t known = store->entry_bytes;
        store->entry_bytes =
            known == 0 ? entry->size_bytes : known - known / 16 + entry->size_bytes / 16;
    }
    return entry;
}

void op_refusal(const struct op *op, const struct value *reply, struct impel_error *err)
{
    char text[300], stream[100], more[140] = "";
    int status = reply_status(reply->bytes);

    if (status == IMPEL_ERR_READ_ONLY) {
        (void)snprintf(more, sizeof(more), " (give the address of its primary)");
    } else if ((status == IMPEL_ERR_AUTH || status == IMPEL_ERR_WRONG_TYPE) &&
               op->request != NULL && op->request->stream.size > 0) {
        (void)snprintf(more, sizeof(more), " (the stream is '%s')",
                       bytes_quote(op->request->stream, stream, sizeof(stream)));
    }
    (void)error_set(err, status, "redis at %s: %s: %s%s", op->store->url.shown,
                    op->request != NULL ? request_name(op->request->kind) : op->kind->name,
                    bytes_quote(refusal_words(reply->bytes), text, sizeof(text)), more);
}

enum op_next op_refused(struct op *op, const struct value *reply)
{
    struct impel_error err;

    op_refusal(op, reply, &err);
    if (reply->bytes.size > 0 &&
        memmem(reply->bytes.data, reply->bytes.size, "invalid bulk length", 19) != NULL) {
        err = op_say_large(op, &err);
    }
    op_fail(op, &err);
    return OP_DONE;
}

enum op_next op_garbled(struct op *op)
{
    struct impel_error err;

    (void)error_set(&err, IMPEL_ERR_PROTOCOL, "redis at %s: %s: an answer that makes no sense",
                    op->store->url.shown, op->kind->name);
    op_fail(op, &err);
    return OP_DONE;
}

bool script_answered(struct op *op, const struct value *reply)
{
    if (reply->kind == VALUE_ERROR) {
        (void)op_refused(op, reply);
        return false;
    }
    if (reply->kind != VALUE_ARRAY || reply->item_count == 0) {
        (void)op_garbled(op);
        return false;
    }
    op->request->store_now_ms = item_number(reply, 0);
    return true;
}
