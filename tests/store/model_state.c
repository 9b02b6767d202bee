/* model_state.c -- the model store's memory: sorted arrays, searched by halving, moved by memmove.
 */
#include "store/model_state.h"

#include <stdlib.h>
#include <string.h>

static void *grow(void *data, size_t count, size_t size)
{
    void *bigger = realloc(data, count * size);
    ASSERT(bigger != NULL);
    return bigger;
}

/* Opens a gap for one element at `at`; returns the new array. */
static void *insert_gap(void *data, size_t count, size_t at, size_t size)
{
    uint8_t *bytes = grow(data, count + 1, size);
    memmove(bytes + (at + 1) * size, bytes + at * size, (count - at) * size);
    memset(bytes + at * size, 0, size);
    return bytes;
}

static void close_gap(void *data, size_t count, size_t at, size_t size)
{
    uint8_t *bytes = data;
    memmove(bytes + at * size, bytes + (at + 1) * size, (count - at - 1) * size);
}

struct impel_bytes state_bytes_copy(struct impel_bytes bytes)
{
    uint8_t *data = grow(NULL, bytes.size + 1, 1);
    if (bytes.size > 0) {
        memcpy(data, bytes.data, bytes.size);
    }
    return (struct impel_bytes){data, bytes.size};
}

void state_bytes_free(struct impel_bytes bytes)
{
    free((void *)bytes.data);
}

/* ---- release and copy ---- */

static void group_release(struct model_group *group)
{
    for (size_t i = 0; i < group->consumer_count; i++) {
        state_bytes_free(group->consumers[i].name);
    }
    for (size_t i = 0; i < group->worker_count; i++) {
        state_bytes_free(group->workers[i].name);
    }
    free(group->rows);
    free(group->carried);
    free(group->consumers);
    free(group->workers);
    state_bytes_free(group->cursor_owner);
    state_bytes_free(group->name);
}

static void entry_unuse(struct model_entry *entry)
{
    if (--entry->uses == 0) {
        entry_free(entry->entry);
        free(entry);
    }
}

static void stream_release(struct model_stream *stream)
{
    for (size_t i = 0; i < stream->entry_count; i++) {
        entry_unuse(stream->entries[i]);
    }
    for (size_t i = 0; i < stream->group_count; i++) {
        group_release(&stream->groups[i]);
    }
    free(stream->entries);
    free(stream->groups);
    state_bytes_free(stream->name);
}

void state_release(struct model_state *state)
{
    for (size_t i = 0; i < state->stream_count; i++) {
        stream_release(&state->streams[i]);
    }
    free(state->streams);
    *state = (struct model_state){0};
}

static void *copy_array(const void *data, size_t count, size_t size)
{
    if (count == 0) {
        return NULL;
    }
    return memcpy(grow(NULL, count, size), data, count * size);
}

static void group_copy(const struct model_group *from, struct model_group *to)
{
    *to = *from;
    to->name = state_bytes_copy(from->name);
    to->cursor_owner = state_bytes_copy(from->cursor_owner);
    to->rows = copy_array(from->rows, from->row_count, sizeof(*to->rows));
    to->row_room = from->row_count;
    to->carried = copy_array(from->carried, from->carried_count, sizeof(*to->carried));
    to->consumers = copy_array(from->consumers, from->consumer_count, sizeof(*to->consumers));
    to->workers = copy_array(from->workers, from->worker_count, sizeof(*to->workers));
    for (size_t i = 0; i < to->consumer_count; i++) {
        to->consumers[i].name = state_bytes_copy(from->consumers[i].name);
    }
    for (size_t i = 0; i < to->worker_count; i++) {
        to->workers[i].name = state_bytes_copy(from->workers[i].name);
    }
}

static void stream_copy(const struct model_stream *from, struct model_stream *to)
{
    *to = *from;
    to->name = state_bytes_copy(from->name);
    to->entries = copy_array(from->entries, from->entry_count, sizeof(struct model_entry *));
    to->entry_room = from->entry_count;
    for (size_t i = 0; i < to->entry_count; i++) {
        to->entries[i]->uses++;
    }
    to->groups = copy_array(from->groups, from->group_count, sizeof(*to->groups));
    for (size_t i = 0; i < to->group_count; i++) {
        group_copy(&from->groups[i], &to->groups[i]);
    }
}

void state_copy(const struct model_state *from, struct model_state *to)
{
    *to = *from;
    to->streams = copy_array(from->streams, from->stream_count, sizeof(*to->streams));
    for (size_t i = 0; i < to->stream_count; i++) {
        stream_copy(&from->streams[i], &to->streams[i]);
    }
}

