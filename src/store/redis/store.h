/* store.h -- the rows of the store table that lead to a Redis or Valkey server.
 *
 * A handle that was opened with a loop of the driver's (env.loop) is freed by that loop: after
 * store_close() let it run until nothing is left on it, then close it. */
#ifndef IMPEL_STORE_REDIS_STORE_H
#define IMPEL_STORE_REDIS_STORE_H

#include "store/store.h"

extern const struct store_ops redis_store_ops;  /* redis://[user:password@]host[:port][/db] */
extern const struct store_ops valkey_store_ops; /* the same under its other name */
extern const struct store_ops rediss_store_ops; /* the same over TLS, ?tls_ca=FILE ... */
extern const struct store_ops valkeys_store_ops;
extern const struct store_ops unix_store_ops; /* unix://[user:password@]/path[?db=n] */

#endif /* IMPEL_STORE_REDIS_STORE_H */
