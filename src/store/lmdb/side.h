/* side.h -- the side file, PATH-wake: what processes that share a store tell each other without a
 * transaction. A lock with a deadline, a word to sleep on, and the workers tables.
 *
 * It holds nothing that cannot be lost: if it is missing or damaged, whoever opens the store alone
 * makes it anew, and dead workers look like foreign ones until their entries are taken. Where it is
 * whole it is kept, so that workers that died together with everybody are known to be dead; after a
 * reboot all of them are. It is mapped shared; the layout, fixed for a version:
 *
 *     0        struct side_header
 *     4096     GROUPS_MAX x struct side_group   found by number: a hash table, probed in steps of 1
 *     528384   ROWS_MAX x struct side_row       a list per group; free ones in a list of their own
 *
 * OPENERS hold a shared OFD lock on the file's first byte as long as they have the store open; the
 * one that gets it exclusively is alone and may make the contents.
 *
 * THE LOCK is a robust mutex that is only ever waited for in slices of 20 ms, and LMDB's own lock is
 * taken under it only. LMDB's waiters sleep without a deadline: one that is killed just after it
 * was woken takes the wake-up with it, and the others sleep on although the lock is free.
 *
 * BEATS. A row's beat is one word, so that its owner can refresh it without any lock while others
 * hold it through a slow fsync:
 *
 *     63..48 generation: how often the row was given away; 47..1 the time; 0 "judged dead"
 *
 * The owner compares and sets; whoever judges it dead sets bit 0, and gives the row away only with
 * the next generation. So a beat that comes too late fails, however late it is.
 *
 * TIMES are CLOCK_BOOTTIME in ms: the same in all processes of the machine (another time namespace
 * is refused), and no step of the wall clock touches them. */
#ifndef IMPEL_STORE_LMDB_SIDE_H
#define IMPEL_STORE_LMDB_SIDE_H

#include "core/id.h"
#include "core/liveness.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    SIDE_VERSION = 2,
    SIDE_GROUPS_MAX = 4096, /* groups that have or had workers; a power of two */
    SIDE_ROWS_MAX = 65536,  /* workers, over all groups */
    SIDE_NAME_MAX = 104,    /* how much of a worker's name its row keeps */
    SIDE_LOCK_MS = 20,
    SIDE_BOOT_SIZE = 16,
};

enum side_sync {
    SIDE_SYNC_FULL = 0,    /* what was answered survives power loss */
    SIDE_SYNC_PROCESS = 1, /* it survives the death of every process */
    SIDE_SYNC_KEEP = 2,    /* an opener's wish only: as it is, full if nobody has it open */
};

struct side_header {
    uint64_t magic;
    uint32_t version;
    _Atomic uint32_t ready;  /* 1 once all else is set */
    uint64_t pid_namespace;  /* of everybody who has it open: pids mean the same to all */
    uint64_t time_namespace; /* and so do times */
    uint8_t boot[SIDE_BOOT_SIZE];
    _Atomic uint32_t sync;      /* enum side_sync: the strongest of the openers' */
    _Atomic uint32_t wake;      /* changes when blocked readers should look again */
    _Atomic uint32_t waiters;   /* how many sleep on it; too many after one was killed */
    _Atomic int32_t holder;     /* the pid that has the lock, 0 = nobody */
    _Atomic int64_t held_since; /* since when */
    uint32_t rows_used;         /* rows from this one on were never used */
    uint32_t row_free;          /* the first of the free ones before it, as index + 1 */
    uint8_t identity[16];       /* of the data file whose groups these are; 0 = not known yet */
    uint64_t data_inode;        /* of the data file and of LMDB's lock file that all who have the */
    uint64_t lock_inode;        /* store open share, under the lock; 0 = not known */
    _Atomic uint64_t suspect;   /* 1 = a server met damage that LMDB could not tell: see open.c */
    _Atomic uint64_t
        redo_at; /* where the data file has its area for records (redo.h); 0 = it has none */
    _Atomic uint64_t flushed; /* the last transaction that is on the disk, as far as is known */
    uint64_t reserved[1];
    pthread_mutex_t lock;
};

struct side_group {
    _Atomic uint64_t number; /* the group's object number; 0 = never used, 1 = free again */
    _Atomic int64_t last_ms; /* struct liveness */
    _Atomic int64_t since_ms;
    _Atomic int64_t dead_after_min_ms; /* the smallest of its rows; 0 = no row */
    int64_t stamp_ms;                  /* when it was last swept */
    uint64_t cursor_owner;             /* where the sweep stands: a consumer's number, 0 = start */
    uint64_t cursor_ms, cursor_seq;
    uint32_t row_first; /* index + 1 */
    uint32_t reserved_a;
    int64_t left_ms; /* when due work was left behind, or a worker seen dead; 0 = never */
    uint32_t reserved[12];
};

struct side_row {
    _Atomic uint64_t beat; /* see above */
    uint64_t group;        /* the group's number; 0 = free */
    uint64_t name_hash[2];
    struct token token;
    int64_t dead_after_ms;
    uint32_t next; /* of its group, or of the free ones: index + 1 */
    uint32_t name_size;
    char name[SIDE_NAME_MAX]; /* cut */
    uint64_t reserved[3];
};

