/* worker_settle.c -- what follows an outcome: ack, wait for a retry, park, release.
 *
 * Each travels in batches, one request of a kind and stream at a time: what is settled while one is
 * out goes with the next. A hold stays in hand, and renewed, until the store has confirmed: if the
 * answer is lost the request is simply made again, which all of them stand. */
#include "core/worker_state.h"

#include <stdlib.h>
#include <string.h>

enum {
    RETRY_TEXT_SIZE = 1024, /* of the handler's words in a report; the record has them all */
};

static void make_dirty(struct stream *s)
{
    s->refused = false; /* what is new is tried at least once */
    if (list_empty(&s->dirty)) {
        list_append(&s->worker->dirty, &s->dirty);
    }
}

/* ---- outcomes ---- */

void settle_ack(struct hold *hold)
{
    struct stream *s = hold->stream;

    hold_unqueue(hold);
    if (hold->flights == 0) {
        entry_free(hold->entry);
        hold->entry = NULL;
    }
    hold->state = HOLD_ACKING;
    if (hold->alone) {
        /* Whatever came beside it could take the process with it, and then it would look exhausted. */
        hold->stream->worker->alone_hold = hold;
    }
    list_append(&s->acks, &hold->queue);
    s->ack_count++;
    make_dirty(s);
}

void settle_wait(struct hold *hold, int64_t due_ms)
{
    struct worker *w = hold->stream->worker;

    hold_unqueue(hold);
    entry_free(hold->entry);
    hold->entry = NULL;
    if (!heap_reserve(&w->waiting, 1)) {
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        return;
    }
    hold->state = HOLD_WAITING;
    w->waiting_count++;
    heap_put(&w->waiting, &hold->due, due_ms);
    if (w->stopping) {
        settle_release(hold, false);
    }
}

void settle_park(struct hold *hold, const char *reason, struct impel_bytes error)
{
    struct stream *s = hold->stream;

    hold_unqueue(hold);
    hold->state = HOLD_PARKING;
    hold->reason = reason;
    if (error.size > 0 && hold->error == NULL) {
        hold->error = malloc(sizeof(*hold->error));
        if (hold->error != NULL) { /* without memory the record goes without the words */
            buf_init(hold->error, ERROR_TEXT_MAX);
            error.size = error.size > ERROR_TEXT_MAX ? ERROR_TEXT_MAX : error.size;
            buf_append_bytes(hold->error, error);
        }
    }
    list_append(&s->parks, &hold->queue);
    make_dirty(s);
}

void settle_release(struct hold *hold, bool give_back)
{
    struct stream *s = hold->stream;

    hold_unqueue(hold);
    hold->state = HOLD_RELEASING;
    hold->give_back = give_back;
    list_append(&s->releases, &hold->queue);
    make_dirty(s);
}

/* The end of the handler's words as a string: what it said last is what it failed of. */
static const char *end_of_words(struct impel_bytes error, char *text, size_t size)
{
    size_t kept = error.size < size ? error.size : size - 1;

    if (kept == 0) {
        return NULL;
    }
    memcpy(text, (const char *)error.data + error.size - kept, kept);
    text[kept] = '\0';
    return text;
}

static void settle_retry(struct hold *hold, int64_t delay_ms, struct impel_bytes error)
{
    char text[RETRY_TEXT_SIZE];
    struct stream *s = hold->stream;
    struct worker *w = s->worker;
    int64_t wait_ms = policy_backoff_ms(&w->options.policy, hold->deliveries, hold->id);

    wait_ms = delay_ms > wait_ms ? delay_ms : wait_ms;
    hold->since_ms = w->now_ms;
    worker_event(w, &(struct worker_event){.kind = EVENT_RETRIED,
                                           .stream_index = s->index,
                                           .count = 1,
                                           .id = hold->id,
                                           .attempt = hold->deliveries,
                                           .delay_ms = wait_ms,
                                           .text = end_of_words(error, text, sizeof(text))});
    settle_wait(hold, add_saturating(w->now_ms, wait_ms));
}

void settle_outcome(struct hold *hold,
                    enum worker_outcome outcome,
                    int64_t delay_ms,
                    struct impel_bytes error)
{
    struct worker *w = hold->stream->worker;

    if (w->ended || w->replaced) {
        hold_drop(hold);
    } else if (outcome == OUTCOME_DONE) {
        settle_ack(hold);
    } else if (hold->trimmed) {
        settle_park(hold, "trimmed", error);
    } else if (outcome == OUTCOME_REJECT) {
        settle_park(hold, "rejected", error);
    } else if (policy_exhausted(&w->options.policy, hold->deliveries)) {
        settle_park(hold, "max-deliveries", error);
    } else {
        settle_retry(hold, delay_ms, error);
    }
}

