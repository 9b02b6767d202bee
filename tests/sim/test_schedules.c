/* test_schedules.c -- single schedules, each of which breaks a simpler design than this one: the store
 * in trouble, workers that die, sleep or share a name. The simulator's checks run beside what each
 * test asks for. */
#include "sim/schedule.h"

/* ---- the store as a whole stands still, goes away, is full, or loses its clock ---- */

/* Three workers at work for longer than the trouble; whatever it is, nobody loses anything. */
static void three_at_work(struct sim_entry *entries[3])
{
    begin();
    for (size_t i = 0; i < 3; i++) {
        (void)up(NULL, 1, 0);
        entries[i] = entry(PLAN_GOOD, 40000);
    }
    pass(3000);
    for (size_t i = 0; i < 3; i++) {
        CHECK(entries[i]->starts == 1);
    }
}

static void nobody_lost_anything(struct sim_entry *entries[3])
{
    pass(25000);
    for (size_t i = 0; i < 3; i++) {
        CHECK(entries[i]->starts == 1);
        CHECK(entries[i]->place == PLACE_PENDING);
    }
    finish();
}

TEST(a_store_that_stands_still_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    net_stall(&sim, sim.now_ms + 6500);
    nobody_lost_anything(entries);
}

TEST(a_store_that_restarts_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    fault_restart(&sim, 6000, false);
    nobody_lost_anything(entries);
}

TEST(a_full_store_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    fault_refuse(&sim, true, 12000);
    nobody_lost_anything(entries);
}

TEST(a_store_that_takes_no_beats_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    fault_refuse(&sim, false, 12000);
    nobody_lost_anything(entries);
}

TEST(a_clock_that_jumps_ahead_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    fault_clock(&sim, 10000);
    nobody_lost_anything(entries);
}

TEST(a_clock_that_is_set_back_makes_nobody_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    fault_clock(&sim, -3600000);
    nobody_lost_anything(entries);
}

TEST(everything_sleeps_and_nobody_is_dead)
{
    struct sim_entry *entries[3];
    three_at_work(entries);
    for (size_t i = 0; i < sim.node_count; i++) {
        node_pause(&sim, sim.nodes[i], 20000);
    }
    net_stall(&sim, sim.now_ms + 20000);
    nobody_lost_anything(entries);
}

static void stands_still(void)
{
    net_stall(&sim, sim.now_ms + 6500);
}

static void restarts(void)
{
    fault_restart(&sim, 6000, false);
}

static void is_full(void)
{
    fault_refuse(&sim, true, 12000);
}

static void takes_no_beats(void)
{
    fault_refuse(&sim, false, 12000);
}

static void leaps_ahead(void)
{
    fault_clock(&sim, 10000);
}

static void is_set_back(void)
{
    fault_clock(&sim, -3600000);
}

static void sleeps(void)
{
    for (size_t i = 0; i < sim.node_count; i++) {
        node_pause(&sim, sim.nodes[i], 20000);
    }
    net_stall(&sim, sim.now_ms + 20000);
}

TEST(who_dies_while_the_store_is_in_trouble_is_noticed_afterwards)
{
    static const struct {
        void (*begin)(void);
        int64_t lasts_ms;
    } troubles[] = {
        {stands_still, 6500}, {restarts, 6000},    {is_full, 12000}, {takes_no_beats, 12000},
        {leaps_ahead, 1000},  {is_set_back, 1000}, {sleeps, 20000},
    };

    for (size_t i = 0; i < ARRAY_SIZE(troubles); i++) {
        struct sim_entry *entries[3];
        three_at_work(entries);
        (void)up("free", 2, 0);
        pass(1000);
        troubles[i].begin();
        pass(1000);
        crash(sim.nodes[entries[0]->delivered_to]);
        pass(troubles[i].lasts_ms - 1000);
        CHECK(entries[0]->starts == 1); /* nobody is judged while it lasts */
        pass(7000);
        CHECK(entries[0]->starts == 2);
        CHECK(entries[1]->starts == 1 && entries[2]->starts == 1);
        finish();
    }
}

