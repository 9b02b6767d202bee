/* pending.c -- pending entries: by ID in rows of one or many (block.h), beside each block its bitmap of
 * what is acknowledged, and for each owner the keys of the rows in which it has some.
 *
 * The row that was looked at last is kept in the transaction: mostly the next entry is in it, too. */
#include "store/lmdb/txn.h"

enum {
    BLOCK_SPARSE_ROOM = 16, /* a row with more slots than this, */
    BLOCK_SPARSE_PART = 8,  /* of which only one in so many is left, gets smaller */
};

static int damaged(struct lmdb_txn *txn)
{
    return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry's row is damaged");
}

/* ---- the row at hand ---- */

/* The key of a block's bitmap. */
static void gone_key(struct lmdb_key *key, uint64_t group, struct impel_id first)
{
    key->data[0] = 'd';
    row_key(key->data + 1, group, first);
    key->size = 1 + ROW_KEY_SIZE;
}

/* Nothing is acknowledged of a block without one. */
int block_read_gone(struct lmdb_txn *txn, uint64_t group, struct block *block)
{
    struct lmdb_key key;
    MDB_val value;

    if (block->single) {
        return txn->status;
    }
    gone_key(&key, group, block->first);
    int rc = row_get(txn, DB_CATALOG, (MDB_val){key.size, key.data}, &value);
    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    }
    if (value.mv_size != sizeof(block->gone)) {
        return damaged(txn);
    }
    memcpy(block->gone, value.mv_data, sizeof(block->gone));
    for (size_t i = block->head.count; i < (size_t)64 * BLOCK_GONE_WORDS; i++) {
        if (!block_is_live(block, i)) {
            return damaged(txn);
        }
    }
    return IMPEL_OK;
}

/* The row becomes the one at hand, for this ID and those around it. */
static int
at_hand(struct lmdb_txn *txn, uint64_t group, struct impel_id id, MDB_val key, MDB_val value)
{
    struct pending_row_at_hand *hand = &txn->hand;

    hand->group = 0;
    if (key.mv_size != ROW_KEY_SIZE ||
        !block_open(&hand->block, get_id((const uint8_t *)key.mv_data + 8), value)) {
        return damaged(txn);
    }
    hand->group = group;
    hand->changes = txn->changes;
    hand->writable = false;
    hand->gone = NULL;
    hand->last = id_equal(id, ID_MAX);
    block_expect(&hand->block, id);
    return block_read_gone(txn, group, &hand->block);
}

static int delete_gone(struct lmdb_txn *txn, uint64_t group, struct impel_id first)
{
    struct lmdb_key key;

    gone_key(&key, group, first);
    int rc = row_delete(txn, DB_CATALOG, (MDB_val){key.size, key.data});
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

int pending_drop(struct lmdb_txn *txn, struct lmdb_group *group)
{
    uint8_t prefix[9] = {'d'};

    put_be64(prefix + 1, group->number);
    int rc = row_delete_all(txn, DB_PEL, prefix + 1, sizeof(prefix) - 1, NULL);
    return rc < 0 ? rc : row_delete_all(txn, DB_CATALOG, prefix, sizeof(prefix), NULL);
}

/* Writes the bitmap of the block at hand, which stays at hand. */
static int write_gone(struct lmdb_txn *txn)
{
    struct pending_row_at_hand *hand = &txn->hand;
    const struct block *block = &hand->block;
    struct lmdb_key key;
    int rc = txn->status;

    if (block_live(block) == block->head.count) {
        return delete_gone(txn, hand->group, block->first);
    }
    if (hand->gone == NULL) {
        gone_key(&key, hand->group, block->first);
        rc = row_reserve(txn, DB_CATALOG, (MDB_val){key.size, key.data}, sizeof(block->gone),
                         &hand->gone);
        hand->changes = txn->changes;
    }
    if (rc >= 0) {
        memcpy(hand->gone, block->gone, sizeof(block->gone));
    }
    return rc;
}

static bool hand_has(const struct lmdb_txn *txn, uint64_t group, struct impel_id id)
{
    const struct pending_row_at_hand *hand = &txn->hand;

    if (hand->group != group || hand->changes != txn->changes ||
        id_compare(id, hand->block.first) < 0) {
        return false;
    }
    return hand->last || (hand->block.head.count > 0 &&
                          id_compare(id, block_id(&hand->block, hand->block.head.count - 1U)) <= 0);
}

int pending_row_at(struct lmdb_txn *txn, uint64_t group, struct impel_id id, struct block **out)
{
    uint8_t limit[ROW_KEY_SIZE];
    MDB_val key;
    MDB_val value;

    *out = &txn->hand.block;
    if (txn->status < 0 || hand_has(txn, group, id)) {
        return txn->status;
    }
    row_key(limit, group, id);
    int rc = row_seek_before(txn, DB_PEL, limit, &key, &value);
    return rc < 0 ? rc : at_hand(txn, group, id, key, value);
}

int pending_row_from(struct lmdb_txn *txn, uint64_t group, struct impel_id id, struct block **out)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;

    *out = &txn->hand.block;
    row_key(start, group, id);
    int rc = row_seek(txn, DB_PEL, &key, 8, &value);
    return rc < 0 ? rc : at_hand(txn, group, id, key, value);
}

