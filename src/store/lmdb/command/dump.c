/* dump.c -- DUMP: a key as one string, which Redis and Valkey read as well.
 *
 *     stream    N nodes, each: the 16 bytes of its first ID, a listpack
 *               length, last ID, first ID, largest deleted ID, entries added
 *               N groups, each: name, last ID, entries read, its pending rows, its consumers
 *
 *     listpack  live, deleted (0), F, F field names, 0; then for each entry: flags (2 = has the
 *               field names above), ID less the node's first, values or names and values, how many
 *               elements that was
 *
 * Numbers are lengths as in rdb.h. The payload is built in memory as a whole, as the reply must be. */
#include "core/policy.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/command/rdb.h"
#include "store/lmdb/txn.h"

#include <string.h>

enum {
    DUMP_MAX = 512 * 1024 * 1024, /* of a reply's bulk */
    SAME_FIELDS = 2,
    NOBODYS_DELIVERED_MS = 1, /* long ago, as of all that is released */
};

/* A node under construction: its entries come first, its header when it is complete. */
struct dump {
    struct call *call;
    struct buf out;
    struct buf nodes; /* complete ones */
    uint64_t node_count;
    struct arena arena; /* the entries of the node */
    struct impel_id first;
    struct impel_field *names; /* of the first entry */
    size_t name_count;
    struct impel_field **entries;
    size_t *field_counts;
    struct impel_id *ids;
    size_t count, size_bytes;
};

static void put_id(struct buf *buf, struct impel_id id)
{
    rdb_put_len(buf, id.ms);
    rdb_put_len(buf, id.seq);
}

static void put_raw_id(struct buf *buf, struct impel_id id)
{
    rdb_put_u64_be(buf, id.ms);
    rdb_put_u64_be(buf, id.seq);
}

static bool same_names(const struct dump *dump, const struct impel_field *fields, size_t count)
{
    if (count != dump->name_count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!bytes_equal(fields[i].name, dump->names[i].name)) {
            return false;
        }
    }
    return true;
}

static void put_entry(const struct dump *dump, struct listpack *pack, size_t number)
{
    const struct impel_field *fields = dump->entries[number];
    size_t count = dump->field_counts[number];
    bool same = same_names(dump, fields, count);

    listpack_put_number(pack, same ? SAME_FIELDS : 0);
    listpack_put_number(pack, (int64_t)(dump->ids[number].ms - dump->first.ms));
    listpack_put_number(pack, (int64_t)(dump->ids[number].seq - dump->first.seq));
    if (!same) {
        listpack_put_number(pack, (int64_t)count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!same) {
            listpack_put(pack, fields[i].name);
        }
        listpack_put(pack, fields[i].value);
    }
    listpack_put_number(pack, (int64_t)(same ? 3 + count : 4 + 2 * count));
}

/* Ends the node that is under construction, if there is one. */
static void node_end(struct dump *dump)
{
    struct listpack pack;

    if (dump->count == 0) {
        return;
    }
    listpack_init(&pack);
    listpack_put_number(&pack, (int64_t)dump->count);
    listpack_put_number(&pack, 0);
    listpack_put_number(&pack, (int64_t)dump->name_count);
    for (size_t i = 0; i < dump->name_count; i++) {
        listpack_put(&pack, dump->names[i].name);
    }
    listpack_put_number(&pack, 0);
    for (size_t i = 0; i < dump->count; i++) {
        put_entry(dump, &pack, i);
    }
    rdb_put_len(&dump->nodes, 16);
    put_raw_id(&dump->nodes, dump->first);
    struct impel_bytes bytes = listpack_end(&pack);
    dump->nodes.failed |= pack.buf.failed;
    rdb_put_string(&dump->nodes, bytes);
    listpack_release(&pack);
    arena_release(&dump->arena);
    dump->node_count++;
    dump->count = 0;
    dump->size_bytes = 0;
}

static bool node_begin(struct dump *dump, const struct lmdb_raw *raw)
{
    dump->first = raw->id;
    dump->entries = arena_calloc(&dump->arena, NODE_ENTRIES_MAX, sizeof(struct impel_field *));
    dump->field_counts = arena_calloc(&dump->arena, NODE_ENTRIES_MAX, sizeof(*dump->field_counts));
    dump->ids = arena_calloc(&dump->arena, NODE_ENTRIES_MAX, sizeof(*dump->ids));
    return (dump->entries != NULL && dump->field_counts != NULL && dump->ids != NULL) ||
           call_fail(dump->call, IMPEL_ERR_NOMEM);
}

