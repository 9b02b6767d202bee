/* dead_record.c -- reading the records that a park writes. */
#include "cli/dead_record.h"

#include <stdlib.h>
#include <string.h>

/* A non-negative number, or -1. */
static int64_t number_of(struct impel_bytes text)
{
    char copy[24], *end;

    if (text.size == 0 || text.size >= sizeof(copy)) {
        return -1;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    long long number = strtoll(copy, &end, 10);
    return *end == '\0' && number >= 0 ? number : -1;
}

static void take_field(struct dead_record *record, const struct impel_field *field)
{
    const struct {
        const char *name;
        struct impel_bytes *text;
        int64_t *number;
    } members[] = {
        {"original_id", &record->original_id, NULL},
        {"original_stream", &record->original_stream, NULL},
        {"original_group", &record->original_group, NULL},
        {"consumer", &record->consumer, NULL},
        {"reason", &record->reason, NULL},
        {"error", &record->error, NULL},
        {"deliveries", NULL, &record->deliveries},
        {"last_active_ms", NULL, &record->last_active_ms},
        {"parked_ms", NULL, &record->parked_ms},
    };
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        if (!bytes_equal(field->name, bytes_of(members[i].name))) {
            continue;
        }
        if (members[i].text != NULL) {
            *members[i].text = field->value;
        } else {
            *members[i].number = number_of(field->value);
        }
    }
}

bool dead_record_parse(const struct entry *entry, struct dead_record *record)
{
    const struct impel_field *last;
    int64_t ours;

    if (entry->field_count == 0) {
        return false;
    }
    last = &entry->fields[entry->field_count - 1];
    ours = number_of(last->value);
    if (!bytes_equal(last->name, bytes_of("impel_fields")) || ours < 1 ||
        (uint64_t)ours > entry->field_count) {
        return false;
    }
    *record = (struct dead_record){
        .id = entry->id,
        .fields = entry->fields,
        .field_count = entry->field_count - (size_t)ours,
        .deliveries = -1,
        .last_active_ms = -1,
        .parked_ms = -1,
    };
    for (size_t i = record->field_count; i + 1 < entry->field_count; i++) {
        take_field(record, &entry->fields[i]);
    }
    return true;
}
