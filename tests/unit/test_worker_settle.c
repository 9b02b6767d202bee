/* test_worker_settle.c -- what follows an outcome: ack, retry, park; timeouts; lost answers. */
#include "hand.h"

static void run_one(uint64_t ms, const struct worker_options *options)
{
    hand_start(options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, ms, 1);
    CHECK(hand_running(ms) != NULL);
}

/* Lets time pass as a store would that takes every beat and renewal. */
static void pass(int64_t ms)
{
    while (ms > 0) {
        int64_t step = ms < 200 ? ms : 200;
        hand_advance(step);
        hand_ok_all(REQUEST_BEAT);
        hand_ok_all(REQUEST_LOOK);
        hand_ok_all(REQUEST_RENEW);
        ms -= step;
    }
}

TEST(a_retry_waits_for_its_backoff_and_is_claimed_from_itself)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_RETRY);
    int64_t backoff_ms = policy_backoff_ms(&options.policy, 1, (struct impel_id){5, 0});
    CHECK(hand.events[EVENT_RETRIED] == 1 && hand.last[EVENT_RETRIED].delay_ms == backoff_ms);
    CHECK(hand_holds(5) && worker_held(hand.worker).waiting == 1);
    pass(backoff_ms - 1);
    CHECK(hand_count(REQUEST_RETRY) == 0);
    hand_reply(hand_take(REQUEST_READ)); /* its place is wanted: it was ended */
    pass(1);
    hand_ok_all(REQUEST_READ);
    pass(1);
    struct request *retry = hand_take(REQUEST_RETRY);
    CHECK(retry->items.item_count == 1 && retry->items.items[0].deliveries == 1);
    retry->items.items[0].result = ITEM_DONE;
    retry->items.items[0].entry = hand_entry(5);
    hand_reply(retry);
    CHECK(hand_running(5) != NULL && hand_running(5)->attempt == 2);
    CHECK(hand.events[EVENT_REDELIVERED] == 1);
    hand_end();
}

TEST(a_delay_longer_than_the_backoff_is_kept)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome_of(hand_running(5), OUTCOME_RETRY, 3600000, "");
    CHECK(hand.last[EVENT_RETRIED].delay_ms == 3600000);
    hand_end();
    run_one(6, &options);
    hand_outcome_of(hand_running(6), OUTCOME_RETRY, 1, "");
    CHECK(hand.last[EVENT_RETRIED].delay_ms >= 1000);
    hand_end();
}

TEST(a_retry_that_is_due_ends_the_blocked_read)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_RETRY);
    CHECK(hand_count(REQUEST_READ) == 1 && hand.unblocked == NULL);
    pass(1200);
    CHECK(hand.unblocked != NULL && hand_count(REQUEST_RETRY) == 0);
    hand_reply(hand_take(REQUEST_READ));
    hand_tick();
    CHECK(hand_count(REQUEST_RETRY) == 1);
    hand_end();
}

TEST(the_last_attempt_is_parked_at_once_with_the_handlers_words)
{
    struct worker_options options = hand_options();
    options.policy.max_deliveries = 1;
    run_one(5, &options);
    hand_outcome(5, OUTCOME_RETRY);
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(park->items.item_count == 1);
    const struct request_item *item = &park->items.items[0];
    CHECK(item->deliveries == 1 && bytes_equal(item->reason, bytes_of("max-deliveries")));
    CHECK(bytes_equal(item->error, bytes_of("it failed")));
    CHECK(bytes_equal(park->items.dead_letter, bytes_of("s:dead")));
    CHECK(item->copy != NULL && bytes_equal(item->copy->fields[0].name, bytes_of("n")));
    CHECK(hand_holds(5));
    park->items.items[0].result = ITEM_DONE;
    hand_reply(park);
    CHECK(!hand_holds(5) && hand.events[EVENT_PARKED] == 1);
    CHECK(strcmp(hand.reason, "max-deliveries") == 0 && strcmp(hand.text, "it failed") == 0);
    hand_end();
}

TEST(a_reject_is_parked_whatever_the_count)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_REJECT);
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(bytes_equal(park->items.items[0].reason, bytes_of("rejected")));
    hand_fail(park, IMPEL_ERR_DISCONNECTED);
    CHECK(hand_holds(5));
    pass(3000);
    park = hand_take(REQUEST_PARK); /* once more, with the same words */
    CHECK(bytes_equal(park->items.items[0].error, bytes_of("it failed")));
    park->items.items[0].result = ITEM_DONE;
    hand_reply(park);
    CHECK(!hand_holds(5));
    hand_end();
}

