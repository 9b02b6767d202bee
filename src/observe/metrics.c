/* metrics.c -- counting events, and writing the counters.
 *
 * One row of atomics per stream; one table says which event feeds which counter, another how each
 * is called. The histogram's sum is kept in ms, as an integer, so that it can be atomic as well. */
#include "observe/metrics.h"

#include "base/json.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TEXT_SIZE_MAX = 64 * 1024 * 1024, /* 1,000 streams with long names fit in many times over */
};

enum counter {
    COUNTER_DELIVERED,
    COUNTER_DONE,
    COUNTER_RETRIED,
    COUNTER_REDELIVERED,
    COUNTER_CLAIMED,
    COUNTER_PARKED,
    COUNTER_LOST,
    COUNTER_LATE_ACKS,
    COUNTER_RELEASED,
    COUNTER_RENEWED,
    COUNTER_SWEEPS,
    GAUGE_SWEEP_DUE,
    GAUGE_SWEEP_NOT_DUE,
    GAUGE_HELD,
    COUNTER_COUNT,
};

static const struct counter_row {
    const char *name;
    const char *type;
    const char *help;
} counter_rows[COUNTER_COUNT] = {
    [COUNTER_DELIVERED] = {"impel_delivered_total", "counter", "New entries read."},
    [COUNTER_DONE] = {"impel_done_total", "counter", "Entries handled and acknowledged."},
    [COUNTER_RETRIED] = {"impel_retried_total", "counter",
                         "Attempts that failed and will be repeated."},
    [COUNTER_REDELIVERED] = {"impel_redelivered_total", "counter",
                             "Attempts after an entry's first."},
    [COUNTER_CLAIMED] = {"impel_claimed_total", "counter", "Entries recovered from other owners."},
    [COUNTER_PARKED] = {"impel_parked_total", "counter",
                        "Entries moved to the dead-letter stream."},
    [COUNTER_LOST] = {"impel_lost_total", "counter",
                      "Entries that were deleted before anybody had handled them."},
    [COUNTER_LATE_ACKS] = {"impel_late_acks_total", "counter",
                           "Entries finished when they were no longer pending here."},
    [COUNTER_RELEASED] = {"impel_released_total", "counter", "Entries given back."},
    [COUNTER_RENEWED] = {"impel_renewed_total", "counter", "Renewals of entries in hand."},
    [COUNTER_SWEEPS] = {"impel_sweeps_total", "counter", "Walks over abandoned entries."},
    [GAUGE_SWEEP_DUE] = {"impel_sweep_due", "gauge",
                         "Abandoned entries that were due and not taken, at the last sweep."},
    [GAUGE_SWEEP_NOT_DUE] = {"impel_sweep_not_due", "gauge",
                             "Abandoned entries not idle for long enough, at the last sweep."},
    [GAUGE_HELD] = {"impel_held", "gauge", "Entries in this worker's hands."},
};

static const int64_t bucket_bounds_ms[IMPEL_RECOVERY_BUCKETS - 1] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 900000, 3600000};

struct stream_metrics {
    struct impel_bytes name;
    _Atomic uint64_t counters[COUNTER_COUNT];
    _Atomic uint64_t buckets[IMPEL_RECOVERY_BUCKETS];
    _Atomic uint64_t recovery_sum_ms;
};

struct metrics {
    struct arena arena;
    struct impel_bytes group;
    size_t stream_count;
    struct stream_metrics *streams;
    const struct metrics *next; /* whose text follows */
};

struct metrics *
metrics_new(const struct impel_bytes *streams, size_t stream_count, struct impel_bytes group)
{
    struct metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL) {
        return NULL;
    }
    metrics->streams = arena_calloc(&metrics->arena, stream_count, sizeof *metrics->streams);
    bool ok = metrics->streams != NULL && arena_copy(&metrics->arena, group, &metrics->group);
    for (size_t i = 0; i < stream_count && ok; i++) {
        ok = arena_copy(&metrics->arena, streams[i], &metrics->streams[i].name);
    }
    if (!ok) {
        metrics_free(metrics);
        return NULL;
    }
    metrics->stream_count = stream_count;
    return metrics;
}

void metrics_free(struct metrics *metrics)
{
    if (metrics != NULL) {
        arena_release(&metrics->arena);
        free(metrics);
    }
}

/* ---- counting ---- */

