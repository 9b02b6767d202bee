/* test_worker_drain.c -- stopping: nothing is lost, no attempt is burnt, nothing is left behind. */
#include "hand.h"

/* Answers whatever is out, as a healthy store would, until nothing more is asked. */
static void serve(void)
{
    for (int i = 0; i < 50 && hand.out_count > 0; i++) {
        static const enum request_kind kinds[] = {
            REQUEST_BEAT, REQUEST_LOOK,    REQUEST_PENDING, REQUEST_READ,  REQUEST_ACK,
            REQUEST_PARK, REQUEST_RELEASE, REQUEST_RENEW,   REQUEST_RETRY, REQUEST_LEAVE,
        };
        for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
            hand_ok_all(kinds[kind]);
        }
        hand_tick();
    }
}

static void stop(void)
{
    worker_stop(hand.worker, hand.now_ms);
    hand_pump();
    hand_tick();
}

static const struct request_item *item_of(const struct request *request, uint64_t ms)
{
    for (size_t i = 0; i < request->items.item_count; i++) {
        if (request->items.items[i].id.ms == ms) {
            return &request->items.items[i];
        }
    }
    CHECK(!"released");
    return NULL;
}

TEST(each_kind_of_hold_is_given_back_in_its_way)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    options.prefetch = 1;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 3); /* 1 and 2 run, 3 is buffered */
    hand_outcome_of(hand_running(1), OUTCOME_RETRY, 60000, "");
    CHECK(hand_running(3) != NULL);
    hand_deliver(hand_take(REQUEST_READ), 0, 4, 1);
    CHECK(worker_held(hand.worker).buffered == 1);
    hand.now_ms += 700;
    stop();
    CHECK(hand.events[EVENT_STOPPING] == 1);
    struct request *release = hand_take(REQUEST_RELEASE); /* before the grace is over */
    CHECK(release->items.item_count == 2);
    CHECK(item_of(release, 4)->give_back);
    CHECK(!item_of(release, 1)->give_back && item_of(release, 1)->idle_ms == 700);
    release->items.items[0].result = release->items.items[1].result = ITEM_DONE;
    hand_reply(release);
    serve();
    CHECK(!hand.stopped && hand_count(REQUEST_LEAVE) == 0); /* 2 and 3 still run */
    hand_outcome(2, OUTCOME_DONE);
    hand_outcome_of(hand_running(3), OUTCOME_RETRY, 60000, "");
    release = hand_take(REQUEST_RELEASE);
    CHECK(!item_of(release, 3)->give_back && item_of(release, 3)->idle_ms == 0);
    release->items.items[0].result = ITEM_DONE;
    hand_reply(release);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0);
    CHECK(hand.events[EVENT_DONE] == 1 && hand.events[EVENT_RELEASED] == 3);
    hand_end();
}

TEST(what_the_last_read_brings_is_given_back)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    stop();
    CHECK(hand.unblocked == read);
    serve();
    CHECK(!hand.stopped);
    hand_deliver(read, 0, 9, 1);
    CHECK(hand.started_count == 0);
    struct request *release = hand_take(REQUEST_RELEASE);
    CHECK(item_of(release, 9)->give_back);
    release->items.items[0].result = ITEM_DONE;
    hand_reply(release);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TEST(a_read_that_came_back_by_itself_is_not_ended)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    hand_inside = true;
    worker_stop(hand.worker,
                hand.now_ms); /* and before the driver hears of what follows from it: */
    hand_inside = false;
    hand_reply(read);
    CHECK(hand.unblocked == NULL);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TEST(a_handler_that_ended_by_itself_is_not_cancelled)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 2);
    struct delivery *first = hand_running(1);
    struct delivery *second = hand_running(2);
    hand_inside = true;
    worker_stop(hand.worker, hand.now_ms);
    worker_stop(hand.worker, hand.now_ms); /* at once */
    hand_inside = false;
    hand_outcome_of(first, OUTCOME_DONE, -1, "");
    CHECK(hand.cancelled_count == 1 && hand.cancelled[0] == second);
    hand_end();
}

