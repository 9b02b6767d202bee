/* format.c -- a file's own row: which format it has, and whether it was written loosely. Made with the
 * databases in one commit, read by whoever opens it; under the side lock. */
#include "store/lmdb/check.h"
#include "store/lmdb/env.h"

#include <sys/random.h>

#include <string.h>

static int format_new(struct lmdb_txn *txn)
{
    uint8_t letter = 'm';

    txn->meta = (struct disk_meta){
        .magic = LMDB_FORMAT_MAGIC,
        .version = LMDB_FORMAT_FIRST,
        .order = LMDB_FORMAT_ORDER,
        .next_number = NUMBER_FIRST,
    };
    if (getrandom(txn->meta.identity, sizeof(txn->meta.identity), 0) !=
        (ssize_t)sizeof(txn->meta.identity)) {
        return lmdb_fail(txn, IMPEL_ERR_IO, "no random number for a new file");
    }
    return row_put(txn, DB_CATALOG, (MDB_val){1, &letter},
                   (MDB_val){sizeof(txn->meta), &txn->meta});
}

/* LMDB's own order, which is that of the bytes, quicker for keys that are three numbers: a search in a tree
 * compares some twenty of them. */
static int compare_keys(const MDB_val *a, const MDB_val *b)
{
    if (a->mv_size != ROW_KEY_SIZE || b->mv_size != ROW_KEY_SIZE) {
        return bytes_compare((struct impel_bytes){a->mv_data, a->mv_size},
                             (struct impel_bytes){b->mv_data, b->mv_size});
    }
    for (size_t at = 0; at < ROW_KEY_SIZE; at += sizeof(uint64_t)) {
        uint64_t left = get_be64((const uint8_t *)a->mv_data + at);
        uint64_t right = get_be64((const uint8_t *)b->mv_data + at);
        if (left != right) {
            return left < right ? -1 : 1;
        }
    }
    return 0;
}

static int format_open(struct lmdb_env *env, struct lmdb_txn *txn, bool *is_new)
{
    MDB_dbi main_dbi = 0;
    MDB_stat stat = {0};
    int code = mdb_dbi_open(txn->mdb, NULL, 0, &main_dbi);

    code = code != 0 ? code : mdb_stat(txn->mdb, main_dbi, &stat);
    if (code != 0) {
        return lmdb_fail_mdb(txn, code, "its list of databases");
    }
    *is_new = stat.ms_entries == 0;
    for (int db = 0; db < DB_COUNT; db++) {
        code = mdb_dbi_open(txn->mdb, lmdb_database_names[db], *is_new ? MDB_CREATE : 0,
                            &env->dbi[db]);
        if (code == MDB_NOTFOUND) {
            return lmdb_fail(txn, IMPEL_ERR_CORRUPT,
                             "an LMDB file, but not an Impel store: it has no '%s'",
                             lmdb_database_names[db]);
        }
        code = code != 0 || db == DB_CATALOG
                   ? code
                   : mdb_set_compare(txn->mdb, env->dbi[db], compare_keys);
        if (code != 0) {
            return lmdb_fail_mdb(txn, code, lmdb_database_names[db]);
        }
    }
    int rc = redo_rows(&env->redo, txn);
    rc = rc < 0 ? rc : *is_new ? format_new(txn) : catalog_meta(txn);
    if (rc >= 0 && !*is_new && txn->meta.magic != LMDB_FORMAT_MAGIC) {
        return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the file's own row is damaged");
    }
    if (rc >= 0 && txn->meta.version > LMDB_FORMAT_VERSION) {
        return lmdb_fail(txn, IMPEL_ERR_VERSION,
                         "its format is version %u, this program knows up to %d: use the newer "
                         "program",
                         txn->meta.version, LMDB_FORMAT_VERSION);
    }
    if (rc >= 0 && txn->meta.order != LMDB_FORMAT_ORDER) {
        return lmdb_fail(txn, IMPEL_ERR_VERSION, "it was written by a machine of other byte order");
    }
    txn->meta_known = true;
    return rc;
}

int format_mark(struct lmdb_env *env, bool loose, struct impel_error *err)
{
    struct lmdb_txn txn;

    mdb_env_set_flags(env->mdb, MDB_NOSYNC, 0);
    atomic_store(&env->nosync, false);
    int code = loose ? 0 : mdb_env_sync(env->mdb, 1); /* what was written loosely until now */
    if (code != 0) {
        return env_explain_mdb(env, code, err);
    }
    int rc = env_begin_write(env, &txn, err);
    if (rc < 0) {
        return rc;
    }
    mdb_env_set_flags(env->mdb, MDB_NOSYNC, 0);
    atomic_store(&env->nosync, false);
    if (catalog_meta(&txn) >= 0) {
        txn.meta.loose = loose;
        side_boot(txn.meta.boot);
        txn.meta_dirty = true;
    }
    return env_commit(env, &txn, err);
}

/* All of it is checked, because of what became of it. */
static int format_look(struct lmdb_env *env, const char *why, struct impel_error *err)
{
    struct impel_error found = {0};
    int rc = check_contents(env, NULL, NULL, &found);

    if (rc == IMPEL_ERR_CORRUPT) {
        return error_set(err, rc, "%s %s: %s; see `impel check`", env->path, why, found.text);
    }
    return rc < 0 ? error_set(err, rc, "%s", found.text) : rc; /* it could not be looked at */
}

/* What follows from how the file was written last, and how it will be written now. */
static int format_sync(struct lmdb_env *env, const struct disk_meta *meta, struct impel_error *err)
{
    uint8_t boot[SIDE_BOOT_SIZE];
    bool loose = atomic_load(&env->side.header->sync) == SIDE_SYNC_PROCESS;
    int rc = IMPEL_OK;

    side_boot(boot);
    if (meta->loose != 0 && memcmp(boot, meta->boot, sizeof(boot)) != 0) {
        rc = format_look(env, "was written with sync=process and the machine went down", err);
    } else if (env->redo.suspect) {
        rc = format_look(env, "is a copy of a file whose machine went down", err);
    }
    if (rc < 0) {
        return rc;
    }
    if (env->redo.copied) {
        redo_settle(env);
    }
    if (loose == (meta->loose != 0) && (!loose || memcmp(boot, meta->boot, sizeof(boot)) == 0)) {
        return IMPEL_OK;
    }
    return format_mark(env, loose, err);
}

int format_enter(struct lmdb_env *env, struct impel_error *err)
{
    struct lmdb_txn txn = {0};
    struct disk_meta meta;
    bool is_new = false;
    int rc = env_begin_write(env, &txn, err);

    if (rc < 0) {
        return rc;
    }
    rc = format_open(env, &txn, &is_new);
    meta = txn.meta;
    if (rc < 0) {
        struct impel_error cause = txn.error;
        env_abort(&txn);
        return rc == IMPEL_ERR_FULL && is_new
                   ? error_set(err, rc,
                               "%s: the map is too small for a new store: open it with a larger "
                               "?map=, of 1MiB at least",
                               env->path)
                   : error_set(err, rc, "%s: %s", env->path, cause.text);
    }
    rc = env_commit(env, &txn, err);
    if (rc >= 0 && is_new) {
        (void)env_sync_folder(env->path);
    }
    struct impel_error cause = {0};
    rc = rc < 0 ? rc : side_identify(&env->side, meta.identity, &cause);
    if (cause.status < 0) {
        return error_set(err, rc, "%s: %s", env->path, cause.text);
    }
    return rc < 0 ? rc : format_sync(env, &meta, err);
}
