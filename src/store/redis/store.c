/* store.c -- the store as the port sees it: submit, turn, cancel, close.
 *
 * With a loop of the driver's, replies are read in its callbacks and requests completed in the next
 * turn, which `wake` asks for. Without one the store has its own loop, and turn() runs it for a few
 * milliseconds while something is outstanding. */
#include "store/redis/store.h"

#include "store/redis/redis.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SLICE_MS = 10, /* a turn on the own loop waits at most this long */
    COMMAND_MAX = 1024 * 1024 * 1024,
};

/* ---- lists ---- */

void op_list_init(struct op_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

void op_push(struct op_list *list, struct op *op)
{
    op->next = NULL;
    *list->last = op;
    list->last = &op->next;
}

struct op *op_pop(struct op_list *list)
{
    struct op *op = list->first;

    if (op != NULL) {
        list->first = op->next;
        list->last = list->first == NULL ? &list->first : list->last;
        op->next = NULL;
    }
    return op;
}

bool op_remove(struct op_list *list, const struct op *op)
{
    for (struct op **at = &list->first; *at != NULL; at = &(*at)->next) {
        if (*at == op) {
            *at = op->next;
            list->last = *at == NULL ? at : list->last;
            return true;
        }
    }
    return false;
}

/* ---- events ---- */

/* Once until the next turn: it is a system call for most drivers. */
static void store_wake(struct redis_store *store)
{
    if (store->env.wake != NULL && !store->woken) {
        store->woken = true;
        store->env.wake(store->env.user);
    }
}

void store_say(struct redis_store *store, const char *name, int level, const char *format, ...)
{
    va_list args;

    if (store->event_count == EVENTS_MAX) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(store->events[store->event_count].text, sizeof(store->events[0].text), format,
                    args);
    va_end(args);
    store->events[store->event_count].name = name;
    store->events[store->event_count++].level = level;
    store_wake(store);
}

static void tell_events(struct redis_store *store)
{
    for (size_t i = 0; i < store->event_count; i++) {
        const struct store_event event = {store->events[i].name, store->events[i].level,
                                          store->events[i].text};
        if (store->env.event != NULL) {
            store->env.event(store->env.user, &event);
        }
    }
    store->event_count = 0;
}

/* ---- ops ---- */

struct op *op_new(struct redis_store *store, const struct op_kind *kind, struct request *request)
{
    struct op *op = calloc(1, sizeof(*op));

    if (op != NULL) {
        op->store = store;
        op->kind = kind;
        op->request = request;
        store->outstanding++;
        if (request != NULL) {
            request->store_data = op;
        }
    }
    return op;
}

static void request_finish(struct redis_store *store, struct request *request, int status)
{
    request->status = status;
    request->store_data = NULL;
    request->next = NULL;
    *store->done_last = request;
    store->done_last = &request->next;
    store_wake(store);
}

void op_finish(struct op *op, int status)
{
    op->store->outstanding--;
    if (op->kind->forget != NULL) {
        op->kind->forget(op);
    }
    if (op->request != NULL) {
        request_finish(op->store, op->request, status);
    }
    free(op);
}

void op_fail(struct op *op, const struct impel_error *err)
{
    if (op->request != NULL) {
        op->request->error = *err;
    }
    op_finish(op, err->status);
}

void op_submit(struct op *op, struct link *link)
{
    op->link = link;
    if (link->state == LINK_READY && (link != &link->store->read || link->store->unblocks == 0)) {
        link_send(link, op);
        return;
    }
    op->sent = false;
    op_push(&link->waiting, op);
    link_start(link);
}

/* ---- reads whose connection broke ---- */

static int kill_send(struct op *op, struct buf *out)
{
    const struct op *orphan = op->user;

    cmd_begin(op);
    cmd_text(op, "CLIENT");
    cmd_text(op, "KILL");
    cmd_text(op, "ID");
    cmd_number(op, orphan->client_id);
    cmd_end(op, out);
    return 1;
}

static void orphan_finish(struct op *op)
{
    struct redis_store *store = op->store;
    struct impel_error err;

    ASSERT(op_remove(&store->orphans, op));
    (void)error_set(&err, IMPEL_ERR_DISCONNECTED, "redis at %s: the connection of a read broke",
                    store->url.shown);
    op_fail(op, &err);
}

static enum op_next killed(struct op *op, const struct value *reply)
{
    struct op *orphan = op->user;

    (void)reply; /* gone already, or not allowed: nothing more can be done */
    op_finish(op, IMPEL_OK);
    orphan_finish(orphan);
    return OP_DONE;
}

/* It is tried again when the main link is back. */
static void kill_lost(struct op *op, const struct impel_error *err)
{
    (void)err;
    op_finish(op, IMPEL_OK);
}

static const struct op_kind op_kill = {
    .name = "CLIENT KILL", .send = kill_send, .take = killed, .lost = kill_lost};

static void orphan_kill(struct op *orphan)
{
    struct redis_store *store = orphan->store;
    struct op *kill = NULL;

    /* Another server, or the same one started anew, does not know that connection. */
    if (orphan->client_id != 0 && strcmp(orphan->run_id, store->main.run_id) == 0) {
        kill = op_new(store, &op_kill, NULL);
    }
    if (kill == NULL) {
        orphan_finish(orphan);
        return;
    }
    kill->user = orphan;
    op_submit(kill, &store->main);
    link_flush(&store->main);
}

void store_orphan(struct op *op)
{
    struct redis_store *store = op->store;

    op->orphaned = true;
    op->client_id = op->link->client_id;
    memcpy(op->run_id, op->link->run_id, sizeof(op->run_id));
    op_push(&store->orphans, op);
    if (op->link != &store->main && store->main.state == LINK_READY) {
        orphan_kill(op);
    }
}

void store_link_ready(struct link *link)
{
    struct redis_store *store = link->store;
    struct op *next;

    for (struct op *op = link == &store->main ? store->orphans.first : NULL; op != NULL;
         op = next) {
        next = op->next;
        orphan_kill(op);
    }
}

/* ---- cancelling ---- */

static int unblock_send(struct op *op, struct buf *out)
{
    cmd_begin(op);
    cmd_text(op, "CLIENT");
    cmd_text(op, "UNBLOCK");
    cmd_number(op, op->store->read.client_id);
    cmd_end(op, out);
    return 1;
}

/* Reads that were held back while the server might still have ended them by mistake. */
static void unblock_over(struct redis_store *store)
{
    struct op *op;

    store->unblocks--;
    while (store->unblocks == 0 && store->read.state == LINK_READY &&
           (op = op_pop(&store->read.waiting)) != NULL) {
        link_send(&store->read, op);
        link_flush(&store->read);
    }
}

static void unblock_lost(struct op *op, const struct impel_error *err)
{
    struct redis_store *store = op->store;

    (void)err; /* the read ends by its own time */
    op_finish(op, IMPEL_OK);
    unblock_over(store);
}

/* 0: it was not blocked. If it was not because it has not been looked at yet, once more. */
static enum op_next unblocked(struct op *op, const struct value *reply)
{
    struct redis_store *store = op->store;
    const struct op *read = store->read.sent.first;

    if (reply->kind == VALUE_INTEGER && reply->integer == 0 && read != NULL && read->cancelled) {
        return OP_AGAIN;
    }
    op_finish(op, IMPEL_OK);
    unblock_over(store);
    return OP_DONE;
}

static const struct op_kind op_unblock = {
    .name = "CLIENT UNBLOCK", .send = unblock_send, .take = unblocked, .lost = unblock_lost};

static void redis_cancel(struct store *base, struct request *request)
{
    struct redis_store *store = (struct redis_store *)base;
    struct op *op = request->store_data, *unblock;

    if (request->kind != REQUEST_READ) {
        return;
    }
    if (op == NULL) {
        request->read.block_ms = 0; /* queued, or done: either is over in the next turn */
        return;
    }
    if (!op->sent && op_remove(&op->link->waiting, op)) {
        op_finish(op, IMPEL_OK);
        return;
    }
    if (op->cancelled || op->link != &store->read || op->orphaned) {
        return;
    }
    op->cancelled = true;
    unblock = store->main.state == LINK_READY ? op_new(store, &op_unblock, NULL) : NULL;
    if (unblock != NULL) {
        store->unblocks++;
        op_submit(unblock, &store->main);
        link_flush(&store->main);
    }
}

/* ---- turning ---- */

const struct op_kind *op_kind_of(const struct request *request)
{
    static const struct op_kind *const kinds[] = {
        [REQUEST_ADD] = &op_add,
        [REQUEST_READ] = &op_read,
        [REQUEST_ACK] = &op_ack,
        [REQUEST_BEAT] = &op_beat,
        [REQUEST_LOOK] = &op_look,
        [REQUEST_CLAIM_FROM] = &op_claim,
        [REQUEST_RETRY] = &op_take,
        [REQUEST_ADOPT] = &op_take,
        [REQUEST_RENEW] = &op_renew,
        [REQUEST_RELEASE] = &op_release,
        [REQUEST_PARK] = &op_park,
        [REQUEST_LEAVE] = &op_leave,
        [REQUEST_DROP] = &op_drop,
        [REQUEST_PENDING] = &op_pending,
        [REQUEST_RANGE] = &op_range,
        [REQUEST_INFO] = &op_info,
        [REQUEST_GROUP_CREATE] = &op_group,
        [REQUEST_GROUP_SET] = &op_group,
        [REQUEST_TRIM] = &op_trim,
        [REQUEST_TRIM_DONE] = &op_trim_done,
        [REQUEST_REPLAY] = &op_replay,
        [REQUEST_CALL] = &op_call,
    };

    if ((size_t)request->kind >= ARRAY_SIZE(kinds)) {
        return NULL;
    }
    if (request->kind == REQUEST_ACK && request->ack.strict) {
        return &op_strict_ack;
    }
    if (request->kind == REQUEST_GROUP_CREATE && request->group_set.at_floor) {
        return &op_create;
    }
    /* A size that is smaller than what a read usually brings is counted entry by entry, in a script;
     * and COUNT is for each stream, so several are asked one after another. */
    if (request->kind == REQUEST_READ &&
        (request->read.stream_count > 1 ||
         (request->read.size_max > 0 && request->read.size_max < READ_SIZE_SMALL))) {
        return &op_read_many;
    }
    return kinds[request->kind];
}

static void send_queued(struct redis_store *store)
{
    struct request *request;

    while ((request = store->queued_first) != NULL) {
        store->queued_first = request->next;
        if (store->queued_first == NULL) {
            store->queued_last = &store->queued_first;
        }
        const struct op_kind *kind = op_kind_of(request);
        struct op *op = kind == NULL ? NULL : op_new(store, kind, request);
        if (op == NULL) {
            int status = kind == NULL ? IMPEL_ERR_UNSUPPORTED : IMPEL_ERR_NOMEM;
            (void)error_set(&request->error, status, "%s", status_text(status));
            request_finish(store, request, status);
            continue;
        }
        bool blocks = request->kind == REQUEST_READ && request->read.block_ms > 0;
        op_submit(op, blocks ? &store->read : &store->main);
    }
}

/* A READ goes out at once where it can: the server fetches entries while the driver still works. */
static void redis_submit(struct store *base, struct request *request)
{
    struct redis_store *store = (struct redis_store *)base;
    bool reads = request->kind == REQUEST_READ && store->queued_first == NULL;

    request->next = NULL;
    request->store_data = NULL;
    *store->queued_last = request;
    store->queued_last = &request->next;
    if (reads && store->main.state == LINK_READY) {
        send_queued(store);
        link_flush(&store->main);
        link_flush(&store->read);
    }
}

static bool complete(struct redis_store *store)
{
    struct request *request = store->done_first;
    bool any = request != NULL;

    store->done_first = NULL;
    store->done_last = &store->done_first;
    while (request != NULL) {
        struct request *next = request->next;
        request->next = NULL;
        request->done(request);
        request = next;
    }
    return any;
}

static void slice_over(uv_timer_t *timer)
{
    (void)timer; /* its only use is to end the wait */
}

/* A peer that is gone must not end the process: see net.h. What came of a blocked SIGPIPE is taken
 * away before it is let in again. */
static void run_own_loop(struct redis_store *store, bool may_wait)
{
    sigset_t pipe_only, before;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    if (may_wait) {
        uv_update_time(store->loop);
        uv_timer_start(&store->slice, slice_over, SLICE_MS, 0);
        uv_run(store->loop, UV_RUN_ONCE);
        uv_timer_stop(&store->slice);
    } else {
        uv_run(store->loop, UV_RUN_NOWAIT);
    }
    if (!sigismember(&before, SIGPIPE)) {
        while (sigtimedwait(&pipe_only, NULL, &(struct timespec){0}) == SIGPIPE) {
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
}

/* Nobody ran the loop since the last answer, and the server may have closed the connection meanwhile (its
 * `timeout`, a restart): what went there would be lost, so it is looked at first, and once more for the
 * connection's own word of it. */
static void look_before_sending(struct redis_store *store)
{
    bool idle = store->main.sent.first == NULL && store->read.sent.first == NULL;

    if (store->own && idle && store->queued_first != NULL) {
        run_own_loop(store, false);
        run_own_loop(store, false);
    }
}

static int64_t redis_turn(struct store *base, int64_t now_ms)
{
    struct redis_store *store = (struct redis_store *)base;

    (void)now_ms; /* the loop has its own */
    store->woken = false;
    look_before_sending(store);
    tell_events(store);
    send_queued(store);
    link_flush(&store->main);
    link_flush(&store->read);
    if (store->own) {
        run_own_loop(store, store->outstanding > 0 && store->done_first == NULL);
    }
    while (complete(store)) {
        send_queued(store);
    }
    link_flush(&store->main);
    link_flush(&store->read);
    tell_events(store);
    return store->own && store->outstanding > 0 ? 0 : -1;
}

/* ---- opening and closing ---- */

static int open_loop(struct redis_store *store, struct impel_error *err)
{
    store->own = store->env.loop == NULL;
    store->loop = store->own ? &store->own_loop : store->env.loop;
    int rc = store->own ? uv_loop_init(&store->own_loop) : 0;
    if (rc < 0) {
        return error_set(err, IMPEL_ERR_IO, "no event loop: %s", uv_strerror(rc));
    }
    uv_timer_init(store->loop, &store->slice);
    store->slice.data = store;
    store->closing = 3;
    link_init(&store->main, store, "impel");
    link_init(&store->read, store, "impel-read");
    return IMPEL_OK;
}

/* Files that cannot be used are told before anything is tried. */
static int check_tls(const struct redis_url *url, struct impel_error *err)
{
    struct tls_context *tls = NULL;
    int rc = url->tls ? link_tls(url, &tls, err) : IMPEL_OK;

    tls_context_free(tls);
    return rc;
}

static int redis_open(const struct store_ops *ops,
                      const char *rest,
                      const struct store_env *env,
                      struct store **out,
                      struct impel_error *err)
{
    struct redis_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    store->store.ops = ops;
    store->old = true; /* until the server has told */
    store->env = env != NULL ? *env : (struct store_env){.loop = NULL};
    store->queued_last = &store->queued_first;
    store->done_last = &store->done_first;
    op_list_init(&store->orphans);
    buf_init(&store->command, COMMAND_MAX);
    uv_random(NULL, NULL, &store->seed, sizeof(store->seed), 0, NULL);
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        sha1_text(script_table[i].text, store->script_names[i]);
    }
    int rc = redis_url_parse(ops->scheme, rest, &store->url, err);
    rc = rc < 0 ? rc : check_tls(&store->url, err);
    rc = rc < 0 ? rc : open_loop(store, err);
    if (rc < 0) {
        redis_url_release(&store->url);
        free(store);
        return rc;
    }
    link_start(&store->main);
    *out = &store->store;
    return IMPEL_OK;
}

static void store_unref(struct redis_store *store)
{
    if (--store->closing == 0 && !store->own) {
        redis_url_release(&store->url);
        free(store);
    }
}

static void slice_closed(uv_handle_t *handle)
{
    store_unref(handle->data);
}

static void link_closed(uv_handle_t *handle)
{
    store_unref(((struct link *)handle->data)->store);
}

static void redis_close(struct store *base)
{
    struct redis_store *store = (struct redis_store *)base;
    struct op_list ops;
    struct op *op;

    store->env.wake = NULL;
    op_list_init(&ops);
    link_close(&store->main, &ops);
    link_close(&store->read, &ops);
    while ((op = op_pop(&store->orphans)) != NULL) {
        op_push(&ops, op);
    }
    while ((op = op_pop(&ops)) != NULL) {
        op_finish(op, IMPEL_ERR_CANCELLED);
    }
    while (store->queued_first != NULL) {
        struct request *request = store->queued_first;
        store->queued_first = request->next;
        request_finish(store, request, IMPEL_ERR_CANCELLED);
    }
    (void)complete(store);
    buf_release(&store->command);
    free(store->fields);
    uv_close((uv_handle_t *)&store->main.timer, link_closed);
    uv_close((uv_handle_t *)&store->read.timer, link_closed);
    uv_close((uv_handle_t *)&store->slice, slice_closed);
    if (store->own) {
        uv_run(store->loop, UV_RUN_DEFAULT);
        uv_loop_close(store->loop);
        redis_url_release(&store->url);
        free(store);
    }
}

static int open_redis(const char *rest,
                      const struct store_env *env,
                      struct store **out,
                      struct impel_error *err)
{
    return redis_open(&redis_store_ops, rest, env, out, err);
}

static int open_valkey(const char *rest,
                       const struct store_env *env,
                       struct store **out,
                       struct impel_error *err)
{
    return redis_open(&valkey_store_ops, rest, env, out, err);
}

static int open_rediss(const char *rest,
                       const struct store_env *env,
                       struct store **out,
                       struct impel_error *err)
{
    return redis_open(&rediss_store_ops, rest, env, out, err);
}

static int open_valkeys(const char *rest,
                        const struct store_env *env,
                        struct store **out,
                        struct impel_error *err)
{
    return redis_open(&valkeys_store_ops, rest, env, out, err);
}

static int open_unix(const char *rest,
                     const struct store_env *env,
                     struct store **out,
                     struct impel_error *err)
{
    return redis_open(&unix_store_ops, rest, env, out, err);
}

const struct store_ops redis_store_ops = {.scheme = "redis",
                                          .open = open_redis,
                                          .close = redis_close,
                                          .submit = redis_submit,
                                          .cancel = redis_cancel,
                                          .turn = redis_turn};
const struct store_ops valkey_store_ops = {.scheme = "valkey",
                                           .open = open_valkey,
                                           .close = redis_close,
                                           .submit = redis_submit,
                                           .cancel = redis_cancel,
                                           .turn = redis_turn};
const struct store_ops rediss_store_ops = {.scheme = "rediss",
                                           .open = open_rediss,
                                           .close = redis_close,
                                           .submit = redis_submit,
                                           .cancel = redis_cancel,
                                           .turn = redis_turn};
const struct store_ops valkeys_store_ops = {.scheme = "valkeys",
                                            .open = open_valkeys,
                                            .close = redis_close,
                                            .submit = redis_submit,
                                            .cancel = redis_cancel,
                                            .turn = redis_turn};
const struct store_ops unix_store_ops = {.scheme = "unix",
                                         .open = open_unix,
                                         .close = redis_close,
                                         .submit = redis_submit,
                                         .cancel = redis_cancel,
                                         .turn = redis_turn};
