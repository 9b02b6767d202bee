/* test_nomem.c -- every command with its first, second, third ... allocation failing: it says so,
 * and nothing of it has happened; then it is tried again and answers what a store does that never
 * ran out of memory. */
#include "call_store.h"
#include "cli/format_reply.h"
#include "resp/resp.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    ALLOCATIONS_MAX = 2000, /* of one command; more would be a loop */
    TEXT_SIZE = 16384,
};

static struct store *store, *twin;
static long countdown; /* allocations until one fails; 0 = none does */

static bool fails_now(void)
{
    return countdown > 0 && --countdown == 0;
}

#define WRAPPED(TYPE, NAME, ...)     \
    TYPE __real_##NAME(__VA_ARGS__); \
    TYPE __wrap_##NAME(__VA_ARGS__); \
    TYPE __wrap_##NAME(__VA_ARGS__)

WRAPPED(void *, malloc, size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

WRAPPED(void *, calloc, size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

WRAPPED(void *, realloc, void *data, size_t size)
{
    return fails_now() ? NULL : __real_realloc(data, size);
}

/* An arena asks for blocks only now and then, so its own doors fail too. */
WRAPPED(void *, arena_alloc, struct arena *arena, size_t size)
{
    return fails_now() ? NULL : __real_arena_alloc(arena, size);
}

WRAPPED(void *, arena_calloc, struct arena *arena, size_t count, size_t size)
{
    return fails_now() ? NULL : __real_arena_calloc(arena, count, size);
}

WRAPPED(bool, arena_copy, struct arena *arena, struct impel_bytes bytes, struct impel_bytes *out)
{
    return !fails_now() && __real_arena_copy(arena, bytes, out);
}

static void ignore_done(struct request *request)
{
    (void)request;
}

/* The reply as text, times made alike: those of the clock are the only numbers of 13 digits. */
static void show(const struct value *reply, char *text)
{
    struct buf out;

    buf_init(&out, TEXT_SIZE - 1);
    format_reply(reply, REPLY_FORM_SHOW, &out);
    CHECK(buf_status(&out) >= 0);
    memcpy(text, out.data, out.size);
    text[out.size] = '\0';
    buf_release(&out);
    for (char *at = text; *at != '\0';) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 13) {
            memset(at, '9', digits);
        }
        at += digits == 0 ? 1 : digits;
    }
}

/* Carries out a command whose `fail_at`th allocation fails. False if it said that it could not;
 * `text` gets the reply. */
static bool run(struct store *on, const char *line, long fail_at, char *text)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *args;

    CHECK(request != NULL);
    CHECK(resp_split_line(bytes_of(line), &request->arena, &args, &request->call.arg_count) >= 0);
    request->call.args = args;
    request->done = ignore_done;
    countdown = fail_at;
    int rc = store_wait(on, request, 60000);
    countdown = 0;
    CHECK(rc >= 0 || rc == IMPEL_ERR_NOMEM);
    if (rc >= 0) {
        show(request->call.reply, text);
    }
    request_free(request);
    return rc >= 0;
}

static const char *const lines[] = {
    "XGROUP CREATE s g 0 MKSTREAM",
    "XADD s 1 f v name value",
    "XADD s MAXLEN ~ 100 2 f v",
    "XADD s 3 f v",
    "XREADGROUP GROUP g alice COUNT 2 STREAMS s >",
    "XREADGROUP GROUP g alice STREAMS s 0",
    "XREADGROUP GROUP g bob BLOCK 1 STREAMS s >",
    "XPENDING s g",
    "XPENDING s g IDLE 1000000000 - + 10 alice",
    "XCLAIM s g bob 0 1 3 FORCE",
    "XAUTOCLAIM s g carol 0 0 COUNT 10",
    "XACK s g 1",
    "XDEL s 2",
    "XRANGE s - +",
    "XREAD STREAMS s 0",
    "XINFO STREAM s FULL",
    "XINFO GROUPS s",
    "XGROUP CREATECONSUMER s g dave",
    "XGROUP DELCONSUMER s g carol",
    "XGROUP SETID s g $",
    "XSETID s 9",
    "XADD s 99999999999999 f v", /* so that IDs do not come from the clock */
    "XADD s IDMP p one * f v",
    "XADD s IDMP p one * f v",
    "XADD s IDMPAUTO q * f v",
    "XCFGSET s IDMP-MAXSIZE 3",
    "XADD s IDMP p one * f v",
    "XREADGROUP GROUP g alice COUNT 2 STREAMS s >",
    "XREADGROUP GROUP g erin CLAIM 1000000 COUNT 1 MAXSIZE 100 STREAMS s >",
    "XNACK s g FAIL IDS 2 99999999999999-0 99999999999999-1",
    "XPENDING s g - + 1",
    "XCLAIM s g bob 0 99999999999999-0",
    "XACKDEL s g ACKED IDS 2 99999999999999-0 3",
    "XDELEX s DELREF IDS 1 99999999999999-1",
    "XTRIM s MAXLEN 0 ACKED",
    "XTRIM s MAXLEN 0 DELREF",
    "XTRIM s MAXLEN 0",
    "NOSUCH command",
    "KEYS *",
    "XGROUP DESTROY s g",
    "DEL s",
};

static void check_same(const char *line, unsigned failed, const char *got, const char *want)
{
    if (strcmp(got, want) != 0) {
        printf("# %s, allocation %u failing: got\n%swant\n%s", line, failed, got, want);
        longjmp(tap_abandon, 1);
    }
}

/* Tries a command until no allocation is left to fail. Returns how often it failed. */
static unsigned try_line(const char *line)
{
    static char before[TEXT_SIZE], after[TEXT_SIZE], got[TEXT_SIZE], want[TEXT_SIZE];
    unsigned failed = 0;

    CHECK(run(store, "XINFO STREAM s FULL COUNT 0", 0, before));
    CHECK(run(twin, line, 0, want));
    while (!run(store, line, ++failed, got)) {
        CHECK(run(store, "XINFO STREAM s FULL COUNT 0", 0, after));
        check_same(line, failed, after, before);
        CHECK(failed < ALLOCATIONS_MAX);
    }
    check_same(line, failed, got, want);
    return failed - 1;
}

TEST(nothing_half_done)
{
    unsigned failed = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        failed += try_line(lines[i]);
    }
    printf("# %u commands ran out of memory\n", failed);
    CHECK(failed > ARRAY_SIZE(lines) * 2);
}

static void files_remove(const char *folder)
{
    static const char *const names[] = {"a", "a-lock", "a-wake", "b", "b-lock", "b-wake", NULL};
    char path[64];

    for (const char *const *name = names; *name != NULL; name++) {
        snprintf(path, sizeof(path), "%s/%s", folder, *name);
        unlink(path);
    }
    rmdir(folder);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/impel-nomem-XXXXXX";
    char path[64];

    if (mkdtemp(folder) == NULL) {
        return 2;
    }
    snprintf(path, sizeof(path), "%s/a", folder);
    store = call_store_open(path);
    snprintf(path, sizeof(path), "%s/b", folder);
    twin = call_store_open(path);
    int failed = tap_main(argc, argv);
    store_close(store);
    store_close(twin);
    files_remove(folder);
    return failed;
}
