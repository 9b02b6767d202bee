/* write.c -- requests and replies out. */
#include "resp/resp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* "<type><number>\r\n", the line that most of the traffic consists of: without printf. */
static size_t header_size(int64_t number)
{
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
    size_t size = number < 0 ? 5 : 4;

    for (; rest >= 10; rest /= 10) {
        size++;
    }
    return size;
}

/* Writes it where there is room for `size` bytes, which is its size; returns what is behind it. */
static char *header_write(char *begin, size_t size, char type, int64_t number)
{
    char *at = begin + size;
    uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;

    *--at = '\n';
    *--at = '\r';
    do {
        *--at = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (number < 0) {
        *--at = '-';
    }
    *--at = type;
    return begin + size;
}

static void put_header(struct buf *buf, char type, int64_t number)
{
    size_t size = header_size(number);
    char *room = buf_reserve(buf, size);

    if (room != NULL) {
        header_write(room, size, type, number);
        buf->size += size;
    }
}

static void put_line(struct buf *buf, char type, struct impel_bytes text)
{
    char *room = buf_reserve(buf, text.size + 3);

    if (room == NULL) {
        return;
    }
    room[0] = type;
    for (size_t i = 0; i < text.size; i++) {
        char c = ((const char *)text.data)[i];
        room[i + 1] = (char)(c == '\r' || c == '\n' ? ' ' : c);
    }
    room[text.size + 1] = '\r';
    room[text.size + 2] = '\n';
    buf->size += text.size + 3;
}

void resp_put_array(struct buf *buf, size_t count)
{
    put_header(buf, '*', (int64_t)count);
}

void resp_put_bulk(struct buf *buf, struct impel_bytes bytes)
{
    size_t head = header_size((int64_t)bytes.size), size = head + bytes.size + 2;
    char *room = buf_reserve(buf, size);

    if (room == NULL) {
        return;
    }
    room = header_write(room, head, '$', (int64_t)bytes.size);
    if (bytes.size > 0) {
        memcpy(room, bytes.data, bytes.size);
    }
    room[bytes.size] = '\r';
    room[bytes.size + 1] = '\n';
    buf->size += size;
}

void resp_put_text(struct buf *buf, const char *text)
{
    resp_put_bulk(buf, bytes_of(text));
}

void resp_put_bulk_number(struct buf *buf, int64_t number)
{
    char text[24];
    int size = snprintf(text, sizeof(text), "%lld", (long long)number);

    resp_put_bulk(buf, (struct impel_bytes){text, (size_t)size});
}

void resp_put_command(struct buf *buf, const struct impel_bytes *args, size_t arg_count)
{
    resp_put_array(buf, arg_count);
    for (size_t i = 0; i < arg_count; i++) {
        resp_put_bulk(buf, args[i]);
    }
}

void resp_put_status(struct buf *buf, struct impel_bytes text)
{
    put_line(buf, '+', text);
}

void resp_put_error(struct buf *buf, struct impel_bytes text)
{
    put_line(buf, '-', text);
}

void resp_put_number(struct buf *buf, int64_t number)
{
    put_header(buf, ':', number);
}

void resp_put_null(struct buf *buf, int version)
{
    buf_append_text(buf, version >= 3 ? "_\r\n" : "$-1\r\n");
}

void resp_put_null_array(struct buf *buf, int version)
{
    buf_append_text(buf, version >= 3 ? "_\r\n" : "*-1\r\n");
}

void resp_put_map(struct buf *buf, size_t pairs, int version)
{
    put_header(buf, version >= 3 ? '%' : '*', (int64_t)(version >= 3 ? pairs : pairs * 2));
}

void resp_put_set(struct buf *buf, size_t count, int version)
{
    put_header(buf, version >= 3 ? '~' : '*', (int64_t)count);
}

void resp_put_double(struct buf *buf, double number, int version)
{
    char text[48];
    int size = isinf(number)   ? snprintf(text, sizeof(text), number < 0 ? "-inf" : "inf")
               : isnan(number) ? snprintf(text, sizeof(text), "nan")
                               : snprintf(text, sizeof(text), "%.17g", number);
    struct impel_bytes bytes = {text, (size_t)size};

    if (version >= 3) {
        put_line(buf, ',', bytes);
    } else {
        resp_put_bulk(buf, bytes);
    }
}

void resp_put_boolean(struct buf *buf, bool truth, int version)
{
    if (version >= 3) {
        put_line(buf, '#', bytes_of(truth ? "t" : "f"));
    } else {
        resp_put_number(buf, truth);
    }
}

void resp_put_verbatim(struct buf *buf, struct impel_bytes text, int version)
{
    if (version < 3) {
        resp_put_bulk(buf, text);
        return;
    }
    put_header(buf, '=', (int64_t)text.size + 4);
    buf_append_text(buf, "txt:");
    buf_append_bytes(buf, text);
    buf_append(buf, "\r\n", 2);
}

static void put_items(struct buf *buf, const struct value *value, int version)
{
    switch (value->kind) {
    case VALUE_MAP:
        resp_put_map(buf, value->item_count / 2, version);
        break;
    case VALUE_SET:
        resp_put_set(buf, value->item_count, version);
        break;
    case VALUE_PUSH:
        put_header(buf, version >= 3 ? '>' : '*', (int64_t)value->item_count);
        break;
    default:
        resp_put_array(buf, value->item_count);
        break;
    }
    for (size_t i = 0; i < value->item_count; i++) {
        resp_put_value(buf, &value->items[i], version);
    }
}

void resp_put_value(struct buf *buf, const struct value *value, int version)
{
    switch (value->kind) {
    case VALUE_NULL:
        resp_put_null(buf, version);
        break;
    case VALUE_NULL_ARRAY:
        resp_put_null_array(buf, version);
        break;
    case VALUE_STATUS:
        resp_put_status(buf, value->bytes);
        break;
    case VALUE_ERROR:
        resp_put_error(buf, value->bytes);
        break;
    case VALUE_INTEGER:
        resp_put_number(buf, value->integer);
        break;
    case VALUE_BULK:
        resp_put_bulk(buf, value->bytes);
        break;
    case VALUE_DOUBLE:
        resp_put_double(buf, value->number, version);
        break;
    case VALUE_BOOLEAN:
        resp_put_boolean(buf, value->integer != 0, version);
        break;
    case VALUE_VERBATIM:
        resp_put_verbatim(buf, value->bytes, version);
        break;
    case VALUE_BIG_NUMBER:
        if (version >= 3) {
            put_line(buf, '(', value->bytes);
        } else {
            resp_put_bulk(buf, value->bytes);
        }
        break;
    default:
        put_items(buf, value, version);
        break;
    }
}
