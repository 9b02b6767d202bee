/* test_worker_take.c -- recovered entries: only into free handlers, the last attempt alone, strays
 * only by proof. */
#include "hand.h"

static const struct hand_owner dead_owner[] = {{"w", 9, OWNER_DEAD}, {NULL, 0, 0}};
static const struct hand_owner nobody[] = {{NULL, 0, 0}};

static void keep_beating(int64_t ms)
{
    while (ms > 0) {
        int64_t step = ms < 200 ? ms : 200;
        hand_advance(step);
        hand_ok_all(REQUEST_BEAT);
        hand_ok_all(REQUEST_RENEW);
        ms -= step;
    }
}

static struct request *next_look(void)
{
    keep_beating(1400);
    return hand_take(REQUEST_LOOK);
}

/* Answers a walk that may claim nothing: there is one entry, and its next attempt is its last. */
static void find_last_attempt(struct request *find)
{
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = find->claim_from.due_last = 1;
    find->claim_from.due_first.ms = 100;
    hand_reply(find);
}

TEST(a_claim_fills_free_handlers_only_and_reads_make_room)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    options.prefetch = 10;
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    CHECK(hand.unblocked == NULL);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    CHECK_U64(find->claim_from.claims_max, 0); /* the read has both places */
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 3;
    find->claim_from.due_first.ms = 4;
    hand_reply(find);
    CHECK(hand.unblocked != NULL);
    hand_reply(hand_take(REQUEST_READ));
    struct request *claim = hand_take(REQUEST_CLAIM_FROM);
    CHECK(claim->claim_from.claims_max == 2 && claim->claim_from.from.ms == 4);
    hand_claim(claim, 4, 2, 5);
    CHECK(hand_running(4) != NULL && hand_running(4)->attempt == 2);
    CHECK(hand.events[EVENT_CLAIMED] == 1 && hand.last[EVENT_CLAIMED].idle_ms == 6000);
    CHECK(hand.events[EVENT_WORKER_DEAD] == 1);
    claim = hand_take(REQUEST_CLAIM_FROM); /* the sweep goes on at once */
    CHECK(claim->claim_from.claims_max == 1 && claim->claim_from.from.ms == 5);
    hand_claim(claim, 5, 2, 6);
    CHECK(worker_held(hand.worker).running == 2 && hand_count(REQUEST_CLAIM_FROM) == 0);
    hand_outcome(4, OUTCOME_DONE);
    CHECK(hand_count(REQUEST_CLAIM_FROM) == 1);
    hand_end();
}

TEST(quick_handlers_leave_their_places_before_more_is_asked_for)
{
    struct worker_options options = hand_options();
    options.concurrency = 3;
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 9;
    find->claim_from.due_first.ms = 4;
    hand_reply(find);
    hand_reply(hand_take(REQUEST_READ));
    hand.quick = true;
    for (uint64_t ms = 4; ms < 8; ms++) {
        struct request *claim = hand_take(REQUEST_CLAIM_FROM);
        CHECK_U64(claim->claim_from.claims_max, 3);
        hand_claim(claim, ms, 2, ms + 1); /* over before the next one is asked for */
        hand_ok_all(REQUEST_ACK);
    }
    hand.quick = false;
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 8, 2, 9);
    CHECK_U64(hand_take(REQUEST_CLAIM_FROM)->claim_from.claims_max, 2); /* that one is slow */
    hand_end();
}

TEST(one_place_takes_turns)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 9;
    find->claim_from.due_first.ms = 100;
    hand_reply(find);
    hand_reply(hand_take(REQUEST_READ));
    for (uint64_t turn = 0; turn < 4; turn++) {
        CHECK(hand_count(REQUEST_READ) == 0);
        hand_claim(hand_take(REQUEST_CLAIM_FROM), 100 + turn, 2, 101 + turn);
        hand_outcome(100 + turn, OUTCOME_DONE);
        hand_ok_all(REQUEST_ACK);
        CHECK(hand_count(REQUEST_CLAIM_FROM) == 0);
        struct request *read = hand_take(REQUEST_READ);
        CHECK(read->read.block_ms == 0);
        hand_deliver(read, 0, 1 + turn, 1);
        hand_outcome(1 + turn, OUTCOME_DONE);
        hand_ok_all(REQUEST_ACK);
    }
    hand_end();
}

