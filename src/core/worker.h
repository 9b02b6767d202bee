/* worker.h -- a worker as a state machine: events in, actions out, no I/O.
 *
 * A driver (the libuv runtime, the simulator, a unit test) feeds events with the time, takes
 * actions until there are none, and calls worker_tick() at the deadline it returns:
 *
 *     worker_tick / worker_done / worker_outcome / worker_stop (..., now)
 *     while (worker_next(w, &action)) { carry it out }
 *
 * `now_ms` is the driver's monotonic clock that also counts sleep (CLOCK_BOOTTIME); it never goes
 * back. Requests that come out as actions are the store's until it completes them; the driver then
 * hands them back with worker_done(), which frees them. The machine never sees a clock, a socket, a
 * thread, a random number (it has a seed) or a store.
 *
 * WHAT IT DOES, per stream of the group: creates the group; takes its name in the workers table and
 * beats; reads with a bounded block when there is room; starts handlers; acks in batches; renews
 * all that it holds; keeps entries that wait for a retry by ID and count; parks at the limit or on
 * reject; sweeps (look, then claim_from owner by owner) when the stamp is its; adopts what the
 * store says is its own but is in nobody's hands; runs an entry's last attempt after a holder's
 * death alone; and on worker_stop() drains: ends the blocked read, takes its last reply, lets
 * running handlers finish up to the grace, releases the rest without burning an attempt, leaves the
 * table.
 *
 * RULES THAT LIVE HERE
 * - The first beat in a group is confirmed before the first read there.
 * - A handler starts only if the last confirmed beat is younger than dead-after / 2; otherwise all
 * that is held is renewed (fenced) first, and what is no longer ours is dropped. So it is after a
 * connection broke, however short that was.
 * - Beats go out on time, whether or not the previous one was answered.
 * - Recovered entries (claimed, adopted) go only to a free handler, never into the buffer. Reads
 * and claims reserve places before they are submitted. While due work is known a quarter of the
 * places is its own (with one place: alternately).
 * - An ID in hand is never started again; if it is delivered again its fence is updated.
 * - Outcomes carry the delivery's serial; one that was superseded (timeout, lost) is dropped, but
 * the handler's place is free only when the driver says that the handler is over.
 * - Adoption: a listing of the own PEL counts as proof only for entries that are in nobody's hands
 * after every read and claim that was outstanding when the listing was submitted has completed.
 * - After NO_GROUP everything held of that stream is cancelled (a late ack could hit another entry
 * of the same ID), the group is created again, from its ack floor, with backoff, and counted. */
#ifndef IMPEL_CORE_WORKER_H
#define IMPEL_CORE_WORKER_H

#include "core/request.h"

enum {
    WORKER_ITEMS_MAX = 200,      /* of a renewal or release step */
    WORKER_READ_MAX = 1000,      /* entries asked for at once */
    WORKER_ACK_MAX = 1000,       /* IDs in one ack */
    WORKER_WAITING_MAX = 10000,  /* default of max_waiting */
    WORKER_BLOCK_MS = 2000,      /* a vanished host takes little with it */
    WORKER_RENEW_MAX_MS = 10000, /* renewal every min(min_idle / 3, this) */
    WORKER_STREAMS_MAX = 1000,
};

enum worker_outcome {
    OUTCOME_DONE,
    OUTCOME_RETRY,
    OUTCOME_REJECT,
    OUTCOME_CRASHED, /* RETRY; it, or one that ran in the same process, ended that process: its next
                        attempt is to run apart */
    OUTCOME_RELEASE, /* it did not run to an outcome (ended by a stop, or its command could not be
                        started at all): released, the attempt given back */
};

