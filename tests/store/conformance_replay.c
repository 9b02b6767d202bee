/* conformance_replay.c -- a record leaves the dead-letter stream in the step that puts its entry back. */
#include "store/suite.h"

static struct request *replay(enum replay_mode mode, const char *stream, size_t count)
{
    struct request *request = ask(REQUEST_REPLAY, stream, "g");

    request->replay.mode = mode;
    request->replay.dead_letter = span("s:dead");
    request->replay.items =
        arena_calloc(&request->arena, count + 1, sizeof(*request->replay.items));
    request->replay.item_count = count;
    CHECK(request->replay.items != NULL);
    return request;
}

/* A request on the first `count` records, as they stand in the dead-letter stream: all fields but
 * the ten that a park has added. */
static struct request *replay_all(enum replay_mode mode, size_t count)
{
    struct request *request = replay(mode, "s", count);
    struct request *dead = entries_of("s:dead");

    CHECK(dead->range.entry_count >= count);
    for (size_t i = 0; i < count; i++) {
        const struct entry *record = dead->range.entries[i];
        struct replay_item *item = &request->replay.items[i];
        struct replay_run *run = arena_calloc(&request->arena, 1, sizeof(*run));
        CHECK(run != NULL && record->field_count > 10);
        run->count = (uint32_t)record->field_count - 10;
        item->id = record->id;
        item->field_count = (uint32_t)record->field_count;
        item->runs = run;
        item->run_count = 1;
        CHECK(id_parse(field_of(record, "original_id"), 0, &item->original_id) >= 0);
    }
    return request;
}

/* `n` entries of s/g, parked by a worker, and acknowledged with it. */
static void parked(uint64_t n)
{
    suite_begin();
    scene(worker("w", 1), n);
    CHECK(run(items(REQUEST_PARK, worker("w", 1), n, 1)) == IMPEL_OK);
    CHECK_U64(length_of("s:dead"), n);
}

/* The same once more. */
static struct request *again(const struct request *request)
{
    struct request *copy = replay(request->replay.mode, "s", request->replay.item_count);

    copy->replay.audit = request->replay.audit;
    for (size_t i = 0; i < request->replay.item_count; i++) {
        copy->replay.items[i] = request->replay.items[i];
        copy->replay.items[i].result = REPLAY_NONE;
    }
    return copy;
}

static enum replay_result result_of(const struct request *request, size_t i)
{
    return request->replay.items[i].result;
}

/* ---- as new entries ---- */

TEST(a_copy_is_added_and_the_record_is_gone)
{
    enum { N = 200 };
    parked(N);
    struct request *request = replay_all(REPLAY_ADD, N);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(length_of("s:dead"), 0);
    struct request *all = entries_of("s");
    CHECK_U64(all->range.entry_count, (uint64_t)2 * N);
    for (size_t i = 0; i < N; i++) {
        const struct entry *copy = all->range.entries[N + i];
        CHECK(result_of(request, i) == REPLAY_DONE);
        CHECK(id_equal(copy->id, request->replay.items[i].added)); /* in their order */
        CHECK(copy->field_count == 1 && same(copy->fields[0].value, "v"));
    }
    struct request *read = read_new("s", "g", worker("w", 1), N);
    CHECK_U64(read->read.entry_count, N);
    CHECK(read->read.entries[0].deliveries == 1);
}

TEST(a_record_is_replayed_once)
{
    parked(2);
    struct request *first = replay_all(REPLAY_ADD, 2);
    struct request *second = replay_all(REPLAY_ADD, 2);
    struct request *drop = replay_all(REPLAY_DROP, 2);
    CHECK(run(first) == IMPEL_OK && run(second) == IMPEL_OK && run(drop) == IMPEL_OK);
    for (size_t i = 0; i < 2; i++) {
        CHECK(result_of(first, i) == REPLAY_DONE);
        CHECK(result_of(second, i) == REPLAY_MISSING && result_of(drop, i) == REPLAY_MISSING);
    }
    CHECK_U64(length_of("s"), 4);
}

TEST(a_record_of_another_size_is_another_record)
{
    parked(1);
    for (enum replay_mode mode = REPLAY_ADD; mode <= REPLAY_DROP; mode++) {
        struct request *request = replay_all(mode, 1);
        request->replay.items[0].field_count++;
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request, 0) == REPLAY_MISSING);
    }
    CHECK_U64(length_of("s:dead"), 1);
    CHECK_U64(length_of("s"), 1);
}

