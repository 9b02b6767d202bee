/* txn.c -- rows: reading, writing and deleting them by key, and what happens when LMDB refuses.
 *
 * One cursor a database is kept for single rows, since LMDB finds a key at once that lies on the
 * page where the cursor stands, and neighbours are what streams mostly touch. */
#include "store/lmdb/txn.h"

#include "store/lmdb/redo.h"

#include <errno.h>
#include <stdio.h>

/* Of LMDB's pages, which have 4096 bytes or more, and keys of 511 at most. */
enum {
    PAGE_HEAD_SIZE = 16,
    NODE_HEAD_SIZE = 8,
    SMALL_VALUE_SIZE = 1024, /* certainly has no pages of its own */
};

const char *const lmdb_database_names[DB_COUNT] = {
    [DB_CATALOG] = "catalog", [DB_ENTRIES] = "entries", [DB_NODES] = "nodes",
    [DB_PEL] = "pel",         [DB_OWNED] = "owned",
};

void lmdb_txn_init(struct lmdb_txn *txn, MDB_txn *mdb, const MDB_dbi *dbi, bool write)
{
    *txn = (struct lmdb_txn){
        .mdb = mdb,
        .dbi = dbi,
        .write = write,
        .add_bytes_left = INT64_MAX,
        .disk_bytes_left = INT64_MAX,
        .node_size_max = NODE_SIZE_MAX,
        .idmp_duration_s = LMDB_IDMP_DURATION_S,
        .idmp_iids_max = LMDB_IDMP_IIDS_MAX,
        .node_entries_max = NODE_ENTRIES_MAX,
    };
}

void lmdb_txn_release(struct lmdb_txn *txn)
{
    for (int db = 0; db < DB_COUNT; db++) {
        if (txn->cursors[db] != NULL) {
            mdb_cursor_close(txn->cursors[db]);
            txn->cursors[db] = NULL;
        }
    }
    arena_release(&txn->arena);
    txn->objects = NULL;
    memset(txn->named, 0, sizeof(txn->named));
    txn->by_name = NULL;
    txn->by_number = NULL;
}

int64_t lmdb_now_ms(const struct lmdb_txn *txn)
{
    return txn->now_ms;
}

void lmdb_signal(struct lmdb_txn *txn)
{
    txn->signal = true;
}

/* ---- errors ---- */

int lmdb_status_of(int code)
{
    switch (code) {
    case MDB_SUCCESS:
        return IMPEL_OK;
    case MDB_NOTFOUND:
    case ENOENT:
        return IMPEL_ERR_NOT_FOUND;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
    case MDB_READERS_FULL:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return IMPEL_ERR_FULL;
    case ENOMEM:
        return IMPEL_ERR_NOMEM;
    case EACCES:
    case EPERM:
    case EROFS:
        return IMPEL_ERR_READ_ONLY;
    case MDB_VERSION_MISMATCH:
        return IMPEL_ERR_VERSION;
    case MDB_INVALID:
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INCOMPATIBLE:
    case MDB_BAD_TXN: /* once something was wrong */
    case MDB_PAGE_FULL:
    case MDB_KEYEXIST: /* a last key that is not the last */
    case MDB_CURSOR_FULL:
        return IMPEL_ERR_CORRUPT;
    default:
        return IMPEL_ERR_IO;
    }
}

