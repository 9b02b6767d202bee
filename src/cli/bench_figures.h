/* bench_figures.h -- what was measured again and again, and what stands for it. */
#ifndef IMPEL_CLI_BENCH_FIGURES_H
#define IMPEL_CLI_BENCH_FIGURES_H

#include <stddef.h>

enum {
    BENCH_RUNS_MAX = 1000,
};

struct bench_figures {
    double all[BENCH_RUNS_MAX];
    size_t count;
};

void figures_add(struct bench_figures *figures, double figure); /* more than fit are left out */
double figures_median(const struct bench_figures *figures);     /* 0 of none */
double figures_largest(const struct bench_figures *figures);

#endif /* IMPEL_CLI_BENCH_FIGURES_H */
