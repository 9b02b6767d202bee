/* reply.c -- replies in: find the end of a message, then make a tree of it.
 *
 * Both passes read the same lines:
 *
 *   +text  -text  :number  _  #t  ,1.5  (123            one line is the whole value
 *   $size  =size  !size      then `size` bytes and CR LF
 *   *count %pairs ~count >count |pairs                  then that many values
 *
 * An attribute (|) stands before the value it belongs to and takes no place of its own. */
#include "resp/resp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void resp_limits_default(struct resp_limits *limits)
{
    *limits = (struct resp_limits){
        .bulk_max = RESP_BULK_MAX,
        .items_max = RESP_ITEMS_MAX,
        .total_max = (size_t)1024 * 1024 * 1024,
    };
}

void resp_scan_init(struct resp_scan *scan, const struct resp_limits *limits)
{
    *scan = (struct resp_scan){.limits = *limits};
}

bool resp_number(struct impel_bytes text, int64_t *out)
{
    const char *digit = text.data;
    const char *end = digit + text.size;
    bool negative = text.size > 0 && *digit == '-';
    uint64_t number = 0;

    digit += negative;
    if (digit == end || (*digit == '0' && (end - digit > 1 || negative))) {
        return false;
    }
    for (; digit < end; digit++) {
        unsigned ten = (unsigned)(*digit - '0');
        if (ten > 9 || number > (UINT64_MAX - ten) / 10) {
            return false;
        }
        number = number * 10 + ten;
    }
    if (number > (uint64_t)INT64_MAX + negative) {
        return false;
    }
    *out = negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

/* What one line says. */
struct line {
    char type;
    struct impel_bytes text; /* after the type, without CR LF */
    int64_t number;          /* of the types that announce a size or a count; -1 = null */
};

enum line_shape {
    SHAPE_LINE,  /* the line is all */
    SHAPE_BYTES, /* `number` bytes follow */
    SHAPE_ITEMS, /* `number` values follow */
    SHAPE_PAIRS, /* twice as many */
    SHAPE_NONE,  /* not a type */
};

static enum line_shape line_shape(char type)
{
    switch (type) {
    case '+':
    case '-':
    case ':':
    case '_':
    case '#':
    case ',':
    case '(':
        return SHAPE_LINE;
    case '$':
    case '=':
    case '!':
        return SHAPE_BYTES;
    case '*':
    case '~':
    case '>':
        return SHAPE_ITEMS;
    case '%':
    case '|':
        return SHAPE_PAIRS;
    default:
        return SHAPE_NONE;
    }
}

static int line_bad(const struct line *line, struct impel_error *err)
{
    char quoted[64];

    return error_set(err, IMPEL_ERR_PROTOCOL, "not a RESP reply: '%c%s'", line->type,
                     bytes_quote(line->text, quoted, sizeof(quoted)));
}

/* The line at `at`. 1 and where the next one begins, 0 if it is not whole yet, or a failure. */
static int line_read(
    struct impel_bytes input, size_t at, struct line *line, size_t *next, struct impel_error *err)
{
    const char *begin = (const char *)input.data + at;
    size_t size = input.size - at;

    if (size == 0) {
        return 0;
    }
    line->type = *begin;
    line->text = (struct impel_bytes){begin + 1, 0};
    enum line_shape shape = line_shape(line->type);
    if (shape == SHAPE_NONE) {
        const char *stop = memchr(begin, '\n', size < 40 ? size : 40);
        line->text.size = stop != NULL ? (size_t)(stop - begin - (stop > begin)) : 0;
        return line_bad(line, err);
    }
    const char *cr = memchr(begin, '\r', size < RESP_LINE_MAX ? size : RESP_LINE_MAX);
    if (cr == NULL && size >= RESP_LINE_MAX) {
        return error_set(err, IMPEL_ERR_LIMIT, "a line of more than %d bytes", RESP_LINE_MAX);
    }
    if (cr == NULL || (size_t)(cr - begin) + 1 == size) {
        return 0;
    }
    line->text.size = (size_t)(cr - begin) - 1;
    *next = at + (size_t)(cr - begin) + 2;
    if (cr[1] != '\n') {
        return line_bad(line, err);
    }
    line->number = 0;
    if ((shape != SHAPE_LINE || line->type == ':') && !resp_number(line->text, &line->number)) {
        return line_bad(line, err);
    }
    bool null_allowed = line->type == '$' || line->type == '*';
    if (shape != SHAPE_LINE && line->number < (null_allowed ? -1 : 0)) {
        return line_bad(line, err);
    }
    return 1;
}

/* A value is over: so may be the aggregates that it was the last element of. True if that was the
 * outermost. */
static bool scan_ended(struct resp_scan *scan)
{
    while (scan->depth > 0) {
        unsigned top = scan->depth - 1;
        if (scan->left[top] > 1) {
            scan->left[top]--;
            return false;
        }
        scan->depth = top;
        if (scan->attribute[top]) {
            return false; /* the value it belongs to is still to come */
        }
    }
    return true;
}

/* An aggregate begins. 1 if it was empty and the whole message is over with it. */
static int scan_opened(struct resp_scan *scan, const struct line *line, struct impel_error *err)
{
    bool pairs = line_shape(line->type) == SHAPE_PAIRS;
    uint64_t count = line->number < 0 ? 0 : (uint64_t)line->number;

    if (count > scan->limits.items_max / (pairs ? 2 : 1)) {
        return error_set(err, IMPEL_ERR_LIMIT, "an array of %llu elements",
                         (unsigned long long)count);
    }
    if (count == 0) {
        return line->type != '|' && scan_ended(scan);
    }
    if (scan->depth == RESP_DEPTH_MAX) {
        return error_set(err, IMPEL_ERR_LIMIT, "arrays nested more than %d deep", RESP_DEPTH_MAX);
    }
    scan->left[scan->depth] = pairs ? count * 2 : count;
    scan->attribute[scan->depth] = line->type == '|';
    scan->depth++;
    return 0;
}

/* One value further. 1: the message is over; 0: go on; 2: bytes are missing. */
static int scan_step(struct resp_scan *scan, struct impel_bytes input, struct impel_error *err)
{
    struct line line;
    size_t next = 0;
    int rc = line_read(input, scan->at, &line, &next, err);

    if (rc <= 0) {
        return rc < 0 ? rc : 2;
    }
    switch (line_shape(line.type)) {
    case SHAPE_BYTES:
        if (line.number > 0 && (uint64_t)line.number > scan->limits.bulk_max) {
            return error_set(err, IMPEL_ERR_LIMIT, "a bulk of %lld bytes", (long long)line.number);
        }
        if (line.number >= 0) {
            size_t size = (size_t)line.number;
            if (size > scan->limits.total_max - next) {
                return error_set(err, IMPEL_ERR_LIMIT, "a reply of more than %zu bytes",
                                 scan->limits.total_max);
            }
            if (input.size - next < size + 2) {
                return 2;
            }
            if (memcmp((const char *)input.data + next + size, "\r\n", 2) != 0) {
                return error_set(err, IMPEL_ERR_PROTOCOL, "a bulk without its end of line");
            }
            next += size + 2;
        }
        break;
    case SHAPE_ITEMS:
    case SHAPE_PAIRS:
        scan->at = next;
        return scan_opened(scan, &line, err);
    default:
        break;
    }
    scan->at = next;
    return scan_ended(scan);
}

int resp_scan_reply(struct resp_scan *scan,
                    struct impel_bytes input,
                    size_t *size,
                    struct impel_error *err)
{
    for (;;) {
        if (scan->at > scan->limits.total_max) {
            return error_set(err, IMPEL_ERR_LIMIT, "a reply of more than %zu bytes",
                             scan->limits.total_max);
        }
        int rc = scan_step(scan, input, err);
        if (rc == 1) {
            *size = scan->at;
            scan->at = 0;
            return 1;
        }
        if (rc != 0) {
            return rc < 0 ? rc : 0;
        }
    }
}

/* ---- the tree ---- */

struct reading {
    struct impel_bytes message;
    size_t at;
    struct arena *arena;
    struct impel_error *err;
};

/* strtod() wants a NUL at the end; no number that a server writes is longer than this. */
static bool double_read(struct impel_bytes text, double *out)
{
    char copy[400];
    char *end;

    if (text.size == 0 || text.size >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    *out = strtod(copy, &end);
    return end == copy + text.size;
}

static int simple_read(const struct line *line, struct value *out)
{
    out->bytes = line->text;
    switch (line->type) {
    case '+':
        out->kind = VALUE_STATUS;
        return 1;
    case '-':
        out->kind = VALUE_ERROR;
        return 1;
    case ':':
        *out = (struct value){.kind = VALUE_INTEGER, .integer = line->number};
        return 1;
    case '_':
        *out = (struct value){.kind = VALUE_NULL};
        return line->text.size == 0;
    case '(':
        out->kind = VALUE_BIG_NUMBER;
        return 1;
    case '#':
        *out = (struct value){.kind = VALUE_BOOLEAN};
        out->integer = bytes_equal(line->text, bytes_of("t"));
        return out->integer || bytes_equal(line->text, bytes_of("f"));
    default:
        *out = (struct value){.kind = VALUE_DOUBLE};
        return double_read(line->text, &out->number);
    }
}

static int bulk_read(struct reading *in, const struct line *line, struct value *out)
{
    if (line->number < 0) {
        out->kind = VALUE_NULL;
        return 1;
    }
    out->bytes =
        (struct impel_bytes){(const char *)in->message.data + in->at, (size_t)line->number};
    in->at += (size_t)line->number + 2;
    out->kind = line->type == '!' ? VALUE_ERROR : VALUE_BULK;
    if (line->type == '=') {
        out->kind = VALUE_VERBATIM;
        if (out->bytes.size < 4 || ((const char *)out->bytes.data)[3] != ':') {
            return 0;
        }
        out->bytes.data = (const char *)out->bytes.data + 4;
        out->bytes.size -= 4;
    }
    return 1;
}

static int value_read(struct reading *in, unsigned depth, struct value *out);

static int
items_read(struct reading *in, const struct line *line, unsigned depth, struct value *out)
{
    if (line->number < 0) {
        out->kind = VALUE_NULL_ARRAY;
        return 1;
    }
    out->kind = line->type == '%'   ? VALUE_MAP
                : line->type == '~' ? VALUE_SET
                : line->type == '>' ? VALUE_PUSH
                                    : VALUE_ARRAY;
    out->item_count = (size_t)line->number * (line->type == '%' ? 2 : 1);
    /* An element has at least three bytes, so a whole message cannot lie about its count. */
    if (depth == RESP_DEPTH_MAX || out->item_count > in->message.size / 3) {
        return 0;
    }
    /* Not cleared: each element is written whole, and none is looked at before. */
    out->items = arena_alloc(in->arena, (out->item_count + 1) * sizeof(*out->items));
    if (out->items == NULL) {
        return error_set(in->err, IMPEL_ERR_NOMEM, "no memory for a reply of %zu bytes",
                         in->message.size);
    }
    for (size_t i = 0; i < out->item_count; i++) {
        int rc = value_read(in, depth + 1, &out->items[i]);
        if (rc < 0) {
            return rc;
        }
    }
    return 1;
}

/* The pairs of an attribute are read like any others and forgotten. */
static int attribute_skip(struct reading *in, const struct line *line, unsigned depth)
{
    struct value ignored;

    for (int64_t i = 0; i < line->number * 2; i++) {
        int rc = value_read(in, depth + 1, &ignored);
        if (rc < 0) {
            return rc;
        }
    }
    return 1;
}

static int value_read(struct reading *in, unsigned depth, struct value *out)
{
    struct line line = {.type = '?'};
    int rc;

    *out = (struct value){.kind = VALUE_NULL};
    do {
        size_t next = in->at;
        rc = depth > RESP_DEPTH_MAX ? 0 : line_read(in->message, in->at, &line, &next, in->err);
        if (rc > 0) {
            in->at = next;
            rc = line.type == '|' ? attribute_skip(in, &line, depth) : 1;
        }
    } while (rc > 0 && line.type == '|');
    if (rc > 0) {
        enum line_shape shape = line_shape(line.type);
        rc = shape == SHAPE_LINE    ? simple_read(&line, out)
             : shape == SHAPE_BYTES ? bulk_read(in, &line, out)
                                    : items_read(in, &line, depth, out);
    }
    return rc == 0 ? line_bad(&line, in->err) : rc;
}

int resp_read_reply(struct impel_bytes message,
                    struct arena *arena,
                    struct value *out,
                    struct impel_error *err)
{
    struct reading in = {.message = message, .arena = arena, .err = err};

    int rc = value_read(&in, 0, out);
    return rc < 0 ? rc : IMPEL_OK;
}
