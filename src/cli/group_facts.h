/* group_facts.h -- what a server's own counters get wrong or do not say about a group: how much it
 * still has to read, what it lost, and when anybody last came for it. */
#ifndef IMPEL_CLI_GROUP_FACTS_H
#define IMPEL_CLI_GROUP_FACTS_H

#include "cli/session.h"

enum {
    /* Counting stops after so many entries, or so many bytes of them, in each direction. */
    LAG_COUNT_MAX = 10000,
    LAG_BYTES_MAX = 16 << 20,
};

/* A released entry is marked as delivered in 1970, so that anybody may take it at once: that is no
 * idle time. */
#define IDLE_MAX_MS (INT64_C(20) * 365 * 24 * 3600 * 1000)

/* How often a pending entry was delivered, with what it had before it was requeued. What was counted past
 * the largest number (claimed once more after an XNACK FATAL) is the largest. */
int64_t facts_deliveries(const struct pending_row *row);

/* The group in an answered INFO, or NULL. */
const struct info_group *facts_group(const struct request *info, struct impel_bytes name);
/* Whoever works ends its work before it leaves, and may have done both between a look at the work and one
 * for workers. So work that nobody seems to do is asked about once more, in a later INFO: true if the group
 * still has it before it, as it was. */
bool facts_same_work(const struct info_group *before, const struct request *later);

/* How many entries of the stream the group has not been given yet. */
struct group_lag {
    int64_t entries; /* -1 = unknown */
    bool exact;      /* counted, or certain; else the server's word, within what was counted */
};

/* Servers count from `entries-added`, and so are wrong as soon as something was trimmed or deleted
 * ahead of a group: too large, or silent. Here the IDs decide, and where they do not the shorter
 * side of the stream is counted, up to `count_max` entries; past that the server's number is
 * believed, within what was counted. `info` is an answered INFO. */
int facts_lag(struct store *store,
              const struct request *info,
              const struct info_group *group,
              uint64_t count_max,
              struct group_lag *lag,
              struct impel_error *err);

/* Entries that were trimmed or deleted before this group could read them, as long as the group has
 * not read past the gap; 0 where the counters do not tell. */
uint64_t facts_lost_unread(const struct request *info, const struct info_group *group);

/* Entries that are pending in the group and were trimmed away from the front of the stream. */
int facts_lost_pending(struct store *store,
                       const struct request *info,
                       const struct info_group *group,
                       uint64_t *lost,
                       struct impel_error *err);

/* How long ago any consumer of the group was last seen; -1 = there is no consumer. */
int facts_seen_ms(struct store *store,
                  struct impel_bytes stream,
                  struct impel_bytes group,
                  int64_t *seen_ms,
                  struct impel_error *err);

/* True if a worker of Impel's is known to be alive in the group. */
int facts_any_alive(struct store *store,
                    struct impel_bytes stream,
                    struct impel_bytes group,
                    bool *alive,
                    struct impel_error *err);

#endif /* IMPEL_CLI_GROUP_FACTS_H */
