/* sweep_discovery.h -- finding the groups that patterns mean, again and again while a sweep runs.
 *
 * A round asks about every stream that is named, scans the store for the rest, and asks about what
 * the patterns match: one request at a time, so that a store of a million keys is gone through
 * between the steps of the sweeps. What a round finds is in the list at once; what was found earlier
 * and is not seen in a whole round is gone. No more is kept than the names of one step of the scan. */
#ifndef IMPEL_CLI_SWEEP_DISCOVERY_H
#define IMPEL_CLI_SWEEP_DISCOVERY_H

#include "cli/stream_names.h"
#include "cli/sweep_list.h"

enum {
    DISCOVERY_INTERVALS = 10, /* of --interval, between two rounds; the help says so, too */
};

struct sweep_discovery {
    const struct sweep_choices *choices;
    struct sweep_list *list;
    bool needed;    /* else all is given by name */
    bool strict;    /* one round, and what is given by name should be there */
    bool running;   /* a round is under way */
    uint64_t round; /* its number; the first is 1 */
    uint64_t last;  /* the last that came to its end */
    int64_t due_ms; /* when the next begins */
    int64_t interval_ms;
    struct stream_scan scan;
    struct arena arena;        /* of the names */
    struct impel_bytes *names; /* to be asked about */
    size_t count, at;
    int status; /* of the last failed request, so that it is said once */
    uint64_t
        refused; /* the last round in which a stream could not be asked; told once unless strict */
    struct impel_error refusal; /* of the first of them */
};

void sweep_discovery_init(struct sweep_discovery *discovery,
                          const struct sweep_choices *choices,
                          struct sweep_list *list,
                          bool strict);
void sweep_discovery_release(struct sweep_discovery *discovery);
/* Ms until there is something to ask; INT64_MAX: never. */
int64_t sweep_discovery_deadline(const struct sweep_discovery *discovery, int64_t now_ms);
/* The next request; NULL where there is none now, or memory is out. */
struct request *sweep_discovery_next(struct sweep_discovery *discovery, int64_t now_ms);
/* Takes its answer and frees it. An error ends the round; another follows in time. A stream that is
 * out of this user's reach or damaged keeps nobody from the others: it is told and passed by, and what
 * is swept of it stays. Nor does, in a strict round, one that is given by name and is not there. */
int sweep_discovery_done(struct sweep_discovery *discovery,
                         struct request *request,
                         int64_t now_ms,
                         struct impel_error *err);
/* After a strict round: a group that is given by name and was found on no stream counts as refused. */
void sweep_discovery_check(struct sweep_discovery *discovery);

#endif /* IMPEL_CLI_SWEEP_DISCOVERY_H */
