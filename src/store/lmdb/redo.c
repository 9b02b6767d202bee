/* redo.c -- the record of a transaction: noting its rows, writing it, making the area it lies in. */
#include "store/lmdb/redo.h"

#include "store/lmdb/env.h"

#include <sys/statvfs.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    AREA_PAGE = 4096, /* slots begin at a multiple of it, whatever LMDB's pages are */
    AREA_PARTS = 64,  /* at most one in so many of a map, or of what is free of a disk */
    PAGE_HEAD = 16,   /* of LMDB's, before a large value: its number first */
};
#define AREA_SIZE (AREA_PAGE + 2 * (size_t)REDO_SLOT_SIZE)

static const MDB_val area_key = {1, (void *)"r"};

/* ---- checking ---- */

uint64_t redo_hash(const struct redo_head *head, const void *rows)
{
    uint64_t hash =
        hash_bytes((struct impel_bytes){head, offsetof(struct redo_head, hash)}, REDO_MAGIC);

    return hash_bytes((struct impel_bytes){rows, head->size}, hash);
}

uint64_t redo_pointer_hash(const struct redo_pointer *pointer)
{
    return hash_bytes((struct impel_bytes){pointer, offsetof(struct redo_pointer, hash)},
                      REDO_MAGIC);
}

/* ---- the area ---- */

static bool buffers_ready(struct redo *redo)
{
    redo->record = redo->record != NULL ? redo->record : malloc(REDO_SLOT_SIZE);
    redo->keys = redo->keys != NULL ? redo->keys : malloc(REDO_KEYS_SIZE);
    return redo->record != NULL && redo->keys != NULL;
}

void redo_free(struct redo *redo)
{
    free(redo->record);
    free(redo->keys);
    free(redo->rows);
    *redo = (struct redo){0};
}

/* Where in the file the slots are, by the value as LMDB shows it. */
static uint64_t area_at(const struct lmdb_env *env, MDB_val value)
{
    MDB_stat stat;
    uint64_t page = 0;

    if (mdb_env_stat(env->mdb, &stat) != 0) {
        return 0;
    }
    memcpy(&page, (const uint8_t *)value.mv_data - PAGE_HEAD, sizeof(page));
    return (page * stat.ms_psize + PAGE_HEAD + AREA_PAGE - 1) / AREA_PAGE * AREA_PAGE;
}

/* Both meta pages tell where it is. 0, or an errno. */
static int area_tell(const struct lmdb_env *env, uint64_t at)
{
    struct redo_pointer pointer = {.magic = REDO_MAGIC, .slot_size = REDO_SLOT_SIZE, .at = at};
    MDB_stat stat;

    pointer.hash = redo_pointer_hash(&pointer);
    int code = mdb_env_stat(env->mdb, &stat);
    for (off_t page = 0; code == 0 && page < 2; page++) {
        off_t where = page * (off_t)stat.ms_psize + REDO_POINTER_AT;
        ssize_t written = pwrite(env->data_fd, &pointer, sizeof(pointer), where);
        code = written == (ssize_t)sizeof(pointer) ? 0 : written < 0 ? errno : ENOSPC;
    }
    return code != 0 ? code : mdb_env_sync(env->mdb, 1);
}

/* Is this large value where its page says that it is? */
static bool area_is_there(const struct lmdb_env *env, MDB_val value)
{
    uint8_t head[PAGE_HEAD];
    MDB_stat stat;
    uint64_t page = 0;

    memcpy(&page, (const uint8_t *)value.mv_data - PAGE_HEAD, sizeof(page));
    return value.mv_size == AREA_SIZE && mdb_env_stat(env->mdb, &stat) == 0 &&
           page < INT64_MAX / stat.ms_psize &&
           pread(env->data_fd, head, sizeof(head), (off_t)(page * stat.ms_psize)) == PAGE_HEAD &&
           memcmp(head, (const uint8_t *)value.mv_data - PAGE_HEAD, sizeof(head)) == 0;
}

/* Makes the row; or takes the one that is there, since in a compacted file it lies elsewhere. */
static int area_row(const struct lmdb_env *env, struct lmdb_txn *txn, MDB_val *value)
{
    int rc = row_get(txn, DB_CATALOG, area_key, value);

    if (rc >= 0) {
        return area_is_there(env, *value) ? rc : IMPEL_ERR_CORRUPT;
    }
    rc = rc == IMPEL_ERR_NOT_FOUND ? catalog_need_version(txn, LMDB_FORMAT_REDO_AREA) : rc;
    value->mv_size = AREA_SIZE;
    rc = rc < 0 ? rc : row_reserve(txn, DB_CATALOG, area_key, value->mv_size, &value->mv_data);
    if (rc >= 0) {
        memset(value->mv_data, 0, value->mv_size);
        rc = lmdb_txn_flush(txn);
    }
    return rc;
}

