/* worker_read.c -- new entries: how many to ask for, and what to do with what comes.
 *
 * One read is out at a time, over all streams that are open. It reserves handler places, so that
 * what it brings and what a claim brings never exceed what may run. A read that blocks is ended
 * early when recovered work wants the places it keeps. */
#include "core/worker_state.h"

/* How many entries beyond the running ones start within the horizon, judged by recent handlers and
 * by the one that runs longest now. */
static int64_t prefetch(const struct worker *w)
{
    double took_ms = w->average_ms;

    if (w->options.prefetch >= 0) {
        return w->options.prefetch;
    }
    if (!w->average_known) {
        return 0;
    }
    if (!list_empty(&w->runs)) {
        const struct run *oldest = CONTAINER(w->runs.next, struct run, running);
        double age_ms = (double)(w->now_ms - oldest->started_ms);
        took_ms = age_ms > took_ms ? age_ms : took_ms;
    }
    double count = WORKER_READ_MAX;
    if (took_ms > 0) {
        count = PREFETCH_HORIZON_MS / took_ms * w->options.concurrency;
    }
    return count >= WORKER_READ_MAX ? WORKER_READ_MAX : (int64_t)count;
}

static uint32_t room(const struct worker *w)
{
    int64_t ahead = prefetch(w);
    int64_t most = add_saturating(w->options.concurrency, ahead);
    int64_t free = places_free(w) - due_share(w) - (int64_t)w->buffered_count;
    int64_t left = add_saturating(free, ahead);

    /* Asking for every single one as it is used up would cost a request each. */
    if (left <= 0 || (free <= 0 && left < most / 2)) {
        return 0;
    }
    return left > WORKER_READ_MAX ? WORKER_READ_MAX : (uint32_t)left;
}

static bool may_read(struct worker *w)
{
    return w->read == NULL && !w->stopping && !w->options.recover_only && !alone_wanted(w) &&
           !alone_busy(w) && w->waiting_count < w->options.waiting_max;
}

int64_t read_due_ms(struct worker *w)
{
    return may_read(w) && w->read_again_ms > w->now_ms ? w->read_again_ms : INT64_MAX;
}

/* Ends a blocked read that due work waits for: it keeps places, or the only one is free and it is
 * the turn of what the read may bring. */
static void unblock(struct worker *w)
{
    bool waited_for = w->read_places > 0 || (turn_of_new(w) && places_free(w) > 0);
    bool wanted = w->stopping || w->replaced || alone_wanted(w) || w->audit_read == w->read->seq ||
                  (due_known(w) && waited_for);

    if (w->read_blocks && !w->unblocked && wanted) {
        w->unblocked = true;
        worker_action(w, &(struct action){.kind = ACTION_UNBLOCK, .request = w->read->request});
    }
}

static int64_t block_ms(const struct worker *w)
{
    if (due_known(w)) {
        return 0;
    }
    if (w->options.until_idle) {
        return w->read_empty ? IDLE_BLOCK_MS : 0;
    }
    return WORKER_BLOCK_MS;
}

/* The names of all streams that are open; false if there are none. */
static bool fill_streams(struct worker *w, struct request *request, size_t **map)
{
    struct impel_bytes *names = arena_calloc(&request->arena, w->stream_count, sizeof(*names));
    size_t count = 0;

    *map = arena_calloc(&request->arena, w->stream_count, sizeof(**map));
    if (names == NULL || *map == NULL) {
        worker_fail(w, IMPEL_ERR_NOMEM, NULL);
        return false;
    }
    for (size_t i = 0; i < w->stream_count; i++) {
        struct stream *s = &w->streams[i];
        if (!s->listed_once || !stream_open(s)) {
            continue;
        }
        if (!arena_copy(&request->arena, s->name, &names[count])) {
            worker_fail(w, IMPEL_ERR_NOMEM, NULL);
            return false;
        }
        (*map)[count++] = i;
    }
    request->read.streams = names;
    request->read.stream_count = count;
    return count > 0;
}

