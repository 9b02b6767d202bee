/* test_driver.c -- a worker from the outside: the loop, names, stops, over the model store. */
#include "runtime/model_store.h"
#include "runtime/runtime.h"
#include "tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static struct impel_bytes stream;

static struct runtime_options defaults(void)
{
    struct runtime_options options;
    runtime_options_init(&options);
    stream = bytes_of("orders");
    options.store_url = "model:";
    options.worker.streams = &stream;
    options.worker.stream_count = 1;
    options.worker.group = bytes_of("billing");
    options.worker.consumer = bytes_of("me");
    options.worker.policy.dead_after_ms = 1000;
    options.worker.policy.backoff_base_ms = 1;
    options.worker.policy.backoff_cap_ms = 1;
    options.worker.until_idle = true;
    options.worker.until_idle_ms = 20000; /* a test that takes longer has failed */
    options.handler.kind = HANDLER_INLINE;
    return options;
}

/* Makes, runs and frees one; prints what went wrong. */
static int run(const struct runtime_options *options, struct impel_metrics *metrics)
{
    struct runtime *runtime = NULL;
    struct impel_error error = {0};
    int rc = runtime_new(options, &runtime, &error);
    if (rc >= 0) {
        rc = runtime_run(runtime, &error);
        runtime_metrics(runtime, metrics);
    }
    runtime_free(runtime);
    if (rc < 0) {
        printf("# %d: %s\n", rc, error.text);
    }
    return rc;
}

static uint64_t pending_of_group(void)
{
    struct request *request = request_new(REQUEST_INFO);
    CHECK(request != NULL);
    request->stream = bytes_of("orders");
    model_store_do(request);
    CHECK(request->info.group_count == 1);
    uint64_t pending = request->info.groups[0].pending;
    request_free(request);
    return pending;
}

static enum impel_outcome counts(struct impel_delivery *delivery, void *user)
{
    atomic_uint *count = user;
    (void)delivery;
    atomic_fetch_add(count, 1);
    return IMPEL_DONE;
}

static void check_all_done(enum handler_kind kind, uint32_t concurrency, unsigned entries)
{
    atomic_uint count = 0;
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    options.handler =
        (struct runtime_handler){.kind = kind, .call = counts, .user = (void *)&count};
    options.worker.concurrency = concurrency;
    model_store_reset();
    for (unsigned i = 0; i < entries; i++) {
        model_store_add("orders", "n", "1");
    }
    CHECK(run(&options, &metrics) == IMPEL_OK);
    CHECK_U64(count, entries);
    CHECK_U64(metrics.delivered, entries);
    CHECK_U64(metrics.done, entries);
    CHECK_U64(metrics.held, 0);
    CHECK_U64(pending_of_group(), 0);
}

TEST(every_entry_is_done_once_inline)
{
    check_all_done(HANDLER_INLINE, 1, 2000);
}

TEST(every_entry_is_done_once_on_the_pool)
{
    check_all_done(HANDLER_POOL, 4, 2000);
}

TEST(every_entry_is_done_once_by_commands)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the thread sanitizer takes a child that shares memory until it execs for a thread");
#endif
    static char *argv[] = {(char *)"/bin/true", NULL};
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    options.handler = (struct runtime_handler){.kind = HANDLER_EXEC, .argv = argv};
    options.worker.concurrency = 4;
    model_store_reset();
    for (int i = 0; i < 100; i++) {
        model_store_add("orders", "n", "1");
    }
    CHECK(run(&options, &metrics) == IMPEL_OK);
    CHECK_U64(metrics.done, 100);
}

/* ---- outcomes ---- */

static enum impel_outcome fails_twice(struct impel_delivery *delivery, void *user)
{
    (void)user;
    return impel_delivery_attempt(delivery) < 3 ? impel_delivery_fail(delivery, "not yet")
                                                : IMPEL_DONE;
}

TEST(a_failing_entry_is_tried_again)
{
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    options.handler = (struct runtime_handler){.kind = HANDLER_INLINE, .call = fails_twice};
    model_store_reset();
    model_store_add("orders", "n", "1");
    CHECK(run(&options, &metrics) == IMPEL_OK);
    CHECK_U64(metrics.retried, 2);
    CHECK_U64(metrics.done, 1);
}

static enum impel_outcome rejects(struct impel_delivery *delivery, void *user)
{
    (void)user;
    return impel_delivery_reject(delivery, "no such customer");
}

