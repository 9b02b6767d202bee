/* worker_state.h -- the inside of the worker machine, shared by its files and by nobody else.
 *
 *   worker.c         events in, actions out, the deadline
 *   worker_flight.c  requests on their way: made, handed out, come back
 *   worker_hold.c    what is in hand: the index, the lists, what frees it
 *   worker_stream.c  one stream's life: group, first beat, beats, ready, lost, left
 *   worker_renew.c   keeping what is held; what a renewal that found it lost means
 *   worker_place.c   the places: who may fill a free handler; starting handlers
 *   worker_read.c    new entries
 *   worker_take.c    recovered entries: own retries, adoptions, claims from others
 *   worker_audit.c   what the store says is ours and nobody has in hand
 *   worker_settle.c  outcomes: ack, retry, park, release
 *   worker_drain.c   stop: release, leave, end
 *   worker_idle.c    --until-idle
 *
 * Three kinds of objects. A *hold* is a pending entry that this worker owns. A *run* is a handler
 * that has started and is not over; its hold may be gone before it (timed out, lost). A *flight* is
 * a request that the store has; it lives in the request's arena. A hold that is dropped while a
 * flight speaks of it becomes HOLD_GONE and is freed when the last such flight lands.
 *
 * Nothing here calls itself back: events change state and queue actions, and one function,
 * worker_pump(), looks what can be done next: at the end of each event, for an outcome only once
 * all actions before it were taken. */
#ifndef IMPEL_CORE_WORKER_STATE_H
#define IMPEL_CORE_WORKER_STATE_H

#include "core/heap.h"
#include "core/list.h"
#include "core/sweep.h"
#include "core/worker.h"

enum {
    BEATS_OUT_MAX = 8,        /* unanswered beats of one stream; more would say nothing new */
    READ_SIZE_MAX = 16 << 20, /* bytes in one read: a thousand large entries must not fill memory */
    ERROR_TEXT_MAX = 4096,    /* of a handler's words in a dead-letter record */
    RETRY_DELAY_FIRST_MS = 50, /* after a failed request; doubles */
    RETRY_DELAY_MAX_MS = 5000,
    AUDIT_INTERVAL_MS = 30000,   /* own PEL against what is in hand, without a cause */
    AUDIT_PAUSE_MS = 2000,       /* between two audits that a mismatch asked for */
    AUDIT_ROWS_MAX = 1000,       /* of a page; also how many finds one audit keeps */
    PREFETCH_HORIZON_MS = 500,   /* hold no more than what starts within this */
    PARK_AGAIN_MS = 5000,        /* after the dead-letter stream refused a copy */
    PARK_FAILED_SAID_MS = 60000, /* how often that is said */
    STOP_MARGIN_MS = 10000,      /* beyond the grace, then the store counts as unreachable */
    IDLE_LOOK_MS = 100,          /* between two looks of --until-idle */
    IDLE_BLOCK_MS = 100,         /* a read's block under --until-idle */
    WAITING_FOR_SAID_MS = 10000, /* how often --until-idle says whom it waits for */
    SOLO_REST_MAX_MS = 5000,     /* others run at least this long between two that run alone */
    READ_AGAIN_MS = 20,          /* after an empty read while recovered work is due */
};

enum hold_state {
    HOLD_BUFFERED,  /* read, not started; may wait for a place */
    HOLD_READY,     /* recovered, has a place; starts as soon as its stream is open */
    HOLD_RUNNING,   /* its run is `run` */
    HOLD_WAITING,   /* for a retry: no entry, in w->waiting by due time */
    HOLD_RETRYING,  /* the claim from itself is under way; has a place */
    HOLD_ACKING,    /* in s->acks or in an ack */
    HOLD_PARKING,   /* in s->parks or in a park */
    HOLD_RELEASING, /* in s->releases or in a release */
    HOLD_GONE,      /* dropped; kept only for the flights that speak of it */
};

struct run;
struct stream;

