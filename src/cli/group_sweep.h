/* group_sweep.h -- the sweep of one stream and group without a worker: it drives core/sweep.h, says
 * what it settles, and remembers what is abandoned and by whom.
 *
 * Nothing is ever claimed: a sweep has no handler, and what it took would be stuck under its name. */
#ifndef IMPEL_CLI_GROUP_SWEEP_H
#define IMPEL_CLI_GROUP_SWEEP_H

#include "cli/logging.h"
#include "core/sweep.h"
#include "observe/metrics.h"
#include "store/store.h"

/* What one pass found under one owner. */
struct owner_report {
    struct impel_bytes name; /* empty: entries of nobody */
    enum owner_state state;
    uint64_t due;     /* to be claimed by a worker */
    uint64_t not_due; /* not idle for long enough yet */
    uint64_t parked;
    uint64_t park_failed; /* left pending: the dead-letter stream refused the copy */
    uint64_t reaped;
    uint64_t moved; /* requeued or handed over */
};

struct group_sweep {
    struct impel_bytes stream, group, dead_letter;
    struct policy policy;
    struct sweep *machine;
    struct metrics *metrics;
    struct logging *logging;
    struct owner_report *reports; /* of this pass */
    size_t report_count, report_capacity;
    unsigned action;          /* enum claim_flags */
    bool may_vanish;          /* then its absence is no news here */
    bool refused_told;        /* that another group forbids a requeue */
    int64_t park_failed_ms;   /* when it was last said that a park failed; 0 = never */
    bool left_out_told;       /* that there are more consumers than one pass walks */
    uint64_t due_told;        /* how many were due when it was last said */
    struct arena names;       /* of the reports */
    uint64_t passes;          /* that are over */
    int status;               /* of the last failed request, so that it is said once */
    struct impel_error error; /* what it said */
};

struct group_sweep_options {
    struct impel_bytes stream, group, dead_letter;
    struct policy policy;
    int64_t interval_ms;
    int64_t consumer_ttl_ms;
    unsigned action; /* enum claim_flags: what to do with what is due; 0 = only find */
    bool may_vanish; /* a missing stream or group is only kept as the status */
};

/* The policy by which entries are judged where `action` (enum claim_flags) is done to them. */
struct policy group_sweep_policy(const struct policy *policy, unsigned action);

/* The spans must outlive it. A zeroed one is released already. */
int group_sweep_init(struct group_sweep *sweep,
                     const struct group_sweep_options *options,
                     struct logging *logging,
                     int64_t now_ms);
void group_sweep_release(struct group_sweep *sweep);

/* The next request, or NULL when there is nothing to do before group_sweep_deadline(). */
struct request *group_sweep_next(struct group_sweep *sweep, int64_t now_ms);
/* Takes the answer and frees it. */
void group_sweep_done(struct group_sweep *sweep, struct request *request, int64_t now_ms);
int64_t group_sweep_deadline(const struct group_sweep *sweep, int64_t now_ms);
/* Notes and tells why a request failed that was asked on its behalf; does not free it. */
void group_sweep_failed(struct group_sweep *sweep, const struct request *request);
/* True if the last answer was that there is no such stream, or no such group in it. */
bool group_sweep_missing(const struct group_sweep *sweep);
const char *owner_state_name(enum owner_state state);

#endif /* IMPEL_CLI_GROUP_SWEEP_H */
