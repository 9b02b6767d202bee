/* sim_node.c -- worker processes: each drives one worker machine as the runtime does, runs handlers
 * that behave as their entry's plan says, and may die, sleep or be stopped at any instant. */
#include "sim/sim.h"

#include <string.h>

enum {
    ACTIONS_MAX = 100000, /* at one instant: more is a loop */
};

static void fire_tick(struct sim *sim, void *of, uint64_t tag);
static void fire_run_end(struct sim *sim, void *of, uint64_t tag);

bool node_alive(const struct node *node)
{
    return node->machine != NULL;
}

bool node_paused(const struct sim *sim, const struct node *node)
{
    return sim->now_ms < node->paused_until_ms;
}

struct node *node_of_token(struct sim *sim, const struct token *token)
{
    for (size_t i = 0; i < sim->node_count; i++) {
        if (token_equal(&sim->nodes[i]->token, token)) {
            return sim->nodes[i];
        }
    }
    return NULL;
}

/* ---- handlers ---- */

static int64_t ends_after_ms(struct sim *sim, const struct sim_entry *entry)
{
    bool wedged = entry->plan == PLAN_WEDGED ||
                  (entry->plan == PLAN_WEDGE_ONCE && entry->failures == 0 && entry->burns == 0);

    if (wedged) {
        return -1;
    }
    if (entry->plan == PLAN_KILLER || (entry->plan == PLAN_KILL_ONCE && entry->starts == 1)) {
        return sim_between(sim, 0, entry->handler_ms);
    }
    return entry->handler_ms;
}

static enum worker_outcome outcome_of(struct sim *sim, const struct sim_run *run)
{
    const struct sim_entry *entry = run->entry;

    bool late_done = run->cancelled && !sim->obedient && sim_chance(sim, 20);

    if (run->cancelled && sim->stubborn) {
        return OUTCOME_DONE;
    }
    if (run->cancelled && run->why == CANCEL_STOP) {
        return late_done ? OUTCOME_DONE : OUTCOME_RELEASE;
    }
    if (run->cancelled) {
        return late_done ? OUTCOME_DONE : OUTCOME_RETRY;
    }
    switch (entry->plan) {
    case PLAN_FLAKY:
        return entry->failures < entry->fails ? OUTCOME_RETRY : OUTCOME_DONE;
    case PLAN_POISON:
        return OUTCOME_RETRY;
    case PLAN_REJECT:
        return OUTCOME_REJECT;
    default:
        return OUTCOME_DONE;
    }
}

static struct sim_run *run_of(struct node *node, const struct delivery *delivery)
{
    for (struct sim_run *run = node->runs; run != NULL; run = run->next) {
        if (run->delivery == delivery) {
            return run;
        }
    }
    return NULL;
}

static void run_over(struct sim_run *run)
{
    struct sim_run **at = &run->node->runs;

    run->over = true;
    while (*at != run) {
        at = &(*at)->next;
    }
    *at = run->next;
}

static void start(struct sim *sim, struct node *node, struct delivery *delivery)
{
    struct sim_run *run = sim_alloc(sim, sizeof(*run));

    run->node = node;
    run->delivery = delivery;
    run->begun_ms = sim->now_ms;
    run->attempt = delivery->attempt;
    run->entry = check_entry(sim, node->streams[delivery->stream_index], delivery->entry->id);
    if (run->entry == NULL && sim->rolled_ms < 0) {
        sim_fail(sim, "%s starts an entry that was never added", node->name);
        return;
    }
    if (run->entry == NULL) { /* from memory: the store has lost it */
        run->entry = sim_alloc(sim, sizeof(*run->entry));
        *run->entry =
            (struct sim_entry){.id = delivery->entry->id, .loose = true, .done_run_ms = -1};
        run->entry->stream = node->streams[delivery->stream_index];
    }
    delivery->driver = run;
    run->entry->starts++;
    sim->starts++;
    node->starts_in_second++;
    node->again_starts += run->attempt > 1;
    sim_trace(sim, "%s: starts %d-%d of %s, attempt %d", node->name, (int)run->entry->id.ms,
              (int)run->entry->id.seq, sim->streams[run->entry->stream].name, (int)run->attempt);
    check_start(sim, run);
    run->next = node->runs;
    node->runs = run;
    int64_t after_ms = ends_after_ms(sim, run->entry);
    if (after_ms >= 0) {
        sim_at(sim, sim->now_ms + after_ms, fire_run_end, run, ++run->tag);
    }
}

static void cancel(struct sim *sim, struct node *node, const struct action *action)
{
    struct sim_run *run = run_of(node, action->delivery);

    if (run == NULL) {
        sim_fail(sim, "%s cancels a handler that is over", node->name);
        return;
    }
    sim_trace(sim, "%s: cancels %d-%d, reason %d", node->name, (int)run->entry->id.ms,
              (int)run->entry->id.seq, (int)action->cancel);
    if (action->cancel == CANCEL_TIMEOUT && !run->cancelled) {
        check_outcome(sim, run, OUTCOME_RETRY, -1);
    }
    if (!run->cancelled) {
        run->cancelled = true;
        run->why = action->cancel;
        if (sim->stubborn) {
            return; /* it goes on to its own end */
        }
        sim_at(sim, sim->now_ms + sim_between(sim, 0, 100), fire_run_end, run, ++run->tag);
    }
}

