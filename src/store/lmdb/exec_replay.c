/* exec_replay.c -- records leave the dead-letter stream: back into work, or for good.
 *
 * Each record goes in the step that puts its entry back, so a death of anybody at any moment leaves
 * it in one place: not in both, not in none. */
#include "store/lmdb/exec.h"

#include <stdio.h>

enum {
    AUDIT_FIELDS = 2, /* `count` and `records`, behind the caller's */
};

struct replaying {
    struct exec *exec;
    struct request *request;
    struct lmdb_stream *dead;
    struct lmdb_stream *stream; /* where to; ADD: NULL until it exists */
    struct lmdb_group *group;   /* BACK */
};

/* ---- add ---- */

/* The record's own fields, outside the pages; IMPEL_ERR_NOT_FOUND if it is not the expected one. */
static int own_fields(struct replaying *at,
                      const struct replay_item *item,
                      struct impel_field **out,
                      size_t *out_count)
{
    struct lmdb_txn *txn = at->exec->txn;
    struct arena *arena = &at->request->arena;
    struct lmdb_raw raw;
    struct impel_field *fields = NULL;
    size_t count = 0, kept = 0;
    int rc = lmdb_entry_get(txn, at->dead, item->id, &raw);

    rc = rc < 0 ? rc : lmdb_raw_copy(txn, &raw, arena, &raw);
    rc = rc < 0 ? rc : lmdb_raw_fields(txn, &raw, arena, &fields, &count);
    if (rc < 0) {
        return rc;
    }
    if (count != item->field_count) {
        return IMPEL_ERR_NOT_FOUND;
    }
    for (size_t i = 0; i < item->run_count; i++) {
        const struct replay_run *run = &item->runs[i];
        ASSERT(run->first >= kept && run->first <= count && run->count <= count - run->first);
        memmove(fields + kept, fields + run->first, run->count * sizeof(*fields));
        kept += run->count;
    }
    *out = fields;
    *out_count = kept;
    return IMPEL_OK;
}

static int refuse(struct replaying *at, struct replay_item *item, int status, const char *why)
{
    item->result = REPLAY_FAILED;
    error_set(&at->request->error, status, "replay: %s", why);
    return IMPEL_OK;
}

static int item_add(struct replaying *at, struct replay_item *item)
{
    struct lmdb_txn *txn = at->exec->txn;
    struct impel_field *fields = NULL;
    size_t count = 0;
    struct impel_id id = {(uint64_t)txn->now_ms, 0};
    int rc = own_fields(at, item, &fields, &count);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        item->result = REPLAY_MISSING;
        return IMPEL_OK;
    }
    if (rc >= 0 && count == 0) {
        return refuse(at, item, IMPEL_ERR_REPLY, "the record has no fields of an entry");
    }
    if (rc >= 0 && at->stream != NULL && !lmdb_stream_next_id(at->stream, txn->now_ms, &id)) {
        return refuse(at, item, IMPEL_ERR_REPLY, "the stream's last ID is used up");
    }
    rc = rc < 0 ? rc : lmdb_append_check(txn, fields, count, false);
    if (rc == IMPEL_ERR_LIMIT || rc == IMPEL_ERR_FULL) {
        return refuse(at, item, rc, status_text(rc));
    }
    if (rc >= 0 && at->stream == NULL) {
        rc = lmdb_stream_open(txn, at->request->stream, &at->stream);
    }
    rc = rc < 0 ? rc : lmdb_stream_append(txn, at->stream, id, fields, count, false);
    rc = rc < 0 ? rc : lmdb_stream_delete(txn, at->dead, item->id);
    item->result = REPLAY_DONE;
    item->added = id;
    return rc;
}

/* ---- put back, drop ---- */

