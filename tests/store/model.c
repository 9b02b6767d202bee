/* model.c -- the model store as a whole: dispatch, the faults it can be put under, and handles that
 * speak the port (a queue, blocked reads, waking). */
#include "store/model.h"

#include <stdlib.h>
#include <string.h>

void model_init(struct model *model, int64_t now_ms)
{
    *model = (struct model){.now_ms = now_ms};
}

void model_release(struct model *model)
{
    ASSERT(model->handles == NULL);
    state_release(&model->state);
}

void model_notify(struct model *model,
                  enum model_what what,
                  const struct request *request,
                  struct model_stream *stream,
                  struct model_group *group,
                  const struct model_row *row)
{
    if (model->observe == NULL) {
        return;
    }
    struct model_note note = {.what = what, .request = request, .stream = stream, .group = group};
    if (row != NULL) {
        note.id = row->id;
        note.deliveries = row->deliveries;
        note.idle_ms = sub_saturating(model->now_ms, row->delivered_ms);
        if (group != NULL) {
            note.owner = group_owner_name(group, row);
        }
    } else if (request != NULL) {
        note.owner = what == MODEL_DROPPED ? request->leave.name : request->consumer;
    }
    if (request != NULL && request->kind == REQUEST_CLAIM_FROM) {
        note.state = request->claim_from.state;
    }
    model->observe(model->user, &note);
}

int model_find(struct model *model,
               struct impel_bytes stream_name,
               struct impel_bytes group_name,
               struct model_stream **stream,
               struct model_group **group)
{
    *stream = state_stream(&model->state, stream_name);
    if (*stream == NULL) {
        return IMPEL_ERR_NO_GROUP;
    }
    if ((*stream)->other_type) {
        return IMPEL_ERR_WRONG_TYPE;
    }
    *group = stream_group(*stream, group_name);
    return *group == NULL ? IMPEL_ERR_NO_GROUP : IMPEL_OK;
}

/* A full store takes nothing that grows it, and no step of several commands: those are refused as a
 * whole. Plain reads and acks go on. */
static bool refused(const struct model *model, enum request_kind kind)
{
    if (!model->refuse_writes) {
        return false;
    }
    switch (kind) {
    case REQUEST_READ:
    case REQUEST_ACK:
    case REQUEST_PENDING:
    case REQUEST_RANGE:
    case REQUEST_INFO:
    case REQUEST_TRIM:
    case REQUEST_TRIM_DONE:
    case REQUEST_CALL:
        return false;
    default:
        return true;
    }
}

static int apply(struct model *model, struct request *request)
{
    switch (request->kind) {
    case REQUEST_ADD:
        return model_add(model, request);
    case REQUEST_ACK:
        return model_ack(model, request);
    case REQUEST_BEAT:
        return model_beat(model, request);
    case REQUEST_LOOK:
        return model_look(model, request);
    case REQUEST_CLAIM_FROM:
        return model_claim_from(model, request);
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        return model_items(model, request);
    case REQUEST_LEAVE:
        return model_leave(model, request);
    case REQUEST_DROP:
        return model_drop(model, request);
    case REQUEST_PENDING:
        return model_pending(model, request);
    case REQUEST_RANGE:
        return model_range(model, request);
    case REQUEST_INFO:
        return model_info(model, request);
    case REQUEST_GROUP_CREATE:
    case REQUEST_GROUP_SET:
        return model_group_set(model, request);
    case REQUEST_TRIM:
        return model_trim(model, request);
    case REQUEST_TRIM_DONE:
        return model_trim_done(model, request);
    case REQUEST_REPLAY:
        return model_replay(model, request);
    default:
        return model_call(model, request);
    }
}

bool model_apply(struct model *model, struct request *request)
{
    request->store_now_ms = model->now_ms;
    if (refused(model, request->kind)) {
        request->status = error_set(&request->error, IMPEL_ERR_FULL, "%s: the store is full",
                                    request_name(request->kind));
        return true;
    }
    if (request->kind == REQUEST_READ) {
        return model_read(model, request);
    }
    request->status = apply(model, request);
    return true;
}

