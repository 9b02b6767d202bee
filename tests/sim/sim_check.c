/* sim_check.c -- the promises, checked at the instant at which they could break.
 *
 * The model store reports every change of a pending row before it makes it; the book of entries
 * (struct sim_entry) says what may happen next. What is counted:
 *   attempt = 1 + failures + burns
 * where a failure is an outcome that a handler gave and a burn is a delivery that a fault ended
 * without one. So an attempt that is burned or given away for no reason shows at once. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

/* ---- the book ---- */

size_t check_stream(const struct sim *sim, struct impel_bytes name)
{
    size_t at = 0;
    while (at < sim->options.stream_count && !bytes_equal(name, bytes_of(sim->streams[at].name))) {
        at++;
    }
    return at < sim->options.stream_count ? at : SIM_STREAMS_MAX;
}

struct sim_entry *check_entry(struct sim *sim, size_t stream, struct impel_id id)
{
    const struct sim_stream *s = &sim->streams[stream];
    size_t low = 0;
    size_t high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = id_compare(s->entries[middle]->id, id);
        if (order == 0) {
            return s->entries[middle];
        }
        low = order < 0 ? middle + 1 : low;
        high = order < 0 ? high : middle;
    }
    return NULL;
}

struct sim_entry *check_add(struct sim *sim, size_t stream, struct impel_id id)
{
    struct sim_stream *s = &sim->streams[stream];
    struct sim_entry *entry = sim_alloc(sim, sizeof(*entry));

    if (s->count == s->room) {
        s->room = s->room * 2 + 16;
        struct sim_entry **bigger = sim_alloc(sim, s->room * sizeof(struct sim_entry *));
        if (s->count > 0) {
            memcpy(bigger, s->entries, s->count * sizeof(struct sim_entry *));
        }
        s->entries = bigger;
    }
    ASSERT(s->count == 0 || id_compare(s->entries[s->count - 1]->id, id) < 0);
    *entry = (struct sim_entry){
        .id = id,
        .stream = stream,
        .delay_ms = -1,
        .delivered_to = SIM_NODES_MAX,
        .taken_ms = -1,
        .done_run_ms = -1,
    };
    s->entries[s->count++] = entry;
    return entry;
}

void check_loosen(struct sim *sim, size_t stream)
{
    for (size_t i = 0; i < sim->streams[stream].count; i++) {
        sim->streams[stream].entries[i]->loose = true;
        sim->streams[stream].entries[i]->taken_ms = sim->now_ms;
    }
}

/* ---- who is who ---- */

static struct node *sender(struct sim *sim, const struct request *request)
{
    return request == NULL || sim->foreign_acts ? NULL : node_of_token(sim, &request->token);
}

/* The living node that has this name in the table, or else the newest that has it at all. */
static struct node *owner_node(struct sim *sim, const struct model_note *note)
{
    struct model_worker *row = group_worker(note->group, note->owner);

    if (row != NULL) {
        return node_of_token(sim, &row->row.token);
    }
    for (size_t i = sim->node_count; i > 0; i--) {
        if (bytes_equal(bytes_of(sim->nodes[i - 1]->name), note->owner)) {
            return sim->nodes[i - 1];
        }
    }
    return NULL;
}

static struct sim_run *running(const struct node *node, const struct sim_entry *entry)
{
    for (struct sim_run *run = node->runs; run != NULL; run = run->next) {
        if (run->entry == entry && !run->cancelled) {
            return run;
        }
    }
    return NULL;
}

/* How long nothing was heard of a node although the store was there to hear it. */
static int64_t silence_ms(const struct sim *sim, const struct node *node, size_t stream)
{
    int64_t since_ms = node->beat_ms[stream];
    since_ms = since_ms < sim->available_ms ? sim->available_ms : since_ms;
    return sim->now_ms - since_ms;
}

static bool may_be_dead(const struct sim *sim, const struct node *node, size_t stream)
{
    return node->was_dead[stream] || sim->rolled_ms >= node->beat_ms[stream] ||
           silence_ms(sim, node, stream) >= node->options.policy.dead_after_ms;
}

