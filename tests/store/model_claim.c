/* model_claim.c -- the model's steps on pending rows: walking an abandoned PEL, and what a holder
 * does to its own (retry, adopt, renew, release, park). */
#include "store/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    PARK_FIELDS = 10,
    RELEASE_REST_MAX = 1000,
};

/* ---- parking ---- */

static struct impel_bytes number_text(struct request *request, int64_t number)
{
    char text[24];
    struct impel_bytes out = {NULL, 0};
    (void)snprintf(text, sizeof(text), "%" PRId64, number);
    ASSERT(arena_copy(&request->arena, bytes_of(text), &out));
    return out;
}

/* The record: the entry's own fields, then the ten that tell what became of it. */
static struct entry *park_record(struct model *model,
                                 struct request *request,
                                 const struct model_parking *parking,
                                 struct impel_id id)
{
    const struct entry *entry = parking->entry;
    const struct model_row *row = parking->row;
    size_t count = entry->field_count + PARK_FIELDS;
    struct impel_field *fields = arena_calloc(&request->arena, count, sizeof(*fields));
    char *id_text = arena_alloc(&request->arena, ID_TEXT_SIZE);

    ASSERT(fields != NULL && id_text != NULL);
    memcpy(fields, entry->fields, entry->field_count * sizeof(*fields));
    const struct impel_field added[PARK_FIELDS] = {
        {bytes_of("original_id"), bytes_of(id_format(row->id, id_text))},
        {bytes_of("original_stream"), parking->stream->name},
        {bytes_of("original_group"), parking->group->name},
        {bytes_of("consumer"), group_owner_name(parking->group, row)},
        {bytes_of("deliveries"), number_text(request, parking->deliveries)},
        {bytes_of("reason"), parking->reason},
        {bytes_of("error"), parking->error},
        {bytes_of("last_active_ms"), number_text(request, row->delivered_ms)},
        {bytes_of("parked_ms"), number_text(request, model->now_ms)},
        {bytes_of("impel_fields"), number_text(request, PARK_FIELDS)},
    };
    memcpy(fields + entry->field_count, added, sizeof(added));
    struct entry *record = entry_new(id, fields, count);
    ASSERT(record != NULL);
    return record;
}

int model_park(struct model *model,
               struct request *request,
               const struct model_parking *parking,
               struct impel_error *err)
{
    static const struct model_stream none;
    struct model_stream *dead = state_stream(&model->state, parking->dead_letter);
    struct impel_id id = ID_MIN;

    if (dead != NULL && dead->other_type) {
        return error_set(err, IMPEL_ERR_WRONG_TYPE, "the dead-letter key is not a stream");
    }
    if (!model_next_id(model, dead == NULL ? &none : dead, &id)) {
        return error_set(err, IMPEL_ERR_REPLY, "the dead-letter stream's last ID is used up");
    }
    struct entry *record = park_record(model, request, parking, id);
    model_notify(model, MODEL_PARKED, request, parking->stream, parking->group, parking->row);
    group_carried_set(parking->group, parking->row->id, 0);
    group_row_delete(parking->group, parking->row);
    /* Making a stream may move all of them: nothing of the parking is used after this. */
    stream_append(state_stream_make(&model->state, parking->dead_letter), record);
    model->signalled = true;
    return IMPEL_OK;
}

/* ---- walking an abandoned PEL ---- */

/* Hands the row to the caller as its next delivery. */
static struct entry *take(struct model *model,
                          struct request *request,
                          struct model_stream *stream,
                          struct model_group *group,
                          struct model_row *row)
{
    const struct entry *entry = stream_entry(stream, row->id);
    struct entry *copy = entry_new(entry->id, entry->fields, entry->field_count);

    ASSERT(copy != NULL);
    model_notify(model, MODEL_CLAIMED, request, stream, group, row);
    group_row_own(group, row, group_consumer_make(group, request->consumer));
    row->delivered_ms = model->now_ms;
    row->deliveries = add_saturating(row->deliveries, 1);
    return copy;
}

