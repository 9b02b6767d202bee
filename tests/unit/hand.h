/* hand.h -- a worker driven by hand: the test is clock, store and handlers.
 *
 *   hand_start(&options)              a worker at time 1,000,000, its actions collected
 *   request = hand_take(REQUEST_READ) the oldest such request that is out; the test fills in the
 *                                     answer and returns it with hand_reply()
 *   hand_ok(REQUEST_BEAT)             takes one and answers it in the plainest successful way
 *   hand_advance(ms)                  lets time pass, ticking at every deadline
 *
 * One worker at a time, in a global, so that tests read like a script. */
#ifndef HAND_H
#define HAND_H

#include "core/worker.h"
#include "tap.h"

enum {
    HAND_STARTED_MAX = 4096,
    HAND_EVENTS_MAX = 4096,
    HAND_OUT_MAX = 4096,
};

struct hand {
    struct worker *worker;
    int64_t now_ms;
    struct request *out[HAND_OUT_MAX]; /* submitted, unanswered */
    size_t out_count;
    struct request *taken[HAND_OUT_MAX]; /* by the test, unanswered: freed at the end */
    size_t taken_count;
    struct request *unblocked; /* the last read that was to be ended */
    struct delivery *started[HAND_STARTED_MAX];
    size_t started_count;
    struct delivery *cancelled[HAND_STARTED_MAX];
    enum cancel_reason cancel_reason[HAND_STARTED_MAX];
    size_t cancelled_count;
    uint64_t events[EVENT_STOPPING + 1]; /* the sum of `count`, or 1 each where that is 0 */
    struct worker_event last[EVENT_STOPPING + 1]; /* texts not kept */
    char reason[64];                              /* of the last event that had one */
    char text[512];
    bool
        quick; /* handlers are over, and done, as soon as they start: as functions on the loop are */
    bool stopped;
    int exit_code;
    size_t submitted; /* in all */
};
extern struct hand hand;
extern bool hand_inside; /* the worker is at work, not the test */

struct worker_options hand_options(void); /* one stream "s", group "g", consumer "c" */
void hand_start(const struct worker_options *options);
void hand_end(void);
void hand_pump(void); /* collects the actions; the other functions do it themselves */
void hand_tick(void);
void hand_advance(int64_t ms);
size_t hand_count(enum request_kind kind);         /* how many are out */
struct request *hand_take(enum request_kind kind); /* fails the test if there is none */
struct request *hand_take_of(enum request_kind kind, const char *stream);
void hand_reply(struct request *request); /* with what the test filled in */
void hand_fail(struct request *request, int status);
void hand_ok(enum request_kind kind);
void hand_ok_all(enum request_kind kind); /* those that are out now */
/* Fills a read, and answers it: entries ms..ms+count-1 of the request's stream `index`. */
void hand_deliver(struct request *read, size_t index, uint64_t ms, size_t count);
/* Group, first beat, the listing of the own PEL: all streams ready, a read out. */
void hand_ready(void);
struct entry *hand_entry(uint64_t ms);
struct delivery *hand_running(uint64_t ms); /* the started delivery of this ID, not yet over */
void hand_outcome(uint64_t ms, enum worker_outcome outcome);
void hand_outcome_of(struct delivery *delivery,
                     enum worker_outcome outcome,
                     int64_t delay_ms,
                     const char *error);
bool hand_holds(uint64_t ms);
/* Answers a look with the stamp, and these owners (name NULL ends the list). */
struct hand_owner {
    const char *name;
    uint64_t pending;
    enum owner_state state;
};
void hand_look(struct request *look, const struct hand_owner *owners);
/* Answers a claim with one entry, of this many deliveries now; ms = 0: with none. `next_ms` = where
 * the walk goes on, 0 = at its end. */
void hand_claim(struct request *claim, uint64_t ms, int64_t deliveries, uint64_t next_ms);

#endif /* HAND_H */
