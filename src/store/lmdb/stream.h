/* stream.h -- the data layer of the embedded store: streams, groups, consumers and pending entries
 * as rows of LMDB, inside one transaction.
 *
 * Everything here happens within a `struct lmdb_txn` that somebody else began and will commit or
 * abort (txn.h); nothing here waits, logs, calls back or reads a clock. Who judges liveness, parses
 * commands or completes requests is not here either.
 *
 * THE FILE. Six named databases, keys big-endian so that LMDB's order is the stream's order, values
 * in host order (an LMDB file does not travel between byte orders anyway):
 *
 *     catalog   'm'                      -> struct disk_meta      format version, next object number
 *               'k' NAME                 -> struct disk_key       a key: its kind and object number
 *               'x' time number          -> NAME                  which key expires when
 *               's' stream               -> struct disk_stream    counters, tail node, then the name
 *               'g' stream NAME          -> group number          the groups of a stream, by name
 *               'G' group                -> struct disk_group     counters, then the name
 *               'f' stream NAME          -> ms seq (big-endian)   of a group that was destroyed: where
 *                                                                 it would have to begin again
 *               'c' group NAME           -> consumer number       the consumers of a group, by name
 *               'C' consumer             -> struct disk_consumer  counters, then the name
 *               't' group time ms seq    -> nothing               the PEL as CLAIM takes it (order.c)
 *               'i' stream               -> struct disk_idmp      idempotent adds (idmp.c)
 *               'p' stream PRODUCER      -> producer number       its producers, by their IDs
 *               'P' producer             -> struct disk_producer  counter, then the ID
 *               'j' producer IID         -> ms seq                the entry that has this IID
 *               'J' producer ms seq      -> struct disk_iid       then the IID
 *               'e' stream ms seq        -> producer number       all IIDs, the oldest first
 *               'a' group ms seq         -> int64_t               what a requeued entry had before
 *               'd' group ms seq         -> bitmap                what of a row 'pel' is acknowledged
 *               'r'                      -> records              where they lie (redo.h)
 *               'v' number               -> the string, or struct disk_collection
 *               'l' list position        -> the element
 *               'S' set MEMBER           -> the member
 *     entries   stream ms seq            -> fields (layout.h)
 *     nodes     stream ms seq (first ID) -> struct disk_node      closed nodes; the open one, the
 *                                                                 tail, is in the stream's row
 *     pel       group ms seq             -> block.h               one or more pending entries, from
 *                                                                 this ID on
 *     owned     consumer ms seq          -> nothing               the rows 'pel' in which it has some
 *
 * Object numbers are 8 bytes, never 0 and never used again, so that a row of a dead object can be
 * no one else's. NAME is the name itself, or where it is longer than NAME_KEY_SIZE_MAX its first
 * bytes and a hash of all of it: names of any length work, and names order bytewise. The full name
 * stands in the object's row and is compared.
 *
 * OBJECTS. A find gives a pointer into the transaction's cache; the same object is always the same
 * pointer, valid until the transaction ends or the object is deleted (then it must not be used).
 * Callers may change the fields marked "rw", and say so with the _changed function; rows are
 * written back once, before the commit.
 *
 * ERRORS. Functions return >= 0, or a negative enum impel_status. The harmless ones (NOT_FOUND,
 * NO_GROUP, WRONG_TYPE, EXISTS) leave everything as it was. All others are *hard*: they are noted
 * in txn->status, the transaction can only be aborted, every later call returns the same, and the
 * caller just passes it on. */
#ifndef IMPEL_STORE_LMDB_STREAM_H
#define IMPEL_STORE_LMDB_STREAM_H

#include "core/id.h"
#include "core/request.h"

#include <lmdb.h>

struct lmdb_txn; /* txn.h */

/* The clock of the command that is being carried out, in unix ms: one reading per command. */
int64_t lmdb_now_ms(const struct lmdb_txn *txn);

/* ---- keys ---- */

