/* node.c -- nodes: runs of about a hundred entries, kept because `~` trims whole ones.
 *
 * The open node (the tail) lies in its stream's row, which an append writes anyway; a closed one is
 * a row of its own. A node without a live entry does not exist; if it was the tail, the one before
 * it is open again. Except that Redis's exact trimming leaves a node in place whose live entries it
 * deleted one by one: then it counts, fills up and is trimmed like any other, and so it does here. */
#include "store/lmdb/txn.h"

void lmdb_node_limits(struct lmdb_txn *txn, uint64_t size_bytes_max, uint64_t entries_max)
{
    txn->node_size_max = size_bytes_max == 0 ? LMDB_ENTRY_SIZE_MAX : size_bytes_max;
    txn->node_entries_max = entries_max == 0 ? UINT32_MAX : entries_max;
}

static int node_write(struct lmdb_txn *txn, uint64_t stream, const struct lmdb_node *node)
{
    uint8_t key[ROW_KEY_SIZE];
    struct disk_node disk = {
        .last_ms = node->last.ms,
        .last_seq = node->last.seq,
        .live = node->live,
        .total = node->total,
        .size_bytes = node->size_bytes,
    };

    row_key(key, stream, node->first);
    return row_put(txn, DB_NODES, (MDB_val){sizeof(key), key}, (MDB_val){sizeof(disk), &disk});
}

static int node_read(struct lmdb_txn *txn, MDB_val key, MDB_val value, struct lmdb_node *out)
{
    struct disk_node disk;

    if (key.mv_size != ROW_KEY_SIZE || value.mv_size != sizeof(disk)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a node's row is damaged");
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    *out = (struct lmdb_node){
        .first = get_id((const uint8_t *)key.mv_data + 8),
        .last = {disk.last_ms, disk.last_seq},
        .live = disk.live,
        .total = disk.total,
        .size_bytes = disk.size_bytes,
    };
    return IMPEL_OK;
}

int node_append(struct lmdb_txn *txn,
                struct lmdb_stream *stream,
                struct impel_id id,
                size_t size_bytes)
{
    struct lmdb_node *tail = &stream->tail;
    int rc = IMPEL_OK;

    if (tail->total > 0 && (tail->size_bytes + size_bytes >= txn->node_size_max ||
                            tail->total >= txn->node_entries_max)) {
        rc = node_write(txn, stream->number, tail);
        tail->total = 0;
    }
    if (tail->total == 0) {
        *tail = (struct lmdb_node){.first = id, .size_bytes = 16};
        stream->node_count++;
    }
    tail->last = id;
    tail->live++;
    tail->total++;
    tail->size_bytes += size_bytes;
    return rc;
}

/* The last closed node becomes the tail again. */
static int node_reopen(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    uint8_t limit[ROW_KEY_SIZE];
    MDB_val key;
    MDB_val value;

    stream->tail = (struct lmdb_node){0};
    row_key(limit, stream->number, ID_MAX);
    int rc = row_seek_before(txn, DB_NODES, limit, &key, &value);
    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
    }
    rc = node_read(txn, key, value, &stream->tail);
    if (rc >= 0) {
        row_key(limit, stream->number, stream->tail.first);
        rc = row_delete(txn, DB_NODES, (MDB_val){sizeof(limit), limit});
    }
    return rc;
}

int node_put(struct lmdb_txn *txn,
             struct lmdb_stream *stream,
             const struct lmdb_node *node,
             bool keep_empty)
{
    bool is_tail = stream->tail.total > 0 && id_equal(node->first, stream->tail.first);
    uint8_t key[ROW_KEY_SIZE];

    stream->dirty = true;
    if (node->live > 0 || keep_empty) {
        if (is_tail) {
            stream->tail = *node;
            return txn->status;
        }
        return node_write(txn, stream->number, node);
    }
    stream->node_count--;
    if (is_tail) {
        return node_reopen(txn, stream);
    }
    row_key(key, stream->number, node->first);
    return row_delete(txn, DB_NODES, (MDB_val){sizeof(key), key});
}

int node_from(struct lmdb_txn *txn,
              struct lmdb_stream *stream,
              struct impel_id id,
              struct lmdb_node *out)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;
    int rc = IMPEL_ERR_NOT_FOUND;

    if (stream->node_count > 1) {
        row_key(start, stream->number, id);
        rc = row_seek(txn, DB_NODES, &key, 8, &value);
    }
    if (rc >= 0) {
        return node_read(txn, key, value, out);
    }
    if (rc == IMPEL_ERR_NOT_FOUND && stream->tail.total > 0 &&
        id_compare(id, stream->tail.first) <= 0) {
        *out = stream->tail;
        return txn->status;
    }
    return rc;
}

int node_first(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_node *out)
{
    return node_from(txn, stream, ID_MIN, out);
}

int node_delete(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id)
{
    struct lmdb_node node = stream->tail;
    uint8_t limit[ROW_KEY_SIZE];
    MDB_val key;
    MDB_val value;

    if (node.total == 0 || id_compare(id, node.first) < 0) {
        row_key(limit, stream->number, id);
        int rc = row_seek_before(txn, DB_NODES, limit, &key, &value);
        rc = rc < 0 ? rc : node_read(txn, key, value, &node);
        if (rc < 0) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "an entry that is in no node");
        }
    }
    if (node.live == 0) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a node counts fewer entries than it has");
    }
    node.live--;
    return node_put(txn, stream, &node, false);
}
