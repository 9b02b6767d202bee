/* sim_faults.c -- what goes wrong: each fault as a function that a schedule can call, and a storm of
 * them drawn from the seed. */
#include "sim/sim.h"

#include <string.h>

void fault_clock(struct sim *sim, int64_t step_ms)
{
    sim_trace(sim, "store: its clock steps by %d ms", (int)step_ms);
    sim->model.now_ms += step_ms;
    sim->off_ms += step_ms;
    sim->off_most_ms = sim->off_ms > sim->off_most_ms ? sim->off_ms : sim->off_most_ms;
    sim->stepped_ms = sim->disturbed_ms = sim->now_ms;
    sim->any_fault = true;
}

static void fire_accept(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    (void)tag;
    sim->model.refuse_writes = sim->model.refuse_beats = false;
    sim->disturbed_ms = sim->now_ms;
    net_available(sim, sim->refused_ms);
    sim_trace(sim, "store: takes writes again");
}

void fault_refuse(struct sim *sim, bool writes, int64_t for_ms)
{
    if (sim->model.refuse_writes || sim->model.refuse_beats) {
        return;
    }
    sim_trace(sim, "store: refuses %s for %d ms", writes ? "writes" : "beats", (int)for_ms);
    sim->model.refuse_writes = writes;
    sim->model.refuse_beats = !writes;
    sim->refused_ms = sim->disturbed_ms = sim->now_ms;
    sim->any_fault = true;
    sim_at(sim, sim->now_ms + for_ms, fire_accept, NULL, 0);
}

void fault_restart(struct sim *sim, int64_t for_ms, bool rollback)
{
    if (sim->stalled) {
        return;
    }
    sim_trace(sim, "store: restarts, %d ms", (int)for_ms);
    sim->any_fault = true;
    sim->restarts++;
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        int64_t until_ms = sim->now_ms + for_ms;
        net_cut(sim, node, until_ms > node->cut_until_ms ? until_ms : node->cut_until_ms, true);
    }
    net_stall(sim, sim->now_ms + for_ms);
    net_drop_queued(sim);
    if (rollback) {
        audit_rollback(sim);
    }
}

void fault_group_set(struct sim *sim, size_t stream, struct impel_id id)
{
    struct request *request = request_new(REQUEST_GROUP_SET);

    ASSERT(request != NULL);
    request->stream = bytes_of(sim->streams[stream].name);
    request->group = sim_group();
    request->group_set.start = id;
    sim_trace(sim, "%s: its group is moved back to %d-%d", sim->streams[stream].name, (int)id.ms,
              (int)id.seq);
    sim->streams[stream].moved_ms = sim->now_ms;
    sim->any_fault = true;
    net_apply(sim, request, true);
    request_free(request);
    /* What lies ahead of the group again has not been delivered, as far as it is concerned. */
    check_loosen(sim, stream);
}

void fault_group_destroy(struct sim *sim, size_t stream)
{
    const struct impel_bytes words[] = {bytes_of("XGROUP"), bytes_of("DESTROY"),
                                        bytes_of(sim->streams[stream].name), sim_group()};
    struct request *request = request_new(REQUEST_CALL);
    struct sim_stream *s = &sim->streams[stream];

    ASSERT(request != NULL);
    request->call.args = words;
    request->call.arg_count = ARRAY_SIZE(words);
    sim_trace(sim, "%s: its group is destroyed", s->name);
    s->moved_ms = sim->rolled_ms = sim->now_ms; /* beats went with it */
    sim->any_fault = true;
    for (size_t i = 0; i < s->count; i++) {
        if (s->entries[i]->place == PLACE_PENDING) {
            s->entries[i]->place = s->entries[i]->gone ? PLACE_TRIMMED : PLACE_UNDELIVERED;
        }
    }
    for (size_t i = 0; i < sim->node_count; i++) {
        sim->nodes[i]->has_row[stream] = false;
    }
    check_loosen(sim, stream);
    net_apply(sim, request, true);
    request_free(request);
}

/* ---- the storm ---- */

static struct node *any_node(struct sim *sim)
{
    struct node *living[SIM_NODES_MAX];
    size_t count = 0;

    for (size_t i = 0; i < sim->node_count; i++) {
        if (node_alive(sim->nodes[i])) {
            living[count++] = sim->nodes[i];
        }
    }
    return count == 0 ? NULL : living[sim_random(sim, count)];
}

/* Shorter or longer than anybody's patience. */
static int64_t draw_length_ms(struct sim *sim)
{
    int64_t dead_after_ms = sim->options.policy.dead_after_ms;
    return sim_chance(sim, 50) ? sim_between(sim, 0, dead_after_ms)
                               : sim_between(sim, dead_after_ms, 3 * dead_after_ms);
}

static void draw_start(struct sim *sim, const char *name)
{
    struct worker_options options;
    size_t living = 0;

    for (size_t i = 0; i < sim->node_count; i++) {
        living += node_alive(sim->nodes[i]);
    }
    if (living < sim->options.nodes || name != NULL) {
        node_options(sim, &options);
        (void)node_start(sim, name, &options);
    }
}

static void fire_restart(struct sim *sim, void *of, uint64_t tag)
{
    (void)tag;
    if (!sim->quiet) {
        draw_start(sim, of);
    }
}