/* ---- what other programs do ---- */

size_t model_autoclaim(struct model *model,
                       struct impel_bytes stream_name,
                       struct impel_bytes group_name,
                       struct impel_bytes consumer_name,
                       int64_t min_idle_ms,
                       size_t count)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;
    size_t claimed = 0;

    if (model_find(model, stream_name, group_name, &stream, &group) < 0) {
        return 0;
    }
    struct model_consumer *consumer = group_consumer_make(group, consumer_name);
    consumer->seen_ms = model->now_ms;
    for (size_t i = 0; i < group->row_count && claimed < count;) {
        struct model_row *row = &group->rows[i];
        if (stream_entry(stream, row->id) == NULL) {
            model_notify(model, MODEL_REAPED, NULL, stream, group, row);
            group_row_delete(group, row);
            continue;
        }
        i++;
        if (sub_saturating(model->now_ms, row->delivered_ms) >= min_idle_ms) {
            model_notify(model, MODEL_CLAIMED, NULL, stream, group, row);
            group_row_own(group, row, consumer);
            row->delivered_ms = model->now_ms;
            row->deliveries = add_saturating(row->deliveries, 1);
            claimed++;
        }
    }
    return claimed;
}

int64_t row_idle_ms(const struct model *model, const struct model_row *row)
{
    return row->owner == MODEL_NOBODY ? -1 : sub_saturating(model->now_ms, row->delivered_ms);
}

bool model_disown(struct model *model,
                  struct impel_bytes stream_name,
                  struct impel_bytes group_name,
                  struct impel_id id,
                  int64_t deliveries)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;

    if (model_find(model, stream_name, group_name, &stream, &group) < 0) {
        return false;
    }
    struct model_row *row = group_row(group, id);
    if (row == NULL) {
        return false;
    }
    group_row_own(group, row, NULL);
    row->delivered_ms = 0;
    row->deliveries = deliveries;
    return true;
}

bool model_force(struct model *model,
                 struct impel_bytes stream_name,
                 struct impel_bytes group_name,
                 struct impel_bytes consumer_name,
                 struct impel_id id,
                 int64_t deliveries)
{
    struct model_stream *stream = NULL;
    struct model_group *group = NULL;

    if (model_find(model, stream_name, group_name, &stream, &group) < 0) {
        return false;
    }
    struct model_row *row = group_row_put(group, id, group_consumer_make(group, consumer_name));
    row->delivered_ms = model->now_ms;
    row->deliveries = deliveries;
    return true;
}

/* ---- handles ---- */

struct queue {
    struct request *first, **last;
};

struct model_handle {
    struct store store;
    struct model *model;
    struct store_env env;
    struct queue submitted;
    struct queue blocked; /* READs that wait, in the order they came */
    struct queue done;
    struct model_handle *next;
};

/* What the handle keeps with a blocked READ while it has it. */
struct blocked {
    int64_t deadline_ms;
    bool cancelled;
};

static void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

static void queue_push(struct queue *queue, struct request *request)
{
    request->next = NULL;
    *queue->last = request;
    queue->last = &request->next;
}

static struct request *queue_pop(struct queue *queue)
{
    struct request *request = queue->first;
    if (request != NULL) {
        queue->first = request->next;
        if (queue->first == NULL) {
            queue->last = &queue->first;
        }
        request->next = NULL;
    }
    return request;
}

static void handle_submit(struct store *store, struct request *request)
{
    queue_push(&((struct model_handle *)store)->submitted, request);
}

static void handle_cancel(struct store *store, struct request *request)
{
    struct model_handle *handle = (struct model_handle *)store;

    for (struct request *r = handle->submitted.first; r != NULL; r = r->next) {
        if (r == request && r->kind == REQUEST_READ) {
            r->read.block_ms = 0;
        }
    }
    for (struct request *r = handle->blocked.first; r != NULL; r = r->next) {
        if (r == request) {
            ((struct blocked *)r->store_data)->cancelled = true;
        }
    }
}

