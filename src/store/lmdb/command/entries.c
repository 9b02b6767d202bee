/* entries.c -- XLEN, XRANGE, XREVRANGE, XDEL, XSETID: a stream without its groups.
 *
 *   XRANGE key start end [COUNT n]        XREVRANGE key end start [COUNT n]
 *   XDEL key id [id ...]                  XSETID key last-id [ENTRIESADDED n] [MAXDELETEDID id] */
#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

void call_xlen(struct call *call)
{
    struct lmdb_stream *stream;

    if (call_stream(call, call->args[1], &stream)) {
        call_reply_integer(call, stream == NULL ? 0 : (int64_t)stream->length);
    }
}

/* ---- XRANGE, XREVRANGE ---- */

struct xrange {
    struct impel_id start, end;
    uint64_t count;
};

static bool xrange_parse(struct call *call, struct xrange *range, bool reverse)
{
    range->count = UINT64_MAX;
    if (!call_interval_start(call, reverse ? 3 : 2, &range->start) ||
        !call_interval_end(call, reverse ? 2 : 3, &range->end)) {
        return false;
    }
    for (size_t i = 4; i < call->arg_count; i += 2) {
        int64_t count;
        if (!call_word_is(call, i, "COUNT") || i + 1 == call->arg_count) {
            return call_error_syntax(call);
        }
        if (!call_integer(call, i + 1, &count)) {
            return false;
        }
        range->count = count < 0 ? 0 : (uint64_t)count;
    }
    return true;
}

static void xrange(struct call *call, bool reverse)
{
    struct xrange range;
    struct lmdb_stream *stream;
    struct lmdb_walk walk = {.txn = NULL};

    if (!xrange_parse(call, &range, reverse) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream != NULL && range.count == 0) {
        call->reply->kind = VALUE_NULL_ARRAY;
        return;
    }
    call->reply->kind = VALUE_ARRAY;
    if (stream == NULL || id_compare(range.start, range.end) > 0) {
        return;
    }
    if (call_check(call,
                   lmdb_walk_entries(&walk, call->txn, stream, range.start, range.end, reverse))) {
        call_entries(call, call->reply, &walk, range.count);
    }
    lmdb_walk_end(&walk);
}

void call_xrange(struct call *call)
{
    xrange(call, false);
}

void call_xrevrange(struct call *call)
{
    xrange(call, true);
}

/* ---- XDEL ---- */

void call_xdel(struct call *call)
{
    struct lmdb_stream *stream;
    int64_t deleted = 0;

    if (!call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL) {
        call_reply_integer(call, 0);
        return;
    }
    struct impel_id *ids = call_ids(call, 2);
    if (ids == NULL) {
        return;
    }
    for (size_t i = 0; i < call->arg_count - 2; i++) {
        int rc = lmdb_stream_delete(call->txn, stream, ids[i]);
        if (!call_check(call, rc)) {
            return;
        }
        deleted += rc;
    }
    call_reply_integer(call, deleted);
}

/* ---- XSETID ---- */

struct xsetid {
    struct impel_id last_id;
    int64_t entries_added; /* -1 = not given */
    struct impel_id max_deleted_id;
};

static bool xsetid_parse(struct call *call, struct xsetid *set)
{
    if (!call_id(call, 2, 0, &set->last_id)) {
        return false;
    }
    set->entries_added = -1;
    for (size_t i = 3; i < call->arg_count; i += 2) {
        bool more = i + 1 < call->arg_count;
        if (more && call_word_is(call, i, "ENTRIESADDED")) {
            if (!call_integer(call, i + 1, &set->entries_added)) {
                return false;
            }
            if (set->entries_added < 0) {
                return call_error(call, "ERR entries_added must be positive");
            }
        } else if (more && call_word_is(call, i, "MAXDELETEDID")) {
            if (!call_id(call, i + 1, 0, &set->max_deleted_id)) {
                return false;
            }
            if (id_compare(set->last_id, set->max_deleted_id) < 0) {
                return call_error(call, "ERR The ID specified in XSETID is smaller than the "
                                        "provided max_deleted_entry_id");
            }
        } else {
            return call_error_syntax(call);
        }
    }
    return true;
}

static bool xsetid_judge(struct call *call, const struct xsetid *set, struct lmdb_stream *stream)
{
    struct impel_id top;

    if (id_compare(set->last_id, stream->max_deleted_id) < 0) {
        return call_error(call, "ERR The ID specified in XSETID is smaller than current "
                                "max_deleted_entry_id");
    }
    if (stream->length == 0) {
        return true;
    }
    if (!call_check(call, lmdb_stream_last(call->txn, stream, &top))) {
        return false;
    }
    if (id_compare(set->last_id, top) < 0) {
        return call_error(call, "ERR The ID specified in XSETID is smaller than the target stream "
                                "top item");
    }
    if (set->entries_added != -1 && (uint64_t)set->entries_added < stream->length) {
        return call_error(call, "ERR The entries_added specified in XSETID is smaller than the "
                                "target stream length");
    }
    return true;
}

void call_xsetid(struct call *call)
{
    struct xsetid set = {.entries_added = -1};
    struct lmdb_stream *stream;

    if (!xsetid_parse(call, &set) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL) {
        call_error(call, "ERR no such key");
        return;
    }
    if (!xsetid_judge(call, &set, stream)) {
        return;
    }
    stream->last_id = set.last_id;
    if (set.entries_added != -1) {
        stream->entries_added = (uint64_t)set.entries_added;
    }
    if (!id_is_zero(set.max_deleted_id)) {
        stream->max_deleted_id = set.max_deleted_id;
    }
    lmdb_stream_changed(call->txn, stream);
    call_reply_ok(call);
}
