/* Requests in and out. hiredis writes what we read; the refusals are Redis's own words. */
#include "resp/resp.h"
#include "tap.h"

#include <hiredis/hiredis.h>

#include <stdlib.h>

static uint64_t seed = 7;

static unsigned draw(unsigned below)
{
    return (unsigned)(random_next(&seed) % below);
}

struct asked {
    struct arena arena;
    struct impel_bytes *args;
    size_t count;
    size_t size; /* of the message */
    int rc;      /* 1 whole, 0 more, < 0 */
    struct impel_error err;
};

static void ask(struct asked *asked, const char *text, size_t size, size_t piece, bool locked)
{
    struct resp_limits limits;
    struct resp_request_scan scan;

    *asked = (struct asked){0};
    resp_limits_default(&limits);
    resp_request_scan_init(&scan, &limits);
    scan.unauthenticated = locked;
    for (size_t have = 0; asked->rc == 0 && have < size;) {
        have = have + piece < size ? have + piece : size;
        char *copy = malloc(have);
        memcpy(copy, text, have);
        asked->rc =
            resp_scan_request(&scan, (struct impel_bytes){copy, have}, &asked->size, &asked->err);
        free(copy);
    }
    if (asked->rc == 1) {
        int rc = resp_read_request((struct impel_bytes){text, asked->size}, &asked->arena,
                                   &asked->args, &asked->count, &asked->err);
        asked->rc = rc < 0 ? rc : 1;
    }
}

/* A random command: hiredis writes it as we do, and we read it. */
static void check_one_command(void)
{
    const char *argv[8];
    size_t sizes[8];
    struct impel_bytes args[8];
    int argc = 1 + (int)draw(8);
    char bytes[8][300];
    char *theirs = NULL;
    struct asked asked;
    struct buf buf;

    for (int i = 0; i < argc; i++) {
        sizes[i] = draw(3) == 0 ? draw(300) : draw(8);
        for (size_t b = 0; b < sizes[i]; b++) {
            bytes[i][b] = (char)draw(256);
        }
        argv[i] = bytes[i];
        args[i] = (struct impel_bytes){bytes[i], sizes[i]};
    }
    int size = redisFormatCommandArgv(&theirs, argc, argv, sizes);
    buf_init(&buf, 100000);
    resp_put_command(&buf, args, (size_t)argc);
    CHECK(bytes_equal(buf_bytes(&buf), (struct impel_bytes){theirs, (size_t)size}));
    ask(&asked, theirs, (size_t)size, 1 + draw(30), false);
    CHECK(asked.rc == 1 && asked.size == (size_t)size && asked.count == (size_t)argc);
    for (int i = 0; i < argc; i++) {
        CHECK(bytes_equal(asked.args[i], args[i]));
    }
    arena_release(&asked.arena);
    buf_release(&buf);
    redisFreeCommand(theirs);
}

TEST(what_hiredis_writes_is_read_and_what_we_write_is_the_same)
{
    for (int round = 0; round < 1000; round++) {
        check_one_command();
    }
}

static void check_refused(const char *text, bool locked, const char *why)
{
    struct asked asked;

    ask(&asked, text, strlen(text), 1, locked);
    arena_release(&asked.arena);
    if (asked.rc != IMPEL_ERR_PROTOCOL || strcmp(asked.err.text, why) != 0) {
        printf("# %d %s\n", asked.rc, asked.err.text);
    }
    CHECK(asked.rc == IMPEL_ERR_PROTOCOL);
    CHECK(strcmp(asked.err.text, why) == 0);
}

