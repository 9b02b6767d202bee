/* command_dead.c -- impel dead list: what was parked, and why. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dead_record.h"
#include "cli/pages.h"

#include <string.h>
#include <time.h>

struct listing {
    const struct options *options;
    struct buf line;
    uint64_t shown;
    bool skipped; /* an entry that is no record was seen */
};

static void json_member(struct buf *line, const char *name, struct impel_bytes value)
{
    buf_appendf(line, ",\"%s\":", name);
    json_value(line, value);
}

static void json_number(struct buf *line, const char *name, int64_t number)
{
    if (number < 0) {
        buf_appendf(line, ",\"%s\":null", name);
    } else {
        buf_appendf(line, ",\"%s\":%lld", name, (long long)number);
    }
}

static void
write_json(struct buf *line, struct impel_bytes stream, const struct dead_record *record)
{
    char id[ID_TEXT_SIZE];

    buf_appendf(line, "{\"id\":\"%s\"", id_format(record->id, id));
    json_member(line, "stream", stream);
    json_member(line, "original_id", record->original_id);
    json_member(line, "original_stream", record->original_stream);
    json_member(line, "original_group", record->original_group);
    json_member(line, "consumer", record->consumer);
    json_number(line, "deliveries", record->deliveries);
    json_member(line, "reason", record->reason);
    json_member(line, "error", record->error);
    json_number(line, "last_active_ms", record->last_active_ms);
    json_number(line, "parked_ms", record->parked_ms);
    buf_append_text(line, ",\"fields\":");
    json_fields(line, record->fields, record->field_count);
    buf_append_text(line, "}\n");
}

static void write_time(struct buf *line, int64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm broken;
    char text[32] = "-";

    if (unix_ms >= 0 && localtime_r(&seconds, &broken) != NULL) {
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &broken);
    }
    buf_appendf(line, "%-19s", text);
}

static void write_row(struct listing *listing, const struct dead_record *record)
{
    char original[48], reason[32], consumer[32], error[160];
    struct buf *line = &listing->line;

    if (listing->shown == 0) {
        buf_appendf(line, "%s%-19s  %-20s  %-14s  %5s  %-16s  %s%s\n", console_style(1, STYLE_BOLD),
                    "PARKED", "ENTRY", "REASON", "TRIES", "CONSUMER", "ERROR",
                    console_style(1, STYLE_END));
    }
    write_time(line, record->parked_ms);
    buf_appendf(line, "  %-20s  %-14s  %5lld  %-16s  %s\n",
                bytes_quote(record->original_id, original, sizeof(original)),
                bytes_quote(record->reason, reason, sizeof(reason)), (long long)record->deliveries,
                bytes_quote(record->consumer, consumer, sizeof(consumer)),
                bytes_quote(record->error, error, sizeof(error)));
}

static bool wanted(const struct options *options, const struct dead_record *record)
{
    if (options->reason != NULL && !bytes_equal(record->reason, bytes_of(options->reason))) {
        return false;
    }
    return options->group == NULL || bytes_equal(record->original_group, bytes_of(options->group));
}

static int show_record(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct listing *listing = user;
    struct dead_record record;

    if (!dead_record_parse(entry, &record)) {
        listing->skipped = true;
        return 1;
    }
    if (!wanted(listing->options, &record)) {
        return 1;
    }
    buf_clear(&listing->line);
    if (listing->options->json) {
        write_json(&listing->line, stream, &record);
    } else {
        write_row(listing, &record);
    }
    if (!listing->line.failed) {
        console_out(buf_bytes(&listing->line));
        listing->shown++;
    }
    return buf_status(&listing->line);
}

static int list(struct options *options, struct impel_bytes stream, struct impel_error *err)
{
    struct listing listing = {.options = options};
    struct store *store = NULL;
    int rc;

    rc = session_open_existing(options, &store, err);
    if (rc < 0) {
        return rc;
    }
    buf_init(&listing.line, SIZE_MAX / 4);
    struct pages pages = {
        .store = store,
        .stream = stream,
        .start = options->start,
        .end = id_is_zero(options->end) ? ID_MAX : options->end,
        .count = (uint64_t)options->count,
        .reverse = options->reverse,
        .entry = show_record,
        .user = &listing,
    };
    rc = pages_walk(&pages, err);
    if (rc >= 0 && listing.skipped) {
        console_note("some entries of this stream are no records of Impel's and are not shown");
    }
    if (rc >= 0 && listing.shown == 0 && !options->json) {
        console_note("nothing is parked here");
    }
    buf_release(&listing.line);
    store_close(store);
    return rc;
}

int command_dead(struct options *options, struct impel_error *err)
{
    struct impel_bytes stream = {0}, dead_letter;
    int rc = IMPEL_OK;

    if (options->words.count == 0 || strcmp(options->words.texts[0], "list") != 0) {
        return error_set(err, IMPEL_ERR_INVALID, "what to do? 'impel dead list' lists the records");
    }
    if (options->dead_letter == NULL) {
        rc = command_one_stream(options, &stream, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!options_dead_letter(options, &options->arena, stream, &dead_letter)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = list(options, dead_letter, err);
    return rc < 0 ? rc : EXIT_DONE;
}
