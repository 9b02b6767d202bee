/* request.c -- requests in, as a server reads them: arrays of bulks, and inline lines.
 *
 *   *2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n          ECHO hi\r\n
 *
 * What is accepted and what is answered otherwise is Redis's: the end of a header line is its CR,
 * the two bytes after a bulk are not looked at, a count of zero or less is nothing at all. */
#include "resp/resp.h"

#include <ctype.h>
#include <string.h>

enum {
    COUNT_DIGITS_PLAIN = 9, /* so many digits fit whatever they are */
    UNAUTHENTICATED_ARGS_MAX = 10,
    UNAUTHENTICATED_BULK_MAX = 16384,
};

void resp_request_scan_init(struct resp_request_scan *scan, const struct resp_limits *limits)
{
    *scan = (struct resp_request_scan){.limits = *limits};
}

static int refused(struct impel_error *err, const char *why)
{
    return error_set(err, IMPEL_ERR_PROTOCOL, "ERR Protocol error: %s", why);
}

/* What nearly every header is, a few digits and its end, read in one go. False: look closely. */
static bool count_plain(struct impel_bytes input, size_t at, size_t *next, int64_t *count)
{
    const char *digits = (const char *)input.data + at + 1;
    size_t left = input.size - at - 1, size = 0;
    int64_t number = 0;

    while (size < left && size < COUNT_DIGITS_PLAIN && digits[size] >= '0' && digits[size] <= '9') {
        number = number * 10 + (digits[size++] - '0');
    }
    if (size == 0 || (size > 1 && digits[0] == '0') || left < size + 2 || digits[size] != '\r') {
        return false;
    }
    *next = at + 1 + size + 2;
    *count = number;
    return true;
}

/* The number between the type at `at` and the next CR. 1, 0 (not whole yet), IMPEL_ERR_INVALID (it
 * is none) or another failure, which `err` then tells. */
static int count_read(
    struct impel_bytes input, size_t at, size_t *next, int64_t *count, struct impel_error *err)
{
    const char *begin = (const char *)input.data + at;
    size_t size = input.size - at;

    if (count_plain(input, at, next, count)) {
        return 1;
    }
    const char *cr = memchr(begin, '\r', size);

    if (cr == NULL || (size_t)(cr - begin) + 1 == size) {
        if (size > RESP_LINE_MAX) {
            return refused(err, *begin == '*' ? "too big mbulk count string"
                                              : "too big bulk count string");
        }
        return 0;
    }
    *next = at + (size_t)(cr - begin) + 2;
    return resp_number((struct impel_bytes){begin + 1, (size_t)(cr - begin) - 1}, count)
               ? 1
               : IMPEL_ERR_INVALID;
}

static int
scan_count(struct resp_request_scan *scan, struct impel_bytes input, struct impel_error *err)
{
    int64_t count = 0;
    int rc = count_read(input, 0, &scan->at, &count, err);

    if (rc == IMPEL_ERR_INVALID ||
        (rc > 0 && count > 0 && (uint64_t)count > scan->limits.items_max)) {
        return refused(err, "invalid multibulk length");
    }
    if (rc <= 0) {
        return rc;
    }
    if (count > UNAUTHENTICATED_ARGS_MAX && scan->unauthenticated) {
        return refused(err, "unauthenticated multibulk length");
    }
    scan->inside = true;
    scan->left = count > 0 ? (uint64_t)count : 0;
    return 1;
}

static int
scan_argument(struct resp_request_scan *scan, struct impel_bytes input, struct impel_error *err)
{
    size_t next = 0;
    int64_t size = 0;

    if (scan->at >= input.size) {
        return 0;
    }
    char type = ((const char *)input.data)[scan->at];
    if (type != '$') {
        return error_set(err, IMPEL_ERR_PROTOCOL, "ERR Protocol error: expected '$', got '%c'",
                         type == '\r' || type == '\n' ? ' ' : type);
    }
    int rc = count_read(input, scan->at, &next, &size, err);
    if (rc == IMPEL_ERR_INVALID ||
        (rc > 0 && (size < 0 || (uint64_t)size > scan->limits.bulk_max))) {
        return refused(err, "invalid bulk length");
    }
    if (rc <= 0) {
        return rc;
    }
    if (size > UNAUTHENTICATED_BULK_MAX && scan->unauthenticated) {
        return refused(err, "unauthenticated bulk length");
    }
    if ((size_t)size > scan->limits.total_max - next) {
        return error_set(err, IMPEL_ERR_LIMIT, "ERR Protocol error: request of more than %zu bytes",
                         scan->limits.total_max);
    }
    if (input.size < next || input.size - next < (size_t)size + 2) {
        return 0;
    }
    scan->at = next + (size_t)size + 2;
    scan->left--;
    return 1;
}

static int scan_inline(struct resp_request_scan *scan,
                       struct impel_bytes input,
                       size_t *size,
                       struct impel_error *err)
{
    const char *begin = input.data;
    const char *end = memchr(begin + scan->at, '\n', input.size - scan->at);

    if (end == NULL) {
        scan->at = input.size;
        return input.size > RESP_LINE_MAX ? refused(err, "too big inline request") : 0;
    }
    *size = (size_t)(end - begin) + 1;
    scan->at = 0;
    return 1;
}

