/* json.c -- compact JSON out, byte for byte what came in.
 *
 * Reading JSON is not here: see json_read.h. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIELDS_SMALL = 16, /* up to here comparing every pair is cheaper than a table */
};

/* How many bytes the character at `data` takes, 0 if it is not well-formed (Unicode, table 3-7). */
static size_t utf8_step(const uint8_t *data, size_t left)
{
    uint8_t first = data[0], low = 0x80, high = 0xbf;
    size_t size = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

    if (size == 0 || first > 0xf4 || size > left) {
        return 0;
    }
    if (first == 0xe0) {
        low = 0xa0;
    } else if (first == 0xed) {
        high = 0x9f;
    } else if (first == 0xf0) {
        low = 0x90;
    } else if (first == 0xf4) {
        high = 0x8f;
    }
    for (size_t i = 1; i < size; i++) {
        if (data[i] < low || data[i] > high) {
            return 0;
        }
        low = 0x80;
        high = 0xbf;
    }
    return size;
}

bool utf8_valid(struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;

    for (size_t i = 0; i < bytes.size;) {
        size_t step = data[i] < 0x80 ? 1 : utf8_step(data + i, bytes.size - i);
        if (step == 0) {
            return false;
        }
        i += step;
    }
    return true;
}

static void escape(struct buf *buf, uint8_t c)
{
    switch (c) {
    case '"':
        buf_append(buf, "\\\"", 2);
        break;
    case '\\':
        buf_append(buf, "\\\\", 2);
        break;
    case '\b':
        buf_append(buf, "\\b", 2);
        break;
    case '\f':
        buf_append(buf, "\\f", 2);
        break;
    case '\n':
        buf_append(buf, "\\n", 2);
        break;
    case '\r':
        buf_append(buf, "\\r", 2);
        break;
    case '\t':
        buf_append(buf, "\\t", 2);
        break;
    default:
        buf_appendf(buf, "\\u%04x", c);
        break;
    }
}

static void string_body(struct buf *buf, struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;
    size_t begun = 0;

    for (size_t i = 0; i < bytes.size; i++) {
        if (data[i] >= 0x20 && data[i] != '"' && data[i] != '\\' && data[i] != 0x7f) {
            continue;
        }
        buf_append(buf, data + begun, i - begun);
        escape(buf, data[i]);
        begun = i + 1;
    }
    if (begun < bytes.size) {
        buf_append(buf, data + begun, bytes.size - begun);
    }
}

void json_string(struct buf *buf, struct impel_bytes bytes)
{
    buf_append(buf, "\"", 1);
    string_body(buf, bytes);
    buf_append(buf, "\"", 1);
}

void json_text(struct buf *buf, const char *text)
{
    json_string(buf, bytes_of(text));
}

void json_value(struct buf *buf, struct impel_bytes bytes)
{
    if (utf8_valid(bytes)) {
        json_string(buf, bytes);
        return;
    }
    buf_append_text(buf, "{\"base64\":\"");
    base64_append(buf, bytes);
    buf_append_text(buf, "\"}");
}

void json_name(struct buf *buf, struct impel_bytes name)
{
    static const char prefix[] = "base64:";
    bool taken =
        name.size >= sizeof(prefix) - 1 && memcmp(name.data, prefix, sizeof(prefix) - 1) == 0;

    if (!taken && utf8_valid(name)) {
        json_string(buf, name);
    } else {
        buf_appendf(buf, "\"%s", prefix);
        base64_append(buf, name);
        buf_append(buf, "\"", 1);
    }
    buf_append(buf, ":", 1);
}

/* ---- fields ---- */

/* For each field, where the next one of the same name is (field_count = none), and whether it is
 * the first of its name. */
struct repeats {
    size_t *next;
    bool *first;
};

static void
link_small(const struct impel_field *fields, size_t field_count, const struct repeats *repeats)
{
    for (size_t i = 0; i < field_count; i++) {
        repeats->first[i] = true;
        repeats->next[i] = field_count;
        for (size_t j = i; j-- > 0;) {
            if (bytes_equal(fields[i].name, fields[j].name)) {
                repeats->first[i] = false;
                repeats->next[j] = i;
                break;
            }
        }
    }
}

/* The same through a table of slots, which hold the last field of a name, plus one. */
static void link_large(const struct impel_field *fields,
                       size_t field_count,
                       const struct repeats *repeats,
                       size_t *slots,
                       size_t slot_count)
{
    for (size_t i = 0; i < field_count; i++) {
        size_t slot = hash_bytes(fields[i].name, 0) & (slot_count - 1);
        repeats->next[i] = field_count;
        while (slots[slot] != 0 && !bytes_equal(fields[slots[slot] - 1].name, fields[i].name)) {
            slot = (slot + 1) & (slot_count - 1);
        }
        repeats->first[i] = slots[slot] == 0;
        if (slots[slot] != 0) {
            repeats->next[slots[slot] - 1] = i;
        }
        slots[slot] = i + 1;
    }
}

static void write_fields(struct buf *buf,
                         const struct impel_field *fields,
                         size_t field_count,
                         const struct repeats *repeats)
{
    bool comma = false;

    buf_append(buf, "{", 1);
    for (size_t i = 0; i < field_count; i++) {
        if (!repeats->first[i]) {
            continue;
        }
        if (comma) {
            buf_append(buf, ",", 1);
        }
        comma = true;
        json_name(buf, fields[i].name);
        if (repeats->next[i] == field_count) {
            json_value(buf, fields[i].value);
            continue;
        }
        buf_append(buf, "[", 1);
        json_value(buf, fields[i].value);
        for (size_t j = repeats->next[i]; j < field_count; j = repeats->next[j]) {
            buf_append(buf, ",", 1);
            json_value(buf, fields[j].value);
        }
        buf_append(buf, "]", 1);
    }
    buf_append(buf, "}", 1);
}

void json_fields(struct buf *buf, const struct impel_field *fields, size_t field_count)
{
    size_t next_small[FIELDS_SMALL], slot_count = 64;
    bool first_small[FIELDS_SMALL];
    struct repeats repeats = {next_small, first_small};
    size_t *slots;

    if (field_count <= FIELDS_SMALL) {
        link_small(fields, field_count, &repeats);
        write_fields(buf, fields, field_count, &repeats);
        return;
    }
    while (slot_count < field_count * 2) {
        slot_count *= 2;
    }
    slots = calloc(slot_count, sizeof(*slots));
    repeats.next = calloc(field_count, sizeof(*repeats.next));
    repeats.first = calloc(field_count, sizeof(*repeats.first));
    if (slots == NULL || repeats.next == NULL || repeats.first == NULL) {
        buf->failed = true;
    } else {
        link_large(fields, field_count, &repeats, slots, slot_count);
        write_fields(buf, fields, field_count, &repeats);
    }
    free(slots);
    free(repeats.next);
    free(repeats.first);
}
