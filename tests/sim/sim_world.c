/* sim_world.c -- a world: drawn from a seed, run through its faults, and then, with all mended,
 * watched until everything has settled. */
#include "sim/sim.h"

#include <stdlib.h>
#include <string.h>

enum {
    AUDIT_STEPS = 256, /* between two looks at everything */
    START_MS = 1700000000,
};

static void name_streams(struct sim *sim)
{
    for (size_t i = 0; i < SIM_STREAMS_MAX; i++) {
        struct sim_stream *s = &sim->streams[i];
        (void)snprintf(s->name, sizeof(s->name), "s%d", (int)i);
        (void)snprintf(s->dead, sizeof(s->dead), "s%d:dead", (int)i);
        s->moved_ms = -1;
    }
}

void world_init(struct sim *sim, uint64_t seed)
{
    *sim = (struct sim){.seed = seed, .random = seed};
    (void)random_next(&sim->random);
    model_init(&sim->model, START_MS);
    sim->model.observe = check_observe;
    sim->model.user = sim;
    sim->queued_last = &sim->queued;
    sim->disturbed_ms = sim->stepped_ms = sim->rolled_ms = -1;
    policy_defaults(&sim->options.policy);
    sim->options.stream_count = 1;
    sim->options.horizon_ms = 30000;
    name_streams(sim);
}

void world_groups(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.stream_count; i++) {
        struct request *request = request_new(REQUEST_GROUP_CREATE);
        ASSERT(request != NULL);
        request->stream = bytes_of(sim->streams[i].name);
        request->group = sim_group();
        net_apply(sim, request, false);
        request_free(request);
    }
}

void world_release(struct sim *sim)
{
    others_release(sim);
    for (size_t i = 0; i < sim->node_count; i++) {
        worker_free(sim->nodes[i]->machine);
        sim->nodes[i]->machine = NULL;
    }
    net_flush(sim);
    audit_release(sim);
    model_release(&sim->model);
    free(sim->heap);
    arena_release(&sim->arena);
}

/* ---- drawing ---- */

static void draw(struct sim *sim)
{
    static const int64_t dead_ms[] = {1000, 3000, 5000};
    struct sim_options *o = &sim->options;

    o->stream_count = 1 + sim_random(sim, SIM_STREAMS_MAX);
    o->nodes = 1 + sim_random(sim, 4);
    o->entries = 5 + sim_random(sim, 45);
    o->horizon_ms = sim_between(sim, 10000, 40000);
    o->latency_ms = sim_chance(sim, 25) ? 0 : sim_between(sim, 1, 40);
    o->policy.dead_after_ms = dead_ms[sim_random(sim, ARRAY_SIZE(dead_ms))];
    o->policy.min_idle_ms = sim_between(sim, 2 * o->policy.dead_after_ms, 20000);
    o->policy.max_deliveries = sim_between(sim, 1, 5);
    o->policy.backoff_base_ms = sim_chance(sim, 30) ? 0 : sim_between(sim, 10, 1000);
    o->policy.backoff_cap_ms = sim_between(sim, o->policy.backoff_base_ms, 8000);
    o->faults = !sim_chance(sim, 15);
    o->clock_steps = sim_chance(sim, 30);
    o->rollbacks = sim_chance(sim, 15);
    o->group_moves = sim_chance(sim, 20);
    o->foreigners = sim_chance(sim, 30);
    o->trimmers = sim_chance(sim, 20);
    o->sweeps = sim_chance(sim, 20);
    o->strict = sim_chance(sim, 10);
    if (o->sweeps) {
        static const unsigned actions[] = {0, CLAIM_REQUEUE, CLAIM_HAND_OVER};
        o->sweep_action = actions[sim_random(sim, ARRAY_SIZE(actions))];
    }
    sim->model.dead_by_time = sim_chance(sim, 50);
    if (sim_chance(sim, 10)) {
        o->policy.dead_after_ms = 300;
        o->latency_ms = 0;
    }
    sim_trace(sim,
              "seed %llu: %d streams, %d nodes, %d entries, dead-after %d ms, min-idle %d ms, "
              "max %d, backoff %d..%d ms, latency %d ms%s%s%s%s%s%s%s",
              (unsigned long long)sim->seed, (int)o->stream_count, (int)o->nodes, (int)o->entries,
              (int)o->policy.dead_after_ms, (int)o->policy.min_idle_ms,
              (int)o->policy.max_deliveries, (int)o->policy.backoff_base_ms,
              (int)o->policy.backoff_cap_ms, (int)o->latency_ms, o->faults ? ", faults" : "",
              o->clock_steps ? ", clock steps" : "", o->rollbacks ? ", rollbacks" : "",
              o->group_moves ? ", group moves" : "", o->foreigners ? ", foreigners" : "",
              o->trimmers ? ", trimmers" : "",
              o->sweep_action == CLAIM_REQUEUE     ? ", requeues"
              : o->sweep_action == CLAIM_HAND_OVER ? ", hand-overs"
              : o->sweeps                          ? ", sweeps"
                                                   : "");
}

