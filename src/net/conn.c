/* conn.c -- a connection: resolve, connect, read, write, close.
 *
 *   RESOLVING ──► CONNECTING ──► (SECURING) ──► OPEN ──► CLOSING
 *        └──────────────┴──────────────┴───────────────────▲
 *
 * With TLS there is a filter between the socket and the two buffers: what arrives passes through it
 * into `in`, what is in `out` becomes records in `wire`, and that is what is sent. SECURING is its
 * handshake, in which only its own messages go to and fro.
 *
 * Every failure becomes an `err` and goes through conn_fail(), which tells the handler from a timer
 * of zero, never from within a call of the owner's. */
#include "net/net.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_CHUNK = 128 * 1024,         /* room offered to one read */
    IN_KEEP_MAX = 1024 * 1024,     /* a larger buffer is given back once it is empty */
    WIRE_SHARE = 128,              /* what records are larger than what they carry: 1/128, */
    WIRE_MORE = 64 * 1024,         /* and this for the handshake */
    KEEPALIVE_S = 15,              /* a host that vanished is noticed even when we say nothing */
    UNSENT_TIMEOUT_MS = 20 * 1000, /* bytes that no one acknowledges for this long end it */
    LOOP_LATE_MS = 100,            /* a loop that comes later than this was not running */
};

enum conn_state {
    CONN_RESOLVING,
    CONN_CONNECTING,
    CONN_SECURING,
    CONN_OPEN,
    CONN_FAILED, /* to be told at the next turn */
    CONN_CLOSING,
};

struct net_conn {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    uv_timer_t timer; /* connect timeout, then the deadline, then telling of a failure */
    union {
        uv_getaddrinfo_t resolve;
        uv_connect_t connect;
        uv_write_t write; /* only one is under way at a time */
    };
    uv_loop_t *loop;
    enum conn_state state;
    struct net_handler handler;
    struct net_limits limits;
    struct addrinfo *addresses, *address; /* all, and the one being tried */
    bool stream_ready;                    /* `stream` is an initialised handle */
    bool retry;                           /* `stream` is being closed to try the next address */
    bool writing;                         /* `flight` belongs to the kernel until write_done() */
    unsigned pending;        /* handles and requests that libuv still has: freed at 0 */
    uint64_t connect_due_ms; /* when its timer is to go off; tells how late the loop came */
    int64_t expect_ms;
    const char *expect_what;
    struct buf in;     /* what has arrived */
    struct buf out;    /* to be sent */
    struct buf flight; /* being sent */
    struct tls *tls;   /* NULL: the socket has plain bytes */
    struct buf wire;   /* TLS: what is to be sent of it, before `flight` */
    char *wire_in;     /* TLS: room for one read */
    struct impel_error err;
    char *host, *path;
    char port[8];
};

static void conn_try(struct net_conn *conn);
static ssize_t send_now(const struct net_conn *conn, const struct buf *bytes);

/* ---- the end ---- */

static void conn_unref(struct net_conn *conn)
{
    if (--conn->pending > 0) {
        return;
    }
    if (conn->addresses != NULL) {
        uv_freeaddrinfo(conn->addresses);
    }
    buf_release(&conn->in);
    buf_release(&conn->out);
    buf_release(&conn->flight);
    buf_release(&conn->wire);
    tls_free(conn->tls);
    free(conn->wire_in);
    free(conn->host);
    free(conn->path);
    free(conn);
}

static void handle_closed(uv_handle_t *handle)
{
    conn_unref(handle->data);
}

void net_close(struct net_conn *conn)
{
    if (conn == NULL || conn->state == CONN_CLOSING) {
        return;
    }
    if (conn->state == CONN_RESOLVING) {
        uv_cancel((uv_req_t *)&conn->resolve);
    }
    if (conn->state == CONN_OPEN && conn->tls != NULL && !conn->writing) {
        /* A word of goodbye, if it can be said at once. */
        tls_end(conn->tls, &conn->wire);
        (void)send_now(conn, &conn->wire);
    }
    conn->state = CONN_CLOSING;
    uv_close((uv_handle_t *)&conn->timer, handle_closed);
    if (conn->stream_ready && !conn->retry) {
        uv_close(&conn->handle, handle_closed);
    }
}

