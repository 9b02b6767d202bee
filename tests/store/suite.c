/* suite.c -- the fixture of the conformance suite. */
#include "store/suite.h"

#include <stdlib.h>

struct store *suite_handle;
size_t suite_wakes;

static const struct suite_store *chosen;
static void *context;
static struct store *second_handle;

/* All requests of a test, so that one that was abandoned half way leaves nothing behind. */
static struct asked {
    struct request *request;
    bool given;
    bool done;
    struct store *store;
    struct asked *next;
} * asked;

static void count_wake(void *user)
{
    (void)user;
    __atomic_add_fetch(&suite_wakes, 1, __ATOMIC_SEQ_CST);
}

static const struct store_env env = {.wake = count_wake};

static void close_handle(struct store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}

static void finish(void)
{
    close_handle(second_handle);
    close_handle(suite_handle);
    second_handle = suite_handle = NULL;
    while (asked != NULL) {
        struct asked *a = asked;
        asked = a->next;
        request_free(a->request);
        free(a);
    }
    if (context != NULL) {
        chosen->remove(context);
        context = NULL;
    }
}

void suite_begin(void)
{
    const char *why = NULL;

    finish();
    suite_wakes = 0;
    suite_handle = chosen->open(&context, &env, &why);
    if (suite_handle == NULL && why != NULL) {
        SKIP(why);
    }
    CHECK(suite_handle != NULL);
}

struct store *suite_second_handle(void)
{
    if (second_handle == NULL) {
        second_handle = chosen->open_again(context, &env);
        CHECK(second_handle != NULL);
    }
    return second_handle;
}

void suite_close_second_handle(void)
{
    close_handle(second_handle);
    second_handle = NULL;
}

int64_t suite_now_ms(void)
{
    return chosen->now_ms(context);
}

void suite_pause(int64_t ms)
{
    chosen->pause(context, ms);
}

bool suite_overdue(int64_t since_ms)
{
    return suite_now_ms() - since_ms > SUITE_WAIT_MS;
}

/* ---- requests ---- */

struct impel_bytes span(const char *text)
{
    return bytes_of(text);
}

struct impel_id id_of(uint64_t ms, uint64_t seq)
{
    return (struct impel_id){ms, seq};
}

bool same(struct impel_bytes bytes, const char *text)
{
    return bytes_equal(bytes, bytes_of(text));
}

static void request_done(struct request *request)
{
    ((struct asked *)request->owner)->done = true;
}

struct request *ask(enum request_kind kind, const char *stream, const char *group)
{
    struct asked *a = calloc(1, sizeof(*a));
    struct request *request = request_new(kind);

    CHECK(a != NULL && request != NULL);
    *a = (struct asked){.request = request, .next = asked};
    asked = a;
    request->owner = a;
    request->done = request_done;
    request->stream = span(stream);
    request->group = span(group);
    if (kind == REQUEST_ADD) {
        request->add.length_max = -1;
    }
    return request;
}

struct request *
ask_as(enum request_kind kind, const char *stream, const char *group, struct who who)
{
    struct request *request = ask(kind, stream, group);

    request->consumer = who.name;
    memset(request->token.bytes, who.token, TOKEN_SIZE);
    request->dead_after_ms = who.dead_after_ms;
    return request;
}

void give_to(struct store *store, struct request *request)
{
    struct asked *a = request->owner;

    CHECK(!a->given);
    a->given = true;
    a->store = store;
    store_submit(store, request);
}

void give(struct request *request)
{
    give_to(suite_handle, request);
}

bool answered(const struct request *request)
{
    return ((const struct asked *)request->owner)->done;
}

int await(struct request *request)
{
    const struct asked *a = request->owner;
    int64_t since_ms = suite_now_ms();

    while (!a->done) {
        (void)store_turn(a->store, suite_now_ms());
        CHECK(a->done || !suite_overdue(since_ms));
        if (!a->done) {
            suite_pause(2);
        }
    }
    return request->status;
}

int run(struct request *request)
{
    give(request);
    return await(request);
}

struct who worker(const char *name, uint8_t token)
{
    return (struct who){span(name), token, ALIVE_MS};
}