/* ---- timeouts ---- */

static int64_t timeout_at_ms(const struct worker *w, const struct run *run)
{
    int64_t started_ms = run->started_ms + (w->slept_ms - run->slept_ms);
    return add_saturating(started_ms, w->options.timeout_ms);
}

int64_t settle_timeout_due_ms(const struct worker *w)
{
    for (const struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        const struct run *run = CONTAINER(at, const struct run, running);
        if (run->hold != NULL) {
            return timeout_at_ms(w, run);
        }
    }
    return INT64_MAX;
}

/* The attempt is over, its handler is not: it keeps the place and the payload until it ends. */
static void time_out(struct run *run)
{
    static const char text[] = "the handler did not end within its timeout";
    struct hold *hold = run->hold;
    struct stream *s = hold->stream;
    struct worker *w = s->worker;
    const struct entry *entry = run->delivery.entry;

    run->hold = NULL;
    hold->run = NULL;
    hold->apart = true; /* what is ended for it takes others along */
    w->running_lost++;
    if (w->alone == run) {
        w->alone = NULL;
        w->alone_again_ms = w->now_ms + SOLO_REST_MAX_MS;
    }
    worker_event(w, &(struct worker_event){.kind = EVENT_TIMED_OUT,
                                           .stream_index = s->index,
                                           .count = 1,
                                           .id = hold->id,
                                           .attempt = hold->deliveries});
    worker_cancel(w, run, CANCEL_TIMEOUT);
    if (hold->trimmed || policy_exhausted(&w->options.policy, hold->deliveries)) {
        /* For the record, should the stream no longer have it. NULL only costs that. */
        hold->entry = entry_new(entry->id, entry->fields, entry->field_count);
    }
    settle_outcome(hold, OUTCOME_RETRY, -1, bytes_of(text));
}

void settle_timeouts(struct worker *w)
{
    struct link *at = w->runs.next;

    if (w->options.timeout_ms <= 0) {
        return;
    }
    while (at != &w->runs && !w->ended) {
        struct run *run = CONTAINER(at, struct run, running);
        at = at->next;
        if (timeout_at_ms(w, run) > w->now_ms) {
            break; /* they stand in the order of starting */
        }
        if (run->hold != NULL) {
            time_out(run);
        }
    }
}

/* ---- sending ---- */

static size_t queue_count(const struct link *queue, size_t count_max)
{
    size_t count = 0;
    for (const struct link *at = queue->next; at != queue && count < count_max; at = at->next) {
        count++;
    }
    return count;
}

static void send_acks(struct stream *s)
{
    struct worker *w = s->worker;
    struct batch batch;
    size_t count = s->ack_count < WORKER_ACK_MAX ? s->ack_count : WORKER_ACK_MAX;

    if (s->acking || count == 0 || (w->options.strict && s->fenced) ||
        !batch_begin(&batch, s, REQUEST_ACK, count)) {
        return;
    }
    while (batch.count < count) {
        batch_add(&batch, CONTAINER(list_take(&s->acks), struct hold, queue));
    }
    s->ack_count -= count;
    batch.request->ack.strict = w->options.strict;
    s->acking = batch_submit(&batch) != NULL;
}

/* The request must own what it carries: the worker may be gone before the store is done with it. */
static struct entry *entry_in(struct arena *arena, const struct entry *entry)
{
    struct entry *copy = arena_alloc(arena, entry->size_bytes);

    if (copy == NULL) {
        return NULL;
    }
    memcpy(copy, entry, entry->size_bytes);
    for (size_t i = 0; i < copy->field_count; i++) {
        struct impel_field *field = &copy->fields[i];
        size_t name_at = (size_t)((const uint8_t *)field->name.data - (const uint8_t *)entry);
        size_t value_at = (size_t)((const uint8_t *)field->value.data - (const uint8_t *)entry);
        field->name.data = (uint8_t *)copy + name_at;
        field->value.data = (uint8_t *)copy + value_at;
    }
    return copy;
}

static bool fill_park(struct batch *batch, struct hold *hold)
{
    struct arena *arena = &batch->request->arena;
    struct request_item *item = batch_add(batch, hold);

    item->reason = bytes_of(hold->reason);
    if (hold->error != NULL && !arena_copy(arena, buf_bytes(hold->error), &item->error)) {
        return false;
    }
    if (hold->entry != NULL) {
        item->copy = entry_in(arena, hold->entry);
        return item->copy != NULL;
    }
    return true;
}

