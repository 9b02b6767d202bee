/* test_worker.c -- workers of the public API, on an embedded store. */
#include "impel/impel.h"
#include "tap.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];
static struct impel_store *store;
static struct impel_error error;

static struct impel_bytes text(const char *text)
{
    return (struct impel_bytes){text, strlen(text)};
}

static int is(struct impel_bytes bytes, const char *want)
{
    return bytes.size == strlen(want) && memcmp(bytes.data, want, bytes.size) == 0;
}

static void begin(void)
{
    char url[128];
    (void)snprintf(folder, sizeof folder, "/tmp/impel-api-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(url, sizeof url, "lmdb:%s/db?sync=process", folder);
    CHECK(impel_store_open(url, NULL, &store, &error) == IMPEL_OK);
}

static void done(void)
{
    char command[128];
    impel_store_close(store);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

static void add(const char *stream, const char *name, const char *value)
{
    struct impel_field field = {text(name), text(value)};
    CHECK(impel_add(store, text(stream), &field, 1, NULL, &error) == IMPEL_OK);
}

static struct impel_worker_options
defaults(enum impel_outcome (*handler)(struct impel_delivery *, void *), void *user)
{
    return (struct impel_worker_options){
        .stream = "orders",
        .group = "billing",
        .handler = handler,
        .user = user,
        .backoff_base_ms = 1,
        .backoff_cap_ms = 1,
        .until_idle = 1,
        .until_idle_ms = 60000,
    };
}

static void run(const struct impel_worker_options *options, struct impel_metrics *metrics)
{
    struct impel_worker *worker = NULL;
    struct impel_error why = {0};
    int rc = impel_worker_new(store, options, &worker, &why);
    if (rc >= 0) {
        rc = impel_worker_run(worker, &why);
        impel_worker_metrics(worker, metrics);
    }
    impel_worker_free(worker);
    if (rc < 0) {
        printf("# %d: %s\n", rc, why.text);
    }
    CHECK(rc == IMPEL_OK);
}

/* ---- what a handler sees ---- */

static enum impel_outcome looks(struct impel_delivery *d, void *user)
{
    const struct impel_field second = impel_delivery_field_at(d, 1);
    int good = is(impel_delivery_stream(d), "orders") && is(impel_delivery_group(d), "billing") &&
               is(impel_delivery_consumer(d), "me") && impel_delivery_attempt(d) == 1 &&
               impel_delivery_id(d).ms > 0 && impel_delivery_field_count(d) == 3 &&
               is(impel_delivery_field(d, "a"), "1") && is(second.name, "a") &&
               is(second.value, "2") && !impel_delivery_cancelled(d) &&
               impel_delivery_field(d, "none").data == NULL &&
               impel_delivery_field(d, "").data != NULL &&
               impel_delivery_field_bytes(d, (struct impel_bytes){NULL, 0}).size == 0;
    *(int *)user += good;
    return IMPEL_DONE;
}

TEST(a_handler_sees_all_of_its_entry)
{
    begin();
    const struct impel_field fields[] = {
        {text("a"), text("1")}, {text("a"), text("2")}, {text(""), text("")}};
    int good = 0;
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(looks, &good);
    options.consumer = "me";
    CHECK(impel_add(store, text("orders"), fields, 3, NULL, &error) == IMPEL_OK);
    run(&options, &metrics);
    CHECK_U64((uint64_t)good, 1);
    CHECK_U64(metrics.done, 1);
    done();
}

static enum impel_outcome asks_for_later(struct impel_delivery *d, void *user)
{
    atomic_int *calls = user;
    atomic_fetch_add(calls, 1);
    return impel_delivery_attempt(d) == 1 ? impel_delivery_retry_after(d, 200, "the bank is closed")
                                          : IMPEL_DONE;
}

struct seen {
    int retried;
    int64_t delay_ms;
    char error[64];
};

static void on_event(const struct impel_event *event, void *user)
{
    struct seen *seen = user;
    if (strcmp(event->name, "retried") == 0) {
        seen->retried++;
        seen->delay_ms = event->delay_ms;
        (void)snprintf(seen->error, sizeof seen->error, "%.*s", (int)event->error.size,
                       (const char *)event->error.data);
    }
}

TEST(a_handler_may_ask_for_a_delay_and_events_tell_why)
{
    begin();
    atomic_int calls = 0;
    struct seen seen = {0};
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(asks_for_later, &calls);
    options.event = on_event;
    options.event_user = &seen;
    add("orders", "n", "1");
    run(&options, &metrics);
    CHECK_U64(calls, 2);
    CHECK(seen.retried == 1 && seen.delay_ms == 200);
    CHECK(strcmp(seen.error, "the bank is closed") == 0);
    done();
}

static enum impel_outcome fails(struct impel_delivery *d, void *user)
{
    (void)user;
    return impel_delivery_fail(d, "card declined");
}

TEST(what_always_fails_is_parked_where_the_options_say)
{
    begin();
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(fails, NULL);
    options.max_deliveries = 3;
    options.dead_letter = "graveyard";
    add("orders", "n", "1");
    run(&options, &metrics);
    CHECK(metrics.parked == 1 && metrics.retried == 2);
    struct impel_range *range = NULL;
    size_t count = 0;
    CHECK(impel_read(store, text("graveyard"), NULL, &range, &error) == IMPEL_OK);
    CHECK(impel_range_count(range) == 1);
    const struct impel_field *record = impel_range_fields(range, 0, &count);
    CHECK_U64(count, 11);
    CHECK(is(record[5].name, "deliveries") && is(record[5].value, "3"));
    CHECK(is(record[7].name, "error") && is(record[7].value, "card declined"));
    impel_range_free(range);
    done();
}

static enum impel_outcome by_stream(struct impel_delivery *d, void *user)
{
    atomic_int *counts = user;
    atomic_fetch_add(&counts[is(impel_delivery_stream(d), "b")], 1);
    return IMPEL_DONE;
}

TEST(one_worker_reads_many_streams)
{
    begin();
    const struct impel_bytes streams[] = {text("a"), text("b")};
    atomic_int counts[2] = {0};
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(by_stream, counts);
    options.stream = NULL;
    options.streams = streams;
    options.stream_count = 2;
    options.concurrency = 3;
    for (int i = 0; i < 20; i++) {
        add(i % 4 == 0 ? "b" : "a", "n", "1");
    }
    run(&options, &metrics);
    CHECK(counts[0] == 15 && counts[1] == 5);
    CHECK_U64(metrics.done, 20);
    done();
}

/* ---- stopping and timing out ---- */

struct held {
    struct impel_worker *worker;
    atomic_int started, cancelled;
};

static enum impel_outcome until_cancelled(struct impel_delivery *d, void *user)
{
    struct held *held = user;
    if (atomic_fetch_add(&held->started, 1) > 0) {
        return IMPEL_DONE;
    }
    while (!impel_delivery_cancelled(d)) {
        (void)sched_yield();
    }
    atomic_fetch_add(&held->cancelled, 1);
    return IMPEL_RETRY;
}

TEST(a_handler_over_its_timeout_is_cancelled_and_its_entry_retried)
{
    begin();
    struct held held = {0};
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(until_cancelled, &held);
    options.timeout_ms = 50;
    add("orders", "n", "1");
    run(&options, &metrics);
    CHECK(held.started == 2 && held.cancelled == 1);
    CHECK(metrics.retried == 1 && metrics.done == 1);
    done();
}

static void *runs(void *user)
{
    struct held *held = user;
    return impel_worker_run(held->worker, NULL) == IMPEL_OK ? held : NULL;
}

TEST(another_thread_may_stop_a_worker_and_look_at_it)
{
    begin();
    struct held held = {0};
    struct impel_worker_options options = defaults(until_cancelled, &held);
    pthread_t thread;
    void *result = NULL;
    struct impel_metrics metrics;
    options.until_idle = 0;
    options.until_idle_ms = 0;
    options.grace_ms = IMPEL_NONE;
    add("orders", "n", "1");
    CHECK(impel_worker_new(store, &options, &held.worker, &error) == IMPEL_OK);
    CHECK(pthread_create(&thread, NULL, runs, &held) == 0);
    while (held.started == 0) {
        impel_worker_metrics(held.worker, &metrics);
        (void)impel_worker_consumer(held.worker);
        (void)sched_yield();
    }
    CHECK(impel_worker_consumer(held.worker).size > 0);
    impel_worker_stop(held.worker);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == &held);
    CHECK(held.cancelled == 1);
    impel_worker_metrics(held.worker, &metrics);
    CHECK_U64(metrics.released, 1);
    CHECK(impel_worker_run(held.worker, &error) == IMPEL_ERR_INVALID); /* once is all */
    impel_worker_free(held.worker);
    done();
}

static enum impel_outcome stops_itself(struct impel_delivery *d, void *user)
{
    struct held *held = user;
    (void)d;
    impel_worker_stop(held->worker);
    return IMPEL_DONE;
}

TEST(a_store_may_be_closed_and_the_folder_left_before_its_worker_runs)
{
    begin();
    struct held held = {0};
    struct impel_store *relative = NULL;
    char before[256];
    CHECK(getcwd(before, sizeof before) != NULL && chdir(folder) == 0);
    add("orders", "n", "1");
    CHECK(impel_store_open("lmdb:db", NULL, &relative, &error) == IMPEL_OK);
    CHECK(chdir(before) == 0);
    struct impel_worker_options options = defaults(stops_itself, &held);
    CHECK(impel_worker_new(relative, &options, &held.worker, &error) == IMPEL_OK);
    impel_store_close(relative);
    CHECK(impel_worker_run(held.worker, &error) == IMPEL_OK);
    impel_worker_free(held.worker);
    done();
}

/* ---- what it answers ---- */

TEST(a_missing_group_is_an_error_where_it_may_not_be_created)
{
    begin();
    struct impel_worker *worker = NULL;
    struct impel_worker_options options = defaults(fails, NULL);
    options.no_create = 1;
    add("orders", "n", "1");
    CHECK(impel_worker_new(store, &options, &worker, &error) == IMPEL_OK);
    int rc = impel_worker_run(worker, &error);
    printf("# %d: %s\n", rc, error.text);
    impel_worker_free(worker);
    CHECK(rc == IMPEL_ERR_NO_GROUP);
    CHECK(strstr(error.text, "billing") != NULL);
    done();
}

static enum impel_outcome counts_up(struct impel_delivery *d, void *user)
{
    (void)d;
    atomic_fetch_add((atomic_int *)user, 1);
    return IMPEL_DONE;
}

TEST(a_group_may_begin_after_an_entry)
{
    begin();
    atomic_int count = 0;
    struct impel_metrics metrics;
    struct impel_worker_options options = defaults(counts_up, &count);
    struct impel_field field = {text("n"), text("1")};
    CHECK(impel_add(store, text("orders"), &field, 1, &options.group_start, &error) == IMPEL_OK);
    add("orders", "n", "2");
    run(&options, &metrics);
    CHECK_U64(count, 1);
    done();
}

TEST(a_group_that_is_not_idle_in_time_is_a_timeout)
{
    begin();
    struct impel_worker *worker = NULL;
    struct impel_reply *reply = NULL;
    atomic_int count = 0;
    struct impel_worker_options options = defaults(counts_up, &count);
    options.until_idle_ms = 100;
    add("orders", "n", "1");
    const struct impel_bytes create[] = {text("XGROUP"), text("CREATE"), text("orders"),
                                         text("billing"), text("0")};
    const struct impel_bytes read[] = {text("XREADGROUP"), text("GROUP"),   text("billing"),
                                       text("foreign"),    text("STREAMS"), text("orders"),
                                       text(">")};
    CHECK(impel_call(store, create, 5, &reply, &error) == IMPEL_OK);
    impel_reply_free(reply);
    CHECK(impel_call(store, read, 7, &reply, &error) == IMPEL_OK);
    impel_reply_free(reply);
    CHECK(impel_worker_new(store, &options, &worker, &error) == IMPEL_OK);
    CHECK(impel_worker_run(worker, &error) == IMPEL_ERR_TIMEOUT);
    impel_worker_free(worker);
    CHECK_U64(count, 0);
    done();
}

/* ---- bad options ---- */

static void refused(const struct impel_worker_options *options, const char *word)
{
    struct impel_worker *worker = (struct impel_worker *)&error;
    int rc = impel_worker_new(store, options, &worker, &error);
    if (rc != IMPEL_ERR_INVALID || strstr(error.text, word) == NULL) {
        printf("# %d: '%s' does not say '%s'\n", rc, error.text, word);
    }
    CHECK(rc == IMPEL_ERR_INVALID && worker == NULL);
    CHECK(strstr(error.text, word) != NULL);
}

TEST(bad_options_are_named)
{
    begin();
    const struct impel_bytes streams[] = {text("a"), text("a")};
    const struct impel_worker_options good = defaults(fails, NULL);
    struct impel_worker_options bad = good;
    bad.handler = NULL;
    refused(&bad, "handler");
    bad = good;
    bad.group = NULL;
    refused(&bad, "group");
    bad = good;
    bad.stream = NULL;
    refused(&bad, "stream");
    bad = good;
    bad.streams = streams;
    bad.stream_count = 2;
    refused(&bad, "twice");
    bad.stream = NULL;
    refused(&bad, "twice");
    bad = good;
    bad.timeout_ms = -2;
    refused(&bad, "timeout_ms");
    bad = good;
    bad.dead_after_ms = IMPEL_NONE;
    refused(&bad, "dead_after_ms");
    bad = good;
    bad.dead_letter = "orders";
    refused(&bad, "dead-letter");
    bad = good;
    bad.consumer = "impel-released";
    refused(&bad, "reserved");
    bad = good;
    bad.reserved[3] = 1;
    refused(&bad, "zeroed");
    done();
}

TAP_MAIN
