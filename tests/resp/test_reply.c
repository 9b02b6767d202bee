/* Replies in and out, with hiredis as the oracle for what both of us read. */
#include "resp/resp.h"
#include "tap.h"

#include <hiredis/hiredis.h>

#include <math.h>
#include <stdlib.h>

static uint64_t seed = 20261130;

static unsigned draw(unsigned below)
{
    return (unsigned)(random_next(&seed) % below);
}

/* Scans `text` in pieces of `piece` bytes and reads it; the status, or the size if it is whole. */
static int64_t
read_pieces(const char *text, size_t size, size_t piece, struct arena *arena, struct value *out)
{
    struct resp_limits limits;
    struct resp_scan scan;
    size_t whole = 0;
    int rc = 0;

    resp_limits_default(&limits);
    resp_scan_init(&scan, &limits);
    for (size_t have = 0; rc == 0 && have < size;) {
        have = have + piece < size ? have + piece : size;
        /* A copy of its own size, so that a sanitizer sees any look beyond what has arrived. */
        char *copy = malloc(have);
        memcpy(copy, text, have);
        rc = resp_scan_reply(&scan, (struct impel_bytes){copy, have}, &whole, NULL);
        free(copy);
    }
    if (rc == 1) {
        rc = resp_read_reply((struct impel_bytes){text, whole}, arena, out, NULL);
    } else if (rc == 0) {
        return 0;
    }
    return rc < 0 ? rc : (int64_t)whole;
}

static int64_t read_text(const char *text, struct arena *arena, struct value *out)
{
    return read_pieces(text, strlen(text), 1, arena, out);
}

static int status_of(const char *text)
{
    struct arena arena = {0};
    struct value value;
    int64_t rc = read_text(text, &arena, &value);

    arena_release(&arena);
    return rc < 0 ? (int)rc : rc == 0 ? 0 : 1;
}

static bool same_as_hiredis(const struct value *ours, const redisReply *theirs)
{
    switch (theirs->type) {
    case REDIS_REPLY_NIL:
        return ours->kind == VALUE_NULL || ours->kind == VALUE_NULL_ARRAY;
    case REDIS_REPLY_INTEGER:
        return ours->kind == VALUE_INTEGER && ours->integer == theirs->integer;
    case REDIS_REPLY_STATUS:
    case REDIS_REPLY_ERROR:
    case REDIS_REPLY_STRING:
        return ours->kind == (theirs->type == REDIS_REPLY_STATUS  ? VALUE_STATUS
                              : theirs->type == REDIS_REPLY_ERROR ? VALUE_ERROR
                                                                  : VALUE_BULK) &&
               bytes_equal(ours->bytes, (struct impel_bytes){theirs->str, (size_t)theirs->len});
    default:
        if (ours->kind != VALUE_ARRAY || ours->item_count != theirs->elements) {
            return false;
        }
        for (size_t i = 0; i < theirs->elements; i++) {
            if (!same_as_hiredis(&ours->items[i], theirs->element[i])) {
                return false;
            }
        }
        return true;
    }
}

/* A random value of those that RESP2 has. */
static void make_value(struct arena *arena, unsigned depth, struct value *out)
{
    static const enum value_kind kinds[] = {VALUE_NULL,  VALUE_NULL_ARRAY, VALUE_STATUS,
                                            VALUE_ERROR, VALUE_INTEGER,    VALUE_BULK,
                                            VALUE_ARRAY, VALUE_ARRAY};
    char *bytes;

    *out = (struct value){.kind = kinds[draw(depth > 4 ? 6 : 8)]};
    out->integer = (int64_t)random_next(&seed) >> draw(64);
    if (out->kind == VALUE_ARRAY) {
        out->item_count = draw(6);
        out->items = arena_calloc(arena, out->item_count + 1, sizeof(struct value));
        for (size_t i = 0; i < out->item_count; i++) {
            make_value(arena, depth + 1, &out->items[i]);
        }
        return;
    }
    out->bytes.size = draw(4) == 0 ? draw(3000) : draw(20);
    out->bytes.data = bytes = arena_alloc(arena, out->bytes.size + 1);
    for (size_t i = 0; i < out->bytes.size; i++) {
        bytes[i] = (char)(out->kind == VALUE_BULK ? draw(256) : ' ' + draw(90));
    }
}

