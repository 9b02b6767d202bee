/* listen.c -- where the server can be reached: TCP addresses and a unix socket.
 *
 * Without a password only this machine may connect: whoever reaches the port may read and delete
 * everything. So an address that others can reach is refused at start then, not only warned of. */
#include "server/state.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BACKLOG = 511,
    HOST_SIZE = 80,
};

static void on_connection(uv_stream_t *stream, int code)
{
    struct listener *listener = stream->data;

    if (code < 0) {
        server_log(listener->server, 3, "a connection could not be taken: %s", uv_strerror(code));
    } else {
        client_accept(listener);
    }
}

/* "HOST:PORT" or "[V6]:PORT"; HOST may be empty (every address) or "localhost". */
static bool parse_address(const char *text, char *host, struct sockaddr_storage *out)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;

    if (colon == NULL || colon[1] == '\0' || (size_t)(colon - text) >= HOST_SIZE) {
        return false;
    }
    long port = strtol(colon + 1, &end, 10);
    if (*end != '\0' || port < 0 || port > UINT16_MAX) {
        return false;
    }
    size_t size = (size_t)(colon - text);
    if (size >= 2 && text[0] == '[' && text[size - 1] == ']') {
        text++;
        size -= 2;
    }
    memcpy(host, text, size);
    host[size] = '\0';
    if (size == 0 || strcmp(host, "*") == 0) {
        memcpy(host, "0.0.0.0", sizeof("0.0.0.0"));
    } else if (strcmp(host, "localhost") == 0) {
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    }
    if (strchr(host, ':') != NULL) {
        return uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)(void *)out) == 0;
    }
    return uv_ip4_addr(host, (int)port, (struct sockaddr_in *)(void *)out) == 0;
}

static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6) {
        return IN6_IS_ADDR_LOOPBACK(
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    }
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

static struct listener *listener_new(struct server *server, struct impel_error *err)
{
    if (server->listener_count == LISTENERS_MAX) {
        error_set(err, IMPEL_ERR_LIMIT, "at most %d addresses can be listened on", LISTENERS_MAX);
        return NULL;
    }
    struct listener *listener = &server->listeners[server->listener_count++];
    listener->server = server;
    return listener;
}

static int failed(const char *text, int code, struct impel_error *err)
{
    return error_set(err, code == UV_EADDRINUSE ? IMPEL_ERR_BUSY : IMPEL_ERR_IO,
                     "cannot listen on %s: %s%s", text, uv_strerror(code),
                     code == UV_EADDRINUSE ? " (another server? then choose another --listen)"
                                           : "");
}

static int listen_tcp(struct server *server, const char *text, struct impel_error *err)
{
    struct sockaddr_storage address = {0};
    char host[HOST_SIZE];
    int size = sizeof(address);

    if (!parse_address(text, host, &address)) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--listen %s: not HOST:PORT with a numeric address", text);
    }
    if (!is_loopback(&address) && server->password == NULL && server->tls_ca == NULL) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--listen %s can be reached from other machines, and there is no "
                         "password: give one, or ask for certificates with --tls-ca, or listen on "
                         "127.0.0.1",
                         text);
    }
    struct listener *listener = listener_new(server, err);
    if (listener == NULL) {
        return IMPEL_ERR_LIMIT;
    }
    uv_tcp_init(&server->loop, &listener->io.tcp);
    listener->is_open = true;
    listener->is_tls = server->tls != NULL;
    listener->io.handle.data = listener;
    int code = uv_tcp_bind(&listener->io.tcp, (const struct sockaddr *)&address,
                           address.ss_family == AF_INET6 ? UV_TCP_IPV6ONLY : 0);
    code = code < 0 ? code : uv_listen(&listener->io.stream, BACKLOG, on_connection);
    if (code < 0) {
        return failed(text, code, err);
    }
    if (uv_tcp_getsockname(&listener->io.tcp, (struct sockaddr *)&address, &size) == 0) {
        int port = ntohs(((const struct sockaddr_in *)(const void *)&address)->sin_port);
        (void)snprintf(listener->text, sizeof(listener->text),
                       address.ss_family == AF_INET6 ? "[%s]:%d" : "%s:%d", host, port);
        server->tcp_port = server->tcp_port == 0 ? port : server->tcp_port;
    }
    server_log(server, 1, "listening on %s%s", listener->text, listener->is_tls ? " with TLS" : "");
    return IMPEL_OK;
}

