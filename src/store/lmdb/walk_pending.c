/* walk_pending.c -- going through pending entries: a group's, one consumer's, in the order of CLAIM.
 *
 * A walk by ID keeps the next ID to look at and no cursor: the row at hand mostly has it. */
#include "store/lmdb/txn.h"

static int walk_ids(struct lmdb_walk *walk,
                    struct lmdb_txn *txn,
                    enum lmdb_database db,
                    void *owner,
                    struct impel_id start)
{
    *walk = (struct lmdb_walk){.txn = txn, .database = db, .owner = owner, .from = start};
    return txn->status;
}

int lmdb_walk_pending(struct lmdb_walk *walk,
                      struct lmdb_txn *txn,
                      struct lmdb_group *group,
                      struct impel_id start)
{
    return walk_ids(walk, txn, DB_PEL, group, start);
}

int lmdb_walk_owned(struct lmdb_walk *walk,
                    struct lmdb_txn *txn,
                    struct lmdb_consumer *consumer,
                    struct impel_id start)
{
    return walk_ids(walk, txn, DB_OWNED, consumer, start);
}

int lmdb_walk_order(struct lmdb_walk *walk, struct lmdb_txn *txn, struct lmdb_group *group)
{
    return walk_catalog(walk, txn, 't', group->number, group);
}

/* The key of the first row at or behind an ID in which the consumer has entries. */
static int
owned_from(struct lmdb_txn *txn, uint64_t consumer, struct impel_id from, struct impel_id *first)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;

    row_key(start, consumer, from);
    int rc = row_seek(txn, DB_OWNED, &key, 8, &value);
    if (rc >= 0 && key.mv_size != ROW_KEY_SIZE) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a row's key is damaged");
    }
    if (rc >= 0) {
        *first = get_id((const uint8_t *)key.mv_data + 8);
    }
    return rc;
}

/* The next slot of the group, or of the owner, at walk->from or behind: first in the row in whose
 * range that is, then in those behind it. NOT_FOUND at the end. */
static int walk_slot(struct lmdb_walk *walk,
                     struct lmdb_group *group,
                     uint64_t owner,
                     struct block **block,
                     size_t *index)
{
    struct lmdb_txn *txn = walk->txn;
    struct impel_id first = walk->from;
    int rc = pending_row_at(txn, group->number, walk->from, block);

    if (rc >= 0) {
        *index = block_next(*block, block_find(*block, walk->from), owner);
        if (*index < (*block)->head.count) {
            return rc;
        }
    } else if (rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    rc = owner == 0 ? txn->status : owned_from(txn, owner, walk->from, &first);
    rc = rc < 0 ? rc : pending_row_from(txn, group->number, first, block);
    if (rc < 0) {
        return rc;
    }
    *index = block_next(*block, 0, owner);
    if (*index == (*block)->head.count || (owner != 0 && !id_equal((*block)->first, first))) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT,
                         "a row of the PEL has none of the entries it is for");
    }
    return rc;
}

static int walk_next_by_id(struct lmdb_walk *walk, struct lmdb_pending *out)
{
    struct lmdb_consumer *consumer = walk->database == DB_OWNED ? walk->owner : NULL;
    struct block *block = NULL;
    size_t index = 0;

    if (walk->txn->status < 0 || walk->owner == NULL) {
        return walk->txn->status;
    }
    int rc = walk_slot(walk, consumer != NULL ? consumer->group : walk->owner,
                       consumer != NULL ? consumer->number : 0, &block, &index);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        walk->owner = NULL;
        return walk->txn->status;
    }
    rc = rc < 0 ? rc : pending_read(walk->txn, block, index, out);
    if (rc < 0) {
        return rc;
    }
    if (id_compare(out->id, walk->from) < 0) {
        return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT, "a row of the PEL is not in order");
    }
    walk->from = out->id;
    if (!id_next(&walk->from)) {
        walk->owner = NULL; /* that was the last ID there can be */
    }
    return 1;
}

static int walk_next_in_order(struct lmdb_walk *walk, struct lmdb_pending *out)
{
    MDB_val key = {0, NULL};
    MDB_val value;
    int rc = walk_next(walk, &key, &value);

    if (rc <= 0) {
        return rc;
    }
    if (key.mv_size != walk->prefix_size + 24) {
        return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT, "a row of an order is damaged");
    }
    rc = lmdb_pending_get(walk->txn, walk->owner,
                          get_id((const uint8_t *)key.mv_data + walk->prefix_size + 8), out);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return lmdb_fail(walk->txn, IMPEL_ERR_CORRUPT,
                         "an entry in the order of the PEL is not in it");
    }
    return rc < 0 ? rc : 1;
}

int lmdb_next_pending(struct lmdb_walk *walk, struct lmdb_pending *out)
{
    return walk->database == DB_CATALOG ? walk_next_in_order(walk, out)
                                        : walk_next_by_id(walk, out);
}
