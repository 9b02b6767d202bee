/* stream.c -- a stream's own row: its counters, appending to it, deleting from it. Trimming it is in
 * trim.c. */
#include "store/lmdb/txn.h"

static struct impel_id id_of(uint64_t ms, uint64_t seq)
{
    return (struct impel_id){ms, seq};
}

int stream_load(struct lmdb_txn *txn, uint64_t number, struct lmdb_stream **out)
{
    struct disk_stream disk;
    struct impel_bytes name;
    int rc = object_read(txn, OBJECT_STREAM, number, &disk, sizeof(disk), &name);

    if (rc < 0) {
        return lmdb_fail(txn, rc == IMPEL_ERR_NOT_FOUND ? IMPEL_ERR_CORRUPT : rc,
                         "a key names a stream that is not there");
    }
    struct object *object = object_add(txn, OBJECT_STREAM, number, 0, name);
    if (object == NULL) {
        return txn->status;
    }
    struct lmdb_stream *stream = &object->stream;
    stream->length = disk.length;
    stream->last_id = id_of(disk.last_ms, disk.last_seq);
    stream->first_id = id_of(disk.first_ms, disk.first_seq);
    stream->max_deleted_id = id_of(disk.max_deleted_ms, disk.max_deleted_seq);
    stream->entries_added = disk.entries_added;
    stream->group_count = disk.group_count;
    stream->node_count = disk.node_count;
    stream->tail = (struct lmdb_node){
        .first = id_of(disk.tail_ms, disk.tail_seq),
        .last = id_of(disk.tail.last_ms, disk.tail.last_seq),
        .live = disk.tail.live,
        .total = disk.tail.total,
        .size_bytes = disk.tail.size_bytes,
    };
    *out = stream;
    return IMPEL_OK;
}

int stream_flush(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    struct disk_stream disk = {
        .length = stream->length,
        .last_ms = stream->last_id.ms,
        .last_seq = stream->last_id.seq,
        .first_ms = stream->first_id.ms,
        .first_seq = stream->first_id.seq,
        .max_deleted_ms = stream->max_deleted_id.ms,
        .max_deleted_seq = stream->max_deleted_id.seq,
        .entries_added = stream->entries_added,
        .group_count = stream->group_count,
        .node_count = stream->node_count,
        .tail_ms = stream->tail.first.ms,
        .tail_seq = stream->tail.first.seq,
        .tail = {.last_ms = stream->tail.last.ms,
                 .last_seq = stream->tail.last.seq,
                 .live = stream->tail.live,
                 .total = stream->tail.total,
                 .size_bytes = stream->tail.size_bytes},
    };

    stream->dirty = false;
    return object_write(txn, OBJECT_STREAM, stream->number, &disk, sizeof(disk), stream->name);
}

void lmdb_stream_changed(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    (void)txn;
    stream->dirty = true;
}

bool lmdb_stream_next_id(const struct lmdb_stream *stream, int64_t now_ms, struct impel_id *out)
{
    struct impel_id id = stream->last_id;

    if (now_ms > 0 && (uint64_t)now_ms > id.ms) {
        *out = id_of((uint64_t)now_ms, 0);
        return true;
    }
    if (!id_next(&id)) {
        return false;
    }
    *out = id;
    return true;
}

/* What an entry weighs in a node: an estimate of Redis's encoding, in which an entry that has the
 * same field names as the first one of its node does not repeat them. */
static size_t entry_weight(const struct impel_field *fields, size_t field_count, bool first)
{
    size_t size = 8;

    for (size_t i = 0; i < field_count; i++) {
        size += fields[i].value.size + 2;
        size += first ? fields[i].name.size + 2 : 0;
    }
    return size;
}

/* About what an entry takes of the file: pages are not filled to the brim, and large values have whole
 * ones. */
static int64_t append_cost(size_t size)
{
    return (int64_t)(size > 2000 ? size + 8192 : size + size / 2 + 64);
}

bool lmdb_disk_full(const struct lmdb_txn *txn)
{
    return txn->disk_full;
}

