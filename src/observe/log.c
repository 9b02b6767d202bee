/* log.c -- three ways to write an event on a line.
 *
 * The event's members become a list of named fields first, so that the formats differ only in how
 * they write a name and a value. */
#include "observe/log.h"

#include "base/json.h"
#include "core/id.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

enum {
    FIELDS_MAX = 16,
    TIME_SIZE = 32,
    /* A line that is too long would be lost as a whole, and names may have any length. */
    NAME_SIZE_MAX = 512,
    ERROR_SIZE_MAX = 4096,
};

struct log_field {
    const char *name;
    bool number; /* then `integer`, else `bytes` */
    int64_t integer;
    struct impel_bytes bytes;
};

struct log_fields {
    struct log_field fields[FIELDS_MAX];
    size_t count;
    char id[ID_TEXT_SIZE];
};

const char *log_level_name(enum impel_level level)
{
    static const char *const names[] = {"debug", "info", "warning", "error"};
    return (size_t)level < ARRAY_SIZE(names) ? names[level] : "error";
}

/* The beginning of the bytes, not ending within a character. */
static struct impel_bytes cut(struct impel_bytes bytes, size_t size_max)
{
    const uint8_t *data = bytes.data;
    size_t size = bytes.size;

    if (size > size_max) {
        size = size_max;
        while (size > size_max - 4 && (data[size] & 0xc0) == 0x80) {
            size--;
        }
    }
    return (struct impel_bytes){bytes.data, size};
}

static void add_bytes(struct log_fields *list, const char *name, struct impel_bytes bytes)
{
    bytes = cut(bytes, strcmp(name, "error") == 0 ? ERROR_SIZE_MAX : NAME_SIZE_MAX);
    if (bytes.size > 0) {
        list->fields[list->count++] = (struct log_field){.name = name, .bytes = bytes};
    }
}

static void add_number(struct log_fields *list, const char *name, bool told, int64_t integer)
{
    if (told) {
        list->fields[list->count++] =
            (struct log_field){.name = name, .number = true, .integer = integer};
    }
}

static void collect(struct log_fields *list, const struct impel_event *event)
{
    list->count = 0;
    add_bytes(list, "stream", event->stream);
    add_bytes(list, "group", event->group);
    add_bytes(list, "consumer", event->consumer);
    add_bytes(list, "subject", event->subject);
    if (!id_is_zero(event->id)) {
        add_bytes(list, "id", bytes_of(id_format(event->id, list->id)));
    }
    add_bytes(list, "target", event->target);
    add_number(list, "attempt", event->attempt > 0, event->attempt);
    add_number(list, "count", event->count > 1, (int64_t)event->count);
    add_number(list, "delay_ms", event->delay_ms >= 0, event->delay_ms);
    add_number(list, "idle_ms", event->idle_ms >= 0, event->idle_ms);
    bool swept = strcmp(event->name, "swept") == 0;
    add_number(list, "due", swept || event->due > 0, (int64_t)event->due);
    add_number(list, "not_due", swept || event->not_due > 0, (int64_t)event->not_due);
    add_bytes(list, "reason", event->reason);
    add_bytes(list, "error", event->error);
    ASSERT(list->count <= FIELDS_MAX);
}

/* 2026-01-31T10:37:26.123Z */
static void format_time(int64_t unix_ms, char *text)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts) == NULL) {
        parts = (struct tm){0};
    }
    size_t size = strftime(text, TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &parts);
    text[size] = '.';
    for (int i = 3, rest = (int)(unix_ms % 1000); i > 0; i--, rest /= 10) {
        text[size + (size_t)i] = (char)('0' + rest % 10);
    }
    text[size + 4] = 'Z';
    text[size + 5] = '\0';
}

static bool plain_byte(uint8_t byte)
{
    return byte > ' ' && byte < 0x7f && byte != '"' && byte != '=' && byte != '\\';
}

/* As it is if it is one plain word, else quoted, with \n, \" and \xHH. UTF-8 stays. */
static void word_append(struct buf *buf, struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;
    bool plain = bytes.size > 0;
    for (size_t i = 0; i < bytes.size && plain; i++) {
        plain = plain_byte(data[i]);
    }
    if (plain) {
        buf_append_bytes(buf, bytes);
        return;
    }
    bool utf8 = utf8_valid(bytes);
    buf_append_text(buf, "\"");
    for (size_t i = 0; i < bytes.size; i++) {
        if (data[i] == '"' || data[i] == '\\') {
            buf_append_text(buf, "\\");
            buf_append(buf, &data[i], 1);
        } else if (data[i] == '\n') {
            buf_append_text(buf, "\\n");
        } else if (data[i] < ' ' || data[i] == 0x7f || (data[i] >= 0x80 && !utf8)) {
            buf_appendf(buf, "\\x%02x", data[i]);
        } else {
            buf_append(buf, &data[i], 1);
        }
    }
    buf_append_text(buf, "\"");
}

static void append_fields_words(struct buf *buf, const struct log_fields *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct log_field *field = &list->fields[i];
        buf_appendf(buf, " %s=", field->name);
        if (field->number) {
            buf_appendf(buf, "%" PRId64, field->integer);
        } else {
            word_append(buf, field->bytes);
        }
    }
    buf_append_text(buf, "\n");
}

static void append_json(struct buf *buf,
                        const struct impel_event *event,
                        const char *time,
                        const struct log_fields *list)
{
    buf_appendf(buf, "{\"time\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"message\":", time,
                log_level_name(event->level), event->name);
    json_value(buf, bytes_of(event->text));
    for (size_t i = 0; i < list->count; i++) {
        const struct log_field *field = &list->fields[i];
        buf_appendf(buf, ",\"%s\":", field->name);
        if (field->number) {
            buf_appendf(buf, "%" PRId64, field->integer);
        } else {
            json_value(buf, field->bytes);
        }
    }
    buf_append_text(buf, "}\n");
}

void log_append(struct buf *buf,
                enum log_format format,
                const struct impel_event *event,
                int64_t unix_ms)
{
    struct log_fields list;
    char time[TIME_SIZE];
    collect(&list, event);
    format_time(unix_ms, time);
    if (format == LOG_JSON) {
        append_json(buf, event, time, &list);
    } else if (format == LOG_LOGFMT) {
        buf_appendf(buf, "time=%s level=%s event=%s msg=", time, log_level_name(event->level),
                    event->name);
        word_append(buf, bytes_of(event->text));
        append_fields_words(buf, &list);
    } else {
        time[sizeof "2026-01-31T10:37:26.123" - 1] = '\0';
        buf_appendf(buf, "%s %s: %s", time + sizeof "2026-01-31T" - 1, log_level_name(event->level),
                    event->text);
        append_fields_words(buf, &list);
    }
}
