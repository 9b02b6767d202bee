/* conformance_claim.c -- walking somebody's PEL: whose entries may be taken, when, how many, what is
 * parked and reaped on the way, and where the walk goes on. */
#include "store/suite.h"

static struct who me(void)
{
    return worker("me", 7);
}

static struct request *walk(struct request *request)
{
    CHECK(run(request) == IMPEL_OK);
    return request;
}

static void check_counts(const struct request *request, size_t entries, size_t due, size_t not_due)
{
    CHECK_U64(request->claim_from.entry_count, entries);
    CHECK_U64(request->claim_from.due, due);
    CHECK_U64(request->claim_from.not_due, not_due);
}

/* n entries held by a worker that was seen dead */
static void dead_scene(uint64_t n)
{
    scene(mortal("dead", 1), n);
    await_dead(me(), "dead");
}

/* ---- whose entries ---- */

TEST(a_dead_workers_entries_are_claimed)
{
    suite_begin();
    dead_scene(2);
    struct request *request = walk(claim_from(me(), "dead"));
    CHECK(request->claim_from.state == OWNER_DEAD);
    CHECK(request->claim_from.beat == BEAT_TAKEN);
    check_counts(request, 2, 0, 0);
    CHECK(id_is_zero(request->claim_from.next));
    CHECK(id_is_zero(request->claim_from.due_first));
    CHECK(request->claim_from.wait_ms == -1);
    CHECK_U64(request->claim_from.rows, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct delivered *got = &request->claim_from.entries[i];
        CHECK(id_equal(got->entry->id, id_of(i + 1, 0)));
        CHECK(same(got->entry->fields[0].value, "v"));
        CHECK(got->deliveries == 2);
        CHECK(got->from == OWNER_DEAD);
        CHECK(got->idle_ms >= 0);
        const struct pending_row *row = row_of(id_of(i + 1, 0));
        CHECK(same(row->owner, "me"));
        CHECK(row->deliveries == 2);
        CHECK(row->idle_ms < SUITE_WAIT_MS);
    }
    check_counts(walk(claim_from(worker("late", 8), "dead")), 0, 0, 0); /* the same verdict, late */
}

TEST(a_live_workers_entries_are_left)
{
    suite_begin();
    scene(worker("w", 1), 1);
    beat("s", "g", me());
    struct request *request = walk(claim_from(me(), "w"));
    CHECK(request->claim_from.state == OWNER_LIVE);
    check_counts(request, 0, 0, 0);
    CHECK_U64(pending_of("w"), 1);
}

TEST(a_worker_that_came_back_between_verdict_and_claim_keeps_its_entries)
{
    suite_begin();
    dead_scene(1);
    struct who back = worker("dead", 1);
    CHECK(beat_result("s", "g", back, false) == BEAT_REVIVED);
    struct request *request = walk(claim_from(me(), "dead"));
    CHECK(request->claim_from.state == OWNER_LIVE);
    check_counts(request, 0, 0, 0);
    CHECK(row_of(id_of(1, 0))->deliveries == 1);
}

TEST(ones_own_entries_are_not_for_claiming)
{
    suite_begin();
    scene(me(), 1);
    struct request *request = walk(claim_from(me(), "me"));
    CHECK(request->claim_from.state == OWNER_ME);
    check_counts(request, 0, 0, 0);
    CHECK(row_of(id_of(1, 0))->deliveries == 1);
}

TEST(a_foreign_workers_entries_wait_for_min_idle)
{
    suite_begin();
    scene(foreign("f"), 1);
    struct request *request = claim_from(me(), "f");
    request->claim_from.policy.min_idle_ms = ALIVE_MS;
    (void)walk(request);
    CHECK(request->claim_from.state == OWNER_FOREIGN);
    check_counts(request, 0, 0, 1);
    CHECK(request->claim_from.wait_ms > 0 && request->claim_from.wait_ms <= ALIVE_MS);
    request = walk(claim_from(me(), "f"));
    check_counts(request, 1, 0, 0);
    CHECK(request->claim_from.entries[0].from == OWNER_FOREIGN);
}

