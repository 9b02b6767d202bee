/* stream_trim.h -- removing from a stream what every group of it has finished with, and telling who
 * holds the rest back and what others have removed too early.
 *
 * A group has finished with what lies before its first pending entry and before the first that it
 * has not read. The store finds that place and cuts there in one step, so nothing that is delivered
 * meanwhile is lost. A group that has unfinished work and of which nobody was seen for `stalled_ms`
 * is stalled: what it holds stays until somebody says that it need not, by name. */
#ifndef IMPEL_CLI_STREAM_TRIM_H
#define IMPEL_CLI_STREAM_TRIM_H

#include "cli/session.h"

struct trim_plan {
    struct keep keep;                /* what stays although it is finished */
    const struct text_list *ignored; /* groups that hold nothing back */
    int64_t stalled_ms;
    bool dry_run; /* only count */
    bool many;    /* not every stream has to have each ignored group */
};

/* A group, as far as a trim is concerned. */
struct trim_group {
    struct impel_bytes name;
    struct impel_id floor; /* the first ID that it has not finished with */
    bool pending;          /* that is a pending entry, else one that it has not read */
    bool unfinished;       /* there is such an entry */
    bool ignored;
    bool stalled;
    int64_t seen_ms; /* ago; -1 = it has no consumer */
    uint64_t lost_pending, lost_unread;
};

struct trim_report {
    struct impel_bytes stream;
    uint64_t length;  /* before */
    uint64_t removed; /* or, in a dry run, what would be */
    struct trim_group *groups;
    size_t group_count;
    const struct trim_group *holder; /* the group that holds most back; NULL: none does */
    struct arena arena;              /* all of it */
};

/* Trims one stream, step by step. IMPEL_ERR_NOT_FOUND: there is no such stream; IMPEL_ERR_NO_GROUP:
 * no group says what is finished. */
int stream_trim(struct trim_report *report,
                struct store *store,
                const struct trim_plan *plan,
                struct impel_bytes stream,
                struct impel_error *err);
void trim_report_release(struct trim_report *report);
/* True if a group is stalled, or has lost something. */
bool trim_needs_attention(const struct trim_report *report);

#endif /* IMPEL_CLI_STREAM_TRIM_H */