int pending_read(struct lmdb_txn *txn,
                 const struct block *block,
                 size_t index,
                 struct lmdb_pending *out)
{
    return block_read(block, index, out) ? IMPEL_OK : damaged(txn);
}

/* The page is this transaction's own from here on. */
static int make_writable(struct lmdb_txn *txn)
{
    struct pending_row_at_hand *hand = &txn->hand;
    struct block *block = &hand->block;
    uint8_t copy[BLOCK_SIZE_MAX];
    uint8_t key[ROW_KEY_SIZE];
    void *value = NULL;

    if (hand->writable) {
        return txn->status;
    }
    memcpy(copy, block->bytes, block->size);
    row_key(key, hand->group, block->first);
    int rc = row_reserve(txn, DB_PEL, (MDB_val){sizeof(key), key}, block->size, &value);
    if (rc < 0) {
        return rc;
    }
    memcpy(value, copy, block->size);
    block->bytes = value;
    hand->writable = true;
    hand->changes = txn->changes;
    return IMPEL_OK;
}

/* ---- reading ---- */

int lmdb_pending_get(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     struct impel_id id,
                     struct lmdb_pending *out)
{
    struct block *block = NULL;
    int rc = pending_row_at(txn, group->number, id, &block);

    if (rc < 0) {
        return rc;
    }
    size_t index = block_find_live(block, id);
    if (index == block->head.count) {
        return IMPEL_ERR_NOT_FOUND;
    }
    return pending_read(txn, block, index, out);
}

int lmdb_pending_first(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out)
{
    struct block *block = NULL;

    if (group->pending == 0) {
        return txn->status < 0 ? txn->status : IMPEL_ERR_NOT_FOUND;
    }
    int rc = pending_row_from(txn, group->number, ID_MIN, &block);
    if (rc < 0) {
        return rc;
    }
    size_t index = block_next(block, 0, 0);
    return index < block->head.count ? pending_read(txn, block, index, out) : damaged(txn);
}

int lmdb_pending_last(struct lmdb_txn *txn, struct lmdb_group *group, struct lmdb_pending *out)
{
    struct block *block = NULL;

    if (group->pending == 0) {
        return txn->status < 0 ? txn->status : IMPEL_ERR_NOT_FOUND;
    }
    int rc = pending_row_at(txn, group->number, ID_MAX, &block);
    if (rc < 0) {
        return rc;
    }
    size_t index = block->head.count;
    while (index > 0 && !block_is_live(block, index - 1)) {
        index--;
    }
    return index > 0 ? pending_read(txn, block, index - 1, out) : damaged(txn);
}

/* ---- owners ---- */

/* A consumer has its first entry of a row, or its last one of it goes. */
static int owned_row(struct lmdb_txn *txn, uint64_t owner, struct impel_id first, bool put)
{
    uint8_t key[ROW_KEY_SIZE];

    if (owner == 0 || txn->status < 0) {
        return txn->status;
    }
    row_key(key, owner, first);
    if (put) {
        return row_put(txn, DB_OWNED, (MDB_val){sizeof(key), key}, (MDB_val){0, key});
    }
    int rc = row_delete(txn, DB_OWNED, (MDB_val){sizeof(key), key});
    return rc == IMPEL_ERR_NOT_FOUND
               ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry is missing at its owner")
               : rc;
}

static int owned_rows(struct lmdb_txn *txn, struct impel_id first, const struct block_moved *moved)
{
    int rc = owned_row(txn, moved->lost, first, false);
    return rc < 0 ? rc : owned_row(txn, moved->gained, first, true);
}