static int64_t total_of(const struct model_group *group, const struct model_row *row)
{
    return row->deliveries < 0 ? row->deliveries
                               : add_saturating(row->deliveries, group_carried(group, row->id));
}

static void
walk_park(struct model *model, struct request *request, struct impel_id id, const char *reason)
{
    struct model_parking parking = {.dead_letter = request->claim_from.dead_letter,
                                    .reason = bytes_of(reason)};
    struct impel_error err = {0};

    (void)model_find(model, request->stream, request->group, &parking.stream, &parking.group);
    parking.row = group_row(parking.group, id);
    parking.entry = stream_entry(parking.stream, id);
    parking.deliveries = total_of(parking.group, parking.row);
    struct settled settled = {id, parking.deliveries};
    if (model_park(model, request, &parking, &err) < 0) {
        if (request->claim_from.park_failed++ == 0) {
            request->claim_from.park_error = err;
        }
        return;
    }
    request->claim_from.parked[request->claim_from.parked_count++] = settled;
}

/* ---- instead of a claim ---- */

enum {
    CLAIM_MOVES = CLAIM_REQUEUE | CLAIM_HAND_OVER | CLAIM_PARK,
    MOVE_BYTES = 256 * 1024,
};

/* The payload that this step has copied so far. */
static size_t moved_bytes(const struct model_stream *stream, const struct request *request)
{
    size_t bytes = 0;

    for (size_t i = 0; i < request->claim_from.moved_count; i++) {
        const struct entry *entry = stream_entry(stream, request->claim_from.moved[i].id);
        bytes += entry == NULL ? 0 : entry->size_bytes;
    }
    return bytes;
}

static void walk_requeue(struct model *model, struct request *request, struct impel_id id)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    struct moved *moved = &request->claim_from.moved[request->claim_from.moved_count];
    struct impel_id copy;

    (void)model_find(model, request->stream, request->group, &stream, &group);
    struct model_row *row = group_row(group, id);
    const struct entry *entry = stream_entry(stream, id);
    if (!model_next_id(model, stream, &copy)) {
        if (request->claim_from.park_failed++ == 0) {
            (void)error_set(&request->claim_from.park_error, IMPEL_ERR_REPLY,
                            "the stream's last ID is used up");
        }
        return;
    }
    *moved = (struct moved){id, copy, total_of(group, row),
                            sub_saturating(model->now_ms, row->delivered_ms)};
    request->claim_from.moved_count++;
    struct entry *again = entry_new(copy, entry->fields, entry->field_count);
    ASSERT(again != NULL);
    model_notify(model, MODEL_MOVED, request, stream, group, row);
    group_carried_set(group, id, 0);
    group_carried_set(group, copy, moved->deliveries);
    group_row_delete(group, row);
    stream_append(stream, again);
    model->signalled = true;
}

static void walk_hand_over(struct model *model,
                           struct request *request,
                           struct model_stream *stream,
                           struct model_group *group,
                           struct model_row *row)
{
    request->claim_from.moved[request->claim_from.moved_count++] = (struct moved){
        row->id, row->id, total_of(group, row), sub_saturating(model->now_ms, row->delivered_ms)};
    model_notify(model, MODEL_MOVED, request, stream, group, row);
    group_row_own(group, row, group_consumer(group, request->claim_from.heir));
    row->delivered_ms = model->now_ms;
    row->deliveries = add_saturating(row->deliveries, 1);
}

/* False: no room, the walk stops in front of the row. */
static bool walk_move(struct model *model,
                      struct request *request,
                      struct model_stream *stream,
                      struct model_group *group,
                      struct model_row *row)
{
    unsigned flags = request->claim_from.flags;
    bool forbidden = (flags & CLAIM_REQUEUE) != 0
                         ? (flags & CLAIM_ALL_GROUPS) == 0 && stream->group_count > 1
                         : (flags & CLAIM_HAND_OVER) != 0 &&
                               group_consumer(group, request->claim_from.heir) == NULL;

