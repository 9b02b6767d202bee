/* test_worker_idle.c -- --until-idle ends when one look finds nothing, and not before. */
#include "hand.h"

#include <string.h>

static struct worker_options idle_options(void)
{
    struct worker_options options = hand_options();
    options.until_idle = true;
    return options;
}

static bool is_idle_look(const struct request *look)
{
    return look->look.flags == LOOK_BEAT;
}

/* The look of the idle round; those of the sweep are answered "somebody else's". */
static struct request *idle_look(void)
{
    for (int i = 0; i < 100; i++) {
        while (hand_count(REQUEST_LOOK) > 0) {
            struct request *look = hand_take(REQUEST_LOOK);
            if (is_idle_look(look)) {
                look->look.stamped = true;
                return look;
            }
            hand_reply(look);
        }
        hand_advance(20);
        hand_ok_all(REQUEST_BEAT);
        hand_ok_all(REQUEST_READ);
        hand_ok_all(REQUEST_RENEW);
    }
    return NULL;
}

static void drain(void)
{
    for (int i = 0; i < 20; i++) {
        hand_ok_all(REQUEST_READ);
        hand_ok_all(REQUEST_BEAT);
        hand_ok_all(REQUEST_LOOK);
        hand_ok_all(REQUEST_RELEASE);
        hand_ok_all(REQUEST_LEAVE);
        hand_tick();
    }
}

TEST(ends_when_a_look_finds_nothing)
{
    struct worker_options options = idle_options();
    hand_start(&options);
    hand_ready();
    CHECK(hand_count(REQUEST_LOOK) == 0);
    struct request *read = hand_take(REQUEST_READ);
    CHECK(read->read.block_ms == 0);
    hand_reply(read);
    struct request *look = idle_look();
    CHECK(look != NULL);
    hand_reply(look);
    CHECK(hand.events[EVENT_STOPPING] == 0);
    drain();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TEST(goes_on_while_something_is_pending_or_undelivered_and_says_whom_it_waits_for)
{
    struct worker_options options = idle_options();
    hand_start(&options);
    hand_ready();
    for (int i = 0; i < 300; i++) {
        struct request *look = idle_look();
        CHECK(look != NULL);
        if (i % 2 == 0) {
            hand_look(look, (const struct hand_owner[]){{"w7", 1, OWNER_LIVE}, {NULL, 0, 0}});
        } else {
            look->look.undelivered = 1;
            hand_reply(look);
        }
    }
    CHECK(!hand.stopped && hand.events[EVENT_WAITING_FOR] >= 2);
    CHECK(strstr(hand.text, "pending; w7 holds 1 (alive)") != NULL ||
          strstr(hand.text, "1 undelivered") != NULL);
    CHECK(hand.events[EVENT_WAITING_FOR] <= (uint64_t)(hand.now_ms - 1000000) / 10000);
    hand_end();
}

TEST(a_start_between_look_and_answer_is_no_end)
{
    struct worker_options options = idle_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_reply(hand_take(REQUEST_READ));
    struct request *look = idle_look();
    hand_advance(50);
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_outcome(5, OUTCOME_DONE);
    hand_ok_all(REQUEST_ACK);
    hand_reply(look); /* empty, but older than that */
    hand_tick();
    CHECK(hand_count(REQUEST_RELEASE) == 0);
    drain();
    CHECK(!hand.stopped);
    hand_end();
}

TEST(own_handlers_are_named_as_what_is_waited_for)
{
    struct worker_options options = idle_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_advance(10001);
    CHECK(hand.events[EVENT_WAITING_FOR] == 1);
    CHECK(strncmp(hand.text, "this worker: 1 running", 22) == 0);
    hand_end();
}

TEST(own_retries_are_waited_for)
{
    struct worker_options options = idle_options();
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_outcome_of(hand_running(5), OUTCOME_RETRY, 30000, "");
    CHECK(idle_look() == NULL);
    CHECK(!hand.stopped);
    hand_end();
}

TEST(the_time_may_be_limited)
{
    struct worker_options options = idle_options();
    options.until_idle_ms = 5000;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_advance(5001);
    drain();
    CHECK(!hand.stopped); /* the grace is kept */
    hand_outcome(5, OUTCOME_DONE);
    hand_ok_all(REQUEST_ACK);
    drain();
    CHECK(hand.stopped && hand.exit_code == 1);
    hand_end();
}

TEST(recover_only_does_not_wait_for_what_is_undelivered)
{
    struct worker_options options = idle_options();
    options.recover_only = true;
    hand_start(&options);
    hand_ok(REQUEST_GROUP_CREATE); /* not hand_ready(): it would answer the look as well */
    hand_tick();
    hand_ok(REQUEST_BEAT);
    hand_tick();
    hand_ok(REQUEST_PENDING);
    struct request *look = idle_look();
    CHECK(look != NULL);
    look->look.undelivered = 3;
    hand_reply(look);
    drain();
    CHECK(hand.stopped && hand.exit_code == 0);
    hand_end();
}

TAP_MAIN
