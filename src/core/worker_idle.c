/* worker_idle.c -- --until-idle: the end when nothing of the group is undelivered or pending.
 *
 * Only the store can tell, and only in one step: what is undelivered now may be pending by the time
 * that is asked for. So at every moment at which this worker itself has nothing to do, each stream
 * is looked at, undelivered and pending together. If a round of looks finds nothing, and nothing
 * was started here meanwhile, that is the end. */
#include "core/worker_state.h"

#include <stdio.h>

enum {
    TEXT_SIZE = 400,
};

/* Nothing in hand, nothing known to come. A read that only waits is no reason to wait. */
static bool at_rest(const struct worker *w)
{
    bool reads = w->options.recover_only || w->read_empty;

    return reads && w->index_count == 0 && w->running == 0 && w->reserved == 0 &&
           list_empty(&w->due) && w->due_last_count == 0;
}

static bool all_open(struct worker *w)
{
    for (size_t i = 0; i < w->stream_count; i++) {
        const struct stream *s = &w->streams[i];
        if (!s->listed_once || s->ack_count > 0 || s->acking || !stream_open(&w->streams[i])) {
            return false;
        }
    }
    return true;
}

static void begin_round(struct worker *w)
{
    w->idle_found = false;
    w->idle_serial = w->serial;
    w->idle_look_ms = w->now_ms + worker_jitter(w, IDLE_LOOK_MS);
    for (size_t i = 0; i < w->stream_count && !w->ended; i++) {
        struct request *request = request_for(w, &w->streams[i], REQUEST_LOOK);
        if (request == NULL) {
            return;
        }
        request->look.flags = LOOK_BEAT;
        struct flight *flight = flight_submit(w, &w->streams[i], request);
        if (flight == NULL) {
            return;
        }
        flight->idle = true;
        w->idle_looks++;
    }
}

static void say(struct worker *w, const struct stream *s, const char *text)
{
    w->waiting_for_ms = w->now_ms + WAITING_FOR_SAID_MS;
    worker_event(w, &(struct worker_event){
                        .kind = EVENT_WAITING_FOR, .stream_index = s->index, .text = text});
}

static const char *state_text(enum owner_state state)
{
    switch (state) {
    case OWNER_ME:
        return "this worker";
    case OWNER_LIVE:
        return "alive";
    case OWNER_DEAD:
        return "dead";
    case OWNER_FOREIGN:
        return "not Impel's";
    case OWNER_RELEASED:
        return "released";
    default:
        return "unknown";
    }
}

static void say_whom(struct stream *s, const struct request *look)
{
    char text[TEXT_SIZE];
    char name[64];
    size_t used = 0;
    int wrote = snprintf(text, sizeof(text), "%llu undelivered, %llu pending",
                         (unsigned long long)look->look.undelivered,
                         (unsigned long long)look->look.pending);

    used = (size_t)wrote;
    for (size_t i = 0; i < look->look.owner_count && used < sizeof(text) - 1; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (owner->pending == 0) {
            continue;
        }
        wrote = snprintf(text + used, sizeof(text) - used, "; %s holds %llu (%s)",
                         bytes_quote(owner->name, name, sizeof(name)),
                         (unsigned long long)owner->pending, state_text(owner->state));
        used += (size_t)wrote;
    }
    say(s->worker, s, text);
}

void idle_look_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request *look = flight->request;

    w->idle_looks--;
    if (w->ended || w->replaced || flight->seq <= s->lost_seq) {
        w->idle_found = true;
        return;
    }
    if (look->status < 0) {
        w->idle_found = true;
        stream_failed(s);
        return;
    }
    stream_beat_taken(s, flight, look->look.beat);
    bool undelivered = look->look.undelivered > 0 && !w->options.recover_only;
    if (undelivered || look->look.pending > 0) {
        w->idle_found = true;
        if (w->now_ms >= w->waiting_for_ms) {
            say_whom(s, look);
        }
    }
    if (w->idle_looks == 0 && !w->idle_found && w->idle_serial == w->serial && !w->stopping) {
        drain_begin(w);
    }
}

static void say_own(struct worker *w)
{
    char text[TEXT_SIZE];
    struct worker_held held = worker_held(w);

    snprintf(text, sizeof(text), "this worker: %zu running, %zu buffered, %zu waiting for a retry",
             held.running, held.buffered, held.waiting);
    say(w, &w->streams[0], text);
}

static int64_t give_up_ms(const struct worker *w)
{
    return add_saturating(w->started_ms + w->slept_ms, w->options.until_idle_ms);
}

void idle_step(struct worker *w)
{
    if (!w->options.until_idle || w->stopping || w->ended) {
        return;
    }
    if (w->options.until_idle_ms > 0 && w->now_ms >= give_up_ms(w)) {
        say(w, &w->streams[0], "the time for that is over; this worker stops");
        w->drain_code = 1;
        w->gave_up = true;
        drain_begin(w);
        return;
    }
    if (!at_rest(w)) {
        if (w->now_ms >= w->waiting_for_ms) {
            say_own(w);
        }
        return;
    }
    if (w->idle_looks == 0 && w->now_ms >= w->idle_look_ms && all_open(w)) {
        begin_round(w);
    }
}

int64_t idle_due_ms(const struct worker *w)
{
    int64_t due_ms = INT64_MAX;

    if (!w->options.until_idle) {
        return INT64_MAX;
    }
    if (w->options.until_idle_ms > 0) {
        due_ms = give_up_ms(w);
    }
    if (w->idle_look_ms > w->now_ms && w->idle_look_ms < due_ms) {
        due_ms = w->idle_look_ms;
    }
    if (w->waiting_for_ms > w->now_ms && w->waiting_for_ms < due_ms) {
        due_ms = w->waiting_for_ms;
    }
    return due_ms;
}