void check_note_dead(struct sim *sim, int64_t at_ms)
{
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        for (size_t k = 0; k < sim->options.stream_count; k++) {
            int64_t before_ms = silence_ms(sim, node, k) - (sim->now_ms - at_ms);
            node->was_dead[k] =
                node->was_dead[k] || before_ms >= node->options.policy.dead_after_ms;
        }
    }
}

static const char *text_of(struct impel_bytes bytes, char *text, size_t size)
{
    return bytes_quote(bytes, text, size);
}

/* Promise 3: a worker whose beats reach the store loses nothing to ours. */
static void check_silent(struct sim *sim,
                         const struct node *node,
                         const struct sim_entry *entry,
                         const char *what)
{
    if (!may_be_dead(sim, node, entry->stream)) {
        sim_fail(sim, "%s: %d-%d of %s (node %d), which was heard %d ms ago", what,
                 (int)entry->id.ms, (int)entry->id.seq, node->name, (int)node->index,
                 (int)silence_ms(sim, node, entry->stream));
    }
}

/* ---- deliveries that end without an outcome ---- */

/* The current delivery is over; it had an outcome (and what follows is its retry), or a fault took
 * it. */
static void end_delivery(struct sim *sim, struct sim_entry *entry)
{
    if (entry->given_back || entry->failed) {
        entry->given_back = false;
        entry->failed = false;
        return;
    }
    const struct node *node =
        entry->delivered_to < SIM_NODES_MAX ? sim->nodes[entry->delivered_to] : NULL;
    if (node != NULL && node->death == DEATH_KILLER && entry->delivered_ms <= node->died_ms) {
        entry->burns_by_killer++;
    } else {
        entry->burns++;
        if (!sim->any_fault && !sim->options.foreigners && !entry->loose) {
            sim_fail(sim, "%d-%d: an attempt is burned though nothing went wrong",
                     (int)entry->id.ms, (int)entry->id.seq);
        }
    }
}

static void begin_delivery(struct sim *sim,
                           struct sim_entry *entry,
                           const struct node *node,
                           const struct request *request)
{
    entry->delivered_ms = sim->now_ms;
    entry->delivered_to = node == NULL ? SIM_NODES_MAX : node->index;
    entry->from_death = false;
    entry->late = request != NULL && request->store_data != NULL;
}

/* A delay beyond the backoff is known to the holder alone, and goes with it. */
static void check_spacing(struct sim *sim, const struct sim_entry *entry, bool by_holder)
{
    int64_t need_ms = policy_backoff_ms(&sim->options.policy, entry->failed_attempt, entry->id);

    need_ms = by_holder && entry->failed_delay_ms > need_ms ? entry->failed_delay_ms : need_ms;
    if (entry->failed && !entry->loose && sim->stepped_ms < entry->failed_ms &&
        sim->now_ms - entry->failed_ms < need_ms) {
        sim_fail(sim, "%d-%d is tried again after %d ms, its wait is %d ms", (int)entry->id.ms,
                 (int)entry->id.seq, (int)(sim->now_ms - entry->failed_ms), (int)need_ms);
    }
}

/* ---- what the store reports ---- */

static void on_delivered(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    struct node *node = sender(sim, note->request);

    if (entry->place != PLACE_UNDELIVERED) {
        if (sim->streams[entry->stream].moved_ms < 0 && sim->rolled_ms < 0) {
            sim_fail(sim, "%d-%d is delivered as new a second time", (int)entry->id.ms,
                     (int)entry->id.seq);
        }
        entry->loose = true;
    }
    if (entry->loose) {
        entry->taken_ms = sim->now_ms;
    }
    entry->failed = entry->given_back = false;
    entry->place = PLACE_PENDING;
    begin_delivery(sim, entry, node, note->request);
    if (sim->foreign_acts) {
        others_foreign_got(sim, entry);
    }
}

