/* native_plain.c -- reading and trimming, where one command of Redis would not be one step. */
#include "server/native_parts.h"

/* ---- read, pending, info: no fences, but one step where a script would be needed ---- */

bool native_parse_read(struct request *request, const struct impel_bytes *words, size_t count)
{
    int64_t size_max = 0;

    request->read.size_max = 0;
    if (count != 2 || !native_count(words[0], &request->read.count) ||
        !native_number(words[1], &size_max) || size_max < 0) {
        return false;
    }
    request->read.size_max = (size_t)size_max;
    return true;
}

bool native_answer_read(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->read.entry_count;
    struct value *items = native_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct delivered *each = &request->read.entries[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 3, arena);
        if (row == NULL || !native_put_id(&row[1], each->entry->id, arena) ||
            !native_put_fields(&row[2], each->entry, arena)) {
            return false;
        }
        row[0] = value_integer((int64_t)each->stream_index);
    }
    return list != NULL;
}

bool native_parse_pending(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->pending.by_owner = native_flag(words[3]);
    request->pending.owner = words[4];
    return count == 5 && native_id(words[0], &request->pending.start) &&
           native_id(words[1], &request->pending.end) &&
           native_count(words[2], &request->pending.count);
}

bool native_answer_pending(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->pending.row_count;
    struct value *items = native_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct pending_row *each = &request->pending.rows[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 6, arena);
        struct impel_bytes owner;
        if (row == NULL || !native_put_id(&row[0], each->id, arena) ||
            !arena_copy(arena, each->owner, &owner)) {
            return false;
        }
        row[1] = value_bulk(owner);
        row[2] = value_integer(each->idle_ms);
        row[3] = value_integer(each->deliveries);
        row[4] = value_integer(each->exists);
        row[5] = value_integer(each->carried);
    }
    return list != NULL;
}

bool native_parse_info(struct request *request, const struct impel_bytes *words, size_t count)
{
    return native_parse_leave(request, words, count);
}

static bool put_group(struct value *out, const struct info_group *group, struct arena *arena)
{
    struct value *row = value_list_init(out, VALUE_ARRAY, 8, arena);
    struct impel_bytes name;

    if (row == NULL || !arena_copy(arena, group->name, &name) ||
        !native_put_id(&row[1], group->last_delivered, arena) ||
        !native_put_id(&row[5], group->first_pending, arena)) {
        return false;
    }
    row[0] = value_bulk(name);
    row[2] = value_integer((int64_t)group->pending);
    row[3] = value_integer((int64_t)group->consumers);
    row[4] = value_integer(group->lag);
    row[6] = value_integer(group->oldest_idle_ms);
    row[7] = value_integer(group->entries_read);
    return true;
}

bool native_answer_info(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->info.group_count;
    struct value *items = native_list(request, out, request->info.exists ? 7 : 2, arena);

    if (items == NULL) {
        return false;
    }
    items[1] = value_integer(request->info.exists);
    if (!request->info.exists) {
        return true;
    }
    items[2] = value_integer((int64_t)request->info.length);
    items[5] = value_integer((int64_t)request->info.entries_added);
    struct value *groups = value_list_init(&items[6], VALUE_ARRAY, count, arena);
    for (size_t i = 0; groups != NULL && i < count; i++) {
        if (!put_group(&groups[i], &request->info.groups[i], arena)) {
            return false;
        }
    }
    return groups != NULL && native_put_id(&items[3], request->info.last_id, arena) &&
           native_put_id(&items[4], request->info.first_id, arena);
}

/* ---- trim: words: length_min, keep_from, limit, ignored groups ---- */

bool native_parse_trim(struct request *request, const struct impel_bytes *words, size_t count)
{
    int64_t length_min = 0;

    request->trim_done.ignored = words + 3;
    request->trim_done.ignored_count = count - 3;
    if (!native_number(words[0], &length_min) || length_min < 0 ||
        !native_id(words[1], &request->trim_done.keep_from) ||
        !native_count(words[2], &request->trim_done.limit)) {
        return false;
    }
    request->trim_done.length_min = (uint64_t)length_min;
    return true;
}

bool native_answer_trim(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 4, arena);

    if (items == NULL) {
        return false;
    }
    items[1] = value_integer((int64_t)request->trim_done.removed);
    items[2] = value_integer(request->trim_done.more);
    return native_put_id(&items[3], request->trim_done.floor, arena);
}
