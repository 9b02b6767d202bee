/* conformance_move.c -- what a sweep without a worker may do with overdue entries: requeue them, hand
 * them over, park them all; and what a requeued entry carries. */
#include "store/suite.h"

#include <stdlib.h>

enum {
    LARGE_FIELDS = 5000, /* more than a script can pass on */
};

/* A walk over f's entries by a sweep that does this. */
static struct request *sweep_f(unsigned action)
{
    struct request *request = claim_from(nobody(), "f");
    request->claim_from.flags |= action;
    return request;
}

static struct request *moved(struct request *request, size_t count)
{
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->claim_from.moved_count, count);
    CHECK_U64(request->claim_from.entry_count, 0);
    return request;
}

static struct request *requeue(size_t count)
{
    return moved(sweep_f(CLAIM_REQUEUE), count);
}

static const struct entry *last_entry(void)
{
    struct request *all = entries_of("s");
    CHECK(all->range.entry_count > 0);
    return all->range.entries[all->range.entry_count - 1];
}

/* ---- requeue ---- */

TEST(a_requeued_entry_is_new_work_at_the_streams_end)
{
    suite_begin();
    scene(foreign("f"), 2);
    struct request *request = requeue(2);
    const struct moved *first = &request->claim_from.moved[0];
    CHECK(id_equal(first[0].id, id_of(1, 0)) && id_equal(first[1].id, id_of(2, 0)));
    CHECK(first[0].deliveries == 1 && first[0].idle_ms >= 0);
    CHECK(id_compare(first[0].copy, id_of(2, 0)) > 0);
    CHECK(id_compare(first[0].copy, first[1].copy) < 0);
    CHECK_U64(request->claim_from.due, 0);
    CHECK(!request->claim_from.other_groups);
    CHECK_U64(pending_of("f"), 0);
    CHECK_U64(entries_of("s")->range.entry_count, 4); /* acknowledged, not deleted */
    struct request *again = read_new("s", "g", foreign("b"), 10);
    CHECK_U64(again->read.entry_count, 2);
    const struct entry *entry = again->read.entries[0].entry;
    CHECK(id_equal(entry->id, first[0].copy));
    CHECK_U64(entry->field_count, 1);
    CHECK(same(entry->fields[0].name, "f") && same(entry->fields[0].value, "v"));
    (void)requeue(0); /* once for one abandonment */
}

TEST(a_requeued_entry_carries_its_deliveries_beside_it)
{
    suite_begin();
    scene(foreign("f"), 1);
    for (int64_t round = 1; round < 5; round++) {
        struct request *request = requeue(1);
        CHECK(request->claim_from.moved[0].deliveries == round);
        struct impel_id copy = request->claim_from.moved[0].copy;
        CHECK_U64(read_new("s", "g", foreign("f"), 1)->read.entry_count, 1);
        const struct pending_row *row = row_of(copy);
        CHECK(row->deliveries == 1 && row->carried == round);
    }
    /* Five by now: the limit, whatever the row says. */
    struct request *request = requeue(0);
    CHECK_U64(request->claim_from.parked_count, 1);
    CHECK(request->claim_from.parked[0].deliveries == 5);
    const struct entry *record = entries_of("s:dead")->range.entries[0];
    CHECK(same(field_of(record, "deliveries"), "5"));
    CHECK(same(field_of(record, "reason"), "max-deliveries"));
}

TEST(what_an_entry_carries_makes_its_wait_longer)
{
    suite_begin();
    scene(foreign("f"), 1);
    (void)requeue(1);
    (void)read_new("s", "g", foreign("f"), 1);
    struct request *request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.policy.backoff_base_ms = ALIVE_MS;
    request->claim_from.policy.backoff_cap_ms = (int64_t)ALIVE_MS * 8;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.not_due, 1);
    /* Due by the row alone: only what it carries keeps it. */
    request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.policy.max_deliveries = 2;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.parked_count, 1);
}

