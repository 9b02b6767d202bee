/* test_json.c -- JSON out, base64 both ways. */
#include "base/json.h"
#include "tap.h"

#include <string.h>

static struct buf out;

static const char *text_of_out(void)
{
    buf_append(&out, "", 1);
    return (const char *)out.data;
}

static void begin(void)
{
    buf_release(&out);
    buf_init(&out, 1 << 20);
}

static struct impel_bytes raw(const char *data, size_t size)
{
    return (struct impel_bytes){data, size};
}

TEST(strings_are_escaped)
{
    begin();
    json_string(&out, raw("a\"\\\n\t\0\x1f\xc3\xa9", 9));
    CHECK(strcmp(text_of_out(), "\"a\\\"\\\\\\n\\t\\u0000\\u001f\xc3\xa9\"") == 0);
}

TEST(what_is_not_utf8_comes_as_base64)
{
    begin();
    json_value(&out, raw("\xff\x00x", 3));
    CHECK(strcmp(text_of_out(), "{\"base64\":\"/wB4\"}") == 0);
    begin();
    json_name(&out, raw("\xff", 1));
    json_name(&out, bytes_of("base64:x"));
    CHECK(strcmp(text_of_out(), "\"base64:/w==\":\"base64:YmFzZTY0Ong=\":") == 0);
}

TEST(utf8_has_no_surrogates_and_no_overlong_forms)
{
    CHECK(utf8_valid(raw("", 0)));
    CHECK(utf8_valid(bytes_of("\xf0\x9f\x98\x80 \xe2\x82\xac")));
    CHECK(!utf8_valid(bytes_of("\xed\xa0\x80")));
    CHECK(!utf8_valid(bytes_of("\xc0\x80")));
    CHECK(!utf8_valid(bytes_of("\xe0\x80\x80")));
    CHECK(!utf8_valid(bytes_of("\xf4\x90\x80\x80")));
    CHECK(!utf8_valid(bytes_of("\xe2\x82")));
    CHECK(!utf8_valid(bytes_of("\x80")));
}

TEST(repeated_names_come_as_an_array)
{
    struct impel_field fields[] = {
        {bytes_of("a"), bytes_of("1")},
        {bytes_of("b"), bytes_of("2")},
        {bytes_of("a"), bytes_of("3")},
    };
    begin();
    json_fields(&out, fields, 3);
    CHECK(strcmp(text_of_out(), "{\"a\":[\"1\",\"3\"],\"b\":\"2\"}") == 0);
    begin();
    json_fields(&out, NULL, 0);
    CHECK(strcmp(text_of_out(), "{}") == 0);
}

TEST(many_fields_are_grouped_the_same_way)
{
    struct impel_field fields[40];
    char names[40][8];
    for (int i = 0; i < 40; i++) {
        snprintf(names[i], sizeof(names[i]), "n%d", i % 20);
        fields[i] = (struct impel_field){bytes_of(names[i]), bytes_of(i < 20 ? "x" : "y")};
    }
    begin();
    json_fields(&out, fields, 40);
    const char *text = text_of_out();
    CHECK(strstr(text, "{\"n0\":[\"x\",\"y\"],\"n1\":[\"x\",\"y\"],") == text);
    CHECK(strcmp(text + strlen(text) - 17, ",\"n19\":[\"x\",\"y\"]}") == 0);
}

TEST(base64_goes_both_ways)
{
    static const char *const pairs[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}};
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        begin();
        base64_append(&out, bytes_of(pairs[i][0]));
        CHECK(bytes_equal(buf_bytes(&out), bytes_of(pairs[i][1])));
        begin();
        CHECK(base64_decode(&out, bytes_of(pairs[i][1])));
        CHECK(bytes_equal(buf_bytes(&out), bytes_of(pairs[i][0])));
    }
    begin();
    CHECK(!base64_decode(&out, bytes_of("Zg=")));
    CHECK(!base64_decode(&out, bytes_of("Z===")));
    CHECK(!base64_decode(&out, bytes_of("Zm9v====")));
    CHECK(!base64_decode(&out, bytes_of("Zm 9")));
}

TEST(a_full_buffer_is_an_error_not_a_cut)
{
    buf_release(&out);
    buf_init(&out, 8);
    json_value(&out, bytes_of("more than eight bytes"));
    CHECK(buf_status(&out) < 0);
}

TAP_MAIN
