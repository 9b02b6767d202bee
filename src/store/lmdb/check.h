/* check.h -- verifying a file: every counter against what it counts, both orders of pending entries
 * against each other, nothing unreachable.
 *
 * For `impel check`, for tests after every crash, and before a file is opened that was written with
 * sync=process when the machine went down. */
#ifndef IMPEL_STORE_LMDB_CHECK_H
#define IMPEL_STORE_LMDB_CHECK_H

#include "base/base.h"

#include <stdbool.h>

/* A problem, one line, valid during the call. Returning false ends the check. */
typedef bool (*lmdb_check_report)(void *user, const char *problem);

struct lmdb_check_counts {
    uint64_t streams, entries, groups, consumers, pending;
    uint64_t problems;
};

/* Checks the file at `path`, which may be open elsewhere (it is read in one transaction). Problems
 * go to `report` (may be NULL). IMPEL_OK: none found; IMPEL_ERR_CORRUPT: some, the first in `err`;
 * else it could not be checked. `counts` may be NULL. */
int lmdb_check(const char *path,
               lmdb_check_report report,
               void *user,
               struct lmdb_check_counts *counts,
               struct impel_error *err);

struct lmdb_env;
struct lmdb_txn;
/* What the rows say, as a transaction sees them that has flushed what it changed. */
int check_transaction(struct lmdb_txn *txn,
                      lmdb_check_report report,
                      void *user,
                      struct impel_error *err);
/* The same on an open file, in a transaction of its own. */
int check_contents(struct lmdb_env *env,
                   lmdb_check_report report,
                   void *user,
                   struct impel_error *err);

#endif /* IMPEL_STORE_LMDB_CHECK_H */
