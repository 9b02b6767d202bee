/* env.c -- opening a file once per process, and closing it.
 *
 * Order of opening: the folder and the file are looked at, the side file is made or joined (which
 * refuses processes that must not share), LMDB's environment is opened, and under our lock the
 * databases are made or their version is read. Nothing is half-made for others: all of the format
 * appears in one commit. */
#include "store/lmdb/env.h"

#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAP_SIZE_DEFAULT ((uint64_t)1 << 40)
#define MAP_SIZE_LEAST   ((uint64_t)1 << 28) /* below this a refusal is an error */

enum {
    OPEN_LOCK_MS = 10000,      /* how long an opener waits for one that has the lock */
    OPEN_LOCK_MOST_MS = 60000, /* and for all of them */
    OPEN_TRIES_MAX = 50,       /* how often one whose locks were just destroyed is opened again */
    OPEN_AGAIN_MS = 2,         /* and after which pause */
    LOCK_FILE_SIZE = 4096 + ENV_READERS_MAX * 64, /* LMDB's head, and a cache line a reader */
};

static struct {
    pthread_mutex_t lock;
    struct lmdb_env *first;
    unsigned generation;
    pthread_once_t once;
} registry = {.lock = PTHREAD_MUTEX_INITIALIZER, .once = PTHREAD_ONCE_INIT};

/* ---- forks ---- */

static void fork_prepare(void)
{
    pthread_mutex_lock(&registry.lock);
}

static void fork_parent(void)
{
    pthread_mutex_unlock(&registry.lock);
}

static void fork_child(void)
{
    registry.generation++;
    /* The openers' lock belongs to the open file, which the child has inherited: it would go on
     * holding it when the parent is long gone. The map counts as well as the descriptor. */
    for (struct lmdb_env *env = registry.first; env != NULL; env = env->next) {
        side_close(&env->side);
        files_leave(env);
    }
    registry.first = NULL;
    pthread_mutex_unlock(&registry.lock);
}

