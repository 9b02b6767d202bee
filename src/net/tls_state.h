/* tls_state.h -- what the two files of the filter share, and nobody else sees: OpenSSL. */
#ifndef IMPEL_NET_TLS_STATE_H
#define IMPEL_NET_TLS_STATE_H

#include "net/tls.h"

#include <openssl/ssl.h>

struct tls_context {
    SSL_CTX *ssl;
    bool is_server;
};

struct tls {
    SSL *ssl;
    BIO *in, *out; /* memory; they belong to `ssl` */
    bool over;     /* failed or ended: nothing more is taken */
};

const char *tls_reason(char *text, size_t size);

#endif /* IMPEL_NET_TLS_STATE_H */
