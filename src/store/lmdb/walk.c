/* walk.c -- going through rows in order, while others of the same database may be written. */
#include "store/lmdb/txn.h"

static int walk_begin(struct lmdb_walk *walk,
                      struct lmdb_txn *txn,
                      enum lmdb_database db,
                      const void *key,
                      size_t key_size)
{
    *walk = (struct lmdb_walk){.txn = txn, .database = db, .key_size = key_size, .end = ID_MAX};
    if (txn->status < 0) {
        return txn->status;
    }
    memcpy(walk->key, key, key_size);
    int code = mdb_cursor_open(txn->mdb, txn->dbi[db], &walk->cursor);
    if (code != 0) {
        walk->cursor = NULL;
        return lmdb_fail_mdb(txn, code, "a cursor could not be had");
    }
    return IMPEL_OK;
}

void lmdb_walk_end(struct lmdb_walk *walk)
{
    if (walk->cursor != NULL) {
        mdb_cursor_close(walk->cursor);
        walk->cursor = NULL;
    }
}

/* Places the cursor anew: on the key itself (if the walk has not begun), else behind it. */
static int walk_place(struct lmdb_walk *walk, MDB_val *key, MDB_val *value)
{
    *key = (MDB_val){walk->key_size, walk->key};
    int code = mdb_cursor_get(walk->cursor, key, value, MDB_SET_RANGE);
    bool same = code == 0 && key->mv_size == walk->key_size &&
                memcmp(key->mv_data, walk->key, walk->key_size) == 0;

    if (same && !walk->started) {
        return code;
    }
    if (walk->reverse) {
        return code == MDB_NOTFOUND ? mdb_cursor_get(walk->cursor, key, value, MDB_LAST)
               : code == 0          ? mdb_cursor_get(walk->cursor, key, value, MDB_PREV)
                                    : code;
    }
    return same ? mdb_cursor_get(walk->cursor, key, value, MDB_NEXT) : code;
}

int walk_next(struct lmdb_walk *walk, MDB_val *key, MDB_val *value)
{
    struct lmdb_txn *txn = walk->txn;
    int code = 0;

    if (txn->status < 0 || walk->cursor == NULL) {
        return txn->status;
    }
    if (!walk->started || walk->writes != txn->writes[walk->database]) {
        code = walk_place(walk, key, value);
    } else {
        code = mdb_cursor_get(walk->cursor, key, value, walk->reverse ? MDB_PREV : MDB_NEXT);
    }
    walk->writes = txn->writes[walk->database];
    walk->started = true;
    if (code != 0 && code != MDB_NOTFOUND) {
        return lmdb_fail_mdb(txn, code, "a walk could not go on");
    }
    if (code == MDB_NOTFOUND || key->mv_size < walk->prefix_size ||
        memcmp(key->mv_data, walk->key, walk->prefix_size) != 0) {
        lmdb_walk_end(walk);
        return 0;
    }
    if (key->mv_size > sizeof(walk->key)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key is too long");
    }
    memcpy(walk->key, key->mv_data, key->mv_size);
    walk->key_size = key->mv_size;
    return 1;
}

/* The same for rows whose key ends in an ID. */
static int walk_next_row(struct lmdb_walk *walk, struct impel_id *id, MDB_val *value)
{
    MDB_val key = {0, NULL};
    int rc = walk_next(walk, &key, value);

    if (rc <= 0) {
        return rc;
    }
    if (key.mv_size != ROW_KEY_SIZE) {
        return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT, "a row's key is damaged");
    }
    *id = get_id((const uint8_t *)key.mv_data + 8);
    int order = id_compare(*id, walk->end);
    if (walk->reverse ? order < 0 : order > 0) {
        lmdb_walk_end(walk);
        return 0;
    }
    return 1;
}

/* ---- entries ---- */

int lmdb_walk_entries(struct lmdb_walk *walk,
                      struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      struct impel_id start,
                      struct impel_id end,
                      bool reverse)
{
    uint8_t key[ROW_KEY_SIZE];

    row_key(key, stream->number, reverse ? end : start);
    int rc = walk_begin(walk, txn, DB_ENTRIES, key, sizeof(key));
    walk->reverse = reverse;
    walk->prefix_size = 8;
    walk->end = reverse ? start : end;
    return rc;
}

int lmdb_next_entry(struct lmdb_walk *walk, struct lmdb_raw *out)
{
    MDB_val value;
    int rc = walk_next_row(walk, &out->id, &value);

    if (rc > 0) {
        out->bytes = (struct impel_bytes){value.mv_data, value.mv_size};
    }
    return rc;
}

/* ---- names ---- */

int walk_catalog(
    struct lmdb_walk *walk, struct lmdb_txn *txn, char letter, uint64_t number, void *owner)
{
    struct lmdb_key key;

    key_of_number(&key, letter, number);
    int rc = walk_begin(walk, txn, DB_CATALOG, key.data, key.size);
    walk->prefix_size = key.size;
    walk->owner = owner;
    return rc;
}

int lmdb_walk_groups(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    return walk_catalog(walk, txn, 'g', stream->number, stream);
}

int lmdb_walk_consumers(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_group *group)
{
    return walk_catalog(walk, txn, 'c', group->number, group);
}

static int walk_next_number(struct lmdb_walk *walk, uint64_t *number)
{
    MDB_val key = {0, NULL};
    MDB_val value = {0, NULL};
    int rc = walk_next(walk, &key, &value);

    if (rc > 0 && value.mv_size != sizeof(*number)) {
        return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT, "a name's row is damaged");
    }
    if (rc > 0) {
        memcpy(number, value.mv_data, sizeof(*number));
    }
    return rc;
}

int lmdb_next_group(struct lmdb_walk *walk, struct lmdb_group **out)
{
    uint64_t number = 0;
    int rc = walk_next_number(walk, &number);

    rc = rc <= 0 ? rc : group_load(walk->txn, walk->owner, number, out);
    return rc < 0 ? rc : number != 0;
}

int lmdb_next_consumer(struct lmdb_walk *walk, struct lmdb_consumer **out)
{
    uint64_t number = 0;
    int rc = walk_next_number(walk, &number);

    rc = rc <= 0 ? rc : lmdb_consumer_get(walk->txn, walk->owner, number, out);
    return rc < 0 ? rc : number != 0;
}

int lmdb_walk_keys(struct lmdb_walk *walk, struct lmdb_txn *txn, struct impel_bytes after)
{
    struct lmdb_key key;

    key_of_name(&key, 'k', 0, after);
    int rc = walk_begin(walk, txn, DB_CATALOG, key.data, key.size);
    walk->prefix_size = 1;
    walk->started = after.data != NULL;
    walk->writes = UINT64_MAX; /* never where the cursor stands: it stands nowhere yet */
    return rc;
}

int lmdb_next_key(struct lmdb_walk *walk, struct impel_bytes *name, enum lmdb_key_kind *kind)
{
    struct disk_key disk;
    MDB_val key = {0, NULL};
    MDB_val value = {0, NULL};

    do {
        int rc = walk_next(walk, &key, &value);
        if (rc <= 0) {
            return rc;
        }
        if (value.mv_size < sizeof(disk)) {
            return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT, "a key's row is too short");
        }
        memcpy(&disk, value.mv_data, sizeof(disk));
    } while (disk.expires_ms != 0 && disk.expires_ms <= walk->txn->now_ms);
    *kind = (enum lmdb_key_kind)disk.kind;
    *name = (struct impel_bytes){(const uint8_t *)value.mv_data + sizeof(disk),
                                 value.mv_size - sizeof(disk)};
    return 1;
}
