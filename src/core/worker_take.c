/* worker_take.c -- recovered entries: own retries, adoptions, claims from others.
 *
 * All of them go to free handlers only. Who gets a place first takes turns: a heap of own retries
 * must not keep a dead worker's entries out, nor the other way round. A last attempt whose holder
 * died, perhaps of it, waits until nothing else runs here: new reads and claims stop, the buffer
 * runs down, then it is claimed and runs alone. */
#include "core/worker_state.h"

#include <stdlib.h>

/* ---- the sweep of a stream ---- */

/* Tells what the last walk found; `count` = 0: what an earlier one found is no longer so. */
static void swept(struct stream *s, uint64_t count, uint64_t due, uint64_t not_due)
{
    if (count == 0 && !s->swept_something) {
        return;
    }
    s->swept_something = due > 0 || not_due > 0;
    worker_event(s->worker, &(struct worker_event){.kind = EVENT_SWEPT,
                                                   .stream_index = s->index,
                                                   .count = count,
                                                   .due = due,
                                                   .not_due = not_due});
}

void take_enter(struct stream *s)
{
    struct worker *w = s->worker;
    struct sweep_options options = {
        .stream = s->name,
        .group = w->options.group,
        .consumer = w->options.consumer,
        .token = w->options.token,
        .policy = w->options.policy,
        .dead_letter = s->dead_letter,
        .interval_ms = w->options.sweep_interval_ms,
        .settle = true,
        .consumer_ttl_ms = -1,
        .seed = random_next(&w->seed),
    };

    take_leave(s);
    s->sweep = sweep_new(&options, w->now_ms);
    if (s->sweep == NULL) {
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
    }
}

void take_leave(struct stream *s)
{
    sweep_free(s->sweep);
    s->sweep = NULL;
    s->sweeping = false;
    free(s->dead);
    s->dead = NULL;
    s->dead_count = 0;
    swept(s, 0, 0, 0);
    take_note_due(s);
}

void take_note_due(struct stream *s)
{
    struct worker *w = s->worker;
    bool last = false;
    bool plain = audit_has_plain(s);

    if (s->sweep != NULL) {
        plain = plain || sweep_claimable(s->sweep);
        (void)sweep_due(s->sweep, &last);
    }
    last = last || audit_has_last(s);
    w->due_last_count += (size_t)last - (size_t)s->due_last;
    s->due_last = last;
    if (plain && list_empty(&s->due)) {
        list_append(&w->due, &s->due);
        w->due_streams++;
    } else if (!plain && !list_empty(&s->due)) {
        list_remove(&s->due);
        w->due_streams--;
    }
}

int64_t take_due_ms(const struct stream *s)
{
    if (s->sweep == NULL || s->sweeping || s->sweep_later || s->fenced) {
        return INT64_MAX;
    }
    return add_saturating(s->worker->now_ms, sweep_deadline(s->sweep, s->worker->now_ms));
}

void take_submitted(struct flight *flight, uint32_t places, bool alone)
{
    struct stream *s = flight->stream;
    struct worker *w = s->worker;

    flight->taking = true;
    flight->taking_generation = s->taking_generation;
    s->taking++;
    flight->places = places;
    w->reserved += places;
    flight->alone = alone;
    w->alone_claiming = w->alone_claiming || alone;
}

static bool may_take(const struct worker *w)
{
    return !w->stopping && !alone_busy(w) && w->waiting_count < w->options.waiting_max;
}

bool take_later(const struct worker *w)
{
    bool starting = w->running > 0 || w->ready_count > 0;

    return w->ring_count > 0 && starting && places_for_due(w) < SWEEP_CLAIMS_MAX;
}