enum lmdb_key_kind {
    LMDB_KEY_NONE = 0, /* there is no such key */
    LMDB_KEY_STREAM = 1,
    LMDB_KEY_STRING = 2, /* these only so that there are other types to be wrong about */
    LMDB_KEY_LIST = 3,
    LMDB_KEY_SET = 4,
};

/* What the key holds; LMDB_KEY_NONE (status OK) if it does not exist. */
int lmdb_key_kind(struct lmdb_txn *txn, struct impel_bytes name, enum lmdb_key_kind *kind);
/* Deletes a key of any kind with all that belongs to it; signals readers. 1 = deleted, 0 = there
 * was none. */
int lmdb_key_delete(struct lmdb_txn *txn, struct impel_bytes name);
/* DBSIZE. */
int lmdb_key_count(struct lmdb_txn *txn, uint64_t *count);
/* Sets a string, over whatever the key held before. */
int lmdb_string_set(struct lmdb_txn *txn, struct impel_bytes name, struct impel_bytes value);
/* The value lives until the next write. NOT_FOUND, WRONG_TYPE. */
int lmdb_string_get(struct lmdb_txn *txn, struct impel_bytes name, struct impel_bytes *value);

/* Puts values before a list's first one by one; `length` is what it has then. WRONG_TYPE. */
int lmdb_list_push(struct lmdb_txn *txn,
                   struct impel_bytes name,
                   const struct impel_bytes *values,
                   size_t value_count,
                   uint64_t *length);
/* Takes a list's first, into `arena`; with the last one the key goes. NOT_FOUND, WRONG_TYPE. */
int lmdb_list_pop(struct lmdb_txn *txn,
                  struct impel_bytes name,
                  struct arena *arena,
                  struct impel_bytes *value);
/* Puts members into a set; `added` is how many were not there. WRONG_TYPE. */
int lmdb_set_add(struct lmdb_txn *txn,
                 struct impel_bytes name,
                 const struct impel_bytes *members,
                 size_t member_count,
                 uint64_t *added);
struct lmdb_collection {
    uint64_t count;
    uint64_t print; /* changes with what is in it */
};
/* Of a name that holds a list or a set. */
int lmdb_collection_look(struct lmdb_txn *txn,
                         struct impel_bytes name,
                         struct lmdb_collection *out);

/* When the key expires, in unix ms; 0 = never. NOT_FOUND. */
int lmdb_key_expires(struct lmdb_txn *txn, struct impel_bytes name, int64_t *expires_ms);
/* Sets that; 0 = never. Who expires in the past is gone at once. NOT_FOUND. */
int lmdb_key_expire(struct lmdb_txn *txn, struct impel_bytes name, int64_t expires_ms);
/* Deletes keys that have expired, at most so many. `next_ms` is when the next one will, INT64_MAX
 * if none. In a transaction that only reads it deletes nothing and tells the first of all. */
int lmdb_expire_due(struct lmdb_txn *txn, size_t count_max, int64_t *next_ms);
/* How many keys will expire and after how long on average; looks at `count_max` at most. */
int lmdb_expire_count(struct lmdb_txn *txn, uint64_t count_max, uint64_t *count, int64_t *mean_ms);
/* The key gets another name, over whatever had it. NOT_FOUND. */
int lmdb_key_rename(struct lmdb_txn *txn, struct impel_bytes from, struct impel_bytes to);
/* A copy with all that belongs to it, expiry included, over whatever had the name. NOT_FOUND. */
int lmdb_key_copy(struct lmdb_txn *txn, struct impel_bytes from, struct impel_bytes to);

/* ---- streams ---- */

/* A run of consecutive entries. Only `~` trimming and XINFO's radix-tree-keys know of nodes: Redis
 * removes whole ones. Tombstones count for "is it full". */
struct lmdb_node {
    struct impel_id first; /* of the first entry it ever had: its key */
    struct impel_id last;  /* of the last it ever had, deleted or not */
    uint32_t live;
    uint32_t total; /* tombstones included; 0 = there is no node */
    uint64_t size_bytes;
};