int lmdb_fail(struct lmdb_txn *txn, int status, const char *format, ...)
{
    char text[256];
    va_list args;

    if (txn->status < 0) {
        return txn->status;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    txn->status = status;
    return error_set(&txn->error, status, "%s", text);
}

int lmdb_fail_mdb(struct lmdb_txn *txn, int code, const char *what)
{
    return lmdb_fail(txn, lmdb_status_of(code), "%s: %s", what, mdb_strerror(code));
}

/* ---- rows ---- */

static int row_cursor(struct lmdb_txn *txn, enum lmdb_database db, MDB_cursor **cursor)
{
    if (txn->status < 0) {
        return txn->status;
    }
    if (txn->cursors[db] == NULL) {
        int code = mdb_cursor_open(txn->mdb, txn->dbi[db], &txn->cursors[db]);
        if (code != 0) {
            txn->cursors[db] = NULL;
            return lmdb_fail_mdb(txn, code, "a cursor could not be had");
        }
    }
    *cursor = txn->cursors[db];
    return IMPEL_OK;
}

int row_get(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val *value)
{
    MDB_cursor *cursor = NULL;
    int rc = row_cursor(txn, db, &cursor);

    if (rc < 0) {
        return rc;
    }
    int code = mdb_cursor_get(cursor, &key, value, MDB_SET);
    if (code == MDB_NOTFOUND) {
        return IMPEL_ERR_NOT_FOUND;
    }
    return code == 0 ? IMPEL_OK : lmdb_fail_mdb(txn, code, "a row could not be read");
}

/* True if the key comes behind all others of its database, which LMDB stores faster and denser. */
static bool
row_is_last(struct lmdb_txn *txn, enum lmdb_database db, MDB_cursor *cursor, MDB_val key)
{
    if (db == DB_CATALOG) {
        return false;
    }
    if (!txn->last[db].known) {
        MDB_val last;
        MDB_val value;
        memset(txn->last[db].data, 0, ROW_KEY_SIZE);
        if (mdb_cursor_get(cursor, &last, &value, MDB_LAST) == 0 && last.mv_size == ROW_KEY_SIZE) {
            memcpy(txn->last[db].data, last.mv_data, ROW_KEY_SIZE);
        }
        txn->last[db].known = true;
    }
    if (memcmp(key.mv_data, txn->last[db].data, ROW_KEY_SIZE) <= 0) {
        return false;
    }
    memcpy(txn->last[db].data, key.mv_data, ROW_KEY_SIZE);
    return true;
}

/* A value with pages of its own lies behind their head, which says how many they are. LMDB believes it
 * when it frees them: after damage to a file in use that may be more than there is memory to note. */
static bool pages_are_right(const struct lmdb_txn *txn, const MDB_val *key, const MDB_val *value)
{
    MDB_stat stat;
    uint32_t pages = 0;

    if (mdb_env_stat(mdb_txn_env(txn->mdb), &stat) != 0) {
        return false;
    }
    size_t shared_max = (stat.ms_psize - PAGE_HEAD_SIZE) / 2 - 2;
    if (NODE_HEAD_SIZE + key->mv_size + value->mv_size <= (shared_max & ~(size_t)1)) {
        return true; /* it lies in a page with others */
    }
    memcpy(&pages, (const uint8_t *)value->mv_data - sizeof(pages), sizeof(pages));
    return pages == (PAGE_HEAD_SIZE - 1 + value->mv_size) / stat.ms_psize + 1;
}

/* Whatever is replaced by this, its pages are freed. Large rows are replaced by large ones, but for strings. */
static bool replaces_rightly(
    const struct lmdb_txn *txn, enum lmdb_database db, MDB_cursor *cursor, MDB_val key, size_t size)
{
    MDB_val old;

    if (size <= SMALL_VALUE_SIZE && (db != DB_CATALOG || *(const char *)key.mv_data != 'v')) {
        return true;
    }
    return mdb_cursor_get(cursor, &key, &old, MDB_SET) != 0 || old.mv_size <= SMALL_VALUE_SIZE ||
           pages_are_right(txn, &key, &old);
}

static int
row_store(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val *value, unsigned flags)
{
    MDB_cursor *cursor = NULL;
    int rc = row_cursor(txn, db, &cursor);

    if (rc < 0) {
        return rc;
    }
    ASSERT(txn->write);
    flags |= row_is_last(txn, db, cursor, key) ? MDB_APPEND : 0;
    if ((flags & MDB_APPEND) == 0 && !replaces_rightly(txn, db, cursor, key, value->mv_size)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a large value has another number of pages");
    }
    txn->writes[db]++;
    txn->changes++;
    if (txn->redo != NULL) {
        redo_note(txn->redo, db, key);
    }
    int code = mdb_cursor_put(cursor, &key, value, flags);
    return code == 0 ? IMPEL_OK : lmdb_fail_mdb(txn, code, "a row could not be written");
}

int row_put(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, MDB_val value)
{
    return row_store(txn, db, key, &value, 0);
}

int row_reserve(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key, size_t size, void **value)
{
    txn->room = (MDB_val){size, NULL};
    int rc = row_store(txn, db, key, &txn->room, MDB_RESERVE);

    *value = txn->room.mv_data;
    return rc;
}

/* Deletes the row at the cursor, which is this one. */
static int row_delete_here(struct lmdb_txn *txn,
                           enum lmdb_database db,
                           MDB_cursor *cursor,
                           const MDB_val *key,
                           const MDB_val *value)
{
    ASSERT(txn->write);
    if (value->mv_size > SMALL_VALUE_SIZE && !pages_are_right(txn, key, value)) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "a large value has another number of pages");
    }
    txn->writes[db]++;
    txn->changes++;
    if (txn->redo != NULL) {
        redo_note(txn->redo, db, *key);
    }
    txn->last[db].known = false;
    int code = mdb_cursor_del(cursor, 0);
    return code == 0 ? IMPEL_OK : lmdb_fail_mdb(txn, code, "a row could not be deleted");
}

