/* bench_sides.c -- what is measured against what. All sides run in turn, round after round, so that
 * a machine that slows down slows all of them, and the medians are compared. */
#include "cli/bench_sides.h"

#include "cli/console.h"
#include "cli/folder.h"

#include <stdlib.h>
#include <string.h>

enum {
    EXEC_SHARE = 100,  /* beside commands that stay: the same */
    PYTHON_SHARE = 10, /* it is given this part of the entries: it takes so much longer */
};

enum side_kind {
    SIDE_PLAIN, /* the loop over LMDB */
    SIDE_IMPEL,
    SIDE_LOOP, /* a program in bench/peers */
    SIDE_EXEC, /* Impel with a command as its handler */
    SIDE_XARGS,
    SIDE_PIPE, /* Impel with commands that stay */
};

enum {
    WORK_STEADY = 1U << BENCH_STEADY,
    WORK_RECOVER = 1U << BENCH_RECOVER,
    WORK_BOTH = WORK_STEADY | WORK_RECOVER,
    WORK_EXEC = 1U << BENCH_EXEC,
    WORK_PIPE = 1U << BENCH_PIPE,
};

struct side {
    enum side_kind kind;
    bool sync_full, redis;
    const char *loop;
    unsigned works; /* for which it is measured */
    uint64_t share;
};

enum side_index {
    PLAIN_FULL,
    IMPEL_FULL,
    PLAIN_PROCESS,
    IMPEL_PROCESS,
    IMPEL_REDIS,
    LOOP_C,
    LOOP_PYTHON,
    IMPEL_EXEC,
    XARGS,
    IMPEL_PIPE,
    EXEC_BESIDE_PIPE,
    SIDE_COUNT,
};
_Static_assert((int)SIDE_COUNT <= (int)BENCH_SIDES_MAX, "a place for each side");

static const struct side sides[] = {
    [PLAIN_FULL] = {SIDE_PLAIN, true, false, NULL, WORK_BOTH, 1},
    [IMPEL_FULL] = {SIDE_IMPEL, true, false, NULL, WORK_BOTH, 1},
    [PLAIN_PROCESS] = {SIDE_PLAIN, false, false, NULL, WORK_BOTH, 1},
    [IMPEL_PROCESS] = {SIDE_IMPEL, false, false, NULL, WORK_BOTH, 1},
    [IMPEL_REDIS] = {SIDE_IMPEL, false, true, NULL, WORK_BOTH, 1},
    [LOOP_C] = {SIDE_LOOP, false, true, "loop", WORK_BOTH, 1},
    [LOOP_PYTHON] = {SIDE_LOOP, false, true, "loop.py", WORK_RECOVER, PYTHON_SHARE},
    [IMPEL_EXEC] = {SIDE_EXEC, true, false, NULL, WORK_EXEC, 1},
    [XARGS] = {SIDE_XARGS, false, false, NULL, WORK_EXEC, 1},
    [IMPEL_PIPE] = {SIDE_PIPE, true, false, NULL, WORK_PIPE, 1},
    [EXEC_BESIDE_PIPE] = {SIDE_EXEC, true, false, NULL, WORK_PIPE, EXEC_SHARE},
};

static const char *const work_names[BENCH_WORKS] = {[BENCH_STEADY] = "steady",
                                                    [BENCH_RECOVER] = "recover",
                                                    [BENCH_EXEC] = "exec",
                                                    [BENCH_PIPE] = "pipe"};

/* goal[work]: the ratio that is to be reached; 0 = none is set. */
static const struct {
    enum side_index side, against;
    const char *side_name, *against_name;
    double goal[BENCH_WORKS];
} comparisons[] = {
    {IMPEL_FULL, PLAIN_FULL, "sync=full", "plain LMDB", {0.5, 0.5, 0, 0}},
    {IMPEL_PROCESS, PLAIN_PROCESS, "sync=process", "plain LMDB", {0.5, 0.5, 0, 0}},
    {IMPEL_REDIS, LOOP_C, "redis", "C loop, redis", {1, 1, 0, 0}},
    {IMPEL_REDIS, LOOP_PYTHON, "redis", "Python loop, redis", {0, 25, 0, 0}},
    {IMPEL_PROCESS, LOOP_C, "sync=process", "C loop, redis", {0, 4, 0, 0}},
    {IMPEL_FULL, LOOP_C, "sync=full", "C loop, redis", {0, 2, 0, 0}},
    {IMPEL_EXEC, XARGS, "sync=full", "xargs -n1 -P4", {0, 0, 1, 0}},
    {IMPEL_PIPE, EXEC_BESIDE_PIPE, "pipe", "a command for each", {0, 0, 0, 20}},
};
_Static_assert(BENCH_EXEC_CONCURRENCY == 4, "as the name says");

static bool side_found(const struct side *side, enum bench_work work)
{
    return (!side->redis || bench_redis_found()) &&
           (side->loop == NULL || bench_loop_found(side->loop)) && (side->works & 1U << work) != 0;
}

static int on_redis(const struct bench_case *bench,
                    const struct side *side,
                    double *seconds,
                    struct impel_error *err)
{
    pid_t pid;
    int rc = bench_redis_start(bench, &pid, err);

