/* pipe.c -- entries for processes that stay: the queue, who gets which, what a cancelling means. */
#include "runtime/pipe.h"

#include "observe/events.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    WAIT_MAX_MS = 5000, /* for processes that only fail: then somebody else may have the entry */
};

static struct pipe *pipe_of(struct children *children)
{
    return CONTAINER(children, struct pipe, children);
}

static int64_t now_of(const struct pipe *pipe)
{
    return (int64_t)uv_now(pipe->env->loop);
}

void pipe_tell(struct pipe *pipe, const char *name, enum impel_level level, const char *text)
{
    struct impel_event event;
    event_init(&event, name, level, text);
    event.group = pipe->env->group;
    event.consumer = pipe->env->consumer;
    pipe->env->event(pipe->env->user, &event);
}

/* ---- items ---- */

static struct item **bucket_of(const struct pipe *pipe, struct impel_id id)
{
    uint64_t hash = (id.ms * 0x9e3779b97f4a7c15U) ^ (id.seq * 0xbf58476d1ce4e5b9U);
    return &pipe->index[(hash ^ (hash >> 32)) & (pipe->index_size - 1)];
}

struct item *pipe_find(const struct pipe *pipe, const struct process *process, struct impel_id id)
{
    struct item *item = *bucket_of(pipe, id);
    while (item != NULL && (item->process != process || !id_equal(item->delivery->entry->id, id))) {
        item = item->chain;
    }
    return item;
}

static void enqueue(struct pipe *pipe, struct item *item, bool first)
{
    item->process = NULL;
    if (first) {
        list_prepend(&pipe->queue, &item->link);
    } else {
        list_append(&pipe->queue, &item->link);
    }
    pipe->queue_count++;
    pipe->queued_apart += item->delivery->apart;
}

static void dequeue(struct pipe *pipe, struct item *item)
{
    ASSERT(item->delivery != NULL);
    list_remove(&item->link);
    pipe->queue_count--;
    pipe->queued_apart -= item->delivery->apart;
    if (pipe->queued_apart == 0) {
        pipe->reserved = NULL;
    }
}

static void leave_process(struct pipe *pipe, struct item *item)
{
    struct process *process = item->process;
    struct item **at = bucket_of(pipe, item->delivery->entry->id);
    while (*at != item) {
        at = &(*at)->chain;
    }
    *at = item->chain;
    bool oldest = process->flight.next == &item->link;
    list_remove(&item->link);
    if (oldest && !list_empty(&process->flight)) {
        struct item *next = CONTAINER(process->flight.next, struct item, link);
        pipe->env->begun(pipe->env->user, next->delivery);
    }
    process->flight_count--;
    process->cancelled_count -= item->cancelled;
    process->apart = process->apart && process->flight_count > 0;
}

void pipe_finish(struct pipe *pipe, struct item *item, const struct handler_result *result)
{
    struct delivery *delivery = item->delivery;
    if (item->process != NULL) {
        leave_process(pipe, item);
    } else {
        dequeue(pipe, item);
    }
    item->delivery = NULL;
    item->chain = pipe->free;
    pipe->free = item;
    pipe->env->finished(pipe->env->user, delivery, result);
}

void pipe_release(struct pipe *pipe, struct item *item)
{
    struct handler_result result = {.outcome = OUTCOME_RELEASE, .delay_ms = -1};
    pipe_finish(pipe, item, &result);
}

void pipe_take_back(struct pipe *pipe, struct item *item)
{
    leave_process(pipe, item);
    enqueue(pipe, item, true);
}

/* ---- giving ---- */

/* The process that is to be given the item, NULL = none for now. `any_room` tells whether one has
 * room for what is behind it in the queue, should that be allowed there. */
