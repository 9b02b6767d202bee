/* conformance_fence.c -- what a holder may do to its own, and that nobody else can: retry, adopt,
 * renew, release, park and the strict ack, each against every way of having lost an entry. */
#include "store/suite.h"

static const enum request_kind fenced[] = {
    REQUEST_RETRY, REQUEST_ADOPT, REQUEST_RENEW, REQUEST_RELEASE, REQUEST_PARK, REQUEST_ACK,
};

static struct request *fenced_items(enum request_kind kind, struct who who, int64_t deliveries)
{
    struct request *request = items(kind, who, 1, deliveries);
    if (kind == REQUEST_ACK) {
        request->ack.strict = true;
    }
    return request;
}

static enum item_result result_of(const struct request *request)
{
    return request->kind == REQUEST_ACK ? request->ack.items[0].result
                                        : request->items.items[0].result;
}

/* The row of 1-0 as it must still be, whatever was tried. */
static void check_untouched(const char *owner, int64_t deliveries)
{
    const struct pending_row *row = row_of(id_of(1, 0));
    CHECK(row != NULL);
    CHECK(same(row->owner, owner));
    CHECK(row->deliveries == deliveries);
    CHECK_U64(entries_of("s:dead")->range.entry_count, 0);
}

/* ---- the fence ---- */

TEST(another_owner_keeps_its_entry)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(worker("w", 1), 1);
        beat("s", "g", worker("v", 2));
        struct request *request = fenced_items(fenced[i], worker("v", 2), 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_LOST);
        check_untouched("w", 1);
    }
}

TEST(another_count_is_another_delivery)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(worker("w", 1), 1);
        CHECK(run(items(REQUEST_RETRY, worker("w", 1), 1, 1)) == IMPEL_OK);
        struct request *request = fenced_items(fenced[i], worker("w", 1), 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_LOST);
        check_untouched("w", 2);
    }
}

TEST(another_token_is_another_worker)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(worker("w", 1), 1);
        struct request *request = fenced_items(fenced[i], worker("w", 2), 1);
        CHECK(run(request) == IMPEL_ERR_REPLACED);
        check_untouched("w", 1);
    }
}

TEST(who_is_not_in_the_table_is_fenced)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(foreign("w"), 1);
        struct request *request = fenced_items(fenced[i], worker("w", 1), 1);
        CHECK(run(request) == IMPEL_ERR_FENCED);
        check_untouched("w", 1);
    }
}

TEST(who_was_judged_dead_is_fenced_until_it_beats)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(mortal("w", 1), 1);
        await_dead(worker("judge", 9), "w");
        struct request *request = fenced_items(fenced[i], mortal("w", 1), 1);
        CHECK(run(request) == IMPEL_ERR_FENCED);
        check_untouched("w", 1);
        CHECK(beat_result("s", "g", worker("w", 1), false) == BEAT_REVIVED);
        request = fenced_items(fenced[i], worker("w", 1), 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_DONE);
    }
}

TEST(what_is_not_pending_is_lost)
{
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        suite_begin();
        scene(worker("w", 1), 1);
        CHECK(run(items(REQUEST_ACK, worker("w", 1), 1, 1)) == IMPEL_OK);
        struct request *request = fenced_items(fenced[i], worker("w", 1), 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_LOST);
        CHECK(row_of(id_of(1, 0)) == NULL);
        CHECK_U64(entries_of("s:dead")->range.entry_count, 0);
    }
}

TEST(a_released_entry_taken_by_another_with_the_same_count_is_lost)
{
    /* w reads it (w, 1); it is released, the attempt given back, and v takes it: (v, 1). */
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    request->items.items[0].give_back = true;
    CHECK(run(request) == IMPEL_OK);
    request = claim_from(worker("v", 2), RELEASED_NAME);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->claim_from.entry_count, 1);
    CHECK(request->claim_from.entries[0].deliveries == 1);
    request = items(REQUEST_PARK, worker("w", 1), 1, 1);
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request) == ITEM_LOST);
    check_untouched("v", 1);
}

TEST(the_same_name_and_count_under_another_token_is_lost)
{
    /* A = w stops, B = w takes the name, gets the entry back with the count 1: A's late park must
     * not pass, though owner and count are what A saw. */
    suite_begin();
    scene(mortal("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, mortal("w", 1), 1, 1);
    request->items.items[0].give_back = true;
    CHECK(run(request) == IMPEL_OK);
    await_dead(worker("judge", 9), "w");
    beat("s", "g", worker("w", 2));
    request = claim_from(worker("w", 2), RELEASED_NAME);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->claim_from.entry_count, 1);
    check_untouched("w", 1);
    for (size_t i = 0; i < ARRAY_SIZE(fenced); i++) {
        CHECK(run(fenced_items(fenced[i], mortal("w", 1), 1)) == IMPEL_ERR_REPLACED);
        check_untouched("w", 1);
    }
}

TEST(items_are_judged_one_by_one)
{
    suite_begin();
    scene(worker("w", 1), 5);
    struct request_item ack = {.id = id_of(2, 0)};
    struct request *request = ask(REQUEST_ACK, "s", "g");
    request->ack.items = &ack;
    request->ack.item_count = 1;
    CHECK(run(request) == IMPEL_OK);
    request = items(REQUEST_RENEW, worker("w", 1), 5, 1);
    request->items.items[3].deliveries = 7;
    CHECK(run(request) == IMPEL_OK);
    static const enum item_result want[] = {ITEM_DONE, ITEM_LOST, ITEM_DONE, ITEM_LOST, ITEM_DONE};
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        CHECK_U64(request->items.items[i].result, want[i]);
    }
}