TEST(a_record_of_another_original_is_another_record)
{
    parked(2);
    struct request *request = replay_all(REPLAY_BACK, 2);
    struct replay_item *items = request->replay.items;
    struct impel_id first = items[0].original_id;
    items[0].original_id = items[1].original_id;
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_MISSING && result_of(request, 1) == REPLAY_DONE);
    request = replay_all(REPLAY_BACK, 1);
    CHECK(id_equal(request->replay.items[0].original_id, first));
    CHECK(run(request) == IMPEL_OK && result_of(request, 0) == REPLAY_DONE);
    CHECK_U64(length_of("s:dead"), 0);
}

/* What other tools wrote names it anywhere, in their way, and perhaps twice. */
TEST(an_original_is_known_however_it_is_written)
{
    static const char *const texts[] = {
        "1", "1-0", "01", "001-00", "1-1", "-1", "1-", "x", "18446744073709551616"};
    parked(1);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct impel_field fields[] = {{{"original_id", 11}, {"9-9", 3}},
                                       {{"n", 1}, {"v", 1}},
                                       {{"original_id", 11}, span(texts[i])}};
        struct impel_id original = {0, 0};
        bool meant = id_parse(span(texts[i]), 0, &original) >= 0 && id_equal(original, id_of(1, 0));
        struct request *request = ask(REQUEST_ADD, "s:dead", "");
        request->add.length_max = -1;
        request->add.fields = fields;
        request->add.field_count = ARRAY_SIZE(fields);
        CHECK(run(request) == IMPEL_OK);
        struct impel_id record = request->add.id;
        request = replay(REPLAY_BACK, "s", 1);
        request->replay.items[0] = (struct replay_item){
            .id = record, .field_count = ARRAY_SIZE(fields), .original_id = id_of(1, 0)};
        CHECK(run(request) == IMPEL_OK);
        CHECK(result_of(request, 0) == (!meant   ? REPLAY_MISSING
                                        : i == 0 ? REPLAY_DONE
                                                 : REPLAY_STANDS));
    }
}

TEST(the_entry_is_made_of_the_runs_in_order_byte_for_byte)
{
    static const struct impel_field fields[] = {
        {{"original_id", 11}, {"7-7", 3}}, {{"a", 1}, {"\0\xff\r\n", 4}},
        {{"reason", 6}, {"why", 3}},       {{"a", 1}, {"", 0}},
        {{"", 0}, {"nameless", 8}},        {{"error", 5}, {"e", 1}},
    };
    static const struct replay_run runs[] = {{1, 1}, {3, 2}};
    suite_begin();
    group_make("s", "g");
    struct request *request = ask(REQUEST_ADD, "s:dead", "");
    request->add.id = id_of(5, 0);
    request->add.length_max = -1;
    request->add.fields = fields;
    request->add.field_count = ARRAY_SIZE(fields);
    CHECK(run(request) == IMPEL_OK);
    request = replay(REPLAY_ADD, "s", 1);
    request->replay.items[0] = (struct replay_item){
        .id = id_of(5, 0), .field_count = 6, .runs = runs, .run_count = ARRAY_SIZE(runs)};
    CHECK(run(request) == IMPEL_OK && result_of(request, 0) == REPLAY_DONE);
    const struct entry *entry = entries_of("s")->range.entries[0];
    static const size_t own[] = {1, 3, 4};
    CHECK_U64(entry->field_count, ARRAY_SIZE(own));
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        CHECK(bytes_equal(entry->fields[i].name, fields[own[i]].name));
        CHECK(bytes_equal(entry->fields[i].value, fields[own[i]].value));
    }
}

TEST(a_record_without_an_entry_in_it_stays)
{
    parked(2);
    struct request *request = replay_all(REPLAY_ADD, 2);
    request->replay.items[0].run_count = 0;
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_FAILED && result_of(request, 1) == REPLAY_DONE);
    CHECK(request->error.text[0] != '\0');
    CHECK_U64(length_of("s:dead"), 1);
}

TEST(the_stream_is_made_where_it_is_missing)
{
    parked(1);
    struct request *request = replay_all(REPLAY_ADD, 1);
    request->stream = span("other");
    request->replay.alone = true;
    CHECK(run(request) == IMPEL_OK && result_of(request, 0) == REPLAY_DONE);
    CHECK_U64(length_of("other"), 1);
    CHECK_U64(length_of("s"), 1);
}

