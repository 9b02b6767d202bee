/* exec_read.c -- READ: new entries of a group, to one consumer. */
#include "store/lmdb/exec.h"

enum {
    SEEN_MS = 60000, /* how exactly "seen" is kept for readers that get nothing */
};

struct reading {
    struct exec *exec;
    struct request *request;
    size_t room; /* of request->read.entries */
    size_t size; /* of the payload so far */
};

static int read_find(struct exec *exec,
                     struct request *request,
                     size_t index,
                     struct lmdb_stream **stream,
                     struct lmdb_group **group)
{
    int rc = lmdb_stream_find(exec->txn, request->read.streams[index], stream);

    rc = rc < 0 ? rc : lmdb_group_find(exec->txn, *stream, request->group, group);
    if (rc < 0) {
        request->read.missing = index;
    }
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_ERR_NO_GROUP : rc;
}

/* Is there a live entry behind the group's last one? */
static int has_new(struct exec *exec, struct lmdb_stream *stream, struct lmdb_group *group)
{
    struct impel_id last;

    if (stream->length == 0 || id_compare(stream->last_id, group->last_id) <= 0) {
        return exec->txn->status;
    }
    int rc = lmdb_stream_last(exec->txn, stream, &last);
    return rc < 0 ? rc : id_compare(last, group->last_id) > 0;
}

/* An idle worker asks every two seconds. Noting each time that it was seen would cost a commit, and
 * wake everybody who compares transaction numbers; once a minute does. */
static bool seen_lately(const struct exec *exec, const struct lmdb_consumer *consumer)
{
    int64_t age_ms = sub_saturating(exec->txn->now_ms, consumer->seen_ms);
    return age_ms >= 0 && age_ms < SEEN_MS;
}

int exec_read_idle(struct exec *exec, struct request *request)
{
    for (size_t i = 0; i < request->read.stream_count; i++) {
        struct lmdb_stream *stream = NULL;
        struct lmdb_group *group = NULL;
        struct lmdb_consumer *consumer = NULL;
        int rc = read_find(exec, request, i, &stream, &group);
        rc = rc < 0 ? rc : has_new(exec, stream, group);
        rc = rc != 0 ? rc : lmdb_consumer_find(exec->txn, group, request->consumer, &consumer);
        if (rc != 0 || !seen_lately(exec, consumer)) {
            return 0;
        }
    }
    return 1;
}

int exec_read_ready(struct exec *exec, struct request *request)
{
    for (size_t i = 0; i < request->read.stream_count; i++) {
        struct lmdb_stream *stream = NULL;
        struct lmdb_group *group = NULL;
        int rc = read_find(exec, request, i, &stream, &group);
        rc = rc < 0 ? rc : has_new(exec, stream, group);
        if (rc != 0) {
            return 1; /* failures are told by the real thing */
        }
    }
    return 0;
}

/* Room for one more answer; answers move when the array grows. */
static struct delivered *read_slot(struct reading *reading)
{
    struct request *request = reading->request;

    if (request->read.entry_count == reading->room) {
        size_t room = reading->room == 0 ? 16 : reading->room * 4;
        room = room > request->read.count ? request->read.count : room;
        struct delivered *entries =
            arena_calloc(&request->arena, room, sizeof(request->read.entries[0]));
        if (entries == NULL) {
            exec_nomem(reading->exec);
            return NULL;
        }
        if (reading->room > 0) {
            memcpy(entries, request->read.entries, reading->room * sizeof(entries[0]));
        }
        request->read.entries = entries;
        reading->room = room;
    }
    return &request->read.entries[request->read.entry_count];
}

/* Puts an entry on record as this consumer's. Where the group was moved back there may be a row
 * already: it moves, and counts from 1 again. */
