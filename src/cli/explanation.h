/* explanation.h -- all that is known of one entry, from the point of view of one group, at one moment.
 *
 * Gathered without changing anything: no beat is taken, so of workers that nobody has heard of lately
 * it says "unknown". */
#ifndef IMPEL_CLI_EXPLANATION_H
#define IMPEL_CLI_EXPLANATION_H

#include "cli/session.h"

enum entry_state {
    ENTRY_UNDELIVERED,
    ENTRY_PENDING,
    ENTRY_ACKED,   /* in the stream, behind the group's place, and not pending */
    ENTRY_PARKED,  /* a record of it is in the dead-letter stream */
    ENTRY_GONE,    /* not in the stream any more, and nobody holds it */
    ENTRY_UNKNOWN, /* no such ID was ever given to this stream */
};

struct explanation {
    struct impel_bytes stream, group;
    struct impel_id id;
    enum entry_state state;
    bool exists; /* in the stream */

    /* The stream and the group. */
    int64_t now_ms; /* the store's clock */
    struct impel_id first_id, last_id, last_delivered;
    uint64_t length;
    size_t live_count; /* workers of the group that are known to be alive */

    /* PENDING: who holds it, and what follows. */
    char owner[64];
    struct pending_view view;
    struct policy policy;
    int64_t carried;        /* of the deliveries: before it was requeued */
    bool undated;           /* the idle time says nothing: it was handed back */
    int64_t beat_age_ms;    /* of the owner; -1 = it does not beat */
    enum verdict verdict;   /* now */
    enum verdict verdict_1; /* what it will be when the wait is over */
    int64_t wait_ms;

    /* PARKED. */
    struct impel_id parked_as;
    char reason[64];
    char error[256];
    int64_t parked_ms; /* -1 = not told */
};

/* `stream`, `group` and `id` are set already. */
int explanation_gather(struct explanation *entry,
                       struct options *options,
                       struct store *store,
                       struct impel_error *err);

/* Which row of the table in ARCHITECTURE.md ("What follows for a pending entry") applies; 0 = none:
 * the entry is not pending, or nobody can say whether its owner lives. */
int explanation_rule(const struct explanation *entry);

#endif /* IMPEL_CLI_EXPLANATION_H */