struct worker_options {
    const struct impel_bytes *streams; /* copied */
    size_t stream_count;
    struct impel_bytes group;
    struct impel_bytes consumer;
    const struct impel_bytes *dead_letters; /* one per stream */
    struct token token;
    struct policy policy;
    uint32_t concurrency;        /* handlers at once, >= 1 */
    int64_t prefetch;            /* held beyond that; -1 = by recent handler times */
    uint32_t waiting_max;        /* 0 = WORKER_WAITING_MAX */
    int64_t timeout_ms;          /* of a handler; 0 = none */
    int64_t grace_ms;            /* how long running handlers may go on after worker_stop() */
    bool strict;                 /* fence `done` as well */
    bool recover_only;           /* never read new entries */
    bool no_create;              /* a missing group is an error */
    bool until_idle;             /* end when one atomic look finds nothing undelivered or pending */
    int64_t until_idle_ms;       /* give up with exit code 1 after this; 0 = never */
    struct impel_id group_start; /* for a group that has to be created; default 0-0 */
    int64_t sweep_interval_ms;   /* 1000 */
    bool name_exclusive; /* a live name is not waited for: EVENT_NAME_TAKEN, then STOPPED with exit
                           code 1 at once, and no row is left; the driver then tries another name */
    uint64_t seed;
};

/* One entry in this worker's hands. The machine owns it; the driver may read it from START until it
 * has reported the handler's end with worker_outcome(). */
struct delivery {
    uint64_t serial; /* of this attempt, unique in the process */
    size_t stream_index;
    struct entry *entry;
    int64_t attempt; /* the delivery counter, 1 the first time */
    /* Should it end the process that its handler runs in, no other entry ought to be in there: its
     * last attempt, or a process ended beside it before. */
    bool apart;
    void *driver; /* the driver's own, for its handler state */
};

enum action_kind {
    ACTION_SUBMIT,  /* give `request` to the store */
    ACTION_UNBLOCK, /* store_cancel(request): end this blocked read */
    ACTION_START,   /* start the handler on `delivery` */
    ACTION_CANCEL,  /* tell the handler of `delivery` that its work is no longer wanted; `reason` */
    ACTION_EVENT,   /* something happened that people or metrics want to know */
    ACTION_STOPPED, /* the machine is at its end; exit_code; nothing is held any more */
};

enum cancel_reason {
    CANCEL_LOST,    /* somebody else has the entry, or the group vanished */
    CANCEL_TIMEOUT, /* over --timeout; the outcome "retry" is already counted */
    CANCEL_STOP,    /* the grace is over */
};

/* What happened: one row here, one counter or log line outside. Counters are computed from these by
 * whoever observes; `count` says for how many entries the event stands. */
enum worker_event_kind {
    EVENT_STARTED,     /* first beat confirmed on a stream */
    EVENT_DELIVERED,   /* new entries handed to this worker */
    EVENT_CLAIMED,     /* recovered from another owner; idle_ms = how long it was abandoned, -1 if
                          it was given back instead */
    EVENT_REDELIVERED, /* delivered with attempt > 1, for whatever reason */
    EVENT_DONE,
    EVENT_LATE_ACK, /* done, but the entry was no longer pending (or, strict, no longer ours) */
    EVENT_RETRIED,  /* outcome retry; delay_ms until the next attempt */
    EVENT_TIMED_OUT,
    EVENT_PARKED,      /* by this worker's outcome or its sweep; `reason` */
    EVENT_PARK_FAILED, /* stays pending; at most one a minute per stream; `text` says why */
    EVENT_LOST_WORK,   /* an entry that was trimmed or deleted while pending; `id` */
    EVENT_LOST_ENTRY,  /* no longer ours: handler cancelled */
    EVENT_RELEASED,
    EVENT_RENEWED,
    EVENT_SWEPT,       /* one walk is over: due, not_due; count 0 = none is, but they are 0 now */
    EVENT_WORKER_DEAD, /* a worker was seen dead; `name` */
    EVENT_CONSUMER_DROPPED, /* a dead, empty consumer was deleted; `name` */
    EVENT_GROUP_CREATED,
    EVENT_GROUP_LOST,  /* NO_GROUP while running */
    EVENT_STORE_ERROR, /* a request failed; said once per change; `text` */
    EVENT_STORE_BACK,
    EVENT_NAME_TAKEN,  /* start under a live name: waiting; wait in delay_ms */
    EVENT_REPLACED,    /* another worker runs under our name: stopping, exit 1 */
    EVENT_WAITING_FOR, /* --until-idle, every 10 s: whom we wait for; `text` */
    EVENT_STOPPING,
};

