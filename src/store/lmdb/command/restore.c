/* restore.c -- RESTORE: a key from what DUMP gave, here or on Redis or Valkey.
 *
 * The payload comes from outside, so it is read twice: once to see whether all of it holds together,
 * without writing anything, and once to write. Groups are small enough to be kept from the first
 * time; entries are read again. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/command/rdb.h"
#include "store/lmdb/txn.h"

#include <string.h>

enum {
    ENTRY_DELETED = 1,
    ENTRY_SAME_FIELDS = 2,
    FIELDS_MAX = 1 << 24, /* of an entry: more is a damaged payload */
};

struct restore_pending {
    struct impel_id id;
    int64_t delivered_ms, deliveries;
    size_t owner; /* index + 1 in the group's consumers; 0 = not told yet */
};

struct restore_consumer {
    struct impel_bytes name;
    int64_t seen_ms, active_ms;
};

struct restore_group {
    struct impel_bytes name;
    struct impel_id last_id;
    int64_t entries_read; /* -1 = unknown */
    struct restore_pending *pending;
    size_t pending_count;
    struct restore_consumer *consumers;
    size_t consumer_count;
};

struct restore {
    struct call *call;
    struct rdb_reader reader; /* of the body */
    int type;
    const uint8_t *nodes; /* where they begin */
    uint64_t node_count;
    uint64_t length, live;     /* as it says, and as counted */
    struct impel_id last_seen; /* of the entries so far */
    struct impel_id last_id, max_deleted_id;
    uint64_t entries_added;
    struct restore_group *groups;
    size_t group_count;
    struct lmdb_stream *stream; /* while writing */
    bool bad;
};

static bool bad(struct restore *restore)
{
    restore->bad = true;
    return false;
}

static struct impel_id read_id(struct rdb_reader *reader)
{
    struct impel_id id;

    id.ms = rdb_read_len(reader);
    id.seq = rdb_read_len(reader);
    return id;
}

static struct impel_id read_raw_id(struct rdb_reader *reader)
{
    struct impel_id id;

    id.ms = rdb_read_u64_be(reader);
    id.seq = rdb_read_u64_be(reader);
    return id;
}

/* ---- entries ---- */

struct node {
    struct impel_id first;
    struct rdb_reader reader;
    struct arena arena; /* of what is read from it */
    int64_t left;       /* entries, deleted ones included */
    struct impel_bytes *names;
    size_t name_count;
    size_t written;
};