/* hiredis's answer for the same bytes: 1 with a reply, 0 for more, -1 for an error. */
static int hiredis_read(struct impel_bytes text, redisReply **out)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    int rc = redisReaderFeed(reader, text.data, text.size) == REDIS_OK &&
                     redisReaderGetReply(reader, &reply) == REDIS_OK
                 ? reply != NULL
                 : -1;

    redisReaderFree(reader);
    *out = reply;
    return rc;
}

TEST(a_random_reply_reads_as_hiredis_reads_it)
{
    for (int round = 0; round < 2000; round++) {
        struct arena arena = {0};
        struct value made, read;
        struct buf buf;
        redisReply *theirs;

        buf_init(&buf, SIZE_MAX / 2);
        make_value(&arena, 0, &made);
        resp_put_value(&buf, &made, 2);
        size_t size = buf.size;
        resp_put_text(&buf, "the next one");
        CHECK(!buf.failed);
        CHECK(hiredis_read(buf_bytes(&buf), &theirs) == 1);
        CHECK(read_pieces((char *)buf.data, buf.size, 1 + draw(40), &arena, &read) ==
              (int64_t)size);
        CHECK(same_as_hiredis(&read, theirs));
        freeReplyObject(theirs);
        buf_release(&buf);
        arena_release(&arena);
    }
}

TEST(a_damaged_reply_is_refused_or_read_as_hiredis_reads_it)
{
    int refused = 0;

    for (int round = 0; round < 2000; round++) {
        struct arena arena = {0};
        struct value made, read;
        struct buf buf;
        redisReply *theirs;

        buf_init(&buf, SIZE_MAX / 2);
        make_value(&arena, 2, &made);
        resp_put_value(&buf, &made, 2);
        for (unsigned i = 0; i < 1 + draw(3); i++) {
            buf.data[draw((unsigned)buf.size)] = (uint8_t) "\r\n*$:0123456789-+x"[draw(18)];
        }
        int64_t rc = read_pieces((char *)buf.data, buf.size, 1 + draw(40), &arena, &read);
        refused += rc < 0;
        int their_rc = hiredis_read(buf_bytes(&buf), &theirs);
        CHECK(rc <= 0 || their_rc != 1 || same_as_hiredis(&read, theirs));
        freeReplyObject(theirs);
        buf_release(&buf);
        arena_release(&arena);
    }
    CHECK(refused > 200);
}

TEST(every_type_of_resp3_is_read)
{
    struct arena arena = {0};
    struct value v;

    CHECK(read_text("_\r\n", &arena, &v) == 3 && v.kind == VALUE_NULL);
    CHECK(read_text("#t\r\n", &arena, &v) == 4 && v.kind == VALUE_BOOLEAN && v.integer == 1);
    CHECK(read_text("#f\r\n", &arena, &v) == 4 && v.kind == VALUE_BOOLEAN && v.integer == 0);
    CHECK(read_text(",1.5\r\n", &arena, &v) == 6 && v.kind == VALUE_DOUBLE && v.number == 1.5);
    CHECK(read_text(",-inf\r\n", &arena, &v) == 7 && isinf(v.number) && v.number < 0);
    CHECK(read_text(",nan\r\n", &arena, &v) == 6 && isnan(v.number));
    CHECK(read_text("(12345678901234567890123\r\n", &arena, &v) > 0 && v.kind == VALUE_BIG_NUMBER &&
          v.bytes.size == 23);
    CHECK(read_text("=7\r\ntxt:abc\r\n", &arena, &v) > 0 && v.kind == VALUE_VERBATIM &&
          bytes_equal(v.bytes, bytes_of("abc")));
    CHECK(read_text("!5\r\nERR x\r\n", &arena, &v) > 0 && v.kind == VALUE_ERROR &&
          bytes_equal(v.bytes, bytes_of("ERR x")));
    CHECK(read_text("%2\r\n+a\r\n:1\r\n+b\r\n:2\r\n", &arena, &v) > 0 && v.kind == VALUE_MAP &&
          v.item_count == 4 && v.items[3].integer == 2);
    CHECK(read_text("~1\r\n:7\r\n", &arena, &v) > 0 && v.kind == VALUE_SET && v.item_count == 1);
    CHECK(read_text(">1\r\n:7\r\n", &arena, &v) > 0 && v.kind == VALUE_PUSH);
    arena_release(&arena);
}

