/* native_parts.c -- reading the words of the fenced steps, and parts of their answers. */
#include "server/native_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

bool native_number(struct impel_bytes word, int64_t *out)
{
    char text[24];
    char *end = NULL;

    if (word.size == 0 || word.size >= sizeof(text)) {
        return false;
    }
    memcpy(text, word.data, word.size);
    text[word.size] = '\0';
    *out = strtoll(text, &end, 10);
    return *end == '\0';
}

bool native_count(struct impel_bytes word, uint32_t *out)
{
    int64_t number;
    bool good = native_number(word, &number) && number >= 0 && number <= UINT32_MAX;

    *out = good ? (uint32_t)number : 0;
    return good;
}

bool native_flag(struct impel_bytes word)
{
    return bytes_equal(word, bytes_of("1"));
}

bool native_id(struct impel_bytes word, struct impel_id *out)
{
    return id_parse(word, 0, out) >= 0;
}

bool native_token(struct impel_bytes word, struct token *out)
{
    char pair[3] = "";
    char *end = NULL;

    if (word.size != (size_t)TOKEN_SIZE * 2) {
        return false;
    }
    for (size_t i = 0; i < TOKEN_SIZE; i++) {
        memcpy(pair, (const char *)word.data + 2 * i, 2);
        out->bytes[i] = (uint8_t)strtoul(pair, &end, 16);
        if (*end != '\0') {
            return false;
        }
    }
    return true;
}

/* ---- answers ---- */

bool native_put_id(struct value *out, struct impel_id id, struct arena *arena)
{
    char text[ID_TEXT_SIZE];
    struct impel_bytes copy;

    if (!arena_copy(arena, bytes_of(id_format(id, text)), &copy)) {
        return false;
    }
    *out = value_bulk(copy);
    return true;
}

bool native_put_fields(struct value *out, const struct entry *entry, struct arena *arena)
{
    struct value *flat = value_list_init(out, VALUE_ARRAY, entry->field_count * 2, arena);

    for (size_t i = 0; flat != NULL && i < entry->field_count; i++) {
        struct impel_bytes name, value;
        if (!arena_copy(arena, entry->fields[i].name, &name) ||
            !arena_copy(arena, entry->fields[i].value, &value)) {
            return false;
        }
        flat[2 * i] = value_bulk(name);
        flat[2 * i + 1] = value_bulk(value);
    }
    return flat != NULL;
}

/* The answer as a list; its first item is the time. */
struct value *
native_list(const struct request *request, struct value *out, size_t count, struct arena *arena)
{
    struct value *items = value_list_init(out, VALUE_ARRAY, count, arena);

    if (items != NULL) {
        items[0] = value_integer(request->store_now_ms);
    }
    return items;
}

struct value *native_results(const struct request *request,
                             struct value *out,
                             size_t count,
                             struct impel_bytes *why,
                             struct arena *arena)
{
    struct value *items = native_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    return list != NULL && arena_copy(arena, bytes_of(request->error.text), why) ? list : NULL;
}

bool native_put_results(struct value *out,
                        const struct request_item *items,
                        size_t count,
                        struct arena *arena)
{
    struct value *list = value_list_init(out, VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        list[i] = value_integer((int64_t)items[i].result);
    }
    return list != NULL;
}
