/* model_stream.c -- the model's plain stream commands: adding, reading, acknowledging, looking,
 * trimming, groups. The rules are Redis's. */
#include "store/model.h"

#include <inttypes.h>
#include <string.h>

static struct impel_id first_id(const struct model_stream *stream)
{
    return stream->entry_count == 0 ? ID_MIN : stream->entries[0]->entry->id;
}

/* ---- how far a group has read ---- */

static bool deleted_from(const struct model_stream *stream, struct impel_id id)
{
    return stream->entry_count > 0 && !id_is_zero(stream->deleted_max) &&
           id_compare(id, stream->deleted_max) <= 0;
}

/* The position of `id` counted from the first entry ever; -1 = unknown. */
static int64_t position(const struct model_stream *stream, struct impel_id id)
{
    int64_t added = (int64_t)stream->entries_added;
    int64_t length = (int64_t)stream->entry_count;
    struct impel_id first = first_id(stream);

    if (added == 0) {
        return 0;
    }
    if (length == 0 && id_compare(id, stream->last_id) <= 0) {
        return added;
    }
    if (!id_is_zero(id) && id_compare(id, stream->deleted_max) < 0) {
        return -1;
    }
    if (id_compare(id, stream->last_id) >= 0) {
        return id_equal(id, stream->last_id) ? added : -1;
    }
    if (id_is_zero(stream->deleted_max) || id_compare(stream->deleted_max, first) < 0) {
        if (id_compare(id, first) <= 0) {
            return added - length + (id_equal(id, first) ? 1 : 0);
        }
    }
    return -1;
}

static int64_t lag(const struct model_stream *stream, const struct model_group *group)
{
    int64_t added = (int64_t)stream->entries_added;

    if (added == 0 || stream->entry_count == 0) {
        return 0;
    }
    if (id_compare(group->last_delivered, first_id(stream)) < 0 &&
        id_compare(stream->deleted_max, first_id(stream)) < 0) {
        return (int64_t)stream->entry_count;
    }
    if (group->entries_read >= 0 && !deleted_from(stream, group->last_delivered)) {
        return added - group->entries_read;
    }
    int64_t at = position(stream, group->last_delivered);
    return at < 0 ? -1 : added - at;
}

static void
advance(const struct model_stream *stream, struct model_group *group, struct impel_id id)
{
    if (group->entries_read >= 0 && !deleted_from(stream, group->last_delivered)) {
        group->entries_read++;
    } else if (stream->entries_added > 0) {
        group->entries_read = position(stream, id);
    }
    group->last_delivered = id;
}

/* ---- adding and trimming ---- */

bool model_next_id(const struct model *model,
                   const struct model_stream *stream,
                   struct impel_id *id)
{
    struct impel_id next = {(uint64_t)model->now_ms, 0};
    if (id_compare(next, stream->last_id) <= 0) {
        next = stream->last_id;
        if (!id_next(&next)) {
            return false;
        }
    }
    *id = next;
    return true;
}

