/* stores.c -- the stores that the conformance suite runs on, a row each. */
#include "await.h"
#include "certificate.h"
#include "redis_server.h"
#include "store/model.h"
#include "store/suite.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the model: time passes when the suite says so ---- */

static struct store *model_open(void **context, const struct store_env *env, const char **why)
{
    struct model *model = calloc(1, sizeof(*model));

    (void)why;
    CHECK(model != NULL);
    model_init(model, 1700000000000);
    *context = model;
    return model_connect(model, env);
}

static struct store *model_open_again(void *context, const struct store_env *env)
{
    return model_connect(context, env);
}

static void model_remove(void *context)
{
    model_release(context);
    free(context);
}

static int64_t model_now_ms(void *context)
{
    return ((struct model *)context)->now_ms;
}

static void model_pause(void *context, int64_t ms)
{
    ((struct model *)context)->now_ms += ms;
}

/* ---- the embedded store: a file in a folder of its own, and a clock that ticks ---- */

struct file {
    char folder[32];
    char url[96];
};

static struct store *lmdb_open_again(void *context, const struct store_env *env)
{
    struct file *file = context;
    struct impel_error err = {0};
    struct store *store = NULL;

    if (store_open(file->url, env, &store, &err) < 0) {
        printf("# %s: %s\n", file->url, err.text);
        return NULL;
    }
    return store;
}

static struct store *
lmdb_open_with(void **context, const struct store_env *env, const char *options)
{
    struct file *file = calloc(1, sizeof(*file));

    CHECK(file != NULL);
    (void)snprintf(file->folder, sizeof(file->folder), "/tmp/impel-store-XXXXXX");
    CHECK(mkdtemp(file->folder) != NULL);
    (void)snprintf(file->url, sizeof(file->url), "lmdb:%s/db%s", file->folder, options);
    *context = file;
    return lmdb_open_again(file, env);
}

static struct store *lmdb_open(void **context, const struct store_env *env, const char **why)
{
    (void)why;
    return lmdb_open_with(context, env, "");
}

static struct store *
lmdb_open_process(void **context, const struct store_env *env, const char **why)
{
    (void)why;
    return lmdb_open_with(context, env, "?sync=process");
}

static void lmdb_remove(void *context)
{
    static const char *const names[] = {"db", "db-lock", "db-wake"};
    struct file *file = context;
    char path[64];

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", file->folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(file->folder);
    free(file);
}

static int64_t boot_now_ms(void *context)
{
    struct timespec now;

    (void)context;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void real_pause(void *context, int64_t ms)
{
    (void)context;
    await_clock_us(ms * 1000);
}

/* ---- Redis: one server for all tests, emptied before each ---- */

static struct redis_server server;
static char server_url[96];

static void end_server(void)
{
    redis_server_end(&server);
}

static struct store *server_open_again(void *context, const struct store_env *env)
{
    struct impel_error err = {0};
    struct store *store = NULL;

    (void)context;
    if (store_open(server_url, env, &store, &err) < 0) {
        printf("# %s: %s\n", server_url, err.text);
        return NULL;
    }
    return store;
}

static void ignore_done(struct request *request)
{
    (void)request;
}

static void server_empty(struct store *store)
{
    struct impel_bytes args[] = {bytes_of("FLUSHALL")};
    struct request *request = request_new(REQUEST_CALL);

    CHECK(request != NULL);
    request->done = ignore_done;
    request->call.args = args;
    request->call.arg_count = 1;
    CHECK(store_wait(store, request, SUITE_WAIT_MS) == IMPEL_OK);
    request_free(request);
}

/* `start` starts the server and says where; or it tells why it cannot. */
static struct store *server_open(void **context,
                                 const struct store_env *env,
                                 const char **why,
                                 const char *(*start)(void))
{
    if (server.pid == 0) {
        (void)atexit(end_server);
        *why = start();
        if (*why != NULL) {
            return NULL;
        }
    }
    struct store *store = server_open_again(NULL, env);
    CHECK(store != NULL);
    server_empty(store);
    *context = &server;
    return store;
}

static void server_remove(void *context)
{
    (void)context;
}

static const char *on_its_socket(const char *why)
{
    (void)snprintf(server_url, sizeof(server_url), "unix://%s", server.socket);
    return why;
}

static const char *start_redis(void)
{
    return on_its_socket(redis_server_start(&server, NULL));
}

static const char *start_serve(void)
{
    return on_its_socket(redis_server_start_impel(&server));
}

/* A port that nobody has now. */
static unsigned free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    CHECK(bind(fd, (struct sockaddr *)&address, size) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* The files of TLS are made in the folder of a server that then starts once more. */
static const char *start_rediss(void)
{
    char cert[48], key[48], port[8];
    const char *args[] = {"--tls-port",
                          port,
                          "--tls-cert-file",
                          cert,
                          "--tls-key-file",
                          key,
                          "--tls-ca-cert-file",
                          cert,
                          "--tls-auth-clients",
                          "no",
                          NULL};
    const char *why = redis_server_start(&server, NULL);

    if (why != NULL) {
        return why;
    }
    redis_server_kill(&server);
    if (!certificate_make(server.folder)) {
        redis_server_end(&server);
        return "no openssl command here";
    }
    (void)snprintf(cert, sizeof(cert), "%s/cert", server.folder);
    (void)snprintf(key, sizeof(key), "%s/key", server.folder);
    (void)snprintf(port, sizeof(port), "%u", free_port());
    (void)snprintf(server_url, sizeof(server_url), "rediss://localhost:%s?tls_ca=%s", port, cert);
    return redis_server_again(&server, args);
}

static struct store *redis_open(void **context, const struct store_env *env, const char **why)
{
    return server_open(context, env, why, start_redis);
}

static struct store *rediss_open(void **context, const struct store_env *env, const char **why)
{
    return server_open(context, env, why, start_rediss);
}

/* The same client, and an `impel serve` at the other end. */
static struct store *serve_open(void **context, const struct store_env *env, const char **why)
{
    return server_open(context, env, why, start_serve);
}

const struct suite_store suite_stores[] = {
    {
        .name = "model",
        .open = model_open,
        .open_again = model_open_again,
        .remove = model_remove,
        .now_ms = model_now_ms,
        .pause = model_pause,
    },
    {
        .name = "lmdb",
        .open = lmdb_open,
        .open_again = lmdb_open_again,
        .remove = lmdb_remove,
        .now_ms = boot_now_ms,
        .pause = real_pause,
    },
    {
        .name = "lmdb-process",
        .open = lmdb_open_process,
        .open_again = lmdb_open_again,
        .remove = lmdb_remove,
        .now_ms = boot_now_ms,
        .pause = real_pause,
    },
    {
        .name = "redis",
        .open = redis_open,
        .open_again = server_open_again,
        .remove = server_remove,
        .now_ms = boot_now_ms,
        .pause = real_pause,
    },
    {
        .name = "rediss",
        .open = rediss_open,
        .open_again = server_open_again,
        .remove = server_remove,
        .now_ms = boot_now_ms,
        .pause = real_pause,
    },
    {
        .name = "serve",
        .open = serve_open,
        .open_again = server_open_again,
        .remove = server_remove,
        .now_ms = boot_now_ms,
        .pause = real_pause,
    },
};
const size_t suite_stores_count = ARRAY_SIZE(suite_stores);