TEST(a_rejected_entry_is_parked_with_its_reason)
{
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    options.handler = (struct runtime_handler){.kind = HANDLER_POOL, .call = rejects};
    model_store_reset();
    model_store_add("orders", "n", "1");
    CHECK(run(&options, &metrics) == IMPEL_OK);
    CHECK_U64(metrics.parked, 1);
    struct request *request = request_new(REQUEST_RANGE);
    request->stream = bytes_of("orders:dead");
    request->range.end = ID_MAX;
    request->range.count = 10;
    model_store_do(request);
    CHECK(request->range.entry_count == 1);
    bool found = false;
    const struct entry *record = request->range.entries[0];
    for (size_t i = 0; i < record->field_count; i++) {
        found = found || (bytes_equal(record->fields[i].name, bytes_of("error")) &&
                          bytes_equal(record->fields[i].value, bytes_of("no such customer")));
    }
    request_free(request);
    CHECK(found);
}

/* ---- stopping ---- */

struct stopping {
    struct runtime *runtime;
    atomic_bool started, cancelled;
    bool waits; /* until cancelled, else a moment */
};

static enum impel_outcome stops_its_worker(struct impel_delivery *delivery, void *user)
{
    struct stopping *stopping = user;
    if (!atomic_exchange(&stopping->started, true)) {
        runtime_stop(stopping->runtime);
    }
    while (stopping->waits && !impel_delivery_cancelled(delivery)) {
        sched_yield();
    }
    return stopping->waits ? IMPEL_RETRY : IMPEL_DONE;
}

static int run_stopping(struct runtime_options *options, struct stopping *stopping, size_t entries)
{
    struct impel_error error = {0};
    options->handler =
        (struct runtime_handler){.kind = HANDLER_POOL, .call = stops_its_worker, .user = stopping};
    options->worker.until_idle = false;
    options->worker.until_idle_ms = 0;
    options->worker.prefetch = 10;
    model_store_reset();
    for (size_t i = 0; i < entries; i++) {
        model_store_add("orders", "n", "1");
    }
    CHECK(runtime_new(options, &stopping->runtime, &error) == IMPEL_OK);
    int rc = runtime_run(stopping->runtime, &error);
    runtime_free(stopping->runtime);
    return rc;
}

/* Nothing was lost, and no attempt was burnt: whoever comes next gets it all as its first. */
static enum impel_outcome counts_first_attempts(struct impel_delivery *delivery, void *user)
{
    atomic_uint *count = user;
    if (impel_delivery_attempt(delivery) == 1) {
        atomic_fetch_add(count, 1);
    }
    return IMPEL_DONE;
}

static unsigned first_attempts_left(void)
{
    atomic_uint count = 0;
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    options.worker.consumer = bytes_of("next");
    options.handler = (struct runtime_handler){
        .kind = HANDLER_INLINE, .call = counts_first_attempts, .user = (void *)&count};
    CHECK(run(&options, &metrics) == IMPEL_OK);
    return count;
}

TEST(a_stop_lets_the_running_handler_finish_and_releases_the_rest)
{
    struct stopping stopping = {0};
    struct runtime_options options = defaults();
    CHECK(run_stopping(&options, &stopping, 5) == IMPEL_OK);
    CHECK_U64(first_attempts_left(), 4);
}

TEST(after_the_grace_a_handler_is_cancelled_and_its_attempt_given_back)
{
    struct stopping stopping = {.waits = true};
    struct runtime_options options = defaults();
    options.worker.grace_ms = 50;
    CHECK(run_stopping(&options, &stopping, 3) == IMPEL_OK);
    CHECK_U64(first_attempts_left(), 3);
}

static enum impel_outcome raises_term(struct impel_delivery *delivery, void *user)
{
    (void)delivery;
    (void)user;
    (void)kill(getpid(), SIGTERM);
    return IMPEL_DONE;
}

TEST(sigterm_stops_and_what_it_did_before_is_restored)
{
    struct impel_metrics metrics;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before, after;
    struct runtime_options options = defaults();
    options.worker.until_idle = false;
    options.handler = (struct runtime_handler){.kind = HANDLER_POOL, .call = raises_term};
    model_store_reset();
    model_store_add("orders", "n", "1");
    CHECK(sigaction(SIGTERM, &ignore, &before) == 0);
    int rc = run(&options, &metrics);
    CHECK(sigaction(SIGTERM, &before, &after) == 0);
    CHECK(rc == IMPEL_OK);
    CHECK(after.sa_handler == SIG_IGN);
}