int64_t suite_dead_after_ms(void)
{
    const char *slowness = getenv("IMPEL_TEST_SLOWNESS");
    int64_t times = slowness != NULL ? strtoll(slowness, NULL, 10) : 1;

    return 200 * (times > 1 ? times : 1);
}

struct who mortal(const char *name, uint8_t token)
{
    return (struct who){span(name), token, suite_dead_after_ms()};
}

struct who foreign(const char *name)
{
    return (struct who){span(name), 0, 0};
}

struct who nobody(void)
{
    return (struct who){{NULL, 0}, 0, ALIVE_MS};
}

/* ---- scenes ---- */

struct impel_id add(const char *stream, struct impel_id id, const char *value)
{
    struct request *request = ask(REQUEST_ADD, stream, "");
    struct impel_field field = {span("f"), span(value)};

    request->add.id = id;
    request->add.fields = &field;
    request->add.field_count = 1;
    CHECK(run(request) == IMPEL_OK);
    return request->add.id;
}

struct request *add_request(const char *stream, struct impel_id id)
{
    static const struct impel_field field = {{"f", 1}, {"v", 1}};
    struct request *request = ask(REQUEST_ADD, stream, "");

    request->add.id = id;
    request->add.fields = &field;
    request->add.field_count = 1;
    return request;
}

size_t length_of(const char *stream)
{
    struct request *request = ask(REQUEST_INFO, stream, "");
    CHECK(run(request) == IMPEL_OK);
    return request->info.exists ? request->info.length : 0;
}

void group_make(const char *stream, const char *group)
{
    CHECK(run(ask(REQUEST_GROUP_CREATE, stream, group)) == IMPEL_OK);
}

enum beat_result beat_result(const char *stream, const char *group, struct who who, bool first)
{
    struct request *request = ask_as(REQUEST_BEAT, stream, group, who);

    request->beat.first = first;
    CHECK(run(request) == IMPEL_OK);
    return request->beat.result;
}

void beat(const char *stream, const char *group, struct who who)
{
    CHECK(beat_result(stream, group, who, true) == BEAT_TAKEN);
}

struct request *read_new(const char *stream, const char *group, struct who who, uint32_t count)
{
    struct request *request = ask_as(REQUEST_READ, "", group, who);
    struct impel_bytes *streams = arena_alloc(&request->arena, sizeof(*streams));

    CHECK(streams != NULL);
    *streams = span(stream);
    request->read.streams = streams;
    request->read.stream_count = 1;
    request->read.count = count;
    CHECK(run(request) == IMPEL_OK);
    return request;
}

void scene(struct who who, uint64_t n)
{
    group_make("s", "g");
    for (uint64_t i = 1; i <= n; i++) {
        (void)add("s", id_of(i, 0), "v");
    }
    if (who.token != 0) {
        beat("s", "g", who);
    }
    if (n > 0) {
        CHECK(read_new("s", "g", who, (uint32_t)n)->read.entry_count == n);
    }
}

bool command(const char *line)
{
    struct request *request = ask(REQUEST_CALL, "", "");
    struct impel_bytes *args = arena_calloc(&request->arena, 16, sizeof(*args));
    char *words = arena_alloc(&request->arena, strlen(line) + 1);
    size_t count = 0;
    char *rest = NULL;

    CHECK(args != NULL && words != NULL);
    memcpy(words, line, strlen(line) + 1);
    for (char *w = strtok_r(words, " ", &rest); w != NULL && count < 16;
         w = strtok_r(NULL, " ", &rest)) {
        args[count++] = span(w);
    }
    request->call.args = args;
    request->call.arg_count = count;
    return run(request) == IMPEL_OK && request->call.reply != NULL &&
           request->call.reply->kind != VALUE_ERROR;
}

bool server_lacks(const char *line)
{
    return command("ECHO x") && !command(line);
}

bool server_before_7(void)
{
    return server_lacks("XGROUP SETID s g 0 ENTRIESREAD 0");
}

static struct request *pending_rows(struct impel_id start, struct impel_id end)
{
    struct request *request = ask(REQUEST_PENDING, "s", "g");

    request->pending.start = start;
    request->pending.end = end;
    request->pending.count = 10000;
    CHECK(run(request) == IMPEL_OK);
    return request;
}

