/* test_worker_renew.c -- beats, renewals, fences: what keeps an entry ours, and what ends that. */
#include "hand.h"

static void run_one(uint64_t ms, const struct worker_options *options)
{
    hand_start(options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, ms, 1);
    CHECK(hand_running(ms) != NULL);
}

static void keep_beating(int64_t ms)
{
    while (ms > 0) {
        int64_t step = ms < 200 ? ms : 200;
        hand_advance(step);
        hand_ok_all(REQUEST_BEAT);
        hand_ok_all(REQUEST_LOOK);
        ms -= step;
    }
}

TEST(beats_go_out_on_time_whether_answered_or_not)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_advance(5000);
    CHECK(hand_count(REQUEST_BEAT) >= 5);
    hand_advance(60000);
    CHECK(hand_count(REQUEST_BEAT) == 8); /* more unanswered ones would say nothing new */
    hand_end();
}

TEST(what_is_held_is_renewed_in_time)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    keep_beating(9000);
    CHECK(hand_count(REQUEST_RENEW) == 0);
    keep_beating(1200);
    struct request *renew = hand_take(REQUEST_RENEW);
    CHECK(renew->items.item_count == 1 && renew->items.items[0].deliveries == 1);
    renew->items.items[0].result = ITEM_DONE;
    hand_reply(renew);
    CHECK(hand.events[EVENT_RENEWED] == 1);
    keep_beating(10200);
    CHECK(hand_count(REQUEST_RENEW) == 1);
    hand_end();
    options.policy.min_idle_ms = 3000; /* a third of it */
    run_one(5, &options);
    keep_beating(1200);
    CHECK(hand_count(REQUEST_RENEW) == 1);
    hand_end();
}

TEST(renewals_are_cut_into_requests_one_after_another)
{
    struct worker_options options = hand_options();
    options.concurrency = 450;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 450);
    keep_beating(10200);
    size_t renewed = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(hand_count(REQUEST_RENEW) == 1);
        struct request *renew = hand_take(REQUEST_RENEW);
        renewed += renew->items.item_count;
        for (size_t j = 0; j < renew->items.item_count; j++) {
            renew->items.items[j].result = ITEM_DONE;
        }
        hand_reply(renew);
    }
    CHECK_U64(renewed, 450);
    CHECK(hand_count(REQUEST_RENEW) == 0);
    hand_end();
}

static struct request *next_renew(void)
{
    keep_beating(10200);
    return hand_take(REQUEST_RENEW);
}

TEST(a_lost_entry_is_cancelled_and_its_retry_is_nobodys)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    struct request *renew = next_renew();
    renew->items.items[0].result = ITEM_LOST;
    hand_reply(renew);
    CHECK(hand.cancelled_count == 1 && hand.cancel_reason[0] == CANCEL_LOST);
    CHECK(!hand_holds(5) && hand.events[EVENT_LOST_ENTRY] == 1);
    CHECK(strstr(hand.text, "alive all the time") != NULL && strstr(hand.text, "20000 ms") != NULL);
    CHECK_U64(worker_held(hand.worker).running, 1);
    hand_outcome(5, OUTCOME_RETRY);
    CHECK(hand_count(REQUEST_PARK) + hand_count(REQUEST_RELEASE) + hand_count(REQUEST_ACK) == 0);
    CHECK_U64(worker_held(hand.worker).running + worker_held(hand.worker).waiting, 0);
    hand_end();
}

TEST(finished_work_is_finished_even_if_it_was_lost)
{
    struct worker_options options = hand_options();
    for (int strict = 0; strict <= 1; strict++) {
        options.strict = strict == 1;
        run_one(5, &options);
        struct request *renew = next_renew();
        renew->items.items[0].result = ITEM_LOST;
        hand_reply(renew);
        hand_outcome(5, OUTCOME_DONE);
        CHECK_U64(hand_count(REQUEST_ACK), strict == 0);
        hand_end();
    }
}

TEST(trimmed_while_running_is_finished_from_memory)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    struct request *renew = next_renew();
    renew->items.items[0].result = ITEM_TRIMMED;
    hand_reply(renew);
    CHECK(hand_holds(5) && hand.cancelled_count == 0);
    hand_outcome(5, OUTCOME_DONE);
    CHECK(hand_count(REQUEST_ACK) == 1);
    hand_end();

    run_one(5, &options);
    renew = next_renew();
    renew->items.items[0].result = ITEM_TRIMMED;
    hand_reply(renew);
    hand_outcome(5, OUTCOME_RETRY); /* nothing to retry with: parked from memory */
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(bytes_equal(park->items.items[0].reason, bytes_of("trimmed")));
    CHECK(park->items.items[0].copy != NULL);
    hand_reply(park);
    hand_end();
}

TEST(trimmed_while_it_waits_is_lost_work)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome_of(hand_running(5), OUTCOME_RETRY, 600000, "");
    struct request *renew = next_renew();
    renew->items.items[0].result = ITEM_TRIMMED;
    hand_reply(renew);
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(park->items.items[0].copy == NULL);
    park->items.items[0].result = ITEM_TRIMMED;
    hand_reply(park);
    CHECK(hand.events[EVENT_LOST_WORK] == 1 && hand.last[EVENT_LOST_WORK].id.ms == 5);
    CHECK(!hand_holds(5));
    hand_end();
}

