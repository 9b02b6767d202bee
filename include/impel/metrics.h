/* metrics.h -- what a worker counted since it was made.
 *
 * The same numbers go, by stream, into the file that `impel_worker_options.metrics_file` names, in
 * the text form that Prometheus reads. A counter only grows; it counts what this process lived to
 * see, so that a worker that was killed took its last few with it. Three are no counters but say
 * how things stand: those marked "now". */
#ifndef IMPEL_METRICS_H
#define IMPEL_METRICS_H

#include "impel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    IMPEL_RECOVERY_BUCKETS = 13, /* bounds 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600 s
                                    and without bound */
};

struct impel_metrics {
    uint64_t delivered;   /* new entries read */
    uint64_t done;        /* handled and acknowledged */
    uint64_t retried;     /* ended with "retry", a timeout included */
    uint64_t redelivered; /* handed to a handler with an attempt above 1, for whatever reason */
    uint64_t claimed;     /* recovered from another owner */
    uint64_t parked;      /* moved to the dead-letter stream */
    uint64_t lost;        /* trimmed or deleted by somebody while pending: work nobody did */
    uint64_t late_acks;   /* done, but somebody else had the entry by then */
    uint64_t released;    /* given back at a stop, or before they were started */
    uint64_t renewed;
    uint64_t sweeps;        /* walks over what is abandoned */
    uint64_t sweep_due;     /* now, as this worker's last sweep saw it: abandoned and due */
    uint64_t sweep_not_due; /* now: abandoned, but not idle for long enough yet */
    uint64_t held;          /* now: running, waiting for a handler or for their retry */
    /* How long claimed entries had been abandoned: how many by bucket (not cumulative; a bound is
     * part of its bucket), and in sum. */
    uint64_t recovery_buckets[IMPEL_RECOVERY_BUCKETS];
    double recovery_seconds_sum;
    uint64_t reserved[16]; /* 0; room for more */
};

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_METRICS_H */