int row_delete(struct lmdb_txn *txn, enum lmdb_database db, MDB_val key)
{
    MDB_cursor *cursor = NULL;
    MDB_val value;
    int rc = row_cursor(txn, db, &cursor);

    if (rc < 0) {
        return rc;
    }
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET);
    if (code == MDB_NOTFOUND) {
        return IMPEL_ERR_NOT_FOUND;
    }
    return code == 0 ? row_delete_here(txn, db, cursor, &key, &value)
                     : lmdb_fail_mdb(txn, code, "a row could not be read");
}

static bool run_has(const struct row_run *run, const MDB_val *key)
{
    if (key->mv_size < run->size || memcmp(key->mv_data, run->prefix, run->size) != 0) {
        return false;
    }
    return run->end == NULL ||
           (key->mv_size == ROW_KEY_SIZE && memcmp(key->mv_data, run->end, ROW_KEY_SIZE) < 0);
}

int row_delete_run(struct lmdb_txn *txn,
                   enum lmdb_database db,
                   const struct row_run *run,
                   uint64_t *count)
{
    MDB_cursor *cursor = NULL;
    MDB_val key = {run->size, (void *)run->prefix};
    MDB_val value;
    uint64_t deleted = 0;
    int rc = row_cursor(txn, db, &cursor);
    int code = rc < 0 ? 0 : mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);

    while (rc >= 0 && code == 0 && deleted < run->most && run_has(run, &key)) {
        rc = row_delete_here(txn, db, cursor, &key, &value);
        deleted++;
        /* The cursor stands before what came next: no search for each row. */
        code = rc < 0 ? 0 : mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    if (code != 0 && code != MDB_NOTFOUND) {
        rc = lmdb_fail_mdb(txn, code, "a row could not be read");
    }
    *count = deleted;
    return rc;
}

int row_delete_all(
    struct lmdb_txn *txn, enum lmdb_database db, const void *prefix, size_t size, uint64_t *count)
{
    const struct row_run run = {.prefix = prefix, .size = size, .most = UINT64_MAX};
    uint64_t deleted = 0;
    uint64_t some = 0;
    int rc = IMPEL_OK;

    do { /* until a search finds none: what stayed would be nobody's for ever */
        rc = row_delete_run(txn, db, &run, &some);
        deleted += some;
    } while (rc >= 0 && some > 0);
    if (count != NULL) {
        *count = deleted;
    }
    return rc;
}

int row_seek(
    struct lmdb_txn *txn, enum lmdb_database db, MDB_val *key, size_t prefix, MDB_val *value)
{
    MDB_cursor *cursor = NULL;
    MDB_val found = *key;
    int rc = row_cursor(txn, db, &cursor);

    if (rc < 0) {
        return rc;
    }
    int code = mdb_cursor_get(cursor, &found, value, MDB_SET_RANGE);
    if (code == MDB_NOTFOUND || (code == 0 && (found.mv_size < prefix ||
                                               memcmp(found.mv_data, key->mv_data, prefix) != 0))) {
        return IMPEL_ERR_NOT_FOUND;
    }
    *key = found;
    return code == 0 ? IMPEL_OK : lmdb_fail_mdb(txn, code, "a row could not be read");
}

int row_seek_before(
    struct lmdb_txn *txn, enum lmdb_database db, const uint8_t *limit, MDB_val *key, MDB_val *value)
{
    MDB_cursor *cursor = NULL;
    MDB_val found = {ROW_KEY_SIZE, (void *)limit};
    int rc = row_cursor(txn, db, &cursor);

    if (rc < 0) {
        return rc;
    }
    int code = mdb_cursor_get(cursor, &found, value, MDB_SET_RANGE);
    if (code == 0 && found.mv_size == ROW_KEY_SIZE && memcmp(found.mv_data, limit, 24) == 0) {
        *key = found;
        return IMPEL_OK;
    }
    if (code == 0 || code == MDB_NOTFOUND) {
        code = mdb_cursor_get(cursor, &found, value, code == 0 ? MDB_PREV : MDB_LAST);
    }
    if (code == MDB_NOTFOUND ||
        (code == 0 && (found.mv_size != ROW_KEY_SIZE || memcmp(found.mv_data, limit, 8) != 0))) {
        return IMPEL_ERR_NOT_FOUND;
    }
    *key = found;
    return code == 0 ? IMPEL_OK : lmdb_fail_mdb(txn, code, "a row could not be read");
}
