/* check_pending.c -- the check of pending entries: the rows by ID, and those by owner, against each
 * other. */
#include "store/lmdb/check_own.h"

#include <string.h>

/* A row with its bitmap; false if it is damaged. What is damaged in one place is told in one place: the
 * transaction goes on. */
static bool open_row(struct checking *checking, MDB_val key, MDB_val value, struct block *out)
{
    uint64_t group = get_be64(key.mv_data);

    if (!block_open(out, get_id((const uint8_t *)key.mv_data + 8), value)) {
        return false;
    }
    int rc = block_read_gone(checking->txn, group, out);
    checking->txn->status = rc == IMPEL_ERR_CORRUPT ? IMPEL_OK : checking->txn->status;
    return rc >= 0;
}

/* The row whose key this is. */
static bool
row_of(struct checking *checking, uint64_t group, struct impel_id first, struct block *out)
{
    uint8_t at[ROW_KEY_SIZE];
    MDB_val key = {sizeof(at), at};
    MDB_val value;

    row_key(at, group, first);
    return row_get(checking->txn, DB_PEL, key, &value) >= 0 && open_row(checking, key, value, out);
}

bool check_pending_get(struct checking *checking,
                       uint64_t group,
                       struct impel_id id,
                       struct lmdb_pending *out)
{
    uint8_t limit[ROW_KEY_SIZE];
    struct block block;
    MDB_val key;
    MDB_val value;

    row_key(limit, group, id);
    if (row_seek_before(checking->txn, DB_PEL, limit, &key, &value) < 0 ||
        !open_row(checking, key, value, &block)) {
        return false;
    }
    size_t index = block_find_live(&block, id);
    return index < block.head.count && block_read(&block, index, out);
}

static uint64_t live_of(const struct block *block, uint64_t owner)
{
    uint64_t count = 0;

    for (size_t i = block_next(block, 0, owner); i < block->head.count;
         i = block_next(block, i + 1, owner)) {
        count++;
    }
    return count;
}

static void check_owner(struct checking *checking,
                        const struct seen *group,
                        const struct block *block,
                        uint64_t number)
{
    struct seen *owner = check_find(&checking->consumers, number);
    uint8_t key[ROW_KEY_SIZE];
    MDB_val found;
    char text[ID_TEXT_SIZE];

    row_key(key, number, block->first);
    if (owner == NULL || owner->parent != group->number) {
        check_problem(checking, "group %llu: pending entry %s has no owner", NUMBER(group->number),
                      id_format(block->first, text));
    } else if (row_get(checking->txn, DB_OWNED, (MDB_val){sizeof(key), key}, &found) < 0) {
        check_problem(checking, "group %llu: pending entry %s is missing at its owner",
                      NUMBER(group->number), id_format(block->first, text));
    }
}

/* The slots of a row: in order, behind those of the row before, and each somebody's. */
static void check_slots(struct checking *checking, struct seen *group, const struct block *block)
{
    struct lmdb_pending row;
    char text[ID_TEXT_SIZE];
    uint64_t live = 0;

    for (size_t i = 0; i < block->head.count && !checking->stop; i++) {
        struct impel_id id = block_id(block, i);
        if (id_compare(id, block->first) < 0 ||
            (group->counted + i > 0 && id_compare(id, group->pending_end) <= 0)) {
            check_problem(checking, "group %llu: pending entry %s is out of place",
                          NUMBER(group->number), id_format(id, text));
        }
        group->pending_end = id;
        if (block_is_live(block, i)) {
            live++;
            if (!block_read(block, i, &row)) {
                check_problem(checking, "group %llu: pending entry %s is damaged",
                              NUMBER(group->number), id_format(id, text));
            }
        }
    }
    if (live == 0) {
        check_problem(checking, "group %llu: the row of %s has no pending entry",
                      NUMBER(group->number), id_format(block->first, text));
    }
    group->counted += live;
    checking->counts.pending += live;
}

void check_pending(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *group = check_find(&checking->groups, get_be64(key.mv_data));
    struct impel_id first = get_id((const uint8_t *)key.mv_data + 8);
    struct block block;
    uint64_t owners[BLOCK_OWNERS_MAX];
    char text[ID_TEXT_SIZE];

    if (group == NULL || !open_row(checking, key, value, &block)) {
        check_problem(checking, "a pending entry of group %llu, which is not there or damaged",
                      NUMBER(get_be64(key.mv_data)));
        return;
    }
    if (group->counted > 0 && id_compare(first, group->pending_end) <= 0) {
        check_problem(checking, "group %llu: the row of pending entry %s begins too early",
                      NUMBER(group->number), id_format(first, text));
    }
    check_slots(checking, group, &block);
    if (!block.single) {
        check_version(checking, LMDB_FORMAT_BLOCKS);
    }
    size_t count = block_owners(&block, owners);
    group->nobodys += count == 0;
    for (size_t i = 0; i < count; i++) {
        check_owner(checking, group, &block, owners[i]);
    }
}

bool check_bitmap(struct checking *checking, MDB_val key, MDB_val value)
{
    struct block block;

    if (*(const uint8_t *)key.mv_data != 'd') {
        return false;
    }
    check_version(checking, LMDB_FORMAT_BLOCKS);
    if (key.mv_size != 1 + ROW_KEY_SIZE || value.mv_size != sizeof(block.gone) ||
        !row_of(checking, get_be64((const uint8_t *)key.mv_data + 1),
                get_id((const uint8_t *)key.mv_data + 9), &block) ||
        block.single || block_live(&block) == block.head.count) {
        check_problem(checking, "catalog: what is acknowledged of a row that is not there");
    }
    return true;
}

void check_owned(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *owner = check_find(&checking->consumers, get_be64(key.mv_data));
    struct impel_id first = get_id((const uint8_t *)key.mv_data + 8);
    struct block block;
    char text[ID_TEXT_SIZE];

    (void)value;
    if (owner == NULL) {
        check_problem(checking, "an entry owned by consumer %llu, which is not there",
                      NUMBER(get_be64(key.mv_data)));
        return;
    }
    uint64_t count =
        row_of(checking, owner->parent, first, &block) ? live_of(&block, owner->number) : 0;
    owner->counted += count;
    if (count == 0) {
        check_problem(checking, "consumer %llu owns %s, which is not pending with it",
                      NUMBER(owner->number), id_format(first, text));
    }
}
