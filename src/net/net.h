/* net.h -- one connection to a server, on a libuv loop: TCP or a unix socket, bytes in and bytes
 * out, with TLS between them and the socket or without.
 *
 * What comes in is kept in one contiguous buffer until it is taken, so that a codec can hand out
 * spans of it; it grows with what has arrived, up to a maximum. What goes out is appended to a
 * buffer and sent by net_flush(), at once if the kernel takes it: many commands, one system call.
 * A deadline says how long nothing may arrive while something is expected.
 *
 * Everything happens on the loop's thread. The connection tells its owner three things (opened,
 * received, closed) and after net_close() nothing any more; its memory goes when the loop has let
 * go of its handles, which takes one more turn of the loop.
 *
 * What does not go out at once is written by libuv, which lets SIGPIPE through: the thread that runs
 * the loop has it blocked or ignored.
 *
 * Not here: reconnecting and listening are their callers'. */
#ifndef IMPEL_NET_H
#define IMPEL_NET_H

#include "base/base.h"
#include "net/tls.h"

#include <uv.h>

struct net_address {
    const char *host; /* a name or an address; NULL for a unix socket */
    uint16_t port;
    const char *path; /* of the unix socket */
    /* A client's rules and certificates; NULL = plain bytes. It may be freed after the call. What the
     * handshake fails of is IMPEL_ERR_PROTOCOL. */
    struct tls_context *tls;
    const char *tls_name; /* whose certificate is wanted; NULL = the host's */
};

struct net_limits {
    int64_t connect_timeout_ms; /* from the look-up of the name until it is open, TLS included */
    size_t in_max;              /* bytes that have arrived and were not taken */
    size_t out_max;             /* bytes that wait to be sent */
};

struct net_handler {
    void (*opened)(void *user);
    /* `input` is all that has arrived and was not taken. Returns how much of it is taken now; the
     * rest comes again, with more. Spans of it die when this returns. May call net_close(). */
    size_t (*received)(void *user, struct impel_bytes input);
    /* The connection is over (told once, not after net_close()). `err` says why. */
    void (*closed)(void *user, const struct impel_error *err);
    void *user;
};

struct net_conn;

/* Begins to connect; `address` is copied. NULL if memory is out. The outcome is told by `opened` or
 * `closed`, never from within this call. */
struct net_conn *net_connect(uv_loop_t *loop,
                             const struct net_address *address,
                             const struct net_limits *limits,
                             const struct net_handler *handler);
/* Ends it without telling the handler. NULL is fine. */
void net_close(struct net_conn *conn);

/* Where to append what shall be sent; buf->failed tells of too much (checked by net_flush). */
struct buf *net_out(struct net_conn *conn);
/* Sends what was appended. A connection whose buffer failed or whose peer is gone is closed, which
 * `closed` tells in a later turn of the loop. */
void net_flush(struct net_conn *conn);
/* The connection is closed with IMPEL_ERR_TIMEOUT when nothing arrives for `idle_ms`, counted anew
 * with every arrival; -1 = no deadline (the state at the start). `what` is for the error text and
 * outlives the connection. */
void net_expect(struct net_conn *conn, int64_t idle_ms, const char *what);

#endif /* IMPEL_NET_H */
