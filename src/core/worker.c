/* worker.c -- the worker machine from outside: events in, actions out, the next deadline.
 *
 * Each event first does its own part and then calls worker_pump(), which looks what can be done
 * now. Outcomes are the hot path: they touch one hold and one list. What they leave to be sent, and
 * the places that they leave free, wait until the driver has taken all other actions: so acks travel
 * in batches, and a claim asks for as many entries as there are free handlers by then, not for the
 * one that the first of many outcomes made room for. */
#include "core/worker_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RING_FIRST = 64,
    ACKS_AT_ONCE = 256, /* no longer kept back for more to come */
};

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- actions ---- */

static struct queued *ring_push(struct worker *w)
{
    if (w->ring_count == w->ring_capacity) {
        size_t capacity = w->ring_capacity == 0 ? RING_FIRST : w->ring_capacity * 2;
        struct queued *ring = malloc(capacity * sizeof(*ring));
        if (ring == NULL) {
            worker_fail(w, IMPEL_ERR_NOMEM, NULL);
            return NULL;
        }
        for (size_t i = 0; i < w->ring_count; i++) {
            ring[i] = w->ring[(w->ring_first + i) & (w->ring_capacity - 1)];
        }
        free(w->ring);
        w->ring = ring;
        w->ring_first = 0;
        w->ring_capacity = capacity;
    }
    struct queued *queued = &w->ring[(w->ring_first + w->ring_count) & (w->ring_capacity - 1)];
    w->ring_count++;
    queued->owned = NULL;
    return queued;
}

bool worker_action(struct worker *w, const struct action *action)
{
    struct queued *queued = ring_push(w);
    if (queued != NULL) {
        queued->action = *action;
    }
    return queued != NULL;
}

void worker_cancel(struct worker *w, struct run *run, enum cancel_reason reason)
{
    run->cancelled = true;
    (void)worker_action(
        w, &(struct action){.kind = ACTION_CANCEL, .delivery = &run->delivery, .cancel = reason});
}

/* What was to be ended is over by itself, before the driver heard of it, and is gone in a moment. */
static void unsay(struct worker *w, enum action_kind kind, const void *about)
{
    for (size_t i = 0; i < w->ring_count; i++) {
        struct action *action = &w->ring[(w->ring_first + i) & (w->ring_capacity - 1)].action;
        if (action->kind == kind && (action->request == about || action->delivery == about)) {
            action->request = NULL;
            action->delivery = NULL;
        }
    }
}

static bool is_unsaid(const struct action *action)
{
    return (action->kind == ACTION_UNBLOCK && action->request == NULL) ||
           (action->kind == ACTION_CANCEL && action->delivery == NULL);
}

static struct impel_bytes keep(char **at, struct impel_bytes bytes)
{
    char *copy = *at;
    if (bytes.size > 0) {
        memcpy(copy, bytes.data, bytes.size);
    }
    copy[bytes.size] = '\0';
    *at += bytes.size + 1;
    return (struct impel_bytes){copy, bytes.size};
}

/* The event's words are copied: what they point at may be gone when the driver reads them. */
void worker_event(struct worker *w, const struct worker_event *event)
{
    struct queued *queued = ring_push(w);
    if (queued == NULL) {
        return;
    }
    queued->action = (struct action){.kind = ACTION_EVENT, .event = *event};
    if (event->name.size == 0 && event->reason.size == 0 && event->text == NULL) {
        return;
    }
    struct impel_bytes text =
        event->text == NULL ? (struct impel_bytes){NULL, 0} : bytes_of(event->text);
    char *at = malloc(event->name.size + event->reason.size + text.size + 3);
    struct worker_event *kept = &queued->action.event;
    queued->owned = at;
    if (at == NULL) { /* an event without words is better than none */
        kept->name = kept->reason = (struct impel_bytes){NULL, 0};
        kept->text = event->text == NULL ? NULL : "";
        return;
    }
    kept->name = keep(&at, event->name);
    kept->reason = keep(&at, event->reason);
    kept->text = event->text == NULL ? NULL : keep(&at, text).data;
}

/* The next one that still means something. */
static bool ring_take(struct worker *w, struct action *action)
{
    while (w->ring_count > 0) {
        struct queued *queued = &w->ring[w->ring_first];
        w->ring_first = (w->ring_first + 1) & (w->ring_capacity - 1);
        w->ring_count--;
        if (!is_unsaid(&queued->action)) {
            w->spoken = queued->owned;
            *action = queued->action;
            return true;
        }
    }
    return false;
}

