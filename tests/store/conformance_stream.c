/* conformance_stream.c -- what every store must do with entries: add, read, wait, ack. */
#include "store/suite.h"

#include <stdlib.h>

/* ---- add ---- */

TEST(add_generates_ascending_ids_from_the_stores_clock)
{
    suite_begin();
    struct request *first = add_request("s", ID_MIN);
    CHECK(run(first) == IMPEL_OK);
    CHECK(first->store_now_ms > 0);
    CHECK_U64(first->add.id.ms, (uint64_t)first->store_now_ms);
    struct impel_id second = add("s", ID_MIN, "v");
    CHECK(id_compare(second, first->add.id) > 0);
    CHECK_U64(length_of("s"), 2);
}

TEST(add_takes_explicit_ids_that_ascend)
{
    suite_begin();
    CHECK(id_equal(add("s", id_of(5, 3), "v"), id_of(5, 3)));
    CHECK(run(add_request("s", id_of(5, 3))) < 0);
    CHECK(run(add_request("s", id_of(5, 2))) < 0);
    CHECK(run(add_request("s", id_of(4, 9))) < 0);
    CHECK(id_equal(add("s", id_of(5, 4), "v"), id_of(5, 4)));
    CHECK_U64(length_of("s"), 2);
}

TEST(add_after_a_future_id_goes_on_from_there)
{
    suite_begin();
    (void)add("s", id_of(UINT64_MAX, UINT64_MAX - 1), "v");
    CHECK(id_equal(add("s", ID_MIN, "v"), ID_MAX));
    struct request *request = add_request("s", ID_MIN);
    CHECK(run(request) < 0); /* no ID is left */
    CHECK(request->error.status < 0);
    CHECK(request->error.text[0] != '\0');
    CHECK_U64(length_of("s"), 2);
}

TEST(add_carries_the_sequence_into_the_milliseconds)
{
    suite_begin();
    (void)add("s", id_of(UINT64_MAX - 1, UINT64_MAX), "v");
    CHECK(id_equal(add("s", ID_MIN, "v"), id_of(UINT64_MAX, 0)));
}

TEST(add_can_refuse_to_make_the_stream)
{
    suite_begin();
    struct request *request = add_request("s", ID_MIN);
    request->add.no_create = true;
    if (server_lacks("XADD none NOMKSTREAM * n v")) {
        CHECK(run(request) == IMPEL_ERR_UNSUPPORTED);
        return;
    }
    CHECK(run(request) == IMPEL_ERR_NOT_FOUND);
    request = ask(REQUEST_INFO, "s", "");
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->info.exists);
    (void)add("s", ID_MIN, "v");
    request = add_request("s", ID_MIN);
    request->add.no_create = true;
    CHECK(run(request) == IMPEL_OK);
}

TEST(add_trims_to_the_given_length)
{
    suite_begin();
    for (uint64_t i = 1; i <= 5; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    struct request *request = add_request("s", id_of(6, 0));
    request->add.length_max = 2;
    CHECK(run(request) == IMPEL_OK);
    request = entries_of("s");
    CHECK_U64(request->range.entry_count, 2);
    CHECK(id_equal(request->range.entries[0]->id, id_of(5, 0)));
    request = add_request("s", id_of(7, 0));
    request->add.length_max = 0; /* even the new one goes */
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(length_of("s"), 0);
}

TEST(fields_come_back_byte_for_byte_in_order)
{
    static const struct impel_field fields[] = {
        {{"b", 1}, {"1", 1}},          {{"a", 1}, {"2", 1}},
        {{"b", 1}, {NULL, 0}},         {{"", 0}, {"empty name", 10}},
        {{"nul\0name", 8}, {"\0", 1}}, {{"\xff\xfe\n", 3}, {"\r\n$3\r\n", 6}},
    };
    suite_begin();
    struct request *request = ask(REQUEST_ADD, "s", "");
    request->add.fields = fields;
    request->add.field_count = ARRAY_SIZE(fields);
    CHECK(run(request) == IMPEL_OK);
    request = entries_of("s");
    CHECK_U64(request->range.entry_count, 1);
    const struct entry *entry = request->range.entries[0];
    CHECK_U64(entry->field_count, ARRAY_SIZE(fields));
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        CHECK(bytes_equal(entry->fields[i].name, fields[i].name));
        CHECK(bytes_equal(entry->fields[i].value, fields[i].value));
    }
}

