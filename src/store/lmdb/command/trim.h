/* trim.h -- the words that XADD and XTRIM share: MAXLEN | MINID [= | ~] threshold [LIMIT n],
 * and KEEPREF | DELREF | ACKED, which XDELEX and XACKDEL know too. */
#ifndef IMPEL_STORE_LMDB_COMMAND_TRIM_H
#define IMPEL_STORE_LMDB_COMMAND_TRIM_H

#include "store/lmdb/command/call.h"

struct lmdb_stream;

enum trim_strategy {
    TRIM_NONE,
    TRIM_MAXLEN,
    TRIM_MINID,
};

struct trim_words {
    enum trim_strategy strategy;
    bool approximate;       /* "~": whole nodes only */
    int64_t length_max;     /* MAXLEN */
    struct impel_id id_min; /* MINID */
    bool limit_given;       /* LIMIT 0 is not the same as no LIMIT */
    int64_t limit;          /* at most so many are removed; 0 = no limit */
    bool refs_given;
    enum lmdb_refs refs;
};

/* What an option word turned out to be. */
enum trim_word {
    TRIM_WORD_OTHER, /* none of ours */
    TRIM_WORD_TAKEN,
    TRIM_WORD_ERROR, /* the command is over */
};

/* True if the word at `index` is KEEPREF, DELREF or ACKED. */
bool refs_word(const struct call *call, size_t index, enum lmdb_refs *refs);
/* Looks at the word at `*index`; where it is one of ours, takes it and its values and leaves
 * `*index` behind them. */
enum trim_word trim_word_read(struct call *call, struct trim_words *words, size_t *index);
/* What can only be judged when all words are known; `required` for XTRIM. */
bool trim_words_check(struct call *call, struct trim_words *words, bool required);
/* Trims, if a strategy was given. */
bool trim_apply(struct call *call,
                struct lmdb_stream *stream,
                const struct trim_words *words,
                uint64_t *removed);

#endif /* IMPEL_STORE_LMDB_COMMAND_TRIM_H */
