/* model_worker.c -- the model's workers table and what is judged and fenced by it: beat, look,
 * leave, drop, and the fences that the other files ask for. */
#include "store/model.h"

#include <string.h>

/* ---- judging ---- */

static int64_t gap_ms(const struct model_group *group, int64_t dead_after_ms)
{
    int64_t least_ms = dead_after_ms > 0 ? dead_after_ms : INT64_MAX;
    for (size_t i = 0; i < group->worker_count; i++) {
        int64_t ms = group->workers[i].row.dead_after_ms;
        least_ms = ms < least_ms ? ms : least_ms;
    }
    return liveness_gap_ms(least_ms);
}

static bool
worker_dead(const struct model *model, struct model_group *group, struct model_worker *worker)
{
    return worker->dead || liveness_dead(&group->liveness, &worker->row, model->now_ms);
}

/* Dead by the clock is only a mark once somebody has acted on it. */
static bool
marked_dead(const struct model *model, struct model_group *group, struct model_worker *worker)
{
    return model->dead_by_time ? worker_dead(model, group, worker) : worker->dead;
}

static void mark(const struct model *model, struct model_group *group)
{
    for (size_t i = 0; i < group->worker_count; i++) {
        struct model_worker *worker = &group->workers[i];
        if (!worker_dead(model, group, worker)) {
            continue;
        }
        worker->dead = worker->dead || !model->dead_by_time;
        if (!worker->seen_dead) {
            worker->seen_dead = true;
            group->left_ms = model->now_ms;
        }
    }
}

enum owner_state model_owner_state(struct model *model,
                                   struct model_group *group,
                                   const struct request *request,
                                   struct impel_bytes name)
{
    struct model_worker *worker = group_worker(group, name);

    if (worker == NULL) {
        return bytes_equal(name, bytes_of(RELEASED_NAME)) ? OWNER_RELEASED : OWNER_FOREIGN;
    }
    if (request->consumer.size > 0 && bytes_equal(name, request->consumer) &&
        token_equal(&worker->row.token, &request->token)) {
        return OWNER_ME;
    }
    if (liveness_stale(&group->liveness, gap_ms(group, 0), model->now_ms)) {
        return OWNER_UNKNOWN;
    }
    return worker_dead(model, group, worker) ? OWNER_DEAD : OWNER_LIVE;
}

int model_fence(struct model *model, struct model_group *group, const struct request *request)
{
    struct model_worker *worker = group_worker(group, request->consumer);

    if (worker == NULL) {
        return IMPEL_ERR_FENCED;
    }
    if (!token_equal(&worker->row.token, &request->token)) {
        return IMPEL_ERR_REPLACED;
    }
    return marked_dead(model, group, worker) ? IMPEL_ERR_FENCED : IMPEL_OK;
}

/* ---- beating ---- */

static enum beat_result
write_row(struct model *model, struct model_group *group, const struct request *request, bool first)
{
    struct model_worker *worker = group_worker(group, request->consumer);
    bool mine = worker != NULL && token_equal(&worker->row.token, &request->token);
    bool fresh = mine && !marked_dead(model, group, worker);

    if (worker != NULL && !mine && !worker_dead(model, group, worker)) {
        return BEAT_OCCUPIED;
    }
    worker = group_worker_make(group, request->consumer);
    worker->row = (struct liveness_row){model->now_ms, request->dead_after_ms, request->token};
    worker->dead = worker->seen_dead = false;
    return first || fresh ? BEAT_TAKEN : BEAT_REVIVED;
}

