/* call_store.h -- commands on an embedded store of the test's own. */
#ifndef CALL_STORE_H
#define CALL_STORE_H

#include "base/value.h"
#include "core/request.h"
#include "store/store.h"

/* Opens (and creates) the file; ends the program if that fails. */
struct store *call_store_open(const char *path);
/* Carries out one command. The request, with its reply, is the caller's to free; NULL and a line on
 * stderr if the store failed. */
struct request *
call_store_run(struct store *store, const struct impel_bytes *args, size_t arg_count, bool resp3);

#endif /* CALL_STORE_H */
