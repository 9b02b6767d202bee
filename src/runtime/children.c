/* children.c -- starting, watching, ending. */
#include "runtime/children.h"

#include "observe/events.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EVENTS_MAX = 64,        /* taken from the epoll set at once */
    SHORT_QUIET_MS = 60000, /* a shortage after this long without one is news */
};

/* ---- descriptors ---- */

static struct epoll_event event_of(const struct child *child, enum child_fd what, uint32_t events)
{
    return (struct epoll_event){.events = events,
                                .data.u64 = (uint64_t)child->index * CHILD_FDS + what};
}

bool child_watch(struct children *children,
                 struct child *child,
                 enum child_fd what,
                 uint32_t events)
{
    struct epoll_event event = event_of(child, what, events);
    return epoll_ctl(children->epoll_fd, EPOLL_CTL_ADD, child->fds[what], &event) == 0;
}

void child_rewatch(struct children *children,
                   struct child *child,
                   enum child_fd what,
                   uint32_t events)
{
    struct epoll_event event = event_of(child, what, events);
    (void)epoll_ctl(children->epoll_fd, EPOLL_CTL_MOD, child->fds[what], &event);
}

void child_unwatch(struct children *children, struct child *child, enum child_fd what)
{
    (void)epoll_ctl(children->epoll_fd, EPOLL_CTL_DEL, child->fds[what], NULL);
}

void child_close(struct children *children, struct child *child, enum child_fd what)
{
    if (child->fds[what] >= 0) {
        /* Said explicitly: a process that inherited the descriptor keeps the set's entry alive. */
        (void)epoll_ctl(children->epoll_fd, EPOLL_CTL_DEL, child->fds[what], NULL);
        (void)close(child->fds[what]);
        child->fds[what] = -1;
    }
}

static void close_end(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

/* A pipe of which ours, which must not block, is fds[mine]. */
static int make_pipe(int fds[2], int mine)
{
    if (spawn_pipe(fds) != 0 || fcntl(fds[mine], F_SETFL, O_NONBLOCK) != 0) {
        return errno;
    }
    return 0;
}

int child_pipes(struct child *child, bool with_stdout, struct child_ends *ends)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    int error = make_pipe(in, 1);
    error = error == 0 ? make_pipe(err, 0) : error;
    if (error == 0 && with_stdout) {
        error = make_pipe(out, 0);
    }
    child->fds[CHILD_STDIN] = in[1];
    child->fds[CHILD_STDOUT] = out[0];
    child->fds[CHILD_STDERR] = err[0];
    *ends = (struct child_ends){.in = in[0], .out = out[1], .err = err[1]};
    return error;
}

void child_unmake(struct children *children, struct child *child, struct child_ends *ends)
{
    for (int i = 0; i < CHILD_FDS; i++) {
        child_close(children, child, (enum child_fd)i);
    }
    close_end(&ends->in);
    close_end(&ends->out);
    close_end(&ends->err);
}

/* ---- ends ---- */

/* A guard that does not take notes is stopped or was killed; a new one learns who runs. */
static void renew_guard(struct children *children)
{
    size_t count = 0;
    pid_t *groups = calloc(children->count, sizeof *groups);
    for (size_t i = 0; i < children->count && groups != NULL; i++) {
        if (children->all[i]->pid > 0) {
            groups[count++] = children->all[i]->pid;
        }
    }
    struct impel_event event;
    struct impel_error error = {.text = "the guard of the commands was gone and is back"};
    int rc = guard_renew(&children->guard, groups, count, &error);
    children->spawner.guard_fd = children->guard.fd;
    event_init(&event, "guard-renewed", rc < 0 ? IMPEL_ERROR : IMPEL_WARNING, error.text);
    children->env->event(children->env->user, &event);
    free(groups);
}

