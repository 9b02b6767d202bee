/* bench_sides.h -- all sides of one measurement, and how they compare. */
#ifndef IMPEL_CLI_BENCH_SIDES_H
#define IMPEL_CLI_BENCH_SIDES_H

#include "cli/bench.h"
#include "cli/bench_figures.h"

enum {
    BENCH_SIDES_MAX = 11,
};

struct bench_sides {
    size_t runs; /* how often each side is measured */
    bool found[BENCH_SIDES_MAX];
    struct bench_figures per_s[BENCH_SIDES_MAX]; /* entries */
};

int bench_sides_run(struct bench_sides *run,
                    const struct bench_case *bench,
                    struct impel_error *err);
void bench_sides_print(const struct bench_sides *run, const struct bench_case *bench, bool json);

#endif /* IMPEL_CLI_BENCH_SIDES_H */