TEST(a_refused_park_leaves_it_pending_and_is_said_once_a_minute)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_REJECT);
    for (int i = 0; i < 5; i++) {
        struct request *park = hand_take(REQUEST_PARK);
        park->items.items[0].result = ITEM_FAILED;
        snprintf(park->error.text, sizeof(park->error.text), "the key is not a stream");
        hand_reply(park);
        CHECK(hand_holds(5) && hand_count(REQUEST_PARK) == 0);
        pass(8000);
    }
    CHECK_U64(hand.events[EVENT_PARK_FAILED], 1);
    CHECK(strcmp(hand.text, "the key is not a stream") == 0);
    hand_end();
}

TEST(a_park_refused_as_a_whole_is_no_failure_of_the_store)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 2);
    hand_outcome(5, OUTCOME_REJECT);
    for (int i = 0; i < 5; i++) {
        struct request *park = hand_take(REQUEST_PARK);
        snprintf(park->error.text, sizeof(park->error.text), "NOPERM");
        hand_fail(park, IMPEL_ERR_AUTH);
        CHECK(hand_holds(5) && hand_count(REQUEST_PARK) == 0);
        if (i == 0) {
            hand_outcome(6, OUTCOME_DONE); /* the others' work goes on */
            hand_ok(REQUEST_ACK);
        }
        hand_advance(1000);
        hand_ok_all(REQUEST_BEAT);
        CHECK(hand_count(REQUEST_PARK) == 0); /* it is not asked again and again */
        pass(8000);
    }
    CHECK_U64(hand.events[EVENT_PARK_FAILED], 1);
    CHECK_U64(hand.events[EVENT_STORE_ERROR], 0);
    hand_end();
}

TEST(an_ack_whose_answer_is_lost_is_sent_again_and_the_entry_kept)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_DONE);
    hand_fail(hand_take(REQUEST_ACK), IMPEL_ERR_DISCONNECTED);
    CHECK(hand_holds(5) && hand.events[EVENT_STORE_ERROR] == 1);
    CHECK(hand_count(REQUEST_ACK) == 0); /* not at once: no hot loop */
    pass(3000);
    struct request *ack = hand_take(REQUEST_ACK);
    CHECK(ack->ack.items[0].id.ms == 5);
    ack->ack.acked = 0;
    hand_reply(ack);
    CHECK(!hand_holds(5) && hand.events[EVENT_LATE_ACK] == 1 && hand.events[EVENT_STORE_BACK] == 1);
    hand_end();
}

TEST(strict_fences_done)
{
    struct worker_options options = hand_options();
    options.strict = true;
    run_one(5, &options);
    hand_outcome(5, OUTCOME_DONE);
    struct request *ack = hand_take(REQUEST_ACK);
    CHECK(ack->ack.strict && ack->ack.items[0].deliveries == 1);
    ack->ack.items[0].result = ITEM_LOST;
    hand_reply(ack);
    CHECK(hand.events[EVENT_LATE_ACK] == 1 && !hand_holds(5));
    hand_end();
}

TEST(a_timeout_is_an_outcome_and_the_late_one_is_dropped)
{
    struct worker_options options = hand_options();
    options.timeout_ms = 60000;
    options.concurrency = 2;
    run_one(5, &options);
    struct delivery *wedged = hand_running(5);
    uint64_t serial = wedged->serial;
    pass(59999);
    CHECK(hand.events[EVENT_TIMED_OUT] == 0);
    pass(1);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1 && hand.events[EVENT_RETRIED] == 1);
    CHECK(hand.cancelled_count == 1 && hand.cancelled[0] == wedged);
    CHECK(hand.cancel_reason[0] == CANCEL_TIMEOUT);
    CHECK_U64(worker_held(hand.worker).running, 1); /* the place is not free */
    pass(2000);
    hand_ok_all(REQUEST_READ);
    pass(10);
    hand_ok(REQUEST_RETRY);
    struct delivery *again = hand_running(5);
    CHECK(again != wedged && again->attempt == 2 && again->serial != serial);
    CHECK_U64(worker_held(hand.worker).running, 2);
    hand_outcome_of(wedged, OUTCOME_DONE, -1, "");
    CHECK(hand_count(REQUEST_ACK) == 0 && hand_holds(5));
    CHECK_U64(worker_held(hand.worker).running, 1);
    hand_outcome_of(again, OUTCOME_DONE, -1, "");
    CHECK(hand_count(REQUEST_ACK) == 1);
    hand_end();
}

TEST(a_timeout_of_the_last_attempt_parks)
{
    struct worker_options options = hand_options();
    options.timeout_ms = 1000;
    options.policy.max_deliveries = 1;
    run_one(5, &options);
    pass(1000);
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(park->items.items[0].copy != NULL && park->items.items[0].error.size > 0);
    park->items.items[0].result = ITEM_DONE;
    hand_reply(park);
    CHECK(!hand_holds(5) && worker_held(hand.worker).running == 1);
    hand_end();
}

