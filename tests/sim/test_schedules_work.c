/* test_schedules_work.c -- single schedules, continued: answers that are late or lost, handlers of all
 * kinds, people and programs that interfere, sweeps and workers at rest. */
#include "sim/schedule.h"

/* ---- answers on their way ---- */

TEST(a_stop_while_the_read_is_served_burns_nothing)
{
    for (int64_t offset_ms = -12; offset_ms <= 12; offset_ms++) {
        begin();
        struct node *a = up("a", 1, 0);
        pass(3000);
        struct sim_entry *e = NULL;
        if (offset_ms < 0) {
            e = entry(PLAN_GOOD, 10);
            pass(-offset_ms);
            node_stop(&sim, a);
        } else {
            node_stop(&sim, a);
            pass(offset_ms);
            e = entry(PLAN_GOOD, 10);
        }
        pass(2000);
        CHECK(!node_alive(a));
        CHECK(a->exit_code == 0);
        (void)up("b", 1, 0);
        pass(3000);
        CHECK(e->place == PLACE_ACKED);
        CHECK(e->starts == 1);
        CHECK(e->burns == 0);
        finish();
    }
}

TEST(an_answer_that_is_late_is_not_adopted_away)
{
    begin();
    struct node *a = up("a", 2, 0);
    pass(3000);
    a->reply_ms[0] = sim.now_ms + 8000; /* only what its reads bring is late */
    struct sim_entry *e = entry(PLAN_GOOD, 1000);
    pass(20);
    CHECK(e->place == PLACE_PENDING);
    pass(7000);
    CHECK(e->starts == 0);
    pass(3000);
    CHECK(e->starts == 1);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(an_answer_that_is_lost_is_adopted)
{
    begin();
    struct node *a = up("a", 2, 0);
    pass(3000);
    a->reply_ms[0] = sim.now_ms + 8000;
    struct sim_entry *e = entry(PLAN_GOOD, 1000);
    pass(20);
    CHECK(e->place == PLACE_PENDING);
    net_cut(&sim, a, sim.now_ms, false);
    pass(10000);
    CHECK(e->starts == 1);
    CHECK(e->burns == 1); /* the store counted a delivery that nobody got */
    CHECK(e->place == PLACE_ACKED);
    finish();
}

/* a rejects the entry, but its park is on its way until 12.7 s. Meanwhile b takes the entry, and gives
 * it back uncounted: it has the count again that a saw. If `c_takes_it`, c has it by then. */
static void late_park(bool c_takes_it)
{
    begin();
    struct node *a = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_REJECT, 1000);
    pass(500);
    CHECK(e->starts == 1);
    net_silence(&sim, a, sim.now_ms + 12000);
    struct node *b = up("b", 1, 0);
    e->handler_ms = 60000;
    pass(8000);
    CHECK(e->starts == 2);
    node_stop(&sim, b);
    pass(2000);
    CHECK(!node_alive(b));
    if (c_takes_it) {
        struct node *c = up("c", 1, 0);
        pass(1000);
        CHECK(e->delivered_to == c->index);
        pass(1000);
    } else {
        pass(2000);
    }
    pass(10); /* the park has come */
    CHECK(node_alive(a));
    CHECK(e->place == PLACE_PENDING);
    CHECK(e->parks == 0);
    finish();
}

TEST(a_former_holders_late_park_does_nothing_to_a_released_entry)
{
    late_park(false);
}

TEST(a_former_holders_late_park_does_nothing_to_the_next_holder)
{
    late_park(true);
}

/* ---- handlers ---- */

TEST(a_slow_and_healthy_handler_runs_once)
{
    begin();
    sim.options.policy.min_idle_ms = 15000;
    (void)up("a", 1, 0);
    (void)up("b", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 60000);
    pass(200);
    CHECK(e->starts == 1);
    others_foreign_start(&sim, 0, 15000);
    pass(61000);
    CHECK(e->starts == 1);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(a_wedged_handler_is_retried_and_its_place_is_not_given_away)
{
    struct worker_options options;

    begin();
    node_options(&sim, &options);
    options.concurrency = 2;
    options.prefetch = 0;
    options.timeout_ms = 5000;
    CHECK(node_start(&sim, "a", &options) != NULL);
    pass(200);
    struct sim_entry *e = entry(PLAN_WEDGE_ONCE, 100);
    struct sim_entry *other = entry(PLAN_GOOD, 100);
    pass(4000);
    CHECK(e->starts == 1 && e->place == PLACE_PENDING);
    CHECK(other->place == PLACE_ACKED);
    pass(5000);
    CHECK(e->starts == 2);
    CHECK(e->failures == 1);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(poison_is_tried_as_often_as_said_with_its_waits_and_parked_once)
{
    begin();
    (void)up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_POISON, 10);
    struct sim_entry *others[20];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        others[i] = entry(PLAN_GOOD, 10);
    }
    pass(1000);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        CHECK(others[i]->place == PLACE_ACKED); /* nobody waits behind it */
    }
    int64_t least_ms = 1000 + 2000 + 4000 + 8000;
    pass(least_ms - 1500);
    CHECK(e->place == PLACE_PENDING);
    pass(least_ms / 10 + 3000);
    CHECK(e->place == PLACE_PARKED);
    CHECK(e->starts == 5);
    CHECK(bytes_equal(last_record_field(5), bytes_of("max-deliveries")));
    CHECK(bytes_equal(last_record_field(4), bytes_of("it failed")));
    finish();
}