TEST(released_entries_are_free_at_once_or_after_their_backoff)
{
    suite_begin();
    scene(worker("w", 1), 2);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 2, 1);
    request->items.items[0].give_back = true;
    request->items.items[1].idle_ms = 1000;
    CHECK(run(request) == IMPEL_OK);
    request = claim_from(me(), RELEASED_NAME);
    request->claim_from.policy.backoff_base_ms = ALIVE_MS;
    request->claim_from.policy.backoff_cap_ms = ALIVE_MS;
    (void)walk(request);
    CHECK(request->claim_from.state == OWNER_RELEASED);
    check_counts(request, 1, 0, 1);
    CHECK(id_equal(request->claim_from.entries[0].entry->id, id_of(1, 0)));
    CHECK(request->claim_from.entries[0].deliveries == 1);
    CHECK(request->claim_from.entries[0].from == OWNER_RELEASED);
    CHECK(request->claim_from.wait_ms > 0);
    CHECK(request->claim_from.wait_ms <= ALIVE_MS + ALIVE_MS / 10 - 1000);
}

TEST(the_wait_is_the_backoff_of_this_entry_to_the_millisecond)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    request->items.items[0].idle_ms = 0;
    CHECK(run(request) == IMPEL_OK);
    int64_t released_ms = request->store_now_ms;
    request = claim_from(me(), RELEASED_NAME);
    request->claim_from.policy.backoff_base_ms = 100000;
    (void)walk(request);
    int64_t want_ms = policy_backoff_ms(&request->claim_from.policy, 1, id_of(1, 0));
    CHECK(want_ms > 100000); /* the jitter of this ID is not nothing */
    CHECK_U64(request->claim_from.wait_ms + (request->store_now_ms - released_ms), want_ms);
}

TEST(nobodys_entries_do_not_need_a_consumer)
{
    suite_begin();
    scene(foreign("f"), 1);
    struct request *request = claim_from(me(), "");
    request->claim_from.nobody = true;
    (void)walk(request);
    CHECK(request->claim_from.state == OWNER_NOBODY);
    check_counts(request, 0, 0, 0);
    request = walk(claim_from(me(), "never seen"));
    CHECK(request->claim_from.state == OWNER_FOREIGN);
    check_counts(request, 0, 0, 0);
    CHECK(look_at(look(me(), LOOK_BEAT), "never seen") == NULL);
}

/* XNACK is a matter of the store's version. */
TEST(what_XNACK_gave_back_is_recovered)
{
    suite_begin();
    scene(foreign("f"), 4);
    if (!command("XNACK s g FAIL IDS 2 3-0 1-0")) {
        SKIP("the store has no XNACK");
    }
    CHECK(command("XNACK s g FATAL IDS 1 4-0"));
    CHECK(row_of(id_of(1, 0))->owner.size == 0);
    CHECK(row_of(id_of(1, 0))->idle_ms == -1);
    struct request *look_request = look(me(), LOOK_BEAT);
    CHECK_U64(look_request->look.pending, 4);
    CHECK_U64(look_at(look_request, "f")->pending, 1);
    struct request *request = claim_from(me(), "");
    request->claim_from.nobody = true;
    request->claim_from.flags |= CLAIM_SETTLE;
    request->claim_from.dead_letter = span("s:dead");
    request->claim_from.policy.max_deliveries = 5;
    request->claim_from.policy.backoff_base_ms = 100000;
    request->claim_from.policy.backoff_cap_ms = 100000;
    (void)walk(request);
    CHECK(request->claim_from.state == OWNER_NOBODY);
    check_counts(request, 2, 0, 0);
    CHECK(id_equal(request->claim_from.entries[0].entry->id, id_of(1, 0)));
    CHECK(id_equal(request->claim_from.entries[1].entry->id, id_of(3, 0)));
    CHECK(request->claim_from.entries[0].deliveries == 2);
    CHECK(request->claim_from.entries[0].from == OWNER_NOBODY);
    CHECK(request->claim_from.entries[0].idle_ms < 0);
    CHECK_U64(request->claim_from.parked_count, 1);
    CHECK_U64(length_of("s:dead"), 1);
    CHECK_U64(pending_of("me"), 2);
    CHECK_U64(pending_of("f"), 1);
}

