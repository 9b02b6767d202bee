/* compact.h -- a file without the pages that nothing is in any more.
 *
 * LMDB uses freed pages again but never gives them back. What is in use is copied into PATH-compact,
 * which is synced, verified and then renamed over the file: whoever looks, at any moment, also after
 * a kill or a power cut, finds the old file or the new one. A left-over PATH-compact means nothing
 * and is removed by the next attempt. */
#ifndef IMPEL_STORE_LMDB_COMPACT_H
#define IMPEL_STORE_LMDB_COMPACT_H

#include "base/base.h"

struct lmdb_compact_sizes {
    uint64_t before_bytes, after_bytes;
};

/* Blocks for as long as the copy takes. IMPEL_ERR_BUSY: somebody has the store open, this process
 * included; openers that come meanwhile wait, at most 10 s. IMPEL_ERR_NOT_FOUND, or what opening and
 * writing can fail of; then the file is as it was. */
int lmdb_compact(const char *path, struct lmdb_compact_sizes *sizes, struct impel_error *err);

#endif /* IMPEL_STORE_LMDB_COMPACT_H */
