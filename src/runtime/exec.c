/* exec.c -- one process an entry.
 *
 * A place per process, as many as the concurrency. All descriptors (the end of a standard input, of
 * a standard error, the pidfd that tells of a death) are in one epoll set, whose own descriptor is
 * the one thing that the loop watches:
 *
 *   start ─► spawn ─► running ──exit──► outcome
 *     ▲        │          │ cancel: TERM to the group, KILL after 5 s
 *     └─chore──┘ the system is short of something: again, and no attempt is lost
 *
 * A place is free when the command itself has exited, whoever else may still hold its standard
 * error. An entry small enough for the pipe is in it before the command starts, so that most
 * commands need no event but their end. */
#include "observe/events.h"
#include "runtime/command_env.h"
#include "runtime/guard.h"
#include "runtime/place.h"
#include "runtime/spawn.h"

#include <sys/epoll.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KILL_AFTER_MS = 5000,               /* between TERM and KILL */
    CHORE_MS = 100,                     /* how often KILLs and delayed starts are looked at */
    EVENTS_MAX = 64,                    /* taken from the epoll set at once */
    JSON_SIZE_MAX = 2000 * 1000 * 1000, /* the largest entry, escaped */
    JSON_KEPT_MAX = 256 * 1024,         /* a larger buffer is not kept for the next entry */
    SHORT_QUIET_MS = 60000,             /* a shortage after this long without one is news */
    DRAIN_MAX = 64,                     /* reads of a dead command's standard error */
};

struct exec {
    struct handler base;
    const struct handler_env *env;
    struct spawner spawner;
    struct guard guard;
    struct command_env variables;
    char *path;
    int epoll_fd;
    uv_poll_t poll;
    uv_timer_t chores;
    uv_signal_t children; /* where the kernel has no pidfds */
    struct place *places;
    struct place *free;
    struct place *waiting; /* to be started once the system has what they need */
    /* When the system was last short of something, in the loop's time; 0 = never. */
    int64_t short_ms;
    bool failed; /* the command cannot be executed */
    struct sigaction child_before;
    bool child_changed;
};

/* ---- descriptors ---- */

static bool watch(struct exec *exec, struct place *place, enum watched what)
{
    struct epoll_event event = {
        .events = what == WATCH_STDIN ? EPOLLOUT : EPOLLIN,
        .data.u64 = (uint64_t)(place - exec->places) * WATCH_COUNT + what,
    };
    return epoll_ctl(exec->epoll_fd, EPOLL_CTL_ADD, place->fds[what], &event) == 0;
}

static void close_watched(struct exec *exec, struct place *place, enum watched what)
{
    if (place->fds[what] >= 0) {
        /* Said explicitly: a process that inherited the descriptor keeps the set's entry alive. */
        (void)epoll_ctl(exec->epoll_fd, EPOLL_CTL_DEL, place->fds[what], NULL);
        (void)close(place->fds[what]);
        place->fds[what] = -1;
    }
}

/* ---- the end of a command ---- */

static void finish(struct exec *exec, struct place *place, const struct handler_result *result)
{
    struct delivery *delivery = place->delivery;
    for (int i = 0; i < WATCH_COUNT; i++) {
        close_watched(exec, place, (enum watched)i);
    }
    if (place->json.capacity > JSON_KEPT_MAX) {
        buf_release(&place->json);
    }
    place->delivery = NULL;
    place->pid = 0;
    place->next = exec->free;
    exec->free = place;
    exec->env->finished(exec->env->user, delivery, result); /* the tail is borrowed until here */
}

static void finish_unrun(struct exec *exec, struct place *place)
{
    struct handler_result result = {.outcome = OUTCOME_RELEASE, .delay_ms = -1};
    finish(exec, place, &result);
}

/* A guard that does not take notes is stopped or was killed; a new one learns who runs. */
static void renew_guard(struct exec *exec)
{
    size_t count = 0;
    pid_t *groups = calloc(exec->env->concurrency, sizeof *groups);
    for (size_t i = 0; i < exec->env->concurrency && groups != NULL; i++) {
        if (exec->places[i].delivery != NULL && exec->places[i].pid > 0) {
            groups[count++] = exec->places[i].pid;
        }
    }
    struct impel_event event;
    struct impel_error error = {.text = "the guard of the commands was gone and is back"};
    int rc = guard_renew(&exec->guard, groups, count, &error);
    exec->spawner.guard_fd = exec->guard.fd;
    event_init(&event, "guard-renewed", rc < 0 ? IMPEL_ERROR : IMPEL_WARNING, error.text);
    exec->env->event(exec->env->user, &event);
    free(groups);
}

/* Looks whether the command has exited, and if so, reaps it. Until it is reaped its number, which is
 * its group's too, belongs to nobody else. */
