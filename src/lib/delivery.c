/* delivery.c -- what a handler may ask of the entry in its hands, and say about it. */
#include "impel/worker.h"
#include "runtime/handler.h"

#include <stdlib.h>
#include <string.h>

struct impel_id impel_delivery_id(const struct impel_delivery *delivery)
{
    return delivery->delivery->entry->id;
}

struct impel_bytes impel_delivery_stream(const struct impel_delivery *delivery)
{
    return delivery->env->streams[delivery->delivery->stream_index];
}

struct impel_bytes impel_delivery_group(const struct impel_delivery *delivery)
{
    return delivery->env->group;
}

struct impel_bytes impel_delivery_consumer(const struct impel_delivery *delivery)
{
    return delivery->env->consumer;
}

int64_t impel_delivery_attempt(const struct impel_delivery *delivery)
{
    return delivery->delivery->attempt;
}

struct impel_bytes impel_delivery_field(const struct impel_delivery *delivery, const char *name)
{
    return impel_delivery_field_bytes(delivery, bytes_of(name));
}

struct impel_bytes impel_delivery_field_bytes(const struct impel_delivery *delivery,
                                              struct impel_bytes name)
{
    const struct entry *entry = delivery->delivery->entry;
    for (size_t i = 0; i < entry->field_count; i++) {
        if (bytes_equal(entry->fields[i].name, name)) {
            struct impel_bytes value = entry->fields[i].value;
            /* An empty value is there all the same. */
            return value.data != NULL ? value : bytes_of("");
        }
    }
    return (struct impel_bytes){NULL, 0};
}

size_t impel_delivery_field_count(const struct impel_delivery *delivery)
{
    return delivery->delivery->entry->field_count;
}

struct impel_field impel_delivery_field_at(const struct impel_delivery *delivery, size_t index)
{
    const struct entry *entry = delivery->delivery->entry;
    ASSERT(index < entry->field_count);
    return entry->fields[index];
}

int impel_delivery_cancelled(const struct impel_delivery *delivery)
{
    return atomic_load(&delivery->cancelled) ? 1 : 0;
}

/* Words that cannot be kept for want of memory are lost; the outcome is not. */
static void keep_why(struct impel_delivery *delivery, const char *why)
{
    free(delivery->why);
    delivery->why = why != NULL ? strndup(why, ERROR_SIZE_MAX) : NULL;
}

enum impel_outcome impel_delivery_fail(struct impel_delivery *delivery, const char *why)
{
    keep_why(delivery, why);
    delivery->delay_ms = -1;
    return IMPEL_RETRY;
}

enum impel_outcome impel_delivery_reject(struct impel_delivery *delivery, const char *why)
{
    keep_why(delivery, why);
    delivery->delay_ms = -1;
    return IMPEL_REJECT;
}

enum impel_outcome
impel_delivery_retry_after(struct impel_delivery *delivery, int64_t delay_ms, const char *why)
{
    keep_why(delivery, why);
    delivery->delay_ms = delay_ms > 0 ? delay_ms : 0;
    return IMPEL_RETRY;
}
