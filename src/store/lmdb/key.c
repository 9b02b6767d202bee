/* key.c -- keys: names that hold a stream or something else. */
#include "store/lmdb/txn.h"

static int key_delete(struct lmdb_txn *txn, struct impel_bytes name, const struct disk_key *disk);

/* As it is in the file, expired or not. */
static int key_read_row(struct lmdb_txn *txn, struct impel_bytes name, struct disk_key *out)
{
    struct lmdb_key key;
    MDB_val value;

    *out = (struct disk_key){0};
    key_of_name(&key, 'k', 0, name);
    int rc = row_get(txn, DB_CATALOG, (MDB_val){key.size, key.data}, &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc < 0) {
        return rc;
    }
    if (value.mv_size < sizeof(*out)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key's row is too short");
    }
    memcpy(out, value.mv_data, sizeof(*out));
    struct impel_bytes stored = {(const uint8_t *)value.mv_data + sizeof(*out),
                                 value.mv_size - sizeof(*out)};
    if (!bytes_equal(stored, name)) {
        return catalog_other_name(txn, name);
    }
    if (out->kind == LMDB_KEY_NONE || out->kind > LMDB_KEY_SET) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key of the unknown kind %u", out->kind);
    }
    return rc;
}

static bool is_expired(const struct lmdb_txn *txn, int64_t expires_ms)
{
    return expires_ms != 0 && expires_ms <= txn->now_ms;
}

int key_read(struct lmdb_txn *txn, struct impel_bytes name, struct disk_key *out)
{
    int rc = key_read_row(txn, name, out);

    if (rc >= 0 && is_expired(txn, out->expires_ms)) {
        rc = txn->write ? key_delete(txn, name, out) : IMPEL_OK;
        *out = (struct disk_key){0};
    }
    return rc;
}

static void expiry_key(struct lmdb_key *key, const struct disk_key *disk)
{
    key_of_number(key, 'x', (uint64_t)disk->expires_ms);
    put_be64(key->data + key->size, disk->number);
    key->size += 8;
}

int key_write(struct lmdb_txn *txn,
              struct impel_bytes name,
              const struct disk_key *old,
              const struct disk_key *disk)
{
    struct lmdb_key key;
    void *room = NULL;
    int rc = IMPEL_OK;

    if (old != NULL && old->expires_ms != 0) {
        expiry_key(&key, old);
        rc = row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    }
    if (rc >= 0 && disk->expires_ms != 0) {
        expiry_key(&key, disk);
        rc = row_put(txn, DB_CATALOG, (MDB_val){key.size, key.data},
                     (MDB_val){name.size, (void *)name.data});
    }
    key_of_name(&key, 'k', 0, name);
    rc = rc < 0 ? rc
                : row_reserve(txn, DB_CATALOG, (MDB_val){key.size, key.data},
                              sizeof(*disk) + name.size, &room);
    if (rc >= 0) {
        memcpy(room, disk, sizeof(*disk));
        if (name.size > 0) {
            memcpy((uint8_t *)room + sizeof(*disk), name.data, name.size);
        }
    }
    return rc < 0 && rc != txn->status ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key's expiry") : rc;
}

int key_remove(struct lmdb_txn *txn, struct impel_bytes name, const struct disk_key *disk)
{
    struct lmdb_key key;
    int rc = IMPEL_OK;

    if (disk->expires_ms != 0) {
        expiry_key(&key, disk);
        rc = row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    }
    key_of_name(&key, 'k', 0, name);
    rc = rc < 0 ? rc : row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    return rc < 0 && rc != txn->status ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a key's rows") : rc;
}

int key_create(struct lmdb_txn *txn,
               struct impel_bytes name,
               enum lmdb_key_kind kind,
               uint64_t *number)
{
    struct disk_key disk = {.kind = (uint32_t)kind};
    int rc = catalog_new_number(txn, &disk.number);

    rc = rc < 0 ? rc : key_write(txn, name, NULL, &disk);
    if (rc >= 0) {
        txn->meta.key_count++;
        *number = disk.number;
    }
    return rc;
}

int lmdb_key_kind(struct lmdb_txn *txn, struct impel_bytes name, enum lmdb_key_kind *kind)
{
    struct disk_key disk;
    int rc = key_read(txn, name, &disk);

    if (rc >= 0) {
        *kind = (enum lmdb_key_kind)disk.kind;
    }
    return rc;
}

int lmdb_key_count(struct lmdb_txn *txn, uint64_t *count)
{
    int rc = catalog_meta(txn);
    if (rc >= 0) {
        *count = txn->meta.key_count;
    }
    return rc;
}

/* ---- streams ---- */

int lmdb_stream_find(struct lmdb_txn *txn, struct impel_bytes name, struct lmdb_stream **out)
{
    struct object *object = object_by_name(txn, OBJECT_STREAM, 0, name);
    struct disk_key disk;

    if (object != NULL && !is_expired(txn, object->stream.expires_ms)) {
        *out = &object->stream;
        return txn->status;
    }
    int rc = key_read(txn, name, &disk);
    if (rc < 0) {
        return rc;
    }
    if (disk.kind != LMDB_KEY_STREAM) {
        return disk.kind == LMDB_KEY_NONE ? IMPEL_ERR_NOT_FOUND : IMPEL_ERR_WRONG_TYPE;
    }
    rc = stream_load(txn, disk.number, out);
    if (rc >= 0) {
        (*out)->expires_ms = disk.expires_ms;
    }
    return rc;
}

