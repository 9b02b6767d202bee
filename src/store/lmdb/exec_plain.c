/* exec_plain.c -- requests on streams and groups in which nobody's life matters: adding, trimming,
 * looking, making groups. */
#include "store/lmdb/exec.h"

/* ---- adding and trimming ---- */

static int add_check(struct exec *exec, struct request *request, struct lmdb_stream *stream)
{
    static const struct lmdb_stream none;
    const struct lmdb_stream *base = stream == NULL ? &none : stream;
    struct impel_id *id = &request->add.id;

    if (request->add.field_count == 0) {
        return exec_fail(exec, request, IMPEL_ERR_INVALID, "an entry has at least one field");
    }
    if (stream == NULL && request->add.no_create) {
        return exec_fail(exec, request, IMPEL_ERR_NOT_FOUND, "no such stream");
    }
    if (id_is_zero(*id) && !lmdb_stream_next_id(base, exec->txn->now_ms, id)) {
        return exec_fail(exec, request, IMPEL_ERR_REPLY, "the last possible ID is used up");
    }
    if (id_compare(*id, base->last_id) <= 0) {
        return exec_fail(exec, request, IMPEL_ERR_REPLY,
                         "the ID is not above the last one of the stream");
    }
    int rc = lmdb_append_check(exec->txn, request->add.fields, request->add.field_count, false);
    if (rc == IMPEL_ERR_FULL && lmdb_disk_full(exec->txn)) {
        return exec_fail(exec, request, rc,
                         "the disk is full: what room is left is for acks, parks and trims; make "
                         "room on it, or trim, then it goes on");
    }
    if (rc == IMPEL_ERR_FULL) {
        return exec_fail(exec, request, rc,
                         "the store is full: what room is left is for acks, parks and trims; trim, "
                         "or open it with a larger ?map=");
    }
    if (rc == IMPEL_ERR_LIMIT) {
        return exec_fail(exec, request, rc,
                         "the entry is too large: its names and values may have 1 GiB together");
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

int exec_add(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    uint64_t removed = 0;
    int rc = lmdb_stream_find(exec->txn, request->stream, &stream);

    if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    request->add.id = ((const struct op *)request->store_data)->id;
    rc = add_check(exec, request, stream);
    if (rc < 0) {
        return rc;
    }
    rc = stream != NULL ? IMPEL_OK : lmdb_stream_open(exec->txn, request->stream, &stream);
    rc = rc < 0 ? rc
                : lmdb_stream_append(exec->txn, stream, request->add.id, request->add.fields,
                                     request->add.field_count, false);
    if (rc >= 0 && request->add.length_max >= 0) {
        struct lmdb_trim trim = {.length_max = (uint64_t)request->add.length_max};
        rc = lmdb_stream_trim(exec->txn, stream, &trim, &removed);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

int exec_trim(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_trim trim = {
        .by_id = request->trim.by_id,
        .length_max = request->trim.length_max,
        .id_min = request->trim.id_min,
        .approximate = request->trim.approximate,
    };
    int rc = lmdb_stream_find(exec->txn, request->stream, &stream);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        return exec_fail(exec, request, IMPEL_ERR_NO_GROUP, "no such stream");
    }
    rc = rc < 0 ? rc : lmdb_stream_trim(exec->txn, stream, &trim, &request->trim.removed);
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

/* ---- looking ---- */

int exec_range(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_walk walk = {0};
    struct lmdb_raw raw;
    size_t bytes_max = request->range.bytes_max == 0 ? SIZE_MAX : request->range.bytes_max;
    size_t size_bytes = 0;
    int rc = lmdb_stream_find(exec->txn, request->stream, &stream);

    request->range.entry_count = 0;
    request->range.cut = false;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    size_t room = request->range.count < stream->length ? request->range.count : stream->length;
    request->range.entries = arena_calloc(&request->arena, room, sizeof(struct entry *));
    rc = request->range.entries == NULL
             ? exec_nomem(exec)
             : lmdb_walk_entries(&walk, exec->txn, stream, request->range.start, request->range.end,
                                 request->range.reverse);
    while (rc >= 0 && request->range.entry_count < room && size_bytes < bytes_max &&
           (rc = lmdb_next_entry(&walk, &raw)) > 0) {
        struct entry **entry = &request->range.entries[request->range.entry_count];
        rc = lmdb_raw_entry(exec->txn, &raw, entry);
        if (rc >= 0) {
            request->range.entry_count++;
            size_bytes += (*entry)->size_bytes;
        }
    }
    request->range.cut = size_bytes >= bytes_max;
    lmdb_walk_end(&walk);
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

static int info_group(struct exec *exec,
                      struct request *request,
                      struct lmdb_group *group,
                      struct info_group *out)
{
    struct lmdb_pending first;
    int rc = exec_copy(exec, request, group->name, &out->name);

    out->last_delivered = group->last_id;
    out->pending = group->pending;
    out->consumers = group->consumer_count;
    out->entries_read = group->entries_read;
    if (!lmdb_group_lag(group, &out->lag)) {
        out->lag = -1;
    }
    out->oldest_idle_ms = -1;
    rc = rc < 0 ? rc : lmdb_pending_first(exec->txn, group, &first);
    if (rc >= 0) {
        out->first_pending = first.id;
        out->oldest_idle_ms = exec_idle_ms(exec, &first);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? exec->txn->status : rc;
}

int exec_info(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    int rc = lmdb_stream_find(exec->txn, request->stream, &stream);

    request->info.exists = false;
    request->info.group_count = 0;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return IMPEL_OK;
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    request->info.exists = true;
    request->info.length = stream->length;
    request->info.last_id = stream->last_id;
    request->info.first_id = stream->first_id;
    request->info.entries_added = stream->entries_added;
    request->info.groups =
        arena_calloc(&request->arena, stream->group_count, sizeof(request->info.groups[0]));
    rc = request->info.groups == NULL ? exec_nomem(exec)
                                      : lmdb_walk_groups(&walk, exec->txn, stream);
    while (rc >= 0 && request->info.group_count < stream->group_count &&
           (rc = lmdb_next_group(&walk, &group)) > 0) {
        rc = info_group(exec, request, group, &request->info.groups[request->info.group_count++]);
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

static int pending_row(struct exec *exec,
                       struct request *request,
                       struct lmdb_group *group,
                       const struct lmdb_pending *row,
                       struct pending_row *out)
{
    struct lmdb_consumer *owner = NULL;
    int rc = lmdb_entry_get(exec->txn, group->stream, row->id, NULL);

    *out = (struct pending_row){
        .id = row->id,
        .idle_ms = exec_idle_ms(exec, row),
        .deliveries = row->deliveries,
        .exists = rc >= 0,
    };
    rc = rc < 0 && rc != IMPEL_ERR_NOT_FOUND
             ? rc
             : lmdb_carried_get(exec->txn, group, row->id, &out->carried);
    if (rc < 0) {
        return rc;
    }
    if (row->owner == 0) {
        return IMPEL_OK;
    }
    rc = lmdb_consumer_get(exec->txn, group, row->owner, &owner);
    /* The name is copied once: rows in a run mostly have one owner. */
    if (rc >= 0 && out > request->pending.rows && bytes_equal(out[-1].owner, owner->name)) {
        out->owner = out[-1].owner;
        return IMPEL_OK;
    }
    return rc < 0 ? rc : exec_copy(exec, request, owner->name, &out->owner);
}

int exec_pending(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    int rc = exec_find(exec, request, &stream, &group);

    request->pending.row_count = 0;
    if (rc < 0) {
        return rc;
    }
    uint64_t most = group->pending;
    if (request->pending.by_owner) {
        rc = lmdb_consumer_find(exec->txn, group, request->pending.owner, &consumer);
        if (rc < 0) {
            return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK
                                             : exec_fail(exec, request, rc, status_text(rc));
        }
        most = consumer->pending;
    }
    size_t room = request->pending.count < most ? request->pending.count : most;
    request->pending.rows = arena_calloc(&request->arena, room, sizeof(request->pending.rows[0]));
    if (request->pending.rows == NULL) {
        return exec_fail(exec, request, exec_nomem(exec), "out of memory");
    }
    rc = consumer != NULL ? lmdb_walk_owned(&walk, exec->txn, consumer, request->pending.start)
                          : lmdb_walk_pending(&walk, exec->txn, group, request->pending.start);
    while (rc >= 0 && request->pending.row_count < room &&
           (rc = lmdb_next_pending(&walk, &row)) > 0 &&
           id_compare(row.id, request->pending.end) <= 0) {
        rc = pending_row(exec, request, group, &row,
                         &request->pending.rows[request->pending.row_count]);
        request->pending.row_count += rc >= 0;
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

/* ---- groups ---- */

int exec_group_create(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    int rc = request->group_set.no_create ? lmdb_stream_find(exec->txn, request->stream, &stream)
                                          : lmdb_stream_open(exec->txn, request->stream, &stream);

    request->group_set.created = false;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return exec_fail(exec, request, IMPEL_ERR_NO_GROUP, "no such stream");
    }
    if (rc >= 0) {
        struct impel_id start =
            request->group_set.at_end ? stream->last_id : request->group_set.start;
        if (request->group_set.at_floor) {
            rc = lmdb_group_floor(exec->txn, stream, request->group, &start);
        }
        rc = rc < 0 ? rc : lmdb_group_create(exec->txn, stream, request->group, start, -1, NULL);
        request->group_set.created = rc >= 0;
    }
    return rc < 0 && rc != IMPEL_ERR_EXISTS ? exec_fail(exec, request, rc, status_text(rc))
                                            : IMPEL_OK;
}

int exec_group_set(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    int rc = exec_find(exec, request, &stream, &group);

    request->group_set.created = false;
    if (rc < 0) {
        return rc;
    }
    group->last_id = request->group_set.at_end ? stream->last_id : request->group_set.start;
    group->entries_read = -1;
    lmdb_group_changed(exec->txn, group);
    return IMPEL_OK;
}
