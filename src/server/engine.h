/* engine.h -- the store as the server uses it: one transaction at a time, begun when first needed.
 *
 * Reading begins with a read transaction, which needs no lock; the first command that writes turns
 * it into the write transaction. Here is all that the server knows of LMDB and the file's lock. */
#ifndef IMPEL_SERVER_ENGINE_H
#define IMPEL_SERVER_ENGINE_H

#include "base/value.h"
#include "store/lmdb/command/command.h"
#include "store/lmdb/exec.h"

#include <signal.h>

enum engine_mode {
    ENGINE_IDLE,
    ENGINE_READS,
    ENGINE_WRITES,
};

struct engine {
    struct lmdb_env *env;
    MDB_txn *read_cache;
    struct lmdb_txn txn;
    enum engine_mode mode;
    struct request request; /* the one that is handed to the store, used again and again */
    bool signalled;         /* the last call gave blocked readers something to look at */
    bool any_signal;        /* one of this transaction did */
    uint32_t seen_word;     /* the file's wake word and transaction that all waiters have seen */
    uint64_t seen_commit;
    uint64_t node_size_max, node_entries_max;
    uint32_t idmp_duration_s, idmp_iids_max;
    int64_t now_ms;          /* unix time of the command that is carried out */
    int64_t clock_offset_us; /* the wall clock minus uv_hrtime(), as of engine_clock() */
    sigset_t signals;        /* as they were before the write transaction */
    struct env_watch watch;
    struct exec_refs refs;      /* rows of workers that beat through this server */
    struct value *native_reply; /* native.c */
    int64_t begun_ms;           /* of the write transaction, side_now_ms() */
};

/* What a key is, as far as WATCH cares. */
struct key_print {
    enum lmdb_key_kind kind;
    uint64_t number, length, entries_added;
    struct impel_id last_id, first_id;
    uint64_t value_hash; /* of anything but a stream */
    int64_t expires_ms;
};

struct engine_options {
    struct env_options env;
    void (*wake)(void *user); /* from any thread: another process wrote */
    void *user;
};

int engine_open(struct engine *engine,
                const struct engine_options *options,
                struct impel_error *err);
void engine_close(struct engine *engine);
/* Looks at the wall clock; once a turn, so that a command costs one reading of one clock. */
void engine_clock(struct engine *engine, uint64_t monotonic_ns);
/* Makes sure that there is a transaction, and a writing one if asked for. IMPEL_OK;
 * IMPEL_ERR_BUSY: another process has the lock, try again soon; or a failure. `foreign` is set to
 * true if another process wrote since the waiters were last tried. */
int engine_begin(struct engine *engine, bool writes, bool *foreign, struct impel_error *err);
/* A store command and its words, which are as many as it takes. */
struct engine_call {
    const struct command *command;
    const struct impel_bytes *args;
    size_t arg_count;
    int version; /* of RESP */
    struct call_wait *wait;
};
/* Carries one out in the transaction, at the time of engine_time(). The reply lives until the next
 * call. Negative: the transaction has to be aborted, engine_explain() says why. */
int engine_call(struct engine *engine, const struct engine_call *call, struct value **reply);
void engine_time(struct engine *engine, uint64_t monotonic_ns); /* for the calls to come */
/* The last reply is not needed any more; a large one's memory is given back. */
void engine_rest(struct engine *engine);
int engine_explain(struct engine *engine, int status, struct impel_error *err);
/* Ends the transaction. On failure nothing of it happened. */
int engine_commit(struct engine *engine, struct impel_error *err);
void engine_abort(struct engine *engine);
/* To be called when clients wait: another process's commit calls `wake`. False: there has been one
 * already. */
bool engine_arm(struct engine *engine);
/* Has another process committed what waiters have not been tried on? */
bool engine_outdated(const struct engine *engine);
void engine_disarm(struct engine *engine);
/* All waiters have been tried on what is committed now; to be called before they are. */
void engine_seen(struct engine *engine);

/* In the transaction. */
int engine_print(struct engine *engine, struct impel_bytes key, struct key_print *out);
bool key_print_equal(const struct key_print *a, const struct key_print *b);
/* Would a blocked XREADGROUP of this key have something to answer, data or an error? */
int engine_group_ready(struct engine *engine,
                       struct impel_bytes key,
                       struct impel_bytes group,
                       bool *ready);
/* One of a group that is there was seen now; made if need be: then 1, else 0. */
int engine_consumer_seen(struct engine *engine,
                         struct impel_bytes key,
                         struct impel_bytes group,
                         struct impel_bytes consumer);
/* A blocked BLPOP? */
int engine_list_ready(struct engine *engine, struct impel_bytes key, bool *ready);
int engine_key_count(struct engine *engine, uint64_t *count);
/* How many keys will expire, and after how long on average. */
int engine_expire_count(struct engine *engine, uint64_t *count, int64_t *mean_ms);
/* Deletes keys that have expired, some at a time, and tells when the next will (unix ms; INT64_MAX =
 * none). In a transaction that reads it only tells. Signals as a command does. */
int engine_expire(struct engine *engine, int64_t *next_ms);

#endif /* IMPEL_SERVER_ENGINE_H */