TEST(a_clock_that_is_set_back_starves_no_entry_of_a_dead_worker)
{
    begin();
    struct node *node = up("a", 1, 0);
    pass(500);
    struct sim_entry *e = entry(PLAN_GOOD, 2000);
    pass(1000);
    CHECK(e->starts == 1);
    (void)up("b", 1, 0);
    pass(500);
    crash(node);
    fault_clock(&sim, -3600000);
    pass(12000);
    CHECK(e->starts == 2);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(a_clock_that_is_set_back_starves_no_released_entry)
{
    begin();
    struct node *node = up("a", 1, 0);
    pass(500);
    struct sim_entry *e = entry(PLAN_FLAKY, 10);
    e->fails = 1;
    pass(100);
    CHECK(e->failures == 1);
    node_stop(&sim, node); /* while it waits for its retry */
    pass(500);
    CHECK(!node_alive(node));
    fault_clock(&sim, -3600000);
    (void)up("b", 1, 0);
    pass(10000);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(after_a_reconnect_nothing_starts_that_the_store_has_forgotten)
{
    struct sim_entry *entries[5];

    begin();
    struct node *a = up("a", 1, 4);
    pass(200);
    node_pause(&sim, a, 2500); /* so that no read of it waits */
    pass(2200);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        entries[i] = entry(PLAN_GOOD, 1000);
    }
    audit_snapshot(
        &sim); /* what the store will remember: a's row, but not what a is about to read */
    pass(900);
    CHECK(worker_held(a->machine).running == 1 && worker_held(a->machine).buffered == 4);
    (void)up("b", 4, 0);
    pass(100);
    fault_restart(&sim, 200, true);
    pass(15000);
    CHECK(node_alive(a));
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        CHECK(entries[i]->place == PLACE_ACKED);
        CHECK(entries[i]->starts == (i == 0 ? 2 : 1)); /* the first one was at work */
    }
    finish();
}

/* ---- a worker dies ---- */

TEST(a_killed_workers_entry_runs_elsewhere_within_six_and_a_half_seconds)
{
    begin();
    struct node *node = up("a", 1, 0);
    pass(10000); /* at rest: it beats all the same */
    (void)up("b", 1, 0);
    pass(20); /* b has not entered yet: it is a that reads */
    struct sim_entry *e = entry(PLAN_GOOD, 10000);
    pass(30);
    CHECK(e->starts == 1);
    CHECK(e->delivered_to == node->index);
    crash(node);
    pass(6500);
    CHECK(e->starts == 2);
    finish();
}

TEST(a_worker_killed_before_its_first_handler_is_no_stranger)
{
    begin();
    struct node *node = up("a", 1, 0);
    pass(10000);
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    CHECK(e->place == PLACE_PENDING); /* its read waited */
    crash(node);
    (void)up("b", 1, 0);
    pass(6500);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

/* Its machine is gone, or it is stopped, while its read waits. */
static struct node *vanished(void)
{
    begin();
    struct node *a = up("a", 1, 4);
    pass(3000);
    CHECK(sim.blocked != NULL && sim.blocked->node == a);
    node_pause(&sim, a, 60000);
    (void)up("b", 2, 0);
    pass(100);
    return a;
}

TEST(what_a_vanished_host_was_given_last_runs_elsewhere_in_time)
{
    const struct node *a = vanished();
    struct sim_entry *e = entry(PLAN_GOOD, 1000);
    CHECK(e->delivered_to == a->index && e->starts == 0);
    pass(6500);
    CHECK(e->starts == 1);
    pass(60000); /* it wakes, and finds the answer to its read */
    CHECK(e->starts == 1 && e->place == PLACE_ACKED);
    CHECK(node_alive(a));
    finish();
}

TEST(a_vanished_host_takes_nothing_after_two_seconds)
{
    (void)vanished();
    pass(2000);
    struct sim_entry *e = entry(PLAN_GOOD, 1000);
    pass(100);
    CHECK(e->starts == 1);
    finish();
}

TEST(what_waits_for_its_holder_alone_waits_no_longer_than_the_holder_lives)
{
    begin();
    struct node *a = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_FLAKY, 10);
    e->fails = 1;
    e->delay_ms = 600000;
    (void)up("b", 1, 0);
    pass(60000);
    CHECK(e->starts == 1 && e->failures == 1);
    crash(sim.nodes[e->delivered_to]);
    pass(6500);
    CHECK(e->starts == 2 && e->place == PLACE_ACKED);
    (void)a;
    finish();
}

TEST(whoever_has_a_place_takes_over_in_time_however_many_are_busy)
{
    struct sim_entry *entries[20];

    for (uint64_t seed = 1; seed <= 20; seed++) {
        begin();
        sim.random = seed;
        for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
            (void)up(NULL, 1, 0);
            entries[i] = entry(PLAN_GOOD, 60000);
        }
        pass(3000);
        (void)up("free", 1, 0);
        pass(3000);
        crash(sim.nodes[entries[0]->delivered_to]);
        pass(6500);
        CHECK(entries[0]->starts == 2);
        finish();
    }
}

