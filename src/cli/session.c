/* session.c -- a store for one-shot commands. */
#include "cli/session.h"

#include "base/value.h"
#include "cli/console.h"

#include <stdio.h>
#include <string.h>

enum {
    STOP_MS = 100, /* between two looks at whether the command is to end */
};

static int log_level = 1;

static void session_event(void *user, const struct store_event *event)
{
    (void)user;
    if (event->level >= log_level) {
        console_note("%s", event->text);
    }
}

int session_open(const struct options *options, struct store **out, struct impel_error *err)
{
    static const struct store_env env = {.event = session_event};

    log_level = options->log_level;
    return store_open(options->store, &env, out, err);
}

int session_open_existing(const struct options *options,
                          struct store **out,
                          struct impel_error *err)
{
    struct options existing = *options;
    struct buf url;
    int rc;

    if (strncmp(options->store, "lmdb:", 5) != 0) {
        return session_open(options, out, err);
    }
    buf_init(&url, 1 << 16);
    buf_appendf(&url, "%s%ccreate=no", options->store, strchr(options->store, '?') ? '&' : '?');
    buf_append(&url, "", 1);
    rc = buf_status(&url);
    if (rc < 0) {
        error_set(err, rc, "%s", status_text(rc));
    } else {
        existing.store = (const char *)url.data;
        rc = session_open(&existing, out, err);
    }
    buf_release(&url);
    return rc;
}

int session_path(struct options *options,
                 const char *done,
                 const char **path,
                 struct impel_error *err)
{
    static const char scheme[] = "lmdb:";
    struct impel_bytes rest;
    char *text;

    if (strncmp(options->store, scheme, sizeof(scheme) - 1) != 0) {
        return error_set(err, IMPEL_ERR_INVALID, "only an embedded store (lmdb:PATH) can be %s",
                         done);
    }
    rest = bytes_of(options->store + sizeof(scheme) - 1);
    rest.size = strcspn(rest.data, "?");
    text = arena_alloc(&options->arena, rest.size + 1);
    if (text == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    memcpy(text, rest.data, rest.size);
    text[rest.size] = '\0';
    *path = text;
    return IMPEL_OK;
}

const char *session_place(const struct options *options, char *out, size_t size)
{
    const char *url = options->store;
    const char *slashes = strstr(url, "://");
    size_t end = strcspn(url, "?");
    size_t scheme = slashes == NULL ? 0 : (size_t)(slashes - url) + 3;
    const char *at = scheme == 0 || scheme > end ? NULL : memrchr(url + scheme, '@', end - scheme);
    size_t begin = at == NULL ? scheme : (size_t)(at - url) + 1;
    char quoted[200];

    (void)snprintf(
        out, size, "%.*s%s", (int)scheme, url,
        bytes_quote((struct impel_bytes){url + begin, end - begin}, quoted, sizeof(quoted)));
    return out;
}

struct request *
session_request(enum request_kind kind, struct impel_bytes stream, struct impel_bytes group)
{
    struct request *request = request_new(kind);

    if (request == NULL || !arena_copy(&request->arena, stream, &request->stream) ||
        !arena_copy(&request->arena, group, &request->group)) {
        request_free(request);
        return NULL;
    }
    return request;
}

/* What a request failed of, said of the stream instead of the request: its kind is no word of the
 * user's. */
static void name_stream(const struct request *request, struct impel_error *err)
{
    struct impel_error cause = *err;
    const char *kind = request_name(request->kind);
    size_t size = strlen(kind);
    char quoted[128];

    if (request->stream.size == 0 || strncmp(cause.text, kind, size) != 0 ||
        strncmp(cause.text + size, ": ", 2) != 0) {
        return;
    }
    bytes_quote(request->stream, quoted, sizeof(quoted));
    error_set(err, cause.status, "stream '%s': %s", quoted, cause.text + size + 2);
}

/* Servers say it in their own ways, and some name keys that are Impel's. */
static void say_missing(const struct request *request, struct impel_error *err)
{
    char stream[128], group[64];

    error_set(err, IMPEL_ERR_NO_GROUP, "there is no stream '%s', or it has no group '%s'",
              bytes_quote(request->stream, stream, sizeof(stream)),
              bytes_quote(request->group, group, sizeof(group)));
}

void session_failure(const struct request *request, struct impel_error *err)
{
    *err = request->error;
    if (request->status == IMPEL_ERR_NO_GROUP && request->group.size > 0) {
        say_missing(request, err);
        return;
    }
    if (err->text[0] == '\0') {
        error_set(err, request->status, "%s: %s", request_name(request->kind),
                  status_text(request->status));
    }
    err->status = request->status;
    name_stream(request, err);
}

static bool (*stop_wanted)(void);

void session_stop_when(bool (*wanted)(void))
{
    stop_wanted = wanted;
}

int session_ask(struct store *store, struct request *request, struct impel_error *err)
{
    int rc;

    if (request == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    do {
        rc = store_wait(store, request, stop_wanted == NULL ? -1 : STOP_MS);
    } while (rc == IMPEL_ERR_TIMEOUT && stop_wanted != NULL && !stop_wanted());
    if (rc == IMPEL_ERR_TIMEOUT && stop_wanted != NULL) {
        request->left = true;
        return error_set(err, IMPEL_ERR_CANCELLED, "stopped while the store was asked");
    }
    if (rc < 0 && err != NULL) {
        session_failure(request, err);
    }
    return rc;
}

bool session_stream_refused(int status)
{
    return status == IMPEL_ERR_AUTH || status == IMPEL_ERR_CORRUPT ||
           status == IMPEL_ERR_WRONG_TYPE || status == IMPEL_ERR_NO_GROUP ||
           status == IMPEL_ERR_NOT_FOUND;
}

int session_check_stream(struct store *store, struct impel_bytes stream, struct impel_error *err)
{
    struct request *info = session_request(REQUEST_INFO, stream, (struct impel_bytes){0});
    char quoted[64];
    int rc = session_ask(store, info, err);

    if (rc >= 0 && !info->info.exists) {
        rc = error_set(err, IMPEL_ERR_NOT_FOUND, "there is no stream '%s' in this store",
                       bytes_quote(stream, quoted, sizeof(quoted)));
    }
    request_free(info);
    return rc;
}

int session_call(struct store *store,
                 const struct impel_bytes *args,
                 size_t arg_count,
                 struct request **out,
                 struct impel_error *err)
{
    struct request *request =
        session_request(REQUEST_CALL, (struct impel_bytes){0}, (struct impel_bytes){0});
    struct impel_bytes *copies =
        request == NULL ? NULL : arena_calloc(&request->arena, arg_count, sizeof(*copies));
    int rc;

    if (copies == NULL) {
        request_free(request);
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < arg_count; i++) {
        if (!arena_copy(&request->arena, args[i], &copies[i])) {
            request_free(request);
            return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
        }
    }
    request->call.args = copies;
    request->call.arg_count = arg_count;
    rc = session_ask(store, request, err);
    if (rc >= 0 && request->call.reply->kind == VALUE_ERROR) {
        struct impel_bytes text = request->call.reply->bytes;
        rc = error_set(err, IMPEL_ERR_REPLY, "%.*s", (int)(text.size > 300 ? 300 : text.size),
                       (const char *)text.data);
    }
    if (rc < 0) {
        request_free(request);
        return rc;
    }
    *out = request;
    return rc;
}
