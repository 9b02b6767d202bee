/* order.c -- a group's pending rows in the order in which XREADGROUP CLAIM takes them: nobody's
 * first, as they were given back, then by the time of their delivery.
 *
 * Keeping it costs a row for each pending entry, so it is kept only for groups that were asked
 * for it once (`ordered`); what is nobody's is always in it, since only this order knows who was
 * given back first. A first question walks the whole PEL. */
#include "store/lmdb/txn.h"

enum {
    ORDER_KEY_SIZE = 33, /* letter, group, time, ms, seq */
};

/* Nobody's rows come first: their time is the number of their release, far below any real time. In 64
 * bits without a sign, because a damaged row may say anything. */
static int64_t order_time(const struct lmdb_pending *row)
{
    if (row->owner == 0) {
        return (int64_t)(row->released ^ (UINT64_C(1) << 63));
    }
    return row->delivered_ms < 0 ? 0 : row->delivered_ms;
}

static MDB_val order_key(uint8_t *key, uint64_t group, int64_t time, struct impel_id id)
{
    key[0] = 't';
    put_be64(key + 1, group);
    put_be64(key + 9, (uint64_t)time ^ (1ULL << 63)); /* so that negative ones come first */
    put_be64(key + 17, id.ms);
    put_be64(key + 25, id.seq);
    return (MDB_val){ORDER_KEY_SIZE, key};
}

static bool is_in_order(const struct lmdb_group *group, const struct lmdb_pending *row)
{
    return row != NULL && (group->ordered || row->owner == 0);
}

static int order_put(struct lmdb_txn *txn, struct lmdb_group *group, const struct lmdb_pending *row)
{
    uint8_t key[ORDER_KEY_SIZE];
    int rc = catalog_need_version(txn, LMDB_FORMAT_ORDER_ROWS);

    return rc < 0
               ? rc
               : row_put(txn, DB_CATALOG, order_key(key, group->number, order_time(row), row->id),
                         (MDB_val){0, key});
}

int order_change(struct lmdb_txn *txn,
                 struct lmdb_group *group,
                 const struct lmdb_pending *old,
                 const struct lmdb_pending *row)
{
    uint8_t key[ORDER_KEY_SIZE];
    bool was = is_in_order(group, old);
    bool is = is_in_order(group, row);
    int rc = txn->status;

    if (was && is && order_time(old) == order_time(row)) {
        return rc;
    }
    if (rc >= 0 && was) {
        rc = row_delete(txn, DB_CATALOG, order_key(key, group->number, order_time(old), old->id));
        if (rc == IMPEL_ERR_NOT_FOUND) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry is missing in its order");
        }
    }
    return rc >= 0 && is ? order_put(txn, group, row) : rc;
}

int order_drop(struct lmdb_txn *txn, struct lmdb_group *group)
{
    uint8_t prefix[9] = {'t'};

    put_be64(prefix + 1, group->number);
    return row_delete_all(txn, DB_CATALOG, prefix, sizeof(prefix), NULL);
}

int lmdb_group_order(struct lmdb_txn *txn, struct lmdb_group *group)
{
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    int rc = txn->status;

    if (rc < 0 || group->ordered) {
        return rc;
    }
    rc = lmdb_walk_pending(&walk, txn, group, ID_MIN);
    while (rc >= 0 && (rc = lmdb_next_pending(&walk, &row)) > 0) {
        rc = row.owner == 0 ? IMPEL_OK : order_put(txn, group, &row);
    }
    lmdb_walk_end(&walk);
    rc = rc < 0 ? rc : catalog_need_version(txn, LMDB_FORMAT_ORDER_ROWS);
    group->ordered = true;
    group->dirty = true;
    return rc;
}

int lmdb_nobodys_first(struct lmdb_txn *txn, struct lmdb_group *group, struct impel_id *out)
{
    uint8_t start[ORDER_KEY_SIZE];
    MDB_val key = order_key(start, group->number, INT64_MIN, ID_MIN);
    MDB_val value;
    int rc = row_seek(txn, DB_CATALOG, &key, 9, &value);

    if (rc < 0) {
        return rc;
    }
    if (key.mv_size != ORDER_KEY_SIZE) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a row of an order is damaged");
    }
    if ((((const uint8_t *)key.mv_data)[9] & 0x80) != 0) {
        return IMPEL_ERR_NOT_FOUND; /* a time that is real */
    }
    *out = get_id((const uint8_t *)key.mv_data + 17);
    return IMPEL_OK;
}