static struct process *choose(struct pipe *pipe, const struct item *item, bool *any_room)
{
    bool apart = item->delivery->apart;
    struct process *best = NULL, *emptiest = NULL;
    *any_room = false;
    if (pipe->reserved != NULL && pipe->reserved->state != PROCESS_UP) {
        pipe->reserved = NULL; /* it takes nothing more, and may be long about its end */
    }
    for (uint32_t i = 0; i < pipe->process_count; i++) {
        struct process *process = &pipe->processes[i];
        if (process->state == PROCESS_UP &&
            (emptiest == NULL || process->flight_count < emptiest->flight_count)) {
            emptiest = process;
        }
        bool waited_for = process == pipe->reserved;
        if (!process_has_room(process)) {
            continue;
        }
        *any_room = *any_room || !waited_for || process->flight_count == 0;
        if (waited_for && !apart) {
            continue;
        }
        /* An ID is in a process once at most, though two streams may have it: answers name it. */
        if ((apart && process->flight_count > 0) ||
            pipe_find(pipe, process, item->delivery->entry->id) != NULL) {
            continue;
        }
        if (best == NULL || process->flight_count < best->flight_count) {
            best = process;
        }
    }
    if (apart && best == NULL && pipe->reserved == NULL) {
        pipe->reserved = emptiest;
    }
    return best;
}

static bool give(struct pipe *pipe, struct process *process, struct item *item)
{
    if (!process_give(process, item)) {
        children_short(&pipe->children, ENOMEM);
        return false;
    }
    dequeue(pipe, item);
    if (item->delivery->apart && pipe->reserved == process) {
        pipe->reserved = NULL;
    }
    struct item **bucket = bucket_of(pipe, item->delivery->entry->id);
    item->process = process;
    item->chain = *bucket;
    *bucket = item;
    list_append(&process->flight, &item->link);
    process->flight_count++;
    process->apart = item->delivery->apart;
    pipe->env->begun(pipe->env->user, item->delivery);
    if (process->flight_count > 1 && pipe->env->timeout_ms > 0) {
        children_chores_due(&pipe->children);
    }
    return true;
}

static void give_what_can(struct pipe *pipe)
{
    struct link *at = pipe->queue.next;
    bool any_room = true;
    while (at != &pipe->queue && any_room) {
        struct item *item = CONTAINER(at, struct item, link);
        at = at->next;
        if (!pipe->env->may_begin(pipe->env->user, item->delivery)) {
            if (item->delivery->apart) {
                pipe->reserved =
                    NULL; /* it may be long until then; others may be of another stream */
            }
            continue;
        }
        struct process *process = choose(pipe, item, &any_room);
        if (process != NULL && !give(pipe, process, item)) {
            break;
        }
    }
}

static void release_queue(struct pipe *pipe)
{
    while (!list_empty(&pipe->queue)) {
        pipe_release(pipe, CONTAINER(pipe->queue.next, struct item, link));
    }
}

static void start_processes(struct pipe *pipe)
{
    int64_t now_ms = now_of(pipe);
    for (uint32_t i = 0; i < pipe->process_count && !pipe->children.failed; i++) {
        struct process *process = &pipe->processes[i];
        if (process->state == PROCESS_DOWN && now_ms >= process->restart_ms) {
            (void)process_start(process);
        }
    }
}

static void on_soon(uv_timer_t *timer)
{
    struct pipe *pipe = timer->data;
    if (pipe->queue_count > 0 && !pipe->stopping) {
        start_processes(pipe);
        give_what_can(pipe);
    }
    if (pipe->children.failed || pipe->stopping) {
        release_queue(pipe);
    }
    for (uint32_t i = 0; i < pipe->process_count; i++) {
        process_flush(&pipe->processes[i]);
    }
    if (pipe->queue_count > 0) {
        children_chores_due(&pipe->children);
    }
}

void pipe_soon(struct pipe *pipe)
{
    if (!uv_is_active((uv_handle_t *)&pipe->soon) && !pipe->closing) {
        (void)uv_timer_start(&pipe->soon, on_soon, 0, 0);
    }
}

