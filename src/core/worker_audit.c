/* worker_audit.c -- what the store says is ours and nobody here has in hand: strays.
 *
 * They come from a former life under the same name, or from an answer that was lost on its way. A
 * listing alone proves nothing: the entry may be in an answer that is still on its way. So a
 * listing is made, then every read, claim, retry and adoption that was out when it was complete has
 * to land; what is in nobody's hands after that is stray. No clock is asked. */
#include "core/worker_state.h"

#include <stdlib.h>

void audit_reset(struct stream *s)
{
    free(s->strays);
    s->strays = NULL;
    s->stray_count = s->stray_capacity = s->stray_plain = s->stray_next = 0;
    s->auditing = s->listing = s->proven = false;
    s->audit_read = 0;
    s->taking_old = 0;
}

static void audit_over(struct stream *s)
{
    audit_reset(s);
    s->audited_ms = s->worker->now_ms;
    s->audit_due_ms = s->worker->now_ms + worker_jitter(s->worker, AUDIT_INTERVAL_MS);
}

void audit_want(struct stream *s)
{
    int64_t due_ms = s->audited_ms + AUDIT_PAUSE_MS;

    due_ms = due_ms > s->worker->now_ms ? due_ms : s->worker->now_ms;
    if (due_ms < s->audit_due_ms) {
        s->audit_due_ms = due_ms;
        stream_wake_at(s, due_ms);
    }
}

int64_t audit_due_ms(const struct stream *s)
{
    return s->auditing || s->proven || s->fenced ? INT64_MAX : s->audit_due_ms;
}

/* ---- the listing ---- */

static void list_page(struct stream *s)
{
    struct worker *w = s->worker;
    struct request *request = request_for(w, s, REQUEST_PENDING);

    if (request == NULL) {
        return;
    }
    request->pending.start = s->audit_from;
    request->pending.end = ID_MAX;
    request->pending.count = AUDIT_ROWS_MAX;
    request->pending.owner = request->consumer;
    request->pending.by_owner = true;
    s->listing = flight_submit(w, s, request) != NULL;
}

static bool keep_stray(struct stream *s, const struct pending_row *row)
{
    if (s->stray_count == s->stray_capacity) {
        size_t capacity = s->stray_capacity == 0 ? 16 : s->stray_capacity * 2;
        struct stray *strays = realloc(s->strays, capacity * sizeof(*strays));
        if (strays == NULL) {
            return false; /* the next audit finds it again */
        }
        s->strays = strays;
        s->stray_capacity = capacity;
    }
    s->strays[s->stray_count++] = (struct stray){row->id, row->deliveries, row->idle_ms};
    return true;
}

static void listing_complete(struct stream *s)
{
    struct worker *w = s->worker;

    s->listed_once = true;
    if (s->stray_count == 0) {
        audit_over(s);
        return;
    }
    s->taking_old = s->taking;
    s->taking_generation++;
    s->audit_read = w->read == NULL ? 0 : w->read->seq;
    w->audit_read = s->audit_read;
}

void audit_done(struct stream *s, const struct flight *flight)
{
    struct worker *w = s->worker;
    const struct request *request = flight->request;

    if (w->ended || w->replaced || flight->seq <= s->lost_seq || !s->listing) {
        return;
    }
    s->listing = false;
    if (request->status < 0) {
        audit_reset(s);
        stream_failed(s);
        s->audit_due_ms = s->again_ms;
        return;
    }
    bool room = true;
    for (size_t i = 0; i < request->pending.row_count && room; i++) {
        const struct pending_row *row = &request->pending.rows[i];
        if (hold_find(w, s, row->id) == NULL) {
            room = s->stray_count < AUDIT_ROWS_MAX && keep_stray(s, row);
        }
        s->audit_from = row->id;
    }
    bool more = request->pending.row_count >= AUDIT_ROWS_MAX;
    if (more && room && id_next(&s->audit_from)) {
        list_page(s);
    } else {
        listing_complete(s);
    }
}

/* ---- the proof ---- */

void audit_landed(struct stream *s, const struct flight *flight)
{
    s->taking--;
    if (flight->taking_generation != s->taking_generation && s->taking_old > 0) {
        s->taking_old--;
    }
}

