/* conformance_worker.c -- the workers table: beating, being judged, looking, leaving, dropping. */
#include "store/suite.h"

/* Beats of `who` keep the store demonstrably taking beats while the suite waits. */
static void keep_beating(struct who who, int64_t for_ms)
{
    int64_t since_ms = suite_now_ms();
    while (suite_now_ms() - since_ms < for_ms) {
        (void)beat_result("s", "g", who, false);
        suite_pause(10);
    }
}

/* ---- beat ---- */

TEST(a_first_beat_takes_the_name)
{
    suite_begin();
    group_make("s", "g");
    CHECK(beat_result("s", "g", worker("w", 1), true) == BEAT_TAKEN);
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN);
    CHECK(beat_result("s", "g", worker("w", 1), true) == BEAT_TAKEN); /* its answer was lost */
    const struct look_owner *owner = look_at(look(worker("v", 2), LOOK_BEAT), "w");
    CHECK(owner != NULL);
    CHECK(owner->in_table);
    CHECK(owner->state == OWNER_LIVE);
    CHECK(owner->beat_age_ms >= 0 && owner->beat_age_ms < SUITE_WAIT_MS);
    CHECK(owner->token.bytes[0] == 1 && owner->token.bytes[TOKEN_SIZE - 1] == 1);
    CHECK(owner->pending == 0);
    CHECK(owner->dead_after_ms == worker("w", 1).dead_after_ms);
}

TEST(a_live_name_is_occupied_and_tells_how_long)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", worker("w", 1));
    struct request *request = ask_as(REQUEST_BEAT, "s", "g", mortal("w", 2));
    request->beat.first = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK(request->beat.result == BEAT_OCCUPIED);
    CHECK(request->beat.wait_ms > 0 && request->beat.wait_ms <= ALIVE_MS);
    CHECK(beat_result("s", "g", worker("w", 2), false) == BEAT_OCCUPIED);
    /* Nothing was written: the first one is still at home. */
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN);
}

TEST(a_dead_name_can_be_taken)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", mortal("w", 1));
    await_dead(worker("judge", 9), "w");
    CHECK(beat_result("s", "g", worker("w", 2), true) == BEAT_TAKEN);
    CHECK(beat_result("s", "g", mortal("w", 1), false) == BEAT_OCCUPIED); /* replaced */
    CHECK(run(items(REQUEST_RENEW, mortal("w", 1), 0, 0)) == IMPEL_ERR_REPLACED);
}

TEST(who_was_judged_dead_is_told_at_its_next_beat)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", mortal("w", 1));
    await_dead(worker("judge", 9), "w");
    CHECK(run(items(REQUEST_RENEW, mortal("w", 1), 0, 0)) == IMPEL_ERR_FENCED);
    CHECK(beat_result("s", "g", mortal("w", 1), false) == BEAT_REVIVED);
    CHECK(beat_result("s", "g", mortal("w", 1), false) == BEAT_TAKEN);
    CHECK(run(items(REQUEST_RENEW, mortal("w", 1), 0, 0)) == IMPEL_OK);
}

TEST(a_vanished_row_is_a_revival_unless_it_is_the_first_beat)
{
    suite_begin();
    group_make("s", "g");
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_REVIVED);
    CHECK(beat_result("s", "g", worker("v", 2), true) == BEAT_TAKEN);
}

TEST(silence_counts_only_while_beats_are_taken)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", mortal("w", 1));
    /* Nobody beats: a store that stood still looks the same. */
    suite_pause(3 * suite_dead_after_ms());
    int64_t since_ms = suite_now_ms();
    while (suite_now_ms() - since_ms < 1) {
        suite_pause(1);
    }
    const struct look_owner *owner = look_at(look(worker("judge", 9), LOOK_BEAT), "w");
    CHECK(owner != NULL);
    CHECK(owner->state == OWNER_LIVE);
    await_dead(worker("judge", 9), "w");
}