TEST(all_who_have_a_place_take_over_at_once)
{
    struct sim_entry *entries[10];

    begin();
    struct node *node = up("a", 10, 0);
    pass(1000);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        entries[i] = entry(PLAN_GOOD, 60000);
    }
    pass(1000);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        (void)up(NULL, 1, 0);
    }
    pass(3000);
    crash(node);
    pass(6500);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        CHECK(entries[i]->starts == 2);
    }
    finish();
}

TEST(what_a_dead_worker_leaves_keeps_every_place_busy)
{
    enum { COUNT = 100, WORKERS = 4, EACH_MS = 500 };
    struct sim_entry *entries[COUNT];

    begin();
    struct node *node = up("a", COUNT, 0);
    pass(1000);
    for (size_t i = 0; i < COUNT; i++) {
        entries[i] = entry(PLAN_GOOD, 60000);
    }
    pass(1000);
    for (size_t i = 0; i < WORKERS; i++) {
        (void)up(NULL, 1, 0);
    }
    pass(3000);
    crash(node);
    for (size_t i = 0; i < COUNT; i++) {
        entries[i]->handler_ms = EACH_MS;
    }
    pass(6500 + COUNT * EACH_MS / WORKERS * 5 / 4);
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(entries[i]->starts == 2 && entries[i]->place == PLACE_ACKED);
    }
    finish();
}

TEST(two_sweeps_with_the_same_verdict_claim_once)
{
    for (int64_t late_ms = 500; late_ms <= 4000; late_ms += 500) {
        begin();
        struct node *a = up("a", 1, 0);
        pass(200);
        struct sim_entry *e = entry(PLAN_GOOD, 30000);
        pass(200);
        CHECK(e->starts == 1);
        struct node *b = up("b", 1, 0);
        struct node *c = up("c", 1, 0);
        pass(1000);
        crash(a);
        /* What b decides while a looks dead arrives when c has long begun. */
        sim_run_until(&sim, sim.now_ms + 4800);
        net_silence(&sim, b, sim.now_ms + late_ms);
        pass(20000);
        CHECK(e->starts == 2);
        CHECK(e->burns == 1);
        CHECK(node_alive(b) && node_alive(c));
        finish();
    }
}

TEST(an_entry_that_kills_workers_takes_no_neighbour_along)
{
    struct sim_entry *good[15];
    int lives = 0;

    begin();
    sim.options.policy.backoff_base_ms = 100;
    struct sim_entry *killer = entry(PLAN_KILLER, 30);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        good[i] = entry(PLAN_GOOD, 400);
    }
    struct node *node = up(NULL, 4, 8);
    while (killer->place != PLACE_PARKED) {
        pass(100);
        CHECK(sim.now_ms < 300000);
        if (!node_alive(node)) {
            lives++;
            node = up(NULL, 4, 8);
        }
        CHECK(lives <= 5);
    }
    CHECK(lives == 5);
    CHECK(killer->starts == 5);
    CHECK(bytes_equal(last_record_field(5), bytes_of("max-deliveries")));
    finish();
    /* finish() saw that nobody was parked because of its neighbours. */
}

TEST(a_last_attempt_alone_keeps_the_others_waiting_only_while_it_runs)
{
    begin();
    sim.options.policy.max_deliveries = 2;
    struct node *a = up("a", 2, 2);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 3000);
    pass(200);
    crash(a);
    (void)up("b", 2, 2);
    struct sim_entry *others[10];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        others[i] = entry(PLAN_GOOD, 500);
    }
    pass(30000);
    CHECK(e->place == PLACE_ACKED);
    CHECK(e->starts == 2);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        CHECK(others[i]->place == PLACE_ACKED);
    }
    finish();
}

/* ---- a worker sleeps, or is given a name that is in use ---- */

TEST(who_slept_long_starts_nothing_from_its_buffer)
{
    struct sim_entry *entries[5];

    begin();
    struct node *a = up("a", 1, 8);
    pass(200);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        entries[i] = entry(PLAN_GOOD, 2000);
    }
    pass(500);
    CHECK(worker_held(a->machine).buffered >= 1);
    int64_t started = entries[1]->starts;
    node_pause(&sim, a, 60000);
    (void)up("b", 4, 0);
    pass(59000);
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        CHECK(entries[i]->place == PLACE_ACKED);
    }
    CHECK(entries[1]->starts == started + 1);
    pass(5000); /* a wakes */
    for (size_t i = 1; i < ARRAY_SIZE(entries); i++) {
        CHECK(entries[i]->starts == 1);
    }
    CHECK(node_alive(a));
    finish();
}

