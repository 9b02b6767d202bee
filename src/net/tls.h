/* tls.h -- TLS as a filter: bytes from the wire in, plain bytes out, and the other way round.
 *
 * There is no socket here and no loop. Whoever has the socket hands over what arrived and sends what
 * is appended to `wire`; so the same filter serves any transport, and a test without one.
 *
 *     socket ──► tls_receive() ──► plain          plain ──► tls_send() ──► wire ──► socket
 *                     └──► wire (handshake, alerts) ──► socket
 *
 * What OpenSSL itself keeps of a connection is bounded by one record in each direction. TLS 1.2 is
 * the least that is spoken; certificates are verified unless a server asks for none.
 *
 * A context may be shared by the sessions of one thread; a session belongs to one connection. */
#ifndef IMPEL_NET_TLS_H
#define IMPEL_NET_TLS_H

#include "base/base.h"

struct tls_context; /* certificates and rules: one for many connections */
struct tls;         /* one connection */

/* Paths of PEM files. All may be NULL for a client; a server needs the first two. */
struct tls_options {
    const char *cert_file; /* its own certificate, then those that lead to its authority */
    const char *key_file;  /* the private key of the first; not encrypted, nobody is there to ask */
    /* Whom to believe. A server that has this asks every client for a certificate; a client without
     * it believes whom the system does. */
    const char
        *ca_file; /* in the text of errors these are options: --tls-cert, --tls-key, --tls-ca */
    bool is_server;
};

/* Reads the files. IMPEL_ERR_INVALID: one cannot be used, and the text names it and says why. */
int tls_context_new(const struct tls_options *options,
                    struct tls_context **out,
                    struct impel_error *err);
/* NULL is fine. Sessions that were made of it go on. */
void tls_context_free(struct tls_context *context);

/* `host` (a client's): the name or address whose certificate is wanted. IMPEL_ERR_NOMEM. */
int tls_new(struct tls_context *context, const char *host, struct tls **out);
void tls_free(struct tls *tls); /* NULL is fine */

/* A client's first message. A server waits for that. */
int tls_begin(struct tls *tls, struct buf *wire, struct impel_error *err);

/* Takes all of `input`, bytes as they came from the socket in any pieces, and appends what they mean
 * to `plain` and what has to be sent because of them to `wire`. IMPEL_OK; IMPEL_ERR_DISCONNECTED: the
 * peer said that nothing follows; IMPEL_ERR_PROTOCOL: not TLS, or a certificate that is not believed;
 * IMPEL_ERR_LIMIT or _NOMEM: `plain` or `wire` did not take it. After a failure the session is over,
 * but `wire` may hold the alert that tells the peer why. */
int tls_receive(struct tls *tls,
                struct impel_bytes input,
                struct buf *plain,
                struct buf *wire,
                struct impel_error *err);

/* True once both sides have agreed; tls_send() is for then. */
bool tls_is_open(const struct tls *tls);
/* Appends the records that carry `plain` to `wire`. */
int tls_send(struct tls *tls, struct impel_bytes plain, struct buf *wire, struct impel_error *err);
/* Appends "nothing follows". */
void tls_end(struct tls *tls, struct buf *wire);

#endif /* IMPEL_NET_TLS_H */
