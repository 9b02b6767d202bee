/* server.c -- the loop: listeners, signals, the turn after every poll, and the orderly end. */
#include "server/state.h"

#include <sys/resource.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS_MAX_DEFAULT = 10000,
    HANDSHAKE_MS_DEFAULT = 10000,
    FILES_BESIDE_CLIENTS = 64, /* the store's, the listeners', the loop's */
    TICK_MS = 1000,
    REST_MS = 2000, /* a client that sent nothing for so long keeps no empty buffers */
    PAUSE_TICK_MS = 10,
    STOP_FLUSH_MS = 2000, /* what has been answered may still leave */
};
#define INPUT_MAX_DEFAULT  ((uint64_t)1 << 30)
#define OUTPUT_MAX_DEFAULT ((uint64_t)256 << 20)

void server_log(struct server *server, int level, const char *format, ...)
{
    char text[512];
    va_list args;

    if (server->options.log == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    server->options.log(server->options.user, level, text);
}

uint64_t server_clock(struct server *server)
{
    server->clock_ns = uv_hrtime();
    engine_time(&server->engine, server->clock_ns);
    return server->clock_ns;
}

/* ---- the loop's calls ---- */

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* that it is active keeps the poll from sleeping */
}

void server_kick(struct server *server)
{
    if (!server->stopping) {
        uv_idle_start(&server->idle, on_idle);
    }
}

static bool more_to_do(const struct server *server)
{
    return !link_empty(&server->ready) || !link_empty(&server->dirty) || server->wake_all ||
           server->expiry_due || server->expiry_unknown || wait_is_signalled(server);
}

static void on_check(uv_check_t *check)
{
    struct server *server = check->data;

    if (!more_to_do(server)) {
        uv_idle_stop(&server->idle);
        return;
    }
    turn_run(server);
    if (more_to_do(server)) {
        server_kick(server);
    } else {
        uv_idle_stop(&server->idle);
    }
}

static void on_wake(uv_async_t *async)
{
    struct server *server = async->data;

    /* The watcher may have seen a commit of this process before it was told of it. */
    if (server->blocked_count > 0 &&
        (engine_outdated(&server->engine) || !engine_arm(&server->engine))) {
        server->wake_all = true;
    }
}

/* From the store's watcher thread. */
static void wake_from_thread(void *user)
{
    struct server *server = user;
    uv_async_send(&server->wake);
}

static void end_pause(struct server *server)
{
    server->paused_until_ms = 0;
    for (struct link *at = server->clients.next; at != &server->clients; at = at->next) {
        struct client *client = LINK_OF(at, struct client, all);
        if (client->in.size > client->in_at) {
            client_ready(client);
        }
    }
    server_kick(server);
}

bool server_holds(const struct server *server, const struct row *row)
{
    if (server->now_ms >= server->paused_until_ms || strncmp(row->name, "client|", 7) == 0) {
        return false;
    }
    return !server->paused_writes_only || (row->flags & (ROW_WRITES | ROW_IS_EXEC)) != 0;
}