static int
slot_write(const struct lmdb_env *env, uint64_t at, uint64_t number, const void *bytes, size_t size)
{
    off_t where = (off_t)(at + number % 2 * REDO_SLOT_SIZE);
    ssize_t written = pwrite(env->data_fd, bytes, size, where);

    return written == (ssize_t)size ? 0 : written < 0 ? errno : ENOSPC;
}

static void head_init(const struct lmdb_env *env, struct redo_head *head, uint64_t number)
{
    *head = (struct redo_head){
        .magic = REDO_MAGIC,
        .kind = REDO_PLAIN,
        .txn = number,
        .inode = env->inodes[FILES_DATA],
    };
    memcpy(head->boot, env->side.header->boot, sizeof(head->boot));
    head->hash = redo_hash(head, NULL);
}

/* Where nothing is under way: a plain record of the last transaction, and no other. 0, or a code. */
static int area_settle(const struct lmdb_env *env, uint64_t at, uint64_t *last)
{
    const struct redo_head none = {0};
    struct redo_head head;
    MDB_envinfo info = {0};

    (void)mdb_env_info(env->mdb, &info);
    *last = info.me_last_txnid;
    head_init(env, &head, *last);
    int code = slot_write(env, at, *last, &head, sizeof(head));
    return code != 0 ? code : slot_write(env, at, *last + 1, &none, sizeof(none));
}

/* It is a matter of speed only: where it cannot be had, everything goes on as before. */
static void area_make(struct lmdb_env *env)
{
    struct lmdb_txn txn;
    MDB_txn *mdb = NULL;
    MDB_val value = {0};
    uint64_t last = 0;

    if (!buffers_ready(&env->redo) || mdb_txn_begin(env->mdb, NULL, 0, &mdb) != 0) {
        return;
    }
    lmdb_txn_init(&txn, mdb, env->dbi, true);
    int rc = area_row(env, &txn, &value);
    lmdb_txn_release(&txn);
    if (rc < 0) {
        mdb_txn_abort(mdb);
        return;
    }
    uint64_t at = area_at(env, value);
    if (mdb_txn_commit(mdb) == 0 && at != 0 && area_settle(env, at, &last) == 0 &&
        area_tell(env, at) == 0) {
        atomic_store(&env->side.header->flushed, last);
        atomic_store(&env->side.header->redo_at, at);
    }
}

/* It must not take what is kept for acks where the map or the disk is nearly full. */
static bool area_has_room(const struct lmdb_env *env)
{
    MDB_envinfo info = {0};
    MDB_stat stat = {0};
    struct statvfs fs;

    return mdb_env_info(env->mdb, &info) == 0 && mdb_env_stat(env->mdb, &stat) == 0 &&
           info.me_mapsize / AREA_PARTS >= AREA_SIZE &&
           info.me_last_pgno * stat.ms_psize <= info.me_mapsize / 2 &&
           fstatvfs(env->data_fd, &fs) == 0 && fs.f_bavail * fs.f_frsize / AREA_PARTS >= AREA_SIZE;
}

void redo_prepare(struct lmdb_env *env)
{
    struct redo *redo = &env->redo;

    if (redo->refused || atomic_load(&env->nosync) ||
        atomic_load(&env->side.header->redo_at) != 0 || ++redo->commits < REDO_AFTER) {
        return;
    }
    redo->refused = true; /* unless it is there next time */
    if (area_has_room(env)) {
        area_make(env);
    }
}

/* ---- noting ---- */

int redo_begin(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err)
{
    struct side_header *header = env->side.header;
    struct redo *redo = &env->redo;

    if (atomic_load(&header->redo_at) == 0 || atomic_load(&env->nosync)) {
        return IMPEL_OK;
    }
    if (atomic_load(&header->flushed) != mdb_txn_id(txn->mdb) - 1) {
        int code = mdb_env_sync(env->mdb, 1);
        if (code != 0) {
            return env_explain_mdb(env, code, err);
        }
        atomic_store(&header->flushed, mdb_txn_id(txn->mdb) - 1);
    }
    if (buffers_ready(redo)) {
        redo->keys_size = 0;
        redo->too_much = false;
        memset(redo->seen, 0, sizeof(redo->seen));
        txn->redo = redo;
    }
    return IMPEL_OK;
}

/* In `keys` each is a struct redo_row and the key; what else it says comes at the end. */
void redo_note(struct redo *redo, enum lmdb_database db, MDB_val key)
{
    struct redo_row row = {.key_size = (uint16_t)key.mv_size, .database = (uint8_t)db};
    uint64_t hash = hash_bytes((struct impel_bytes){key.mv_data, key.mv_size}, (uint64_t)db);
    uint32_t *seen = &redo->seen[hash % REDO_SEEN];

    if (redo->too_much) {
        return;
    }
    if (*seen != 0) {
        const uint8_t *other = redo->keys + *seen - 1;
        if (memcmp(other, &row, sizeof(row)) == 0 &&
            memcmp(other + sizeof(row), key.mv_data, key.mv_size) == 0) {
            return;
        }
    }
    if (sizeof(row) + key.mv_size > REDO_KEYS_SIZE - redo->keys_size) {
        redo->too_much = true;
        return;
    }
    uint8_t *at = redo->keys + redo->keys_size;
    memcpy(at, &row, sizeof(row));
    memcpy(at + sizeof(row), key.mv_data, key.mv_size);
    *seen = (uint32_t)redo->keys_size + 1;
    redo->keys_size += sizeof(row) + key.mv_size;
}

