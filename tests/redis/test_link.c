/* Connections that fail, break, hang or lie: clear errors, bounded memory, no effect later. */
#include "fake.h"
#include "redis_server.h"
#include "resp/resp.h"
#include "store/store.h"
#include "tap.h"

#include <arpa/inet.h>

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    PATIENCE_MS = 30000,
};

static struct redis_server server;
static struct fake fake;
static struct store *store;
static int events_down, events_back;
static char last_event[400];

static void note_event(void *user, const struct store_event *event)
{
    (void)user;
    events_down += strcmp(event->name, "disconnected") == 0;
    events_back += strcmp(event->name, "reconnected") == 0;
    (void)snprintf(last_event, sizeof(last_event), "%s", event->text);
}

static const struct store_env env = {.event = note_event};

static void begin(void)
{
    store_close(store);
    store = NULL;
    redis_server_end(&server);
    fake_end(&fake);
    events_down = events_back = 0;
}

static void begin_real(const char *const *args)
{
    begin();
    const char *why = redis_server_start(&server, args);
    if (why != NULL) {
        SKIP(why);
    }
}

static void open_url(const char *before, const char *place, const char *after)
{
    struct impel_error err = {0};
    char url[256];

    (void)snprintf(url, sizeof(url), "%s%s%s", before, place, after);
    if (store_open(url, &env, &store, &err) < 0) {
        printf("# %s: %s\n", url, err.text);
        CHECK(false);
    }
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void note_done(struct request *request)
{
    *(bool *)request->owner = true;
}

static struct request *new_request(enum request_kind kind)
{
    struct request *request = request_new(kind);

    CHECK(request != NULL);
    request->done = note_done;
    request->stream = bytes_of("s");
    request->group = bytes_of("g");
    request->consumer = bytes_of("w");
    request->token.bytes[0] = 7;
    request->dead_after_ms = 600000;
    return request;
}

/* Submits it, and turns until it is done. */
static int run(struct request *request)
{
    request->status = INT_MAX;
    (void)store_wait(store, request, PATIENCE_MS);
    CHECK(request->status != INT_MAX);
    return request->status;
}

static void turn_until(const bool *done, int64_t patience_ms)
{
    for (int64_t end_ms = now_ms() + patience_ms; !*done && now_ms() < end_ms;) {
        (void)store_turn(store, now_ms());
    }
}

static struct request *call(const char *a, const char *b, const char *c, const char *d)
{
    struct request *request = new_request(REQUEST_CALL);
    const char *words[] = {a, b, c, d, NULL};
    struct impel_bytes *args = arena_calloc(&request->arena, 4, sizeof(*args));

    for (size_t i = 0; words[i] != NULL; i++) {
        args[i] = bytes_of(words[i]);
        request->call.arg_count = i + 1;
    }
    request->call.args = args;
    return request;
}

static int64_t call_number(const char *a, const char *b, const char *c, const char *d)
{
    struct request *request = call(a, b, c, d);

    CHECK(run(request) == IMPEL_OK);
    int64_t number = request->call.reply->kind == VALUE_INTEGER ? request->call.reply->integer : -1;
    request_free(request);
    return number;
}

/* The status of a beat, and what is said. */
static int beat(struct impel_error *err)
{
    struct request *request = new_request(REQUEST_BEAT);

    request->beat.first = true;
    int status = run(request);
    if (err != NULL) {
        *err = request->error;
    }
    request_free(request);
    return status;
}

static void make_group(void)
{
    struct request *request = new_request(REQUEST_GROUP_CREATE);

    CHECK(run(request) == IMPEL_OK);
    request_free(request);
}

static struct request *new_read(int64_t block_ms)
{
    struct request *request = new_request(REQUEST_READ);
    struct impel_bytes *streams = arena_calloc(&request->arena, 1, sizeof(*streams));

    streams[0] = bytes_of("s");
    request->read.streams = streams;
    request->read.stream_count = 1;
    request->read.count = 10;
    request->read.block_ms = block_ms;
    return request;
}

/* ---- servers that cannot be used ---- */

TEST(nobody_listens)
{
    struct impel_error err;

    begin();
    open_url("unix:///tmp/impel-no-such-socket", "", "");
    CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    CHECK(strstr(err.text, "impel-no-such-socket") != NULL);
    CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    CHECK(events_down == 0); /* the answers said it */
    store_close(store);
    open_url("redis://127.0.0.1:", "1", "");
    CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    CHECK(strstr(err.text, "127.0.0.1:1") != NULL && strstr(err.text, "refused") != NULL);
}

TEST(no_such_host)
{
    struct impel_error err;

    begin();
    open_url("redis://no-such-host.invalid:6379", "", "");
    CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    CHECK(strstr(err.text, "no-such-host.invalid") != NULL);
}

TEST(a_password_is_asked_for_and_a_wrong_one_refused)
{
    static const char *const args[] = {"--requirepass", "right", NULL};
    struct impel_error err;

    begin_real(args);
    open_url("unix://", server.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_AUTH);
    store_close(store);
    open_url("unix://:wrong-one@", server.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_AUTH);
    CHECK(strstr(err.text, "wrong-one") == NULL && strstr(last_event, "wrong-one") == NULL);
    store_close(store);
    open_url("unix://:right@", server.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_NO_GROUP);
    CHECK(call_number("ACL", "SETUSER", "me", "nopass") == -1);
    struct request *request = call("ACL", "SETUSER", "me", "resetpass");
    request->call.arg_count = 4;
    CHECK(run(request) == IMPEL_OK);
    request_free(request);
}

TEST(a_user_and_a_database)
{
    struct impel_error err;

    begin_real(NULL);
    open_url("unix://", server.socket, "");
    struct request *request = new_request(REQUEST_CALL);
    struct impel_bytes args[] = {bytes_of("ACL"),  bytes_of("SETUSER"), bytes_of("me"),
                                 bytes_of("on"),   bytes_of(">secret"), bytes_of("~*"),
                                 bytes_of("+@all")};
    request->call.args = args;
    request->call.arg_count = 7;
    CHECK(run(request) == IMPEL_OK);
    request_free(request);
    store_close(store);
    open_url("unix://me:secret@", server.socket, "?db=3");
    make_group();
    store_close(store);
    open_url("unix://", server.socket, "?db=3");
    CHECK(call_number("EXISTS", "s", NULL, NULL) == 1);
    store_close(store);
    open_url("unix://", server.socket, "?db=99");
    CHECK(beat(&err) == IMPEL_ERR_INVALID);
    CHECK(strstr(err.text, "DB index") != NULL);
}

static bool
speak_http(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)args;
    (void)count;
    (void)connection;
    buf_append_text(out, "HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n");
    return false;
}

