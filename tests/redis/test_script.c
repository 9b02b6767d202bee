/* The Lua twin of the policy computes what the C one computes, to the millisecond: random entries,
 * counts, idle times and policies, each judged by both. */
#include "base/value.h"
#include "fake.h"
#include "redis_server.h"
#include "store/store.h"
#include "tap.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

enum {
    PATIENCE_MS = 30000,
    ROUNDS = 400,
};

static struct redis_server server;
static struct store *store;
static uint64_t seed = 97;

static uint64_t draw(uint64_t below)
{
    return random_next(&seed) % below;
}

static void ignore(struct request *request)
{
    (void)request;
}

static struct request *new_request(enum request_kind kind)
{
    struct request *request = request_new(kind);

    CHECK(request != NULL);
    request->done = ignore;
    request->stream = bytes_of("s");
    request->group = bytes_of("g");
    return request;
}

static void run(struct request *request)
{
    if (store_wait(store, request, PATIENCE_MS) != IMPEL_OK) {
        printf("# %s\n", request->error.text);
    }
    CHECK(request->status == IMPEL_OK);
}

/* A command, words separated by blanks; it must not be refused. */
__attribute__((format(printf, 1, 2))) static void command(const char *format, ...)
{
    struct request *request = new_request(REQUEST_CALL);
    struct impel_bytes args[20];
    char line[400];
    va_list list;

    va_start(list, format);
    (void)vsnprintf(line, sizeof(line), format, list);
    va_end(list);
    for (char *rest = line, *word; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        args[request->call.arg_count++] = bytes_of(word);
    }
    request->call.args = args;
    run(request);
    CHECK(request->call.reply->kind != VALUE_ERROR);
    request_free(request);
}

static void begin(void)
{
    store_close(store);
    store = NULL;
    redis_server_end(&server);
    const char *why = redis_server_start(&server, NULL);
    char url[96];
    if (why != NULL) {
        SKIP(why);
    }
    (void)snprintf(url, sizeof(url), "unix://%s", server.socket);
    CHECK(store_open(url, NULL, &store, NULL) == IMPEL_OK);
}

static struct pending_row row_of(struct impel_id id)
{
    struct request *request = new_request(REQUEST_PENDING);

    request->pending.start = request->pending.end = id;
    request->pending.count = 1;
    run(request);
    CHECK_U64(request->pending.row_count, 1);
    struct pending_row row = request->pending.rows[0];
    request_free(request);
    return row;
}

static struct policy random_policy(void)
{
    struct policy policy;

    policy_defaults(&policy);
    policy.min_idle_ms = (int64_t)draw(2) * (int64_t)draw(100000);
    policy.max_deliveries = 1 + (int64_t)draw(8);
    policy.backoff_base_ms = draw(5) == 0 ? 0 : (int64_t)draw((uint64_t)1 << draw(30));
    policy.backoff_cap_ms = (int64_t)draw((uint64_t)1 << draw(36));
    return policy;
}

/* What the policy says of a row, with its idle time as it was seen at one moment. */
static enum verdict judge(const struct policy *policy,
                          const struct pending_row *row,
                          enum owner_state owner,
                          int64_t *wait_ms)
{
    const struct pending_view view = {.id = row->id,
                                      .owner = owner,
                                      .idle_ms = row->idle_ms,
                                      .deliveries = row->deliveries,
                                      .exists = row->exists};
    return policy_verdict(policy, &view, wait_ms);
}

TEST(a_random_entry_is_judged_the_same_in_both)
{
    int due = 0, waiting = 0, exhausted = 0;

    begin();
    command("XGROUP CREATE s g 0 MKSTREAM");
    for (int round = 0; round < ROUNDS; round++) {
        struct impel_id id = {(uint64_t)round * 1000003 + draw(1000), draw(UINT64_MAX)};
        char text[ID_TEXT_SIZE];
        bool released = draw(2) == 0;
        const char *owner = released ? RELEASED_NAME : "foreign";
        int64_t count = draw(20) == 0 ? INT64_MAX : (int64_t)draw(12);

        command("XADD s %s f v", id_format(id, text));
        command("XREADGROUP GROUP g foreign STREAMS s >");
        command("XCLAIM s g %s 0 %s IDLE %" PRIu64 " RETRYCOUNT %" PRId64 " JUSTID", owner, text,
                draw((uint64_t)1 << draw(30)), count);

        struct policy policy = random_policy();
        struct request *walk = new_request(REQUEST_CLAIM_FROM);
        walk->claim_from.owner = bytes_of(owner);
        walk->claim_from.from = id;
        walk->claim_from.rows_max = 1;
        walk->claim_from.policy = policy;
        walk->dead_after_ms = 5000;
        struct pending_row before = row_of(id);
        run(walk);
        struct pending_row after = row_of(id);
        CHECK(before.deliveries == count);

        enum owner_state state = released ? OWNER_RELEASED : OWNER_FOREIGN;
        int64_t most_ms = 0, least_ms = 0;
        enum verdict verdict = judge(&policy, &before, state, &most_ms);
        if (judge(&policy, &after, state, &least_ms) != verdict) {
            request_free(walk);
            continue; /* it became due meanwhile */
        }
        CHECK(walk->claim_from.state == state);
        CHECK_U64(walk->claim_from.due, verdict == VERDICT_CLAIM);
        CHECK_U64(walk->claim_from.not_due, verdict == VERDICT_WAIT);
        CHECK(verdict != VERDICT_WAIT ||
              (walk->claim_from.wait_ms >= least_ms && walk->claim_from.wait_ms <= most_ms));
        due += verdict == VERDICT_CLAIM;
        waiting += verdict == VERDICT_WAIT;
        exhausted += verdict == VERDICT_PARK;
        request_free(walk);
    }
    printf("# %d due, %d waiting, %d exhausted\n", due, waiting, exhausted);
    CHECK(due > 20 && waiting > 20 && exhausted > 20);
}

