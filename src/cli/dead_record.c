/* dead_record.c -- reading the records that a park writes, Impel's or another tool's. */
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

/* How many fields Impel has added, or 0 if the record is not Impel's. */
static size_t added_count(const struct entry *entry)
{
    const struct impel_field *last = &entry->fields[entry->field_count - 1];
    int64_t ours = number_of(last->value);

    return bytes_equal(last->name, bytes_of("impel_fields")) && ours >= 1 &&
                   (uint64_t)ours <= entry->field_count
               ? (size_t)ours
               : 0;
}

bool dead_record_parse(const struct entry *entry, struct dead_record *record)
{
    size_t ours = entry->field_count == 0 ? 0 : added_count(entry);

    *record = (struct dead_record){
        .id = entry->id,
        .foreign = ours == 0,
        .fields = entry->fields,
        .field_count = entry->field_count - ours,
        .total_count = entry->field_count,
        .deliveries = -1,
        .last_active_ms = -1,
        .parked_ms = -1,
    };
    for (size_t i = record->foreign ? 0 : record->field_count; i < entry->field_count; i++) {
        take_field(record, &entry->fields[i]);
    }
    if (record->parked_ms < 0) {
        record->parked_ms = entry->id.ms > INT64_MAX ? INT64_MAX : (int64_t)entry->id.ms;
    }
    return !record->foreign || record->original_id.size > 0 || record->reason.size > 0;
}

/* ---- the entry in it ---- */

static bool is_added(const struct text_list *strip, struct impel_bytes name)
{
    static const char *const common[] = {"original_id", "original_stream", "original_group",
                                         "reason"};

    for (size_t i = 0; i < ARRAY_SIZE(common); i++) {
        if (bytes_equal(name, bytes_of(common[i]))) {
            return true;
        }
    }
    for (size_t i = 0; i < strip->count; i++) {
        if (bytes_equal(name, bytes_of(strip->texts[i]))) {
            return true;
        }
    }
    return false;
}

int dead_record_entry(const struct dead_record *record,
                      const struct text_list *strip,
                      struct arena *arena,
                      struct dead_entry *entry)
{
    size_t room = record->foreign ? record->field_count : 1, count = 0, run_count = 0;
    struct replay_run *runs = arena_calloc(arena, room, sizeof(*runs));
    struct impel_field *fields = NULL;

    if (runs == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    if (!record->foreign) {
        *runs = (struct replay_run){0, (uint32_t)record->field_count};
        *entry = (struct dead_entry){record->fields, record->field_count, runs, 1};
        return IMPEL_OK;
    }
    fields = arena_calloc(arena, room, sizeof(*fields));
    if (fields == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    for (size_t i = 0; i < record->field_count; i++) {
        if (is_added(strip, record->fields[i].name)) {
            continue;
        }
        if (run_count == 0 || runs[run_count - 1].first + runs[run_count - 1].count != i) {
            runs[run_count++] = (struct replay_run){(uint32_t)i, 0};
        }
        runs[run_count - 1].count++;
        fields[count++] = record->fields[i];
    }
    *entry = (struct dead_entry){fields, count, runs, run_count};
    return IMPEL_OK;
}