static void pipe_start(struct handler *base, struct delivery *delivery)
{
    struct pipe *pipe = (struct pipe *)base;
    struct item *item = pipe->free;
    ASSERT(item != NULL);
    pipe->free = item->chain;
    *item = (struct item){.delivery = delivery, .queued_ms = now_of(pipe)};
    list_init(&item->link);
    delivery->driver = item;
    enqueue(pipe, item, false);
    pipe_soon(pipe);
}

/* What waits goes back uncounted; what a process dies with from here on is not given to another. */
static void pipe_stopping(struct handler *base)
{
    struct pipe *pipe = (struct pipe *)base;
    pipe->stopping = true;
    pipe_soon(pipe);
}

/* ---- cancelling ---- */

/* Somebody else has the entry. Its process need not know: what it answers is let fall, or is a late
 * `done`. One that has nothing else is ended, as a command would be. */
static void lost(struct pipe *pipe, struct item *item)
{
    struct process *process = item->process;
    if (process->cancelled_count == process->flight_count) {
        process_end(process, "what it works on is no longer this worker's", true);
    } else if (pipe->env->timeout_ms > 0) {
        item->lost_until_ms = add_saturating(now_of(pipe), pipe->env->timeout_ms);
        children_chores_due(&pipe->children);
    }
}

static void pipe_cancel(struct handler *base, struct delivery *delivery, enum cancel_reason reason)
{
    struct pipe *pipe = (struct pipe *)base;
    struct item *item = delivery->driver;
    struct process *process = item->process;
    if (process == NULL) {
        pipe_release(pipe, item);
        return;
    }
    process->cancelled_count += !item->cancelled;
    item->reason = !item->cancelled || reason == CANCEL_STOP ? reason : item->reason;
    item->cancelled = true;
    uv_update_time(pipe->env->loop);
    if (reason == CANCEL_STOP) {
        process_end(process, "the worker stops, and its grace is over", true);
    } else if (reason == CANCEL_TIMEOUT) {
        char text[160], id[ID_TEXT_SIZE];
        (void)snprintf(text, sizeof text, "entry %s was not answered within the timeout%s",
                       id_format(delivery->entry->id, id),
                       process->answered ? "" : ", nor was any other: does it flush its answers?");
        process_end(process, text, true);
    } else {
        lost(pipe, item);
    }
}

/* ---- chores ---- */

static bool any_up(const struct pipe *pipe)
{
    for (uint32_t i = 0; i < pipe->process_count; i++) {
        if (pipe->processes[i].state != PROCESS_DOWN) {
            return true;
        }
    }
    return false;
}

/* What waits for a process has not begun; and where there is none, others may have more luck. */
static void mind_queue(struct pipe *pipe, int64_t now_ms)
{
    bool up = any_up(pipe);
    bool broken = pipe->broken_ms > 0 && now_ms - pipe->broken_ms >= WAIT_MAX_MS;
    struct link *at = pipe->queue.next;
    while (at != &pipe->queue) {
        struct item *item = CONTAINER(at, struct item, link);
        at = at->next;
        if (!up && broken && now_ms - item->queued_ms >= WAIT_MAX_MS) {
            pipe_release(pipe, item);
        } else {
            pipe->env->begun(pipe->env->user, item->delivery);
        }
    }
}

static bool on_chores(struct children *children)
{
    struct pipe *pipe = pipe_of(children);
    int64_t now_ms = now_of(pipe);
    bool more = false;
    for (uint32_t i = 0; i < pipe->process_count; i++) {
        more = process_chores(&pipe->processes[i], now_ms) || more;
    }
    mind_queue(pipe, now_ms);
    if (pipe->queue_count > 0) {
        pipe_soon(pipe);
    }
    return more || pipe->queue_count > 0;
}

/* ---- life ---- */

static void on_ready(struct children *children, struct child *child, enum child_fd what)
{
    (void)children;
    process_ready(CONTAINER(child, struct process, child), what);
}

static void leave_loop(struct pipe *pipe)
{
    children_close(&pipe->children);
    uv_close((uv_handle_t *)&pipe->soon, NULL);
}

