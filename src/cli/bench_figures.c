/* bench_figures.c -- medians: one slow run among several says more of the machine than of the work. */
#include "cli/bench_figures.h"

#include <stdlib.h>
#include <string.h>

void figures_add(struct bench_figures *figures, double figure)
{
    if (figures->count < BENCH_RUNS_MAX) {
        figures->all[figures->count++] = figure;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double figures_median(const struct bench_figures *figures)
{
    double sorted[BENCH_RUNS_MAX];
    size_t count = figures->count, half = count / 2;

    if (count == 0) {
        return 0;
    }
    memcpy(sorted, figures->all, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare);
    return count % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double figures_largest(const struct bench_figures *figures)
{
    double largest = 0;

    for (size_t i = 0; i < figures->count; i++) {
        largest = figures->all[i] > largest ? figures->all[i] : largest;
    }
    return largest;
}
