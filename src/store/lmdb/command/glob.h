/* glob.h -- the patterns of KEYS. */
#ifndef IMPEL_STORE_LMDB_COMMAND_GLOB_H
#define IMPEL_STORE_LMDB_COMMAND_GLOB_H

#include "base/base.h"

/* `*` any run, `?` any byte, `[a-c]` and `[^a-c]` one of a set, `\` takes the next byte as it is.
 */
bool glob_matches(struct impel_bytes pattern, struct impel_bytes text);

#endif /* IMPEL_STORE_LMDB_COMMAND_GLOB_H */
