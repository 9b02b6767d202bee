/* read_words.c -- the scanner of XREAD and XREADGROUP.
 *
 *   XREAD [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms] STREAMS key [key ...] id [id ...]
 *   XREADGROUP GROUP group consumer [COUNT n] [MAXCOUNT n] [MAXSIZE bytes] [BLOCK ms]
 *              [CLAIM min-idle] [NOACK] STREAMS key [key ...] id [id ...]
 *
 * One scanner for both, as their errors show: XREAD knows the words of XREADGROUP, and says so. */
#include "store/lmdb/command/read_words.h"

static bool read_block(struct call *call, size_t index, struct read_words *words, int64_t now_ms)
{
    if (!word_integer(call->args[index], &words->block_ms)) {
        return call_error(call, "ERR timeout is not an integer or out of range");
    }
    if (words->block_ms < 0) {
        return call_error(call, "ERR timeout is negative");
    }
    if (words->block_ms > INT64_MAX - now_ms) {
        return call_error(call, "ERR timeout is out of range");
    }
    words->block = true;
    return true;
}

static bool read_count(struct call *call, size_t index, struct read_words *words)
{
    int64_t count;

    if (!call_integer(call, index, &count)) {
        return false;
    }
    words->count = count <= 0 ? UINT64_MAX : (uint64_t)count;
    return true;
}

/* MAXCOUNT and MAXSIZE. */
static bool read_limit(struct call *call, size_t index, const char *word, uint64_t *limit)
{
    int64_t number;

    if (!call_integer(call, index, &number)) {
        return false;
    }
    *limit = (uint64_t)number;
    return number > 0 || call_error(call, "ERR %s must be a positive integer", word);
}

static bool read_claim(struct call *call, size_t index, struct read_words *words)
{
    if (!word_integer(call->args[index], &words->min_idle_ms)) {
        return call_error(call, "ERR min-idle-time is not an integer or out of range");
    }
    words->claim = true;
    return words->min_idle_ms >= 0 ||
           call_error(call, "ERR min-idle-time must be a positive integer");
}

static bool error_group_only(struct call *call, const char *word)
{
    return call_error(
        call, "ERR The %s option is only supported by XREADGROUP. You called XREAD instead.", word);
}

static bool read_streams(struct call *call, size_t first, struct read_words *words)
{
    size_t count = call->arg_count - first;

    if (count % 2 != 0) {
        return words->grouped
                   ? call_error(call,
                                "ERR Unbalanced 'xreadgroup' list of streams: for each stream "
                                "key an ID or '>' must be specified.")
                   : call_error(call, "ERR Unbalanced 'xread' list of streams: for each stream key "
                                      "an ID, '+', or '$' must be specified.");
    }
    words->stream_first = first;
    words->stream_count = count / 2;
    return true;
}

/* Takes the word at `*index` with its values; `*index` is then the next one's. */
static bool read_option(struct call *call, size_t *index, struct read_words *words, int64_t now_ms)
{
    size_t at = *index;
    size_t left = call->arg_count - at - 1;

    if (call_word_is(call, at, "BLOCK") && left >= 1) {
        *index += 2;
        return read_block(call, at + 1, words, now_ms);
    }
    if (call_word_is(call, at, "COUNT") && left >= 1) {
        *index += 2;
        return read_count(call, at + 1, words);
    }
    if (call_word_is(call, at, "MAXCOUNT") && left >= 1) {
        *index += 2;
        return read_limit(call, at + 1, "MAXCOUNT", &words->count_max);
    }
    if (call_word_is(call, at, "MAXSIZE") && left >= 1) {
        *index += 2;
        return read_limit(call, at + 1, "MAXSIZE", &words->bytes_max);
    }
    if (call_word_is(call, at, "CLAIM") && left >= 1) {
        *index += 2;
        return words->grouped ? read_claim(call, at + 1, words) : error_group_only(call, "CLAIM");
    }
    if (call_word_is(call, at, "GROUP") && left >= 2) {
        *index += 3;
        words->group = call->args[at + 1];
        words->consumer = call->args[at + 2];
        return words->grouped || error_group_only(call, "GROUP");
    }
    if (call_word_is(call, at, "NOACK")) {
        *index += 1;
        words->no_ack = true;
        return words->grouped || error_group_only(call, "NOACK");
    }
    return call_error_syntax(call);
}

bool read_words_parse(struct call *call, struct read_words *words, int64_t now_ms)
{
    bool group_missing = words->grouped;

    words->count = words->count_max = words->bytes_max = UINT64_MAX;
    for (size_t i = 1; i < call->arg_count && words->stream_first == 0;) {
        if (call_word_is(call, i, "STREAMS") && i + 1 < call->arg_count) {
            if (!read_streams(call, i + 1, words)) {
                return false;
            }
            continue;
        }
        group_missing = group_missing && !call_word_is(call, i, "GROUP");
        if (!read_option(call, &i, words, now_ms)) {
            return false;
        }
    }
    if (words->stream_first == 0) {
        return call_error_syntax(call);
    }
    if (words->count != UINT64_MAX && words->count_max < words->count) {
        return call_error(call, "ERR MAXCOUNT must not be less than COUNT");
    }
    return !group_missing || call_error(call, "ERR Missing GROUP option for XREADGROUP");
}
