/* bench_sweep.c -- what a sweep costs beside a lot of healthy work: living workers of Impel's hold a
 * thousand entries, or a million, none of them abandoned. On Redis the server's CPU time and its
 * commands are counted, on the embedded store this process's own CPU time, where all of it is.
 *
 * Then one pass that has something to find at the far end, behind what living workers hold, or what
 * consumers of another kind hold, whose rows all have to be looked at: what it cost a Redis, and the
 * slowest command that it took, for which everybody else had to wait. */
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
    GONE = 10000,            /* abandoned entries, at most a tenth of all */
    MIN_IDLE_MS = 3600000,   /* of a pass: nothing but these is idle for so long */
    SLOW_US = 200,           /* commands that took less are not told apart */
    SLOW_MAX = 20000,        /* commands that the server remembers */
    SLOWEST_US = 5000,       /* the goal */
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

static int live(struct store *store, int holder, struct impel_error *err)
{
    struct request *request = new_request(REQUEST_BEAT, holder);

    if (request != NULL) {
        request->beat.first = true;
    }
    return bench_ask(store, request, err);
}

/* One holder reads `count` entries. */
static int hold(struct store *store, int holder, uint64_t count, struct impel_error *err)
{
    static const struct impel_bytes streams[] = {{BENCH_STREAM, sizeof(BENCH_STREAM) - 1}};
    struct request *request = NULL;
    int rc = IMPEL_OK;

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
        rc = live(store, i, err);
        rc = rc < 0 ? rc : hold(store, i, bench->entries / HOLDERS, err);
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

/* ---- a pass ---- */

struct pass {
    bool foreign; /* in: who holds the healthy ones */
    uint64_t gone;
    uint64_t found;
    struct cost cost;
    int64_t slowest_us;
};

/* One command, its words separated by blanks; the request is the caller's. NULL: it failed. */
static struct request *command(struct store *store, const char *line, struct impel_error *err)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *words =
        request == NULL ? NULL : arena_calloc(&request->arena, 8, sizeof(*words));
    char *rest = request == NULL ? NULL : arena_alloc(&request->arena, strlen(line) + 1);

    if (words == NULL || rest == NULL) {
        error_set(err, IMPEL_ERR_NOMEM, "out of memory");
        request_free(request);
        return NULL;
    }
    memcpy(rest, line, strlen(line) + 1);
    for (char *word; request->call.arg_count < 8 && (word = strsep(&rest, " ")) != NULL;) {
        words[request->call.arg_count++] = bytes_of(word);
    }
    request->call.args = words;
    int rc = store_wait(store, request, -1);
    if (rc < 0 || request->call.reply->kind == VALUE_ERROR) {
        error_set(err, IMPEL_ERR_REPLY, "%s: %s", line, status_text(rc < 0 ? rc : IMPEL_ERR_REPLY));
        request_free(request);
        return NULL;
    }
    return request;
}

static int commands(struct store *store, const char *const *lines, struct impel_error *err)
{
    for (; *lines != NULL; lines++) {
        struct request *request = command(store, *lines, err);
        if (request == NULL) {
            return IMPEL_ERR_REPLY;
        }
        request_free(request);
    }
    return IMPEL_OK;
}