TEST(a_claim_under_an_occupied_name_is_refused)
{
    suite_begin();
    dead_scene(1);
    struct request *request = claim_from(worker("me", 8), "dead");
    CHECK(run(request) == IMPEL_ERR_REPLACED);
    CHECK(request->claim_from.beat == BEAT_OCCUPIED);
    CHECK_U64(request->claim_from.entry_count, 0);
    CHECK_U64(pending_of("dead"), 1);
}

TEST(a_claim_beats_for_its_worker)
{
    suite_begin();
    dead_scene(1);
    struct request *request = walk(claim_from(worker("fresh", 8), "dead"));
    CHECK(request->claim_from.beat == BEAT_REVIVED); /* it had no row: it must renew first */
    CHECK(look_at(look(me(), LOOK_BEAT), "fresh")->state == OWNER_LIVE);
}

TEST(a_sweep_without_a_worker_finds_but_never_claims)
{
    suite_begin();
    dead_scene(2);
    await_dead(nobody(), "dead");
    struct request *request = claim_from(nobody(), "dead");
    request->claim_from.claims_max = 0;
    (void)walk(request);
    check_counts(request, 0, 2, 0);
    CHECK_U64(pending_of("dead"), 2);
}

/* ---- backoff and the last attempt ---- */

TEST(a_dead_workers_entry_waits_for_its_backoff)
{
    suite_begin();
    dead_scene(1);
    struct request *request = claim_from(me(), "dead");
    request->claim_from.policy.backoff_base_ms = ALIVE_MS;
    request->claim_from.policy.backoff_cap_ms = ALIVE_MS;
    (void)walk(request);
    check_counts(request, 0, 0, 1);
    CHECK(request->claim_from.wait_ms > 0);
    CHECK_U64(pending_of("dead"), 1);
}

TEST(a_last_attempt_is_only_taken_by_who_runs_nothing_else)
{
    suite_begin();
    dead_scene(2);
    CHECK(walk(claim_from(worker("x", 3), "x"))->claim_from.state == OWNER_ME);
    struct request *request = claim_from(me(), "dead");
    request->claim_from.policy.max_deliveries = 2;
    (void)walk(request);
    check_counts(request, 0, 2, 0);
    CHECK_U64(request->claim_from.due_last, 2);
    CHECK(id_equal(request->claim_from.due_first, id_of(1, 0)));
    CHECK(id_is_zero(request->claim_from.next)); /* these do not stop the walk */
    request = claim_from(me(), "dead");
    request->claim_from.policy.max_deliveries = 2;
    request->claim_from.flags |= CLAIM_LAST;
    request->claim_from.claims_max = 1;
    (void)walk(request);
    CHECK_U64(request->claim_from.entry_count, 1);
    CHECK(request->claim_from.entries[0].deliveries == 2);
    CHECK(id_equal(request->claim_from.next, id_of(2, 0)));
}

TEST(a_released_last_attempt_needs_no_care)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(items(REQUEST_RELEASE, worker("w", 1), 1, 1)) == IMPEL_OK);
    struct request *request = claim_from(me(), RELEASED_NAME);
    request->claim_from.policy.max_deliveries = 2;
    (void)walk(request);
    check_counts(request, 1, 0, 0);
}

/* ---- how far ---- */

TEST(claims_max_stops_the_walk_in_front_of_the_next_row)
{
    suite_begin();
    dead_scene(5);
    struct request *request = claim_from(me(), "dead");
    request->claim_from.claims_max = 2;
    (void)walk(request);
    CHECK_U64(request->claim_from.entry_count, 2);
    CHECK(request->claim_from.due >= 1);
    CHECK(id_equal(request->claim_from.due_first, id_of(3, 0)));
    CHECK(id_equal(request->claim_from.next, id_of(3, 0)));
    const struct request *seen = look(me(), LOOK_BEAT);
    CHECK(same(seen->look.cursor.owner, "dead"));
    CHECK(id_equal(seen->look.cursor.id, id_of(3, 0)));
    request = claim_from(me(), "dead");
    request->claim_from.from = id_of(3, 0);
    (void)walk(request);
    check_counts(request, 3, 0, 0);
    CHECK(id_is_zero(request->claim_from.next));
    seen = look(me(), LOOK_BEAT);
    CHECK(same(seen->look.cursor.owner, "dead"));
    CHECK(id_is_zero(seen->look.cursor.id));
}