static bool dump_entry(struct dump *dump, const struct lmdb_raw *raw)
{
    struct call *call = dump->call;

    if (dump->count == NODE_ENTRIES_MAX ||
        (dump->count > 0 && dump->size_bytes + raw->bytes.size >= NODE_SIZE_MAX)) {
        node_end(dump);
    }
    if (dump->count == 0 && !node_begin(dump, raw)) {
        return false;
    }
    struct impel_field *fields = NULL;
    size_t count = 0;
    if (!call_check(call, lmdb_raw_fields(call->txn, raw, &dump->arena, &fields, &count))) {
        return false;
    }
    if (dump->count == 0) {
        dump->names = fields;
        dump->name_count = count;
    }
    dump->entries[dump->count] = fields;
    dump->field_counts[dump->count] = count;
    dump->ids[dump->count++] = raw->id;
    dump->size_bytes += raw->bytes.size;
    return true;
}

static bool dump_entries(struct dump *dump, struct lmdb_stream *stream)
{
    struct call *call = dump->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_raw raw;
    int more = lmdb_walk_entries(&walk, call->txn, stream, ID_MIN, ID_MAX, false);

    while (more >= 0 && (more = lmdb_next_entry(&walk, &raw)) > 0) {
        if (!dump_entry(dump, &raw)) {
            break;
        }
    }
    lmdb_walk_end(&walk);
    if (!call_check(call, more) || call->status < 0) {
        return false;
    }
    node_end(dump);
    rdb_put_len(&dump->out, dump->node_count);
    dump->out.failed |= dump->nodes.failed;
    buf_append_bytes(&dump->out, buf_bytes(&dump->nodes));
    return true;
}

/* ---- groups ---- */

/* Rows that are nobody's have no place in the format: they go to the consumer that Impel releases
 * to, whose entries its sweeps and any XAUTOCLAIM take at once. */
static bool dump_pending(struct dump *dump, struct lmdb_group *group)
{
    struct call *call = dump->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    struct buf rows;
    uint64_t count = 0;
    int more = lmdb_walk_pending(&walk, call->txn, group, ID_MIN);

    buf_init(&rows, DUMP_MAX);
    while (more >= 0 && (more = lmdb_next_pending(&walk, &row)) > 0) {
        put_raw_id(&rows, row.id);
        rdb_put_u64_le(&rows, row.owner == 0 ? NOBODYS_DELIVERED_MS : (uint64_t)row.delivered_ms);
        rdb_put_len(&rows, (uint64_t)row.deliveries);
        count++;
    }
    lmdb_walk_end(&walk);
    rdb_put_len(&dump->out, count);
    dump->out.failed |= rows.failed;
    buf_append_bytes(&dump->out, buf_bytes(&rows));
    buf_release(&rows);
    return call_check(call, more);
}

/* The IDs that a walk gives: all, or only nobody's. Ends the walk. */
static bool dump_ids(struct dump *dump, struct lmdb_walk *walk, bool only_nobodys)
{
    struct lmdb_pending row;
    int more = 0;

    while ((more = lmdb_next_pending(walk, &row)) > 0) {
        if (!only_nobodys || row.owner == 0) {
            put_raw_id(&dump->out, row.id);
        }
    }
    lmdb_walk_end(walk);
    return call_check(dump->call, more);
}

/* A consumer with its rows, and with so many of nobody's. */
static bool dump_consumer(struct dump *dump, struct lmdb_consumer *consumer, uint64_t nobodys)
{
    struct call *call = dump->call;
    struct lmdb_walk walk = {.txn = NULL};

    rdb_put_string(&dump->out, consumer->name);
    rdb_put_u64_le(&dump->out, (uint64_t)consumer->seen_ms);
    rdb_put_u64_le(&dump->out, (uint64_t)consumer->active_ms);
    rdb_put_len(&dump->out, consumer->pending + nobodys);
    if (consumer->number != 0 &&
        (!call_check(call, lmdb_walk_owned(&walk, call->txn, consumer, ID_MIN)) ||
         !dump_ids(dump, &walk, false))) {
        return false;
    }
    return nobodys == 0 ||
           (call_check(call, lmdb_walk_pending(&walk, call->txn, consumer->group, ID_MIN)) &&
            dump_ids(dump, &walk, true));
}

