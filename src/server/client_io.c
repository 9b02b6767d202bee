/* client_io.c -- what a connection brings and takes away: input, output, TLS between the two.
 *
 * Input waits in one buffer that grows only with what has arrived: a read goes into a place that all
 * clients share, and only the rest of a large request straight into the client's buffer. So thousands
 * of clients with small requests need little. Output that the kernel does not take at once waits too,
 * up to a limit: a client that does not read what it asked for is cut, so that nobody else pays for it.
 * (It is not throttled instead: clients that write a whole pipeline before they read the first reply
 * are common, and would wait for ever.)
 *
 * With TLS the same two buffers hold plain bytes. What arrives passes through the filter at once;
 * what leaves is encrypted when the socket is free for it, into `wire`. */
#include "server/state.h"

#include <string.h>

enum {
    READ_ROOM = 16 * 1024,       /* what a read may bring at least */
    READ_ROOM_MAX = 1024 * 1024, /* and at most, while a large request comes in */
    BUFFER_KEPT = 64 * 1024,     /* a larger one is given back when it is empty */
    LINGER_MS = 30 * 1000,       /* who has said goodbye may take the rest of his replies so long */
};

void client_give_back(struct client *client, struct buf *buf)
{
    heap_freed(client->server, buf->capacity);
    buf_release(buf);
}

static void buffer_rest(struct client *client, struct buf *buf)
{
    if (buf->capacity > BUFFER_KEPT) {
        client_give_back(client, buf);
    } else {
        buf_clear(buf);
    }
}

void client_shrink(struct client *client)
{
    if (client->in_at == client->in.size) {
        client_give_back(client, &client->in);
        client->in_at = 0;
    }
    if (client->out.size == 0 && !client->is_redoing) {
        client_give_back(client, &client->out);
    }
    if (!client->is_sending) {
        client_give_back(client, &client->sending);
    }
    if (client->wire.size == 0) {
        client_give_back(client, &client->wire);
    }
}

/* ---- output ---- */

static void on_written(uv_write_t *write, int code)
{
    struct client *client = write->data;

    client->is_sending = false;
    buffer_rest(client, &client->sending);
    if (code < 0) {
        client_close(client);
    } else {
        client_flush(client);
    }
}

/* Hands what the kernel did not take of `bytes` at once to the loop. */
static void send_later(struct client *client, struct buf *bytes, size_t sent)
{
    struct buf empty = client->sending;
    size_t size_max = bytes->size_max;
    uv_buf_t rest;

    client->sending = *bytes;
    *bytes = empty;
    buf_clear(bytes);
    bytes->size_max = size_max;
    rest =
        uv_buf_init((char *)client->sending.data + sent, (unsigned)(client->sending.size - sent));
    client->write.data = client;
    client->is_sending = uv_write(&client->write, &client->io.stream, &rest, 1, on_written) == 0;
    if (!client->is_sending) {
        client_close(client);
    }
}

static void cut(struct client *client)
{
    struct server *server = client->server;

    server->stats.cut_slow++;
    server_log(server, 2, "client %llu at %s is cut: it does not take its replies",
               (unsigned long long)client->id, client->address);
    client_close(client);
}

/* Encrypts what waits, and the goodbye if that is all. False: the client was closed. */
static bool encrypt(struct client *client)
{
    struct impel_error err;
    int rc = IMPEL_OK;

    if (client->out.size > 0 && tls_is_open(client->tls)) {
        rc = tls_send(client->tls, buf_bytes(&client->out), &client->wire, &err);
        buffer_rest(client, &client->out);
    }
    if (rc == IMPEL_ERR_LIMIT || client->wire.failed) {
        cut(client);
        return false;
    }
    if (rc < 0) {
        client_close(client);
        return false;
    }
    if ((client->flags & CLIENT_CLOSE_AFTER) != 0) {
        tls_end(client->tls, &client->wire);
    }
    return true;
}

void client_flush(struct client *client)
{
    struct server *server = client->server;
    struct buf *bytes = client->tls == NULL ? &client->out : &client->wire;

    if ((client->flags & CLIENT_CLOSING) != 0) {
        return;
    }
    if (client->out.failed) {
        cut(client);
        return;
    }
    if (client->is_sending || (client->tls != NULL && !encrypt(client))) {
        return;
    }
    if (bytes->size > 0) {
        uv_buf_t all = uv_buf_init((char *)bytes->data, (unsigned)bytes->size);
        int sent = uv_try_write(&client->io.stream, &all, 1);
        server->stats.output_bytes += bytes->size;
        if (sent < 0 && sent != UV_EAGAIN) {
            client_close(client);
            return;
        }
        if (sent < 0 || (size_t)sent < bytes->size) {
            send_later(client, bytes, sent < 0 ? 0 : (size_t)sent);
            return;
        }
        buffer_rest(client, bytes);
    }
    if ((client->flags & CLIENT_CLOSE_AFTER) != 0) {
        client_close(client);
    }
}

