/* bench_redis.c -- a redis-server of the benchmark's own (a unix socket in the run's folder, nothing
 * written to disk), and the loops that people write against one, as programs of their own in
 * bench/peers beside this program. */
#include "cli/bench.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_MS = 30000,
};

static bool in_path(const char *name, char *path, size_t size)
{
    const char *dirs = getenv("PATH");

    for (size_t n; dirs != NULL && *dirs != '\0'; dirs += n + (dirs[n] == ':')) {
        n = strcspn(dirs, ":");
        snprintf(path, size, "%.*s/%s", (int)n, dirs, name);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* The server under its own name, or the twin that Debian's redis-tools has: it looks at its argv[0]
 * to know what it is. */
static bool find_server(char *path, size_t size)
{
    return in_path("redis-server", path, size) || in_path("redis-check-rdb", path, size);
}

static bool find_peer(const char *name, char *path, size_t size)
{
    char own[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);

    if (n <= 0) {
        return false;
    }
    own[n] = '\0';
    *strrchr(own, '/') = '\0';
    return (size_t)snprintf(path, size, "%s/bench/peers/%s", own, name) < size &&
           access(path, X_OK) == 0;
}

bool bench_redis_found(void)
{
    char path[PATH_MAX];
    return find_server(path, sizeof(path));
}

bool bench_loop_found(const char *name)
{
    char path[PATH_MAX + 32];
    return find_peer(name, path, sizeof(path));
}

void bench_socket(const struct bench_case *bench, char *path, size_t size)
{
    snprintf(path, size, "%s/redis", bench->folder);
}

static void exec_server(const char *path, const char *socket, const char *folder)
{
    char log[256];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(log, sizeof(log), "%s/redis.log", folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execl(path, "redis-server", "--port", "0", "--unixsocket", socket, "--dir", folder, "--save",
          "", "--appendonly", "no", "--loglevel", "warning", (char *)NULL);
    _exit(127);
}

static bool answers(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
    return rc == 0;
}

int bench_redis_start(const struct bench_case *bench, pid_t *pid, struct impel_error *err)
{
    char path[PATH_MAX], socket[sizeof(((struct sockaddr_un *)NULL)->sun_path)];

    if (!find_server(path, sizeof(path))) {
        return error_set(err, IMPEL_ERR_NOT_FOUND, "no redis-server here");
    }
    bench_socket(bench, socket, sizeof(socket));
    *pid = fork();
    if (*pid < 0) {
        return error_set(err, IMPEL_ERR_IO, "fork: %s", strerror(errno));
    }
    if (*pid == 0) {
        exec_server(path, socket, bench->folder);
    }
    for (int ms = 0; ms < START_MS; ms += 5) {
        if (answers(socket)) {
            return IMPEL_OK;
        }
        if (waitpid(*pid, NULL, WNOHANG) == *pid) {
            return error_set(err, IMPEL_ERR_IO, "%s ended at once", path);
        }
        (void)poll(NULL, 0, 5);
    }
    bench_redis_end(*pid);
    return error_set(err, IMPEL_ERR_TIMEOUT, "%s does not answer", path);
}

void bench_redis_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- the loops ---- */

static void exec_loop(const char *path, const struct bench_case *bench, int out)
{
    const char *work = bench->work == BENCH_RECOVER ? "recover" : "steady";
    char socket[128];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_socket(bench, socket, sizeof(socket));
    dup2(out, 1);
    execl(path, path, work, socket, BENCH_STREAM, BENCH_GROUP, (char *)NULL);
    _exit(127);
}

static int read_result(int fd, unsigned long long *count, double *seconds)
{
    FILE *file = fdopen(fd, "r");
    char line[128];
    char *end;

    if (file == NULL) {
        close(fd);
        return IMPEL_ERR_NOMEM;
    }
    bool good = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    if (!good) {
        return IMPEL_ERR_IO;
    }
    *count = strtoull(line, &end, 10);
    *seconds = strtod(end, NULL);
    return *seconds > 0 ? IMPEL_OK : IMPEL_ERR_IO;
}

int bench_loop(const struct bench_case *bench,
               const char *name,
               double *seconds,
               struct impel_error *err)
{
    char path[PATH_MAX + 32];
    unsigned long long count = 0;
    int pipes[2], status = 0;

    if (!find_peer(name, path, sizeof(path))) {
        return error_set(err, IMPEL_ERR_NOT_FOUND, "no bench/peers/%s beside this program", name);
    }
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return error_set(err, IMPEL_ERR_IO, "pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        exec_loop(path, bench, pipes[1]);
    }
    close(pipes[1]);
    int rc = read_result(pipes[0], &count, seconds);
    if (pid > 0) {
        waitpid(pid, &status, 0);
    }
    if (pid < 0 || rc < 0 || status != 0) {
        return error_set(err, IMPEL_ERR_IO, "%s failed", path);
    }
    if (count != bench->entries) {
        return error_set(err, IMPEL_ERR_IO, "%s finished %llu entries instead of %llu", path, count,
                         (unsigned long long)bench->entries);
    }
    return IMPEL_OK;
}