bool worker_next(struct worker *w, struct action *action)
{
    free(w->spoken);
    w->spoken = NULL;
    if (ring_take(w, action)) {
        return true;
    }
    while (w->ring_count == 0 && !w->ended && (w->pump_wanted || !list_empty(&w->dirty))) {
        if (w->pump_wanted) {
            worker_pump(w);
        } else {
            settle_step(CONTAINER(list_take(&w->dirty), struct stream, dirty));
        }
    }
    if (ring_take(w, action)) {
        return true;
    }
    if (w->ended && !w->end_said) {
        w->end_said = true;
        *action = (struct action){
            .kind = ACTION_STOPPED, .exit_code = w->exit_code, .gave_up = w->gave_up};
        return true;
    }
    return false;
}

/* ---- the end ---- */

void worker_end(struct worker *w, int exit_code)
{
    if (!w->ended) {
        w->ended = true;
        w->exit_code = exit_code;
    }
}

static void cancel_all(struct worker *w, enum cancel_reason reason)
{
    for (struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        struct run *run = CONTAINER(at, struct run, running);
        worker_cancel(w, run, reason);
    }
}

void worker_fail(struct worker *w, int status, const char *text)
{
    if (w->ended) {
        return;
    }
    w->ended = true; /* first: what follows may want memory as well */
    w->exit_code = 1;
    worker_event(w, &(struct worker_event){.kind = EVENT_STORE_ERROR,
                                           .text = text != NULL ? text : status_text(status)});
    cancel_all(w, CANCEL_STOP);
}

void worker_replaced(struct worker *w)
{
    if (w->replaced) {
        return;
    }
    w->replaced = true;
    worker_event(w, &(struct worker_event){.kind = EVENT_REPLACED,
                                           .name = w->options.consumer,
                                           .text = "another worker runs under this name"});
    cancel_all(w, CANCEL_LOST);
    drain_begin(w);
}

/* ---- events in ---- */

int64_t worker_jitter(struct worker *w, int64_t delay_ms)
{
    int64_t half = delay_ms / 2;
    if (half < 1) {
        return delay_ms < 1 ? 1 : delay_ms;
    }
    return delay_ms - half / 2 + (int64_t)(random_next(&w->seed) % (uint64_t)half);
}

int64_t worker_delay(struct worker *w, uint32_t failures, bool holding)
{
    int64_t most_ms = holding ? w->options.policy.dead_after_ms / 3 : RETRY_DELAY_MAX_MS;
    int64_t delay_ms = (int64_t)RETRY_DELAY_FIRST_MS << (failures > 10 ? 10 : failures);

    most_ms = earlier(most_ms, RETRY_DELAY_MAX_MS);
    return worker_jitter(w, earlier(delay_ms / 2, most_ms));
}

static void set_now(struct worker *w, int64_t now_ms)
{
    int64_t gap_ms = sub_saturating(now_ms, w->now_ms);

    if (gap_ms > w->options.policy.dead_after_ms / 2) { /* beats are due more often */
        w->slept_ms = add_saturating(w->slept_ms, gap_ms);
        for (size_t i = 0; i < w->stream_count; i++) {
            struct stream *s = &w->streams[i];
            s->name_until_ms += s->name_until_ms > 0 ? gap_ms : 0;
        }
    }
    w->now_ms = now_ms > w->now_ms ? now_ms : w->now_ms;
}

void worker_pump(struct worker *w)
{
    w->pump_wanted = false;
    if (w->ended) {
        return;
    }
    if (w->stopping || w->replaced) {
        drain_step(w);
        return;
    }
    if (w->buffered_count > 0 && !due_known(w) && places_free(w) <= (int64_t)w->buffered_count) {
        /* The buffer fills all places anyway, so this takes none from recovered work; and the store
         * may bring the next entries while the handlers of these run. */
        read_step(w);
    }
    start_what_can(w);
    if (take_later(w)) {
        w->pump_wanted = true;
        return;
    }
    take_step(w);
    read_step(w);
    idle_step(w);
}