TEST(another_group_is_not_given_copies_unasked)
{
    parked(1);
    group_make("s", "other");
    struct request *request = replay_all(REPLAY_ADD, 1);
    request->replay.alone = true;
    CHECK(run(request) == IMPEL_ERR_EXISTS);
    CHECK(strstr(request->error.text, "group") != NULL);
    CHECK_U64(length_of("s:dead"), 1);
    CHECK_U64(length_of("s"), 1);
    CHECK(run(replay_all(REPLAY_ADD, 1)) == IMPEL_OK);
    CHECK_U64(length_of("s"), 2);
}

TEST(large_records_keep_their_place)
{
    enum { FIELDS = 5000, N = 5 };
    suite_begin();
    group_make("s", "g");
    for (size_t i = 0; i < N; i++) {
        bool large = i % 2 == 1;
        struct request *request = ask(REQUEST_ADD, "s:dead", "");
        size_t count = large ? FIELDS : 1;
        struct impel_field *fields = arena_calloc(&request->arena, count, sizeof(*fields));
        CHECK(fields != NULL);
        for (size_t j = 0; j < count; j++) {
            fields[j] = (struct impel_field){span("n"), {&"01234"[i], 1}};
        }
        request->add.id = id_of(i + 1, 0);
        request->add.length_max = -1;
        request->add.fields = fields;
        request->add.field_count = count;
        CHECK(run(request) == IMPEL_OK);
    }
    struct request *request = replay(REPLAY_ADD, "s", N);
    static const struct replay_run small = {0, 1}, wide = {0, FIELDS};
    for (size_t i = 0; i < N; i++) {
        bool large = i % 2 == 1;
        request->replay.items[i] = (struct replay_item){.id = id_of(i + 1, 0),
                                                        .field_count = large ? FIELDS : 1,
                                                        .runs = large ? &wide : &small,
                                                        .run_count = 1};
    }
    request->replay.audit = span("s:audit");
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(length_of("s:dead"), 0);
    struct request *all = entries_of("s");
    CHECK_U64(all->range.entry_count, N);
    for (size_t i = 0; i < N; i++) {
        const struct entry *entry = all->range.entries[i];
        CHECK(result_of(request, i) == REPLAY_DONE);
        CHECK(id_equal(request->replay.items[i].added, entry->id));
        CHECK_U64(entry->field_count, i % 2 == 1 ? FIELDS : 1);
        CHECK(*(const char *)entry->fields[entry->field_count - 1].value.data == (char)('0' + i));
    }
    /* Once more: there is nothing any more, also of the large ones. */
    request = again(request);
    CHECK(run(request) == IMPEL_OK);
    for (size_t i = 0; i < N; i++) {
        CHECK(result_of(request, i) == REPLAY_MISSING);
    }
    CHECK_U64(length_of("s"), N);
}

/* ---- back to the group ---- */

TEST(the_original_is_pending_again_and_released)
{
    parked(3);
    struct request *request = replay_all(REPLAY_BACK, 3);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(length_of("s:dead"), 0);
    CHECK_U64(length_of("s"), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct pending_row *row = row_of(id_of(i + 1, 0));
        CHECK(result_of(request, i) == REPLAY_DONE);
        CHECK(row != NULL && same(row->owner, RELEASED_NAME));
        CHECK(row->deliveries == 0 && row->idle_ms > 1000000);
    }
    /* A sweep has it at once, and it is attempt 1. */
    struct request *claim = claim_from(worker("w", 1), RELEASED_NAME);
    CHECK(run(claim) == IMPEL_OK);
    CHECK_U64(claim->claim_from.entry_count, 3);
    CHECK(claim->claim_from.entries[0].deliveries == 1);
}

TEST(what_is_gone_or_before_the_group_is_not_put_back)
{
    parked(3);
    CHECK(command("XDEL s 1-0"));
    struct request *request = ask(REQUEST_GROUP_SET, "s", "g");
    request->group_set.start = id_of(2, 0);
    CHECK(run(request) == IMPEL_OK); /* 3-0 will be delivered once more anyway */
    request = replay_all(REPLAY_BACK, 3);
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_GONE);
    CHECK(result_of(request, 1) == REPLAY_DONE);
    CHECK(result_of(request, 2) == REPLAY_STANDS);
    CHECK_U64(length_of("s:dead"), 2);
    CHECK(row_of(id_of(1, 0)) == NULL && row_of(id_of(3, 0)) == NULL);
}

TEST(a_pending_entry_is_nobody_elses_to_put_back)
{
    parked(1);
    struct request *set = ask(REQUEST_GROUP_SET, "s", "g");
    CHECK(run(set) == IMPEL_OK);
    (void)read_new("s", "g", worker("w", 1), 1);
    struct request *request = replay_all(REPLAY_BACK, 1);
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_STANDS);
    CHECK(same(row_of(id_of(1, 0))->owner, "w"));
    CHECK_U64(length_of("s:dead"), 1);
}