TEST(a_beating_worker_is_never_dead)
{
    suite_begin();
    group_make("s", "g");
    struct who w = {span("w"), 1, 3000};
    beat("s", "g", w);
    int64_t since_ms = suite_now_ms();
    while (suite_now_ms() - since_ms < 500) {
        CHECK(beat_result("s", "g", w, false) == BEAT_TAKEN);
        const struct look_owner *owner = look_at(look(worker("judge", 9), LOOK_BEAT), "w");
        CHECK(owner != NULL && owner->state == OWNER_LIVE);
        suite_pause(20);
    }
}

TEST(a_sweep_without_a_worker_beats_for_the_table_only)
{
    suite_begin();
    group_make("s", "g");
    CHECK(beat_result("s", "g", nobody(), true) == BEAT_TAKEN);
    CHECK_U64(look(nobody(), LOOK_BEAT)->look.owner_count, 0);
    beat("s", "g", mortal("w", 1));
    await_dead(nobody(), "w");
}

TEST(groups_have_tables_of_their_own)
{
    suite_begin();
    group_make("s", "g");
    group_make("s", "h");
    group_make("t", "g");
    beat("s", "g", worker("w", 1));
    CHECK(beat_result("s", "h", worker("w", 2), true) == BEAT_TAKEN);
    CHECK(beat_result("t", "g", worker("w", 3), true) == BEAT_TAKEN);
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN);
}

/* ---- look ---- */

TEST(look_tells_who_holds_how_much)
{
    suite_begin();
    scene(worker("w", 1), 3);
    (void)add("s", id_of(4, 0), "v");
    (void)add("s", id_of(5, 0), "v");
    (void)read_new("s", "g", foreign("f"), 1);
    struct request *request = look(worker("w", 1), LOOK_BEAT);
    CHECK(request->look.stamped);
    CHECK(request->look.beat == BEAT_TAKEN);
    CHECK_U64(request->look.pending, 4);
    CHECK(request->look.undelivered >= 1);
    CHECK_U64(request->look.owner_count, 2);
    const struct look_owner *me = look_at(request, "w");
    const struct look_owner *other = look_at(request, "f");
    CHECK(me != NULL && other != NULL);
    CHECK(me->state == OWNER_ME);
    CHECK_U64(me->pending, 3);
    CHECK(me->dead_after_ms == worker("w", 1).dead_after_ms);
    CHECK(other->state == OWNER_FOREIGN);
    CHECK(!other->in_table);
    CHECK(other->beat_age_ms == -1 && other->dead_after_ms == -1);
    CHECK_U64(other->pending, 1);
    (void)read_new("s", "g", foreign("f"), 1);
    CHECK_U64(look(worker("w", 1), LOOK_BEAT)->look.undelivered, 0);
}

TEST(look_calls_the_released_by_name)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(items(REQUEST_RELEASE, worker("w", 1), 1, 1)) == IMPEL_OK);
    const struct look_owner *owner = look_at(look(worker("w", 1), LOOK_BEAT), RELEASED_NAME);
    CHECK(owner != NULL);
    CHECK(owner->state == OWNER_RELEASED);
    CHECK_U64(owner->pending, 1);
}

TEST(a_look_that_does_not_beat_judges_nobody_when_beats_are_old)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", mortal("w", 1));
    int64_t since_ms = suite_now_ms();
    const struct look_owner *owner = NULL;
    do { /* LIVE first, then nothing is known any more; never DEAD */
        CHECK(!suite_overdue(since_ms));
        suite_pause(20);
        owner = look_at(look(worker("judge", 9), 0), "w");
        CHECK(owner != NULL);
        CHECK(owner->state == OWNER_LIVE || owner->state == OWNER_UNKNOWN);
    } while (owner->state != OWNER_UNKNOWN);
    CHECK(look_at(look(worker("judge", 9), 0), "judge") == NULL); /* and takes no row */
}

TEST(look_under_an_occupied_name_is_refused)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", worker("w", 1));
    struct request *request = ask_as(REQUEST_LOOK, "s", "g", worker("w", 2));
    request->look.flags = LOOK_BEAT;
    CHECK(run(request) == IMPEL_ERR_REPLACED);
    CHECK(request->look.beat == BEAT_OCCUPIED);
}