TEST(a_server_that_is_not_redis)
{
    struct impel_error err;

    begin();
    fake_start(&fake, speak_http);
    open_url("unix://", fake.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_PROTOCOL);
    CHECK(strstr(err.text, "HTTP") != NULL);
}

static bool
speak_as_5(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)connection;
    if (bytes_equal_nocase(args[0], "info")) {
        resp_put_text(out, "# Server\r\nredis_version:5.0.14\r\nrun_id:0123456789\r\n");
        return true;
    }
    return fake_greeting(out, args, count);
}

TEST(a_server_that_is_too_old_is_told_which_version_is_needed)
{
    struct impel_error err;

    begin();
    fake_start(&fake, speak_as_5);
    open_url("unix://", fake.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_UNSUPPORTED);
    CHECK(strstr(err.text, "the server is Redis 5.0.14; version 6.0 or later is needed") != NULL);
}

static bool
say_nothing(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)out;
    (void)args;
    (void)count;
    (void)connection;
    return true;
}

TEST(a_server_that_says_nothing)
{
    struct impel_error err;

    begin();
    fake_start(&fake, say_nothing);
    open_url("unix://", fake.socket, "?connect_timeout=100ms");
    CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    CHECK(strstr(err.text, "greeting") != NULL);
}

static bool announce(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)connection;
    if (!fake_greeting(out, args, count)) {
        buf_append_text(out, "$536870912\r\nand then nothing");
    }
    return true;
}

static bool flood(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    (void)connection;
    if (!fake_greeting(out, args, count)) {
        buf_append_text(out, "*2147483647\r\n");
    }
    return true;
}