TEST(what_an_entry_carried_from_a_life_before_is_forgotten)
{
    suite_begin();
    scene(foreign("f"), 1);
    struct request *request = claim_from(nobody(), "f");
    request->claim_from.flags |= CLAIM_REQUEUE;
    CHECK(run(request) == IMPEL_OK);
    struct impel_id copy = request->claim_from.moved[0].copy;
    beat("s", "g", worker("w", 1));
    (void)read_new("s", "g", worker("w", 1), 1);
    CHECK(row_of(copy)->carried == 1);
    request = items(REQUEST_PARK, worker("w", 1), 1, 1);
    request->items.items[0].id = copy;
    CHECK(run(request) == IMPEL_OK);
    request = replay_all(REPLAY_BACK, 1);
    CHECK(run(request) == IMPEL_OK && result_of(request, 0) == REPLAY_DONE);
    CHECK(row_of(copy)->deliveries == 0 && row_of(copy)->carried == 0);
}

TEST(there_has_to_be_the_group)
{
    parked(1);
    struct request *request = replay_all(REPLAY_BACK, 1);
    request->group = span("none");
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
    CHECK_U64(length_of("s:dead"), 1);
}

/* ---- dropping, and what is refused ---- */

TEST(a_dropped_record_is_gone_and_nothing_else)
{
    parked(3);
    struct request *request = replay_all(REPLAY_DROP, 2);
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_DONE && result_of(request, 1) == REPLAY_DONE);
    CHECK_U64(length_of("s:dead"), 1);
    CHECK_U64(length_of("s"), 3);
    CHECK_U64(pending_of(RELEASED_NAME), 0);
}

TEST(a_missing_dead_letter_stream_has_no_records)
{
    parked(1);
    struct request *request = replay_all(REPLAY_ADD, 1);
    request->replay.dead_letter = span("nothing");
    CHECK(run(request) == IMPEL_OK);
    CHECK(result_of(request, 0) == REPLAY_MISSING);
}

TEST(keys_of_another_type_are_refused_as_a_whole)
{
    parked(1);
    if (!command("SET x v")) {
        SKIP("this store has no keys of another type");
    }
    struct request *request = replay_all(REPLAY_ADD, 1);
    request->stream = span("x");
    CHECK(run(request) == IMPEL_ERR_WRONG_TYPE);
    request = replay_all(REPLAY_DROP, 1);
    request->replay.dead_letter = span("x");
    CHECK(run(request) == IMPEL_ERR_WRONG_TYPE);
    request = replay_all(REPLAY_ADD, 1);
    request->replay.audit = span("x");
    CHECK(run(request) == IMPEL_ERR_WRONG_TYPE);
    request = replay_all(REPLAY_ADD, 1);
    request->stream = span("s:dead");
    CHECK(run(request) == IMPEL_ERR_INVALID);
    CHECK_U64(length_of("s:dead"), 1);
    CHECK_U64(length_of("s"), 1);
}

/* ---- the audit ---- */

TEST(each_step_leaves_a_line_of_who_did_what)
{
    static const struct impel_field line[] = {{{"user", 4}, {"anna", 4}}, {{"x", 1}, {"\0", 1}}};
    parked(3);
    struct request *request = replay_all(REPLAY_ADD, 3);
    request->replay.audit = span("s:audit");
    request->replay.audit_fields = line;
    request->replay.audit_field_count = ARRAY_SIZE(line);
    struct impel_id first = request->replay.items[0].id, last = request->replay.items[2].id;
    request->replay.items[1].field_count = 1; /* not done, so not told */
    CHECK(run(request) == IMPEL_OK);
    CHECK(run(again(request)) == IMPEL_OK); /* nothing done, no line */
    struct request *audit = entries_of("s:audit");
    CHECK_U64(audit->range.entry_count, 1);
    const struct entry *entry = audit->range.entries[0];
    char want[2 * ID_TEXT_SIZE], text[2][ID_TEXT_SIZE];
    (void)snprintf(want, sizeof(want), "%s %s", id_format(first, text[0]),
                   id_format(last, text[1]));
    CHECK_U64(entry->field_count, 4);
    CHECK(bytes_equal(entry->fields[1].value, line[1].value));
    CHECK(same(field_of(entry, "user"), "anna") && same(field_of(entry, "count"), "2"));
    CHECK(same(field_of(entry, "records"), want));
}
