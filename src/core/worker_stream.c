/* worker_stream.c -- one stream's life in a worker: its group, the first beat, beats on time.
 *
 * A stream that is READY steps whenever something of it is due, and after every answer about it.
 * Beats go out on time whether or not earlier ones were answered: what counts is that the store
 * takes one, not that we hear of it. Everything else waits out failures with a growing delay. */
#include "core/worker_state.h"

#include <stdlib.h>

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void stream_init(struct worker *w, size_t index)
{
    struct stream *s = &w->streams[index];

    s->worker = w;
    s->index = index;
    s->phase = w->options.no_create ? STREAM_ENTER : STREAM_CREATE;
    s->confirmed_ms = INT64_MIN;
    s->audit_due_ms = w->now_ms;
    list_init(&s->held);
    list_init(&s->buffer);
    list_init(&s->buffered);
    list_init(&s->acks);
    list_init(&s->parks);
    list_init(&s->releases);
    list_init(&s->dirty);
    list_init(&s->due);
    heap_put(&w->wakes, &s->wake, w->now_ms);
}

void stream_release(struct stream *s)
{
    sweep_free(s->sweep);
    free(s->dead);
    audit_reset(s);
}

void stream_wake_at(struct stream *s, int64_t due_ms)
{
    if (s->phase != STREAM_LEFT && due_ms < s->wake.due_ms) {
        heap_put(&s->worker->wakes, &s->wake, due_ms);
    }
}

void stream_failed(struct stream *s)
{
    struct worker *w = s->worker;

    s->failures = s->failures < 16 ? s->failures + 1 : 16;
    s->again_ms = w->now_ms + worker_delay(w, s->failures, s->held_count > 0);
}

/* ---- group ---- */

static void group_create(struct stream *s)
{
    struct worker *w = s->worker;
    struct request *request = request_for(w, s, REQUEST_GROUP_CREATE);

    if (request != NULL) {
        request->group_set.start = w->options.group_start;
        request->group_set.at_floor = s->lost_seq != 0;
        s->stepping = flight_submit(w, s, request) != NULL;
    }
}

/* Errors that waiting does not cure: said at once, at the start, instead of tried for ever. */
static bool hopeless(int status)
{
    switch (status) {
    case IMPEL_ERR_INVALID:
    case IMPEL_ERR_WRONG_TYPE:
    case IMPEL_ERR_READ_ONLY:
    case IMPEL_ERR_CORRUPT:
    case IMPEL_ERR_PROTOCOL:
    case IMPEL_ERR_VERSION:
    case IMPEL_ERR_FORKED:
    case IMPEL_ERR_UNSUPPORTED:
    case IMPEL_ERR_AUTH:
    case IMPEL_ERR_LIMIT:
        return true;
    default:
        return false;
    }
}

static void give_up(struct stream *s, const struct request *request)
{
    worker_fail(s->worker, request->status,
                request->error.text[0] != '\0' ? request->error.text : NULL);
}

void stream_group_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request *request = flight->request;

    s->stepping = false;
    if (s->phase != STREAM_CREATE) {
        return;
    }
    if (request->status < 0) {
        if (hopeless(request->status) && s->lost_seq == 0) {
            give_up(s, request);
        }
        stream_failed(s);
        return;
    }
    s->failures = 0;
    s->phase = STREAM_ENTER;
    s->beat_due_ms = w->now_ms;
    if (request->group_set.created) {
        worker_event(w, &(struct worker_event){.kind = EVENT_GROUP_CREATED,
                                               .stream_index = s->index,
                                               .name = w->options.group});
    }
}

/* The group, or the whole stream, is gone. An ack now could hit another entry of the same ID, so
 * nothing of what was held is spoken of again. */
void stream_group_lost(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;

    if (flight->seq <= s->lost_seq || s->phase == STREAM_LEFT) {
        return; /* it belongs to a group that is known to be gone */
    }
    if (w->options.no_create) {
        give_up(s, flight->request);
        return;
    }
    s->lost_seq = w->seq;
    if (s->phase == STREAM_CREATE || s->phase == STREAM_ENTER) {
        s->phase = STREAM_CREATE;
        stream_failed(s);
        return;
    }
    worker_event(w, &(struct worker_event){.kind = EVENT_GROUP_LOST,
                                           .stream_index = s->index,
                                           .name = w->options.group,
                                           .count = 1});
    while (!list_empty(&s->held)) {
        hold_lost(CONTAINER(s->held.next, struct hold, held), NULL);
    }
    for (struct link *link = list_take(&s->acks); link != NULL; link = list_take(&s->acks)) {
        s->ack_count--;
        hold_drop(CONTAINER(link, struct hold, queue)); /* late acks: in no list but this */
    }
    for (struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        struct run *run = CONTAINER(at, struct run, running);
        run->forget = run->forget || run->delivery.stream_index == s->index;
    }
    take_leave(s);
    audit_reset(s);
    s->phase = w->stopping ? STREAM_LEAVE : STREAM_CREATE;
    s->confirmed = s->fenced = false;
    s->confirmed_ms = INT64_MIN;
    stream_failed(s);
}

