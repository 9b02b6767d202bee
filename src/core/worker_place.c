/* worker_place.c -- the places: who may fill a free handler, and starting handlers.
 *
 * A place is one of `concurrency` handlers. It is taken by a handler that is not over (even if its
 * entry was lost: it still runs), by a recovered entry about to start, and by promises: requests
 * that are out and may bring an entry for it. New entries may also wait in the buffer; recovered
 * ones may not, since an entry that kills workers must not count an attempt for those beside it.
 *
 * While recovered work is known to wait, a quarter of the places is its own: a busy stream must not
 * keep it out for ever, nor a flood of it keep new work out. */
#include "core/worker_state.h"

static int64_t places_taken(const struct worker *w)
{
    return (int64_t)w->running + (int64_t)w->ready_count + w->reserved;
}

int64_t places_free(const struct worker *w)
{
    return (int64_t)w->options.concurrency - places_taken(w);
}

bool due_known(const struct worker *w)
{
    const struct heap_node *first = heap_first(&w->waiting);
    return !list_empty(&w->due) || (first != NULL && first->due_ms <= w->now_ms);
}

int64_t due_share(const struct worker *w)
{
    int64_t quarter = w->options.concurrency / 4;

    if (!due_known(w)) {
        return 0;
    }
    if (w->options.concurrency == 1) {
        return w->due_turn ? 1 : 0;
    }
    quarter = quarter < 1 ? 1 : quarter;
    quarter -= (int64_t)w->running_due + (int64_t)w->ready_count + w->reserved;
    return quarter < 0 ? 0 : quarter;
}

bool turn_of_new(const struct worker *w)
{
    return w->options.concurrency == 1 && !w->due_turn && !w->read_empty &&
           !w->options.recover_only;
}

uint32_t places_for_due(const struct worker *w)
{
    int64_t places = places_free(w) - w->read_places;

    if (w->buffered_count > 0 && places > due_share(w)) {
        places = due_share(w);
    }
    if (turn_of_new(w)) {
        return 0;
    }
    return places < 0 ? 0 : (uint32_t)places;
}

struct stream *alone_stream(struct worker *w)
{
    if (w->due_last_count == 0 || w->now_ms < w->alone_again_ms) {
        return NULL;
    }
    for (size_t i = 0; i < w->stream_count; i++) {
        struct stream *s = &w->streams[i];
        if (s->due_last && w->now_ms >= s->again_ms && stream_open(s)) {
            return s;
        }
    }
    return NULL; /* nothing waits for streams that cannot be worked on now */
}

bool alone_wanted(struct worker *w)
{
    return alone_stream(w) != NULL;
}

bool alone_busy(const struct worker *w)
{
    return w->alone != NULL || w->alone_hold != NULL || w->alone_claiming;
}

bool alone_now(const struct worker *w)
{
    return w->running == w->running_lost && w->buffered_count == 0 && w->ready_count == 0 &&
           w->reserved == 0 && w->read == NULL && !alone_busy(w) && places_free(w) > 0;
}

void start_hold(struct hold *hold)
{
    struct stream *s = hold->stream;
    struct worker *w = s->worker;
    struct run *run = run_new(w);

    if (run == NULL) {
        return;
    }
    hold_unqueue(hold);
    hold->state = HOLD_RUNNING;
    hold->run = run;
    run->hold = hold;
    run->started_ms = w->now_ms;
    run->slept_ms = w->slept_ms;
    run->recovered = hold->recovered;
    run->alone = hold->alone;
    run->delivery = (struct delivery){
        .serial = ++w->serial,
        .stream_index = s->index,
        .entry = hold->entry,
        .attempt = hold->deliveries,
        .apart = hold->apart || policy_exhausted(&w->options.policy, hold->deliveries),
    };
    hold->entry = NULL; /* the delivery's until the handler is over */
    list_append(&w->runs, &run->running);
    w->running++;
    w->running_due += run->recovered;
    w->due_turn = !run->recovered;
    w->read_empty = w->read_empty && !(run->recovered && w->options.concurrency == 1);
    if (run->alone) {
        w->alone_hold = NULL;
        w->alone = run;
    }
    if (hold->deliveries > 1) {
        worker_event(w, &(struct worker_event){.kind = EVENT_REDELIVERED,
                                               .stream_index = s->index,
                                               .count = 1,
                                               .id = hold->id,
                                               .attempt = hold->deliveries});
    }
    worker_action(w, &(struct action){.kind = ACTION_START, .delivery = &run->delivery});
}

/* Recovered entries have their places already and wait only for their streams to open. */
static void start_ready(struct worker *w)
{
    struct link *at = w->ready.next;

    while (at != &w->ready && !w->ended) {
        struct hold *hold = CONTAINER(at, struct hold, queue);
        at = at->next;
        if (stream_open(hold->stream)) {
            start_hold(hold);
        }
    }
}

/* One of the buffered, taking turns between streams. */
static bool start_buffered(struct worker *w)
{
    for (struct link *at = w->buffered.next; at != &w->buffered; at = at->next) {
        struct stream *s = CONTAINER(at, struct stream, buffered);
        if (!stream_open(s)) {
            continue;
        }
        start_hold(CONTAINER(s->buffer.next, struct hold, queue));
        if (!list_empty(&s->buffered)) {
            list_remove(&s->buffered);
            list_append(&w->buffered, &s->buffered);
        }
        return true;
    }
    return false;
}

void start_what_can(struct worker *w)
{
    if (w->alone != NULL) {
        return;
    }
    if (w->ready_count > 0) {
        start_ready(w);
    }
    if (alone_busy(w)) {
        return;
    }
    while (w->buffered_count > 0 && !w->ended && places_free(w) > due_share(w)) {
        if (!start_buffered(w)) {
            break;
        }
    }
}