/* A socket that a killed server left behind is in the way; one that answers is not. */
static void remove_stale(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    int fd = -1;

    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode)) {
        return;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 &&
        errno == ECONNREFUSED) {
        (void)unlink(path);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static bool folder_exists(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
    struct stat st;

    if (slash == NULL || slash == path || (size_t)(slash - path) >= sizeof(folder)) {
        return true;
    }
    memcpy(folder, path, (size_t)(slash - path));
    folder[slash - path] = '\0';
    return stat(folder, &st) == 0 || errno != ENOENT;
}

static int listen_unix(struct server *server, const char *path, struct impel_error *err)
{
    struct listener *listener = NULL;
    struct stat st;
    size_t size_max = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;

    /* libuv would cut it off, and give one without a name to an empty one. */
    if (path[0] == '\0' || strlen(path) > size_max) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--unix %s: the path of a socket has 1 to %zu bytes", path, size_max);
    }
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return error_set(err, IMPEL_ERR_EXISTS,
                         "cannot listen on %s: there is something else than a socket", path);
    }
    listener = listener_new(server, err);
    if (listener == NULL) {
        return IMPEL_ERR_LIMIT;
    }
    remove_stale(path);
    uv_pipe_init(&server->loop, &listener->io.pipe, 0);
    listener->is_open = true;
    listener->is_unix = true;
    listener->io.handle.data = listener;
    (void)snprintf(listener->text, sizeof(listener->text), "%s", path);
    mode_t mask = umask(0077); /* the owner's, unless he widens it */
    int code = uv_pipe_bind(&listener->io.pipe, path);
    umask(mask);
    if (code == UV_EACCES && !folder_exists(path)) {
        code = UV_ENOENT; /* libuv makes the one of the other */
    }
    code = code < 0 ? code : uv_listen(&listener->io.stream, BACKLOG, on_connection);
    if (code < 0) {
        return failed(path, code, err);
    }
    server_log(server, 1, "listening on %s", path);
    return IMPEL_OK;
}

int listen_tls(struct server *server, struct impel_error *err)
{
    const struct tls_options options = {
        .cert_file = server->tls_cert,
        .key_file = server->tls_key,
        .ca_file = server->tls_ca,
        .is_server = true,
    };
    struct tls_context *context = NULL;

    if (options.cert_file == NULL && options.key_file == NULL && options.ca_file == NULL) {
        return IMPEL_OK;
    }
    int rc = tls_context_new(&options, &context, err);
    if (rc >= 0) {
        tls_context_free(server->tls);
        server->tls = context;
    }
    return rc;
}

int listen_open(struct server *server, struct impel_error *err)
{
    int rc = listen_tls(server, err);

    for (size_t i = 0; rc >= 0 && i < server->options.listen_count; i++) {
        rc = listen_tcp(server, server->options.listen[i], err);
    }
    if (rc >= 0 && server->unix_path != NULL) {
        rc = listen_unix(server, server->unix_path, err);
    }
    if (rc >= 0 && server->listener_count == 0) {
        rc = error_set(err, IMPEL_ERR_INVALID, "nothing to listen on");
    }
    return rc;
}

void listen_close(struct server *server)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        struct listener *listener = &server->listeners[i];
        if (listener->is_open) {
            listener->is_open = false;
            uv_close(&listener->io.handle, NULL);
        }
    }
}
