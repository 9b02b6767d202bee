/* server.h -- RESP in front of the embedded store: any Redis client's streams, in one process.
 *
 * One thread, one loop, one handle of the file. What all clients sent is carried out turn by turn:
 * a turn is one transaction with one commit, and no reply leaves before that commit. So a busy
 * server pays for one commit what hundreds of commands share, and what was answered is as durable
 * as the file promises (?sync=).
 *
 * Other processes may use the same file at the same time; their writes wake blocked clients here
 * like anybody's. */
#ifndef IMPEL_SERVER_H
#define IMPEL_SERVER_H

#include "base/base.h"

struct server;

/* Spans and strings are copied by server_new(). Zero means the default. */
struct server_options {
    const char *store; /* the store's file and options: PATH[?sync=...&map=...] */

    const char *const *listen; /* "HOST:PORT", "[V6]:PORT"; port 0 = any free one */
    size_t listen_count;
    const char *unix_path; /* NULL = none */
    const char *password;  /* NULL = none; then only loopback addresses may be listened on */
    /* Files in PEM form; with them everything on `listen` speaks TLS. `tls_ca`: only clients with a
     * certificate of these authorities are let in, wherever they are. */
    const char *tls_cert, *tls_key, *tls_ca;

    uint32_t clients_max;      /* 10000 */
    uint64_t input_bytes_max;  /* of one client, waiting to become a command: 1 GiB */
    uint64_t output_bytes_max; /* of one client, waiting to be taken: 256 MiB, then it is cut */
    uint32_t handshake_ms;     /* for the handshake of TLS: 10000 */
    uint32_t idle_timeout_s;   /* a client that says nothing for so long is closed; 0 = never */

    /* One line; level as in struct store_event. May be NULL. */
    void (*log)(void *user, int level, const char *text);
    void *user;
};

/* Opens the store and the listeners. IMPEL_ERR_INVALID for an address that cannot be, or that is
 * open to others while there is no password. */
int server_new(const struct server_options *options, struct server **out, struct impel_error *err);
/* Serves until SIGTERM or SIGINT: commits what has been read, answers, closes, returns IMPEL_OK. With
 * TLS, SIGHUP reads the certificates anew. */
int server_run(struct server *server, struct impel_error *err);
void server_free(struct server *server); /* NULL is fine */

#endif /* IMPEL_SERVER_H */
