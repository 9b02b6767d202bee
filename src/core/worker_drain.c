/* worker_drain.c -- stopping: nothing new, finish what runs, give the rest back, leave.
 *
 * Order matters. What was not started is released at once, so that others need not wait for our
 * grace. The read that is out is ended, not abandoned: what it still brings is released like the
 * rest. Then, stream by stream: all that the store says is ours is released by name; beats end and
 * the last one lands, since a beat after leaving would bring the row back; the row is taken away.
 *
 * A full store may refuse all that, and waiting would not make room: once nothing runs any more the
 * worker ends, as if it had been killed. What it held stays pending under its name until it counts
 * as dead, which is no worse for anybody than a worker that hangs. */
#include "core/worker_state.h"

#include <stdio.h>

enum {
    LEAVE_TRIES_MAX = 5,
};

static void release_unstarted(struct stream *s)
{
    struct link *at = s->held.next;

    while (at != &s->held) {
        struct hold *hold = CONTAINER(at, struct hold, held);
        at = at->next;
        if (hold->state == HOLD_BUFFERED || hold->state == HOLD_READY) {
            settle_release(hold, true);
        } else if (hold->state == HOLD_WAITING) {
            settle_release(hold, false);
        }
    }
}

void drain_begin(struct worker *w)
{
    if (!w->stopping) {
        w->stopped_ms = w->now_ms;
        w->grace_until_ms = add_saturating(w->now_ms, w->options.grace_ms);
        w->stopping = true;
    }
    for (size_t i = 0; i < w->stream_count && !w->replaced; i++) {
        release_unstarted(&w->streams[i]);
        stream_wake_at(&w->streams[i], w->now_ms);
    }
}

static void unblock(struct worker *w)
{
    if (w->read != NULL && w->read_blocks && !w->unblocked) {
        w->unblocked = true;
        worker_action(w, &(struct action){.kind = ACTION_UNBLOCK, .request = w->read->request});
    }
}

/* The grace is over. */
static void cancel_running(struct worker *w)
{
    if (w->cancelled || w->replaced) {
        return;
    }
    w->cancelled = true;
    w->grace_until_ms = w->now_ms; /* later than it was, where the worker slept */
    for (struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        struct run *run = CONTAINER(at, struct run, running);
        run->stopped = true;
        if (run->hold != NULL) {
            worker_cancel(w, run, CANCEL_STOP);
        }
    }
}

/* A handler that does not even end when cancelled keeps nobody waiting. Its attempt counts. */
static void abandon_running(struct worker *w)
{
    for (struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        struct run *run = CONTAINER(at, struct run, running);
        struct hold *hold = run->hold;
        if (hold != NULL) {
            run->hold = NULL;
            hold->run = NULL;
            hold->since_ms = w->now_ms;
            w->running_lost++;
            w->drain_code = 1;
            settle_release(hold, false);
            stream_wake_at(hold->stream, w->now_ms);
        }
    }
}

static bool all_left(const struct worker *w)
{
    for (size_t i = 0; i < w->stream_count; i++) {
        if (w->streams[i].phase != STREAM_LEFT) {
            return false;
        }
    }
    return true;
}

void drain_note_status(struct stream *s, const struct request *request)
{
    switch (request->kind) {
    case REQUEST_ACK:
    case REQUEST_PARK:
    case REQUEST_RELEASE:
    case REQUEST_LEAVE:
        s->refused = request->status == IMPEL_ERR_FULL;
        break;
    case REQUEST_BEAT: /* without it a fenced stream asks for none of these */
        s->refused = s->refused || (s->fenced && request->status == IMPEL_ERR_FULL);
        break;
    default:
        break;
    }
}

/* Nothing more can be given back. Streams whose requests are out are waited for. */
static bool all_refused(const struct worker *w)
{
    for (size_t i = 0; i < w->stream_count; i++) {
        const struct stream *s = &w->streams[i];
        bool out = s->acking || s->parking || s->releasing || s->stepping;
        if (s->phase != STREAM_LEFT && (!s->refused || out)) {
            return false;
        }
    }
    return true;
}