    if (forbidden || request->claim_from.claims_max == 0) {
        if (request->claim_from.due++ == 0) {
            request->claim_from.due_first = row->id;
        }
        request->claim_from.other_groups = forbidden && (flags & CLAIM_REQUEUE) != 0;
        return true;
    }
    if (request->claim_from.moved_count + request->claim_from.parked_count >=
            request->claim_from.claims_max ||
        ((flags & CLAIM_HAND_OVER) == 0 && moved_bytes(stream, request) >= MOVE_BYTES)) {
        return false;
    }
    if (flags & CLAIM_REQUEUE) {
        walk_requeue(model, request, row->id);
    } else if (flags & CLAIM_HAND_OVER) {
        walk_hand_over(model, request, stream, group, row);
    } else {
        walk_park(model, request, row->id, "abandoned");
    }
    return true;
}

/* A due row: claimed, or counted as left over. False: no room, the walk stops in front of it. */
static bool walk_claim(struct model *model,
                       struct request *request,
                       struct model_stream *stream,
                       struct model_group *group,
                       struct model_row *row)
{
    enum owner_state state = request->claim_from.state;
    bool last =
        (state == OWNER_DEAD || state == OWNER_FOREIGN) &&
        add_saturating(total_of(group, row), 1) >= request->claim_from.policy.max_deliveries &&
        (request->claim_from.flags & CLAIM_LAST) == 0;
    bool full = request->claim_from.entry_count >= request->claim_from.claims_max;

    if (last || full) {
        if (request->claim_from.due++ == 0) {
            request->claim_from.due_first = row->id;
        }
        request->claim_from.due_last += last;
        return last || request->claim_from.claims_max == 0;
    }
    struct delivered *out = &request->claim_from.entries[request->claim_from.entry_count++];
    out->idle_ms = row_idle_ms(model, row);
    out->from = state;
    out->entry = take(model, request, stream, group, row);
    out->deliveries = row->deliveries;
    return true;
}

/* One row of the walk. Returns false if the walk has to stop in front of it. */
static bool walk_row(struct model *model, struct request *request, struct impel_id id)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int64_t wait_ms = 0;

    (void)model_find(model, request->stream, request->group, &stream, &group);
    struct model_row *row = group_row(group, id);
    const struct model_worker *worker = group_worker(group, request->claim_from.owner);
    struct pending_view view = {
        .id = id,
        .owner = request->claim_from.state,
        .idle_ms = row_idle_ms(model, row),
        .deliveries = total_of(group, row),
        .exists = stream_entry(stream, id) != NULL,
    };
    if (worker != NULL) {
        view.silence_ms = liveness_silence_ms(&group->liveness, &worker->row, model->now_ms);
    }
    bool settle = (request->claim_from.flags & CLAIM_SETTLE) != 0;
    switch (policy_verdict(&request->claim_from.policy, &view, &wait_ms)) {
    case VERDICT_CLAIM:
        return request->claim_from.flags & CLAIM_MOVES
                   ? walk_move(model, request, stream, group, row)
                   : walk_claim(model, request, stream, group, row);
    case VERDICT_PARK:
        if (settle) {
            walk_park(model, request, id, "max-deliveries");
        }
        break;
    case VERDICT_REAP:
        if (settle) {
            model_notify(model, MODEL_REAPED, request, stream, group, row);
            request->claim_from.reaped[request->claim_from.reaped_count++] =
                (struct settled){id, view.deliveries};
            group_carried_set(group, id, 0);
            group_row_delete(group, row);
        }
        break;
    case VERDICT_WAIT:
        request->claim_from.not_due++;
        if (request->claim_from.wait_ms < 0 || wait_ms < request->claim_from.wait_ms) {
            request->claim_from.wait_ms = wait_ms;
        }
        break;
    default:
        break;
    }
    return true;
}

