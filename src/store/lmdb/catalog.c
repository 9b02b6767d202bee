/* catalog.c -- the catalog's rows, and the cache of objects that a transaction has met.
 *
 * Within one turn the same stream, group and consumer are touched thousands of times. They are read
 * from their rows once, changed in memory, and written back once before the commit. The cache lives
 * as long as the transaction: the next one starts empty, since other processes write too. */
#include "store/lmdb/txn.h"

enum {
    BUCKETS_FIRST = 64,
};

static MDB_val val_of(const struct lmdb_key *key)
{
    return (MDB_val){key->size, (void *)key->data};
}

/* ---- the cache ---- */

static uint64_t name_hash(enum object_kind kind, uint64_t parent, struct impel_bytes name)
{
    return hash_bytes(name, parent * 31 + (uint64_t)kind);
}

static struct impel_bytes object_name(const struct object *object)
{
    switch (object->kind) {
    case OBJECT_STREAM:
        return object->stream.name;
    case OBJECT_GROUP:
        return object->group.name;
    default:
        return object->consumer.name;
    }
}

static uint64_t object_number(const struct object *object)
{
    return object->kind == OBJECT_STREAM  ? object->stream.number
           : object->kind == OBJECT_GROUP ? object->group.number
                                          : object->consumer.number;
}

struct object *object_by_number(struct lmdb_txn *txn, enum object_kind kind, uint64_t number)
{
    struct object *object =
        txn->bucket_count == 0 ? NULL : txn->by_number[number % txn->bucket_count];

    /* Numbers are unique over all kinds. */
    while (object != NULL && (object_number(object) != number || object->gone)) {
        object = object->next_by_number;
    }
    return object != NULL && object->kind == kind ? object : NULL;
}

static bool object_has_name(const struct object *object,
                            enum object_kind kind,
                            uint64_t parent,
                            struct impel_bytes name)
{
    return !object->gone && object->kind == kind && object->parent == parent &&
           bytes_equal(object_name(object), name);
}

struct object *object_by_name(struct lmdb_txn *txn,
                              enum object_kind kind,
                              uint64_t parent,
                              struct impel_bytes name)
{
    struct object **last = &txn->named[kind == OBJECT_STREAM ? 0 : kind == OBJECT_GROUP ? 1 : 2];

    if (*last != NULL && object_has_name(*last, kind, parent, name)) {
        return *last;
    }
    uint64_t hash = name_hash(kind, parent, name);
    struct object *object = txn->bucket_count == 0 ? NULL : txn->by_name[hash % txn->bucket_count];
    while (object != NULL &&
           (object->hash != hash || !object_has_name(object, kind, parent, name))) {
        object = object->next_by_name;
    }
    *last = object;
    return object;
}

static void object_link(struct lmdb_txn *txn, struct object *object)
{
    struct object **by_number = &txn->by_number[object_number(object) % txn->bucket_count];
    struct object **by_name = &txn->by_name[object->hash % txn->bucket_count];

    object->next_by_number = *by_number;
    *by_number = object;
    object->next_by_name = *by_name;
    *by_name = object;
}

/* Keeps the chains short. The old tables stay in the arena until the transaction ends. */
static int cache_grow(struct lmdb_txn *txn)
{
    size_t count = txn->bucket_count == 0 ? BUCKETS_FIRST : txn->bucket_count * 4;
    struct object **by_number = arena_calloc(&txn->arena, count, sizeof(struct object *));
    struct object **by_name = arena_calloc(&txn->arena, count, sizeof(struct object *));

    if (by_number == NULL || by_name == NULL) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    txn->by_number = by_number;
    txn->by_name = by_name;
    txn->bucket_count = count;
    for (struct object *object = txn->objects; object != NULL; object = object->next) {
        object_link(txn, object);
    }
    return IMPEL_OK;
}

struct object *object_add(struct lmdb_txn *txn,
                          enum object_kind kind,
                          uint64_t number,
                          uint64_t parent,
                          struct impel_bytes name)
{
    struct impel_bytes copy;
    struct object *object = NULL;

    if (txn->status < 0 || (txn->object_count >= txn->bucket_count && cache_grow(txn) < 0)) {
        return NULL;
    }
    object = arena_calloc(&txn->arena, 1, sizeof(*object));
    if (object == NULL || !arena_copy(&txn->arena, name, &copy)) {
        lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
        return NULL;
    }
    object->kind = kind;
    object->parent = parent;
    object->hash = name_hash(kind, parent, name);
    switch (kind) {
    case OBJECT_STREAM:
        object->stream.number = number;
        object->stream.name = copy;
        break;
    case OBJECT_GROUP:
        object->group.number = number;
        object->group.name = copy;
        break;
    case OBJECT_CONSUMER:
        object->consumer.number = number;
        object->consumer.name = copy;
        break;
    }
    object->next = txn->objects;
    txn->objects = object;
    txn->object_count++;
    object_link(txn, object);
    return object;
}

