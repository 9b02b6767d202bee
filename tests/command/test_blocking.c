/* test_blocking.c -- XREAD and XREADGROUP that wait: what wakes them, what they get, what lets them
 * sleep on.
 *
 * Two handles of one file in one thread: one waits, the other does things. No time passes but what
 * the test says, so a reader that is still blocked is so for good. */
#include "call_store.h"
#include "cli/format_reply.h"
#include "resp/resp.h"
#include "tap.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct store *here, *there;
static char reply_text[4096];
static unsigned done_count;

static void count_done(struct request *request)
{
    (void)request;
    done_count++;
}

static int64_t clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct request *request_of(const char *line)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *args;

    CHECK(request != NULL);
    CHECK(resp_split_line(bytes_of(line), &request->arena, &args, &request->call.arg_count) >= 0);
    request->call.args = args;
    request->done = count_done;
    return request;
}

static const char *text_of(const struct request *request)
{
    struct buf out;

    CHECK(request->status >= 0);
    buf_init(&out, sizeof(reply_text) - 1);
    format_reply(request->call.reply, REPLY_FORM_RAW, &out);
    memcpy(reply_text, out.data, out.size);
    reply_text[out.size - 1] = '\0'; /* without the last newline */
    for (char *at = reply_text; *at != '\0'; at++) {
        if (*at == '\n') {
            *at = ' ';
        }
    }
    buf_release(&out);
    return reply_text;
}

/* Carries out a command on the other handle and compares its reply. */
static void other(const char *line, const char *want)
{
    struct request *request = request_of(line);

    CHECK(store_wait(there, request, 60000) >= 0);
    const char *got = text_of(request);
    if (want != NULL && strcmp(got, want) != 0) {
        printf("# %s: got \"%s\", want \"%s\"\n", line, got, want);
        CHECK(false);
    }
    request_free(request);
}

/* Begins a command that has to block. */
static struct request *wait_begin(const char *line)
{
    struct request *request = request_of(line);

    done_count = 0;
    store_submit(here, request);
    store_turn(here, clock_ms());
    CHECK(done_count == 0);
    return request;
}

/* Looks again at time `now_ms`: is it over? */
static bool over(int64_t now_ms)
{
    store_turn(here, now_ms);
    store_turn(here, now_ms);
    return done_count > 0;
}

static void wait_ends(struct request *request, const char *want)
{
    for (int64_t end = clock_ms() + 60000; !over(clock_ms());) {
        CHECK(clock_ms() < end);
    }
    const char *got = text_of(request);
    if (strcmp(got, want) != 0) {
        printf("# got \"%s\", want \"%s\"\n", got, want);
        CHECK(false);
    }
    request_free(request);
}

static void fresh(void)
{
    other("FLUSHALL", "OK");
}

