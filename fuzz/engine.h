/* engine.h -- an embedded store for fuzz targets: commands inside one transaction that is never
 * committed, so that every input begins with the same file. */
#ifndef IMPEL_FUZZ_ENGINE_H
#define IMPEL_FUZZ_ENGINE_H

#include "base/value.h"
#include "store/lmdb/env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The one store of this process, in a folder of its own that goes with it. Made when first asked for,
 * with what the commands of `lines` make, one a line, words apart by blanks. */
struct lmdb_env *engine_open(const char *const *lines, size_t line_count);
const char *engine_path(void); /* of its file */
void engine_begin(struct lmdb_txn *txn);
void engine_abort(struct lmdb_txn *txn);
/* Carries out a command. Its reply lives in `arena`; NULL: the transaction failed. */
const struct value *engine_call(struct lmdb_txn *txn,
                                const struct impel_bytes *args,
                                size_t arg_count,
                                struct arena *arena);
/* The same for a line of words. */
const struct value *engine_line(struct lmdb_txn *txn, const char *line, struct arena *arena);
/* Every invariant of the file holds inside the transaction, or this aborts, with what does not. */
void engine_check(struct lmdb_txn *txn);

#endif /* IMPEL_FUZZ_ENGINE_H */
