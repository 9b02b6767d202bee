/* conformance_park.c -- parking: the record in the dead-letter stream and the ack are one step. */
#include "store/suite.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const added_names[] = {
    "original_id", "original_stream", "original_group", "consumer",  "deliveries",
    "reason",      "error",           "last_active_ms", "parked_ms", "impel_fields",
};

static int64_t number_of(struct impel_bytes bytes)
{
    char text[32] = "";
    CHECK(bytes.size > 0 && bytes.size < sizeof(text));
    memcpy(text, bytes.data, bytes.size);
    for (size_t i = 0; i < bytes.size; i++) {
        CHECK((text[i] >= '0' && text[i] <= '9') || (i == 0 && text[i] == '-'));
    }
    return strtoll(text, NULL, 10);
}

static const struct entry *only_record(void)
{
    struct request *request = entries_of("s:dead");
    CHECK_U64(request->range.entry_count, 1);
    return request->range.entries[0];
}

static struct request *park(struct who who, int64_t deliveries)
{
    struct request *request = items(REQUEST_PARK, who, 1, deliveries);
    CHECK(run(request) == IMPEL_OK);
    return request;
}

TEST(a_record_is_the_entry_and_ten_fields)
{
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = park(worker("w", 1), 1);
    CHECK(request->items.items[0].result == ITEM_DONE);
    CHECK(row_of(id_of(1, 0)) == NULL);
    CHECK_U64(entries_of("s")->range.entry_count, 1); /* acknowledged, not deleted */
    const struct entry *record = only_record();
    CHECK_U64(record->field_count, 11);
    CHECK(same(record->fields[0].name, "f") && same(record->fields[0].value, "v"));
    for (size_t i = 0; i < ARRAY_SIZE(added_names); i++) {
        CHECK(same(record->fields[i + 1].name, added_names[i]));
    }
    const struct impel_field *added = &record->fields[1];
    CHECK(same(added[0].value, "1-0"));
    CHECK(same(added[1].value, "s"));
    CHECK(same(added[2].value, "g"));
    CHECK(same(added[3].value, "w"));
    CHECK(same(added[4].value, "1"));
    CHECK(same(added[5].value, "rejected"));
    CHECK(same(added[6].value, "why"));
    int64_t active_ms = number_of(added[7].value);
    int64_t parked_ms = number_of(added[8].value);
    CHECK(active_ms > 0 && active_ms <= parked_ms);
    CHECK(parked_ms - active_ms < SUITE_WAIT_MS);
    CHECK(llabs(parked_ms - request->store_now_ms) <= 1000);
    CHECK(same(added[9].value, "10"));
}

TEST(a_second_park_finds_nothing)
{
    suite_begin();
    scene(worker("w", 1), 1);
    (void)park(worker("w", 1), 1);
    CHECK(park(worker("w", 1), 1)->items.items[0].result == ITEM_LOST);
    (void)only_record();
}

TEST(fields_that_carry_the_same_names_are_kept_in_front)
{
    static const struct impel_field fields[] = {
        {{"reason", 6}, {"mine", 4}},
        {{"impel_fields", 12}, {"99", 2}},
        {{"original_id", 11}, {"\0\xff", 2}},
        {{"reason", 6}, {"", 0}},
    };
    suite_begin();
    group_make("s", "g");
    struct request *request = ask(REQUEST_ADD, "s", "");
    request->add.id = id_of(1, 0);
    request->add.fields = fields;
    request->add.field_count = ARRAY_SIZE(fields);
    CHECK(run(request) == IMPEL_OK);
    beat("s", "g", worker("w", 1));
    (void)read_new("s", "g", worker("w", 1), 1);
    (void)park(worker("w", 1), 1);
    const struct entry *record = only_record();
    CHECK_U64(record->field_count, ARRAY_SIZE(fields) + 10);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        CHECK(bytes_equal(record->fields[i].name, fields[i].name));
        CHECK(bytes_equal(record->fields[i].value, fields[i].value));
    }
    /* The last field says how many to take off. */
    const struct impel_field *last = &record->fields[record->field_count - 1];
    CHECK(same(last->name, "impel_fields") && same(last->value, "10"));
}

TEST(reason_and_error_may_be_any_bytes)
{
    static const char text[] = "line\nwith \0 and \xff";
    suite_begin();
    scene(worker("w", 1), 1);
    struct request *request = items(REQUEST_PARK, worker("w", 1), 1, 1);
    request->items.items[0].error = (struct impel_bytes){text, sizeof(text) - 1};
    request->items.items[0].reason = span("");
    CHECK(run(request) == IMPEL_OK);
    const struct entry *record = only_record();
    CHECK(bytes_equal(record->fields[7].value, request->items.items[0].error));
    CHECK(record->fields[6].value.size == 0);
}

