/* bench_impel.c -- the same work by a worker of Impel's with a function as its handler. */
#include "cli/bench.h"
#include "runtime/runtime.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

int bench_ask(struct store *store, struct request *request, struct impel_error *err)
{
    if (request == NULL) {
        return no_memory(err);
    }
    int rc = store_wait(store, request, -1);
    if (rc < 0) {
        error_set(err, rc, "%s: %s", request_name(request->kind),
                  request->error.text[0] != '\0' ? request->error.text : status_text(rc));
    }
    request_free(request);
    return rc;
}

/* ---- making the entries ---- */

static void forget(struct request *request)
{
    int *failed = request->owner;

    *failed = request->status < 0 ? request->status : *failed;
    request_free(request);
}

static struct request *new_add(const struct bench_case *bench, const char *value)
{
    struct request *add = request_new(REQUEST_ADD);
    struct impel_field *field = add == NULL ? NULL : arena_calloc(&add->arena, 1, sizeof(*field));

    if (field == NULL) {
        request_free(add);
        return NULL;
    }
    *field = (struct impel_field){bytes_of("v"), {value, bench->value_size}};
    add->stream = bytes_of(BENCH_STREAM);
    add->add.fields = field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    return add;
}

static int add_entries(const struct bench_case *bench, struct store *store, struct impel_error *err)
{
    char *value = calloc(1, bench->value_size + 1);
    int failed = IMPEL_OK, rc = IMPEL_OK;

    if (value == NULL) {
        return no_memory(err);
    }
    for (uint64_t i = 1; rc >= 0 && i <= bench->entries; i++) {
        struct request *add = new_add(bench, value);
        if (add == NULL) {
            rc = no_memory(err);
        } else if (i % BENCH_ADD_BATCH == 0 || i == bench->entries) {
            rc = bench_ask(store, add, err);
        } else {
            add->owner = &failed;
            add->done = forget;
            store_submit(store, add);
        }
        rc = rc >= 0 && failed < 0 ? error_set(err, failed, "%s", status_text(failed)) : rc;
    }
    free(value);
    return rc;
}

static int create_group(struct store *store, struct impel_error *err)
{
    struct request *create = request_new(REQUEST_GROUP_CREATE);

    if (create == NULL) {
        return no_memory(err);
    }
    create->stream = bytes_of(BENCH_STREAM);
    create->group = bytes_of(BENCH_GROUP);
    return bench_ask(store, create, err);
}

/* Hands all entries to the consumer of released entries: abandoned, and claimable at once. */
static int abandon_entries(struct store *store, struct impel_error *err)
{
    static const struct impel_bytes streams[] = {{BENCH_STREAM, sizeof(BENCH_STREAM) - 1}};
    size_t got;

    do {
        struct request *read = request_new(REQUEST_READ);
        if (read == NULL) {
            return no_memory(err);
        }
        read->group = bytes_of(BENCH_GROUP);
        read->consumer = bytes_of(RELEASED_NAME);
        read->read.streams = streams;
        read->read.stream_count = 1;
        read->read.count = BENCH_READ_BATCH;
        int rc = store_wait(store, read, -1);
        got = rc < 0 ? 0 : read->read.entry_count;
        if (rc < 0) {
            error_set(err, rc, "read: %s", status_text(rc));
        }
        request_free(read);
        if (rc < 0) {
            return rc;
        }
    } while (got > 0);
    return IMPEL_OK;
}

void bench_url(const struct bench_case *bench, bool sync_full, char *url, size_t size)
{
    if (bench->redis) {
        char socket[128];
        bench_socket(bench, socket, sizeof(socket));
        snprintf(url, size, "unix://%s", socket);
        return;
    }
    snprintf(url, size, "lmdb:%s/impel.db?sync=%s", bench->folder, sync_full ? "full" : "process");
}

int bench_prepare(const struct bench_case *bench, struct impel_error *err)
{
    static const struct store_env env;
    struct store *store = NULL;
    char url[BENCH_URL_SIZE];
    int rc;

    bench_url(bench, false, url, sizeof(url));
    rc = store_open(url, &env, &store, err);
    if (rc >= 0) {
        rc = add_entries(bench, store, err);
    }
    if (rc >= 0) {
        rc = create_group(store, err);
    }
    if (rc >= 0 && bench->work == BENCH_RECOVER) {
        rc = abandon_entries(store, err);
    }
    store_close(store);
    if (rc >= 0 && !bench->redis) {
        snprintf(url, sizeof(url), "%s/impel.db", bench->folder);
        bench_settle(url);
    }
    return rc;
}

/* ---- the work ---- */

