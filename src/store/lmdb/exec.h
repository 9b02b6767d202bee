/* exec.h -- the requests of the port, one function each, inside a transaction.
 *
 * Each validates first and writes then; what it returns is the request's status. A hard error of
 * the data layer may leave a request half done: then the transaction is aborted, nothing of it
 * happened, and exec_reset() takes back what the request was told. */
#ifndef IMPEL_STORE_LMDB_EXEC_H
#define IMPEL_STORE_LMDB_EXEC_H

#include "store/lmdb/command/command.h"
#include "store/lmdb/env.h"

enum {
    EXEC_BLOCKED = 1,        /* READ, CALL: nothing to give yet; keep it and try again */
    RELEASE_REST_MAX = 1000, /* of a RELEASE with `rest` */
    PARK_FIELDS = 10,        /* what is added to a parked entry */
    CLAIM_BYTES = 16 << 20,  /* claimed by one CLAIM_FROM, beside the last entry: of one reply */
    MOVE_BYTES = 256 * 1024, /* copied by one CLAIM_FROM, beside the last entry */
    CARRIED_ROWS_MAX = 1000, /* looked at by one LOOK that takes the stamp */
};

/* What the store keeps with a request while it has it. */
struct op {
    struct op *next;       /* of the handle's free ones */
    struct impel_id id;    /* ADD: as it was asked for, since the answer overwrites it */
    int64_t deadline_ms;   /* READ, CALL: until when it may block, INT64_MAX = for ever */
    int64_t again_ms;      /* CALL, blocked: when to try without a reason; INT64_MAX = never */
    bool blocks;           /* it has time left */
    bool fast_failed;      /* BEAT: the way without the lock was tried in vain */
    uint64_t seen_commit;  /* blocked: when it was last tried */
    struct call_wait wait; /* CALL */
};

/* A worker's row that this handle took: for beats without the lock, and for the beat that whoever
 * held the lock for long owes its own workers. */
struct exec_ref {
    struct side_ref side;
    struct token token;
    uint64_t name_hash;
    int64_t dead_after_ms;
    int64_t beat_ms; /* the last one, of any way */
};

struct exec_refs {
    struct exec_ref *items;
    size_t count, room;
};

struct exec {
    struct lmdb_env *env;
    struct lmdb_txn *txn;
    struct exec_refs *refs; /* the handle's */
    int64_t boot_ms;        /* side_now_ms() of this turn */
    int64_t wall_ms;        /* the wall clock, read again every few requests */
    unsigned wall_uses;
};

/* How long a row has been pending; -1 = it is nobody's: for ever. */
int64_t exec_idle_ms(const struct exec *exec, const struct lmdb_pending *row);
/* What every request begins with: the time. */
void exec_begin(struct exec *exec, struct request *request);
/* Carries a request out: IMPEL_OK, EXEC_BLOCKED, or its failure (in request->error as well). */
int exec_request(struct exec *exec, struct request *request);
/* True if a read transaction does for it, without the lock. */
bool exec_only_reads(const struct request *request);
/* Frees and forgets what a try has answered. */
void exec_reset(struct request *request);

/* ---- by file ---- */

int exec_add(struct exec *exec, struct request *request);
int exec_trim(struct exec *exec, struct request *request);
int exec_trim_done(struct exec *exec, struct request *request);
int exec_range(struct exec *exec, struct request *request);
int exec_info(struct exec *exec, struct request *request);
int exec_pending(struct exec *exec, struct request *request);
int exec_group_create(struct exec *exec, struct request *request);
int exec_group_set(struct exec *exec, struct request *request);
int exec_read(struct exec *exec, struct request *request);
/* In a read transaction: would the READ give or fail (1), or only wait (0)? */
int exec_read_ready(struct exec *exec, struct request *request);
/* In a read transaction: it gives nothing and changes nothing (1), or has to be carried out (0). */
int exec_read_idle(struct exec *exec, struct request *request);
int exec_ack(struct exec *exec, struct request *request);
int exec_items(struct exec *exec, struct request *request);
int exec_claim_from(struct exec *exec, struct request *request);
int exec_beat(struct exec *exec, struct request *request);
int exec_look(struct exec *exec, struct request *request);
int exec_leave(struct exec *exec, struct request *request);
int exec_drop(struct exec *exec, struct request *request);
int exec_replay(struct exec *exec, struct request *request);

/* A beat of a known row, without the lock, in a read transaction: 1 = done, 0 = take the lock, or
 * the request's failure. */
int exec_beat_fast(struct exec *exec, struct request *request);
/* Beats for all rows that this handle keeps alive: after the lock was held for long. */
void exec_beat_own(struct exec *exec);

/* ---- shared ---- */

/* The stream and group of a request: NO_GROUP, WRONG_TYPE with the error set. */
int exec_find(struct exec *exec,
              struct request *request,
              struct lmdb_stream **stream,
              struct lmdb_group **group);
/* Fails the request with the transaction's hard error, or with this one. */
int exec_fail(struct exec *exec, struct request *request, int status, const char *what);
int exec_nomem(struct exec *exec);
/* A copy of a name in the request's arena. */
int exec_copy(struct exec *exec,
              struct request *request,
              struct impel_bytes bytes,
              struct impel_bytes *out);

/* Takes the caller's beat in this step. An occupied name fails with IMPEL_ERR_REPLACED unless
 * `wait_ms` is given (REQUEST_BEAT itself). `table` (may be NULL) gets the group's table. */
int exec_beat_step(struct exec *exec,
                   struct request *request,
                   bool first,
                   enum beat_result *result,
                   int64_t *wait_ms);
/* The fence on the whole request. */
int exec_fence(struct exec *exec, struct request *request, struct lmdb_group *group);
/* Who a name is to the caller. With `mark` the dead are marked so (the caller has beaten). */
enum owner_state exec_owner_state(struct exec *exec,
                                  const struct request *request,
                                  struct side_group *table,
                                  struct side_row *row,
                                  struct impel_bytes name,
                                  bool mark);

struct exec_parking {
    struct lmdb_stream *stream;
    struct lmdb_group *group;
    const struct lmdb_pending *row;
    struct lmdb_raw raw;       /* the entry, copied out of the pages; or */
    const struct entry *entry; /* what its holder has of it */
    int64_t deliveries;        /* for the record */
    struct impel_bytes dead_letter, reason, error;
};
/* Copies the entry to the dead-letter stream and takes the row away. 1 = parked; 0 = refused, and
 * nothing was done, why in `err`; or a hard error. */
int exec_park(struct exec *exec,
              struct request *request,
              const struct exec_parking *parking,
              struct impel_error *err);

#endif /* IMPEL_STORE_LMDB_EXEC_H */