static int owner_count(struct lmdb_txn *txn, struct lmdb_group *group, uint64_t owner, int change)
{
    struct lmdb_consumer *consumer = NULL;

    if (owner == 0) {
        return txn->status;
    }
    int rc = lmdb_consumer_get(txn, group, owner, &consumer);
    if (rc >= 0) {
        consumer->pending += (uint64_t)(int64_t)change;
        consumer->dirty = true;
    }
    return rc;
}

/* ---- rows anew ---- */

struct rebuild {
    struct lmdb_txn *txn;
    uint64_t group;
    struct impel_id first; /* the old row's key */
    uint64_t owners[BLOCK_OWNERS_MAX];
    size_t owner_count; /* of the old row; 0 in `owners`: stays in a row of the same key */
    struct lmdb_pending rows[BLOCK_SLOTS_MAX + 1];
    size_t count;
    bool replaced;
};

/* Takes in what is alive in the old row, and `row` (which may be NULL), instead of one of its ID. */
static int
rebuild_read(struct rebuild *rebuild, struct block *block, const struct lmdb_pending *row)
{
    bool pending = row != NULL;

    rebuild->owner_count = block_owners(block, rebuild->owners);
    for (size_t i = block_next(block, 0, 0); i < block->head.count;
         i = block_next(block, i + 1, 0)) {
        int order = pending ? id_compare(row->id, block_id(block, i)) : 1;
        if (order <= 0) {
            rebuild->rows[rebuild->count++] = *row;
            pending = false;
        }
        if (order == 0) {
            continue;
        }
        int rc = pending_read(rebuild->txn, block, i, &rebuild->rows[rebuild->count++]);
        if (rc < 0) {
            return rc;
        }
    }
    if (pending) {
        rebuild->rows[rebuild->count++] = *row;
    }
    return IMPEL_OK;
}

static int rebuild_write(struct rebuild *rebuild, const struct block_row *row)
{
    struct lmdb_txn *txn = rebuild->txn;
    uint8_t key[ROW_KEY_SIZE];
    bool same = id_equal(row->first, rebuild->first);
    int rc = row->size == sizeof(struct disk_pending)
                 ? txn->status
                 : catalog_need_version(txn, LMDB_FORMAT_BLOCKS);

    row_key(key, rebuild->group, row->first);
    rc = rc < 0 ? rc
                : row_put(txn, DB_PEL, (MDB_val){sizeof(key), key},
                          (MDB_val){row->size, (void *)row->bytes});
    rebuild->replaced = rebuild->replaced || same;
    for (size_t i = 0; rc >= 0 && i < row->owner_count; i++) {
        size_t old = 0;
        while (same && old < rebuild->owner_count && rebuild->owners[old] != row->owners[i]) {
            old++;
        }
        if (same && old < rebuild->owner_count) {
            rebuild->owners[old] = 0;
        } else {
            rc = owned_row(txn, row->owners[i], row->first, true);
        }
    }
    return rc;
}

/* Writes the row at hand anew, as one or more, without what is gone and with `row`. */
static int
pending_rebuild(struct lmdb_txn *txn, struct block *block, const struct lmdb_pending *row)
{
    struct rebuild rebuild = {.txn = txn, .group = txn->hand.group, .first = block->first};
    struct block_row out;
    uint8_t key[ROW_KEY_SIZE];
    size_t done = 0;
    bool bitmap = block_live(block) < block->head.count;
    int rc = rebuild_read(&rebuild, block, row);

    rc = rc < 0 || !bitmap ? rc : delete_gone(txn, rebuild.group, rebuild.first);
    while (rc >= 0 && done < rebuild.count) {
        size_t left = rebuild.count - done;
        /* One more than a full row has: in two, so that both have room for the next. */
        size_t most = left > BLOCK_SLOTS_MAX - 2 && done == 0 ? left / 2 : left;
        block_build(&out, done == 0 ? rebuild.first : rebuild.rows[done].id, &rebuild.rows[done],
                    most);
        rc = rebuild_write(&rebuild, &out);
        done += out.count;
    }
    row_key(key, rebuild.group, rebuild.first);
    if (rc >= 0 && !rebuild.replaced) {
        rc = row_delete(txn, DB_PEL, (MDB_val){sizeof(key), key});
    }
    for (size_t i = 0; rc >= 0 && i < rebuild.owner_count; i++) {
        rc = owned_row(txn, rebuild.owners[i], rebuild.first, false);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? damaged(txn) : rc;
}

/* ---- writing ---- */

/* A row of its own; none of its key is there. */
static int
single_put(struct lmdb_txn *txn, struct lmdb_group *group, const struct lmdb_pending *row)
{
    struct block_row out;
    uint8_t key[ROW_KEY_SIZE];

    block_build(&out, row->id, row, 1);
    row_key(key, group->number, row->id);
    int rc = row_put(txn, DB_PEL, (MDB_val){sizeof(key), key}, (MDB_val){out.size, out.bytes});
    return rc < 0 ? rc : owned_row(txn, row->owner, row->id, true);
}

/* Into the row in whose range it is. */
static int
pending_store(struct lmdb_txn *txn, struct lmdb_group *group, const struct lmdb_pending *row)
{
    struct block *block = NULL;
    struct block_moved moved = {0, 0};
    int rc = pending_row_at(txn, group->number, row->id, &block);

    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? single_put(txn, group, row) : rc;
    }
    size_t index = block_find(block, row->id);
    bool behind = index == block->head.count;
    bool there = !behind && id_equal(block_id(block, index), row->id);
    if (behind && !block->single && block->size == BLOCK_SIZE_MAX && index == block->room) {
        return single_put(txn, group, row);
    }
    if (!block->single && (there || behind)) {
        struct impel_id first = block->first;
        bool gone = there && !block_is_live(block, index);
        rc = make_writable(txn);
        if (rc < 0) {
            return rc;
        }
        if (there ? block_set(block, index, row, &moved) : block_append(block, row, &moved)) {
            rc = gone ? write_gone(txn) : rc;
            return rc < 0 ? rc : owned_rows(txn, first, &moved);
        }
    }
    return pending_rebuild(txn, block, row);
}

