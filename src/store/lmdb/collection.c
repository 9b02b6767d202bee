/* collection.c -- lists and sets, as little of them as there is: a list grows and shrinks at its head,
 * a set only grows. They are there so that there are other types to be wrong about, and something
 * that a BLPOP waits for. */
#include "store/lmdb/txn.h"

#include <string.h>

enum {
    ELEMENT_KEY_SIZE = 17, /* letter, number, position */
};
/* Where a list's first element goes: in the middle, so that there is room before it. */
#define POSITION_FIRST (UINT64_C(1) << 63)

struct collection {
    struct disk_key key;
    struct disk_collection disk;
};

static MDB_val val_of(const struct lmdb_key *key)
{
    return (MDB_val){key->size, (void *)key->data};
}

static int collection_damaged(struct lmdb_txn *txn)
{
    return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a list's or a set's rows do not agree");
}

static void element_key(struct lmdb_key *key, uint64_t number, uint64_t position)
{
    key_of_number(key, 'l', number);
    put_be64(key->data + key->size, position);
    key->size += 8;
    ASSERT(key->size == ELEMENT_KEY_SIZE);
}

static int collection_read(struct lmdb_txn *txn, struct collection *collection)
{
    struct lmdb_key key;
    MDB_val value;

    key_of_number(&key, 'v', collection->key.number);
    int rc = row_get(txn, DB_CATALOG, val_of(&key), &value);
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && value.mv_size != sizeof(collection->disk))) {
        return collection_damaged(txn);
    }
    if (rc >= 0) {
        memcpy(&collection->disk, value.mv_data, sizeof(collection->disk));
        if (collection->disk.count == 0) {
            rc = collection_damaged(txn);
        }
    }
    return rc;
}

static int collection_write(struct lmdb_txn *txn, struct collection *collection)
{
    struct lmdb_key key;

    collection->disk.changes++;
    key_of_number(&key, 'v', collection->key.number);
    return row_put(txn, DB_CATALOG, val_of(&key),
                   (MDB_val){sizeof(collection->disk), &collection->disk});
}

/* NOT_FOUND, WRONG_TYPE. */
static int collection_find(struct lmdb_txn *txn,
                           struct impel_bytes name,
                           enum lmdb_key_kind kind,
                           struct collection *out)
{
    int rc = key_read(txn, name, &out->key);

    if (rc < 0) {
        return rc;
    }
    if (out->key.kind != (uint32_t)kind) {
        return out->key.kind == LMDB_KEY_NONE ? IMPEL_ERR_NOT_FOUND : IMPEL_ERR_WRONG_TYPE;
    }
    return collection_read(txn, out);
}

/* Finds it, or creates it empty: then it must be written with something in it. WRONG_TYPE. */
static int collection_open(struct lmdb_txn *txn,
                           struct impel_bytes name,
                           enum lmdb_key_kind kind,
                           struct collection *out)
{
    int rc = collection_find(txn, name, kind, out);

    if (rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    *out = (struct collection){.key = {.kind = (uint32_t)kind}, .disk = {.head = POSITION_FIRST}};
    rc = catalog_need_version(txn, LMDB_FORMAT_COLLECTIONS);
    return rc < 0 ? rc : key_create(txn, name, kind, &out->key.number);
}

int lmdb_list_push(struct lmdb_txn *txn,
                   struct impel_bytes name,
                   const struct impel_bytes *values,
                   size_t value_count,
                   uint64_t *length)
{
    struct collection list;
    struct lmdb_key key;
    int rc = collection_open(txn, name, LMDB_KEY_LIST, &list);

    for (size_t i = 0; rc >= 0 && i < value_count; i++) {
        element_key(&key, list.key.number, --list.disk.head);
        list.disk.count++;
        rc = row_put(txn, DB_CATALOG, val_of(&key),
                     (MDB_val){values[i].size, (void *)values[i].data});
    }
    rc = rc < 0 ? rc : collection_write(txn, &list);
    if (rc >= 0) {
        *length = list.disk.count;
        lmdb_signal(txn);
    }
    return rc;
}

int lmdb_list_pop(struct lmdb_txn *txn,
                  struct impel_bytes name,
                  struct arena *arena,
                  struct impel_bytes *value)
{
    struct collection list;
    struct lmdb_key key;
    MDB_val found;
    int rc = collection_find(txn, name, LMDB_KEY_LIST, &list);

