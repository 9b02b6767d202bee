/* reply.c -- how a command ends, and the building of its reply. */
#include "core/id.h"
#include "store/lmdb/command/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- endings ---- */

static void flatten_lines(char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\r' || *text == '\n') {
            *text = ' ';
        }
    }
}

bool call_error(struct call *call, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    char *text = size < 0 ? NULL : arena_alloc(call->arena, (size_t)size + 1);
    if (text == NULL) {
        call_fail(call, IMPEL_ERR_NOMEM);
    } else {
        vsnprintf(text, (size_t)size + 1, format, again);
        flatten_lines(text);
        *call->reply = (struct value){.kind = VALUE_ERROR, .bytes = bytes_of(text)};
    }
    va_end(again);
    va_end(args);
    return false;
}

bool call_error_syntax(struct call *call)
{
    return call_error(call, "ERR syntax error");
}

bool call_error_arity(struct call *call)
{
    return call_error(call, "ERR wrong number of arguments for '%s' command", call->command->name);
}

const char *call_container_name(const struct call *call, char *upper)
{
    const char *name = call->command->name;
    size_t size = 0;

    for (; name[size] != '\0' && name[size] != '|' && size < CALL_NAME_SIZE - 1; size++) {
        upper[size] = (char)(name[size] - 'a' + 'A');
    }
    upper[size] = '\0';
    return upper;
}

bool call_error_options(struct call *call)
{
    char upper[CALL_NAME_SIZE];

    return call_error(
        call, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
        CALL_TEXT(call->args[1]), call_container_name(call, upper));
}

bool call_error_integer(struct call *call)
{
    return call_error(call, "ERR value is not an integer or out of range");
}

bool call_error_wrong_type(struct call *call)
{
    return call_error(call, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

bool call_fail(struct call *call, int status)
{
    ASSERT(status < 0);
    if (call->status >= 0) {
        call->status = status;
    }
    return false;
}

bool call_check(struct call *call, int rc)
{
    return rc >= 0 || call_fail(call, rc);
}

void call_changed(struct call *call, uint64_t changes)
{
    call->counts = true;
    call->changes += changes;
}

int call_text_size(struct impel_bytes bytes)
{
    return bytes.size == 0
               ? 0
               : (int)strnlen(bytes.data, bytes.size < INT32_MAX ? bytes.size : INT32_MAX);
}

const char *call_text_data(struct impel_bytes bytes)
{
    return bytes.size == 0 ? "" : bytes.data;
}

/* ---- whole replies ---- */

void call_reply_integer(struct call *call, int64_t integer)
{
    *call->reply = value_integer(integer);
}

void call_reply_ok(struct call *call)
{
    *call->reply = value_status("OK");
}

void call_reply_lines(struct call *call, const char *const *lines, size_t count)
{
    struct value *items = call_list(call, call->reply, VALUE_ARRAY, count);
    for (size_t i = 0; items != NULL && i < count; i++) {
        items[i] = value_status(lines[i]);
    }
}

/* ---- parts ---- */

struct value *call_list(struct call *call, struct value *out, enum value_kind kind, size_t count)
{
    struct value *items = value_list_init(out, kind, count, call->arena);
    if (items == NULL) {
        call_fail(call, IMPEL_ERR_NOMEM);
    }
    return items;
}

struct value *call_append(struct call *call, struct value *list)
{
    struct value *item = value_append(list, call->arena);
    if (item == NULL) {
        call_fail(call, IMPEL_ERR_NOMEM);
    }
    return item;
}

bool call_bulk(struct call *call, struct value *out, struct impel_bytes bytes)
{
    *out = value_bulk((struct impel_bytes){NULL, 0});
    return arena_copy(call->arena, bytes, &out->bytes) || call_fail(call, IMPEL_ERR_NOMEM);
}

bool call_bulk_id(struct call *call, struct value *out, struct impel_id id)
{
    char text[ID_TEXT_SIZE];
    return call_bulk(call, out, bytes_of(id_format(id, text)));
}

bool call_bulk_integer(struct call *call, struct value *out, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, number);
    return call_bulk(call, out, bytes_of(text));
}

/* ---- entries ---- */

bool call_entry(struct call *call, struct value *out, const struct lmdb_raw *raw)
{
    struct lmdb_raw copy;
    struct impel_field *fields;
    size_t count;

    if (!call_check(call, lmdb_raw_copy(call->txn, raw, call->arena, &copy)) ||
        !call_check(call, lmdb_raw_fields(call->txn, &copy, call->arena, &fields, &count))) {
        return false;
    }
    struct value *pair = call_list(call, out, VALUE_ARRAY, 2);
    if (pair == NULL || !call_bulk_id(call, &pair[0], copy.id)) {
        return false;
    }
    struct value *flat = call_list(call, &pair[1], VALUE_ARRAY, count * 2);
    if (flat == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        flat[2 * i] = value_bulk(fields[i].name);
        flat[2 * i + 1] = value_bulk(fields[i].value);
    }
    return true;
}

bool call_entries(struct call *call, struct value *list, struct lmdb_walk *walk, uint64_t count)
{
    struct lmdb_raw raw;
    int more = 1;

    for (uint64_t i = 0; i < count && (more = lmdb_next_entry(walk, &raw)) > 0; i++) {
        struct value *item = call_append(call, list);
        if (item == NULL || !call_entry(call, item, &raw)) {
            return false;
        }
    }
    return call_check(call, more);
}
