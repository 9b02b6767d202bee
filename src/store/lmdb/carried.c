/* carried.c -- what requeued entries had before: a row of the catalog for each, under the copy's ID.
 *
 * Nothing of it is needed for an entry to be found, delivered or acknowledged, so acks do not look
 * for it: what has been finished with is swept up now and then. */
#include "store/lmdb/txn.h"

enum {
    CARRIED_KEY_SIZE = 1 + 8 + 16, /* letter, group, ID */
    CARRIED_PREFIX_SIZE = 1 + 8,
};

static void
carried_key(uint8_t key[CARRIED_KEY_SIZE], const struct lmdb_group *group, struct impel_id id)
{
    key[0] = 'a';
    put_be64(key + 1, group->number);
    put_be64(key + 9, id.ms);
    put_be64(key + 17, id.seq);
}

int lmdb_carried_get(struct lmdb_txn *txn,
                     const struct lmdb_group *group,
                     struct impel_id id,
                     int64_t *out)
{
    uint8_t key[CARRIED_KEY_SIZE];
    MDB_val value;

    *out = 0;
    carried_key(key, group, id);
    int rc = row_get(txn, DB_CATALOG, (MDB_val){sizeof(key), key}, &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc >= 0 && value.mv_size != sizeof(*out)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the attempts of an entry are damaged");
    }
    if (rc >= 0) {
        memcpy(out, value.mv_data, sizeof(*out));
    }
    return rc;
}

int lmdb_carried_put(struct lmdb_txn *txn,
                     const struct lmdb_group *group,
                     struct impel_id id,
                     int64_t deliveries)
{
    uint8_t key[CARRIED_KEY_SIZE];

    carried_key(key, group, id);
    int rc = catalog_need_version(txn, LMDB_FORMAT_CARRIED_ROWS);
    return rc < 0 ? rc
                  : row_put(txn, DB_CATALOG, (MDB_val){sizeof(key), key},
                            (MDB_val){sizeof(deliveries), &deliveries});
}

int lmdb_carried_delete(struct lmdb_txn *txn, const struct lmdb_group *group, struct impel_id id)
{
    uint8_t key[CARRIED_KEY_SIZE];

    carried_key(key, group, id);
    int rc = row_delete(txn, DB_CATALOG, (MDB_val){sizeof(key), key});
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

int lmdb_carried_any(struct lmdb_txn *txn, const struct lmdb_group *group, bool *out)
{
    uint8_t first[CARRIED_KEY_SIZE];
    MDB_val key = {sizeof(first), first}, value;

    carried_key(first, group, ID_MIN);
    int rc = row_seek(txn, DB_CATALOG, &key, CARRIED_PREFIX_SIZE, &value);
    *out = rc >= 0;
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

int lmdb_carried_sweep(struct lmdb_txn *txn, struct lmdb_group *group, size_t rows_max)
{
    struct impel_id id = ID_MIN;
    struct lmdb_pending row;

    for (size_t i = 0; i < rows_max; i++) {
        uint8_t at[CARRIED_KEY_SIZE];
        MDB_val key = {sizeof(at), at}, value;
        carried_key(at, group, id);
        int rc = row_seek(txn, DB_CATALOG, &key, CARRIED_PREFIX_SIZE, &value);
        if (rc < 0) {
            return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
        }
        if (key.mv_size != CARRIED_KEY_SIZE) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the attempts of an entry are damaged");
        }
        id = get_id((const uint8_t *)key.mv_data + CARRIED_PREFIX_SIZE);
        if (id_compare(id, group->last_id) > 0) {
            return IMPEL_OK; /* not delivered yet, like all behind it */
        }
        rc = lmdb_pending_get(txn, group, id, &row);
        rc = rc == IMPEL_ERR_NOT_FOUND ? lmdb_carried_delete(txn, group, id) : rc;
        if (rc < 0 || !id_next(&id)) {
            return rc;
        }
    }
    return IMPEL_OK;
}

int lmdb_carried_drop(struct lmdb_txn *txn, const struct lmdb_group *group)
{
    uint8_t prefix[CARRIED_KEY_SIZE];

    carried_key(prefix, group, ID_MIN);
    return row_delete_all(txn, DB_CATALOG, prefix, CARRIED_PREFIX_SIZE, NULL);
}