/* How many rows are nobody's, and whether the consumer exists that gets them. */
static bool
count_nobodys(struct call *call, struct lmdb_group *group, uint64_t *count, bool *released)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_consumer *consumer = NULL;
    int more = lmdb_walk_consumers(&walk, call->txn, group);

    *count = group->pending;
    *released = false;
    while (more >= 0 && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        *count -= consumer->pending;
        *released |= bytes_equal(consumer->name, bytes_of(RELEASED_NAME));
    }
    lmdb_walk_end(&walk);
    return call_check(call, more);
}

static bool dump_consumers(struct dump *dump, struct lmdb_group *group)
{
    struct call *call = dump->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_consumer *consumer = NULL;
    struct lmdb_consumer released = {
        .group = group,
        .name = bytes_of(RELEASED_NAME),
        .seen_ms = lmdb_now_ms(call->txn),
        .active_ms = -1,
    };
    uint64_t nobodys = 0;
    bool exists = false;

    if (!count_nobodys(call, group, &nobodys, &exists)) {
        return false;
    }
    rdb_put_len(&dump->out, group->consumer_count + (nobodys > 0 && !exists ? 1 : 0));
    if (nobodys > 0 && !exists && !dump_consumer(dump, &released, nobodys)) {
        return false;
    }
    int more = lmdb_walk_consumers(&walk, call->txn, group);
    while (more >= 0 && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        bool takes = bytes_equal(consumer->name, released.name);
        if (!dump_consumer(dump, consumer, takes ? nobodys : 0)) {
            break;
        }
    }
    lmdb_walk_end(&walk);
    return call_check(call, more) && call->status >= 0;
}

static bool dump_group(struct dump *dump, struct lmdb_group *group)
{
    rdb_put_string(&dump->out, group->name);
    put_id(&dump->out, group->last_id);
    rdb_put_len(&dump->out, (uint64_t)group->entries_read);
    return dump_pending(dump, group) && dump_consumers(dump, group);
}

static bool dump_stream(struct dump *dump, struct lmdb_stream *stream)
{
    struct call *call = dump->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_group *group = NULL;

    if (!dump_entries(dump, stream)) {
        return false;
    }
    rdb_put_len(&dump->out, stream->length);
    put_id(&dump->out, stream->last_id);
    put_id(&dump->out, stream->first_id);
    put_id(&dump->out, stream->max_deleted_id);
    rdb_put_len(&dump->out, stream->entries_added);
    rdb_put_len(&dump->out, stream->group_count);
    int more = lmdb_walk_groups(&walk, call->txn, stream);
    while (more >= 0 && (more = lmdb_next_group(&walk, &group)) > 0) {
        if (!dump_group(dump, group)) {
            break;
        }
    }
    lmdb_walk_end(&walk);
    return call_check(call, more) && call->status >= 0;
}

static bool dump_string(struct dump *dump)
{
    struct call *call = dump->call;
    struct impel_bytes value;

    int rc = lmdb_string_get(call->txn, call->args[1], &value);
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        return call_error(call, "ERR lists and sets are not dumped here");
    }
    if (!call_check(call, rc)) {
        return false;
    }
    rdb_put_string(&dump->out, value);
    return true;
}

void call_dump(struct call *call)
{
    struct dump dump = {.call = call};
    struct lmdb_stream *stream = NULL;
    uint8_t version[2] = {RDB_VERSION, 0};
    uint8_t type = RDB_STREAM;
    int rc = lmdb_stream_find(call->txn, call->args[1], &stream);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        return;
    }
    if (rc != IMPEL_ERR_WRONG_TYPE && !call_check(call, rc)) {
        return;
    }
    buf_init(&dump.out, DUMP_MAX);
    buf_init(&dump.nodes, DUMP_MAX);
    type = stream == NULL ? RDB_STRING : type;
    buf_append(&dump.out, &type, 1);
    bool good = stream == NULL ? dump_string(&dump) : dump_stream(&dump, stream);
    buf_append(&dump.out, version, sizeof(version));
    if (good && !dump.out.failed) {
        rdb_put_u64_le(&dump.out, rdb_checksum(dump.out.data, dump.out.size));
    }
    if (good && buf_status(&dump.out) == IMPEL_ERR_LIMIT) {
        call_error(call, "ERR the key is too large for one reply");
    } else if (good && call_check(call, buf_status(&dump.out))) {
        call_bulk(call, call->reply, buf_bytes(&dump.out));
    }
    buf_release(&dump.nodes);
    buf_release(&dump.out);
    arena_release(&dump.arena);
}
