/* json_read.c -- the tokens of JSON, as strict as RFC 8259. */
#include "base/json_read.h"

#include <string.h>

enum {
    DEPTH_MAX = 64, /* of a value that is skipped */
};

void json_reader_init(struct json_reader *reader,
                      struct impel_bytes text,
                      struct arena *arena,
                      struct impel_error *err)
{
    const uint8_t *data = text.data;

    *reader = (struct json_reader){
        .start = data, .at = data, .end = data + text.size, .arena = arena, .err = err};
}

int json_wrong(const struct json_reader *reader, const char *what)
{
    return error_set(reader->err, IMPEL_ERR_IO, "column %zu: %s",
                     (size_t)(reader->at - reader->start) + 1, what);
}

void json_skip_blanks(struct json_reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t' ||
                                        *reader->at == '\r' || *reader->at == '\n')) {
        reader->at++;
    }
}

bool json_take(struct json_reader *reader, char c)
{
    json_skip_blanks(reader);
    if (reader->at >= reader->end || *reader->at != (uint8_t)c) {
        return false;
    }
    reader->at++;
    json_skip_blanks(reader);
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
static int32_t take_hex4(struct json_reader *reader)
{
    int32_t code = 0;

    if (reader->end - reader->at < 4) {
        return -1;
    }
    for (int i = 0; i < 4; i++) {
        int value = hex_value(reader->at[i]);
        if (value < 0) {
            return -1;
        }
        code = code * 16 + value;
    }
    reader->at += 4;
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
static int take_unicode(struct json_reader *reader, uint8_t **out)
{
    int32_t code = take_hex4(reader), low;

    if (code < 0) {
        return json_wrong(reader, "\\u is followed by four hexadecimal digits");
    }
    if (code >= 0xd800 && code <= 0xdfff) {
        if (code >= 0xdc00 || reader->end - reader->at < 2 || reader->at[0] != '\\' ||
            reader->at[1] != 'u') {
            return json_wrong(reader, "half of a surrogate pair");
        }
        reader->at += 2;
        low = take_hex4(reader);
        if (low < 0xdc00 || low > 0xdfff) {
            return json_wrong(reader, "half of a surrogate pair");
        }
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *out = write_utf8(*out, (uint32_t)code);
    return IMPEL_OK;
}

static int take_escape(struct json_reader *reader, uint8_t **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    reader->at++;
    if (reader->at >= reader->end) {
        return json_wrong(reader, "the string does not end");
    }
    if (*reader->at == 'u') {
        reader->at++;
        return take_unicode(reader, out);
    }
    found = *reader->at == '\0' ? NULL : strchr(from, *reader->at);
    if (found == NULL) {
        return json_wrong(reader, "unknown escape");
    }
    *(*out)++ = (uint8_t)to[found - from];
    reader->at++;
    return IMPEL_OK;
}

int json_take_string(struct json_reader *reader, struct impel_bytes *text)
{
    const uint8_t *close = reader->at + 1;
    uint8_t *data, *out;

    if (reader->at >= reader->end || *reader->at != '"') {
        return json_wrong(reader, "a string is needed here");
    }
    while (close < reader->end && *close != '"') {
        close += *close == '\\' && close + 1 < reader->end ? 2 : 1;
    }
    if (close >= reader->end) {
        return json_wrong(reader, "the string does not end");
    }
    /* An escape is never shorter than what it stands for. */
    data = out = arena_alloc(reader->arena, (size_t)(close - reader->at));
    if (data == NULL) {
        return error_set(reader->err, IMPEL_ERR_NOMEM, "out of memory");
    }
    reader->at++;
    while (reader->at < close) {
        if (*reader->at < 0x20) {
            return json_wrong(reader, "a control character must be written as \\u00XX");
        }
        if (*reader->at != '\\') {
            *out++ = *reader->at++;
            continue;
        }
        int rc = take_escape(reader, &out);
        if (rc < 0) {
            return rc;
        }
    }
    reader->at = close + 1;
    *text = (struct impel_bytes){data, (size_t)(out - data)};
    return IMPEL_OK;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
bool json_take_number(struct json_reader *reader, struct impel_bytes *text)
{
    const uint8_t *at = reader->at, *end = reader->end;
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
        return false;
    }
    *text = (struct impel_bytes){reader->at, (size_t)(at - reader->at)};
    reader->at = at;
    return true;
}

bool json_take_word(struct json_reader *reader, const char *word, struct impel_bytes *text)
{
    size_t size = strlen(word);

    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size) != 0) {
        return false;
    }
    *text = (struct impel_bytes){reader->at, size};
    reader->at += size;
    return true;
}

/* ---- values that nobody wants ---- */

static int skip_bare(struct json_reader *reader)
{
    struct impel_bytes text;

    return json_take_word(reader, "null", &text) || json_take_word(reader, "true", &text) ||
                   json_take_word(reader, "false", &text) || json_take_number(reader, &text)
               ? IMPEL_OK
               : json_wrong(reader, "a value is needed here");
}

static int skip_value(struct json_reader *reader, int depth);

/* The members of an object, or the items of a list, whose opening bracket is taken. */
static int skip_members(struct json_reader *reader, bool named, int depth)
{
    struct impel_bytes name;

    if (json_take(reader, named ? '}' : ']')) {
        return IMPEL_OK;
    }
    do {
        int rc = named ? json_take_string(reader, &name) : IMPEL_OK;
        if (rc >= 0 && named && !json_take(reader, ':')) {
            rc = json_wrong(reader, "a colon is needed here");
        }
        rc = rc < 0 ? rc : skip_value(reader, depth + 1);
        if (rc < 0) {
            return rc;
        }
    } while (json_take(reader, ','));
    if (!json_take(reader, named ? '}' : ']')) {
        return json_wrong(reader,
                          named ? "a comma or } is needed here" : "a comma or ] is needed here");
    }
    return IMPEL_OK;
}

static int skip_value(struct json_reader *reader, int depth)
{
    struct impel_bytes text;

    json_skip_blanks(reader);
    if (depth >= DEPTH_MAX) {
        return json_wrong(reader, "nested too deeply");
    }
    if (reader->at < reader->end && *reader->at == '"') {
        return json_take_string(reader, &text);
    }
    if (json_take(reader, '{')) {
        return skip_members(reader, true, depth);
    }
    if (json_take(reader, '[')) {
        return skip_members(reader, false, depth);
    }
    return skip_bare(reader);
}

int json_skip(struct json_reader *reader)
{
    int rc = skip_value(reader, 0);

    json_skip_blanks(reader);
    return rc;
}