/* ---- beats ---- */

static void beat(struct stream *s)
{
    struct worker *w = s->worker;
    struct request *request = request_for(w, s, REQUEST_BEAT);

    if (request == NULL) {
        return;
    }
    request->beat.first = s->phase == STREAM_ENTER;
    if (flight_submit(w, s, request) == NULL) {
        return;
    }
    s->beats_out++;
    s->beat_sent_ms = w->now_ms;
    s->beat_due_ms = w->now_ms + liveness_interval_ms(w->options.policy.dead_after_ms);
}

void stream_beat_taken(struct stream *s, const struct flight *flight, enum beat_result result)
{
    struct worker *w = s->worker;

    if (result == BEAT_OCCUPIED || flight->seq <= s->lost_seq) {
        return;
    }
    s->confirmed_ms = later(s->confirmed_ms, flight->submitted_ms);
    if (result == BEAT_REVIVED) {
        renew_demand(s);
    }
    if (s->fenced && flight->seq > s->fenced_seq) {
        s->fenced = false;
        renew_demand(s);
    }
    if (s->phase != STREAM_ENTER) {
        return;
    }
    s->phase = STREAM_READY;
    s->confirmed = true;
    s->failures = 0;
    s->listed_once = false;
    s->audit_due_ms = w->now_ms;
    take_enter(s);
    worker_event(w, &(struct worker_event){.kind = EVENT_STARTED, .stream_index = s->index});
}

/* Another worker has the name. If it is a former life of ours it falls silent and is dead soon; if
 * it is alive, so much so that it outlives the wait, this one must not run. */
static void name_taken(struct stream *s, int64_t wait_ms)
{
    struct worker *w = s->worker;
    int64_t interval_ms = liveness_interval_ms(w->options.policy.dead_after_ms);

    if (s->name_until_ms == 0) {
        s->name_until_ms = add_saturating(w->now_ms, later(wait_ms, 0) + 2 * interval_ms);
        worker_event(w, &(struct worker_event){.kind = EVENT_NAME_TAKEN,
                                               .stream_index = s->index,
                                               .name = w->options.consumer,
                                               .delay_ms = wait_ms});
    }
    bool given_up = w->now_ms >= s->name_until_ms;
    if (given_up && !w->options.name_exclusive) {
        worker_event(w, &(struct worker_event){.kind = EVENT_NAME_TAKEN,
                                               .stream_index = s->index,
                                               .name = w->options.consumer,
                                               .text = "it is still alive: stopping"});
    }
    if (w->options.name_exclusive || given_up) {
        w->drain_code = 1;
        drain_begin(w); /* streams that were entered already are left again */
        w->grace_until_ms = w->now_ms;
    }
    s->beat_due_ms = earlier(w->now_ms + interval_ms, s->name_until_ms);
}

void stream_beat_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request *request = flight->request;

    s->beats_out--;
    if (w->ended || w->replaced || flight->seq <= s->lost_seq) {
        return;
    }
    if (request->status < 0) {
        if (s->phase == STREAM_ENTER && hopeless(request->status) && s->lost_seq == 0) {
            give_up(s, request);
        } else if (s->phase == STREAM_ENTER) {
            stream_failed(s);
        }
    } else if (request->beat.result == BEAT_OCCUPIED && s->phase == STREAM_ENTER) {
        name_taken(s, request->beat.wait_ms);
    } else if (request->beat.result == BEAT_OCCUPIED) {
        worker_replaced(w);
    } else {
        stream_beat_taken(s, flight, request->beat.result);
    }
}

void stream_fenced(struct stream *s, const struct flight *flight)
{
    (void)flight;
    if (s->phase != STREAM_READY && s->phase != STREAM_LEAVE) {
        return;
    }
    s->fenced = true;
    s->fenced_seq = s->worker->seq;
    s->beat_due_ms = s->worker->now_ms;
}