TEST(after_the_grace_handlers_are_cancelled_and_their_attempts_given_back)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    options.grace_ms = 3000;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 2);
    stop();
    for (int i = 0; i < 29; i++) {
        hand_advance(100);
        serve();
    }
    CHECK(hand.cancelled_count == 0);
    hand_advance(100);
    CHECK(hand.cancelled_count == 2 && hand.cancel_reason[0] == CANCEL_STOP);
    hand_outcome(1, OUTCOME_RETRY); /* because it was killed */
    hand_outcome(2, OUTCOME_DONE);  /* it was just about to end */
    struct request *release = hand_take(REQUEST_RELEASE);
    CHECK(item_of(release, 1)->give_back && release->items.item_count == 1);
    release->items.items[0].result = ITEM_DONE;
    hand_reply(release);
    CHECK(hand_count(REQUEST_ACK) == 1);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TEST(who_slept_through_the_grace_still_waits_for_what_was_cancelled)
{
    struct worker_options options = hand_options();
    options.grace_ms = 3000;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    stop();
    serve();
    hand.now_ms += 60000; /* no tick in between */
    hand_advance(0);
    CHECK(hand.cancelled_count == 1 && hand.cancel_reason[0] == CANCEL_STOP);
    CHECK(hand_count(REQUEST_RELEASE) == 0);
    hand_outcome(1, OUTCOME_DONE);
    serve();
    CHECK(hand.events[EVENT_DONE] == 1 && hand.events[EVENT_RELEASED] == 0);
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TEST(a_second_stop_ends_the_grace)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    stop();
    CHECK(hand.cancelled_count == 0);
    stop();
    CHECK(hand.cancelled_count == 1);
    hand_outcome(1, OUTCOME_RELEASE);
    CHECK(hand_take(REQUEST_RELEASE)->items.items[0].give_back);
    hand_end();
}

TEST(a_handler_that_does_not_end_keeps_nobody_waiting_for_ever)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    stop();
    for (int i = 0; i < 600 && !hand.stopped; i++) {
        hand_advance(100);
        serve();
    }
    CHECK(hand.stopped && hand.exit_code == 1);
    CHECK(hand.events[EVENT_RELEASED] == 1); /* its attempt counts: it ran */
    CHECK(hand.now_ms < 1000000 + options.grace_ms + 20000);
    hand_outcome(1, OUTCOME_DONE); /* it ends after all: nobody is there to care */
    hand_end();
}

TEST(a_store_that_does_not_answer_is_given_up)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    stop();
    hand_advance(60000);
    CHECK(hand.stopped && hand.exit_code == 1);
    hand_end();
}

TEST(a_full_store_that_takes_nothing_back_ends_the_stop_once_nothing_runs)
{
    struct worker_options options = hand_options();
    options.prefetch = 1;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 2); /* 1 runs, 2 is buffered */
    stop();
    hand_fail(hand_take(REQUEST_RELEASE), IMPEL_ERR_FULL);
    CHECK(!hand.stopped && hand.cancelled_count == 0); /* 1 has its grace */
    hand_advance(2000);
    hand_fail(hand_take(REQUEST_RELEASE), IMPEL_ERR_FULL);
    hand_outcome(1, OUTCOME_DONE);
    CHECK(!hand.stopped); /* what it did is worth a try */
    hand_advance(2000);
    hand_fail(hand_take(REQUEST_RELEASE), IMPEL_ERR_FULL);
    CHECK(!hand.stopped);
    hand_fail(hand_take(REQUEST_ACK), IMPEL_ERR_FULL);
    CHECK(hand.stopped && hand.exit_code == 1);
    CHECK(strstr(hand.text, "full") != NULL && strstr(hand.text, ": 2 stay pending") != NULL);
    hand_end();
}

