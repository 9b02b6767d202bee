/* test_worker_read.c -- new entries: how many are asked for, from which streams, and what happens
 * to a group that vanishes. */
#include "hand.h"

static void keep_beating(int64_t ms)
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

TEST(prefetch_is_beyond_what_runs)
{
    struct worker_options options = hand_options();
    options.concurrency = 4;
    options.prefetch = 6;
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    CHECK_U64(read->read.count, 10);
    hand_deliver(read, 0, 1, 7);
    CHECK(worker_held(hand.worker).running == 4 && worker_held(hand.worker).buffered == 3);
    CHECK(hand_count(REQUEST_READ) == 0); /* not for every single one */
    hand_outcome(1, OUTCOME_DONE);
    hand_outcome(2, OUTCOME_DONE);
    CHECK_U64(hand_take(REQUEST_READ)->read.count, 5);
    hand_end();
}

TEST(slow_work_is_never_hoarded_and_fast_work_never_waits)
{
    struct worker_options options = hand_options();
    options.prefetch = -1;
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    CHECK_U64(read->read.count, 2); /* nothing is known of the handlers yet */
    hand_deliver(read, 0, 1, 2);
    hand_outcome(1, OUTCOME_DONE);
    hand_outcome(2, OUTCOME_DONE); /* both in no time at all */
    hand_deliver(hand_take(REQUEST_READ), 0, 3, 1);
    hand_outcome(3, OUTCOME_DONE);
    CHECK(hand_take(REQUEST_READ)->read.count > 100);
    hand_end();

    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 2);
    keep_beating(2000);
    hand_outcome(1, OUTCOME_DONE);
    hand_outcome(2, OUTCOME_DONE);
    CHECK_U64(hand_take(REQUEST_READ)->read.count, 1); /* asked for after the first outcome */
    hand_end();
}

TEST(what_is_buffered_for_too_long_is_given_to_others)
{
    struct worker_options options = hand_options();
    options.prefetch = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 3);
    keep_beating(4800);
    CHECK(hand_count(REQUEST_RELEASE) == 0);
    keep_beating(400);
    struct request *release = hand_take(REQUEST_RELEASE);
    CHECK(release->items.item_count == 2 && release->items.items[0].give_back);
    release->items.items[0].result = release->items.items[1].result = ITEM_DONE;
    hand_reply(release);
    CHECK(hand_holds(1) && !hand_holds(2) && !hand_holds(3));
    hand_end();
}

static struct worker_options two_streams(struct impel_bytes *names)
{
    struct worker_options options = hand_options();
    names[0] = bytes_of("a");
    names[1] = bytes_of("b");
    options.streams = options.dead_letters = names;
    options.stream_count = 2;
    options.concurrency = 8;
    return options;
}

TEST(one_read_covers_all_streams_and_begins_elsewhere_each_time)
{
    struct impel_bytes names[2];
    struct worker_options options = two_streams(names);
    hand_start(&options);
    hand_ready();
    hand_ok_all(REQUEST_READ);
    keep_beating(100);
    struct request *read = hand_take(REQUEST_READ);
    CHECK(read->read.stream_count == 2 && bytes_equal(read->read.streams[1], bytes_of("b")));
    size_t first = read->read.first;
    hand_deliver(read, 1, 7, 1);
    CHECK(hand_running(7)->stream_index == 1);
    CHECK(worker_holds(hand.worker, 1, (struct impel_id){7, 0}) && !hand_holds(7));
    CHECK(worker_held_in(hand.worker, 1) == 1 && worker_held_in(hand.worker, 0) == 0);
    read = hand_take(REQUEST_READ);
    CHECK(read->read.first != first);
    hand_outcome(7, OUTCOME_DONE);
    CHECK(bytes_equal(hand_take(REQUEST_ACK)->stream, bytes_of("b")));
    hand_end();
}

TEST(a_stream_that_is_not_entered_is_not_read)
{
    struct impel_bytes names[2];
    struct worker_options options = two_streams(names);
    hand_start(&options);
    hand_ok_all(REQUEST_GROUP_CREATE);
    hand_tick();
    hand_reply(hand_take_of(REQUEST_BEAT, "b"));
    hand_tick();
    hand_ok_all(REQUEST_PENDING);
    hand_tick();
    struct request *read = hand_take(REQUEST_READ);
    CHECK(read->read.stream_count == 1 && bytes_equal(read->read.streams[0], bytes_of("b")));
    hand_deliver(read, 0, 3, 1);
    CHECK(hand_running(3)->stream_index == 1);
    hand_end();
}