/* Until it is reaped its number, which is its group's too, belongs to nobody else. */
bool child_reap(struct children *children, struct child *child, bool whole_group, siginfo_t *info)
{
    *info = (siginfo_t){0};
    int rc = waitid(P_PID, (id_t)child->pid, info, WEXITED | WNOHANG | WNOWAIT);
    if (rc == 0 && info->si_pid == 0) {
        return false;
    }
    if (whole_group) {
        (void)kill(-child->pid, SIGKILL); /* what it left behind is not wanted either */
    }
    bool noted = children->guard.fd < 0 || guard_note(children->guard.fd, -child->pid);
    while (rc == 0 && waitpid(child->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    child->pid = 0;
    child->kill_at_ms = 0;
    if (!noted) {
        renew_guard(children);
    }
    return true;
}

/* The process is there, but it could not execute the command; it is gone already, or as good as. */
static void bury(struct children *children, pid_t pid)
{
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    if (children->guard.fd >= 0) {
        (void)guard_note(children->guard.fd, -pid);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

void child_kill(struct children *children, struct child *child)
{
    (void)kill(-child->pid, SIGKILL);
    bury(children, child->pid);
    child->pid = 0;
}

void child_term(struct children *children, struct child *child)
{
    uv_update_time(children->env->loop);
    child->kill_at_ms = (int64_t)uv_now(children->env->loop) + KILL_AFTER_MS;
    (void)kill(-child->pid, SIGTERM);
    (void)kill(-child->pid, SIGCONT); /* a stopped command could not act on it */
    children_chores_due(children);
}

void child_end_text(const siginfo_t *info, char *text, size_t size)
{
    if (info->si_code == CLD_EXITED) {
        (void)snprintf(text, size, "exit status %d", info->si_status);
    } else if (info->si_code == 0) {
        (void)snprintf(text, size, "its exit status was taken by another part of the program");
    } else {
        const char *name = sigabbrev_np(info->si_status);
        (void)snprintf(text, size, "killed by signal %d (%s%s)", info->si_status,
                       name != NULL ? "SIG" : "", name != NULL ? name : "?");
    }
}

/* ---- starts ---- */

bool children_passing(int error)
{
    return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE ||
           error == ETXTBSY || error == EINTR;
}

void children_short(struct children *children, int error)
{
    children_chores_due(children);
    int64_t now_ms = (int64_t)uv_now(children->env->loop), before_ms = children->short_ms;
    children->short_ms = now_ms;
    if (before_ms == 0 || now_ms - before_ms > SHORT_QUIET_MS) {
        struct impel_event event;
        event_init(&event, "start-postponed", IMPEL_WARNING,
                   "commands cannot be started for now; trying again");
        event.error = bytes_of(strerror(error));
        children->env->event(children->env->user, &event);
    }
}

void children_give_up(struct children *children, int error)
{
    struct impel_error failure;
    bool interpreter = error == ENOENT && access(children->path, F_OK) == 0;
    (void)error_set(&failure, IMPEL_ERR_INVALID, "cannot run the command '%s': %s", children->path,
                    interpreter ? "the interpreter that it names does not exist" : strerror(error));
    children->failed = true;
    children->env->failed(children->env->user, &failure);
}

int child_start(struct children *children,
                struct child *child,
                struct child_ends *ends,
                char *const *full_env,
                char *const *small_env)
{
    struct spawn_files files = {.in = ends->in, .out = ends->out, .err = ends->err};
    struct spawn_result started = spawner_start(&children->spawner, &files, full_env, small_env);
    close_end(&ends->in);
    close_end(&ends->out);
    close_end(&ends->err);
    if (started.pid > 0 && started.error != 0) {
        bury(children, started.pid);
        close_end(&started.pidfd);
    }
    if (started.error != 0) {
        return started.error;
    }
    child->pid = started.pid;
    child->kill_at_ms = 0;
    child->fds[CHILD_DEATH] = started.pidfd;
    if (!started.registered && children->guard.fd >= 0) {
        renew_guard(children);
    }
    return 0;
}

/* ---- events ---- */

static void on_chores(uv_timer_t *timer)
{
    struct children *children = timer->data;
    bool more = children->chores(children);
    int64_t now_ms = (int64_t)uv_now(children->env->loop);
    for (size_t i = 0; i < children->count; i++) {
        struct child *child = children->all[i];
        bool ending = child->pid > 0 && child->kill_at_ms > 0;
        if (ending && now_ms >= child->kill_at_ms) {
            (void)kill(-child->pid, SIGKILL);
            child->kill_at_ms = 0;
        } else {
            more = more || ending;
        }
    }
    if (!more) {
        (void)uv_timer_stop(timer);
    }
}

void children_chores_due(struct children *children)
{
    if (!uv_is_active((uv_handle_t *)&children->timer)) {
        (void)uv_timer_start(&children->timer, on_chores, CHORE_MS, CHORE_MS);
    }
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct children *children = handle->data;
    struct epoll_event ready[EVENTS_MAX];
    (void)status;
    (void)events;
    int count = epoll_wait(children->epoll_fd, ready, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        uint64_t key = ready[i].data.u64;
        struct child *child = children->all[key / CHILD_FDS];
        enum child_fd what = (enum child_fd)(key % CHILD_FDS);
        if (child->fds[what] >= 0) { /* else it is over since the set said so */
            children->ready(children, child, what);
        }
    }
}

static void on_death(uv_signal_t *handle, int number)
{
    struct children *children = handle->data;
    (void)number;
    for (size_t i = 0; i < children->count; i++) {
        if (children->all[i]->pid > 0) {
            children->ready(children, children->all[i], CHILD_DEATH);
        }
    }
}

/* ---- life ---- */

/* A program that ignores SIGCHLD never learns how its children ended. */
static void mind_children(struct children *children)
{
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) == 0 &&
        (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0)) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        children->child_before = now;
        children->child_changed = sigaction(SIGCHLD, &usual, NULL) == 0;
    }
}

void child_init(struct children *children, struct child *child, size_t index)
{
    *child = (struct child){.index = index};
    memset(child->fds, -1, sizeof child->fds);
    children->all[index] = child;
}

static int join_loop(struct children *children, struct impel_error *err)
{
    uv_loop_t *loop = children->env->loop;
    if (uv_poll_init(loop, &children->poll, children->epoll_fd) != 0) {
        return error_set(err, IMPEL_ERR_IO, "cannot watch commands: %s", strerror(errno));
    }
    (void)uv_timer_init(loop, &children->timer);
    (void)uv_signal_init(loop, &children->deaths);
    children->poll.data = children->timer.data = children->deaths.data = children;
    (void)uv_poll_start(&children->poll, UV_READABLE, on_readable);
    if (!children->spawner.pidfds) {
        (void)uv_signal_start(&children->deaths, on_death, SIGCHLD);
    }
    return IMPEL_OK;
}

int children_open(struct children *children,
                  const struct handler_env *env,
                  char *const *argv,
                  size_t count,
                  struct impel_error *err)
{
    children->env = env;
    mind_children(children);
    if (argv == NULL || argv[0] == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "there is no command to run");
    }
    int rc = spawn_find(argv[0], &children->path, err);
    rc = rc < 0 ? rc : guard_start(&children->guard, count, err);
    rc = rc < 0 ? rc : spawner_init(&children->spawner, err);
    if (rc < 0) {
        return rc;
    }
    children->spawner.path = children->path;
    children->spawner.argv = argv;
    children->spawner.guard_fd = children->guard.fd;
    children->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    children->all = calloc(count, sizeof(struct child *));
    children->count = count;
    if (children->epoll_fd < 0 || children->all == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no room for %zu commands at once", count);
    }
    return join_loop(children, err);
}

void children_close(struct children *children)
{
    uv_close((uv_handle_t *)&children->poll, NULL);
    uv_close((uv_handle_t *)&children->timer, NULL);
    uv_close((uv_handle_t *)&children->deaths, NULL);
}

void children_free(struct children *children)
{
    guard_stop(&children->guard);
    spawner_release(&children->spawner);
    if (children->epoll_fd >= 0) {
        (void)close(children->epoll_fd);
    }
    if (children->child_changed) {
        (void)sigaction(SIGCHLD, &children->child_before, NULL);
    }
    free(children->all);
    free(children->path);
}
