/* request.c -- requests and entries as objects: making them, freeing them, naming them. */
#include "core/request.h"

#include <stdlib.h>
#include <string.h>

static bool size_add(size_t *size, size_t more)
{
    return !__builtin_add_overflow(*size, more, size);
}

static struct impel_bytes copy_to(uint8_t **at, struct impel_bytes bytes)
{
    struct impel_bytes copy = {*at, bytes.size};
    if (bytes.size > 0) {
        memcpy(*at, bytes.data, bytes.size);
    }
    *at += bytes.size;
    return copy;
}

struct entry *entry_new(struct impel_id id, const struct impel_field *fields, size_t field_count)
{
    struct entry *entry = NULL;
    size_t size = 0;

    if (__builtin_mul_overflow(field_count, sizeof(fields[0]), &size) ||
        !size_add(&size, sizeof(*entry))) {
        return NULL;
    }
    size_t head_size = size;
    for (size_t i = 0; i < field_count; i++) {
        if (!size_add(&size, fields[i].name.size) || !size_add(&size, fields[i].value.size)) {
            return NULL;
        }
    }
    entry = malloc(size);
    if (entry == NULL) {
        return NULL;
    }
    entry->id = id;
    entry->field_count = field_count;
    entry->size_bytes = size;
    uint8_t *at = (uint8_t *)entry + head_size;
    for (size_t i = 0; i < field_count; i++) {
        entry->fields[i].name = copy_to(&at, fields[i].name);
        entry->fields[i].value = copy_to(&at, fields[i].value);
    }
    return entry;
}

void entry_free(struct entry *entry)
{
    free(entry);
}

bool replay_is_meant(const struct replay_item *item,
                     enum replay_mode mode,
                     const struct impel_field *fields,
                     size_t field_count)
{
    bool meant = mode != REPLAY_BACK;
    struct impel_id id;

    for (size_t i = 0; !meant && i < field_count; i++) {
        meant = bytes_equal(fields[i].name, bytes_of("original_id")) &&
                id_parse(fields[i].value, 0, &id) >= 0 && id_equal(id, item->original_id);
    }
    return meant && field_count == item->field_count;
}

struct request *request_new(enum request_kind kind)
{
    struct request *request = calloc(1, sizeof(*request));
    if (request != NULL) {
        request->kind = kind;
    }
    return request;
}

static void delivered_free(struct delivered *entries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        entry_free(entries[i].entry);
    }
}

static void request_free_entries(struct request *request)
{
    switch (request->kind) {
    case REQUEST_READ:
        delivered_free(request->read.entries, request->read.entry_count);
        break;
    case REQUEST_CLAIM_FROM:
        delivered_free(request->claim_from.entries, request->claim_from.entry_count);
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
        for (size_t i = 0; i < request->items.item_count; i++) {
            entry_free(request->items.items[i].entry);
        }
        break;
    case REQUEST_RANGE:
        for (size_t i = 0; i < request->range.entry_count; i++) {
            entry_free(request->range.entries[i]);
        }
        break;
    default:
        break;
    }
}

void request_free(struct request *request)
{
    if (request == NULL) {
        return;
    }
    if (request->left) {
        request->left = false;
        request->done = request_free;
        return;
    }
    request_free_entries(request);
    arena_release(&request->arena);
    free(request);
}

const char *request_name(enum request_kind kind)
{
    static const char *const names[] = {
        [REQUEST_ADD] = "add",
        [REQUEST_READ] = "read",
        [REQUEST_ACK] = "ack",
        [REQUEST_BEAT] = "beat",
        [REQUEST_LOOK] = "look",
        [REQUEST_CLAIM_FROM] = "claim_from",
        [REQUEST_RETRY] = "retry",
        [REQUEST_ADOPT] = "adopt",
        [REQUEST_RENEW] = "renew",
        [REQUEST_RELEASE] = "release",
        [REQUEST_PARK] = "park",
        [REQUEST_LEAVE] = "leave",
        [REQUEST_DROP] = "drop",
        [REQUEST_PENDING] = "pending",
        [REQUEST_RANGE] = "range",
        [REQUEST_INFO] = "info",
        [REQUEST_GROUP_CREATE] = "group_create",
        [REQUEST_GROUP_SET] = "group_set",
        [REQUEST_TRIM] = "trim",
        [REQUEST_TRIM_DONE] = "trim_done",
        [REQUEST_REPLAY] = "replay",
        [REQUEST_CALL] = "call",
    };
    ASSERT((size_t)kind < ARRAY_SIZE(names));
    return names[kind];
}
