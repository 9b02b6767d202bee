/* bench_sweep.c -- what a sweep costs beside a lot of healthy work: living workers of Impel's hold a
 * thousand entries, or a million, none of them abandoned. On Redis the server's CPU time and its
 * commands are counted, on the embedded store this process's own CPU time, where all of it is. */
#include "base/value.h"
#include "cli/bench.h"
#include "cli/bench_figures.h"
#include "cli/console.h"
#include "cli/folder.h"
#include "core/sweep.h"
#include "store/store.h"

#include <sys/resource.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW = 1000,
    MANY = 1000000,          /* unless --entries says otherwise */
    HOLDERS = 10,            /* workers that hold them */
    SWEEPS = 2000,           /* in each run */
    ALIVE_MS = 24 * 3600000, /* a holder's dead-after: it lives as long as this takes */
};

struct cost {
    double cpu_us;   /* of a sweep; of all so far, while it is measured */
    double commands; /* the same; 0 on the embedded store */
};

/* ---- the holders ---- */

static struct request *new_request(enum request_kind kind, int holder)
{
    struct request *request = request_new(kind);
    char *name = request == NULL ? NULL : arena_alloc(&request->arena, 32);

    if (name == NULL) {
        request_free(request);
        return NULL;
    }
    (void)snprintf(name, 32, "holder-%d", holder);
    request->stream = bytes_of(BENCH_STREAM);
    request->group = bytes_of(BENCH_GROUP);
    request->consumer = bytes_of(name);
    memset(request->token.bytes, holder + 1, sizeof(request->token.bytes));
    request->dead_after_ms = ALIVE_MS;
    return request;
}

/* One holder beats and reads `count` entries. */
static int hold(struct store *store, int holder, uint64_t count, struct impel_error *err)
{
    static const struct impel_bytes streams[] = {{BENCH_STREAM, sizeof(BENCH_STREAM) - 1}};
    struct request *request = new_request(REQUEST_BEAT, holder);
    int rc = IMPEL_OK;

    if (request != NULL) {
        request->beat.first = true;
    }
    rc = bench_ask(store, request, err);
    for (uint64_t at = 0; rc >= 0 && at < count; at += BENCH_READ_BATCH) {
        uint64_t rest = count - at;
        request = new_request(REQUEST_READ, holder);
        if (request != NULL) {
            request->read.streams = streams;
            request->read.stream_count = 1;
            request->read.count = rest < BENCH_READ_BATCH ? (uint32_t)rest : BENCH_READ_BATCH;
        }
        rc = bench_ask(store, request, err);
    }
    return rc;
}

/* ---- what is counted ---- */

static double info_number(struct impel_bytes info, const char *name)
{
    const char *at = info.size > 0 ? memmem(info.data, info.size, name, strlen(name)) : NULL;
    char number[32] = "";

    if (at != NULL) {
        at += strlen(name);
        size_t left = (size_t)((const char *)info.data + info.size - at);
        memcpy(number, at, left < sizeof(number) - 1 ? left : sizeof(number) - 1);
    }
    return strtod(number, NULL);
}

