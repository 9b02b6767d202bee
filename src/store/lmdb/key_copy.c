/* key_copy.c -- a key under another name: moved, or copied with all that belongs to it. */
#include "store/lmdb/txn.h"

int lmdb_key_rename(struct lmdb_txn *txn, struct impel_bytes from, struct impel_bytes to)
{
    struct lmdb_stream *stream = NULL;
    struct disk_key disk;
    int rc = key_read(txn, from, &disk);

    if (rc < 0 || disk.kind == LMDB_KEY_NONE) {
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    if (bytes_equal(from, to)) {
        return IMPEL_OK;
    }
    if (disk.kind == LMDB_KEY_STREAM) {
        rc = lmdb_stream_find(txn, from, &stream);
    }
    rc = rc < 0 ? rc : lmdb_key_delete(txn, to);
    rc = rc < 0 ? rc : key_remove(txn, from, &disk);
    rc = rc < 0 ? rc : key_write(txn, to, NULL, &disk);
    if (rc >= 0 && stream != NULL) {
        rc = object_rename(txn, OBJECT_OF(stream, stream), to);
    }
    lmdb_signal(txn);
    return rc;
}

/* ---- copies ---- */

/* Writes a row's copy. What is read lies in a page that the write may move, so it goes by a buffer.
 */
static int
row_copy(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val value, struct buf *buf)
{
    void *room = NULL;

    buf_clear(buf);
    buf_append(buf, value.mv_data, value.mv_size);
    if (buf_status(buf) < 0) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    int rc = row_reserve(txn, db, key, buf->size, &room);
    if (rc >= 0 && buf->size > 0) {
        memcpy(room, buf->data, buf->size);
    }
    return rc;
}

/* All rows of one object as rows of another. */
static int
rows_copy(struct lmdb_txn *txn, enum lmdb_database db, uint64_t from_number, uint64_t to_number)
{
    uint8_t at[ROW_KEY_SIZE], to[ROW_KEY_SIZE];
    struct impel_id id = {0, 0};
    struct buf buf;
    int rc = IMPEL_OK;
    bool more = true;

    buf_init(&buf, SIZE_MAX / 2);
    while (rc >= 0 && more) {
        MDB_val key = {sizeof(at), at};
        MDB_val value;
        row_key(at, from_number, id);
        rc = row_seek(txn, db, &key, sizeof(from_number), &value);
        if (rc >= 0) {
            id = get_id((const uint8_t *)key.mv_data + 8);
            row_key(to, to_number, id);
            rc = row_copy(txn, db, (MDB_val){sizeof(to), to}, value, &buf);
            more = id_next(&id);
        }
    }
    buf_release(&buf);
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

static int pending_copy(struct lmdb_txn *txn,
                        struct lmdb_group *from,
                        struct lmdb_group *to,
                        const struct lmdb_pending *row)
{
    struct lmdb_consumer *owner = NULL, *owner_to = NULL;
    struct lmdb_pending copy = *row;
    int rc = IMPEL_OK;

    if (row->owner != 0) {
        rc = lmdb_consumer_get(txn, from, row->owner, &owner);
        rc = rc < 0 ? rc : lmdb_consumer_find(txn, to, owner->name, &owner_to);
        copy.owner = rc < 0 ? 0 : owner_to->number;
    }
    return rc < 0 ? rc : lmdb_pending_put(txn, to, NULL, &copy);
}

static int group_copy(struct lmdb_txn *txn, struct lmdb_group *from, struct lmdb_stream *stream)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_group *to = NULL;
    struct lmdb_consumer *consumer = NULL, *copy = NULL;
    struct lmdb_pending row;
    int rc = lmdb_group_create(txn, stream, from->name, from->last_id, from->entries_read, &to);

    rc = rc < 0 ? rc : lmdb_walk_consumers(&walk, txn, from);
    while (rc >= 0 && (rc = lmdb_next_consumer(&walk, &consumer)) > 0) {
        rc = lmdb_consumer_open(txn, to, consumer->name, &copy);
        if (rc >= 0) {
            copy->seen_ms = consumer->seen_ms;
            copy->active_ms = consumer->active_ms;
            lmdb_consumer_changed(txn, copy);
        }
    }
    lmdb_walk_end(&walk);
    walk = (struct lmdb_walk){.txn = NULL};
    rc = rc < 0 ? rc : lmdb_walk_pending(&walk, txn, from, (struct impel_id){0, 0});
    while (rc >= 0 && (rc = lmdb_next_pending(&walk, &row)) > 0) {
        rc = pending_copy(txn, from, to, &row);
    }
    lmdb_walk_end(&walk);
    return rc;
}

static int stream_copy(struct lmdb_txn *txn, struct lmdb_stream *from, struct impel_bytes name)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_stream *to = NULL;
    struct lmdb_group *group = NULL;
    int rc = lmdb_stream_open(txn, name, &to);

    if (rc < 0) {
        return rc;
    }
    to->length = from->length;
    to->last_id = from->last_id;
    to->first_id = from->first_id;
    to->max_deleted_id = from->max_deleted_id;
    to->entries_added = from->entries_added;
    to->node_count = from->node_count;
    to->tail = from->tail;
    lmdb_stream_changed(txn, to);
    rc = rows_copy(txn, DB_ENTRIES, from->number, to->number);
    rc = rc < 0 ? rc : rows_copy(txn, DB_NODES, from->number, to->number);
    rc = rc < 0 ? rc : lmdb_walk_groups(&walk, txn, from);
    while (rc >= 0 && (rc = lmdb_next_group(&walk, &group)) > 0) {
        rc = group_copy(txn, group, to);
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : idmp_copy(txn, from, to);
}

int lmdb_key_copy(struct lmdb_txn *txn, struct impel_bytes from, struct impel_bytes to)
{
    struct lmdb_stream *stream = NULL;
    struct impel_bytes value, copy;
    struct disk_key disk;
    int rc = key_read(txn, from, &disk);

    if (rc < 0 || disk.kind == LMDB_KEY_NONE) {
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    ASSERT(!bytes_equal(from, to));
    rc = lmdb_key_delete(txn, to);
    if (rc >= 0 && disk.kind == LMDB_KEY_STREAM) {
        rc = lmdb_stream_find(txn, from, &stream);
        rc = rc < 0 ? rc : stream_copy(txn, stream, to);
    } else if (rc >= 0 && disk.kind != LMDB_KEY_STRING) {
        rc = collection_copy(txn, &disk, to);
        lmdb_signal(txn);
    } else if (rc >= 0) {
        rc = lmdb_string_get(txn, from, &value);
        if (rc >= 0 && !arena_copy(&txn->arena, value, &copy)) {
            return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
        }
        rc = rc < 0 ? rc : lmdb_string_set(txn, to, copy);
    }
    if (rc >= 0 && disk.expires_ms != 0) {
        rc = lmdb_key_expire(txn, to, disk.expires_ms);
    }
    return rc < 0 ? rc : IMPEL_OK;
}