struct lmdb_stream {
    uint64_t number;
    struct impel_bytes name;
    uint64_t length;
    struct impel_id last_id;        /* rw (XSETID): last-generated-id */
    struct impel_id first_id;       /* of the first live entry; 0-0 when empty */
    struct impel_id max_deleted_id; /* rw (XSETID) */
    uint64_t entries_added;         /* rw (XSETID) */
    uint64_t group_count;
    uint64_t node_count;   /* radix-tree-keys; the tail included */
    struct lmdb_node tail; /* the node that grows */
    int64_t expires_ms;    /* the key's; 0 = never */
    bool dirty;            /* to be written back */
};

/* NOT_FOUND, WRONG_TYPE. */
int lmdb_stream_find(struct lmdb_txn *txn, struct impel_bytes name, struct lmdb_stream **out);
/* Finds it, or creates it empty and signals readers. WRONG_TYPE. */
int lmdb_stream_open(struct lmdb_txn *txn, struct impel_bytes name, struct lmdb_stream **out);
void lmdb_stream_changed(struct lmdb_txn *txn, struct lmdb_stream *stream);
/* The ID that `*` stands for. False if the stream has used up its IDs. */
bool lmdb_stream_next_id(const struct lmdb_stream *stream, int64_t now_ms, struct impel_id *out);
/* Appends an entry; `id` is greater than last_id. Keeps length, first_id, last_id, entries_added
 * and nodes; signals readers. The fields must not point into the store's pages (lmdb_raw_copy).
 * IMPEL_ERR_LIMIT (harmless) if they are more than LMDB_ENTRY_SIZE_MAX together; IMPEL_ERR_FULL,
 * harmless too, when the map or the disk (lmdb_disk_full()) is so full that its rest is kept for acks,
 * parks and trims, unless `reserve` (a park). */
int lmdb_stream_append(struct lmdb_txn *txn,
                       struct lmdb_stream *stream,
                       struct impel_id id,
                       const struct impel_field *fields,
                       size_t field_count,
                       bool reserve);
/* Was it for the disk, not for the map, that an add was refused? */
bool lmdb_disk_full(const struct lmdb_txn *txn);
/* What it would answer: IMPEL_OK, LIMIT or FULL. For those who would otherwise create the stream. */
int lmdb_append_check(struct lmdb_txn *txn,
                      const struct impel_field *fields,
                      size_t field_count,
                      bool reserve);
#define LMDB_ENTRY_SIZE_MAX ((size_t)1 << 30)
/* XDEL of one entry: length, first_id, max_deleted_id, nodes. 1 = deleted, 0 = there was none. */
int lmdb_stream_delete(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id);
/* IMPEL_OK, with the ID of the last live entry, or NOT_FOUND when empty. */
int lmdb_stream_last(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id *out);

/* What becomes of the pending rows of an entry that is deleted. */
enum lmdb_refs {
    LMDB_REFS_KEEP,   /* KEEPREF: they stay, dangling */
    LMDB_REFS_DELETE, /* DELREF: they go with it, in all groups */
    LMDB_REFS_ACKED,  /* ACKED: only what every group has read and finished with is deleted */
};
/* 1 = a group has not read the entry yet or has it pending; 0 = none. */
int lmdb_entry_needed(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id);
/* Removes its pending rows in all groups; returns how many these were. */
int lmdb_entry_forget(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id);

struct lmdb_trim {
    enum lmdb_refs refs;
    bool by_id;          /* MINID, else MAXLEN */
    uint64_t length_max; /* MAXLEN */
    struct impel_id id_min;
    bool approximate; /* `~`: only whole nodes */
    uint64_t limit;   /* with `~`: remove at most this many; 0 = no limit */
};
int lmdb_stream_trim(struct lmdb_txn *txn,
                     struct lmdb_stream *stream,
                     const struct lmdb_trim *trim,
                     uint64_t *removed);
/* When a node is full; Redis's defaults are 4096 bytes and 100 entries (0 = no limit). Holds for
 * this transaction. */