int lmdb_stream_open(struct lmdb_txn *txn, struct impel_bytes name, struct lmdb_stream **out)
{
    uint64_t number = 0;
    int rc = lmdb_stream_find(txn, name, out);

    if (rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    rc = key_create(txn, name, LMDB_KEY_STREAM, &number);
    if (rc < 0) {
        return rc;
    }
    struct object *object = object_add(txn, OBJECT_STREAM, number, 0, name);
    if (object == NULL) {
        return txn->status;
    }
    object->stream.dirty = true;
    lmdb_signal(txn);
    *out = &object->stream;
    return IMPEL_OK;
}

static int stream_destroy(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    struct lmdb_key key;
    uint8_t prefix[8];
    int rc = lmdb_walk_groups(&walk, txn, stream);

    while (rc >= 0 && (rc = lmdb_next_group(&walk, &group)) > 0) {
        rc = lmdb_group_destroy(txn, group);
    }
    lmdb_walk_end(&walk);
    rc = rc < 0 ? rc : idmp_drop(txn, stream);
    put_be64(prefix, stream->number);
    rc = rc < 0 ? rc : row_delete_all(txn, DB_ENTRIES, prefix, sizeof(prefix), NULL);
    rc = rc < 0 ? rc : row_delete_all(txn, DB_NODES, prefix, sizeof(prefix), NULL);
    key_of_number(&key, 'f', stream->number);
    rc = rc < 0 ? rc : row_delete_all(txn, DB_CATALOG, key.data, key.size, NULL);
    key_of_number(&key, 's', stream->number);
    rc = rc < 0 ? rc : row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    OBJECT_OF(stream, stream)->gone = true;
    /* A stream that was created in this same transaction has no row yet. */
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

/* The stream of a key, expired or not. */
static int key_stream(struct lmdb_txn *txn, const struct disk_key *disk, struct lmdb_stream **out)
{
    struct object *object = object_by_number(txn, OBJECT_STREAM, disk->number);

    if (object != NULL) {
        *out = &object->stream;
        return txn->status;
    }
    return stream_load(txn, disk->number, out);
}

static int key_delete(struct lmdb_txn *txn, struct impel_bytes name, const struct disk_key *disk)
{
    struct lmdb_key key;
    struct lmdb_stream *stream = NULL;
    int rc = IMPEL_OK;

    if (disk->kind == LMDB_KEY_STREAM) {
        rc = key_stream(txn, disk, &stream);
        rc = rc < 0 ? rc : stream_destroy(txn, stream);
    } else {
        rc = disk->kind == LMDB_KEY_STRING ? txn->status : collection_drop(txn, disk);
        key_of_number(&key, 'v', disk->number);
        rc = rc < 0 ? rc : row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    }
    rc = rc < 0 ? rc : catalog_meta(txn);
    if (rc < 0) {
        return lmdb_fail(txn, rc == IMPEL_ERR_NOT_FOUND ? IMPEL_ERR_CORRUPT : rc,
                         "a key without its contents");
    }
    txn->meta.key_count--;
    txn->meta_dirty = true;
    lmdb_signal(txn);
    return key_remove(txn, name, disk);
}

int lmdb_key_delete(struct lmdb_txn *txn, struct impel_bytes name)
{
    struct disk_key disk;
    int rc = key_read(txn, name, &disk);

    if (rc < 0 || disk.kind == LMDB_KEY_NONE) {
        return rc;
    }
    rc = key_delete(txn, name, &disk);
    return rc < 0 ? rc : 1;
}

/* ---- strings ---- */

int lmdb_string_set(struct lmdb_txn *txn, struct impel_bytes name, struct impel_bytes value)
{
    struct lmdb_key key;
    uint64_t number = 0;
    int rc = lmdb_key_delete(txn, name);

    rc = rc < 0 ? rc : key_create(txn, name, LMDB_KEY_STRING, &number);
    if (rc < 0) {
        return rc;
    }
    key_of_number(&key, 'v', number);
    lmdb_signal(txn);
    return row_put(txn, DB_CATALOG, (MDB_val){key.size, key.data},
                   (MDB_val){value.size, (void *)value.data});
}

int lmdb_string_get(struct lmdb_txn *txn, struct impel_bytes name, struct impel_bytes *value)
{
    struct disk_key disk;
    struct lmdb_key key;
    MDB_val found;
    int rc = key_read(txn, name, &disk);

    if (rc < 0) {
        return rc;
    }
    if (disk.kind != LMDB_KEY_STRING) {
        return disk.kind == LMDB_KEY_NONE ? IMPEL_ERR_NOT_FOUND : IMPEL_ERR_WRONG_TYPE;
    }
    key_of_number(&key, 'v', disk.number);
    rc = row_get(txn, DB_CATALOG, (MDB_val){key.size, key.data}, &found);
    if (rc < 0) {
        return lmdb_fail(txn, rc == IMPEL_ERR_NOT_FOUND ? IMPEL_ERR_CORRUPT : rc,
                         "a key without its contents");
    }
    *value = (struct impel_bytes){found.mv_data, found.mv_size};
    return IMPEL_OK;
}