TEST(values_may_be_16_mib)
{
    enum { SIZE = 16 * 1024 * 1024 };
    suite_begin();
    struct request *request = ask(REQUEST_ADD, "s", "");
    uint8_t *data = arena_alloc(&request->arena, SIZE);
    struct impel_field field = {span("big"), {data, SIZE}};
    CHECK(data != NULL);
    for (size_t i = 0; i < SIZE; i++) {
        data[i] = (uint8_t)(i * 2654435761U >> 24);
    }
    request->add.fields = &field;
    request->add.field_count = 1;
    CHECK(run(request) == IMPEL_OK);
    group_make("s", "g");
    struct request *got = read_new("s", "g", foreign("c"), 10);
    CHECK_U64(got->read.entry_count, 1);
    CHECK(bytes_equal(got->read.entries[0].entry->fields[0].value, field.value));
}

TEST(names_may_be_any_bytes_of_any_length)
{
    enum { LONG = 65536 };
    suite_begin();
    char *name = calloc(1, LONG);
    CHECK(name != NULL);
    memset(name, 'n', LONG);
    static const size_t sizes[] = {0, 1, 511, 512, LONG - 1, LONG};
    bool good = true;
    for (size_t i = 0; i < ARRAY_SIZE(sizes) && good; i++) {
        struct impel_bytes bytes = {name, sizes[i]};
        struct request *request = add_request("", id_of(1, 0));
        request->stream = bytes;
        good = run(request) == IMPEL_OK;
        request = ask(REQUEST_GROUP_CREATE, "", "");
        request->stream = request->group = bytes;
        good = good && run(request) == IMPEL_OK && request->group_set.created;
        request = ask(REQUEST_READ, "", "");
        request->group = bytes;
        request->consumer = bytes.size == 0 ? span("c") : bytes;
        request->read.streams = &bytes;
        request->read.stream_count = 1;
        request->read.count = 5;
        good = good && run(request) == IMPEL_OK && request->read.entry_count == 1;
        request = ask(REQUEST_PENDING, "", "");
        request->stream = request->group = bytes;
        request->pending.end = ID_MAX;
        request->pending.count = 5;
        good = good && run(request) == IMPEL_OK && request->pending.row_count == 1 &&
               request->pending.rows[0].owner.size == (bytes.size == 0 ? 1 : bytes.size);
    }
    free(name);
    CHECK(good);
}

TEST(names_with_a_nul_are_told_apart)
{
    static const struct impel_bytes names[] = {{"a\0b", 3}, {"a\0c", 3}, {"a", 1}};
    suite_begin();
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct request *request = add_request("", id_of(i + 1, 0));
        request->stream = names[i];
        CHECK(run(request) == IMPEL_OK);
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct request *request = ask(REQUEST_INFO, "", "");
        request->stream = names[i];
        CHECK(run(request) == IMPEL_OK);
        CHECK_U64(request->info.length, 1);
        CHECK(id_equal(request->info.last_id, id_of(i + 1, 0)));
    }
}

/* ---- read ---- */

static struct request *
read_two(struct impel_bytes streams[2], const char *consumer, uint32_t count, size_t first)
{
    struct request *request = ask_as(REQUEST_READ, "", "g", foreign(consumer));
    request->read.streams = streams;
    request->read.stream_count = 2;
    request->read.count = count;
    request->read.first = first;
    return request;
}

TEST(read_hands_out_each_entry_once)
{
    suite_begin();
    scene(foreign("a"), 3);
    struct request *request = read_new("s", "g", foreign("b"), 10);
    CHECK_U64(request->read.entry_count, 0);
    (void)add("s", id_of(4, 0), "four");
    request = read_new("s", "g", foreign("b"), 10);
    CHECK_U64(request->read.entry_count, 1);
    const struct delivered *got = &request->read.entries[0];
    CHECK(id_equal(got->entry->id, id_of(4, 0)));
    CHECK(same(got->entry->fields[0].value, "four"));
    CHECK(got->deliveries == 1);
    CHECK_U64(got->stream_index, 0);
    CHECK_U64(pending_of("a"), 3);
    CHECK_U64(pending_of("b"), 1);
}

