/* jsonl.c -- one line of JSON into the fields of an entry.
 *
 * Strict: what RFC 8259 does not allow is refused. A name that stands twice is a field that
 * repeats, so nothing is dropped. Lists inside lists, other objects and null have no meaning as a
 * field's value and are refused with the place where they stand. */
#include "cli/jsonl.h"

#include "base/json.h"

#include <string.h>

struct parser {
    const uint8_t *start, *at, *end;
    struct arena *arena;
    struct impel_field *fields;
    size_t field_count, field_capacity;
    struct impel_error *err;
};

static int wrong(const struct parser *parser, const char *what)
{
    return error_set(parser->err, IMPEL_ERR_IO, "column %zu: %s",
                     (size_t)(parser->at - parser->start) + 1, what);
}

static int no_memory(const struct parser *parser)
{
    return error_set(parser->err, IMPEL_ERR_NOMEM, "out of memory");
}

static void skip_blanks(struct parser *parser)
{
    while (parser->at < parser->end && (*parser->at == ' ' || *parser->at == '\t' ||
                                        *parser->at == '\r' || *parser->at == '\n')) {
        parser->at++;
    }
}

/* Moves past `c` and the blanks around it; false if something else stands there. */
static bool take(struct parser *parser, char c)
{
    skip_blanks(parser);
    if (parser->at >= parser->end || *parser->at != (uint8_t)c) {
        return false;
    }
    parser->at++;
    skip_blanks(parser);
    return true;
}