static void storm_crash(struct sim *sim)
{
    struct node *node = any_node(sim);

    if (node == NULL) {
        return;
    }
    node_die(sim, node, DEATH_CRASH, NULL);
    sim_at(sim, sim->now_ms + draw_length_ms(sim), fire_restart,
           sim_chance(sim, 50) ? node->name : NULL, 0);
}

static void storm_node(struct sim *sim)
{
    struct node *node = any_node(sim);

    if (node == NULL) {
        return;
    }
    switch (sim_random(sim, 6)) {
    case 0:
        node_pause(sim, node, draw_length_ms(sim));
        break;
    case 1:
        sim_trace(sim, "%s: is cut off", node->name);
        net_cut(sim, node, sim->now_ms + (sim_chance(sim, 50) ? 0 : draw_length_ms(sim)), false);
        break;
    case 2:
        sim_trace(sim, "%s: its network is silent", node->name);
        net_silence(sim, node, sim->now_ms + draw_length_ms(sim));
        break;
    case 3:
        node_stop(sim, node);
        if (sim_chance(sim, 30)) {
            node_stop(sim, node);
        }
        sim_at(sim, sim->now_ms + draw_length_ms(sim), fire_restart,
               sim_chance(sim, 50) ? node->name : NULL, 0);
        break;
    case 4:
        sim_trace(sim, "a second %s", node->name);
        draw_start(sim, node->name);
        break;
    default:
        node_die(sim, node, DEATH_CRASH, NULL);
        draw_start(sim, node->name); /* its supervisor is quick */
        break;
    }
}

static void pause_all(struct sim *sim)
{
    int64_t for_ms = draw_length_ms(sim);

    sim_trace(sim, "everything sleeps");
    for (size_t i = 0; i < sim->node_count; i++) {
        node_pause(sim, sim->nodes[i], for_ms);
    }
    net_stall(sim, sim->now_ms + for_ms);
}

static void storm_store(struct sim *sim)
{
    static const int64_t steps_ms[] = {10000, -10000, 3600000, -3600000};

    switch (sim_random(sim, 6)) {
    case 0:
        sim_trace(sim, "store: stands still");
        sim->any_fault = true;
        net_stall(sim, sim->now_ms + draw_length_ms(sim));
        break;
    case 1:
        fault_restart(sim, draw_length_ms(sim), sim->options.rollbacks);
        break;
    case 2:
        fault_refuse(sim, sim_chance(sim, 50), draw_length_ms(sim));
        break;
    case 3:
        if (sim->options.clock_steps) {
            fault_clock(sim, steps_ms[sim_random(sim, ARRAY_SIZE(steps_ms))]);
        }
        break;
    case 4:
        pause_all(sim);
        break;
    default:
        if (sim->options.group_moves && !sim->stalled) {
            size_t stream = sim_random(sim, sim->options.stream_count);
            if (sim_chance(sim, 50)) {
                fault_group_destroy(sim, stream);
            } else {
                fault_group_set(sim, stream, ID_MIN);
            }
        }
        break;
    }
}

static void fire_storm(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    (void)tag;
    if (sim->quiet) {
        return;
    }
    uint64_t at = sim_random(sim, 100);
    if (at < 30) {
        storm_crash(sim);
    } else if (at < 75) {
        storm_node(sim);
    } else {
        storm_store(sim);
    }
    sim_at(sim, sim->now_ms + sim_between(sim, 10, sim->options.horizon_ms / 5), fire_storm, NULL,
           0);
}

static void fire_snapshot(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    (void)tag;
    if (sim->quiet) {
        return;
    }
    if (!sim->stalled) {
        audit_snapshot(sim);
    }
    sim_at(sim, sim->now_ms + sim_between(sim, 100, 3000), fire_snapshot, NULL, 0);
}

/* Somebody starts workers again when none is left, whatever ended them. */
static void fire_supervise(struct sim *sim, void *of, uint64_t tag)
{
    (void)of;
    (void)tag;
    if (!sim->quiet) {
        draw_start(sim, NULL);
        sim_at(sim, sim->now_ms + sim_between(sim, 1000, 10000), fire_supervise, NULL, 0);
    }
}

void faults_start(struct sim *sim)
{
    if (!sim->options.faults) {
        return;
    }
    sim_at(sim, sim_between(sim, 0, sim->options.horizon_ms / 5), fire_storm, NULL, 0);
    sim_at(sim, 1000, fire_supervise, NULL, 0);
    if (sim->options.rollbacks) {
        sim_at(sim, 100, fire_snapshot, NULL, 0);
    }
}

/* Everything is mended; what was done stays done. */
void faults_end(struct sim *sim)
{
    sim->quiet = true;
    sim_trace(sim, "no more faults");
    if (sim->options.foreigners && sim->off_ms < sim->off_most_ms) {
        /* What strangers hold is judged by the clock alone, whenever it was that they took it. */
        fault_clock(sim, sim->off_most_ms - sim->off_ms);
    }
    for (size_t i = 0; i < sim->node_count; i++) {
        struct node *node = sim->nodes[i];
        node->paused_until_ms =
            node->paused_until_ms > sim->now_ms ? sim->now_ms : node->paused_until_ms;
        node->cut_until_ms = node->cut_until_ms > sim->now_ms ? sim->now_ms : node->cut_until_ms;
        node->silent_until_ms =
            node->silent_until_ms > sim->now_ms ? sim->now_ms : node->silent_until_ms;
    }
}