TEST(read_counts_over_all_streams_and_begins_where_told)
{
    struct impel_bytes streams[2] = {span("s"), span("t")};
    suite_begin();
    group_make("s", "g");
    group_make("t", "g");
    for (uint64_t i = 1; i <= 3; i++) {
        (void)add("s", id_of(i, 0), "s");
        (void)add("t", id_of(i, 0), "t");
    }
    struct request *request = read_two(streams, "c", 2, 1);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->read.entry_count, 2);
    CHECK_U64(request->read.entries[0].stream_index, 1);
    CHECK_U64(request->read.entries[1].stream_index, 1);
    CHECK(id_equal(request->read.entries[1].entry->id, id_of(2, 0)));
    request = read_two(streams, "c", 10, 0);
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->read.entry_count, 4);
    size_t from_s = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct delivered *got = &request->read.entries[i];
        CHECK(same(got->entry->fields[0].value, got->stream_index == 0 ? "s" : "t"));
        CHECK(i == 0 || got->stream_index != got[-1].stream_index ||
              id_compare(got->entry->id, got[-1].entry->id) > 0);
        from_s += got->stream_index == 0;
    }
    CHECK_U64(from_s, 3);
}

TEST(read_stops_at_the_payload_limit)
{
    suite_begin();
    group_make("s", "g");
    for (uint64_t i = 1; i <= 4; i++) {
        (void)add("s", id_of(i, 0), "0123456789");
    }
    struct request *request = ask_as(REQUEST_READ, "", "g", foreign("c"));
    struct impel_bytes stream = span("s");
    request->read.streams = &stream;
    request->read.stream_count = 1;
    request->read.count = 10;
    request->read.size_max = 15; /* reached by the second */
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->read.entry_count, 2);
    CHECK_U64(pending_of("c"), 2);
}

TEST(read_of_a_missing_group_reads_nothing)
{
    struct impel_bytes streams[2] = {span("s"), span("t")};
    suite_begin();
    group_make("s", "g");
    (void)add("s", id_of(1, 0), "v");
    struct request *request = read_two(streams, "c", 5, 0);
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
    CHECK_U64(request->read.missing, 1);
    (void)add("t", id_of(1, 0), "v"); /* the stream alone does not help */
    request = read_two(streams, "c", 5, 0);
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
    CHECK_U64(request->read.missing, 1);
    CHECK(row_of(id_of(1, 0)) == NULL);
    CHECK_U64(read_new("s", "g", foreign("c"), 5)->read.entry_count, 1);
}

TEST(a_group_moved_back_delivers_again_with_the_count_one)
{
    suite_begin();
    scene(worker("w", 1), 2);
    CHECK(run(items(REQUEST_RETRY, worker("w", 1), 1, 1)) == IMPEL_OK);
    CHECK(row_of(id_of(1, 0))->deliveries == 2);
    struct request *request = ask(REQUEST_GROUP_SET, "s", "g");
    CHECK(run(request) == IMPEL_OK);
    request = read_new("s", "g", foreign("other"), 10);
    CHECK_U64(request->read.entry_count, 2);
    CHECK(request->read.entries[0].deliveries == 1);
    CHECK(row_of(id_of(1, 0))->deliveries == 1);
    CHECK_U64(pending_of("other"), 2);
    CHECK_U64(pending_of("w"), 0);
}

/* ---- waiting reads ---- */

static struct request *waiting_read(const char *consumer, int64_t block_ms)
{
    static struct impel_bytes stream = {"s", 1};
    struct request *request = ask_as(REQUEST_READ, "", "g", foreign(consumer));
    request->read.streams = &stream;
    request->read.stream_count = 1;
    request->read.count = 1;
    request->read.block_ms = block_ms;
    return request;
}

static void turn_a_few_times(void)
{
    for (int i = 0; i < 5; i++) {
        (void)store_turn(suite_handle, suite_now_ms());
        suite_pause(1);
    }
}

