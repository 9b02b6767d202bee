/* command_trim.c -- impel trim: give back the memory of what every group has finished with. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/status.h"
#include "cli/stream_names.h"
#include "cli/stream_trim.h"

#include <stdio.h>

/* ---- JSON, a line for each stream ---- */

static void write_group_json(struct buf *out, const struct trim_group *group)
{
    char id[ID_TEXT_SIZE];

    buf_append_text(out, "{\"group\":");
    json_value(out, group->name);
    buf_appendf(out, ",\"floor\":\"%s\",\"unfinished\":%s,\"stalled\":%s,\"ignored\":%s",
                id_format(group->floor, id), group->unfinished ? "true" : "false",
                group->stalled ? "true" : "false", group->ignored ? "true" : "false");
    buf_appendf(out, ",\"lost_pending\":%llu,\"lost_unread\":%llu}",
                (unsigned long long)group->lost_pending, (unsigned long long)group->lost_unread);
}

static void write_json(struct buf *out, const struct trim_report *report, bool dry_run)
{
    buf_append_text(out, "{\"stream\":");
    json_value(out, report->stream);
    buf_appendf(out, ",\"length\":%llu,\"removed\":%llu,\"dry_run\":%s,\"held_by\":",
                (unsigned long long)report->length, (unsigned long long)report->removed,
                dry_run ? "true" : "false");
    if (report->holder == NULL) {
        buf_append_text(out, "null");
    } else {
        json_value(out, report->holder->name);
    }
    buf_append_text(out, ",\"groups\":[");
    for (size_t i = 0; i < report->group_count; i++) {
        buf_append_text(out, i == 0 ? "" : ",");
        write_group_json(out, &report->groups[i]);
    }
    buf_append_text(out, "]}\n");
}

/* ---- text ---- */

static void write_group(struct buf *out, const struct trim_group *group)
{
    char name[64], seen[DURATION_TEXT_SIZE];

    bytes_quote(group->name, name, sizeof(name));
    if (group->stalled && !group->ignored) {
        buf_appendf(out, "  %sgroup %s is stalled%s: it has unfinished work and ",
                    console_style(1, STYLE_BAD), name, console_style(1, STYLE_END));
        if (group->seen_ms < 0) {
            buf_append_text(out, "no consumer");
        } else {
            buf_appendf(out, "nobody came for it for %s", duration_brief(group->seen_ms, seen));
        }
        buf_appendf(out,
                    "; start its workers, or give up what it has not finished: "
                    "--ignore-group %s\n",
                    name);
    }
    if (group->lost_pending > 0) {
        buf_appendf(out,
                    "  %sgroup %s lost %llu pending%s: trimmed or deleted by others before "
                    "the work was done\n",
                    console_style(1, STYLE_BAD), name, (unsigned long long)group->lost_pending,
                    console_style(1, STYLE_END));
    }
    if (group->lost_unread > 0) {
        buf_appendf(out,
                    "  %sgroup %s lost %llu unread%s: trimmed or deleted by others before "
                    "they were delivered\n",
                    console_style(1, STYLE_BAD), name, (unsigned long long)group->lost_unread,
                    console_style(1, STYLE_END));
    }
}

static void write_text(struct buf *out, const struct trim_report *report, bool dry_run)
{
    char name[64], id[ID_TEXT_SIZE];

    buf_appendf(out, "%s%s%s  %s %llu of %llu", console_style(1, STYLE_BOLD),
                bytes_quote(report->stream, name, sizeof(name)), console_style(1, STYLE_END),
                dry_run ? "would remove" : "removed", (unsigned long long)report->removed,
                (unsigned long long)report->length);
    if (report->holder != NULL) {
        buf_appendf(out, "; %s holds what lies behind: %s has not %s it yet",
                    id_format(report->holder->floor, id),
                    bytes_quote(report->holder->name, name, sizeof(name)),
                    report->holder->pending ? "finished" : "read");
    }
    buf_append_text(out, "\n");
    for (size_t i = 0; i < report->group_count; i++) {
        write_group(out, &report->groups[i]);
    }
}

/* ---- the command ---- */

/* 1 = somebody should look. */
static int trim_one(const struct options *options,
                    struct store *store,
                    struct impel_bytes stream,
                    struct impel_error *err)
{
    struct trim_plan plan = {
        .keep = options->keep,
        .ignored = &options->ignored_groups,
        .stalled_ms = options->stalled_after_ms,
        .dry_run = options->dry_run,
        .many = names_have_pattern(&options->streams),
    };
    struct trim_report report = {0};
    struct buf out;
    int rc = stream_trim(&report, store, &plan, stream, err);

    buf_init(&out, SIZE_MAX / 4);
    if (rc >= 0) {
        (options->json ? write_json : write_text)(&out, &report, plan.dry_run);
        rc = buf_status(&out);
        if (rc < 0) {
            error_set(err, rc, "%s", status_text(rc));
        }
    }
    if (rc >= 0) {
        console_out(buf_bytes(&out));
        rc = trim_needs_attention(&report);
    }
    buf_release(&out);
    trim_report_release(&report);
    return rc;
}

/* A stream that a pattern found may be gone since, or have no group that says what is finished. */
static bool may_pass_by(const struct options *options, struct impel_bytes stream, int rc)
{
    return (rc == IMPEL_ERR_NO_GROUP || rc == IMPEL_ERR_NOT_FOUND || rc == IMPEL_ERR_WRONG_TYPE) &&
           names_match(&options->streams, stream) != NAME_GIVEN;
}

static int trim_all(const struct options *options, struct store *store, struct impel_error *err)
{
    struct arena arena = {0};
    struct stream_names names = {.arena = &arena};
    bool failed = false;
    int attention = 0;
    int rc = stream_names_find(&names, store, &options->streams, options->dead_letter, err);

    for (size_t i = 0; rc >= 0 && i < names.count; i++) {
        rc = trim_one(options, store, names.items[i], err);
        attention |= rc > 0;
        if (may_pass_by(options, names.items[i], rc)) {
            rc = IMPEL_OK;
        } else if (session_stream_refused(rc)) {
            console_error("%s", err->text);
            failed = true;
            rc = IMPEL_OK;
        }
    }
    arena_release(&arena);
    return rc < 0 ? rc : failed ? EXIT_FAILED : attention ? EXIT_ATTENTION : EXIT_DONE;
}

int command_trim(struct options *options, struct impel_error *err)
{
    struct store *store = NULL;
    int rc;

    if (options->streams.count == 0) {
        return command_needs("stream", err);
    }
    rc = session_open_existing(options, &store, err);
    rc = rc < 0 ? rc : trim_all(options, store, err);
    store_close(store);
    return rc;
}
