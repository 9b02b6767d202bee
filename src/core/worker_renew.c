/* worker_renew.c -- keeping what is held: idle back to 0, in time, for as long as it is ours.
 *
 * s->held is ordered by when each hold was last renewed, so what is due stands at its head. A
 * renewal that was *demanded* (after a gap in the beats, or because the row had been judged dead)
 * makes all holds stale; no handler starts on the stream until the store has confirmed each. */
#include "core/worker_state.h"

#include <stdio.h>

static int64_t interval_ms(const struct worker *w)
{
    int64_t third_ms = w->options.policy.min_idle_ms / 3;
    third_ms = third_ms > WORKER_RENEW_MAX_MS ? WORKER_RENEW_MAX_MS : third_ms;
    return third_ms < 1 ? 1 : third_ms;
}

void renew_demand(struct stream *s)
{
    s->need_pass = ++s->worker->pass;
    s->stale_count = s->held_count;
    stream_wake_at(s, s->worker->now_ms);
}

int64_t renew_due_ms(const struct stream *s)
{
    if (s->renewing || s->fenced || list_empty(&s->held)) {
        return INT64_MAX;
    }
    const struct hold *hold = CONTAINER(s->held.next, struct hold, held);
    if (hold->pass < s->need_pass) {
        return s->worker->now_ms;
    }
    return hold->renewed_ms + interval_ms(s->worker);
}

bool renew_overdue(const struct hold *hold)
{
    const struct worker *w = hold->stream->worker;
    return hold->renewed_ms + interval_ms(w) / 2 <= w->now_ms;
}

void renew_step(struct stream *s)
{
    struct worker *w = s->worker;
    struct batch batch;

    if (renew_due_ms(s) > w->now_ms) {
        return;
    }
    size_t count = s->held_count < WORKER_ITEMS_MAX ? s->held_count : WORKER_ITEMS_MAX;
    if (!batch_begin(&batch, s, REQUEST_RENEW, count)) {
        return;
    }
    while (batch.count < count) {
        struct hold *hold = CONTAINER(s->held.next, struct hold, held);
        /* Half the interval: those that will be due soon come along, so that requests are few. */
        if (hold->pass >= s->need_pass && !renew_overdue(hold)) {
            break;
        }
        batch_add(&batch, hold);
        hold->renewed_ms = w->now_ms;
        list_remove(&hold->held);
        list_append(&s->held, &hold->held);
    }
    s->renewing = batch_submit(&batch) != NULL;
}

void hold_lost(struct hold *hold, const char *why)
{
    struct stream *s = hold->stream;
    struct worker *w = s->worker;
    struct run *run = hold->run;

    worker_event(w, &(struct worker_event){.kind = EVENT_LOST_ENTRY,
                                           .stream_index = s->index,
                                           .count = 1,
                                           .id = hold->id,
                                           .attempt = hold->deliveries,
                                           .text = why});
    if (run != NULL) {
        run->hold = NULL;
        run->lost = true;
        hold->run = NULL;
        w->running_lost++;
        worker_cancel(w, run, CANCEL_LOST);
    }
    hold_drop(hold);
}

/* The entry is gone from its stream, its row is still ours. Whoever has the payload can finish. */
static void trimmed(struct hold *hold)
{
    hold->trimmed = true;
    if (hold->state == HOLD_WAITING) {
        settle_park(hold, "trimmed", (struct impel_bytes){NULL, 0}); /* which takes the row away */
    }
}

/* Lost though our beats were confirmed all the time: nobody who asks whether we live did that. */
static void robbed(struct hold *hold)
{
    char text[240];

    snprintf(text, sizeof(text),
             "its worker was alive all the time: whoever takes entries of this group by their idle "
             "time alone must leave them for more than %lld ms, twice the time in which they are "
             "renewed",
             2 * (long long)interval_ms(hold->stream->worker));
    hold_lost(hold, text);
}

static bool settling(const struct hold *hold)
{
    return hold->state == HOLD_ACKING || hold->state == HOLD_PARKING ||
           hold->state == HOLD_RELEASING || hold->state == HOLD_RETRYING;
}

void renew_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request_item *items = flight_items(flight);
    uint64_t renewed = 0;

    s->renewing = false;
    if (w->ended || w->replaced || flight->seq <= s->lost_seq) {
        return;
    }
    if (flight->request->status < 0) {
        renew_demand(s); /* which ones were renewed is unknown */
        stream_failed(s);
        return;
    }
    s->failures = 0;
    for (size_t i = 0; i < flight->hold_count; i++) {
        struct hold *hold = flight->holds[i];
        if (hold->state == HOLD_GONE) {
            continue;
        }
        if (hold->deliveries != items[i].deliveries || items[i].result == ITEM_NONE) {
            /* Delivered anew meanwhile: this answer is about its past. */
            hold_freshen(hold, hold->pass, hold->renewed_ms);
            continue;
        }
        renewed += items[i].result == ITEM_DONE;
        bool slept = hold->pass < s->need_pass; /* or was fenced: then all was made stale */
        hold_freshen(hold, flight->pass > hold->pass ? flight->pass : hold->pass, hold->renewed_ms);
        if (items[i].result == ITEM_TRIMMED) {
            trimmed(hold);
        } else if (items[i].result == ITEM_LOST && !settling(hold)) {
            audit_want(s);
            if (slept) {
                hold_lost(hold, NULL);
            } else {
                robbed(hold);
            }
        }
    }
    if (renewed > 0) {
        worker_event(w, &(struct worker_event){
                            .kind = EVENT_RENEWED, .stream_index = s->index, .count = renewed});
    }
}