static void run_audited_until(struct sim *sim, int64_t at_ms)
{
    uint64_t next = sim->steps + AUDIT_STEPS;

    while (!sim->failed && sim->heap_count > 0 && sim->heap[0].at_ms <= at_ms) {
        (void)sim_step(sim);
        if (sim->steps >= next) {
            audit(sim);
            next = sim->steps + AUDIT_STEPS;
        }
    }
    sim_run_until(sim, at_ms);
}

/* ---- the end ---- */

/* Far beyond what the work that is left can take if nobody dawdles: the longest handlers one after
 * the other, every attempt that is left with its wait. */
static int64_t patience_ms(const struct sim *sim)
{
    const struct policy *policy = &sim->options.policy;
    int64_t work_ms = 0;

    for (size_t i = 0; i < sim->options.stream_count; i++) {
        for (size_t k = 0; k < sim->streams[i].count; k++) {
            const struct sim_entry *entry = sim->streams[i].entries[k];
            bool wedged = entry->plan == PLAN_WEDGED || entry->plan == PLAN_WEDGE_ONCE;
            bool open = entry->place == PLACE_UNDELIVERED || entry->place == PLACE_PENDING;
            int64_t attempt_ms = wedged ? 4 * policy->min_idle_ms + 21000 : entry->handler_ms + 200;
            work_ms += open ? (attempt_ms + 5000) * (policy->max_deliveries + 1) : 0;
        }
    }
    return 120000 + 3 * policy->min_idle_ms + 5 * policy->dead_after_ms +
           policy->max_deliveries * (policy->backoff_cap_ms + policy->backoff_cap_ms / 10 + 5000) +
           work_ms;
}

bool world_settle(struct sim *sim, int64_t within_ms)
{
    int64_t until_ms = sim->now_ms + within_ms;

    while (!sim->failed && sim->now_ms < until_ms) {
        int64_t next_ms = sim->now_ms + 500;
        run_audited_until(sim, next_ms);
        if (!sim->failed && audit_settled(sim)) {
            return true;
        }
    }
    return false;
}

void world_stop_all(struct sim *sim)
{
    int64_t until_ms = sim->now_ms + 60000;
    size_t living = 0;

    for (size_t i = 0; i < sim->node_count; i++) {
        if (node_alive(sim->nodes[i])) {
            node_stop(sim, sim->nodes[i]);
        }
    }
    do {
        sim_run_until(sim, sim->now_ms + 100);
        living = 0;
        for (size_t i = 0; i < sim->node_count; i++) {
            living += node_alive(sim->nodes[i]);
        }
    } while (!sim->failed && living > 0 && sim->now_ms < until_ms);
    if (living > 0) {
        sim_fail(sim, "%d nodes do not stop", (int)living);
    }
}

/* The first few that are not settled, for who looks into it. */
static void fail_unsettled(struct sim *sim)
{
    for (size_t i = 0; i < sim->options.stream_count; i++) {
        for (size_t k = 0; k < sim->streams[i].count; k++) {
            const struct sim_entry *entry = sim->streams[i].entries[k];
            if (entry->place == PLACE_PENDING || entry->place == PLACE_UNDELIVERED) {
                sim_fail(sim, "%d-%d of %s starves, %s", (int)entry->id.ms, (int)entry->id.seq,
                         sim->streams[i].name,
                         entry->place == PLACE_PENDING ? "pending" : "undelivered");
                return;
            }
        }
    }
    sim_fail(sim, "a handler has no end");
}

void world_finish(struct sim *sim)
{
    if (sim->failed) {
        return;
    }
    faults_end(sim);
    /* Fresh ones even where some live: those may be waiting for a name that they do not get. */
    sim->node_count -=
        sim->node_count == SIM_NODES_MAX && !node_alive(sim->nodes[SIM_NODES_MAX - 1]);
    struct worker_options options;
    node_options(sim, &options);
    (void)node_start(sim, NULL, &options);
    if (!world_settle(sim, patience_ms(sim))) {
        fail_unsettled(sim);
    }
    audit(sim);
    if (!sim->failed) {
        world_stop_all(sim);
    }
    audit(sim);
    if (!sim->failed && !audit_settled(sim)) {
        sim_fail(sim, "after the stop something is pending");
    }
}

bool world_run(struct sim *sim, uint64_t seed, bool trace)
{
    world_init(sim, seed);
    sim->trace = trace;
    draw(sim);
    if (!sim_chance(sim, 30)) {
        world_groups(sim);
    }
    for (size_t i = 0; i < sim->options.nodes; i++) {
        struct worker_options options;
        node_options(sim, &options);
        (void)node_start(sim, NULL, &options);
    }
    others_start(sim);
    faults_start(sim);
    run_audited_until(sim, sim->options.horizon_ms);
    world_finish(sim);
    bool held = !sim->failed;
    world_release(sim);
    return held;
}