static void pass_until_it_failed_again(const struct sim_entry *e)
{
    for (int64_t failures = e->failures; e->failures == failures; pass(100)) {
        CHECK(sim.now_ms < 120000);
    }
}

TEST(poison_comes_to_its_limit_however_often_workers_are_replaced)
{
    int lives = 0;

    begin();
    struct sim_entry *e = entry(PLAN_POISON, 10);
    while (e->place != PLACE_PARKED) {
        struct node *node = up(NULL, 1, 0);
        pass_until_it_failed_again(e);
        node_stop(&sim, node); /* while it waits for its retry */
        pass(1500);
        CHECK(!node_alive(node) && node->exit_code == 0);
        lives++;
    }
    CHECK(lives == 5 && e->starts == 5);
    /* The simulator saw that it waited each time as long as it had to. */
    finish();
}

TEST(what_waits_for_its_retry_keeps_nobody_from_reading)
{
    struct sim_entry *waiting[16];

    begin();
    sim.options.policy.backoff_base_ms = sim.options.policy.backoff_cap_ms = 60000;
    (void)up("a", 2, 2);
    pass(200);
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
        waiting[i] = entry(PLAN_POISON, 10);
    }
    pass(1000);
    for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
        CHECK(waiting[i]->failures == 1);
    }
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    pass(200);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(a_clean_stop_gives_everything_back)
{
    begin();
    struct node *a = up("a", 1, 6);
    pass(200);
    struct sim_entry *e[8];
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        e[i] = entry(PLAN_GOOD, 700);
    }
    pass(300);
    node_stop(&sim, a);
    pass(3000);
    CHECK(!node_alive(a));
    CHECK(a->exit_code == 0);
    CHECK(e[0]->place == PLACE_ACKED); /* within the grace */
    (void)up("b", 4, 0);
    pass(3000);
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        CHECK(e[i]->place == PLACE_ACKED);
        CHECK(e[i]->starts == 1);
    }
    finish();
}

TEST(what_was_given_back_is_anybodys_even_if_the_stop_is_killed)
{
    begin();
    struct node *a = up("a", 1, 6);
    pass(200);
    struct sim_entry *e[5];
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        e[i] = entry(PLAN_GOOD, 3000);
    }
    pass(300);
    CHECK(worker_held(a->machine).buffered == 4);
    node_stop(&sim, a);
    pass(100);
    crash(a); /* its row is still there */
    (void)up("b", 4, 0);
    pass(2000);
    CHECK(e[0]->starts == 1); /* it was running: that is for a death to settle */
    for (size_t i = 1; i < ARRAY_SIZE(e); i++) {
        CHECK(e[i]->starts == 1 && e[i]->burns == 0);
    }
    pass(10000);
    CHECK(e[0]->starts == 2 && e[0]->place == PLACE_ACKED);
    finish();
}

TEST(a_stop_while_the_store_is_full_ends_at_once_and_loses_nothing)
{
    begin();
    struct node *a = up("a", 1, 6);
    pass(200);
    struct sim_entry *e[4];
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        e[i] = entry(PLAN_GOOD, 700);
    }
    pass(300);
    fault_refuse(&sim, true, 5000);
    node_stop(&sim, a);
    pass(3000);
    CHECK(!node_alive(a));
    CHECK(a->exit_code == 1);
    CHECK(e[0]->place == PLACE_ACKED); /* it was in hand, and acks are taken */
    for (size_t i = 1; i < ARRAY_SIZE(e); i++) {
        CHECK(e[i]->place == PLACE_PENDING && e[i]->starts == 0);
    }
    (void)up("b", 4, 0);
    pass(20000);
    for (size_t i = 0; i < ARRAY_SIZE(e); i++) {
        CHECK(e[i]->place == PLACE_ACKED && e[i]->starts == 1);
    }
    finish();
}