int model_beat_step(struct model *model,
                    struct request *request,
                    bool first,
                    enum beat_result *result,
                    int64_t *wait_ms)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    if (rc < 0) {
        return error_set(&request->error, rc, "beat: %s", status_text(rc));
    }
    if (model->refuse_beats) {
        return error_set(&request->error, IMPEL_ERR_BUSY, "beat: the store takes none");
    }
    liveness_note(&group->liveness, gap_ms(group, request->dead_after_ms), model->now_ms);
    *result = BEAT_TAKEN;
    if (request->consumer.size == 0) {
        return IMPEL_OK;
    }
    *result = write_row(model, group, request, first);
    if (*result != BEAT_OCCUPIED) {
        model_notify(model, MODEL_BEAT, request, stream, group, NULL);
    } else if (wait_ms != NULL) {
        const struct model_worker *other = group_worker(group, request->consumer);
        *wait_ms =
            sub_saturating(other->row.dead_after_ms,
                           liveness_silence_ms(&group->liveness, &other->row, model->now_ms));
    }
    return IMPEL_OK;
}

int model_beat(struct model *model, struct request *request)
{
    request->beat.wait_ms = 0;
    return model_beat_step(model, request, request->beat.first, &request->beat.result,
                           &request->beat.wait_ms);
}

/* ---- looking ---- */

static struct look_owner *look_owner(struct request *request, struct impel_bytes name)
{
    struct look_owner *owner = &request->look.owners[request->look.owner_count++];
    ASSERT(arena_copy(&request->arena, name, &owner->name));
    owner->beat_age_ms = -1;
    owner->dead_after_ms = -1;
    owner->seen_age_ms = -1;
    return owner;
}

static void
look_consumer(struct model *model, struct model_group *group, struct request *request, size_t index)
{
    const struct model_consumer *consumer = &group->consumers[index];
    struct look_owner *owner = look_owner(request, consumer->name);

    owner->pending = consumer->pending;
    owner->seen_age_ms = sub_saturating(model->now_ms, consumer->seen_ms);
}

static void look_owners(struct model *model, struct model_group *group, struct request *request)
{
    request->look.owner_count = 0;
    request->look.owners =
        arena_calloc(&request->arena, group->consumer_count + group->worker_count,
                     sizeof(request->look.owners[0]));
    ASSERT(request->look.owners != NULL);
    for (size_t i = 0; i < group->consumer_count; i++) {
        look_consumer(model, group, request, i);
    }
    for (size_t i = 0; i < group->worker_count; i++) {
        if (group_consumer(group, group->workers[i].name) == NULL) {
            (void)look_owner(request, group->workers[i].name);
        }
    }
    for (size_t i = 0; i < request->look.owner_count; i++) {
        struct look_owner *owner = &request->look.owners[i];
        const struct model_worker *worker = group_worker(group, owner->name);
        owner->state = model_owner_state(model, group, request, owner->name);
        owner->in_table = worker != NULL;
        if (worker != NULL) {
            owner->beat_age_ms = sub_saturating(model->now_ms, worker->row.beat_ms);
            owner->dead_after_ms = worker->row.dead_after_ms;
            owner->token = worker->row.token;
        }
    }
}

static bool
take_stamp(struct model *model, struct model_group *group, const struct request *request)
{
    if ((request->look.flags & LOOK_STAMP) != 0) {
        int64_t interval_ms = request->look.interval_ms;
        int64_t age_ms = sub_saturating(model->now_ms, group->stamp_ms);
        int64_t left_age_ms = sub_saturating(model->now_ms, group->left_ms);
        bool let_in = (request->look.flags & LOOK_FREE) != 0 && left_age_ms >= 0 &&
                      left_age_ms / 2 < interval_ms;
        if (age_ms >= 0 && age_ms < interval_ms && !let_in) {
            return false;
        }
        group->stamp_ms = model->now_ms;
    }
    return true;
}

static uint64_t undelivered(const struct model_stream *stream, const struct model_group *group)
{
    struct impel_id next = group->last_delivered;
    return id_next(&next) ? stream->entry_count - stream_seek(stream, next) : 0;
}

