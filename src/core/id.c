/* id.c -- entry IDs: ordering, text, parsing.
 *
 * Parsing accepts what Redis accepts, odd forms included: a client that has always written "05-1"
 * or "+5-1" goes on working. Words that stand for an ID elsewhere ("-", "+", "$", ">", "*") belong
 * to the commands that know them and are not handled here. */
#include "core/id.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORD_SIZE_MAX = 127, /* a longer word is no ID, whatever stands in it */
    DIGITS_PLAIN = 18,   /* so many digits fit 63 bits whatever they are */
};

int id_compare(struct impel_id a, struct impel_id b)
{
    if (a.ms != b.ms) {
        return a.ms < b.ms ? -1 : 1;
    }
    return (a.seq > b.seq) - (a.seq < b.seq);
}

bool id_equal(struct impel_id a, struct impel_id b)
{
    return a.ms == b.ms && a.seq == b.seq;
}

bool id_is_zero(struct impel_id id)
{
    return id.ms == 0 && id.seq == 0;
}

bool id_next(struct impel_id *id)
{
    if (id->seq == UINT64_MAX && id->ms == UINT64_MAX) {
        return false;
    }
    id->seq++;
    id->ms += id->seq == 0;
    return true;
}

bool id_previous(struct impel_id *id)
{
    if (id_is_zero(*id)) {
        return false;
    }
    id->ms -= id->seq == 0;
    id->seq--;
    return true;
}

/* Writes a number; returns what is behind it. Every reply has IDs: printf would be a tenth of it. */
static char *number_write(char *at, uint64_t number)
{
    char digits[20];
    size_t size = 0;

    do {
        digits[size++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (size > 0) {
        *at++ = digits[--size];
    }
    return at;
}

const char *id_format(struct impel_id id, char *text)
{
    char *at = number_write(text, id.ms);

    *at++ = '-';
    *number_write(at, id.seq) = '\0';
    return text;
}

/* Digits from `at` on, as many as fit any number; returns what is behind them. */
static const char *digits_read(const char *at, const char *end, uint64_t *out)
{
    uint64_t number = 0;

    end = end - at > DIGITS_PLAIN ? at + DIGITS_PLAIN : end;
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        number = number * 10 + (uint64_t)(*at - '0');
    }
    *out = number;
    return at;
}

/* An ID as nearly everybody writes it: digits, and perhaps a dash and digits. False: look closely. */
static bool id_plain(struct impel_bytes text, uint64_t seq_default, struct impel_id *out)
{
    const char *begin = text.data, *end = begin + text.size;
    struct impel_id id = {0, seq_default};
    const char *at = digits_read(begin, end, &id.ms);

    if (at == begin) {
        return false;
    }
    if (at < end && *at == '-') {
        begin = at + 1;
        at = digits_read(begin, end, &id.seq);
    }
    if (at < end || at == begin) {
        return false;
    }
    *out = id;
    return true;
}

/* "-1" is refused, yet "-01" is taken and wraps: Redis tries canonical signed decimals first, and
 * leaves all else to strtoull. */
static bool number_canonical_negative(const char *text)
{
    if (text[0] != '-' || text[1] < '1' || text[1] > '9') {
        return false;
    }
    errno = 0;
    char *end = NULL;
    (void)strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

static bool number_parse(const char *text, uint64_t *out)
{
    if (text[0] == '\0' || number_canonical_negative(text)) {
        return false;
    }
    errno = 0;
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0') {
        return false;
    }
    *out = number;
    return true;
}

int id_parse(struct impel_bytes text, uint64_t seq_default, struct impel_id *out)
{
    char word[WORD_SIZE_MAX + 1];
    struct impel_id id = {0, seq_default};

    if (text.size == 0 || text.size > WORD_SIZE_MAX) {
        return IMPEL_ERR_INVALID;
    }
    if (id_plain(text, seq_default, out)) {
        return IMPEL_OK;
    }
    memcpy(word, text.data, text.size);
    word[text.size] = '\0';
    char *dash = strchr(word, '-');
    if (dash != NULL) {
        *dash = '\0';
        if (!number_parse(dash + 1, &id.seq)) {
            return IMPEL_ERR_INVALID;
        }
    }
    if (!number_parse(word, &id.ms)) {
        return IMPEL_ERR_INVALID;
    }
    *out = id;
    return IMPEL_OK;
}