void take_sweep(struct stream *s)
{
    struct worker *w = s->worker;
    bool alone = false;
    uint32_t places = 0;

    w->sweeps_later -= s->sweep_later;
    s->sweep_later = false;
    if (s->sweep == NULL || s->sweeping || s->fenced || s->phase != STREAM_READY || w->stopping ||
        w->now_ms < s->again_ms) {
        return;
    }
    if (take_later(w)) {
        s->sweep_later = true;
        w->sweeps_later++;
        w->pump_wanted = true;
        return;
    }
    if (may_take(w) && stream_open(s)) {
        alone = alone_wanted(w) && s->due_last && alone_now(w);
        places = alone ? 1 : places_for_due(w);
        places = alone_wanted(w) && !alone ? 0 : places;
    }
    sweep_set_free(s->sweep, may_take(w) && w->running + w->ready_count < w->options.concurrency);
    struct request *request = sweep_next(s->sweep, places, alone, w->now_ms);
    if (request != NULL) {
        struct flight *flight = flight_submit(w, s, request);
        if (flight == NULL) {
            return; /* the worker has failed */
        }
        s->sweeping = true;
        if (request->kind == REQUEST_CLAIM_FROM) {
            take_submitted(flight, request->claim_from.claims_max,
                           request->claim_from.flags & CLAIM_LAST);
        }
    }
    uint64_t due = 0;
    uint64_t not_due = 0;
    if (sweep_report(s->sweep, &due, &not_due)) {
        swept(s, 1, due, not_due);
    }
    take_note_due(s);
}

/* ---- own retries ---- */

/* Claims from itself what is due, of the stream whose entry is due first. False: nothing is. */
static bool retry_due(struct worker *w, uint32_t places)
{
    struct heap_node *first = heap_first(&w->waiting);
    struct batch batch;

    if (first == NULL || first->due_ms > w->now_ms) {
        return false;
    }
    struct stream *s = CONTAINER(first, struct hold, due)->stream;
    if (s->fenced || s->phase != STREAM_READY || w->now_ms < s->again_ms || !stream_open(s)) {
        heap_put(&w->waiting, first, w->now_ms + READ_AGAIN_MS); /* others may go first */
        return true;
    }
    size_t count = places < WORKER_ITEMS_MAX ? places : WORKER_ITEMS_MAX;
    count = count < w->waiting.size ? count : w->waiting.size;
    if (!batch_begin(&batch, s, REQUEST_RETRY, count)) {
        return false;
    }
    while (batch.count < count && first != NULL && first->due_ms <= w->now_ms) {
        struct hold *hold = CONTAINER(first, struct hold, due);
        if (hold->stream != s) {
            break;
        }
        hold_unqueue(hold);
        hold->state = HOLD_RETRYING;
        w->waiting_count++;
        batch_add(&batch, hold);
        first = heap_first(&w->waiting);
    }
    struct flight *flight = batch_submit(&batch);
    if (flight != NULL) {
        take_submitted(flight, (uint32_t)batch.count, false);
    }
    return flight != NULL;
}

/* ---- filling places ---- */

/* One stream's known due work; the streams take turns. */
static void take_from_due(struct worker *w, uint32_t places)
{
    struct stream *s = CONTAINER(w->due.next, struct stream, due);

    list_remove(&s->due);
    list_append(&w->due, &s->due);
    if (!audit_adopt(s, places, false)) {
        take_sweep(s);
    }
    take_note_due(s);
}

static void take_alone(struct stream *s)
{
    if (!alone_now(s->worker)) {
        return;
    }
    if (!audit_adopt(s, 1, true)) {
        take_sweep(s);
    }
    take_note_due(s);
}

void take_step(struct worker *w)
{
    for (size_t i = 0; w->sweeps_later > 0 && i < w->stream_count; i++) {
        if (w->streams[i].sweep_later) {
            take_sweep(&w->streams[i]);
        }
    }
    struct stream *last = alone_stream(w);
    if (last != NULL) {
        take_alone(last);
        return;
    }
    /* A stream that can take nothing now goes behind the others; once round all of them is enough. */
    for (size_t in_vain = 0; in_vain <= w->due_streams;) {
        uint32_t places = alone_busy(w) ? 0 : places_for_due(w);
        if (places == 0 || w->ended) {
            return;
        }
        bool others = !list_empty(&w->due) && w->waiting_count < w->options.waiting_max;
        const struct heap_node *first = heap_first(&w->waiting);
        bool own = first != NULL && first->due_ms <= w->now_ms;
        if (!others && !own) {
            return;
        }
        uint32_t reserved = w->reserved;
        w->sweep_turn = !w->sweep_turn;
        if (others && (w->sweep_turn || !own)) {
            take_from_due(w, places);
        } else if (!retry_due(w, places)) {
            return;
        }
        in_vain = w->reserved > reserved ? 0 : in_vain + 1;
    }
}