/* ---- driving ---- */

static void event(struct sim *sim, struct node *node, const struct worker_event *event)
{
    if (event->kind == EVENT_LOST_WORK) {
        node->lost_reports += event->count;
    }
    node->again_reports += event->kind == EVENT_REDELIVERED ? event->count : 0;
    node->late_reports += event->kind == EVENT_LATE_ACK ? event->count : 0;
    if (event->kind == EVENT_STARTED) {
        node->entered[node->streams[event->stream_index]] = true;
    }
    if (sim->trace && event->kind != EVENT_RENEWED && event->kind != EVENT_SWEPT) {
        sim_trace(sim, "%s: event %d, %d-%d, count %d %s", node->name, (int)event->kind,
                  (int)event->id.ms, (int)event->id.seq, (int)event->count,
                  event->text == NULL ? "" : event->text);
    }
}

static void stopped(struct sim *sim, struct node *node, int exit_code)
{
    node->ended = true;
    node->exit_code = exit_code;
    sim_trace(sim, "%s: stopped, exit code %d", node->name, exit_code);
    if (node->runs != NULL && exit_code == 0) {
        sim_fail(sim, "%s stopped while a handler runs", node->name);
    }
}

static void act(struct sim *sim, struct node *node, const struct action *action)
{
    switch (action->kind) {
    case ACTION_SUBMIT:
        node->requests_in_second++;
        (void)net_submit(sim, node, action->request);
        break;
    case ACTION_UNBLOCK:
        net_cancel(sim, node, action->request);
        break;
    case ACTION_START:
        start(sim, node, action->delivery);
        break;
    case ACTION_CANCEL:
        cancel(sim, node, action);
        break;
    case ACTION_EVENT:
        event(sim, node, &action->event);
        break;
    default:
        stopped(sim, node, action->exit_code);
        break;
    }
}

static void take_actions(struct sim *sim, struct node *node)
{
    struct action action;
    int count = 0;

    while (!sim->failed && !node->ended && worker_next(node->machine, &action)) {
        act(sim, node, &action);
        if (++count > ACTIONS_MAX) {
            sim_fail(sim, "%s: no end of actions", node->name);
        }
    }
}

/* After every event: all actions, then the next deadline. */
static void drive(struct sim *sim, struct node *node)
{
    take_actions(sim, node);
    if (sim->failed) {
        return;
    }
    if (!node->ended) {
        int64_t wait_ms = worker_tick(node->machine, sim->now_ms);
        take_actions(sim, node);
        sim_at(sim, sim->now_ms + wait_ms, fire_tick, node, ++node->tick_tag);
    }
    check_node(sim, node);
    if (node->ended && !sim->failed) {
        bool clean = node->exit_code == 0;
        if (clean) {
            audit_left(sim, node);
        }
        node_die(sim, node, DEATH_STOPPED, NULL);
    }
}

static void fire_tick(struct sim *sim, void *of, uint64_t tag)
{
    struct node *node = of;

    if (!node_alive(node) || node->tick_tag != tag) {
        return;
    }
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_tick, node, tag);
        return;
    }
    drive(sim, node);
}

void node_answered(struct sim *sim, struct node *node, struct request *request)
{
    if (!node_alive(node)) {
        request_free(request);
        return;
    }
    if (request->kind == REQUEST_ACK && request->status >= 0) {
        node->late_acks += request->ack.item_count - request->ack.acked;
    }
    worker_done(node->machine, request, sim->now_ms);
    drive(sim, node);
}

static void fire_disconnected(struct sim *sim, void *of, uint64_t tag)
{
    struct node *node = of;

    if (!node_alive(node)) {
        return;
    }
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_disconnected, node, tag);
        return;
    }
    worker_disconnected(node->machine, sim->now_ms);
    drive(sim, node);
}

void node_disconnected(struct sim *sim, struct node *node)
{
    sim_at(sim, sim->now_ms, fire_disconnected, node, 0);
}

static void fire_run_end(struct sim *sim, void *of, uint64_t tag)
{
    struct sim_run *run = of;
    struct node *node = run->node;

    if (run->over || run->tag != tag || !node_alive(node)) {
        return;
    }
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_run_end, run, tag);
        return;
    }
    const struct sim_entry *entry = run->entry;
    bool kills =
        entry->plan == PLAN_KILLER || (entry->plan == PLAN_KILL_ONCE && entry->starts == 1);
    if (kills && !run->cancelled && !sim->quiet) {
        node_die(sim, node, DEATH_KILLER, entry);
        return;
    }
    enum worker_outcome outcome = outcome_of(sim, run);
    sim_trace(sim, "%s: %d-%d ends, outcome %d", node->name, (int)entry->id.ms, (int)entry->id.seq,
              (int)outcome);
    int64_t delay_ms = outcome == OUTCOME_RETRY ? entry->delay_ms : -1;
    if (!run->cancelled || run->why != CANCEL_TIMEOUT) {
        check_outcome(sim, run, outcome, delay_ms);
    }
    run_over(run);
    worker_outcome(node->machine, run->delivery, outcome, delay_ms, bytes_of("it failed"),
                   sim->now_ms);
    drive(sim, node);
}

