/* test_log.c -- events as lines: the three formats, and names from outside that try to break them. */
#include "base/base.h"
#include "observe/events.h"
#include "observe/log.h"
#include "tap.h"

static struct buf buf;

/* The line, without its line feed, of a sample event; valid until the next call. */
static const char *line_of(enum log_format format, struct impel_bytes stream, const char *error)
{
    struct impel_event event;
    buf_release(&buf);
    buf_init(&buf, 1 << 16);
    event_init(&event, "retried", IMPEL_WARNING, "an entry failed");
    event.stream = stream;
    event.group = bytes_of("g 1");
    event.id = (struct impel_id){5, 1};
    event.attempt = 2;
    event.delay_ms = 0;
    event.error = bytes_of(error);
    log_append(&buf, format, &event, 1767225600123); /* 2026-01-01 */
    CHECK(buf.size > 0 && buf.data[buf.size - 1] == '\n');
    CHECK(memchr(buf.data, '\n', buf.size) == buf.data + buf.size - 1); /* one line only */
    buf.data[buf.size - 1] = '\0';
    return (const char *)buf.data;
}

static void check_line(const char *got, const char *want)
{
    if (strcmp(got, want) != 0) {
        printf("# got  %s\n# want %s\n", got, want);
    }
    CHECK(strcmp(got, want) == 0);
}

TEST(text_is_for_people)
{
    check_line(line_of(LOG_TEXT, bytes_of("orders"), "no\nway"),
               "00:00:00.123 warning: an entry failed stream=orders group=\"g 1\" id=5-1 attempt=2 "
               "delay_ms=0 error=\"no\\nway\"");
}

TEST(logfmt_is_for_grep)
{
    check_line(line_of(LOG_LOGFMT, bytes_of("orders"), "x=\"1\""),
               "time=2026-01-01T00:00:00.123Z level=warning event=retried msg=\"an entry failed\" "
               "stream=orders group=\"g 1\" id=5-1 attempt=2 delay_ms=0 error=\"x=\\\"1\\\"\"");
}

TEST(json_is_for_machines)
{
    check_line(
        line_of(LOG_JSON, bytes_of("orders"), "no\nway"),
        "{\"time\":\"2026-01-01T00:00:00.123Z\",\"level\":\"warning\",\"event\":\"retried\","
        "\"message\":\"an entry failed\",\"stream\":\"orders\",\"group\":\"g 1\",\"id\":\"5-1\","
        "\"attempt\":2,\"delay_ms\":0,\"error\":\"no\\nway\"}");
}

TEST(bytes_from_outside_do_not_break_a_line)
{
    const char odd[] = {'a', '\0', '\n', '\x1b', '\xff', 'b'};
    const struct impel_bytes name = {odd, sizeof odd};
    CHECK(strstr(line_of(LOG_TEXT, name, ""), "stream=\"a\\x00\\n\\x1b\\xffb\"") != NULL);
    CHECK(strstr(line_of(LOG_LOGFMT, name, ""), "stream=\"a\\x00\\n\\x1b\\xffb\"") != NULL);
    CHECK(strstr(line_of(LOG_JSON, name, ""), "\"stream\":{\"base64\":\"YQAKG/9i\"}") != NULL);
}

TEST(a_name_of_any_length_loses_no_line)
{
    static char name[100001];
    memset(name, '\xff', sizeof name);
    struct impel_bytes odd = {name, sizeof name};
    CHECK(strlen(line_of(LOG_TEXT, odd, "e")) < 4096); /* that it is one line, line_of() sees */
    CHECK(strlen(line_of(LOG_JSON, odd, "e")) < 4096);
    for (size_t i = 1; i + 1 < sizeof name; i += 2) {
        name[i] = '\xc3';
        name[i + 1] = '\xa9';
    }
    name[0] = 'x'; /* so that the cut falls into a character */
    CHECK(strstr(line_of(LOG_TEXT, odd, "e"), "\\x") == NULL);
}

TEST(every_kind_of_worker_event_has_a_row)
{
    struct impel_bytes stream = bytes_of("orders");
    struct event_context context = {
        .streams = &stream, .group = bytes_of("g"), .consumer = bytes_of("c")};
    for (int kind = EVENT_STARTED; kind <= EVENT_STOPPING; kind++) {
        struct worker_event event = {.kind = (enum worker_event_kind)kind};
        struct impel_event told;
        event_from_worker(&event, &context, &told);
        CHECK(told.name != NULL && told.text != NULL && told.count == 1);
        CHECK(told.level == event_level(event.kind));
    }
}

TAP_MAIN
