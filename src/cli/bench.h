/* bench.h -- one measurement: the same work done by Impel, by a plain LMDB loop, and by the loops
 * that people write against Redis.
 *
 * `exec` measures a command for each entry, against xargs, and `pipe` commands that stay, against a
 * command for each entry; `takeover` and `sweep` have no other side,
 * but a goal.
 *
 * All sides work in a fresh folder (and a fresh redis-server) on entries of the same size, and only
 * the work itself is timed, not the making of the entries, nor the starting of programs. */
#ifndef IMPEL_CLI_BENCH_H
#define IMPEL_CLI_BENCH_H

#include "base/base.h"

#include <sys/types.h>

#define BENCH_STREAM "bench"
#define BENCH_GROUP  "bench"

enum bench_work {
    BENCH_STEADY,  /* read, no-op handler, ack */
    BENCH_RECOVER, /* claim what somebody else left, check the count, ack */
    BENCH_EXEC,    /* a command for each */
    BENCH_PIPE,    /* commands that stay */
    BENCH_WORKS,
};

enum {
    BENCH_ADD_BATCH = 2000,   /* entries that are made in one transaction */
    BENCH_READ_BATCH = 1000,  /* of a read: WORKER_READ_MAX */
    BENCH_CLAIM_BATCH = 1000, /* of a claim: SWEEP_CLAIMS_MAX */
    /* Places for recovered entries, which never wait in a buffer: for those that are worked on, and for
     * the claim that is under way meanwhile. */
    BENCH_CONCURRENCY = 2000,
    BENCH_EXEC_CONCURRENCY = 4,
    BENCH_PIPE_PROCESSES = 2,
    BENCH_PIPE_CONCURRENCY = 256, /* of both together */
    BENCH_URL_SIZE = 256,
};

struct bench_case {
    enum bench_work work;
    bool sync_full; /* an fsync for each commit; else none */
    bool redis;     /* on the redis-server of bench_redis_start() instead of the embedded store */
    uint64_t entries;
    size_t value_size;
    const char *folder; /* a fresh one, of this run's own */
};

/* Each gives the seconds that the work took. */
int bench_plain(const struct bench_case *bench, double *seconds, struct impel_error *err);
int bench_impel(const struct bench_case *bench, double *seconds, struct impel_error *err);
int bench_exec(const struct bench_case *bench, double *seconds, struct impel_error *err);
int bench_pipe(const struct bench_case *bench, double *seconds, struct impel_error *err);
/* What bench_pipe() gives its entries to: answers each line with `done`. */
int bench_answer(struct impel_error *err);
int bench_xargs(const struct bench_case *bench, double *seconds, struct impel_error *err);
/* By bench/peers/NAME, on entries that bench_prepare() has made. */
int bench_loop(const struct bench_case *bench,
               const char *name,
               double *seconds,
               struct impel_error *err);
bool bench_loop_found(const char *name);

/* Makes the entries, the group, and for BENCH_RECOVER reads them all for a consumer that is gone. */
int bench_prepare(const struct bench_case *bench, struct impel_error *err);

struct store;
struct request;
struct runtime_options;
/* The store of the case; `url` holds BENCH_URL_SIZE bytes. */
void bench_url(const struct bench_case *bench, bool sync_full, char *url, size_t size);
/* Options of a worker of the case's group on that store, which has to outlive them. */
void bench_worker(struct runtime_options *options, const char *url);
/* Waits for the request and frees it; NULL is memory that was out. */
int bench_ask(struct store *store, struct request *request, struct impel_error *err);

/* A redis-server in the folder of the case, without persistence. */
bool bench_redis_found(void);
int bench_redis_start(const struct bench_case *bench, pid_t *pid, struct impel_error *err);
void bench_redis_end(pid_t pid);
void bench_socket(const struct bench_case *bench, char *path, size_t size);

double bench_now(void); /* seconds, for differences */
/* What was written to the file before is on the disk, so that the work does not pay for it. */
void bench_settle(const char *path);

/* How much memory, beyond what it has without entries, a worker takes that holds `entries` of
 * `value_size` bytes; mapped files do not count. */
int bench_memory(const struct bench_case *bench, uint64_t *size_bytes, struct impel_error *err);
/* Each measures so often, and prints. */
int bench_takeover(const struct bench_case *work, size_t runs, bool json, struct impel_error *err);
int bench_sweep(const struct bench_case *work, size_t runs, bool json, struct impel_error *err);

#endif /* IMPEL_CLI_BENCH_H */
