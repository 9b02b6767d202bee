/* value.c -- building reply trees.
 *
 * A list that grows has no capacity beside its count: room is there up to the next power of two, so
 * the count alone tells when to double. The old items stay behind in the arena; all together they
 * are never more than the list itself. */
#include "base/value.h"

#include <string.h>

enum {
    LIST_ROOM_FIRST = 4, /* a power of two */
};

struct value value_integer(int64_t integer)
{
    return (struct value){.kind = VALUE_INTEGER, .integer = integer};
}

struct value value_status(const char *text)
{
    return (struct value){.kind = VALUE_STATUS, .bytes = bytes_of(text)};
}

struct value value_bulk(struct impel_bytes bytes)
{
    return (struct value){.kind = VALUE_BULK, .bytes = bytes};
}

struct value value_text(const char *text)
{
    return value_bulk(bytes_of(text));
}

bool value_is_list(const struct value *value)
{
    return value->kind == VALUE_ARRAY || value->kind == VALUE_MAP || value->kind == VALUE_SET ||
           value->kind == VALUE_PUSH;
}

struct value *
value_list_init(struct value *out, enum value_kind kind, size_t count, struct arena *arena)
{
    *out = (struct value){.kind = kind};
    struct value *items = arena_calloc(arena, count, sizeof(*items));
    if (items != NULL && count > 0) {
        out->items = items;
        out->item_count = count;
    }
    return items;
}

struct value *value_append(struct value *list, struct arena *arena)
{
    size_t count = list->item_count;
    bool full = count == 0 || (count >= LIST_ROOM_FIRST && (count & (count - 1)) == 0);

    if (full) {
        size_t room = count == 0 ? LIST_ROOM_FIRST : count * 2;
        struct value *items = arena_calloc(arena, room, sizeof(*items));
        if (items == NULL) {
            return NULL;
        }
        if (count > 0) {
            memcpy(items, list->items, count * sizeof(*items));
        }
        list->items = items;
    }
    list->item_count++;
    return &list->items[count];
}