static bool node_open(struct restore *restore, struct node *node)
{
    struct impel_bytes key = rdb_read_string(&restore->reader);
    struct impel_bytes pack = rdb_read_string(&restore->reader);
    struct rdb_reader head = {.arena = restore->reader.arena};

    if (restore->reader.failed || key.size != 16 ||
        !listpack_open(pack, &node->arena, &node->reader)) {
        return bad(restore);
    }
    head.at = key.data;
    head.end = head.at + key.size;
    node->first = read_raw_id(&head);
    int64_t live = listpack_read_number(&node->reader);
    int64_t deleted = listpack_read_number(&node->reader);
    int64_t names = listpack_read_number(&node->reader);
    if (node->reader.failed || live < 0 || deleted < 0 || live > (int64_t)pack.size ||
        deleted > (int64_t)pack.size || names < 0 || names > (int64_t)pack.size) {
        return bad(restore);
    }
    node->left = live + deleted;
    node->name_count = (size_t)names;
    node->names = arena_calloc(&node->arena, node->name_count + 1, sizeof(*node->names));
    if (node->names == NULL) {
        return call_fail(restore->call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < node->name_count; i++) {
        node->names[i] = listpack_read(&node->reader);
    }
    return listpack_read_number(&node->reader) == 0 && !node->reader.failed ? true : bad(restore);
}

/* Reads one entry's fields; NULL if it breaks the format. */
static struct impel_field *
node_fields(struct restore *restore, struct node *node, int64_t flags, size_t *count)
{
    bool same = (flags & ENTRY_SAME_FIELDS) != 0;
    int64_t size = same ? (int64_t)node->name_count : listpack_read_number(&node->reader);
    size_t room = (size_t)(node->reader.end - node->reader.at);

    if (node->reader.failed || size < 0 || size > FIELDS_MAX || (size_t)size > room) {
        bad(restore);
        return NULL;
    }
    struct impel_field *fields = arena_calloc(&node->arena, (size_t)size + 1, sizeof(*fields));
    if (fields == NULL) {
        call_fail(restore->call, IMPEL_ERR_NOMEM);
        return NULL;
    }
    for (size_t i = 0; i < (size_t)size; i++) {
        fields[i].name = same ? node->names[i] : listpack_read(&node->reader);
        fields[i].value = listpack_read(&node->reader);
    }
    int64_t elements = listpack_read_number(&node->reader);
    if (node->reader.failed || elements != (same ? 3 + size : 4 + 2 * size)) {
        bad(restore);
        return NULL;
    }
    *count = (size_t)size;
    return fields;
}

/* The first entry of a node ends the one before it, the others go into the same. */
static bool write_entry(struct restore *restore,
                        struct node *node,
                        struct impel_id id,
                        const struct impel_field *fields,
                        size_t count)
{
    struct call *call = restore->call;

    lmdb_node_limits(call->txn, 0, node->written++ == 0 ? 1 : 0);
    return call_check(call,
                      lmdb_stream_append(call->txn, restore->stream, id, fields, count, false));
}

static bool node_entry(struct restore *restore, struct node *node)
{
    int64_t flags = listpack_read_number(&node->reader);
    struct impel_id id = node->first;
    size_t count = 0;

    id.ms += (uint64_t)listpack_read_number(&node->reader);
    id.seq += (uint64_t)listpack_read_number(&node->reader);
    struct impel_field *fields = node_fields(restore, node, flags, &count);
    if (fields == NULL) {
        return false;
    }
    if ((flags & ENTRY_DELETED) != 0) {
        return true;
    }
    if (id_compare(id, restore->last_seen) <= 0 || count == 0) {
        return bad(restore);
    }
    restore->last_seen = id;
    restore->live++;
    return restore->stream == NULL || write_entry(restore, node, id, fields, count);
}

/* All nodes, from where the reader stands. */
static bool read_entries(struct restore *restore)
{
    bool good = true;

    restore->last_seen = ID_MIN;
    restore->live = 0;
    for (uint64_t i = 0; good && i < restore->node_count; i++) {
        struct node node = {.names = NULL};
        good = node_open(restore, &node);
        for (; good && node.left > 0; node.left--) {
            good = node_entry(restore, &node);
        }
        good = good && (listpack_is_end(&node.reader) || bad(restore));
        if (node.reader.no_memory) {
            call_fail(restore->call, IMPEL_ERR_NOMEM);
        }
        arena_release(&node.arena);
    }
    return good;
}

/* ---- groups ---- */

/* Each has at least so many bytes, so a count that promises more is a lie. */
static bool count_fits(struct restore *restore, uint64_t count, size_t size_min)
{
    size_t left = (size_t)(restore->reader.end - restore->reader.at);
    return (!restore->reader.failed && count <= left / size_min) || bad(restore);
}

static bool read_pending(struct restore *restore, struct restore_group *group)
{
    struct rdb_reader *reader = &restore->reader;
    uint64_t count = rdb_read_len(reader);

    if (!count_fits(restore, count, 25)) {
        return false;
    }
    group->pending_count = count;
    group->pending = arena_calloc(restore->call->arena, count + 1, sizeof(*group->pending));
    if (group->pending == NULL) {
        return call_fail(restore->call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < count; i++) {
        struct restore_pending *row = &group->pending[i];
        row->id = read_raw_id(reader);
        row->delivered_ms = (int64_t)rdb_read_u64_le(reader);
        row->deliveries = (int64_t)rdb_read_len(reader);
        if (i > 0 && id_compare(row->id, group->pending[i - 1].id) <= 0) {
            return bad(restore);
        }
    }
    return !reader->failed || bad(restore);
}

static struct restore_pending *find_pending(struct restore_group *group, struct impel_id id)
{
    size_t low = 0, high = group->pending_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = id_compare(group->pending[middle].id, id);
        if (order == 0) {
            return &group->pending[middle];
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

static bool read_consumer(struct restore *restore, struct restore_group *group, size_t number)
{
    struct rdb_reader *reader = &restore->reader;
    struct restore_consumer *consumer = &group->consumers[number];

    consumer->name = rdb_read_string(reader);
    consumer->seen_ms = (int64_t)rdb_read_u64_le(reader);
    consumer->active_ms =
        restore->type == RDB_STREAM ? (int64_t)rdb_read_u64_le(reader) : consumer->seen_ms;
    uint64_t count = rdb_read_len(reader);
    if (!count_fits(restore, count, 16)) {
        return false;
    }
    for (uint64_t i = 0; i < count; i++) {
        struct restore_pending *row = find_pending(group, read_raw_id(reader));
        if (row == NULL || row->owner != 0) {
            return bad(restore);
        }
        row->owner = number + 1;
    }
    for (size_t i = 0; i < number; i++) {
        if (bytes_equal(group->consumers[i].name, consumer->name)) {
            return bad(restore);
        }
    }
    return !reader->failed || bad(restore);
}

static bool read_group(struct restore *restore, struct restore_group *group)
{
    struct rdb_reader *reader = &restore->reader;

    group->name = rdb_read_string(reader);
    group->last_id = read_id(reader);
    group->entries_read = restore->type == RDB_STREAM_5 ? -1 : (int64_t)rdb_read_len(reader);
    if (reader->failed || group->entries_read < -1 || !read_pending(restore, group)) {
        return bad(restore);
    }
    uint64_t count = rdb_read_len(reader);
    if (!count_fits(restore, count, 10)) {
        return false;
    }
    group->consumer_count = count;
    group->consumers = arena_calloc(restore->call->arena, count + 1, sizeof(*group->consumers));
    if (group->consumers == NULL) {
        return call_fail(restore->call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < count; i++) {
        if (!read_consumer(restore, group, i)) {
            return false;
        }
    }
    for (size_t i = 0; i < group->pending_count; i++) {
        if (group->pending[i].owner == 0) {
            return bad(restore);
        }
    }
    return true;
}

static bool read_groups(struct restore *restore)
{
    uint64_t count = rdb_read_len(&restore->reader);

    if (!count_fits(restore, count, 4)) {
        return false;
    }
    restore->group_count = count;
    restore->groups = arena_calloc(restore->call->arena, count + 1, sizeof(*restore->groups));
    if (restore->groups == NULL) {
        return call_fail(restore->call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < count; i++) {
        if (!read_group(restore, &restore->groups[i])) {
            return false;
        }
        for (size_t other = 0; other < i; other++) {
            if (bytes_equal(restore->groups[other].name, restore->groups[i].name)) {
                return bad(restore);
            }
        }
    }
    return true;
}

/* ---- the whole ---- */

static bool read_stream(struct restore *restore)
{
    struct rdb_reader *reader = &restore->reader;

    restore->node_count = rdb_read_len(reader);
    restore->nodes = reader->at;
    if (reader->failed || !read_entries(restore)) {
        return reader->no_memory ? call_fail(restore->call, IMPEL_ERR_NOMEM) : bad(restore);
    }
    restore->length = rdb_read_len(reader);
    restore->last_id = read_id(reader);
    restore->entries_added = restore->length;
    if (restore->type != RDB_STREAM_5) {
        (void)read_id(reader); /* the first: what there is tells */
        restore->max_deleted_id = read_id(reader);
        restore->entries_added = rdb_read_len(reader);
    }
    if (reader->failed || restore->length != restore->live ||
        restore->entries_added < restore->length ||
        id_compare(restore->last_id, restore->last_seen) < 0) {
        return bad(restore);
    }
    return read_groups(restore) && (reader->at == reader->end || bad(restore));
}

static bool write_group(struct restore *restore, const struct restore_group *from)
{
    struct call *call = restore->call;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;
    uint64_t *numbers = arena_calloc(call->arena, from->consumer_count + 1, sizeof(*numbers));
    int rc = lmdb_group_create(call->txn, restore->stream, from->name, from->last_id,
                               from->entries_read, &group);

    if (numbers == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; rc >= 0 && i < from->consumer_count; i++) {
        rc = lmdb_consumer_open(call->txn, group, from->consumers[i].name, &consumer);
        if (rc >= 0) {
            consumer->seen_ms = from->consumers[i].seen_ms;
            consumer->active_ms = from->consumers[i].active_ms;
            lmdb_consumer_changed(call->txn, consumer);
            numbers[i] = consumer->number;
        }
    }
    for (size_t i = 0; rc >= 0 && i < from->pending_count; i++) {
        const struct restore_pending *row = &from->pending[i];
        struct lmdb_pending put = {
            .id = row->id,
            .owner = numbers[row->owner - 1],
            .delivered_ms = row->delivered_ms,
            .deliveries = row->deliveries,
        };
        rc = lmdb_pending_put(call->txn, group, NULL, &put);
    }
    return call_check(call, rc);
}

static bool write_stream(struct restore *restore, struct impel_bytes key)
{
    struct call *call = restore->call;
    uint64_t size_max = call->txn->node_size_max, entries_max = call->txn->node_entries_max;

    if (!call_check(call, lmdb_stream_open(call->txn, key, &restore->stream))) {
        return false;
    }
    restore->reader.at = restore->nodes;
    bool good = read_entries(restore);
    call->txn->node_size_max = size_max;
    call->txn->node_entries_max = entries_max;
    if (!good) {
        return call_fail(call, call->status < 0 ? call->status : IMPEL_ERR_CORRUPT);
    }
    restore->stream->last_id = restore->last_id;
    restore->stream->max_deleted_id = restore->max_deleted_id;
    restore->stream->entries_added = restore->entries_added;
    lmdb_stream_changed(call->txn, restore->stream);
    for (size_t i = 0; i < restore->group_count; i++) {
        if (!write_group(restore, &restore->groups[i])) {
            return false;
        }
    }
    return true;
}

/* ---- the command ---- */

struct restore_words {
    int64_t ttl_ms;
    bool replace, absolute;
};

static bool restore_words(struct call *call, struct restore_words *words)
{
    int64_t number;
    bool idle = false, freq = false; /* one of them at most */

    for (size_t i = 4; i < call->arg_count; i++) {
        bool more = i + 1 < call->arg_count;
        if (call_word_is(call, i, "REPLACE")) {
            words->replace = true;
        } else if (call_word_is(call, i, "ABSTTL")) {
            words->absolute = true;
        } else if (call_word_is(call, i, "IDLETIME") && more && !freq) {
            idle = true;
            if (!call_integer(call, ++i, &number)) {
                return false;
            }
            if (number < 0) {
                return call_error(call, "ERR Invalid IDLETIME value, must be >= 0");
            }
        } else if (call_word_is(call, i, "FREQ") && more && !idle) {
            freq = true;
            if (!call_integer(call, ++i, &number)) {
                return false;
            }
            if (number < 0 || number > 255) {
                return call_error(call, "ERR Invalid FREQ value, must be >= 0 and <= 255");
            }
        } else {
            return call_error_syntax(call);
        }
    }
    return true;
}

static bool footer_fits(struct impel_bytes payload)
{
    const uint8_t *data = payload.data;
    uint64_t sum = 0;

    if (payload.size < RDB_FOOTER_SIZE + 1) {
        return false;
    }
    const uint8_t *footer = data + payload.size - RDB_FOOTER_SIZE;
    for (int i = 0; i < 8; i++) {
        sum |= (uint64_t)footer[2 + i] << (8 * i);
    }
    int version = footer[0] | footer[1] << 8;
    return (version <= RDB_VERSION_MAX || version == RDB_VERSION_VALKEY) &&
           rdb_checksum(data, payload.size - 8) == sum;
}

static bool restore_value(struct restore *restore, struct impel_bytes key, int64_t expires_ms)
{
    struct call *call = restore->call;
    struct impel_bytes text = {NULL, 0};
    bool is_string = restore->type == RDB_STRING;
    bool known = is_string || restore->type == RDB_STREAM_5 || restore->type == RDB_STREAM_7 ||
                 restore->type == RDB_STREAM;

    if (is_string) {
        text = rdb_read_string(&restore->reader);
        restore->bad = restore->reader.failed || restore->reader.at != restore->reader.end;
    } else if (known) {
        (void)read_stream(restore);
    }
    if (call->status < 0) {
        return false;
    }
    if (restore->bad || !known) {
        return call_error(call, "ERR Bad data format");
    }
    if (!call_check(call, lmdb_key_delete(call->txn, key))) {
        return false;
    }
    if (is_string) {
        if (!call_check(call, lmdb_string_set(call->txn, key, text))) {
            return false;
        }
    } else if (!write_stream(restore, key)) {
        return false;
    }
    return expires_ms == 0 || call_check(call, lmdb_key_expire(call->txn, key, expires_ms));
}

void call_restore(struct call *call)
{
    struct restore_words words = {.ttl_ms = 0};
    struct impel_bytes key = call->args[1];
    enum lmdb_key_kind kind = LMDB_KEY_NONE;

    if (!restore_words(call, &words) || !call_check(call, lmdb_key_kind(call->txn, key, &kind))) {
        return;
    }
    if (kind != LMDB_KEY_NONE && !words.replace) {
        call_error(call, "BUSYKEY Target key name already exists.");
        return;
    }
    if (!call_integer(call, 2, &words.ttl_ms)) {
        return;
    }
    if (words.ttl_ms < 0) {
        call_error(call, "ERR Invalid TTL value, must be >= 0");
        return;
    }
    struct impel_bytes payload = call->args[3];
    if (!footer_fits(payload)) {
        call_error(call, "ERR DUMP payload version or checksum are wrong");
        return;
    }
    const uint8_t *data = payload.data;
    struct restore restore = {
        .call = call,
        .type = data[0],
        .reader = {.at = data + 1,
                   .end = data + payload.size - RDB_FOOTER_SIZE,
                   .arena = call->arena},
    };
    int64_t expires_ms = words.ttl_ms == 0 || words.absolute
                             ? words.ttl_ms
                             : add_saturating(lmdb_now_ms(call->txn), words.ttl_ms);
    if (restore_value(&restore, key, expires_ms)) {
        call_reply_ok(call);
    }
}
