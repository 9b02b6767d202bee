/* sim.h -- the simulator: many worker machines on a virtual clock, a model store, faults from a seed.
 *
 * Nothing here waits: time jumps from event to event. A *node* is a worker process; it drives one
 * worker machine exactly as the runtime does, but its network, its handlers and its death come from
 * this file's kin. What the store does to a pending row is seen by sim_check.c, which keeps its own
 * book of every entry and stops the run at the first broken promise.
 *
 *   sim_queue.c    the events, by time
 *   sim_net.c      requests on their way: latency, order, cuts, lost and late ones, blocked reads
 *   sim_node.c     worker processes and their handlers
 *   sim_check.c    the promises
 *   sim_audit.c    the book against the store's whole content
 *   sim_others.c   producers, foreign consumers, trimmers, sweeps without a worker
 *   sim_faults.c   what goes wrong
 *   sim_world.c    a world from a seed, its course and its end
 *
 * Memory of a world is freed as a whole at its end. */
#ifndef SIM_H
#define SIM_H

#include "core/sweep.h"
#include "core/worker.h"
#include "store/model.h"

#include <stdio.h>

enum {
    SIM_STREAMS_MAX = 3,
    SIM_NODES_MAX = 64, /* over the whole course, restarts counted */
    SIM_TEXT_MAX = 512,
    SIM_STEPS_MAX = 1000000, /* some hundred times what a world takes */
};

struct sim;

struct event {
    int64_t at_ms;
    uint64_t order; /* of pushing: events of one instant keep it */
    void (*fire)(struct sim *sim, void *of, uint64_t tag);
    void *of;
    uint64_t tag;
};

/* ---- entries ---- */

enum plan_kind {
    PLAN_GOOD,   /* done */
    PLAN_FLAKY,  /* fails `fails` times, then done */
    PLAN_POISON, /* always fails */
    PLAN_REJECT,
    PLAN_KILLER, /* ends the worker's process, each time */
    PLAN_KILL_ONCE,
    PLAN_WEDGED, /* never ends by itself */
    PLAN_WEDGE_ONCE,
};

enum place {
    PLACE_UNDELIVERED,
    PLACE_PENDING,
    PLACE_ACKED,
    PLACE_PARKED,
    PLACE_LOST,     /* trimmed while pending, and taken off the books */
    PLACE_TRIMMED,  /* trimmed before anybody had it */
    PLACE_REQUEUED, /* its copy goes on */
};

struct sim_entry {
    struct impel_id id;
    size_t stream;
    enum plan_kind plan;
    int64_t fails;
    int64_t handler_ms;
    int64_t delay_ms; /* what a failing handler asks for; -1 */

    enum place place;
    bool gone; /* not in the stream any more */
    int64_t parks;
    int64_t starts;
    int64_t failures; /* outcomes that count as a failed attempt */
    int64_t rejects;
    int64_t dones; /* by our handlers or by foreign ones */
    int64_t burns; /* deliveries that faults ended without an outcome */
    int64_t burns_by_killer;
    bool failed; /* the current delivery has had its outcome: a retry may follow */
    int64_t failed_attempt, failed_ms, failed_delay_ms;
    int64_t delivered_ms; /* the current delivery */
    size_t delivered_to;  /* the node, or SIM_NODES_MAX: nobody of ours */
    int64_t taken_ms;     /* rightly taken from somebody, who may still be at it */
    int64_t done_run_ms;  /* when the run began that was done or rejected; -1 */
    bool from_death;      /* the current delivery was taken from somebody who may have died of it */
    bool loose; /* the store or a person rewound it: how often it runs is no longer accounted for */
    bool late;  /* the current delivery was asked for before a cut, and made after it */
    bool given_back; /* released, the attempt uncounted */
    bool released;   /* once: whoever takes it then need not run its last attempt alone */
    size_t records;  /* audit: in the dead-letter stream */
};

/* ---- nodes ---- */

enum death {
    DEATH_NONE,
    DEATH_CRASH,   /* a fault */
    DEATH_KILLER,  /* an entry's handler took the process with it */
    DEATH_STOPPED, /* by itself */
};

struct node;

struct sim_run {
    struct node *node;
    struct delivery *delivery;
    struct sim_entry *entry;
    int64_t begun_ms;
    int64_t attempt;
    uint64_t tag; /* of the event that ends it */
    bool over;
    bool alone; /* a last attempt: nothing else may run beside it */
    bool cancelled;
    enum cancel_reason why;
    struct sim_run *next; /* of the node */
};

struct flight;

