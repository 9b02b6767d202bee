/* sweep_trim.c -- trimming as a part of the daemon: the same trim, told in events.
 *
 * Several sweeps may do this side by side: the second finds nothing left. What is wrong with a stream
 * is said when it begins or changes, not every minute. */
#include "cli/sweep_trim.h"

#include "observe/events.h"

#include <stdlib.h>
#include <string.h>

enum {
    INTERVAL_MS = 60000,
};

struct trim_told {
    uint64_t stream; /* a hash of its name */
    uint64_t wrong;  /* a digest of what is wrong; 0 = nothing */
};

void sweep_trim_init(struct sweep_trim *trim,
                     const struct options *options,
                     struct logging *logging)
{
    *trim = (struct sweep_trim){
        .plan =
            {
                .keep = options->keep,
                .ignored = &options->ignored_groups,
                .stalled_ms = options->stalled_after_ms,
                .dry_run = options->dry_run,
                .many = true,
            },
        .logging = logging,
        .wanted = options->trim,
    };
}

void sweep_trim_release(struct sweep_trim *trim)
{
    free(trim->told);
    *trim = (struct sweep_trim){0};
}

bool sweep_trim_due(const struct sweep_trim *trim, int64_t now_ms)
{
    return trim->wanted && now_ms >= trim->due_ms;
}

void sweep_trim_over(struct sweep_trim *trim, int64_t now_ms)
{
    trim->due_ms = now_ms + INTERVAL_MS;
}

/* ---- telling ---- */

/* True if this was not what was last said of the stream, and is something. */
static bool is_news(struct sweep_trim *trim, struct impel_bytes stream, uint64_t wrong)
{
    uint64_t name = hash_bytes(stream, 0);

    for (size_t i = 0; i < trim->told_count; i++) {
        if (trim->told[i].stream == name) {
            bool news = trim->told[i].wrong != wrong && wrong != 0;
            trim->told[i].wrong = wrong;
            return news;
        }
    }
    if (wrong == 0) {
        return false;
    }
    struct trim_told *told = realloc(trim->told, (trim->told_count + 1) * sizeof(*told));
    if (told != NULL) { /* else it is said again next time */
        told[trim->told_count++] = (struct trim_told){name, wrong};
        trim->told = told;
    }
    return wrong != 0;
}

void sweep_trim_forget(struct sweep_trim *trim, struct impel_bytes stream)
{
    uint64_t name = hash_bytes(stream, 0);

    for (size_t i = 0; i < trim->told_count; i++) {
        if (trim->told[i].stream == name) {
            trim->told[i] = trim->told[--trim->told_count];
            return;
        }
    }
}

static void
tell(struct sweep_trim *trim, const char *name, const char *text, const struct impel_event *about)
{
    struct impel_event event;

    event_init(&event, name, about->level, text);
    event.stream = about->stream;
    event.group = about->group;
    event.error = about->error;
    event.count = about->count;
    logging_event(&event, trim->logging);
}

static void tell_group(struct sweep_trim *trim,
                       const struct trim_report *report,
                       const struct trim_group *group)
{
    struct impel_event about = {
        .level = IMPEL_WARNING, .stream = report->stream, .group = group->name, .count = 1};

    if (group->stalled && !group->ignored) {
        tell(trim, "stalled",
             "the group has unfinished work and nobody comes for it: it holds the "
             "stream's memory",
             &about);
    }
    about.count = group->lost_pending;
    if (about.count > 0) {
        tell(trim, "lost-pending", "pending entries were trimmed or deleted by others", &about);
    }
    about.count = group->lost_unread;
    if (about.count > 0) {
        tell(trim, "lost-unread",
             "entries were trimmed or deleted by others before the group read them", &about);
    }
}

static uint64_t digest(const struct trim_report *report)
{
    uint64_t wrong = 0;

    for (size_t i = 0; trim_needs_attention(report) && i < report->group_count; i++) {
        const struct trim_group *group = &report->groups[i];
        const uint64_t facts[] = {group->stalled && !group->ignored, group->lost_pending,
                                  group->lost_unread};
        wrong = hash_bytes(group->name, wrong);
        wrong = hash_bytes((struct impel_bytes){facts, sizeof(facts)}, wrong) | 1;
    }
    return wrong;
}

void sweep_trim_stream(struct sweep_trim *trim,
                       struct store *store,
                       struct impel_bytes stream,
                       bool may_vanish)
{
    struct trim_report report = {0};
    struct impel_error err = {0};
    struct impel_event about = {.level = IMPEL_INFO, .stream = stream};
    int rc = stream_trim(&report, store, &trim->plan, stream, &err);

    if (rc < 0) {
        about.level = IMPEL_WARNING;
        about.error = bytes_of(err.text);
        about.count = 1;
        bool no_news = rc == IMPEL_ERR_CANCELLED ||
                       (may_vanish && (rc == IMPEL_ERR_NOT_FOUND || rc == IMPEL_ERR_NO_GROUP));
        trim->failed += !no_news;
        if (!no_news && is_news(trim, stream, (uint64_t)-rc)) {
            tell(trim, "trim-failed", "the stream could not be trimmed", &about);
        }
    } else {
        about.count = report.removed;
        if (report.removed > 0) {
            tell(trim, "trimmed",
                 trim->plan.dry_run ? "entries could go that every group has finished with"
                                    : "removed what every group has finished with",
                 &about);
        }
        bool news = is_news(trim, stream, digest(&report));
        for (size_t i = 0; news && i < report.group_count; i++) {
            tell_group(trim, &report, &report.groups[i]);
        }
    }
    trim_report_release(&report);
}