TEST(a_stop_before_the_run_ends_it_at_once)
{
    struct impel_error error = {0};
    struct runtime *runtime = NULL;
    struct runtime_options options = defaults();
    options.worker.until_idle = false;
    atomic_uint count = 0;
    options.handler =
        (struct runtime_handler){.kind = HANDLER_INLINE, .call = counts, .user = (void *)&count};
    model_store_reset();
    model_store_add("orders", "n", "1");
    CHECK(runtime_new(&options, &runtime, &error) == IMPEL_OK);
    runtime_stop(runtime);
    CHECK(runtime_run(runtime, &error) == IMPEL_OK);
    CHECK(runtime_run(runtime, &error) == IMPEL_ERR_INVALID);
    runtime_free(runtime);
    CHECK_U64(count, 0);
}

/* ---- names ---- */

static enum impel_outcome tells_consumer(struct impel_delivery *delivery, void *user)
{
    struct impel_bytes name = impel_delivery_consumer(delivery);
    CHECK(name.size < 128);
    memcpy(user, name.data, name.size);
    return IMPEL_DONE;
}

static void occupy(const char *name)
{
    struct request *request = request_new(REQUEST_BEAT);
    request->stream = bytes_of("orders");
    request->group = bytes_of("billing");
    request->consumer = bytes_of(name);
    request->token.bytes[0] = 1;
    request->dead_after_ms = 60000;
    request->beat.first = true;
    model_store_do(request);
    CHECK(request->status == IMPEL_OK && request->beat.result == BEAT_TAKEN);
    request_free(request);
}

static void make_group(void)
{
    struct request *request = request_new(REQUEST_GROUP_CREATE);
    request->stream = bytes_of("orders");
    request->group = bytes_of("billing");
    model_store_do(request);
    CHECK(request->status == IMPEL_OK);
    request_free(request);
}

TEST(without_a_name_the_lowest_free_slot_is_taken)
{
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    char host[64], slot[128], got[128] = "";
    CHECK(gethostname(host, sizeof host) == 0);
    options.worker.consumer = (struct impel_bytes){0};
    options.handler =
        (struct runtime_handler){.kind = HANDLER_INLINE, .call = tells_consumer, .user = got};
    model_store_reset();
    make_group();
    for (int i = 1; i <= 2; i++) {
        (void)snprintf(slot, sizeof slot, "%s-%d", host, i);
        occupy(slot);
    }
    model_store_add("orders", "n", "1");
    CHECK(run(&options, &metrics) == IMPEL_OK);
    (void)snprintf(slot, sizeof slot, "%s-3", host);
    CHECK(strcmp(got, slot) == 0);
}

TEST(a_given_name_that_is_taken_is_an_error)
{
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    atomic_uint count = 0;
    options.worker.policy.dead_after_ms = 100;
    options.handler =
        (struct runtime_handler){.kind = HANDLER_INLINE, .call = counts, .user = (void *)&count};
    model_store_reset();
    make_group();
    options.worker.until_idle_ms = 300; /* else it waits for as long as that row may live */
    occupy("me");
    CHECK(run(&options, &metrics) == IMPEL_ERR_BUSY);
}

/* ---- bad use ---- */

TEST(bad_options_are_named)
{
    struct runtime_options options = defaults();
    struct runtime *runtime = NULL;
    struct impel_error error = {0};
    options.handler.call = tells_consumer;
    options.worker.group = (struct impel_bytes){0};
    CHECK(runtime_new(&options, &runtime, &error) == IMPEL_ERR_INVALID);
    CHECK(strcmp(error.text, "no group is named") == 0);
    options = defaults();
    options.handler.call = tells_consumer;
    options.worker.dead_letters = &stream;
    CHECK(runtime_new(&options, &runtime, &error) == IMPEL_ERR_INVALID);
    CHECK(strstr(error.text, "another than the stream itself") != NULL);
    CHECK(runtime == NULL);
}

/* A program that is not ours reads one entry, and does not come back. */
static void read_by_another(void)
{
    struct request *request = request_new(REQUEST_READ);
    request->group = bytes_of("billing");
    request->consumer = bytes_of("another");
    request->read.streams = &stream;
    request->read.stream_count = 1;
    request->read.count = 1;
    model_store_do(request);
    CHECK(request->read.entry_count == 1);
    request_free(request);
}

TEST(a_group_that_is_never_idle_is_given_up)
{
    struct impel_metrics metrics;
    struct runtime_options options = defaults();
    atomic_uint count = 0;
    options.handler =
        (struct runtime_handler){.kind = HANDLER_INLINE, .call = counts, .user = (void *)&count};
    options.worker.until_idle_ms = 50; /* far below its min-idle */
    model_store_reset();
    make_group();
    model_store_add("orders", "n", "1");
    read_by_another();
    CHECK(run(&options, &metrics) == IMPEL_ERR_TIMEOUT);
    CHECK_U64(count, 0);
}

TAP_MAIN