int model_add(struct model *model, struct request *request)
{
    struct model_stream *stream = state_stream(&model->state, request->stream);
    struct impel_id id = request->add.id;

    if (request->add.field_count == 0) {
        return error_set(&request->error, IMPEL_ERR_INVALID, "an entry has at least one field");
    }
    if (stream != NULL && stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    if (stream == NULL && request->add.no_create) {
        return error_set(&request->error, IMPEL_ERR_NOT_FOUND, "no such stream");
    }
    static const struct model_stream none;
    const struct model_stream *base = stream == NULL ? &none : stream;
    if (id_is_zero(id) && !model_next_id(model, base, &id)) {
        return error_set(&request->error, IMPEL_ERR_REPLY, "the last possible ID is used up");
    }
    if (id_compare(id, base->last_id) <= 0) {
        return error_set(&request->error, IMPEL_ERR_REPLY, "the ID is not above the last one");
    }
    struct entry *entry = entry_new(id, request->add.fields, request->add.field_count);
    if (entry == NULL) {
        return error_set(&request->error, IMPEL_ERR_NOMEM, "out of memory");
    }
    stream = state_stream_make(&model->state, request->stream);
    stream_append(stream, entry);
    request->add.id = id;
    model_notify(model, MODEL_ADDED, request, stream, NULL, &(struct model_row){.id = id});
    size_t length_max = request->add.length_max < 0 ? SIZE_MAX : (size_t)request->add.length_max;
    if (stream->entry_count > length_max) {
        stream_remove(stream, 0, stream->entry_count - length_max);
    }
    model->signalled = true;
    return IMPEL_OK;
}

int model_trim(struct model *model, struct request *request)
{
    struct model_stream *stream = state_stream(&model->state, request->stream);
    size_t remove = 0;

    if (stream == NULL) {
        return error_set(&request->error, IMPEL_ERR_NO_GROUP, "no such stream");
    }
    if (stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    if (request->trim.by_id) {
        remove = stream_seek(stream, request->trim.id_min);
    } else if (stream->entry_count > request->trim.length_max) {
        remove = stream->entry_count - request->trim.length_max;
    }
    if (request->trim.approximate) {
        remove -= remove % 100; /* whole nodes only */
    }
    stream_remove(stream, 0, remove);
    request->trim.removed = remove;
    return IMPEL_OK;
}

static bool is_ignored(const struct request *request, struct impel_bytes group)
{
    for (size_t i = 0; i < request->trim_done.ignored_count; i++) {
        if (bytes_equal(request->trim_done.ignored[i], group)) {
            return true;
        }
    }
    return false;
}

int model_trim_done(struct model *model, struct request *request)
{
    struct model_stream *stream = state_stream(&model->state, request->stream);
    struct impel_id floor = ID_MAX;
    bool any = false;

    if (stream != NULL && stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    for (size_t i = 0; stream != NULL && i < stream->group_count; i++) {
        const struct model_group *group = &stream->groups[i];
        struct impel_id mine = group->last_delivered;
        if (is_ignored(request, group->name)) {
            continue;
        }
        (void)id_next(&mine);
        if (group->row_count > 0 && id_compare(group->rows[0].id, mine) < 0) {
            mine = group->rows[0].id;
        }
        floor = id_compare(mine, floor) < 0 ? mine : floor;
        any = true;
    }
    if (!any) {
        return error_set(&request->error, IMPEL_ERR_NO_GROUP, "no group says what is finished");
    }
    bool young = id_compare(request->trim_done.keep_from, floor) < 0;
    size_t finished = stream_seek(stream, young ? request->trim_done.keep_from : floor);
    size_t spare = stream->entry_count <= request->trim_done.length_min
                       ? 0
                       : stream->entry_count - request->trim_done.length_min;
    size_t remove = finished < spare ? finished : spare;
    request->trim_done.more = remove > request->trim_done.limit;
    remove = request->trim_done.more ? request->trim_done.limit : remove;
    stream_remove(stream, 0, remove);
    request->trim_done.removed = remove;
    request->trim_done.floor = floor;
    return IMPEL_OK;
}

/* ---- reading ---- */

/* All streams and groups of a READ must exist before anything is read. */
static int read_check(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;

    for (size_t i = 0; i < request->read.stream_count; i++) {
        int rc = model_find(model, request->read.streams[i], request->group, &stream, &group);
        if (rc < 0) {
            request->read.missing = i;
            return error_set(&request->error, rc, "no such stream or group");
        }
    }
    return IMPEL_OK;
}

static size_t payload(const struct entry *entry)
{
    size_t size = 0;
    for (size_t i = 0; i < entry->field_count; i++) {
        size += entry->fields[i].name.size + entry->fields[i].value.size;
    }
    return size;
}

/* Hands out one entry: the row is new, or (a group moved back) taken over with the count 1. */
static bool deliver(struct model *model,
                    struct request *request,
                    size_t index,
                    struct model_stream *stream,
                    struct model_group *group)
{
    struct impel_id next = group->last_delivered;
    if (!id_next(&next)) {
        return false;
    }
    size_t at = stream_seek(stream, next);
    if (at == stream->entry_count) {
        return false;
    }
    const struct entry *entry = stream->entries[at]->entry;
    struct model_consumer *consumer = group_consumer_make(group, request->consumer);
    struct model_row *row = group_row(group, entry->id);
    struct model_row before = row != NULL ? *row : (struct model_row){.id = entry->id};

    advance(stream, group, entry->id);
    model_notify(model, MODEL_DELIVERED, request, stream, group, &before);
    row = group_row_put(group, entry->id, consumer);
    row->delivered_ms = model->now_ms;
    row->deliveries = 1;
    struct entry *copy = entry_new(entry->id, entry->fields, entry->field_count);
    ASSERT(copy != NULL);
    request->read.entries[request->read.entry_count++] =
        (struct delivered){.entry = copy, .stream_index = index, .deliveries = 1};
    return true;
}

/* How many entries it can bring at most: the simulator reads millions of times. */
static size_t read_most(struct model *model, const struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    size_t most = 0;

    for (size_t i = 0; i < request->read.stream_count; i++) {
        (void)model_find(model, request->read.streams[i], request->group, &stream, &group);
        most += stream->entry_count;
    }
    return most < request->read.count ? most : request->read.count;
}

/* False: nothing there, and the caller would wait. */
bool model_read(struct model *model, struct request *request)
{
    size_t size = 0;

    request->status = read_check(model, request);
    if (request->status < 0) {
        return true;
    }
    request->read.entry_count = 0;
    request->read.entries =
        arena_calloc(&request->arena, read_most(model, request), sizeof(request->read.entries[0]));
    ASSERT(request->read.entries != NULL);
    for (size_t i = 0; i < request->read.stream_count; i++) {
        size_t index = (i + request->read.first) % request->read.stream_count;
        struct model_stream *stream = NULL;
        struct model_group *group = NULL;
        (void)model_find(model, request->read.streams[index], request->group, &stream, &group);
        group_consumer_make(group, request->consumer)->seen_ms = model->now_ms;
        while (request->read.entry_count < request->read.count &&
               (request->read.size_max == 0 || size < request->read.size_max) &&
               deliver(model, request, index, stream, group)) {
            size += payload(request->read.entries[request->read.entry_count - 1].entry);
        }
    }
    return request->read.entry_count > 0 || request->read.block_ms <= 0;
}

int model_ack(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    if (rc >= 0 && request->ack.strict) {
        rc = model_fence(model, group, request);
    }
    if (rc < 0) {
        return error_set(&request->error, rc, "ack: %s", status_text(rc));
    }
    request->ack.acked = 0;
    for (size_t i = 0; i < request->ack.item_count; i++) {
        struct request_item *item = &request->ack.items[i];
        struct model_row *row = group_row(group, item->id);
        item->result = ITEM_LOST;
        if (row == NULL || (request->ack.strict &&
                            (row->deliveries != item->deliveries ||
                             !bytes_equal(group_owner_name(group, row), request->consumer)))) {
            continue;
        }
        model_notify(model, MODEL_ACKED, request, stream, group, row);
        group_row_delete(group, row);
        item->result = ITEM_DONE;
        request->ack.acked++;
    }
    return IMPEL_OK;
}

/* ---- looking ---- */

int model_pending(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    if (rc < 0) {
        return error_set(&request->error, rc, "pending: %s", status_text(rc));
    }
    request->pending.rows =
        arena_calloc(&request->arena, group->row_count, sizeof(request->pending.rows[0]));
    ASSERT(request->pending.rows != NULL);
    request->pending.row_count = 0;
    for (size_t at = group_seek(group, request->pending.start);
         at < group->row_count && request->pending.row_count < request->pending.count &&
         id_compare(group->rows[at].id, request->pending.end) <= 0;
         at++) {
        const struct model_row *row = &group->rows[at];
        struct impel_bytes owner = group_owner_name(group, row);
        if (request->pending.by_owner &&
            (row->owner == MODEL_NOBODY || !bytes_equal(owner, request->pending.owner))) {
            continue;
        }
        struct pending_row *out = &request->pending.rows[request->pending.row_count++];
        out->id = row->id;
        out->idle_ms = row_idle_ms(model, row);
        out->deliveries = row->deliveries;
        out->exists = stream_entry(stream, row->id) != NULL;
        out->carried = group_carried(group, row->id);
        ASSERT(arena_copy(&request->arena, owner, &out->owner));
    }
    return IMPEL_OK;
}

int model_range(struct model *model, struct request *request)
{
    struct model_stream *stream = state_stream(&model->state, request->stream);

    request->range.entry_count = 0;
    if (stream == NULL) {
        return IMPEL_OK;
    }
    if (stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    size_t low = stream_seek(stream, request->range.start);
    size_t high = stream_seek(stream, request->range.end);
    if (high < stream->entry_count &&
        id_equal(stream->entries[high]->entry->id, request->range.end)) {
        high++;
    }
    size_t count = high > low ? high - low : 0;
    count = count > request->range.count ? request->range.count : count;
    request->range.entries = arena_calloc(&request->arena, count, sizeof(struct entry *));
    ASSERT(request->range.entries != NULL);
    for (size_t i = 0; i < count; i++) {
        size_t at = request->range.reverse ? high - 1 - i : low + i;
        const struct entry *entry = stream->entries[at]->entry;
        request->range.entries[i] = entry_new(entry->id, entry->fields, entry->field_count);
        ASSERT(request->range.entries[i] != NULL);
    }
    request->range.entry_count = count;
    return IMPEL_OK;
}

int model_info(struct model *model, struct request *request)
{
    const struct model_stream *stream = state_stream(&model->state, request->stream);

    if (stream == NULL) {
        return IMPEL_OK;
    }
    if (stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    request->info.exists = true;
    request->info.length = stream->entry_count;
    request->info.last_id = stream->last_id;
    request->info.first_id = first_id(stream);
    request->info.entries_added = stream->entries_added;
    request->info.group_count = stream->group_count;
    request->info.groups =
        arena_calloc(&request->arena, stream->group_count, sizeof(request->info.groups[0]));
    ASSERT(request->info.groups != NULL);
    for (size_t i = 0; i < stream->group_count; i++) {
        const struct model_group *group = &stream->groups[i];
        struct info_group *out = &request->info.groups[i];
        ASSERT(arena_copy(&request->arena, group->name, &out->name));
        out->last_delivered = group->last_delivered;
        out->pending = group->row_count;
        out->consumers = group->consumer_count;
        out->lag = lag(stream, group);
        out->entries_read = group->entries_read;
        out->oldest_idle_ms = -1;
        if (group->row_count > 0) {
            out->first_pending = group->rows[0].id;
            out->oldest_idle_ms = sub_saturating(model->now_ms, group->rows[0].delivered_ms);
        }
    }
    return IMPEL_OK;
}

/* ---- groups ---- */

int model_group_set(struct model *model, struct request *request)
{
    bool create = request->kind == REQUEST_GROUP_CREATE;
    struct model_stream *stream = state_stream(&model->state, request->stream);
    struct model_group *group = NULL;

    request->group_set.created = false;
    if (stream != NULL && stream->other_type) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "the key is not a stream");
    }
    if (stream == NULL) {
        if (!create || request->group_set.no_create) {
            return error_set(&request->error, IMPEL_ERR_NO_GROUP, "no such stream");
        }
        stream = state_stream_make(&model->state, request->stream);
    }
    group = stream_group(stream, request->group);
    if (create && group != NULL) {
        return IMPEL_OK;
    }
    if (!create && group == NULL) {
        return error_set(&request->error, IMPEL_ERR_NO_GROUP, "no such group");
    }
    if (create) {
        group = stream_group_make(stream, request->group);
        request->group_set.created = true;
        model->signalled = true;
    }
    bool known = stream->floor_group == hash_bytes(request->group, 0);
    struct impel_id floor = known ? stream->floor : ID_MIN;
    group->last_delivered = request->group_set.at_floor ? floor
                            : request->group_set.at_end ? stream->last_id
                                                        : request->group_set.start;
    group->entries_read = -1;
    return IMPEL_OK;
}

/* ---- the few commands that set a scene ---- */

static int call_delete_entry(struct model_stream *stream, struct impel_bytes text)
{
    struct impel_id id = ID_MIN;
    if (stream == NULL || id_parse(text, 0, &id) < 0 || stream_entry(stream, id) == NULL) {
        return 0;
    }
    stream_remove(stream, stream_seek(stream, id), 1);
    if (id_compare(id, stream->deleted_max) > 0) {
        stream->deleted_max = id;
    }
    return 1;
}

/* "xnack s g FAIL|FATAL IDS n id ..." */
static int call_nack(struct model *model, const struct impel_bytes *args, size_t count)
{
    bool fatal = bytes_equal_nocase(args[3], "fatal");
    int given = 0;

    for (size_t i = 6; i < count; i++) {
        struct impel_id id = ID_MIN;
        struct model_group *group = NULL;
        struct model_stream *stream = NULL;
        if (id_parse(args[i], 0, &id) < 0 ||
            model_find(model, args[1], args[2], &stream, &group) < 0) {
            return -1;
        }
        const struct model_row *row = group_row(group, id);
        int64_t deliveries = row == NULL ? 0 : row->deliveries;
        given += model_disown(model, args[1], args[2], id, fatal ? INT64_MAX : deliveries);
    }
    return given;
}

static int call_command(struct model *model, const struct impel_bytes *args, size_t count)
{
    struct model_stream *stream = count < 2 ? NULL : state_stream(&model->state, args[1]);

    if (count == 3 && bytes_equal_nocase(args[0], "set")) {
        state_stream_make(&model->state, args[1])->other_type = true;
        return 1;
    }
    if (count == 2 && bytes_equal_nocase(args[0], "del")) {
        if (stream != NULL) {
            state_stream_delete(&model->state, stream);
        }
        return stream != NULL;
    }
    if (count >= 7 && bytes_equal_nocase(args[0], "xnack")) {
        return call_nack(model, args, count);
    }
    if (count == 3 && bytes_equal_nocase(args[0], "xdel")) {
        return call_delete_entry(stream, args[2]);
    }
    if (count == 4 && bytes_equal_nocase(args[0], "xgroup") &&
        bytes_equal_nocase(args[1], "destroy")) {
        stream = state_stream(&model->state, args[2]);
        struct model_group *group = stream == NULL ? NULL : stream_group(stream, args[3]);
        if (group != NULL) {
            stream_group_delete(stream, group);
        }
        return group != NULL;
    }
    return -1;
}

int model_call(struct model *model, struct request *request)
{
    struct value *reply = arena_calloc(&request->arena, 1, sizeof(*reply));
    ASSERT(reply != NULL);
    int rc = call_command(model, request->call.args, request->call.arg_count);

    *reply = (struct value){.kind = VALUE_INTEGER, .integer = rc};
    if (rc < 0) {
        *reply = (struct value){.kind = VALUE_ERROR, .bytes = bytes_of("ERR unknown command")};
    }
    request->call.reply = reply;
    model->signalled = true;
    return IMPEL_OK;
}