static void
on_foreign_claim(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    const struct node *node = owner_node(sim, note);
    int64_t begun_ms = sim->now_ms - note->idle_ms - 200;

    bool refuses = sim->model.refuse_beats || sim->model.refuse_writes;

    if (node != NULL && node_alive(node) && !refuses && node->disturbed_ms < begun_ms &&
        sim->disturbed_ms < begun_ms && !entry->gone &&
        worker_holds(node->machine, entry->stream, entry->id)) {
        sim_fail(sim, "%s left %d-%d unrenewed for %d ms", node->name, (int)entry->id.ms,
                 (int)entry->id.seq, (int)note->idle_ms);
    }
    end_delivery(sim, entry);
    entry->taken_ms = sim->now_ms;
    begin_delivery(sim, entry, NULL, NULL);
    others_foreign_got(sim, entry);
}

static void on_judged_claim(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    const struct node *node = owner_node(sim, note);
    bool from_somebody = note->state == OWNER_DEAD || note->state == OWNER_FOREIGN;

    if (from_somebody && node != NULL) {
        check_silent(sim, node, entry, "taken from a worker that lives");
    }
    if (note->state == OWNER_RELEASED) {
        entry->released = true;
        check_spacing(sim, entry, false);
    }
    end_delivery(sim, entry);
    if (from_somebody) {
        entry->taken_ms = sim->now_ms;
    }
    begin_delivery(sim, entry, sender(sim, note->request), note->request);
    entry->from_death = from_somebody;
}

/* A worker may take for its own what a former process of its name left, or what an answer that was
 * lost should have brought; never what it has in hand or what is still on its way to it. */
static void check_adoption(struct sim *sim, const struct sim_entry *entry, const struct node *node)
{
    if (entry->loose) {
        return;
    }
    if (running(node, entry) != NULL) {
        sim_fail(sim, "%s adopts %d-%d, which it is running", node->name, (int)entry->id.ms,
                 (int)entry->id.seq);
    }
    if (entry->delivered_to == node->index && node->last_cut_ms < entry->delivered_ms &&
        !entry->late) {
        sim_fail(sim, "%s adopts %d-%d, which it was given and has not lost", node->name,
                 (int)entry->id.ms, (int)entry->id.seq);
    }
}

static void on_adopt(struct sim *sim,
                     struct sim_entry *entry,
                     const struct node *node,
                     const struct request *request)
{
    check_adoption(sim, entry, node);
    end_delivery(sim, entry);
    entry->taken_ms = sim->now_ms;
    begin_delivery(sim, entry, node, request);
    entry->from_death = true;
}

/* An adoption whose answer was lost is made again as a retry. */
static void on_retry(struct sim *sim,
                     struct sim_entry *entry,
                     const struct node *node,
                     const struct request *request)
{
    if (!entry->failed || entry->delivered_to != node->index) {
        on_adopt(sim, entry, node, request);
        return;
    }
    check_spacing(sim, entry, true);
    end_delivery(sim, entry);
    begin_delivery(sim, entry, node, request);
}

/* What its copy goes on with. How often that one runs is accounted for in strangers.c. */
static void begin_copy(struct sim *sim, const struct sim_entry *entry, struct impel_id id)
{
    struct sim_entry *copy = check_add(sim, entry->stream, id);

    copy->plan = entry->plan;
    copy->fails = entry->fails;
    copy->handler_ms = entry->handler_ms;
    copy->delay_ms = entry->delay_ms;
    copy->loose = true;
}

/* A sweep without a worker requeued it or handed it over: nothing that a living worker holds, and
 * nothing that is exhausted. */
static void on_moved(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    const struct request *request = note->request;
    const struct moved *moved = &request->claim_from.moved[request->claim_from.moved_count - 1];
    const struct node *node = owner_node(sim, note);
    bool from_somebody = note->state == OWNER_DEAD || note->state == OWNER_FOREIGN;

    if (from_somebody && node != NULL) {
        check_silent(sim, node, entry, "moved from a worker that lives");
    }
    if (note->state == OWNER_LIVE || note->state == OWNER_ME ||
        policy_exhausted(&sim->options.policy, moved->deliveries)) {
        sim_fail(sim, "%d-%d is moved after %d deliveries, owner %d", (int)entry->id.ms,
                 (int)entry->id.seq, (int)moved->deliveries, (int)note->state);
    }
    end_delivery(sim, entry);
    entry->taken_ms = sim->now_ms;
    if ((request->claim_from.flags & CLAIM_REQUEUE) != 0) {
        sim->requeued++;
        entry->place = PLACE_REQUEUED;
        begin_copy(sim, entry, moved->copy);
    } else {
        sim->handed_over++;
        entry->loose = true; /* its reading counts, too */
        begin_delivery(sim, entry, NULL, NULL);
        others_foreign_got(sim, entry);
    }
}

