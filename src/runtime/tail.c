/* tail.c -- keeping the end of a text. */
#include "runtime/tail.h"

#include "runtime/handler.h"

#include <stdlib.h>
#include <string.h>

bool tail_begin(struct tail *tail)
{
    if (tail->data == NULL) {
        tail->data = malloc(ERROR_SIZE_MAX);
    }
    tail->size = 0;
    tail->cut = false;
    return tail->data != NULL;
}

void tail_release(struct tail *tail)
{
    free(tail->data);
    *tail = (struct tail){0};
}

void tail_keep(struct tail *tail, const char *data, size_t size)
{
    if (size > ERROR_SIZE_MAX) {
        data += size - ERROR_SIZE_MAX;
        size = ERROR_SIZE_MAX;
        tail->cut = true;
    }
    if (tail->size + size > ERROR_SIZE_MAX) {
        size_t drop = tail->size + size - ERROR_SIZE_MAX;
        memmove(tail->data, tail->data + drop, tail->size - drop);
        tail->size -= drop;
        tail->cut = true;
    }
    memcpy(tail->data + tail->size, data, size);
    tail->size += size;
}

struct impel_bytes tail_text(const struct tail *tail)
{
    size_t from = 0, to = tail->size;
    while (tail->cut && from < to && ((uint8_t)tail->data[from] & 0xc0) == 0x80) {
        from++;
    }
    while (to > from && strchr(" \t\r\n", tail->data[to - 1]) != NULL && tail->data[to - 1]) {
        to--;
    }
    return (struct impel_bytes){tail->data + from, to - from};
}