static void tell_failure(uv_timer_t *timer)
{
    struct net_conn *conn = timer->data;
    struct net_handler handler = conn->handler;
    struct impel_error err = conn->err;

    net_close(conn);
    handler.closed(handler.user, &err);
}

static void conn_fail(struct net_conn *conn, int status, const char *text)
{
    if (conn->state >= CONN_FAILED) {
        return;
    }
    if (conn->state == CONN_RESOLVING) {
        uv_cancel((uv_req_t *)&conn->resolve);
    }
    (void)error_set(&conn->err, status, "%s", text);
    conn->state = CONN_FAILED;
    uv_timer_start(&conn->timer, tell_failure, 0, 0);
}

/* ---- time ---- */

static void given_up(uv_timer_t *timer)
{
    struct net_conn *conn = timer->data;
    char text[160];

    if (conn->state == CONN_OPEN) {
        (void)snprintf(text, sizeof(text), "no answer to %s for %lld ms", conn->expect_what,
                       (long long)conn->expect_ms);
    } else if (conn->state == CONN_SECURING) {
        (void)snprintf(text, sizeof(text),
                       "no TLS handshake within %lld ms: does the server speak TLS on this port?",
                       (long long)conn->limits.connect_timeout_ms);
    } else {
        (void)snprintf(text, sizeof(text), "no connection within %lld ms",
                       (long long)conn->limits.connect_timeout_ms);
    }
    conn_fail(conn, IMPEL_ERR_TIMEOUT, text);
}

static void expired(uv_timer_t *timer);

static void connect_begins(struct net_conn *conn)
{
    uv_update_time(conn->loop);
    conn->connect_due_ms = uv_now(conn->loop) + (uint64_t)conn->limits.connect_timeout_ms;
    uv_timer_start(&conn->timer, expired, (uint64_t)conn->limits.connect_timeout_ms, 0);
}

/* The loop looks at timers before it looks at sockets, so who was stopped for longer comes here although
 * the answer is there: the end comes only after one more look. A connection takes several (the name, each
 * address), so it has all of its time once more where nobody ran the loop meanwhile. */
static void expired(uv_timer_t *timer)
{
    struct net_conn *conn = timer->data;

    if (conn->state < CONN_OPEN && uv_now(conn->loop) > conn->connect_due_ms + LOOP_LATE_MS) {
        connect_begins(conn);
    } else {
        uv_timer_start(timer, given_up, 1, 0);
    }
}

void net_expect(struct net_conn *conn, int64_t idle_ms, const char *what)
{
    conn->expect_ms = idle_ms;
    conn->expect_what = what;
    if (conn->state != CONN_OPEN) {
        return;
    }
    if (idle_ms < 0) {
        uv_timer_stop(&conn->timer);
    } else {
        /* The loop's idea of now may be as old as its last wait. */
        uv_update_time(conn->loop);
        uv_timer_start(&conn->timer, expired, (uint64_t)idle_ms, 0);
    }
}

/* ---- reading ---- */

static void expect_anew(struct net_conn *conn)
{
    if (conn->expect_ms >= 0) {
        uv_timer_start(&conn->timer, expired, (uint64_t)conn->expect_ms, 0);
    }
}

static void buf_emptied(struct buf *buf)
{
    if (buf->capacity > IN_KEEP_MAX) {
        buf_release(buf);
    } else {
        buf_clear(buf);
    }
}

/* The owner takes what it can use of what has arrived. */
static void conn_take_bytes(struct net_conn *conn)
{
    size_t taken = conn->handler.received(conn->handler.user, buf_bytes(&conn->in));

    ASSERT(taken <= conn->in.size);
    if (conn->state != CONN_OPEN) {
        return;
    }
    conn->in.size -= taken;
    if (conn->in.size > 0 && taken > 0) {
        memmove(conn->in.data, conn->in.data + taken, conn->in.size);
    }
    if (conn->in.size == 0) {
        buf_emptied(&conn->in);
    }
}

