/* command_bench.c -- impel bench: runs both sides in turn, so that a machine that slows down slows
 * both, and compares the medians. */
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/folder.h"

#include <stdlib.h>
#include <string.h>

enum {
    RUNS_MAX = 1000,
    MEMORY_ENTRIES = 10000,
    MEMORY_VALUE_SIZE = 1024,
    MEMORY_LIMIT_MIB = 48,
};

struct comparison {
    const char *name;
    double plain[RUNS_MAX], impel[RUNS_MAX]; /* seconds */
    size_t count;
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), compare_doubles);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Runs one side in a fresh folder below the temporary folder. */
static int in_folder(struct bench_case *bench,
                     int (*side)(const struct bench_case *, double *, struct impel_error *),
                     double *seconds,
                     struct impel_error *err)
{
    char folder[FOLDER_PATH_SIZE];
    int rc = folder_make("impel-bench", folder, err);

    if (rc < 0) {
        return rc;
    }
    bench->folder = folder;
    rc = side(bench, seconds, err);
    folder_remove(folder);
    return rc;
}

static int compare(struct comparison *comparison,
                   struct bench_case *bench,
                   const struct options *options,
                   struct progress *progress,
                   struct impel_error *err)
{
    comparison->count = (size_t)options->runs;
    for (size_t i = 0; i < comparison->count; i++) {
        int rc = in_folder(bench, bench_plain, &comparison->plain[i], err);
        if (rc >= 0) {
            rc = in_folder(bench, bench_impel, &comparison->impel[i], err);
        }
        if (rc < 0) {
            return rc;
        }
        progress_show(progress, i + 1, i + 1);
    }
    return IMPEL_OK;
}

static void print_comparison(struct comparison *comparison,
                             const struct bench_case *bench,
                             const char *work,
                             bool json)
{
    double plain = (double)bench->entries / median(comparison->plain, comparison->count);
    double impel = (double)bench->entries / median(comparison->impel, comparison->count);

    if (json) {
        console_outf("{\"work\":\"%s\",\"sync\":\"%s\",\"entries\":%llu,\"value_size\":%zu,"
                     "\"runs\":%zu,\"plain_per_s\":%.0f,\"impel_per_s\":%.0f,\"ratio\":%.3f}\n",
                     work, comparison->name, (unsigned long long)bench->entries, bench->value_size,
                     comparison->count, plain, impel, impel / plain);
        return;
    }
    console_outf("  sync=%-10s %11.0f/s %11.0f/s    %.2f\n", comparison->name, plain, impel,
                 impel / plain);
}

static int bench_throughput(const struct options *options,
                            enum bench_work work,
                            struct comparison *comparison,
                            struct impel_error *err)
{
    const char *name = options->words.texts[0];
    struct bench_case bench = {
        .work = work,
        .entries = options->entries > 0 ? (uint64_t)options->entries : 100000,
        .value_size = (size_t)options->value_size,
    };

    if (!options->json) {
        console_outf(
            "%s: %llu entries of %zu bytes, medians of %lld runs; the plain loop makes the "
            "same writes to LMDB, in transactions of the same size, and nothing else\n\n"
            "                       plain LMDB         Impel    ratio\n",
            name, (unsigned long long)bench.entries, bench.value_size, (long long)options->runs);
    }
    for (int full = 1; full >= 0; full--) {
        struct progress progress;
        bench.sync_full = full == 1;
        comparison->name = full == 1 ? "full" : "process";
        progress_init(&progress, "measuring", (uint64_t)options->runs);
        int rc = compare(comparison, &bench, options, &progress, err);
        progress_end(&progress);
        if (rc < 0) {
            return rc;
        }
        print_comparison(comparison, &bench, name, options->json);
        console_flush(NULL);
    }
    return IMPEL_OK;
}

/* bench_memory() in the shape of a measurement: bytes instead of seconds. */
static int
measure_memory(const struct bench_case *bench, double *size_bytes, struct impel_error *err)
{
    uint64_t bytes = 0;
    int rc = bench_memory(bench, &bytes, err);

    *size_bytes = (double)bytes;
    return rc;
}

static int bench_held(const struct options *options, struct impel_error *err)
{
    struct bench_case bench = {
        .entries = options->entries > 0 ? (uint64_t)options->entries : MEMORY_ENTRIES,
        .value_size =
            option_given(options, "value-size") ? (size_t)options->value_size : MEMORY_VALUE_SIZE,
    };
    double size_bytes;
    int rc = in_folder(&bench, measure_memory, &size_bytes, err);

    if (rc < 0) {
        return rc;
    }
    if (options->json) {
        console_outf("{\"work\":\"memory\",\"entries\":%llu,\"value_size\":%zu,\"bytes\":%.0f}\n",
                     (unsigned long long)bench.entries, bench.value_size, size_bytes);
    } else {
        console_outf("memory: a worker that holds %llu entries of %zu bytes takes %.1f MiB beyond "
                     "the mapped file (the limit for %d of %d bytes is %d MiB)\n",
                     (unsigned long long)bench.entries, bench.value_size,
                     size_bytes / (1024 * 1024), MEMORY_ENTRIES, MEMORY_VALUE_SIZE,
                     MEMORY_LIMIT_MIB);
    }
    return IMPEL_OK;
}

int command_bench(struct options *options, struct impel_error *err)
{
    const char *word = options->words.count == 0 ? "" : options->words.texts[0];
    struct comparison *comparison;
    int rc;

    if (strcmp(word, "memory") == 0) {
        rc = bench_held(options, err);
        return rc < 0 ? rc : EXIT_DONE;
    }
    if (strcmp(word, "recover") != 0 && strcmp(word, "steady") != 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "what to measure? impel bench recover, steady or memory");
    }
    comparison = calloc(1, sizeof(*comparison));
    if (comparison == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = bench_throughput(options, strcmp(word, "steady") == 0 ? BENCH_STEADY : BENCH_RECOVER,
                          comparison, err);
    free(comparison);
    return rc < 0 ? rc : EXIT_DONE;
}
