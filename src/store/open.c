/* open.c -- opening a store by its URL, and driving one until a request is done. */
#include "store/store.h"

#include <poll.h>
#include <string.h>
#include <time.h>

enum {
    WAIT_SLICE_MS = 10, /* for stores that answer from outside */
};

static void schemes_text(char *text, size_t size)
{
    struct buf buf;

    text[0] = '\0';
    buf_init(&buf, size - 1);
    for (size_t i = 0; i < store_table_size; i++) {
        buf_appendf(&buf, "%s%s:", i == 0 ? "" : ", ", store_table[i]->scheme);
    }
    if (buf_status(&buf) >= 0) {
        memcpy(text, buf.data, buf.size);
        text[buf.size] = '\0';
    }
    buf_release(&buf);
}

int store_open(const char *url,
               const struct store_env *env,
               struct store **out,
               struct impel_error *err)
{
    const char *colon = strchr(url, ':');
    size_t size = colon == NULL ? 0 : (size_t)(colon - url);
    char known[256], scheme[32];

    for (size_t i = 0; i < store_table_size; i++) {
        if (size > 0 && strlen(store_table[i]->scheme) == size &&
            strncmp(store_table[i]->scheme, url, size) == 0) {
            return store_table[i]->open(colon + 1, env, out, err);
        }
    }
    schemes_text(known, sizeof(known));
    /* What is between the scheme and the host may be a password: only the scheme is repeated. */
    bytes_quote((struct impel_bytes){url, size}, scheme, sizeof(scheme));
    if (colon == NULL) { /* most likely a path */
        bytes_quote(bytes_of(url), scheme, sizeof(scheme));
        return error_set(err, IMPEL_ERR_INVALID,
                         "'%s' is no URL of a store: that begins with one of %s; "
                         "a file is lmdb:PATH",
                         scheme, known);
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "unknown store '%s': the URL of a store begins with one of %s", scheme, known);
}

void store_close(struct store *store)
{
    if (store != NULL) {
        store->ops->close(store);
    }
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What stands in for the request's own `done` meanwhile. In its arena, since a wait that timed out
 * leaves the request with the store. */
struct waiting {
    void (*done)(struct request *request);
    void *owner;
    bool over;
};

static void wait_done(struct request *request)
{
    struct waiting *waiting = request->owner;

    request->done = waiting->done;
    request->owner = waiting->owner;
    request->left = false;
    waiting->over = true;
}

static struct waiting *wait_begin(struct store *store, struct request *request)
{
    if (request->done == wait_done) {
        return request->owner; /* an earlier wait timed out */
    }
    struct waiting *waiting = arena_calloc(&request->arena, 1, sizeof(*waiting));
    if (waiting != NULL) {
        waiting->done = request->done;
        waiting->owner = request->owner;
        request->done = wait_done;
        request->owner = waiting;
        store_submit(store, request);
    }
    return waiting;
}

int store_wait(struct store *store, struct request *request, int64_t timeout_ms)
{
    int64_t deadline_ms = timeout_ms < 0 ? INT64_MAX : add_saturating(now_ms(), timeout_ms);
    struct waiting *waiting = wait_begin(store, request);

    if (waiting == NULL) {
        request->status = error_set(&request->error, IMPEL_ERR_NOMEM, "out of memory");
        return request->status;
    }
    while (!waiting->over) {
        int64_t next_ms = store_turn(store, now_ms());
        int64_t left_ms = sub_saturating(deadline_ms, now_ms());
        if (!waiting->over && left_ms <= 0) {
            return IMPEL_ERR_TIMEOUT;
        }
        next_ms = next_ms < 0 || next_ms > WAIT_SLICE_MS ? WAIT_SLICE_MS : next_ms;
        next_ms = next_ms > left_ms ? left_ms : next_ms;
        if (!waiting->over && next_ms > 0) {
            (void)poll(NULL, 0, (int)next_ms);
        }
    }
    return request->status;
}