/* At its limit: parked without a try, as a sweep would. It needs no place. */
static void park_stray(struct stream *s, const struct stray *stray)
{
    struct hold *hold = hold_new(s, stray->id, stray->deliveries);
    if (hold != NULL) {
        settle_park(hold, "max-deliveries", (struct impel_bytes){NULL, 0});
    }
}

static bool is_last(const struct stream *s, const struct stray *stray)
{
    return policy_exhausted(&s->worker->options.policy, add_saturating(stray->deliveries, 1));
}

/* Keeps the strays that want a handler, in `strays`: in the order of IDs, the last attempts behind
 * the others. */
static void sort_strays(struct stream *s)
{
    struct worker *w = s->worker;
    struct stray *sorted = malloc(s->stray_count * sizeof(*sorted));
    size_t count = 0;

    if (sorted == NULL) {
        s->stray_count = 0; /* the next audit finds them again */
        return;
    }
    for (int lasts = 0; lasts <= 1; lasts++) {
        for (size_t i = 0; i < s->stray_count; i++) {
            const struct stray *stray = &s->strays[i];
            bool in_hand = hold_find(w, s, stray->id) != NULL;
            if (in_hand || is_last(s, stray) != (lasts == 1)) {
                continue;
            }
            if (policy_exhausted(&w->options.policy, stray->deliveries)) {
                park_stray(s, stray);
            } else {
                sorted[count++] = *stray;
            }
        }
        s->stray_plain = lasts == 0 ? count : s->stray_plain;
    }
    free(s->strays);
    s->strays = sorted;
    s->stray_count = s->stray_capacity = count;
}

void audit_step(struct stream *s)
{
    struct worker *w = s->worker;

    if (!s->auditing && !s->proven && !s->fenced && w->now_ms >= s->audit_due_ms) {
        audit_reset(s);
        s->auditing = true;
        s->audit_from = ID_MIN;
        list_page(s);
        return;
    }
    if (!s->auditing || s->listing || s->taking_old > 0 || w->read_landed < s->audit_read) {
        return;
    }
    s->auditing = false;
    s->audit_read = 0;
    s->proven = true;
    sort_strays(s);
    if (s->stray_count == 0) {
        audit_over(s);
    }
    take_note_due(s);
}

/* ---- adopting ---- */

bool audit_has_plain(const struct stream *s)
{
    return s->proven && s->stray_next < s->stray_plain;
}

bool audit_has_last(const struct stream *s)
{
    return s->proven && s->stray_next >= s->stray_plain && s->stray_next < s->stray_count;
}

static void fill_adoption(struct batch *batch, struct stream *s, size_t count)
{
    struct worker *w = s->worker;
    size_t end = s->stray_next < s->stray_plain ? s->stray_plain : s->stray_count;

    while (batch->count < count && s->stray_next < end) {
        const struct stray *stray = &s->strays[s->stray_next++];
        if (hold_find(w, s, stray->id) != NULL) {
            continue; /* delivered anew meanwhile */
        }
        struct hold *hold = hold_new(s, stray->id, stray->deliveries);
        if (hold == NULL) {
            return;
        }
        hold->state = HOLD_RETRYING;
        hold->adopted = true;
        hold->alone = is_last(s, stray);
        w->waiting_count++;
        batch_add(batch, hold)->idle_ms = stray->idle_ms;
    }
}

bool audit_adopt(struct stream *s, uint32_t places, bool alone)
{
    struct batch batch;
    size_t count = places < WORKER_ITEMS_MAX ? places : WORKER_ITEMS_MAX;

    if (!(alone ? audit_has_last(s) : audit_has_plain(s)) || s->fenced ||
        s->phase != STREAM_READY || s->worker->now_ms < s->again_ms || !stream_open(s) ||
        !batch_begin(&batch, s, REQUEST_ADOPT, count)) {
        return false;
    }
    fill_adoption(&batch, s, count);
    bool sent = batch.count > 0;
    if (sent) {
        struct flight *flight = batch_submit(&batch);
        if (flight == NULL) {
            return false;
        }
        take_submitted(flight, (uint32_t)batch.count, alone);
    } else {
        request_free(batch.request);
    }
    if (s->stray_next == s->stray_count) {
        audit_over(s);
    }
    return sent;
}