TEST(one_place_takes_turns_with_the_buffer_too)
{
    struct worker_options options = hand_options();
    options.prefetch = 3;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 4);
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 9;
    find->claim_from.due_first.ms = 100;
    hand_reply(find);
    hand_outcome(1, OUTCOME_DONE);
    CHECK(hand_running(2) == NULL);
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 100, 2, 101);
    hand_outcome(100, OUTCOME_DONE);
    CHECK(hand_running(2) != NULL && hand_count(REQUEST_CLAIM_FROM) == 0);
    hand_end();
}

TEST(the_one_place_does_not_wait_for_a_read_that_only_waits)
{
    struct worker_options options = hand_options();
    options.prefetch = 3;
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 1;
    find->claim_from.due_first.ms = 100;
    hand_reply(find);
    hand_reply(hand_take(REQUEST_READ));
    hand_reply(hand_take(REQUEST_READ));
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 100, 1, 0);
    keep_beating(200);
    hand.unblocked = NULL;
    struct request *read = hand_take(REQUEST_READ); /* ahead: it keeps no place */
    CHECK(read->read.block_ms > 0);
    hand_outcome_of(hand_running(100), OUTCOME_RETRY, 100, "it failed");
    CHECK(hand.unblocked == NULL && hand_count(REQUEST_RETRY) == 0);
    keep_beating(1200);                    /* the read stays blocked */
    CHECK(hand_count(REQUEST_RETRY) == 0); /* it is the turn of what the read brings */
    CHECK(hand.unblocked == read);
    hand_reply(read);
    CHECK(hand_count(REQUEST_RETRY) == 1);
    hand_end();
}

TEST(a_quarter_is_kept_for_due_work)
{
    struct worker_options options = hand_options();
    options.concurrency = 8;
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = 9;
    find->claim_from.due_first.ms = 100;
    hand_reply(find);
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 8); /* just before it was ended */
    CHECK_U64(worker_held(hand.worker).running, 6);
    struct request *claim = hand_take(REQUEST_CLAIM_FROM);
    CHECK_U64(claim->claim_from.claims_max, 2);
    hand_claim(claim, 100, 2, 101);
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 101, 2, 102);
    CHECK_U64(worker_held(hand.worker).running, 8);
    hand_outcome(1, OUTCOME_DONE);
    CHECK(hand_running(8) == NULL && hand_running(7) != NULL); /* the quarter is in use: buffer */
    hand_end();
}

TEST(a_last_attempt_runs_alone)
{
    struct worker_options options = hand_options();
    options.concurrency = 4;
    options.prefetch = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 6);
    hand_look(next_look(), dead_owner);
    find_last_attempt(hand_take(REQUEST_CLAIM_FROM));
    for (uint64_t ms = 1; ms <= 6; ms++) { /* what runs and what is buffered runs down */
        CHECK(hand_count(REQUEST_CLAIM_FROM) == 0 && hand_count(REQUEST_READ) == 0);
        hand_outcome(ms, OUTCOME_DONE);
    }
    struct request *claim = hand_take(REQUEST_CLAIM_FROM);
    CHECK(claim->claim_from.claims_max == 1 && (claim->claim_from.flags & CLAIM_LAST));
    hand_claim(claim, 100, 5, 0);
    CHECK(hand_running(100) != NULL && hand_count(REQUEST_READ) == 0);
    keep_beating(3000);
    hand_ok_all(REQUEST_ACK);
    CHECK(hand_count(REQUEST_READ) == 0);
    hand_outcome(100, OUTCOME_DONE);
    CHECK(hand_count(REQUEST_READ) == 0); /* what came now could end the process before the ack */
    for (int i = 0; i < 2; i++) {         /* those from before, then this one */
        CHECK(hand_count(REQUEST_ACK) == 1 && hand_count(REQUEST_READ) == 0);
        hand_ok(REQUEST_ACK);
        hand_tick();
    }
    CHECK(hand_count(REQUEST_READ) == 1);
    hand_end();
}

TEST(a_last_attempt_that_somebody_else_took_holds_nothing_up)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    find_last_attempt(hand_take(REQUEST_CLAIM_FROM));
    hand_reply(hand_take(REQUEST_READ));
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 0, 0, 0);
    hand_tick();
    CHECK(hand_count(REQUEST_READ) == 1 && hand_count(REQUEST_CLAIM_FROM) == 0);
    hand_end();
}