static long resident_kb(void)
{
    char line[100] = "";
    FILE *file = fopen("/proc/self/statm", "r");

    CHECK(file != NULL && fgets(line, sizeof(line), file) != NULL);
    fclose(file);
    const char *resident = strchr(line, ' '); /* the second number, in pages */
    CHECK(resident != NULL);
    return strtol(resident, NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

TEST(what_is_announced_and_never_sent_takes_no_memory)
{
    struct impel_error err;
    fake_answer *const answers[] = {announce, flood};

    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        begin();
        fake_start(&fake, answers[i]);
        open_url("unix://", fake.socket, "?timeout=200ms");
        long before_kb = resident_kb();
        CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
        CHECK(resident_kb() - before_kb < 16384);
    }
}

static bool
load_first(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    if (connection < 3 && bytes_equal_nocase(args[0], "ping")) {
        resp_put_error(out, bytes_of("LOADING Redis is loading the dataset in memory"));
    } else if (!fake_greeting(out, args, count)) {
        resp_put_error(out, bytes_of("NOGROUP there is none"));
    }
    return true;
}

TEST(a_loading_server_is_waited_for_as_long_as_asked)
{
    struct impel_error err;

    begin();
    fake_start(&fake, load_first);
    open_url("unix://", fake.socket, "");
    CHECK(beat(&err) == IMPEL_ERR_BUSY);
    CHECK(strstr(err.text, "LOADING") != NULL);
    store_close(store);
    store = NULL;
    fake_end(&fake);
    fake_start(&fake, load_first);
    open_url("unix://", fake.socket, "?connect_timeout=30s");
    CHECK(beat(&err) == IMPEL_ERR_NO_GROUP);
}

/* ---- connections that break ---- */

TEST(a_restarted_server_is_found_again_and_said_once)
{
    struct impel_error err;

    begin_real(NULL);
    open_url("unix://", server.socket, "");
    make_group();
    CHECK(beat(&err) == IMPEL_OK);
    redis_server_kill(&server);
    for (int i = 0; i < 4; i++) {
        CHECK(beat(&err) == IMPEL_ERR_DISCONNECTED);
    }
    CHECK(events_down == 1 && events_back == 0);
    CHECK(redis_server_again(&server, NULL) == NULL);
    int status = IMPEL_ERR_DISCONNECTED;
    for (int64_t end_ms = now_ms() + PATIENCE_MS;
         status == IMPEL_ERR_DISCONNECTED && now_ms() < end_ms;) {
        status = beat(&err);
    }
    CHECK(status == IMPEL_ERR_NO_GROUP); /* it came back empty */
    make_group();
    CHECK(beat(&err) == IMPEL_OK);
    (void)store_turn(store, now_ms());
    CHECK(events_down == 1 && events_back == 1);
}

TEST(a_blocked_read_ends_when_the_server_is_killed)
{
    struct impel_error err;
    bool done = false;

    begin_real(NULL);
    open_url("unix://", server.socket, "");
    make_group();
    struct request *read = new_read(2000);
    read->owner = &done;
    store_submit(store, read);
    CHECK(call_number("DBSIZE", NULL, NULL, NULL) == 1);
    redis_server_kill(&server);
    CHECK(redis_server_again(&server, NULL) == NULL);
    turn_until(&done, PATIENCE_MS);
    CHECK(done && read->status < 0);
    request_free(read);
    CHECK(beat(&err) < 0);
}

static int64_t blocked_clients(void)
{
    struct request *request = call("INFO", "clients", NULL, NULL);

    CHECK(run(request) == IMPEL_OK);
    const char *at = memmem(request->call.reply->bytes.data, request->call.reply->bytes.size,
                            "blocked_clients:", 16);
    int64_t count = at != NULL ? strtoll(at + 16, NULL, 10) : -1;
    request_free(request);
    return count;
}

TEST(a_read_whose_connection_was_cut_takes_nothing_later)
{
    bool done = false;

    begin_real(NULL);
    open_url("unix://", server.socket, "?timeout=300ms");
    make_group();
    struct request *read = new_read(1); /* so that there is a connection for it */
    CHECK(run(read) == IMPEL_OK);
    request_free(read);
    read = new_read(300);
    read->owner = &done;
    store_submit(store, read);
    /* The server stands still before it has looked at the read: its answer is overdue, the
     * connection is given up, and the command still lies in the server's socket. */
    kill(server.pid, SIGSTOP);
    for (int64_t end_ms = now_ms() + 1500; now_ms() < end_ms;) {
        (void)store_turn(store, now_ms());
    }
    CHECK(!done); /* it could still have an effect */
    kill(server.pid, SIGCONT);
    turn_until(&done, PATIENCE_MS);
    CHECK(done && read->status == IMPEL_ERR_DISCONNECTED);
    request_free(read);
    CHECK(blocked_clients() == 0);
    struct request *add = new_request(REQUEST_ADD);
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    CHECK(run(add) == IMPEL_OK);
    request_free(add);
    struct request *info = new_request(REQUEST_INFO);
    CHECK(run(info) == IMPEL_OK);
    CHECK_U64(info->info.groups[0].pending, 0);
    request_free(info);
}

TEST(scripts_that_the_server_forgot_are_sent_again)
{
    struct impel_error err;

    begin_real(NULL);
    open_url("unix://", server.socket, "");
    make_group();
    for (int i = 0; i < 3; i++) {
        CHECK(beat(&err) == IMPEL_OK);
        struct request *flush = call("SCRIPT", "FLUSH", NULL, NULL);
        CHECK(run(flush) == IMPEL_OK);
        request_free(flush);
    }
}

TEST(a_full_server_takes_no_beats_and_judges_nobody)
{
    struct impel_error err;

    begin_real(NULL);
    open_url("unix://", server.socket, "");
    make_group();
    CHECK(beat(&err) == IMPEL_OK);
    struct request *full = call("CONFIG", "SET", "maxmemory", "1");
    CHECK(run(full) == IMPEL_OK);
    request_free(full);
    CHECK(beat(&err) == IMPEL_ERR_FULL);
    CHECK(strstr(err.text, "maxmemory") != NULL);
    struct request *walk = new_request(REQUEST_CLAIM_FROM);
    walk->claim_from.owner = bytes_of("other");
    walk->claim_from.rows_max = 10;
    policy_defaults(&walk->claim_from.policy);
    CHECK(run(walk) == IMPEL_ERR_FULL);
    request_free(walk);
}

/* Two were claimed; the range brings the first only, and the second, asked for alone, is refused. */
static bool
refuse_a_fetch(struct buf *out, const struct impel_bytes *args, size_t count, int connection)
{
    static const int64_t numbers[] = {2, 2, 0};

    (void)connection;
    if (fake_greeting(out, args, count)) {
        return true;
    }
    if (bytes_equal_nocase(args[0], "xrange") && bytes_equal_nocase(args[2], "1-0")) {
        buf_append_text(out, "*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n");
    } else if (bytes_equal_nocase(args[0], "xrange")) {
        resp_put_error(out, bytes_of("BUSY Redis is busy running a script"));
    } else if (bytes_equal_nocase(args[0], "xack")) {
        resp_put_number(out, 1);
    } else {
        buf_append_text(out, "*19\r\n:1700000000000\r\n:3\r\n:0\r\n");
        buf_append_text(out, "*6\r\n$3\r\n1-0\r\n:2\r\n:9\r\n$3\r\n2-0\r\n:2\r\n:9\r\n");
        buf_append_text(out, "*0\r\n*0\r\n:0\r\n$0\r\n\r\n");
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
            resp_put_number(out, numbers[i]);
        }
        buf_append_text(out, "$3\r\n0-0\r\n:0\r\n:-1\r\n$3\r\n0-0\r\n");
        buf_append_text(out, "*0\r\n$0\r\n\r\n*0\r\n:0\r\n");
    }
    return true;
}

