/* store.h -- the port: what a store can do, and how it is driven.
 *
 * Asynchronous by shape. submit() takes a request; turn() carries out what it can and completes
 * requests by calling their `done`. The embedded store does everything in turn() (one transaction
 * and at most one fsync for all that was submitted since the last); a networked one sends in turn()
 * and completes when replies arrive. One thread drives one store handle; the only function that may
 * be called from another is the `wake` callback, by the store.
 *
 * ORDER. Requests take effect in the order in which they were submitted, except that a READ which
 * waits holds nobody up; each is one atomic step, whatever shares its transaction: one that is
 * refused leaves the others standing, a commit that fails fails all of them. None is completed
 * before its effect is as durable as the store promises.
 *
 * REENTRY. `done` may submit, cancel other requests and free its own; it must not call turn() or
 * close(). What it submits is carried out at the next turn.
 *
 * A driver's loop:   submit...; deadline = turn(store, now); wait for I/O, timers, wake; again. */
#ifndef IMPEL_STORE_H
#define IMPEL_STORE_H

#include "core/request.h"

struct store;

/* What a store tells about itself, beside its answers: a stuck writer, a reconnect. */
struct store_event {
    const char *name; /* "lock-held", "disconnected", "reconnected", ... */
    int level;        /* 0 debug, 1 info, 2 warning, 3 error */
    const char *text; /* one line; like the struct it is valid during the call */
};

/* Copied by open(). */
struct store_env {
    /* Called from any thread when turn() should run soon. May be NULL: then the driver polls by the
     * deadlines that turn() returns. Must not call back into the store. May come too often and
     * without a reason, never after close() has returned. */
    void (*wake)(void *user);
    /* Called from turn() and submit(), on the driving thread, never inside a transaction. May be
     * NULL. Must not call back into the store. */
    void (*event)(void *user, const struct store_event *event);
    void *user;
    void *loop; /* a uv_loop_t for stores that need one; the embedded store does not */
};

struct store_ops {
    const char *scheme; /* "lmdb" */
    /* Opens the store of a URL (`rest` is what follows "scheme:") and sets its `ops`. On failure
     * nothing is left open and `out` is left alone. */
    int (*open)(const char *rest,
                const struct store_env *env,
                struct store **out,
                struct impel_error *err);
    /* Completes everything that it still has (queued, sent, blocked) with IMPEL_ERR_CANCELLED, then
     * frees. Never carries out what was only queued; what a `done` submits meanwhile is completed
     * in the same way. What was sent may take effect. */
    void (*close)(struct store *store);
    /* Takes the request. Never calls `done` from within; never fails: what cannot be done is
     * completed with an error at the next turn; so it needs no memory but the request's `next` and
     * `store_data`. In a forked child every request is completed with IMPEL_ERR_FORKED. */
    void (*submit)(struct store *store, struct request *request);
    /* Ends a blocked READ early: it completes at the next turn, with entries if it was being served
     * at that moment, else with none and IMPEL_OK. Any other request is carried out as if nothing
     * was said. A READ that has not begun yet answers at once when it is. The store must still
     * have the request: its `done` has not been called. (Redis: CLIENT UNBLOCK.) */
    void (*cancel)(struct store *store, struct request *request);
    /* Does what can be done now. `now_ms` is the driver's monotonic clock (CLOCK_BOOTTIME). Returns
     * how many ms until it wants to be called again at the latest; 0 = at once, -1 = only after a
     * submit, a wake or I/O. Being called earlier, or for nothing, is fine. The time of a blocked
     * READ counts from the turn that began it. Never blocks for longer than about 20 ms on another
     * process's lock. */
    int64_t (*turn)(struct store *store, int64_t now_ms);
};

struct store {
    const struct store_ops *ops;
};

/* The table of all stores there are: adding one is adding a row in src/store/table.c. */
extern const struct store_ops *const store_table[];
extern const size_t store_table_size;

/* Opens a store by URL ("lmdb:PATH?sync=process"). An unknown scheme is IMPEL_ERR_INVALID with the
 * known ones listed. */
int store_open(const char *url,
               const struct store_env *env,
               struct store **out,
               struct impel_error *err);
void store_close(struct store *store); /* NULL is fine */
static inline void store_submit(struct store *store, struct request *request)
{
    store->ops->submit(store, request);
}
static inline void store_cancel(struct store *store, struct request *request)
{
    store->ops->cancel(store, request);
}
static inline int64_t store_turn(struct store *store, int64_t now_ms)
{
    return store->ops->turn(store, now_ms);
}
/* Submits and drives turn() until the request is done or `timeout_ms` (-1 = none) passed; for tools
 * and synchronous callers. Returns request->status; IMPEL_ERR_TIMEOUT leaves the request with the
 * store: then it must be waited for (call again) or the store closed before the request is freed.
 */
int store_wait(struct store *store, struct request *request, int64_t timeout_ms);

#endif /* IMPEL_STORE_H */