/* What the last holder has was left long ago. */
static int age(struct store *store, struct impel_error *err)
{
    static const char script[] =
        "local s, g, c = KEYS[1], ARGV[1], ARGV[2] "
        "for _, row in ipairs(redis.call('XPENDING', s, g, '-', '+', ARGV[3], c)) do "
        "redis.call('XCLAIM', s, g, c, 0, row[1], 'IDLE', 7200000, 'JUSTID') end return 1";
    char holder[32], count[32];
    struct impel_bytes words[] = {
        bytes_of("EVAL"),      bytes_of(script), bytes_of("1"), bytes_of(BENCH_STREAM),
        bytes_of(BENCH_GROUP), {NULL, 0},        {NULL, 0}};
    struct request *request = request_new(REQUEST_CALL);

    if (request == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    (void)snprintf(holder, sizeof(holder), "holder-%d", HOLDERS);
    (void)snprintf(count, sizeof(count), "%d", GONE);
    words[5] = bytes_of(holder);
    words[6] = bytes_of(count);
    request->call.args = words;
    request->call.arg_count = ARRAY_SIZE(words);
    int rc = store_wait(store, request, -1);
    if (rc < 0 || request->call.reply->kind != VALUE_INTEGER) {
        rc = error_set(err, IMPEL_ERR_REPLY, "the entries cannot be made older");
    }
    request_free(request);
    return rc;
}

static int slowest(struct store *store, int64_t *slowest_us, struct impel_error *err)
{
    struct request *request = command(store, "SLOWLOG GET -1", err);

    *slowest_us = 0;
    if (request == NULL) {
        return IMPEL_ERR_REPLY;
    }
    const struct value *reply = request->call.reply;
    for (size_t i = 0; value_is_list(reply) && i < reply->item_count; i++) {
        const struct value *line = &reply->items[i];
        if (line->item_count > 2 && line->items[2].integer > *slowest_us) {
            *slowest_us = line->items[2].integer;
        }
    }
    request_free(request);
    return IMPEL_OK;
}

static int pass_over(struct store *store, struct pass *pass, struct impel_error *err)
{
    static const char *const before_it[] = {"CONFIG RESETSTAT", "SLOWLOG RESET", NULL};
    struct sweep_options options = {
        .stream = bytes_of(BENCH_STREAM),
        .group = bytes_of(BENCH_GROUP),
        .dead_letter = bytes_of(BENCH_STREAM ":dead"),
        .interval_ms = 1000,
        .settle = true,
        .consumer_ttl_ms = -1,
    };
    int64_t now_ms = (int64_t)(bench_now() * 1000);
    struct cost before = {0}, after = {0};
    uint64_t not_due = 0;

    policy_defaults(&options.policy);
    options.policy.min_idle_ms = MIN_IDLE_MS;
    struct sweep *sweep = sweep_new(&options, now_ms);
    int rc = sweep == NULL ? error_set(err, IMPEL_ERR_NOMEM, "out of memory") : IMPEL_OK;
    rc = rc < 0 ? rc : commands(store, before_it, err);
    rc = rc < 0 ? rc : server_cost(store, &before, err);
    if (rc >= 0) {
        rc = sweep_once(sweep, store, now_ms);
        rc = rc < 0 ? error_set(err, rc, "a sweep: %s", status_text(rc)) : rc;
    }
    rc = rc < 0 ? rc : server_cost(store, &after, err);
    rc = rc < 0 ? rc : slowest(store, &pass->slowest_us, err);
    if (rc >= 0) {
        (void)sweep_report(sweep, &pass->found, &not_due);
        pass->cost.cpu_us = after.cpu_us - before.cpu_us;
        pass->cost.commands = after.commands - before.commands;
    }
    sweep_free(sweep);
    return rc;
}

static int pass_open(const struct bench_case *bench, struct pass *pass, struct impel_error *err)
{
    static const struct store_env env;
    char url[BENCH_URL_SIZE], slow[64], most[64];
    const char *const settings[] = {slow, most, NULL};
    struct store *store = NULL;

    (void)snprintf(slow, sizeof(slow), "CONFIG SET slowlog-log-slower-than %d", SLOW_US);
    (void)snprintf(most, sizeof(most), "CONFIG SET slowlog-max-len %d", SLOW_MAX);
    bench_url(bench, false, url, sizeof(url));
    int rc = store_open(url, &env, &store, err);
    for (int i = 0; rc >= 0 && i < HOLDERS; i++) {
        rc = pass->foreign ? IMPEL_OK : live(store, i, err);
        rc = rc < 0 ? rc : hold(store, i, (bench->entries - pass->gone) / HOLDERS, err);
    }
    rc = rc < 0 ? rc : hold(store, HOLDERS, pass->gone, err);
    rc = rc < 0 ? rc : age(store, err);
    rc = rc < 0 ? rc : commands(store, settings, err);
    rc = rc < 0 ? rc : pass_over(store, pass, err);
    store_close(store);
    return rc;
}

/* A fresh store with the case's entries; one of `series` and `pass` is measured on it. */
static int measure(struct bench_case *bench,
                   size_t runs,
                   struct series *series,
                   struct pass *pass,
                   struct impel_error *err)
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
    if (rc >= 0) {
        rc = pass != NULL ? pass_open(bench, pass, err) : measure_open(bench, runs, series, err);
    }
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

static void print_pass(const struct pass *few, const struct pass *many, uint64_t amount, bool json)
{
    const char *holders = many->foreign ? "others" : "workers";

    if (json) {
        console_outf(
            "{\"work\":\"pass\",\"store\":\"redis\",\"holders\":\"%s\",\"few\":%d,\"many\":%llu,"
            "\"abandoned\":%llu,\"found\":%llu,\"few_cpu_us\":%.0f,\"many_cpu_us\":%.0f,"
            "\"few_commands\":%.0f,\"many_commands\":%.0f,\"slowest_us\":%lld,\"goal_us\":%d}\n",
            holders, FEW, (unsigned long long)amount, (unsigned long long)many->gone,
            (unsigned long long)many->found, few->cost.cpu_us, many->cost.cpu_us,
            few->cost.commands, many->cost.commands, (long long)many->slowest_us, SLOWEST_US);
        return;
    }
    console_outf("  %-14s %8.1f ms %6.0f commands %8.1f ms %6.0f commands %8.1f ms %6.1f\n",
                 holders, few->cost.cpu_us / 1e3, few->cost.commands, many->cost.cpu_us / 1e3,
                 many->cost.commands, (double)many->slowest_us / 1e3, SLOWEST_US / 1e3);
}

/* Both kinds of holders. */
static int passes(struct bench_case *bench, uint64_t amount, bool json, struct impel_error *err)
{
    uint64_t gone = amount / 10 < GONE ? amount / 10 : GONE;
    int rc = IMPEL_OK;

    if (!json) {
        console_outf("\none pass on redis that finds %llu abandoned entries at the far end\n\n"
                     "  held by          with the few                 with the many                "
                     " slowest   goal (at most)\n",
                     (unsigned long long)gone);
    }
    bench->redis = true;
    for (int foreign = 0; rc >= 0 && foreign < 2; foreign++) {
        struct pass few = {.foreign = foreign != 0, .gone = gone}, many = few;
        bench->entries = FEW + gone;
        rc = measure(bench, 1, NULL, &few, err);
        bench->entries = amount;
        rc = rc < 0 ? rc : measure(bench, 1, NULL, &many, err);
        if (rc >= 0) {
            print_pass(&few, &many, amount, json);
        }
    }
    return rc;
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
        rc = measure(&bench, runs, &few, NULL, err);
        bench.entries = amount;
        rc = rc < 0 ? rc : measure(&bench, runs, &many, NULL, err);
        if (rc >= 0) {
            print(redis != 0 ? "redis" : "sync=process", amount, &few, &many, json);
        }
    }
    return rc >= 0 && bench_redis_found() ? passes(&bench, amount, json, err) : rc;
}