TEST(a_worker_that_claims_a_requeued_entry_judges_by_all_it_has_had)
{
    suite_begin();
    scene(foreign("f"), 1);
    (void)requeue(1);
    (void)read_new("s", "g", foreign("f"), 1);
    struct request *request = claim_from(worker("me", 7), "f");
    request->claim_from.policy.max_deliveries = 3; /* the next is its last */
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->claim_from.due_last, 1);
    request = claim_from(worker("me", 7), "f");
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->claim_from.entry_count, 1);
    CHECK(request->claim_from.entries[0].deliveries == 2); /* the row's */
}

TEST(what_is_finished_with_is_not_carried_for_ever)
{
    suite_begin();
    scene(foreign("f"), 2);
    struct request *request = requeue(2);
    struct impel_id first = request->claim_from.moved[0].copy;
    struct impel_id second = request->claim_from.moved[1].copy;
    CHECK_U64(read_new("s", "g", foreign("f"), 1)->read.entry_count, 1);
    request = ask(REQUEST_ACK, "s", "g");
    struct request_item item = {.id = first};
    request->ack.items = &item;
    request->ack.item_count = 1;
    CHECK(run(request) == IMPEL_OK && request->ack.acked == 1);
    (void)look(nobody(), LOOK_BEAT | LOOK_STAMP);
    /* The same IDs once more: only what was not finished is still known. */
    request = ask(REQUEST_GROUP_SET, "s", "g");
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(read_new("s", "g", foreign("f"), 10)->read.entry_count, 4);
    CHECK(row_of(first)->carried == 0);
    CHECK(row_of(second)->carried == 1);
}

TEST(another_group_forbids_a_requeue)
{
    suite_begin();
    scene(foreign("f"), 2);
    group_make("s", "other");
    struct request *request = requeue(0);
    CHECK(request->claim_from.other_groups);
    CHECK_U64(request->claim_from.due, 2);
    CHECK(id_is_zero(request->claim_from.next)); /* it does not hold up the walk */
    CHECK_U64(pending_of("f"), 2);
    CHECK_U64(length_of("s"), 2);
    request = moved(sweep_f(CLAIM_REQUEUE | CLAIM_ALL_GROUPS), 2);
    CHECK(!request->claim_from.other_groups);
    CHECK_U64(length_of("s"), 4);
}

TEST(a_step_stops_in_front_of_what_it_has_no_room_for)
{
    suite_begin();
    scene(foreign("f"), 5);
    struct request *request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.claims_max = 2;
    (void)moved(request, 2);
    CHECK_U64(request->claim_from.due, 0); /* the next step finds it */
    CHECK(id_equal(request->claim_from.next, id_of(3, 0)));
    CHECK_U64(pending_of("f"), 3);
    request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.claims_max = 0; /* only finds */
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.due, 3);
    CHECK(id_is_zero(request->claim_from.next));
}

/* A store is busy with one step at a time. */
TEST(a_step_moves_no_more_than_a_quarter_of_a_mebibyte_and_an_entry)
{
    suite_begin();
    group_make("s", "g");
    static char value[150 * 1024];
    memset(value, 'x', sizeof(value));
    for (uint64_t i = 1; i <= 5; i++) {
        struct request *request = add_request("s", id_of(i, 0));
        struct impel_field field = {span("f"), {value, sizeof(value)}};
        request->add.fields = &field;
        request->add.field_count = 1;
        CHECK(run(request) == IMPEL_OK);
    }
    CHECK_U64(read_new("s", "g", foreign("f"), 5)->read.entry_count, 5);
    for (uint64_t done = 0; done < 5;) {
        struct request *request = sweep_f(CLAIM_REQUEUE);
        request->claim_from.from = id_of(done + 1, 0);
        CHECK(run(request) == IMPEL_OK);
        CHECK(request->claim_from.moved_count >= 1 && request->claim_from.moved_count <= 2);
        CHECK(id_equal(request->claim_from.moved[0].id, id_of(done + 1, 0)));
        done += request->claim_from.moved_count;
        CHECK(id_equal(request->claim_from.next, done < 5 ? id_of(done + 1, 0) : ID_MIN));
    }
    CHECK_U64(last_entry()->fields[0].value.size, sizeof(value));
}