void lmdb_node_limits(struct lmdb_txn *txn, uint64_t size_bytes_max, uint64_t entries_max);

/* ---- entries ---- */

/* An entry as it lies in the file; lives until the next write of this transaction. */
struct lmdb_raw {
    struct impel_id id;
    struct impel_bytes bytes;
};
/* IMPEL_OK, or NOT_FOUND. `out` may be NULL: then it only asks whether the entry exists. */
int lmdb_entry_get(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_id id,
                   struct lmdb_raw *out);
/* The fields as spans into the raw bytes, the array in `arena`. Hard errors: NOMEM, CORRUPT. */
int lmdb_raw_fields(struct lmdb_txn *txn,
                    const struct lmdb_raw *raw,
                    struct arena *arena,
                    struct impel_field **fields,
                    size_t *field_count);
/* A copy in `arena` that outlives writes. */
int lmdb_raw_copy(struct lmdb_txn *txn,
                  const struct lmdb_raw *raw,
                  struct arena *arena,
                  struct lmdb_raw *out);
/* A heap entry of its own. */
int lmdb_raw_entry(struct lmdb_txn *txn, const struct lmdb_raw *raw, struct entry **out);

/* ---- groups ---- */

struct lmdb_group {
    uint64_t number;
    struct lmdb_stream *stream;
    struct impel_bytes name;
    struct impel_id last_id; /* rw: last-delivered-id */
    int64_t entries_read;    /* rw: -1 = unknown */
    uint64_t pending;        /* rows of the group's PEL */
    bool ordered;            /* lmdb_group_order() was called once */
    uint64_t consumer_count;
    bool dirty;
};

/* NO_GROUP. */
int lmdb_group_find(struct lmdb_txn *txn,
                    struct lmdb_stream *stream,
                    struct impel_bytes name,
                    struct lmdb_group **out);
/* EXISTS. entries_read -1 = unknown. `out` may be NULL. */
int lmdb_group_create(struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      struct impel_bytes name,
                      struct impel_id last_id,
                      int64_t entries_read,
                      struct lmdb_group **out);
/* With its consumers and its PEL; signals readers. */
int lmdb_group_destroy(struct lmdb_txn *txn, struct lmdb_group *group);
/* Keeps the group's ack floor beyond its end, until a group of the name is created; before which ID all
 * was acknowledged, as a last delivered ID. */
int lmdb_group_keep_floor(struct lmdb_txn *txn, struct lmdb_group *group);
/* What was kept; 0-0 if nothing was. */
int lmdb_group_floor(struct lmdb_txn *txn,
                     const struct lmdb_stream *stream,
                     struct impel_bytes name,
                     struct impel_id *floor);
void lmdb_group_changed(struct lmdb_txn *txn, struct lmdb_group *group);
/* The entry `id` (> last_id) is being delivered by `>`: moves last_id, keeps entries_read. */
void lmdb_group_advance(struct lmdb_txn *txn, struct lmdb_group *group, struct impel_id id);
/* What XINFO GROUPS calls lag; false = unknown. */
bool lmdb_group_lag(const struct lmdb_group *group, int64_t *lag);

/* ---- consumers ---- */

struct lmdb_consumer {
    uint64_t number;
    struct lmdb_group *group;
    struct impel_bytes name;
    int64_t seen_ms;   /* rw: last attempted interaction, unix ms */
    int64_t active_ms; /* rw: last successful one; -1 = never */
    uint64_t pending;  /* rows of its PEL */
    bool dirty;
};

/* NOT_FOUND. */
int lmdb_consumer_find(struct lmdb_txn *txn,
                       struct lmdb_group *group,
                       struct impel_bytes name,
                       struct lmdb_consumer **out);
/* Finds it, or creates it with seen = now, active = -1. 1 = created, 0 = was there. */
int lmdb_consumer_open(struct lmdb_txn *txn,
                       struct lmdb_group *group,
                       struct impel_bytes name,
                       struct lmdb_consumer **out);
