/* group.c -- groups, and how far they have read: entries_read and lag as Redis reckons them. */
#include "store/lmdb/txn.h"

int group_load(struct lmdb_txn *txn,
               struct lmdb_stream *stream,
               uint64_t number,
               struct lmdb_group **out)
{
    struct object *object = object_by_number(txn, OBJECT_GROUP, number);
    struct disk_group disk;
    struct impel_bytes name;

    if (object != NULL) {
        *out = &object->group;
        return txn->status;
    }
    int rc = object_read(txn, OBJECT_GROUP, number, &disk, sizeof(disk), &name);
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && disk.stream != stream->number)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a name stands for a group that is not there");
    }
    if (rc < 0) {
        return rc;
    }
    object = object_add(txn, OBJECT_GROUP, number, stream->number, name);
    if (object == NULL) {
        return txn->status;
    }
    struct lmdb_group *group = &object->group;
    group->stream = stream;
    group->last_id = (struct impel_id){disk.last_ms, disk.last_seq};
    group->entries_read = disk.entries_read;
    group->pending = disk.pending;
    group->consumer_count = disk.consumers_and_flags & DISK_GROUP_CONSUMERS;
    group->ordered = (disk.consumers_and_flags & DISK_GROUP_ORDERED) != 0;
    *out = group;
    return IMPEL_OK;
}

int group_flush(struct lmdb_txn *txn, struct lmdb_group *group)
{
    struct disk_group disk = {
        .stream = group->stream->number,
        .last_ms = group->last_id.ms,
        .last_seq = group->last_id.seq,
        .entries_read = group->entries_read,
        .pending = group->pending,
        .consumers_and_flags = group->consumer_count | (group->ordered ? DISK_GROUP_ORDERED : 0),
    };

    group->dirty = false;
    return object_write(txn, OBJECT_GROUP, group->number, &disk, sizeof(disk), group->name);
}

void lmdb_group_changed(struct lmdb_txn *txn, struct lmdb_group *group)
{
    (void)txn;
    group->dirty = true;
}

int lmdb_group_find(struct lmdb_txn *txn,
                    struct lmdb_stream *stream,
                    struct impel_bytes name,
                    struct lmdb_group **out)
{
    struct object *object = object_by_name(txn, OBJECT_GROUP, stream->number, name);
    uint64_t number = 0;

    if (object != NULL) {
        *out = &object->group;
        return txn->status;
    }
    int rc = catalog_find(txn, 'g', stream->number, name, &number);
    if (rc < 0) {
        return rc;
    }
    if (number == 0) {
        return IMPEL_ERR_NO_GROUP;
    }
    rc = group_load(txn, stream, number, out);
    ASSERT(rc < 0 || *out != NULL);
    if (rc >= 0 && !bytes_equal((*out)->name, name)) {
        return catalog_other_name(txn, name);
    }
    return rc;
}

int lmdb_group_create(struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      struct impel_bytes name,
                      struct impel_id last_id,
                      int64_t entries_read,
                      struct lmdb_group **out)
{
    struct lmdb_group *group = NULL;
    uint64_t number = 0;
    int rc = lmdb_group_find(txn, stream, name, &group);

    if (rc != IMPEL_ERR_NO_GROUP) {
        return rc < 0 ? rc : IMPEL_ERR_EXISTS;
    }
    rc = catalog_new_number(txn, &number);
    rc = rc < 0 ? rc : catalog_set(txn, 'g', stream->number, name, number);
    if (rc >= 0 && catalog_delete(txn, 'f', stream->number, name) < 0) {
        rc = txn->status; /* mostly there is none */
    }
    if (rc < 0) {
        return rc;
    }
    struct object *object = object_add(txn, OBJECT_GROUP, number, stream->number, name);
    if (object == NULL) {
        return txn->status;
    }
    group = &object->group;
    group->stream = stream;
    group->last_id = last_id;
    group->entries_read = entries_read;
    group->dirty = true;
    stream->group_count++;
    stream->dirty = true;
    if (out != NULL) {
        *out = group;
    }
    return IMPEL_OK;
}

int lmdb_group_keep_floor(struct lmdb_txn *txn, struct lmdb_group *group)
{
    struct lmdb_pending row;
    struct lmdb_key key;
    struct impel_id floor = group->last_id;
    uint8_t value[16];
    int rc = lmdb_pending_first(txn, group, &row);

    if (rc >= 0 && id_compare(row.id, floor) <= 0) {
        floor = row.id;
        (void)id_previous(&floor);
    }
    put_be64(value, floor.ms);
    put_be64(value + 8, floor.seq);
    key_of_name(&key, 'f', group->stream->number, group->name);
    rc = rc < 0 && rc != IMPEL_ERR_NOT_FOUND ? rc
                                             : catalog_need_version(txn, LMDB_FORMAT_FLOOR_ROWS);
    return rc < 0 ? rc
                  : row_put(txn, DB_CATALOG, (MDB_val){key.size, key.data},
                            (MDB_val){sizeof(value), value});
}

int lmdb_group_floor(struct lmdb_txn *txn,
                     const struct lmdb_stream *stream,
                     struct impel_bytes name,
                     struct impel_id *floor)
{
    struct lmdb_key key;
    MDB_val value;

