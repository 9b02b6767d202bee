/* impel.c -- Impel's side of bench/redis: a worker with a no-op function, until the group is idle.
 *
 *   bench-impel URL steady|recover N
 *
 * Prints the seconds it took. Everything that makes a worker safe is on: beats, renewal, the sweep,
 * fences, the policy. */
#include "runtime/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static enum impel_outcome no_op(struct impel_delivery *delivery, void *user)
{
    (void)delivery;
    (*(long *)user)++;
    return IMPEL_DONE;
}

int main(int argc, char **argv)
{
    const struct impel_bytes streams[] = {bytes_of("bench")};
    struct runtime_options options;
    struct runtime *runtime = NULL;
    struct impel_error err = {0};
    long count = 0;

    if (argc != 4) {
        fprintf(stderr, "usage: bench-impel URL steady|recover N\n");
        return 2;
    }
    runtime_options_init(&options);
    options.store_url = argv[1];
    options.worker.streams = streams;
    options.worker.stream_count = 1;
    options.worker.group = bytes_of("bench");
    options.worker.consumer = bytes_of("worker");
    options.worker.concurrency = 1000;
    options.worker.until_idle = true;
    options.worker.recover_only = strcmp(argv[2], "recover") == 0;
    options.worker.policy.backoff_base_ms = 0;
    options.worker.policy.max_deliveries = 100;
    options.signals = false;
    options.event_level = IMPEL_ERROR;
    options.handler.kind = HANDLER_INLINE;
    options.handler.call = no_op;
    options.handler.user = &count;
    double begun = now();
    int rc = runtime_new(&options, &runtime, &err);
    rc = rc < 0 ? rc : runtime_run(runtime, &err);
    printf("%f\n", now() - begun);
    runtime_free(runtime);
    if (rc < 0 || count != atol(argv[3])) {
        fprintf(stderr, "bench-impel: %ld handled: %s\n", count, err.text);
        return 1;
    }
    return 0;
}
