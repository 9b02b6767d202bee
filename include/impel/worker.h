/* worker.h -- a worker: reads entries of a group, hands them to your function, recovers what others
 * dropped.
 *
 * THE CONTRACT WITH YOUR HANDLER. It is called with one entry at a time and says what came of it:
 *
 *   IMPEL_DONE    finished; the entry is acknowledged and never seen again;
 *   IMPEL_RETRY   not now; it comes again after the backoff, or is parked once it has been
 *                 delivered `max_deliveries` times;
 *   IMPEL_REJECT  never; it is parked at once: moved to the dead-letter stream with the reason.
 *
 * Delivery is at-least-once. An entry that nobody asked to have again is handed out twice only
 * after a crash, a lost connection, a failover, when this process stood still for longer than
 * `dead_after_ms`, or when its handler took longer than `timeout_ms`. A function cannot be ended
 * from outside: in those cases the first call may still run while the second does. A handler whose
 * work cannot be repeated needs a key of its own (stream and ID are one) to notice that; it must
 * not go by the attempt, which a clean stop gives back. It leaves by `return` alone: no exception,
 * longjmp() or pthread_exit() may pass through it. Up to `timeout_ms` (15 min) a handler may take
 * as long as it likes: while it runs the worker keeps the entry for it, and nobody else gets it as
 * long as the worker's beats reach the store.
 *
 * THREADS. impel_worker_run() belongs to one thread and does all the talking to the store there.
 * Handlers run on threads of a pool, up to `concurrency` at once; a process may run several
 * workers, each on a thread of its own. The functions of a delivery may be called from any thread
 * until its handler returns, one at a time, impel_delivery_cancelled() at any time. With
 * `inline_handler` they run on that one thread instead, without any hand-over: several times faster
 * for work of microseconds; but the worker cannot beat meanwhile, so such a handler has to be done
 * well within `dead_after_ms` / 4. impel_worker_stop() may be called from any thread and from a
 * signal handler.
 *
 * LIFETIMES. A delivery, and every span that its functions return, lives until the handler returns.
 * The options and all that they point to are copied by impel_worker_new(), but for what the `user`
 * pointers lead to: that must outlive the worker. A worker has a connection of its own to the store
 * it was made from, which may be closed before it.
 *
 * STOPPING. impel_worker_stop(), SIGTERM, SIGINT, or SIGHUP unless it is ignored: nothing new is read, running handlers may
 * finish within `grace_ms`, everything else is given back without having cost an attempt, and run()
 * returns 0. After the grace handlers that still run are told by impel_delivery_cancelled(); run()
 * returns when they have returned, since they use its memory, and not before: a handler that never
 * looks holds it up for good. A second stop, of whichever kind, ends the grace at once.
 *
 * FORKING. A worker does not survive a fork(): in the child it must not be used, nor freed. */
#ifndef IMPEL_WORKER_H
#define IMPEL_WORKER_H

#include "impel/event.h"
#include "impel/metrics.h"
#include "impel/store.h"
#include "impel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- handlers ---- */

enum impel_outcome {
    IMPEL_DONE = 0,
    IMPEL_RETRY = 1,
    IMPEL_REJECT = 2,
};

/* One entry in a handler's hands. */
struct impel_delivery;

/* What is known of the entry. Spans live until the handler returns; the worker's own thread or the
 * pool's, it makes no difference. */
IMPEL_API struct impel_id impel_delivery_id(const struct impel_delivery *delivery);
IMPEL_API struct impel_bytes impel_delivery_stream(const struct impel_delivery *delivery);
IMPEL_API struct impel_bytes impel_delivery_group(const struct impel_delivery *delivery);
IMPEL_API struct impel_bytes impel_delivery_consumer(const struct impel_delivery *delivery);
/* Which delivery of this entry it is, over all workers of the group there ever were: 1 the first
 * time, and again where an earlier one was given back by a stop. */
IMPEL_API int64_t impel_delivery_attempt(const struct impel_delivery *delivery);

/* The first field of that name (NUL-terminated here; names with a NUL are found by walking). `data`
 * is NULL if there is none, and not NULL if there is one, empty or not. The bytes are not
 * NUL-terminated. */
IMPEL_API struct impel_bytes impel_delivery_field(const struct impel_delivery *delivery,
                                                  const char *name);
/* The same for a name of any bytes. */
IMPEL_API struct impel_bytes impel_delivery_field_bytes(const struct impel_delivery *delivery,
                                                        struct impel_bytes name);
/* All fields, in the order in which they were added; names may repeat. */
IMPEL_API size_t impel_delivery_field_count(const struct impel_delivery *delivery);
/* `index` must be below the count. */
IMPEL_API struct impel_field impel_delivery_field_at(const struct impel_delivery *delivery,
                                                     size_t index);

/* True once the work is no longer wanted: it took longer than `timeout_ms`, the entry is another's
 * by now, or the worker stops and the grace is over. The outcome of a cancelled handler no longer
 * counts, except that IMPEL_DONE after the grace is acknowledged where it still can be. Cheap; a
 * long handler should look now and then. */
IMPEL_API int impel_delivery_cancelled(const struct impel_delivery *delivery);

/* Outcomes with words: `return impel_delivery_fail(d, "card declined");`. What the handler returns
 * is what counts: these only note the words and the delay, the last call's, and return the outcome
 * that belongs to them. The words (may be NULL) are copied, cut after 4 KiB, and go into events and
 * the dead-letter record. */
IMPEL_API enum impel_outcome impel_delivery_fail(struct impel_delivery *delivery,
                                                 const char *why); /* IMPEL_RETRY */