TEST(a_trimmed_entry_is_parked_from_the_holders_copy)
{
    static const struct impel_field field = {{"kept", 4}, {"in memory", 9}};
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    struct entry *copy = entry_new(id_of(1, 0), &field, 1);
    CHECK(copy != NULL);
    struct request *request = items(REQUEST_PARK, worker("w", 1), 1, 1);
    request->items.items[0].copy = copy;
    int rc = run(request);
    entry_free(copy);
    CHECK(rc == IMPEL_OK);
    CHECK(request->items.items[0].result == ITEM_DONE);
    CHECK(row_of(id_of(1, 0)) == NULL);
    const struct entry *record = only_record();
    CHECK(same(field_of(record, "kept"), "in memory"));
    CHECK(same(field_of(record, "reason"), "trimmed"));
    CHECK(same(field_of(record, "error"), "why"));
    CHECK(same(field_of(record, "original_id"), "1-0"));
}

TEST(the_streams_own_entry_wins_over_the_copy)
{
    static const struct impel_field field = {{"f", 1}, {"copy", 4}};
    suite_begin();
    scene(worker("w", 1), 1);
    struct entry *copy = entry_new(id_of(1, 0), &field, 1);
    CHECK(copy != NULL);
    struct request *request = items(REQUEST_PARK, worker("w", 1), 1, 1);
    request->items.items[0].copy = copy;
    int rc = run(request);
    entry_free(copy);
    CHECK(rc == IMPEL_OK);
    CHECK(same(field_of(only_record(), "f"), "v"));
    CHECK(same(field_of(only_record(), "reason"), "rejected"));
}

TEST(a_trimmed_entry_without_a_copy_is_lost_work)
{
    suite_begin();
    scene(worker("w", 1), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    CHECK(park(worker("w", 1), 1)->items.items[0].result == ITEM_TRIMMED);
    CHECK(row_of(id_of(1, 0)) == NULL);
    CHECK_U64(entries_of("s:dead")->range.entry_count, 0);
}

TEST(a_park_that_cannot_be_written_leaves_the_entry_pending)
{
    suite_begin();
    scene(worker("w", 1), 2);
    if (!command("SET s:dead v")) {
        SKIP("this store has no keys of another type");
    }
    struct request *request = items(REQUEST_PARK, worker("w", 1), 2, 1);
    (void)run(request);
    for (size_t i = 0; i < 2; i++) {
        CHECK(request->items.items[i].result == ITEM_FAILED);
        CHECK(row_of(id_of(i + 1, 0)) != NULL);
        CHECK(row_of(id_of(i + 1, 0))->deliveries == 1);
    }
    CHECK(request->error.text[0] != '\0');
    CHECK(command("DEL s:dead"));
    request = items(REQUEST_PARK, worker("w", 1), 2, 1);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(entries_of("s:dead")->range.entry_count, 2);
}

TEST(many_are_parked_in_one_step_in_order)
{
    enum { N = 200 };
    suite_begin();
    scene(worker("w", 1), N);
    struct request *request = items(REQUEST_PARK, worker("w", 1), N, 1);
    CHECK(run(request) == IMPEL_OK);
    struct request *dead = entries_of("s:dead");
    CHECK_U64(dead->range.entry_count, N);
    for (size_t i = 0; i < N; i++) {
        char want[ID_TEXT_SIZE];
        CHECK(same(field_of(dead->range.entries[i], "original_id"),
                   id_format(id_of(i + 1, 0), want)));
    }
    CHECK_U64(pending_of("w"), 0);
}

TEST(a_wide_entry_is_parked_whole)
{
    enum { FIELDS = 5000 };
    suite_begin();
    group_make("s", "g");
    struct request *request = ask(REQUEST_ADD, "s", "");
    struct impel_field *fields = arena_calloc(&request->arena, FIELDS, sizeof(*fields));
    char *digits = arena_alloc(&request->arena, (size_t)FIELDS * 8);
    CHECK(fields != NULL && digits != NULL);
    for (size_t i = 0; i < FIELDS; i++) {
        (void)snprintf(digits + i * 8, 8, "%d", (int)i);
        fields[i] = (struct impel_field){span("n"), span(digits + i * 8)};
    }
    request->add.id = id_of(1, 0);
    request->add.fields = fields;
    request->add.field_count = FIELDS;
    CHECK(run(request) == IMPEL_OK);
    beat("s", "g", worker("w", 1));
    (void)read_new("s", "g", worker("w", 1), 1);
    CHECK(park(worker("w", 1), 1)->items.items[0].result == ITEM_DONE);
    const struct entry *record = only_record();
    CHECK_U64(record->field_count, FIELDS + 10);
    CHECK(same(record->fields[FIELDS - 1].value, "4999"));
    CHECK(row_of(id_of(1, 0)) == NULL);
}