TEST(a_failed_read_backs_off_and_comes_back)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    for (int i = 0; i < 30; i++) {
        hand_fail(hand_take(REQUEST_READ), IMPEL_ERR_DISCONNECTED);
        CHECK(hand_count(REQUEST_READ) == 0);
        keep_beating(8000);
        hand_ok_all(REQUEST_PENDING);
    }
    CHECK_U64(hand.events[EVENT_STORE_ERROR], 1); /* once, not each time */
    hand_ok_all(REQUEST_READ);
    CHECK_U64(hand.events[EVENT_STORE_BACK], 1);
    hand_end();
}

TEST(a_group_that_vanished_takes_all_that_was_held_with_it)
{
    struct worker_options options = hand_options();
    options.concurrency = 3;
    options.group_start = (struct impel_id){77, 0};
    hand_start(&options);
    CHECK(hand.out[0]->group_set.start.ms == 77 && !hand.out[0]->group_set.at_floor);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 3);
    hand_outcome(2, OUTCOME_DONE);
    struct request *ack = hand_take(REQUEST_ACK);
    hand_outcome_of(hand_running(3), OUTCOME_RETRY, 60000, "");
    struct request *read = hand_take(REQUEST_READ);
    read->read.missing = 0;
    hand_fail(read, IMPEL_ERR_NO_GROUP);
    CHECK(hand.events[EVENT_GROUP_LOST] == 1);
    CHECK(!hand_holds(1) && !hand_holds(2) && !hand_holds(3));
    CHECK(hand.cancelled_count == 1 && hand.cancel_reason[0] == CANCEL_LOST);

    hand_outcome(1, OUTCOME_DONE); /* the ID may be another entry's now */
    CHECK(hand_count(REQUEST_ACK) == 0 && hand_count(REQUEST_GROUP_CREATE) == 0);
    keep_beating(1000);
    struct request *create = hand_take(REQUEST_GROUP_CREATE);
    CHECK(create->group_set.at_floor);
    create->group_set.created = true;
    hand_reply(create);
    hand_tick();
    struct request *beat = hand_take(REQUEST_BEAT);
    CHECK(beat->beat.first);
    hand_reply(beat);
    keep_beating(100);
    hand_ok_all(REQUEST_PENDING);
    keep_beating(1000);
    CHECK(hand_count(REQUEST_READ) == 1);
    hand_fail(ack, IMPEL_ERR_NO_GROUP); /* said of the group that is gone: no second loss */
    CHECK(hand.events[EVENT_GROUP_LOST] == 1 && hand_count(REQUEST_READ) == 1);
    keep_beating(100);
    CHECK(hand_count(REQUEST_ACK) == 0); /* nor is the late one sent now that the stream is open */
    hand_end();
}

TEST(an_old_answer_does_not_fill_the_new_group)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    struct request *read = hand_take(REQUEST_READ);
    hand_advance(1001);
    hand_fail(hand_take(REQUEST_BEAT), IMPEL_ERR_NO_GROUP);
    CHECK(hand.events[EVENT_GROUP_LOST] == 1);
    hand_advance(300);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    hand_ok_all(REQUEST_BEAT);
    hand_deliver(read, 0, 5, 1);
    CHECK(!hand_holds(5) && hand.started_count == 0);
    hand_end();
}

TEST(a_missing_group_is_an_error_if_it_must_not_be_created)
{
    struct worker_options options = hand_options();
    options.no_create = true;
    hand_start(&options);
    CHECK(hand_count(REQUEST_GROUP_CREATE) == 0);
    hand_fail(hand_take(REQUEST_BEAT), IMPEL_ERR_NO_GROUP);
    CHECK(hand.stopped && hand.exit_code == 1 && hand.events[EVENT_STORE_ERROR] == 1);
    hand_end();
}

TEST(what_waiting_cannot_cure_is_said_at_the_start)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_fail(hand_take(REQUEST_GROUP_CREATE), IMPEL_ERR_WRONG_TYPE);
    CHECK(hand.stopped && hand.exit_code == 1);
    hand_end();
    hand_start(&options);
    hand_fail(hand_take(REQUEST_GROUP_CREATE), IMPEL_ERR_DISCONNECTED);
    hand_advance(1000);
    CHECK(!hand.stopped && hand_count(REQUEST_GROUP_CREATE) == 1);
    hand_end();
}

TEST(recover_only_reads_nothing_new)
{
    struct worker_options options = hand_options();
    options.recover_only = true;
    hand_start(&options);
    hand_ready();
    keep_beating(5000);
    CHECK(hand_count(REQUEST_READ) == 0);
    hand_end();
}

TAP_MAIN