TEST(an_attribute_takes_no_place)
{
    struct arena arena = {0};
    struct value v;

    CHECK(read_text("|1\r\n+ttl\r\n:5\r\n*2\r\n|1\r\n+a\r\n*1\r\n:9\r\n:1\r\n|0\r\n:2\r\n", &arena,
                    &v) > 0);
    CHECK(v.kind == VALUE_ARRAY && v.item_count == 2);
    CHECK(v.items[0].integer == 1 && v.items[1].integer == 2);
    arena_release(&arena);
}

TEST(what_resp_is_not)
{
    static const char *const bad[] = {"HTTP/1.1 400 Bad Request\r\n",
                                      "\r\n",
                                      "$x\r\n",
                                      "$-2\r\n",
                                      "$+3\r\n",
                                      "$03\r\nabc\r\n",
                                      ":\r\n",
                                      ":1x\r\n",
                                      ":01\r\n",
                                      ":-0\r\n",
                                      ":9223372036854775808\r\n",
                                      "*-2\r\n",
                                      "%-1\r\n",
                                      "#x\r\n",
                                      "_x\r\n",
                                      ",\r\n",
                                      ",1x\r\n",
                                      "$3\r\nabcd\r\n",
                                      "=3\r\nabc\r\n",
                                      "+a\rb\r\n",
                                      "*1\r\n?\r\n",
                                      "$?\r\n",
                                      "*?\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (status_of(bad[i]) != IMPEL_ERR_PROTOCOL) {
            printf("# %s", bad[i]);
        }
        CHECK(status_of(bad[i]) == IMPEL_ERR_PROTOCOL);
    }
    CHECK(status_of(":-9223372036854775808\r\n") == 1);
    CHECK(status_of("$-1\r\n") == 1);
    CHECK(status_of("*0\r\n") == 1);
}

TEST(every_size_has_its_limit)
{
    struct resp_limits limits = {.bulk_max = 10, .items_max = 4, .total_max = 30};
    struct resp_scan scan;
    char deep[RESP_DEPTH_MAX * 4 + 8];
    const size_t deepest = sizeof(deep) - 8;
    size_t size;
    static const char *const over[] = {"$11\r\n", "*5\r\n", "%3\r\n",
                                       "*3\r\n$10\r\n0123456789\r\n$9\r\n", "$536870913\r\n"};

    for (size_t i = 0; i < ARRAY_SIZE(over); i++) {
        resp_scan_init(&scan, &limits);
        CHECK(resp_scan_reply(&scan, bytes_of(over[i]), &size, NULL) == IMPEL_ERR_LIMIT);
    }
    for (size_t at = 0; at <= deepest; at += 4) {
        (void)snprintf(deep + at, sizeof(deep) - at, "*1\r\n");
    }
    CHECK(status_of(deep) == IMPEL_ERR_LIMIT);
    (void)snprintf(deep + deepest, sizeof(deep) - deepest, ":1\r\n");
    CHECK(status_of(deep) == 1);
    char *line = malloc(RESP_LINE_MAX + 1);
    memset(line, '+', RESP_LINE_MAX + 1);
    resp_limits_default(&limits);
    resp_scan_init(&scan, &limits);
    CHECK(resp_scan_reply(&scan, (struct impel_bytes){line, RESP_LINE_MAX - 1}, &size, NULL) == 0);
    CHECK(resp_scan_reply(&scan, (struct impel_bytes){line, RESP_LINE_MAX + 1}, &size, NULL) ==
          IMPEL_ERR_LIMIT);
    free(line);
}

