/* env.h -- one open file: LMDB's environment, the side file, and who uses them in this process.
 *
 * A process opens a file once, however many handles it has on it: LMDB's locks are fcntl locks,
 * and closing any descriptor of the lock file, as a second environment would, drops them all. Then
 * the next opener believes to be alone, and commits are lost. So environments are found by (device,
 * inode) in a registry and counted; and a forked child, which has no locks at all, is refused. */
#ifndef IMPEL_STORE_LMDB_ENV_H
#define IMPEL_STORE_LMDB_ENV_H

#include "store/lmdb/redo.h"
#include "store/lmdb/side.h"
#include "store/lmdb/txn.h"

#include <sys/types.h>

enum {
    ENV_READERS_MAX = 4096,
    ENV_READERS_CHECK_MS = 1000,  /* how often slots of dead readers are cleared */
    ENV_ADDS_PERCENT = 95,        /* of the map; the rest is for acks, parks and trims */
    ENV_WALK_SIZE_MAX = 16 << 20, /* files up to this are walked whenever they are opened alone */
};

struct env_options {
    const char *path;
    uint64_t map_size; /* 0 = as much as can be had, up to 1 TiB */
    enum side_sync sync;
    bool must_exist; /* do not make a file that is not there */
};

/* The files of a store. */
enum {
    FILES_DATA,
    FILES_LOCK, /* LMDB's */
    FILES_WAKE, /* the side file */
    FILES_COUNT,
};

struct lmdb_env {
    struct lmdb_env *next; /* in the registry */
    size_t uses;
    dev_t device;
    ino_t inode;
    unsigned generation; /* of the process: differs in a forked child */
    char *path;
    char *full_path; /* the same from the root; NULL until it is open */
    int data_fd;     /* holds the openers' lock on the data file (files.c) */
    uint64_t inodes[FILES_COUNT];
    _Atomic int file_lost;            /* the one that is no longer in its place, + 1; 0 = none */
    _Atomic int64_t size_seen;        /* of the data file, which never shrinks */
    _Atomic bool panicked;            /* LMDB has given up this environment */
    _Atomic int64_t files_checked_ms; /* side_now_ms() */
    MDB_env *mdb;
    MDB_dbi dbi[DB_COUNT];
    size_t page_size;
    struct side side;
    struct redo redo;                   /* under the side lock */
    _Atomic bool nosync;                /* as LMDB's flag is set now */
    _Atomic int64_t readers_checked_ms; /* side_now_ms() */
    _Atomic int64_t room_taken;         /* the data file has its blocks up to this byte */
    _Atomic int64_t room_again_ms;      /* side_now_ms(): the disk is not asked for more before */

    /* The watcher: calls wake of the handles that have blocked reads. */
    pthread_mutex_t lock;  /* of all below */
    pthread_cond_t change; /* watched or stop changed */
    struct env_watch *watches;
    bool thread_started;
    bool stop;
    pthread_t thread;
};

/* What the watcher knows of a handle; part of the handle. */
struct env_watch {
    struct env_watch *next;
    void (*wake)(void *user);
    void *user;
    uint32_t word;   /* the wake word that the handle has looked at */
    uint64_t commit; /* and the last transaction it has seen */
    bool armed;      /* has blocked reads and wants to be woken, once */
};

/* Splits "PATH?sync=process&map=1GiB", in place; the options point into it. */
int env_url_parse(char *rest, struct env_options *options, struct impel_error *err);
/* Opens or shares. Errors name the path, the cause and the way out. */
int env_open(const struct env_options *options, struct lmdb_env **out, struct impel_error *err);
void env_close(struct lmdb_env *env);
bool env_forked(const struct lmdb_env *env);

/* ---- transactions (env_txn.c) ---- */