/* ---- streams ---- */

struct model_stream *state_stream(struct model_state *state, struct impel_bytes name)
{
    for (size_t i = 0; i < state->stream_count; i++) {
        if (bytes_equal(state->streams[i].name, name)) {
            return &state->streams[i];
        }
    }
    return NULL;
}

struct model_stream *state_stream_make(struct model_state *state, struct impel_bytes name)
{
    struct model_stream *stream = state_stream(state, name);
    if (stream == NULL) {
        state->streams =
            insert_gap(state->streams, state->stream_count, state->stream_count, sizeof(*stream));
        stream = &state->streams[state->stream_count++];
        stream->name = state_bytes_copy(name);
    }
    return stream;
}

void state_stream_delete(struct model_state *state, struct model_stream *stream)
{
    stream_release(stream);
    close_gap(state->streams, state->stream_count, (size_t)(stream - state->streams),
              sizeof(*stream));
    state->stream_count--;
}

size_t stream_seek(const struct model_stream *stream, struct impel_id id)
{
    size_t low = 0;
    size_t high = stream->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (id_compare(stream->entries[middle]->entry->id, id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct entry *stream_entry(const struct model_stream *stream, struct impel_id id)
{
    size_t at = stream_seek(stream, id);
    if (at == stream->entry_count || !id_equal(stream->entries[at]->entry->id, id)) {
        return NULL;
    }
    return stream->entries[at]->entry;
}

void stream_append(struct model_stream *stream, struct entry *entry)
{
    if (stream->entry_count == stream->entry_room) {
        stream->entry_room = stream->entry_room * 2 + 8;
        stream->entries = grow(stream->entries, stream->entry_room, sizeof(struct model_entry *));
    }
    struct model_entry *cell = grow(NULL, 1, sizeof(*cell));
    *cell = (struct model_entry){entry, 1};
    stream->entries[stream->entry_count++] = cell;
    stream->last_id = entry->id;
    stream->entries_added++;
}

void stream_remove(struct model_stream *stream, size_t at, size_t count)
{
    if (count == 0) {
        return; /* an empty stream has no array to move within */
    }
    for (size_t i = at; i < at + count; i++) {
        entry_unuse(stream->entries[i]);
    }
    memmove(stream->entries + at, stream->entries + at + count,
            (stream->entry_count - at - count) * sizeof(struct model_entry *));
    stream->entry_count -= count;
}

/* ---- groups ---- */

struct model_group *stream_group(struct model_stream *stream, struct impel_bytes name)
{
    for (size_t i = 0; i < stream->group_count; i++) {
        if (bytes_equal(stream->groups[i].name, name)) {
            return &stream->groups[i];
        }
    }
    return NULL;
}

struct model_group *stream_group_make(struct model_stream *stream, struct impel_bytes name)
{
    size_t at = 0;
    while (at < stream->group_count && bytes_compare(stream->groups[at].name, name) < 0) {
        at++;
    }
    stream->groups = insert_gap(stream->groups, stream->group_count, at, sizeof(stream->groups[0]));
    stream->group_count++;
    stream->groups[at].name = state_bytes_copy(name);
    stream->groups[at].cursor_owner = state_bytes_copy((struct impel_bytes){NULL, 0});
    stream->groups[at].entries_read = -1;
    return &stream->groups[at];
}

void stream_group_delete(struct model_stream *stream, struct model_group *group)
{
    stream->floor_group = hash_bytes(group->name, 0);
    stream->floor = group->last_delivered;
    if (group->row_count > 0 && id_compare(group->rows[0].id, stream->floor) <= 0) {
        stream->floor = group->rows[0].id;
        (void)id_previous(&stream->floor);
    }
    group_release(group);
    close_gap(stream->groups, stream->group_count, (size_t)(group - stream->groups),
              sizeof(*group));
    stream->group_count--;
}

struct model_consumer *group_consumer(struct model_group *group, struct impel_bytes name)
{
    for (size_t i = 0; i < group->consumer_count; i++) {
        if (bytes_equal(group->consumers[i].name, name)) {
            return &group->consumers[i];
        }
    }
    return NULL;
}

struct model_consumer *group_consumer_make(struct model_group *group, struct impel_bytes name)
{
    struct model_consumer *consumer = group_consumer(group, name);
    size_t at = 0;
    if (consumer != NULL) {
        return consumer;
    }
    while (at < group->consumer_count && bytes_compare(group->consumers[at].name, name) < 0) {
        at++;
    }
    group->consumers =
        insert_gap(group->consumers, group->consumer_count, at, sizeof(group->consumers[0]));
    group->consumer_count++;
    group->consumers[at].number = ++group->consumer_last;
    group->consumers[at].name = state_bytes_copy(name);
    return &group->consumers[at];
}

struct model_consumer *group_consumer_number(const struct model_group *group, uint32_t number)
{
    for (size_t i = 0; i < group->consumer_count; i++) {
        if (group->consumers[i].number == number) {
            return &group->consumers[i];
        }
    }
    return NULL;
}

void group_consumer_delete(struct model_group *group, struct model_consumer *consumer)
{
    ASSERT(consumer->pending == 0);
    state_bytes_free(consumer->name);
    close_gap(group->consumers, group->consumer_count, (size_t)(consumer - group->consumers),
              sizeof(*consumer));
    group->consumer_count--;
}

struct impel_bytes group_owner_name(const struct model_group *group, const struct model_row *row)
{
    const struct model_consumer *owner = group_consumer_number(group, row->owner);
    return owner == NULL ? (struct impel_bytes){NULL, 0} : owner->name;
}

/* ---- pending rows ---- */

size_t group_seek(const struct model_group *group, struct impel_id id)
{
    size_t low = 0;
    size_t high = group->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (id_compare(group->rows[middle].id, id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct model_row *group_row(struct model_group *group, struct impel_id id)
{
    size_t at = group_seek(group, id);
    if (at == group->row_count || !id_equal(group->rows[at].id, id)) {
        return NULL;
    }
    return &group->rows[at];
}

void group_row_own(struct model_group *group, struct model_row *row, struct model_consumer *owner)
{
    struct model_consumer *before = group_consumer_number(group, row->owner);
    if (before != NULL) {
        before->pending--;
    }
    row->owner = MODEL_NOBODY;
    if (owner != NULL) {
        owner->pending++;
        row->owner = owner->number;
    }
}

struct model_row *
group_row_put(struct model_group *group, struct impel_id id, struct model_consumer *owner)
{
    size_t at = group_seek(group, id);
    if (at == group->row_count || !id_equal(group->rows[at].id, id)) {
        if (group->row_count == group->row_room) {
            group->row_room = group->row_room * 2 + 8;
            group->rows = grow(group->rows, group->row_room, sizeof(group->rows[0]));
        }
        memmove(group->rows + at + 1, group->rows + at,
                (group->row_count - at) * sizeof(group->rows[0]));
        group->rows[at] = (struct model_row){.id = id};
        group->row_count++;
    }
    group_row_own(group, &group->rows[at], owner);
    return &group->rows[at];
}

void group_row_delete(struct model_group *group, struct model_row *row)
{
    group_row_own(group, row, NULL);
    close_gap(group->rows, group->row_count, (size_t)(row - group->rows), sizeof(*row));
    group->row_count--;
}

/* ---- the workers table ---- */

struct model_worker *group_worker(struct model_group *group, struct impel_bytes name)
{
    for (size_t i = 0; i < group->worker_count; i++) {
        if (bytes_equal(group->workers[i].name, name)) {
            return &group->workers[i];
        }
    }
    return NULL;
}

struct model_worker *group_worker_make(struct model_group *group, struct impel_bytes name)
{
    struct model_worker *worker = group_worker(group, name);
    if (worker == NULL) {
        group->workers = insert_gap(group->workers, group->worker_count, group->worker_count,
                                    sizeof(group->workers[0]));
        worker = &group->workers[group->worker_count++];
        worker->name = state_bytes_copy(name);
    }
    return worker;
}

void group_worker_delete(struct model_group *group, struct model_worker *worker)
{
    state_bytes_free(worker->name);
    close_gap(group->workers, group->worker_count, (size_t)(worker - group->workers),
              sizeof(*worker));
    group->worker_count--;
}

/* ---- what requeued entries carry ---- */

int64_t group_carried(const struct model_group *group, struct impel_id id)
{
    for (size_t i = 0; i < group->carried_count; i++) {
        if (id_equal(group->carried[i].id, id)) {
            return group->carried[i].deliveries;
        }
    }
    return 0;
}

void group_carried_set(struct model_group *group, struct impel_id id, int64_t deliveries)
{
    size_t at = 0;

    while (at < group->carried_count && !id_equal(group->carried[at].id, id)) {
        at++;
    }
    if (deliveries == 0) {
        if (at < group->carried_count) {
            group->carried[at] = group->carried[--group->carried_count];
        }
        return;
    }
    if (at == group->carried_count) {
        group->carried = grow(group->carried, ++group->carried_count, sizeof(*group->carried));
    }
    group->carried[at] = (struct model_carried){id, deliveries};
}