_Static_assert(sizeof(struct side_header) <= 4096, "layout");
_Static_assert(sizeof(struct side_group) == 128, "layout");
_Static_assert(sizeof(struct side_row) == 192, "layout");

struct side {
    int fd;
    struct side_header *header;
    struct side_group *groups;
    struct side_row *rows;
    bool owner_died;     /* the lock was taken over from somebody who died with it */
    _Atomic bool locked; /* by somebody in this process */
    _Atomic bool cut;    /* the file was made shorter; what is mapped now is memory of nobody's */
};

/* CLOCK_BOOTTIME in ms. */
int64_t side_now_ms(void);

/* ---- the file (side.c) ---- */

/* Opens `path` (the side file itself), makes it if nobody has it open. IMPEL_ERR_UNSUPPORTED:
 * somebody in another PID or time namespace has it open. */
int side_open(struct side *side, const char *path, enum side_sync sync, struct impel_error *err);
void side_close(struct side *side);
/* False once somebody has emptied or cut the file: to touch its mapping would be SIGBUS, so plain
 * memory takes its place, for good. Asked by side_lock(), side_word() and side_wake(), by which every
 * use begins; what remains is a file that is cut in the midst of a transaction: the lock that is held
 * then cannot be taken away from under its holder. */
bool side_whole(struct side *side);
/* The tables are those of the data file of this identity, or are emptied; under the lock. BUSY if
 * others have it open, with a file that is not (or no longer) this one. */
int side_identify(struct side *side, const uint8_t identity[16], struct impel_error *err);
/* True if nobody else has the store open; then, and until side_share(), nobody else can open it. */
bool side_alone(struct side *side);
void side_share(struct side *side);
/* Takes room on the disk for bytes of a mapped file before they are written: a write to a mapping
 * has no error to return, where the disk is full the process gets SIGBUS. ENOSPC, EDQUOT, or 0 (also
 * where the filesystem cannot say). */
int side_reserve(int fd, size_t from, size_t size);
/* The machine's boot, all zero if unknown. */
void side_boot(uint8_t boot[SIDE_BOOT_SIZE]);

/* ---- the lock ---- */

/* IMPEL_OK, or IMPEL_ERR_BUSY after SIDE_LOCK_MS. Takes over from a dead holder and puts the tables
 * in order (then side->owner_died is set; readers should be woken). */
int side_lock(struct side *side);
void side_unlock(struct side *side);

/* ---- waking (wake.c) ---- */

/* Readers have something to look at: changes the word and wakes who sleeps on it. */
void side_wake(struct side *side);
/* Sleeps until the word is no longer `seen`, at most `timeout_ms`. */
void side_sleep(struct side *side, uint32_t seen, int64_t timeout_ms);
uint32_t side_word(struct side *side);

/* ---- the workers tables (table.c); all but side_beat() under the lock ---- */

/* A row that this process took, for refreshing it without the lock. */
struct side_ref {
    uint64_t group_number;
    uint32_t group; /* index */
    uint32_t row;   /* index */
    uint16_t generation;
};

/* The group's table; made if `make`, else NULL if there is none. NULL too if the table is full. */
struct side_group *side_group(struct side *side, uint64_t number, bool make);
void side_name_hash(struct impel_bytes name, uint64_t hash[2]);
/* The row of a name, NULL if it has none. */
struct side_row *side_row(struct side *side, struct side_group *group, struct impel_bytes name);
struct side_row *side_row_at(struct side *side, uint32_t index_plus_one);
/* Gives the name to a token: a new row, or the one it has. NULL if the table is full. */
struct side_row *side_take(struct side *side,
                           struct side_group *group,
                           struct impel_bytes name,
                           const struct token *token,
                           int64_t dead_after_ms,
                           int64_t now_ms);
void side_remove(struct side *side, struct side_group *group, struct side_row *row);
/* Frees a group's table and all its rows. */
void side_group_remove(struct side *side, struct side_group *group);
struct side_ref
side_ref(const struct side *side, const struct side_group *group, const struct side_row *row);

/* Notes that a beat is taken now, whoever's (liveness_note). Needs no lock. */
void side_note(struct side_group *group, int64_t dead_after_ms, int64_t now_ms);
/* Refreshes a row without the lock. False: it is no longer what the ref says, or was judged dead:
 * take the lock and look. */
bool side_beat(struct side *side,
               const struct side_ref *ref,
               int64_t dead_after_ms,
               int64_t now_ms);
/* Is the row's worker dead? If so marks it, so that no late beat can pass. */
bool side_judge(struct side_group *group, struct side_row *row, int64_t now_ms);
/* The same without marking, for those who only look. */
bool side_looks_dead(const struct side_group *group, const struct side_row *row, int64_t now_ms);
bool side_marked(const struct side_row *row);
bool side_stale(const struct side_group *group, int64_t now_ms);
int64_t side_beat_ms(const struct side_row *row);
int64_t side_silence_ms(const struct side_group *group, const struct side_row *row, int64_t now_ms);

/* After a holder died, or the file was found as others had left it: lists anew from the rows. */
void side_repair(struct side *side);
/* All workers are dead, and no clock of before means anything. */
void side_bury(struct side *side);

#endif /* IMPEL_STORE_LMDB_SIDE_H */
