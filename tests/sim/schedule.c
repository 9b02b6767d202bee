/* schedule.c -- scenes for the named schedules. */
#include "sim/schedule.h"

#include <stdlib.h>

struct sim sim;
static bool sim_open;

static void world_end(void)
{
    if (sim_open) {
        world_release(&sim);
        sim_open = false;
    }
}

void begin(void)
{
    world_end();
    world_init(&sim, 1);
    sim_open = true;
    sim.trace = getenv("SIM_TRACE") != NULL;
    sim.obedient = true;
    sim.options.latency_ms = 5;
    sim.options.nodes = 8;
    world_groups(&sim);
}

struct node *up(const char *name, uint32_t concurrency, int64_t prefetch)
{
    struct worker_options options;
    struct node *node = NULL;

    node_options(&sim, &options);
    options.concurrency = concurrency;
    options.prefetch = prefetch;
    options.grace_ms = 1000;
    options.timeout_ms = 0;
    node = node_start(&sim, name, &options);
    CHECK(node != NULL);
    return node;
}

struct sim_entry *entry(enum plan_kind plan, int64_t handler_ms)
{
    struct sim_entry *added = others_add(&sim, 0, plan, handler_ms);
    CHECK(added != NULL);
    return added;
}

/* A promise that is broken is said by name. */
static void check_held(void)
{
    if (sim.failed) {
        printf("# %s\n", sim.text);
    }
    CHECK(!sim.failed);
}

void pass(int64_t ms)
{
    sim_run_until(&sim, sim.now_ms + ms);
    check_held();
}

void finish(void)
{
    world_finish(&sim);
    check_held();
    world_end();
}

void crash(struct node *node)
{
    node_die(&sim, node, DEATH_CRASH, NULL);
}

struct impel_bytes last_record_field(size_t from_the_end)
{
    struct model_stream *dead = state_stream(&sim.model.state, bytes_of("s0:dead"));
    CHECK(dead != NULL && dead->entry_count > 0);
    const struct entry *record = dead->entries[dead->entry_count - 1]->entry;
    return record->fields[record->field_count - from_the_end].value;
}

int schedules_main(int argc, char **argv)
{
    int failed = tap_main(argc, argv);
    world_end();
    return failed;
}
