/* entry.c -- single entries as they lie in the file, and copies of them. */
#include "store/lmdb/txn.h"

#include <stdlib.h>

int lmdb_entry_get(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_id id,
                   struct lmdb_raw *out)
{
    uint8_t key[ROW_KEY_SIZE];
    MDB_val value;

    row_key(key, stream->number, id);
    int rc = row_get(txn, DB_ENTRIES, (MDB_val){sizeof(key), key}, &value);
    if (rc >= 0 && out != NULL) {
        out->id = id;
        out->bytes = (struct impel_bytes){value.mv_data, value.mv_size};
    }
    return rc;
}

static int raw_damaged(struct lmdb_txn *txn, const struct lmdb_raw *raw)
{
    char text[ID_TEXT_SIZE];
    return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "entry %s is damaged", id_format(raw->id, text));
}

int lmdb_raw_fields(struct lmdb_txn *txn,
                    const struct lmdb_raw *raw,
                    struct arena *arena,
                    struct impel_field **fields,
                    size_t *field_count)
{
    const uint8_t *sizes = NULL;
    int64_t count = fields_count(raw->bytes, &sizes);

    if (txn->status < 0) {
        return txn->status;
    }
    if (count < 0) {
        return raw_damaged(txn, raw);
    }
    struct impel_field *array = arena_calloc(arena, (size_t)count, sizeof(*array));
    if (array == NULL) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    if (!fields_read(raw->bytes, sizes, array, (size_t)count)) {
        return raw_damaged(txn, raw);
    }
    *fields = array;
    *field_count = (size_t)count;
    return IMPEL_OK;
}

int lmdb_raw_copy(struct lmdb_txn *txn,
                  const struct lmdb_raw *raw,
                  struct arena *arena,
                  struct lmdb_raw *out)
{
    struct impel_bytes copy;

    if (txn->status < 0) {
        return txn->status;
    }
    if (!arena_copy(arena, raw->bytes, &copy)) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    *out = (struct lmdb_raw){raw->id, copy};
    return IMPEL_OK;
}

int lmdb_raw_entry(struct lmdb_txn *txn, const struct lmdb_raw *raw, struct entry **out)
{
    const uint8_t *sizes = NULL;
    int64_t count = fields_count(raw->bytes, &sizes);

    if (txn->status < 0) {
        return txn->status;
    }
    if (count < 0) {
        return raw_damaged(txn, raw);
    }
    /* One copy of the value as a whole, and the spans into it: the same shape as entry_new()'s,
     * without visiting every field twice. */
    size_t head = sizeof(struct entry) + (size_t)count * sizeof(struct impel_field);
    struct entry *entry = malloc(head + raw->bytes.size);
    if (entry == NULL) {
        return lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    uint8_t *bytes = (uint8_t *)entry + head;
    if (raw->bytes.size > 0) {
        memcpy(bytes, raw->bytes.data, raw->bytes.size);
    }
    entry->id = raw->id;
    entry->field_count = (size_t)count;
    entry->size_bytes = head + raw->bytes.size;
    struct impel_bytes copy = {bytes, raw->bytes.size};
    if (fields_count(copy, &sizes) != count ||
        !fields_read(copy, sizes, entry->fields, (size_t)count)) {
        free(entry);
        return raw_damaged(txn, raw);
    }
    *out = entry;
    return IMPEL_OK;
}
