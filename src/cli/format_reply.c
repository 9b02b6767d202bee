/* format_reply.c -- replies as redis-cli prints them, so that scripts and eyes find what they know.
 *
 * A list inside a list begins on the line of its number; only the following elements are indented,
 * by all the numbers to their left. In the raw form a null is an empty line and an error is
 * followed by one. Replies come from trees that were built or parsed with a bounded depth, hence
 * the recursion. */
#include "format_reply.h"

#include <inttypes.h>

static void append_quoted(struct buf *out, struct impel_bytes bytes)
{
    static const char special[] = "\n\r\t\a\b\\\"";
    static const char letters[] = "nrtab\\\"";
    const char *data = bytes.data;

    buf_append_text(out, "\"");
    for (size_t i = 0; i < bytes.size; i++) {
        unsigned char c = (unsigned char)data[i];
        size_t s = 0;
        while (special[s] != '\0' && special[s] != (char)c) {
            s++;
        }
        if (special[s] != '\0') {
            buf_appendf(out, "\\%c", letters[s]);
        } else if (c >= 0x20 && c < 0x7f) {
            buf_append(out, &c, 1);
        } else {
            buf_appendf(out, "\\x%02x", c);
        }
    }
    buf_append_text(out, "\"");
}

static void append_scalar_shown(struct buf *out, const struct value *value)
{
    switch (value->kind) {
    case VALUE_ERROR:
        buf_append_text(out, "(error) ");
        buf_append_bytes(out, value->bytes);
        break;
    case VALUE_INTEGER:
        buf_appendf(out, "(integer) %" PRId64, value->integer);
        break;
    case VALUE_DOUBLE:
        buf_appendf(out, "(double) %.17g", value->number);
        break;
    case VALUE_BOOLEAN:
        buf_append_text(out, value->integer != 0 ? "(true)" : "(false)");
        break;
    case VALUE_BULK:
        append_quoted(out, value->bytes);
        break;
    case VALUE_STATUS:
    case VALUE_VERBATIM:
    case VALUE_BIG_NUMBER:
        buf_append_bytes(out, value->bytes);
        break;
    default:
        buf_append_text(out, "(nil)");
        break;
    }
    buf_append_text(out, "\n");
}

static size_t decimal_width(size_t number)
{
    size_t width = 1;
    for (; number >= 10; number /= 10) {
        width++;
    }
    return width;
}

static void append_shown(struct buf *out, const struct value *value, size_t indent)
{
    if (!value_is_list(value)) {
        append_scalar_shown(out, value);
        return;
    }
    if (value->item_count == 0) {
        buf_append_text(out, "(empty array)\n");
        return;
    }
    size_t width = decimal_width(value->item_count);
    for (size_t i = 0; i < value->item_count; i++) {
        buf_appendf(out, "%*s%*zu) ", (int)(i == 0 ? 0 : indent), "", (int)width, i + 1);
        append_shown(out, &value->items[i], indent + width + 2);
    }
}

static void append_raw(struct buf *out, const struct value *value)
{
    switch (value->kind) {
    case VALUE_NULL:
    case VALUE_NULL_ARRAY:
        break;
    case VALUE_INTEGER:
        buf_appendf(out, "%" PRId64, value->integer);
        break;
    case VALUE_DOUBLE:
        buf_appendf(out, "%.17g", value->number);
        break;
    case VALUE_BOOLEAN:
        buf_append_text(out, value->integer != 0 ? "(true)" : "(false)");
        break;
    case VALUE_ERROR:
        buf_append_bytes(out, value->bytes);
        buf_append_text(out, "\n");
        break;
    case VALUE_STATUS:
    case VALUE_BULK:
    case VALUE_VERBATIM:
    case VALUE_BIG_NUMBER:
        buf_append_bytes(out, value->bytes);
        break;
    case VALUE_ARRAY:
    case VALUE_MAP:
    case VALUE_SET:
    case VALUE_PUSH:
        for (size_t i = 0; i < value->item_count; i++) {
            buf_append_text(out, i == 0 ? "" : "\n");
            append_raw(out, &value->items[i]);
        }
        break;
    }
}

void format_reply(const struct value *reply, enum reply_form form, struct buf *out)
{
    if (form == REPLY_FORM_SHOW) {
        append_shown(out, reply, 0);
        return;
    }
    append_raw(out, reply);
    buf_append_text(out, "\n");
}