TEST(the_stamp_is_taken_once_an_interval)
{
    suite_begin();
    group_make("s", "g");
    struct request *request = look(worker("a", 1), LOOK_BEAT | LOOK_STAMP);
    CHECK(request->look.stamped);
    request = ask_as(REQUEST_LOOK, "s", "g", worker("b", 2));
    request->look.flags = LOOK_BEAT | LOOK_STAMP;
    request->look.interval_ms = ALIVE_MS;
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->look.stamped);
    CHECK(look(worker("b", 2), LOOK_BEAT)->look.stamped); /* without the stamp: always */
    int64_t since_ms = suite_now_ms();
    do {
        CHECK(!suite_overdue(since_ms));
        suite_pause(10);
        request = ask_as(REQUEST_LOOK, "s", "g", worker("b", 2));
        request->look.flags = LOOK_BEAT | LOOK_STAMP;
        request->look.interval_ms = 100;
        CHECK(run(request) == IMPEL_OK);
    } while (!request->look.stamped);
}

static struct request *look_within(struct who who, unsigned flags, int64_t interval_ms)
{
    struct request *request = ask_as(REQUEST_LOOK, "s", "g", who);
    request->look.flags = LOOK_BEAT | LOOK_STAMP | flags;
    request->look.interval_ms = interval_ms;
    CHECK(run(request) == IMPEL_OK);
    return request;
}

TEST(a_young_stamp_keeps_nobody_with_a_free_handler_from_work_that_is_left)
{
    suite_begin();
    scene(foreign("f"), 2);
    CHECK(look_within(worker("a", 1), 0, ALIVE_MS)->look.stamped);
    CHECK(!look_within(worker("b", 2), LOOK_FREE, ALIVE_MS)->look.stamped);
    struct request *walk = claim_from(worker("a", 1), "f");
    walk->claim_from.policy.min_idle_ms = ALIVE_MS;
    CHECK(run(walk) == IMPEL_OK && walk->claim_from.not_due == 2);
    CHECK(!look_within(worker("b", 2), LOOK_FREE, ALIVE_MS)->look.stamped); /* nothing is due */
    walk = claim_from(worker("a", 1), "f");
    walk->claim_from.claims_max = 1;
    CHECK(run(walk) == IMPEL_OK && walk->claim_from.due == 1);
    CHECK(!look_within(worker("b", 2), 0, ALIVE_MS)->look.stamped);
    struct request *request = look_within(worker("b", 2), LOOK_FREE, ALIVE_MS);
    CHECK(request->look.stamped);
    CHECK_U64(look_at(request, "f")->pending, 1);
    /* What is left is spoken of for two intervals. */
    int64_t since_ms = suite_now_ms();
    do {
        CHECK(!suite_overdue(since_ms));
        suite_pause(10);
        CHECK(look_within(worker("a", 1), 0, 0)->look.stamped);
    } while (look_within(worker("b", 2), LOOK_FREE, 50)->look.stamped);
}

TEST(a_young_stamp_keeps_nobody_with_a_free_handler_from_a_death)
{
    struct who judge = worker("judge", 9);

    suite_begin();
    scene(mortal("w", 1), 1);
    int64_t since_ms = suite_now_ms();
    CHECK(look_within(judge, 0, ALIVE_MS)->look.stamped);
    struct request *request = NULL;
    do {
        CHECK(!suite_overdue(since_ms));
        suite_pause(10);
        request = look_within(judge, LOOK_FREE, ALIVE_MS);
    } while (!request->look.stamped);
    CHECK(look_at(request, "w")->state == OWNER_DEAD);
    CHECK(suite_now_ms() - since_ms >= suite_dead_after_ms() - 50);
}

/* ---- leave ---- */

static struct request *leave(struct who who)
{
    struct request *request = ask_as(REQUEST_LEAVE, "s", "g", who);
    (void)run(request);
    return request;
}

TEST(who_holds_nothing_may_leave)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = leave(worker("w", 1));
    CHECK(request->status == IMPEL_OK);
    CHECK(!request->leave.left);
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN); /* still there */
    CHECK(run(items(REQUEST_ACK, worker("w", 1), 1, 1)) == IMPEL_OK);
    request = leave(worker("w", 1));
    CHECK(request->status == IMPEL_OK);
    CHECK(request->leave.left);
    CHECK(look_at(look(nobody(), 0), "w") == NULL); /* the consumer went with the row */
    CHECK(beat_result("s", "g", worker("w", 2), true) == BEAT_TAKEN);
}