/* ---- the record ---- */

/* All rows that were noted, as they are now. Their size in all; 0 if they do not fit. */
static size_t record_rows(struct redo *redo, struct lmdb_txn *txn)
{
    size_t size = 0;

    for (size_t at = 0; at < redo->keys_size;) {
        struct redo_row row;
        MDB_val value = {0};
        memcpy(&row, redo->keys + at, sizeof(row));
        MDB_val key = {row.key_size, redo->keys + at + sizeof(row)};
        int rc = row_get(txn, (enum lmdb_database)row.database, key, &value);
        if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
            return 0; /* the transaction is broken, which its end will tell */
        }
        row.gone = rc < 0;
        row.value_size = row.gone ? 0 : (uint32_t)value.mv_size;
        size_t room = REDO_SLOT_SIZE - sizeof(struct redo_head) - size;
        if (sizeof(row) + key.mv_size > room || row.value_size > room - sizeof(row) - key.mv_size) {
            return 0;
        }
        uint8_t *to = redo->record + sizeof(struct redo_head) + size;
        memcpy(to, &row, sizeof(row));
        memcpy(to + sizeof(row), key.mv_data, key.mv_size);
        if (row.value_size > 0) {
            memcpy(to + sizeof(row) + key.mv_size, value.mv_data, row.value_size);
        }
        size += sizeof(row) + key.mv_size + row.value_size;
        at += sizeof(row) + key.mv_size;
    }
    return size;
}

/* Writes the record of this transaction. `one_flush`: it has the rows. 0, or an errno. */
static int record_write(struct lmdb_env *env, struct lmdb_txn *txn, bool *one_flush)
{
    struct redo *redo = &env->redo;
    uint64_t at = atomic_load(&env->side.header->redo_at);
    struct redo_head head;
    const void *record = &head;

    head_init(env, &head, mdb_txn_id(txn->mdb));
    if (txn->redo != NULL && !redo->too_much) {
        head.size = record_rows(redo, txn);
    }
    if (head.size > 0) {
        head.kind = REDO_ROWS;
        head.hash = redo_hash(&head, redo->record + sizeof(head));
        memcpy(redo->record, &head, sizeof(head));
        record = redo->record;
    }
    *one_flush = head.kind == REDO_ROWS;
    return slot_write(env, at, head.txn, record, sizeof(head) + head.size);
}

/* Its record must not be taken for that of the next transaction of this number. */
static void record_forget(struct lmdb_env *env, uint64_t number)
{
    const struct redo_head none = {0};

    (void)slot_write(env, atomic_load(&env->side.header->redo_at), number, &none, sizeof(none));
    (void)mdb_env_sync(env->mdb, 1);
}

void redo_settle(struct lmdb_env *env)
{
    uint64_t at = atomic_load(&env->side.header->redo_at);
    uint64_t last = 0;

    if (at == 0 || !files_uncut(env)) {
        return;
    }
    /* First what somebody committed who died before his flush. */
    int code = mdb_env_sync(env->mdb, 1);
    code = code != 0 ? code : area_settle(env, at, &last);
    if (code == 0 && env->redo.copied) {
        env->redo.copied = mdb_env_sync(env->mdb, 1) != 0;
    }
}

int redo_commit(struct lmdb_env *env, struct lmdb_txn *txn, bool *lost)
{
    uint64_t number = mdb_txn_id(txn->mdb);
    bool again = env->redo.rows != NULL; /* of a record that stays until they are on the disk */
    bool loose = atomic_load(&env->nosync) && !again;
    bool recorded = atomic_load(&env->side.header->redo_at) != 0 && txn->changes > 0 && !again;
    bool one_flush = false;
    int code = recorded ? record_write(env, txn, &one_flush) : 0;

    *lost = false;
    if (code != 0 || txn->status < 0) {
        env_abort(txn);
        code = code != 0 ? code : MDB_CORRUPTED;
    } else {
        lmdb_txn_release(txn);
        mdb_env_set_flags(env->mdb, MDB_NOSYNC, one_flush || loose ? 1 : 0);
        code = mdb_txn_commit(txn->mdb);
        txn->mdb = NULL;
        mdb_env_set_flags(env->mdb, MDB_NOSYNC, atomic_load(&env->nosync) ? 1 : 0);
    }
    if (code != 0 && recorded) {
        record_forget(env, number);
    }
    if (code == 0 && again) {
        free(env->redo.rows);
        env->redo.rows = NULL;
    }
    if (code == 0 && one_flush) {
        code = mdb_env_sync(env->mdb, 1);
        *lost = code != 0;
    }
    if (code == 0 && !loose && txn->changes > 0) {
        atomic_store(&env->side.header->flushed, number);
    }
    return code;
}
