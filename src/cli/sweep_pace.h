/* sweep_pace.h -- --budget: how many commands a sweep may send in a second. */
#ifndef IMPEL_CLI_SWEEP_PACE_H
#define IMPEL_CLI_SWEEP_PACE_H

#include <stdint.h>

struct sweep_pace {
    int64_t budget; /* commands per second; 0 = no limit */
    int64_t spent;  /* of the slice that began at `since_ms` */
    int64_t since_ms;
};

/* Takes one command from the budget: 0 = it may go out now; else the ms to wait before asking again,
 * and nothing was taken. */
int64_t sweep_pace_take(struct sweep_pace *pace, int64_t now_ms);

#endif /* IMPEL_CLI_SWEEP_PACE_H */
