/* model_store.h -- the runtime over the model store: what driver.c does is seen without a disk.
 *
 * The URL is not looked at; all handles speak to one model, whose clock is this machine's. */
#ifndef TESTS_RUNTIME_MODEL_STORE_H
#define TESTS_RUNTIME_MODEL_STORE_H

#include "store/model.h"

extern struct model model_store;

/* An empty model. */
void model_store_reset(void);
void model_store_add(const char *stream, const char *name, const char *value);
/* Carries out a request at once; the caller frees it. */
void model_store_do(struct request *request);

#endif /* TESTS_RUNTIME_MODEL_STORE_H */
