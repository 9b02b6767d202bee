/* bench.c -- the loop around a handler under test. */
#include "runtime/bench.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void on_finished(void *user, struct delivery *delivery, const struct handler_result *result)
{
    struct bench *bench = user;
    size_t number = (size_t)(delivery - bench->deliveries);
    bench->results[number].outcome = result->outcome;
    bench->results[number].delay_ms = result->delay_ms;
    bench->results[number].error_size = result->error.size;
    if (result->error.size > 0 && result->error.size <= ERROR_SIZE_MAX) {
        memcpy(bench->results[number].error, result->error.data, result->error.size);
    }
    bench->finished++;
    entry_free(delivery->entry);
    delivery->entry = NULL;
}

static void on_begun(void *user, struct delivery *delivery)
{
    struct bench *bench = user;
    bench->begun[delivery - bench->deliveries]++;
}

static bool may_begin(void *user, struct delivery *delivery)
{
    struct bench *bench = user;
    return delivery != bench->unsure;
}

static void on_failed(void *user, const struct impel_error *error)
{
    struct bench *bench = user;
    bench->failures++;
    bench->failure = *error;
}

static void on_event(void *user, const struct impel_event *event)
{
    struct bench *bench = user;
    bench->events++;
    (void)snprintf(bench->event_name, sizeof bench->event_name, "%s", event->name);
    (void)snprintf(bench->event_text, sizeof bench->event_text, "%s", event->text);
}

static void on_deadline(uv_timer_t *timer)
{
    struct bench *bench = timer->data;
    bench->late = true;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

int bench_open(struct bench *bench,
               uint32_t concurrency,
               const struct runtime_handler *options,
               struct impel_error *err)
{
    int64_t timeout_ms = bench->timeout_ms;
    memset(bench, 0, sizeof *bench);
    bench->timeout_ms = timeout_ms;
    CHECK(uv_loop_init(&bench->loop) == 0);
    CHECK(uv_timer_init(&bench->loop, &bench->deadline) == 0);
    bench->deadline.data = bench;
    uv_timer_start(&bench->deadline, on_deadline, BENCH_DEADLINE_MS, 0);
    CHECK(uv_timer_init(&bench->loop, &bench->tick) == 0);
    uv_timer_start(&bench->tick, on_tick, BENCH_TICK_MS, BENCH_TICK_MS);
    bench->stream = bytes_of("orders");
    bench->env = (struct handler_env){
        .loop = &bench->loop,
        .concurrency = concurrency,
        .streams = &bench->stream,
        .group = bytes_of("billing"),
        .consumer = bytes_of("me-1"),
        .stream_count = 1,
        .timeout_ms = bench->timeout_ms,
        .finished = on_finished,
        .begun = on_begun,
        .may_begin = may_begin,
        .failed = on_failed,
        .event = on_event,
        .user = bench,
    };
    int rc = handler_open(&bench->env, options, &bench->handler, err);
    if (rc < 0) {
        bench_close(bench);
    }
    return rc;
}

void bench_open_command(struct bench *bench,
                        uint32_t concurrency,
                        const struct runtime_handler *options)
{
    struct impel_error error = {0};
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigprocmask(SIG_BLOCK, &pipe_only, NULL);
    int rc = bench_open(bench, concurrency, options, &error);
    if (rc < 0) {
        printf("# %s\n", error.text);
    }
    CHECK(rc == IMPEL_OK);
}

size_t bench_start(struct bench *bench, const struct impel_field *fields, size_t field_count)
{
    size_t number = bench->started++;
    CHECK(number < BENCH_MAX);
    struct delivery *delivery = &bench->deliveries[number];
    *delivery = (struct delivery){.serial = number + 1, .attempt = 1, .apart = bench->apart};
    uint64_t ms = bench->id_ms != 0 ? bench->id_ms : number + 1;
    delivery->entry = entry_new((struct impel_id){ms, 0}, fields, field_count);
    CHECK(delivery->entry != NULL);
    bench->handler->ops->start(bench->handler, delivery);
    return number;
}

size_t bench_start_text(struct bench *bench, const char *name, const char *value)
{
    struct impel_field field = {bytes_of(name), bytes_of(value)};
    return bench_start(bench, &field, 1);
}

void bench_start_many(struct bench *bench, size_t count, size_t at_once)
{
    for (size_t i = 0; i < count; i++) {
        bool room = bench->started - bench->finished < at_once ||
                    bench_wait(bench, bench->started - at_once + 1);
        CHECK(room);
        bench_start_text(bench, "n", "1");
    }
    CHECK(bench_wait(bench, count));
}

bool bench_turn(struct bench *bench)
{
    (void)uv_run(&bench->loop, UV_RUN_ONCE);
    return !bench->late;
}

bool bench_wait(struct bench *bench, size_t count)
{
    while (bench->finished < count) {
        if (!bench_turn(bench)) {
            printf("# the deadline passed with %zu of %zu finished\n", bench->finished, count);
            return false;
        }
    }
    return true;
}

void bench_cancel(struct bench *bench, size_t number, enum cancel_reason reason)
{
    bench->handler->ops->cancel(bench->handler, &bench->deliveries[number], reason);
}

void bench_close(struct bench *bench)
{
    if (bench->handler != NULL) {
        bench->handler->ops->close(bench->handler);
    }
    uv_close((uv_handle_t *)&bench->deadline, NULL);
    uv_close((uv_handle_t *)&bench->tick, NULL);
    (void)uv_run(&bench->loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&bench->loop) == 0);
    if (bench->handler != NULL) {
        bench->handler->ops->free(bench->handler);
    }
}

int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) {
        count++;
    }
    closedir(folder);
    return count;
}
