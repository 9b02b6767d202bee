/* drill.h -- the parts of the fire drill: the scene (stream, workers, kills), what the workers'
 * metrics say, and the verdict. */
#ifndef IMPEL_CLI_DRILL_H
#define IMPEL_CLI_DRILL_H

#include "cli/folder.h"
#include "cli/options.h"
#include "cli/session.h"

#include <sys/types.h>

enum {
    DRILL_WORKERS_MAX = 64,
    DRILL_DELIVERIES_MAX = 3,
    DRILL_CONCURRENCY = 2,
};

struct drill_worker {
    char name[16];
    char metrics_path[160];
    pid_t pid; /* 0 = not running */
    bool killed;
    uint64_t held;           /* pending under its name, at the last look */
    uint64_t held_when_dead; /* right after the kill */
};

/* The sums of the survivors' counters, and of all workers' where it says so. */
struct drill_metrics {
    double redelivered, retried, parked, lost, claimed, sweeps;
    double recovery_count, recovery_seconds;
    double due, not_due; /* gauges: now */
    bool complete;       /* every counter that is promised was there */
};

struct drill {
    const struct options *options;
    struct store *store;
    bool log_told;        /* a log in the folder was named, so it stays */
    struct folder folder; /* the workers' metrics, what they did, perhaps the store */
    bool own_store;       /* in the folder, and gone with it */
    char store_url[1024];
    char stream[48], dead_letter[64];
    char done_path[160]; /* a line for each entry that a handler finished */
    uint64_t entries;
    int64_t dead_after_ms;
    struct drill_worker workers[DRILL_WORKERS_MAX];
    size_t worker_count;
    size_t kill_count;
    int64_t begun_ms;
    struct impel_id poison;  /* the entry that kills its handlers */
    struct impel_id trimmed; /* the entry that was deleted while pending */

    /* What the looks saw. */
    uint64_t pending;
    uint64_t undelivered;
    struct sweep_cursor cursor;
    uint64_t held_by_dead;
    uint64_t cursor_moves; /* how often the cursor was seen away from its start */
    double not_due_seen;   /* the most that a sweep found abandoned, but not due yet */
};

/* ---- the scene ---- */

int drill_open(struct drill *drill, const struct options *options, struct impel_error *err);
/* Ends what still runs, and removes stream and folder, unless they are to be kept. */
void drill_close(struct drill *drill);
int drill_add_entries(struct drill *drill, struct impel_error *err);
int drill_start_workers(struct drill *drill, struct impel_error *err);
/* One look at the group: who holds how much, what is undelivered, where the sweep stands. */
int drill_look(struct drill *drill, struct impel_error *err);
/* SIGKILL to a worker that holds entries at that moment. IMPEL_ERR_BUSY: it held none after all. */
int drill_kill(struct drill *drill, struct drill_worker *worker, struct impel_error *err);
/* Deletes the first entry that the dead worker still holds. */
int drill_trim(struct drill *drill, const struct drill_worker *worker, struct impel_error *err);
/* TERM to all survivors, and waits. False if one of them did not end with 0. */
bool drill_stop_workers(struct drill *drill);
/* IMPEL_ERR_IO if a worker that should live has ended. */
int drill_check_workers(struct drill *drill, struct impel_error *err);

/* ---- what came of it ---- */

void drill_read_metrics(const struct drill *drill, struct drill_metrics *metrics);
/* How many different entries were finished, and how many were finished more than once. */
void drill_read_done(const struct drill *drill, uint64_t *distinct, uint64_t *again);
/* Records in the dead-letter stream. */
int drill_count_parked(const struct drill *drill, uint64_t *parked, struct impel_error *err);

#endif /* IMPEL_CLI_DRILL_H */
