/* conformance_look.c -- what every store must tell: pending rows, ranges, lengths and lags; trimming,
 * groups, and keys that are no streams. */
#include "store/suite.h"

#include <stdlib.h>

static struct request *read_request(void)
{
    static const struct impel_bytes stream = {"s", 1};
    struct request *request = ask_as(REQUEST_READ, "", "g", foreign("c"));

    request->read.streams = &stream;
    request->read.stream_count = 1;
    request->read.count = 1;
    return request;
}

/* ---- looking ---- */

TEST(pending_lists_rows_by_id_and_by_owner)
{
    suite_begin();
    scene(foreign("a"), 3);
    (void)add("s", id_of(4, 0), "v");
    (void)read_new("s", "g", foreign("b"), 1);
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK); /* to nothing */
    struct request *request = ask(REQUEST_PENDING, "s", "g");
    request->pending.start = id_of(2, 0);
    request->pending.end = ID_MAX;
    request->pending.count = 2;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->pending.row_count, 2);
    const struct pending_row *rows = request->pending.rows;
    CHECK(id_equal(rows[0].id, id_of(2, 0)) && id_equal(rows[1].id, id_of(3, 0)));
    CHECK(same(rows[0].owner, "a"));
    CHECK(rows[0].deliveries == 1);
    CHECK(rows[0].idle_ms >= 0 && rows[0].idle_ms < SUITE_WAIT_MS);
    CHECK(!rows[0].exists);
    CHECK_U64(pending_of("a"), 3);
    CHECK_U64(pending_of("b"), 1);
    CHECK_U64(pending_of("never seen"), 0);
    request = ask(REQUEST_PENDING, "s", "none");
    request->pending.count = 1;
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
}

TEST(pending_tells_whether_the_entry_is_there)
{
    suite_begin();
    scene(foreign("a"), 2);
    CHECK(row_of(id_of(2, 0))->exists);
}

TEST(idle_grows_with_the_stores_clock)
{
    suite_begin();
    scene(foreign("a"), 1);
    int64_t since_ms = suite_now_ms();
    while (row_of(id_of(1, 0))->idle_ms < 30) {
        CHECK(!suite_overdue(since_ms));
        suite_pause(5);
    }
}

static void check_range(struct impel_id start, struct impel_id end, bool reverse, const char *want)
{
    struct request *request = ask(REQUEST_RANGE, "s", "");
    char got[64] = "";
    request->range.start = start;
    request->range.end = end;
    request->range.count = 3;
    request->range.reverse = reverse;
    CHECK(run(request) == IMPEL_OK);
    for (size_t i = 0; i < request->range.entry_count; i++) {
        size_t at = strlen(got);
        (void)snprintf(got + at, sizeof(got) - at, "%d", (int)request->range.entries[i]->id.ms);
    }
    if (strcmp(got, want) != 0) {
        printf("# range: got %s, want %s\n", got, want);
    }
    CHECK(strcmp(got, want) == 0);
}

