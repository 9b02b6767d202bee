/* store.c -- opening a store, and waiting for what it answers.
 *
 * A call submits its requests and drives the handle itself until they are complete. A request that
 * was given up (a timeout) cannot be freed while the store has it, so it is kept beside until it
 * comes back, or the store is closed. */
#include "lib/store_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    TIMEOUT_MS = 30 * 1000,
    PAUSE_MS = 1, /* between turns, while some of a batch are still out */
};

struct late {
    struct late *next;
    struct request *request;
};

/* ---- the URL ---- */

/* A copy in which the path of an embedded store is absolute. NULL if memory is out. */
static char *absolute_url(const char *url)
{
    static const char scheme[] = "lmdb:";
    char *absolute = NULL;
    const char *path = url + sizeof scheme - 1;
    if (strncmp(url, scheme, sizeof scheme - 1) != 0 || path[0] == '/' || path[0] == '\0') {
        return strdup(url);
    }
    char *folder = get_current_dir_name();
    if (folder == NULL) {
        return strdup(url);
    }
    if (asprintf(&absolute, "%s%s/%s", scheme, folder, path) < 0) {
        absolute = NULL;
    }
    free(folder);
    return absolute;
}

static bool any_reserved(const uint64_t *reserved, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        any = any || reserved[i] != 0;
    }
    return any;
}

static int
check_options(const char *url, const struct impel_store_options *options, struct impel_error *err)
{
    if (url == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "no store is named: the URL is NULL");
    }
    if (options != NULL && (options->timeout_ms < 0 ||
                            any_reserved(options->reserved, ARRAY_SIZE(options->reserved)))) {
        return error_set(err, IMPEL_ERR_INVALID, "%s",
                         options->timeout_ms < 0
                             ? "the timeout of a store must not be negative"
                             : "the options of a store are not zeroed (reserved members are set)");
    }
    return IMPEL_OK;
}

int impel_store_open(const char *url,
                     const struct impel_store_options *options,
                     struct impel_store **out,
                     struct impel_error *err)
{
    *out = NULL;
    int rc = check_options(url, options, err);
    if (rc < 0) {
        return rc;
    }
    struct impel_store *store = calloc(1, sizeof *store);
    char *absolute = absolute_url(url);
    if (store == NULL || absolute == NULL) {
        free(store);
        free(absolute);
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a store");
    }
    store->url = absolute;
    store->timeout_ms =
        options != NULL && options->timeout_ms > 0 ? options->timeout_ms : TIMEOUT_MS;
    pthread_mutex_init(&store->lock, NULL);
    const struct store_env env = {0};
    rc = store_open(absolute, &env, &store->store, err);
    if (rc < 0) {
        impel_store_close(store);
        return rc;
    }
    *out = store;
    return IMPEL_OK;
}

void impel_store_close(struct impel_store *store)
{
    if (store == NULL) {
        return;
    }
    store_close(store->store); /* completes what it still has */
    while (store->late != NULL) {
        struct late *late = store->late;
        store->late = late->next;
        request_free(late->request);
        free(late);
    }
    pthread_mutex_destroy(&store->lock);
    free(store->url);
    free(store);
}

/* ---- calls ---- */

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* `owner` is how many are still out, or NULL for one that was given up. */
static void on_done(struct request *request)
{
    size_t *left = request->owner;
    request->serial = 1; /* complete */
    if (left != NULL) {
        (*left)--;
    }
}

static void free_late(struct impel_store *store)
{
    struct late **at = &store->late;
    while (*at != NULL) {
        struct late *late = *at;
        if (late->request->serial == 0) {
            at = &late->next;
            continue;
        }
        *at = late->next;
        request_free(late->request);
        free(late);
    }
}

/* Leaves to the store what is not complete. Without memory for a note it is leaked: nobody knows
 * when it may be freed. */
static void give_up(struct impel_store *store, struct request **requests, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct request *request = requests[i];
        if (request->serial != 0) {
            continue;
        }
        struct late *late = malloc(sizeof *late);
        request->done = on_done;
        request->owner = NULL;
        requests[i] = NULL;
        if (late != NULL) {
            *late = (struct late){.next = store->late, .request = request};
            store->late = late;
        }
    }
}

/* The last is waited for in the store's own way; by then the others are complete as a rule, since
 * stores answer in order. */
void store_call_all(struct impel_store *store, struct request **requests, size_t count)
{
    size_t left = count - 1;
    pthread_mutex_lock(&store->lock);
    free_late(store);
    for (size_t i = 0; i < count; i++) {
        requests[i]->serial = 0;
        requests[i]->owner = &left;
        requests[i]->done = on_done;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        store_submit(store->store, requests[i]);
    }
    struct request *last = requests[count - 1];
    int64_t deadline_ms = add_saturating(now_ms(), store->timeout_ms);
    int rc = store_wait(store->store, last, store->timeout_ms);
    last->serial = rc != IMPEL_ERR_TIMEOUT ? 1 : 0;
    while (left > 0 && now_ms() < deadline_ms) {
        (void)store_turn(store->store, now_ms());
        if (left > 0) {
            (void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
        }
    }
    give_up(store, requests, count);
    pthread_mutex_unlock(&store->lock);
}

int store_timed_out(const struct impel_store *store, struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_TIMEOUT,
                     "the store gave no answer within %lld ms; what was asked may yet be done",
                     (long long)store->timeout_ms);
}

int store_call(struct impel_store *store, struct request **request, struct impel_error *err)
{
    store_call_all(store, request, 1);
    if (*request == NULL) {
        return store_timed_out(store, err);
    }
    int status = (*request)->status;
    if (status < 0 && err != NULL) {
        *err = (*request)->error;
        err->status = status;
    }
    return status;
}