const struct pending_row *row_of(struct impel_id id)
{
    struct request *request = pending_rows(id, id);
    return request->pending.row_count == 0 ? NULL : &request->pending.rows[0];
}

size_t pending_of(const char *owner)
{
    struct request *request = ask(REQUEST_PENDING, "s", "g");

    request->pending.end = ID_MAX;
    request->pending.count = 10000;
    request->pending.by_owner = true;
    request->pending.owner = span(owner);
    CHECK(run(request) == IMPEL_OK);
    for (size_t i = 0; i < request->pending.row_count; i++) {
        CHECK(same(request->pending.rows[i].owner, owner));
    }
    return request->pending.row_count;
}

struct request *look(struct who who, unsigned flags)
{
    struct request *request = ask_as(REQUEST_LOOK, "s", "g", who);

    request->look.flags = flags;
    request->look.interval_ms = 1000;
    CHECK(run(request) == IMPEL_OK);
    return request;
}

const struct look_owner *look_at(const struct request *look, const char *name)
{
    for (size_t i = 0; i < look->look.owner_count; i++) {
        if (same(look->look.owners[i].name, name)) {
            return &look->look.owners[i];
        }
    }
    return NULL;
}

void await_dead(struct who judge, const char *name)
{
    int64_t since_ms = suite_now_ms();
    const struct look_owner *owner = NULL;

    do {
        CHECK(!suite_overdue(since_ms));
        suite_pause(10);
        owner = look_at(look(judge, LOOK_BEAT), name);
        CHECK(owner != NULL);
    } while (owner->state != OWNER_DEAD);
}

struct request *entries_of(const char *stream)
{
    struct request *request = ask(REQUEST_RANGE, stream, "");

    request->range.end = ID_MAX;
    request->range.count = 1000;
    CHECK(run(request) == IMPEL_OK);
    return request;
}

struct impel_bytes field_of(const struct entry *entry, const char *name)
{
    for (size_t i = entry->field_count; i > 0; i--) {
        if (same(entry->fields[i - 1].name, name)) {
            return entry->fields[i - 1].value;
        }
    }
    return (struct impel_bytes){NULL, 0};
}

struct request *items(enum request_kind kind, struct who who, uint64_t n, int64_t deliveries)
{
    struct request *request = ask_as(kind, "s", "g", who);
    struct request_item *list = arena_calloc(&request->arena, n, sizeof(*list));

    CHECK(list != NULL);
    for (uint64_t i = 0; i < n; i++) {
        list[i].id = id_of(i + 1, 0);
        list[i].deliveries = deliveries;
        list[i].reason = span("rejected");
        list[i].error = span("why");
    }
    if (kind == REQUEST_ACK) {
        request->ack.items = list;
        request->ack.item_count = n;
        return request;
    }
    request->items.items = list;
    request->items.item_count = n;
    request->items.dead_letter = span("s:dead");
    return request;
}

struct request *claim_from(struct who who, const char *owner)
{
    struct request *request = ask_as(REQUEST_CLAIM_FROM, "s", "g", who);

    policy_defaults(&request->claim_from.policy);
    request->claim_from.policy.backoff_base_ms = 0;
    request->claim_from.policy.min_idle_ms = 0;
    request->claim_from.policy.dead_after_ms = suite_dead_after_ms();
    request->claim_from.owner = span(owner);
    request->claim_from.rows_max = 1000;
    request->claim_from.claims_max = 100;
    request->claim_from.flags = CLAIM_SETTLE;
    request->claim_from.dead_letter = span("s:dead");
    return request;
}

/* The first argument names the store, the rest is for the harness. */
int suite_main(int argc, char **argv)
{
    int failed = 0;

    for (size_t i = 0; argc > 1 && i < suite_stores_count; i++) {
        if (strcmp(suite_stores[i].name, argv[1]) == 0) {
            chosen = &suite_stores[i];
        }
    }
    if (chosen == NULL) {
        fprintf(stderr, "usage: %s STORE [FILTER]\n", argv[0]);
        return 2;
    }
    failed = tap_main(argc - 1, argv + 1);
    finish();
    return failed;
}