TEST(an_entry_that_cannot_be_fetched_is_not_taken_for_gone)
{
    begin();
    fake_start(&fake, refuse_a_fetch);
    open_url("unix://", fake.socket, "");
    struct request *request = new_request(REQUEST_CLAIM_FROM);
    request->claim_from.owner = bytes_of("dead");
    request->claim_from.claims_max = 2;
    request->claim_from.rows_max = 10;
    CHECK(run(request) < 0);
    CHECK(strstr(request->error.text, "BUSY") != NULL);
    CHECK_U64(request->claim_from.reaped_count, 0);
    request_free(request);
}

TEST(a_read_only_replica_is_named_so)
{
    static const char *const args[] = {
        "--replicaof", "127.0.0.1", "1", "--replica-serve-stale-data", "yes", NULL};
    struct impel_error err;

    begin_real(args);
    open_url("unix://", server.socket, "");
    int status = beat(&err);
    CHECK(status == IMPEL_ERR_NO_GROUP || status == IMPEL_ERR_READ_ONLY);
    struct request *create = new_request(REQUEST_GROUP_CREATE);
    CHECK(run(create) == IMPEL_ERR_READ_ONLY);
    request_free(create);
}

TEST(it_is_over)
{
    begin(); /* ends the last server */
}

TAP_MAIN