/* More fields than a script can hand to XADD: they go back and forth. */
static void add_wide(size_t fields)
{
    struct request *add = new_request(REQUEST_ADD);
    struct impel_field *field = arena_calloc(&add->arena, fields, sizeof(*field));

    for (size_t i = 0; i < fields; i++) {
        field[i] = (struct impel_field){bytes_of("name"), bytes_of("value")};
    }
    add->add.fields = field;
    add->add.field_count = fields;
    add->add.length_max = -1;
    run(add);
    request_free(add);
}

static struct request *walk_of(const char *owner)
{
    struct request *walk = new_request(REQUEST_CLAIM_FROM);

    policy_defaults(&walk->claim_from.policy);
    walk->claim_from.policy.min_idle_ms = walk->claim_from.policy.backoff_base_ms = 0;
    walk->claim_from.policy.max_deliveries = 1;
    walk->claim_from.owner = bytes_of(owner);
    walk->claim_from.rows_max = 100;
    walk->claim_from.flags = CLAIM_SETTLE;
    walk->claim_from.dead_letter = bytes_of("s:dead");
    walk->dead_after_ms = 5000;
    return walk;
}

static int64_t length_of(const char *stream)
{
    struct request *info = new_request(REQUEST_INFO);

    info->stream = bytes_of(stream);
    run(info);
    int64_t length = info->info.exists ? (int64_t)info->info.length : -1;
    request_free(info);
    return length;
}

TEST(a_walk_parks_entries_that_are_too_wide_for_a_script)
{
    begin();
    command("XGROUP CREATE s g 0 MKSTREAM");
    add_wide(3900);
    add_wide(3901);
    add_wide(9000);
    command("XREADGROUP GROUP g foreign STREAMS s >");
    struct request *walk = NULL;
    for (size_t parked = 0; parked < 3; request_free(walk)) {
        walk = walk_of("foreign");
        run(walk);
        CHECK(walk->claim_from.parked_count >= 1);
        CHECK_U64(walk->claim_from.park_failed, 0);
        parked += walk->claim_from.parked_count;
    }
    CHECK(length_of("s:dead") == 3);
    walk = walk_of("foreign");
    run(walk);
    CHECK_U64(walk->claim_from.rows, 0);
    request_free(walk);

    struct request *range = new_request(REQUEST_RANGE);
    range->stream = bytes_of("s:dead");
    range->range.end = ID_MAX;
    range->range.count = 10;
    run(range);
    static const size_t widths[] = {3900, 3901, 9000};
    for (size_t i = 0; i < 3; i++) {
        const struct entry *record = range->range.entries[i];
        CHECK_U64(record->field_count, widths[i] + 10);
        CHECK(bytes_equal(record->fields[widths[i]].name, bytes_of("original_id")));
        CHECK(bytes_equal(record->fields[widths[i] + 3].value, bytes_of("foreign")));
        CHECK(bytes_equal(record->fields[widths[i] + 9].value, bytes_of("10")));
    }
    request_free(range);
}

TEST(claims_that_lie_far_apart_bring_their_entries)
{
    begin();
    command("XGROUP CREATE s g 0 MKSTREAM");
    for (int i = 1; i <= 300; i++) {
        command("XADD s %d-0 n %d", i, i);
        command("XREADGROUP GROUP g %s STREAMS s >", i % 30 == 0 ? "gone" : "busy");
    }
    struct request *walk = walk_of("gone");
    walk->consumer = bytes_of("w");
    walk->claim_from.policy.max_deliveries = 5;
    walk->claim_from.claims_max = 9;
    run(walk);
    CHECK_U64(walk->claim_from.entry_count, 9);
    for (size_t i = 0; i < 9; i++) {
        const struct delivered *each = &walk->claim_from.entries[i];
        CHECK(id_equal(each->entry->id, (struct impel_id){30 * (i + 1), 0}));
        CHECK(each->deliveries == 2 && each->from == OWNER_FOREIGN);
        CHECK(bytes_equal(each->entry->fields[0].name, bytes_of("n")));
    }
    CHECK(id_equal(walk->claim_from.next, (struct impel_id){300, 0}));
    request_free(walk);
}

