/* test_format.c -- showing replies, and the patterns of KEYS. What a reply looks like on a terminal
 * is tested by every line of replies.txt; here are the raw form and the kinds that no command of
 * ours answers. */
#include "base/glob.h"
#include "cli/format_reply.h"
#include "tap.h"

static struct arena arena;

static void check_shown(const struct value *value, enum reply_form form, const char *want)
{
    struct buf out;

    buf_init(&out, 4096);
    format_reply(value, form, &out);
    CHECK(buf_status(&out) == IMPEL_OK);
    bool same = bytes_equal(buf_bytes(&out), bytes_of(want));
    if (!same) {
        printf("# got <%.*s>, want <%s>\n", (int)out.size, (const char *)out.data, want);
    }
    buf_release(&out);
    CHECK(same);
}

TEST(raw_scalars)
{
    struct value null = {.kind = VALUE_NULL};
    struct value error = {.kind = VALUE_ERROR, .bytes = bytes_of("ERR no")};
    struct value number = value_integer(-7);
    struct value text = value_text("two\nlines");
    struct value status = value_status("OK");

    check_shown(&null, REPLY_FORM_RAW, "\n");
    check_shown(&error, REPLY_FORM_RAW, "ERR no\n\n");
    check_shown(&number, REPLY_FORM_RAW, "-7\n");
    check_shown(&text, REPLY_FORM_RAW, "two\nlines\n");
    check_shown(&status, REPLY_FORM_RAW, "OK\n");
}

TEST(raw_lists_are_a_line_an_element)
{
    struct value list, empty;
    struct value *items = value_list_init(&list, VALUE_ARRAY, 3, &arena);

    CHECK(items != NULL);
    items[0] = value_text("a");
    struct value *inner = value_list_init(&items[1], VALUE_MAP, 2, &arena);
    CHECK(inner != NULL);
    inner[0] = value_text("b");
    inner[1] = value_integer(3);
    check_shown(&list, REPLY_FORM_RAW, "a\nb\n3\n\n");
    value_list_init(&empty, VALUE_ARRAY, 0, &arena);
    check_shown(&empty, REPLY_FORM_RAW, "\n");
}

TEST(numbers_of_elements_are_aligned)
{
    struct value list = {.kind = VALUE_ARRAY};
    for (int i = 0; i < 10; i++) {
        struct value *item = value_append(&list, &arena);
        CHECK(item != NULL);
        *item = value_integer(i);
    }
    struct value *last = value_list_init(&list.items[9], VALUE_SET, 2, &arena);
    CHECK(last != NULL);
    last[0] = (struct value){.kind = VALUE_BOOLEAN, .integer = 1};
    last[1] = (struct value){.kind = VALUE_DOUBLE, .number = 1.5};
    check_shown(&list, REPLY_FORM_SHOW,
                " 1) (integer) 0\n 2) (integer) 1\n 3) (integer) 2\n 4) (integer) 3\n"
                " 5) (integer) 4\n 6) (integer) 5\n 7) (integer) 6\n 8) (integer) 7\n"
                " 9) (integer) 8\n10) 1) (true)\n    2) (double) 1.5\n");
}

TEST(lists_grow_without_losing_anything)
{
    struct value list = {.kind = VALUE_ARRAY};
    for (int i = 0; i < 1000; i++) {
        struct value *item = value_append(&list, &arena);
        CHECK(item != NULL);
        CHECK(item->kind == VALUE_NULL);
        *item = value_integer(i);
    }
    CHECK_U64(list.item_count, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK(list.items[i].integer == i);
    }
}

static bool glob(const char *pattern, const char *text)
{
    return glob_matches(bytes_of(pattern), bytes_of(text));
}

TEST(patterns)
{
    CHECK(glob("", ""));
    CHECK(!glob("", "a"));
    CHECK(glob("*", ""));
    CHECK(glob("a*c*e", "abcde"));
    CHECK(glob("a*c*e", "acecce"));
    CHECK(!glob("a*c*e", "abcd"));
    CHECK(glob("h?llo", "hallo"));
    CHECK(!glob("h?llo", "hllo"));
    CHECK(glob("h[ae]llo", "hello"));
    CHECK(!glob("h[^ae]llo", "hello"));
    CHECK(glob("h[a-c]", "hb"));
    CHECK(glob("h[c-a]", "hb"));
    CHECK(!glob("h[a-c]", "hd"));
    CHECK(glob("a\\*b", "a*b"));
    CHECK(!glob("a\\*b", "axb"));
    CHECK(glob("[\\]]", "]"));
    CHECK(glob("**", "x"));
    CHECK(glob("\\", "\\"));
    CHECK(!glob("a**b", "a"));
}

TEST(patterns_for_texts_know_no_sets)
{
    CHECK(glob_matches_text(bytes_of("[a?]*\\"), bytes_of("[ab] and \\")));
    CHECK(!glob_matches_text(bytes_of("[ab]"), bytes_of("a")));
    CHECK(!glob_matches_text(bytes_of("\\*"), bytes_of("*")));
    CHECK(glob_matches_text(bytes_of("a*c*e"), bytes_of("acecce")));
}

TEST(names_that_are_patterns)
{
    CHECK(glob_is_pattern(bytes_of("orders:*")));
    CHECK(glob_is_pattern(bytes_of("?")));
    CHECK(glob_is_pattern(bytes_of("orders[12]")));
    CHECK(glob_is_pattern(bytes_of("a\\*b")));
    CHECK(!glob_is_pattern(bytes_of("{orders}:dead\\")));
    CHECK(!glob_is_pattern(bytes_of("")));
}

TEST(patterns_are_never_slow)
{
    char text[4096], pattern[1024];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (size_t i = 0; i + 2 < sizeof(pattern); i += 2) {
        pattern[i] = '*';
        pattern[i + 1] = 'a';
    }
    pattern[sizeof(pattern) - 2] = 'b';
    pattern[sizeof(pattern) - 1] = '\0';
    CHECK(!glob(pattern, text)); /* backtracking over every star would not end in our time */
}

TAP_MAIN
