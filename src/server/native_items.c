/* native_items.c -- what a holder does to its own entries: take, renew, ack, release, park. */
#include "server/native_parts.h"

enum {
    RESULT_WANTED = 5, /* PARK: ask again with the copy */
};

/* ---- take, renew, strict ack, release ---- */

static bool parse_pairs(struct arena *arena,
                        const struct impel_bytes *words,
                        size_t count,
                        struct request_item **items,
                        size_t *item_count)
{
    if (count < 2 || count % 2 != 0) {
        return false;
    }
    *item_count = (count - 2) / 2;
    *items = arena_calloc(arena, *item_count + 1, sizeof(**items));
    for (size_t i = 0; *items != NULL && i < *item_count; i++) {
        if (!native_id(words[2 + 2 * i], &(*items)[i].id) ||
            !native_number(words[3 + 2 * i], &(*items)[i].deliveries)) {
            return false;
        }
    }
    return *items != NULL;
}

bool native_parse_items(struct request *request, const struct impel_bytes *words, size_t count)
{
    return parse_pairs(&request->arena, words, count, &request->items.items,
                       &request->items.item_count) &&
           request->items.item_count <= NATIVE_ITEMS_MAX;
}

bool native_parse_ack(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->ack.strict = true;
    return parse_pairs(&request->arena, words, count, &request->ack.items,
                       &request->ack.item_count);
}

bool native_answer_take(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->items.item_count;
    struct value *items = native_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct request_item *each = &request->items.items[i];
        struct value *pair =
            value_list_init(&list[i], VALUE_ARRAY, each->entry == NULL ? 1 : 2, arena);
        if (pair == NULL) {
            return false;
        }
        pair[0] = value_integer((int64_t)each->result);
        if (each->entry != NULL && !native_put_fields(&pair[1], each->entry, arena)) {
            return false;
        }
    }
    return list != NULL;
}

bool native_answer_renew(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 2, arena);
    return items != NULL &&
           native_put_results(&items[1], request->items.items, request->items.item_count, arena);
}

bool native_answer_ack(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 2, arena);
    return items != NULL &&
           native_put_results(&items[1], request->ack.items, request->ack.item_count, arena);
}

bool native_parse_release(struct request *request, const struct impel_bytes *words, size_t count)
{
    if (count < 3 || (count - 3) % 4 != 0) {
        return false;
    }
    request->items.rest = native_flag(words[2]);
    request->items.item_count = (count - 3) / 4;
    request->items.items =
        arena_calloc(&request->arena, request->items.item_count + 1, sizeof(*request->items.items));
    for (size_t i = 0; request->items.items != NULL && i < request->items.item_count; i++) {
        struct request_item *each = &request->items.items[i];
        const struct impel_bytes *word = &words[3 + 4 * i];
        each->give_back = native_flag(word[2]);
        if (!native_id(word[0], &each->id) || !native_number(word[1], &each->deliveries) ||
            !native_number(word[3], &each->idle_ms)) {
            return false;
        }
    }
    return request->items.items != NULL && request->items.item_count <= NATIVE_ITEMS_MAX;
}

bool native_answer_release(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 4, arena);

    if (items == NULL ||
        !native_put_results(&items[1], request->items.items, request->items.item_count, arena)) {
        return false;
    }
    items[2] = value_integer((int64_t)request->items.rested);
    items[3] = value_integer(request->items.more);
    return true;
}

/* ---- park ---- */

/* A copy of an entry, from its names and values. Freed with engine_native()'s request. */
static struct entry *parse_copy(struct request *request,
                                const struct impel_bytes *words,
                                size_t count,
                                struct impel_id id)
{
    struct impel_field *fields = arena_calloc(&request->arena, count / 2 + 1, sizeof(*fields));

    for (size_t i = 0; fields != NULL && i < count / 2; i++) {
        fields[i] = (struct impel_field){words[2 * i], words[2 * i + 1]};
    }
    return fields == NULL ? NULL : entry_new(id, fields, count / 2);
}

bool native_parse_park(struct request *request, const struct impel_bytes *words, size_t count)
{
    size_t at = 2, room = count / 5 + 1;

    request->items.items = arena_calloc(&request->arena, room, sizeof(*request->items.items));
    if (request->items.items == NULL) {
        return false;
    }
    while (at + 5 <= count) {
        struct request_item *each = &request->items.items[request->items.item_count++];
        int64_t copied = 0;
        each->reason = words[at + 2];
        each->error = words[at + 3];
        if (!native_id(words[at], &each->id) || !native_number(words[at + 1], &each->deliveries) ||
            !native_number(words[at + 4], &copied) || copied < NATIVE_PARK_COPY_LATER ||
            copied % 2 == 1) {
            return false;
        }
        at += 5;
        if (copied == NATIVE_PARK_COPY_LATER) {
            each->idle_ms = NATIVE_PARK_COPY_LATER; /* means nothing to PARK: kept for the answer */
        } else if (copied >= 0) {
            if ((uint64_t)copied > count - at) {
                return false;
            }
            each->copy = parse_copy(request, words + at, (size_t)copied, each->id);
            at += (size_t)copied;
            if (each->copy == NULL) {
                return false;
            }
        }
    }
    return at == count && request->items.item_count <= NATIVE_ITEMS_MAX;
}

bool native_answer_park(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->items.item_count;
    struct impel_bytes why = {NULL, 0};
    struct value *list = native_results(request, out, count, &why, arena);

    if (list == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct request_item *each = &request->items.items[i];
        bool refused = each->result == ITEM_FAILED;
        struct value *pair = value_list_init(&list[i], VALUE_ARRAY, refused ? 2 : 1, arena);
        if (pair == NULL) {
            return false;
        }
        pair[0] = value_integer(each->result == ITEM_NONE ? RESULT_WANTED : (int64_t)each->result);
        if (refused) {
            pair[1] = value_bulk(why);
        }
    }
    return true;
}
