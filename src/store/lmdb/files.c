/* files.c -- are the three files of a store still the ones that everybody has open?
 *
 * Somebody may delete or replace the data file, PATH-lock or PATH-wake under running processes.
 * Whoever opens then would find the missing ones free, take itself for alone, and both sides would
 * write over each other's pages. So every opener holds a shared OFD lock on the data file itself,
 * far behind its end, where nobody else locks: who is alone by the side file must be alone by that
 * lock too. Who joins compares the files with those noted in the side file. And who has the store
 * open looks once a second whether its files are still in their places, and before each commit
 * whether the data file is. */
#include "store/lmdb/env.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    FILES_ALONE_MS = 2000, /* a process that is dying gives up its locks one after the other */
    FILES_CHECK_MS = 1000,
};

#define FILES_LOCK_AT ((off_t)1 << 62)

static const char *const suffixes[FILES_COUNT] = {"", "-lock", "-wake"};

/* A file of the store at `path`, in `text` of PATH_MAX bytes. */
static const char *file_path(const char *path, int file, char *text)
{
    (void)snprintf(text, PATH_MAX, "%s%s", path, suffixes[file]);
    return text;
}

/* The number of a file; 0 if it is not there. */
static uint64_t file_inode(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static int refuse(const struct lmdb_env *env, int file, struct impel_error *err)
{
    /* A hard link is a file's second name, and beside each name lie other side files. */
    return error_set(err, IMPEL_ERR_BUSY,
                     "%s: other processes have it open under another name, or %s%s was removed or "
                     "replaced under them: stop them first",
                     env->path, env->path, suffixes[file]);
}

/* Takes the shared lock; 0, or an errno. */
static int hold(struct lmdb_env *env)
{
    struct flock lock = {
        .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = FILES_LOCK_AT, .l_len = 1};

    env->data_fd = open(env->path, O_RDWR | O_CLOEXEC);
    return env->data_fd >= 0 && fcntl(env->data_fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

static bool is_locked(int fd, off_t at)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};

    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

bool files_held(int fd)
{
    return is_locked(fd, FILES_LOCK_AT);
}

/* Has anybody else the data file open, or LMDB's lock file, whose first byte is locked by all? Nobody
 * in this process has: to close a descriptor of that file would give up its locks. */
static bool others_hold(const struct lmdb_env *env)
{
    char text[PATH_MAX];

    if (files_held(env->data_fd)) {
        return true;
    }
    int fd = open(file_path(env->path, FILES_LOCK, text), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    bool locked = is_locked(fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    return locked;
}

static int hold_failed(const struct lmdb_env *env, int code, struct impel_error *err)
{
    return error_set(err, lmdb_status_of(code), "%s: its lock: %s", env->path, strerror(code));
}

int files_enter(struct lmdb_env *env, bool alone, struct impel_error *err)
{
    uint64_t *noted[] = {&env->side.header->data_inode, &env->side.header->lock_inode};
    int64_t deadline = side_now_ms() + FILES_ALONE_MS;
    char text[PATH_MAX];

    for (int file = FILES_DATA; file <= FILES_LOCK; file++) {
        if (alone) {
            *noted[file] = 0; /* of those who had it open before */
        } else if (*noted[file] != 0 &&
                   file_inode(file_path(env->path, file, text)) != *noted[file]) {
            return refuse(env, file, err);
        }
    }
    int code = hold(env);
    if (code != 0 && code != ENOENT) { /* a missing one is made by LMDB */
        return hold_failed(env, code, err);
    }
    while (alone && others_hold(env)) {
        if (side_now_ms() > deadline) {
            return refuse(env, FILES_WAKE, err);
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return IMPEL_OK;
}

/* The path for later, whatever the working folder is then. */
static char *path_from_root(const char *path)
{
    char folder[PATH_MAX];
    char *full = NULL;

    if (path[0] == '/' || getcwd(folder, sizeof(folder)) == NULL) {
        return strdup(path);
    }
    return asprintf(&full, "%s/%s", folder, path) < 0 ? NULL : full;
}

int files_note(struct lmdb_env *env, struct impel_error *err)
{
    char text[PATH_MAX];
    struct stat st;
    int code = env->data_fd >= 0 ? 0 : hold(env);

    if (code != 0) {
        return hold_failed(env, code, err);
    }
    env->full_path = path_from_root(env->path);
    if (env->full_path == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    env->inodes[FILES_DATA] = fstat(env->data_fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
    env->inodes[FILES_WAKE] = fstat(env->side.fd, &st) == 0 ? (uint64_t)st.st_ino : 0;
    env->inodes[FILES_LOCK] = file_inode(file_path(env->path, FILES_LOCK, text));
    env->side.header->data_inode = env->inodes[FILES_DATA];
    env->side.header->lock_inode = env->inodes[FILES_LOCK];
    env->files_checked_ms = side_now_ms();
    return IMPEL_OK;
}

/* The first file that is no longer in its place, FILES_COUNT if all are. What cannot be looked at for
 * another reason is believed to be there. */
static int file_missing(const struct lmdb_env *env)
{
    char text[PATH_MAX];
    struct stat st;

    for (int file = 0; file < FILES_COUNT; file++) {
        int code = stat(file_path(env->full_path, file, text), &st) == 0 ? 0 : errno;
        if (code == ENOENT || (code == 0 && (uint64_t)st.st_ino != env->inodes[file])) {
            return file;
        }
    }
    return FILES_COUNT;
}

bool files_uncut(struct lmdb_env *env)
{
    int64_t seen = atomic_load(&env->size_seen); /* before it is asked: it may grow meanwhile */
    struct stat st;

    if (env->data_fd < 0 || fstat(env->data_fd, &st) < 0) {
        return true;
    }
    if (st.st_size > seen) {
        atomic_store(&env->size_seen, st.st_size);
    }
    return st.st_size >= seen;
}

static int lost(struct lmdb_env *env, struct impel_error *err)
{
    int file = atomic_load(&env->file_lost);

    if (atomic_load(&env->panicked)) {
        return error_set(
            err, IMPEL_ERR_IO,
            "%s: the disk failed when it was written, so this process cannot use it any "
            "more: see to the disk, then start the process again",
            env->path);
    }
    return file == 0 ? IMPEL_OK
                     : error_set(err, IMPEL_ERR_IO,
                                 "%s%s was removed or replaced or emptied while this process had "
                                 "it open: stop all that use the store, and start them again",
                                 env->full_path, suffixes[file - 1]);
}

int files_check_data(struct lmdb_env *env, struct impel_error *err)
{
    struct stat st;

    if (env->full_path != NULL && atomic_load(&env->file_lost) == 0 &&
        (stat(env->full_path, &st) == 0 ? (uint64_t)st.st_ino != env->inodes[FILES_DATA]
                                        : errno == ENOENT)) {
        atomic_store(&env->file_lost, FILES_DATA + 1);
    }
    return lost(env, err);
}

int files_check(struct lmdb_env *env, struct impel_error *err)
{
    int64_t now_ms = side_now_ms();

    if (env->full_path == NULL) {
        return IMPEL_OK; /* still being opened */
    }
    if (!side_whole(&env->side)) {
        atomic_store(&env->file_lost, FILES_WAKE + 1);
    } else if (!files_uncut(env)) {
        atomic_store(&env->file_lost, FILES_DATA + 1);
    }
    if (atomic_load(&env->file_lost) == 0 &&
        now_ms - atomic_load(&env->files_checked_ms) >= FILES_CHECK_MS) {
        int file = file_missing(env);
        atomic_store(&env->files_checked_ms, now_ms);
        atomic_store(&env->file_lost, file < FILES_COUNT ? file + 1 : 0);
    }
    return lost(env, err);
}

bool files_alone(const struct lmdb_env *env)
{
    return !is_locked(env->data_fd, FILES_LOCK_AT);
}

void files_leave(struct lmdb_env *env)
{
    if (env->data_fd >= 0) {
        close(env->data_fd);
        env->data_fd = -1;
    }
}