static void on_claimed(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    struct node *node = sender(sim, note->request);

    if (note->request == NULL) {
        on_foreign_claim(sim, entry, note);
    } else if (note->request->kind == REQUEST_CLAIM_FROM) {
        on_judged_claim(sim, entry, note);
    } else if (note->request->kind == REQUEST_RETRY) {
        on_retry(sim, entry, node, note->request);
    } else {
        on_adopt(sim, entry, node, note->request);
    }
}

static const struct request_item *item_of(const struct request *request, struct impel_id id)
{
    for (size_t i = 0; i < request->items.item_count; i++) {
        if (id_equal(request->items.items[i].id, id)) {
            return &request->items.items[i];
        }
    }
    return NULL;
}

static void on_released(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    const struct node *node = sender(sim, note->request);
    const struct request_item *item = item_of(note->request, entry->id);

    if (node != NULL && node_alive(node) && running(node, entry) != NULL && !entry->loose) {
        sim_fail(sim, "%s releases %d-%d, which it is running", node->name, (int)entry->id.ms,
                 (int)entry->id.seq);
    }
    if (item != NULL && item->give_back) {
        if (entry->failed && !entry->loose) {
            sim_fail(sim, "%d-%d: a spent attempt is given back", (int)entry->id.ms,
                     (int)entry->id.seq);
        }
        entry->given_back = true;
    }
}

static void on_acked(struct sim *sim, struct sim_entry *entry)
{
    if (entry->dones == 0 && !entry->gone && !entry->loose) {
        sim_fail(sim, "%d-%d is acknowledged, but nobody did it", (int)entry->id.ms,
                 (int)entry->id.seq);
    }
    entry->place = PLACE_ACKED;
}

/* Parked at the limit: all its deliveries must have been spent, and not by its neighbours. */
static void check_exhausted(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    bool failed = entry->failed;
    bool first_is_last = sim->options.policy.max_deliveries == 1;
    bool hopeless = entry->plan == PLAN_POISON || entry->plan == PLAN_KILLER ||
                    entry->plan == PLAN_KILL_ONCE || entry->plan == PLAN_WEDGED;

    end_delivery(sim, entry);
    if (entry->loose) {
        return;
    }
    if (!policy_exhausted(&sim->options.policy, note->deliveries)) {
        sim_fail(sim, "%d-%d is parked after %d deliveries", (int)entry->id.ms, (int)entry->id.seq,
                 (int)note->deliveries);
    }
    if (!hopeless && !failed && !first_is_last && !entry->released && entry->burns == 0 &&
        entry->failures == 0) {
        sim_fail(sim, "%d-%d is parked because of its neighbours", (int)entry->id.ms,
                 (int)entry->id.seq);
    }
}

static void on_parked(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    const struct node *node = sender(sim, note->request);
    bool swept = note->request->kind == REQUEST_CLAIM_FROM;
    const struct request_item *item = swept ? NULL : item_of(note->request, entry->id);
    struct impel_bytes reason = swept ? bytes_of("max-deliveries") : item->reason;
    const struct node *owner = owner_node(sim, note);

    if (swept && owner != NULL && (note->state == OWNER_DEAD || note->state == OWNER_FOREIGN)) {
        check_silent(sim, owner, entry, "parked under a worker that lives");
    }
    if (!swept && node != NULL && !entry->failed && entry->rejects == 0 && !entry->gone) {
        check_adoption(sim, entry, node);
    }
    if (bytes_equal(reason, bytes_of("rejected"))) {
        if (entry->rejects == 0 && !entry->loose) {
            sim_fail(sim, "%d-%d is parked as rejected, but was not", (int)entry->id.ms,
                     (int)entry->id.seq);
        }
    } else if (bytes_equal(reason, bytes_of("max-deliveries"))) {
        check_exhausted(sim, entry, note);
    } else if (!entry->gone) {
        sim_fail(sim, "%d-%d is parked for no reason", (int)entry->id.ms, (int)entry->id.seq);
    }
    entry->place = PLACE_PARKED;
    if (++entry->parks > 1 && !entry->loose) {
        sim_fail(sim, "%d-%d is parked twice", (int)entry->id.ms, (int)entry->id.seq);
    }
}