static void registry_once(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

bool env_forked(const struct lmdb_env *env)
{
    return env->generation != registry.generation;
}

/* ---- opening ---- */

static int env_lock_to_open(struct lmdb_env *env, struct impel_error *err)
{
    const struct side_header *header = env->side.header;
    int64_t began_ms = side_now_ms();
    int64_t seen_ms = began_ms; /* since when this one has it, as far as was seen here */
    int64_t since_ms = -1;

    while (side_lock(&env->side) < 0) {
        int64_t now_ms = side_now_ms();
        int64_t held_since_ms = atomic_load(&header->held_since);
        if (held_since_ms != since_ms) { /* somebody else, or once more: it goes on */
            since_ms = held_since_ms;
            seen_ms = now_ms;
        }
        if (now_ms - seen_ms > OPEN_LOCK_MS) {
            return error_set(
                err, IMPEL_ERR_BUSY,
                "%s: process %d has held its lock for %d s: if it is stopped, continue it "
                "(kill -CONT) or kill it",
                env->path, atomic_load(&header->holder), OPEN_LOCK_MS / 1000);
        }
        if (now_ms - began_ms > OPEN_LOCK_MOST_MS) {
            return error_set(err, IMPEL_ERR_BUSY,
                             "%s: so many others use it that its lock could not be had for %d s",
                             env->path, OPEN_LOCK_MOST_MS / 1000);
        }
    }
    return IMPEL_OK;
}

/* Takes the room for LMDB's table of readers, which it writes through a mapping. Not while the file is
 * open in this process: to close any descriptor of it gives up LMDB's fcntl locks. */
static int reserve_readers(const struct lmdb_env *env, struct impel_error *err)
{
    char path[PATH_MAX];
    int code = 0;

    if (snprintf(path, sizeof(path), "%s-lock", env->path) >= (int)sizeof(path)) {
        return error_set(err, IMPEL_ERR_LIMIT, "the path is too long");
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0) {
        code = side_reserve(fd, 0, LOCK_FILE_SIZE);
        close(fd);
    } else {
        code = errno;
    }
    return code == 0 ? IMPEL_OK
                     : error_set(err, lmdb_status_of(code), "%s: %s", path, strerror(code));
}

/* Opens LMDB's environment, once. 0, or a code of LMDB's or errno.
 *
 * EINVAL may mean that its locks are none. Whoever closes last is alone with LMDB's lock file and, from
 * 0.9.26 on, destroys the locks in there. One who opens it at this moment waits to share it, then shares
 * it, and takes the locks for made, as only who is alone makes them. That shows at the first
 * transaction. A lock of ours around closing would not do: other programs, such as mdb_stat, close too. */
static int open_mdb(struct lmdb_env *env, uint64_t size)
{
    MDB_txn *txn = NULL;
    int code = mdb_env_create(&env->mdb);

    if (code != 0) {
        env->mdb = NULL;
        return code;
    }
    mdb_env_set_maxdbs(env->mdb, DB_COUNT + 1);
    mdb_env_set_maxreaders(env->mdb, ENV_READERS_MAX);
    mdb_env_set_mapsize(env->mdb, size);
    code = mdb_env_open(env->mdb, env->path, MDB_NOSUBDIR | MDB_NOTLS | MDB_NORDAHEAD, 0666);
    if (code == 0 && mdb_txn_begin(env->mdb, NULL, 0, &txn) == EINVAL) {
        code = EINVAL; /* what else fails fails again later, and is told there */
    }
    mdb_txn_abort(txn);
    if (code != 0) {
        mdb_env_close(env->mdb);
        env->mdb = NULL;
    }
    return code;
}

/* Opens it with less address space where the wanted is refused, and again where its locks were none: who
 * then is alone makes them. */
static int env_open_mdb(struct lmdb_env *env, uint64_t map_size, struct impel_error *err)
{
    uint64_t size = map_size == 0 ? MAP_SIZE_DEFAULT : map_size;
    int code = open_mdb(env, size);
    int tries = 1;

    while ((code == EINVAL && tries < OPEN_TRIES_MAX) ||
           (code == ENOMEM && size / 2 >= MAP_SIZE_LEAST)) {
        if (code == EINVAL) {
            nanosleep(&(struct timespec){.tv_nsec = OPEN_AGAIN_MS * 1000000L}, NULL);
            tries++;
        } else {
            size /= 2;
        }
        code = open_mdb(env, size);
    }
    if (code == ENOMEM) {
        return error_set(err, IMPEL_ERR_NOMEM,
                         "%s: the system refuses a map of %" PRIu64 " MiB: see `ulimit -v`, or set "
                         "?map=",
                         env->path, size >> 20);
    }
    return code == 0 ? IMPEL_OK : env_explain_mdb(env, code, err);
}

static void env_free(struct lmdb_env *env)
{
    if (env == NULL) {
        return;
    }
    if (env->mdb != NULL) {
        mdb_env_close(env->mdb);
    }
    redo_free(&env->redo);
    files_leave(env); /* before the side file, by which the next opener tells that it is alone */
    side_close(&env->side);
    pthread_mutex_destroy(&env->lock);
    pthread_cond_destroy(&env->change);
    free(env->path);
    free(env->full_path);
    free(env);
}

static int
env_new(const struct env_options *options, struct lmdb_env **out, struct impel_error *err)
{
    char side_path[PATH_MAX];
    struct stat st;
    struct lmdb_env *env = calloc(1, sizeof(*env));
    int rc = IMPEL_ERR_NOMEM;

    if (env == NULL) {
        return error_set(err, rc, "out of memory");
    }
    env->side.fd = env->data_fd = -1;
    env->generation = registry.generation;
    env->page_size = (size_t)sysconf(_SC_PAGESIZE);
    pthread_mutex_init(&env->lock, NULL);
    pthread_cond_init(&env->change, NULL);
    env->path = strdup(options->path);
    if (env->path == NULL) {
        rc = error_set(err, rc, "out of memory");
        goto done;
    }
    if (snprintf(side_path, sizeof(side_path), "%s-wake", env->path) >= (int)sizeof(side_path)) {
        rc = error_set(err, IMPEL_ERR_LIMIT, "the path is too long");
        goto done;
    }
    /* A file that is something else's stays without a side file. Where there is one, somebody may be
     * making the store just now: then it is looked at under the lock only. */
    rc = access(side_path, F_OK) == 0 ? IMPEL_OK : env_check_file(env->path, err);
    rc = rc < 0 ? rc : side_open(&env->side, side_path, options->sync, err);
    rc = rc < 0 ? rc : env_lock_to_open(env, err);
    if (rc < 0) {
        goto done;
    }
    bool alone = side_alone(&env->side);
    rc = files_enter(env, alone, err);
    rc = rc < 0 || !alone
             ? rc
             : redo_recover(&env->redo, env->side.header, env->data_fd, env->path, err);
    rc = rc < 0 ? rc : env_check_file(env->path, err);
    if (rc >= 0 && alone) {
        bool suspect = atomic_load(&env->side.header->suspect) != 0;
        rc = env_check_pages(env->path, suspect, err);
        atomic_store(&env->side.header->suspect, suspect && rc < 0);
    }
    if (alone) {
        side_share(&env->side);
    }
    rc = rc < 0 ? rc : reserve_readers(env, err);
    rc = rc < 0 ? rc : env_open_mdb(env, options->map_size, err);
    rc = rc < 0 ? rc : files_note(env, err);
    rc = rc < 0 ? rc : format_enter(env, err);
    side_unlock(&env->side);
    if (rc >= 0 && stat(env->path, &st) < 0) {
        rc = error_set(err, IMPEL_ERR_IO, "%s: %s", env->path, strerror(errno));
    }
    if (rc >= 0) {
        env->device = st.st_dev;
        env->inode = st.st_ino;
        *out = env;
        env = NULL;
    }
done:
    env_free(env);
    return rc;
}

/* LMDB's lock file is open in this process, for a data file that has been replaced since: to open and
 * close it again would give up the locks of those who use it. */
static bool registry_has_lock_of(const char *path)
{
    char lock_path[PATH_MAX];
    struct stat st;
    struct lmdb_env *env = registry.first;

    if (snprintf(lock_path, sizeof(lock_path), "%s-lock", path) >= (int)sizeof(lock_path) ||
        stat(lock_path, &st) < 0) {
        return false;
    }
    while (env != NULL && (env->device != st.st_dev || env->inodes[FILES_LOCK] != st.st_ino)) {
        env = env->next;
    }
    return env != NULL;
}

static struct lmdb_env *registry_find(const char *path)
{
    struct stat st;
    struct lmdb_env *env = stat(path, &st) < 0 ? NULL : registry.first;

    while (env != NULL && (env->device != st.st_dev || env->inode != st.st_ino)) {
        env = env->next;
    }
    return env;
}

/* One more user in this process. A stronger wish for durability holds for all from now on. */
static int
env_share(struct lmdb_env *env, const struct env_options *options, struct impel_error *err)
{
    int rc = IMPEL_OK;

    if (options->sync == SIDE_SYNC_FULL &&
        atomic_exchange(&env->side.header->sync, SIDE_SYNC_FULL) != SIDE_SYNC_FULL) {
        rc = env_lock_to_open(env, err);
        if (rc >= 0) {
            rc = format_mark(env, false, err);
            side_unlock(&env->side);
        }
    }
    env->uses += rc >= 0;
    return rc;
}

int env_open(const struct env_options *options, struct lmdb_env **out, struct impel_error *err)
{
    struct lmdb_env *env = NULL;
    char path[PATH_MAX];
    struct env_options followed = *options;
    int rc = env_follow(options->path, path, err);

    options = &followed;
    followed.path = path;
    rc = rc < 0 ? rc : env_check_folder(path, err);
    if (rc < 0) {
        return rc;
    }
    pthread_once(&registry.once, registry_once);
    pthread_mutex_lock(&registry.lock);
    env = registry_find(options->path);
    if (env == NULL && options->must_exist && access(options->path, F_OK) < 0) {
        rc = error_set(err, IMPEL_ERR_NOT_FOUND, "%s: there is no such store", options->path);
    } else if (env != NULL) {
        rc = env_share(env, options, err);
    } else if (registry_has_lock_of(options->path)) {
        rc = error_set(err, IMPEL_ERR_BUSY,
                       "%s: this process has it open, but the file was removed or replaced under "
                       "it: stop it first",
                       options->path);
    } else {
        rc = env_new(options, &env, err);
        if (rc >= 0) {
            ASSERT(env != NULL);
            env->uses = 1;
            env->next = registry.first;
            registry.first = env;
        }
    }
    pthread_mutex_unlock(&registry.lock);
    if (rc >= 0) {
        *out = env;
    }
    return rc;
}

/* The last user of a loosely written file leaves it synced, so that the next boot finds it whole; and any
 * file so that nothing of it need be taken back. */
static void env_leave(struct lmdb_env *env)
{
    if (side_whole(&env->side) && side_alone(&env->side) && side_lock(&env->side) >= 0) {
        if (atomic_load(&env->side.header->sync) == SIDE_SYNC_PROCESS) {
            (void)format_mark(env, false, NULL);
        }
        if (!atomic_load(&env->panicked)) {
            redo_settle(env);
        }
        side_unlock(&env->side);
    }
}

void env_close(struct lmdb_env *env)
{
    if (env == NULL || env_forked(env)) {
        return; /* in a forked child the maps and locks are the parent's */
    }
    pthread_mutex_lock(&registry.lock);
    if (--env->uses > 0) {
        env = NULL;
    } else {
        struct lmdb_env **at = &registry.first;
        while (*at != env) {
            at = &(*at)->next;
        }
        *at = env->next;
        env_watch_stop(env);
        env_leave(env);
        env_free(env);
    }
    pthread_mutex_unlock(&registry.lock);
}