static void walk(struct model *model, struct request *request, uint32_t owner)
{
    struct impel_id id = request->claim_from.from;
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;

    for (;;) {
        (void)model_find(model, request->stream, request->group, &stream, &group);
        size_t at = group_seek(group, id);
        while (at < group->row_count && group->rows[at].owner != owner) {
            at++;
        }
        if (at == group->row_count) {
            return;
        }
        id = group->rows[at].id;
        if (request->claim_from.rows == request->claim_from.rows_max ||
            !walk_row(model, request, id)) {
            request->claim_from.next = id;
            return;
        }
        request->claim_from.rows++;
        if (!id_next(&id)) {
            return;
        }
    }
}

static void walk_prepare(struct request *request, size_t rows)
{
    size_t most = rows < request->claim_from.rows_max ? rows : request->claim_from.rows_max;

    request->claim_from.entry_count = request->claim_from.parked_count = 0;
    request->claim_from.reaped_count = request->claim_from.park_failed = 0;
    request->claim_from.moved_count = 0;
    request->claim_from.other_groups = false;
    request->claim_from.rows = request->claim_from.due = request->claim_from.due_last = 0;
    request->claim_from.not_due = 0;
    request->claim_from.wait_ms = -1;
    request->claim_from.due_first = request->claim_from.next = ID_MIN;
    request->claim_from.entries =
        arena_calloc(&request->arena, most, sizeof(request->claim_from.entries[0]));
    request->claim_from.parked =
        arena_calloc(&request->arena, most, sizeof(request->claim_from.parked[0]));
    request->claim_from.reaped =
        arena_calloc(&request->arena, most, sizeof(request->claim_from.reaped[0]));
    request->claim_from.moved =
        arena_calloc(&request->arena, most, sizeof(request->claim_from.moved[0]));
    ASSERT(request->claim_from.moved != NULL && request->claim_from.entries != NULL &&
           request->claim_from.parked != NULL && request->claim_from.reaped != NULL);
}

int model_claim_from(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_beat_step(model, request, false, &request->claim_from.beat, NULL);

    if (rc >= 0 && request->claim_from.beat == BEAT_OCCUPIED) {
        rc = error_set(&request->error, IMPEL_ERR_REPLACED, "claim: the name is another's");
    }
    if (rc < 0) {
        return rc;
    }
    (void)model_find(model, request->stream, request->group, &stream, &group);
    const struct model_consumer *consumer = group_consumer(group, request->claim_from.owner);
    request->claim_from.state =
        request->claim_from.nobody
            ? OWNER_NOBODY
            : model_owner_state(model, group, request, request->claim_from.owner);
    if (request->claim_from.state == OWNER_DEAD && !model->dead_by_time) {
        group_worker(group, request->claim_from.owner)->dead = true;
    }
    if (request->consumer.size == 0 && (request->claim_from.flags & CLAIM_MOVES) == 0) {
        request->claim_from.claims_max =
            0; /* a sweep without a worker has no name to claim under */
    }
    walk_prepare(request, group->row_count);
    if (request->claim_from.state != OWNER_ME && request->claim_from.state != OWNER_LIVE &&
        (request->claim_from.nobody || consumer != NULL)) {
        walk(model, request, request->claim_from.nobody ? MODEL_NOBODY : consumer->number);
    }
    (void)model_find(model, request->stream, request->group, &stream, &group);
    struct impel_bytes before = group->cursor_owner;
    group->cursor_owner = state_bytes_copy(request->claim_from.owner);
    group->cursor_id = request->claim_from.next;
    group->left_ms = request->claim_from.due > 0 ? model->now_ms : group->left_ms;
    state_bytes_free(before);
    return IMPEL_OK;
}

/* ---- what a holder does to its own ---- */

static void item_take(struct model *model,
                      struct request *request,
                      struct request_item *item,
                      const struct model_parking *at)
{
    if (at->entry == NULL) {
        model_notify(model, MODEL_REAPED, request, at->stream, at->group, at->row);
        group_row_delete(at->group, at->row);
        item->result = ITEM_TRIMMED;
        return;
    }
    item->entry = take(model, request, at->stream, at->group, at->row);
    item->result = ITEM_DONE;
}

