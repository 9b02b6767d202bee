/* jsonl.c -- one line of JSON into the fields of an entry.
 *
 * Strict: what RFC 8259 does not allow is refused. A name that stands twice is a field that
 * repeats, so nothing is dropped. Lists inside lists, other objects and null have no meaning as a
 * field's value and are refused with the place where they stand. */
#include "cli/jsonl.h"

#include "base/json_read.h"

#include <string.h>

struct parser {
    struct json_reader json;
    struct impel_field *fields;
    size_t field_count, field_capacity;
};

static int no_memory(const struct parser *parser)
{
    return error_set(parser->json.err, IMPEL_ERR_NOMEM, "out of memory");
}

static int decode(struct parser *parser, struct impel_bytes text, struct impel_bytes *bytes)
{
    struct buf buf;
    int rc = IMPEL_OK;

    buf_init(&buf, text.size + 3);
    if (!base64_decode(&buf, text)) {
        rc = buf.failed ? no_memory(parser) : json_wrong(&parser->json, "this is not base64");
    } else if (!arena_copy(parser->json.arena, buf_bytes(&buf), bytes)) {
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

    if (!json_take(&parser->json, '{')) {
        return json_wrong(&parser->json, "an object is needed here");
    }
    rc = json_take_string(&parser->json, &name);
    if (rc < 0 || !bytes_equal(name, bytes_of("base64")) || !json_take(&parser->json, ':')) {
        return json_wrong(&parser->json, "a value may be no object, except {\"base64\":\"...\"}");
    }
    rc = json_take_string(&parser->json, &text);
    if (rc < 0) {
        return rc;
    }
    if (!json_take(&parser->json, '}')) {
        return json_wrong(&parser->json, "{\"base64\":\"...\"} has nothing else in it");
    }
    return decode(parser, text, bytes);
}

/* A number, true or false: its text. */
static int take_bare(struct parser *parser, struct impel_bytes *bytes)
{
    struct impel_bytes text = {0};

    if (json_take_word(&parser->json, "null", &text)) {
        parser->json.at -= text.size;
        return json_wrong(&parser->json,
                          "null is no value that a field could have; leave the field out");
    }
    if (!json_take_word(&parser->json, "true", &text) &&
        !json_take_word(&parser->json, "false", &text)) {
        if (!json_take_number(&parser->json, &text)) {
            return json_wrong(&parser->json,
                              "a value is needed here: a string, a number, true, false, a list or "
                              "{\"base64\":\"...\"}");
        }
    }
    return arena_copy(parser->json.arena, text, bytes) ? IMPEL_OK : no_memory(parser);
}

static int take_scalar(struct parser *parser, struct impel_bytes *bytes)
{
    uint8_t first;
    int rc;

    json_skip_blanks(&parser->json);
    first = parser->json.at < parser->json.end ? *parser->json.at : 0;
    if (first == '"') {
        rc = json_take_string(&parser->json, bytes);
    } else if (first == '{') {
        rc = take_bytes(parser, bytes);
    } else {
        rc = take_bare(parser, bytes);
    }
    json_skip_blanks(&parser->json);
    return rc;
}

/* ---- fields ---- */

static int add_field(struct parser *parser, struct impel_bytes name, struct impel_bytes value)
{
    if (parser->field_count == parser->field_capacity) {
        size_t capacity = parser->field_capacity == 0 ? 16 : parser->field_capacity * 2;
        struct impel_field *fields = arena_calloc(parser->json.arena, capacity, sizeof(*fields));
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

    if (json_take(&parser->json, ']')) {
        return json_wrong(&parser->json, "an empty list is no value; leave the field out");
    }
    do {
        if (parser->json.at < parser->json.end && *parser->json.at == '[') {
            return json_wrong(&parser->json, "a list may not stand in a list");
        }
        int rc = take_scalar(parser, &value);
        if (rc >= 0) {
            rc = add_field(parser, name, value);
        }
        if (rc < 0) {
            return rc;
        }
    } while (json_take(&parser->json, ','));
    return json_take(&parser->json, ']') ? IMPEL_OK
                                         : json_wrong(&parser->json, "a comma or ] is needed here");
}

static int take_member(struct parser *parser)
{
    static const char prefix[] = "base64:";
    struct impel_bytes name = {0}, value = {0};
    int rc = json_take_string(&parser->json, &name);

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
    if (!json_take(&parser->json, ':')) {
        return json_wrong(&parser->json, "a colon is needed here");
    }
    if (json_take(&parser->json, '[')) {
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
    struct parser parser = {0};

    json_reader_init(&parser.json, line, arena, err);
    if (!utf8_valid(line)) {
        return json_wrong(&parser.json,
                          "not UTF-8; bytes that are no text go into {\"base64\":\"...\"}");
    }
    if (!json_take(&parser.json, '{')) {
        return json_wrong(&parser.json, "a JSON object is needed: {\"field\":\"value\"}");
    }
    if (json_take(&parser.json, '}')) {
        return json_wrong(&parser.json, "an entry needs at least one field");
    }
    do {
        int rc = take_member(&parser);
        if (rc < 0) {
            return rc;
        }
    } while (json_take(&parser.json, ','));
    if (!json_take(&parser.json, '}')) {
        return json_wrong(&parser.json, "a comma or } is needed here");
    }
    if (parser.json.at != parser.json.end) {
        return json_wrong(&parser.json, "something follows the object");
    }
    *fields = parser.fields;
    *field_count = parser.field_count;
    return IMPEL_OK;
}
