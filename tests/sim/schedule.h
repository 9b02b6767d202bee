/* schedule.h -- scenes for the named schedules: one world at a time, a stream, workers by name. */
#ifndef SCHEDULE_H
#define SCHEDULE_H

#include "sim/sim.h"
#include "tap.h"

extern struct sim sim;

/* One stream, its group, a network with some latency, the default policy. */
void begin(void);
struct node *up(const char *name, uint32_t concurrency, int64_t prefetch);
struct sim_entry *entry(enum plan_kind plan, int64_t handler_ms);
void pass(int64_t ms); /* of virtual time; fails if a promise broke */
void crash(struct node *node);
/* Of the newest dead-letter record; 1 = the last field. */
struct impel_bytes last_record_field(size_t from_the_end);
/* Faults off, all settles, all stop; fails if a promise broke. */
void finish(void);
/* The rest of a world that a failed test left. */
int schedules_main(int argc, char **argv);

#endif /* SCHEDULE_H */