/* The owner of a pending row. CORRUPT (hard) if there is none of this number in the group. */
int lmdb_consumer_get(struct lmdb_txn *txn,
                      struct lmdb_group *group,
                      uint64_t number,
                      struct lmdb_consumer **out);
/* With its pending rows; `pending` (may be NULL) gets how many these were. */
int lmdb_consumer_delete(struct lmdb_txn *txn, struct lmdb_consumer *consumer, uint64_t *pending);
void lmdb_consumer_changed(struct lmdb_txn *txn, struct lmdb_consumer *consumer);

/* ---- pending entries ---- */

struct lmdb_pending {
    struct impel_id id;
    uint64_t owner;       /* a consumer's number; 0 = nobody's (XNACK) */
    int64_t delivered_ms; /* nobody's: 0 */
    uint64_t released;    /* nobody's: the later it was given back the larger; 0 = now */
    int64_t deliveries;
};

/* IMPEL_OK, or NOT_FOUND. */
int lmdb_pending_get(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     struct impel_id id,
                     struct lmdb_pending *out);
/* Writes a row. `old` is the row as it is now, or NULL if there is none. Keeps both orders and the
 * counters of the group and of the owners. */
int lmdb_pending_put(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     const struct lmdb_pending *old,
                     const struct lmdb_pending *row);
/* Removes the row `old`, from both orders. */
int lmdb_pending_delete(struct lmdb_txn *txn,
                        struct lmdb_group *group,
                        const struct lmdb_pending *old);
/* From now on the group's PEL can be walked as CLAIM takes it. */
int lmdb_group_order(struct lmdb_txn *txn, struct lmdb_group *group);
/* The row of nobody's that was given back first. NOT_FOUND if there is none. */
int lmdb_nobodys_first(struct lmdb_txn *txn, struct lmdb_group *group, struct impel_id *out);
/* The first or the last row of the group's PEL. NOT_FOUND when empty. */
int lmdb_pending_first(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out);
int lmdb_pending_last(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out);

/* ---- idempotent adds (idmp.c) ---- */

enum {
    LMDB_IDMP_DURATION_S = 100, /* where nobody says otherwise */
    LMDB_IDMP_IIDS_MAX = 100,
    LMDB_IDMP_DURATION_MAX_S = 86400,
    LMDB_IDMP_IIDS_MAX_MAX = 10000,
};

struct lmdb_idmp {
    uint32_t duration_s, iids_max; /* how long an IID is kept, and how many of a producer */
    uint64_t producers, iids;      /* kept now */
    uint64_t added, duplicates;    /* ever */
};

/* An idempotent ID (IID): the entry was added under it by this producer. */
struct lmdb_iid {
    struct impel_bytes producer, iid; /* not empty; outside of the store's pages */
    struct impel_id id;
    int64_t added_ms;
};

/* NOT_FOUND, and the defaults, where a stream never had any of it. */
int lmdb_idmp_get(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_idmp *out);
/* What streams have that were not told otherwise. Holds for this transaction. */
void lmdb_idmp_defaults(struct lmdb_txn *txn, uint32_t duration_s, uint32_t iids_max);
/* The entry that was added under this IID. NOT_FOUND. */
int lmdb_idmp_look(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_bytes producer,
                   struct impel_bytes iid,
                   struct impel_id *out);
/* Has the entry an IID? */
int lmdb_idmp_has(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id, bool *has);
/* As lmdb_idmp_look(), but it counts as a duplicate. */
int lmdb_idmp_find(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_bytes producer,
                   struct impel_bytes iid,
                   struct impel_id *out);
/* Keeps one that lmdb_idmp_find() does not know; the oldest may go for it. */
int lmdb_idmp_add(struct lmdb_txn *txn, struct lmdb_stream *stream, const struct lmdb_iid *iid);
/* Forgets all IIDs, unless both are as before. */
int lmdb_idmp_set(struct lmdb_txn *txn,
                  struct lmdb_stream *stream,
                  uint32_t duration_s,
                  uint32_t iids_max);