static void send_parks(struct stream *s)
{
    struct worker *w = s->worker;
    struct batch batch;
    size_t count = queue_count(&s->parks, WORKER_ITEMS_MAX);

    if (s->parking || count == 0 || s->fenced || w->now_ms < s->park_again_ms ||
        !batch_begin(&batch, s, REQUEST_PARK, count)) {
        return;
    }
    while (batch.count < count) {
        if (!fill_park(&batch, CONTAINER(list_take(&s->parks), struct hold, queue))) {
            worker_fail(w, IMPEL_ERR_NOMEM, NULL);
            request_free(batch.request);
            return;
        }
    }
    if (!arena_copy(&batch.request->arena, s->dead_letter, &batch.request->items.dead_letter)) {
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        request_free(batch.request);
        return;
    }
    s->parking = batch_submit(&batch) != NULL;
}

static void send_releases(struct stream *s)
{
    struct worker *w = s->worker;
    struct batch batch;
    size_t count = queue_count(&s->releases, WORKER_ITEMS_MAX);

    if (s->releasing || count == 0 || s->fenced ||
        !batch_begin(&batch, s, REQUEST_RELEASE, count)) {
        return;
    }
    while (batch.count < count) {
        struct hold *hold = CONTAINER(list_take(&s->releases), struct hold, queue);
        struct request_item *item = batch_add(&batch, hold);
        item->give_back = hold->give_back;
        item->idle_ms = hold->give_back ? 0 : w->now_ms - hold->since_ms;
    }
    s->releasing = batch_submit(&batch) != NULL;
}

void settle_step(struct stream *s)
{
    if ((s->phase != STREAM_READY && s->phase != STREAM_LEAVE) || s->worker->now_ms < s->again_ms) {
        return;
    }
    list_remove(&s->dirty);
    send_acks(s);
    send_parks(s);
    send_releases(s);
}

int64_t settle_due_ms(const struct stream *s)
{
    int64_t now_ms = s->worker->now_ms;

    if ((s->ack_count > 0 && !s->acking && !(s->fenced && s->worker->options.strict)) ||
        (!list_empty(&s->releases) && !s->releasing && !s->fenced)) {
        return now_ms;
    }
    if (!list_empty(&s->parks) && !s->parking && !s->fenced) {
        return s->park_again_ms > now_ms ? s->park_again_ms : now_ms;
    }
    return INT64_MAX;
}

/* ---- answers ---- */

/* Not carried out, or not known to be: to be sent again, before those that came later. */
static void put_back(struct hold *hold, struct link *queue)
{
    list_prepend(queue, &hold->queue);
    hold->stream->ack_count += hold->state == HOLD_ACKING;
}

/* True if the whole request has to be made again, or is of no use any more. */
static bool failed(struct stream *s, const struct flight *flight, struct link *queue)
{
    struct worker *w = s->worker;
    bool over = w->ended || w->replaced || flight->seq <= s->lost_seq;

    if (!over && flight->request->status >= 0) {
        s->failures = 0;
        return false;
    }
    for (size_t i = flight->hold_count; i-- > 0;) {
        struct hold *hold = flight->holds[i];
        if (hold->state == HOLD_GONE) {
            continue;
        }
        if (over) {
            hold_drop(hold);
        } else {
            put_back(hold, queue);
        }
    }
    if (!over) {
        stream_failed(s);
    }
    return true;
}

void settle_ack_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request_item *items = flight_items(flight);
    uint64_t count = 0;
    uint64_t late = 0;

    s->acking = false;
    if (failed(s, flight, &s->acks)) {
        return;
    }
    for (size_t i = 0; i < flight->hold_count; i++) {
        late += items[i].result == ITEM_LOST;
        if (flight->holds[i]->state != HOLD_GONE) {
            hold_drop(flight->holds[i]);
        }
        count++;
    }
    if (!w->options.strict) {
        late = count - flight->request->ack.acked;
    }
    worker_event(
        w, &(struct worker_event){.kind = EVENT_DONE, .stream_index = s->index, .count = count});
    if (late > 0) {
        worker_event(w, &(struct worker_event){
                            .kind = EVENT_LATE_ACK, .stream_index = s->index, .count = late});
    }
}