/* IMPEL_ERR_NOT_FOUND if it is not the expected one. */
static int find_record(struct replaying *at, const struct replay_item *item)
{
    struct impel_field *fields = NULL;
    size_t count = 0;
    struct lmdb_raw raw;
    int rc = lmdb_entry_get(at->exec->txn, at->dead, item->id, &raw);

    rc = rc < 0 ? rc : lmdb_raw_fields(at->exec->txn, &raw, &at->request->arena, &fields, &count);
    return rc >= 0 && !replay_is_meant(item, at->request->replay.mode, fields, count)
               ? IMPEL_ERR_NOT_FOUND
               : rc;
}

static int put_back(struct replaying *at, struct replay_item *item)
{
    struct lmdb_txn *txn = at->exec->txn;
    struct lmdb_consumer *released = NULL;
    struct lmdb_pending row = {.id = item->original_id, .delivered_ms = 1};
    int rc = lmdb_entry_get(txn, at->stream, item->original_id, NULL);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        item->result = REPLAY_GONE;
        return IMPEL_OK;
    }
    if (rc >= 0 && id_compare(item->original_id, at->group->last_id) > 0) {
        item->result = REPLAY_STANDS;
        return IMPEL_OK;
    }
    struct lmdb_pending old;
    rc = rc < 0 ? rc : lmdb_pending_get(txn, at->group, item->original_id, &old);
    if (rc != IMPEL_ERR_NOT_FOUND) {
        item->result = REPLAY_STANDS;
        return rc;
    }
    rc = lmdb_consumer_open(txn, at->group, bytes_of(RELEASED_NAME), &released);
    if (rc < 0) {
        return rc;
    }
    row.owner = released->number;
    rc = lmdb_pending_put(txn, at->group, NULL, &row);
    rc = rc < 0 ? rc : lmdb_carried_delete(txn, at->group, item->original_id);
    rc = rc < 0 ? rc : lmdb_stream_delete(txn, at->dead, item->id);
    item->result = REPLAY_DONE;
    return rc;
}

static int item_replay(struct replaying *at, struct replay_item *item)
{
    if (at->request->replay.mode == REPLAY_ADD) {
        return item_add(at, item);
    }
    int rc = find_record(at, item);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        item->result = REPLAY_MISSING;
        return IMPEL_OK;
    }
    if (rc < 0 || at->request->replay.mode == REPLAY_BACK) {
        return rc < 0 ? rc : put_back(at, item);
    }
    item->result = REPLAY_DONE;
    return lmdb_stream_delete(at->exec->txn, at->dead, item->id);
}

/* ---- the line in the audit stream ---- */

static int audit_fields(struct replaying *at, struct impel_field *fields, size_t *count)
{
    const struct request *request = at->request;
    size_t done = 0, size = 0;
    char number[24];
    char *text = arena_alloc(&at->request->arena, request->replay.item_count * ID_TEXT_SIZE + 1);

    if (text == NULL) {
        return exec_nomem(at->exec);
    }
    for (size_t i = 0; i < request->replay.item_count; i++) {
        if (request->replay.items[i].result == REPLAY_DONE) {
            char id[ID_TEXT_SIZE];
            size += (size_t)sprintf(text + size, "%s%s", done++ == 0 ? "" : " ",
                                    id_format(request->replay.items[i].id, id));
        }
    }
    *count = done;
    (void)snprintf(number, sizeof(number), "%zu", done);
    fields[0].name = bytes_of("count");
    fields[1] = (struct impel_field){bytes_of("records"), {text, size}};
    return exec_copy(at->exec, at->request, bytes_of(number), &fields[0].value);
}