static int server_cost(struct store *store, struct cost *cost, struct impel_error *err)
{
    static const struct impel_bytes words[] = {{"INFO", 4}, {"everything", 10}};
    struct request *request = request_new(REQUEST_CALL);

    if (request == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    request->call.args = words;
    request->call.arg_count = ARRAY_SIZE(words);
    int rc = store_wait(store, request, -1);
    if (rc >= 0 && request->call.reply->bytes.size > 0) {
        struct impel_bytes info = request->call.reply->bytes;
        cost->cpu_us = (info_number(info, "\nused_cpu_user_main_thread:") +
                        info_number(info, "\nused_cpu_sys_main_thread:")) *
                       1e6;
        cost->commands = info_number(info, "\ntotal_commands_processed:");
    } else {
        rc = error_set(err, IMPEL_ERR_REPLY, "INFO: no answer that says what the server did");
    }
    request_free(request);
    return rc;
}

static int own_cost(struct cost *cost)
{
    struct rusage used;

    (void)getrusage(RUSAGE_SELF, &used);
    cost->cpu_us = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    cost->commands = 0;
    return IMPEL_OK;
}

static int count_cost(const struct bench_case *bench,
                      struct store *store,
                      struct cost *cost,
                      struct impel_error *err)
{
    return bench->redis ? server_cost(store, cost, err) : own_cost(cost);
}

/* ---- the sweeps ---- */

/* A whole sweep, as a worker with no free handler makes it. */
static int sweep_once(struct sweep *sweep, struct store *store, int64_t now_ms)
{
    struct request *request;
    int rc = IMPEL_OK;

    sweep_hurry(sweep, now_ms);
    while (rc >= 0 && (request = sweep_next(sweep, 0, false, now_ms)) != NULL) {
        rc = store_wait(store, request, -1);
        sweep_done(sweep, request, now_ms);
        request_free(request);
    }
    return rc;
}

static int sweep_many(struct sweep *sweep,
                      struct store *store,
                      const struct bench_case *bench,
                      struct cost *cost,
                      struct impel_error *err)
{
    struct cost before, after;
    int rc = count_cost(bench, store, &before, err);

    for (int i = 0; rc >= 0 && i < SWEEPS; i++) {
        int64_t now_ms = (int64_t)(bench_now() * 1000);
        rc = sweep_once(sweep, store, now_ms);
        rc = rc < 0 ? error_set(err, rc, "a sweep: %s", status_text(rc)) : rc;
    }
    rc = rc < 0 ? rc : count_cost(bench, store, &after, err);
    if (rc >= 0) {
        cost->cpu_us = (after.cpu_us - before.cpu_us) / SWEEPS;
        cost->commands = (after.commands - before.commands) / SWEEPS;
    }
    return rc;
}

static struct sweep *new_sweep(void)
{
    struct sweep_options options = {
        .stream = bytes_of(BENCH_STREAM),
        .group = bytes_of(BENCH_GROUP),
        .consumer = bytes_of("sweeper"),
        .dead_letter = bytes_of(BENCH_STREAM ":dead"),
        .interval_ms = 1000,
        .settle = true,
        .consumer_ttl_ms = -1,
    };

    options.token.bytes[0] = 99;
    policy_defaults(&options.policy);
    return sweep_new(&options, (int64_t)(bench_now() * 1000));
}

/* ---- one store, one amount ---- */

struct series {
    struct bench_figures cpu_us;
    double commands;
};

static int measure_open(const struct bench_case *bench,
                        size_t runs,
                        struct series *series,
                        struct impel_error *err)
{
    static const struct store_env env;
    struct store *store = NULL;
    struct sweep *sweep = new_sweep();
    char url[BENCH_URL_SIZE];
    int rc = sweep == NULL ? error_set(err, IMPEL_ERR_NOMEM, "out of memory") : IMPEL_OK;

    bench_url(bench, false, url, sizeof(url));
    rc = rc < 0 ? rc : store_open(url, &env, &store, err);
    for (int i = 0; rc >= 0 && i < HOLDERS; i++) {
        rc = hold(store, i, bench->entries / HOLDERS, err);
    }
    for (size_t i = 0; rc >= 0 && i < runs; i++) {
        struct cost cost = {0};
        rc = sweep_many(sweep, store, bench, &cost, err);
        figures_add(&series->cpu_us, cost.cpu_us);
        series->commands = cost.commands;
    }
    store_close(store);
    sweep_free(sweep);
    return rc;
}

static int
measure(struct bench_case *bench, size_t runs, struct series *series, struct impel_error *err)
{
    struct folder folder;
    pid_t pid = -1;
    int rc = folder_make(&folder, "impel-bench", err);

    if (rc < 0) {
        return rc;
    }
    bench->folder = folder.path;
    rc = bench->redis ? bench_redis_start(bench, &pid, err) : IMPEL_OK;
    rc = rc < 0 ? rc : bench_prepare(bench, err);
    rc = rc < 0 ? rc : measure_open(bench, runs, series, err);
    if (pid > 0) {
        bench_redis_end(pid);
    }
    folder_remove(&folder);
    bench->folder = NULL;
    return rc;
}

static void print(const char *name,
                  uint64_t amount,
                  const struct series *few,
                  const struct series *many,
                  bool json)
{
    const double goal = 2;
    double few_us = figures_median(&few->cpu_us), many_us = figures_median(&many->cpu_us);

    if (json) {
        console_outf("{\"work\":\"sweep\",\"store\":\"%s\",\"few\":%d,\"many\":%llu,\"runs\":%zu,"
                     "\"few_cpu_us\":%.2f,\"many_cpu_us\":%.2f,\"few_commands\":%.2f,"
                     "\"many_commands\":%.2f,\"ratio\":%.3f,\"goal\":%.1f}\n",
                     name, FEW, (unsigned long long)amount, few->cpu_us.count, few_us, many_us,
                     few->commands, many->commands, many_us / few_us, goal);
        return;
    }
    console_outf("  %-14s %8.1f us %6.1f commands %8.1f us %6.1f commands %8.2f %6.1f\n", name,
                 few_us, few->commands, many_us, many->commands, many_us / few_us, goal);
}

int bench_sweep(const struct bench_case *work, size_t runs, bool json, struct impel_error *err)
{
    struct bench_case bench = *work;
    uint64_t amount = work->entries > 0 ? work->entries : MANY;
    int rc = IMPEL_OK;

    if (!json) {
        console_outf(
            "sweep: CPU time and commands of one, with %d and with %llu entries that living "
            "workers hold; medians of %zu runs of %d\n\n"
            "  store            with the few                 with the many                "
            "  ratio   goal (at most)\n",
            FEW, (unsigned long long)amount, runs, SWEEPS);
    }
    for (int redis = 0; rc >= 0 && redis <= (int)bench_redis_found(); redis++) {
        struct series few = {0}, many = {0};
        bench.redis = redis != 0;
        bench.entries = FEW;
        rc = measure(&bench, runs, &few, err);
        bench.entries = amount;
        rc = rc < 0 ? rc : measure(&bench, runs, &many, err);
        if (rc >= 0) {
            print(redis != 0 ? "redis" : "sync=process", amount, &few, &many, json);
        }
    }
    return rc;
}
