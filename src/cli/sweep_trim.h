/* sweep_trim.h -- what `impel sweep --trim` does beside sweeping: every minute it trims the streams
 * whose groups it sweeps, and says when that frees something, and, once, when something is wrong. */
#ifndef IMPEL_CLI_SWEEP_TRIM_H
#define IMPEL_CLI_SWEEP_TRIM_H

#include "cli/logging.h"
#include "cli/stream_trim.h"

struct trim_told; /* what was last said of a stream */

struct sweep_trim {
    struct trim_plan plan;
    struct logging *logging;
    struct trim_told *told;
    size_t told_count;
    int64_t due_ms;  /* when it trims next, by the clock of clock_now_ms() */
    uint64_t failed; /* how often a stream could not be trimmed */
    bool wanted;
};

/* Without --trim nothing will ever happen. The options must outlive it. */
void sweep_trim_init(struct sweep_trim *trim,
                     const struct options *options,
                     struct logging *logging);
void sweep_trim_release(struct sweep_trim *trim);
bool sweep_trim_due(const struct sweep_trim *trim, int64_t now_ms);
/* Trims one stream. Once it is due, call sweep_trim_over() and this for each. A stream that cannot be
 * trimmed is told and does not stop the others; with `may_vanish` its absence is no news. */
void sweep_trim_stream(struct sweep_trim *trim,
                       struct store *store,
                       struct impel_bytes stream,
                       bool may_vanish);
/* Lets go of what is known of a stream that is gone. */
void sweep_trim_forget(struct sweep_trim *trim, struct impel_bytes stream);
void sweep_trim_over(struct sweep_trim *trim, int64_t now_ms);

#endif /* IMPEL_CLI_SWEEP_TRIM_H */
