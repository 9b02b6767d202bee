/* native.c -- the words and answers of the fenced steps; what they do is the embedded store's. */
#include "server/native.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS_COMMON = 5, /* group, consumer, token, dead-after, old */
    PARK_NO_COPY = -1,
    PARK_COPY_LATER = -2, /* the caller has one, and sends it if it is asked for */
    RESULT_WANTED = 5,    /* PARK: ask again with the copy */
    ITEMS_MAX = 200,
};

/* ---- words ---- */

static bool word_number(struct impel_bytes word, int64_t *out)
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

static bool word_count(struct impel_bytes word, uint32_t *out)
{
    int64_t number;
    bool good = word_number(word, &number) && number >= 0 && number <= UINT32_MAX;

    *out = good ? (uint32_t)number : 0;
    return good;
}

static bool word_flag(struct impel_bytes word)
{
    return bytes_equal(word, bytes_of("1"));
}

static bool word_entry_id(struct impel_bytes word, struct impel_id *out)
{
    return id_parse(word, 0, out) >= 0;
}

static bool word_token(struct impel_bytes word, struct token *out)
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

static bool put_id(struct value *out, struct impel_id id, struct arena *arena)
{
    char text[ID_TEXT_SIZE];
    struct impel_bytes copy;

    if (!arena_copy(arena, bytes_of(id_format(id, text)), &copy)) {
        return false;
    }
    *out = value_bulk(copy);
    return true;
}

static bool put_fields(struct value *out, const struct entry *entry, struct arena *arena)
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
static struct value *
answer_list(const struct request *request, struct value *out, size_t count, struct arena *arena)
{
    struct value *items = value_list_init(out, VALUE_ARRAY, count, arena);

    if (items != NULL) {
        items[0] = value_integer(request->store_now_ms);
    }
    return items;
}

static bool
put_results(struct value *out, const struct request_item *items, size_t count, struct arena *arena)
{
    struct value *list = value_list_init(out, VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        list[i] = value_integer((int64_t)items[i].result);
    }
    return list != NULL;
}

/* ---- beat, leave, drop ---- */

static bool parse_beat(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->beat.first = word_flag(words[0]);
    return count == 1;
}

static bool answer_beat(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 3, arena);

    if (items != NULL) {
        items[1] = value_integer((int64_t)request->beat.result);
        items[2] = value_integer(request->beat.wait_ms);
    }
    return items != NULL;
}

static bool parse_leave(struct request *request, const struct impel_bytes *words, size_t count)
{
    (void)request;
    (void)words;
    return count == 0;
}

static bool parse_drop(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->leave.name = words[0];
    return count == 2 && word_number(words[1], &request->leave.inactive_ms);
}

static bool answer_leave(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 2, arena);

    if (items != NULL) {
        items[1] = value_integer(request->leave.left);
    }
    return items != NULL;
}

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
        if (!word_entry_id(words[2 + 2 * i], &(*items)[i].id) ||
            !word_number(words[3 + 2 * i], &(*items)[i].deliveries)) {
            return false;
        }
    }
    return *items != NULL;
}

static bool parse_items(struct request *request, const struct impel_bytes *words, size_t count)
{
    return parse_pairs(&request->arena, words, count, &request->items.items,
                       &request->items.item_count) &&
           request->items.item_count <= ITEMS_MAX;
}

static bool parse_ack(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->ack.strict = true;
    return parse_pairs(&request->arena, words, count, &request->ack.items,
                       &request->ack.item_count);
}

static bool answer_take(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->items.item_count;
    struct value *items = answer_list(request, out, 2, arena);
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
        if (each->entry != NULL && !put_fields(&pair[1], each->entry, arena)) {
            return false;
        }
    }
    return list != NULL;
}

static bool answer_renew(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 2, arena);
    return items != NULL &&
           put_results(&items[1], request->items.items, request->items.item_count, arena);
}

static bool answer_ack(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 2, arena);
    return items != NULL &&
           put_results(&items[1], request->ack.items, request->ack.item_count, arena);
}

