/* conformance_trim.c -- only what every group has finished with may be removed. */
#include "store/suite.h"

enum {
    LIMIT = 1000,
};

static struct request *trim_request(void)
{
    struct request *request = ask(REQUEST_TRIM_DONE, "s", "");

    request->trim_done.keep_from = ID_MAX;
    request->trim_done.limit = LIMIT;
    return request;
}

/* Asks as long as there may be more; how many went in all. */
static uint64_t trim(uint64_t length_min, struct impel_id keep_from, uint32_t limit)
{
    uint64_t removed = 0;
    struct request *request = NULL;

    do {
        request = trim_request();
        request->trim_done.length_min = length_min;
        request->trim_done.keep_from = keep_from;
        request->trim_done.limit = limit;
        CHECK(run(request) == IMPEL_OK);
        CHECK(!request->trim_done.more || request->trim_done.removed > 0);
        removed += request->trim_done.removed;
    } while (request->trim_done.more);
    return removed;
}

static void ack(const char *group, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i <= to; i++) {
        struct request *request = ask(REQUEST_ACK, "s", group);
        request->ack.items = arena_calloc(&request->arena, 1, sizeof(request->ack.items[0]));
        request->ack.item_count = 1;
        request->ack.items[0].id = id_of(i, 0);
        CHECK(run(request) == IMPEL_OK);
        CHECK_U64(request->ack.acked, 1);
    }
}

static bool first_is(uint64_t ms)
{
    return id_equal(entries_of("s")->range.entries[0]->id, id_of(ms, 0));
}

TEST(what_one_group_has_acked_goes)
{
    suite_begin();
    scene(foreign("a"), 10);
    CHECK_U64(trim(0, ID_MAX, LIMIT), 0); /* all of it is pending */
    ack("g", 1, 4);
    ack("g", 6, 10);
    CHECK_U64(trim(0, ID_MAX, LIMIT), 4);
    CHECK(first_is(5));
    CHECK(row_of(id_of(5, 0)) != NULL);
    ack("g", 5, 5);
    struct request *request = trim_request();
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim_done.removed, 6);
    CHECK(id_equal(request->trim_done.floor, id_of(10, 1)));
    CHECK_U64(length_of("s"), 0);
}

TEST(what_a_group_has_not_read_stays)
{
    suite_begin();
    scene(foreign("a"), 10);
    ack("g", 1, 10);
    group_make("s", "late");
    CHECK_U64(trim(0, ID_MAX, LIMIT), 0);
    CHECK_U64(read_new("s", "late", foreign("b"), 3)->read.entry_count, 3);
    ack("late", 1, 3);
    struct request *request = trim_request();
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim_done.removed, 3);
    CHECK(id_equal(request->trim_done.floor, id_of(3, 1)));
    CHECK(first_is(4));
    CHECK_U64(read_new("s", "late", foreign("b"), 100)->read.entry_count, 7);
}

TEST(an_ignored_group_holds_nothing_back)
{
    struct impel_bytes names[2] = {span("late"), span("g")};

    suite_begin();
    scene(foreign("a"), 5);
    ack("g", 1, 5);
    group_make("s", "late");
    struct request *request = trim_request();
    request->trim_done.ignored = names;
    request->trim_done.ignored_count = 1;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim_done.removed, 5);
    request = trim_request();
    request->trim_done.ignored = names;
    request->trim_done.ignored_count = 2;
    CHECK(run(request) == IMPEL_ERR_NO_GROUP); /* nobody is left to ask */
}

TEST(a_stream_without_a_group_is_left_alone)
{
    suite_begin();
    (void)add("s", id_of(1, 0), "v");
    CHECK(run(trim_request()) == IMPEL_ERR_NO_GROUP);
    CHECK_U64(length_of("s"), 1);
    struct request *request = ask(REQUEST_TRIM_DONE, "t", "");
    request->trim_done.limit = LIMIT;
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
}

TEST(a_group_that_was_moved_back_holds_what_it_will_read_again)
{
    suite_begin();
    scene(foreign("a"), 6);
    ack("g", 1, 4);
    struct request *set = ask(REQUEST_GROUP_SET, "s", "g");
    set->group_set.start = id_of(2, 0);
    CHECK(run(set) == IMPEL_OK);
    CHECK_U64(trim(0, ID_MAX, LIMIT), 2);
    CHECK(first_is(3));
}

TEST(so_many_entries_are_kept)
{
    suite_begin();
    scene(foreign("a"), 250);
    ack("g", 1, 240);
    CHECK_U64(trim(300, ID_MAX, LIMIT), 0);
    CHECK_U64(trim(250, ID_MAX, LIMIT), 0);
    CHECK_U64(trim(247, ID_MAX, LIMIT), 3);
    CHECK_U64(trim(120, ID_MAX, LIMIT), 127);
    CHECK_U64(length_of("s"), 120);
    CHECK_U64(trim(5, ID_MAX, LIMIT), 110); /* the ten that are pending stay as well */
    CHECK(first_is(241));
}

TEST(what_is_young_is_kept)
{
    suite_begin();
    scene(foreign("a"), 20);
    ack("g", 1, 20);
    CHECK_U64(trim(0, id_of(1, 0), LIMIT), 0);
    CHECK_U64(trim(0, id_of(8, 0), LIMIT), 7);
    CHECK(first_is(8));
    CHECK_U64(trim(6, id_of(18, 0), LIMIT), 7); /* whichever keeps more */
    CHECK_U64(length_of("s"), 6);
}

TEST(a_step_is_bounded)
{
    suite_begin();
    scene(foreign("a"), 500);
    ack("g", 1, 450);
    struct request *request = trim_request();
    request->trim_done.limit = 200;
    CHECK(run(request) == IMPEL_OK);
    CHECK(request->trim_done.removed > 0 && request->trim_done.removed <= 200);
    CHECK(request->trim_done.more);
    CHECK_U64(trim(0, ID_MAX, 200), 450 - request->trim_done.removed);
    CHECK(first_is(451));
}

TEST(a_pending_entry_that_is_gone_holds_its_place)
{
    suite_begin();
    scene(foreign("a"), 5);
    ack("g", 1, 1);
    if (!command("XDEL s 2-0")) {
        SKIP("this store has no XDEL");
    }
    ack("g", 3, 5);
    CHECK_U64(trim(0, ID_MAX, LIMIT), 1); /* 2-0 is pending still: lost, not finished */
    CHECK(first_is(3));
}

TEST(the_last_possible_id_stays)
{
    suite_begin();
    (void)add("s", ID_MAX, "v");
    group_make("s", "g");
    CHECK_U64(read_new("s", "g", foreign("a"), 5)->read.entry_count, 1);
    struct request *request = trim_request();
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim_done.removed, 0);
    CHECK(id_equal(request->trim_done.floor, ID_MAX));
}