TEST(a_wedged_handler_does_not_keep_a_last_attempt_waiting)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    options.timeout_ms = 1000;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    keep_beating(1100);
    CHECK(hand.events[EVENT_TIMED_OUT] == 1);
    hand_ok_all(REQUEST_READ);
    hand_look(next_look(), dead_owner);
    find_last_attempt(hand_take(REQUEST_CLAIM_FROM));
    hand_ok_all(REQUEST_READ);
    hand_tick();
    struct request *claim = hand_take(REQUEST_CLAIM_FROM);
    CHECK(claim->claim_from.flags & CLAIM_LAST);
    hand_reply(claim);
    hand_end();
}

TEST(a_handler_whose_entry_was_lost_does_not_keep_a_last_attempt_waiting)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    for (int i = 0; i < 200 && hand_count(REQUEST_RENEW) == 0; i++) {
        hand_advance(100);
        hand_ok_all(REQUEST_BEAT);
    }
    struct request *renew = hand_take(REQUEST_RENEW);
    renew->items.items[0].result = ITEM_LOST;
    hand_reply(renew);
    CHECK(hand.events[EVENT_LOST_ENTRY] == 1 && worker_held(hand.worker).running == 1);
    hand_ok_all(REQUEST_LOOK);
    hand_ok_all(REQUEST_READ);
    hand_ok_all(REQUEST_PENDING);
    hand_look(next_look(), dead_owner);
    find_last_attempt(hand_take(REQUEST_CLAIM_FROM));
    hand_ok_all(REQUEST_READ);
    hand_tick();
    CHECK(hand_take(REQUEST_CLAIM_FROM)->claim_from.flags & CLAIM_LAST);
    hand_end();
}

/* One entry of this stream, in the first read that asks for it. */
static void deliver_to(struct impel_bytes stream, uint64_t ms)
{
    for (;;) {
        struct request *read = hand_take(REQUEST_READ);
        for (size_t i = 0; i < read->read.stream_count; i++) {
            if (bytes_equal(read->read.streams[i], stream)) {
                hand_deliver(read, i, ms, 1);
                return;
            }
        }
        hand_reply(read); /* it left before the stream was ready */
        hand_advance(50);
    }
}

TEST(a_last_attempt_waits_for_what_is_buffered_even_if_it_cannot_start_yet)
{
    static const struct impel_bytes names[] = {{"a", 1}, {"b", 1}};
    struct worker_options options = hand_options();
    options.streams = options.dead_letters = names;
    options.stream_count = 2;
    options.concurrency = 2;
    options.prefetch = 2;
    hand_start(&options);
    hand_ready();
    deliver_to(names[1], 1);
    hand_outcome(1, OUTCOME_DONE);
    hand_fail(hand_take_of(REQUEST_ACK, "b"), IMPEL_ERR_FENCED);
    deliver_to(names[1], 2);
    CHECK(worker_held(hand.worker).buffered == 1 && worker_held(hand.worker).running == 0);
    for (int i = 0; i < 14; i++) { /* only of stream a are the beats answered */
        hand_advance(100);
        for (size_t beats = hand_count(REQUEST_BEAT); beats > 0; beats--) {
            struct request *beat = hand_take(REQUEST_BEAT);
            if (bytes_equal(beat->stream, names[0])) {
                hand_reply(beat);
            }
        }
    }
    hand_look(hand_take_of(REQUEST_LOOK, "a"), dead_owner);
    find_last_attempt(hand_take(REQUEST_CLAIM_FROM));
    hand_ok_all(REQUEST_READ);
    hand_tick();
    CHECK(hand_count(REQUEST_CLAIM_FROM) == 0 && worker_held(hand.worker).buffered == 1);
    hand_end();
}

TEST(parked_and_reaped_on_the_way_are_told)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), dead_owner);
    struct request *find = hand_take(REQUEST_CLAIM_FROM);
    struct settled settled = {{7, 0}, 5};
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.parked = find->claim_from.reaped = &settled;
    find->claim_from.parked_count = find->claim_from.reaped_count = 1;
    hand_reply(find);
    CHECK(hand.events[EVENT_PARKED] == 1 && hand.last[EVENT_PARKED].id.ms == 7);
    CHECK(hand.events[EVENT_LOST_WORK] == 1 && hand.events[EVENT_SWEPT] == 1);
    hand_end();
}