static int read_record(struct reading *reading,
                       struct lmdb_consumer *consumer,
                       struct impel_id id,
                       bool maybe_pending)
{
    struct lmdb_txn *txn = reading->exec->txn;
    struct lmdb_group *group = consumer->group;
    struct lmdb_pending old;
    struct lmdb_pending row = {
        .id = id,
        .owner = consumer->number,
        .delivered_ms = txn->now_ms,
        .deliveries = 1,
    };
    int rc = maybe_pending ? lmdb_pending_get(txn, group, id, &old) : IMPEL_ERR_NOT_FOUND;

    if (rc < 0 && rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    lmdb_group_advance(txn, group, id);
    return lmdb_pending_put(txn, group, rc >= 0 ? &old : NULL, &row);
}

static bool read_is_over(const struct reading *reading)
{
    const struct request *request = reading->request;
    return request->read.entry_count >= request->read.count ||
           (request->read.size_max > 0 && reading->size >= request->read.size_max);
}

static int read_stream(struct reading *reading, struct lmdb_consumer *consumer, size_t index)
{
    struct lmdb_txn *txn = reading->exec->txn;
    struct lmdb_group *group = consumer->group;
    struct impel_id start = group->last_id;
    struct lmdb_pending last;
    struct lmdb_walk walk = {0};
    struct lmdb_raw raw;

    if (!id_next(&start)) {
        return IMPEL_OK;
    }
    int rc = lmdb_pending_last(txn, group, &last);
    bool moved_back = rc >= 0 && id_compare(last.id, group->last_id) > 0;
    rc = rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    rc = rc < 0 ? rc : lmdb_walk_entries(&walk, txn, group->stream, start, ID_MAX, false);
    while (rc >= 0 && !read_is_over(reading) && (rc = lmdb_next_entry(&walk, &raw)) > 0) {
        struct delivered *slot = read_slot(reading);
        if (slot == NULL) {
            rc = txn->status;
            break;
        }
        rc = lmdb_raw_entry(txn, &raw, &slot->entry);
        if (rc < 0) {
            break;
        }
        slot->stream_index = index;
        slot->deliveries = 1;
        slot->idle_ms = 0;
        reading->request->read.entry_count++;
        for (size_t i = 0; i < slot->entry->field_count; i++) {
            reading->size += slot->entry->fields[i].name.size + slot->entry->fields[i].value.size;
        }
        rc = read_record(reading, consumer, raw.id, moved_back);
        consumer->active_ms = txn->now_ms;
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : IMPEL_OK;
}

int exec_read(struct exec *exec, struct request *request)
{
    struct reading reading = {.exec = exec, .request = request};
    const struct op *op = request->store_data;
    int rc = IMPEL_OK;

    request->read.entry_count = 0;
    for (size_t i = 0; rc >= 0 && i < request->read.stream_count; i++) {
        struct lmdb_stream *stream = NULL;
        struct lmdb_group *group = NULL;
        rc = read_find(exec, request, i, &stream, &group);
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, "no such stream or group");
    }
    for (size_t i = 0; rc >= 0 && i < request->read.stream_count; i++) {
        size_t index = (i + request->read.first) % request->read.stream_count;
        struct lmdb_stream *stream = NULL;
        struct lmdb_group *group = NULL;
        struct lmdb_consumer *consumer = NULL;
        rc = read_find(exec, request, index, &stream, &group);
        rc = rc < 0 ? rc : lmdb_consumer_open(exec->txn, group, request->consumer, &consumer);
        size_t before = request->read.entry_count;
        if (rc >= 0 && !read_is_over(&reading)) {
            rc = read_stream(&reading, consumer, index);
        }
        if (rc >= 0 && (request->read.entry_count > before || !seen_lately(exec, consumer))) {
            consumer->seen_ms = exec->txn->now_ms;
            lmdb_consumer_changed(exec->txn, consumer);
        }
    }
    if (rc < 0) {
        return exec_fail(exec, request, rc, status_text(rc));
    }
    return request->read.entry_count == 0 && op->blocks ? EXEC_BLOCKED : IMPEL_OK;
}
