/* consumer.c -- consumers of a group. */
#include "store/lmdb/txn.h"

static int consumer_load(struct lmdb_txn *txn,
                         struct lmdb_group *group,
                         uint64_t number,
                         struct lmdb_consumer **out)
{
    struct object *object = object_by_number(txn, OBJECT_CONSUMER, number);
    struct disk_consumer disk;
    struct impel_bytes name;

    if (object != NULL && object->parent == group->number) {
        *out = &object->consumer;
        return txn->status;
    }
    int rc = object_read(txn, OBJECT_CONSUMER, number, &disk, sizeof(disk), &name);
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && disk.group != group->number)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a row belongs to a consumer that is not there");
    }
    if (rc < 0) {
        return rc;
    }
    object = object_add(txn, OBJECT_CONSUMER, number, group->number, name);
    if (object == NULL) {
        return txn->status;
    }
    struct lmdb_consumer *consumer = &object->consumer;
    consumer->group = group;
    consumer->seen_ms = disk.seen_ms;
    consumer->active_ms = disk.active_ms;
    consumer->pending = disk.pending;
    *out = consumer;
    return IMPEL_OK;
}

int consumer_flush(struct lmdb_txn *txn, struct lmdb_consumer *consumer)
{
    struct disk_consumer disk = {
        .group = consumer->group->number,
        .seen_ms = consumer->seen_ms,
        .active_ms = consumer->active_ms,
        .pending = consumer->pending,
    };

    consumer->dirty = false;
    return object_write(txn, OBJECT_CONSUMER, consumer->number, &disk, sizeof(disk),
                        consumer->name);
}

void lmdb_consumer_changed(struct lmdb_txn *txn, struct lmdb_consumer *consumer)
{
    (void)txn;
    consumer->dirty = true;
}

int lmdb_consumer_get(struct lmdb_txn *txn,
                      struct lmdb_group *group,
                      uint64_t number,
                      struct lmdb_consumer **out)
{
    return consumer_load(txn, group, number, out);
}

int lmdb_consumer_find(struct lmdb_txn *txn,
                       struct lmdb_group *group,
                       struct impel_bytes name,
                       struct lmdb_consumer **out)
{
    struct object *object = object_by_name(txn, OBJECT_CONSUMER, group->number, name);
    uint64_t number = 0;

    if (object != NULL) {
        *out = &object->consumer;
        return txn->status;
    }
    int rc = catalog_find(txn, 'c', group->number, name, &number);
    if (rc < 0 || number == 0) {
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    rc = consumer_load(txn, group, number, out);
    if (rc >= 0 && !bytes_equal((*out)->name, name)) {
        return catalog_other_name(txn, name);
    }
    return rc;
}

int lmdb_consumer_open(struct lmdb_txn *txn,
                       struct lmdb_group *group,
                       struct impel_bytes name,
                       struct lmdb_consumer **out)
{
    uint64_t number = 0;
    int rc = lmdb_consumer_find(txn, group, name, out);

    if (rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    rc = catalog_new_number(txn, &number);
    rc = rc < 0 ? rc : catalog_set(txn, 'c', group->number, name, number);
    if (rc < 0) {
        return rc;
    }
    struct object *object = object_add(txn, OBJECT_CONSUMER, number, group->number, name);
    if (object == NULL) {
        return txn->status;
    }
    object->consumer.group = group;
    object->consumer.seen_ms = txn->now_ms;
    object->consumer.active_ms = -1;
    object->consumer.dirty = true;
    group->consumer_count++;
    group->dirty = true;
    *out = &object->consumer;
    return 1;
}

int consumer_remove(struct lmdb_txn *txn, struct lmdb_consumer *consumer)
{
    struct lmdb_group *group = consumer->group;
    struct lmdb_key key;
    int rc = catalog_delete(txn, 'c', group->number, consumer->name);

    if (rc >= 0) {
        key_of_number(&key, 'C', consumer->number);
        rc = row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
        rc = rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc; /* made in this transaction */
    }
    OBJECT_OF(consumer, consumer)->gone = true;
    group->consumer_count--;
    group->dirty = true;
    return rc == IMPEL_ERR_NOT_FOUND
               ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a consumer without a name")
               : rc;
}

int lmdb_consumer_delete(struct lmdb_txn *txn, struct lmdb_consumer *consumer, uint64_t *pending)
{
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    uint64_t count = consumer->pending;
    int rc = lmdb_walk_owned(&walk, txn, consumer, ID_MIN);

    while (rc >= 0 && (rc = lmdb_next_pending(&walk, &row)) > 0) {
        rc = lmdb_pending_delete(txn, consumer->group, &row);
    }
    lmdb_walk_end(&walk);
    rc = rc < 0 ? rc : consumer_remove(txn, consumer);
    if (pending != NULL) {
        *pending = count;
    }
    return rc;
}