static void on_reaped(struct sim *sim, struct sim_entry *entry, const struct model_note *note)
{
    struct node *node = sender(sim, note->request);

    if (!entry->gone) {
        sim_fail(sim, "%d-%d is reaped, but it is there", (int)entry->id.ms, (int)entry->id.seq);
    }
    if (node != NULL) {
        node->reaps++;
    }
    entry->place = PLACE_LOST;
}

/* ---- the table ---- */

/* A beat was taken. If another process of that name is alive, it must have been silent. */
static void on_beat(struct sim *sim, size_t stream, const struct model_note *note)
{
    struct node *node = sender(sim, note->request);

    if (node == NULL) {
        return;
    }
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *other = sim->nodes[i];
        if (other == node || !other->has_row[stream] || strcmp(other->name, node->name) != 0) {
            continue;
        }
        if (!may_be_dead(sim, other, stream)) {
            sim_fail(sim, "node %d takes the name %s from node %d, which is alive",
                     (int)node->index, node->name, (int)other->index);
        }
        other->has_row[stream] = false;
        const struct sim_stream *its = &sim->streams[stream];
        for (size_t k = 0; k < its->count; k++) {
            if (its->entries[k]->delivered_to == other->index) {
                its->entries[k]->taken_ms = sim->now_ms;
            }
        }
    }
    node->has_row[stream] = true;
    node->beat_ms[stream] = sim->now_ms;
    node->was_dead[stream] = false;
}

static void on_gone(struct sim *sim, size_t stream, const struct model_note *note)
{
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        if (!node->has_row[stream] || !bytes_equal(bytes_of(node->name), note->owner)) {
            continue;
        }
        if (note->what == MODEL_DROPPED && !may_be_dead(sim, node, stream)) {
            sim_fail(sim, "%s (node %d) is dropped from %s, but it was heard %d ms ago", node->name,
                     (int)node->index, sim->streams[stream].name,
                     (int)silence_ms(sim, node, stream));
        }
        node->has_row[stream] = false;
    }
}

/* Promise 4: whoever is not the owner changes nothing by a fenced step. */
static void check_fence(struct sim *sim, const struct model_note *note)
{
    const struct request *request = note->request;
    char owner[32];
    char who[32];

    if (request == NULL) {
        return;
    }
    switch (request->kind) {
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        break;
    default:
        return;
    }
    const struct model_worker *row = group_worker(note->group, request->consumer);
    if (!bytes_equal(note->owner, request->consumer) || row == NULL ||
        !token_equal(&row->row.token, &request->token)) {
        sim_fail(sim, "%d-%d is %s's, yet %s of %s changed it", (int)note->id.ms, (int)note->id.seq,
                 text_of(note->owner, owner, sizeof(owner)), request_name(request->kind),
                 text_of(request->consumer, who, sizeof(who)));
    }
}