static void offer_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    struct net_conn *conn = handle->data;

    (void)suggested;
    *room = uv_buf_init(NULL, 0);
    if (conn->in.size >= conn->limits.in_max) {
        return;
    }
    if (conn->tls != NULL) {
        *room = uv_buf_init(conn->wire_in, IN_CHUNK);
        return;
    }
    void *data = buf_reserve(&conn->in, IN_CHUNK);
    size_t size = conn->in.capacity - conn->in.size;
    if (data != NULL) {
        *room = uv_buf_init(data, size > UINT32_MAX / 2 ? UINT32_MAX / 2 : (unsigned)size);
    }
}

static void conn_opened(struct net_conn *conn)
{
    conn->state = CONN_OPEN;
    uv_timer_stop(&conn->timer);
    conn->handler.opened(conn->handler.user);
    if (conn->state == CONN_OPEN) {
        net_expect(conn, conn->expect_ms, conn->expect_what);
        net_flush(conn);
    }
}

/* What arrived passes through the filter. A session that ends has brought its last bytes, and may have
 * an alert for the peer. */
static void wire_arrived(struct net_conn *conn, struct impel_bytes bytes)
{
    struct impel_error err;
    size_t before = conn->in.size;
    int rc = tls_receive(conn->tls, bytes, &conn->in, &conn->wire, &err);

    if (conn->state == CONN_SECURING && tls_is_open(conn->tls)) {
        conn_opened(conn);
    }
    if (conn->state == CONN_OPEN) {
        expect_anew(conn);
    }
    if (conn->state == CONN_OPEN && conn->in.size > before) {
        conn_take_bytes(conn);
    }
    if (rc >= 0) {
        net_flush(conn);
        return;
    }
    if (conn->state <= CONN_OPEN && !conn->writing) {
        (void)send_now(conn, &conn->wire);
    }
    conn_fail(conn, rc,
              rc == IMPEL_ERR_DISCONNECTED ? "the server closed the connection"
              : rc == IMPEL_ERR_LIMIT      ? "the server sends more than is allowed"
                                           : err.text);
}

/* The connection is no more. A server that means something else by a client's hello may close it as well
 * as break it off, and that may be seen by who reads or who writes. */
static void conn_lost(struct net_conn *conn, int why)
{
    if (conn->state == CONN_SECURING) {
        conn_fail(conn, IMPEL_ERR_DISCONNECTED,
                  "the server closed the connection during the TLS handshake: does it speak TLS on "
                  "this port?");
    } else {
        conn_fail(conn, IMPEL_ERR_DISCONNECTED,
                  why == UV_EOF ? "the server closed the connection" : uv_strerror(why));
    }
}

static void nothing_arrives(struct net_conn *conn, ssize_t why)
{
    if (why == UV_ENOBUFS) {
        bool over = conn->in.size >= conn->limits.in_max;
        conn_fail(conn, over ? IMPEL_ERR_LIMIT : IMPEL_ERR_NOMEM,
                  over ? "the server sends more than is allowed" : "no memory for a reply");
    } else {
        conn_lost(conn, (int)why);
    }
}

static void bytes_arrived(uv_stream_t *stream, ssize_t size, const uv_buf_t *room)
{
    struct net_conn *conn = stream->data;

    if ((conn->state != CONN_OPEN && conn->state != CONN_SECURING) || size == 0) {
        return;
    }
    if (size < 0) {
        nothing_arrives(conn, size);
    } else if (conn->tls != NULL) {
        wire_arrived(conn, (struct impel_bytes){room->base, (size_t)size});
    } else {
        conn->in.size += (size_t)size;
        expect_anew(conn);
        conn_take_bytes(conn);
    }
}

/* ---- writing ---- */

static void write_done(uv_write_t *write, int status)
{
    struct net_conn *conn = write->data;

    conn->writing = false;
    buf_clear(&conn->flight);
    if (status < 0 && conn->state != CONN_CLOSING) {
        conn_lost(conn, status);
    } else {
        net_flush(conn);
    }
    conn_unref(conn);
}