TEST(an_answer_about_an_earlier_delivery_is_not_believed)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    run_one(5, &options);
    hand_outcome_of(hand_running(5), OUTCOME_RETRY, 10500, "");
    struct request *renew = next_renew(); /* with deliveries 1 */
    keep_beating(1000);
    hand_ok_all(REQUEST_READ);
    hand_tick();
    hand_ok(REQUEST_RETRY); /* now 2 */
    CHECK(hand_running(5) != NULL);
    renew->items.items[0].result = ITEM_LOST;
    hand_reply(renew);
    CHECK(hand_holds(5) && hand.cancelled_count == 0);
    hand_end();
}

TEST(after_a_sleep_all_is_renewed_before_a_handler_starts)
{
    struct worker_options options = hand_options();
    options.prefetch = 3;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 4);
    CHECK(hand_running(1) != NULL && worker_held(hand.worker).buffered == 3);
    hand.now_ms += 4000; /* asleep: no tick */
    hand_outcome(1, OUTCOME_DONE);
    CHECK(hand_running(2) == NULL);
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    hand_ok_all(REQUEST_LOOK);
    hand_tick();
    CHECK(hand_running(2) == NULL); /* a fresh beat alone does not do */
    struct request *renew = hand_take(REQUEST_RENEW);
    CHECK_U64(renew->items.item_count, 4);
    for (size_t i = 0; i < 4; i++) {
        bool taken = renew->items.items[i].id.ms == 2; /* by a peer, meanwhile */
        renew->items.items[i].result = taken ? ITEM_LOST : ITEM_DONE;
    }
    hand_reply(renew);
    CHECK(hand.events[EVENT_LOST_ENTRY] == 1 && hand.text[0] == '\0'); /* rightly taken */
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    hand_tick();
    CHECK(hand_running(2) == NULL && !hand_holds(2));
    CHECK(hand_running(3) != NULL);
    hand_end();
}

TEST(after_a_broken_connection_all_is_renewed_before_a_handler_starts)
{
    static const enum request_kind kinds[] = {REQUEST_BEAT, REQUEST_READ};
    struct worker_options options = hand_options();
    options.prefetch = 3;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        hand_start(&options);
        hand_ready();
        hand_deliver(hand_take(REQUEST_READ), 0, 1, 2);
        keep_beating(400);
        hand_outcome(1, OUTCOME_DONE);
        hand_ok_all(REQUEST_ACK);
        CHECK(hand_running(2) != NULL);
        hand_deliver(hand_take(REQUEST_READ), 0, 3, 1);
        hand_advance(800);
        while (hand_count(kinds[i]) > 0) {
            hand_fail(hand_take(kinds[i]), IMPEL_ERR_DISCONNECTED);
        }
        hand_outcome(2, OUTCOME_DONE);
        hand_tick();
        CHECK(hand_running(3) == NULL);
        for (int step = 0; step < 20 && hand_count(REQUEST_RENEW) == 0; step++) {
            hand_advance(100);
            hand_ok_all(REQUEST_BEAT);
        }
        CHECK(hand_running(3) == NULL);
        hand_ok_all(REQUEST_RENEW);
        hand_tick();
        CHECK(hand_running(3) != NULL);
        hand_end();
    }
}

TEST(a_read_answered_before_the_sleep_is_as_old_as_the_sleep)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    hand.now_ms += 60000;
    hand_tick(); /* the gap is noticed; then the old answer is read */
    hand_deliver(read, 0, 5, 1);
    hand_ok_all(REQUEST_BEAT);
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    hand_tick();
    CHECK(hand_running(5) == NULL);
    struct request *renew = hand_take(REQUEST_RENEW);
    renew->items.items[0].result = ITEM_LOST;
    hand_reply(renew);
    CHECK(!hand_holds(5) && hand.started_count == 0);
    hand_end();
}

TEST(what_waited_since_its_start_may_begin_only_if_it_is_ours_for_sure)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    struct delivery *waits = hand_running(5);
    CHECK(worker_may_begin(hand.worker, waits, hand.now_ms));
    hand.now_ms += (int64_t)3600 * 1000; /* it slept, and the first to wake is not the machine */
    CHECK(!worker_may_begin(hand.worker, waits, hand.now_ms));
    hand_tick();
    struct request *renew = hand_take(REQUEST_RENEW);
    hand_ok_all(REQUEST_BEAT);
    CHECK(!worker_may_begin(hand.worker, waits, hand.now_ms));
    renew->items.items[0].result = ITEM_DONE;
    hand_reply(renew);
    CHECK(worker_may_begin(hand.worker, waits, hand.now_ms));
    worker_disconnected(hand.worker, hand.now_ms);
    CHECK(!worker_may_begin(hand.worker, waits, hand.now_ms));
    hand_tick();
    renew = hand_take(REQUEST_RENEW);
    renew->items.items[0].result = ITEM_LOST;
    hand_reply(renew);
    CHECK(!worker_may_begin(hand.worker, waits, hand.now_ms));
    CHECK(hand.cancelled_count == 1);
    hand_outcome_of(waits, OUTCOME_RELEASE, -1, "");
    CHECK(hand_count(REQUEST_RELEASE) == 0);
    hand_end();
}

