/* model_replay.c -- the model's way of putting records of a dead-letter stream back, or dropping them. */
#include "store/model.h"

#include <stdio.h>
#include <string.h>

/* The position of the record, or SIZE_MAX if it is not the one that is meant. */
static size_t
record_at(struct model *model, struct request *request, const struct replay_item *item)
{
    struct model_stream *dead = state_stream(&model->state, request->replay.dead_letter);
    const struct entry *entry = dead == NULL ? NULL : stream_entry(dead, item->id);

    bool meant = entry != NULL &&
                 replay_is_meant(item, request->replay.mode, entry->fields, entry->field_count);
    return meant ? stream_seek(dead, item->id) : SIZE_MAX;
}

static void record_remove(struct model *model, struct request *request, size_t at)
{
    struct model_stream *dead = state_stream(&model->state, request->replay.dead_letter);

    if (id_compare(dead->entries[at]->entry->id, dead->deleted_max) > 0) {
        dead->deleted_max = dead->entries[at]->entry->id;
    }
    stream_remove(dead, at, 1);
}

static void append(struct model *model,
                   struct impel_bytes name,
                   struct impel_id id,
                   const struct impel_field *fields,
                   size_t count)
{
    struct entry *entry = entry_new(id, fields, count);

    ASSERT(entry != NULL);
    stream_append(state_stream_make(&model->state, name), entry);
    model->signalled = true;
}

static bool next_id(struct model *model, struct impel_bytes name, struct impel_id *id)
{
    static const struct model_stream none;
    const struct model_stream *stream = state_stream(&model->state, name);

    return model_next_id(model, stream == NULL ? &none : stream, id);
}

static enum replay_result
item_add(struct model *model, struct request *request, struct replay_item *item, size_t at)
{
    const struct model_stream *dead = state_stream(&model->state, request->replay.dead_letter);
    const struct entry *record = dead->entries[at]->entry;
    struct impel_field *fields =
        arena_calloc(&request->arena, record->field_count, sizeof(*fields));
    size_t count = 0;

    ASSERT(fields != NULL);
    for (size_t i = 0; i < item->run_count; i++) {
        memcpy(fields + count, record->fields + item->runs[i].first,
               item->runs[i].count * sizeof(*fields));
        count += item->runs[i].count;
    }
    if (count == 0 || !next_id(model, request->stream, &item->added)) {
        (void)error_set(&request->error, IMPEL_ERR_REPLY, "replay: no fields, or no ID is left");
        return REPLAY_FAILED;
    }
    append(model, request->stream, item->added, fields, count);
    struct model_stream *stream = state_stream(&model->state, request->stream);
    model_notify(model, MODEL_ADDED, request, stream, NULL, &(struct model_row){.id = item->added});
    record_remove(model, request, at);
    return REPLAY_DONE;
}

static enum replay_result
item_back(struct model *model, struct request *request, const struct replay_item *item, size_t at)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;

    (void)model_find(model, request->stream, request->group, &stream, &group);
    if (stream_entry(stream, item->original_id) == NULL) {
        return REPLAY_GONE;
    }
    if (id_compare(item->original_id, group->last_delivered) > 0 ||
        group_row(group, item->original_id) != NULL) {
        return REPLAY_STANDS;
    }
    struct model_row *row = group_row_put(group, item->original_id,
                                          group_consumer_make(group, bytes_of(RELEASED_NAME)));
    row->delivered_ms = 1;
    row->deliveries = 0;
    group_carried_set(group, item->original_id, 0);
    model_notify(model, MODEL_PUT_BACK, request, stream, group, row);
    record_remove(model, request, at);
    return REPLAY_DONE;
}

static enum replay_result
item_replay(struct model *model, struct request *request, struct replay_item *item)
{
    size_t at = record_at(model, request, item);

    if (at == SIZE_MAX) {
        return REPLAY_MISSING;
    }
    if (request->replay.mode == REPLAY_ADD) {
        return item_add(model, request, item, at);
    }
    if (request->replay.mode == REPLAY_BACK) {
        return item_back(model, request, item, at);
    }
    record_remove(model, request, at);
    return REPLAY_DONE;
}

static void write_audit(struct model *model, struct request *request)
{
    size_t given = request->replay.audit_field_count, done = 0;
    struct impel_field *fields = arena_calloc(&request->arena, given + 2, sizeof(*fields));
    struct impel_id id = ID_MIN;
    char number[24], id_text[ID_TEXT_SIZE];
    struct buf ids;

    ASSERT(fields != NULL);
    buf_init(&ids, 1 << 20);
    for (size_t i = 0; i < request->replay.item_count; i++) {
        if (request->replay.items[i].result == REPLAY_DONE) {
            buf_appendf(&ids, "%s%s", done++ == 0 ? "" : " ",
                        id_format(request->replay.items[i].id, id_text));
        }
    }
    (void)snprintf(number, sizeof(number), "%zu", done);
    if (given > 0) {
        memcpy(fields, request->replay.audit_fields, given * sizeof(*fields));
    }
    fields[given] = (struct impel_field){bytes_of("count"), bytes_of(number)};
    fields[given + 1] = (struct impel_field){bytes_of("records"), buf_bytes(&ids)};
    if (done > 0 && next_id(model, request->replay.audit, &id)) {
        append(model, request->replay.audit, id, fields, given + 2);
        struct model_stream *audit = state_stream(&model->state, request->replay.audit);
        if (audit->entry_count > AUDIT_LENGTH) {
            stream_remove(audit, 0, audit->entry_count - AUDIT_LENGTH);
        }
    }
    buf_release(&ids);
}

static bool is_other_type(struct model *model, struct impel_bytes name)
{
    const struct model_stream *stream = state_stream(&model->state, name);

    return stream != NULL && stream->other_type;
}

static int refuse(struct model *model, struct request *request)
{
    struct model_stream *stream = state_stream(&model->state, request->stream);
    struct model_group *group = NULL;
    bool drops = request->replay.mode == REPLAY_DROP;

    if (!drops && bytes_equal(request->stream, request->replay.dead_letter)) {
        return error_set(&request->error, IMPEL_ERR_INVALID, "replay: a stream into itself");
    }
    if ((!drops && is_other_type(model, request->stream)) ||
        is_other_type(model, request->replay.dead_letter) ||
        (request->replay.audit.size > 0 && is_other_type(model, request->replay.audit))) {
        return error_set(&request->error, IMPEL_ERR_WRONG_TYPE, "replay: a key is no stream");
    }
    if (request->replay.mode == REPLAY_BACK) {
        int rc = model_find(model, request->stream, request->group, &stream, &group);
        return rc < 0 ? error_set(&request->error, rc, "replay: %s", status_text(rc)) : IMPEL_OK;
    }
    for (size_t i = 0; !drops && request->replay.alone && stream != NULL && i < stream->group_count;
         i++) {
        if (!bytes_equal(stream->groups[i].name, request->group)) {
            return error_set(&request->error, IMPEL_ERR_EXISTS, "replay: there is another group");
        }
    }
    return IMPEL_OK;
}

int model_replay(struct model *model, struct request *request)
{
    int rc = refuse(model, request);

    for (size_t i = 0; rc >= 0 && i < request->replay.item_count; i++) {
        struct replay_item *item = &request->replay.items[i];
        item->result = item_replay(model, request, item);
    }
    if (rc >= 0 && request->replay.audit.size > 0) {
        write_audit(model, request);
    }
    return rc;
}