struct hold {
    struct impel_id id;
    struct stream *stream;
    enum hold_state state;
    int64_t deliveries;   /* the fence: the count the store has for us */
    struct entry *entry;  /* NULL while it waits or settles without a need for it */
    struct run *run;      /* HOLD_RUNNING */
    struct hold *chain;   /* of the index; of the free list */
    struct link held;     /* s->held, the longest unrenewed first */
    struct link queue;    /* the queue of its state */
    struct heap_node due; /* HOLD_WAITING, in w->waiting */
    int64_t since_ms;     /* in hand unstarted since; HOLD_WAITING, RELEASING: attempt's end */
    int64_t renewed_ms;   /* when the store last made it ours, as far as we know */
    uint64_t pass;        /* the newest renewal pass it has been part of */
    struct buf *error;    /* HOLD_PARKING: the handler's words */
    const char *reason;   /* HOLD_PARKING */
    uint16_t flights;     /* requests that speak of it */
    bool indexed;         /* in the index and in s->held; false for a late ack */
    bool recovered;       /* claimed, adopted or retried: counts on due work's share */
    bool alone;           /* a last attempt after a holder's death */
    bool apart;           /* its last attempt ended a process, or may have */
    bool adopted;         /* HOLD_RETRYING: was found in the own PEL */
    bool trimmed;         /* gone from the stream; can still be finished from memory */
    bool give_back;       /* HOLD_RELEASING: its attempt never ran to an outcome */
};

struct run {
    struct delivery delivery; /* what the driver sees */
    struct hold *hold;        /* NULL once the entry is lost or the attempt timed out */
    struct link running;      /* w->runs, in the order of starting, or beginning */
    int64_t started_ms;
    int64_t slept_ms; /* w->slept_ms then */
    bool lost;        /* its entry is no longer ours: a late `done` is still acked */
    bool forget;      /* ... but not after the group vanished: the ID may be another entry's now */
    bool cancelled;   /* an action for that was queued */
    bool stopped;     /* CANCEL_STOP was sent: only `done` counts as an outcome */
    bool recovered;   /* counts on due work's share */
    bool alone;
};

struct flight {
    struct request *request;
    struct stream *stream; /* NULL for a read */
    uint64_t seq;          /* in the order of submission */
    uint64_t pass;         /* w->pass at submission: what it delivers is as fresh as that */
    uint64_t taking_generation;
    int64_t submitted_ms;
    struct hold **holds; /* those of its items, in their order; NULL if it has none */
    size_t hold_count;
    uint32_t places; /* handler places reserved for what it brings */
    bool taking;     /* may bring entries that are pending: an audit's proof waits for it */
    bool alone;      /* for an entry that is to run alone */
    bool idle;       /* a look of --until-idle */
    size_t *map;     /* a read: the worker's streams by the request's */
    size_t slot;     /* request->serial; where w->flights has it */
};

enum stream_phase {
    STREAM_CREATE, /* the group has to be created */
    STREAM_ENTER,  /* the first beat has to be confirmed */
    STREAM_READY,
    STREAM_LEAVE, /* draining, holds nothing: release the rest, leave the table */
    STREAM_LEFT,
};

/* One entry of the own PEL that is in nobody's hands. */
struct stray {
    struct impel_id id;
    int64_t deliveries;
    int64_t idle_ms;
};

struct stream {
    struct worker *worker;
    struct impel_bytes name;
    struct impel_bytes dead_letter;
    size_t index;
    enum stream_phase phase;
    struct heap_node wake; /* w->wakes: when stream_step() has something to do */
    struct sweep *sweep;
    size_t flights;    /* requests of this stream that the store has, reads not counted */
    uint64_t lost_seq; /* flights up to this one belong to a group that is gone */
    bool stepping;     /* a group or leave request is out */

    /* beats */
    int64_t beat_due_ms;
    int64_t confirmed_ms; /* when the newest confirmed beat was submitted */
    int64_t beat_sent_ms;
    uint32_t beats_out;
    bool confirmed;        /* at least once since the group was entered */
    bool fenced;           /* the row is missing or dead: beat and renew before anything else */
    uint64_t fenced_seq;   /* only a beat after this flight lifts it */
    int64_t name_until_ms; /* the name is taken: wait for it until then; 0 = not waiting */

    /* failures */
    int64_t again_ms; /* nothing but beats before this */
    uint32_t failures;

    /* what is held */
    struct link held;
    size_t held_count;
    size_t stale_count; /* of these, older than need_pass */
    uint64_t need_pass;
    bool renewing; /* a renewal is out */
    bool gap;      /* beats stopped for long; a renewal was demanded for it */

    struct link buffer;   /* HOLD_BUFFERED, oldest first */
    struct link buffered; /* in w->buffered while `buffer` has something */

    struct link acks, parks, releases; /* settled, not yet on their way */
    size_t ack_count;
    struct link dirty; /* in w->dirty while `acks` waits to be sent */
    bool acking, parking, releasing;
    int64_t park_again_ms;
    bool park_failed_said;
    int64_t park_failed_said_ms;