static void item_release(struct model *model,
                         struct request *request,
                         struct request_item *item,
                         const struct model_parking *at)
{
    struct model_row *row = at->row;

    model_notify(model, MODEL_RELEASED, request, at->stream, at->group, row);
    group_row_own(at->group, row, group_consumer_make(at->group, bytes_of(RELEASED_NAME)));
    if (item->give_back) {
        row->deliveries -= row->deliveries > 0;
        row->delivered_ms = 1;
    } else {
        row->delivered_ms = sub_saturating(model->now_ms, item->idle_ms);
    }
    item->result = ITEM_DONE;
}

static void item_park(struct model *model,
                      struct request *request,
                      struct request_item *item,
                      struct model_parking *at)
{
    at->dead_letter = request->items.dead_letter;
    at->deliveries = item->deliveries;
    at->reason = item->reason;
    at->error = item->error;
    if (at->entry == NULL) {
        at->entry = item->copy;
        at->reason = bytes_of("trimmed");
    }
    if (at->entry == NULL) {
        model_notify(model, MODEL_REAPED, request, at->stream, at->group, at->row);
        group_row_delete(at->group, at->row);
        item->result = ITEM_TRIMMED;
        return;
    }
    item->result = model_park(model, request, at, &request->error) < 0 ? ITEM_FAILED : ITEM_DONE;
}

static void item_apply(struct model *model, struct request *request, struct request_item *item)
{
    struct model_parking at = {0};

    (void)model_find(model, request->stream, request->group, &at.stream, &at.group);
    at.row = group_row(at.group, item->id);
    item->result = ITEM_LOST;
    if (at.row == NULL || at.row->deliveries != item->deliveries || at.row->owner == MODEL_NOBODY ||
        !bytes_equal(group_owner_name(at.group, at.row), request->consumer)) {
        return;
    }
    at.entry = stream_entry(at.stream, item->id);
    switch (request->kind) {
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
        item_take(model, request, item, &at);
        break;
    case REQUEST_RENEW:
        item->result = ITEM_TRIMMED;
        if (at.entry != NULL) {
            model_notify(model, MODEL_RENEWED, request, at.stream, at.group, at.row);
            at.row->delivered_ms = model->now_ms;
            item->result = ITEM_DONE;
        }
        break;
    case REQUEST_RELEASE:
        item_release(model, request, item, &at);
        break;
    default:
        item_park(model, request, item, &at);
        break;
    }
}

static void release_rest(struct model *model,
                         struct model_stream *stream,
                         struct model_group *group,
                         struct request *request)
{
    const struct model_consumer *consumer = group_consumer(group, request->consumer);
    uint32_t mine = consumer == NULL ? 0 : consumer->number;

    for (size_t i = 0; consumer != NULL && i < group->row_count; i++) {
        struct model_row *row = &group->rows[i];
        if (row->owner != mine) {
            continue;
        }
        if (request->items.rested == RELEASE_REST_MAX) {
            request->items.more = true;
            return;
        }
        model_notify(model, MODEL_RELEASED, request, stream, group, row);
        group_row_own(group, row, group_consumer_make(group, bytes_of(RELEASED_NAME)));
        row->delivered_ms = 1;
        request->items.rested++;
    }
}

int model_items(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    rc = rc < 0 ? rc : model_fence(model, group, request);
    if (rc < 0) {
        return error_set(&request->error, rc, "%s: %s", request_name(request->kind),
                         status_text(rc));
    }
    for (size_t i = 0; i < request->items.item_count; i++) {
        item_apply(model, request, &request->items.items[i]);
    }
    request->items.more = false;
    request->items.rested = 0;
    if (request->kind == REQUEST_RELEASE && request->items.rest) {
        release_rest(model, stream, group, request);
    }
    return IMPEL_OK;
}
