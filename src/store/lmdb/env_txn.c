/* env_txn.c -- the transactions of an open file, and what LMDB's refusals mean. */
#include "store/lmdb/env.h"

#include <sys/statvfs.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    DISK_FULL_SIZE = 1 << 20, /* less than this is left on a full disk */
};

uint64_t env_commit_number(struct lmdb_env *env)
{
    MDB_envinfo info = {0};

    if (files_uncut(env)) {
        (void)mdb_env_info(env->mdb, &info);
    }
    return info.me_last_txnid;
}

void env_clear_readers(struct lmdb_env *env, bool force)
{
    int64_t now_ms = side_now_ms();

    if (force || now_ms - atomic_load(&env->readers_checked_ms) >= ENV_READERS_CHECK_MS) {
        int dead = 0;
        atomic_store(&env->readers_checked_ms, now_ms);
        (void)mdb_reader_check(env->mdb, &dead);
    }
}

/* Commits reach the disk, or only the kernel, as the strongest of all openers wants it. */
static void follow_sync(struct lmdb_env *env)
{
    bool nosync = atomic_load(&env->side.header->sync) == SIDE_SYNC_PROCESS;

    if (nosync != atomic_load(&env->nosync)) {
        mdb_env_set_flags(env->mdb, MDB_NOSYNC, nosync ? 1 : 0);
        atomic_store(&env->nosync, nosync);
    }
}

int env_begin_write(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err)
{
    MDB_txn *mdb = NULL;
    int rc = files_check(env, err);

    if (rc < 0) {
        return rc;
    }
    env_clear_readers(env, false);
    follow_sync(env);
    redo_prepare(env);
    int code = mdb_txn_begin(env->mdb, NULL, 0, &mdb);
    if (code == MDB_MAP_RESIZED) {
        return error_set(err, IMPEL_ERR_FULL,
                         "%s: another process has made the file larger than this one's map: open "
                         "it with a larger ?map=",
                         env->path);
    }
    if (code != 0) {
        return env_explain_mdb(env, code, err);
    }
    lmdb_txn_init(txn, mdb, env->dbi, true);
    rc = redo_begin(env, txn, err);
    if (rc < 0) {
        env_abort(txn);
        return rc;
    }
    room_begin(env, txn);
    return IMPEL_OK;
}

void env_abort(struct lmdb_txn *txn)
{
    lmdb_txn_release(txn);
    mdb_txn_abort(txn->mdb);
    txn->mdb = NULL;
}

int env_commit(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err)
{
    bool wake = txn->signal || env->side.owner_died;
    bool lost = false;
    int rc = lmdb_txn_flush(txn);

    if (rc < 0) {
        struct impel_error cause = txn->error;
        env_abort(txn);
        return env_explain(env, rc, cause.text, err);
    }
    rc = files_check_data(env, err);
    if (rc < 0) {
        env_abort(txn);
        return rc;
    }
    int code = redo_commit(env, txn, &lost);
    if (lost) {
        atomic_store(&env->panicked, true);
        return files_check_data(env, err);
    }
    if (code == EINVAL) { /* a page whose place is none */
        return env_explain(env, IMPEL_ERR_CORRUPT, mdb_strerror(code), err);
    }
    if (code != 0) {
        return env_explain_mdb(env, code, err);
    }
    if (wake) {
        env->side.owner_died = false;
        side_wake(&env->side);
    }
    return IMPEL_OK;
}

int env_begin_read(struct lmdb_env *env,
                   MDB_txn **cache,
                   struct lmdb_txn *txn,
                   struct impel_error *err)
{
    int rc = files_check(env, err);

    if (rc < 0) {
        return rc;
    }
    int code =
        *cache != NULL ? mdb_txn_renew(*cache) : mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, cache);

    if (code == MDB_READERS_FULL) {
        env_clear_readers(env, true);
        code = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, cache);
    }
    if (code != 0) {
        return env_explain_mdb(env, code, err);
    }
    lmdb_txn_init(txn, *cache, env->dbi, false);
    return IMPEL_OK;
}

void env_end_read(struct lmdb_txn *txn)
{
    lmdb_txn_release(txn);
    mdb_txn_reset(txn->mdb);
    txn->mdb = NULL;
}

int env_explain(struct lmdb_env *env, int status, const char *text, struct impel_error *err)
{
    struct statvfs fs;

    if ((status == IMPEL_ERR_IO || status == IMPEL_ERR_FULL) && statvfs(env->path, &fs) == 0 &&
        fs.f_bavail * fs.f_frsize < DISK_FULL_SIZE) {
        return error_set(err, IMPEL_ERR_FULL, "%s: the disk is full: make room, then it goes on",
                         env->path);
    }
    if (status == IMPEL_ERR_FULL) {
        return error_set(err, status,
                         "%s: the store is full (%s): trim, ack, or open it with a larger ?map=",
                         env->path, text);
    }
    if (status == IMPEL_ERR_CORRUPT) {
        return error_set(err, status, "%s is damaged (%s): see `impel check`", env->path, text);
    }
    return error_set(err, status, "%s: %s", env->path, text);
}

/* LMDB gives up an environment for good when it could not take back a half-written meta page. How many
 * bytes it writes of a page the page itself says, so damage, too, may look like a disk that fails. */
int env_explain_mdb(struct lmdb_env *env, int code, struct impel_error *err)
{
    char text[160];

    if (code == EIO || code == EFAULT) {
        (void)snprintf(text, sizeof(text),
                       "%s (the disk fails or the file is damaged: see `impel check`)",
                       mdb_strerror(code));
        return env_explain(env, lmdb_status_of(code), text, err);
    }
    if (code == MDB_PANIC) {
        atomic_store(&env->panicked, true);
        return files_check_data(env, err);
    }
    return env_explain(env, lmdb_status_of(code), mdb_strerror(code), err);
}
