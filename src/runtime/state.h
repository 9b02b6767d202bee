/* state.h -- the runtime's insides, shared by runtime.c (its life) and driver.c (its loop). */
#ifndef IMPEL_RUNTIME_STATE_H
#define IMPEL_RUNTIME_STATE_H

#include "observe/metrics.h"
#include "runtime/handler.h"
#include "runtime/runtime.h"
#include "store/store.h"

#include <signal.h>
#include <stdatomic.h>
#include <uv.h>

enum {
    SLOT_NAME_SIZE = 128, /* a host name, a dash, a number */
    SLOTS_MAX = 100000,   /* names tried before giving up */
    ACTIONS_MAX = 4096,   /* carried out before the store and the loop get their turn */
    ACTIONS_MS_MAX = 5,   /* the same, by time: inline handlers may be slow */
    ROUNDS_MAX = 8,       /* of the machine and the store before the loop gets its turn */
    METRICS_MS = 1000,    /* how often the file is rewritten */
    STOP_SIGNALS = 3,     /* TERM, INT, HUP */
};

struct runtime {
    struct runtime_options options; /* spans and strings are in the arena */
    struct arena arena;
    struct handler_env env;
    struct handler *handler;
    struct metrics *metrics;
    struct store *store;
    struct worker *worker;

    uv_loop_t loop;
    uv_prepare_t prepare; /* pumps, once per turn of the loop, before it sleeps */
    uv_timer_t timer;     /* the machine's and the store's next deadline */
    uv_idle_t idle;       /* active while there is more to do at once */
    uv_async_t wake;      /* from the store's threads and from runtime_stop() */
    uv_timer_t metrics_timer;
    uv_signal_t signals[STOP_SIGNALS];
    bool loop_ready, handles_ready, ran;
    sigset_t mask_before; /* of the thread that runs */

    struct request *completed; /* come back during store_turn(), in order */
    struct request **completed_tail;
    size_t outstanding; /* requests that the store has */
    size_t running;     /* handlers */
    atomic_uint stops;  /* asked for, from anywhere */
    size_t asking; /* questions about dead-letter keys that are out: the machine waits for them,
                            so that a refused start leaves no group behind */
    unsigned stops_seen; /* handed to the machine */
    bool cut;            /* the store lost its connection: the machine is to hear of it */

    bool slotted;  /* the name is a slot's, not a given one */
    unsigned slot; /* the number of the slot that is tried, or held */
    char slot_name[SLOT_NAME_SIZE];
    atomic_bool named; /* env.consumer is final, and may be read from any thread */
    bool name_taken;   /* the machine said so: the next slot is tried once it has stopped */

    bool stopped;     /* the machine is at its end */
    bool unreachable; /* the store has given up: nothing is left to be said to it */
    bool gave_up;     /* the machine's time for getting idle was over */
    int exit_code;
    bool failed; /* `failure` is the reason of the end, or would be */
    struct impel_error failure;
    struct impel_error refused; /* the last failed request's: what a store error is about */
};

/* driver.c */

/* CLOCK_BOOTTIME in ms: it counts sleep and never goes back. */
int64_t runtime_now_ms(void);
/* Does what can be done now and arms the loop for the rest. */
void runtime_pump(struct runtime *runtime);
/* Asks what the dead-letter streams are, before anything else: a key of another type ends the run. */
void runtime_ask_dead_letters(struct runtime *runtime);
/* The request's `done`. */
void runtime_completed(struct request *request);
/* The handler's five (see handler.h). */
void runtime_begun(void *user, struct delivery *delivery);
bool runtime_may_begin(void *user, struct delivery *delivery);
void runtime_finished(void *user, struct delivery *delivery, const struct handler_result *result);
void runtime_failed(void *user, const struct impel_error *error);
/* The store has given up: the run ends with this text. */
void runtime_unreachable(struct runtime *runtime, const char *text);
void runtime_tell(void *user, const struct impel_event *event);

/* runtime.c */

/* Makes the state machine under the name that is next: the given one, or another slot. */
int runtime_make_worker(struct runtime *runtime, struct impel_error *err);

#endif /* IMPEL_RUNTIME_STATE_H */
