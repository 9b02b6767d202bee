/* dead.h -- what the parts of `impel dead` share: which records are meant, and walking through them.
 *
 * command_dead.c reads the words; dead_select.c picks the records; dead_list.c shows them,
 * dead_stats.c counts them, dead_replay.c moves them. */
#ifndef IMPEL_CLI_DEAD_H
#define IMPEL_CLI_DEAD_H

#include "cli/command.h"
#include "cli/dead_record.h"
#include "cli/session.h"

struct dead_match {
    struct impel_bytes name, pattern;
};

struct dead {
    struct options *options;
    struct store *store;
    struct impel_bytes stream;      /* --stream; empty if it was not given */
    struct impel_bytes dead_letter; /* where the records are */
    struct impel_bytes audit;       /* empty = none */
    struct dead_match *matches;     /* --field */
    size_t match_count;
    struct impel_id *ids; /* which were named: ascending, each once */
    size_t id_count;
    uint64_t limit; /* 0 = none */
    /* As the dead-letter stream stood at the beginning: what is parked meanwhile is not looked at,
     * or a replay of poison would never end. */
    bool exists;
    uint64_t length;
    struct impel_id last_id;
    int64_t now_ms; /* the store's */
};

/* Gets each record that is meant, in order. A negative status ends the walk, which returns it; then
 * `err` is filled in. The record lives during the call. */
typedef int dead_record_fn(void *user, const struct dead_record *record, struct impel_error *err);

/* Looks at the dead-letter stream, and walks through the records that are meant. `seen` (may be NULL)
 * counts all entries that were passed. A note tells of entries that are no records, an error of IDs
 * that are not there. */
int dead_look(struct dead *dead, struct impel_error *err);
int dead_walk(
    struct dead *dead, dead_record_fn *record, void *user, uint64_t *seen, struct impel_error *err);
/* Whether the options name any records at all, or just all of them. */
bool dead_selects(const struct dead *dead);

/* The subcommands: an exit code, or a negative status. */
int dead_list(struct dead *dead, struct impel_error *err);
int dead_show(struct dead *dead, struct impel_error *err);
int dead_stats(struct dead *dead, struct impel_error *err);
int dead_replay(struct dead *dead, struct impel_error *err);
int dead_drop(struct dead *dead, struct impel_error *err);

/* ---- parts of their output ---- */

struct buf;
void dead_json_text(struct buf *line, const char *name, struct impel_bytes value);
void dead_json_number(struct buf *line, const char *name, int64_t number); /* negative = null */
void dead_time(struct buf *line, int64_t unix_ms); /* 19 letters, local time */

#endif /* IMPEL_CLI_DEAD_H */
