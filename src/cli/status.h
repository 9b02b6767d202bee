/* status.h -- what is known of streams and their groups at one moment, gathered without changing
 * anything: no beat is taken, so where the table of workers is stale nobody is called alive or dead.
 */
#ifndef IMPEL_CLI_STATUS_H
#define IMPEL_CLI_STATUS_H

#include "cli/session.h"

enum health {
    HEALTH_OK,
    HEALTH_RECOVERING, /* work was abandoned, and live workers are about to take it */
    HEALTH_UNKNOWN,    /* held by workers of which nobody can say whether they live */
    HEALTH_ATTENTION,  /* nothing will happen unless somebody does something */
};

enum alive {
    ALIVE_UNKNOWN, /* foreign, or no beat was taken lately */
    ALIVE_YES,
    ALIVE_NO,
};

struct status_worker {
    struct impel_bytes consumer;
    enum alive alive;
    bool foreign; /* not in the workers table: somebody else's program */
    uint64_t held;
    int64_t beat_age_ms; /* -1: foreign */
};

struct status_group {
    struct impel_bytes name;
    int64_t lag;    /* not delivered yet, counted where the server is wrong; -1 = unknown */
    bool lag_exact; /* else it is the server's word, within what was counted */
    uint64_t pending;
    int64_t oldest_idle_ms; /* -1: nothing is pending */
    uint64_t abandoned;     /* owner gone, and due: to be claimed, parked or reaped now */
    uint64_t not_due;       /* owner gone or foreign, but not idle for long enough yet */
    uint64_t unknown;       /* pending, under workers of unknown state */
    uint64_t parked;        /* records of this group in the dead-letter stream */
    uint64_t lost;          /* the two together */
    uint64_t lost_pending;  /* pending and abandoned, but gone from the stream */
    uint64_t lost_unread;   /* gone from the stream before it was delivered */
    int64_t seen_ms;        /* foreign consumers: when the last one was seen, ago; -1 = not asked */
    struct impel_id dead_last_id; /* of the dead-letter stream, and its length: for the next
                                     gathering */
    uint64_t dead_length;
    enum health health;
    char reason[256];
    struct status_worker *workers;
    size_t worker_count;
    size_t live_count;
    size_t foreign_count;
};

struct status_stream {
    struct impel_bytes name;
    uint64_t length;
    uint64_t entries_added;
    struct status_group *groups;
    size_t group_count;
};

struct status {
    struct status_stream *streams;
    size_t stream_count;
    struct text_list refused; /* what was said of each stream that alone was the matter */
    struct arena arena;       /* all of it */
    /* In: a gathering shortly before, whose counts save counting again; NULL = none. */
    const struct status *previous;
};

/* Of the streams that the options name, or of all; of one group, or of all. */
int status_gather(struct status *status,
                  struct store *store,
                  const struct options *options,
                  struct impel_error *err);
/* Says on standard error what could not be asked. True if there was anything. */
bool status_tell_refused(const struct status *status);
void status_release(struct status *status);

const char *health_name(enum health health);
/* Decides health and reason from the numbers. */
void status_judge(struct status_group *group,
                  struct impel_bytes stream,
                  const struct policy *policy);

#endif /* IMPEL_CLI_STATUS_H */