TEST(a_gone_entry_is_reaped_not_requeued)
{
    suite_begin();
    scene(foreign("f"), 2);
    CHECK(command("XDEL s 1-0"));
    struct request *request = requeue(1);
    CHECK_U64(request->claim_from.reaped_count, 1);
    CHECK(id_equal(request->claim_from.reaped[0].id, id_of(1, 0)));
    CHECK(id_equal(request->claim_from.moved[0].id, id_of(2, 0)));
}

TEST(a_live_workers_entries_are_not_requeued)
{
    suite_begin();
    scene(worker("f", 1), 1);
    struct request *request = requeue(0);
    CHECK(request->claim_from.state == OWNER_LIVE);
    CHECK_U64(pending_of("f"), 1);
}

TEST(what_is_not_overdue_is_not_requeued)
{
    suite_begin();
    scene(foreign("f"), 1);
    struct request *request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.policy.min_idle_ms = ALIVE_MS;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.not_due, 1);
    CHECK_U64(pending_of("f"), 1);
}

TEST(released_and_unowned_entries_are_requeued_too)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_RELEASE, worker("w", 1), 1, 1);
    request->items.items[0].give_back = true;
    CHECK(run(request) == IMPEL_OK);
    request = claim_from(nobody(), RELEASED_NAME);
    request->claim_from.flags |= CLAIM_REQUEUE;
    (void)moved(request, 1);
    CHECK(request->claim_from.moved[0].deliveries == 0); /* the attempt was given back */
    CHECK_U64(pending_of(RELEASED_NAME), 0);
}

/* An entry of many fields, read by f. */
static void large_scene(void)
{
    struct impel_field *fields = calloc(LARGE_FIELDS, sizeof(*fields));
    struct request *request = add_request("s", id_of(1, 0));

    CHECK(fields != NULL);
    group_make("s", "g");
    for (size_t i = 0; i < LARGE_FIELDS; i++) {
        fields[i] = (struct impel_field){span("name"), span(i % 2 == 0 ? "even" : "odd")};
    }
    request->add.fields = fields;
    request->add.field_count = LARGE_FIELDS;
    CHECK(run(request) == IMPEL_OK);
    free(fields);
    CHECK_U64(read_new("s", "g", foreign("f"), 1)->read.entry_count, 1);
}

TEST(an_entry_of_very_many_fields_is_requeued)
{
    suite_begin();
    large_scene();
    struct request *request = requeue(1);
    const struct entry *copy = last_entry();
    CHECK(id_equal(copy->id, request->claim_from.moved[0].copy));
    CHECK(id_equal(request->claim_from.moved[0].id, id_of(1, 0)));
    CHECK_U64(copy->field_count, LARGE_FIELDS);
    CHECK(same(copy->fields[LARGE_FIELDS - 1].value, "odd"));
    CHECK_U64(pending_of("f"), 0);
    CHECK_U64(read_new("s", "g", foreign("f"), 1)->read.entry_count, 1);
    CHECK(row_of(copy->id)->carried == 1);
    (void)requeue(1);
    CHECK_U64(entries_of("s")->range.entry_count, 3);
}

TEST(an_entry_of_very_many_fields_is_parked_with_all_its_deliveries)
{
    suite_begin();
    large_scene();
    (void)requeue(1);
    (void)read_new("s", "g", foreign("f"), 1);
    struct request *request = sweep_f(CLAIM_REQUEUE);
    request->claim_from.policy.max_deliveries = 2;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.parked_count, 1);
    CHECK(request->claim_from.parked[0].deliveries == 2);
    CHECK(same(field_of(entries_of("s:dead")->range.entries[0], "deliveries"), "2"));
}