/* ---- life and death ---- */

void node_options(struct sim *sim, struct worker_options *options)
{
    *options = (struct worker_options){
        .group = sim_group(),
        .policy = sim->options.policy,
        .concurrency = (uint32_t)sim_between(sim, 1, 4),
        .prefetch = sim_between(sim, -1, 6),
        .timeout_ms = 4 * sim->options.policy.min_idle_ms + 20000,
        .grace_ms = sim_between(sim, 0, 5000),
        .strict = sim->options.strict,
        .sweep_interval_ms = 1000,
        .seed = random_next(&sim->random),
        .stream_count = sim->options.stream_count,
    };
}

static void node_streams(struct sim *sim, struct node *node)
{
    struct impel_bytes *names = sim_alloc(sim, SIM_STREAMS_MAX * sizeof(*names));
    struct impel_bytes *dead = sim_alloc(sim, SIM_STREAMS_MAX * sizeof(*dead));

    for (size_t i = 0; i < node->options.stream_count; i++) {
        node->streams[i] = i;
        names[i] = bytes_of(sim->streams[i].name);
        dead[i] = bytes_of(sim->streams[i].dead);
    }
    node->options.streams = names;
    node->options.dead_letters = dead;
}

struct node *node_start(struct sim *sim, const char *name, const struct worker_options *options)
{
    if (sim->node_count == SIM_NODES_MAX) {
        return NULL;
    }
    struct node *node = sim_alloc(sim, sizeof(*node));
    node->index = sim->node_count;
    if (name == NULL) {
        (void)snprintf(node->name, sizeof(node->name), "w%d", (int)++sim->names);
    } else {
        (void)snprintf(node->name, sizeof(node->name), "%s", name);
    }
    node->options = *options;
    node->options.consumer = bytes_of(node->name);
    for (size_t i = 0; i < TOKEN_SIZE; i += sizeof(uint64_t)) {
        uint64_t bits = random_next(&sim->random);
        memcpy(node->token.bytes + i, &bits, sizeof(bits));
    }
    node->options.token = node->token;
    node->last_cut_ms = node->disturbed_ms = node->stopped_at_ms = -1;
    for (size_t i = 0; i < SIM_STREAMS_MAX; i++) {
        node->beat_ms[i] = sim->now_ms;
    }
    node_streams(sim, node);
    node->born_ms = sim->now_ms;
    node->machine = worker_new(&node->options, sim->now_ms);
    ASSERT(node->machine != NULL);
    sim->nodes[sim->node_count++] = node;
    sim_trace(sim, "%s: begins as node %d, concurrency %d, prefetch %d", node->name,
              (int)node->index, (int)node->options.concurrency, (int)node->options.prefetch);
    sim_at(sim, sim->now_ms, fire_tick, node, ++node->tick_tag);
    return node;
}

void node_die(struct sim *sim, struct node *node, enum death death, const struct sim_entry *by)
{
    if (!node_alive(node)) {
        return;
    }
    node->death = death;
    node->died_ms = sim->now_ms;
    node->killed_by = by;
    if (death != DEATH_STOPPED) {
        node->disturbed_ms = sim->now_ms;
        sim->any_fault = true;
        sim->any_kill = sim->any_kill || death == DEATH_KILLER;
        sim_trace(sim, "%s: dies (%s)", node->name, death == DEATH_CRASH ? "crash" : "killer");
    }
    while (node->runs != NULL) {
        run_over(node->runs);
    }
    net_forget(sim, node);
    worker_free(node->machine);
    node->machine = NULL;
}

void node_pause(struct sim *sim, struct node *node, int64_t for_ms)
{
    if (node_alive(node) && !node_paused(sim, node)) {
        sim_trace(sim, "%s: sleeps for %d ms", node->name, (int)for_ms);
        sim->any_fault = true;
        node->paused_until_ms = sim->now_ms + for_ms;
        node->disturbed_ms = node->paused_until_ms;
    }
}

static void fire_stop(struct sim *sim, void *of, uint64_t tag)
{
    struct node *node = of;

    (void)tag;
    if (!node_alive(node)) {
        return;
    }
    if (node_paused(sim, node)) {
        sim_at(sim, node->paused_until_ms, fire_stop, node, 0);
        return;
    }
    sim_trace(sim, "%s: is told to stop", node->name);
    if (node->stops++ == 0) {
        node->stopped_at_ms = sim->now_ms;
    }
    worker_stop(node->machine, sim->now_ms);
    drive(sim, node);
}

void node_stop(struct sim *sim, struct node *node)
{
    sim_at(sim, sim->now_ms, fire_stop, node, 0);
}