struct node {
    size_t index;
    char name[24];
    struct token token;
    struct worker *machine; /* NULL when it is dead */
    struct worker_options options;
    size_t streams[SIM_STREAMS_MAX]; /* the machine's stream i is the sim's streams[i] */
    enum death death;
    int64_t born_ms, died_ms;
    const struct sim_entry *killed_by;
    int64_t paused_until_ms;
    int64_t cut_until_ms;             /* requests fail at once */
    int64_t silent_until_ms;          /* requests and answers are held up */
    int64_t last_cut_ms;              /* -1: never */
    int64_t late_ms;                  /* until then the store may hear what it sent before a cut */
    int64_t disturbed_ms;             /* the last time a fault touched it; -1: never */
    int64_t beat_ms[SIM_STREAMS_MAX]; /* by stream of the sim: its last beat that the store took */
    bool entered[SIM_STREAMS_MAX];    /* a first beat was confirmed */
    bool has_row[SIM_STREAMS_MAX];
    bool was_dead[SIM_STREAMS_MAX]; /* rightly called dead once since its last beat */
    uint64_t tick_tag;
    int64_t arrive_ms[2], reply_ms[2]; /* order on its two connections */
    struct sim_run *runs;
    struct flight *flights;
    size_t stops;
    int64_t stopped_at_ms; /* when worker_stop() was called first */
    int exit_code;
    bool ended;
    int64_t second; /* for the count of requests in one second */
    uint64_t requests_in_second;
    uint64_t starts_in_second;
    int64_t turn_ms; /* how often it was driven at one instant */
    uint64_t turns;
    uint64_t reaps, lost_reports;
    uint64_t again_starts, again_reports; /* handlers begun with an attempt above 1 */
    uint64_t late_acks, late_reports;     /* of what was not pending any more */
    bool twin;                            /* started on purpose under a name that is in use */
};

enum flight_state {
    FLIGHT_OUT,     /* on its way to the store */
    FLIGHT_QUEUED,  /* the store stands still */
    FLIGHT_BLOCKED, /* a read that waits */
    FLIGHT_BACK,    /* answered, on its way home */
    FLIGHT_OVER,
};

struct flight {
    struct request *request;
    struct node *node; /* NULL: nobody waits for the answer */
    enum flight_state state;
    int connection; /* 0: the reading one */
    uint64_t tag;
    int64_t at_ms;     /* when it reaches the store */
    uint64_t restarts; /* of the store, when it was sent */
    int64_t block_until_ms;
    bool cancelled;
    bool broken;          /* its connection is gone; its node is yet to hear it */
    struct flight *next;  /* of the node */
    struct flight *after; /* in the store's queue */
};

/* ---- the world ---- */

struct sim_options {
    int64_t horizon_ms; /* faults, producers and the like end here */
    size_t stream_count;
    size_t nodes;
    size_t entries;
    int64_t latency_ms;
    struct policy policy;
    bool faults;
    bool clock_steps;
    bool rollbacks;
    bool group_moves;
    bool foreigners;
    bool trimmers;
    bool sweeps;
    unsigned sweep_action; /* enum claim_flags: what these do with what is abandoned */
    bool strict;
};

struct sim_stream {
    char name[16];
    char dead[24];
    struct sim_entry **entries; /* by ID */
    size_t count, room;
    int64_t moved_ms; /* its group was moved back or made anew; -1 */
};

struct snapshot;
struct sweeper;

struct sim {
    uint64_t seed, random;
    int64_t now_ms; /* everybody's monotonic clock */
    struct event *heap;
    size_t heap_count, heap_room;
    uint64_t order;
    struct arena arena;
    struct model model;
    struct sim_options options;
    struct sim_stream streams[SIM_STREAMS_MAX];
    struct node *nodes[SIM_NODES_MAX];
    size_t node_count;
    size_t names; /* for fresh ones */

    /* the store's state as a machine */
    bool stalled;
    uint64_t restarts;
    int64_t stalled_ms, refused_ms; /* when that began */
    struct flight *queued, **queued_last;
    struct flight *blocked;
    int64_t available_ms; /* taking beats since */
    int64_t disturbed_ms; /* the last stall, step, refusal or rollback; -1 */
    int64_t stepped_ms;   /* the last clock step; -1 */
    int64_t off_ms;       /* the sum of all steps */
    int64_t off_most_ms;  /* the most it has been: what was dated then may lie ahead */
    int64_t rolled_ms;    /* the last rollback; -1 */
    struct sweeper *sweepers;
    struct snapshot *snapshot; /* what a rollback goes back to */

    bool quiet;         /* the end: no more faults */
    bool foreign_acts;  /* the request that is applied is a foreign program's */
    bool stubborn;      /* a cancelled handler goes on, and is done in the end */
    bool obedient;      /* a cancelled handler never comes to its end all the same */
    bool strangers_die; /* foreign consumers never finish what they have */
    bool any_fault;     /* something was done to somebody */
    bool any_kill;
    bool failed;
    bool trace;
    char text[SIM_TEXT_MAX]; /* what was broken */
    uint64_t steps, requests, starts, requeued, handed_over;
    uint64_t asked[REQUEST_CALL + 1]; /* by workers, of each kind */
};

/* ---- helpers ---- */