int object_rename(struct lmdb_txn *txn, struct object *object, struct impel_bytes name)
{
    struct object **at = &txn->by_name[object->hash % txn->bucket_count];
    struct impel_bytes copy;

    ASSERT(object->kind == OBJECT_STREAM);
    if (!arena_copy(&txn->arena, name, &copy)) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    while (*at != object) {
        at = &(*at)->next_by_name;
    }
    *at = object->next_by_name;
    object->hash = name_hash(object->kind, object->parent, name);
    object->stream.name = copy;
    object->stream.dirty = true;
    at = &txn->by_name[object->hash % txn->bucket_count];
    object->next_by_name = *at;
    *at = object;
    return IMPEL_OK;
}

static int object_flush(struct lmdb_txn *txn, struct object *object)
{
    switch (object->kind) {
    case OBJECT_STREAM:
        return object->stream.dirty ? stream_flush(txn, &object->stream) : IMPEL_OK;
    case OBJECT_GROUP:
        return object->group.dirty ? group_flush(txn, &object->group) : IMPEL_OK;
    default:
        return object->consumer.dirty ? consumer_flush(txn, &object->consumer) : IMPEL_OK;
    }
}

int lmdb_txn_flush(struct lmdb_txn *txn)
{
    int rc = txn->status;

    for (struct object *object = txn->objects; rc >= 0 && object != NULL; object = object->next) {
        rc = object->gone ? IMPEL_OK : object_flush(txn, object);
    }
    if (rc >= 0 && txn->meta_dirty) {
        uint8_t letter = 'm';
        rc = row_put(txn, DB_CATALOG, (MDB_val){1, &letter},
                     (MDB_val){sizeof(txn->meta), &txn->meta});
        txn->meta_dirty = false;
    }
    return rc;
}

/* ---- rows ---- */

int object_read(struct lmdb_txn *txn,
                enum object_kind kind,
                uint64_t number,
                void *disk,
                size_t size,
                struct impel_bytes *name)
{
    struct lmdb_key key;
    MDB_val value;

    key_of_number(&key, (char)kind, number);
    int rc = row_get(txn, DB_CATALOG, val_of(&key), &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    if (rc >= 0 && value.mv_size < size) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the row of object %c %llu is too short", kind,
                         (unsigned long long)number);
    }
    if (rc >= 0) {
        memcpy(disk, value.mv_data, size);
        *name = (struct impel_bytes){(const uint8_t *)value.mv_data + size, value.mv_size - size};
    }
    return rc;
}

int object_write(struct lmdb_txn *txn,
                 enum object_kind kind,
                 uint64_t number,
                 const void *disk,
                 size_t size,
                 struct impel_bytes name)
{
    struct lmdb_key key;
    void *room = NULL;

    key_of_number(&key, (char)kind, number);
    int rc = row_reserve(txn, DB_CATALOG, val_of(&key), size + name.size, &room);
    if (rc >= 0) {
        memcpy(room, disk, size);
        if (name.size > 0) {
            memcpy((uint8_t *)room + size, name.data, name.size);
        }
    }
    return rc;
}

int catalog_find(
    struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name, uint64_t *number)
{
    struct lmdb_key key;
    MDB_val value;

    *number = 0;
    key_of_name(&key, letter, parent, name);
    int rc = row_get(txn, DB_CATALOG, val_of(&key), &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc >= 0 && value.mv_size != sizeof(*number)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a name's row '%c' is damaged", letter);
    }
    if (rc >= 0) {
        memcpy(number, value.mv_data, sizeof(*number));
    }
    return rc;
}

int catalog_set(
    struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name, uint64_t number)
{
    struct lmdb_key key;

    key_of_name(&key, letter, parent, name);
    return row_put(txn, DB_CATALOG, val_of(&key), (MDB_val){sizeof(number), &number});
}

int catalog_delete(struct lmdb_txn *txn, char letter, uint64_t parent, struct impel_bytes name)
{
    struct lmdb_key key;

    key_of_name(&key, letter, parent, name);
    return row_delete(txn, DB_CATALOG, val_of(&key));
}

int catalog_other_name(struct lmdb_txn *txn, struct impel_bytes name)
{
    return name.size > NAME_KEY_SIZE_MAX
               ? lmdb_fail(txn, IMPEL_ERR_LIMIT, "two long names of the same hash")
               : lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a name leads to what has another");
}

int catalog_meta(struct lmdb_txn *txn)
{
    uint8_t letter = 'm';
    MDB_val value;

    if (txn->meta_known || txn->status < 0) {
        return txn->status;
    }
    int rc = row_get(txn, DB_CATALOG, (MDB_val){1, &letter}, &value);
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && value.mv_size != sizeof(txn->meta))) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the file's own row is missing or damaged");
    }
    if (rc >= 0) {
        memcpy(&txn->meta, value.mv_data, sizeof(txn->meta));
        txn->meta_known = true;
    }
    return rc;
}

int catalog_new_number(struct lmdb_txn *txn, uint64_t *number)
{
    int rc = catalog_meta(txn);
    if (rc >= 0) {
        *number = txn->meta.next_number++;
        txn->meta_dirty = true;
    }
    return rc;
}

int catalog_need_version(struct lmdb_txn *txn, uint32_t version)
{
    int rc = catalog_meta(txn);

    if (rc >= 0 && txn->meta.version < version) {
        txn->meta.version = version;
        txn->meta_dirty = true;
    }
    return rc;
}
