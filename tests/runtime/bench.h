/* bench.h -- a handler on a loop of its own, without a worker: starts deliveries, collects results. */
#ifndef TESTS_RUNTIME_BENCH_H
#define TESTS_RUNTIME_BENCH_H

#include "runtime/handler.h"
#include "tap.h"

enum {
    BENCH_MAX = 256,
    BENCH_TICK_MS = 20,
    BENCH_DEADLINE_MS = 30000, /* a test that waits longer has failed */
};

struct bench {
    uv_loop_t loop;
    uv_timer_t deadline;
    uv_timer_t tick; /* a turn is never long, whatever a timer did in it */
    struct handler_env env;
    struct handler *handler;
    struct impel_bytes stream;
    struct delivery deliveries[BENCH_MAX];
    size_t started, finished;
    int begun[BENCH_MAX];
    int64_t timeout_ms;      /* as the handler is told; set before it is opened */
    uint64_t id_ms;          /* the ID of what is started; 0 = its number + 1 */
    bool apart;              /* of what is started from here on */
    struct delivery *unsure; /* this one may not begin for now */
    bool late;               /* the deadline passed */
    int failures;
    struct impel_error failure;
    int events;
    char event_name[64]; /* the last */
    char event_text[512];
    struct {
        enum worker_outcome outcome;
        int64_t delay_ms;
        size_t error_size;
        char error[ERROR_SIZE_MAX + 1];
    } results[BENCH_MAX]; /* by delivery */
};

/* Opens the handler; returns what that answered. */
int bench_open(struct bench *bench,
               uint32_t concurrency,
               const struct runtime_handler *options,
               struct impel_error *err);
/* Opens one that runs commands, and must open. SIGPIPE is blocked as the runtime does it. */
void bench_open_command(struct bench *bench,
                        uint32_t concurrency,
                        const struct runtime_handler *options);
/* Starts one on an entry with these fields; returns its number. */
size_t bench_start(struct bench *bench, const struct impel_field *fields, size_t field_count);
size_t bench_start_text(struct bench *bench, const char *name, const char *value);
/* Turns the loop until `count` have finished in all, or the deadline passes (false). */
bool bench_wait(struct bench *bench, size_t count);
/* Starts `count` in all, never more than `at_once` together, and waits for the last. */
void bench_start_many(struct bench *bench, size_t count, size_t at_once);
/* One turn of the loop, which waits for an event, or a tick. False once the deadline has passed. */
bool bench_turn(struct bench *bench);
void bench_cancel(struct bench *bench, size_t number, enum cancel_reason reason);
void bench_close(struct bench *bench);
/* How many descriptors this process has open. */
int open_descriptors(void);

#endif /* TESTS_RUNTIME_BENCH_H */
