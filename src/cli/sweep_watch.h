/* sweep_watch.h -- how long the beats of workers are watched before the one pass of `sweep --once`.
 *
 * For as long as --dead-after says, and longer where a worker that holds entries is silent and not dead yet:
 * its own dead-after may be longer, and a store that stood still begins to count anew. A worker that has
 * beaten since is alive as far as this pass goes. */
#ifndef IMPEL_CLI_SWEEP_WATCH_H
#define IMPEL_CLI_SWEEP_WATCH_H

#include "core/request.h"

struct sweep_watch {
    int64_t dead_after_ms; /* how long at least */
    int64_t begun_ms;      /* the driver's clock, like all here */
    int64_t round_ms;      /* when this round of looks began */
    int64_t told_ms;       /* when it was last said whom this waits for; 0 = never */
    /* Of this round: */
    int64_t interval_ms; /* until the next one: as often as the quickest worker beats */
    uint64_t open_count; /* workers that may be dead yet */
    int64_t left_ms;     /* until the last of these is, if it stays silent */
    char who[256];       /* that one */
};

void sweep_watch_init(struct sweep_watch *watch, int64_t dead_after_ms);
/* A round of looks, one in each group, begins. */
void sweep_watch_round(struct sweep_watch *watch);
/* Takes one of its answers, which was asked for at `asked_ms`. */
void sweep_watch_take(struct sweep_watch *watch, const struct request *look, int64_t asked_ms);
/* The round is over: true if no more are needed. Else says now and then whom it waits for. */
bool sweep_watch_over(struct sweep_watch *watch);

#endif /* IMPEL_CLI_SWEEP_WATCH_H */