    if (rc < 0) {
        return rc;
    }
    element_key(&key, list.key.number, list.disk.head);
    rc = row_get(txn, DB_CATALOG, val_of(&key), &found);
    if (rc >= 0 && !arena_copy(arena, (struct impel_bytes){found.mv_data, found.mv_size}, value)) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = rc < 0 ? rc : row_delete(txn, DB_CATALOG, val_of(&key));
    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? collection_damaged(txn) : rc;
    }
    list.disk.head++;
    if (--list.disk.count > 0) {
        return collection_write(txn, &list);
    }
    rc = lmdb_key_delete(txn, name);
    return rc < 0 ? rc : IMPEL_OK;
}

int lmdb_set_add(struct lmdb_txn *txn,
                 struct impel_bytes name,
                 const struct impel_bytes *members,
                 size_t member_count,
                 uint64_t *added)
{
    struct collection set;
    struct lmdb_key key;
    MDB_val found;
    int rc = collection_open(txn, name, LMDB_KEY_SET, &set);

    *added = 0;
    for (size_t i = 0; rc >= 0 && i < member_count; i++) {
        key_of_name(&key, 'S', set.key.number, members[i]);
        rc = row_get(txn, DB_CATALOG, val_of(&key), &found);
        if (rc == IMPEL_ERR_NOT_FOUND) {
            rc = row_put(txn, DB_CATALOG, val_of(&key),
                         (MDB_val){members[i].size, (void *)members[i].data});
            set.disk.count++;
            *added += 1;
        } else if (rc >= 0 &&
                   !bytes_equal((struct impel_bytes){found.mv_data, found.mv_size}, members[i])) {
            rc = catalog_other_name(txn, members[i]);
        }
    }
    if (rc >= 0 && *added > 0) {
        rc = collection_write(txn, &set);
        lmdb_signal(txn);
    }
    return rc;
}

int lmdb_collection_look(struct lmdb_txn *txn, struct impel_bytes name, struct lmdb_collection *out)
{
    struct collection collection;
    int rc = key_read(txn, name, &collection.key);

    rc = rc < 0 ? rc : collection_read(txn, &collection);
    if (rc >= 0) {
        struct impel_bytes bytes = {&collection.disk, sizeof(collection.disk)};
        *out = (struct lmdb_collection){collection.disk.count, hash_bytes(bytes, 0)};
    }
    return rc;
}

/* ---- the whole of it ---- */

static char element_letter(const struct disk_key *disk)
{
    return disk->kind == LMDB_KEY_LIST ? 'l' : 'S';
}

int collection_drop(struct lmdb_txn *txn, const struct disk_key *disk)
{
    struct collection collection = {.key = *disk};
    struct lmdb_key key;
    uint64_t count = 0;
    int rc = collection_read(txn, &collection);

    key_of_number(&key, element_letter(disk), disk->number);
    rc = rc < 0 ? rc : row_delete_all(txn, DB_CATALOG, key.data, key.size, &count);
    /* The last element of a list is gone before its key is. */
    bool emptied = disk->kind == LMDB_KEY_LIST && count == 0 && collection.disk.count == 1;
    return rc >= 0 && count != collection.disk.count && !emptied ? collection_damaged(txn) : rc;
}

int collection_copy(struct lmdb_txn *txn, const struct disk_key *from, struct impel_bytes to)
{
    struct collection copy = {.key = *from};
    struct lmdb_key prefix, key_to;
    uint8_t at[KEY_SIZE_MAX + 1];
    struct arena arena = {.blocks = NULL};
    struct impel_bytes value = {NULL, 0};
    MDB_val found;
    uint64_t number = 0;
    int rc = collection_read(txn, &copy);

    rc = rc < 0 ? rc : key_create(txn, to, (enum lmdb_key_kind)from->kind, &number);
    copy.key.number = number;
    rc = rc < 0 ? rc : collection_write(txn, &copy);
    key_of_number(&prefix, element_letter(from), from->number);
    memcpy(at, prefix.data, prefix.size);
    size_t at_size = prefix.size;
    while (rc >= 0) {
        MDB_val key = {at_size, at};
        rc = row_seek(txn, DB_CATALOG, &key, prefix.size, &found);
        if (rc < 0) {
            break;
        }
        if (key.mv_size > KEY_SIZE_MAX) {
            rc = collection_damaged(txn);
            break;
        }
        key_to.size = key.mv_size;
        memcpy(key_to.data, key.mv_data, key.mv_size);
        memcpy(at, key.mv_data, key.mv_size);
        at_size = key.mv_size;
        at[at_size++] = 0; /* the next key there can be */
        if (!arena_copy(&arena, (struct impel_bytes){found.mv_data, found.mv_size}, &value)) {
            rc = lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
            break;
        }
        put_be64(key_to.data + 1, number);
        rc = row_put(txn, DB_CATALOG, val_of(&key_to), (MDB_val){value.size, (void *)value.data});
        arena_reset(&arena, 4096);
    }
    arena_release(&arena);
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}
