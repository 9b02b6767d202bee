/* exec.c -- one process an entry.
 *
 * A place per process, as many as the concurrency:
 *
 *   start ─► spawn ─► running ──exit──► outcome
 *     ▲        │          │ cancel: TERM to the group, KILL after 5 s
 *     └─chore──┘ the system is short of something: again, and no attempt is lost
 *
 * A place is free when the command itself has exited, whoever else may still hold its standard
 * error. An entry small enough for the pipe is in it before the command starts, so that most
 * commands need no event but their end. */
#include "runtime/command_env.h"
#include "runtime/place.h"

#include <sys/epoll.h>

#include <errno.h>
#include <stdlib.h>

enum {
    JSON_SIZE_MAX = 2000 * 1000 * 1000, /* the largest entry, escaped */
    JSON_KEPT_MAX = 256 * 1024,         /* a larger buffer is not kept for the next entry */
    DRAIN_MAX = 64,                     /* reads of a dead command's standard error */
};

struct exec {
    struct handler base;
    const struct handler_env *env;
    struct children children;
    struct command_env variables;
    struct place *places; /* one for each at once */
    struct place *free;
    struct place *waiting; /* to be started once the system has what they need */
};

static struct exec *exec_of(struct children *children)
{
    return CONTAINER(children, struct exec, children);
}

static struct place *place_of(struct child *child)
{
    return CONTAINER(child, struct place, child);
}

/* ---- the end of a command ---- */

static void close_all(struct exec *exec, struct place *place)
{
    for (int i = 0; i < CHILD_FDS; i++) {
        child_close(&exec->children, &place->child, (enum child_fd)i);
    }
}

static void finish(struct exec *exec, struct place *place, const struct handler_result *result)
{
    struct delivery *delivery = place->delivery;
    close_all(exec, place);
    if (place->json.capacity > JSON_KEPT_MAX) {
        buf_release(&place->json);
    }
    place->delivery = NULL;
    place->next = exec->free;
    exec->free = place;
    exec->env->finished(exec->env->user, delivery, result); /* the tail is borrowed until here */
}

static void finish_unrun(struct exec *exec, struct place *place)
{
    struct handler_result result = {.outcome = OUTCOME_RELEASE, .delay_ms = -1};
    finish(exec, place, &result);
}

static void on_exit_of(struct exec *exec, struct place *place)
{
    siginfo_t info;
    char text[64];
    if (!child_reap(&exec->children, &place->child, place->cancelled, &info)) {
        return;
    }
    (void)place_drain(place, DRAIN_MAX);
    struct handler_result result = place_result(place, &info, text, sizeof text);
    finish(exec, place, &result);
}

/* ---- the start of a command ---- */

/* To be started later: the system is short of something. */
static void postpone(struct exec *exec, struct place *place, int error)
{
    place->next = exec->waiting;
    exec->waiting = place;
    children_short(&exec->children, error);
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
    return tail_begin(&place->tail) && buf_status(&place->json) >= 0 &&
                   command_env_build(&exec->variables, delivery->entry, &origin)
               ? 0
               : ENOMEM;
}

/* A set that takes no more (its limit is the system's) must not lose a death: such a command is
 * ended and its entry tried again later. */
static int watch_all(struct exec *exec, struct place *place, bool fed)
{
    struct child *child = &place->child;
    if ((!fed && !child_watch(&exec->children, child, CHILD_STDIN, EPOLLOUT)) ||
        !child_watch(&exec->children, child, CHILD_STDERR, EPOLLIN) ||
        (child->fds[CHILD_DEATH] >= 0 &&
         !child_watch(&exec->children, child, CHILD_DEATH, EPOLLIN))) {
        int error = errno;
        child_kill(&exec->children, child);
        return error == ENOSPC ? EAGAIN : error;
    }
    return 0;
}

