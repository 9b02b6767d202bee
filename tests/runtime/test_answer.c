/* test_answer.c -- the lines by which a process that stays tells outcomes. */
#include "core/id.h"
#include "runtime/answer.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

static struct arena arena;
static struct answer answer;
static struct impel_error error;

static int parse_bytes(const char *data, size_t size)
{
    arena_reset(&arena, 0);
    error = (struct impel_error){0};
    answer = (struct answer){.delay_ms = -7};
    /* A block of the line's own size, so that a look beyond its end is seen. */
    char *copy = malloc(size > 0 ? size : 1);
    CHECK(copy != NULL);
    memcpy(copy, data, size);
    int rc = answer_parse((struct impel_bytes){copy, size}, &arena, &answer, &error);
    free(copy);
    return rc;
}

static int parse(const char *line)
{
    return parse_bytes(line, strlen(line));
}

static bool is(enum worker_outcome outcome, int64_t delay_ms, const char *text)
{
    return id_equal(answer.id, (struct impel_id){5, 7}) && answer.outcome == outcome &&
           answer.delay_ms == delay_ms && bytes_equal(answer.error, bytes_of(text));
}

TEST(the_three_outcomes)
{
    CHECK(parse("{\"id\":\"5-7\",\"outcome\":\"done\"}") >= 0 && is(OUTCOME_DONE, -1, ""));
    CHECK(parse("{\"id\":\"5-7\",\"outcome\":\"retry\",\"delay_ms\":30,\"error\":\"closed\"}") >=
          0);
    CHECK(is(OUTCOME_RETRY, 30, "closed"));
    CHECK(parse("{\"outcome\":\"reject\",\"error\":\"na\\u00efve\",\"id\":\"5-7\"}") >= 0);
    CHECK(is(OUTCOME_REJECT, -1, "na\303\257ve"));
    arena_release(&arena);
}

TEST(blanks_null_and_other_members_are_nothing)
{
    CHECK(parse(" { \"id\" : \"5-7\" , \"outcome\" : \"done\" , \"delay_ms\" : null , "
                "\"error\" : null } \r") >= 0);
    CHECK(is(OUTCOME_DONE, -1, ""));
    CHECK(
        parse(
            "{\"id\":\"5-7\",\"stream\":\"s\",\"attempt\":1,\"fields\":{\"a\":[\"1\",{\"base64\":"
            "\"/w==\"}],\"b\":{}},\"x\":[],\"y\":[true,false,null,-1.5e3],\"outcome\":\"done\"}") >=
        0);
    CHECK(is(OUTCOME_DONE, -1, ""));
    arena_release(&arena);
}

TEST(a_delay_is_a_whole_number_of_ms)
{
    CHECK(parse("{\"id\":\"5-7\",\"outcome\":\"retry\",\"delay_ms\":0}") >= 0);
    CHECK(is(OUTCOME_RETRY, 0, ""));
    CHECK(parse("{\"id\":\"5-7\",\"outcome\":\"retry\",\"delay_ms\":99999999999999999999}") >= 0);
    CHECK(is(OUTCOME_RETRY, INT64_MAX, ""));
    static const char *const wrong[] = {"-1", "1.5", "1e3", "\"1\"", "true", "[1]", "01", ""};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        char line[128];
        (void)snprintf(line, sizeof line, "{\"id\":\"5-7\",\"outcome\":\"retry\",\"delay_ms\":%s}",
                       wrong[i]);
        CHECK(parse(line) == IMPEL_ERR_IO);
    }
    CHECK(parse("{\"id\":\"5-7\",\"outcome\":\"done\",\"delay_ms\":5}") == IMPEL_ERR_IO);
    CHECK(strcmp(error.text, "\"delay_ms\" goes with a retry only") == 0);
    arena_release(&arena);
}

TEST(what_is_no_answer_is_told_by_its_place)
{
    static const struct {
        const char *line, *text;
    } cases[] = {
        {"hello", "column 1: a JSON object is needed here"},
        {"[]", "column 1: a JSON object is needed here"},
        {"{}", "an answer needs \"id\""},
        {"{\"outcome\":\"done\"}", "an answer needs \"id\""},
        {"{\"id\":\"5-7\"}", "an answer needs \"outcome\""},
        {"{\"id\":5,\"outcome\":\"done\"}", "column 7: a string is needed here"},
        {"{\"id\":\"5-x\",\"outcome\":\"done\"}",
         "column 7: \"id\" has to be the entry's ID, as it was given"},
        {"{\"id\":\"5-7\",\"outcome\":\"ok\"}",
         "column 23: \"outcome\" has to be done, retry or reject"},
        {"{\"id\":\"5-7\",\"outcome\":\"done\"", "column 29: a comma or } is needed here"},
        {"{\"id\":\"5-7\",\"outcome\":\"done\"} {}", "column 31: something follows the object"},
        {"{\"id\":\"5-7\",\"id\":\"5-7\",\"outcome\":\"done\"}",
         "column 17: this member stands twice"},
        {"{\"id\":\"5-7\",\"outcome\":\"done\",}", "column 30: a string is needed here"},
        {"{\"id\":\"5-7\",\"outcome\":\"done\",\"error\":7}", "column 38: a string is needed here"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK(parse(cases[i].line) == IMPEL_ERR_IO);
        if (strcmp(error.text, cases[i].text) != 0) {
            printf("# %s: got '%s', want '%s'\n", cases[i].line, error.text, cases[i].text);
        }
        CHECK(strcmp(error.text, cases[i].text) == 0);
        CHECK(answer.delay_ms == -7); /* untouched */
    }
    CHECK(parse_bytes("{\"id\":\"5-7\",\"outcome\":\"done\",\"error\":\"\xff\"}", 40) ==
          IMPEL_ERR_IO);
    CHECK(strcmp(error.text, "column 1: not UTF-8") == 0);
    CHECK(parse_bytes("", 0) == IMPEL_ERR_IO);
    arena_release(&arena);
}

TEST(nesting_has_an_end)
{
    char line[4096];
    size_t size = (size_t)snprintf(line, sizeof line, "{\"x\":");
    memset(line + size, '[', 1000);
    line[size + 1000] = '\0';
    CHECK(parse(line) == IMPEL_ERR_IO);
    CHECK(strstr(error.text, "nested too deeply") != NULL);
    arena_release(&arena);
}

TAP_MAIN
