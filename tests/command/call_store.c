/* call_store.c -- commands through the store's own door, as the program does it. */
#include "call_store.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    DEADLINE_MS = 60000, /* nothing here blocks: only so that a broken store does not hang a test */
};

struct store *call_store_open(const char *path)
{
    struct impel_error err = {.status = 0};
    struct store *store = NULL;
    char url[4200];

    snprintf(url, sizeof(url), "lmdb:%s?sync=process", path);
    if (store_open(url, &(struct store_env){.wake = NULL}, &store, &err) < 0) {
        fprintf(stderr, "%s: %s\n", url, err.text);
        exit(2);
    }
    return store;
}

static void ignore_done(struct request *request)
{
    (void)request;
}

struct request *
call_store_run(struct store *store, const struct impel_bytes *args, size_t arg_count, bool resp3)
{
    struct request *request = request_new(REQUEST_CALL);

    if (request == NULL) {
        return NULL;
    }
    request->call.args = args;
    request->call.arg_count = arg_count;
    request->call.resp3 = resp3;
    request->done = ignore_done;
    if (store_wait(store, request, DEADLINE_MS) < 0) {
        fprintf(stderr, "%s\n", request->error.text);
        request_free(request);
        return NULL;
    }
    return request;
}