    /* recovery */
    struct link due;      /* in w->due while its sweep or audit knows of work for a free handler */
    bool due_last;        /* some of it is to run alone; counted in w->due_last_count */
    bool sweeping;        /* a request of the sweep is out */
    bool sweep_later;     /* its next one was put off by take_later(); counted in w->sweeps_later */
    bool swept_something; /* the last EVENT_SWEPT had something to tell */
    uint64_t taking_generation;
    size_t taking;     /* claims, retries, adoptions that are out */
    size_t taking_old; /* of these, from before the listing was complete */
    uint64_t *dead;    /* hashes of the workers that the last look called dead */
    size_t dead_count;

    /* own PEL audit */
    bool auditing;    /* a listing is out or waits for its proof */
    bool listing;     /* a page is out */
    bool listed_once; /* since the group was entered: reading waits for that */
    bool proven;      /* the strays are in nobody's hands: they may be adopted */
    int64_t audit_due_ms;
    int64_t audited_ms;
    uint64_t audit_read; /* the read that has to land first; 0 = none */
    struct impel_id audit_from;
    struct stray
        *strays; /* proven: first those that may run beside others, then the last attempts */
    size_t stray_count, stray_capacity;
    size_t stray_plain; /* how many of the first kind */
    size_t stray_next;  /* taken up to here */

    /* drain */
    bool rest_done; /* the store says that nothing more is ours: no more beats */
    bool refused;   /* full: the store took neither ack, park, release nor leave, and nothing new
                       has come to be settled since */
    uint32_t leave_tries;
};

struct queued {
    struct action action;
    char *owned; /* texts of an event; freed at the next worker_next() */
};

struct worker {
    struct worker_options options;
    struct arena arena; /* names */
    int64_t now_ms;     /* of the event being handled; never goes back */
    int64_t started_ms;
    /* How long it was stopped, or the machine asleep, in all: in that time nothing could be done and
     * nobody be told, so margins do not run meanwhile. */
    int64_t slept_ms;
    uint64_t seed;
    struct stream *streams;
    size_t stream_count;

    struct queued *ring; /* actions; capacity is a power of two */
    size_t ring_first, ring_count, ring_capacity;
    char *spoken; /* texts of the event that was handed out last */

    struct flight **flights; /* by slot */
    size_t *flight_free;     /* a stack of free slots */
    size_t flight_capacity, flight_free_count, flight_count;
    uint64_t seq;

    struct hold **index; /* by (stream, id) */
    size_t index_size, index_count;
    struct link loose; /* holds that are not in the index: late acks, HOLD_GONE in flight */
    struct hold *hold_pool;
    struct run *run_pool;

    struct heap wakes;    /* streams */
    struct heap waiting;  /* holds */
    size_t waiting_count; /* HOLD_WAITING and HOLD_RETRYING */
    struct link buffered; /* streams whose buffer has something */
    size_t buffered_count;
    struct link ready; /* HOLD_READY */
    size_t ready_count;
    struct link dirty; /* streams with acks to send */
    struct link due;   /* streams with work for a free handler */
    struct link runs;
    uint32_t running;      /* handlers that are not over */
    uint32_t running_due;  /* of these, recovered */
    uint32_t running_lost; /* of these, timed out or lost: their attempt is over */
    size_t due_streams;    /* in `due` */
    size_t sweeps_later;   /* streams whose sweep waits for the handlers that are about to start */
    size_t due_last_count; /* streams whose due work wants to run alone */
    uint64_t audit_read;   /* the newest read that an audit's proof waits for */
    uint32_t reserved;     /* places for claims, retries and adoptions that are out */

    uint64_t pass;   /* renewal passes; a new one makes older holds stale */
    uint64_t serial; /* of deliveries */

    /* reading */
    struct flight *read; /* the one that is out */
    uint32_t read_places;
    uint32_t read_count;
    bool read_blocks, unblocked;
    uint64_t read_landed; /* seq of the newest read that came back */
    size_t read_first;
    bool read_empty; /* the last one brought nothing */
    int64_t read_again_ms;
    uint32_t read_failures;
    bool
        pump_wanted; /* a handler is over: what it left free is filled by the next worker_next() that
                         has nothing else to say */
    bool due_turn;   /* one place only: it is due work's turn */
    bool sweep_turn; /* claims before own retries */

    bool average_known;
    double average_ms; /* of recent handlers */

    /* alone */
    struct run *alone;       /* runs now, alone */
    struct hold *alone_hold; /* has its place, waits for its stream to open; later: for its ack */
    bool alone_claiming;
    int64_t alone_again_ms;

    /* failures, by kind of request; 0 = the last one succeeded */
    int failing[REQUEST_CALL + 1];
    size_t failing_count;