void bench_worker(struct runtime_options *options, const char *url)
{
    static const struct impel_bytes streams[] = {{BENCH_STREAM, sizeof(BENCH_STREAM) - 1}};

    runtime_options_init(options);
    options->store_url = url;
    options->worker.streams = streams;
    options->worker.stream_count = 1;
    options->worker.group = bytes_of(BENCH_GROUP);
    options->worker.consumer = bytes_of("worker");
    options->signals = false;
    options->event_level = IMPEL_ERROR;
}

static enum impel_outcome no_op(struct impel_delivery *delivery, void *user)
{
    uint64_t *count = user;

    (void)delivery;
    (*count)++;
    return IMPEL_DONE;
}

int bench_impel(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    struct runtime_options options;
    struct runtime *runtime = NULL;
    uint64_t count = 0;
    char url[BENCH_URL_SIZE];
    int rc;

    rc = bench_prepare(bench, err);
    if (rc < 0) {
        return rc;
    }
    bench_url(bench, bench->sync_full, url, sizeof(url));
    bench_worker(&options, url);
    options.worker.concurrency = BENCH_CONCURRENCY;
    options.worker.until_idle = true;
    options.worker.recover_only = bench->work == BENCH_RECOVER;
    options.worker.policy.backoff_base_ms = 0;
    options.worker.policy.max_deliveries = 1000;
    options.handler.kind = HANDLER_INLINE;
    options.handler.call = no_op;
    options.handler.user = &count;
    rc = runtime_new(&options, &runtime, err);
    double begun = bench_now();
    if (rc >= 0) {
        rc = runtime_run(runtime, err);
    }
    *seconds = bench_now() - begun;
    runtime_free(runtime);
    if (rc >= 0 && count != bench->entries) {
        rc = error_set(err, IMPEL_ERR_IO, "%llu entries were handled instead of %llu",
                       (unsigned long long)count, (unsigned long long)bench->entries);
    }
    return rc;
}

/* ---- memory ---- */

struct holder {
    struct runtime *runtime;
    uint64_t entries;
    uint64_t size_bytes; /* when all were held */
    bool measured;
};

/* Anonymous memory of this process: what malloc and the stacks take, without mapped files. */
static uint64_t anonymous_bytes(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "RssAnon:", 8) == 0) {
            kib = strtoull(line + 8, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return (uint64_t)kib * 1024;
}

/* The first handler waits until the worker holds all the entries, measures, and ends the run. */
static enum impel_outcome hold(struct impel_delivery *delivery, void *user)
{
    struct holder *holder = user;
    struct impel_metrics metrics = {0};
    double end = bench_now() + 30;

    (void)delivery;
    while (!holder->measured && metrics.held < holder->entries && bench_now() < end) {
        struct timespec pause = {.tv_nsec = 10000000};
        nanosleep(&pause, NULL);
        runtime_metrics(holder->runtime, &metrics);
    }
    if (!holder->measured) {
        holder->measured = metrics.held >= holder->entries;
        holder->size_bytes = anonymous_bytes();
        runtime_stop(holder->runtime);
    }
    return IMPEL_DONE;
}

int bench_memory(const struct bench_case *bench, uint64_t *size_bytes, struct impel_error *err)
{
    struct holder holder = {.entries = bench->entries};
    struct runtime_options options;
    uint64_t before;
    char url[BENCH_URL_SIZE], metrics[BENCH_URL_SIZE];
    int rc;

    rc = bench_prepare(bench, err);
    if (rc < 0) {
        return rc;
    }
    bench_url(bench, false, url, sizeof(url));
    bench_worker(&options, url);
    /* How much is held is counted when the file is written. */
    snprintf(metrics, sizeof(metrics), "%s/metrics", bench->folder);
    options.metrics_file = metrics;
    /* What waits for longer than this is given back, and nothing is to be given back here. */
    options.worker.policy.dead_after_ms = INT64_C(600) * 1000;
    /* More than there are: a worker asks for more only while half of what it may hold is free. */
    options.worker.prefetch = (int64_t)bench->entries * 3;
    options.handler.kind = HANDLER_POOL;
    options.handler.call = hold;
    options.handler.user = &holder;
    before = anonymous_bytes();
    rc = runtime_new(&options, &holder.runtime, err);
    if (rc >= 0) {
        rc = runtime_run(holder.runtime, err);
    }
    runtime_free(holder.runtime);
    if (rc >= 0 && !holder.measured) {
        rc = error_set(err, IMPEL_ERR_TIMEOUT, "the worker never held all the entries");
    }
    *size_bytes = holder.size_bytes > before ? holder.size_bytes - before : 0;
    return rc;
}
