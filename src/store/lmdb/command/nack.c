/* nack.c -- XNACK: giving pending entries back, so that anybody may claim them at once.
 *
 *   XNACK key group SILENT|FAIL|FATAL IDS numids id [id ...] [RETRYCOUNT n] [FORCE]
 *
 * A row that is given back belongs to nobody, and stands at the end of those that were given back
 * before. Options may stand on either side of the IDs. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum nack_mode {
    NACK_SILENT, /* the delivery did not count */
    NACK_FAIL,   /* it counted */
    NACK_FATAL,  /* nobody need try again */
};

struct xnack {
    enum nack_mode mode;
    int64_t retry_count; /* -1 = as the mode says */
    bool force;          /* what is in the stream but not pending becomes so */
    const struct impel_id *ids;
    size_t id_count;
};

static bool nack_mode_parse(struct call *call, struct xnack *nack)
{
    static const char *const names[] = {
        [NACK_SILENT] = "SILENT", [NACK_FAIL] = "FAIL", [NACK_FATAL] = "FATAL"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (call_word_is(call, 3, names[i])) {
            nack->mode = (enum nack_mode)i;
            return true;
        }
    }
    return call_error(call, "ERR mode must be SILENT, FAIL, or FATAL");
}

/* One option at `*index`, which is then the next one's. */
static bool nack_option(struct call *call, size_t *index, struct xnack *nack)
{
    static const struct ids_errors errors = {
        .number = "ERR numids must be a positive integer",
        .too_few = "ERR number of IDs doesn't match numids",
    };
    size_t at = *index;
    bool more = at + 1 < call->arg_count;

    if (call_word_is(call, at, "FORCE")) {
        nack->force = true;
        *index = at + 1;
        return true;
    }
    if (more && call_word_is(call, at, "RETRYCOUNT")) {
        *index = at + 2;
        if (!call_integer(call, at + 1, &nack->retry_count)) {
            return false;
        }
        return nack->retry_count >= 0 ||
               call_error(call, "ERR Invalid RETRYCOUNT value, must be >= 0");
    }
    if (more && nack->ids == NULL && call_word_is(call, at, "IDS")) {
        nack->ids = call_numbered_ids(call, index, &errors, &nack->id_count);
        return nack->ids != NULL;
    }
    return call_error(call, "ERR Unrecognized XNACK option '%.*s'", CALL_TEXT(call->args[at]));
}

static bool nack_parse(struct call *call, struct xnack *nack)
{
    nack->retry_count = -1;
    if (!nack_mode_parse(call, nack)) {
        return false;
    }
    for (size_t i = 4; i < call->arg_count;) {
        if (!nack_option(call, &i, nack)) {
            return false;
        }
    }
    return nack->ids != NULL || call_error(call, "ERR syntax error, expected IDS keyword");
}

static int64_t nack_count(const struct xnack *nack, int64_t deliveries)
{
    if (nack->retry_count >= 0) {
        return nack->retry_count;
    }
    switch (nack->mode) {
    case NACK_FATAL:
        return INT64_MAX;
    case NACK_SILENT:
        return deliveries > 0 ? deliveries - 1 : 0;
    default:
        return deliveries;
    }
}

/* `*done` if there is a row now that is nobody's. */
static bool nack_one(struct call *call,
                     struct lmdb_group *group,
                     const struct xnack *nack,
                     struct impel_id id,
                     bool *done)
{
    struct lmdb_pending row = {.id = id};
    struct lmdb_pending given = {.id = id};
    int rc = lmdb_pending_get(call->txn, group, id, &row);
    bool known = rc >= 0;

    *done = known;
    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return false;
    }
    if (!known && nack->force && !call_entry_exists(call, group->stream, id, NULL, done)) {
        return false;
    }
    if (!*done) {
        return true;
    }
    given.deliveries = nack_count(nack, row.deliveries);
    return call_check(call, lmdb_pending_put(call->txn, group, known ? &row : NULL, &given));
}

void call_xnack(struct call *call)
{
    struct xnack nack = {.force = false};
    struct lmdb_group *group;
    int64_t count = 0;

    if (!call_key_and_group(call, 1, &group) || !nack_parse(call, &nack)) {
        return;
    }
    for (size_t i = 0; i < nack.id_count; i++) {
        bool done;
        if (!nack_one(call, group, &nack, nack.ids[i], &done)) {
            return;
        }
        count += done;
    }
    if (count > 0) {
        lmdb_signal(call->txn); /* whoever waits with CLAIM may have them */
    }
    call_reply_integer(call, count);
}