/* All in one commit, where there are commits. */
static void add_many(size_t count)
{
    struct request *last = NULL;

    for (uint64_t i = 1; i <= count; i++) {
        last = add_request("s", id_of(i, 0));
        give(last);
    }
    CHECK(await(last) == IMPEL_OK);
}

TEST(a_thousand_are_claimed_in_one_step)
{
    enum { COUNT = 1010, CLAIMS = 1000 };
    suite_begin();
    group_make("s", "g");
    add_many(COUNT);
    CHECK_U64(read_new("s", "g", foreign("f"), COUNT)->read.entry_count, COUNT);
    struct request *request = claim_from(me(), "f");
    request->claim_from.claims_max = CLAIMS;
    (void)walk(request);
    CHECK_U64(request->claim_from.entry_count, CLAIMS);
    CHECK_U64(request->claim_from.rows, CLAIMS);
    CHECK(id_equal(request->claim_from.next, id_of(CLAIMS + 1, 0)));
    for (uint64_t i = 0; i < request->claim_from.entry_count; i++) {
        const struct delivered *got = &request->claim_from.entries[i];
        CHECK(got->entry != NULL && id_equal(got->entry->id, id_of(i + 1, 0)));
        CHECK(got->deliveries == 2 && same(got->entry->fields[0].value, "v"));
    }
    CHECK_U64(pending_of("me"), CLAIMS);
    request = claim_from(me(), "f");
    request->claim_from.from = id_of(CLAIMS + 1, 0);
    check_counts(walk(request), COUNT - CLAIMS, 0, 0);
}

/* More of them than a store may reckon with that fetches the entries by ranges. */
TEST(entries_of_others_in_between_do_not_matter)
{
    enum { FIRST = 200, OTHERS = 500, COUNT = 600, HELD = COUNT - (OTHERS - FIRST) };
    suite_begin();
    group_make("s", "g");
    add_many(COUNT);
    CHECK_U64(read_new("s", "g", foreign("f"), FIRST)->read.entry_count, FIRST);
    CHECK_U64(read_new("s", "g", foreign("other"), OTHERS - FIRST)->read.entry_count,
              OTHERS - FIRST);
    CHECK_U64(read_new("s", "g", foreign("f"), COUNT)->read.entry_count, COUNT - OTHERS);
    struct request *request = claim_from(me(), "f");
    request->claim_from.claims_max = 1000;
    (void)walk(request);
    CHECK_U64(request->claim_from.entry_count, HELD);
    for (uint64_t i = 0; i < request->claim_from.entry_count; i++) {
        const struct delivered *got = &request->claim_from.entries[i];
        uint64_t ms = i < FIRST ? i + 1 : i + 1 + OTHERS - FIRST;
        CHECK(got->entry != NULL && id_equal(got->entry->id, id_of(ms, 0)));
    }
    CHECK_U64(pending_of("me"), HELD);
    CHECK_U64(pending_of("other"), OTHERS - FIRST);
}

TEST(claims_max_zero_only_finds)
{
    suite_begin();
    dead_scene(5);
    struct request *request = claim_from(me(), "dead");
    request->claim_from.claims_max = 0;
    (void)walk(request);
    check_counts(request, 0, 5, 0);
    CHECK_U64(request->claim_from.rows, 5);
    CHECK_U64(request->claim_from.due_last, 0);
    CHECK(id_equal(request->claim_from.due_first, id_of(1, 0)));
    CHECK(id_is_zero(request->claim_from.next));
    CHECK_U64(pending_of("dead"), 5);
}

