/* store.h -- a handle on the embedded store: its queues, and what its turn goes through. */
#ifndef IMPEL_STORE_LMDB_STORE_H
#define IMPEL_STORE_LMDB_STORE_H

#include "store/lmdb/exec.h"
#include "store/store.h"

enum {
    TURN_REQUESTS_MAX = 4096,  /* in one transaction: a turn stays short */
    TURN_BYTES_MAX = 32 << 20, /* and so does what a commit has to write */
    LOCK_TOLD_MS = 2000,       /* held longer by another: an event says so */
    SLOW_TURN_MS = 100,        /* a turn that took longer beats for its own workers */
    POLL_MS = 20,              /* blocked reads without a wake callback */
};

struct queue {
    struct request *first, **last;
};

struct handle {
    struct store store;
    struct store_env env;
    struct lmdb_env *file;
    struct queue submitted;
    struct queue blocked; /* READ and CALL that wait, in the order they came */
    struct queue done;    /* carried out, not told yet */
    MDB_txn *reader;      /* kept for the next read transaction */
    struct exec_refs refs;
    struct op *free_ops; /* so that a request costs no allocation */
    struct env_watch watch;
    bool told_lost;       /* that its files are gone */
    int64_t held_since;   /* of the lock, by whom we wait for: told already */
    uint64_t seen_commit; /* when the blocked ones were last tried */
    int64_t now_ms;       /* of the turn: the driver's clock */
};

void queue_init(struct queue *queue);
void queue_push(struct queue *queue, struct request *request);
struct request *queue_pop(struct queue *queue);

/* ---- a turn's steps (turn.c) ---- */

/* Carries out what needs no lock: known beats, and everything if there are only reads. */
void turn_without_lock(struct handle *handle);
/* Carries out what is queued, in one transaction. BUSY: another process has the lock. */
int turn_with_lock(struct handle *handle);
/* Ends a request with a status; it is told at the end of the turn. */
void turn_end(struct handle *handle, struct request *request, int status);

#endif /* IMPEL_STORE_LMDB_STORE_H */
