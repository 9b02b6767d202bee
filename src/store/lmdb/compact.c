/* compact.c -- copying a file without its free pages, and putting the copy in its place.
 *
 * A rename under somebody who has the old file open would lose what he commits. So it takes the lock
 * that only who is alone can have (side.h), and keeps it until the new file stands: openers that come
 * meanwhile wait at the side file, which stays what it was. It notes which data file its openers share;
 * the note is wiped before the rename, so that those who were waiting do not miss the old one. */
#include "store/lmdb/compact.h"

#include "store/lmdb/env.h"
#include "store/lmdb/pages.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *path, const char *what, int code, struct impel_error *err)
{
    bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;

    if (full) {
        return error_set(err, IMPEL_ERR_FULL,
                         "%s: no room for the compacted file beside it: it needs what is in use "
                         "once more",
                         path);
    }
    return error_set(err, lmdb_status_of(code), "%s: %s: %s", path, what, mdb_strerror(code));
}

/* Alone, and the file is marked as synced; keeps everybody out until the side file is closed. */
static int become_alone(struct lmdb_env *env, struct impel_error *err)
{
    struct env_options full = {.path = env->path, .sync = SIDE_SYNC_FULL, .must_exist = true};
    struct lmdb_env *same = NULL;

    if (env->uses > 1 || !side_alone(&env->side) || !files_alone(env)) {
        return error_set(err, IMPEL_ERR_BUSY,
                         "%s: somebody has it open, and would lose what he writes to the old file: "
                         "stop all that use the store first",
                         env->path);
    }
    int rc = env_open(&full, &same, err); /* for what was written loosely until now */
    env_close(same);
    return rc;
}

/* A new file for nobody but whom the old one is for. */
static int make_file(const char *path, const struct stat *like, int *out)
{
    int fd = -1;

    if (unlink(path) < 0 && errno != ENOENT) {
        return errno;
    }
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return errno;
    }
    /* Only root may give files away; then it stays ours, as any file that we make. */
    bool given = fchown(fd, like->st_uid, like->st_gid) == 0;
    int code = fchmod(fd, like->st_mode & (given ? 07777U : 0777U)) < 0 ? errno : 0;
    if (code != 0) {
        close(fd);
        return code;
    }
    *out = fd;
    return 0;
}

/* Makes `copy`, complete and on the disk. */
static int
write_copy(struct lmdb_env *env, const char *copy, const struct stat *like, struct impel_error *err)
{
    struct impel_error damage = {0};
    int fd = -1;
    int code = make_file(copy, like, &fd);

    if (code != 0) {
        return failed(env->path, "the compacted file", code, err);
    }
    code = mdb_env_copyfd2(env->mdb, fd, MDB_CP_COMPACT);
    code = code == 0 && fsync(fd) < 0 ? errno : code;
    close(fd);
    if (code != 0) {
        return failed(env->path, "writing the compacted file", code, err);
    }
    int rc = pages_check(copy, &damage);
    return rc < 0
               ? error_set(err, rc, "%s: the compacted file is not whole (%s), the old one is kept",
                           env->path, damage.text)
               : IMPEL_OK;
}

static int
put_in_place(struct lmdb_env *env, const char *copy, const char *path, struct impel_error *err)
{
    env->side.header->data_inode = 0;
    if (rename(copy, path) < 0) {
        return failed(env->path, "putting the compacted file in its place", errno, err);
    }
    int code = env_sync_folder(path);
    return code == 0 ? IMPEL_OK : failed(env->path, "its folder", code, err);
}

static int compact(struct lmdb_env *env,
                   const char *path,
                   struct lmdb_compact_sizes *sizes,
                   struct impel_error *err)
{
    char copy[PATH_MAX];
    struct stat before;
    struct stat after;

    if (snprintf(copy, sizeof(copy), "%s-compact", path) >= (int)sizeof(copy)) {
        return error_set(err, IMPEL_ERR_LIMIT, "the path is too long");
    }
    if (stat(path, &before) < 0) {
        return failed(env->path, "its size", errno, err);
    }
    int rc = become_alone(env, err);
    if (rc < 0) {
        return rc;
    }
    rc = write_copy(env, copy, &before, err);
    if (rc >= 0 && stat(copy, &after) < 0) {
        rc = failed(env->path, "its new size", errno, err);
    }
    rc = rc < 0 ? rc : put_in_place(env, copy, path, err);
    if (rc < 0) {
        (void)unlink(copy);
        return rc;
    }
    sizes->before_bytes = (uint64_t)before.st_size;
    sizes->after_bytes = (uint64_t)after.st_size;
    return rc;
}

int lmdb_compact(const char *path, struct lmdb_compact_sizes *sizes, struct impel_error *err)
{
    struct env_options options = {.path = path, .sync = SIDE_SYNC_KEEP, .must_exist = true};
    struct lmdb_env *env = NULL;
    int rc = env_open(&options, &env, err);

    rc = rc < 0 ? rc : compact(env, env->path, sizes, err);
    env_close(env);
    return rc;
}