TEST(range_goes_both_ways_and_is_inclusive)
{
    suite_begin();
    CHECK_U64(entries_of("s")->range.entry_count, 0); /* a missing stream has none */
    for (uint64_t i = 1; i <= 6; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    check_range(ID_MIN, ID_MAX, false, "123");
    check_range(ID_MIN, ID_MAX, true, "654");
    check_range(id_of(2, 0), id_of(3, 0), false, "23");
    check_range(id_of(2, 0), id_of(3, 0), true, "32");
    check_range(id_of(2, 1), id_of(4, 0), false, "34");
    check_range(id_of(3, 0), id_of(3, 0), true, "3");
    check_range(id_of(7, 0), ID_MAX, false, "");
    check_range(ID_MIN, id_of(0, 5), true, "");
}

TEST(info_tells_all_about_a_stream_and_its_groups)
{
    suite_begin();
    struct request *request = ask(REQUEST_INFO, "s", "");
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->info.exists);
    scene(foreign("a"), 3);
    (void)add("s", id_of(4, 0), "v");
    (void)add("s", id_of(5, 0), "v");
    group_make("s", "another");
    request = ask(REQUEST_INFO, "s", "");
    CHECK(run(request) == IMPEL_OK);
    CHECK(request->info.exists);
    CHECK_U64(request->info.length, 5);
    CHECK(id_equal(request->info.last_id, id_of(5, 0)));
    CHECK(id_equal(request->info.first_id, id_of(1, 0)));
    CHECK_U64(request->info.entries_added, 5);
    CHECK_U64(request->info.group_count, 2);
    const struct info_group *group = request->info.groups;
    CHECK(same(group[0].name, "another") && same(group[1].name, "g"));
    CHECK(id_is_zero(group[0].first_pending));
    CHECK(group[0].oldest_idle_ms == -1);
    bool counts_lag = !server_lacks("XGROUP SETID s another 0 ENTRIESREAD 0");
    CHECK(group[0].lag == (counts_lag ? 5 : -1));
    CHECK_U64(group[0].consumers, 0);
    CHECK(id_equal(group[1].last_delivered, id_of(3, 0)));
    CHECK_U64(group[1].pending, 3);
    CHECK_U64(group[1].consumers, 1);
    CHECK(group[1].lag == (counts_lag ? 2 : -1));
    CHECK(id_equal(group[1].first_pending, id_of(1, 0)));
    CHECK(group[1].oldest_idle_ms >= 0);
}

static int64_t lag_of_g(void)
{
    struct request *request = ask(REQUEST_INFO, "s", "");
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->info.group_count, 1);
    return request->info.groups[0].lag;
}

TEST(lag_is_unknown_only_where_it_cannot_be_known)
{
    suite_begin();
    group_make("s", "g");
    if (server_before_7()) {
        SKIP("the server counts no lag");
    }
    CHECK(lag_of_g() == 0);
    for (uint64_t i = 1; i <= 5; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    CHECK(lag_of_g() == 5);
    (void)read_new("s", "g", foreign("a"), 2);
    CHECK(lag_of_g() == 3);
    struct request *request = ask(REQUEST_GROUP_SET, "s", "g");
    request->group_set.start = id_of(3, 0);
    CHECK(run(request) == IMPEL_OK);
    CHECK(lag_of_g() == -1); /* in the middle, by hand */
    request = ask(REQUEST_GROUP_SET, "s", "g");
    request->group_set.at_end = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK(lag_of_g() == 0);
    if (command("XDEL s 4-0")) {
        request = ask(REQUEST_GROUP_SET, "s", "g");
        CHECK(run(request) == IMPEL_OK);
        CHECK(lag_of_g() == -1); /* a hole ahead */
    }
}

TEST(trim_removes_the_oldest)
{
    suite_begin();
    for (uint64_t i = 1; i <= 300; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    struct request *request = ask(REQUEST_TRIM, "s", "");
    request->trim.length_max = 250;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim.removed, 50);
    CHECK(id_equal(entries_of("s")->range.entries[0]->id, id_of(51, 0)));
    request = ask(REQUEST_TRIM, "s", "");
    request->trim.by_id = true;
    request->trim.id_min = id_of(61, 0);
    if (server_lacks("XTRIM s MINID 1")) {
        CHECK(run(request) == IMPEL_ERR_UNSUPPORTED);
        return;
    }
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(request->trim.removed, 10);
    CHECK_U64(length_of("s"), 240);
    request = ask(REQUEST_TRIM, "s", "");
    request->trim.length_max = 120;
    request->trim.approximate = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(length_of("s"), 240 - request->trim.removed);
    CHECK(length_of("s") >= 120);
    (void)add("s", ID_MIN, "v"); /* IDs go on after all is gone */
    CHECK(run(ask(REQUEST_TRIM, "s", "")) == IMPEL_OK);
    CHECK_U64(length_of("s"), 0);
    CHECK(run(add_request("s", id_of(300, 0))) < 0);
}

/* ---- groups ---- */

TEST(group_create_makes_the_stream_and_keeps_what_is_there)
{
    suite_begin();
    struct request *request = ask(REQUEST_GROUP_CREATE, "s", "g");
    request->group_set.no_create = true;
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
    request = ask(REQUEST_GROUP_CREATE, "s", "g");
    CHECK(run(request) == IMPEL_OK);
    CHECK(request->group_set.created);
    (void)add("s", id_of(1, 0), "v");
    CHECK_U64(read_new("s", "g", foreign("a"), 5)->read.entry_count, 1);
    request = ask(REQUEST_GROUP_CREATE, "s", "g");
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->group_set.created);
    CHECK_U64(pending_of("a"), 1);
    CHECK_U64(read_new("s", "g", foreign("a"), 5)->read.entry_count, 0);
}

