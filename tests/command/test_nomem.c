/* test_nomem.c -- every command with its first, second, third ... allocation failing: it says so,
 * and nothing of it has happened; then it is tried again and works. */
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

static struct store *store;
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

/* Carries out a command whose `fail_at`th allocation fails. False if it said that it could not;
 * `text` (may be NULL) gets the reply. */
static bool run(const char *line, long fail_at, char *text)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *args;
    struct buf out;

    CHECK(request != NULL);
    CHECK(resp_split_line(bytes_of(line), &request->arena, &args, &request->call.arg_count) >= 0);
    request->call.args = args;
    request->done = ignore_done;
    countdown = fail_at;
    int rc = store_wait(store, request, 60000);
    countdown = 0;
    CHECK(rc >= 0 || rc == IMPEL_ERR_NOMEM);
    if (rc >= 0 && text != NULL) {
        buf_init(&out, TEXT_SIZE - 1);
        format_reply(request->call.reply, REPLY_FORM_SHOW, &out);
        memcpy(text, out.data, out.size);
        text[out.size] = '\0';
        buf_release(&out);
    }
    request_free(request);
    return rc >= 0;
}

TEST(nothing_half_done)
{
    static const char *const lines[] = {
        "XGROUP CREATE s g 0 MKSTREAM",
        "XADD s 1 f v name value",
        "XADD s MAXLEN ~ 100 2 f v",
        "XADD s 3 f v",
        "XREADGROUP GROUP g alice COUNT 2 STREAMS s >",
        "XREADGROUP GROUP g alice STREAMS s 0",
        "XREADGROUP GROUP g bob BLOCK 1 STREAMS s >",
        "XPENDING s g",
        "XPENDING s g - + 10 alice",
        "XCLAIM s g bob 0 1 3 FORCE",
        "XAUTOCLAIM s g carol 0 0 COUNT 10",
        "XACK s g 1",
        "XDEL s 2",
        "XRANGE s - +",
        "XREAD STREAMS s 0",
        "XINFO STREAM s FULL",
        "XINFO GROUPS s",
        "XINFO CONSUMERS s g",
        "XGROUP CREATECONSUMER s g dave",
        "XGROUP DELCONSUMER s g carol",
        "XGROUP SETID s g $",
        "XSETID s 9",
        "XTRIM s MAXLEN 0",
        "NOSUCH command",
        "KEYS *",
        "XGROUP DESTROY s g",
        "DEL s",
    };
    static char before[TEXT_SIZE], after[TEXT_SIZE];
    unsigned failed = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        long fail_at = 1;
        CHECK(run("XINFO STREAM s FULL COUNT 0", 0, before));
        while (!run(lines[i], fail_at, NULL)) {
            CHECK(run("XINFO STREAM s FULL COUNT 0", 0, after));
            if (strcmp(before, after) != 0) {
                printf("# %s, allocation %ld failing, left\n%s", lines[i], fail_at, after);
                CHECK(false);
            }
            CHECK(++fail_at < ALLOCATIONS_MAX);
            failed++;
        }
    }
    printf("# %u commands ran out of memory\n", failed);
    CHECK(failed > ARRAY_SIZE(lines) * 2);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/impel-nomem-XXXXXX";
    char path[64];

    if (mkdtemp(folder) == NULL) {
        return 2;
    }
    snprintf(path, sizeof(path), "%s/db", folder);
    store = call_store_open(path);
    int failed = tap_main(argc, argv);
    store_close(store);
    for (const char *const *end = (const char *const[]){"", "-lock", "-wake", NULL}; *end != NULL;
         end++) {
        snprintf(path, sizeof(path), "%s/db%s", folder, *end);
        unlink(path);
    }
    rmdir(folder);
    return failed;
}