static void parked(struct hold *hold)
{
    struct stream *s = hold->stream;
    const char *text = NULL;

    if (hold->error != NULL) {
        buf_append(hold->error, "", 1);
        text = hold->error->failed ? NULL : (const char *)hold->error->data;
    }
    worker_event(s->worker, &(struct worker_event){.kind = EVENT_PARKED,
                                                   .stream_index = s->index,
                                                   .count = 1,
                                                   .id = hold->id,
                                                   .attempt = hold->deliveries,
                                                   .reason = bytes_of(hold->reason),
                                                   .text = text});
    hold_drop(hold);
}

void settle_park_failed(struct stream *s, uint64_t count, const char *text)
{
    struct worker *w = s->worker;

    s->park_again_ms = w->now_ms + worker_jitter(w, PARK_AGAIN_MS);
    if (s->park_failed_said && w->now_ms - s->park_failed_said_ms < PARK_FAILED_SAID_MS) {
        return;
    }
    s->park_failed_said = true;
    s->park_failed_said_ms = w->now_ms;
    worker_event(
        w, &(struct worker_event){
               .kind = EVENT_PARK_FAILED, .stream_index = s->index, .count = count, .text = text});
}

void settle_lost_work(struct stream *s, struct impel_id id, int64_t deliveries)
{
    worker_event(s->worker, &(struct worker_event){.kind = EVENT_LOST_WORK,
                                                   .stream_index = s->index,
                                                   .count = 1,
                                                   .id = id,
                                                   .attempt = deliveries});
}

void settle_park_refusal(struct request *request)
{
    static const int refusals[] = {IMPEL_ERR_AUTH, IMPEL_ERR_REPLY, IMPEL_ERR_LIMIT,
                                   IMPEL_ERR_INVALID, IMPEL_ERR_UNSUPPORTED};
    bool refused = false;

    for (size_t i = 0; i < ARRAY_SIZE(refusals) && request->kind == REQUEST_PARK; i++) {
        refused = refused || request->status == refusals[i];
    }
    for (size_t i = 0; refused && i < request->items.item_count; i++) {
        if (request->items.items[i].result == ITEM_NONE) {
            request->items.items[i].result = ITEM_FAILED;
        }
    }
    request->status = refused ? IMPEL_OK : request->status;
}

static void park_refused(struct hold *hold)
{
    if (hold->stream->worker->stopping) {
        settle_release(hold, false); /* at its limit still: whoever claims it parks it */
    } else {
        put_back(hold, &hold->stream->parks);
    }
}

void settle_park_done(struct stream *s, const struct flight *flight)
{
    const struct request_item *items = flight_items(flight);
    uint64_t refused = 0;

    s->parking = false;
    if (failed(s, flight, &s->parks)) {
        return;
    }
    for (size_t i = flight->hold_count; i-- > 0;) {
        struct hold *hold = flight->holds[i];
        if (hold->state == HOLD_GONE) {
            continue;
        }
        switch (items[i].result) {
        case ITEM_DONE:
            parked(hold);
            break;
        case ITEM_TRIMMED:
            settle_lost_work(s, hold->id, hold->deliveries);
            hold_drop(hold);
            break;
        case ITEM_LOST:
            if (hold->deliveries == items[i].deliveries) {
                audit_want(s);
                hold_lost(hold, NULL);
            } else {
                put_back(hold, &s->parks);
            }
            break;
        case ITEM_FAILED:
            refused++;
            park_refused(hold);
            break;
        default:
            put_back(hold, &s->parks);
        }
    }
    if (refused > 0) {
        const char *text = flight->request->error.text;
        settle_park_failed(s, refused,
                           text[0] != '\0' ? text : "the dead-letter stream refused it");
    }
}

void settle_release_done(struct stream *s, const struct flight *flight)
{
    const struct request_item *items = flight_items(flight);
    uint64_t released = flight->request->items.rested;

    if (flight->request->items.rest) {
        drain_rest_done(s, flight);
    } else {
        s->releasing = false;
    }
    if (failed(s, flight, &s->releases)) {
        return;
    }
    for (size_t i = flight->hold_count; i-- > 0;) {
        struct hold *hold = flight->holds[i];
        released += items[i].result == ITEM_DONE;
        if (hold->state == HOLD_GONE) {
            continue;
        }
        if (items[i].result == ITEM_NONE ||
            (items[i].result == ITEM_LOST && hold->deliveries != items[i].deliveries)) {
            put_back(hold, &s->releases);
        } else if (items[i].result == ITEM_LOST) {
            hold_lost(hold, NULL);
        } else {
            hold_drop(hold);
        }
    }
    if (released > 0) {
        worker_event(s->worker, &(struct worker_event){.kind = EVENT_RELEASED,
                                                       .stream_index = s->index,
                                                       .count = released});
    }
}