void check_observe(void *user, const struct model_note *note)
{
    struct sim *sim = user;
    size_t stream = check_stream(sim, note->stream->name);
    char owner[32];

    if (stream == SIM_STREAMS_MAX || note->what == MODEL_ADDED) {
        return;
    }
    if (note->what == MODEL_BEAT) {
        on_beat(sim, stream, note);
        return;
    }
    if (note->what == MODEL_DROPPED || note->what == MODEL_LEFT) {
        on_gone(sim, stream, note);
        return;
    }
    check_fence(sim, note);
    struct sim_entry *entry = check_entry(sim, stream, note->id);
    if (entry == NULL) {
        return; /* added before a rollback, or by nobody: the audit knows */
    }
    if (sim->trace && note->what != MODEL_RENEWED) {
        static const char *const names[] = {"added", "delivered", "claimed", "renewed", "released",
                                            "acked", "parked",    "moved",   "reaped"};
        sim_trace(sim, "store: %d-%d of %s %s, was %s's, %d deliveries, idle %d ms, by %s",
                  (int)entry->id.ms, (int)entry->id.seq, sim->streams[stream].name,
                  names[note->what], text_of(note->owner, owner, sizeof(owner)),
                  (int)note->deliveries, (int)note->idle_ms,
                  note->request == NULL ? "xautoclaim" : request_name(note->request->kind));
    }
    switch (note->what) {
    case MODEL_DELIVERED:
        on_delivered(sim, entry, note);
        break;
    case MODEL_CLAIMED:
        on_claimed(sim, entry, note);
        break;
    case MODEL_RELEASED:
        on_released(sim, entry, note);
        break;
    case MODEL_ACKED:
        on_acked(sim, entry);
        break;
    case MODEL_PARKED:
        on_parked(sim, entry, note);
        break;
    case MODEL_REAPED:
        on_reaped(sim, entry, note);
        break;
    case MODEL_MOVED:
        on_moved(sim, entry, note);
        break;
    case MODEL_PUT_BACK:
        sim_fail(sim, "%d-%d is replayed, which nobody does here: see strangers.c",
                 (int)entry->id.ms, (int)entry->id.seq);
        break;
    default:
        break;
    }
}

/* ---- handlers ---- */

/* Promise 2: an entry runs in two workers at once only if it was rightly taken from the first. */
static void check_alone_in_the_world(struct sim *sim, const struct sim_run *run)
{
    const struct sim_entry *entry = run->entry;

    for (const struct sim_run *r = run->node->runs; r != NULL; r = r->next) {
        if (r != run && r->entry == entry && !r->cancelled) {
            sim_fail(sim, "%s starts %d-%d, which it is running", run->node->name,
                     (int)entry->id.ms, (int)entry->id.seq);
        }
    }
    if (entry->loose) {
        return; /* handed out anew, while others still have it in their buffers */
    }
    for (size_t i = 0; i < sim->node_count; i++) {
        for (const struct sim_run *r = sim->nodes[i]->runs; r != NULL; r = r->next) {
            bool excused = r->cancelled || entry->taken_ms >= r->begun_ms;
            if (r != run && r->entry == entry && !excused) {
                sim_fail(sim, "%d-%d runs in node %d and in node %d at once", (int)entry->id.ms,
                         (int)entry->id.seq, (int)r->node->index, (int)run->node->index);
            }
        }
    }
    if (entry->done_run_ms >= 0 && entry->taken_ms < entry->done_run_ms) {
        sim_fail(sim, "%d-%d runs again though it was done", (int)entry->id.ms, (int)entry->id.seq);
    }
}

static void check_last_attempt(struct sim *sim, struct sim_run *run)
{
    const struct node *node = run->node;
    const struct sim_entry *entry = run->entry;

    run->alone = entry->from_death && !entry->loose && entry->delivered_to == node->index &&
                 run->attempt >= sim->options.policy.max_deliveries;
    for (const struct sim_run *r = node->runs; r != NULL; r = r->next) {
        if (r->cancelled || r->entry == entry) {
            continue;
        }
        if (run->alone || r->alone) {
            sim_fail(sim, "%s runs a last attempt beside another entry", node->name);
        }
    }
    if (run->alone && worker_held(node->machine).buffered > 0) {
        sim_fail(sim, "%s runs a last attempt with entries in its buffer", node->name);
    }
}