bool stream_open(struct stream *s)
{
    struct worker *w = s->worker;
    int64_t half_ms = w->options.policy.dead_after_ms / 2;

    if (s->phase != STREAM_READY || s->fenced) {
        return false;
    }
    if (w->now_ms - s->confirmed_ms < later(half_ms, 1)) {
        s->gap = false;
        return s->stale_count == 0;
    }
    if (!s->gap) { /* it slept, or was cut off: others may have taken what it holds */
        s->gap = true;
        renew_demand(s);
    }
    if (s->beats_out == 0) { /* the last one failed: sooner than planned, but not in a loop */
        int64_t interval_ms = liveness_interval_ms(w->options.policy.dead_after_ms);
        s->beat_due_ms =
            earlier(s->beat_due_ms, later(w->now_ms, s->beat_sent_ms + interval_ms / 4));
        stream_wake_at(s, s->beat_due_ms);
    }
    return false;
}

/* ---- steps ---- */

/* What was read and could not be started for so long is better off with somebody else. */
static void release_unstarted(struct stream *s)
{
    struct worker *w = s->worker;

    while (!list_empty(&s->buffer)) {
        struct hold *hold = CONTAINER(s->buffer.next, struct hold, queue);
        if (hold->since_ms > w->now_ms - w->options.policy.dead_after_ms) {
            break;
        }
        settle_release(hold, true);
    }
}

static int64_t next_due_ms(const struct stream *s)
{
    const struct worker *w = s->worker;
    int64_t due_ms = INT64_MAX;
    int64_t beat_ms = s->beats_out < BEATS_OUT_MAX ? s->beat_due_ms : INT64_MAX;

    switch (s->phase) {
    case STREAM_CREATE:
        return s->stepping || w->stopping ? INT64_MAX : s->again_ms;
    case STREAM_ENTER:
        return s->beats_out > 0 || w->stopping ? INT64_MAX : later(s->beat_due_ms, s->again_ms);
    case STREAM_READY:
        due_ms = earlier(renew_due_ms(s), settle_due_ms(s));
        if (!w->stopping) {
            due_ms = earlier(due_ms, audit_due_ms(s));
            due_ms = earlier(due_ms, take_due_ms(s));
        }
        if (!list_empty(&s->buffer)) {
            const struct hold *hold = CONTAINER(s->buffer.next, struct hold, queue);
            due_ms = earlier(due_ms, hold->since_ms + w->options.policy.dead_after_ms);
        }
        return earlier(beat_ms, later(due_ms, s->again_ms));
    case STREAM_LEAVE:
        due_ms =
            s->stepping || s->flights > 0 || (s->fenced && !s->rest_done) ? INT64_MAX : s->again_ms;
        return s->rest_done ? due_ms : earlier(beat_ms, due_ms);
    default:
        return INT64_MAX;
    }
}

static void step_ready(struct stream *s)
{
    struct worker *w = s->worker;

    renew_step(s);
    if (!w->stopping) {
        release_unstarted(s);
        audit_step(s);
        take_sweep(s);
    }
    settle_step(s);
}

void stream_step(struct stream *s)
{
    struct worker *w = s->worker;
    bool beats = s->phase == STREAM_READY || (s->phase == STREAM_LEAVE && !s->rest_done);
    bool rested = w->now_ms >= s->again_ms;

    if (w->ended || w->replaced) {
        heap_remove(&w->wakes, &s->wake);
        return;
    }
    if (beats && w->now_ms >= s->beat_due_ms && s->beats_out < BEATS_OUT_MAX) {
        beat(s);
    }
    switch (s->phase) {
    case STREAM_CREATE:
        if (rested && !s->stepping && !w->stopping) {
            group_create(s);
        }
        break;
    case STREAM_ENTER:
        if (rested && s->beats_out == 0 && w->now_ms >= s->beat_due_ms && !w->stopping) {
            beat(s);
        }
        break;
    case STREAM_READY:
        if (rested) {
            step_ready(s);
        }
        break;
    default:
        break;
    }
    if (w->stopping) {
        drain_stream(s);
    }
    if (s->phase == STREAM_LEFT) {
        heap_remove(&w->wakes, &s->wake);
        return;
    }
    /* What was due has been done, or waits for an answer: a deadline of now would only spin. */
    heap_put(&w->wakes, &s->wake, later(next_due_ms(s), w->now_ms + 1));
}