int lmdb_pending_put(struct lmdb_txn *txn,
                     struct lmdb_group *group,
                     const struct lmdb_pending *old,
                     const struct lmdb_pending *row)
{
    struct lmdb_pending now = *row;
    uint64_t owner = old == NULL ? 0 : old->owner;
    int rc = txn->status;

    if (now.owner == 0 && now.released == 0) {
        rc = catalog_new_number(txn, &now.released); /* they only grow */
    }
    rc = rc < 0 ? rc : order_change(txn, group, old, &now);
    if (rc >= 0 && owner != now.owner) {
        rc = owner_count(txn, group, owner, -1);
        rc = rc < 0 ? rc : owner_count(txn, group, now.owner, 1);
    }
    rc = rc < 0 ? rc : pending_store(txn, group, &now);
    if (old == NULL) {
        group->pending++;
        group->dirty = true;
    }
    return rc;
}

/* The row at hand has no entry any more. */
static int pending_row_delete(struct lmdb_txn *txn, const struct block *block)
{
    uint64_t group = txn->hand.group;
    struct impel_id first = block->first;
    uint8_t key[ROW_KEY_SIZE];

    row_key(key, group, first);
    int rc = block->single ? txn->status : delete_gone(txn, group, first);
    rc = rc < 0 ? rc : row_delete(txn, DB_PEL, (MDB_val){sizeof(key), key});
    return rc == IMPEL_ERR_NOT_FOUND ? damaged(txn) : rc;
}

static int pending_take_out(struct lmdb_txn *txn, struct block *block, size_t index)
{
    struct impel_id first = block->first;
    struct block_moved moved;

    block_remove(block, index, &moved);
    size_t live = block_live(block);
    bool sparse = block->room > BLOCK_SPARSE_ROOM && live <= block->room / BLOCK_SPARSE_PART;
    int rc = live == 0 ? pending_row_delete(txn, block)
             : sparse  ? pending_rebuild(txn, block, NULL)
                       : write_gone(txn);
    return rc < 0 ? rc : owned_rows(txn, first, &moved);
}

int lmdb_pending_delete(struct lmdb_txn *txn,
                        struct lmdb_group *group,
                        const struct lmdb_pending *old)
{
    struct block *block = NULL;
    int rc = pending_row_at(txn, group->number, old->id, &block);
    size_t index = rc < 0 ? 0 : block_find_live(block, old->id);

    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && index == block->head.count)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a pending entry is missing in its group");
    }
    group->pending--;
    group->dirty = true;
    rc = rc < 0 ? rc : order_change(txn, group, old, NULL);
    /* What the order wrote does not move the PEL, but the row at hand may have been let go. */
    rc = rc < 0 ? rc : pending_row_at(txn, group->number, old->id, &block);
    rc = rc < 0 ? rc : pending_take_out(txn, block, index);
    return rc < 0 ? rc : owner_count(txn, group, old->owner, -1);
}