void check_start(struct sim *sim, struct sim_run *run)
{
    const struct sim_entry *entry = run->entry;
    const struct node *node = run->node;
    int64_t beat_age_ms = sim->now_ms - node->beat_ms[entry->stream];

    check_alone_in_the_world(sim, run);
    check_last_attempt(sim, run);
    if (beat_age_ms > node->options.policy.dead_after_ms / 2) {
        sim_fail(sim, "%s starts %d-%d although it was last heard %d ms ago", node->name,
                 (int)entry->id.ms, (int)entry->id.seq, (int)beat_age_ms);
    }
    int64_t spent = entry->failures + entry->burns + entry->burns_by_killer;
    if (!entry->loose && entry->delivered_to == node->index && run->attempt != spent + 1) {
        sim_fail(sim, "%d-%d: attempt %d, but it failed %d times and faults took %d (killers %d)",
                 (int)entry->id.ms, (int)entry->id.seq, (int)run->attempt, (int)entry->failures,
                 (int)entry->burns, (int)entry->burns_by_killer);
    }
}

void check_outcome(struct sim *sim,
                   struct sim_run *run,
                   enum worker_outcome outcome,
                   int64_t delay_ms)
{
    struct sim_entry *entry = run->entry;
    bool current = entry->delivered_to == run->node->index && entry->delivered_ms <= run->begun_ms;

    if (outcome == OUTCOME_DONE) {
        entry->dones++;
        entry->done_run_ms = run->begun_ms;
    }
    if (!current || entry->place != PLACE_PENDING || outcome == OUTCOME_RELEASE) {
        return;
    }
    if (outcome == OUTCOME_REJECT) {
        entry->rejects++;
        entry->done_run_ms = run->begun_ms;
    } else if (outcome == OUTCOME_RETRY && !(run->cancelled && run->why == CANCEL_LOST)) {
        entry->failures++;
        entry->failed = true;
        entry->failed_ms = sim->now_ms;
        entry->failed_attempt = run->attempt;
        entry->failed_delay_ms = delay_ms;
    }
}

/* What a worker may ask at all: never for as many as there are, nothing of a stream that it has not
 * entered, no wait that would take much with a host that vanishes. */
void check_request(struct sim *sim, const struct node *node, const struct request *request)
{
    if (request->kind != REQUEST_READ) {
        return;
    }
    if (request->read.count == 0 || request->read.block_ms < 0 || request->read.block_ms > 2000) {
        sim_fail(sim, "%s reads %d entries within %d ms", node->name, (int)request->read.count,
                 (int)request->read.block_ms);
    }
    for (size_t i = 0; i < request->read.stream_count; i++) {
        if (!node->entered[check_stream(sim, request->read.streams[i])]) {
            sim_fail(sim, "%s reads where its first beat is not confirmed", node->name);
        }
    }
}

void check_node(struct sim *sim, struct node *node)
{
    int64_t second = sim->now_ms / 1000;

    node->turns = node->turn_ms == sim->now_ms ? node->turns + 1 : 0;
    node->turn_ms = sim->now_ms;
    if (node->turns > 10000) {
        sim_fail(sim, "%s is never done with one instant", node->name);
    }

    if (node->second != second) {
        node->second = second;
        node->requests_in_second = node->starts_in_second = 0;
    }
    uint64_t most = 100 + 40 * node->options.stream_count + 10 * node->starts_in_second;
    if (node->requests_in_second > most) {
        sim_fail(sim, "%s made %d requests in a second", node->name, (int)node->requests_in_second);
    }
    if (node->ended) {
        return;
    }
    if (node->again_starts != node->again_reports) {
        sim_fail(sim, "%s began %d entries again but reported %d", node->name,
                 (int)node->again_starts, (int)node->again_reports);
    }
    struct worker_held held = worker_held(node->machine);
    uint64_t prefetch =
        node->options.prefetch < 0 ? WORKER_READ_MAX : (uint64_t)node->options.prefetch;
    /* Due work has a share of the places of its own, beside what is in the buffer. */
    uint64_t share = node->options.concurrency / 4 > 1 ? node->options.concurrency / 4 : 1;
    if (held.running > node->options.concurrency ||
        held.running + held.buffered > node->options.concurrency + prefetch + share) {
        sim_fail(sim, "%s runs %d and keeps %d more", node->name, (int)held.running,
                 (int)held.buffered);
    }
}