static void count_up(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static void note_recovery(struct stream_metrics *stream, const struct worker_event *event)
{
    int64_t idle_ms = event->idle_ms;
    if (idle_ms < 0) {
        return; /* given back, not abandoned */
    }
    size_t bucket = 0;
    while (bucket < ARRAY_SIZE(bucket_bounds_ms) && idle_ms > bucket_bounds_ms[bucket]) {
        bucket++;
    }
    count_up(&stream->buckets[bucket], event->count);
    count_up(&stream->recovery_sum_ms, (uint64_t)idle_ms * event->count);
}

/* A sweep that tells only that an earlier one's findings are no longer so. */
static bool gauges_only(const struct worker_event *event)
{
    return event->kind == EVENT_SWEPT && event->count == 0;
}

void metrics_note(struct metrics *metrics, const struct worker_event *event)
{
    /* +1, so that 0 is "counts nothing". */
    static const uint8_t fed[] = {
        [EVENT_DELIVERED] = COUNTER_DELIVERED + 1,
        [EVENT_CLAIMED] = COUNTER_CLAIMED + 1,
        [EVENT_REDELIVERED] = COUNTER_REDELIVERED + 1,
        [EVENT_DONE] = COUNTER_DONE + 1,
        [EVENT_LATE_ACK] = COUNTER_LATE_ACKS + 1,
        [EVENT_RETRIED] = COUNTER_RETRIED + 1,
        [EVENT_PARKED] = COUNTER_PARKED + 1,
        [EVENT_LOST_WORK] = COUNTER_LOST + 1,
        [EVENT_RELEASED] = COUNTER_RELEASED + 1,
        [EVENT_RENEWED] = COUNTER_RENEWED + 1,
        [EVENT_SWEPT] = COUNTER_SWEEPS + 1,
    };
    ASSERT(event->stream_index < metrics->stream_count);
    struct stream_metrics *stream = &metrics->streams[event->stream_index];
    if (event->kind < ARRAY_SIZE(fed) && fed[event->kind] != 0 && !gauges_only(event)) {
        count_up(&stream->counters[fed[event->kind] - 1], event->count > 0 ? event->count : 1);
    }
    if (event->kind == EVENT_CLAIMED) {
        note_recovery(stream, event);
    } else if (event->kind == EVENT_SWEPT) {
        atomic_store(&stream->counters[GAUGE_SWEEP_DUE], event->due);
        atomic_store(&stream->counters[GAUGE_SWEEP_NOT_DUE], event->not_due);
    }
}

void metrics_set_held(struct metrics *metrics, size_t stream_index, uint64_t held)
{
    atomic_store(&metrics->streams[stream_index].counters[GAUGE_HELD], held);
}

void metrics_rest(struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->stream_count; i++) {
        atomic_store(&metrics->streams[i].counters[GAUGE_SWEEP_DUE], 0);
        atomic_store(&metrics->streams[i].counters[GAUGE_SWEEP_NOT_DUE], 0);
        metrics_set_held(metrics, i, 0);
    }
}

void metrics_sum(const struct metrics *metrics, struct impel_metrics *out)
{
    uint64_t sums[COUNTER_COUNT] = {0};
    uint64_t sum_ms = 0;
    *out = (struct impel_metrics){0};
    for (size_t i = 0; i < metrics->stream_count; i++) {
        struct stream_metrics *stream = &metrics->streams[i];
        for (size_t c = 0; c < COUNTER_COUNT; c++) {
            sums[c] += atomic_load(&stream->counters[c]);
        }
        for (size_t b = 0; b < IMPEL_RECOVERY_BUCKETS; b++) {
            out->recovery_buckets[b] += atomic_load(&stream->buckets[b]);
        }
        sum_ms += atomic_load(&stream->recovery_sum_ms);
    }
    out->delivered = sums[COUNTER_DELIVERED];
    out->done = sums[COUNTER_DONE];
    out->retried = sums[COUNTER_RETRIED];
    out->redelivered = sums[COUNTER_REDELIVERED];
    out->claimed = sums[COUNTER_CLAIMED];
    out->parked = sums[COUNTER_PARKED];
    out->lost = sums[COUNTER_LOST];
    out->late_acks = sums[COUNTER_LATE_ACKS];
    out->released = sums[COUNTER_RELEASED];
    out->renewed = sums[COUNTER_RENEWED];
    out->sweeps = sums[COUNTER_SWEEPS];
    out->sweep_due = sums[GAUGE_SWEEP_DUE];
    out->sweep_not_due = sums[GAUGE_SWEEP_NOT_DUE];
    out->held = sums[GAUGE_HELD];
    out->recovery_seconds_sum = (double)sum_ms / 1000.0;
}

/* ---- the text ---- */

/* A label value: UTF-8 with \\, \" and \n escaped; other bytes as \\xHH, which reads as text. */
static void append_label(struct buf *buf, struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;
    bool utf8 = utf8_valid(bytes);
    for (size_t i = 0; i < bytes.size; i++) {
        if (data[i] == '\n') {
            buf_append_text(buf, "\\n");
        } else if (data[i] == '"' || data[i] == '\\') {
            buf_append_text(buf, "\\");
            buf_append(buf, &data[i], 1);
        } else if (data[i] == 0 || data[i] == '\r' || (data[i] >= 0x80 && !utf8)) {
            buf_appendf(buf, "\\\\x%02x", data[i]);
        } else {
            buf_append(buf, &data[i], 1);
        }
    }
}