void pipe_ended(struct pipe *pipe, struct process *process)
{
    if (pipe->reserved == process) {
        pipe->reserved = NULL;
    }
    if (!pipe->closing) {
        pipe_soon(pipe);
    } else if (!any_up(pipe)) {
        leave_loop(pipe);
    }
}

/* Nothing is in hand any more. The loop is left when the last process has gone. */
static void pipe_close(struct handler *base)
{
    struct pipe *pipe = (struct pipe *)base;
    (void)uv_timer_stop(&pipe->soon);
    pipe->closing = true;
    uv_update_time(pipe->env->loop);
    if (!any_up(pipe)) {
        leave_loop(pipe);
        return;
    }
    for (uint32_t i = 0; i < pipe->process_count; i++) {
        process_let_go(&pipe->processes[i]);
    }
}

static void pipe_free(struct handler *base)
{
    struct pipe *pipe = (struct pipe *)base;
    children_free(&pipe->children);
    command_env_release(&pipe->variables);
    for (uint32_t i = 0; i < pipe->process_count && pipe->processes != NULL; i++) {
        process_release(&pipe->processes[i]);
    }
    arena_release(&pipe->arena);
    free(pipe->processes);
    free(pipe->items);
    free(pipe->index);
    free(pipe);
}

static int make_items(struct pipe *pipe, struct impel_error *err)
{
    uint32_t count = pipe->env->concurrency;
    pipe->index_size = 16;
    while (pipe->index_size < count) {
        pipe->index_size *= 2;
    }
    pipe->processes = calloc(pipe->process_count, sizeof *pipe->processes);
    pipe->items = calloc(count, sizeof *pipe->items);
    pipe->index = calloc(pipe->index_size, sizeof(struct item *));
    if (pipe->processes == NULL || pipe->items == NULL || pipe->index == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for %u entries at once", count);
    }
    for (uint32_t i = count; i > 0; i--) {
        pipe->items[i - 1].chain = pipe->free;
        pipe->free = &pipe->items[i - 1];
    }
    list_init(&pipe->queue);
    return IMPEL_OK;
}

static int
open_resources(struct pipe *pipe, const struct runtime_handler *options, struct impel_error *err)
{
    uint32_t count = pipe->process_count;
    int rc = make_items(pipe, err);
    rc = rc < 0 ? rc : command_env_init(&pipe->variables, err);
    /* Last: what joins the loop has to be closed in turn. */
    rc = rc < 0 ? rc : children_open(&pipe->children, pipe->env, options->argv, count, err);
    if (rc < 0) {
        return rc;
    }
    for (uint32_t i = 0; i < count; i++) {
        process_init(pipe, &pipe->processes[i], i);
    }
    (void)uv_timer_init(pipe->env->loop, &pipe->soon);
    pipe->soon.data = pipe;
    return IMPEL_OK;
}

static int pipe_open(const struct handler_env *env,
                     const struct runtime_handler *options,
                     struct handler **out,
                     struct impel_error *err)
{
    uint32_t count = options->processes == 0 ? 1 : options->processes;
    if (count > env->concurrency) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "%u processes for %u entries at once: some would never have any", count,
                         env->concurrency);
    }
    struct pipe *pipe = calloc(1, sizeof *pipe);
    if (pipe == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a handler");
    }
    *pipe = (struct pipe){.base.ops = &handler_pipe,
                          .env = env,
                          .process_count = count,
                          .share = (env->concurrency + count - 1) / count,
                          .children = {.ready = on_ready,
                                       .chores = on_chores,
                                       .guard = {.fd = -1, .pid = -1},
                                       .epoll_fd = -1}};
    int rc = open_resources(pipe, options, err);
    if (rc < 0) {
        pipe_free(&pipe->base);
        return rc;
    }
    *out = &pipe->base;
    return IMPEL_OK;
}

const struct handler_ops handler_pipe = {
    .open = pipe_open,
    .start = pipe_start,
    .cancel = pipe_cancel,
    .stopping = pipe_stopping,
    .close = pipe_close,
    .free = pipe_free,
};
