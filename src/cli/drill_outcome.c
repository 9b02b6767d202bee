/* drill_outcome.c -- reading what came of the drill: the workers' metrics files, the lines that the
 * handlers left, the dead-letter stream. */
#include "cli/drill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every counter that is promised; all must stand in every survivor's file. */
static const struct counter {
    const char *name;
    size_t offset; /* in struct drill_metrics; SIZE_MAX: only looked for */
} counters[] = {
    {"impel_delivered_total", SIZE_MAX},
    {"impel_done_total", SIZE_MAX},
    {"impel_retried_total", offsetof(struct drill_metrics, retried)},
    {"impel_redelivered_total", offsetof(struct drill_metrics, redelivered)},
    {"impel_claimed_total", offsetof(struct drill_metrics, claimed)},
    {"impel_parked_total", offsetof(struct drill_metrics, parked)},
    {"impel_lost_total", offsetof(struct drill_metrics, lost)},
    {"impel_late_acks_total", SIZE_MAX},
    {"impel_released_total", SIZE_MAX},
    {"impel_renewed_total", SIZE_MAX},
    {"impel_sweeps_total", offsetof(struct drill_metrics, sweeps)},
    {"impel_sweep_due", offsetof(struct drill_metrics, due)},
    {"impel_sweep_not_due", offsetof(struct drill_metrics, not_due)},
    {"impel_held", SIZE_MAX},
    {"impel_recovery_seconds_count", offsetof(struct drill_metrics, recovery_count)},
    {"impel_recovery_seconds_sum", offsetof(struct drill_metrics, recovery_seconds)},
};

/* Adds one line of a metrics file; returns the row of its counter, or -1. */
static int take_line(struct drill_metrics *metrics, const char *line)
{
    const char *brace = strchr(line, '{');
    const char *value = strrchr(line, ' ');

    for (size_t i = 0; brace != NULL && value != NULL && i < ARRAY_SIZE(counters); i++) {
        size_t size = strlen(counters[i].name);
        if (size != (size_t)(brace - line) || memcmp(line, counters[i].name, size) != 0) {
            continue;
        }
        if (counters[i].offset != SIZE_MAX) {
            *(double *)(void *)((char *)metrics + counters[i].offset) += strtod(value, NULL);
        }
        return (int)i;
    }
    return -1;
}

/* False if a counter is missing. */
static bool read_file(struct drill_metrics *metrics, const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned seen = 0;
    char line[512];

    if (file == NULL) {
        return false;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        int row = take_line(metrics, line);
        seen |= row < 0 ? 0 : 1U << row;
    }
    fclose(file);
    return seen == (1U << ARRAY_SIZE(counters)) - 1;
}

void drill_read_metrics(const struct drill *drill, struct drill_metrics *metrics)
{
    *metrics = (struct drill_metrics){.complete = true};
    for (size_t i = 0; i < drill->worker_count; i++) {
        const struct drill_worker *worker = &drill->workers[i];
        /* What a killed worker counted after its last second is lost with it, so only those count
         * who could tell all. */
        if (!worker->killed && !read_file(metrics, worker->metrics_path)) {
            metrics->complete = false;
        }
    }
}

void drill_read_done(const struct drill *drill, uint64_t *distinct, uint64_t *again)
{
    unsigned char *seen = calloc(drill->entries + 1, 1);
    FILE *file = fopen(drill->done_path, "r");
    char line[64];

    *distinct = *again = 0;
    while (seen != NULL && file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long number = strtoull(line, NULL, 10);
        if (number == 0 || number > drill->entries) {
            continue;
        }
        *(seen[number] ? again : distinct) += 1;
        seen[number] = 1;
    }
    if (file != NULL) {
        fclose(file);
    }
    free(seen);
}

int drill_count_parked(const struct drill *drill, uint64_t *parked, struct impel_error *err)
{
    struct request *info =
        session_request(REQUEST_INFO, bytes_of(drill->dead_letter), (struct impel_bytes){0});
    int rc = session_ask(drill->store, info, err);

    *parked = rc < 0 ? 0 : info->info.length;
    request_free(info);
    return rc;
}