/* ---- answers ---- */

/* It has its place; it starts as soon as its stream is open. */
static void make_ready(struct hold *hold, struct entry *entry)
{
    struct worker *w = hold->stream->worker;

    hold_unqueue(hold);
    hold->entry = entry;
    hold->recovered = true;
    hold->adopted = false;
    hold->since_ms = w->now_ms;
    hold->state = HOLD_READY;
    list_append(&w->ready, &hold->queue);
    w->ready_count++;
    if (hold->alone) {
        w->alone_hold = hold;
    }
    if (w->stopping) {
        settle_release(hold, true);
    }
}

static void claimed_event(const struct hold *hold, int64_t idle_ms)
{
    worker_event(hold->stream->worker, &(struct worker_event){.kind = EVENT_CLAIMED,
                                                              .stream_index = hold->stream->index,
                                                              .count = 1,
                                                              .id = hold->id,
                                                              .attempt = hold->deliveries,
                                                              .idle_ms = idle_ms});
}

/* Not carried out as far as is known; if it was, the fence will say so. */
static void retry_again(struct hold *hold)
{
    struct worker *w = hold->stream->worker;

    if (hold->adopted) {
        hold_drop(hold); /* the next audit finds it again */
        return;
    }
    settle_wait(hold, w->now_ms + worker_delay(w, 1, true));
}

static void retried(struct hold *hold, struct request_item *item, const struct flight *flight)
{
    struct stream *s = hold->stream;

    if (item->result == ITEM_DONE && item->entry != NULL) {
        hold->deliveries = add_saturating(item->deliveries, 1);
        hold_freshen(hold, flight->pass, flight->submitted_ms);
        if (hold->adopted) {
            claimed_event(hold, item->idle_ms);
        }
        make_ready(hold, item->entry);
        item->entry = NULL;
    } else if (item->result == ITEM_TRIMMED) {
        settle_lost_work(s, hold->id, hold->deliveries);
        hold_drop(hold);
    } else if (item->result == ITEM_LOST && hold->deliveries == item->deliveries) {
        audit_want(s);
        hold_lost(hold, NULL);
    } else {
        retry_again(hold);
    }
}

static void retry_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    struct request_item *items = flight_items(flight);
    bool failed = flight->request->status < 0;

    if (failed) {
        stream_failed(s);
        audit_want(s); /* it may have been carried out */
    } else {
        s->failures = 0;
    }
    for (size_t i = 0; i < flight->hold_count; i++) {
        struct hold *hold = flight->holds[i];
        if (hold->state == HOLD_GONE) {
            continue;
        }
        if (w->stopping && failed) {
            settle_release(hold, false);
        } else if (failed) {
            retry_again(hold);
        } else {
            retried(hold, &items[i], flight);
        }
    }
}

/* How long it had been abandoned. What was given back was not, and its idle time says nothing. */
static int64_t abandoned_ms(const struct delivered *delivered)
{
    bool given_back = delivered->from == OWNER_RELEASED || delivered->from == OWNER_NOBODY;

    return given_back ? -1 : delivered->idle_ms;
}

static void claimed(struct stream *s, const struct flight *flight, struct delivered *delivered)
{
    struct worker *w = s->worker;
    struct entry *entry = delivered->entry;
    struct hold *hold = hold_find(w, s, entry->id);

    if (hold != NULL) { /* it was taken from us and came back: in hand already */
        hold->deliveries = delivered->deliveries;
        hold_freshen(hold, flight->pass, flight->submitted_ms);
        return;
    }
    hold = hold_new(s, entry->id, delivered->deliveries);
    if (hold == NULL) {
        return;
    }
    hold_arrived(hold, flight);
    delivered->entry = NULL;
    hold->alone = flight->alone && policy_exhausted(&w->options.policy, delivered->deliveries);
    claimed_event(hold, abandoned_ms(delivered));
    make_ready(hold, entry);
}