    if (rc < 0) {
        return rc;
    }
    if (side->kind == SIDE_IMPEL) {
        rc = bench_impel(bench, seconds, err);
    } else {
        rc = bench_prepare(bench, err);
        rc = rc < 0 ? rc : bench_loop(bench, side->loop, seconds, err);
    }
    bench_redis_end(pid);
    return rc;
}

static int on_disk(const struct bench_case *bench,
                   const struct side *side,
                   double *seconds,
                   struct impel_error *err)
{
    switch (side->kind) {
    case SIDE_PLAIN:
        return bench_plain(bench, seconds, err);
    case SIDE_EXEC:
        return bench_exec(bench, seconds, err);
    case SIDE_XARGS:
        return bench_xargs(bench, seconds, err);
    case SIDE_PIPE:
        return bench_pipe(bench, seconds, err);
    default:
        return bench_impel(bench, seconds, err);
    }
}

/* Entries per second, in a fresh folder below the temporary folder. */
static int measure(const struct bench_case *work,
                   const struct side *side,
                   double *per_s,
                   struct impel_error *err)
{
    struct bench_case bench = *work;
    struct folder folder;
    double seconds = 0;
    int rc = folder_make(&folder, "impel-bench", err);

    if (rc < 0) {
        return rc;
    }
    bench.folder = folder.path;
    bench.sync_full = side->sync_full;
    bench.redis = side->redis;
    bench.entries = bench.entries / side->share > 0 ? bench.entries / side->share : 1;
    if (side->redis) {
        rc = on_redis(&bench, side, &seconds, err);
    } else {
        rc = on_disk(&bench, side, &seconds, err);
    }
    folder_remove(&folder);
    *per_s = (double)bench.entries / seconds;
    return rc;
}

int bench_sides_run(struct bench_sides *run,
                    const struct bench_case *bench,
                    struct impel_error *err)
{
    struct progress progress;
    int rc = IMPEL_OK;

    progress_init(&progress, "measuring", (uint64_t)run->runs);
    for (size_t i = 0; rc >= 0 && i < run->runs; i++) {
        for (size_t s = 0; rc >= 0 && s < SIDE_COUNT; s++) {
            run->found[s] = side_found(&sides[s], bench->work);
            if (run->found[s]) {
                double per_s = 0;
                rc = measure(bench, &sides[s], &per_s, err);
                figures_add(&run->per_s[s], per_s);
            }
        }
        progress_show(&progress, i + 1, i + 1);
    }
    progress_end(&progress);
    return rc;
}

static void print_json(const struct bench_sides *run, const struct bench_case *bench, size_t i)
{
    double side = figures_median(&run->per_s[comparisons[i].side]);
    double against = figures_median(&run->per_s[comparisons[i].against]);

    console_outf("{\"work\":\"%s\",\"impel\":\"%s\",\"against\":\"%s\",\"entries\":%llu,"
                 "\"value_size\":%zu,\"runs\":%zu,\"impel_per_s\":%.0f,\"against_per_s\":%.0f,"
                 "\"ratio\":%.3f",
                 work_names[bench->work], comparisons[i].side_name, comparisons[i].against_name,
                 (unsigned long long)bench->entries, bench->value_size, run->runs, side, against,
                 side / against);
    if (comparisons[i].goal[bench->work] > 0) {
        console_outf(",\"goal\":%.1f", comparisons[i].goal[bench->work]);
    }
    console_outf("}\n");
}

static void print_text(const struct bench_sides *run, const struct bench_case *bench, size_t i)
{
    double side = figures_median(&run->per_s[comparisons[i].side]);
    double against = figures_median(&run->per_s[comparisons[i].against]);

    console_outf("  %-14s %11.0f/s  %-20s %11.0f/s %8.2f", comparisons[i].side_name, side,
                 comparisons[i].against_name, against, side / against);
    if (comparisons[i].goal[bench->work] > 0) {
        console_outf(" %6.1f", comparisons[i].goal[bench->work]);
    }
    console_outf("\n");
}

void bench_sides_print(const struct bench_sides *run, const struct bench_case *bench, bool json)
{
    if (!json) {
        console_outf("%s: %llu entries of %zu bytes, medians of %zu runs\n\n"
                     "  Impel on                     against                              ratio   "
                     "goal\n",
                     work_names[bench->work], (unsigned long long)bench->entries, bench->value_size,
                     run->runs);
    }
    for (size_t i = 0; i < ARRAY_SIZE(comparisons); i++) {
        if (!run->found[comparisons[i].side] || !run->found[comparisons[i].against]) {
            continue;
        }
        if (json) {
            print_json(run, bench, i);
        } else {
            print_text(run, bench, i);
        }
    }
    if (bench->work == BENCH_EXEC || bench->work == BENCH_PIPE) {
        return;
    }
    if (!json) {
        console_outf("\nThe plain loop over LMDB keeps two rows for each pending entry, in "
                     "transactions of the same size, and does nothing else.\n");
    }
    if (!bench_redis_found() || !bench_loop_found("loop") || !bench_loop_found("loop.py")) {
        console_note("not all was measured: %s",
                     bench_redis_found() ? "the loops of bench/peers are not beside this program"
                                         : "there is no redis-server here");
    }
}
