/* command_status.c -- impel status: as a table for people, as one JSON object for programs. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/status.h"

#include <stdio.h>

/* ---- JSON ---- */

static void write_number(struct buf *out, const char *name, int64_t number)
{
    if (number < 0) {
        buf_appendf(out, "\"%s\":null", name);
    } else {
        buf_appendf(out, "\"%s\":%lld", name, (long long)number);
    }
}

static void write_worker_json(struct buf *out, const struct status_worker *worker)
{
    static const char *const alive[] = {"null", "true", "false"};

    buf_append_text(out, "{\"consumer\":");
    json_value(out, worker->consumer);
    buf_appendf(out, ",\"alive\":%s,\"held\":%llu,", alive[worker->alive],
                (unsigned long long)worker->held);
    write_number(out, "beat_age_ms", worker->beat_age_ms);
    buf_append_text(out, "}");
}

static void write_group_json(struct buf *out, const struct status_group *group)
{
    buf_append_text(out, "{\"group\":");
    json_value(out, group->name);
    buf_append_text(out, ",");
    write_number(out, "lag", group->lag);
    buf_appendf(out, ",\"pending\":%llu,", (unsigned long long)group->pending);
    write_number(out, "oldest_idle_ms", group->oldest_idle_ms);
    buf_appendf(out, ",\"abandoned\":%llu,\"not_due\":%llu,\"parked\":%llu,\"lost\":%llu",
                (unsigned long long)group->abandoned, (unsigned long long)group->not_due,
                (unsigned long long)group->parked, (unsigned long long)group->lost);
    buf_appendf(out, ",\"health\":\"%s\",\"reason\":", health_name(group->health));
    json_text(out, group->reason);
    buf_append_text(out, ",\"workers\":[");
    for (size_t i = 0; i < group->worker_count; i++) {
        buf_append_text(out, i == 0 ? "" : ",");
        write_worker_json(out, &group->workers[i]);
    }
    buf_append_text(out, "]}");
}

static void write_json(struct buf *out, const struct status *status)
{
    buf_append_text(out, "{\"streams\":[");
    for (size_t i = 0; i < status->stream_count; i++) {
        const struct status_stream *stream = &status->streams[i];
        buf_append_text(out, i == 0 ? "{\"stream\":" : ",{\"stream\":");
        json_value(out, stream->name);
        buf_appendf(out, ",\"length\":%llu,\"groups\":[", (unsigned long long)stream->length);
        for (size_t j = 0; j < stream->group_count; j++) {
            buf_append_text(out, j == 0 ? "" : ",");
            write_group_json(out, &stream->groups[j]);
        }
        buf_append_text(out, "]}");
    }
    buf_append_text(out, "]}\n");
}

/* ---- the table ---- */

static void write_worker(struct buf *out, const struct status_worker *worker)
{
    static const char *const alive[] = {"unknown", "alive", "dead"};
    static const enum console_style styles[] = {STYLE_WARN, STYLE_GOOD, STYLE_BAD};
    char name[64], age[DURATION_TEXT_SIZE];

    buf_appendf(out, "    %-24s %s%-8s%s held %llu",
                bytes_quote(worker->consumer, name, sizeof(name)),
                console_style(1, worker->foreign ? STYLE_PLAIN : styles[worker->alive]),
                worker->foreign ? "foreign" : alive[worker->alive], console_style(1, STYLE_END),
                (unsigned long long)worker->held);
    if (worker->beat_age_ms >= 0) {
        buf_appendf(out, ", beat %s ago", duration_brief(worker->beat_age_ms, age));
    }
    buf_append_text(out, "\n");
}

static void write_group(struct buf *out, const struct status_group *group)
{
    static const enum console_style styles[] = {STYLE_GOOD, STYLE_WARN, STYLE_WARN, STYLE_BAD};
    char name[64], idle[DURATION_TEXT_SIZE], lag[32] = "unknown";

    if (group->lag >= 0) {
        snprintf(lag, sizeof(lag), "%s%lld", group->lag_exact ? "" : "about ",
                 (long long)group->lag);
    }
    buf_appendf(out, "  %s%s%s  %s%s%s: %s\n", console_style(1, STYLE_BOLD),
                bytes_quote(group->name, name, sizeof(name)), console_style(1, STYLE_END),
                console_style(1, styles[group->health]), health_name(group->health),
                console_style(1, STYLE_END), group->reason);
    buf_appendf(out,
                "    undelivered %s, pending %llu, abandoned %llu, not due %llu, parked %llu, lost "
                "%llu",
                lag, (unsigned long long)group->pending, (unsigned long long)group->abandoned,
                (unsigned long long)group->not_due, (unsigned long long)group->parked,
                (unsigned long long)group->lost);
    if (group->oldest_idle_ms >= 0) {
        buf_appendf(out, ", oldest idle %s", duration_brief(group->oldest_idle_ms, idle));
    }
    buf_append_text(out, "\n");
    for (size_t i = 0; i < group->worker_count; i++) {
        write_worker(out, &group->workers[i]);
    }
}

static void write_table(struct buf *out, const struct status *status)
{
    char name[64];

    for (size_t i = 0; i < status->stream_count; i++) {
        const struct status_stream *stream = &status->streams[i];
        buf_appendf(out, "%s%s%s  %llu %s%s\n", console_style(1, STYLE_BOLD),
                    bytes_quote(stream->name, name, sizeof(name)), console_style(1, STYLE_END),
                    (unsigned long long)stream->length, stream->length == 1 ? "entry" : "entries",
                    stream->group_count == 0 ? ", no group" : "");
        for (size_t j = 0; j < stream->group_count; j++) {
            write_group(out, &stream->groups[j]);
        }
    }
}

static bool needs_attention(const struct status *status)
{
    for (size_t i = 0; i < status->stream_count; i++) {
        for (size_t j = 0; j < status->streams[i].group_count; j++) {
            if (status->streams[i].groups[j].health >= HEALTH_UNKNOWN) {
                return true;
            }
        }
    }
    return false;
}

static int print_status(const struct status *status, bool json, struct impel_error *err)
{
    struct buf out;

    buf_init(&out, SIZE_MAX / 4);
    if (json) {
        write_json(&out, status);
    } else {
        write_table(&out, status);
        if (status->stream_count == 0) {
            console_note("there is nothing to show in this store");
        }
    }
    return console_print(&out, err);
}

int command_status(struct options *options, struct impel_error *err)
{
    struct status status = {0};
    struct store *store = NULL;
    int rc;

    rc = session_open_existing(options, &store, err);
    if (rc >= 0) {
        rc = status_gather(&status, store, options, err);
    }
    if (rc >= 0 && (status.stream_count > 0 || status.refused.count == 0)) {
        rc = print_status(&status, options->json, err);
    }
    if (rc >= 0) {
        rc = status_tell_refused(&status) ? EXIT_FAILED
             : needs_attention(&status)   ? EXIT_ATTENTION
                                          : EXIT_DONE;
    }
    status_release(&status);
    store_close(store);
    return rc;
}
