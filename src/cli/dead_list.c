/* dead_list.c -- impel dead list and show: what was parked, and why; a line each, or one in full. */
#include "base/json.h"
#include "cli/console.h"
#include "cli/dead.h"

#include <string.h>
#include <time.h>

struct listing {
    const struct dead *dead;
    struct buf line;
    struct arena arena; /* of one record */
    uint64_t shown;
};

/* ---- parts ---- */

void dead_json_text(struct buf *line, const char *name, struct impel_bytes value)
{
    buf_appendf(line, ",\"%s\":", name);
    json_value(line, value);
}

void dead_json_number(struct buf *line, const char *name, int64_t number)
{
    if (number < 0) {
        buf_appendf(line, ",\"%s\":null", name);
    } else {
        buf_appendf(line, ",\"%s\":%lld", name, (long long)number);
    }
}

void dead_time(struct buf *line, int64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm broken;
    char text[32] = "-";

    if (unix_ms >= 0 && localtime_r(&seconds, &broken) != NULL) {
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &broken);
    }
    buf_appendf(line, "%-19s", text);
}

/* ---- list ---- */

static void write_json(struct listing *listing,
                       const struct dead_record *record,
                       const struct dead_entry *entry)
{
    struct buf *line = &listing->line;
    char id[ID_TEXT_SIZE];

    buf_appendf(line, "{\"id\":\"%s\"", id_format(record->id, id));
    dead_json_text(line, "stream", listing->dead->dead_letter);
    dead_json_text(line, "original_id", record->original_id);
    dead_json_text(line, "original_stream", record->original_stream);
    dead_json_text(line, "original_group", record->original_group);
    dead_json_text(line, "consumer", record->consumer);
    dead_json_number(line, "deliveries", record->deliveries);
    dead_json_text(line, "reason", record->reason);
    dead_json_text(line, "error", record->error);
    dead_json_number(line, "last_active_ms", record->last_active_ms);
    dead_json_number(line, "parked_ms", record->parked_ms);
    buf_appendf(line, ",\"impel\":%s,\"fields\":", record->foreign ? "false" : "true");
    json_fields(line, entry->fields, entry->field_count);
    buf_append_text(line, "}\n");
}

static void write_row(struct listing *listing, const struct dead_record *record)
{
    char id[ID_TEXT_SIZE], original[48], reason[32], consumer[32], error[160];
    struct buf *line = &listing->line;

    if (listing->shown == 0) {
        buf_appendf(line, "%s%-19s  %-20s  %-20s  %-14s  %5s  %-16s  %s%s\n",
                    console_style(1, STYLE_BOLD), "PARKED", "RECORD", "ENTRY", "REASON", "TRIES",
                    "CONSUMER", "ERROR", console_style(1, STYLE_END));
    }
    dead_time(line, record->parked_ms);
    buf_appendf(line, "  %-20s  %-20s  %-14s  ", id_format(record->id, id),
                bytes_quote(record->original_id, original, sizeof(original)),
                bytes_quote(record->reason, reason, sizeof(reason)));
    if (record->deliveries < 0) {
        buf_appendf(line, "%5s", "-");
    } else {
        buf_appendf(line, "%5lld", (long long)record->deliveries);
    }
    buf_appendf(line, "  %-16s  %s\n", bytes_quote(record->consumer, consumer, sizeof(consumer)),
                bytes_quote(record->error, error, sizeof(error)));
}

/* ---- show ---- */

static void write_text(struct buf *line, const char *name, struct impel_bytes value)
{
    char text[4096];

    if (value.size > 0) {
        buf_appendf(line, "  %-10s %s\n", name, bytes_quote(value, text, sizeof(text)));
    }
}

static void write_moment(struct buf *line, const struct dead *dead, const char *name, int64_t at_ms)
{
    char age[DURATION_TEXT_SIZE];

    if (at_ms >= 0) {
        buf_appendf(line, "  %-10s ", name);
        dead_time(line, at_ms);
        buf_appendf(line, ", %s ago\n", duration_brief(sub_saturating(dead->now_ms, at_ms), age));
    }
}

static void write_full(struct listing *listing,
                       const struct dead_record *record,
                       const struct dead_entry *entry)
{
    struct buf *line = &listing->line;
    char id[ID_TEXT_SIZE], name[256], value[4096];

    buf_appendf(line, "%s%s%s of %s%s\n", console_style(1, STYLE_BOLD), id_format(record->id, id),
                console_style(1, STYLE_END),
                bytes_quote(listing->dead->dead_letter, name, sizeof(name)),
                record->foreign ? ", which another tool wrote" : "");
    write_text(line, "entry", record->original_id);
    write_text(line, "stream", record->original_stream);
    write_text(line, "group", record->original_group);
    write_text(line, "reason", record->reason);
    write_text(line, "error", record->error);
    if (record->deliveries >= 0) {
        buf_appendf(line, "  %-10s %lld\n", "deliveries", (long long)record->deliveries);
    }
    write_text(line, "consumer", record->consumer);
    write_moment(line, listing->dead, "active", record->last_active_ms);
    write_moment(line, listing->dead, "parked", record->parked_ms);
    buf_appendf(line, "  fields\n");
    for (size_t i = 0; i < entry->field_count; i++) {
        buf_appendf(line, "    %s = %s\n", bytes_quote(entry->fields[i].name, name, sizeof(name)),
                    bytes_quote(entry->fields[i].value, value, sizeof(value)));
    }
}

/* ---- both ---- */

static int emit(struct listing *listing, const struct dead_record *record, bool full)
{
    struct dead_entry entry;
    int rc = dead_record_entry(record, &listing->dead->options->strip, &listing->arena, &entry);

    if (rc < 0) {
        return rc;
    }
    buf_clear(&listing->line);
    if (listing->dead->options->json) {
        write_json(listing, record, &entry);
    } else if (full) {
        write_full(listing, record, &entry);
    } else {
        write_row(listing, record);
    }
    if (!listing->line.failed) {
        console_out(buf_bytes(&listing->line));
        listing->shown++;
    }
    arena_reset(&listing->arena, 1 << 20);
    return buf_status(&listing->line);
}

static int list_record(void *user, const struct dead_record *record, struct impel_error *err)
{
    (void)err;
    return emit(user, record, false);
}

static int show_record(void *user, const struct dead_record *record, struct impel_error *err)
{
    (void)err;
    return emit(user, record, true);
}

static int walk(struct dead *dead, dead_record_fn *record, struct impel_error *err)
{
    struct listing listing = {.dead = dead};

    buf_init(&listing.line, SIZE_MAX / 4);
    int rc = dead_walk(dead, record, &listing, NULL, err);
    if (rc >= 0 && listing.shown == 0 && !dead->options->json) {
        console_note(dead->length == 0 ? "nothing is parked here"
                                       : "nothing of that kind is parked here");
    }
    buf_release(&listing.line);
    arena_release(&listing.arena);
    return rc < 0 ? rc : EXIT_DONE;
}

int dead_list(struct dead *dead, struct impel_error *err)
{
    return walk(dead, list_record, err);
}

int dead_show(struct dead *dead, struct impel_error *err)
{
    return walk(dead, show_record, err);
}
