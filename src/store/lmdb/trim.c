/* trim.c -- trimming a stream, and what its groups still need of an entry.
 *
 * Plain trimming goes as Redis's does: whole nodes first, then inside the oldest one. With DELREF
 * the pending rows of what goes are removed in all groups; with ACKED only goes what every group has
 * read and finished with, wherever it stands, so the walk passes by what has to stay. */
#include "store/lmdb/txn.h"

/* ---- what groups need ---- */

int lmdb_entry_needed(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id)
{
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    struct lmdb_pending row;
    bool needed = false;
    int rc = lmdb_walk_groups(&walk, txn, stream);

    while (rc >= 0 && !needed && (rc = lmdb_next_group(&walk, &group)) > 0) {
        needed = id_compare(id, group->last_id) > 0;
        if (!needed) {
            rc = lmdb_pending_get(txn, group, id, &row);
            needed = rc >= 0;
            rc = rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
        }
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : needed;
}

int lmdb_entry_forget(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id)
{
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    struct lmdb_pending row;
    int count = 0;
    int rc = lmdb_walk_groups(&walk, txn, stream);

    while (rc >= 0 && (rc = lmdb_next_group(&walk, &group)) > 0) {
        rc = lmdb_pending_get(txn, group, id, &row);
        if (rc >= 0) {
            rc = lmdb_pending_delete(txn, group, &row);
            count++;
        }
        rc = rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : count;
}

/* ---- KEEPREF, DELREF: from the oldest on ---- */

/* The same one by one, and what is pending of each goes along. */
static int entries_forget_first(struct lmdb_txn *txn,
                                struct lmdb_stream *stream,
                                const struct row_run *run,
                                uint64_t *deleted)
{
    int rc = txn->status;

    while (rc >= 0 && *deleted < run->most) {
        uint8_t key[ROW_KEY_SIZE];
        MDB_val found = {run->size, (void *)run->prefix};
        MDB_val value;
        rc = row_seek(txn, DB_ENTRIES, &found, run->size, &value);
        if (rc < 0 || (run->end != NULL && memcmp(found.mv_data, run->end, ROW_KEY_SIZE) >= 0)) {
            break;
        }
        memcpy(key, found.mv_data, sizeof(key));
        rc = lmdb_entry_forget(txn, stream, get_id(key + 8));
        rc = rc < 0 ? rc : row_delete(txn, DB_ENTRIES, (MDB_val){sizeof(key), key});
        ++*deleted;
    }
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

/* Deletes the first live entries: at most `count`, and only those below `limit` (NULL: all are).
 * Returns how many went, or a hard error. */
static int64_t entries_delete_first(struct lmdb_txn *txn,
                                    struct lmdb_stream *stream,
                                    uint64_t count,
                                    const struct impel_id *limit,
                                    enum lmdb_refs refs)
{
    uint64_t deleted = 0;
    uint8_t prefix[8];
    uint8_t end[ROW_KEY_SIZE];
    struct row_run run = {.prefix = prefix, .size = sizeof(prefix), .most = count};

    put_be64(prefix, stream->number);
    if (limit != NULL) {
        row_key(end, stream->number, *limit);
        run.end = end;
    }
    int rc = refs == LMDB_REFS_DELETE ? entries_forget_first(txn, stream, &run, &deleted)
                                      : row_delete_run(txn, DB_ENTRIES, &run, &deleted);
    return rc < 0 ? rc : (int64_t)deleted;
}

/* One node less, or a part of it, as Redis does it: whole nodes first, then inside the oldest one.
 * Returns 1 to go on, 0 to stop, or a hard error. */
static int trim_step(struct lmdb_txn *txn,
                     struct lmdb_stream *stream,
                     const struct lmdb_trim *trim,
                     uint64_t *removed)
{
    struct lmdb_node node;
    int rc = node_first(txn, stream, &node);

    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? 0 : rc;
    }
    if ((!trim->by_id && stream->length <= trim->length_max) ||
        (trim->approximate && trim->limit > 0 && *removed + node.live > trim->limit)) {
        return 0;
    }
    bool whole = trim->by_id ? id_compare(node.last, trim->id_min) < 0
                             : stream->length - node.live >= trim->length_max;
    if (!whole && trim->approximate) {
        return 0;
    }
    uint64_t count = whole         ? node.live
                     : trim->by_id ? node.live
                                   : stream->length - trim->length_max;
    const struct impel_id *limit = !whole && trim->by_id ? &trim->id_min : NULL;
    int64_t deleted = entries_delete_first(txn, stream, count, limit, trim->refs);
    if (deleted < 0) {
        return (int)deleted;
    }
    if (whole && (uint64_t)deleted != node.live) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a node has fewer entries than it counts");
    }
    node.live -= (uint32_t)deleted;
    stream->length -= (uint64_t)deleted;
    *removed += (uint64_t)deleted;
    rc = node_put(txn, stream, &node, !whole);
    return rc < 0 ? rc : whole;
}

/* ---- ACKED: what nobody needs, wherever it stands ---- */

/* Trims from the entries start <= id <= end those that no group needs, down to MAXLEN or up to
 * MINID; with `whole` all of them. */
static int trim_acked(struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      const struct lmdb_trim *trim,
                      const struct lmdb_node *whole,
                      uint64_t *removed)
{
    struct lmdb_walk walk = {0};
    struct lmdb_raw raw;
    uint8_t key[ROW_KEY_SIZE];
    int rc = lmdb_walk_entries(&walk, txn, stream, whole != NULL ? whole->first : ID_MIN,
                               whole != NULL ? whole->last : ID_MAX, false);

    while (rc >= 0 && (rc = lmdb_next_entry(&walk, &raw)) > 0) {
        struct impel_id id = raw.id;
        if (whole == NULL && (trim->by_id ? id_compare(id, trim->id_min) >= 0
                                          : stream->length <= trim->length_max)) {
            break;
        }
        rc = lmdb_entry_needed(txn, stream, id);
        if (rc == 0) {
            row_key(key, stream->number, id);
            rc = row_delete(txn, DB_ENTRIES, (MDB_val){sizeof(key), key});
            rc = rc < 0 ? rc : node_delete(txn, stream, id);
            stream->length--;
            ++*removed;
        }
    }
    lmdb_walk_end(&walk);
    return rc;
}

/* With `~`: the nodes that plain trimming would take, less what is needed in them. */
static int trim_acked_nodes(struct lmdb_txn *txn,
                            struct lmdb_stream *stream,
                            const struct lmdb_trim *trim,
                            uint64_t *removed)
{
    struct lmdb_node node;
    struct impel_id from = ID_MIN;
    bool more = true;
    int rc = txn->status;

    while (rc >= 0 && more) {
        rc = node_from(txn, stream, from, &node);
        if (rc < 0 || (!trim->by_id && stream->length <= trim->length_max) ||
            (trim->limit > 0 && *removed + node.live > trim->limit)) {
            break;
        }
        if (trim->by_id ? id_compare(node.last, trim->id_min) >= 0
                        : stream->length - node.live < trim->length_max) {
            break;
        }
        from = node.last;
        more = id_next(&from);
        rc = trim_acked(txn, stream, trim, &node, removed);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

int lmdb_stream_trim(struct lmdb_txn *txn,
                     struct lmdb_stream *stream,
                     const struct lmdb_trim *trim,
                     uint64_t *removed)
{
    uint64_t count = 0;
    int rc = txn->status < 0 ? txn->status : 1;

    if (trim->refs == LMDB_REFS_ACKED && stream->group_count > 0) {
        rc = rc < 0              ? rc
             : trim->approximate ? trim_acked_nodes(txn, stream, trim, &count)
                                 : trim_acked(txn, stream, trim, NULL, &count);
    } else {
        while (rc > 0) {
            rc = trim_step(txn, stream, trim, &count);
        }
    }
    if (rc >= 0 && count > 0) {
        rc = stream_find_first(txn, stream);
    }
    *removed = count;
    return rc;
}