/* NAME{stream="...",group="..."  -- the caller closes the brace */
static void append_series(struct buf *buf,
                          const char *name,
                          const struct metrics *metrics,
                          const struct stream_metrics *stream)
{
    buf_appendf(buf, "%s{stream=\"", name);
    append_label(buf, stream->name);
    buf_append_text(buf, "\",group=\"");
    append_label(buf, metrics->group);
    buf_append_text(buf, "\"");
}

static void append_histogram(struct buf *buf, const struct metrics *metrics)
{
    for (size_t i = 0; i < metrics->stream_count; i++) {
        struct stream_metrics *stream = &metrics->streams[i];
        uint64_t below = 0;
        for (size_t b = 0; b < IMPEL_RECOVERY_BUCKETS; b++) {
            below += atomic_load(&stream->buckets[b]);
            append_series(buf, "impel_recovery_seconds_bucket", metrics, stream);
            if (b < ARRAY_SIZE(bucket_bounds_ms)) {
                buf_appendf(buf, ",le=\"%g\"} %" PRIu64 "\n", (double)bucket_bounds_ms[b] / 1000.0,
                            below);
            } else {
                buf_appendf(buf, ",le=\"+Inf\"} %" PRIu64 "\n", below);
            }
        }
        append_series(buf, "impel_recovery_seconds_sum", metrics, stream);
        buf_appendf(buf, "} %.3f\n", (double)atomic_load(&stream->recovery_sum_ms) / 1000.0);
        append_series(buf, "impel_recovery_seconds_count", metrics, stream);
        buf_appendf(buf, "} %" PRIu64 "\n", below);
    }
}

static void
append_counter(struct buf *buf, const char *name, const struct metrics *metrics, size_t counter)
{
    for (size_t i = 0; i < metrics->stream_count; i++) {
        append_series(buf, name, metrics, &metrics->streams[i]);
        buf_appendf(buf, "} %" PRIu64 "\n", atomic_load(&metrics->streams[i].counters[counter]));
    }
}

void metrics_text(const struct metrics *metrics, struct buf *buf)
{
    for (size_t c = 0; c < COUNTER_COUNT; c++) {
        const struct counter_row *row = &counter_rows[c];
        buf_appendf(buf, "# HELP %s %s\n# TYPE %s %s\n", row->name, row->help, row->name,
                    row->type);
        for (const struct metrics *m = metrics; m != NULL; m = m->next) {
            append_counter(buf, row->name, m, c);
        }
    }
    buf_append_text(buf, "# HELP impel_recovery_seconds How long recovered entries had been "
                         "abandoned.\n# TYPE impel_recovery_seconds histogram\n");
    for (const struct metrics *m = metrics; m != NULL; m = m->next) {
        append_histogram(buf, m);
    }
}

void metrics_link(struct metrics *metrics, const struct metrics *next)
{
    metrics->next = next;
}

/* ---- the file ---- */

static int write_all(int fd, struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;
    for (size_t done = 0; done < bytes.size;) {
        ssize_t n = write(fd, data + done, bytes.size - done);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* What a rename would put a file in the place of: a link stays one, a device is not to be replaced. */
static bool replaceable(const char *path)
{
    struct stat st;
    return stat(path, &st) < 0 || S_ISREG(st.st_mode) ||
           S_ISDIR(st.st_mode); /* that rename refuses */
}

int metrics_write(const struct metrics *metrics, const char *path, struct impel_error *err)
{
    int rc = IMPEL_OK;
    int fd = -1;
    char *temporary = NULL;
    char *real = realpath(path, NULL);
    const char *target = real != NULL ? real : path; /* a new one, or out of reach */
    struct buf buf;
    buf_init(&buf, TEXT_SIZE_MAX);
    if (!replaceable(target)) {
        rc = error_set(err, IMPEL_ERR_INVALID,
                       "cannot write the metrics file %s: it is not a regular file, and would be "
                       "replaced by one",
                       path);
        goto done;
    }
    metrics_text(metrics, &buf);
    if (buf_status(&buf) < 0 || asprintf(&temporary, "%s.%d.tmp", target, (int)getpid()) < 0) {
        temporary = NULL;
        rc = error_set(err, IMPEL_ERR_NOMEM, "no memory for the metrics file %s", path);
        goto done;
    }
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write_all(fd, buf_bytes(&buf)) != 0 || rename(temporary, target) != 0) {
        rc = error_set(err, IMPEL_ERR_IO, "cannot write the metrics file %s: %s", path,
                       strerror(errno));
        if (fd >= 0) {
            (void)unlink(temporary);
        }
    }
done:
    if (fd >= 0) {
        (void)close(fd);
    }
    free(temporary);
    free(real);
    buf_release(&buf);
    return rc;
}