TEST(a_waiting_read_is_woken_by_an_add)
{
    suite_begin();
    group_make("s", "g");
    struct request *read = waiting_read("c", 2000);
    give(read);
    turn_a_few_times();
    CHECK(!answered(read));
    (void)add("s", id_of(1, 0), "v");
    CHECK(await(read) == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 1);
}

TEST(a_waiting_read_is_woken_by_another_handle)
{
    suite_begin();
    group_make("s", "g");
    struct store *other = suite_second_handle();
    struct request *read = waiting_read("c", 2000);
    give(read);
    turn_a_few_times();
    CHECK(!answered(read));
    size_t wakes = suite_wakes;
    struct request *request = add_request("s", id_of(1, 0));
    give_to(other, request);
    CHECK(await(request) == IMPEL_OK);
    int64_t since_ms = suite_now_ms();
    while (__atomic_load_n(&suite_wakes, __ATOMIC_SEQ_CST) == wakes) {
        CHECK(!suite_overdue(since_ms));
        suite_pause(1);
    }
    CHECK(await(read) == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 1);
}

TEST(a_waiting_read_ends_empty_when_its_time_is_over)
{
    suite_begin();
    group_make("s", "g");
    int64_t since_ms = suite_now_ms();
    struct request *read = waiting_read("c", 50);
    CHECK(run(read) == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 0);
    CHECK(suite_now_ms() - since_ms >= 50);
    (void)add("s", id_of(1, 0), "v"); /* and has no effect later */
    turn_a_few_times();
    CHECK(row_of(id_of(1, 0)) == NULL);
}

TEST(a_cancelled_read_ends_at_the_next_turn_and_has_no_effect_later)
{
    suite_begin();
    group_make("s", "g");
    struct request *read = waiting_read("c", 2000);
    give(read);
    turn_a_few_times();
    CHECK(!answered(read));
    int64_t since_ms = suite_now_ms();
    store_cancel(suite_handle, read);
    CHECK(await(read) == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 0);
    CHECK(suite_now_ms() - since_ms < 1500);
    (void)add("s", id_of(1, 0), "v");
    CHECK(row_of(id_of(1, 0)) == NULL);
}

TEST(a_read_cancelled_before_its_turn_still_gives_what_is_there)
{
    suite_begin();
    group_make("s", "g");
    (void)add("s", id_of(1, 0), "v");
    struct request *read = waiting_read("c", 2000);
    give(read);
    store_cancel(suite_handle, read);
    CHECK(await(read) == IMPEL_OK);
    /* Served or not, answer and store agree. */
    CHECK_U64(read->read.entry_count, pending_of("c"));
}

TEST(the_longest_waiting_read_is_served_first)
{
    suite_begin();
    group_make("s", "g");
    struct request *first = waiting_read("first", 2000);
    struct request *second = waiting_read("second", 200);
    give(first);
    turn_a_few_times();
    give(second);
    turn_a_few_times();
    (void)add("s", id_of(1, 0), "v");
    CHECK(await(first) == IMPEL_OK);
    CHECK_U64(first->read.entry_count, 1);
    CHECK(await(second) == IMPEL_OK);
    CHECK_U64(second->read.entry_count, 0);
}

TEST(a_waiting_read_hears_that_its_group_is_gone)
{
    static const char *const ends[] = {"XGROUP DESTROY s g", "DEL s", "RENAME s t", "SET s v"};
    int heard = 0;

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        suite_begin();
        group_make("s", "g");
        bool is_told = i == 0 || !server_before_7();
        struct request *read = waiting_read("c", is_told ? 20000 : 200);
        give(read);
        turn_a_few_times();
        if (!command(ends[i])) {
            continue;
        }
        int status = await(read);
        CHECK(is_told ? status == IMPEL_ERR_NO_GROUP || (i == 3 && status == IMPEL_ERR_WRONG_TYPE)
                      : status == IMPEL_OK);
        CHECK_U64(read->read.entry_count, 0);
        CHECK_U64(read->read.missing, 0);
        heard++;
    }
    if (heard == 0) {
        SKIP("this store has none of these commands");
    }
}

