/* buf.c -- a growable run of bytes that knows its maximum. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *buf, size_t size_max)
{
    *buf = (struct buf){.size_max = size_max};
}

void buf_release(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){.size_max = buf->size_max};
}

void buf_clear(struct buf *buf)
{
    buf->size = 0;
    buf->failed = buf->over_max = false;
}

void *buf_reserve(struct buf *buf, size_t size)
{
    if (buf->failed || size > buf->size_max - buf->size) {
        buf->over_max = buf->over_max || !buf->failed;
        buf->failed = true;
        return NULL;
    }
    if (size > buf->capacity - buf->size) {
        size_t capacity = buf->capacity < 64 ? 64 : buf->capacity;
        while (capacity - buf->size < size) {
            capacity = capacity > buf->size_max / 2 ? buf->size_max : capacity * 2;
        }
        uint8_t *data = realloc(buf->data, capacity);
        if (data == NULL) {
            buf->failed = true;
            return NULL;
        }
        buf->data = data;
        buf->capacity = capacity;
    }
    return buf->data + buf->size;
}

void buf_append(struct buf *buf, const void *data, size_t size)
{
    if (size == 0) {
        return;
    }
    void *room = buf_reserve(buf, size);
    if (room != NULL) {
        memcpy(room, data, size);
        buf->size += size;
    }
}

void buf_append_bytes(struct buf *buf, struct impel_bytes bytes)
{
    buf_append(buf, bytes.data, bytes.size);
}

void buf_append_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_appendf(struct buf *buf, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    char *room = size < 0 ? NULL : buf_reserve(buf, (size_t)size + 1);
    if (room != NULL) {
        vsnprintf(room, (size_t)size + 1, format, again);
        buf->size += (size_t)size;
    }
    va_end(again);
    va_end(args);
}

struct impel_bytes buf_bytes(const struct buf *buf)
{
    return (struct impel_bytes){buf->data, buf->size};
}

int buf_status(const struct buf *buf)
{
    if (!buf->failed) {
        return IMPEL_OK;
    }
    return buf->over_max ? IMPEL_ERR_LIMIT : IMPEL_ERR_NOMEM;
}
