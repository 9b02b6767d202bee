/* test_metrics.c -- which event feeds which counter, and the text that Prometheus reads. */
#include "observe/metrics.h"
#include "tap.h"

#include <sys/stat.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static struct metrics *make(void)
{
    static const char odd[] = "a\"b\\c\nd";
    const struct impel_bytes streams[] = {bytes_of("orders"), {odd, sizeof odd - 1}};
    struct metrics *metrics = metrics_new(streams, 2, bytes_of("g"));
    CHECK(metrics != NULL);
    return metrics;
}

static void note(struct metrics *metrics, enum worker_event_kind kind, uint64_t count)
{
    struct worker_event event = {.kind = kind, .count = count};
    metrics_note(metrics, &event);
}

TEST(each_event_feeds_its_counter)
{
    struct metrics *metrics = make();
    struct impel_metrics sum;
    note(metrics, EVENT_DELIVERED, 100);
    note(metrics, EVENT_DONE, 1);
    note(metrics, EVENT_RETRIED, 2);
    note(metrics, EVENT_REDELIVERED, 3);
    note(metrics, EVENT_CLAIMED, 4);
    note(metrics, EVENT_PARKED, 5);
    note(metrics, EVENT_LOST_WORK, 6);
    note(metrics, EVENT_LATE_ACK, 7);
    note(metrics, EVENT_RELEASED, 8);
    note(metrics, EVENT_RENEWED, 9);
    note(metrics, EVENT_STARTED, 10); /* counts nowhere */
    metrics_sum(metrics, &sum);
    metrics_free(metrics);
    CHECK(sum.delivered == 100 && sum.done == 1 && sum.retried == 2 && sum.redelivered == 3);
    CHECK(sum.claimed == 4 && sum.parked == 5 && sum.lost == 6 && sum.late_acks == 7);
    CHECK(sum.released == 8 && sum.renewed == 9 && sum.sweeps == 0);
}

TEST(a_sweep_sets_two_gauges)
{
    struct metrics *metrics = make();
    struct impel_metrics swept, zeroed, rested;
    struct worker_event event = {.kind = EVENT_SWEPT, .count = 1, .due = 2, .not_due = 3};
    struct worker_event none = {.kind = EVENT_SWEPT}; /* no walk, only what is no longer so */
    metrics_note(metrics, &event);
    metrics_sum(metrics, &swept);
    metrics_note(metrics, &none);
    metrics_sum(metrics, &zeroed);
    metrics_note(metrics, &event);
    metrics_set_held(metrics, 1, 5);
    metrics_rest(metrics);
    metrics_sum(metrics, &rested);
    metrics_free(metrics);
    CHECK(swept.sweeps == 1 && swept.sweep_due == 2 && swept.sweep_not_due == 3);
    CHECK(zeroed.sweeps == 1 && zeroed.sweep_due == 0 && zeroed.sweep_not_due == 0);
    CHECK(rested.sweeps == 2 && rested.sweep_due == 0 && rested.held == 0);
}

TEST(recovery_times_fall_into_buckets)
{
    static const int64_t idle_ms[] = {-1, 0, 100, 101, 5000, 3600000, 3600001};
    struct metrics *metrics = make();
    struct impel_metrics sum;
    for (size_t i = 0; i < ARRAY_SIZE(idle_ms); i++) {
        struct worker_event event = {.kind = EVENT_CLAIMED, .count = 1, .idle_ms = idle_ms[i]};
        metrics_note(metrics, &event);
    }
    metrics_sum(metrics, &sum);
    metrics_free(metrics);
    CHECK_U64(sum.recovery_buckets[0], 2); /* a bound is part of its bucket */
    CHECK_U64(sum.recovery_buckets[1], 1);
    CHECK_U64(sum.recovery_buckets[5], 1);
    CHECK_U64(sum.recovery_buckets[11], 1);
    CHECK_U64(sum.recovery_buckets[12], 1);
    CHECK(sum.recovery_seconds_sum > 7205.2 && sum.recovery_seconds_sum < 7205.21);
}