int resp_scan_request(struct resp_request_scan *scan,
                      struct impel_bytes input,
                      size_t *size,
                      struct impel_error *err)
{
    int rc = 1;

    if (input.size == 0) {
        return 0;
    }
    if (*(const char *)input.data != '*') {
        return scan_inline(scan, input, size, err);
    }
    if (!scan->inside) {
        rc = scan_count(scan, input, err);
    }
    while (rc > 0 && scan->left > 0) {
        rc = scan_argument(scan, input, err);
    }
    if (rc > 0) {
        *size = scan->at;
        scan->at = 0;
        scan->inside = false;
    }
    return rc;
}

/* ---- inline ---- */

static int hex_digit(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* One character inside double quotes; returns how many of the line it took. */
static size_t escape_read(const char *at, const char *end, char *out)
{
    static const char names[] = "nrtba", meant[] = "\n\r\t\b\a";

    if (end - at >= 4 && at[0] == '\\' && at[1] == 'x' && isxdigit((unsigned char)at[2]) &&
        isxdigit((unsigned char)at[3])) {
        *out = (char)(hex_digit(at[2]) * 16 + hex_digit(at[3]));
        return 4;
    }
    if (end - at >= 2 && at[0] == '\\') {
        const char *name = memchr(names, at[1], sizeof(names) - 1);
        *out = (char)(name != NULL ? meant[name - names] : at[1]);
        return 2;
    }
    *out = *at;
    return 1;
}

static bool is_blank(char c)
{
    return isspace((unsigned char)c);
}

/* One word from `*at`, written to `out`; NULL if a quote is not closed as it must be. */
static char *word_read(const char **at, const char *end, char *out)
{
    const char *c = *at;

    while (c < end && !is_blank(*c)) {
        char quote = *c;
        if (quote != '"' && quote != '\'') {
            *out++ = *c++;
            continue;
        }
        for (c++; c < end && *c != quote;) {
            if (quote == '"') {
                c += escape_read(c, end, out++);
            } else {
                c += *c == '\\' && end - c >= 2 && c[1] == '\'';
                *out++ = *c++;
            }
        }
        if (c >= end || (c + 1 < end && !is_blank(c[1]))) {
            return NULL;
        }
        c++;
        break;
    }
    *at = c;
    return out;
}

int resp_split_line(struct impel_bytes line,
                    struct arena *arena,
                    struct impel_bytes **args,
                    size_t *arg_count)
{
    const char *at = line.data, *end = line.size > 0 ? at + line.size : at;
    const char *nul = line.size > 0 ? memchr(at, '\0', line.size) : NULL;
    /* Words are never longer than what they came from, and at least a blank apart. */
    char *out = arena_alloc(arena, line.size + 1);
    struct impel_bytes *words = arena_calloc(arena, line.size / 2 + 1, sizeof(*words));
    size_t count = 0;

    if (out == NULL || words == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    end = nul != NULL ? nul : end;
    for (;;) {
        while (at < end && is_blank(*at)) {
            at++;
        }
        if (at == end) {
            break;
        }
        char *word_end = word_read(&at, end, out);
        if (word_end == NULL) {
            return IMPEL_ERR_PROTOCOL;
        }
        words[count++] = (struct impel_bytes){out, (size_t)(word_end - out)};
        out = word_end;
    }
    *args = words;
    *arg_count = count;
    return IMPEL_OK;
}

static int inline_read(struct impel_bytes line,
                       struct arena *arena,
                       struct impel_bytes **args,
                       size_t *arg_count,
                       struct impel_error *err)
{
    const char *text = line.data;

    line.size -= line.size > 0 && text[line.size - 1] == '\n';
    line.size -= line.size > 0 && text[line.size - 1] == '\r';
    int rc = resp_split_line(line, arena, args, arg_count);
    if (rc == IMPEL_ERR_PROTOCOL) {
        return refused(err, "unbalanced quotes in request");
    }
    return rc < 0 ? error_set(err, rc, "no memory for a request") : rc;
}

int resp_read_request(struct impel_bytes message,
                      struct arena *arena,
                      struct impel_bytes **args,
                      size_t *arg_count,
                      struct impel_error *err)
{
    size_t at = 0;
    int64_t count = 0, size = 0;

    if (message.size == 0 || *(const char *)message.data != '*') {
        return inline_read(message, arena, args, arg_count, err);
    }
    if (count_read(message, 0, &at, &count, err) != 1) {
        return refused(err, "invalid multibulk length");
    }
    *arg_count = count > 0 ? (size_t)count : 0;
    if (*arg_count > message.size / 5) {
        return refused(err, "invalid multibulk length");
    }
    *args = arena_calloc(arena, *arg_count + 1, sizeof(**args));
    if (*args == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a request");
    }
    for (size_t i = 0; i < *arg_count; i++) {
        if (at >= message.size || count_read(message, at, &at, &size, err) != 1 || size < 0 ||
            at > message.size || message.size - at < (size_t)size + 2) {
            return refused(err, "invalid bulk length");
        }
        (*args)[i] = (struct impel_bytes){(const char *)message.data + at, (size_t)size};
        at += (size_t)size + 2;
    }
    return IMPEL_OK;
}
