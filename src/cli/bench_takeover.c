/* bench_takeover.c -- how long a killed worker's entries lie still. One process holds them all in
 * running handlers; another, alive beside it, waits for work; the first is killed with SIGKILL, and
 * the clock runs until the second has started the last of them. */
#include "cli/bench.h"
#include "cli/bench_figures.h"
#include "cli/console.h"
#include "cli/folder.h"
#include "runtime/runtime.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HELD = 50,         /* entries in running handlers when their worker is killed */
    WAIT_MS = 120000,  /* what never takes that long is waited for no longer */
    SURVIVOR_MORE = 1, /* one entry more: the survivor's, which shows that it is at work */
};

/* One of the two processes. */
struct party {
    struct runtime *runtime;
    int out; /* a pipe: tells that it holds all, or when each entry was started */
    atomic_int held;
};

static enum impel_outcome hold_for_ever(struct impel_delivery *delivery, void *user)
{
    struct party *party = user;

    (void)delivery;
    if (atomic_fetch_add(&party->held, 1) + 1 == HELD) {
        (void)!write(party->out, "h", 1);
    }
    for (;;) {
        (void)pause();
    }
    return IMPEL_RETRY;
}

static enum impel_outcome note_start(struct impel_delivery *delivery, void *user)
{
    const struct party *party = user;
    double now = bench_now();

    (void)delivery;
    (void)!write(party->out, &now, sizeof(now));
    return IMPEL_DONE;
}

/* In a process of its own, until it is killed. */
static _Noreturn void work(const struct bench_case *bench, bool victim, int out)
{
    struct party party = {.out = out};
    struct runtime_options options;
    char url[BENCH_URL_SIZE];

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_url(bench, bench->sync_full, url, sizeof(url));
    bench_worker(&options, url);
    options.worker.consumer = bytes_of(victim ? "victim" : "survivor");
    options.worker.concurrency = HELD;
    options.worker.prefetch = 0;
    options.handler.kind = victim ? HANDLER_POOL : HANDLER_INLINE;
    options.handler.call = victim ? hold_for_ever : note_start;
    options.handler.user = &party;
    if (runtime_new(&options, &party.runtime, NULL) >= 0) {
        (void)runtime_run(party.runtime, NULL);
    }
    _exit(EXIT_FAILURE);
}

static int start(const struct bench_case *bench, bool victim, pid_t *pid, int *from)
{
    int pipes[2];

    if (pipe(pipes) != 0) {
        return IMPEL_ERR_IO;
    }
    *pid = fork();
    if (*pid == 0) {
        close(pipes[0]);
        work(bench, victim, pipes[1]);
    }
    close(pipes[1]);
    *from = pipes[0];
    return *pid > 0 ? IMPEL_OK : IMPEL_ERR_IO;
}

static void end(pid_t pid, int from)
{
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
    if (from >= 0) {
        close(from);
    }
}

/* Reads exactly so many bytes, unless the other end is gone or takes too long. */
static bool hear(int from, void *data, size_t size)
{
    struct pollfd wait = {.fd = from, .events = POLLIN};
    size_t got = 0;

    while (got < size && poll(&wait, 1, WAIT_MS) > 0) {
        ssize_t more = read(from, (char *)data + got, size - got);
        if (more <= 0) {
            break;
        }
        got += (size_t)more;
    }
    return got == size;
}

/* Seconds from the kill until the last entry was started elsewhere. */
static int measure(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    pid_t victim = -1, survivor = -1;
    int from_victim = -1, from_survivor = -1;
    double started = 0;
    char held;
    int rc = bench_prepare(bench, err);

    if (rc < 0) {
        return rc;
    }
    rc = start(bench, true, &victim, &from_victim);
    rc = rc >= 0 && !hear(from_victim, &held, 1) ? IMPEL_ERR_TIMEOUT : rc;
    rc = rc < 0 ? rc : start(bench, false, &survivor, &from_survivor);
    rc = rc >= 0 && !hear(from_survivor, &started, sizeof(started)) ? IMPEL_ERR_TIMEOUT : rc;
    double killed = bench_now();
    end(victim, from_victim);
    for (int i = 0; rc >= 0 && i < HELD; i++) {
        rc = hear(from_survivor, &started, sizeof(started)) ? IMPEL_OK : IMPEL_ERR_TIMEOUT;
    }
    end(survivor, from_survivor);
    *seconds = started - killed;
    return rc < 0 ? error_set(err, rc, "the entries of a killed worker were not taken over") : rc;
}

static void print(const struct bench_figures *seconds, bool json)
{
    const double goal = 6.5;

    if (json) {
        console_outf("{\"work\":\"takeover\",\"entries\":%d,\"runs\":%zu,\"seconds\":%.3f,"
                     "\"longest\":%.3f,\"goal\":%.1f}\n",
                     HELD, seconds->count, figures_median(seconds), figures_largest(seconds), goal);
        return;
    }
    console_outf(
        "takeover: %d entries of a killed worker run elsewhere after %.2f s, %.2f s at most "
        "(median and largest of %zu runs; dead-after 5 s; the goal is %.1f s)\n",
        HELD, figures_median(seconds), figures_largest(seconds), seconds->count, goal);
}

int bench_takeover(const struct bench_case *work, size_t runs, bool json, struct impel_error *err)
{
    struct bench_figures seconds = {0};
    struct bench_case bench = *work;
    struct progress progress;
    int rc = IMPEL_OK;

    bench.entries = HELD + SURVIVOR_MORE;
    progress_init(&progress, "measuring", (uint64_t)runs);
    for (size_t i = 0; rc >= 0 && i < runs; i++) {
        struct folder folder;
        double one = 0;
        rc = folder_make(&folder, "impel-bench", err);
        if (rc >= 0) {
            bench.folder = folder.path;
            rc = measure(&bench, &one, err);
            folder_remove(&folder);
            figures_add(&seconds, one);
        }
        progress_show(&progress, i + 1, i + 1);
    }
    progress_end(&progress);
    if (rc >= 0) {
        print(&seconds, json);
    }
    return rc;
}
