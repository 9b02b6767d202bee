/* words.c -- reading the words of a command: integers, IDs, intervals.
 *
 * Integers are strict while the numbers inside IDs are sloppy (leading zeros, a plus sign): clients
 * see the difference, so both are kept. */
#include "core/id.h"
#include "store/lmdb/command/call.h"

#include <string.h>

bool call_word_is(const struct call *call, size_t index, const char *word)
{
    return index < call->arg_count && bytes_equal_nocase(call->args[index], word);
}

bool word_integer(struct impel_bytes word, int64_t *out)
{
    const char *text = word.data;
    bool negative = word.size > 0 && text[0] == '-';
    size_t i = negative ? 1 : 0;
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    uint64_t number = 0;

    if (word.size == 1 && text[0] == '0') {
        *out = 0;
        return true;
    }
    if (i == word.size || text[i] < '1' || text[i] > '9') {
        return false;
    }
    for (; i < word.size; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (number > (limit - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    *out = negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

bool call_integer(struct call *call, size_t index, int64_t *out)
{
    return word_integer(call->args[index], out) || call_error_integer(call);
}

bool call_error_id(struct call *call)
{
    return call_error(call, "ERR Invalid stream ID specified as stream command argument");
}

bool word_id(struct impel_bytes word, uint64_t seq_default, struct impel_id *out)
{
    return id_parse(word, seq_default, out) >= 0;
}

bool call_id(struct call *call, size_t index, uint64_t seq_default, struct impel_id *out)
{
    return word_id(call->args[index], seq_default, out) || call_error_id(call);
}

static bool word_id_loose(struct impel_bytes word, uint64_t seq_default, struct impel_id *out)
{
    if (bytes_equal(word, bytes_of("-"))) {
        *out = ID_MIN;
        return true;
    }
    if (bytes_equal(word, bytes_of("+"))) {
        *out = ID_MAX;
        return true;
    }
    return word_id(word, seq_default, out);
}

bool call_id_loose(struct call *call, size_t index, uint64_t seq_default, struct impel_id *out)
{
    return word_id_loose(call->args[index], seq_default, out) || call_error_id(call);
}

/* Reads one bound. An exclusive bound is parsed strictly, and `*exclusive` tells the caller to move
 * it inward, after the completion of the seq. */
static bool
interval_bound(struct call *call, size_t index, uint64_t seq, struct impel_id *out, bool *exclusive)
{
    struct impel_bytes word = call->args[index];
    const char *text = word.data;

    *exclusive = word.size > 1 && text[0] == '(';
    if (*exclusive) {
        word = (struct impel_bytes){text + 1, word.size - 1};
        return word_id(word, seq, out) || call_error_id(call);
    }
    return call_id_loose(call, index, seq, out);
}

bool call_interval_start(struct call *call, size_t index, struct impel_id *out)
{
    bool exclusive;

    if (!interval_bound(call, index, 0, out, &exclusive)) {
        return false;
    }
    if (exclusive && !id_next(out)) {
        return call_error(call, "ERR invalid start ID for the interval");
    }
    return true;
}

bool call_interval_end(struct call *call, size_t index, struct impel_id *out)
{
    bool exclusive;

    if (!interval_bound(call, index, UINT64_MAX, out, &exclusive)) {
        return false;
    }
    if (exclusive && !id_previous(out)) {
        return call_error(call, "ERR invalid end ID for the interval");
    }
    return true;
}

/* The IDs of `count` words from `first` on. */
static struct impel_id *ids_read(struct call *call, size_t first, size_t count)
{
    struct impel_id *ids = arena_calloc(call->arena, count, sizeof(*ids));

    if (ids == NULL) {
        call_fail(call, IMPEL_ERR_NOMEM);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (!call_id(call, first + i, 0, &ids[i])) {
            return NULL;
        }
    }
    return ids;
}

struct impel_id *call_ids(struct call *call, size_t first)
{
    return ids_read(call, first, call->arg_count - first);
}

struct impel_id *
call_numbered_ids(struct call *call, size_t *index, const struct ids_errors *errors, size_t *count)
{
    size_t first = *index + 2;
    int64_t number = 0;

    if (!word_integer(call->args[first - 1], &number) || number < 1) {
        call_error(call, "%s", errors->number);
        return NULL;
    }
    if ((uint64_t)number > call->arg_count - first) {
        call_error(call, "%s", errors->too_few);
        return NULL;
    }
    *count = (size_t)number;
    *index = first + *count;
    return ids_read(call, first, *count);
}