static bool parse_release(struct request *request, const struct impel_bytes *words, size_t count)
{
    if (count < 3 || (count - 3) % 4 != 0) {
        return false;
    }
    request->items.rest = word_flag(words[2]);
    request->items.item_count = (count - 3) / 4;
    request->items.items =
        arena_calloc(&request->arena, request->items.item_count + 1, sizeof(*request->items.items));
    for (size_t i = 0; request->items.items != NULL && i < request->items.item_count; i++) {
        struct request_item *each = &request->items.items[i];
        const struct impel_bytes *word = &words[3 + 4 * i];
        each->give_back = word_flag(word[2]);
        if (!word_entry_id(word[0], &each->id) || !word_number(word[1], &each->deliveries) ||
            !word_number(word[3], &each->idle_ms)) {
            return false;
        }
    }
    return request->items.items != NULL && request->items.item_count <= ITEMS_MAX;
}

static bool answer_release(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 4, arena);

    if (items == NULL ||
        !put_results(&items[1], request->items.items, request->items.item_count, arena)) {
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

static bool parse_park(struct request *request, const struct impel_bytes *words, size_t count)
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
        if (!word_entry_id(words[at], &each->id) ||
            !word_number(words[at + 1], &each->deliveries) ||
            !word_number(words[at + 4], &copied) || copied < PARK_COPY_LATER || copied % 2 == 1) {
            return false;
        }
        at += 5;
        if (copied == PARK_COPY_LATER) {
            each->idle_ms = PARK_COPY_LATER; /* means nothing to PARK: kept for the answer */
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
    return at == count && request->items.item_count <= ITEMS_MAX;
}

static bool answer_park(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->items.item_count;
    struct value *items = answer_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);
    struct impel_bytes why = {NULL, 0};

    if (list == NULL || !arena_copy(arena, bytes_of(request->error.text), &why)) {
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

/* ---- claim ---- */

static bool parse_claim(struct request *request, const struct impel_bytes *words, size_t count)
{
    struct policy *policy = &request->claim_from.policy;

    if (count != 11) {
        return false;
    }
    request->claim_from.owner = words[0];
    request->claim_from.nobody = word_flag(words[1]);
    request->claim_from.flags =
        (word_flag(words[5]) ? CLAIM_LAST : 0U) | (word_flag(words[6]) ? CLAIM_SETTLE : 0U);
    return word_entry_id(words[2], &request->claim_from.from) &&
           word_count(words[3], &request->claim_from.rows_max) &&
           word_count(words[4], &request->claim_from.claims_max) &&
           word_number(words[7], &policy->min_idle_ms) &&
           word_number(words[8], &policy->max_deliveries) &&
           word_number(words[9], &policy->backoff_base_ms) &&
           word_number(words[10], &policy->backoff_cap_ms);
}

static bool put_claimed(struct value *out, const struct request *request, struct arena *arena)
{
    size_t count = request->claim_from.entry_count;
    struct value *list = value_list_init(out, VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct delivered *each = &request->claim_from.entries[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 4, arena);
        if (row == NULL || !put_id(&row[0], each->entry->id, arena) ||
            !put_fields(&row[3], each->entry, arena)) {
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
        if (row == NULL || !put_id(&row[0], settled[i].id, arena)) {
            return false;
        }
        row[1] = value_integer(settled[i].deliveries);
    }
    return list != NULL;
}

static bool answer_claim(const struct request *request, struct value *out, struct arena *arena)
{
    struct value *items = answer_list(request, out, 17, arena);
    struct impel_bytes why = {NULL, 0};

    if (items == NULL || !arena_copy(arena, bytes_of(request->claim_from.park_error.text), &why) ||
        !put_claimed(&items[3], request, arena) ||
        !put_settled(&items[4], request->claim_from.parked, request->claim_from.parked_count,
                     arena) ||
        !put_settled(&items[5], request->claim_from.reaped, request->claim_from.reaped_count,
                     arena) ||
        !put_id(&items[11], request->claim_from.due_first, arena) ||
        !put_id(&items[14], request->claim_from.next, arena)) {
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
    items[15] = (struct value){.kind = VALUE_ARRAY}; /* nothing is too large to be parked here */
    items[16] = value_text("");
    return true;
}

/* ---- look ---- */

static bool parse_look(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->look.flags =
        (word_flag(words[0]) ? LOOK_BEAT : 0U) | (word_flag(words[1]) ? LOOK_STAMP : 0U);
    return count == 3 && word_number(words[2], &request->look.interval_ms);
}

static bool put_owner(struct value *out, const struct look_owner *owner, struct arena *arena)
{
    struct value *row = value_list_init(out, VALUE_ARRAY, 7, arena);
    char *token = arena_alloc(arena, (size_t)TOKEN_SIZE * 2 + 1);
    struct impel_bytes name;

    if (row == NULL || token == NULL || !arena_copy(arena, owner->name, &name)) {
        return false;
    }
    for (size_t i = 0; i < TOKEN_SIZE; i++) {
        (void)snprintf(token + 2 * i, 3, "%02x", owner->token.bytes[i]);
    }
    row[0] = value_bulk(name);
    row[1] = value_integer((int64_t)owner->pending);
    row[2] = value_integer((int64_t)owner->state);
    row[3] = value_integer(owner->in_table);
    row[4] = value_integer(owner->beat_age_ms);
    row[5] = value_integer(owner->oldest_idle_ms);
    row[6] = value_text(owner->in_table ? token : "");
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

static bool answer_look(const struct request *request, struct value *out, struct arena *arena)
{
    bool stamped = request->look.stamped;
    struct value *items = answer_list(request, out, stamped ? 7 : 3, arena);

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

/* ---- read, pending, info: no fences, but one step where a script would be needed ---- */

static bool parse_read(struct request *request, const struct impel_bytes *words, size_t count)
{
    int64_t size_max = 0;

    request->read.size_max = 0;
    if (count != 2 || !word_count(words[0], &request->read.count) ||
        !word_number(words[1], &size_max) || size_max < 0) {
        return false;
    }
    request->read.size_max = (size_t)size_max;
    return true;
}

static bool answer_read(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->read.entry_count;
    struct value *items = answer_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct delivered *each = &request->read.entries[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 3, arena);
        if (row == NULL || !put_id(&row[1], each->entry->id, arena) ||
            !put_fields(&row[2], each->entry, arena)) {
            return false;
        }
        row[0] = value_integer((int64_t)each->stream_index);
    }
    return list != NULL;
}

static bool parse_pending(struct request *request, const struct impel_bytes *words, size_t count)
{
    request->pending.by_owner = word_flag(words[3]);
    request->pending.owner = words[4];
    return count == 5 && word_entry_id(words[0], &request->pending.start) &&
           word_entry_id(words[1], &request->pending.end) &&
           word_count(words[2], &request->pending.count);
}

static bool answer_pending(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->pending.row_count;
    struct value *items = answer_list(request, out, 2, arena);
    struct value *list =
        items == NULL ? NULL : value_list_init(&items[1], VALUE_ARRAY, count, arena);

    for (size_t i = 0; list != NULL && i < count; i++) {
        const struct pending_row *each = &request->pending.rows[i];
        struct value *row = value_list_init(&list[i], VALUE_ARRAY, 5, arena);
        struct impel_bytes owner;
        if (row == NULL || !put_id(&row[0], each->id, arena) ||
            !arena_copy(arena, each->owner, &owner)) {
            return false;
        }
        row[1] = value_bulk(owner);
        row[2] = value_integer(each->idle_ms);
        row[3] = value_integer(each->deliveries);
        row[4] = value_integer(each->exists);
    }
    return list != NULL;
}

static bool parse_info(struct request *request, const struct impel_bytes *words, size_t count)
{
    return parse_leave(request, words, count);
}

static bool put_group(struct value *out, const struct info_group *group, struct arena *arena)
{
    struct value *row = value_list_init(out, VALUE_ARRAY, 7, arena);
    struct impel_bytes name;

    if (row == NULL || !arena_copy(arena, group->name, &name) ||
        !put_id(&row[1], group->last_delivered, arena) ||
        !put_id(&row[5], group->first_pending, arena)) {
        return false;
    }
    row[0] = value_bulk(name);
    row[2] = value_integer((int64_t)group->pending);
    row[3] = value_integer((int64_t)group->consumers);
    row[4] = value_integer(group->lag);
    row[6] = value_integer(group->oldest_idle_ms);
    return true;
}

static bool answer_info(const struct request *request, struct value *out, struct arena *arena)
{
    size_t count = request->info.group_count;
    struct value *items = answer_list(request, out, request->info.exists ? 7 : 2, arena);

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
    return groups != NULL && put_id(&items[3], request->info.last_id, arena) &&
           put_id(&items[4], request->info.first_id, arena);
}

/* ---- the table and the step ---- */

const struct native native_table[] = {
    {"impel.beat", 1, true, parse_beat, answer_beat, REQUEST_BEAT},
    {"impel.look", 3, true, parse_look, answer_look, REQUEST_LOOK},
    {"impel.claim", 11, true, parse_claim, answer_claim, REQUEST_CLAIM_FROM},
    {"impel.take", 2, true, parse_items, answer_take, REQUEST_RETRY},
    {"impel.renew", 2, true, parse_items, answer_renew, REQUEST_RENEW},
    {"impel.ack", 2, true, parse_ack, answer_ack, REQUEST_ACK},
    {"impel.release", 3, true, parse_release, answer_release, REQUEST_RELEASE},
    {"impel.park", 2, true, parse_park, answer_park, REQUEST_PARK},
    {"impel.leave", 0, true, parse_leave, answer_leave, REQUEST_LEAVE},
    {"impel.drop", 2, true, parse_drop, answer_leave, REQUEST_DROP},
    {"impel.read", 2, true, parse_read, answer_read, REQUEST_READ},
    {"impel.pending", 5, true, parse_pending, answer_pending, REQUEST_PENDING},
    {"impel.info", 0, true, parse_info, answer_info, REQUEST_INFO},
    {.name = NULL},
};

static void request_end(struct request *request)
{
    if (request == NULL) {
        return;
    }
    if (request->kind == REQUEST_PARK) {
        for (size_t i = 0; i < request->items.item_count; i++) {
            entry_free((struct entry *)(uintptr_t)request->items.items[i].copy);
        }
    }
    request_free(request);
}

/* numkeys, the keys, and the words that all steps have. Returns where the step's own begin, or 0. */
static size_t
parse_common(struct request *request, const struct impel_bytes *args, size_t arg_count)
{
    int64_t keys = 0;

    if (arg_count < 2 || !word_number(args[1], &keys) || keys < 1 ||
        (uint64_t)keys + WORDS_COMMON > arg_count - 2) {
        return 0;
    }
    const struct impel_bytes *words = args + 2 + keys;
    request->stream = args[2];
    if (request->kind == REQUEST_READ) {
        request->read.streams = args + 2;
        request->read.stream_count = (size_t)keys;
    }
    request->group = words[0];
    request->consumer = words[1];
    if (keys == 3 && request->kind == REQUEST_PARK) {
        request->items.dead_letter = args[4];
    } else if (keys == 3 && request->kind == REQUEST_CLAIM_FROM) {
        request->claim_from.dead_letter = args[4];
    }
    return word_token(words[2], &request->token) && word_number(words[3], &request->dead_after_ms)
               ? 2 + (size_t)keys + WORDS_COMMON
               : 0;
}

/* Entries that are gone and of which the caller has a copy: it has to send it. They are left out. */
static int park_ask(struct engine *engine, struct request *request, struct request_item *all)
{
    struct lmdb_stream *stream = NULL;
    size_t kept = 0;

    if (lmdb_stream_find(&engine->txn, request->stream, &stream) < 0) {
        return engine->txn.status;
    }
    for (size_t i = 0; i < request->items.item_count; i++) {
        struct request_item *each = &all[i];
        int rc = each->idle_ms == PARK_COPY_LATER
                     ? lmdb_entry_get(&engine->txn, stream, each->id, NULL)
                     : IMPEL_OK;
        if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
            return rc;
        }
        each->idle_ms = 0;
        if (rc >= 0) {
            request->items.items[kept++] = *each;
        }
    }
    request->items.item_count = kept;
    return IMPEL_OK;
}

/* The items that were left out come back, as not reached. */
static void park_join(struct request *request, struct request_item *all, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if (at < request->items.item_count && id_equal(request->items.items[at].id, all[i].id)) {
            all[i] = request->items.items[at++];
        }
    }
    request->items.items = all;
    request->items.item_count = count;
}

static int run_park(struct engine *engine, struct exec *exec, struct request *request)
{
    size_t count = request->items.item_count;
    struct request_item *all = request->items.items;

    request->items.items = arena_calloc(&request->arena, count + 1, sizeof(*all));
    if (request->items.items == NULL) {
        request->items.items = all;
        return lmdb_fail(&engine->txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    int rc = park_ask(engine, request, all);
    rc = rc < 0 ? rc : exec_request(exec, request);
    park_join(request, all, count);
    return rc;
}

static void answer_error(struct engine *engine, const struct request *request, int rc)
{
    struct value *reply = engine->native_reply;
    const char *code = rc == IMPEL_ERR_NO_GROUP     ? "NOGROUP"
                       : rc == IMPEL_ERR_WRONG_TYPE ? "WRONGTYPE"
                       : rc == IMPEL_ERR_REPLACED   ? "REPLACED"
                       : rc == IMPEL_ERR_FENCED     ? "FENCED"
                       : rc == IMPEL_ERR_FULL       ? "OOM"
                                                    : "ERR";
    char text[sizeof(request->error.text) + 16];

    (void)snprintf(text, sizeof(text), "%s %s", code,
                   request->error.text[0] != '\0' ? request->error.text : status_text(rc));
    struct impel_bytes copy = bytes_of(status_text(rc));
    (void)arena_copy(&engine->request.arena, bytes_of(text), &copy);
    *reply = (struct value){.kind = VALUE_ERROR, .bytes = copy};
    if (request->kind == REQUEST_READ && (rc == IMPEL_ERR_NO_GROUP || rc == IMPEL_ERR_WRONG_TYPE)) {
        /* Which stream it is has to be said as well. */
        struct value *items = answer_list(request, reply, 3, &engine->request.arena);
        if (items != NULL) {
            items[1] = value_integer((int64_t)request->read.missing);
            items[2] = value_bulk(copy);
        }
    }
}

int engine_native(struct engine *engine,
                  const struct native *native,
                  const struct impel_bytes *args,
                  size_t arg_count,
                  struct value **reply)
{
    struct exec exec = {
        .env = engine->env, .txn = &engine->txn, .refs = &engine->refs, .boot_ms = side_now_ms()};
    struct op op = {.blocks = false};
    struct request *request = request_new(native->kind);
    int rc = IMPEL_ERR_NOMEM;

    arena_release(&engine->request.arena);
    engine->txn.signal = false;
    *reply = engine->native_reply = arena_calloc(&engine->request.arena, 1, sizeof(struct value));
    if (request == NULL || *reply == NULL) {
        request_end(request);
        return lmdb_fail(&engine->txn, rc, "out of memory");
    }
    request->store_data = &op;
    size_t own = parse_common(request, args, arg_count);
    if (own == 0 || arg_count - own < (size_t)native->words_min ||
        !native->parse(request, args + own, arg_count - own)) {
        (void)error_set(&request->error, IMPEL_ERR_INVALID, "the words of %s make no sense",
                        native->name);
        rc = IMPEL_ERR_INVALID;
    } else if (native->kind == REQUEST_PARK) {
        rc = run_park(engine, &exec, request);
    } else {
        rc = exec_request(&exec, request);
    }
    if (rc >= 0 && !native->answer(request, *reply, &engine->request.arena)) {
        rc = lmdb_fail(&engine->txn, IMPEL_ERR_NOMEM, "out of memory");
    } else if (rc < 0 && engine->txn.status >= 0) {
        answer_error(engine, request, rc);
        rc = IMPEL_OK;
    }
    engine->signalled = engine->txn.signal;
    engine->any_signal |= engine->signalled;
    request_end(request);
    return engine->txn.status < 0 ? engine->txn.status : rc;
}
