/* delex.c -- XDELEX and XACKDEL: deleting entries with regard to who still needs them.
 *
 *   XDELEX key [KEEPREF|DELREF|ACKED] IDS numids id [id ...]
 *   XACKDEL key group [KEEPREF|DELREF|ACKED] IDS numids id [id ...]
 *
 * One integer an ID: 1 it is gone, 2 it stays because a group needs it (ACKED), -1 there was nothing
 * to do: no such entry, or for XACKDEL none that is pending in the group. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/command/trim.h"

enum {
    DELEX_GONE = 1,
    DELEX_NEEDED = 2,
    DELEX_NOTHING = -1,
};

struct delex {
    enum lmdb_refs refs;
    const struct impel_id *ids;
    size_t id_count;
};

static bool delex_parse(struct call *call, size_t first, struct delex *delex)
{
    static const struct ids_errors errors = {
        .number = "ERR Number of IDs must be a positive integer",
        .too_few = "ERR The `numids` parameter must match the number of arguments",
    };
    bool refs_given = false;
    enum lmdb_refs refs;

    for (size_t i = first; i < call->arg_count;) {
        if (!refs_given && refs_word(call, i, &refs)) {
            refs_given = true;
            delex->refs = refs;
            i++;
        } else if (delex->ids == NULL && call_word_is(call, i, "IDS") && i + 1 < call->arg_count) {
            delex->ids = call_numbered_ids(call, &i, &errors, &delex->id_count);
            if (delex->ids == NULL) {
                return false;
            }
        } else {
            return call_error_syntax(call);
        }
    }
    return delex->ids != NULL || call_error_syntax(call);
}

/* Deletes one entry as the words want it; `result` says what became of it. */
static bool delex_one(struct call *call,
                      struct lmdb_stream *stream,
                      enum lmdb_refs refs,
                      struct impel_id id,
                      int *result)
{
    int rc = lmdb_entry_get(call->txn, stream, id, NULL);
    bool exists = rc >= 0;

    *result = DELEX_NOTHING;
    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return false;
    }
    if (refs == LMDB_REFS_DELETE && !call_check(call, lmdb_entry_forget(call->txn, stream, id))) {
        return false;
    }
    if (refs == LMDB_REFS_ACKED && exists) {
        rc = lmdb_entry_needed(call->txn, stream, id);
        if (rc != 0) {
            *result = DELEX_NEEDED;
            return call_check(call, rc);
        }
    }
    if (!exists) {
        return true;
    }
    *result = DELEX_GONE;
    call_changed(call, 1);
    return call_check(call, lmdb_stream_delete(call->txn, stream, id));
}

/* A reply of -1 for each ID, to be filled in. */
static struct value *results_begin(struct call *call, size_t count)
{
    struct value *items = call_list(call, call->reply, VALUE_ARRAY, count);

    for (size_t i = 0; items != NULL && i < count; i++) {
        items[i] = value_integer(DELEX_NOTHING);
    }
    return items;
}

void call_xdelex(struct call *call)
{
    struct delex delex = {.refs = LMDB_REFS_KEEP};
    struct lmdb_stream *stream;

    if (!delex_parse(call, 2, &delex) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    struct value *items = results_begin(call, delex.id_count);
    call_changed(call, 0);
    for (size_t i = 0; stream != NULL && items != NULL && i < delex.id_count; i++) {
        int result;
        if (!delex_one(call, stream, delex.refs, delex.ids[i], &result)) {
            return;
        }
        items[i] = value_integer(result);
    }
}

/* What is pending in the group is acked, whatever else becomes of it. */
static bool ackdel_one(struct call *call,
                       struct lmdb_group *group,
                       enum lmdb_refs refs,
                       struct impel_id id,
                       int *result)
{
    struct lmdb_pending row;
    int rc = lmdb_pending_get(call->txn, group, id, &row);

    *result = DELEX_NOTHING;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return true;
    }
    call_changed(call, 1);
    if (!call_check(call, rc) || !call_check(call, lmdb_pending_delete(call->txn, group, &row)) ||
        !delex_one(call, group->stream, refs, id, result)) {
        return false;
    }
    if (*result == DELEX_NOTHING) {
        *result = DELEX_GONE; /* the entry had gone before */
    }
    return true;
}

void call_xackdel(struct call *call)
{
    struct delex delex = {.refs = LMDB_REFS_KEEP};
    struct lmdb_stream *stream;
    struct lmdb_group *group;

    if (!delex_parse(call, 3, &delex) || !call_stream(call, call->args[1], &stream) ||
        !call_group(call, stream, call->args[2], &group)) {
        return;
    }
    struct value *items = results_begin(call, delex.id_count);
    call_changed(call, 0);
    for (size_t i = 0; group != NULL && items != NULL && i < delex.id_count; i++) {
        int result;
        if (!ackdel_one(call, group, delex.refs, delex.ids[i], &result)) {
            return;
        }
        items[i] = value_integer(result);
    }
}