TEST(group_create_begins_where_told)
{
    suite_begin();
    for (uint64_t i = 1; i <= 3; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    struct request *request = ask(REQUEST_GROUP_CREATE, "s", "middle");
    request->group_set.start = id_of(2, 0);
    CHECK(run(request) == IMPEL_OK);
    request = ask(REQUEST_GROUP_CREATE, "s", "end");
    request->group_set.at_end = true;
    CHECK(run(request) == IMPEL_OK);
    CHECK_U64(read_new("s", "middle", foreign("a"), 5)->read.entry_count, 1);
    CHECK_U64(read_new("s", "end", foreign("a"), 5)->read.entry_count, 0);
    request = ask(REQUEST_GROUP_SET, "s", "none");
    CHECK(run(request) == IMPEL_ERR_NO_GROUP);
}

/* ---- keys of another type ---- */

TEST(a_key_of_another_type_is_refused_everywhere)
{
    static const enum request_kind kinds[] = {
        REQUEST_BEAT,  REQUEST_LOOK,      REQUEST_CLAIM_FROM, REQUEST_RETRY, REQUEST_ADOPT,
        REQUEST_RENEW, REQUEST_RELEASE,   REQUEST_PARK,       REQUEST_LEAVE, REQUEST_DROP,
        REQUEST_ACK,   REQUEST_PENDING,   REQUEST_RANGE,      REQUEST_INFO,  REQUEST_GROUP_CREATE,
        REQUEST_TRIM,  REQUEST_GROUP_SET, REQUEST_TRIM_DONE,
    };
    suite_begin();
    if (!command("SET s v")) {
        SKIP("this store has no keys of another type");
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct request *request = ask_as(kinds[i], "s", "g", worker("w", 1));
        if (kinds[i] == REQUEST_CLAIM_FROM) {
            request = claim_from(worker("w", 1), "x");
        }
        CHECK(run(request) == IMPEL_ERR_WRONG_TYPE);
    }
    CHECK(run(add_request("s", ID_MIN)) == IMPEL_ERR_WRONG_TYPE);
    CHECK(run(read_request()) == IMPEL_ERR_WRONG_TYPE);
}

TEST(a_missing_group_is_said_so_everywhere)
{
    static const enum request_kind kinds[] = {
        REQUEST_BEAT,    REQUEST_LOOK, REQUEST_RETRY, REQUEST_ADOPT, REQUEST_RENEW,
        REQUEST_RELEASE, REQUEST_PARK, REQUEST_LEAVE, REQUEST_DROP,  REQUEST_PENDING,
    };
    suite_begin();
    (void)add("s", id_of(1, 0), "v");
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        struct request *request = ask_as(kinds[i], "s", "g", worker("w", 1));
        CHECK(run(request) == IMPEL_ERR_NO_GROUP);
        CHECK(request->error.status == IMPEL_ERR_NO_GROUP);
        request = ask_as(kinds[i], "t", "g", worker("w", 1));
        CHECK(run(request) == IMPEL_ERR_NO_GROUP);
    }
    CHECK(run(claim_from(worker("w", 1), "x")) == IMPEL_ERR_NO_GROUP);
    struct request *request = ask(REQUEST_INFO, "t", "");
    CHECK(run(request) == IMPEL_OK);
    CHECK(!request->info.exists); /* asking makes nothing */
}
