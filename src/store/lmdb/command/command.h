/* command.h -- one Redis command, carried out inside one transaction of the embedded store.
 *
 * The replies, the errors and the order in which errors are found are Redis's. An error reply is a
 * value like any other: a command that answers one has changed nothing, so the transaction may be
 * committed. What a reply cannot say (no memory, a full map, an I/O error) comes back as a status:
 * then the transaction must be aborted, because a part of the command may have been done.
 *
 * Not here: the lock, the transaction's beginning and end, the list of blocked commands (the
 * store's), RESP and connections (a server's). */
#ifndef IMPEL_STORE_LMDB_COMMAND_COMMAND_H
#define IMPEL_STORE_LMDB_COMMAND_COMMAND_H

#include "core/request.h"

struct command;
struct lmdb_txn;

/* How a command that may block (XREAD, XREADGROUP with BLOCK, BLPOP) is kept waiting: it is carried out;
 * if there is nothing to give, `blocked` says so and the reply already is what a timeout answers.
 * The store commits (a consumer may have been created), keeps the request, and carries it out again
 * with `again` set whenever entries were added or a group or a key went away, until it no longer
 * says `blocked` or the deadline has passed: then the last reply is the answer. What XREADGROUP
 * CLAIM waits for comes with time alone: `again_ms` says when to try. "$" is replaced by the ID it meant in `request->call.args`, so a later try uses the ID of the first. */
struct call_wait {
    bool again;       /* in: this is a repetition of a command that blocked */
    bool blocked;     /* out */
    int64_t block_ms; /* out, with `blocked`: from the first try on; 0 = without end */
    int64_t again_ms; /* out, with `blocked`: try again after so long; INT64_MAX = need not */
};

/* Carries out request->call.args and sets request->call.reply, in the request's arena, where also
 * all bytes that the reply shows live. `wait` may be NULL: then nothing blocks, as if the time were
 * up at once. Returns IMPEL_OK, or a negative status: abort the transaction. */
int lmdb_call(struct lmdb_txn *txn, struct request *request, struct call_wait *wait);
/* The same for who knows the command (call.h) and that the number of words fits it. */
int lmdb_call_known(struct lmdb_txn *txn,
                    struct request *request,
                    const struct command *command,
                    struct call_wait *wait);

/* True if the command changes nothing: a read transaction will do for it. */
bool lmdb_call_only_reads(const struct request *request);

#endif /* IMPEL_STORE_LMDB_COMMAND_COMMAND_H */