static int64_t deadline(struct worker *w)
{
    struct heap_node *wake = heap_first(&w->wakes);
    struct heap_node *due = heap_first(&w->waiting);
    int64_t at_ms = wake == NULL ? INT64_MAX : wake->due_ms;

    if (w->stopping || w->replaced) {
        at_ms = earlier(at_ms, drain_due_ms(w));
    } else {
        if (due != NULL && due->due_ms > w->now_ms) {
            at_ms = earlier(at_ms, due->due_ms);
        }
        at_ms = earlier(at_ms, read_due_ms(w));
        at_ms = earlier(at_ms, idle_due_ms(w));
        if (w->alone_again_ms > w->now_ms) {
            at_ms = earlier(at_ms, w->alone_again_ms);
        }
    }
    if (w->options.timeout_ms > 0 && !list_empty(&w->runs)) {
        at_ms = earlier(at_ms, settle_timeout_due_ms(w));
    }
    if (at_ms == INT64_MAX) {
        return BEAT_INTERVAL_MAX_MS;
    }
    return at_ms <= w->now_ms ? 0 : at_ms - w->now_ms;
}

int64_t worker_tick(struct worker *w, int64_t now_ms)
{
    set_now(w, now_ms);
    if (w->ended) {
        return BEAT_INTERVAL_MAX_MS;
    }
    settle_timeouts(w);
    for (;;) {
        struct heap_node *first = heap_first(&w->wakes);
        if (first == NULL || first->due_ms > w->now_ms || w->ended) {
            break;
        }
        stream_step(CONTAINER(first, struct stream, wake));
    }
    worker_pump(w);
    return w->ended ? 0 : deadline(w);
}

/* Says a failure once, and its end once, however many requests meet it. */
static void note_status(struct worker *w, const struct request *request)
{
    int status = request->status;
    int *failing = &w->failing[request->kind];
    char text[512];

    if (status == IMPEL_ERR_NO_GROUP || status == IMPEL_ERR_FENCED ||
        status == IMPEL_ERR_REPLACED || status == IMPEL_ERR_CANCELLED) {
        return; /* not the store's failure; each has its own event or cure */
    }
    if (status >= 0) {
        w->failing_count -= *failing != 0;
        if (*failing != 0 && w->failing_count == 0) {
            worker_event(w, &(struct worker_event){.kind = EVENT_STORE_BACK});
        }
        *failing = 0;
        return;
    }
    if (*failing != status) {
        const char *name = request_name(request->kind);
        const char *cause =
            request->error.text[0] != '\0' ? request->error.text : status_text(status);
        bool named = strncmp(cause, name, strlen(name)) == 0 && cause[strlen(name)] == ':';
        snprintf(text, sizeof(text), "%s%s%s", named ? "" : name, named ? "" : ": ", cause);
        worker_event(w, &(struct worker_event){.kind = EVENT_STORE_ERROR, .text = text});
    }
    w->failing_count += *failing == 0;
    *failing = status;
}

/* What kind of request it was decides who reads the answer. */
static void dispatch(struct worker *w, struct flight *flight)
{
    struct stream *s = flight->stream;

    switch (flight->request->kind) {
    case REQUEST_READ:
        read_done(w, flight);
        break;
    case REQUEST_GROUP_CREATE:
        stream_group_done(s, flight);
        break;
    case REQUEST_BEAT:
        stream_beat_done(s, flight);
        break;
    case REQUEST_RENEW:
        renew_done(s, flight);
        break;
    case REQUEST_ACK:
        settle_ack_done(s, flight);
        break;
    case REQUEST_PARK:
        settle_park_done(s, flight);
        break;
    case REQUEST_RELEASE:
        settle_release_done(s, flight);
        break;
    case REQUEST_LEAVE:
        drain_leave_done(s, flight);
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_CLAIM_FROM:
    case REQUEST_LOOK:
    case REQUEST_DROP:
        take_done(s, flight);
        break;
    case REQUEST_PENDING:
        audit_done(s, flight);
        break;
    default:
        ASSERT(!"a request that no worker makes");
    }
}

/* The streams that waited for this read: before the next one takes their places. */
static void step_waiters(struct worker *w, uint64_t read_seq)
{
    for (size_t i = 0; i < w->stream_count; i++) {
        if (w->stopping || w->streams[i].audit_read == read_seq) {
            stream_step(&w->streams[i]);
        }
    }
}

static void renew_first(struct stream *s)
{
    if (s->phase == STREAM_READY) {
        renew_demand(s);
    }
}

static void renew_all_first(struct worker *w)
{
    for (size_t i = 0; i < w->stream_count; i++) {
        renew_first(&w->streams[i]);
    }
}

