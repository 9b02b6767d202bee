/* model_state.h -- what the model store remembers: plain sorted arrays, for whoever audits it.
 *
 * A state is a value: it can be copied as a whole (a snapshot) and put back, which is how the
 * simulator makes a store lose its last writes. Entries are shared between copies and counted.
 * Memory that cannot be had ends the test: nothing here returns an error. */
#ifndef MODEL_STATE_H
#define MODEL_STATE_H

#include "core/request.h"

enum {
    MODEL_NOBODY = 0, /* the owner number of a row that nobody owns; consumers count from 1 */
};

struct model_entry {
    struct entry *entry;
    size_t uses; /* in how many states */
};

struct model_row {
    struct impel_id id;
    uint32_t owner; /* a consumer's number: survives the deletion of other consumers */
    int64_t delivered_ms;
    int64_t deliveries;
};

struct model_carried { /* what a requeued entry had before; see ATTEMPTS in core/request.h */
    struct impel_id id;
    int64_t deliveries;
};

struct model_consumer {
    uint32_t number;
    struct impel_bytes name; /* owned */
    int64_t seen_ms;
    uint64_t pending; /* how many rows it owns: kept, so that dropping is cheap to decide */
};

struct model_worker {
    struct impel_bytes name; /* owned */
    struct liveness_row row;
    bool dead; /* somebody judged it so; only its own next beat takes that back */
    bool seen_dead;
};

struct model_group {
    struct impel_bytes name; /* owned */
    struct impel_id last_delivered;
    int64_t entries_read;   /* -1 = unknown */
    struct model_row *rows; /* by ID */
    size_t row_count, row_room;
    struct model_carried *carried; /* in no order */
    size_t carried_count;
    struct model_consumer *consumers; /* by name */
    size_t consumer_count;
    uint32_t consumer_last; /* the highest number given */
    struct liveness liveness;
    struct model_worker *workers;
    size_t worker_count;
    int64_t stamp_ms;
    int64_t left_ms; /* when due work was left behind, or a worker seen dead; 0 = never */
    struct impel_bytes cursor_owner; /* owned */
    struct impel_id cursor_id;
};

struct model_stream {
    struct impel_bytes name; /* owned */
    bool other_type;         /* a key of another type: every stream operation on it is refused */
    struct model_entry **entries; /* by ID */
    size_t entry_count, entry_room;
    struct impel_id last_id;
    struct impel_id deleted_max;
    uint64_t entries_added;
    struct model_group *groups; /* by name */
    size_t group_count;
    uint64_t
        floor_group; /* the hash of the group that was destroyed last, and where it would have */
    struct impel_id floor; /* to begin again: behind the last entry before which all was acked */
};

struct model_state {
    struct model_stream *streams;
    size_t stream_count;
};

void state_release(struct model_state *state);
void state_copy(const struct model_state *from, struct model_state *to); /* `to` is overwritten */

struct impel_bytes state_bytes_copy(struct impel_bytes bytes);
void state_bytes_free(struct impel_bytes bytes);

struct model_stream *state_stream(struct model_state *state, struct impel_bytes name);
struct model_stream *state_stream_make(struct model_state *state, struct impel_bytes name);
void state_stream_delete(struct model_state *state, struct model_stream *stream);

/* The position of the first entry with an ID >= `id`. */
size_t stream_seek(const struct model_stream *stream, struct impel_id id);
const struct entry *stream_entry(const struct model_stream *stream, struct impel_id id);
void stream_append(struct model_stream *stream, struct entry *entry); /* takes the entry */
/* Removes `count` entries from position `at` on. */
void stream_remove(struct model_stream *stream, size_t at, size_t count);

struct model_group *stream_group(struct model_stream *stream, struct impel_bytes name);
struct model_group *stream_group_make(struct model_stream *stream, struct impel_bytes name);
void stream_group_delete(struct model_stream *stream, struct model_group *group);

struct model_consumer *group_consumer(struct model_group *group, struct impel_bytes name);
struct model_consumer *group_consumer_make(struct model_group *group, struct impel_bytes name);
struct model_consumer *group_consumer_number(const struct model_group *group, uint32_t number);
void group_consumer_delete(struct model_group *group, struct model_consumer *consumer);
/* The name of a row's owner; empty for nobody. */
struct impel_bytes group_owner_name(const struct model_group *group, const struct model_row *row);

size_t group_seek(const struct model_group *group, struct impel_id id);
struct model_row *group_row(struct model_group *group, struct impel_id id);
/* The row of `id`, made if missing; its owner is set to `owner`. */
struct model_row *
group_row_put(struct model_group *group, struct impel_id id, struct model_consumer *owner);
void group_row_own(struct model_group *group, struct model_row *row, struct model_consumer *owner);
void group_row_delete(struct model_group *group, struct model_row *row);

/* What the entry of this ID carries; setting it to 0 forgets it. */
int64_t group_carried(const struct model_group *group, struct impel_id id);
void group_carried_set(struct model_group *group, struct impel_id id, int64_t deliveries);

struct model_worker *group_worker(struct model_group *group, struct impel_bytes name);
struct model_worker *group_worker_make(struct model_group *group, struct impel_bytes name);
void group_worker_delete(struct model_group *group, struct model_worker *worker);

#endif /* MODEL_STATE_H */
