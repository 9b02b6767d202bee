/* idmprecord.c -- XIDMPRECORD: an entry that is there gets the idempotent ID under which it was added,
 * as when a stream is written anew elsewhere.
 *
 *   XIDMPRECORD key producer iid id
 *
 * The ID is kept for the stream's duration from now on. An entry has one at most. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

static bool error_other(struct call *call)
{
    return call_error(call, "ERR The specified IDMP producer-id/idempotent-id pair maps to a "
                            "different stream ID");
}

/* Keeps it, unless it is known. */
static bool record(struct call *call, struct lmdb_stream *stream, const struct lmdb_iid *iid)
{
    struct impel_id known = ID_MIN;
    bool has = false;
    int rc = lmdb_idmp_look(call->txn, stream, iid->producer, iid->iid, &known);

    if (rc >= 0) {
        return id_equal(known, iid->id) || error_other(call);
    }
    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return false;
    }
    if (!call_check(call, lmdb_idmp_has(call->txn, stream, iid->id, &has))) {
        return false;
    }
    if (has) {
        return call_error(call, "ERR The specified stream ID has another idempotent ID");
    }
    return call_check(call, lmdb_idmp_add(call->txn, stream, iid));
}

void call_xidmprecord(struct call *call)
{
    struct lmdb_iid iid = {
        .producer = call->args[2], .iid = call->args[3], .added_ms = lmdb_now_ms(call->txn)};
    struct lmdb_stream *stream = NULL;

    if (iid.producer.size == 0 || iid.iid.size == 0) {
        call_error(call, "ERR XIDMPRECORD requires a non-empty %s ID",
                   iid.producer.size == 0 ? "producer" : "idempotent");
        return;
    }
    if (!call_id(call, 4, 0, &iid.id) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL) {
        call_error(call, "ERR no such key");
        return;
    }
    if (!call_iid_given(call, iid.iid, &iid.iid)) {
        return;
    }
    int rc = lmdb_entry_get(call->txn, stream, iid.id, NULL);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        call_error(call, "ERR The specified stream ID was deleted or doesn't exist");
    } else if (call_check(call, rc) && record(call, stream, &iid)) {
        call_reply_ok(call);
    }
}
