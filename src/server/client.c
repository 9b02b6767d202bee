/* client.c -- a connection: its beginning, its end, and how it is told of in words. What passes
 * through it is in client_io.c. */
#include "server/state.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEEPALIVE_S = 300,
    /* What encryption adds to a megabyte: 22 bytes a record of 16 KiB, and some for the handshake. */
    TLS_EXTRA_SHARE = 128,
    TLS_EXTRA = 64 * 1024,
    TLS_STATE_ABOUT = 32 * 1024,
};

/* ---- the end ---- */

static void client_free(struct client *client)
{
    struct server *server = client->server;

    link_remove(&client->all);
    server->client_count--;
    client_give_back(client, &client->in);
    client_give_back(client, &client->out);
    client_give_back(client, &client->sending);
    client_give_back(client, &client->wire);
    heap_freed(server, sizeof(*client) + (client->tls != NULL ? TLS_STATE_ABOUT : 0));
    tls_free(client->tls);
    free((void *)client->name.data);
    free((void *)client->lib_name.data);
    free((void *)client->lib_version.data);
    free(client);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;

    if (--client->handles == 0) {
        client_free(client);
    }
}

void client_close(struct client *client)
{
    if ((client->flags & CLIENT_CLOSING) != 0) {
        return;
    }
    if ((client->flags & CLIENT_BLOCKED) != 0) {
        wait_end(client, NULL);
    }
    multi_discard(client);
    client->flags |= CLIENT_CLOSING;
    link_remove(&client->ready);
    link_remove(&client->dirty);
    uv_close(&client->io.handle, on_handle_closed);
    uv_close((uv_handle_t *)&client->timer, on_handle_closed);
}

void client_ready(struct client *client)
{
    if (client->ready.next == NULL && (client->flags & CLIENT_CLOSING) == 0) {
        link_append(&client->server->ready, &client->ready);
    }
}

void client_dirty(struct client *client)
{
    if (client->dirty.next == NULL && (client->flags & CLIENT_CLOSING) == 0) {
        link_append(&client->server->dirty, &client->dirty);
    }
}

/* ---- the beginning ---- */

static void address_text(const struct sockaddr_storage *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)address;
        uv_ip6_name(six, host, sizeof(host));
        (void)snprintf(text, size, "[%s]:%d", host, ntohs(six->sin6_port));
    } else {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
        uv_ip4_name(four, host, sizeof(host));
        (void)snprintf(text, size, "%s:%d", host, ntohs(four->sin_port));
    }
}

static bool address_is_local(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6) {
        const struct in6_addr *six =
            &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
    }
    const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)address;
    return ntohl(four->sin_addr.s_addr) >> 24 == 127;
}

static void client_addresses(struct client *client, const struct listener *listener)
{
    struct sockaddr_storage address = {0};
    int size = sizeof(address);

    if (listener->is_unix) {
        client->flags |= CLIENT_UNIX | CLIENT_LOCAL;
        (void)snprintf(client->address, sizeof(client->address), "%.60s:0", listener->text);
        (void)snprintf(client->local_address, sizeof(client->local_address), "%.60s:0",
                       listener->text);
        return;
    }
    if (uv_tcp_getpeername(&client->io.tcp, (struct sockaddr *)&address, &size) == 0) {
        address_text(&address, client->address, sizeof(client->address));
        client->flags |= address_is_local(&address) ? CLIENT_LOCAL : 0;
    }
    size = sizeof(address);
    if (uv_tcp_getsockname(&client->io.tcp, (struct sockaddr *)&address, &size) == 0) {
        address_text(&address, client->local_address, sizeof(client->local_address));
    }
}

/* Told in words where the client can read them. */
static void refuse(struct client *client)
{
    client->server->stats.rejected_connections++;
    if (client->tls != NULL) {
        client_close(client);
        return;
    }
    buf_append_text(&client->out, "-ERR max number of clients reached\r\n");
    client_close_after(client);
}

