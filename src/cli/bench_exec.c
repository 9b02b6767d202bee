/* bench_exec.c -- a command for each entry: by a worker of Impel's, and by xargs, which does nothing
 * else and has nothing to lose. The command is `true`: what is measured is what starting costs. */
#include "cli/bench.h"
#include "runtime/runtime.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int bench_exec(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    char command[] = "true";
    char *const argv[] = {command, NULL};
    struct runtime_options options;
    struct runtime *runtime = NULL;
    char url[BENCH_URL_SIZE];
    int rc = bench_prepare(bench, err);

    if (rc < 0) {
        return rc;
    }
    bench_url(bench, bench->sync_full, url, sizeof(url));
    bench_worker(&options, url);
    options.worker.concurrency = BENCH_EXEC_CONCURRENCY;
    options.worker.until_idle = true;
    options.handler.kind = HANDLER_EXEC;
    options.handler.argv = argv;
    rc = runtime_new(&options, &runtime, err);
    double begun = bench_now();
    rc = rc < 0 ? rc : runtime_run(runtime, err);
    *seconds = bench_now() - begun;
    runtime_free(runtime);
    return rc;
}

/* One line an entry, as large as the entries are not: xargs would make arguments of them. */
static int write_lines(const struct bench_case *bench, const char *path, struct impel_error *err)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL;

    for (uint64_t i = 1; good && i <= bench->entries; i++) {
        good = fprintf(file, "%llu\n", (unsigned long long)i) > 0;
    }
    if (file != NULL) {
        good = fclose(file) == 0 && good;
    }
    return good ? IMPEL_OK : error_set(err, IMPEL_ERR_IO, "%s: %s", path, strerror(errno));
}

static void exec_xargs(const char *path)
{
    char places[16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(places, sizeof(places), "-P%d", BENCH_EXEC_CONCURRENCY);
    if (fd >= 0 && dup2(fd, 0) == 0) {
        (void)execlp("xargs", "xargs", "-n1", places, "true", (char *)NULL);
    }
    _exit(127);
}

int bench_xargs(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    char path[BENCH_URL_SIZE];
    int status = 0;

    (void)snprintf(path, sizeof(path), "%s/lines", bench->folder);
    int rc = write_lines(bench, path, err);
    if (rc < 0) {
        return rc;
    }
    double begun = bench_now();
    pid_t pid = fork();
    if (pid < 0) {
        return error_set(err, IMPEL_ERR_IO, "fork: %s", strerror(errno));
    }
    if (pid == 0) {
        exec_xargs(path);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *seconds = bench_now() - begun;
    return status == 0 ? IMPEL_OK
                       : error_set(err, IMPEL_ERR_NOT_FOUND, "xargs could not be run to its end");
}