static int try_start(struct exec *exec, struct place *place)
{
    struct child_ends ends = {-1, -1, -1};
    bool fed = false;
    int error = prepare_entry(exec, place);
    error = error == 0 ? child_pipes(&place->child, false, &ends) : error;
    if (error == 0) {
        fed = place_feed(place);
        error = child_start(&exec->children, &place->child, &ends, exec->variables.full,
                            exec->variables.small);
    }
    if (error == 0 && fed) {
        child_close(&exec->children, &place->child, CHILD_STDIN);
    }
    error = error == 0 ? watch_all(exec, place, fed) : error;
    if (error != 0) {
        child_unmake(&exec->children, &place->child, &ends);
    }
    return error;
}

static void start(struct exec *exec, struct place *place)
{
    bool failed = exec->children.failed;
    int error = failed ? ECANCELED : try_start(exec, place);
    if (error != 0 && failed) {
        finish_unrun(exec, place);
    } else if (children_passing(error)) {
        postpone(exec, place, error);
    } else if (error != 0) {
        children_give_up(&exec->children, error);
        finish_unrun(exec, place);
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
    if (place->child.pid == 0) {
        stop_waiting(exec, place);
        return;
    }
    place->reason = !place->cancelled || reason == CANCEL_STOP ? reason : place->reason;
    if (!place->cancelled) {
        place->cancelled = true;
        child_term(&exec->children, &place->child);
    }
}

static bool on_chores(struct children *children)
{
    struct exec *exec = exec_of(children);
    struct place *waiting = exec->waiting;
    exec->waiting = NULL;
    while (waiting != NULL) {
        struct place *place = waiting;
        waiting = place->next;
        start(exec, place);
    }
    return exec->waiting != NULL;
}

static void on_ready(struct children *children, struct child *child, enum child_fd what)
{
    struct exec *exec = exec_of(children);
    struct place *place = place_of(child);
    if (what == CHILD_DEATH) {
        on_exit_of(exec, place);
    } else if (what == CHILD_STDIN ? place_feed(place) : !place_drain(place, 1)) {
        child_close(children, child, what);
    }
}

/* ---- life ---- */

static void exec_free(struct handler *base)
{
    struct exec *exec = (struct exec *)base;
    children_free(&exec->children);
    command_env_release(&exec->variables);
    for (size_t i = 0; i < exec->env->concurrency && exec->places != NULL; i++) {
        buf_release(&exec->places[i].json);
        tail_release(&exec->places[i].tail);
    }
    free(exec->places);
    free(exec);
}

static void exec_close(struct handler *base)
{
    struct exec *exec = (struct exec *)base;
    children_close(&exec->children);
}

static int
open_resources(struct exec *exec, const struct runtime_handler *options, struct impel_error *err)
{
    uint32_t count = exec->env->concurrency;
    int rc = command_env_init(&exec->variables, err);
    exec->places = calloc(count, sizeof *exec->places);
    if (rc >= 0 && exec->places == NULL) {
        rc = error_set(err, IMPEL_ERR_NOMEM, "no room for %u commands at once", count);
    }
    /* Last: what joins the loop has to be closed in turn. */
    rc = rc < 0 ? rc : children_open(&exec->children, exec->env, options->argv, count, err);
    for (uint32_t i = count; i > 0 && rc >= 0; i--) {
        struct place *place = &exec->places[i - 1];
        buf_init(&place->json, JSON_SIZE_MAX);
        child_init(&exec->children, &place->child, i - 1);
        place->next = exec->free;
        exec->free = place;
    }
    return rc;
}

static int exec_open(const struct handler_env *env,
                     const struct runtime_handler *options,
                     struct handler **out,
                     struct impel_error *err)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a handler");
    }
    *exec = (struct exec){.base.ops = &handler_exec,
                          .env = env,
                          .children = {.ready = on_ready,
                                       .chores = on_chores,
                                       .guard = {.fd = -1, .pid = -1},
                                       .epoll_fd = -1}};
    int rc = open_resources(exec, options, err);
    if (rc < 0) {
        exec_free(&exec->base);
        return rc;
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