/* Once a tick: those who say nothing give back their buffers, and their place if there is a limit. */
static void look_at_clients(struct server *server, int64_t now_ms)
{
    int64_t idle_ms = (int64_t)server->options.idle_timeout_s * 1000;
    struct link *next = NULL;

    for (struct link *at = server->clients.next; at != &server->clients; at = next) {
        struct client *client = LINK_OF(at, struct client, all);
        next = at->next;
        if (now_ms - client->active_ms > REST_MS) {
            client_shrink(client);
        }
        if (idle_ms > 0 && (client->flags & CLIENT_BLOCKED) == 0 &&
            now_ms - client->active_ms > idle_ms) {
            client_close(client);
        }
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct server *server = timer->data;
    int64_t now_ms = (int64_t)uv_now(&server->loop);

    if (server->paused_until_ms > 0 && now_ms >= server->paused_until_ms) {
        end_pause(server);
        uv_timer_start(timer, on_tick, TICK_MS, TICK_MS);
    }
    server->expiry_unknown = true;
    server_kick(server);
    look_at_clients(server, now_ms);
    heap_tick(server, now_ms);
}

void server_pause(struct server *server, int64_t duration_ms, bool writes_only)
{
    int64_t until_ms = duration_ms <= 0
                           ? server->now_ms
                           : add_saturating((int64_t)uv_now(&server->loop), duration_ms);

    server->paused_writes_only = writes_only;
    server->paused_until_ms = until_ms;
    uv_timer_start(&server->tick, on_tick, PAUSE_TICK_MS, PAUSE_TICK_MS);
}

static void on_signal(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;

    server_log(server, 1, "%s: ending", number == SIGINT ? "SIGINT" : "SIGTERM");
    server_stop(server);
}

/* Certificates expire while servers run. Those that cannot be used leave the old ones in place. */
static void on_hangup(uv_signal_t *signal, int number)
{
    struct server *server = signal->data;
    struct impel_error err;

    (void)number;
    if (listen_tls(server, &err) < 0) {
        server_log(server, 3, "SIGHUP: the old certificates stay in use: %s", err.text);
    } else {
        server_log(server, 1, "SIGHUP: the certificates have been read anew");
    }
}

void server_stop(struct server *server)
{
    server->stopping = true;
    uv_stop(&server->loop);
}

/* ---- making ---- */

/* As many files as the system lets this process have, and no more clients than that. */
static void raise_file_limit(struct server *server)
{
    struct rlimit limit;
    uint32_t wanted_clients = server->options.clients_max;
    rlim_t wanted = (rlim_t)wanted_clients + FILES_BESIDE_CLIENTS;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted) {
        return;
    }
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < wanted) {
        (void)getrlimit(RLIMIT_NOFILE, &limit);
        server->options.clients_max = limit.rlim_cur > FILES_BESIDE_CLIENTS + 1
                                          ? (uint32_t)limit.rlim_cur - FILES_BESIDE_CLIENTS
                                          : 1;
        server_log(
            server, 2,
            "the limit of open files, %llu, leaves room for %u clients instead of %u: raise it "
            "(ulimit -Hn, LimitNOFILE=) or set --max-clients",
            (unsigned long long)limit.rlim_cur, server->options.clients_max, wanted_clients);
    }
}

/* NULL stays NULL; false if memory is out. */
static bool copy_text(const char *text, char **copy)
{
    *copy = text == NULL ? NULL : strdup(text);
    return text == NULL || *copy != NULL;
}

static int copy_options(struct server *server, const struct server_options *options)
{
    server->options = *options;
    if (!copy_text(options->store, &server->path) ||
        !copy_text(options->password, &server->password) ||
        !copy_text(options->unix_path, &server->unix_path) ||
        !copy_text(options->tls_cert, &server->tls_cert) ||
        !copy_text(options->tls_key, &server->tls_key) ||
        !copy_text(options->tls_ca, &server->tls_ca)) {
        return IMPEL_ERR_NOMEM;
    }
    if (options->clients_max == 0) {
        server->options.clients_max = CLIENTS_MAX_DEFAULT;
    }
    if (options->handshake_ms == 0) {
        server->options.handshake_ms = HANDSHAKE_MS_DEFAULT;
    }
    if (options->input_bytes_max == 0) {
        server->options.input_bytes_max = INPUT_MAX_DEFAULT;
    }
    if (options->output_bytes_max == 0) {
        server->options.output_bytes_max = OUTPUT_MAX_DEFAULT;
    }
    return IMPEL_OK;
}

static void make_run_id(struct server *server)
{
    uint64_t seed = uv_hrtime() ^ ((uint64_t)getpid() << 32) ^ (uint64_t)time(NULL);

    for (size_t i = 0; i + 1 < sizeof(server->run_id); i++) {
        server->run_id[i] = "0123456789abcdef"[random_next(&seed) & 15];
    }
}

static int loop_failed(int code, struct impel_error *err)
{
    return error_set(err, code == UV_ENOMEM ? IMPEL_ERR_NOMEM : IMPEL_ERR_IO,
                     "the server could not be made: %s%s", uv_strerror(code),
                     code == UV_EMFILE ? "; raise the limit (ulimit -n)" : "");
}