/* What the kernel takes at once: usually all. Not by uv_try_write(), which raises SIGPIPE. */
static ssize_t send_now(const struct net_conn *conn, const struct buf *bytes)
{
    uv_os_fd_t fd;
    int rc = uv_fileno(&conn->handle, &fd);

    if (rc < 0) {
        return rc;
    }
    ssize_t sent = send(fd, bytes->data, bytes->size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    return sent;
}

/* Sends `bytes`: what the kernel does not take at once goes with them as `flight`. */
static int conn_write(struct net_conn *conn, struct buf *bytes)
{
    ssize_t sent = send_now(conn, bytes);

    if (sent < 0) {
        return (int)sent;
    }
    if ((size_t)sent == bytes->size) {
        buf_clear(bytes);
        return 0;
    }
    struct buf flight = conn->flight;
    conn->flight = *bytes;
    *bytes = flight;
    buf_clear(bytes);
    uv_buf_t rest =
        uv_buf_init((char *)conn->flight.data + sent, (unsigned)(conn->flight.size - (size_t)sent));
    conn->write.data = conn;
    int rc = uv_write(&conn->write, &conn->stream, &rest, 1, write_done);
    if (rc == 0) {
        conn->writing = true;
        conn->pending++;
    }
    return rc;
}

/* What is to be sent becomes records. */
static bool conn_encrypt(struct net_conn *conn)
{
    struct impel_error err;
    int rc = tls_send(conn->tls, buf_bytes(&conn->out), &conn->wire, &err);

    buf_emptied(&conn->out);
    if (rc < 0) {
        conn_fail(conn, rc, err.text);
    }
    return rc >= 0;
}

struct buf *net_out(struct net_conn *conn)
{
    return &conn->out;
}

void net_flush(struct net_conn *conn)
{
    struct buf *bytes = conn->tls == NULL ? &conn->out : &conn->wire;

    if ((conn->state != CONN_OPEN && conn->state != CONN_SECURING) || conn->writing) {
        return;
    }
    if (conn->state == CONN_OPEN && conn->out.failed) {
        conn_fail(conn, buf_status(&conn->out), "more to send than is allowed");
        return;
    }
    if (conn->tls != NULL && conn->state == CONN_OPEN && conn->out.size > 0 &&
        !conn_encrypt(conn)) {
        return;
    }
    int rc = bytes->size > 0 ? conn_write(conn, bytes) : 0;
    if (rc < 0) {
        conn_lost(conn, rc);
    }
}

/* ---- connecting ---- */

static void tune(struct net_conn *conn)
{
    unsigned unsent_ms = UNSENT_TIMEOUT_MS;
    uv_os_fd_t fd;

    uv_tcp_nodelay(&conn->tcp, 1);
    uv_tcp_keepalive(&conn->tcp, 1, KEEPALIVE_S);
    if (uv_fileno(&conn->handle, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unsent_ms, sizeof(unsent_ms));
    }
}

static void next_address(uv_handle_t *handle)
{
    struct net_conn *conn = handle->data;

    conn->retry = false;
    conn->stream_ready = false;
    if (conn->state == CONN_CONNECTING) {
        conn_try(conn);
    }
    conn_unref(conn);
}

/* Begins anew with the address after the one that failed; false if that was the last. */
static bool conn_try_next(struct net_conn *conn)
{
    if (conn->address == NULL || conn->address->ai_next == NULL) {
        return false;
    }
    conn->address = conn->address->ai_next;
    conn->retry = true;
    uv_close(&conn->handle, next_address);
    return true;
}

static void conn_secure(struct net_conn *conn)
{
    struct impel_error err;
    int rc = tls_begin(conn->tls, &conn->wire, &err);

    conn->state = CONN_SECURING;
    if (rc < 0) {
        conn_fail(conn, rc, err.text);
    } else {
        net_flush(conn);
    }
}

static void connected(uv_connect_t *connect, int status)
{
    struct net_conn *conn = connect->data;

    if (conn->state == CONN_CONNECTING && status == 0) {
        if (conn->path == NULL) {
            tune(conn);
        }
        uv_read_start(&conn->stream, offer_room, bytes_arrived);
        if (conn->tls != NULL) {
            conn_secure(conn);
        } else {
            conn_opened(conn);
        }
    } else if (conn->state == CONN_CONNECTING && !conn_try_next(conn)) {
        conn_fail(conn, IMPEL_ERR_DISCONNECTED, uv_strerror(status));
    }
    conn_unref(conn);
}

/* Tries the current address; failing at once is like failing later. */
static void conn_try(struct net_conn *conn)
{
    int rc = 0;

    conn->state = CONN_CONNECTING;
    conn->connect.data = conn;
    if (conn->path != NULL) {
        rc = uv_pipe_init(conn->loop, &conn->pipe, 0);
    } else {
        rc = uv_tcp_init(conn->loop, &conn->tcp);
    }
    if (rc < 0) {
        conn_fail(conn, IMPEL_ERR_IO, uv_strerror(rc));
        return;
    }
    conn->handle.data = conn;
    conn->stream_ready = true;
    conn->pending++;
    if (conn->path != NULL) {
        uv_pipe_connect(&conn->connect, &conn->pipe, conn->path, connected);
    } else {
        rc = uv_tcp_connect(&conn->connect, &conn->tcp, conn->address->ai_addr, connected);
    }
    if (rc == 0) {
        conn->pending++;
    } else if (!conn_try_next(conn)) {
        conn_fail(conn, IMPEL_ERR_DISCONNECTED, uv_strerror(rc));
    }
}

static void resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *addresses)
{
    struct net_conn *conn = resolve->data;

    conn->addresses = conn->address = addresses;
    if (conn->state == CONN_RESOLVING && status == 0) {
        conn_try(conn);
    } else if (conn->state == CONN_RESOLVING) {
        /* Not resolving any more: there is nothing to cancel. */
        conn->state = CONN_CONNECTING;
        conn_fail(conn, IMPEL_ERR_DISCONNECTED, uv_strerror(status));
    }
    conn_unref(conn);
}

