/* store_state.h -- an open store of the public API: a handle of the port, driven by whoever calls. */
#ifndef IMPEL_LIB_STORE_STATE_H
#define IMPEL_LIB_STORE_STATE_H

#include "impel/store.h"
#include "store/store.h"

#include <pthread.h>

struct impel_store {
    char *url; /* its path made absolute: workers open it again, wherever the process is by then */
    int64_t timeout_ms;
    pthread_mutex_t lock; /* one call at a time drives the handle */
    struct store *store;
    struct late *late; /* requests that nobody waits for any more, but the handle still has */
};

/* Submits the requests in order and waits until all are complete, or the timeout passed. Then each is
 * the caller's to be freed, except that one which was not complete is NULL in the array: it stays
 * with the store. Takes the lock. */
void store_call_all(struct impel_store *store, struct request **requests, size_t count);
/* The same for one. Returns its status and fills in the error. */
int store_call(struct impel_store *store, struct request **request, struct impel_error *err);
/* "no answer within ..." */
int store_timed_out(const struct impel_store *store, struct impel_error *err);

#endif /* IMPEL_LIB_STORE_STATE_H */
