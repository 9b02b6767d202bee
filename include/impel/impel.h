/* impel.h -- all of the library: crash recovery for Redis Streams.
 *
 *     static enum impel_outcome on_order(struct impel_delivery *delivery, void *user)
 *     {
 *         struct impel_bytes item = impel_delivery_field(delivery, "item");
 *         return bill(item.data, item.size) ? IMPEL_DONE
 *                                           : impel_delivery_fail(delivery, "card declined");
 *     }
 *
 *     struct impel_error err;
 *     struct impel_store *store = NULL;
 *     struct impel_worker *worker = NULL;
 *     int rc = impel_store_open("lmdb:orders.db", NULL, &store, &err);
 *     if (rc >= 0) {
 *         rc = impel_worker_new(store, &(struct impel_worker_options){
 *             .stream = "orders", .group = "billing", .concurrency = 8, .handler = on_order },
 *             &worker, &err);
 *     }
 *     if (rc >= 0) {
 *         rc = impel_worker_run(worker, &err);
 *     }
 *     if (rc < 0) {
 *         fprintf(stderr, "%s\n", err.text);
 *     }
 *     impel_worker_free(worker);
 *     impel_store_close(store);
 *
 *     cc orders.c $(pkg-config --cflags --libs impel)
 *
 * store.h opens stores, adds and reads; worker.h has workers and their handlers; event.h and
 * metrics.h say what a worker tells; types.h has the words all of them use,
 * id.h the text of IDs. */
#ifndef IMPEL_IMPEL_H
#define IMPEL_IMPEL_H

#include "impel/event.h"
#include "impel/id.h"
#include "impel/metrics.h"
#include "impel/store.h"
#include "impel/types.h"
#include "impel/version.h"
#include "impel/worker.h"

#endif /* IMPEL_IMPEL_H */