/* ---- retry and adopt ---- */

static void check_given_again(const struct request_item *item, const char *owner)
{
    CHECK(item->result == ITEM_DONE);
    CHECK(item->entry != NULL);
    CHECK(id_equal(item->entry->id, item->id));
    CHECK(same(item->entry->fields[0].value, "v"));
    const struct pending_row *row = row_of(item->id);
    CHECK(row->deliveries == 2);
    CHECK(same(row->owner, owner));
}

TEST(retry_and_adopt_count_a_delivery_and_give_the_entry)
{
    static const enum request_kind kinds[] = {REQUEST_RETRY, REQUEST_ADOPT};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        suite_begin();
        scene(worker("w", 1), 2);
        struct request *request = items(kinds[i], worker("w", 1), 2, 1);
        CHECK(run(request) == IMPEL_OK);
        for (size_t k = 0; k < 2; k++) {
            check_given_again(&request->items.items[k], "w");
        }
    }
}

TEST(retry_and_adopt_of_a_trimmed_entry_take_the_row_away)
{
    static const enum request_kind kinds[] = {REQUEST_RETRY, REQUEST_ADOPT};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        suite_begin();
        scene(worker("w", 1), 1);
        CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
        struct request *request = items(kinds[i], worker("w", 1), 1, 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_TRIMMED);
        CHECK(request->items.items[0].entry == NULL);
        CHECK(row_of(id_of(1, 0)) == NULL);
    }
}

/* ---- renew ---- */

TEST(renew_resets_idle_and_nothing_else)
{
    suite_begin();
    scene(worker("w", 1), 1);
    int64_t since_ms = suite_now_ms();
    while (row_of(id_of(1, 0))->idle_ms < 300) {
        CHECK(!suite_overdue(since_ms));
        suite_pause(20);
    }
    /* On a clock that ticks the row may age again before it is seen: it must have been young once. */
    bool young = false;
    for (int i = 0; i < 50 && !young; i++) {
        struct request *request = items(REQUEST_RENEW, worker("w", 1), 1, 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_DONE);
        young = row_of(id_of(1, 0))->idle_ms < 300;
    }
    CHECK(young);
    check_untouched("w", 1);
}

TEST(renew_of_a_trimmed_entry_leaves_the_row)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    for (int i = 0; i < 2; i++) {
        struct request *request = items(REQUEST_RENEW, worker("w", 1), 1, 1);
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request) == ITEM_TRIMMED);
        check_untouched("w", 1);
        CHECK(!row_of(id_of(1, 0))->exists);
    }
}

/* ---- release ---- */

TEST(release_gives_the_attempt_back)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    request->items.items[0].give_back = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request) == ITEM_DONE);
    const struct pending_row *row = row_of(id_of(1, 0));
    CHECK(row != NULL);
    CHECK(same(row->owner, RELEASED_NAME));
    CHECK(row->deliveries == 0);
    CHECK(row->idle_ms > 1000000000); /* delivered-at 1: any XAUTOCLAIM takes it */
}

TEST(release_can_keep_count_and_idle_so_that_a_backoff_goes_on)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    request->items.items[0].idle_ms = 5000;
    CHECK(run(request) == IMPEL_OK);
    const struct pending_row *row = row_of(id_of(1, 0));
    CHECK(same(row->owner, RELEASED_NAME));
    CHECK(row->deliveries == 1);
    CHECK(row->idle_ms >= 5000 && row->idle_ms < 5000 + SUITE_WAIT_MS);
}

TEST(release_of_the_rest_goes_by_name_in_steps)
{
    enum { N = 1503 };
    suite_begin();
    scene(worker("w", 1), N);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 2, 1);
    request->items.items[0].give_back = request->items.items[1].give_back = true;
    request->items.rest = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK(request->items.more);
    CHECK_U64(request->items.rested, 1000);
    request = items(REQUEST_RELEASE, worker("w", 1), 0, 0);
    request->items.rest = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->items.more);
    CHECK_U64(request->items.rested, N - 2 - 1000);
    CHECK_U64(pending_of("w"), 0);
    CHECK_U64(pending_of(RELEASED_NAME), N);
    CHECK(row_of(id_of(1, 0))->deliveries == 0);
    CHECK(row_of(id_of(3, 0))->deliveries == 1);
    CHECK(row_of(id_of(3, 0))->idle_ms > 1000000000);
}

TEST(release_of_a_trimmed_entry_is_accounted_for)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    CHECK(run(request) == IMPEL_OK);
    const struct pending_row *row = row_of(id_of(1, 0));
    /* Either the caller reports the loss, or whoever sweeps next finds it. */
    CHECK(result_of(request) == ITEM_TRIMMED ? row == NULL
                                             : row != NULL && same(row->owner, RELEASED_NAME));
}

TEST(strict_ack_takes_what_is_held)
{
    suite_begin();
    scene(worker("w", 1), 2);
    struct request *request = items(REQUEST_ACK, worker("w", 1), 2, 1);
    request->ack.strict = true;
    request->ack.items[1].deliveries = 3;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->ack.acked, 1);
    CHECK(request->ack.items[0].result == ITEM_DONE);
    CHECK(request->ack.items[1].result == ITEM_LOST);
    CHECK(row_of(id_of(1, 0)) == NULL);
    CHECK(row_of(id_of(2, 0)) != NULL);
}