static bool has_line(const struct buf *buf, const char *line)
{
    char *text = strndup((const char *)buf->data, buf->size);
    char *found = text != NULL ? strstr(text, line) : NULL;
    bool whole =
        found != NULL && (found == text || found[-1] == '\n') && found[strlen(line)] == '\n';
    if (!whole) {
        printf("# no line '%s' in\n%s", line, text);
    }
    free(text);
    return whole;
}

TEST(the_text_is_what_prometheus_reads)
{
    struct metrics *metrics = make();
    struct buf buf;
    buf_init(&buf, 1 << 20);
    struct worker_event event = {.kind = EVENT_CLAIMED, .count = 2, .idle_ms = 700};
    metrics_note(metrics, &event);
    event.stream_index = 1;
    metrics_note(metrics, &event);
    metrics_set_held(metrics, 0, 17);
    metrics_text(metrics, &buf);
    metrics_free(metrics);
    bool good =
        has_line(&buf, "# TYPE impel_claimed_total counter") &&
        has_line(&buf, "impel_claimed_total{stream=\"orders\",group=\"g\"} 2") &&
        has_line(&buf, "impel_claimed_total{stream=\"a\\\"b\\\\c\\nd\",group=\"g\"} 2") &&
        has_line(&buf, "impel_held{stream=\"orders\",group=\"g\"} 17") &&
        has_line(&buf, "# TYPE impel_recovery_seconds histogram") &&
        has_line(&buf,
                 "impel_recovery_seconds_bucket{stream=\"orders\",group=\"g\",le=\"0.5\"} 0") &&
        has_line(&buf, "impel_recovery_seconds_bucket{stream=\"orders\",group=\"g\",le=\"1\"} 2") &&
        has_line(&buf,
                 "impel_recovery_seconds_bucket{stream=\"orders\",group=\"g\",le=\"+Inf\"} 2") &&
        has_line(&buf, "impel_recovery_seconds_sum{stream=\"orders\",group=\"g\"} 1.400") &&
        has_line(&buf, "impel_recovery_seconds_count{stream=\"orders\",group=\"g\"} 2");
    buf_release(&buf);
    CHECK(good);
}

TEST(a_file_that_cannot_be_written_is_an_error)
{
    struct metrics *metrics = make();
    struct impel_error error = {0};
    int rc = metrics_write(metrics, "/no/such/folder/metrics", &error);
    metrics_free(metrics);
    CHECK(rc == IMPEL_ERR_IO);
    CHECK(strstr(error.text, "/no/such/folder/metrics") != NULL);
}

TEST(what_is_no_file_is_not_replaced_and_a_link_stays_one)
{
    char folder[] = "/tmp/impel-metrics-XXXXXX";
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK(mkfifo("fifo", 0600) == 0 && symlink("fifo", "to-fifo") == 0);
    CHECK(symlink("file", "to-file") == 0 && close(creat("file", 0600)) == 0);
    struct metrics *metrics = make();
    struct impel_error error = {0};
    struct stat st;
    CHECK(metrics_write(metrics, "fifo", &error) == IMPEL_ERR_INVALID);
    CHECK(strstr(error.text, "not a regular file") != NULL);
    CHECK(metrics_write(metrics, "to-fifo", NULL) == IMPEL_ERR_INVALID);
    CHECK(stat("to-fifo", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(metrics_write(metrics, "to-file", &error) == IMPEL_OK);
    CHECK(lstat("to-file", &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(stat("file", &st) == 0 && st.st_size > 0);
    CHECK(metrics_write(metrics, ".", NULL) == IMPEL_ERR_IO);
    metrics_free(metrics);
    CHECK(unlink("fifo") == 0 && unlink("to-fifo") == 0 && unlink("file") == 0 &&
          unlink("to-file") == 0);
    CHECK(chdir("/") == 0 && rmdir(folder) == 0);
}

TAP_MAIN