    *floor = ID_MIN;
    key_of_name(&key, 'f', stream->number, name);
    int rc = row_get(txn, DB_CATALOG, (MDB_val){key.size, key.data}, &value);
    if (rc >= 0 && value.mv_size == 16) {
        floor->ms = get_be64(value.mv_data);
        floor->seq = get_be64((const uint8_t *)value.mv_data + 8);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

/* Forgets the consumers that the cache knows, so that none is written back. */
static void group_forget_consumers(struct lmdb_txn *txn, const struct lmdb_group *group)
{
    for (struct object *object = txn->objects; object != NULL; object = object->next) {
        if (object->kind == OBJECT_CONSUMER && object->parent == group->number) {
            object->gone = true;
        }
    }
}

/* All consumers and the whole PEL, row by row: a row has many entries. */
static int group_empty(struct lmdb_txn *txn, struct lmdb_group *group)
{
    struct lmdb_walk walk = {0};
    struct lmdb_consumer *consumer = NULL;
    uint8_t prefix[8];
    int rc = lmdb_walk_consumers(&walk, txn, group);

    while (rc >= 0 && (rc = lmdb_next_consumer(&walk, &consumer)) > 0) {
        put_be64(prefix, consumer->number);
        rc = row_delete_all(txn, DB_OWNED, prefix, sizeof(prefix), NULL);
        rc = rc < 0 ? rc : consumer_remove(txn, consumer);
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : pending_drop(txn, group);
}

int lmdb_group_destroy(struct lmdb_txn *txn, struct lmdb_group *group)
{
    struct lmdb_key key;
    int rc = group_empty(txn, group);

    rc = rc < 0 ? rc : order_drop(txn, group);
    rc = rc < 0 ? rc : lmdb_carried_drop(txn, group);
    rc = rc < 0 ? rc : catalog_delete(txn, 'g', group->stream->number, group->name);
    key_of_number(&key, 'G', group->number);
    if (rc >= 0) {
        rc = row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
        rc = rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc; /* made in this transaction */
    }
    group_forget_consumers(txn, group);
    OBJECT_OF(group, group)->gone = true;
    group->stream->group_count--;
    group->stream->dirty = true;
    lmdb_signal(txn);
    return rc == IMPEL_ERR_NOT_FOUND ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a group without a name")
                                     : rc;
}

/* ---- how far a group has read ---- */

/* Entries from `id` on may have been deleted, so that counting on cannot be trusted. */
static bool has_tombstones(const struct lmdb_stream *stream, struct impel_id id)
{
    return stream->length > 0 && !id_is_zero(stream->max_deleted_id) &&
           id_compare(id, stream->max_deleted_id) <= 0;
}

/* The position of an ID, counted from the first entry ever added; -1 = unknown. */
static int64_t position_estimate(const struct lmdb_stream *stream, struct impel_id id)
{
    if (stream->entries_added == 0) {
        return 0;
    }
    if (stream->length == 0 && id_compare(id, stream->last_id) <= 0) {
        return (int64_t)stream->entries_added;
    }
    if (!id_is_zero(id) && id_compare(id, stream->max_deleted_id) < 0) {
        return -1;
    }
    if (id_compare(id, stream->last_id) >= 0) {
        return id_equal(id, stream->last_id) ? (int64_t)stream->entries_added : -1;
    }
    if (id_is_zero(stream->max_deleted_id) ||
        id_compare(stream->max_deleted_id, stream->first_id) < 0) {
        int order = id_compare(id, stream->first_id);
        if (order <= 0) {
            return (int64_t)(stream->entries_added - stream->length) + (order == 0 ? 1 : 0);
        }
    }
    return -1;
}

void lmdb_group_advance(struct lmdb_txn *txn, struct lmdb_group *group, struct impel_id id)
{
    const struct lmdb_stream *stream = group->stream;

    /* What was trimmed away in front of the group was never read: counting on would leave it out for ever. */
    if (group->entries_read >= 0 && id_compare(group->last_id, stream->first_id) >= 0 &&
        !has_tombstones(stream, group->last_id)) {
        group->entries_read++;
    } else if (stream->entries_added > 0) {
        group->entries_read = position_estimate(group->stream, id);
    }
    group->last_id = id;
    lmdb_group_changed(txn, group);
}

bool lmdb_group_lag(const struct lmdb_group *group, int64_t *lag)
{
    const struct lmdb_stream *stream = group->stream;
    int64_t position = -1;

    if (stream->entries_added == 0 || stream->length == 0) {
        *lag = 0;
        return true;
    }
    if (id_compare(group->last_id, stream->first_id) < 0 &&
        id_compare(stream->max_deleted_id, stream->first_id) < 0) {
        *lag = (int64_t)stream->length;
        return true;
    }
    if (group->entries_read >= 0 && !has_tombstones(stream, group->last_id)) {
        position = group->entries_read;
    } else {
        position = position_estimate(stream, group->last_id);
    }
    if (position < 0) {
        return false;
    }
    *lag = (int64_t)stream->entries_added - position;
    return true;
}