void worker_disconnected(struct worker *w, int64_t now_ms)
{
    set_now(w, now_ms);
    renew_all_first(w);
}

void worker_done(struct worker *w, struct request *request, int64_t now_ms)
{
    struct flight *flight = flight_of(w, request);
    struct stream *s = flight->stream;
    uint64_t seq = flight->seq;

    settle_park_refusal(request);
    int status = request->status;
    set_now(w, now_ms);
    flight_land(w, flight);
    if (request->kind == REQUEST_READ) {
        unsay(w, ACTION_UNBLOCK, request);
    }
    if (!w->ended && !w->replaced) {
        note_status(w, request);
        if (status == IMPEL_ERR_DISCONNECTED && s != NULL) {
            renew_first(s);
        } else if (status == IMPEL_ERR_DISCONNECTED) {
            renew_all_first(w); /* a read, which is over all of them */
        }
        if (status == IMPEL_ERR_REPLACED) {
            worker_replaced(w);
        } else if (s != NULL && (status == IMPEL_ERR_NO_GROUP ||
                                 (status == IMPEL_ERR_WRONG_TYPE && s->confirmed))) {
            stream_group_lost(s, flight); /* or it was deleted, and the key is something else */
        } else if (s != NULL && status == IMPEL_ERR_FENCED) {
            stream_fenced(s, flight);
        }
        if (s != NULL) {
            drain_note_status(s, request);
        }
    }
    dispatch(w, flight);
    flight_free(w, flight);
    if (s != NULL) {
        stream_step(s);
    } else {
        step_waiters(w, seq);
    }
    worker_pump(w);
}

static void average_note(struct worker *w, int64_t took_ms)
{
    if (!w->average_known) {
        w->average_known = true;
        w->average_ms = (double)took_ms;
        return;
    }
    w->average_ms += ((double)took_ms - w->average_ms) / 8;
}

void worker_outcome(struct worker *w,
                    struct delivery *delivery,
                    enum worker_outcome outcome,
                    int64_t delay_ms,
                    struct impel_bytes error,
                    int64_t now_ms)
{
    struct run *run = CONTAINER(delivery, struct run, delivery);
    struct hold *hold = run->hold;
    struct stream *s = &w->streams[delivery->stream_index];

    set_now(w, now_ms);
    if (run->cancelled) {
        unsay(w, ACTION_CANCEL, delivery);
    }
    list_remove(&run->running);
    w->running--;
    w->running_due -= run->recovered;
    if (w->alone == run) {
        w->alone = NULL;
        int64_t rest_ms = w->now_ms - run->started_ms;
        w->alone_again_ms = w->now_ms + earlier(rest_ms, SOLO_REST_MAX_MS);
    }
    average_note(w, w->now_ms - run->started_ms);
    if (hold == NULL) {
        ASSERT(w->running_lost > 0);
        w->running_lost--;
        if (run->lost && !run->forget && outcome == OUTCOME_DONE && !w->options.strict &&
            !w->ended && !w->replaced) {
            hold = hold_new_late(s, delivery->entry->id);
            if (hold != NULL) {
                settle_ack(hold);
            }
        }
        entry_free(delivery->entry);
    } else {
        hold->entry = delivery->entry;
        hold->run = NULL;
        hold->apart = outcome == OUTCOME_CRASHED;
        bool failed = outcome == OUTCOME_RETRY || outcome == OUTCOME_CRASHED;
        bool unfinished = outcome == OUTCOME_RELEASE || (run->stopped && failed);
        if (unfinished && !w->ended && !w->replaced) {
            settle_release(hold, true);
        } else {
            settle_outcome(hold, outcome, delay_ms, error);
        }
    }
    run_free(w, run);
    if (s->ack_count >= ACKS_AT_ONCE && !s->acking && !w->ended) {
        settle_step(s);
    }
    w->pump_wanted = true;
}

void worker_begun(struct worker *w, struct delivery *delivery, int64_t now_ms)
{
    struct run *run = CONTAINER(delivery, struct run, delivery);

    set_now(w, now_ms);
    list_remove(&run->running);
    list_append(&w->runs, &run->running);
    run->started_ms = w->now_ms;
    run->slept_ms = w->slept_ms;
}

bool worker_may_begin(struct worker *w, struct delivery *delivery, int64_t now_ms)
{
    const struct run *run = CONTAINER(delivery, struct run, delivery);

    set_now(w, now_ms);
    return !w->ended && run->hold != NULL && stream_open(run->hold->stream);
}