static bool reap(struct exec *exec, struct place *place, siginfo_t *info)
{
    *info = (siginfo_t){0};
    int rc = waitid(P_PID, (id_t)place->pid, info, WEXITED | WNOHANG | WNOWAIT);
    if (rc == 0 && info->si_pid == 0) {
        return false;
    }
    if (place->cancelled) {
        (void)kill(-place->pid, SIGKILL); /* what it left behind is not wanted either */
    }
    bool noted = exec->guard.fd < 0 || guard_note(exec->guard.fd, -place->pid);
    while (rc == 0 && waitpid(place->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    place->pid = 0;
    if (!noted) {
        renew_guard(exec);
    }
    return true;
}

static void on_exit_of(struct exec *exec, struct place *place)
{
    siginfo_t info;
    char text[64];
    if (!reap(exec, place, &info)) {
        return;
    }
    (void)place_drain(place, DRAIN_MAX);
    struct handler_result result = place_result(place, &info, text, sizeof text);
    finish(exec, place, &result);
}

/* ---- the start of a command ---- */

/* What may be over in a moment: no reason to give an entry up, nor to stop the worker. */
static bool passing(int error)
{
    return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE ||
           error == ETXTBSY || error == EINTR;
}

static void on_chores(uv_timer_t *timer);

static void chores_due(struct exec *exec)
{
    if (!uv_is_active((uv_handle_t *)&exec->chores)) {
        (void)uv_timer_start(&exec->chores, on_chores, CHORE_MS, CHORE_MS);
    }
}

/* To be started later: the system is short of something. */
static void postpone(struct exec *exec, struct place *place, int error)
{
    for (int i = 0; i < WATCH_COUNT; i++) {
        close_watched(exec, place, (enum watched)i);
    }
    place->next = exec->waiting;
    exec->waiting = place;
    chores_due(exec);
    int64_t now_ms = (int64_t)uv_now(exec->env->loop), before_ms = exec->short_ms;
    exec->short_ms = now_ms;
    if (before_ms == 0 || now_ms - before_ms > SHORT_QUIET_MS) {
        struct impel_event event;
        event_init(&event, "start-postponed", IMPEL_WARNING,
                   "commands cannot be started for now; trying again");
        event.error = bytes_of(strerror(error));
        exec->env->event(exec->env->user, &event);
    }
}

static void give_up(struct exec *exec, struct place *place, int error)
{
    struct impel_error failure;
    bool interpreter = error == ENOENT && access(exec->path, F_OK) == 0;
    (void)error_set(&failure, IMPEL_ERR_INVALID, "cannot run the command '%s': %s", exec->path,
                    interpreter ? "the interpreter that it names does not exist" : strerror(error));
    exec->failed = true;
    exec->env->failed(exec->env->user, &failure);
    finish_unrun(exec, place);
}

/* The process is there, but it could not execute the command; it is gone already, or as good as. */
static void bury(struct exec *exec, pid_t pid)
{
    siginfo_t info;
    while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    if (exec->guard.fd >= 0) {
        (void)guard_note(exec->guard.fd, -pid);
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Starts the process between these pipes. 0, or an errno. */
static int spawn_between(struct exec *exec, struct place *place, int stdin_fd, int stderr_fd)
{
    struct spawn_result started = spawner_start(&exec->spawner, stdin_fd, stderr_fd,
                                                exec->variables.full, exec->variables.small);
    if (started.pid > 0 && started.error != 0) {
        bury(exec, started.pid);
        if (started.pidfd >= 0) {
            (void)close(started.pidfd);
        }
    }
    if (started.error != 0) {
        return started.error;
    }
    place->pid = started.pid;
    place->fds[WATCH_DEATH] = started.pidfd;
    if (!started.registered && exec->guard.fd >= 0) {
        renew_guard(exec);
    }
    return 0;
}

static int prepare_entry(struct exec *exec, struct place *place)
{
    const struct delivery *delivery = place->delivery;
    struct entry_origin origin = {
        .stream = exec->env->streams[delivery->stream_index],
        .group = exec->env->group,
        .consumer = exec->env->consumer,
        .attempt = delivery->attempt,
    };
    buf_clear(&place->json);
    entry_json(&place->json, delivery->entry, &origin);
    place->written = 0;
    if (place->tail == NULL) {
        place->tail = malloc(ERROR_SIZE_MAX);
    }
    place->tail_size = 0;
    place->tail_cut = false;
    return place->tail != NULL && buf_status(&place->json) >= 0 &&
                   command_env_build(&exec->variables, delivery->entry, &origin)
               ? 0
               : ENOMEM;
}

static int try_start(struct exec *exec, struct place *place)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int error = prepare_entry(exec, place);
    if (error == 0 &&
        (spawn_pipe(in) != 0 || spawn_pipe(out) != 0 || fcntl(in[1], F_SETFL, O_NONBLOCK) != 0 ||
         fcntl(out[0], F_SETFL, O_NONBLOCK) != 0)) {
        error = errno;
    }
    place->fds[WATCH_STDIN] = in[1];
    place->fds[WATCH_STDERR] = out[0];
    bool fed = error == 0 && place_feed(place);
    if (error == 0) {
        error = spawn_between(exec, place, in[0], out[1]);
    }
    if (in[0] >= 0) {
        (void)close(in[0]);
    }
    if (out[1] >= 0) {
        (void)close(out[1]);
    }
    if (error != 0) {
        return error;
    }
    if (fed) {
        close_watched(exec, place, WATCH_STDIN);
    }
    /* A set that takes no more (its limit is the system's) must not lose a death: such a command is
     * ended and its entry tried again later. */
    if ((!fed && !watch(exec, place, WATCH_STDIN)) || !watch(exec, place, WATCH_STDERR) ||
        (place->fds[WATCH_DEATH] >= 0 && !watch(exec, place, WATCH_DEATH))) {
        error = errno;
        (void)kill(-place->pid, SIGKILL);
        bury(exec, place->pid);
        place->pid = 0;
        return error == ENOSPC ? EAGAIN : error;
    }
    return 0;
}

static void start(struct exec *exec, struct place *place)
{
    int error = exec->failed ? ECANCELED : try_start(exec, place);
    if (error != 0 && exec->failed) {
        finish_unrun(exec, place);
    } else if (passing(error)) {
        postpone(exec, place, error);
    } else if (error != 0) {
        give_up(exec, place, error);
    }
}

static void exec_start(struct handler *base, struct delivery *delivery)
{
    struct exec *exec = (struct exec *)base;
    struct place *place = exec->free;
    ASSERT(place != NULL);
    exec->free = place->next;
    place->delivery = delivery;
    place->cancelled = false;
    place->kill_at_ms = 0;
    delivery->driver = place;
    start(exec, place);
}

/* ---- cancelling, and other chores ---- */

static void stop_waiting(struct exec *exec, struct place *place)
{
    struct place **at = &exec->waiting;
    while (*at != place) {
        at = &(*at)->next;
    }
    *at = place->next;
    finish_unrun(exec, place);
}

static void exec_cancel(struct handler *base, struct delivery *delivery, enum cancel_reason reason)
{
    struct exec *exec = (struct exec *)base;
    struct place *place = delivery->driver;
    if (place->pid == 0) {
        stop_waiting(exec, place);
        return;
    }
    place->reason = !place->cancelled || reason == CANCEL_STOP ? reason : place->reason;
    if (!place->cancelled) {
        place->cancelled = true;
        uv_update_time(exec->env->loop);
        place->kill_at_ms = (int64_t)uv_now(exec->env->loop) + KILL_AFTER_MS;
        (void)kill(-place->pid, SIGTERM);
        (void)kill(-place->pid, SIGCONT); /* a stopped command could not act on it */
        chores_due(exec);
    }
}

static void on_chores(uv_timer_t *timer)
{
    struct exec *exec = timer->data;
    struct place *waiting = exec->waiting;
    exec->waiting = NULL;
    while (waiting != NULL) {
        struct place *place = waiting;
        waiting = place->next;
        start(exec, place);
    }
    int64_t now_ms = (int64_t)uv_now(exec->env->loop);
    bool more = exec->waiting != NULL;
    for (size_t i = 0; i < exec->env->concurrency; i++) {
        struct place *place = &exec->places[i];
        bool ending = place->delivery != NULL && place->pid > 0 && place->kill_at_ms > 0;
        if (ending && now_ms >= place->kill_at_ms) {
            (void)kill(-place->pid, SIGKILL);
            place->kill_at_ms = 0;
        } else {
            more = more || ending;
        }
    }
    if (!more) {
        (void)uv_timer_stop(timer);
    }
}

/* ---- events ---- */

static void dispatch(struct exec *exec, struct place *place, enum watched what)
{
    if (place->delivery == NULL || place->fds[what] < 0) {
        return; /* over since the set said so */
    }
    switch (what) {
    case WATCH_STDIN:
        if (place_feed(place)) {
            close_watched(exec, place, WATCH_STDIN);
        }
        break;
    case WATCH_STDERR:
        if (!place_drain(place, 1)) {
            close_watched(exec, place, WATCH_STDERR);
        }
        break;
    default:
        on_exit_of(exec, place);
        break;
    }
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    struct exec *exec = handle->data;
    struct epoll_event ready[EVENTS_MAX];
    (void)status;
    (void)events;
    int count = epoll_wait(exec->epoll_fd, ready, EVENTS_MAX, 0);
    for (int i = 0; i < count; i++) {
        uint64_t key = ready[i].data.u64;
        dispatch(exec, &exec->places[key / WATCH_COUNT], (enum watched)(key % WATCH_COUNT));
    }
}

static void on_child(uv_signal_t *handle, int number)
{
    struct exec *exec = handle->data;
    (void)number;
    for (size_t i = 0; i < exec->env->concurrency; i++) {
        if (exec->places[i].delivery != NULL && exec->places[i].pid > 0) {
            on_exit_of(exec, &exec->places[i]);
        }
    }
}

/* ---- life ---- */

/* A program that ignores SIGCHLD never learns how its children ended. */
static void mind_children(struct exec *exec)
{
    struct sigaction now;
    if (sigaction(SIGCHLD, NULL, &now) == 0 &&
        (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT) != 0)) {
        struct sigaction usual = {.sa_handler = SIG_DFL};
        exec->child_before = now;
        exec->child_changed = sigaction(SIGCHLD, &usual, NULL) == 0;
    }
}

static void exec_free(struct handler *base)
{
    struct exec *exec = (struct exec *)base;
    guard_stop(&exec->guard);
    spawner_release(&exec->spawner);
    command_env_release(&exec->variables);
    if (exec->epoll_fd >= 0) {
        (void)close(exec->epoll_fd);
    }
    for (size_t i = 0; i < exec->env->concurrency && exec->places != NULL; i++) {
        buf_release(&exec->places[i].json);
        free(exec->places[i].tail);
    }
    if (exec->child_changed) {
        (void)sigaction(SIGCHLD, &exec->child_before, NULL);
    }
    free(exec->places);
    free(exec->path);
    free(exec);
}

static void exec_close(struct handler *base)
{
    struct exec *exec = (struct exec *)base;
    uv_close((uv_handle_t *)&exec->poll, NULL);
    uv_close((uv_handle_t *)&exec->chores, NULL);
    uv_close((uv_handle_t *)&exec->children, NULL);
}

static int open_resources(struct exec *exec, char *const *argv, struct impel_error *err)
{
    uint32_t count = exec->env->concurrency;
    int rc = spawn_find(argv[0], &exec->path, err);
    if (rc < 0) {
        return rc;
    }
    rc = guard_start(&exec->guard, count, err);
    rc = rc < 0 ? rc : command_env_init(&exec->variables, err);
    rc = rc < 0 ? rc : spawner_init(&exec->spawner, err);
    if (rc < 0) {
        return rc;
    }
    exec->spawner.path = exec->path;
    exec->spawner.argv = argv;
    exec->spawner.guard_fd = exec->guard.fd;
    exec->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    exec->places = calloc(count, sizeof *exec->places);
    if (exec->epoll_fd < 0 || exec->places == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no room for %u commands at once", count);
    }
    for (uint32_t i = count; i > 0; i--) {
        struct place *place = &exec->places[i - 1];
        buf_init(&place->json, JSON_SIZE_MAX);
        memset(place->fds, -1, sizeof place->fds);
        place->next = exec->free;
        exec->free = place;
    }
    return IMPEL_OK;
}

static int exec_open(const struct handler_env *env,
                     const struct runtime_handler *options,
                     struct handler **out,
                     struct impel_error *err)
{
    if (options->argv == NULL || options->argv[0] == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "there is no command to run");
    }
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a handler");
    }
    *exec = (struct exec){
        .base.ops = &handler_exec, .env = env, .guard = {.fd = -1, .pid = -1}, .epoll_fd = -1};
    mind_children(exec);
    int rc = open_resources(exec, options->argv, err);
    if (rc >= 0 && uv_poll_init(env->loop, &exec->poll, exec->epoll_fd) != 0) {
        rc = error_set(err, IMPEL_ERR_IO, "cannot watch commands: %s", strerror(errno));
    }
    if (rc < 0) {
        exec_free(&exec->base);
        return rc;
    }
    (void)uv_timer_init(env->loop, &exec->chores);
    (void)uv_signal_init(env->loop, &exec->children);
    exec->poll.data = exec->chores.data = exec->children.data = exec;
    (void)uv_poll_start(&exec->poll, UV_READABLE, on_readable);
    if (!exec->spawner.pidfds) {
        (void)uv_signal_start(&exec->children, on_child, SIGCHLD);
    }
    *out = &exec->base;
    return IMPEL_OK;
}

const struct handler_ops handler_exec = {
    .open = exec_open,
    .start = exec_start,
    .cancel = exec_cancel,
    .close = exec_close,
    .free = exec_free,
};