TEST(nobody_takes_away_anothers_row)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", worker("w", 1));
    CHECK(leave(worker("w", 2))->status == IMPEL_ERR_REPLACED);
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN);
}

/* ---- drop ---- */

static bool drop(struct who who, const char *name, int64_t inactive_ms)
{
    struct request *request = ask_as(REQUEST_DROP, "s", "g", who);
    request->leave.name = span(name);
    request->leave.inactive_ms = inactive_ms;
    CHECK(run(request) == IMPEL_OK);
    return request->leave.left;
}

TEST(a_dead_worker_is_dropped_once_it_holds_nothing)
{
    struct who judge = worker("judge", 9);
    suite_begin();
    scene(mortal("w", 1), 1);
    CHECK(!drop(judge, "w", 0)); /* alive */
    await_dead(judge, "w");
    CHECK(!drop(judge, "w", 0)); /* holds something */
    CHECK(run(items(REQUEST_ACK, mortal("w", 1), 1, 1)) == IMPEL_OK);
    await_dead(judge, "w");
    CHECK(drop(judge, "w", -1));
    CHECK(look_at(look(judge, LOOK_BEAT), "w") == NULL);
    /* Had it only slept it would now see that its row is gone. */
    CHECK(run(items(REQUEST_RENEW, mortal("w", 1), 0, 0)) == IMPEL_ERR_FENCED);
    CHECK(beat_result("s", "g", mortal("w", 1), false) == BEAT_REVIVED);
}

TEST(a_live_worker_is_never_dropped)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", worker("w", 1));
    CHECK(!drop(worker("judge", 9), "w", 0));
    CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_TAKEN);
}

TEST(a_worker_that_beats_again_before_the_drop_stays)
{
    struct who judge = worker("judge", 9);
    suite_begin();
    group_make("s", "g");
    struct who w = mortal("w", 1);
    beat("s", "g", w);
    await_dead(judge, "w");
    w.dead_after_ms = ALIVE_MS;
    CHECK(beat_result("s", "g", w, false) == BEAT_REVIVED);
    CHECK(!drop(judge, "w", 0));
    CHECK(look_at(look(judge, LOOK_BEAT), "w")->state == OWNER_LIVE);
}

TEST(a_foreign_consumer_is_dropped_only_after_long_inactivity)
{
    struct who judge = worker("judge", 9);
    suite_begin();
    scene(foreign("f"), 1);
    CHECK(!drop(judge, "f", 0)); /* holds something */
    CHECK(run(items(REQUEST_ACK, foreign("f"), 1, 1)) == IMPEL_OK);
    CHECK(!drop(judge, "f", -1));
    CHECK(!drop(judge, "f", ALIVE_MS));
    CHECK(look_at(look(judge, LOOK_BEAT), "f") != NULL);
    CHECK(drop(judge, "f", 0));
    CHECK(look_at(look(judge, LOOK_BEAT), "f") == NULL);
}

TEST(a_drop_is_refused_under_an_occupied_name)
{
    suite_begin();
    scene(foreign("f"), 0);
    beat("s", "g", worker("w", 1));
    struct request *request = ask_as(REQUEST_DROP, "s", "g", worker("w", 2));
    request->leave.name = span("f");
    CHECK(run(request) == IMPEL_ERR_REPLACED);
}

TEST(the_table_judges_each_worker_by_its_own_patience)
{
    suite_begin();
    group_make("s", "g");
    beat("s", "g", mortal("quick", 1));
    beat("s", "g", worker("slow", 2));
    await_dead(worker("judge", 9), "quick");
    const struct look_owner *slow = look_at(look(worker("judge", 9), LOOK_BEAT), "slow");
    CHECK(slow->state == OWNER_LIVE);
    CHECK(slow->dead_after_ms == worker("slow", 2).dead_after_ms);
    keep_beating(worker("slow", 2), 20);
}