/* ---- what requeued entries carry (carried.c): see ATTEMPTS in core/request.h ---- */

int lmdb_carried_get(struct lmdb_txn *txn,
                     const struct lmdb_group *group,
                     struct impel_id id,
                     int64_t *out); /* 0 if there is nothing */
int lmdb_carried_put(struct lmdb_txn *txn,
                     const struct lmdb_group *group,
                     struct impel_id id,
                     int64_t deliveries);
int lmdb_carried_delete(struct lmdb_txn *txn, const struct lmdb_group *group, struct impel_id id);
int lmdb_carried_any(struct lmdb_txn *txn, const struct lmdb_group *group, bool *out);
/* Removes those that were delivered and are not pending any more; looks at so many at most. */
int lmdb_carried_sweep(struct lmdb_txn *txn, struct lmdb_group *group, size_t rows_max);
/* All of a group that goes. */
int lmdb_carried_drop(struct lmdb_txn *txn, const struct lmdb_group *group);

/* ---- walks ---- */

/* Goes through rows in order. Anything may be written or deleted while a walk stands, the row it
 * stands on included: a walk goes on behind the last key it gave. Always end it. */
struct lmdb_walk {
    struct lmdb_txn *txn;
    MDB_cursor *cursor;
    void *owner;      /* the stream, group or consumer */
    uint8_t key[512]; /* the last key given, or the one to begin at */
    size_t key_size;
    size_t prefix_size;   /* of the key: what all rows of this walk share */
    struct impel_id end;  /* the last ID of interest, inclusive */
    struct impel_id from; /* of a PEL: the first ID that was not looked at */
    uint64_t writes;      /* the database's write count when the cursor was placed */
    int database;
    bool reverse;
    bool started;
};

/* Entries start <= id <= end; with `reverse` from the end down. */
int lmdb_walk_entries(struct lmdb_walk *walk,
                      struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      struct impel_id start,
                      struct impel_id end,
                      bool reverse);
/* A group's PEL, or one consumer's, from an ID (inclusive) up. */
int lmdb_walk_pending(struct lmdb_walk *walk,
                      struct lmdb_txn *txn,
                      struct lmdb_group *group,
                      struct impel_id start);
int lmdb_walk_owned(struct lmdb_walk *walk,
                    struct lmdb_txn *txn,
                    struct lmdb_consumer *consumer,
                    struct impel_id start);
/* A group's PEL as CLAIM takes it: nobody's, then the longest idle. After lmdb_group_order(). Rows
 * that are written meanwhile may come again, where they are now. */
int lmdb_walk_order(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_group *group);
/* By name, bytewise. Keys: those after `after` (data NULL: all). */
int lmdb_walk_groups(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_stream *stream);
int lmdb_walk_consumers(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_group *group);
int lmdb_walk_keys(struct lmdb_walk *walk, struct lmdb_txn *txn, struct impel_bytes after);
void lmdb_walk_end(struct lmdb_walk *walk); /* a zeroed one is fine */

/* 1 = one more in `out`, 0 = the end, < 0 a hard error. Each after the walk of its kind only;
 * next_pending serves all walks of PELs. */
int lmdb_next_entry(struct lmdb_walk *walk, struct lmdb_raw *out);
int lmdb_next_pending(struct lmdb_walk *walk, struct lmdb_pending *out);
int lmdb_next_group(struct lmdb_walk *walk, struct lmdb_group **out);
int lmdb_next_consumer(struct lmdb_walk *walk, struct lmdb_consumer **out);
/* The name lives until the next write. */
int lmdb_next_key(struct lmdb_walk *walk, struct impel_bytes *name, enum lmdb_key_kind *kind);

/* ---- readers ---- */

/* Blocked readers look again after the commit. Appending, creating and deleting do it by
 * themselves. */
void lmdb_signal(struct lmdb_txn *txn);

#endif /* IMPEL_STORE_LMDB_STREAM_H */