/* The walk claims 1-0, 2-0 and 3-0 of "gone"; 2-0 is trimmed before it is fetched. */
static bool
trim_between(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)connection;
    if (fake_greeting(out, args, count)) {
        return true;
    }
    if (bytes_equal_nocase(args[0], "evalsha")) {
        buf_append_text(out, "*19\r\n:1700000000000\r\n:3\r\n:0\r\n"
                             "*9\r\n$3\r\n1-0\r\n:2\r\n:70000\r\n$3\r\n2-0\r\n:2\r\n:70000\r\n"
                             "$3\r\n3-0\r\n:2\r\n:70000\r\n*0\r\n*0\r\n:0\r\n$0\r\n\r\n:3\r\n:0\r\n"
                             ":0\r\n$0\r\n\r\n:0\r\n:-1\r\n$0\r\n\r\n*0\r\n$0\r\n\r\n"
                             "*0\r\n:0\r\n");
    } else if (bytes_equal_nocase(args[0], "xrange") && bytes_equal(args[2], bytes_of("1-0"))) {
        buf_append_text(out, "*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    } else if (bytes_equal_nocase(args[0], "xrange") && bytes_equal(args[2], bytes_of("3-0"))) {
        buf_append_text(out, "*1\r\n*2\r\n$3\r\n3-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    } else if (bytes_equal_nocase(args[0], "xrange")) {
        buf_append_text(out, "*0\r\n");
    } else {
        bool right = bytes_equal_nocase(args[0], "xack") && count == 4 &&
                     bytes_equal(args[3], bytes_of("2-0"));
        buf_append_text(out, right ? ":1\r\n" : "-ERR unexpected\r\n");
    }
    return true;
}

TEST(an_entry_that_is_trimmed_between_claim_and_fetch_is_reaped)
{
    struct fake fake;
    char url[96];

    store_close(store);
    store = NULL;
    fake_start(&fake, trim_between);
    (void)snprintf(url, sizeof(url), "unix://%s", fake.socket);
    CHECK(store_open(url, NULL, &store, NULL) == IMPEL_OK);
    struct request *walk = walk_of("gone");
    walk->consumer = bytes_of("w");
    walk->claim_from.claims_max = 9;
    run(walk);
    CHECK_U64(walk->claim_from.entry_count, 2);
    CHECK(id_equal(walk->claim_from.entries[1].entry->id, (struct impel_id){3, 0}));
    CHECK_U64(walk->claim_from.reaped_count, 1);
    CHECK(id_equal(walk->claim_from.reaped[0].id, (struct impel_id){2, 0}));
    CHECK(walk->claim_from.reaped[0].deliveries == 1);
    request_free(walk);
    store_close(store);
    store = NULL;
    fake_end(&fake);
}

TEST(a_wide_entry_that_cannot_be_parked_stays_pending)
{
    begin();
    command("XGROUP CREATE s g 0 MKSTREAM");
    command("SET s:dead x");
    add_wide(9000);
    command("XREADGROUP GROUP g foreign STREAMS s >");
    struct request *walk = walk_of("foreign");
    run(walk);
    CHECK_U64(walk->claim_from.parked_count, 0);
    CHECK_U64(walk->claim_from.park_failed, 1);
    CHECK(walk->claim_from.park_error.status == IMPEL_ERR_WRONG_TYPE);
    request_free(walk);
    command("DEL s:dead");
    walk = walk_of("foreign");
    run(walk);
    CHECK_U64(walk->claim_from.parked_count, 1);
    request_free(walk);
    store_close(store);
    redis_server_end(&server);
    store = NULL;
}

/* How many commands a look takes, with those inside its script. */
static uint64_t calls_of_a_look(void)
{
    uint64_t calls = 0;

    command("CONFIG RESETSTAT");
    struct request *look = new_request(REQUEST_LOOK);
    look->look.flags = LOOK_BEAT | LOOK_STAMP;
    run(look);
    request_free(look);
    struct request *info = new_request(REQUEST_CALL);
    const struct impel_bytes args[] = {bytes_of("INFO"), bytes_of("commandstats")};
    info->call.args = args;
    info->call.arg_count = ARRAY_SIZE(args);
    run(info);
    struct impel_bytes rest = info->call.reply->bytes;
    const char *key = ":calls=", *at;
    while ((at = memmem(rest.data, rest.size, key, strlen(key))) != NULL) {
        at += strlen(key);
        calls += strtoull(at, NULL, 10);
        rest = (struct impel_bytes){at, rest.size - (size_t)(at - (const char *)rest.data)};
    }
    request_free(info);
    return calls;
}

TEST(a_look_asks_nothing_for_each_consumer)
{
    begin();
    command("XGROUP CREATE s g 0 MKSTREAM");
    command("XADD s 1-0 f v");
    command("XREADGROUP GROUP g c0 STREAMS s >");
    (void)calls_of_a_look(); /* the first one sends its script */
    uint64_t before = calls_of_a_look();
    CHECK(before > 0);
    for (int i = 2; i <= 40; i++) {
        command("XADD s %d-0 f v", i);
        command("XREADGROUP GROUP g c%d STREAMS s >", i);
    }
    CHECK_U64(calls_of_a_look(), before);
    store_close(store);
    redis_server_end(&server);
    store = NULL;
}

TAP_MAIN
