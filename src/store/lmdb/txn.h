/* txn.h -- one transaction: the handles of LMDB, the cache of objects, the first hard error.
 *
 * Made by env.c for one turn of the loop, used by everything in stream.h. A transaction that went
 * wrong (status < 0) can only be aborted. */
#ifndef IMPEL_STORE_LMDB_TXN_H
#define IMPEL_STORE_LMDB_TXN_H

#include "store/lmdb/block.h"
#include "store/lmdb/layout.h"
#include "store/lmdb/stream.h"

#include <lmdb.h>

enum lmdb_database {
    DB_CATALOG,
    DB_ENTRIES,
    DB_NODES,
    DB_PEL,
    DB_OWNED,
    DB_COUNT,
};
extern const char *const lmdb_database_names[DB_COUNT];

enum {
    NODE_SIZE_MAX = 4096, /* Redis's stream-node-max-bytes and -max-entries */
    NODE_ENTRIES_MAX = 100,
};

struct object;
struct lmdb_env;
struct redo;

/* The row of a PEL that was looked at last. */
struct pending_row_at_hand {
    uint64_t group;   /* whose; 0: there is none */
    uint64_t changes; /* it lies where it lay while this is the transaction's */
    bool writable;    /* its bytes are; `gone`: where its bitmap is, if that is, too */
    void *gone;
    bool last; /* of its group */
    struct block block;
};

struct lmdb_txn {
    MDB_txn *mdb;
    const MDB_dbi *dbi;
    bool write;
    bool signal; /* blocked readers have something to look at after the commit */
    int64_t now_ms;

    int status; /* the first hard error */
    struct impel_error error;

    /* What adds may still take of the map before its rest is kept for acks, parks and trims; an
     * estimate, INT64_MAX where the map is far from full. */
    int64_t add_bytes_left;
    /* The same of the disk, as far as blocks have been taken in advance; `env` may take more of them
     * (room_more()), NULL: none can be taken, or need not. INT64_MAX: nothing is known of it. */
    int64_t disk_bytes_left;
    struct lmdb_env *env;
    bool disk_full; /* an add was refused for it */

    MDB_cursor *cursors[DB_COUNT]; /* for single rows; opened when first used */
    uint64_t writes[DB_COUNT];     /* how often each was written: walks re-place their cursor */
    uint64_t changes;              /* how often any was */
    struct redo *redo;             /* notes what is written; NULL: that is not needed */
    struct pending_row_at_hand hand;
    MDB_val room; /* what row_reserve() gave last; in a damaged page it may be nowhere */
    struct {
        uint8_t data[ROW_KEY_SIZE];
        bool known;
    } last[DB_COUNT]; /* the last key of a database of rows, so that appends are known as such */

    struct disk_meta meta;
    bool meta_known;
    bool meta_dirty;
    uint64_t node_size_max;
    uint64_t node_entries_max;
    uint32_t idmp_duration_s, idmp_iids_max;

    struct arena arena; /* the objects below */
    struct object *objects;
    struct object *named[3]; /* of each kind the one found last: mostly it is asked for again */
    struct object **by_number;
    struct object **by_name;
    size_t bucket_count;
    size_t object_count;
};

/* Wraps an LMDB transaction that the caller began. */
void lmdb_txn_init(struct lmdb_txn *txn, MDB_txn *mdb, const MDB_dbi *dbi, bool write);
/* Writes back what is dirty; the caller commits. */
int lmdb_txn_flush(struct lmdb_txn *txn);
/* Closes cursors and frees the cache; the MDB_txn stays the caller's. Before its commit or abort.
 */
void lmdb_txn_release(struct lmdb_txn *txn);

/* Takes room on the disk for so many bytes more (room.c). False: it is full. */
bool room_more(struct lmdb_txn *txn, int64_t size);

