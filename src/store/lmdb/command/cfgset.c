/* cfgset.c -- XCFGSET: how long and how many idempotent IDs a stream keeps.
 *
 *   XCFGSET key [IDMP-DURATION seconds] [IDMP-MAXSIZE n]
 *
 * Other values than before make the stream forget all that it has; the same ones do not. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

struct xcfgset {
    int64_t duration_s; /* 0 = not given */
    int64_t iids_max;   /* 0 = not given */
};

static bool xcfgset_parse(struct call *call, struct xcfgset *set)
{
    if (call->arg_count == 2) {
        return call_error(call, "ERR At least one parameter must be specified");
    }
    for (size_t i = 2; i < call->arg_count; i += 2) {
        bool duration = call_word_is(call, i, "IDMP-DURATION");
        int64_t number;
        if ((!duration && !call_word_is(call, i, "IDMP-MAXSIZE")) || i + 1 == call->arg_count) {
            return call_error_syntax(call);
        }
        if (!call_integer(call, i + 1, &number)) {
            return false;
        }
        if (duration && (number < 1 || number > LMDB_IDMP_DURATION_MAX_S)) {
            return call_error(call, "ERR IDMP-DURATION must be between 1 and %d seconds",
                              LMDB_IDMP_DURATION_MAX_S);
        }
        if (!duration && (number < 1 || number > LMDB_IDMP_IIDS_MAX_MAX)) {
            return call_error(call, "ERR IDMP-MAXSIZE must be between 1 and %d entries",
                              LMDB_IDMP_IIDS_MAX_MAX);
        }
        *(duration ? &set->duration_s : &set->iids_max) = number;
    }
    return true;
}

void call_xcfgset(struct call *call)
{
    struct xcfgset set = {.duration_s = 0};
    struct lmdb_stream *stream;
    struct lmdb_idmp idmp;

    if (!xcfgset_parse(call, &set) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL) {
        call_error(call, "ERR no such key");
        return;
    }
    int rc = lmdb_idmp_get(call->txn, stream, &idmp);
    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return;
    }
    if (set.duration_s != 0) {
        idmp.duration_s = (uint32_t)set.duration_s;
    }
    if (set.iids_max != 0) {
        idmp.iids_max = (uint32_t)set.iids_max;
    }
    if (call_check(call, lmdb_idmp_set(call->txn, stream, idmp.duration_s, idmp.iids_max))) {
        call_reply_ok(call);
    }
}