void worker_stop(struct worker *w, int64_t now_ms)
{
    set_now(w, now_ms);
    if (w->ended) {
        return;
    }
    if (!w->stopping) {
        worker_event(w, &(struct worker_event){.kind = EVENT_STOPPING});
        drain_begin(w);
    } else if (w->grace_until_ms > w->now_ms) {
        w->grace_until_ms = w->now_ms;
    }
    worker_pump(w);
}

/* ---- life ---- */

static bool copy_options(struct worker *w, const struct worker_options *options)
{
    w->options = *options;
    w->options.streams = NULL;
    w->options.dead_letters = NULL;
    if (w->options.waiting_max == 0) {
        w->options.waiting_max = WORKER_WAITING_MAX;
    }
    w->streams = calloc(options->stream_count, sizeof(*w->streams));
    if (w->streams == NULL || !arena_copy(&w->arena, options->group, &w->options.group) ||
        !arena_copy(&w->arena, options->consumer, &w->options.consumer)) {
        return false;
    }
    for (size_t i = 0; i < options->stream_count; i++) {
        struct stream *s = &w->streams[i];
        if (!arena_copy(&w->arena, options->streams[i], &s->name) ||
            !arena_copy(&w->arena, options->dead_letters[i], &s->dead_letter)) {
            return false;
        }
    }
    return true;
}

struct worker *worker_new(const struct worker_options *options, int64_t now_ms)
{
    struct worker *w = calloc(1, sizeof(*w));

    ASSERT(options->stream_count >= 1 && options->stream_count <= WORKER_STREAMS_MAX);
    ASSERT(options->concurrency >= 1 && options->policy.max_deliveries >= 1);
    if (w == NULL) {
        return NULL;
    }
    w->now_ms = w->started_ms = now_ms;
    w->seed = options->seed;
    w->serial = random_next(&w->seed) & ~(uint64_t)UINT32_MAX;
    w->due_turn = true;
    w->waiting_for_ms = now_ms + WAITING_FOR_SAID_MS;
    list_init(&w->buffered);
    list_init(&w->ready);
    list_init(&w->dirty);
    list_init(&w->due);
    list_init(&w->runs);
    list_init(&w->loose);
    if (!copy_options(w, options) || !heap_reserve(&w->wakes, options->stream_count)) {
        worker_free(w);
        return NULL;
    }
    w->stream_count = options->stream_count;
    for (size_t i = 0; i < w->stream_count; i++) {
        stream_init(w, i);
    }
    return w;
}

void worker_free(struct worker *w)
{
    if (w == NULL) {
        return;
    }
    if (w->stream_count > 0) {
        hold_release_all(w);
    }
    for (size_t i = 0; i < w->stream_count; i++) {
        stream_release(&w->streams[i]);
    }
    while (w->ring_count > 0) {
        free(w->ring[w->ring_first].owned);
        if (w->ring[w->ring_first].action.kind == ACTION_SUBMIT) {
            request_free(w->ring[w->ring_first].action.request); /* no store has seen it */
        }
        w->ring_first = (w->ring_first + 1) & (w->ring_capacity - 1);
        w->ring_count--;
    }
    free(w->ring);
    free(w->spoken);
    free(w->flights);
    free(w->flight_free);
    free(w->streams);
    heap_release(&w->wakes);
    heap_release(&w->waiting);
    arena_release(&w->arena);
    free(w);
}

struct worker_held worker_held(const struct worker *w)
{
    return (struct worker_held){
        .running = w->running,
        .buffered = w->buffered_count + w->ready_count,
        .waiting = w->waiting_count,
    };
}

size_t worker_held_in(const struct worker *w, size_t stream_index)
{
    const struct stream *s = &w->streams[stream_index];
    size_t count = 0;

    for (const struct link *at = s->held.next; at != &s->held; at = at->next) {
        const struct hold *hold = CONTAINER(at, const struct hold, held);
        count += hold->state == HOLD_BUFFERED || hold->state == HOLD_READY ||
                 hold->state == HOLD_WAITING || hold->state == HOLD_RETRYING;
    }
    for (const struct link *at = w->runs.next; at != &w->runs; at = at->next) {
        count += CONTAINER(at, const struct run, running)->delivery.stream_index == stream_index;
    }
    return count;
}

bool worker_holds(const struct worker *w, size_t stream_index, struct impel_id id)
{
    return hold_find(w, &w->streams[stream_index], id) != NULL;
}