IMPEL_API enum impel_outcome impel_delivery_reject(struct impel_delivery *delivery,
                                                   const char *why); /* IMPEL_REJECT */
/* IMPEL_RETRY, at least `delay_ms` (0 or more) from now, and not before the backoff either. The
 * delay is this worker's promise only: if it dies meanwhile, the backoff alone counts. */
IMPEL_API enum impel_outcome
impel_delivery_retry_after(struct impel_delivery *delivery, int64_t delay_ms, const char *why);

/* ---- workers ---- */

/* A member that is 0 or NULL means its default, which ends its comment, so that a designated
 * initialiser names only what matters; the whole must be zeroed. Where 0 is itself a choice,
 * IMPEL_NONE makes it. Any other negative number is IMPEL_ERR_INVALID, and so is IMPEL_NONE where
 * it is not offered. Names given as `const char *` are NUL-terminated and copied. */
enum {
    IMPEL_NONE = -1,
};

struct impel_worker_options {
    /* What to read. One stream by name, or several, not both; at least one is required. */
    const char *stream;
    const struct impel_bytes *streams;
    size_t stream_count;
    const char *group;    /* required. If it is missing it is created, its stream too, and begins
                             with the oldest entry that the stream has */
    const char *consumer; /* default: the lowest free name `<host>-<n>`. A name of your own must be
                             given to one worker at a time */
    const char *dead_letter; /* one for all streams; default: for each its name and ":dead" */

    /* Your function. Required. */
    enum impel_outcome (*handler)(struct impel_delivery *delivery, void *user);
    void *user;
    uint32_t concurrency; /* handlers at once; default 1 */
    int inline_handler;   /* non-zero: on the worker's own thread; see above */
    int64_t prefetch;     /* entries held beyond that; default: by recent handler times;
                             IMPEL_NONE = none */
    int64_t timeout_ms;   /* a handler that takes longer is told by
                             impel_delivery_cancelled() and its entry retried, as if it had
                             returned IMPEL_RETRY; its place is free only when it returns;
                             default 15 min; IMPEL_NONE = never */
    int64_t grace_ms; /* how long handlers may go on after a stop; default 25 s; IMPEL_NONE = 0 */
    uint32_t waiting_max; /* entries waiting for their retry; more stop the reading; 10,000 */

    /* The policy, the same for every worker of a group. */
    int64_t min_idle_ms; /* entries of workers that are not Impel's are overdue after this; 60 s */
    int64_t dead_after_ms;   /* an Impel worker that has been silent for this is dead; 5 s */
    int64_t max_deliveries;  /* parked after this many; 5 */
    int64_t backoff_base_ms; /* doubles with each delivery; 1 s; IMPEL_NONE = no backoff */
    int64_t backoff_cap_ms;  /* 5 min */

    /* How to go about it. Non-zero is yes. */
    int strict;            /* acknowledge only what is still ours */
    int recover_only;      /* read nothing new */
    int no_create;         /* a missing group is an error */
    int until_idle;        /* return 0 when nothing of the group is undelivered or pending */
    int64_t until_idle_ms; /* with it: give up with IMPEL_ERR_TIMEOUT after this; 0 = never */
    int no_signals;        /* leave the three signals alone; default: while run() runs
                              they stop every worker of the process that has not set this */

    /* What it tells. */
    void (*event)(const struct impel_event *event, void *event_user); /* see event.h */
    void *event_user;
    enum impel_level event_level; /* events below this are not made; the default is all of them */
    const char *metrics_file;     /* rewritten every second, atomically, so one worker a file;
                                     default: none */

    struct impel_id group_start; /* a group that has to be created gets the entries after this ID;
                                    default 0-0: all that the stream has */

    uint64_t reserved[14]; /* 0; room for more */
};

struct impel_worker;

/* Makes a worker; nothing is read yet. On success the worker is the caller's, to be freed by
 * impel_worker_free(); on failure it is NULL. Errors: IMPEL_ERR_INVALID with a text that names the
 * option, and all that opening a store can answer. */
IMPEL_API int impel_worker_new(struct impel_store *store,
                               const struct impel_worker_options *options,
                               struct impel_worker **worker,
                               struct impel_error *err);
/* Works until it is stopped (see STOPPING above), then returns 0. Negative: it could not go on:
 * IMPEL_ERR_REPLACED when another worker runs under its name, IMPEL_ERR_TIMEOUT when
 * `until_idle_ms` passed, IMPEL_ERR_NO_GROUP with `no_create`, or what the store said. Either way
 * no handler runs any more. May be called once. */
IMPEL_API int impel_worker_run(struct impel_worker *worker, struct impel_error *err);
/* Asks the worker to stop and does not wait. From any thread, from a handler of its own too, and
 * from a signal handler, while the worker is not being freed. Before run() it makes run() return at
 * once. */
IMPEL_API void impel_worker_stop(struct impel_worker *worker);
/* Frees a worker that is not running, so not from a handler or the event callback; NULL is fine. */
IMPEL_API void impel_worker_free(struct impel_worker *worker);
/* The name it runs under; empty until a slot name was found. From any thread; lives as long as the
 * worker. */
IMPEL_API struct impel_bytes impel_worker_consumer(const struct impel_worker *worker);
/* The sums over all its streams. From any thread, at any time between new and free, but not from
 * the event callback. Fills all of `metrics`. */
IMPEL_API void impel_worker_metrics(const struct impel_worker *worker,
                                    struct impel_metrics *metrics);

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_WORKER_H */
