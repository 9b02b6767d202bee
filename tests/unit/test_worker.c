/* test_worker.c -- the plain way of an entry through the worker: enter, read, start, ack, stop. */
#include "hand.h"

TEST(enters_before_it_reads)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    CHECK(hand_count(REQUEST_GROUP_CREATE) == 1 && hand.out_count == 1);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    CHECK(hand_count(REQUEST_BEAT) == 1 && hand.out_count == 1);
    struct request *beat = hand_take(REQUEST_BEAT);
    CHECK(beat->beat.first);
    hand_reply(beat);
    CHECK(hand.events[EVENT_STARTED] == 1);
    hand_tick();
    hand_ok_all(REQUEST_PENDING);
    hand_tick();
    struct request *read = hand_take(REQUEST_READ);
    CHECK_U64(read->read.count, 1);
    CHECK(read->read.block_ms == WORKER_BLOCK_MS);
    hand_deliver(read, 0, 1, 1);
    hand_end();
}

TEST(an_entry_is_run_and_acked)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    CHECK(hand.events[EVENT_DELIVERED] == 1);
    struct delivery *delivery = hand_running(5);
    CHECK(delivery != NULL && delivery->attempt == 1 && hand_holds(5));
    CHECK(hand_count(REQUEST_READ) == 0);
    hand_outcome(5, OUTCOME_DONE);
    struct request *ack = hand_take(REQUEST_ACK);
    CHECK(ack->ack.item_count == 1 && ack->ack.items[0].id.ms == 5);
    CHECK(hand_holds(5));
    ack->ack.acked = 1;
    hand_reply(ack);
    CHECK(!hand_holds(5) && hand.events[EVENT_DONE] == 1 && hand.events[EVENT_LATE_ACK] == 0);
    CHECK(hand_count(REQUEST_READ) == 1);
    hand_end();
}

TEST(acks_travel_together)
{
    struct worker_options options = hand_options();
    options.concurrency = 8;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 8);
    CHECK_U64(worker_held(hand.worker).running, 8);
    hand_outcome(1, OUTCOME_DONE);
    struct request *first = hand_take(REQUEST_ACK);
    for (uint64_t ms = 2; ms <= 8; ms++) {
        hand_outcome(ms, OUTCOME_DONE);
    }
    CHECK(hand_count(REQUEST_ACK) == 0);
    first->ack.acked = 1;
    hand_reply(first);
    struct request *rest = hand_take(REQUEST_ACK);
    CHECK_U64(rest->ack.item_count, 7);
    rest->ack.acked = 7;
    hand_reply(rest);
    CHECK_U64(hand.events[EVENT_DONE], 8);
    hand_end();
}

TEST(a_stop_at_rest_leaves_the_table)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    worker_stop(hand.worker, hand.now_ms);
    hand_pump();
    struct request *read = hand_take(REQUEST_READ);
    CHECK(hand.unblocked == read);
    hand_tick();
    CHECK(hand_count(REQUEST_RELEASE) == 0);
    hand_reply(read);
    hand_tick();
    struct request *rest = hand_take(REQUEST_RELEASE);
    CHECK(rest->items.rest && rest->items.item_count == 0);
    hand_reply(rest);
    hand_tick();
    CHECK(!hand.stopped);
    hand_ok_all(REQUEST_BEAT);
    hand_ok(REQUEST_LEAVE);
    CHECK(hand.stopped && hand.exit_code == 0);
    CHECK(hand_count(REQUEST_BEAT) == 0);
    hand_end();
}

TAP_MAIN