TEST(a_fenced_request_beats_and_renews_first)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_fail(next_renew(), IMPEL_ERR_FENCED);
    CHECK(hand_holds(5));
    hand_tick();
    struct request *beat = hand_take(REQUEST_BEAT);
    hand_advance(500);
    CHECK(hand_count(REQUEST_RENEW) == 0);
    beat->beat.result = BEAT_REVIVED;
    hand_reply(beat);
    hand_advance(500);
    CHECK(hand_count(REQUEST_RENEW) == 1);
    hand_end();
}

TEST(revived_renews_all)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_advance(1001);
    struct request *beat = hand_take(REQUEST_BEAT);
    beat->beat.result = BEAT_REVIVED;
    hand_reply(beat);
    hand_tick();
    CHECK(hand_count(REQUEST_RENEW) == 1);
    hand_end();
}

TEST(a_failed_renewal_is_made_again_in_time_and_not_at_once)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_fail(next_renew(), IMPEL_ERR_DISCONNECTED);
    size_t submitted = hand.submitted;
    hand_tick();
    CHECK(hand.submitted == submitted);
    keep_beating(2000);
    CHECK(hand_count(REQUEST_RENEW) == 1);
    hand_end();
}

TEST(replaced_stops_at_once_and_writes_nothing_more)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_advance(1001);
    struct request *beat = hand_take(REQUEST_BEAT);
    beat->beat.result = BEAT_OCCUPIED;
    hand_reply(beat);
    CHECK(hand.events[EVENT_REPLACED] == 1);
    CHECK(hand.cancelled_count == 1 && hand.cancel_reason[0] == CANCEL_LOST);
    CHECK(!hand.stopped); /* its handler is not over */
    size_t submitted = hand.submitted;
    hand_outcome(5, OUTCOME_DONE);
    hand_advance(5000);
    CHECK(hand.stopped && hand.exit_code == 1);
    CHECK(hand.submitted == submitted);
    hand_end();
}

TEST(replaced_is_also_what_a_fenced_request_may_say)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_advance(1001);
    hand_fail(hand_take(REQUEST_LOOK), IMPEL_ERR_REPLACED);
    CHECK(hand.events[EVENT_REPLACED] == 1 && hand.stopped && hand.exit_code == 1);
    hand_end();
}

static void occupied(int64_t wait_ms)
{
    struct request *beat = hand_take(REQUEST_BEAT);
    beat->beat.result = BEAT_OCCUPIED;
    beat->beat.wait_ms = wait_ms;
    hand_reply(beat);
}

TEST(a_name_of_a_dead_worker_is_waited_for)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    occupied(5000);
    CHECK(hand.events[EVENT_NAME_TAKEN] == 1 && hand.last[EVENT_NAME_TAKEN].delay_ms == 5000);
    for (int i = 0; i < 4; i++) {
        hand_advance(1100);
        occupied(5000 - 1100 * (i + 1));
    }
    hand_advance(1100);
    hand_ok(REQUEST_BEAT);
    CHECK(hand.events[EVENT_STARTED] == 1 && hand.events[EVENT_NAME_TAKEN] == 1);
    hand_end();
}

TEST(a_name_of_a_live_worker_is_not_waited_for_for_ever)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    for (int i = 0; i < 20 && !hand.stopped; i++) {
        occupied(5000);
        hand_advance(1100);
    }
    CHECK(hand.stopped && hand.exit_code == 1);
    CHECK(hand.now_ms - 1000000 >= 5000);
    hand_end();
}

TEST(an_exclusive_name_is_not_waited_for_and_leaves_no_row)
{
    struct worker_options options = hand_options();
    struct impel_bytes streams[] = {bytes_of("a"), bytes_of("b")};
    options.streams = options.dead_letters = streams;
    options.stream_count = 2;
    options.name_exclusive = true;
    hand_start(&options);
    hand_ok_all(REQUEST_GROUP_CREATE);
    hand_tick();
    hand_reply(hand_take_of(REQUEST_BEAT, "a"));
    struct request *beat = hand_take_of(REQUEST_BEAT, "b");
    beat->beat.result = BEAT_OCCUPIED;
    hand_reply(beat);
    CHECK(hand.events[EVENT_NAME_TAKEN] == 1 && !hand.stopped);
    for (int i = 0; i < 5; i++) {
        hand_ok_all(REQUEST_PENDING);
        hand_ok_all(REQUEST_LOOK);
        hand_ok_all(REQUEST_RELEASE);
        hand_tick();
    }
    CHECK(hand_count(REQUEST_LEAVE) == 1);
    hand_ok(REQUEST_LEAVE);
    CHECK(hand.stopped && hand.exit_code == 1);
    hand_end();
}

TAP_MAIN