uint64_t sim_random(struct sim *sim, uint64_t below);            /* 0 .. below-1 */
int64_t sim_between(struct sim *sim, int64_t low, int64_t high); /* both included */
bool sim_chance(struct sim *sim, uint64_t percent);
void *sim_alloc(struct sim *sim, size_t size); /* zeroed, until the end of the world */
void sim_fail(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct impel_bytes sim_group(void);

/* sim_queue.c */
void sim_at(struct sim *sim,
            int64_t at_ms,
            void (*fire)(struct sim *sim, void *of, uint64_t tag),
            void *of,
            uint64_t tag);
/* Fires the next event; false if there is none or something broke. */
bool sim_step(struct sim *sim);
/* Until the time or the first failure. */
void sim_run_until(struct sim *sim, int64_t at_ms);

/* sim_net.c */
struct flight *net_submit(struct sim *sim, struct node *node, struct request *request);
void net_cancel(struct sim *sim, struct node *node, const struct request *request);
/* Breaks the node's connections: all that is out completes as DISCONNECTED. */
void net_cut(struct sim *sim, struct node *node, int64_t until_ms, bool server_gone);
/* Holds up all that it sends and is sent. */
void net_silence(struct sim *sim, struct node *node, int64_t until_ms);
void net_forget(struct sim *sim, struct node *node); /* it died: its answers go nowhere */
void net_available(struct sim *sim, int64_t since_ms);
void net_stall(struct sim *sim, int64_t until_ms);
void net_drop_queued(struct sim *sim); /* a restart: what was not begun is never done */
void net_wake(struct sim *sim);        /* blocked reads look again */
/* Applies a request of an actor that is no node, at once; the caller frees it. */
void net_apply(struct sim *sim, struct request *request, bool is_foreign);
void net_flush(struct sim *sim); /* frees what is still under way */

/* sim_node.c */
struct node *node_start(struct sim *sim, const char *name, const struct worker_options *options);
void node_die(struct sim *sim, struct node *node, enum death death, const struct sim_entry *by);
void node_pause(struct sim *sim, struct node *node, int64_t for_ms);
void node_stop(struct sim *sim, struct node *node);
void node_disconnected(struct sim *sim, struct node *node); /* it is told */
void node_answered(struct sim *sim, struct node *node, struct request *request);
bool node_alive(const struct node *node);
bool node_paused(const struct sim *sim, const struct node *node);
/* The newest living node of that name that has this token; NULL if there is none. */
struct node *node_of_token(struct sim *sim, const struct token *token);
void node_options(struct sim *sim, struct worker_options *options);

/* sim_check.c */
void check_observe(void *user, const struct model_note *note);
void check_start(struct sim *sim, struct sim_run *run);
void check_outcome(struct sim *sim,
                   struct sim_run *run,
                   enum worker_outcome outcome,
                   int64_t delay_ms);
void check_node(struct sim *sim, struct node *node); /* capacity, hot loops, what is counted */
void check_request(struct sim *sim, const struct node *node, const struct request *request);
struct sim_entry *check_entry(struct sim *sim, size_t stream, struct impel_id id);
struct sim_entry *check_add(struct sim *sim, size_t stream, struct impel_id id);
size_t check_stream(const struct sim *sim, struct impel_bytes name); /* SIM_STREAMS_MAX: none */
void check_note_dead(struct sim *sim, int64_t at_ms); /* before `available_ms` moves */
void check_loosen(struct sim *sim, size_t stream);    /* all were rightly taken from everybody */

/* sim_audit.c */
void audit(struct sim *sim);                        /* the book against the store */
void audit_trimmed(struct sim *sim, size_t stream); /* after somebody trimmed it */
bool audit_settled(struct sim *sim);                /* nothing undelivered, pending or running */
void audit_left(struct sim *sim, const struct node *node); /* a clean stop leaves nothing */
void audit_snapshot(struct sim *sim);
void audit_rollback(struct sim *sim);
void audit_release(struct sim *sim);

/* sim_others.c */
void others_start(struct sim *sim);
struct sim_entry *
others_add(struct sim *sim, size_t stream, enum plan_kind plan, int64_t handler_ms);
void others_trim(struct sim *sim, size_t stream, size_t length);
void others_sweep_start(struct sim *sim, size_t stream);
void others_foreign_start(struct sim *sim, size_t stream, int64_t min_idle_ms);
size_t others_foreign_read(struct sim *sim, size_t stream, const char *name, uint32_t count);
void others_foreign_got(struct sim *sim, struct sim_entry *entry);
void others_release(struct sim *sim);

/* sim_faults.c */
void faults_start(struct sim *sim);
void faults_end(struct sim *sim);
void fault_clock(struct sim *sim, int64_t step_ms);
void fault_refuse(struct sim *sim, bool writes, int64_t for_ms);
void fault_restart(struct sim *sim, int64_t for_ms, bool rollback);
void fault_group_set(struct sim *sim, size_t stream, struct impel_id id);
void fault_group_destroy(struct sim *sim, size_t stream);

/* sim_world.c */
void world_init(struct sim *sim, uint64_t seed); /* an empty world: store, streams, clock */
void world_groups(struct sim *sim);
void world_release(struct sim *sim);
/* Draws a world from the seed and runs it to its end; true if every promise held. */
bool world_run(struct sim *sim, uint64_t seed, bool trace);
/* Faults off; waits for all to settle, stops every node, looks at what is left. */
void world_finish(struct sim *sim);
bool world_settle(struct sim *sim, int64_t within_ms);
void world_stop_all(struct sim *sim);

#endif /* SIM_H */