static void on_late(uv_timer_t *timer)
{
    client_close(timer->data);
}

void client_close_after(struct client *client)
{
    if ((client->flags & (CLIENT_CLOSING | CLIENT_CLOSE_AFTER)) == 0) {
        client->flags |= CLIENT_CLOSE_AFTER;
        uv_timer_start(&client->timer, on_late, LINGER_MS, 0);
        client_dirty(client);
        server_kick(client->server);
    }
}

/* ---- input ---- */

/* Where the next bytes go: what is done with makes room. */
static void make_room(struct client *client)
{
    struct buf *in = &client->in;

    if (client->in_at == in->size) {
        buffer_rest(client, in);
        client->in_at = 0;
    } else if (client->in_at > 0 && in->capacity - in->size < READ_ROOM) {
        memmove(in->data, in->data + client->in_at, in->size - client->in_at);
        in->size -= client->in_at;
        client->in_at = 0;
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct client *client = handle->data;
    struct server *server = client->server;
    struct buf *in = &client->in;
    void *data = server->arrived;
    size_t room = READ_ROOM;

    (void)suggested;
    make_room(client);
    if (client->tls != NULL) {
        *out = uv_buf_init(server->arrived, sizeof(server->arrived));
        return;
    }
    if (in->size > READ_ROOM) {
        room = in->size < READ_ROOM_MAX ? in->size : READ_ROOM_MAX;
    }
    if (room > in->size_max - in->size) {
        room = in->size_max - in->size;
    }
    if (room > 0 && in->size > READ_ROOM) {
        data = buf_reserve(in, room);
    }
    *out = uv_buf_init(data, data == NULL ? 0 : (unsigned)room);
}

static void cut_full(struct client *client)
{
    client->server->stats.cut_full++;
    server_log(client->server, 2,
               "client %llu at %s is cut: its requests are more than it may keep",
               (unsigned long long)client->id, client->address);
    client_close(client);
}

/* Nothing follows. What it has sent is carried out first, and it may take its replies: whoever
 * writes, shuts down his side and reads has a right to them. */
static void on_end(struct client *client)
{
    uv_read_stop(&client->io.stream);
    if ((client->flags & CLIENT_BLOCKED) != 0) {
        client_close(client);
    } else {
        client->flags |= CLIENT_ENDED;
        client_ready(client);
    }
}

/* Bytes through the filter. False: nothing for the turn came of it. */
static bool decrypt(struct client *client, struct impel_bytes bytes)
{
    struct server *server = client->server;
    bool was_open = tls_is_open(client->tls);
    size_t before = client->in.size;
    struct impel_error err;
    int rc = tls_receive(client->tls, bytes, &client->in, &client->wire, &err);

    if (client->wire.size > 0) {
        client_dirty(client);
    }
    if (!was_open && tls_is_open(client->tls)) {
        uv_timer_stop(&client->timer);
    }
    if (rc == IMPEL_ERR_LIMIT) {
        cut_full(client);
    } else if (rc == IMPEL_ERR_DISCONNECTED) {
        on_end(client);
    } else if (rc < 0) {
        server->stats.failed_handshakes += !was_open;
        server_log(server, was_open ? 2 : 1, "client %llu at %s is closed: %s",
                   (unsigned long long)client->id, client->address, err.text);
        client->in_at = client->in.size;
        client_close_after(client);
        return false;
    }
    return client->in.size > before;
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *room)
{
    struct client *client = stream->data;
    struct server *server = client->server;

    if (got == UV_EOF) {
        on_end(client);
        return;
    }
    if (got == UV_ENOBUFS) {
        cut_full(client);
        return;
    }
    if (got < 0) {
        client_close(client);
        return;
    }
    if ((client->flags & CLIENT_CLOSE_AFTER) != 0) {
        return;
    }
    server->stats.input_bytes += (uint64_t)got;
    client->active_ms = (int64_t)uv_now(&server->loop);
    if (client->tls == NULL && room->base != server->arrived) {
        client->in.size += (size_t)got;
    } else if (client->tls == NULL) {
        buf_append(&client->in, room->base, (size_t)got);
        if (client->in.failed) {
            cut_full(client);
            return;
        }
    } else if (!decrypt(client, (struct impel_bytes){room->base, (size_t)got})) {
        return;
    }
    client_ready(client);
}

int client_read_start(struct client *client)
{
    if (client->tls != NULL) {
        uv_timer_start(&client->timer, on_late, client->server->options.handshake_ms, 0);
    }
    return uv_read_start(&client->io.stream, on_alloc, on_read);
}
