/* sweep.h -- one group's sweep as a state machine: look, then walk the abandoned PELs step by step.
 *
 * The same machine serves a worker (which gives it a free handler now and then) and `impel sweep`,
 * which never claims: it parks, reaps and reports, and does to what is due what its `action` says.
 * One step is under way at a time. A look
 * without the stamp means that somebody else swept within the interval: nothing more is done this
 * time.
 *
 * Walked are the PELs of dead workers, of RELEASED_NAME and of foreign consumers (1,000 rows a
 * step, at most SWEEP_STEPS_FOREIGN steps a sweep, by cursor over many sweeps) and, where the
 * group's total exceeds the owners' sum, the unowned entries. A walk that found work goes on at
 * once. A dead worker that holds nothing is dropped. With Impel's own workers the cost so follows
 * abandoned work and the number of consumers, not the healthy pending entries. */
#ifndef IMPEL_CORE_SWEEP_H
#define IMPEL_CORE_SWEEP_H

#include "core/request.h"

enum {
    SWEEP_ROWS_MAX = 1000,      /* examined in one step */
    SWEEP_CLAIMS_MAX = 1000,    /* claimed in one step, by which stores bound a reply or a commit */
    SWEEP_OWNERS_MAX = 1 << 17, /* kept from one look, some 20 MiB; more wait for the next */
    SWEEP_STEPS_MAX = 16,    /* of one owner's walk that only finds, in one sweep: goes on there */
    SWEEP_STEPS_FOREIGN = 4, /* of all foreign owners in one sweep: they are mostly healthy. The
                                first sweep without a worker has no such limits: it reports; its
                                later ones go as fast as is needed to see all of it in min-idle */
};

struct sweep_options {
    struct impel_bytes stream, group, consumer; /* consumer empty: a sweep without a worker */
    struct token token;
    struct policy policy;
    struct impel_bytes dead_letter;
    int64_t interval_ms;
    bool settle;             /* park and reap */
    unsigned action;         /* without a worker: CLAIM_REQUEUE (and CLAIM_ALL_GROUPS),
                                CLAIM_HAND_OVER, CLAIM_PARK, or 0 = only find. What is handed over
                                goes to the foreign consumer that was seen within min-idle and holds
                                least, never to the holder itself */
    int64_t consumer_ttl_ms; /* drop foreign consumers that hold nothing and are inactive for this;
                                -1 never */
    uint64_t seed;
};

struct sweep;
struct sweep *sweep_new(const struct sweep_options *options, int64_t now_ms);
void sweep_free(struct sweep *sweep);

/* The next request to submit, or NULL. `places` = free handlers that a claim may fill (0: only
 * find); `alone` = nothing runs and nothing is buffered, so that a last attempt may be claimed. At
 * most one request is out at a time. */
struct request *sweep_next(struct sweep *sweep, uint32_t places, bool alone, int64_t now_ms);
/* The request came back. The caller reads its answer (entries to take, parked, reaped, look) before
 * or after this call, and frees it. */
void sweep_done(struct sweep *sweep, struct request *request, int64_t now_ms);
/* Ms until sweep_next() has something to do without any event; a look with the stamp is due then.
 */
int64_t sweep_deadline(const struct sweep *sweep, int64_t now_ms);
/* Whether a handler is free, even if a read has its place: then somebody else's sweep does not stand in
 * the way while there is work that it found and left. False at first. */
void sweep_set_free(struct sweep *sweep, bool free);
/* Sweep at once: a death was seen, or somebody asks. */
void sweep_hurry(struct sweep *sweep, int64_t now_ms);
/* True while due work is known that no place could be found for; `last` (may be NULL) says whether
 * some of it is a last attempt that wants to run alone. */
bool sweep_due(const struct sweep *sweep, bool *last);
/* True while some of the due work need not run alone. */
bool sweep_claimable(const struct sweep *sweep);

/* What the last whole walk found: due for a claim and not claimed, abandoned but not idle for long
 * enough yet. True once for each walk that is over. */
bool sweep_report(struct sweep *sweep, uint64_t *due, uint64_t *not_due);

/* Of how many consumers the last look left the entries for later, since there are more than SWEEP_OWNERS_MAX. */
size_t sweep_left_out(const struct sweep *sweep);

/* ---- parts of the plan that a dry run shows, too ---- */

/* The foreign consumers that were seen within min-idle and hold least. They point into the look. */
struct sweep_heirs {
    const struct look_owner *best, *second; /* NULL if there are not so many */
};
struct sweep_heirs sweep_find_heirs(const struct request *look, int64_t min_idle_ms);
/* Who gets what `name` holds: never itself. Without data if there is nobody. */
struct impel_bytes sweep_heir_of(const struct sweep_heirs *heirs, struct impel_bytes name);
/* True if the consumer is to be deleted: it holds nothing, and is dead or, if foreign, has been
 * inactive for `consumer_ttl_ms` (-1 = never). */
bool sweep_wants_drop(const struct look_owner *owner, int64_t consumer_ttl_ms);

#endif /* IMPEL_CORE_SWEEP_H */