TEST(rows_max_bounds_a_step_and_next_goes_on)
{
    suite_begin();
    scene(foreign("f"), 25);
    struct impel_id from = ID_MIN;
    size_t rows = 0;
    size_t steps = 0;
    do {
        struct request *request = claim_from(me(), "f");
        request->claim_from.policy.min_idle_ms = ALIVE_MS;
        request->claim_from.rows_max = 10;
        request->claim_from.from = from;
        (void)walk(request);
        CHECK(request->claim_from.rows <= 10);
        CHECK_U64(request->claim_from.not_due, request->claim_from.rows);
        rows += request->claim_from.rows;
        from = request->claim_from.next;
        CHECK(++steps < 10);
    } while (!id_is_zero(from));
    CHECK_U64(rows, 25);
}

TEST(a_walk_sees_only_its_owners_rows)
{
    suite_begin();
    scene(foreign("a"), 2);
    (void)add("s", id_of(3, 0), "v");
    (void)read_new("s", "g", foreign("b"), 1);
    (void)add("s", id_of(4, 0), "v");
    (void)read_new("s", "g", foreign("a"), 1);
    struct request *request = walk(claim_from(me(), "a"));
    check_counts(request, 3, 0, 0);
    CHECK(id_equal(request->claim_from.entries[2].entry->id, id_of(4, 0)));
    CHECK_U64(pending_of("b"), 1);
}

/* ---- parking and reaping on the way ---- */

TEST(exhausted_entries_are_parked_and_the_walk_goes_on)
{
    suite_begin();
    dead_scene(3);
    CHECK(beat_result("s", "g", mortal("dead", 1), false) == BEAT_REVIVED);
    CHECK(run(items(REQUEST_RETRY, mortal("dead", 1), 2, 1)) == IMPEL_OK); /* 1-0, 2-0 have two */
    await_dead(me(), "dead");
    struct request *request = claim_from(me(), "dead");
    request->claim_from.policy.max_deliveries = 2;
    request->claim_from.flags |= CLAIM_LAST;
    (void)walk(request);
    CHECK_U64(request->claim_from.parked_count, 2);
    CHECK(id_equal(request->claim_from.parked[0].id, id_of(1, 0)));
    CHECK(request->claim_from.parked[0].deliveries == 2);
    CHECK(id_equal(request->claim_from.parked[1].id, id_of(2, 0)));
    CHECK_U64(request->claim_from.park_failed, 0);
    check_counts(request, 1, 0, 0);
    CHECK(id_equal(request->claim_from.entries[0].entry->id, id_of(3, 0)));
    CHECK(row_of(id_of(1, 0)) == NULL);
    struct request *dead = entries_of("s:dead");
    CHECK_U64(dead->range.entry_count, 2);
    CHECK(same(field_of(dead->range.entries[0], "reason"), "max-deliveries"));
    CHECK(same(field_of(dead->range.entries[0], "consumer"), "dead"));
    CHECK(same(field_of(dead->range.entries[0], "deliveries"), "2"));
    CHECK(same(field_of(dead->range.entries[0], "original_id"), "1-0"));
}

/* What other tools can make of the counter: as large as it gets, and one further. */
TEST(counts_past_all_counting_are_at_the_limit)
{
    suite_begin();
    scene(foreign("f"), 2);
    if (!command("XCLAIM s g f 0 1-0 2-0 RETRYCOUNT 9223372036854775807 JUSTID")) {
        SKIP("this store has no XCLAIM");
    }
    CHECK(command("XCLAIM s g f 0 2-0"));
    CHECK(row_of(id_of(1, 0))->deliveries == INT64_MAX);
    CHECK(row_of(id_of(2, 0))->deliveries < 0 || row_of(id_of(2, 0))->deliveries == INT64_MAX);
    struct request *request = claim_from(me(), "f");
    request->claim_from.policy.max_deliveries = INT64_MAX;
    request->claim_from.policy.backoff_base_ms = ALIVE_MS;
    request->claim_from.policy.backoff_cap_ms = ALIVE_MS;
    (void)walk(request);
    check_counts(request, 0, 0, 2); /* their wait is the longest there is */
    request = claim_from(me(), "f");
    request->claim_from.policy.max_deliveries = 1000;
    (void)walk(request);
    check_counts(request, 0, 0, 0);
    CHECK_U64(request->claim_from.parked_count, 2);
    CHECK_U64(length_of("s:dead"), 2);
    CHECK_U64(pending_of("f"), 0);
}

