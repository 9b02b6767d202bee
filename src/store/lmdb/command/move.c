/* move.c -- RENAME, RENAMENX and COPY: a key under another name. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

static bool key_exists(struct call *call, struct impel_bytes name, bool *exists)
{
    enum lmdb_key_kind kind = LMDB_KEY_NONE;
    int rc = lmdb_key_kind(call->txn, name, &kind);

    *exists = kind != LMDB_KEY_NONE;
    return call_check(call, rc);
}

void call_rename(struct call *call)
{
    int rc = lmdb_key_rename(call->txn, call->args[1], call->args[2]);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        call_error(call, "ERR no such key");
    } else if (call_check(call, rc)) {
        call_changed(call, !bytes_equal(call->args[1], call->args[2]));
        call_reply_ok(call);
    }
}

void call_renamenx(struct call *call)
{
    bool from = false, to = false;

    if (!key_exists(call, call->args[1], &from) || !key_exists(call, call->args[2], &to)) {
        return;
    }
    if (!from) {
        call_error(call, "ERR no such key");
    } else if (to) {
        call_reply_integer(call, 0);
    } else if (call_check(call, lmdb_key_rename(call->txn, call->args[1], call->args[2]))) {
        call_reply_integer(call, 1);
    }
}

static bool copy_options(struct call *call, bool *replace)
{
    int64_t database = 0;

    for (size_t i = 3; i < call->arg_count; i++) {
        if (call_word_is(call, i, "REPLACE")) {
            *replace = true;
        } else if (call_word_is(call, i, "DB") && i + 1 < call->arg_count) {
            if (!call_integer(call, ++i, &database)) {
                return false;
            }
            if (database != 0) {
                return call_error(call, "ERR DB index is out of range");
            }
        } else {
            return call_error_syntax(call);
        }
    }
    return true;
}

void call_copy(struct call *call)
{
    bool replace = false, from = false, to = false;

    if (!copy_options(call, &replace)) {
        return;
    }
    if (bytes_equal(call->args[1], call->args[2])) {
        call_error(call, "ERR source and destination objects are the same");
        return;
    }
    if (!key_exists(call, call->args[1], &from) || !key_exists(call, call->args[2], &to)) {
        return;
    }
    if (!from || (to && !replace)) {
        call_reply_integer(call, 0);
    } else if (call_check(call, lmdb_key_copy(call->txn, call->args[1], call->args[2]))) {
        call_reply_integer(call, 1);
    }
}