static void note_settled(struct stream *s, const struct request *request)
{
    for (size_t i = 0; i < request->claim_from.parked_count; i++) {
        const struct settled *parked = &request->claim_from.parked[i];
        worker_event(s->worker, &(struct worker_event){.kind = EVENT_PARKED,
                                                       .stream_index = s->index,
                                                       .count = 1,
                                                       .id = parked->id,
                                                       .attempt = parked->deliveries,
                                                       .reason = bytes_of("max-deliveries")});
    }
    for (size_t i = 0; i < request->claim_from.reaped_count; i++) {
        const struct settled *reaped = &request->claim_from.reaped[i];
        settle_lost_work(s, reaped->id, reaped->deliveries);
    }
    if (request->claim_from.park_failed > 0) {
        settle_park_failed(s, request->claim_from.park_failed, request->claim_from.park_error.text);
    }
}

static void claim_done(struct stream *s, const struct flight *flight)
{
    struct request *request = flight->request;

    if (request->status < 0) {
        audit_want(s);
        return;
    }
    stream_beat_taken(s, flight, request->claim_from.beat);
    note_settled(s, request);
    for (size_t i = 0; i < request->claim_from.entry_count && !s->worker->ended; i++) {
        claimed(s, flight, &request->claim_from.entries[i]);
    }
}

/* Says each death once, as long as the row stands. */
static void note_dead(struct stream *s, const struct request *look)
{
    size_t count = 0;
    uint64_t *dead = calloc(look->look.owner_count + 1, sizeof(*dead));

    for (size_t i = 0; i < look->look.owner_count && dead != NULL; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (owner->state != OWNER_DEAD) {
            continue;
        }
        uint64_t hash = hash_bytes(owner->name, (uint64_t)owner->token.bytes[0]);
        bool said = false;
        for (size_t j = 0; j < s->dead_count && !said; j++) {
            said = s->dead[j] == hash;
        }
        if (!said) {
            worker_event(s->worker, &(struct worker_event){.kind = EVENT_WORKER_DEAD,
                                                           .stream_index = s->index,
                                                           .name = owner->name,
                                                           .idle_ms = owner->beat_age_ms,
                                                           .count = 1});
        }
        dead[count++] = hash;
    }
    free(s->dead);
    s->dead = dead;
    s->dead_count = count;
}

static void look_done(struct stream *s, const struct flight *flight)
{
    const struct request *look = flight->request;

    if (look->status < 0) {
        return;
    }
    stream_beat_taken(s, flight, look->look.beat);
    if (!look->look.stamped) {
        swept(s, 0, 0, 0); /* somebody else tells what is due now */
        return;
    }
    note_dead(s, look);
    for (size_t i = 0; i < look->look.owner_count; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (owner->state == OWNER_ME && owner->pending > s->held_count) {
            audit_want(s);
        }
    }
}

static void drop_done(struct stream *s, const struct request *request)
{
    if (request->status >= 0 && request->leave.left) {
        worker_event(s->worker, &(struct worker_event){.kind = EVENT_CONSUMER_DROPPED,
                                                       .stream_index = s->index,
                                                       .name = request->leave.name,
                                                       .count = 1});
    }
}

void take_done(struct stream *s, struct flight *flight)
{
    struct worker *w = s->worker;
    struct request *request = flight->request;

    if (flight->idle) {
        idle_look_done(s, flight);
        return;
    }
    if (w->ended || w->replaced || flight->seq <= s->lost_seq) {
        return;
    }
    if (request->kind == REQUEST_RETRY || request->kind == REQUEST_ADOPT) {
        retry_done(s, flight);
        take_note_due(s);
        return;
    }
    if (request->kind == REQUEST_LOOK) {
        look_done(s, flight);
    } else if (request->kind == REQUEST_DROP) {
        drop_done(s, request);
    } else {
        claim_done(s, flight);
    }
    s->sweeping = false;
    if (s->sweep != NULL) {
        sweep_done(s->sweep, request, w->now_ms);
        take_note_due(s);
    }
    if (request->status < 0) {
        stream_failed(s);
    }
}
