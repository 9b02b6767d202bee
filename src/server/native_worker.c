/* native_worker.c -- beating, and what a worker finds out of and takes from others. */
#include "server/native_parts.h"

#include <stdio.h>
#include <string.h>

/* ---- beat, leave, drop ---- */

bool native_parse_beat(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->beat.first = native_flag(words[0]);
    return count == 1;
}

bool native_answer_beat(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 3, arena);

    if (items != NULL) {
        items[1] = value_integer((int64_t)request->beat.result);
        items[2] = value_integer(request->beat.wait_ms);
    }
    return items != NULL;
}

bool native_parse_leave(struct request *request, const struct impel_bytes *words, size_t count)
{
    (void)request;
    (void)words;
    return count == 0;
}

bool native_parse_drop(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->leave.name = words[0];
    return count == 2 && native_number(words[1], &request->leave.inactive_ms);
}

bool native_answer_leave(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 2, arena);

    if (items != NULL) {
        items[1] = value_integer(request->leave.left);
    }
    return items != NULL;
}

/* ---- a group that was lost ---- */

bool native_parse_create(struct request *request, const struct impel_bytes *words, size_t count)
{
    (void)words;
    request->group_set.at_floor = true;
    return count == 0;
}

bool native_answer_create(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 2, arena);

    if (items != NULL) {
        items[1] = value_integer(request->group_set.created);
    }
    return items != NULL;
}

/* ---- claim ---- */

static bool parse_action(struct impel_bytes word, unsigned *flags)
{
    static const struct {
        const char *word;
        unsigned flag;
    } actions[] = {
        {"", 0}, {"requeue", CLAIM_REQUEUE}, {"hand-over", CLAIM_HAND_OVER}, {"park", CLAIM_PARK}};

    for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
        if (bytes_equal(word, bytes_of(actions[i].word))) {
            *flags = actions[i].flag;
            return true;
        }
    }
    return false;
}

bool native_parse_claim(struct request *request, const struct impel_bytes *words, size_t count)
{
    struct policy *policy = &request->claim_from.policy;

    if (count != 14 || !parse_action(words[11], &request->claim_from.flags)) {
        return false;
    }
    request->claim_from.heir = words[12];
    request->claim_from.owner = words[0];
    request->claim_from.nobody = native_flag(words[1]);
    request->claim_from.flags |= (native_flag(words[5]) ? CLAIM_LAST : 0U) |
                                 (native_flag(words[6]) ? CLAIM_SETTLE : 0U) |
                                 (native_flag(words[13]) ? CLAIM_ALL_GROUPS : 0U);
    return native_id(words[2], &request->claim_from.from) &&
           native_count(words[3], &request->claim_from.rows_max) &&
           native_count(words[4], &request->claim_from.claims_max) &&
           native_number(words[7], &policy->min_idle_ms) &&
           native_number(words[8], &policy->max_deliveries) &&
           native_number(words[9], &policy->backoff_base_ms) &&
           native_number(words[10], &policy->backoff_cap_ms);
}

static bool put_claimed(struct value *out, const struct request *request, struct arena *arena)
{
    size_t count = request->claim_from.entry_count;
    struct value *list = value_list_init(out, VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct delivered *each = &request->claim_from.entries[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 4, arena);
        if (row == NULL || !native_put_id(&row[0], each->entry->id, arena) ||
            !native_put_fields(&row[3], each->entry, arena)) {
            return false;
        }
        row[1] = value_integer(each->deliveries);
        row[2] = value_integer(each->idle_ms);
    }
    return list != NULL;
}

static bool
put_settled(struct value *out, const struct settled *settled, size_t count, struct arena *arena)
{
    struct value *list = value_list_init(out, VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 2, arena);
        if (row == NULL || !native_put_id(&row[0], settled[i].id, arena)) {
            return false;
        }
        row[1] = value_integer(settled[i].deliveries);
    }
    return list != NULL;
}

static bool put_moved(struct value *out, const struct request *request, struct arena *arena)
{
    size_t count = request->claim_from.moved_count;
    struct value *list = value_list_init(out, VALUE_ARRAY, count * 4, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct moved *moved = &request->claim_from.moved[i];
        struct value *row = &list[i * 4];
        if (!native_put_id(&row[0], moved->id, arena) ||
            !native_put_id(&row[1], moved->copy, arena)) {
            return false;
        }
        row[2] = value_integer(moved->deliveries);
        row[3] = value_integer(moved->idle_ms);
    }
    return list != NULL;
}

