/* pending.c -- pending entries: one row by ID, and a second one by owner. */
#include "store/lmdb/txn.h"

int pending_read(struct lmdb_txn *txn, struct impel_id id, MDB_val value, struct lmdb_pending *out)
{
    struct disk_pending disk;

    if (value.mv_size != sizeof(disk)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry's row is damaged");
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    *out = (struct lmdb_pending){
        .id = id,
        .owner = disk.owner,
        .delivered_ms = disk.owner == 0 ? 0 : disk.delivered_ms,
        .released = disk.owner == 0 ? (uint64_t)disk.delivered_ms : 0,
        .deliveries = disk.deliveries,
    };
    return IMPEL_OK;
}

int lmdb_pending_get(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     struct impel_id id,
                     struct lmdb_pending *out)
{
    uint8_t key[ROW_KEY_SIZE];
    MDB_val value;

    row_key(key, group->number, id);
    int rc = row_get(txn, DB_PEL, (MDB_val){sizeof(key), key}, &value);
    return rc < 0 ? rc : pending_read(txn, id, value, out);
}

/* Takes the row out of an owner's order, or puts it in. */
static int owned_change(
    struct lmdb_txn *txn, struct lmdb_group *group, uint64_t owner, struct impel_id id, bool put)
{
    struct lmdb_consumer *consumer = NULL;
    uint8_t key[ROW_KEY_SIZE];

    if (owner == 0) {
        return txn->status;
    }
    int rc = lmdb_consumer_get(txn, group, owner, &consumer);
    if (rc < 0) {
        return rc;
    }
    row_key(key, owner, id);
    consumer->dirty = true;
    if (put) {
        consumer->pending++;
        return row_put(txn, DB_OWNED, (MDB_val){sizeof(key), key}, (MDB_val){0, key});
    }
    consumer->pending--;
    rc = row_delete(txn, DB_OWNED, (MDB_val){sizeof(key), key});
    return rc == IMPEL_ERR_NOT_FOUND
               ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry is missing at its owner")
               : rc;
}

int lmdb_pending_put(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     const struct lmdb_pending *old,
                     const struct lmdb_pending *row)
{
    struct lmdb_pending now = *row;
    uint8_t key[ROW_KEY_SIZE];
    int rc = IMPEL_OK;

    if (now.owner == 0 && now.released == 0) {
        rc = catalog_new_number(txn, &now.released); /* they only grow */
    }
    struct disk_pending disk = {
        .owner = now.owner,
        .delivered_ms = now.owner == 0 ? (int64_t)now.released : now.delivered_ms,
        .deliveries = now.deliveries,
    };
    row_key(key, group->number, row->id);
    rc = rc < 0 ? rc : order_change(txn, group, old, &now);
    rc = rc < 0 ? rc
                : row_put(txn, DB_PEL, (MDB_val){sizeof(key), key}, (MDB_val){sizeof(disk), &disk});
    if (rc >= 0 && old != NULL && old->owner != row->owner) {
        rc = owned_change(txn, group, old->owner, row->id, false);
    }
    if (rc >= 0 && (old == NULL || old->owner != row->owner)) {
        rc = owned_change(txn, group, row->owner, row->id, true);
    }
    if (old == NULL) {
        group->pending++;
        group->dirty = true;
    }
    return rc;
}

int lmdb_pending_delete(struct lmdb_txn *txn,
                        struct lmdb_group *group,
                        const struct lmdb_pending *old)
{
    uint8_t key[ROW_KEY_SIZE];

    row_key(key, group->number, old->id);
    int rc = row_delete(txn, DB_PEL, (MDB_val){sizeof(key), key});
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry is missing in its group");
    }
    group->pending--;
    group->dirty = true;
    rc = rc < 0 ? rc : order_change(txn, group, old, NULL);
    return rc < 0 ? rc : owned_change(txn, group, old->owner, old->id, false);
}

int lmdb_pending_first(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;

    if (group->pending == 0) {
        return txn->status < 0 ? txn->status : IMPEL_ERR_NOT_FOUND;
    }
    row_key(start, group->number, ID_MIN);
    int rc = row_seek(txn, DB_PEL, &key, 8, &value);
    return rc < 0 ? rc : pending_read(txn, get_id((const uint8_t *)key.mv_data + 8), value, out);
}

int lmdb_pending_last(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out)
{
    uint8_t limit[ROW_KEY_SIZE];
    MDB_val key;
    MDB_val value;

    if (group->pending == 0) {
        return txn->status < 0 ? txn->status : IMPEL_ERR_NOT_FOUND;
    }
    row_key(limit, group->number, ID_MAX);
    int rc = row_seek_before(txn, DB_PEL, limit, &key, &value);
    return rc < 0 ? rc : pending_read(txn, get_id((const uint8_t *)key.mv_data + 8), value, out);
}
