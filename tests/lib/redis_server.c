/* redis_server.c -- starts and ends redis-servers for tests. Debian's redis-tools has the same binary
 * under the name redis-check-rdb, which looks at its own name to know what it is. $IMPEL_TEST_SERVER
 * names another. */
#include "redis_server.h"

#include "tap.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    START_MS = 30000,
    ARGS_MAX = 40,
};

static bool find(const char *name, char *path, size_t size)
{
    const char *dirs = getenv("PATH");

    for (size_t n; dirs != NULL && *dirs != '\0'; dirs += n + (dirs[n] == ':')) {
        n = strcspn(dirs, ":");
        (void)snprintf(path, size, "%.*s/%s", (int)n, dirs, name);
        if (access(path, X_OK) == 0) {
            return true;
        }
    }
    return false;
}

static const char *binary(const struct redis_server *server, char *path, size_t size)
{
    char twin[PATH_MAX], *real;

    if (server->impel) {
        const char *program = getenv("IMPEL_BIN");
        (void)snprintf(path, size, "%s", program == NULL ? "" : program);
        return program == NULL ? "$IMPEL_BIN names no program" : NULL;
    }
    const char *named = getenv("IMPEL_TEST_SERVER");
    if (named != NULL) {
        (void)snprintf(path, size, "%s", named);
        return access(path, X_OK) == 0 ? NULL : "$IMPEL_TEST_SERVER names no program";
    }
    if (find("redis-server", path, size)) {
        return NULL;
    }
    if (!find("redis-check-rdb", twin, sizeof(twin)) || (real = realpath(twin, NULL)) == NULL) {
        return "no redis-server or redis-check-rdb here";
    }
    (void)snprintf(path, size, "%s/redis-server", server->folder);
    int rc = symlink(real, path);
    free(real);
    return rc == 0 || errno == EEXIST ? NULL : "no link to redis-check-rdb";
}

static void become(const struct redis_server *server, const char *path, const char *const *args)
{
    const char *argv[ARGS_MAX] = {
        path,           "--port", "0", "--unixsocket", server->socket, "--dir",
        server->folder, "--save", "",  "--appendonly", "no",           "--loglevel",
        "warning"};
    size_t n = 13;
    char log[64], store[80];

    for (; args != NULL && *args != NULL && n + 1 < ARGS_MAX; args++) {
        argv[n++] = *args;
    }
    if (server->impel) {
        (void)snprintf(store, sizeof(store), "lmdb:%s/db?sync=process", server->folder);
        const char *serve[] = {path, "serve", "--store", store, "--unix", server->socket, NULL};
        memcpy(argv, serve, sizeof(serve));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(log, sizeof(log), "%s/log", server->folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    execv(path, (char *const *)argv);
    _exit(127);
}

static bool answers(const struct redis_server *server)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", server->socket);
    int rc = connect(fd, (const struct sockaddr *)&address, sizeof(address));
    close(fd);
    return rc == 0;
}

/* Waits until it answers; whether it does. */
static bool comes_up(struct redis_server *server)
{
    for (int ms = 0; ms < START_MS && server->pid > 0; ms += 5) {
        if (answers(server)) {
            return true;
        }
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
        }
        (void)poll(NULL, 0, 5);
    }
    return false;
}

const char *redis_server_again(struct redis_server *server, const char *const *args)
{
    char path[PATH_MAX];
    const char *why = binary(server, path, sizeof(path));

    if (why != NULL) {
        return why;
    }
    server->pid = fork();
    if (server->pid == 0) {
        become(server, path, args);
    }
    bool is_up = comes_up(server);
    if (!is_up) {
        printf("# the server %s, see %s/log\n",
               server->pid > 0 ? "does not answer" : "ended at once", server->folder);
        redis_server_kill(server);
    }
    CHECK(is_up);
    return NULL;
}

static const char *start(struct redis_server *server, const char *const *args)
{
    (void)snprintf(server->folder, sizeof(server->folder), "/tmp/impel-redis-XXXXXX");
    if (mkdtemp(server->folder) == NULL) {
        return "no temporary folder";
    }
    (void)snprintf(server->socket, sizeof(server->socket), "%s/s", server->folder);
    const char *why = redis_server_again(server, args);
    if (why != NULL) {
        redis_server_end(server);
    }
    return why;
}

const char *redis_server_start(struct redis_server *server, const char *const *args)
{
    *server = (struct redis_server){.pid = 0};
    return start(server, args);
}

const char *redis_server_start_impel(struct redis_server *server)
{
    *server = (struct redis_server){.impel = true};
    return start(server, NULL);
}

void redis_server_kill(struct redis_server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
        unlink(server->socket);
    }
    server->pid = 0;
}

void redis_server_end(struct redis_server *server)
{
    char command[128];

    redis_server_kill(server);
    if (server->folder[0] != '\0') {
        (void)snprintf(command, sizeof(command), "rm -rf '%s'", server->folder);
        if (system(command) != 0) {
            printf("# %s is left\n", server->folder);
        }
    }
    server->folder[0] = '\0';
}