TEST(a_second_stop_ends_the_grace)
{
    begin();
    struct node *a = up("a", 1, 0);
    a->options.grace_ms = 1000;
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 60000);
    pass(300);
    CHECK(e->starts == 1);
    node_stop(&sim, a);
    node_stop(&sim, a);
    pass(500); /* less than the grace */
    CHECK(!node_alive(a));
    finish();
}

/* ---- others interfere ---- */

TEST(an_entry_trimmed_while_it_runs_is_finished_from_memory)
{
    begin();
    struct node *a = up("a", 4, 0);
    sim.options.policy.min_idle_ms = 60000;
    pass(200);
    struct sim_entry *done = entry(PLAN_GOOD, 25000);
    struct sim_entry *rejected = entry(PLAN_REJECT, 25000);
    struct sim_entry *failed = entry(PLAN_FLAKY, 26000);
    failed->fails = 1;
    pass(500);
    CHECK(done->starts == 1 && rejected->starts == 1 && failed->starts == 1);
    others_trim(&sim, 0, 0);
    pass(30000);
    CHECK(done->starts == 1 && done->place == PLACE_ACKED);
    CHECK(rejected->place == PLACE_PARKED);
    CHECK(failed->place == PLACE_PARKED && failed->starts == 1); /* there is no trying again */
    CHECK(bytes_equal(last_record_field(5), bytes_of("trimmed")));
    CHECK(bytes_equal(last_record_field(4), bytes_of("it failed")));
    CHECK(node_alive(a));
    finish();
}

TEST(what_a_dead_worker_held_and_was_trimmed_is_reported)
{
    begin();
    struct node *a = up("a", 1, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 60000);
    pass(200);
    crash(a);
    others_trim(&sim, 0, 0);
    struct node *b = up("b", 1, 0);
    struct sim_entry *next = entry(PLAN_GOOD, 10);
    pass(12000);
    CHECK(e->place == PLACE_LOST);
    CHECK_U64(b->lost_reports, 1);
    CHECK(next->place == PLACE_ACKED);
    finish();
}

TEST(what_a_stranger_leaves_is_taken_after_min_idle)
{
    begin();
    sim.strangers_die = sim.any_fault = true;
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    CHECK_U64(others_foreign_read(&sim, 0, "stranger", 1), 1);
    (void)up("a", 1, 0);
    pass(59000);
    CHECK(e->starts == 0);
    pass(5000);
    CHECK(e->starts == 1);
    CHECK(e->place == PLACE_ACKED);
    finish();
}

TEST(a_stranger_at_its_last_delivery_has_its_time_as_well)
{
    begin();
    sim.strangers_die = sim.any_fault = true;
    sim.options.policy.max_deliveries = 1;
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    CHECK_U64(others_foreign_read(&sim, 0, "stranger", 1), 1);
    (void)up("a", 1, 0);
    pass(59000);
    CHECK(e->place == PLACE_PENDING);
    pass(5000);
    CHECK(e->place == PLACE_PARKED && e->starts == 0);
    finish();
}

TEST(what_a_stranger_took_while_the_clock_was_ahead_is_taken_once_it_is_there_again)
{
    begin();
    sim.strangers_die = sim.any_fault = sim.options.foreigners = true;
    fault_clock(&sim, 3600000);
    struct sim_entry *e = entry(PLAN_GOOD, 10);
    CHECK_U64(others_foreign_read(&sim, 0, "stranger", 1), 1);
    fault_clock(&sim, -3600000);
    (void)up("a", 1, 0);
    pass(70000);
    CHECK(e->starts == 0); /* how long it has been idle nobody can tell */
    finish();
}

TEST(a_late_done_does_not_touch_a_new_entry_of_the_same_id)
{
    static const struct impel_field field = {{"f", 1}, {"v", 1}};

    begin();
    struct node *a = up("a", 1, 0);
    pass(200);
    sim.stubborn = true;
    struct sim_entry *before = entry(PLAN_GOOD, 8000);
    pass(500);
    CHECK(before->starts == 1);
    /* The stream is deleted and made again with an entry of that very ID. */
    const struct impel_bytes words[] = {bytes_of("DEL"), bytes_of("s0")};
    struct request *request = request_new(REQUEST_CALL);
    request->call.args = words;
    request->call.arg_count = 2;
    sim.rolled_ms = sim.now_ms; /* the table went with it */
    sim.streams[0].moved_ms = sim.now_ms;
    sim.streams[0].count = 0;
    net_apply(&sim, request, true);
    request_free(request);
    struct sim_entry *after = check_add(&sim, 0, before->id);
    after->plan = PLAN_GOOD;
    after->handler_ms = 30000;
    after->loose = true;
    request = request_new(REQUEST_ADD);
    request->stream = bytes_of("s0");
    request->add.id = before->id;
    request->add.fields = &field;
    request->add.field_count = 1;
    request->add.length_max = -1;
    net_apply(&sim, request, true);
    CHECK(request->status == IMPEL_OK);
    request_free(request);
    pass(20000); /* the old handler has ended long ago */
    CHECK(after->starts == 1);
    CHECK(after->place == PLACE_PENDING);
    CHECK(node_alive(a));
    finish();
}

