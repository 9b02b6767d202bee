/* command_bench.c -- impel bench: how fast work is recovered and worked through, against what others
 * do, how soon a killed worker's is, what a sweep costs, and how much memory a worker takes. */
#include "cli/bench.h"
#include "cli/bench_sides.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/folder.h"

#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES = 100000,
    EXEC_ENTRIES = 500,
    PIPE_ENTRIES = 50000,
    MEMORY_ENTRIES = 10000,
    MEMORY_VALUE_SIZE = 1024,
    MEMORY_LIMIT_MIB = 48,
};

static int
bench_throughput(const struct options *options, enum bench_work work, struct impel_error *err)
{
    struct bench_sides *run = calloc(1, sizeof(*run));
    struct bench_case bench = {
        .work = work,
        .entries = options->entries > 0 ? (uint64_t)options->entries
                   : work == BENCH_EXEC ? EXEC_ENTRIES
                   : work == BENCH_PIPE ? PIPE_ENTRIES
                                        : ENTRIES,
        .value_size = (size_t)options->value_size,
    };

    if (run == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    run->runs = options->runs < BENCH_RUNS_MAX ? (size_t)options->runs : BENCH_RUNS_MAX;
    int rc = bench_sides_run(run, &bench, err);
    if (rc >= 0) {
        bench_sides_print(run, &bench, options->json);
    }
    free(run);
    return rc;
}

static int bench_held(const struct options *options, struct impel_error *err)
{
    struct bench_case bench = {
        .entries = options->entries > 0 ? (uint64_t)options->entries : MEMORY_ENTRIES,
        .value_size =
            option_given(options, "value-size") ? (size_t)options->value_size : MEMORY_VALUE_SIZE,
    };
    struct folder folder;
    uint64_t bytes = 0;
    int rc = folder_make(&folder, "impel-bench", err);

    if (rc < 0) {
        return rc;
    }
    bench.folder = folder.path;
    rc = bench_memory(&bench, &bytes, err);
    folder_remove(&folder);
    if (rc < 0) {
        return rc;
    }
    if (options->json) {
        console_outf("{\"work\":\"memory\",\"entries\":%llu,\"value_size\":%zu,\"bytes\":%llu}\n",
                     (unsigned long long)bench.entries, bench.value_size,
                     (unsigned long long)bytes);
    } else {
        console_outf("memory: a worker that holds %llu entries of %zu bytes takes %.1f MiB beyond "
                     "the mapped file (the limit for %d of %d bytes is %d MiB)\n",
                     (unsigned long long)bench.entries, bench.value_size,
                     (double)bytes / (1024 * 1024), MEMORY_ENTRIES, MEMORY_VALUE_SIZE,
                     MEMORY_LIMIT_MIB);
    }
    return IMPEL_OK;
}

static int bench_once(const struct options *options,
                      int (*measure)(const struct bench_case *, size_t, bool, struct impel_error *),
                      struct impel_error *err)
{
    struct bench_case bench = {.entries = options->entries > 0 ? (uint64_t)options->entries : 0,
                               .value_size = (size_t)options->value_size};

    return measure(&bench, (size_t)options->runs, options->json, err);
}

int command_bench(struct options *options, struct impel_error *err)
{
    const char *word = options->words.count == 0 ? "" : options->words.texts[0];
    int rc;

    if (strcmp(word, "memory") == 0) {
        rc = bench_held(options, err);
    } else if (strcmp(word, "recover") == 0) {
        rc = bench_throughput(options, BENCH_RECOVER, err);
    } else if (strcmp(word, "steady") == 0) {
        rc = bench_throughput(options, BENCH_STEADY, err);
    } else if (strcmp(word, "exec") == 0) {
        rc = bench_throughput(options, BENCH_EXEC, err);
    } else if (strcmp(word, "pipe") == 0) {
        rc = bench_throughput(options, BENCH_PIPE, err);
    } else if (strcmp(word, "answer") == 0) { /* for `pipe`, not for people */
        rc = bench_answer(err);
    } else if (strcmp(word, "takeover") == 0) {
        rc = bench_once(options, bench_takeover, err);
    } else if (strcmp(word, "sweep") == 0) {
        rc = bench_once(options, bench_sweep, err);
    } else {
        rc = error_set(
            err, IMPEL_ERR_INVALID,
            "what to measure? impel bench recover, steady, exec, pipe, takeover, sweep or memory");
    }
    return rc < 0 ? rc : EXIT_DONE;
}