static void conn_resolve(struct net_conn *conn)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

    conn->resolve.data = conn;
    int rc = uv_getaddrinfo(conn->loop, &conn->resolve, resolved, conn->host, conn->port, &hints);
    if (rc < 0) {
        conn->state = CONN_CONNECTING;
        conn_fail(conn, IMPEL_ERR_DISCONNECTED, uv_strerror(rc));
    } else {
        conn->pending++;
    }
}

/* The copies of an address; false if memory is out. */
static bool conn_address(struct net_conn *conn, const struct net_address *address)
{
    const char *name = address->tls_name != NULL ? address->tls_name : address->host;

    (void)snprintf(conn->port, sizeof(conn->port), "%u", address->port);
    conn->host = address->host != NULL ? strdup(address->host) : NULL;
    conn->path = address->path != NULL ? strdup(address->path) : NULL;
    if (conn->host == NULL && conn->path == NULL) {
        return false;
    }
    if (address->tls != NULL) {
        conn->wire_in = malloc(IN_CHUNK);
        return conn->wire_in != NULL && tls_new(address->tls, name, &conn->tls) >= 0;
    }
    return true;
}

static void conn_buffers(struct net_conn *conn, const struct net_limits *limits)
{
    size_t wire_max = limits->out_max + limits->out_max / WIRE_SHARE + WIRE_MORE;

    conn->limits = *limits;
    buf_init(&conn->in, limits->in_max + IN_CHUNK);
    buf_init(&conn->out, limits->out_max);
    buf_init(&conn->wire, wire_max);
    buf_init(&conn->flight, conn->tls != NULL ? wire_max : limits->out_max);
}

struct net_conn *net_connect(uv_loop_t *loop,
                             const struct net_address *address,
                             const struct net_limits *limits,
                             const struct net_handler *handler)
{
    struct net_conn *conn = calloc(1, sizeof(*conn));

    if (conn == NULL) {
        return NULL;
    }
    conn->pending = 1;
    if (!conn_address(conn, address)) {
        conn_unref(conn);
        return NULL;
    }
    conn_buffers(conn, limits);
    conn->loop = loop;
    conn->handler = *handler;
    conn->expect_ms = -1;
    conn->expect_what = "a command";
    uv_timer_init(loop, &conn->timer);
    conn->timer.data = conn;
    connect_begins(conn);
    if (conn->path != NULL) {
        conn_try(conn);
    } else {
        conn_resolve(conn);
    }
    return conn;
}