TEST(an_id_in_hand_is_not_started_again)
{
    begin();
    struct node *a = up("a", 3, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 20000);
    pass(200);
    CHECK(e->starts == 1);
    fault_group_set(&sim, 0, ID_MIN); /* by hand, while it runs: the same worker reads it anew */
    (void)entry(PLAN_GOOD, 10);       /* which wakes its read */
    pass(15000);
    CHECK(e->starts == 1);
    pass(10000);
    CHECK(e->starts == 1 && e->place == PLACE_ACKED);
    CHECK(node_alive(a));
    finish();
}

TEST(a_destroyed_group_is_made_again_and_read_from_the_start)
{
    begin();
    struct node *a = up("a", 2, 0);
    pass(200);
    struct sim_entry *done = entry(PLAN_GOOD, 10);
    pass(200);
    struct sim_entry *running = entry(PLAN_GOOD, 5000);
    pass(200);
    CHECK(done->place == PLACE_ACKED && running->starts == 1);
    fault_group_destroy(&sim, 0);
    pass(30000);
    CHECK(running->place == PLACE_ACKED);
    CHECK(running->starts == 2);
    CHECK(node_alive(a));
    finish();
}

/* ---- others ---- */

TEST(a_sweep_without_a_worker_parks_and_drops_but_never_claims)
{
    begin();
    sim.options.policy.max_deliveries = 1;
    struct node *a = up("a", 2, 0);
    pass(200);
    struct sim_entry *e = entry(PLAN_GOOD, 60000);
    pass(200);
    crash(a);
    others_sweep_start(&sim, 0);
    pass(10000);
    CHECK(e->place == PLACE_PARKED);
    pass(5000);
    struct model_group *group =
        stream_group(state_stream(&sim.model.state, bytes_of("s0")), sim_group());
    CHECK(group_consumer(group, bytes_of("a")) == NULL);
    CHECK_U64(group->worker_count, 0);
    finish();
}

TEST(until_idle_ends_when_nothing_is_left)
{
    struct worker_options options;

    begin();
    node_options(&sim, &options);
    options.until_idle = true;
    struct sim_entry *flaky = entry(PLAN_FLAKY, 10);
    flaky->fails = 2;
    struct node *a = node_start(&sim, "a", &options);
    CHECK(a != NULL);
    pass(2000);
    CHECK(node_alive(a)); /* it waits for its retry */
    pass(10000);
    CHECK(flaky->place == PLACE_ACKED);
    CHECK(!node_alive(a));
    CHECK(a->exit_code == 0);
    finish();
}

TEST(at_rest_a_worker_asks_little)
{
    begin();
    (void)up("a", 4, 4);
    pass(5000);
    uint64_t before = sim.requests;
    pass(60000);
    /* A beat and a look a second, a read every two, an audit now and then. */
    CHECK(sim.requests - before < 200);
    finish();
}

TEST(at_rest_a_worker_beats_all_the_same_and_is_never_deleted)
{
    begin();
    struct node *a = up("a", 1, 0);
    struct node *b = up("b", 1, 0);
    pass(5000);
    uint64_t before = sim.asked[REQUEST_BEAT];
    pass(600000);
    uint64_t beats = sim.asked[REQUEST_BEAT] - before;
    const uint64_t workers = 2;
    CHECK(beats >= workers * 590 && beats <= workers * 610);
    struct model_group *group =
        stream_group(state_stream(&sim.model.state, bytes_of("s0")), sim_group());
    CHECK(a->has_row[0] && group_consumer(group, bytes_of("a")) != NULL);
    CHECK(b->has_row[0] && group_consumer(group, bytes_of("b")) != NULL);
    finish();
}

TEST(a_group_is_swept_once_a_second_however_many_its_workers)
{
    begin();
    sim.strangers_die = sim.any_fault = true;
    (void)entry(PLAN_GOOD, 10);
    CHECK_U64(others_foreign_read(&sim, 0, "stranger", 1), 1);
    for (int i = 0; i < 8; i++) {
        (void)up(NULL, 1, 0);
    }
    pass(3000);
    uint64_t before = sim.asked[REQUEST_CLAIM_FROM];
    pass(30000);
    uint64_t walks = sim.asked[REQUEST_CLAIM_FROM] - before;
    CHECK(walks >= 20 && walks <= 31);
    finish();
}

int main(int argc, char **argv)
{
    return schedules_main(argc, argv);
}
