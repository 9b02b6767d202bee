/* trim.c -- XTRIM, and the trimming words of XADD.
 *
 *   XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT n] [KEEPREF|DELREF|ACKED]
 *
 * The words are looked at one by one from left to right, and the first bad one decides the error;
 * what depends on several words is checked after the last. */
#include "store/lmdb/command/trim.h"

#include "store/lmdb/command/commands.h"
#include "store/lmdb/txn.h"

enum {
    LIMIT_NODES = 100, /* what ~ removes at most where no LIMIT is given: a hundred full nodes */
    LIMIT_DEFAULT = 10000, /* ... where a node may have any number */
    LIMIT_MAX = 1000000,
};

static int64_t limit_default(const struct call *call)
{
    uint64_t entries_max = call->txn->node_entries_max;

    if (entries_max == UINT32_MAX) { /* no limit: lmdb_node_limits() */
        return LIMIT_DEFAULT;
    }
    return entries_max > LIMIT_MAX / LIMIT_NODES ? LIMIT_MAX : (int64_t)entries_max * LIMIT_NODES;
}

static enum trim_word read_threshold(struct call *call, struct trim_words *words, size_t *index)
{
    bool by_length = call_word_is(call, *index, "MAXLEN");
    size_t at = *index + 1;

    if (words->strategy != TRIM_NONE) {
        call_error(call, "ERR syntax error, MAXLEN and MINID options at the same time are not "
                         "compatible");
        return TRIM_WORD_ERROR;
    }
    words->strategy = by_length ? TRIM_MAXLEN : TRIM_MINID;
    if (at + 1 < call->arg_count) {
        words->approximate = call_word_is(call, at, "~");
        at += words->approximate || call_word_is(call, at, "=") ? 1 : 0;
    }
    if (by_length && !call_integer(call, at, &words->length_max)) {
        return TRIM_WORD_ERROR;
    }
    if (by_length && words->length_max < 0) {
        call_error(call, "ERR The MAXLEN argument must be >= 0.");
        return TRIM_WORD_ERROR;
    }
    if (!by_length && !call_id(call, at, 0, &words->id_min)) {
        return TRIM_WORD_ERROR;
    }
    *index = at + 1;
    return TRIM_WORD_TAKEN;
}

static enum trim_word read_limit(struct call *call, struct trim_words *words, size_t *index)
{
    if (!call_integer(call, *index + 1, &words->limit)) {
        return TRIM_WORD_ERROR;
    }
    if (words->limit < 0) {
        call_error(call, "ERR The LIMIT argument must be >= 0.");
        return TRIM_WORD_ERROR;
    }
    words->limit_given = true;
    *index += 2;
    return TRIM_WORD_TAKEN;
}

bool refs_word(const struct call *call, size_t index, enum lmdb_refs *refs)
{
    static const char *const names[] = {
        [LMDB_REFS_KEEP] = "KEEPREF", [LMDB_REFS_DELETE] = "DELREF", [LMDB_REFS_ACKED] = "ACKED"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (call_word_is(call, index, names[i])) {
            *refs = (enum lmdb_refs)i;
            return true;
        }
    }
    return false;
}

static enum trim_word read_refs(struct call *call, struct trim_words *words, size_t *index)
{
    if (words->refs_given) {
        call_error_syntax(call);
        return TRIM_WORD_ERROR;
    }
    words->refs_given = true;
    ++*index;
    return TRIM_WORD_TAKEN;
}

enum trim_word trim_word_read(struct call *call, struct trim_words *words, size_t *index)
{
    enum lmdb_refs refs;

    if (refs_word(call, *index, &refs)) {
        enum trim_word taken = read_refs(call, words, index);
        words->refs = refs;
        return taken;
    }
    if (*index + 1 >= call->arg_count) {
        return TRIM_WORD_OTHER;
    }
    if (call_word_is(call, *index, "MAXLEN") || call_word_is(call, *index, "MINID")) {
        return read_threshold(call, words, index);
    }
    if (call_word_is(call, *index, "LIMIT")) {
        return read_limit(call, words, index);
    }
    return TRIM_WORD_OTHER;
}

bool trim_words_check(struct call *call, struct trim_words *words, bool required)
{
    if (words->limit > 0 && words->strategy == TRIM_NONE) {
        return call_error(call, "ERR syntax error, LIMIT cannot be used without specifying a "
                                "trimming strategy");
    }
    if (required && words->strategy == TRIM_NONE) {
        return call_error(call, "ERR syntax error, XTRIM must be called with a trimming strategy");
    }
    if (words->limit_given && !words->approximate) {
        return call_error(call, "ERR syntax error, LIMIT cannot be used without the special ~ "
                                "option");
    }
    if (!words->limit_given && words->approximate) {
        words->limit = limit_default(call);
    }
    return true;
}

static bool xtrim_parse(struct call *call, struct trim_words *words)
{
    for (size_t i = 2; i < call->arg_count;) {
        switch (trim_word_read(call, words, &i)) {
        case TRIM_WORD_TAKEN:
            break;
        case TRIM_WORD_OTHER:
            return call_error_syntax(call);
        case TRIM_WORD_ERROR:
            return false;
        }
    }
    return trim_words_check(call, words, true);
}

bool trim_apply(struct call *call,
                struct lmdb_stream *stream,
                const struct trim_words *words,
                uint64_t *removed)
{
    struct lmdb_trim trim = {
        .refs = words->refs,
        .by_id = words->strategy == TRIM_MINID,
        .length_max = (uint64_t)words->length_max,
        .id_min = words->id_min,
        .approximate = words->approximate,
        .limit = (uint64_t)words->limit,
    };

    *removed = 0;
    if (words->strategy == TRIM_NONE) {
        return true;
    }
    return call_check(call, lmdb_stream_trim(call->txn, stream, &trim, removed));
}

void call_xtrim(struct call *call)
{
    struct trim_words words = {.strategy = TRIM_NONE};
    struct lmdb_stream *stream;
    uint64_t removed = 0;

    if (!xtrim_parse(call, &words) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL || trim_apply(call, stream, &words, &removed)) {
        call_reply_integer(call, (int64_t)removed);
    }
}