/* What a tree looks like on the wire of each version. */
static void check_written(const struct value *value, const char *resp2, const char *resp3)
{
    struct buf buf;

    buf_init(&buf, 10000);
    resp_put_value(&buf, value, 2);
    CHECK(bytes_equal(buf_bytes(&buf), bytes_of(resp2)));
    buf_clear(&buf);
    resp_put_value(&buf, value, 3);
    CHECK(bytes_equal(buf_bytes(&buf), bytes_of(resp3)));
    buf_release(&buf);
}

TEST(what_resp2_lacks_is_written_as_what_it_has)
{
    struct value pair[2] = {{.kind = VALUE_BULK, .bytes = bytes_of("a")},
                            {.kind = VALUE_DOUBLE, .number = 0.5}};

    check_written(&(struct value){.kind = VALUE_NULL}, "$-1\r\n", "_\r\n");
    check_written(&(struct value){.kind = VALUE_NULL_ARRAY}, "*-1\r\n", "_\r\n");
    check_written(&(struct value){.kind = VALUE_BOOLEAN, .integer = 1}, ":1\r\n", "#t\r\n");
    check_written(&(struct value){.kind = VALUE_DOUBLE, .number = -INFINITY}, "$4\r\n-inf\r\n",
                  ",-inf\r\n");
    check_written(&(struct value){.kind = VALUE_MAP, .items = pair, .item_count = 2},
                  "*2\r\n$1\r\na\r\n$3\r\n0.5\r\n", "%1\r\n$1\r\na\r\n,0.5\r\n");
    check_written(&(struct value){.kind = VALUE_SET, .items = pair, .item_count = 1},
                  "*1\r\n$1\r\na\r\n", "~1\r\n$1\r\na\r\n");
    check_written(&(struct value){.kind = VALUE_VERBATIM, .bytes = bytes_of("hi")}, "$2\r\nhi\r\n",
                  "=6\r\ntxt:hi\r\n");
    check_written(&(struct value){.kind = VALUE_ERROR, .bytes = bytes_of("ERR a\r\nb")},
                  "-ERR a  b\r\n", "-ERR a  b\r\n");
    check_written(&(struct value){.kind = VALUE_INTEGER, .integer = INT64_MIN},
                  ":-9223372036854775808\r\n", ":-9223372036854775808\r\n");
    check_written(&(struct value){.kind = VALUE_BULK}, "$0\r\n\r\n", "$0\r\n\r\n");
}

TAP_MAIN

TEST(lengths_and_numbers_of_any_number_of_digits_are_written)
{
    char bytes[1001];
    char text[sizeof(bytes) + 64];

    memset(bytes, 'x', sizeof(bytes));
    for (size_t size = 0; size < sizeof(bytes); size++) {
        snprintf(text, sizeof(text), "$%zu\r\n%.*s\r\n", size, (int)size, bytes);
        check_written(&(struct value){.kind = VALUE_BULK, .bytes = {bytes, size}}, text, text);
        snprintf(text, sizeof(text), ":-%zu\r\n", size + 1);
        check_written(&(struct value){.kind = VALUE_INTEGER, .integer = -(int64_t)size - 1}, text,
                      text);
    }
    struct buf buf;
    buf_init(&buf, 16);
    resp_put_bulk(&buf, (struct impel_bytes){bytes, 10}); /* 17 bytes in all */
    CHECK(buf.failed && buf.over_max && buf.size == 0);
    buf_release(&buf);
}