TEST(an_exhausted_entry_waits_for_its_idle_time_as_well)
{
    suite_begin();
    scene(foreign("f"), 1);
    struct request *request = claim_from(me(), "f");
    request->claim_from.policy.max_deliveries = 1;
    request->claim_from.policy.min_idle_ms = ALIVE_MS;
    (void)walk(request);
    CHECK_U64(request->claim_from.parked_count, 0);
    check_counts(request, 0, 0, 1);
    CHECK_U64(entries_of("s:dead")->range.entry_count, 0);
}

TEST(trimmed_entries_are_reaped)
{
    suite_begin();
    scene(foreign("f"), 2);
    struct request *request = ask(REQUEST_TRIM, "s", "");
    request->trim.length_max = 1;
    CHECK(run(request) == IMPEL_OK);
    request = walk(claim_from(me(), "f"));
    check_counts(request, 1, 0, 0);
    CHECK_U64(request->claim_from.reaped_count, 1);
    CHECK(id_equal(request->claim_from.reaped[0].id, id_of(1, 0)));
    CHECK(request->claim_from.reaped[0].deliveries == 1);
    CHECK(row_of(id_of(1, 0)) == NULL);
}

TEST(a_trimmed_entry_is_reaped_in_every_group_that_has_it)
{
    suite_begin();
    scene(foreign("f"), 1);
    group_make("s", "h");
    CHECK_U64(read_new("s", "h", foreign("f"), 1)->read.entry_count, 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    static const char *const groups[] = {"g", "h"};
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
        struct request *request = claim_from(me(), "f");
        request->group = span(groups[i]);
        (void)walk(request);
        CHECK_U64(request->claim_from.entry_count, 0);
        CHECK_U64(request->claim_from.reaped_count, 1);
        CHECK(id_equal(request->claim_from.reaped[0].id, id_of(1, 0)));
    }
}

TEST(a_live_workers_trimmed_entry_is_its_own_business)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    struct request *request = walk(claim_from(me(), "w"));
    CHECK_U64(request->claim_from.reaped_count, 0);
    CHECK(row_of(id_of(1, 0)) != NULL);
}

TEST(without_settle_nothing_is_parked_or_reaped)
{
    suite_begin();
    scene(foreign("f"), 2);
    struct request *request = ask(REQUEST_TRIM, "s", "");
    request->trim.length_max = 1;
    CHECK(run(request) == IMPEL_OK);
    request = claim_from(me(), "f");
    request->claim_from.flags = 0;
    request->claim_from.policy.max_deliveries = 1;
    (void)walk(request);
    CHECK_U64(request->claim_from.entry_count, 0);
    CHECK_U64(request->claim_from.parked_count, 0);
    CHECK_U64(request->claim_from.reaped_count, 0);
    CHECK_U64(pending_of("f"), 2);
    CHECK_U64(entries_of("s:dead")->range.entry_count, 0);
}

TEST(a_refusing_dead_letter_stream_leaves_entries_pending)
{
    suite_begin();
    scene(foreign("f"), 2);
    if (!command("SET s:dead v")) {
        SKIP("this store has no keys of another type");
    }
    struct request *request = claim_from(me(), "f");
    request->claim_from.policy.max_deliveries = 1;
    (void)walk(request);
    CHECK_U64(request->claim_from.parked_count, 0);
    CHECK_U64(request->claim_from.park_failed, 2);
    CHECK(request->claim_from.park_error.status < 0);
    CHECK(request->claim_from.park_error.text[0] != '\0');
    CHECK(id_is_zero(request->claim_from.next));
    CHECK_U64(pending_of("f"), 2);
}
