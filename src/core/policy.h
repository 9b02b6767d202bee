/* policy.h -- is an entry overdue, and what follows? The second of the two clocks, as pure
 * functions.
 *
 * The verdict on a pending entry depends on its owner's state, its idle time, its deliveries and
 * whether it still exists, and on nothing else. Stores evaluate it inside the same atomic step that
 * acts on it, so that no verdict can be stale when it is carried out. The Lua twins of these
 * functions compute the same numbers to the millisecond. */
#ifndef IMPEL_CORE_POLICY_H
#define IMPEL_CORE_POLICY_H

#include "base/base.h"

struct policy {
    int64_t min_idle_ms;     /* a foreign worker's entry is overdue after this; default 60 s */
    int64_t dead_after_ms;   /* a silent Impel worker is dead after this; default 5 s */
    int64_t max_deliveries;  /* parked at this many; default 5, at least 1 */
    int64_t backoff_base_ms; /* default 1 s; 0 = no backoff */
    int64_t backoff_cap_ms;  /* default 5 min */
};

/* Who an entry's owner is, from the point of view of the worker or sweep that asks. */
enum owner_state {
    OWNER_ME,       /* the asking worker itself */
    OWNER_LIVE,     /* another Impel worker that beats */
    OWNER_DEAD,     /* an Impel worker whose silence reached its dead-after */
    OWNER_FOREIGN,  /* not in the workers table: somebody else's program */
    OWNER_RELEASED, /* the reserved consumer RELEASED_NAME */
    OWNER_NOBODY,   /* "" after XNACK */
    OWNER_UNKNOWN,  /* in the table, but no verdict is possible without beating first */
};

/* Released entries belong to this consumer: claimable at once by our sweeps and by any XAUTOCLAIM.
 */
#define RELEASED_NAME "impel-released"

enum verdict {
    VERDICT_MINE,  /* held by the asking worker: nothing to decide */
    VERDICT_LEAVE, /* its holder is alive and accounts for it, or nothing is known of the holder */
    VERDICT_WAIT,  /* abandoned, but not idle for long enough yet */
    VERDICT_CLAIM,
    VERDICT_PARK, /* deliveries reached the limit */
    VERDICT_REAP, /* the entry is gone from its stream: lost work */
};

struct pending_view {
    struct impel_id id;
    enum owner_state owner;
    int64_t idle_ms; /* store time - delivered-at; may be negative if the clock was set back */
    int64_t
        silence_ms; /* OWNER_DEAD only: liveness_silence_ms of the owner; idle is at least this */
    int64_t deliveries; /* negative = counted past INT64_MAX by another tool: more than any limit */
    bool exists;        /* still in the stream */
};

void policy_defaults(struct policy *policy);
/* The wait after the n-th delivery. backoff(0) = 0; backoff(n) = d + jitter with d = base *
 * 2^(n-1), at most the cap; jitter = floor(d * h / 655360), 0..10 % of d, where h is
 * policy_jitter_hash(id). n < 0 counts as huge. Saturates. */
int64_t policy_backoff_ms(const struct policy *policy, int64_t deliveries, struct impel_id id);
/* 16 bits from the text "ms-seq": h = 0; for each byte h = (h * 31 + byte) mod 65536. Simple enough
 * to be computed the same in C and in a script. */
uint32_t policy_jitter_hash(struct impel_id id);
/* True if the entry has had as many deliveries as it may have. */
bool policy_exhausted(const struct policy *policy, int64_t deliveries);
/* The verdict. `wait_ms` (may be NULL) gets how long a VERDICT_WAIT entry still has to idle, else
 * 0. The first row that matches wins: ME -> MINE; LIVE, UNKNOWN -> LEAVE; RELEASED, NOBODY: due
 * when idle >= backoff(n), and at once when idle < 0 (never delivered, or the clock was set back:
 * nobody is at work on these); DEAD: due when max(idle, silence) >= max(dead-after already passed,
 * backoff(n)); FOREIGN: due when idle >= max(min_idle, backoff(n)); due -> REAP if it does not
 * exist, else PARK if exhausted, else CLAIM. */
enum verdict
policy_verdict(const struct policy *policy, const struct pending_view *view, int64_t *wait_ms);

#endif /* IMPEL_CORE_POLICY_H */