static void client_start(struct client *client, struct listener *listener)
{
    struct server *server = client->server;
    struct resp_limits limits;

    client->id = ++server->next_client_id;
    client->version = 2;
    client->created_ms = client->active_ms = (int64_t)uv_now(&server->loop);
    resp_limits_default(&limits);
    limits.items_max = (size_t)1024 * 1024;
    limits.total_max = server->options.input_bytes_max;
    resp_request_scan_init(&client->scan, &limits);
    buf_init(&client->in, server->options.input_bytes_max);
    buf_init(&client->out, server->options.output_bytes_max);
    buf_init(&client->sending, server->options.output_bytes_max);
    buf_init(&client->wire, server->options.output_bytes_max +
                                server->options.output_bytes_max / TLS_EXTRA_SHARE + TLS_EXTRA);
    if (server->password != NULL) {
        client->flags |= CLIENT_UNPRIVILEGED;
        client->scan.unauthenticated = true;
    }
    client_addresses(client, listener);
    if (!listener->is_unix) {
        uv_tcp_nodelay(&client->io.tcp, 1);
        uv_tcp_keepalive(&client->io.tcp, 1, KEEPALIVE_S);
    }
    server->stats.connections++;
    bool tls_failed = listener->is_tls && tls_new(server->tls, NULL, &client->tls) < 0;
    if (!tls_failed && server->client_count > server->options.clients_max) {
        refuse(client);
    } else if (tls_failed || client_read_start(client) < 0) {
        client_close(client);
    }
}

void client_accept(struct listener *listener)
{
    struct server *server = listener->server;
    struct client *client = calloc(1, sizeof(*client));

    if (client == NULL) {
        server_log(server, 3, "no memory for another client");
        return;
    }
    client->server = server;
    client->handles = 2;
    if (listener->is_unix) {
        uv_pipe_init(&server->loop, &client->io.pipe, 0);
    } else {
        uv_tcp_init(&server->loop, &client->io.tcp);
    }
    uv_timer_init(&server->loop, &client->timer);
    client->io.handle.data = client;
    client->timer.data = client;
    link_append(&server->clients, &client->all);
    server->client_count++;
    if (uv_accept(&listener->io.stream, &client->io.stream) < 0) {
        client_close(client);
        return;
    }
    client_start(client, listener);
}

/* ---- in words ---- */

static void put_flags(const struct client *client, struct buf *out)
{
    char text[8];
    size_t size = 0;

    text[size] = 'N';
    if ((client->flags & CLIENT_BLOCKED) != 0) {
        text[size++] = 'b';
    }
    if ((client->flags & CLIENT_MULTI) != 0) {
        text[size++] = 'x';
    }
    if ((client->flags & CLIENT_CLOSE_AFTER) != 0) {
        text[size++] = 'c';
    }
    if ((client->flags & CLIENT_UNIX) != 0) {
        text[size++] = 'U';
    }
    if ((client->flags & CLIENT_NO_EVICT) != 0) {
        text[size++] = 'e';
    }
    buf_append(out, text, size == 0 ? 1 : size);
}

void client_describe(const struct client *client, struct buf *out)
{
    int64_t now_ms = (int64_t)uv_now(&client->server->loop);
    uv_os_fd_t fd = -1;

    (void)uv_fileno(&client->io.handle, &fd);
    buf_appendf(out, "id=%llu addr=%s laddr=%s fd=%d name=", (unsigned long long)client->id,
                client->address, client->local_address, fd);
    buf_append_bytes(out, client->name);
    buf_appendf(out, " age=%lld idle=%lld flags=", (long long)(now_ms - client->created_ms) / 1000,
                (long long)(now_ms - client->active_ms) / 1000);
    put_flags(client, out);
    buf_appendf(
        out,
        " db=0 sub=0 psub=0 ssub=0 multi=%lld watch=%zu qbuf=%zu qbuf-free=%zu "
        "argv-mem=0 multi-mem=%zu rbs=0 rbp=0 obl=%zu oll=0 omem=%zu tot-mem=%zu events=r "
        "cmd=%s user=default redir=-1 resp=%d lib-name=",
        (client->flags & CLIENT_MULTI) != 0 ? (long long)client->multi.count : -1LL,
        client->watch_count, client->in.size - client->in_at, client->in.capacity - client->in.size,
        client->multi.size_bytes, client->out.size, client->sending.size,
        sizeof(*client) + client->in.capacity + client->out.capacity + client->sending.capacity,
        client->last_row == NULL ? "NULL" : client->last_row->name, client->version);
    buf_append_bytes(out, client->lib_name);
    buf_append_text(out, " lib-ver=");
    buf_append_bytes(out, client->lib_version);
    buf_append_text(out, "\n");
}
