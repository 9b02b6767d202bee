/* guard.c -- the guard process. It is forked from a process that may have threads, so it calls only
 * what is async-signal-safe; its table is mapped before the fork. */
#include "runtime/guard.h"

#include "runtime/spawn.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

struct table {
    size_t count;
    size_t count_max;
    pid_t groups[];
};

static void take_note(struct table *table, pid_t note)
{
    pid_t group = note < 0 ? -note : note;
    size_t at = 0;
    while (at < table->count && table->groups[at] != group) {
        at++;
    }
    if (note < 0 && at < table->count) {
        table->groups[at] = table->groups[--table->count];
    } else if (note > 0 && at == table->count && at < table->count_max) {
        table->groups[table->count++] = group;
    }
}

/* Reads notes until the end of the pipe (true), or until there are none for now (false). */
static bool take_notes(int fd, struct table *table)
{
    pid_t notes[256];
    for (;;) {
        ssize_t n = read(fd, notes, sizeof notes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n == 0 || errno != EAGAIN;
        }
        for (size_t i = 0; i < (size_t)n / sizeof notes[0]; i++) {
            take_note(table, notes[i]);
        }
    }
}

_Noreturn static void guard_main(int fd, struct table *table, pid_t worker)
{
    (void)setsid();
    (void)prctl(PR_SET_NAME, "impel-guard");
    spawn_reset_signals(
        SIG_IGN); /* whoever ends all of a service ends the worker, and that ends us */
    int worker_fd = (int)syscall(SYS_pidfd_open, worker, 0);
    if (worker_fd >= 0 && getppid() != worker) {
        worker_fd = -1; /* gone already; the pipe says so too */
    }
    spawn_close_all_but(fd, worker_fd);
    bool gone = false;
    while (!gone) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = worker_fd, .events = POLLIN}};
        (void)poll(fds, worker_fd >= 0 ? 2 : 1, -1);
        gone = take_notes(fd, table) || fds[1].revents != 0;
    }
    for (size_t i = 0; i < table->count; i++) {
        (void)kill(-table->groups[i], SIGKILL);
    }
    _exit(0);
}

bool guard_note(int fd, pid_t pgid)
{
    ssize_t n;
    do {
        n = write(fd, &pgid, sizeof pgid);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof pgid;
}

static int start_knowing(struct guard *guard, const pid_t *groups, size_t count)
{
    int fds[2] = {-1, -1};
    size_t size = sizeof(struct table) + (guard->groups_max + 1) * sizeof(pid_t);
    guard->fd = -1;
    guard->pid = -1;
    struct table *table =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        return -1;
    }
    table->count_max = guard->groups_max;
    for (size_t i = 0; i < count && i < table->count_max; i++) {
        table->groups[table->count++] = groups[i];
    }
    if (spawn_pipe(fds) == 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0 &&
        fcntl(fds[1], F_SETFL, O_NONBLOCK) == 0) {
        pid_t worker = getpid();
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        guard->pid = fork();
        if (guard->pid == 0) {
            guard_main(fds[0], table, worker);
        }
        int saved = errno;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        errno = saved;
    }
    int saved = errno;
    (void)munmap(table, size);
    if (fds[0] >= 0) {
        (void)close(fds[0]);
    }
    if (guard->pid < 0 && fds[1] >= 0) {
        (void)close(fds[1]);
        fds[1] = -1;
    }
    guard->fd = fds[1];
    errno = saved;
    return guard->pid < 0 ? -1 : 0;
}

int guard_start(struct guard *guard, size_t groups_max, struct impel_error *err)
{
    guard->groups_max = groups_max;
    if (start_knowing(guard, NULL, 0) != 0) {
        return error_set(err, IMPEL_ERR_IO, "cannot start the guard of the commands: %s",
                         strerror(errno));
    }
    return IMPEL_OK;
}

int guard_renew(struct guard *guard, const pid_t *groups, size_t count, struct impel_error *err)
{
    if (guard->pid > 0) {
        (void)kill(guard->pid,
                   SIGKILL); /* first: at the end of its pipe it would kill the groups */
    }
    guard_stop(guard);
    if (start_knowing(guard, groups, count) != 0) {
        return error_set(err, IMPEL_ERR_IO, "cannot start the guard of the commands again: %s",
                         strerror(errno));
    }
    return IMPEL_OK;
}

void guard_stop(struct guard *guard)
{
    if (guard->fd >= 0) {
        (void)close(guard->fd);
    }
    if (guard->pid > 0) {
        (void)kill(guard->pid, SIGCONT); /* a stopped one would be waited for in vain */
        while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    guard->fd = -1;
    guard->pid = -1;
}
