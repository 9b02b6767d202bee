/* bench.h -- one measurement: the same work done by Impel and by a plain LMDB loop.
 *
 * Both sides work in a fresh folder on the same number of entries of the same size, and only the
 * work itself is timed, not the making of the entries. */
#ifndef IMPEL_CLI_BENCH_H
#define IMPEL_CLI_BENCH_H

#include "base/base.h"

enum bench_work {
    BENCH_STEADY,  /* read, no-op handler, ack */
    BENCH_RECOVER, /* claim what somebody else left, check the count, ack */
};

enum {
    BENCH_READ_BATCH = 1000,  /* of a read: WORKER_READ_MAX */
    BENCH_CLAIM_BATCH = 200,  /* of a claim: SWEEP_CLAIMS_MAX */
    BENCH_CONCURRENCY = 1000, /* places for recovered entries, which never wait in a buffer */
};

struct bench_case {
    enum bench_work work;
    bool sync_full; /* an fsync for each commit; else none */
    uint64_t entries;
    size_t value_size;
    const char *folder; /* a fresh one, of this run's own */
};

/* Each gives the seconds that the work took. */
int bench_plain(const struct bench_case *bench, double *seconds, struct impel_error *err);
int bench_impel(const struct bench_case *bench, double *seconds, struct impel_error *err);

double bench_now(void); /* seconds, for differences */

/* How much memory, beyond what it has without entries, a worker takes that holds `entries` of
 * `value_size` bytes; mapped files do not count. */
int bench_memory(const struct bench_case *bench, uint64_t *size_bytes, struct impel_error *err);

#endif /* IMPEL_CLI_BENCH_H */