TEST(an_add_wakes_who_reads_the_group)
{
    fresh();
    other("XGROUP CREATE s g $ MKSTREAM", "OK");
    struct request *request = wait_begin("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    CHECK(!over(clock_ms()));
    other("XADD s 5-1 f v", "5-1");
    wait_ends(request, "s 5-1 f v");
    other("XPENDING s g", "1 5-1 5-1 c 1");
}

TEST(the_consumer_is_there_while_it_waits)
{
    fresh();
    other("XGROUP CREATE s g $ MKSTREAM", "OK");
    struct request *request = wait_begin("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    other("XGROUP CREATECONSUMER s g c", "0");
    other("XADD s 1 f v", "1-0");
    wait_ends(request, "s 1-0 f v");
}

TEST(dollar_is_what_it_was_at_first)
{
    fresh();
    other("XADD s 1 f v", "1-0");
    struct request *request = wait_begin("XREAD COUNT 1 BLOCK 0 STREAMS t s $ $");
    other("XADD other 1 f v", "1-0");
    CHECK(!over(clock_ms()));
    other("XADD s 2 f v", "2-0");
    other("XADD s 3 f v", "3-0");
    wait_ends(request, "s 2-0 f v");
}

TEST(an_entry_that_went_again_wakes_nobody)
{
    fresh();
    other("XADD s 1 f v", "1-0");
    struct request *request = wait_begin("XREAD BLOCK 0 STREAMS s $");
    other("XADD s MAXLEN 0 2 f v", "2-0");
    CHECK(!over(clock_ms()));
    other("XADD s 3 f v", "3-0");
    wait_ends(request, "s 3-0 f v");
}

TEST(a_group_that_goes_ends_its_readers)
{
    static const char *const ends[] = {"XGROUP DESTROY s g", "DEL s", "FLUSHALL"};

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        fresh();
        other("XGROUP CREATE s g $ MKSTREAM", "OK");
        struct request *request = wait_begin("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
        other(ends[i], NULL);
        wait_ends(request, "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP "
                           "option ");
    }
}

TEST(what_is_given_back_wakes_who_claims)
{
    fresh();
    other("XADD s 1 f v", "1-0");
    other("XGROUP CREATE s g 0", "OK");
    other("XREADGROUP GROUP g c STREAMS s >", "s 1-0 f v");
    struct request *request = wait_begin("XREADGROUP GROUP g d BLOCK 0 CLAIM 1000000 STREAMS s >");
    int64_t next_ms = store_turn(here, clock_ms());
    CHECK(next_ms > 0 && next_ms <= 1000000); /* when it will be due */
    other("XGROUP CREATECONSUMER s g e", "1");
    CHECK(!over(clock_ms()));
    CHECK(!over(clock_ms() + 2000000)); /* only this clock has come so far */
    other("XNACK s g FAIL IDS 1 1", "1");
    for (int64_t end = clock_ms() + 60000; !over(clock_ms());) {
        CHECK(clock_ms() < end);
    }
    CHECK(strncmp(text_of(request), "s 1-0 f v ", 10) == 0);
    request_free(request);
    other("XPENDING s g", "1 1-0 1-0 d 1");
}

TEST(another_type_ends_a_groups_reader)
{
    fresh();
    other("XGROUP CREATE s g $ MKSTREAM", "OK");
    struct request *request = wait_begin("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    other("SET s x", "OK");
    wait_ends(request, "WRONGTYPE Operation against a key holding the wrong kind of value ");
}

TEST(a_plain_reader_sits_it_all_out)
{
    fresh();
    other("XADD s 5 f v", "5-0");
    struct request *request = wait_begin("XREAD BLOCK 0 STREAMS s $");
    other("DEL s", "1");
    CHECK(!over(clock_ms()));
    other("SET s x", "OK");
    CHECK(!over(clock_ms()));
    other("DEL s", "1");
    other("XADD s 4 f v", "4-0");
    CHECK(!over(clock_ms()));
    other("XADD s 6 f v", "6-0");
    wait_ends(request, "s 6-0 f v");
}

TEST(moving_the_group_back_wakes_nobody)
{
    fresh();
    other("XADD s 1 f v", "1-0");
    other("XGROUP CREATE s g $", "OK");
    struct request *request = wait_begin("XREADGROUP GROUP g c BLOCK 0 STREAMS s >");
    other("XGROUP SETID s g 0", "OK");
    other("XADD s 2 f v", "2-0");
    wait_ends(request, "s 1-0 f v 2-0 f v");
}

TEST(time_up_is_a_null)
{
    fresh();
    struct request *request = wait_begin("XREAD BLOCK 5000 STREAMS s $");
    int64_t now_ms = clock_ms();
    CHECK(!over(now_ms + 1000));
    CHECK(over(now_ms + 70000));
    CHECK(request->call.reply->kind == VALUE_NULL_ARRAY);
    request_free(request);
}

TEST(history_never_waits)
{
    fresh();
    other("XGROUP CREATE s g $ MKSTREAM", "OK");
    other("XREADGROUP GROUP g c BLOCK 0 STREAMS s s 0 >", "s ");
}

TEST(an_error_never_waits)
{
    fresh();
    other("XREADGROUP GROUP g c BLOCK 0 STREAMS s >",
          "NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option ");
    other("SET s x", "OK");
    other("XREAD BLOCK 0 STREAMS s 0",
          "WRONGTYPE Operation against a key holding the wrong kind of value ");
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/impel-blocking-XXXXXX";
    char path[64];

    if (mkdtemp(folder) == NULL) {
        return 2;
    }
    snprintf(path, sizeof(path), "%s/db", folder);
    here = call_store_open(path);
    there = call_store_open(path);
    int failed = tap_main(argc, argv);
    store_close(here);
    store_close(there);
    for (const char *const *end = (const char *const[]){"", "-lock", "-wake", NULL}; *end != NULL;
         end++) {
        snprintf(path, sizeof(path), "%s/db%s", folder, *end);
        unlink(path);
    }
    rmdir(folder);
    return failed;
}