static int hex_value(uint8_t c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits of \uXXXX; -1 if they are none. */
static int32_t take_hex4(struct parser *parser)
{
    int32_t code = 0;

    if (parser->end - parser->at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        int value = hex_value(parser->at[i]);
        if (value < 0) {
            return -1;
        }
        code = code * 16 + value;
    }
    parser->at += 4;
    return code;
}

static uint8_t *write_utf8(uint8_t *out, uint32_t code)
{
    if (code < 0x80) {
        *out++ = (uint8_t)code;
        return out;
    }
    if (code < 0x800) {
        *out++ = (uint8_t)(0xc0 | code >> 6);
    } else {
        if (code < 0x10000) {
            *out++ = (uint8_t)(0xe0 | code >> 12);
        } else {
            *out++ = (uint8_t)(0xf0 | code >> 18);
            *out++ = (uint8_t)(0x80 | (code >> 12 & 0x3f));
        }
        *out++ = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    }
    *out++ = (uint8_t)(0x80 | (code & 0x3f));
    return out;
}

/* \uXXXX, of which two may make one character. */
static int take_unicode(struct parser *parser, uint8_t **out)
{
    int32_t code = take_hex4(parser), low;

    if (code < 0) {
        return wrong(parser, "\\u is followed by four hexadecimal digits");
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        if (code >= 0xdc00 || parser->end - parser->at < 2 || parser->at[0] != '\\' ||
            parser->at[1] != 'u') {
            return wrong(parser, "half of a surrogate pair");
        }
        parser->at += 2;
        low = take_hex4(parser);
        if (low < 0xdc00 || low > 0xdfff) {
            return wrong(parser, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = write_utf8(*out, (uint32_t)code);
    return IMPEL_OK;
}

static int take_escape(struct parser *parser, uint8_t **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    parser->at++;
    if (parser->at >= parser->end) {
        return wrong(parser, "the string does not end");
    }
    if (*parser->at == 'u') {
        parser->at++;
        return take_unicode(parser, out);
    }
    found = *parser->at == '\0' ? NULL : strchr(from, *parser->at);
    if (found == NULL) {
        return wrong(parser, "unknown escape");
    }
    *(*out)++ = (uint8_t)to[found - from];
    parser->at++;
    return IMPEL_OK;
}

/* A string; the opening quote is where we stand. */
static int take_string(struct parser *parser, struct impel_bytes *text)
{
    const uint8_t *close = parser->at + 1;
    uint8_t *data, *out;

    if (parser->at >= parser->end || *parser->at != '"') {
        return wrong(parser, "a string is needed here");
    }
    while (close < parser->end && *close != '"') {
        close += *close == '\\' && close + 1 < parser->end ? 2 : 1;
    }
    if (close >= parser->end) {
        return wrong(parser, "the string does not end");
    }
    /* An escape is never shorter than what it stands for. */
    data = out = arena_alloc(parser->arena, (size_t)(close - parser->at));
    if (data == NULL) {
        return no_memory(parser);
    }
    parser->at++;
    while (parser->at < close) {
        if (*parser->at < 0x20) {
            return wrong(parser, "a control character must be written as \\u00XX");
        }
        if (*parser->at != '\\') {
            *out++ = *parser->at++;
            continue;
        }
        int rc = take_escape(parser, &out);
        if (rc < 0) {
            return rc;
        }
    }
    parser->at = close + 1;
    *text = (struct impel_bytes){data, (size_t)(out - data)};
    return IMPEL_OK;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static int take_number(struct parser *parser, struct impel_bytes *text)
{
    const uint8_t *at = parser->at, *end = parser->end;
    const uint8_t *digits;

    at += at < end && *at == '-';
    digits = at;
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    bool good = at > digits && (*digits != '0' || at == digits + 1);
    if (good && at < end && *at == '.') {
        for (digits = ++at; at < end && *at >= '0' && *at <= '9';) {
            at++;
        }
        good = at > digits;
    }
    if (good && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        for (digits = at; at < end && *at >= '0' && *at <= '9';) {
            at++;
        }
        good = at > digits;
    }
    if (!good) {
        return wrong(parser, "a value is needed here: a string, a number, true, false, a list or "
                             "{\"base64\":\"...\"}");
    }
    *text = (struct impel_bytes){parser->at, (size_t)(at - parser->at)};
    parser->at = at;
    return IMPEL_OK;
}

static bool take_word(struct parser *parser, const char *word, struct impel_bytes *text)
{
    size_t size = strlen(word);

    if ((size_t)(parser->end - parser->at) < size || memcmp(parser->at, word, size) != 0) {
        return false;
    }
    *text = (struct impel_bytes){parser->at, size};
    parser->at += size;
    return true;
}

static int decode(struct parser *parser, struct impel_bytes text, struct impel_bytes *bytes)
{
    struct buf buf;
    int rc = IMPEL_OK;

    buf_init(&buf, text.size + 3);
    if (!base64_decode(&buf, text)) {
        rc = buf.failed ? no_memory(parser) : wrong(parser, "this is not base64");
    } else if (!arena_copy(parser->arena, buf_bytes(&buf), bytes)) {
        rc = no_memory(parser);
    }
    buf_release(&buf);
    return rc;
}

/* {"base64":"..."} */
static int take_bytes(struct parser *parser, struct impel_bytes *bytes)
{
    struct impel_bytes name = {0}, text = {0};
    int rc;

    if (!take(parser, '{')) {
        return wrong(parser, "an object is needed here");
    }
    rc = take_string(parser, &name);
    if (rc < 0 || !bytes_equal(name, bytes_of("base64")) || !take(parser, ':')) {
        return wrong(parser, "a value may be no object, except {\"base64\":\"...\"}");
    }
    rc = take_string(parser, &text);
    if (rc < 0) {
        return rc;
    }
    if (!take(parser, '}')) {
        return wrong(parser, "{\"base64\":\"...\"} has nothing else in it");
    }
    return decode(parser, text, bytes);
}

/* A number, true or false: its text. */
static int take_bare(struct parser *parser, struct impel_bytes *bytes)
{
    struct impel_bytes text = {0};

    if (take_word(parser, "null", &text)) {
        parser->at -= text.size;
        return wrong(parser, "null is no value that a field could have; leave the field out");
    }
    if (!take_word(parser, "true", &text) && !take_word(parser, "false", &text)) {
        int rc = take_number(parser, &text);
        if (rc < 0) {
            return rc;
        }
    }
    return arena_copy(parser->arena, text, bytes) ? IMPEL_OK : no_memory(parser);
}

static int take_scalar(struct parser *parser, struct impel_bytes *bytes)
{
    uint8_t first;
    int rc;

    skip_blanks(parser);
    first = parser->at < parser->end ? *parser->at : 0;
    if (first == '"') {
        rc = take_string(parser, bytes);
    } else if (first == '{') {
        rc = take_bytes(parser, bytes);
    } else {
        rc = take_bare(parser, bytes);
    }
    skip_blanks(parser);
    return rc;
}

/* ---- fields ---- */

static int add_field(struct parser *parser, struct impel_bytes name, struct impel_bytes value)
{
    if (parser->field_count == parser->field_capacity) {
        size_t capacity = parser->field_capacity == 0 ? 16 : parser->field_capacity * 2;
        struct impel_field *fields = arena_calloc(parser->arena, capacity, sizeof(*fields));
        if (fields == NULL) {
            return no_memory(parser);
        }
        if (parser->field_count > 0) {
            memcpy(fields, parser->fields, parser->field_count * sizeof(*fields));
        }
        parser->fields = fields;
        parser->field_capacity = capacity;
    }
    parser->fields[parser->field_count++] = (struct impel_field){name, value};
    return IMPEL_OK;
}

static int take_list(struct parser *parser, struct impel_bytes name)
{
    struct impel_bytes value;

    if (take(parser, ']')) {
        return wrong(parser, "an empty list is no value; leave the field out");
    }
    do {
        if (parser->at < parser->end && *parser->at == '[') {
            return wrong(parser, "a list may not stand in a list");
        }
        int rc = take_scalar(parser, &value);
        if (rc >= 0) {
            rc = add_field(parser, name, value);
        }
        if (rc < 0) {
            return rc;
        }
    } while (take(parser, ','));
    return take(parser, ']') ? IMPEL_OK : wrong(parser, "a comma or ] is needed here");
}

static int take_member(struct parser *parser)
{
    static const char prefix[] = "base64:";
    struct impel_bytes name = {0}, value = {0};
    int rc = take_string(parser, &name);

    if (rc < 0) {
        return rc;
    }
    if (name.size >= sizeof(prefix) - 1 && memcmp(name.data, prefix, sizeof(prefix) - 1) == 0) {
        struct impel_bytes text = {(const char *)name.data + sizeof(prefix) - 1,
                                   name.size - (sizeof(prefix) - 1)};
        rc = decode(parser, text, &name);
        if (rc < 0) {
            return rc;
        }
    }
    if (!take(parser, ':')) {
        return wrong(parser, "a colon is needed here");
    }
    if (take(parser, '[')) {
        return take_list(parser, name);
    }
    rc = take_scalar(parser, &value);
    return rc < 0 ? rc : add_field(parser, name, value);
}

int jsonl_parse(struct impel_bytes line,
                struct arena *arena,
                struct impel_field **fields,
                size_t *field_count,
                struct impel_error *err)
{
    struct parser parser = {.start = line.data, .at = line.data, .arena = arena, .err = err};

    parser.end = parser.start + line.size;
    if (!utf8_valid(line)) {
        return wrong(&parser, "not UTF-8; bytes that are no text go into {\"base64\":\"...\"}");
    }
    if (!take(&parser, '{')) {
        return wrong(&parser, "a JSON object is needed: {\"field\":\"value\"}");
    }
    if (take(&parser, '}')) {
        return wrong(&parser, "an entry needs at least one field");
    }
    do {
        int rc = take_member(&parser);
        if (rc < 0) {
            return rc;
        }
    } while (take(&parser, ','));
    if (!take(&parser, '}')) {
        return wrong(&parser, "a comma or } is needed here");
    }
    if (parser.at != parser.end) {
        return wrong(&parser, "something follows the object");
    }
    *fields = parser.fields;
    *field_count = parser.field_count;
    return IMPEL_OK;
}