static int write_audit(struct replaying *at)
{
    struct lmdb_txn *txn = at->exec->txn;
    struct request *request = at->request;
    size_t given = request->replay.audit_field_count, done = 0;
    struct lmdb_trim trim = {.length_max = AUDIT_LENGTH, .approximate = true};
    struct lmdb_stream *audit = NULL;
    struct impel_id id;
    uint64_t removed = 0;
    struct impel_field *fields =
        arena_calloc(&request->arena, given + AUDIT_FIELDS, sizeof(*fields));

    if (fields == NULL) {
        return exec_nomem(at->exec);
    }
    int rc = audit_fields(at, fields + given, &done);
    if (rc < 0 || done == 0) {
        return rc;
    }
    if (given > 0) {
        memcpy(fields, request->replay.audit_fields, given * sizeof(*fields));
    }
    rc = lmdb_stream_open(txn, request->replay.audit, &audit);
    if (rc >= 0 && lmdb_stream_next_id(audit, txn->now_ms, &id)) {
        /* Like a park it may use the room that is kept for acks: it comes with a deletion. */
        rc = lmdb_stream_append(txn, audit, id, fields, given + AUDIT_FIELDS, true);
        rc = rc < 0 ? rc : lmdb_stream_trim(txn, audit, &trim, &removed);
    }
    return rc;
}

/* ---- the request ---- */

static int wrong_key(struct replaying *at, const char *which)
{
    char what[80];

    (void)snprintf(what, sizeof(what), "the %s key is not a stream", which);
    return exec_fail(at->exec, at->request, IMPEL_ERR_WRONG_TYPE, what);
}

/* Another group that would see what is added? */
static int look_for_others(struct replaying *at)
{
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    char name[100];
    int rc = lmdb_walk_groups(&walk, at->exec->txn, at->stream);

    while (rc >= 0 && (rc = lmdb_next_group(&walk, &group)) > 0) {
        if (!bytes_equal(group->name, at->request->group)) {
            break;
        }
    }
    lmdb_walk_end(&walk);
    if (rc <= 0) {
        return rc;
    }
    return error_set(&at->request->error, IMPEL_ERR_EXISTS,
                     "replay: the group '%s' would see the copies as new work",
                     bytes_quote(group->name, name, sizeof(name)));
}

/* Finds where the entries go, and refuses what is refused as a whole. */
static int find_target(struct replaying *at)
{
    struct request *request = at->request;
    int rc;

    if (request->replay.mode == REPLAY_DROP) {
        return IMPEL_OK;
    }
    if (bytes_equal(request->stream, request->replay.dead_letter)) {
        return exec_fail(at->exec, request, IMPEL_ERR_INVALID,
                         "the dead-letter stream is the stream itself");
    }
    if (request->replay.mode == REPLAY_BACK) {
        return exec_find(at->exec, request, &at->stream, &at->group);
    }
    rc = lmdb_stream_find(at->exec->txn, request->stream, &at->stream);
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        return exec_fail(at->exec, request, rc, status_text(rc));
    }
    if (rc >= 0 && request->replay.alone) {
        rc = look_for_others(at);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

int exec_replay(struct exec *exec, struct request *request)
{
    struct replaying at = {.exec = exec, .request = request};
    bool audited = request->replay.audit.size > 0;
    enum lmdb_key_kind kind = LMDB_KEY_NONE;
    int rc = find_target(&at);

    if (rc < 0) {
        return exec->txn->status < 0 ? exec_fail(exec, request, rc, status_text(rc)) : rc;
    }
    rc = lmdb_stream_find(exec->txn, request->replay.dead_letter, &at.dead);
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        return wrong_key(&at, "dead-letter");
    }
    if (rc == IMPEL_ERR_NOT_FOUND) {
        for (size_t i = 0; i < request->replay.item_count; i++) {
            request->replay.items[i].result = REPLAY_MISSING;
        }
        return IMPEL_OK;
    }
    rc = rc < 0 || !audited ? rc : lmdb_key_kind(exec->txn, request->replay.audit, &kind);
    if (rc >= 0 && kind != LMDB_KEY_NONE && kind != LMDB_KEY_STREAM) {
        return wrong_key(&at, "audit");
    }
    for (size_t i = 0; rc >= 0 && i < request->replay.item_count; i++) {
        rc = item_replay(&at, &request->replay.items[i]);
    }
    if (rc >= 0 && audited) {
        rc = write_audit(&at);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}