void read_step(struct worker *w)
{
    size_t *map = NULL;

    if (w->read != NULL) {
        unblock(w);
        return;
    }
    uint32_t count = may_read(w) && w->now_ms >= w->read_again_ms ? room(w) : 0;
    if (count == 0) {
        return;
    }
    struct request *request = request_for(w, NULL, REQUEST_READ);
    if (request == NULL) {
        return;
    }
    if (!fill_streams(w, request, &map)) {
        request_free(request);
        return;
    }
    request->read.first = w->read_first++ % request->read.stream_count;
    request->read.count = count;
    request->read.size_max = READ_SIZE_MAX;
    request->read.block_ms = block_ms(w);
    struct flight *flight = flight_submit(w, NULL, request);
    if (flight == NULL) {
        return;
    }
    flight->map = map;
    w->read = flight;
    w->read_blocks = request->read.block_ms > 0;
    w->unblocked = false;
    int64_t places = places_free(w) - (int64_t)w->buffered_count;
    places = places < 0 ? 0 : places;
    w->read_places = places < count ? (uint32_t)places : count;
}

/* Returns true if it is new to us. */
static bool take_entry(struct stream *s, const struct flight *flight, struct delivered *delivered)
{
    struct worker *w = s->worker;
    struct entry *entry = delivered->entry;
    struct hold *hold = hold_find(w, s, entry->id);

    if (hold != NULL) { /* the group was moved back: ours already, under another count */
        hold->deliveries = delivered->deliveries;
        hold_freshen(hold, flight->pass, w->now_ms);
        return false;
    }
    hold = hold_new(s, entry->id, delivered->deliveries);
    if (hold == NULL) {
        return false;
    }
    hold_arrived(hold, flight);
    hold->entry = entry;
    delivered->entry = NULL;
    hold->state = HOLD_BUFFERED;
    list_append(&s->buffer, &hold->queue);
    w->buffered_count++;
    if (list_empty(&s->buffered)) {
        list_append(&w->buffered, &s->buffered);
    }
    if (w->stopping) {
        settle_release(hold, true);
    }
    return true;
}

static void take_entries(struct worker *w, const struct flight *flight)
{
    struct request *request = flight->request;
    struct stream *last = NULL;
    uint64_t count = 0;

    for (size_t i = 0; i < request->read.entry_count && !w->ended; i++) {
        struct delivered *delivered = &request->read.entries[i];
        struct stream *s = &w->streams[flight->map[delivered->stream_index]];
        if (flight->seq <= s->lost_seq) {
            continue; /* of the group that is gone; if it is of the new one the audit finds it */
        }
        if (s != last && count > 0) {
            worker_event(w, &(struct worker_event){.kind = EVENT_DELIVERED,
                                                   .stream_index = last->index,
                                                   .count = count});
            count = 0;
        }
        last = s;
        count += take_entry(s, flight, delivered);
    }
    if (count > 0) {
        worker_event(w, &(struct worker_event){
                            .kind = EVENT_DELIVERED, .stream_index = last->index, .count = count});
    }
}

static void read_failed(struct worker *w, const struct flight *flight)
{
    const struct request *request = flight->request;

    if ((request->status == IMPEL_ERR_NO_GROUP || request->status == IMPEL_ERR_WRONG_TYPE) &&
        request->read.missing < request->read.stream_count) {
        stream_group_lost(&w->streams[flight->map[request->read.missing]], flight);
        return;
    }
    for (size_t i = 0; i < request->read.stream_count; i++) {
        audit_want(&w->streams[flight->map[i]]); /* it may have been carried out */
    }
    w->read_failures = w->read_failures < 16 ? w->read_failures + 1 : 16;
    w->read_again_ms = w->now_ms + worker_delay(w, w->read_failures, w->index_count > 0);
}

void read_done(struct worker *w, struct flight *flight)
{
    const struct request *request = flight->request;

    w->read = NULL;
    w->read_places = 0;
    w->read_landed = flight->seq;
    if (w->ended || w->replaced) {
        return;
    }
    if (request->status < 0) {
        read_failed(w, flight);
        return;
    }
    w->read_failures = 0;
    take_entries(w, flight);
    w->read_empty = request->read.entry_count == 0;
    bool waited = w->now_ms - flight->submitted_ms >= request->read.block_ms;
    if (w->read_empty && (request->read.block_ms == 0 || !(waited || w->unblocked))) {
        w->read_again_ms = w->now_ms + READ_AGAIN_MS;
    }
}