TEST(what_may_not_be_parked_is_given_back)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    hand_outcome(1, OUTCOME_REJECT);
    stop();
    hand_fail(hand_take(REQUEST_PARK), IMPEL_ERR_AUTH);
    struct request *release = hand_take(REQUEST_RELEASE);
    CHECK(!item_of(release, 1)->give_back); /* its attempt was made */
    release->items.items[0].result = ITEM_DONE;
    hand_reply(release);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0 && hand.events[EVENT_RELEASED] == 1);
    hand_end();
}

TEST(a_full_store_that_has_room_again_is_left_as_ever)
{
    struct worker_options options = hand_options();
    options.prefetch = 1;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 2);
    stop();
    hand_fail(hand_take(REQUEST_RELEASE), IMPEL_ERR_FULL);
    hand_advance(2000);
    hand_ok(REQUEST_RELEASE);
    hand_outcome(1, OUTCOME_DONE);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0 && hand.events[EVENT_RELEASED] == 1);
    hand_end();
}

TEST(a_full_store_that_refuses_even_beats_ends_the_stop)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    hand_outcome(1, OUTCOME_RETRY);
    stop();
    hand_fail(hand_take(REQUEST_RELEASE), IMPEL_ERR_FENCED);
    for (int i = 0; i < 40 && !hand.stopped; i++) {
        hand_advance(100);
        for (size_t beats = hand_count(REQUEST_BEAT); beats > 0; beats--) {
            hand_fail(hand_take(REQUEST_BEAT), IMPEL_ERR_FULL);
        }
        hand_ok_all(REQUEST_READ);
    }
    CHECK(hand.stopped && hand.exit_code == 1);
    hand_end();
}

TEST(a_worker_that_is_replaced_while_it_stops_has_no_new_grace)
{
    struct worker_options options = hand_options();
    options.grace_ms = 3000;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1); /* and never ends */
    int64_t stopped_ms = hand.now_ms;
    stop();
    hand_advance(2000);
    struct request *beat = hand_take(REQUEST_BEAT);
    beat->beat.result = BEAT_OCCUPIED;
    hand_reply(beat);
    CHECK(hand.events[EVENT_REPLACED] == 1);
    hand_advance(11500);
    CHECK(hand.stopped && hand.exit_code == 1);
    CHECK(hand.now_ms - stopped_ms < 14000);
    hand_end();
}

TEST(all_that_the_store_says_is_ours_is_released_before_the_row_goes)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_reply(hand_take(REQUEST_READ));
    hand_ok_all(REQUEST_READ);
    stop();
    hand_ok_all(REQUEST_READ);
    hand_tick();
    struct request *rest = hand_take(REQUEST_RELEASE);
    CHECK(rest->items.rest);
    rest->items.more = true;
    rest->items.rested = 1000;
    hand_reply(rest);
    CHECK(hand_count(REQUEST_LEAVE) == 0);
    rest = hand_take(REQUEST_RELEASE);
    CHECK(rest->items.rest);
    hand_reply(rest);
    CHECK(hand.events[EVENT_RELEASED] == 1000);
    struct request *leave = hand_take(REQUEST_LEAVE);
    hand_advance(5000);
    hand_fail(leave, IMPEL_ERR_DISCONNECTED);
    hand_advance(5000);
    CHECK(hand_count(REQUEST_BEAT) == 0); /* a beat now would bring the row back */
    leave = hand_take(REQUEST_LEAVE);
    leave->leave.left = false; /* something was still held */
    hand_reply(leave);
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    CHECK(hand_take(REQUEST_RELEASE)->items.rest);
    hand_end();
}

TEST(a_stop_before_the_first_beat_leaves_nothing_to_leave)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    stop();
    CHECK(!hand.stopped); /* the group request may still be carried out */
    hand_ok(REQUEST_GROUP_CREATE);
    CHECK(hand.stopped && hand.exit_code == 0 && hand.out_count == 0);
    hand_end();
}

TEST(a_first_beat_that_was_on_its_way_is_taken_back)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    struct request *beat = hand_take(REQUEST_BEAT);
    stop();
    CHECK(!hand.stopped);
    hand_reply(beat);
    serve();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TAP_MAIN
