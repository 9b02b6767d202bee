/* dead_stats.c -- impel dead stats: how many records there are of each kind, and since when. */
#include "base/json.h"
#include "cli/console.h"
#include "cli/dead.h"

#include <stdlib.h>
#include <string.h>

enum {
    KINDS_MAX = 1000, /* beyond: counted together; who has that many reasons looks at the records */
};

/* Records of one stream and group that were parked for one reason. */
struct kind {
    struct impel_bytes stream, group, reason;
    uint64_t count;
    int64_t oldest_ms, newest_ms;
};

struct counting {
    struct kind kinds[KINDS_MAX + 1]; /* the last: all that found no place */
    size_t count;
    struct arena arena;
};

static struct kind *find_kind(struct counting *counting, const struct dead_record *record)
{
    for (size_t i = 0; i < counting->count; i++) {
        struct kind *kind = &counting->kinds[i];
        if (bytes_equal(kind->reason, record->reason) &&
            bytes_equal(kind->group, record->original_group) &&
            bytes_equal(kind->stream, record->original_stream)) {
            return kind;
        }
    }
    if (counting->count >= KINDS_MAX) {
        counting->count = KINDS_MAX + 1;
        return &counting->kinds[KINDS_MAX];
    }
    struct kind *kind = &counting->kinds[counting->count];
    if (!arena_copy(&counting->arena, record->reason, &kind->reason) ||
        !arena_copy(&counting->arena, record->original_group, &kind->group) ||
        !arena_copy(&counting->arena, record->original_stream, &kind->stream)) {
        return NULL;
    }
    counting->count++;
    return kind;
}

static int count_record(void *user, const struct dead_record *record, struct impel_error *err)
{
    struct counting *counting = user;
    struct kind *kind = find_kind(counting, record);

    if (kind == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    if (kind->count == 0 || record->parked_ms < kind->oldest_ms) {
        kind->oldest_ms = record->parked_ms;
    }
    if (kind->count == 0 || record->parked_ms > kind->newest_ms) {
        kind->newest_ms = record->parked_ms;
    }
    kind->count++;
    return IMPEL_OK;
}

static int most_first(const void *a, const void *b)
{
    const struct kind *x = a, *y = b;

    return x->count != y->count ? (x->count < y->count ? 1 : -1)
                                : bytes_compare(x->reason, y->reason);
}

static void write_json(struct buf *line, const struct kind *kind, bool others)
{
    buf_appendf(line, "{\"records\":%llu", (unsigned long long)kind->count);
    dead_json_text(line, "reason", kind->reason);
    dead_json_text(line, "original_stream", kind->stream);
    dead_json_text(line, "original_group", kind->group);
    dead_json_number(line, "oldest_ms", kind->oldest_ms);
    dead_json_number(line, "newest_ms", kind->newest_ms);
    buf_append_text(line, others ? ",\"others\":true}\n" : "}\n");
}

static void write_row(struct buf *line, const struct kind *kind, bool others)
{
    char stream[64], group[64], reason[64];

    buf_appendf(line, "%9llu  %-16s  %-20s  %-20s  ", (unsigned long long)kind->count,
                others ? "(others)" : bytes_quote(kind->reason, reason, sizeof(reason)),
                bytes_quote(kind->stream, stream, sizeof(stream)),
                bytes_quote(kind->group, group, sizeof(group)));
    dead_time(line, kind->oldest_ms);
    buf_append_text(line, "  ");
    dead_time(line, kind->newest_ms);
    buf_append_text(line, "\n");
}

static int print(const struct dead *dead, struct counting *counting)
{
    struct buf line;
    size_t sorted = counting->count > KINDS_MAX ? KINDS_MAX : counting->count;

    buf_init(&line, 1 << 24);
    qsort(counting->kinds, sorted, sizeof(counting->kinds[0]), most_first);
    if (!dead->options->json && counting->count > 0) {
        buf_appendf(&line, "%s%9s  %-16s  %-20s  %-20s  %-19s  %s%s\n",
                    console_style(1, STYLE_BOLD), "RECORDS", "REASON", "STREAM", "GROUP", "OLDEST",
                    "NEWEST", console_style(1, STYLE_END));
    }
    for (size_t i = 0; i < counting->count; i++) {
        (dead->options->json ? write_json : write_row)(&line, &counting->kinds[i], i == KINDS_MAX);
    }
    int rc = buf_status(&line);
    if (rc >= 0) {
        console_out(buf_bytes(&line));
    }
    buf_release(&line);
    return rc;
}

int dead_stats(struct dead *dead, struct impel_error *err)
{
    struct counting *counting = calloc(1, sizeof(*counting));

    if (counting == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    int rc = dead_walk(dead, count_record, counting, NULL, err);
    if (rc >= 0) {
        rc = print(dead, counting);
        rc = rc < 0 ? error_set(err, rc, "%s", status_text(rc)) : console_flush(err);
    }
    if (rc >= 0 && counting->count == 0 && !dead->options->json) {
        console_note("nothing is parked here");
    }
    arena_release(&counting->arena);
    free(counting);
    return rc < 0 ? rc : EXIT_DONE;
}
