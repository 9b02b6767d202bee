/* read_words.h -- the words of XREAD and XREADGROUP. */
#ifndef IMPEL_STORE_LMDB_COMMAND_READ_WORDS_H
#define IMPEL_STORE_LMDB_COMMAND_READ_WORDS_H

#include "store/lmdb/command/call.h"

struct read_words {
    bool grouped; /* XREADGROUP, with a group and a consumer */
    struct impel_bytes group;
    struct impel_bytes consumer;
    bool no_ack;
    uint64_t count;      /* of each stream; UINT64_MAX = all */
    uint64_t count_max;  /* MAXCOUNT: of all streams; UINT64_MAX = all */
    uint64_t bytes_max;  /* MAXSIZE: of the entries in the reply; UINT64_MAX = no limit */
    bool claim;          /* CLAIM was given: pending entries are taken over first */
    int64_t min_idle_ms; /* CLAIM */
    bool block;          /* BLOCK was given */
    int64_t block_ms;    /* 0 = without end */
    size_t stream_first; /* the index of the first key; the IDs follow the keys */
    size_t stream_count;
};

bool read_words_parse(struct call *call, struct read_words *words, int64_t now_ms);

#endif /* IMPEL_STORE_LMDB_COMMAND_READ_WORDS_H */
