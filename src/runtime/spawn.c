/* spawn.c -- clone, a few system calls, exec. */
#include "runtime/spawn.h"

#include "runtime/guard.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STACK_SIZE = 64 * 1024, /* execve of glibc needs little; argv for a shell is on it as well */
    ARGS_MAX = 4096,        /* of a script without an interpreter line, which a shell runs */
};

/* ---- finding the program ---- */

static bool can_run(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static int not_runnable(const char *name, struct impel_error *err)
{
    struct stat info;
    const char *why = strerror(errno);
    if (stat(name, &info) == 0) {
        why = S_ISDIR(info.st_mode)    ? "it is a folder"
              : !S_ISREG(info.st_mode) ? "it is no file"
                                       : "it is not executable (chmod +x)";
    }
    return error_set(err, IMPEL_ERR_INVALID, "cannot run the command '%s': %s", name, why);
}

int spawn_find(const char *name, char **path, struct impel_error *err)
{
    const char *folders = getenv("PATH");
    if (name[0] == '\0') {
        return error_set(err, IMPEL_ERR_INVALID, "the command is empty");
    }
    if (strchr(name, '/') != NULL) {
        *path = can_run(name) ? strdup(name) : NULL;
        return *path != NULL ? IMPEL_OK : not_runnable(name, err);
    }
    if (folders == NULL || folders[0] == '\0') {
        folders = _PATH_DEFPATH;
    }
    while (folders != NULL) {
        const char *end = strchrnul(folders, ':');
        int size = (int)(end - folders);
        char *candidate = NULL;
        if (asprintf(&candidate, "%.*s%s%s", size, folders, size > 0 ? "/" : "./", name) < 0) {
            return error_set(err, IMPEL_ERR_NOMEM, "no memory to find the command '%s'", name);
        }
        if (can_run(candidate)) {
            *path = candidate;
            return IMPEL_OK;
        }
        free(candidate);
        folders = *end == ':' ? end + 1 : NULL;
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "cannot run the command '%s': it is in no folder of $PATH", name);
}

/* ---- descriptors ---- */

int spawn_pipe(int fds[2])
{
    if (pipe2(fds, O_CLOEXEC) != 0) {
        fds[0] = fds[1] = -1;
        return -1;
    }
    for (int i = 0; i < 2; i++) {
        if (fds[i] > STDERR_FILENO) {
            continue;
        }
        int higher = fcntl(fds[i], F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        int saved = errno;
        (void)close(fds[i]);
        fds[i] = higher;
        if (higher < 0) {
            (void)close(fds[1 - i]);
            fds[0] = fds[1] = -1;
            errno = saved;
            return -1;
        }
    }
    return 0;
}

static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0) {
        return;
    }
    /* Before Linux 5.9: all of our own are close-on-exec; of others' this gets the usual ones. */
    for (unsigned fd = first; fd <= last && fd < 65536; fd++) {
        (void)close((int)fd);
    }
}

void spawn_close_all_but(int first, int second)
{
    unsigned low = (unsigned)(second >= 0 && second < first ? second : first);
    unsigned high = (unsigned)(second > first ? second : first);

    if (low > 0) {
        close_between(0, low - 1);
    }
    close_between(low + 1, high > 0 ? high - 1 : 0);
    close_between(high + 1, ~0U);
}

/* ---- signals ---- */

void spawn_reset_signals(void (*disposition)(int))
{
    struct sigaction action = {.sa_handler = disposition};
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        (void)sigaction(number, &action, NULL);
    }
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- the child ---- */

struct child {
    const struct spawner *spawner;
    pid_t parent;
    const struct spawn_files *files;
    char *const *env, *const *small_env;
    char **shell_argv; /* "sh", path, the rest: for a file that the kernel takes for no program */
};

static int exec_once(const struct child *child, char *const *env)
{
    (void)execve(child->spawner->path, child->spawner->argv, env);
    if (errno == ENOEXEC && child->shell_argv != NULL) {
        (void)execve(_PATH_BSHELL, child->shell_argv, env);
    }
    return errno;
}

/* Runs in the memory of the parent, which stands still until this execs or exits. */
static int child_main(void *user)
{
    const struct child *child = user;
    const struct spawner *spawner = child->spawner;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != child->parent) {
        _exit(127); /* the parent died before that took effect */
    }
    (void)signal(SIGPIPE, SIG_IGN); /* the guard may be gone */
    spawner->shared->registered = spawner->guard_fd >= 0 && guard_note(spawner->guard_fd, getpid());
    spawn_reset_signals(SIG_DFL);
    int error = 0;
    const struct spawn_files *files = child->files;
    if (dup2(files->in, STDIN_FILENO) < 0 || dup2(files->err, STDERR_FILENO) < 0 ||
        (files->out >= 0 && dup2(files->out, STDOUT_FILENO) < 0)) {
        error = errno;
    } else {
        close_between(STDERR_FILENO + 1, ~0U);
        error = exec_once(child, child->env);
        if (error == E2BIG) {
            error = exec_once(child, child->small_env);
        }
    }
    spawner->shared->error = error;
    _exit(127);
}

/* ---- the parent ---- */

int spawner_init(struct spawner *spawner, struct impel_error *err)
{
    spawner->guard_fd = -1;
    spawner->stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    spawner->shared = mmap(NULL, sizeof *spawner->shared, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (spawner->stack == MAP_FAILED || spawner->shared == MAP_FAILED) {
        spawner_release(spawner);
        return error_set(err, IMPEL_ERR_NOMEM, "no memory to start commands");
    }
    int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    spawner->pidfds = fd >= 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return IMPEL_OK;
}

void spawner_release(struct spawner *spawner)
{
    if (spawner->stack != NULL && spawner->stack != MAP_FAILED) {
        (void)munmap(spawner->stack, STACK_SIZE);
    }
    if (spawner->shared != NULL && spawner->shared != MAP_FAILED) {
        (void)munmap(spawner->shared, sizeof *spawner->shared);
    }
    spawner->stack = NULL;
    spawner->shared = NULL;
}

struct spawn_result spawner_start(struct spawner *spawner,
                                  const struct spawn_files *files,
                                  char *const *env,
                                  char *const *small_env)
{
    char *shell_argv[ARGS_MAX + 2];
    size_t count = 0;
    while (spawner->argv[count] != NULL && count < ARGS_MAX) {
        shell_argv[count + 1] = spawner->argv[count];
        count++;
    }
    bool fits = spawner->argv[count] == NULL;
    shell_argv[0] = (char *)"sh";
    shell_argv[1] = (char *)spawner->path;
    shell_argv[count + 1] = NULL;
    struct child child = {.spawner = spawner,
                          .parent = getpid(),
                          .files = files,
                          .env = env,
                          .small_env = small_env,
                          .shell_argv = fits ? shell_argv : NULL};
    *spawner->shared = (struct spawn_result){0};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int pidfd = -1;
    int flags = CLONE_VM | CLONE_VFORK | SIGCHLD | (spawner->pidfds ? CLONE_PIDFD : 0);
    pid_t pid = clone(child_main, (char *)spawner->stack + STACK_SIZE, flags, &child, &pidfd);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    struct spawn_result result = *spawner->shared;
    result.pid = pid;
    result.pidfd = pid > 0 ? pidfd : -1;
    if (pid < 0) {
        result.error = error;
    }
    return result;
}
