/* embedded.h -- the embedded store, for the table of stores. */
#ifndef IMPEL_STORE_LMDB_EMBEDDED_H
#define IMPEL_STORE_LMDB_EMBEDDED_H

#include "store/store.h"

extern const struct store_ops lmdb_store_ops;

#endif /* IMPEL_STORE_LMDB_EMBEDDED_H */