    /* the end */
    bool stopping, cancelled, replaced, ended, end_said;
    int64_t stopped_ms; /* when worker_stop() was called */
    int64_t grace_until_ms;
    int exit_code;
    int drain_code; /* the exit code if the drain itself ends well */
    bool gave_up;   /* the time of until_idle_ms is over */

    /* until idle */
    size_t idle_looks;      /* of a round, out */
    bool idle_found;        /* one of them found something */
    uint64_t idle_serial;   /* w->serial when the round began: nothing may start in between */
    int64_t idle_look_ms;   /* not before this */
    int64_t waiting_for_ms; /* when to say next whom it waits for */
};

/* ---- worker.c ---- */
void worker_event(struct worker *w, const struct worker_event *event);
bool worker_action(struct worker *w, const struct action *action); /* false: memory is out */
void worker_cancel(struct worker *w, struct run *run, enum cancel_reason reason);
/* Memory is out, or the store cannot be used at all: the end, exit code 1. */
void worker_fail(struct worker *w, int status, const char *text);
void worker_end(struct worker *w, int exit_code);
void worker_pump(struct worker *w);
void worker_replaced(struct worker *w);
/* `delay` with a quarter more or less, so that many workers do not come back in step. */
int64_t worker_jitter(struct worker *w, int64_t delay_ms);
/* How long to wait after so many failures in a row. While something is held it is at most a third
 * of dead-after: our own beats and renewals must get through in time. */
int64_t worker_delay(struct worker *w, uint32_t failures, bool holding);

/* ---- worker_flight.c ---- */
struct request *request_for(struct worker *w, struct stream *s, enum request_kind kind);
/* Hands the request out as an action; NULL (and the request freed) if memory is out. */
struct flight *flight_submit(struct worker *w, struct stream *s, struct request *request);
struct flight *flight_of(struct worker *w, const struct request *request);
void flight_land(struct worker *w, struct flight *flight);
void flight_free(struct worker *w, struct flight *flight);

/* A request about several holds, filled one by one. */
struct batch {
    struct stream *stream;
    struct request *request; /* NULL: nothing to send */
    struct request_item *items;
    struct hold **holds;
    size_t count, count_max;
};
bool batch_begin(struct batch *batch, struct stream *s, enum request_kind kind, size_t count_max);
struct request_item *batch_add(struct batch *batch, struct hold *hold);
struct flight *batch_submit(struct batch *batch);
struct request_item *flight_items(const struct flight *flight);

/* ---- worker_hold.c ---- */
/* A hold in the index and in its stream's list; NULL (and worker_fail) if memory is out. */
struct hold *hold_new(struct stream *s, struct impel_id id, int64_t deliveries);
/* A hold that only carries a late ack. */
struct hold *hold_new_late(struct stream *s, struct impel_id id);
struct hold *hold_find(const struct worker *w, const struct stream *s, struct impel_id id);
/* Leaves the queue of its state, and the counters that go with it. */
void hold_unqueue(struct hold *hold);
/* No longer in hand. Its run, if any, must have been detached. */
void hold_drop(struct hold *hold);
/* A flight that speaks of it has landed. */
void hold_landed(struct hold *hold);
/* Just delivered by this flight, and no fresher than it: its answer may have been long on its way. */
void hold_arrived(struct hold *hold, const struct flight *flight);
/* Part of this renewal pass now, or of the flight that delivered it anew. */
void hold_freshen(struct hold *hold, uint64_t pass, int64_t renewed_ms);
struct run *run_new(struct worker *w);
void run_free(struct worker *w, struct run *run);
void hold_release_all(struct worker *w);

/* ---- worker_stream.c ---- */
void stream_init(struct worker *w, size_t index);
void stream_release(struct stream *s);
void stream_step(struct stream *s); /* does what is due and sets when it is due again */
void stream_wake_at(struct stream *s, int64_t due_ms);
bool stream_open(struct stream *s); /* may handlers start? If not, sees to it that they soon may */
void stream_fenced(struct stream *s, const struct flight *flight);
void stream_group_lost(struct stream *s, const struct flight *flight);
void stream_beat_taken(struct stream *s, const struct flight *flight, enum beat_result result);
void stream_failed(struct stream *s);
void stream_group_done(struct stream *s, const struct flight *flight);
void stream_beat_done(struct stream *s, const struct flight *flight);

/* ---- worker_renew.c ---- */
void renew_demand(
    struct stream *s); /* all that is held has to be renewed before a handler starts */