/* The number of the last committed transaction, of any process. */
uint64_t env_commit_number(struct lmdb_env *env);
/* The write transaction; under the side lock. */
int env_begin_write(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err);
/* Commits, or aborts where the transaction failed; then wakes readers. */
int env_commit(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err);
void env_abort(struct lmdb_txn *txn);
/* Reading, with an MDB_txn that is kept for the next time (*cache starts as NULL). */
int env_begin_read(struct lmdb_env *env,
                   MDB_txn **cache,
                   struct lmdb_txn *txn,
                   struct impel_error *err);
void env_end_read(struct lmdb_txn *txn);
/* Clears reader slots of dead processes: once a second, or at once with `force`. */
void env_clear_readers(struct lmdb_env *env, bool force);
/* Says more about a failed commit or a full map than LMDB does. */
int env_explain(struct lmdb_env *env, int status, const char *text, struct impel_error *err);
/* The same for a code of LMDB's, after which the environment may be of no more use. */
int env_explain_mdb(struct lmdb_env *env, int code, struct impel_error *err);

/* ---- the format (format.c) ---- */

/* Makes or reads what a file says of itself, right after it was opened. Where it was written loosely and
 * the machine went down, all of it is checked. */
int format_enter(struct lmdb_env *env, struct impel_error *err);
/* Says in the file, synced, whether what follows will be. */
int format_mark(struct lmdb_env *env, bool loose, struct impel_error *err);

/* ---- room (room.c) ---- */

/* What adds may take in this write transaction, of the map and of the disk. */
void room_begin(struct lmdb_env *env, struct lmdb_txn *txn);

/* ---- opening (open.c) ---- */

/* Where the path leads, in `text` of PATH_MAX bytes: the file's own name, which need not be there yet.
 * The other two files lie beside it, whatever symbolic links lead to it. */
int env_follow(const char *path, char *text, struct impel_error *err);
/* Is the folder of the path one that LMDB works on? */
int env_check_folder(const char *path, struct impel_error *err);
/* What can be seen wrong with the file before LMDB maps it; a missing or empty one is fine. */
int env_check_file(const char *path, struct impel_error *err);
/* Walks its pages, if it is small enough for that to cost nothing, or shorter than it says, or `whole`.
 * Only while nobody else can open it. */
int env_check_pages(const char *path, bool whole, struct impel_error *err);
int env_sync_folder(const char *path);

/* ---- the files in their places (files.c) ---- */

/* Before LMDB opens the data file, under the side lock. BUSY: others have the store open, with files
 * that are not these. `alone`: nobody else has the side file open. */
int files_enter(struct lmdb_env *env, bool alone, struct impel_error *err);
/* After it has: notes for everybody which they are. */
int files_note(struct lmdb_env *env, struct impel_error *err);
/* Looks once a second whether they are still there, and each time whether they were emptied; if not,
 * or if LMDB gave up, now and for ever IMPEL_ERR_IO. */
int files_check(struct lmdb_env *env, struct impel_error *err);
/* The same, of the data file and at once: before a commit. */
int files_check_data(struct lmdb_env *env, struct impel_error *err);
/* False if the data file is shorter than it was: to look at its pages may be SIGBUS. */
bool files_uncut(struct lmdb_env *env);
/* Nobody else has the data file open, whatever became of the other two. */
bool files_alone(const struct lmdb_env *env);
/* Somebody has this data file open, other than by this descriptor of it. */
bool files_held(int fd);
void files_leave(struct lmdb_env *env);

/* ---- the watcher (watch.c) ---- */

void env_watch_add(struct lmdb_env *env, struct env_watch *watch);
void env_watch_remove(struct lmdb_env *env, struct env_watch *watch);
/* The handle sleeps: wake it when the word differs from what it has seen, or, within a second, the
 * commit number does. False: the word does already. */
bool env_watch_arm(struct lmdb_env *env, struct env_watch *watch, uint32_t word, uint64_t commit);
void env_watch_disarm(struct lmdb_env *env, struct env_watch *watch);
void env_watch_stop(struct lmdb_env *env);

#endif /* IMPEL_STORE_LMDB_ENV_H */