TEST(a_death_is_told_once)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    for (int i = 0; i < 3; i++) {
        hand_look(next_look(), dead_owner);
        struct request *find = hand_take(REQUEST_CLAIM_FROM);
        find->claim_from.state = OWNER_DEAD;
        find->claim_from.not_due = 9;
        hand_reply(find);
        hand_ok_all(REQUEST_READ);
    }
    CHECK_U64(hand.events[EVENT_WORKER_DEAD], 1);
    hand_look(next_look(), nobody);
    hand_look(next_look(), dead_owner);
    CHECK_U64(hand.events[EVENT_WORKER_DEAD], 2);
    hand_end();
}

TEST(what_comes_back_while_in_hand_only_renews_the_fence)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1); /* the group was moved back */
    CHECK_U64(hand.started_count, 1);
    hand_ok_all(REQUEST_READ);
    hand_look(next_look(), dead_owner);
    struct request *claim = hand_take(REQUEST_CLAIM_FROM);
    CHECK(claim->claim_from.claims_max <= 1);
    hand_claim(claim, 5, 3, 0);
    CHECK_U64(hand.started_count, 1);
    hand_outcome(5, OUTCOME_REJECT);
    CHECK(hand_take(REQUEST_PARK)->items.items[0].deliveries == 3);
    hand_end();
}

/* ---- strays ---- */

static void list(struct request *pending, uint64_t ms, int64_t deliveries)
{
    CHECK(pending->pending.by_owner && bytes_equal(pending->pending.owner, bytes_of("c")));
    pending->pending.rows = arena_calloc(&pending->arena, 1, sizeof(*pending->pending.rows));
    pending->pending.row_count = 1;
    pending->pending.rows[0].id.ms = ms;
    pending->pending.rows[0].owner = pending->pending.owner;
    pending->pending.rows[0].deliveries = deliveries;
    pending->pending.rows[0].exists = true;
    hand_reply(pending);
}

static void enter(const struct worker_options *options)
{
    hand_start(options);
    hand_ok(REQUEST_GROUP_CREATE);
    hand_tick();
    hand_ok(REQUEST_BEAT);
    hand_tick();
}

TEST(a_former_lifes_entries_are_adopted_before_anything_is_read)
{
    struct worker_options options = hand_options();
    enter(&options);
    CHECK(hand_count(REQUEST_READ) == 0);
    list(hand_take(REQUEST_PENDING), 5, 2);
    hand_tick();
    struct request *adopt = hand_take(REQUEST_ADOPT);
    CHECK(adopt->items.item_count == 1 && adopt->items.items[0].deliveries == 2);
    adopt->items.items[0].result = ITEM_DONE;
    adopt->items.items[0].entry = hand_entry(5);
    hand_reply(adopt);
    CHECK(hand_running(5) != NULL && hand_running(5)->attempt == 3);
    CHECK(hand.events[EVENT_CLAIMED] == 1);
    hand_end();
}

TEST(an_adopted_entry_at_its_limit_is_parked_without_a_try)
{
    struct worker_options options = hand_options();
    enter(&options);
    list(hand_take(REQUEST_PENDING), 5, 5);
    hand_tick();
    struct request *park = hand_take(REQUEST_PARK);
    CHECK(park->items.items[0].copy == NULL);
    CHECK(bytes_equal(park->items.items[0].reason, bytes_of("max-deliveries")));
    hand_reply(park);
    hand_end();
}

TEST(an_adopted_last_attempt_runs_alone)
{
    struct worker_options options = hand_options();
    options.concurrency = 4;
    enter(&options);
    list(hand_take(REQUEST_PENDING), 5, 4);
    hand_tick();
    hand_ok(REQUEST_ADOPT);
    CHECK(hand_running(5) != NULL && hand_running(5)->attempt == 5);
    hand_outcome(5, OUTCOME_DONE);
    CHECK(hand_count(REQUEST_READ) == 0);
    hand_ok_all(REQUEST_ACK);
    CHECK(hand_count(REQUEST_READ) == 1);
    hand_end();
}

static const struct hand_owner me_and_dead[] = {
    {"c", 9, OWNER_ME}, {"w", 9, OWNER_DEAD}, {NULL, 0, 0}};

TEST(an_entry_in_a_read_on_its_way_is_not_adopted)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 1, 1);
    struct request *read = hand_take(REQUEST_READ); /* served; its answer is on its way */
    hand_look(next_look(), &me_and_dead[2]);
    hand_look(next_look(), (const struct hand_owner[]){{"c", 9, OWNER_ME}, {NULL, 0, 0}});
    hand_outcome(1, OUTCOME_DONE); /* a place that the read has not reserved */
    hand_ok_all(REQUEST_ACK);
    keep_beating(2000);
    list(hand_take(REQUEST_PENDING), 5, 1);
    keep_beating(500);
    CHECK(hand_count(REQUEST_ADOPT) == 0 && hand.unblocked == read);
    hand_deliver(read, 0, 5, 1);
    keep_beating(500);
    CHECK(hand_count(REQUEST_ADOPT) == 0);
    CHECK(hand_running(5) != NULL && hand.started_count == 2);
    hand_end();
}