/* Notes a hard error, unless there is one, and returns it. */
int lmdb_fail(struct lmdb_txn *txn, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same for a code of LMDB. */
int lmdb_fail_mdb(struct lmdb_txn *txn, int code, const char *what);
int lmdb_status_of(int code); /* an enum impel_status for a code of LMDB or errno */

/* ---- rows ---- */

/* IMPEL_OK or NOT_FOUND. The value lives until the next write. */
int row_get(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val *value);
int row_put(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val value);
/* Makes room for a value of this size and gives it, to be filled before the next call. */
int row_reserve(
    struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, size_t size, void **value);
/* IMPEL_OK or NOT_FOUND. */
int row_delete(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key);
/* Deletes the first rows whose key begins so; `count` says how many. */
struct row_run {
    const void *prefix;
    size_t size;
    const uint8_t *end; /* a key of ROW_KEY_SIZE bytes: it and those behind stay; NULL: none do */
    uint64_t most;
};
int row_delete_run(struct lmdb_txn *txn,
                   enum lmdb_database db,
                   const struct row_run *run,
                   uint64_t *count);
/* Deletes all rows whose key begins so. `count` may be NULL. */
int row_delete_all(
    struct lmdb_txn *txn, enum lmdb_database db, const void *prefix, size_t size, uint64_t *count);
/* The first row at or behind the key, if it has the same first `prefix` bytes. IMPEL_OK or
 * NOT_FOUND; `key` and `value` are out. */
int row_seek(
    struct lmdb_txn *txn, enum lmdb_database db, MDB_val *key, size_t prefix, MDB_val *value);
/* The last row at or before the key `limit` (ROW_KEY_SIZE bytes) that has its object number. */
int row_seek_before(struct lmdb_txn *txn,
                    enum lmdb_database db,
                    const uint8_t *limit,
                    MDB_val *key,
                    MDB_val *value);

/* ---- the catalog ---- */

enum object_kind {
    OBJECT_STREAM = 's',
    OBJECT_GROUP = 'G',
    OBJECT_CONSUMER = 'C',
};

struct object {
    enum object_kind kind;
    bool gone;       /* deleted in this transaction */
    uint64_t parent; /* the stream's or group's number; 0 for streams */
    uint64_t hash;   /* of (kind, parent, name) */
    struct object *next, *next_by_number, *next_by_name;
    union {
        struct lmdb_stream stream;
        struct lmdb_group group;
        struct lmdb_consumer consumer;
    };
};

/* From the cache, or NULL. */
struct object *object_by_number(struct lmdb_txn *txn, enum object_kind kind, uint64_t number);
struct object *object_by_name(struct lmdb_txn *txn,
                              enum object_kind kind,
                              uint64_t parent,
                              struct impel_bytes name);
/* A new one in the cache, its name copied and its number set; NULL (and a hard error) if memory is
 * out. */
struct object *object_add(struct lmdb_txn *txn,
                          enum object_kind kind,
                          uint64_t number,
                          uint64_t parent,
                          struct impel_bytes name);
/* The row of an object: a struct of `size` bytes, then the name. IMPEL_OK, NOT_FOUND, CORRUPT. */
int object_read(struct lmdb_txn *txn,
                enum object_kind kind,
                uint64_t number,
                void *disk,
                size_t size,
                struct impel_bytes *name);
int object_write(struct lmdb_txn *txn,
                 enum object_kind kind,
                 uint64_t number,
                 const void *disk,
                 size_t size,
                 struct impel_bytes name);
/* The number that a name stands for in the rows `letter`, 0 if none; and setting it. */
int catalog_find(
    struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name, uint64_t *number);
int catalog_set(
    struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name, uint64_t number);
int catalog_delete(struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name);
/* The row of a name has another one: two long names of the same hash (LIMIT), or damage. */
int catalog_other_name(struct lmdb_txn *txn, struct impel_bytes name);
/* The file's own row; and a new object number. */
int catalog_meta(struct lmdb_txn *txn);
int catalog_new_number(struct lmdb_txn *txn, uint64_t *number);
/* A row is being written that programs before this version of the format do not know. */
int catalog_need_version(struct lmdb_txn *txn, uint32_t version);

/* A stream in the cache gets another name. */
int object_rename(struct lmdb_txn *txn, struct object *object, struct impel_bytes name);
/* The row of a key, whose `kind` is LMDB_KEY_NONE if there is none, or it has expired: then a
 * transaction that writes deletes it. */
int key_read(struct lmdb_txn *txn, struct impel_bytes name, struct disk_key *out);
/* Writes it, and the row that tells when it expires; `old` is what it was, or NULL. */
int key_write(struct lmdb_txn *txn,
              struct impel_bytes name,
              const struct disk_key *old,
              const struct disk_key *disk);
/* A new key of this name, which must not be there. */
int key_create(struct lmdb_txn *txn,
               struct impel_bytes name,
               enum lmdb_key_kind kind,
               uint64_t *number);
/* The list or set goes, but for its row 'v'. / A copy of it under a name that must not be there. */
int collection_drop(struct lmdb_txn *txn, const struct disk_key *disk);
int collection_copy(struct lmdb_txn *txn, const struct disk_key *from, struct impel_bytes to);
/* Removes both. */
int key_remove(struct lmdb_txn *txn, struct impel_bytes name, const struct disk_key *disk);

int stream_load(struct lmdb_txn *txn, uint64_t number, struct lmdb_stream **out);
/* Finds the first live entry again, after some went. */
int stream_find_first(struct lmdb_txn *txn, struct lmdb_stream *stream);
int group_load(struct lmdb_txn *txn,
               struct lmdb_stream *stream,
               uint64_t number,
               struct lmdb_group **out);
int stream_flush(struct lmdb_txn *txn, struct lmdb_stream *stream);
int group_flush(struct lmdb_txn *txn, struct lmdb_group *group);
int consumer_flush(struct lmdb_txn *txn, struct lmdb_consumer *consumer);
/* The consumer goes, whatever became of what it holds. */
int consumer_remove(struct lmdb_txn *txn, struct lmdb_consumer *consumer);

/* ---- rows of the PEL (pending.c) ---- */

/* The row in whose range an ID is; the first row of an ID or behind. NOT_FOUND. The view is valid until
 * the next write or the next call. */
int pending_row_at(struct lmdb_txn *txn, uint64_t group, struct impel_id id, struct block **out);
int pending_row_from(struct lmdb_txn *txn, uint64_t group, struct impel_id id, struct block **out);
/* Reads a block's bitmap. */
int block_read_gone(struct lmdb_txn *txn, uint64_t group, struct block *block);
/* The group goes with all its rows; those by owner have gone. */
int pending_drop(struct lmdb_txn *txn, struct lmdb_group *group);
/* block_read(), with a hard error if it is damaged. */
int pending_read(struct lmdb_txn *txn,
                 const struct block *block,
                 size_t index,
                 struct lmdb_pending *out);

/* ---- walks (walk.c) ---- */

/* The rows of the catalog that belong to a number, of one letter; and the next of a walk: 1, 0 at the
 * end, or a hard error. */
int walk_catalog(
    struct lmdb_walk *walk, struct lmdb_txn *txn, char letter, uint64_t number, void *owner);
int walk_next(struct lmdb_walk *walk, MDB_val *key, MDB_val *value);

/* ---- the order of CLAIM (order.c) ---- */

/* A row of the PEL becomes another; NULL: there is none before, or after. */
int order_change(struct lmdb_txn *txn,
                 struct lmdb_group *group,
                 const struct lmdb_pending *old,
                 const struct lmdb_pending *row);
/* The group goes with all its rows. */
int order_drop(struct lmdb_txn *txn, struct lmdb_group *group);

/* ---- idempotent adds (idmp.c) ---- */

/* The stream goes. / The IIDs are another's too, which has none. */
int idmp_drop(struct lmdb_txn *txn, struct lmdb_stream *stream);
int idmp_copy(struct lmdb_txn *txn, struct lmdb_stream *from, struct lmdb_stream *to);

/* The object that a public struct is the inside of. */
#define OBJECT_OF(POINTER, FIELD) \
    ((struct object *)(void *)((char *)(POINTER)-offsetof(struct object, FIELD)))

/* ---- nodes (node.c) ---- */

/* The entry was appended. / The live entry was deleted: 1 if its node went with it. */
int node_append(struct lmdb_txn *txn,
                struct lmdb_stream *stream,
                struct impel_id id,
                size_t size_bytes);
int node_delete(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id);
/* The oldest node; NOT_FOUND if there is none. */
int node_first(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_node *out);
/* The first node that begins at or behind `id`; NOT_FOUND if there is none. */
int node_from(struct lmdb_txn *txn,
              struct lmdb_stream *stream,
              struct impel_id id,
              struct lmdb_node *out);
/* Writes back a changed node, or removes it when it has no live entry, unless `keep_empty`. */
int node_put(struct lmdb_txn *txn,
             struct lmdb_stream *stream,
             const struct lmdb_node *node,
             bool keep_empty);

#endif /* IMPEL_STORE_LMDB_TXN_H */