struct worker_event {
    enum worker_event_kind kind;
    size_t stream_index;
    uint64_t count;
    struct impel_id id; /* 0-0 if the event is not about one entry */
    int64_t attempt;
    int64_t delay_ms;
    int64_t idle_ms;
    uint64_t due, not_due;
    struct impel_bytes name; /* valid until the next worker_next() */
    struct impel_bytes reason;
    const char *text;
};

struct action {
    enum action_kind kind;
    struct request *request;
    struct delivery *delivery;
    enum cancel_reason cancel;
    struct worker_event event;
    int exit_code; /* STOPPED: 0, or 1 (replaced, name taken, gave up, fatal store error) */
    bool gave_up;  /* STOPPED: the time of until_idle_ms was over, before any stop */
};

struct worker;

/* Returns NULL if memory is out. The options are copied and must be valid (concurrency >= 1, at
 * least one stream, max_deliveries >= 1): whoever parses them says so to people. */
struct worker *worker_new(const struct worker_options *options, int64_t now_ms);
void worker_free(
    struct worker *worker); /* NULL is fine; what is still held is dropped, as by a crash */

/* Fires what is due; returns how many ms until the next deadline (>= 0). */
int64_t worker_tick(struct worker *worker, int64_t now_ms);
/* A request came back from the store. Frees it. */
void worker_done(struct worker *worker, struct request *request, int64_t now_ms);
/* The handler of `delivery` is over. `delay_ms` >= 0 with RETRY: at least this long until the next
 * attempt, else -1. `error` (may be empty) goes into the dead-letter record. After this call the
 * delivery is gone. */
void worker_outcome(struct worker *worker,
                    struct delivery *delivery,
                    enum worker_outcome outcome,
                    int64_t delay_ms,
                    struct impel_bytes error,
                    int64_t now_ms);
/* The handler of `delivery` begins only now, and so does its timeout: it had to wait for a process, or
 * for those before it. May be said again. */
void worker_begun(struct worker *worker, struct delivery *delivery, int64_t now_ms);
/* Whether a handler that was started, and had to wait since, may begin now: for it holds what held for
 * its start. False after a gap, until what is held was renewed: ask again. */
bool worker_may_begin(struct worker *worker, struct delivery *delivery, int64_t now_ms);
/* The connection to the store broke, and may have been made again: what the store remembers may be
 * older than what is held. All of it is renewed before another handler starts. */
void worker_disconnected(struct worker *worker, int64_t now_ms);
/* Drain and stop. The second call ends the grace at once. */
void worker_stop(struct worker *worker, int64_t now_ms);
/* The next action, false if there is none for now. */
bool worker_next(struct worker *worker, struct action *action);

/* For metrics, status and the simulator's checks: what is in hand now. */
struct worker_held {
    size_t running;  /* handlers that have started and are not over */
    size_t buffered; /* read, not started */
    size_t waiting;  /* for a retry */
};
struct worker_held worker_held(const struct worker *worker);
/* The same sum for one stream: running, buffered and waiting. May walk all that is held. */
size_t worker_held_in(const struct worker *worker, size_t stream_index);
/* True if the worker believes to hold this entry (running, buffered or waiting). */
bool worker_holds(const struct worker *worker, size_t stream_index, struct impel_id id);

#endif /* IMPEL_CORE_WORKER_H */