static void end_full(struct worker *w)
{
    char text[160];
    size_t held = 0;

    for (size_t i = 0; i < w->stream_count; i++) {
        held += w->streams[i].held_count;
    }
    snprintf(
        text, sizeof(text),
        "the store is full, so nothing can be given back: %zu stay pending under this name, and "
        "are taken over once it counts as dead",
        held);
    worker_fail(w, IMPEL_ERR_FULL, text);
}

void drain_step(struct worker *w)
{
    unblock(w);
    if (w->now_ms >= w->grace_until_ms) {
        cancel_running(w);
    }
    int64_t abandon_ms = add_saturating(w->grace_until_ms, STOP_MARGIN_MS);
    bool handlers_over = w->running == 0 || w->now_ms >= abandon_ms;
    if (w->replaced) {
        if (handlers_over) {
            worker_end(w, 1);
        }
        return;
    }
    if (w->now_ms >= abandon_ms) {
        abandon_running(w);
    }
    if (handlers_over && all_left(w)) {
        worker_end(w, w->drain_code);
    } else if (handlers_over && all_refused(w)) {
        end_full(w);
    } else if (w->now_ms >= add_saturating(abandon_ms, STOP_MARGIN_MS)) {
        worker_fail(w, IMPEL_ERR_TIMEOUT, "the store did not answer while stopping");
    }
}

int64_t drain_due_ms(const struct worker *w)
{
    int64_t abandon_ms = add_saturating(w->grace_until_ms, STOP_MARGIN_MS);

    if (w->now_ms < w->grace_until_ms && !w->replaced) {
        return w->grace_until_ms;
    }
    return w->now_ms < abandon_ms ? abandon_ms : add_saturating(abandon_ms, STOP_MARGIN_MS);
}

/* ---- one stream ---- */

static bool quiet(const struct stream *s)
{
    return s->flights == s->beats_out && s->worker->read == NULL && s->held_count == 0 &&
           s->ack_count == 0;
}

static void release_rest(struct stream *s)
{
    struct worker *w = s->worker;
    struct request *request = request_for(w, s, REQUEST_RELEASE);

    if (request != NULL) {
        request->items.rest = true;
        s->stepping = flight_submit(w, s, request) != NULL;
    }
}

void drain_rest_done(struct stream *s, const struct flight *flight)
{
    s->stepping = false;
    if (flight->request->status >= 0 && !flight->request->items.more) {
        s->rest_done = true;
    } else if (flight->request->status == IMPEL_ERR_NO_GROUP) {
        s->phase = STREAM_LEFT;
    }
}

static void leave(struct stream *s)
{
    struct worker *w = s->worker;
    struct request *request = request_for(w, s, REQUEST_LEAVE);

    if (request != NULL) {
        s->stepping = flight_submit(w, s, request) != NULL;
    }
}

void drain_leave_done(struct stream *s, const struct flight *flight)
{
    const struct request *request = flight->request;
    bool gone = request->status == IMPEL_ERR_NO_GROUP || request->status == IMPEL_ERR_FENCED;
    bool left = request->status >= 0 && request->leave.left;

    s->stepping = false;
    if (request->status < 0 && !gone) {
        stream_failed(s);
    } else if (gone || left || ++s->leave_tries >= LEAVE_TRIES_MAX) {
        /* Nothing of ours is there, or others take what is left once the row is dead. */
        s->phase = STREAM_LEFT;
    } else {
        s->rest_done = false;
    }
}

void drain_stream(struct stream *s)
{
    struct worker *w = s->worker;

    if ((s->phase == STREAM_CREATE || s->phase == STREAM_ENTER) && s->flights == 0) {
        s->phase = STREAM_LEFT;
    }
    if (s->phase == STREAM_READY && quiet(s)) {
        take_leave(s);
        s->phase = STREAM_LEAVE;
    }
    if (s->phase != STREAM_LEAVE || s->stepping || w->now_ms < s->again_ms || !quiet(s)) {
        return;
    }
    if (!s->rest_done) {
        if (!s->fenced) {
            release_rest(s);
        }
    } else if (s->flights == 0) {
        leave(s);
    }
}