bool native_answer_claim(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = native_list(request, out, 19, arena);
    struct impel_bytes why = {NULL, 0};

    if (items == NULL || !arena_copy(arena, bytes_of(request->claim_from.park_error.text), &why) ||
        !put_claimed(&items[3], request, arena) ||
        !put_settled(&items[4], request->claim_from.parked, request->claim_from.parked_count,
                     arena) ||
        !put_settled(&items[5], request->claim_from.reaped, request->claim_from.reaped_count,
                     arena) ||
        !put_moved(&items[17], request, arena) ||
        !native_put_id(&items[11], request->claim_from.due_first, arena) ||
        !native_put_id(&items[14], request->claim_from.next, arena)) {
        return false;
    }
    items[1] = value_integer((int64_t)request->claim_from.state);
    items[2] = value_integer((int64_t)request->claim_from.beat);
    items[6] = value_integer((int64_t)request->claim_from.park_failed);
    items[7] = value_bulk(why);
    items[8] = value_integer((int64_t)request->claim_from.rows);
    items[9] = value_integer((int64_t)request->claim_from.due);
    items[10] = value_integer((int64_t)request->claim_from.due_last);
    items[12] = value_integer((int64_t)request->claim_from.not_due);
    items[13] = value_integer(request->claim_from.wait_ms);
    items[15] = (struct value){.kind = VALUE_ARRAY}; /* nothing is too large for a step here */
    items[16] = value_text("");
    items[18] = value_integer(request->claim_from.other_groups);
    return true;
}

/* ---- look ---- */

bool native_parse_look(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->look.flags = (native_flag(words[0]) ? LOOK_BEAT : 0U) |
                          (native_flag(words[1]) ? LOOK_STAMP : 0U) |
                          (native_flag(words[3]) ? LOOK_FREE : 0U);
    return count == 4 && native_number(words[2], &request->look.interval_ms);
}

/* Those that are not in the table have four words only. */
static bool put_owner(struct value *out, const struct look_owner *owner, struct arena *arena)
{
    struct value *row = value_list_init(out, VALUE_ARRAY, owner->in_table ? 7 : 4, arena);
    struct impel_bytes name;

    if (row == NULL || !arena_copy(arena, owner->name, &name)) {
        return false;
    }
    row[0] = value_bulk(name);
    row[1] = value_integer((int64_t)owner->pending);
    row[2] = value_integer(owner->seen_age_ms);
    row[3] = value_integer((int64_t)owner->state);
    if (!owner->in_table) {
        return true;
    }
    char *token = arena_alloc(arena, (size_t)TOKEN_SIZE * 2 + 1);
    if (token == NULL) {
        return false;
    }
    for (size_t i = 0; i < TOKEN_SIZE; i++) {
        (void)snprintf(token + 2 * i, 3, "%02x", owner->token.bytes[i]);
    }
    row[4] = value_integer(owner->beat_age_ms);
    row[5] = value_integer(owner->dead_after_ms);
    row[6] = value_text(token);
    return true;
}

static bool put_cursor(struct value *out, const struct sweep_cursor *cursor, struct arena *arena)
{
    char id[ID_TEXT_SIZE];
    size_t size = strlen(id_format(cursor->id, id));
    char *text = arena_alloc(arena, size + 1 + cursor->owner.size);

    if (text == NULL) {
        return false;
    }
    memcpy(text, id, size);
    text[size] = ' ';
    if (cursor->owner.size > 0) {
        memcpy(text + size + 1, cursor->owner.data, cursor->owner.size);
    }
    *out = value_bulk((struct impel_bytes){text, size + 1 + cursor->owner.size});
    return true;
}

bool native_answer_look(const struct request *request, struct value *out, struct arena *arena)
{
    bool stamped = request->look.stamped;
    struct value *items = native_list(request, out, stamped ? 7 : 3, arena);

    if (items == NULL) {
        return false;
    }
    items[1] = value_integer((int64_t)request->look.beat);
    items[2] = value_integer(stamped);
    if (!stamped) {
        return true;
    }
    items[4] = value_integer((int64_t)request->look.pending);
    items[5] = value_integer((int64_t)request->look.undelivered);
    struct value *owners =
        value_list_init(&items[6], VALUE_ARRAY, request->look.owner_count, arena);
    for (size_t i = 0; owners != NULL && i < request->look.owner_count; i++) {
        if (!put_owner(&owners[i], &request->look.owners[i], arena)) {
            return false;
        }
    }
    return owners != NULL && put_cursor(&items[3], &request->look.cursor, arena);
}