TEST(who_slept_through_a_timeout_gives_the_handler_the_rest_of_it)
{
    struct worker_options options = hand_options();
    options.timeout_ms = 60000;
    run_one(5, &options);
    pass(50000);
    hand.now_ms += (int64_t)3600 * 1000; /* no tick in between: the handler slept too */
    pass(9000);
    CHECK(hand.events[EVENT_TIMED_OUT] == 0 && hand.cancelled_count == 0);
    pass(1001);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1 && hand.cancelled_count == 1);
    hand_end();
}

/* The claim from oneself, once its backoff is over; whether the attempt is to run apart. */
static bool retried_apart(uint64_t ms)
{
    pass(2000);
    hand_ok_all(REQUEST_READ);
    pass(10);
    struct request *retry = hand_take(REQUEST_RETRY);
    retry->items.items[0].result = ITEM_DONE;
    retry->items.items[0].entry = hand_entry(ms);
    hand_reply(retry);
    return hand_running(ms)->apart;
}

TEST(what_may_have_ended_its_process_runs_apart_once)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    CHECK(!hand_running(5)->apart);
    hand_outcome(5, OUTCOME_CRASHED);
    CHECK(hand.events[EVENT_RETRIED] == 1);
    CHECK(retried_apart(5));
    hand_outcome(5, OUTCOME_RETRY); /* it came to an outcome: the other one it was */
    pass(2000);
    CHECK(!retried_apart(5));
    hand_end();
}

TEST(what_timed_out_runs_apart)
{
    struct worker_options options = hand_options();
    options.timeout_ms = 1000;
    options.concurrency = 2;
    run_one(5, &options);
    pass(1000);
    struct delivery *wedged = hand_running(5);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1);
    hand_outcome_of(wedged, OUTCOME_RETRY, -1, "");
    CHECK(retried_apart(5));
    hand_end();
}

TEST(the_last_attempt_runs_apart)
{
    struct worker_options options = hand_options();
    options.policy.max_deliveries = 2;
    run_one(5, &options);
    CHECK(!hand_running(5)->apart);
    hand_outcome(5, OUTCOME_RETRY);
    CHECK(retried_apart(5));
    hand_outcome(5, OUTCOME_CRASHED);
    CHECK(hand_count(REQUEST_PARK) == 1);
    hand_end();
}

TEST(a_crash_after_the_grace_gives_the_attempt_back)
{
    struct worker_options options = hand_options();
    options.grace_ms = 0;
    run_one(5, &options);
    worker_stop(hand.worker, hand.now_ms);
    hand_pump();
    CHECK(hand.cancelled_count == 1 && hand.cancel_reason[0] == CANCEL_STOP);
    hand_outcome(5, OUTCOME_CRASHED);
    CHECK(hand_take(REQUEST_RELEASE)->items.items[0].give_back);
    hand_end();
}

TEST(a_timeout_begins_when_the_handler_does)
{
    struct worker_options options = hand_options();
    options.timeout_ms = 10000;
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 2);
    pass(6000);
    worker_begun(hand.worker, hand_running(5), hand.now_ms);
    pass(4000);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1 && hand.cancelled[0] == hand_running(6));
    pass(5999);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1);
    pass(1);
    CHECK(hand.events[EVENT_TIMED_OUT] == 2 && hand.cancelled[1]->entry->id.ms == 5);
    hand_end();
}

TEST(an_attempt_that_did_not_run_is_given_back)
{
    struct worker_options options = hand_options();
    run_one(5, &options);
    hand_outcome(5, OUTCOME_RELEASE);
    struct request *release = hand_take(REQUEST_RELEASE);
    CHECK(release->items.items[0].give_back && !release->items.rest);
    release->items.items[0].result = ITEM_DONE;
    hand_reply(release);
    CHECK(!hand_holds(5) && hand.events[EVENT_RELEASED] == 1);
    hand_end();
}

TEST(waiting_entries_do_not_stop_reading_until_there_are_too_many)
{
    struct worker_options options = hand_options();
    options.concurrency = 4;
    options.waiting_max = 8;
    hand_start(&options);
    hand_ready();
    for (uint64_t ms = 1; ms <= 8; ms++) {
        hand_deliver(hand_take(REQUEST_READ), 0, ms, 1);
        hand_outcome_of(hand_running(ms), OUTCOME_RETRY, 600000, "");
    }
    CHECK_U64(worker_held(hand.worker).waiting, 8);
    hand_ok_all(REQUEST_READ);
    hand_advance(100);
    CHECK(hand_count(REQUEST_READ) == 0);
    hand_end();
}

TAP_MAIN