TEST(a_short_sleep_loses_nothing)
{
    begin();
    struct node *a = up("a", 1, 0);
    (void)up("b", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 20000);
    pass(200);
    struct node *holder = sim.nodes[e->delivered_to];
    for (int i = 0; i < 4; i++) {
        node_pause(&sim, holder, 3500);
        pass(5000);
    }
    CHECK(e->starts == 1);
    CHECK(node_alive(a));
    finish();
}

TEST(a_long_sleep_takes_nothing_off_a_handlers_timeout)
{
    struct worker_options options;

    begin();
    node_options(&sim, &options);
    options.timeout_ms = 60000;
    CHECK(node_start(&sim, "a", &options) != NULL);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 90000);
    pass(10000);
    node_pause(&sim, sim.nodes[e->delivered_to], 70000);
    pass(100000);
    CHECK(e->place == PLACE_ACKED);
    CHECK(e->starts == 1);
    finish();
}

TEST(who_slept_while_waiting_for_its_own_dead_name_still_gets_it)
{
    begin();
    struct node *first = up("a", 1, 0);
    pass(2000);
    crash(first);
    pass(200);
    struct node *second = up("a", 1, 0);
    pass(1000);
    node_pause(&sim, second, 60000);
    pass(75000);
    CHECK(node_alive(second));
    struct sim_entry *e = entry(PLAN_GOOD, 100);
    pass(2000);
    CHECK(e->place == PLACE_ACKED && e->delivered_to == second->index);
    finish();
}

TEST(a_name_given_twice_is_refused_to_the_second)
{
    begin();
    struct node *first = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 30000);
    pass(200);
    struct node *second = up("a", 1, 0);
    pass(15000);
    CHECK(!node_alive(second));
    CHECK(second->exit_code == 1);
    CHECK(node_alive(first));
    CHECK(e->starts == 1);
    finish();
}

TEST(who_slept_while_its_name_was_taken_stops_at_once)
{
    begin();
    struct node *first = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 15000);
    pass(200);
    node_pause(&sim, first, 20000);
    struct node *second = up("a", 1, 0);
    pass(12000);
    CHECK(e->starts == 2); /* the second found it under its own name */
    CHECK(e->delivered_to == second->index);
    pass(15000);
    CHECK(!node_alive(first));
    CHECK(first->exit_code == 1);
    CHECK(node_alive(second));
    finish();
}

TEST(who_slept_while_its_name_was_taken_and_left_goes_on)
{
    begin();
    struct node *first = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 5000);
    pass(200);
    node_pause(&sim, first, 20000);
    struct node *second = up("a", 1, 0);
    pass(12000);
    CHECK(e->starts == 2 && e->place == PLACE_ACKED);
    node_stop(&sim, second);
    pass(2000);
    CHECK(!node_alive(second) && second->exit_code == 0);
    pass(8000); /* the first wakes, with its handler just done */
    CHECK(node_alive(first));
    CHECK_U64(first->late_reports, 1);
    struct sim_entry *next = entry(PLAN_GOOD, 10);
    pass(1000);
    CHECK(next->place == PLACE_ACKED && next->delivered_to == first->index);
    finish();
}

TEST(who_slept_while_its_consumer_was_deleted_goes_on)
{
    begin();
    struct node *a = up("a", 1, 0);
    struct node *b = up("b", 1, 0);
    pass(3000);
    node_pause(&sim, a, 30000);
    pass(20000);
    struct model_group *group =
        stream_group(state_stream(&sim.model.state, bytes_of("s0")), sim_group());
    CHECK(group_consumer(group, bytes_of("a")) == NULL);
    CHECK(group_consumer(group, bytes_of("b")) != NULL);
    pass(15000);
    crash(b);
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    pass(1000);
    CHECK(e->starts == 1 && e->delivered_to == a->index);
    finish();
}

TEST(a_restart_under_the_same_name_goes_on_with_what_is_its_own)
{
    begin();
    struct node *first = up("a", 2, 4);
    pass(200);
    struct sim_entry *e[4];
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        e[i] = entry(PLAN_GOOD, 1000);
    }
    pass(100);
    crash(first);
    (void)up("a", 2, 4);
    pass(15000);
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        CHECK(e[i]->place == PLACE_ACKED);
    }
    finish();
}

int main(int argc, char **argv)
{
    return schedules_main(argc, argv);
}