static int loop_open(struct server *server, struct impel_error *err)
{
    int code = uv_loop_init(&server->loop);
    if (code < 0) {
        return loop_failed(code, err);
    }
    server->loop_open = true;
    uv_check_init(&server->loop, &server->check);
    uv_idle_init(&server->loop, &server->idle);
    uv_timer_init(&server->loop, &server->tick);
    uv_timer_init(&server->loop, &server->expiry);
    uv_signal_init(&server->loop, &server->signals[0]);
    uv_signal_init(&server->loop, &server->signals[1]);
    uv_signal_init(&server->loop, &server->signals[2]);
    code = uv_async_init(&server->loop, &server->wake, on_wake);
    if (code < 0) {
        return loop_failed(code, err);
    }
    server->expiry.data = server;
    server->check.data = server->tick.data = server->wake.data = server;
    server->signals[0].data = server->signals[1].data = server->signals[2].data = server;
    uv_check_start(&server->check, on_check);
    uv_timer_start(&server->tick, on_tick, TICK_MS, TICK_MS);
    server->started_ms = (int64_t)uv_now(&server->loop);
    server->started_unix_s = (int64_t)time(NULL);
    return IMPEL_OK;
}

static int server_start(struct server *server, struct impel_error *err)
{
    struct engine_options options = {
        .env = server->store,
        .wake = wake_from_thread,
        .user = server,
    };
    int rc = loop_open(server, err);

    if (rc < 0) {
        return rc;
    }
    heap_limit();
    rc = row_table_init(&server->rows);
    rc = rc < 0 ? rc : wait_init(server);
    if (rc < 0) {
        return error_set(err, rc, "the server could not be made: %s", status_text(rc));
    }
    raise_file_limit(server);
    rc = engine_open(&server->engine, &options, err);
    return rc < 0 ? rc : listen_open(server, err);
}

int server_new(const struct server_options *options, struct server **out, struct impel_error *err)
{
    struct server *server = calloc(1, sizeof(*server));

    if (server == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for the server");
    }
    link_init(&server->clients);
    link_init(&server->ready);
    link_init(&server->dirty);
    link_init(&server->waiting);
    link_init(&server->watching);
    make_run_id(server);
    int rc = copy_options(server, options);
    rc = rc < 0 ? error_set(err, rc, "no memory for the server")
                : env_url_parse(server->path, &server->store, err);
    rc = rc < 0 ? rc : server_start(server, err);
    if (rc < 0) {
        server_free(server);
        return rc;
    }
    *out = server;
    return IMPEL_OK;
}

/* ---- running and ending ---- */

/* Lets what has been answered leave, but does not wait for those who do not read. */
static void drain(struct server *server)
{
    uint64_t end = uv_hrtime() + (uint64_t)STOP_FLUSH_MS * 1000000;
    bool sending = true;

    listen_close(server);
    turn_run(server);
    while (sending && uv_hrtime() < end) {
        sending = false;
        for (struct link *at = server->clients.next; at != &server->clients; at = at->next) {
            sending |= LINK_OF(at, struct client, all)->is_sending;
        }
        if (sending) {
            uv_run(&server->loop, UV_RUN_NOWAIT);
        }
    }
}

int server_run(struct server *server, struct impel_error *err)
{
    (void)err;
    uv_signal_start(&server->signals[0], on_signal, SIGTERM);
    uv_signal_start(&server->signals[1], on_signal, SIGINT);
    if (server->tls != NULL) {
        uv_signal_start(&server->signals[2], on_hangup, SIGHUP);
    }
    signal(SIGPIPE, SIG_IGN);
    trap_set(server);
    server_log(server, 1, "serving %s", server->path);
    while (!server->stopping) {
        uv_run(&server->loop, UV_RUN_DEFAULT);
    }
    drain(server);
    return IMPEL_OK;
}

static void close_handle(uv_handle_t *handle, void *user)
{
    (void)user;
    if (!uv_is_closing(handle)) {
        uv_close(handle, NULL);
    }
}

void server_free(struct server *server)
{
    if (server == NULL) {
        return;
    }
    server->stopping = true;
    while (server->wait_table != NULL && server->rows.rows != NULL &&
           !link_empty(&server->clients)) {
        client_close(LINK_OF(server->clients.next, struct client, all));
        uv_run(&server->loop, UV_RUN_NOWAIT);
    }
    if (server->loop_open) {
        listen_close(server);
        engine_close(&server->engine);
        trap_release();
        uv_walk(&server->loop, close_handle, NULL);
        uv_run(&server->loop, UV_RUN_DEFAULT);
        uv_loop_close(&server->loop);
    }
    journal_clear(server);
    free(server->journal.ops);
    arena_release(&server->journal.arena);
    wait_release(server);
    row_table_release(&server->rows);
    free(server->path);
    free(server->unix_path);
    free(server->password);
    free(server->tls_cert);
    free(server->tls_key);
    free(server->tls_ca);
    tls_context_free(server->tls);
    free(server);
}
