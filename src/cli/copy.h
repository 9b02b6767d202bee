/* copy.h -- impel copy, in its parts: what a stream is (copy_state.c), reading its rows in order
 * (copy_read.c), making a copy under another name (copy_build.c), and comparing two (copy_compare.c).
 *
 * A stream is built under a name of its own beside the target, compared with its source there, and
 * only then gets its name, in one step. So the name never shows half a stream, and what a copy that
 * was killed has left under the other name is taken up by the next. */
#ifndef IMPEL_CLI_COPY_H
#define IMPEL_CLI_COPY_H

#include "cli/console.h"
#include "cli/session.h"

struct value;

/* ---- what a stream is, but for its entries and pending rows (copy_state.c) ---- */

struct copy_group {
    struct impel_bytes name;
    struct impel_id last_id;
    int64_t entries_read; /* -1 = unknown, to the server as well */
    uint64_t pending;
    uint64_t nobodys;              /* of these, how many have no owner (XNACK) */
    struct impel_bytes *consumers; /* sorted */
    size_t consumer_count;
};

struct copy_state {
    struct arena arena;
    bool exists;
    bool counts; /* the server knows the next two: Redis 7.0 and later */
    int64_t entries_added;
    struct impel_id max_deleted_id;
    uint64_t length;
    struct impel_id first_id,
        last_id;    /* the first live entry, 0-0 if there is none; last-generated-id */
    int64_t ttl_ms; /* -1 = it does not expire */
    /* Of idempotent adds, -1 where the server says nothing of them: how long, and how many of a
     * producer, IDs are kept; how many are kept now, and ever were. */
    int64_t idmp_duration_s, idmp_iids_max, idmp_iids, idmp_added;
    struct copy_group *groups; /* sorted */
    size_t group_count;
    uint64_t pending; /* of all groups */
};

/* A missing stream is no error; a key of another type is IMPEL_ERR_WRONG_TYPE. Release it whatever
 * comes back. */
int copy_state_read(struct store *store,
                    struct impel_bytes stream,
                    struct copy_state *state,
                    struct impel_error *err);
void copy_state_release(struct copy_state *state);
/* True if the stream keeps IDs of idempotent adds in another way than all do, or ever kept one. */
bool copy_state_idempotent(const struct copy_state *state);
/* True if both say the same of the stream, which is then as good as untouched between them. */
bool copy_state_equal(const struct copy_state *a, const struct copy_state *b);
/* IMPEL_ERR_BUSY, naming one, if an Impel worker of any group is alive. */
int copy_state_alive(struct store *store,
                     struct impel_bytes stream,
                     const struct copy_state *state,
                     struct impel_error *err);

/* The streams that a list of names and patterns means, or all of the store, sorted, in `arena`. Not
 * those that copies are built in. A name that is there as it stands is no pattern; what means no stream is
 * among them as it stands. */
int copy_names(struct store *store,
               const struct text_list *wanted,
               struct arena *arena,
               struct impel_bytes **out,
               size_t *count,
               struct impel_error *err);
/* Where the copy of a stream is built: impel:{TAG}:copy:STREAM, on the stream's own slot. */
bool copy_building_name(struct arena *arena, struct impel_bytes stream, struct impel_bytes *name);

/* ---- its rows in order (copy_read.c) ---- */

/* Entries up to `until`, a page at a time; zeroed but for the first four members it begins. */
struct copy_entries {
    struct store *store;
    struct impel_bytes stream;
    struct impel_id until; /* inclusive */
    /* A walk through the same entries, whose page tells what comes here and is in memory, too; or NULL. */
    const struct copy_entries *beside;
    struct impel_id from; /* the next page's first ID */
    struct request *page;
    size_t at;
    bool over;
};
/* 1 = `*entry` is the next, until the call after this; 0 = the end. */
int copy_next_entry(struct copy_entries *entries,
                    const struct entry **entry,
                    struct impel_error *err);
void copy_entries_end(struct copy_entries *entries);

/* Pending rows of a group by ID, the same way. */
struct copy_pending {
    struct store *store;
    struct impel_bytes stream, group;
    struct impel_id from;
    struct request *page;
    size_t at;
    bool over;
};
struct copy_row {
    struct impel_id id;
    struct impel_bytes owner; /* nobody's: RELEASED_NAME, so that everybody may have it */
    int64_t delivered_ms;     /* by the store's clock */
    int64_t now_ms;           /* which showed this */
    int64_t deliveries;       /* never negative */
    bool nobodys;
    bool exists; /* the entry is still in the stream */
};
int copy_next_row(struct copy_pending *pending, struct copy_row *row, struct impel_error *err);
void copy_pending_end(struct copy_pending *pending);

/* ---- making and comparing ---- */

struct copy_work {
    struct store *from, *to;
    struct impel_bytes stream;   /* in the source */
    struct impel_bytes building; /* in the target */
    const struct copy_state *source;
    struct progress *progress;
    uint64_t done;  /* rows, of all that the bar counts */
    bool in_pieces; /* out: how it was made */
};

/* One row more. */
static inline void copy_went_on(struct copy_work *work)
{
    work->done++;
    progress_show(work->progress, work->done, work->done);
}

/* Makes the copy under its building name: by DUMP and RESTORE where both sides can, else in pieces. */
int copy_build(struct copy_work *work, struct impel_error *err);
/* The streams are the same: IMPEL_OK; IMPEL_ERR_EXISTS with the first difference in `err`. Of servers
 * that do not say how many entries were added this is left out, and consumers' own times always. */
int copy_compare(const struct copy_work *work, struct impel_bytes other, struct impel_error *err);

/* The same without the rows, for a last look. */
int copy_compare_heads(const struct copy_work *work,
                       struct impel_bytes other,
                       struct impel_error *err);

#endif /* IMPEL_CLI_COPY_H */