TEST(refusals_are_in_the_words_of_redis)
{
    check_refused("*x\r\n", false, "ERR Protocol error: invalid multibulk length");
    check_refused("*2147483648\r\n", false, "ERR Protocol error: invalid multibulk length");
    check_refused("*01\r\n", false, "ERR Protocol error: invalid multibulk length");
    check_refused("*+1\r\n", false, "ERR Protocol error: invalid multibulk length");
    check_refused("*1\r\n$04\r\n", false, "ERR Protocol error: invalid bulk length");
    check_refused("*1\r\n$\r\n", false, "ERR Protocol error: invalid bulk length");
    check_refused("*1\r\n$1234567890\r\n", false, "ERR Protocol error: invalid bulk length");
    check_refused("*1\r\n:5\r\n", false, "ERR Protocol error: expected '$', got ':'");
    check_refused("*1\r\n$-1\r\n", false, "ERR Protocol error: invalid bulk length");
    check_refused("*1\r\n$536870913\r\n", false, "ERR Protocol error: invalid bulk length");
    check_refused("*11\r\n", true, "ERR Protocol error: unauthenticated multibulk length");
    check_refused("*1\r\n$16385\r\n", true, "ERR Protocol error: unauthenticated bulk length");
    check_refused("SET \"a\r\n", false, "ERR Protocol error: unbalanced quotes in request");
    check_refused("SET \"a\"b\r\n", false, "ERR Protocol error: unbalanced quotes in request");
}

TEST(a_line_without_an_end_is_refused_at_64_kib)
{
    static const char *const starts[] = {"a", "*1", "*1\r\n$1"};
    static const char *const whys[] = {"ERR Protocol error: too big inline request",
                                       "ERR Protocol error: too big mbulk count string",
                                       "ERR Protocol error: too big bulk count string"};

    for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
        struct asked asked;
        size_t size = RESP_LINE_MAX + 100;
        char *text = malloc(size);
        memset(text, '1', size);
        memcpy(text, starts[i], strlen(starts[i]));
        ask(&asked, text, size, 4096, false);
        CHECK(asked.rc == IMPEL_ERR_PROTOCOL);
        CHECK(strcmp(asked.err.text, whys[i]) == 0);
        free(text);
    }
}

TEST(nothing_is_nothing)
{
    static const char *const texts[] = {"\r\n", "\n", "*0\r\n", "*-1\r\n", "*-10\r\n", "  \r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct asked asked;
        ask(&asked, texts[i], strlen(texts[i]), 1, false);
        CHECK(asked.rc == 1 && asked.count == 0 && asked.size == strlen(texts[i]));
        arena_release(&asked.arena);
    }
}

enum { INLINE_ARGS_MAX = 4 }; /* of the lines below; fewer end with a NULL */

static void check_split(const char *line, const char *const args[INLINE_ARGS_MAX])
{
    struct asked asked;
    size_t n = 0;

    ask(&asked, line, strlen(line), 1, false);
    CHECK(asked.rc == 1);
    for (; n < INLINE_ARGS_MAX && args[n] != NULL; n++) {
        CHECK(n < asked.count && bytes_equal(asked.args[n], bytes_of(args[n])));
    }
    CHECK_U64(asked.count, n);
    arena_release(&asked.arena);
}

TEST(inline_lines_are_split_as_redis_splits_them)
{
    static const struct {
        const char *line;
        const char *args[INLINE_ARGS_MAX];
    } cases[] = {
        {"PING\n", {"PING"}},
        {"  set\ta  b \r\n", {"set", "a", "b"}},
        {"echo \"a b\\n\\x41\\t\\\"\\q\"\r\n", {"echo", "a b\nA\t\"q"}},
        {"echo 'a \\' b\\n' c\r\n", {"echo", "a ' b\\n", "c"}},
        {"echo \"\" ''\r\n", {"echo", "", ""}},
        {"a\"b c\"\r\n", {"ab c"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        check_split(cases[i].line, cases[i].args);
    }
}

TEST(one_request_after_another)
{
    const char *text = "*1\r\n$4\r\nPING\r\nECHO hi\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n";
    struct resp_limits limits;
    struct resp_request_scan scan;
    size_t at = 0, size = 0, counts[3] = {0};

    resp_limits_default(&limits);
    resp_request_scan_init(&scan, &limits);
    for (int i = 0; i < 3; i++) {
        struct impel_bytes rest = {text + at, strlen(text) - at};
        struct arena arena = {0};
        struct impel_bytes *args;
        CHECK(resp_scan_request(&scan, rest, &size, NULL) == 1);
        rest.size = size;
        CHECK(resp_read_request(rest, &arena, &args, &counts[i], NULL) == IMPEL_OK);
        arena_release(&arena);
        at += size;
    }
    CHECK(at == strlen(text) && counts[0] == 1 && counts[1] == 2 && counts[2] == 2);
}

TAP_MAIN
