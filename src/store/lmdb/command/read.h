/* read.h -- what read.c and read_claim.c share: what a reply may still hold, and who reads. */
#ifndef IMPEL_STORE_LMDB_COMMAND_READ_H
#define IMPEL_STORE_LMDB_COMMAND_READ_H

#include "store/lmdb/command/read_words.h"

/* What the reply may still hold. COUNT begins anew with each stream, the others do not. */
struct read_budget {
    uint64_t stream;  /* COUNT */
    uint64_t entries; /* MAXCOUNT; 0 = the reply is full, for whatever reason */
    uint64_t bytes;   /* MAXSIZE */
    bool given;       /* an entry was: the first one always is */
};

/* Takes one entry (NULL: a pending one that is gone) out of the budget; `*fits` if it may be given.
 * One that is too large ends the reply, so that no later entry passes it by. */
bool budget_take(struct call *call,
                 struct read_budget *budget,
                 const struct lmdb_raw *raw,
                 bool *fits);

/* A pending row that is to be taken over, as it was. */
struct read_claims {
    struct lmdb_pending *rows;
    size_t count;
    size_t room;
};

/* Finds what the group has pending for so long, at most `count_max`, in the order of taking. */
bool claims_find(struct call *call,
                 struct lmdb_group *group,
                 int64_t min_idle_ms,
                 uint64_t count_max,
                 struct read_claims *claims);
/* Gives them to the consumer, as far as the budget goes: [ID, fields, idle, deliveries before]. */
bool claims_serve(struct call *call,
                  const struct read_claims *claims,
                  struct lmdb_consumer *consumer,
                  struct read_budget *budget,
                  struct value *list);
/* In how many ms the next can be taken; at least 1, `*wait_ms` is left alone if it is less. */
bool claims_wait(struct call *call,
                 struct lmdb_group *group,
                 int64_t min_idle_ms,
                 int64_t *wait_ms);
/* The two numbers behind a new entry, where CLAIM was given. */
bool claims_entry(struct call *call,
                  struct value *out,
                  const struct lmdb_raw *raw,
                  int64_t idle_ms,
                  int64_t deliveries);

#endif /* IMPEL_STORE_LMDB_COMMAND_READ_H */
