/* test_id.c -- entry IDs: order, text, and the forms that Redis takes and refuses. */
#include "core/id.h"
#include "tap.h"

static bool parses(const char *text, uint64_t ms, uint64_t seq)
{
    struct impel_id id = {111, 222};
    return id_parse(bytes_of(text), 7, &id) == IMPEL_OK && id.ms == ms && id.seq == seq;
}

static bool refused(struct impel_bytes text)
{
    struct impel_id id = {111, 222};
    return id_parse(text, 7, &id) == IMPEL_ERR_INVALID && id.ms == 111 && id.seq == 222;
}

TEST(ids_are_ordered_by_ms_then_seq)
{
    CHECK(id_compare((struct impel_id){1, 9}, (struct impel_id){2, 0}) < 0);
    CHECK(id_compare((struct impel_id){2, 0}, (struct impel_id){1, 9}) > 0);
    CHECK(id_compare((struct impel_id){1, 1}, (struct impel_id){1, 2}) < 0);
    CHECK(id_compare((struct impel_id){1, UINT64_MAX}, (struct impel_id){1, 0}) > 0);
    CHECK(id_compare(ID_MAX, ID_MAX) == 0);
    CHECK(id_equal(ID_MIN, (struct impel_id){0, 0}) && !id_equal(ID_MIN, ID_MAX));
    CHECK(id_is_zero(ID_MIN) && !id_is_zero((struct impel_id){0, 1}));
}

TEST(next_and_previous_carry_and_stop_at_the_ends)
{
    struct impel_id id = {5, UINT64_MAX};
    CHECK(id_next(&id) && id.ms == 6 && id.seq == 0);
    CHECK(id_previous(&id) && id.ms == 5 && id.seq == UINT64_MAX);
    CHECK(id_previous(&id) && id.seq == UINT64_MAX - 1);
    id = ID_MAX;
    CHECK(!id_next(&id) && id_equal(id, ID_MAX));
    id = ID_MIN;
    CHECK(!id_previous(&id) && id_is_zero(id));
}

TEST(text_and_back)
{
    char text[ID_TEXT_SIZE];
    CHECK(strcmp(id_format(ID_MAX, text), "18446744073709551615-18446744073709551615") == 0);
    CHECK(parses(text, UINT64_MAX, UINT64_MAX));
    CHECK(strcmp(id_format((struct impel_id){0, 1}, text), "0-1") == 0);
}

TEST(plain_forms_are_taken)
{
    CHECK(parses("5-1", 5, 1));
    CHECK(parses("5", 5, 7));
    CHECK(parses("0-0", 0, 0));
    CHECK(parses("999999999999999999-999999999999999999", 999999999999999999, 999999999999999999));
    CHECK(parses("1000000000000000000-1", 1000000000000000000, 1));
    CHECK(parses("1-1000000000000000000", 1, 1000000000000000000));
    CHECK(parses("9223372036854775807-9223372036854775808", INT64_MAX, (uint64_t)INT64_MAX + 1));
}

TEST(sloppy_forms_are_taken_as_redis_takes_them)
{
    CHECK(parses("0005-3", 5, 3));
    CHECK(parses("+6-+1", 6, 1));
    CHECK(parses(" 7-1", 7, 1));
    CHECK(parses("5--01", 5, UINT64_MAX));
    CHECK(parses("5--0", 5, 0));
    CHECK(parses("5--9223372036854775809", 5, INT64_MAX));
    struct impel_id id;
    CHECK(id_parse((struct impel_bytes){"5-1\0x", 5}, 0, &id) == IMPEL_OK && id.seq == 1);
}

TEST(what_is_no_id_is_refused_and_leaves_the_output_alone)
{
    static const char *const bad[] = {
        "",   "-",     "+",   "$",    ">",   "*",    "5-*",  "-5",
        "5-", "8-1x",  "0x9", "5--1", "5.0", "5 -1", "5-1 ", "18446744073709551616",
        "a",  "5-1-2", "(5",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(refused(bytes_of(bad[i])));
    }
    char longer[128];
    memset(longer, '0', sizeof(longer));
    CHECK(refused((struct impel_bytes){longer, 128}));
    struct impel_id id;
    CHECK(id_parse((struct impel_bytes){longer, 127}, 7, &id) == IMPEL_OK);
}

TAP_MAIN