void renew_step(struct stream *s);
int64_t renew_due_ms(const struct stream *s);
bool renew_overdue(const struct hold *hold); /* it should be renewed at once */
void renew_done(struct stream *s, const struct flight *flight);
void hold_lost(struct hold *hold, const char *why); /* not ours any more: cancel, forget */

/* ---- worker_place.c ---- */
int64_t places_free(const struct worker *w); /* handlers that nothing runs in or is promised to */
bool due_known(const struct worker *w);      /* recovered work waits for a place */
int64_t due_share(const struct worker *w);   /* of the free places, kept for it */
bool turn_of_new(const struct worker *w);    /* the only place is kept for what a read may bring */
uint32_t places_for_due(const struct worker *w);
/* The first stream that has a last attempt to claim now, or NULL. While there is one, nothing new is
 * taken, until nothing runs. */
struct stream *alone_stream(struct worker *w);
bool alone_wanted(struct worker *w);
bool alone_busy(const struct worker *w); /* one runs alone, or is about to */
bool alone_now(const struct worker *w);  /* nothing runs, nothing is buffered, nothing comes */
void start_what_can(struct worker *w);
void start_hold(struct hold *hold);

/* ---- worker_read.c ---- */
void read_step(struct worker *w);
void read_done(struct worker *w, struct flight *flight);
int64_t read_due_ms(struct worker *w);

/* ---- worker_take.c ---- */
void take_enter(struct stream *s); /* the group was entered: sweeps begin */
void take_leave(struct stream *s); /* and end */
void take_step(struct worker *w);  /* fills free places with recovered work */
void take_sweep(struct stream *s); /* the sweep's next request, if it has one */
/* Handlers are about to start, and there are no places for a whole batch beside theirs: the quick ones
 * leave theirs free before anything is sent, so it is better to ask then. */
bool take_later(const struct worker *w);
int64_t take_due_ms(const struct stream *s);
void take_note_due(struct stream *s); /* its sweep or audit knows of more work, or of less */
void take_done(struct stream *s, struct flight *flight);
/* Marks a submitted claim, retry or adoption, and reserves its places. */
void take_submitted(struct flight *flight, uint32_t places, bool alone);

/* ---- worker_audit.c ---- */
void audit_step(struct stream *s);
int64_t audit_due_ms(const struct stream *s);
void audit_want(struct stream *s); /* something does not add up: soon */
void audit_done(struct stream *s, const struct flight *flight);
void audit_landed(struct stream *s, const struct flight *flight); /* one that the proof waits for */
/* Adopts what is proven to be stray, up to so many; `alone`: one last attempt. */
bool audit_adopt(struct stream *s, uint32_t places, bool alone);
bool audit_has_plain(const struct stream *s);
bool audit_has_last(const struct stream *s);
void audit_reset(struct stream *s);

/* ---- worker_settle.c ---- */
void settle_outcome(struct hold *hold,
                    enum worker_outcome outcome,
                    int64_t delay_ms,
                    struct impel_bytes error);
void settle_ack(struct hold *hold);
void settle_wait(struct hold *hold, int64_t due_ms);
void settle_park(struct hold *hold, const char *reason, struct impel_bytes error);
void settle_release(struct hold *hold, bool give_back);
void settle_park_failed(struct stream *s, uint64_t count, const char *text);
void settle_lost_work(struct stream *s, struct impel_id id, int64_t deliveries);
void settle_step(struct stream *s); /* sends what waits to be sent */
int64_t settle_due_ms(const struct stream *s);
/* A PARK that the store would not carry out at all, for want of a right say: the store is as good as
 * ever, so that is a refusal of each copy. */
void settle_park_refusal(struct request *request);
void settle_ack_done(struct stream *s, const struct flight *flight);
void settle_park_done(struct stream *s, const struct flight *flight);
void settle_release_done(struct stream *s, const struct flight *flight);
void settle_timeouts(struct worker *w);
int64_t settle_timeout_due_ms(const struct worker *w);

/* ---- worker_drain.c ---- */
void drain_begin(struct worker *w);
void drain_step(struct worker *w);
void drain_stream(struct stream *s);
void drain_rest_done(struct stream *s, const struct flight *flight);
void drain_note_status(struct stream *s, const struct request *request);
void drain_leave_done(struct stream *s, const struct flight *flight);
int64_t drain_due_ms(const struct worker *w);

/* ---- worker_idle.c ---- */
void idle_step(struct worker *w);
void idle_look_done(struct stream *s, const struct flight *flight);
int64_t idle_due_ms(const struct worker *w);

#endif /* IMPEL_CORE_WORKER_STATE_H */