static void forget_carried(struct model_group *group)
{
    for (size_t i = group->carried_count; i > 0; i--) {
        struct impel_id id = group->carried[i - 1].id;
        if (id_compare(id, group->last_delivered) <= 0 && group_row(group, id) == NULL) {
            group_carried_set(group, id, 0);
        }
    }
}

int model_look(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    if (rc < 0) {
        return error_set(&request->error, rc, "look: %s", status_text(rc));
    }
    if ((request->look.flags & LOOK_BEAT) != 0) {
        rc = model_beat_step(model, request, false, &request->look.beat, NULL);
        if (rc >= 0 && request->look.beat == BEAT_OCCUPIED) {
            rc = error_set(&request->error, IMPEL_ERR_REPLACED, "look: the name is another's");
        }
        if (rc < 0) {
            return rc;
        }
        mark(model, group);
    }
    request->look.stamped = take_stamp(model, group, request);
    if (!request->look.stamped) {
        return IMPEL_OK;
    }
    look_owners(model, group, request);
    request->look.pending = group->row_count;
    request->look.undelivered = undelivered(stream, group);
    ASSERT(arena_copy(&request->arena, group->cursor_owner, &request->look.cursor.owner));
    request->look.cursor.id = group->cursor_id;
    if ((request->look.flags & LOOK_STAMP) != 0) {
        forget_carried(group);
    }
    return IMPEL_OK;
}

/* ---- going ---- */

/* Takes a worker's row and its consumer away; it holds nothing. */
static void remove_worker(struct model_group *group, struct impel_bytes name)
{
    struct model_worker *worker = group_worker(group, name);
    struct model_consumer *consumer = group_consumer(group, name);

    if (worker != NULL) {
        group_worker_delete(group, worker);
    }
    if (consumer != NULL) {
        group_consumer_delete(group, consumer);
    }
}

int model_leave(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    int rc = model_find(model, request->stream, request->group, &stream, &group);

    if (rc < 0) {
        return error_set(&request->error, rc, "leave: %s", status_text(rc));
    }
    const struct model_worker *worker = group_worker(group, request->consumer);
    const struct model_consumer *consumer = group_consumer(group, request->consumer);
    if (worker != NULL && !token_equal(&worker->row.token, &request->token)) {
        return error_set(&request->error, IMPEL_ERR_REPLACED, "leave: the name is another's");
    }
    request->leave.left = consumer == NULL || consumer->pending == 0;
    if (request->leave.left && worker != NULL) {
        model_notify(model, MODEL_LEFT, request, stream, group, NULL);
        remove_worker(group, request->consumer);
    }
    return IMPEL_OK;
}

static bool may_drop(struct model *model,
                     struct model_group *group,
                     const struct request *request,
                     const struct model_consumer *consumer)
{
    struct model_worker *worker = group_worker(group, request->leave.name);

    if (consumer != NULL && consumer->pending > 0) {
        return false;
    }
    if (worker != NULL) {
        return model_owner_state(model, group, request, request->leave.name) == OWNER_DEAD;
    }
    return consumer != NULL && request->leave.inactive_ms >= 0 &&
           sub_saturating(model->now_ms, consumer->seen_ms) >= request->leave.inactive_ms;
}

int model_drop(struct model *model, struct request *request)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    enum beat_result beat = BEAT_TAKEN;
    int rc = model_beat_step(model, request, false, &beat, NULL);

    if (rc >= 0 && beat == BEAT_OCCUPIED) {
        rc = error_set(&request->error, IMPEL_ERR_REPLACED, "drop: the name is another's");
    }
    if (rc < 0) {
        return rc;
    }
    (void)model_find(model, request->stream, request->group, &stream, &group);
    mark(model, group);
    const struct model_consumer *consumer = group_consumer(group, request->leave.name);
    request->leave.left = may_drop(model, group, request, consumer);
    if (request->leave.left) {
        model_notify(model, MODEL_DROPPED, request, stream, group, NULL);
        remove_worker(group, request->leave.name);
    }
    return IMPEL_OK;
}