TEST(an_entry_in_a_claim_on_its_way_is_not_adopted)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    options.recover_only = true;
    hand_start(&options);
    hand_ready();
    hand_look(next_look(), me_and_dead);
    hand_claim(hand_take(REQUEST_CLAIM_FROM), 4, 2, 5);
    struct request *claim = hand_take(REQUEST_CLAIM_FROM); /* done; its answer is on its way */
    CHECK_U64(claim->claim_from.claims_max, 1);
    hand_outcome(4, OUTCOME_DONE);
    hand_ok_all(REQUEST_ACK);
    keep_beating(2000);
    list(hand_take(REQUEST_PENDING), 7, 2);
    keep_beating(500);
    CHECK(hand_count(REQUEST_ADOPT) == 0);
    hand_claim(claim, 7, 2, 0);
    keep_beating(500);
    CHECK(hand_running(7) != NULL && hand_count(REQUEST_ADOPT) == 0);
    hand_end();
}

TEST(an_entry_of_a_lost_answer_is_adopted_once_the_read_has_landed)
{
    struct worker_options options = hand_options();
    hand_start(&options);
    hand_ready();
    hand_fail(hand_take(REQUEST_READ), IMPEL_ERR_DISCONNECTED);
    CHECK(hand_count(REQUEST_READ) == 0);
    keep_beating(3000);
    list(hand_take(REQUEST_PENDING), 5, 1);
    hand_ok_all(REQUEST_READ);
    hand_tick();
    CHECK(hand_count(REQUEST_ADOPT) == 1);
    hand_ok(REQUEST_ADOPT);
    CHECK(hand_running(5)->attempt == 2);
    hand_end();
}

TEST(an_adoption_that_fails_its_fence_is_nobodys)
{
    struct worker_options options = hand_options();
    enter(&options);
    list(hand_take(REQUEST_PENDING), 5, 2);
    hand_tick();
    struct request *adopt = hand_take(REQUEST_ADOPT);
    adopt->items.items[0].result = ITEM_LOST;
    hand_reply(adopt);
    CHECK(!hand_holds(5) && hand.started_count == 0);
    hand_tick();
    CHECK(hand_count(REQUEST_READ) == 1);
    hand_end();
}

TEST(a_retry_whose_entry_was_trimmed_is_lost_work)
{
    struct worker_options options = hand_options();
    enter(&options);
    list(hand_take(REQUEST_PENDING), 5, 2);
    hand_tick();
    struct request *adopt = hand_take(REQUEST_ADOPT);
    adopt->items.items[0].result = ITEM_TRIMMED;
    hand_reply(adopt);
    CHECK(!hand_holds(5) && hand.events[EVENT_LOST_WORK] == 1);
    hand_end();
}

TEST(a_retry_whose_answer_is_lost_is_made_again_and_fenced)
{
    struct worker_options options = hand_options();
    options.concurrency = 2;
    hand_start(&options);
    hand_ready();
    hand_deliver(hand_take(REQUEST_READ), 0, 5, 1);
    hand_outcome(5, OUTCOME_RETRY);
    keep_beating(1200);
    hand_ok_all(REQUEST_READ);
    hand_tick();
    hand_fail(hand_take(REQUEST_RETRY), IMPEL_ERR_DISCONNECTED);
    CHECK(hand_holds(5));
    keep_beating(2000);
    hand_ok_all(REQUEST_READ);
    keep_beating(2000);
    struct request *retry = hand_take(REQUEST_RETRY);
    CHECK(retry->items.items[0].deliveries == 1);
    retry->items.items[0].result = ITEM_LOST; /* it had been carried out: the store has 2 */
    hand_reply(retry);
    CHECK(!hand_holds(5));
    keep_beating(3000);
    hand_ok_all(REQUEST_READ);
    list(hand_take(REQUEST_PENDING), 5, 2);
    hand_ok_all(REQUEST_READ);
    hand_tick();
    hand_ok(REQUEST_ADOPT);
    CHECK(hand_running(5)->attempt == 3);
    hand_end();
}

TAP_MAIN
