/* key_expire.c -- keys that live only until a time.
 *
 * An expired key is missing for whoever looks (key_read()), and deleted by the first transaction
 * that meets it and writes. Rows ordered by time tell which are due, for whoever serves clients
 * that wait for one of them. */
#include "store/lmdb/txn.h"

#include <string.h>

enum {
    EXPIRY_KEY_SIZE = 17, /* 'x', when, the key's number */
};

int lmdb_key_expires(struct lmdb_txn *txn, struct impel_bytes name, int64_t *expires_ms)
{
    struct disk_key disk;
    int rc = key_read(txn, name, &disk);

    if (rc >= 0 && disk.kind == LMDB_KEY_NONE) {
        return IMPEL_ERR_NOT_FOUND;
    }
    *expires_ms = disk.expires_ms;
    return rc;
}

int lmdb_key_expire(struct lmdb_txn *txn, struct impel_bytes name, int64_t expires_ms)
{
    struct disk_key disk, old;
    int rc = key_read(txn, name, &old);

    if (rc < 0 || old.kind == LMDB_KEY_NONE) {
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    if (expires_ms != 0 && expires_ms <= txn->now_ms) {
        rc = lmdb_key_delete(txn, name);
        return rc < 0 ? rc : IMPEL_OK;
    }
    disk = old;
    disk.expires_ms = expires_ms;
    struct object *object = object_by_number(txn, OBJECT_STREAM, disk.number);
    if (object != NULL) {
        object->stream.expires_ms = expires_ms;
    }
    return key_write(txn, name, &old, &disk);
}

/* The key that expires first. IMPEL_OK or NOT_FOUND. */
static int first_due(struct lmdb_txn *txn, int64_t *expires_ms, struct impel_bytes *name)
{
    uint8_t letter = 'x';
    MDB_val key = {1, &letter};
    MDB_val value;
    int rc = row_seek(txn, DB_CATALOG, &key, 1, &value);

    if (rc >= 0 && key.mv_size != EXPIRY_KEY_SIZE) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a row of a key's expiry");
    }
    if (rc >= 0) {
        *expires_ms = (int64_t)get_be64((const uint8_t *)key.mv_data + 1);
        *name = (struct impel_bytes){value.mv_data, value.mv_size};
    }
    return rc;
}

int lmdb_expire_due(struct lmdb_txn *txn, size_t count_max, int64_t *next_ms)
{
    struct impel_bytes name = {0}, copy = {0};
    struct disk_key disk;
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0; i++) {
        rc = first_due(txn, next_ms, &name);
        if (rc == IMPEL_ERR_NOT_FOUND) {
            *next_ms = INT64_MAX;
            return IMPEL_OK;
        }
        if (rc < 0 || !txn->write || *next_ms > txn->now_ms || i == count_max) {
            break;
        }
        /* Its name lies in a row that goes with it. */
        if (!arena_copy(&txn->arena, name, &copy)) {
            return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
        }
        rc = key_read(txn, copy, &disk);
        if (rc >= 0 && disk.kind != LMDB_KEY_NONE) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key's expiry is not its own");
        }
    }
    return rc;
}

int lmdb_expire_count(struct lmdb_txn *txn, uint64_t count_max, uint64_t *count, int64_t *mean_ms)
{
    uint8_t after[EXPIRY_KEY_SIZE] = {'x'};
    double sum_ms = 0;
    int rc = IMPEL_OK;

    *count = 0;
    *mean_ms = 0;
    while (*count < count_max) {
        MDB_val value;
        MDB_val key = {EXPIRY_KEY_SIZE, after};
        rc = row_seek(txn, DB_CATALOG, &key, 1, &value);
        if (rc < 0) {
            break;
        }
        if (key.mv_size != EXPIRY_KEY_SIZE) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a row of a key's expiry");
        }
        memcpy(after, key.mv_data, EXPIRY_KEY_SIZE);
        sum_ms += (double)((int64_t)get_be64(after + 1) - txn->now_ms);
        *count += 1;
        put_be64(after + 9, get_be64(after + 9) + 1); /* no key has the last of all numbers */
    }
    if (*count > 0 && sum_ms > 0) {
        *mean_ms = (int64_t)(sum_ms / (double)*count);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}