/* ---- hand over ---- */

static struct request *hand_over(const char *heir, size_t count)
{
    struct request *request = sweep_f(CLAIM_HAND_OVER);
    request->claim_from.heir = span(heir);
    return moved(request, count);
}

TEST(a_handed_over_entry_is_the_heirs_next_delivery)
{
    suite_begin();
    scene(foreign("f"), 2);
    (void)add("s", id_of(3, 0), "v");
    (void)read_new("s", "g", foreign("heir"), 1);
    struct request *request = hand_over("heir", 2);
    CHECK(id_equal(request->claim_from.moved[0].id, id_of(1, 0)));
    CHECK(id_equal(request->claim_from.moved[0].copy, id_of(1, 0)));
    CHECK(request->claim_from.moved[0].deliveries == 1);
    CHECK_U64(pending_of("f"), 0);
    CHECK_U64(pending_of("heir"), 3);
    CHECK(row_of(id_of(1, 0))->deliveries == 2);
    CHECK(row_of(id_of(1, 0))->idle_ms < SUITE_WAIT_MS);
    CHECK_U64(length_of("s"), 3);
}

TEST(without_the_heir_an_entry_stays_where_it_is)
{
    suite_begin();
    scene(foreign("f"), 2);
    struct request *request = hand_over("gone", 0);
    CHECK_U64(request->claim_from.due, 2);
    CHECK(id_is_zero(request->claim_from.next));
    CHECK(!request->claim_from.other_groups);
    CHECK_U64(pending_of("f"), 2);
    CHECK(look_at(look(nobody(), LOOK_BEAT), "gone") == NULL);
}

TEST(poison_is_parked_instead_of_handed_over)
{
    suite_begin();
    scene(foreign("f"), 1);
    (void)read_new("s", "g", foreign("heir"), 1);
    struct request *request = sweep_f(CLAIM_HAND_OVER);
    request->claim_from.heir = span("heir");
    request->claim_from.policy.max_deliveries = 1;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.parked_count, 1);
}

/* ---- park ---- */

TEST(all_that_is_abandoned_is_parked_for_a_person_to_look_at)
{
    suite_begin();
    scene(foreign("f"), 3);
    struct request *request = sweep_f(CLAIM_PARK);
    request->claim_from.claims_max = 2;
    (void)moved(request, 0);
    CHECK_U64(request->claim_from.parked_count, 2);
    CHECK(id_equal(request->claim_from.next, id_of(3, 0)));
    request = entries_of("s:dead");
    CHECK_U64(request->range.entry_count, 2);
    const struct entry *record = request->range.entries[0];
    CHECK(same(field_of(record, "reason"), "abandoned"));
    CHECK(same(field_of(record, "original_id"), "1-0"));
    CHECK(same(field_of(record, "deliveries"), "1"));
    CHECK_U64(pending_of("f"), 1);
}

/* ---- who was seen when ---- */

TEST(a_look_says_since_when_a_consumer_was_not_seen)
{
    enum { ROUNDING_MS = 5 };
    suite_begin();
    scene(foreign("f"), 1);
    suite_pause(20);
    struct request *request = look(nobody(), LOOK_BEAT);
    int64_t age_ms = look_at(request, "f")->seen_age_ms;
    CHECK(age_ms >= 20 && age_ms < SUITE_WAIT_MS);
    (void)add("s", id_of(2, 0), "v");
    suite_pause(20);
    int64_t before_ms = suite_now_ms();
    (void)read_new("s", "g", foreign("f"), 1);
    age_ms = look_at(look(nobody(), LOOK_BEAT), "f")->seen_age_ms;
    CHECK(age_ms <= suite_now_ms() - before_ms + ROUNDING_MS);
}
