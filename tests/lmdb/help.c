/* help.c -- see help.h. */
#include "lmdb/help.h"

#include <ftw.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static char folder[64];
static pid_t folder_owner;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_folder(void)
{
    if (getpid() == folder_owner) {
        (void)nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
}

const char *help_folder(void)
{
    if (folder[0] == '\0') {
        const char *base = getenv("TMPDIR");
        (void)snprintf(folder, sizeof(folder), "%s/impel-lmdb-XXXXXX",
                       base != NULL && strlen(base) < 30 ? base : "/tmp");
        ASSERT(mkdtemp(folder) != NULL);
        folder_owner = getpid();
        atexit(remove_folder);
    }
    return folder;
}

const char *help_path(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", help_folder(), name);
    return path;
}

const char *help_url(const char *name, const char *options)
{
    static char url[320];
    (void)snprintf(url, sizeof(url), "lmdb:%s/%s%s", help_folder(), name, options);
    return url;
}

struct store *help_open(const char *url)
{
    struct store *store = NULL;
    struct impel_error err = {0};

    if (store_open(url, NULL, &store, &err) < 0) {
        printf("# %s: %s\n", url, err.text);
        longjmp(tap_abandon, 1);
    }
    return store;
}

struct impel_bytes help_bytes(const char *text)
{
    return bytes_of(text);
}

struct request *help_request(enum request_kind kind, const char *stream, const char *group)
{
    struct request *request = request_new(kind);

    ASSERT(request != NULL);
    request->stream = bytes_of(stream);
    request->group = bytes_of(group);
    return request;
}

static void done(struct request *request)
{
    (void)request;
}

int help_run(struct store *store, struct request *request)
{
    request->done = done;
    int rc = store_wait(store, request, 20000);
    if (rc < 0) {
        printf("# %s: %s\n", request_name(request->kind), request->error.text);
    }
    return rc;
}

int help_add(struct store *store, const char *stream, struct impel_id id, const char *value)
{
    struct request *request = help_request(REQUEST_ADD, stream, "");
    struct impel_field field = {bytes_of("field"), bytes_of(value)};

    request->add.id = id;
    request->add.fields = &field;
    request->add.field_count = 1;
    request->add.length_max = -1;
    int rc = help_run(store, request);
    request_free(request);
    return rc;
}

int help_group(struct store *store, const char *stream, const char *group)
{
    struct request *request = help_request(REQUEST_GROUP_CREATE, stream, group);
    int rc = help_run(store, request);
    request_free(request);
    return rc;
}

struct request *help_read_request(
    const char *stream, const char *group, const char *consumer, uint32_t count, int64_t block_ms)
{
    struct request *request = help_request(REQUEST_READ, "", group);
    struct impel_bytes *streams = arena_alloc(&request->arena, sizeof(*streams));

    *streams = bytes_of(stream);
    request->consumer = bytes_of(consumer);
    request->read.streams = streams;
    request->read.stream_count = 1;
    request->read.count = count;
    request->read.block_ms = block_ms;
    return request;
}

struct request *help_read(struct store *store,
                          const char *stream,
                          const char *group,
                          const char *consumer,
                          uint32_t count)
{
    struct request *request = help_read_request(stream, group, consumer, count, 0);

    (void)help_run(store, request);
    return request;
}

int help_ack(struct store *store, const char *stream, const char *group, struct impel_id id)
{
    struct request *request = help_request(REQUEST_ACK, stream, group);
    struct request_item item = {.id = id};

    request->ack.items = &item;
    request->ack.item_count = 1;
    int rc = help_run(store, request);
    rc = rc < 0 ? rc : (int)request->ack.acked;
    request->ack.item_count = 0;
    request_free(request);
    return rc;
}

struct token help_token(uint8_t seed)
{
    struct token token;
    memset(token.bytes, seed, sizeof(token.bytes));
    return token;
}

struct request *help_beat(struct store *store,
                          const char *stream,
                          const char *group,
                          const char *consumer,
                          uint8_t token,
                          int64_t dead_after_ms)
{
    struct request *request = help_request(REQUEST_BEAT, stream, group);

    request->consumer = bytes_of(consumer);
    request->token = help_token(token);
    request->dead_after_ms = dead_after_ms;
    (void)help_run(store, request);
    return request;
}

int64_t help_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