int lmdb_append_check(struct lmdb_txn *txn,
                      const struct impel_field *fields,
                      size_t field_count,
                      bool reserve)
{
    size_t size = fields_size(fields, field_count);

    if (txn->status < 0) {
        return txn->status;
    }
    if (size > LMDB_ENTRY_SIZE_MAX) {
        return IMPEL_ERR_LIMIT;
    }
    if (reserve) {
        return IMPEL_OK;
    }
    if (txn->add_bytes_left < (int64_t)size) {
        return IMPEL_ERR_FULL;
    }
    int64_t cost = append_cost(size);
    txn->disk_full = cost > txn->disk_bytes_left && !room_more(txn, cost);
    return txn->disk_full ? IMPEL_ERR_FULL : IMPEL_OK;
}

int lmdb_stream_append(struct lmdb_txn *txn,
                       struct lmdb_stream *stream,
                       struct impel_id id,
                       const struct impel_field *fields,
                       size_t field_count,
                       bool reserve)
{
    size_t size = fields_size(fields, field_count);
    uint8_t key[ROW_KEY_SIZE];
    void *room = NULL;
    int rc = lmdb_append_check(txn, fields, field_count, reserve);

    ASSERT(id_compare(id, stream->last_id) > 0);
    if (rc < 0) {
        return rc;
    }
    row_key(key, stream->number, id);
    rc = row_reserve(txn, DB_ENTRIES, (MDB_val){sizeof(key), key}, size, &room);
    if (rc < 0) {
        return rc;
    }
    fields_write(room, fields, field_count);
    if (txn->add_bytes_left != INT64_MAX) {
        txn->add_bytes_left -= append_cost(size);
    }
    if (txn->disk_bytes_left != INT64_MAX) {
        txn->disk_bytes_left -= append_cost(size);
    }
    rc = node_append(txn, stream, id, entry_weight(fields, field_count, stream->tail.total == 0));
    stream->length++;
    stream->entries_added++;
    stream->last_id = id;
    if (stream->length == 1) {
        stream->first_id = id;
    }
    stream->dirty = true;
    lmdb_signal(txn);
    return rc;
}

int lmdb_stream_last(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id *out)
{
    uint8_t limit[ROW_KEY_SIZE];
    MDB_val key;
    MDB_val value;

    if (txn->status < 0 || stream->length == 0) {
        return txn->status < 0 ? txn->status : IMPEL_ERR_NOT_FOUND;
    }
    row_key(limit, stream->number, ID_MAX);
    int rc = row_seek_before(txn, DB_ENTRIES, limit, &key, &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a stream is shorter than its length");
    }
    if (rc >= 0) {
        *out = get_id((const uint8_t *)key.mv_data + 8);
    }
    return rc;
}

int stream_find_first(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    uint8_t start[ROW_KEY_SIZE];
    MDB_val key = {sizeof(start), start};
    MDB_val value;

    stream->dirty = true;
    stream->first_id = ID_MIN;
    if (stream->length == 0) {
        return IMPEL_OK;
    }
    row_key(start, stream->number, ID_MIN);
    int rc = row_seek(txn, DB_ENTRIES, &key, 8, &value);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a stream is shorter than its length");
    }
    if (rc >= 0) {
        stream->first_id = get_id((const uint8_t *)key.mv_data + 8);
    }
    return rc;
}

int lmdb_stream_delete(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id)
{
    uint8_t key[ROW_KEY_SIZE];

    row_key(key, stream->number, id);
    int rc = row_delete(txn, DB_ENTRIES, (MDB_val){sizeof(key), key});
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return 0;
    }
    rc = rc < 0 ? rc : node_delete(txn, stream, id);
    if (rc < 0) {
        return rc;
    }
    stream->length--;
    stream->dirty = true;
    if (id_compare(id, stream->max_deleted_id) > 0) {
        stream->max_deleted_id = id;
    }
    if (id_equal(id, stream->first_id)) {
        rc = stream_find_first(txn, stream);
    }
    return rc < 0 ? rc : 1;
}