/* Tries a blocked READ again; keeps it if there is still nothing and time is left. */
static void handle_again(struct model_handle *handle, struct request *request, int64_t now_ms)
{
    struct blocked *blocked = request->store_data;

    if (blocked->cancelled || blocked->deadline_ms <= now_ms) {
        request->read.block_ms = 0;
    }
    if (!model_apply(handle->model, request)) {
        queue_push(&handle->blocked, request);
        return;
    }
    free(blocked);
    request->store_data = NULL;
    queue_push(&handle->done, request);
}

static void handle_first(struct model_handle *handle, struct request *request, int64_t now_ms)
{
    if (model_apply(handle->model, request)) {
        queue_push(&handle->done, request);
        return;
    }
    struct blocked *blocked = calloc(1, sizeof(*blocked));
    ASSERT(blocked != NULL);
    blocked->deadline_ms = add_saturating(now_ms, request->read.block_ms);
    request->store_data = blocked;
    queue_push(&handle->blocked, request);
}

static void handle_blocked(struct model_handle *handle, int64_t now_ms)
{
    struct queue waiting = handle->blocked;

    if (waiting.first == NULL) {
        return;
    }
    queue_init(&handle->blocked);
    while (waiting.first != NULL) {
        handle_again(handle, queue_pop(&waiting), now_ms);
    }
}

static void wake_others(struct model_handle *handle)
{
    for (struct model_handle *h = handle->model->handles; h != NULL; h = h->next) {
        if (h != handle && h->blocked.first != NULL && h->env.wake != NULL) {
            h->env.wake(h->env.user);
        }
    }
}

static int64_t handle_turn(struct store *store, int64_t now_ms)
{
    struct model_handle *handle = (struct model_handle *)store;
    int64_t next_ms = -1;

    while (handle->submitted.first != NULL) {
        handle_first(handle, queue_pop(&handle->submitted), now_ms);
    }
    handle_blocked(handle, now_ms);
    if (handle->model->signalled) {
        handle->model->signalled = false;
        wake_others(handle);
    }
    while (handle->done.first != NULL) {
        struct request *request = queue_pop(&handle->done);
        request->done(request);
    }
    for (const struct request *r = handle->blocked.first; r != NULL; r = r->next) {
        int64_t left_ms = ((const struct blocked *)r->store_data)->deadline_ms - now_ms;
        next_ms = next_ms < 0 || left_ms < next_ms ? left_ms : next_ms;
    }
    return handle->submitted.first != NULL ? 0 : next_ms;
}

static void handle_close(struct store *store)
{
    struct model_handle *handle = (struct model_handle *)store;
    struct model_handle **at = &handle->model->handles;

    while (handle->submitted.first != NULL || handle->blocked.first != NULL) {
        struct request *request =
            queue_pop(handle->submitted.first != NULL ? &handle->submitted : &handle->blocked);
        free(request->store_data);
        request->store_data = NULL;
        request->status = IMPEL_ERR_CANCELLED;
        request->done(request);
    }
    while (*at != handle) {
        at = &(*at)->next;
    }
    *at = handle->next;
    free(handle);
}

static const struct store_ops model_ops = {
    .scheme = "model",
    .close = handle_close,
    .submit = handle_submit,
    .cancel = handle_cancel,
    .turn = handle_turn,
};

struct store *model_connect(struct model *model, const struct store_env *env)
{
    struct model_handle *handle = calloc(1, sizeof(*handle));

    ASSERT(handle != NULL);
    handle->store.ops = &model_ops;
    handle->model = model;
    if (env != NULL) {
        handle->env = *env;
    }
    queue_init(&handle->submitted);
    queue_init(&handle->blocked);
    queue_init(&handle->done);
    handle->next = model->handles;
    model->handles = handle;
    return &handle->store;
}