/* ---- a group that was lost ---- */

static void lose(void)
{
    struct request *sweep = ask_as(REQUEST_LOOK, "s", "g", worker("w", 1));

    sweep->look.flags = LOOK_BEAT | LOOK_STAMP; /* which keeps the floor */
    CHECK(run(sweep) == IMPEL_OK && sweep->look.stamped);
    CHECK(command("XGROUP DESTROY s g"));
}

static void make_again(void)
{
    struct request *create = ask(REQUEST_GROUP_CREATE, "s", "g");

    create->group_set.at_floor = true;
    CHECK(run(create) == IMPEL_OK);
    CHECK(create->group_set.created);
    create = ask(REQUEST_GROUP_CREATE, "s", "g");
    create->group_set.at_floor = true;
    CHECK(run(create) == IMPEL_OK);
    CHECK(!create->group_set.created); /* by others, a moment before */
}

static void reads_from(uint64_t first, uint64_t last)
{
    struct request *read = read_new("s", "g", worker("w", 1), 100);

    CHECK_U64(read->read.entry_count, last - first + 1);
    for (size_t i = 0; i < read->read.entry_count; i++) {
        CHECK_U64(read->read.entries[i].entry->id.ms, first + i);
        struct request *ack = ask(REQUEST_ACK, "s", "g");
        struct request_item item = {.id = id_of(first + i, 0)};
        ack->ack.items = &item;
        ack->ack.item_count = 1;
        CHECK(run(ack) == IMPEL_OK);
    }
}

TEST(a_lost_group_begins_again_where_all_before_was_acked)
{
    suite_begin();
    scene(worker("w", 1), 5);
    struct request *ack = ask(REQUEST_ACK, "s", "g");
    struct request_item acked[] = {{.id = id_of(1, 0)}, {.id = id_of(2, 0)}, {.id = id_of(4, 0)}};
    ack->ack.items = acked;
    ack->ack.item_count = ARRAY_SIZE(acked);
    CHECK(run(ack) == IMPEL_OK);
    (void)add("s", id_of(6, 0), "v");
    lose();
    make_again();
    beat("s", "g", worker("w", 1));
    reads_from(3, 6); /* 4 once more: 3 was pending */
    lose();
    make_again();
    beat("s", "g", worker("w", 1));
    (void)add("s", id_of(7, 0), "v");
    reads_from(7, 7);
}

TEST(a_lost_group_of_a_new_stream_begins_at_its_start)
{
    suite_begin();
    scene(worker("w", 1), 5);
    lose();
    CHECK(command("DEL s"));
    (void)add("s", id_of(1, 0), "v");
    (void)add("s", id_of(2, 0), "v");
    make_again();
    beat("s", "g", worker("w", 1));
    reads_from(1, 2);
}

TEST(a_new_stream_is_known_by_how_much_was_added_to_it)
{
    suite_begin();
    scene(worker("w", 1), 5);
    struct request *ack = ask(REQUEST_ACK, "s", "g");
    struct request_item acked[5];
    for (uint64_t i = 0; i < ARRAY_SIZE(acked); i++) {
        acked[i] = (struct request_item){.id = id_of(i + 1, 0)};
    }
    ack->ack.items = acked;
    ack->ack.item_count = ARRAY_SIZE(acked);
    CHECK(run(ack) == IMPEL_OK);
    lose(); /* all up to 5-0 is done */
    CHECK(command("DEL s"));
    (void)add("s", id_of(3, 0), "v");
    (void)add("s", id_of(9, 0), "v"); /* its IDs have come further than the old one's */
    make_again();
    beat("s", "g", worker("w", 1));
    struct request *read = read_new("s", "g", worker("w", 1), 100);
    CHECK_U64(read->read.entry_count, 2);
    CHECK(id_equal(read->read.entries[0].entry->id, id_of(3, 0)));
}

TEST(a_lost_group_that_nobody_swept_begins_at_the_start)
{
    suite_begin();
    struct request *create = ask(REQUEST_GROUP_CREATE, "s", "g");
    create->group_set.at_floor = true;
    CHECK(run(create) == IMPEL_OK);
    (void)add("s", id_of(1, 0), "v");
    beat("s", "g", worker("w", 1));
    reads_from(1, 1);
}

