/* native_replay.c -- records of a dead-letter stream that are put back or dropped. */
#include "server/native_parts.h"

static bool parse_mode(struct impel_bytes word, enum replay_mode *mode)
{
    static const char *const names[] = {
        [REPLAY_ADD] = "add", [REPLAY_BACK] = "back", [REPLAY_DROP] = "drop"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (bytes_equal(word, bytes_of(names[i]))) {
            *mode = (enum replay_mode)i;
            return true;
        }
    }
    return false;
}

/* The words of the audit line; how many there are in `*used`. */
static bool
parse_audit(struct request *request, const struct impel_bytes *words, size_t count, size_t *used)
{
    int64_t length = 0;
    uint32_t pairs = 0;

    if (!native_number(words[0], &length) || !native_count(words[1], &pairs) || pairs % 2 != 0 ||
        pairs > count - 2) {
        return false;
    }
    if (length == 0) {
        request->replay.audit = (struct impel_bytes){NULL, 0};
    }
    struct impel_field *fields = arena_calloc(&request->arena, pairs / 2 + 1, sizeof(*fields));
    for (size_t i = 0; fields != NULL && i < pairs / 2; i++) {
        fields[i] = (struct impel_field){words[2 + 2 * i], words[3 + 2 * i]};
    }
    request->replay.audit_fields = fields;
    request->replay.audit_field_count = pairs / 2;
    *used = 2 + pairs;
    return fields != NULL;
}

/* One record: ID, fields, the original's ID, runs. */
static bool parse_item(struct request *request,
                       struct replay_item *item,
                       const struct impel_bytes *words,
                       size_t count,
                       size_t *used)
{
    uint32_t runs = 0, end = 0;

    if (count < 4 || !native_id(words[0], &item->id) ||
        !native_count(words[1], &item->field_count) || !native_id(words[2], &item->original_id) ||
        !native_count(words[3], &runs) || runs > (count - 4) / 2) {
        return false;
    }
    struct replay_run *list = arena_calloc(&request->arena, (size_t)runs + 1, sizeof(*list));
    for (size_t i = 0; list != NULL && i < runs; i++) {
        if (!native_count(words[4 + 2 * i], &list[i].first) ||
            !native_count(words[5 + 2 * i], &list[i].count) || list[i].first < end ||
            list[i].first > item->field_count ||
            list[i].count > item->field_count - list[i].first) {
            return false;
        }
        end = list[i].first + list[i].count;
    }
    item->runs = list;
    item->run_count = runs;
    *used = 4 + 2 * (size_t)runs;
    return list != NULL;
}

bool native_parse_replay(struct request *request, const struct impel_bytes *words, size_t count)
{
    size_t at = 0, used = 0;

    if (!parse_mode(words[0], &request->replay.mode) ||
        !parse_audit(request, words + 2, count - 2, &used)) {
        return false;
    }
    request->replay.alone = native_flag(words[1]);
    request->replay.items =
        arena_calloc(&request->arena, REPLAY_ITEMS_MAX, sizeof(*request->replay.items));
    for (at = 2 + used; request->replay.items != NULL && at < count; at += used) {
        size_t i = request->replay.item_count++;
        if (i == REPLAY_ITEMS_MAX ||
            !parse_item(request, &request->replay.items[i], words + at, count - at, &used)) {
            return false;
        }
    }
    return request->replay.items != NULL;
}

bool native_answer_replay(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->replay.item_count;
    struct impel_bytes why = {NULL, 0};
    struct value *list = native_results(request, out, count, &why, arena);

    if (list == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const struct replay_item *each = &request->replay.items[i];
        struct value *pair = value_list_init(&list[i], VALUE_ARRAY, 2, arena);
        if (pair == NULL) {
            return false;
        }
        pair[0] = value_integer((int64_t)each->result);
        if (each->result == REPLAY_FAILED) {
            pair[1] = value_bulk(why);
        } else if (!native_put_id(&pair[1], each->added, arena)) {
            return false;
        }
    }
    return true;
}