/* ---- several requests ---- */

TEST(requests_of_one_turn_see_those_before_them)
{
    suite_begin();
    struct request *create = ask(REQUEST_GROUP_CREATE, "s", "g");
    struct request *one = add_request("s", id_of(1, 0));
    struct request *two = add_request("s", id_of(2, 0));
    struct request *read = waiting_read("c", 0);
    struct request *ack = ask(REQUEST_ACK, "s", "g");
    struct request_item item = {.id = id_of(1, 0)};
    struct request *again = waiting_read("d", 0);
    ack->ack.items = &item;
    ack->ack.item_count = 1;
    give(create);
    give(one);
    give(two);
    give(read);
    give(ack);
    give(again);
    CHECK(await(again) == IMPEL_OK);
    CHECK(answered(create) && answered(one) && answered(two) && answered(read) && answered(ack));
    CHECK(create->group_set.created);
    CHECK(read->status == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 1);
    CHECK_U64(ack->ack.acked, 1);
    CHECK_U64(again->read.entry_count, 1);
    CHECK(id_equal(again->read.entries[0].entry->id, id_of(2, 0)));
}

TEST(a_failing_request_does_not_disturb_its_neighbours)
{
    suite_begin();
    struct request *good = add_request("s", id_of(2, 0));
    struct request *bad = add_request("s", id_of(1, 0));
    struct request *missing = ask_as(REQUEST_BEAT, "nowhere", "g", worker("w", 1));
    struct request *late = add_request("s", id_of(3, 0));
    give(good);
    give(bad);
    give(missing);
    give(late);
    CHECK(await(late) == IMPEL_OK);
    CHECK(good->status == IMPEL_OK);
    CHECK(bad->status < 0);
    CHECK(missing->status == IMPEL_ERR_NO_GROUP);
    CHECK_U64(length_of("s"), 2);
}

TEST(closing_cancels_what_is_queued)
{
    suite_begin();
    group_make("s", "g");
    struct store *other = suite_second_handle();
    struct request *read = waiting_read("c", 2000);
    give_to(other, read);
    for (int i = 0; i < 3; i++) {
        (void)store_turn(other, suite_now_ms());
    }
    struct request *queued = add_request("s", id_of(1, 0));
    give_to(other, queued);
    suite_close_second_handle();
    CHECK(answered(read) && answered(queued));
    CHECK(read->status == IMPEL_ERR_CANCELLED);
    CHECK(queued->status == IMPEL_ERR_CANCELLED);
}

/* ---- ack ---- */

static struct request *ack_of(struct impel_id *ids, size_t count)
{
    struct request *request = ask(REQUEST_ACK, "s", "g");
    struct request_item *list = arena_calloc(&request->arena, count, sizeof(*list));
    CHECK(list != NULL);
    for (size_t i = 0; i < count; i++) {
        list[i].id = ids[i];
    }
    request->ack.items = list;
    request->ack.item_count = count;
    return request;
}

TEST(ack_removes_rows_whoever_holds_them)
{
    suite_begin();
    scene(worker("w", 1), 3);
    struct impel_id ids[] = {id_of(1, 0), id_of(9, 9), id_of(3, 0), id_of(3, 0)};
    struct request *request = ack_of(ids, ARRAY_SIZE(ids));
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->ack.acked, 2);
    CHECK(row_of(id_of(1, 0)) == NULL);
    CHECK(row_of(id_of(2, 0)) != NULL);
    CHECK(row_of(id_of(3, 0)) == NULL);
    CHECK_U64(length_of("s"), 3); /* the entries stay in the stream */
    request = ack_of(ids, ARRAY_SIZE(ids));
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->ack.acked, 0);
}

TEST(ack_of_a_missing_group_acknowledges_nothing)
{
    suite_begin();
    struct impel_id id = id_of(1, 0);
    struct request *request = ack_of(&id, 1);
    int rc = run(request);
    CHECK(rc == IMPEL_ERR_NO_GROUP);
    CHECK_U64(request->ack.acked, 0);
}
