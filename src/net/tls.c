/* tls.c -- one connection through the filter.
 *
 * OpenSSL reads from one memory buffer and writes to another. Each call here empties both before it
 * returns, except for the beginning of a record whose end has not arrived, so that neither grows
 * with what a peer does. */
#include "net/tls_state.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <stdlib.h>

enum {
    PLAIN_CHUNK = 16 * 1024, /* of one record at most */
    SEND_CHUNK = 1024 * 1024,
};

/* ---- beginning and end ---- */

/* Whose certificate a client wants to see. */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1;
    }
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

int tls_new(struct tls_context *context, const char *host, struct tls **out)
{
    struct tls *tls = calloc(1, sizeof(*tls));

    if (tls == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    tls->ssl = SSL_new(context->ssl);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        return IMPEL_ERR_NOMEM;
    }
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    if (context->is_server) {
        SSL_set_accept_state(tls->ssl);
    } else {
        SSL_set_connect_state(tls->ssl);
    }
    if (host != NULL && !expect_host(tls->ssl, host)) {
        tls_free(tls);
        return IMPEL_ERR_NOMEM;
    }
    *out = tls;
    return IMPEL_OK;
}

void tls_free(struct tls *tls)
{
    if (tls != NULL) {
        SSL_free(tls->ssl);
        free(tls);
    }
}

bool tls_is_open(const struct tls *tls)
{
    return SSL_is_init_finished(tls->ssl) && !tls->over;
}

/* ---- bytes ---- */

/* Moves what OpenSSL wants sent to `wire`. */
static int take_wire(struct tls *tls, struct buf *wire)
{
    char *data = NULL;
    long size = BIO_get_mem_data(tls->out, &data);

    if (size > 0) {
        buf_append(wire, data, (size_t)size);
        (void)BIO_reset(tls->out);
    }
    return buf_status(wire);
}

static int fail(struct tls *tls, int status, struct impel_error *err)
{
    char text[128];
    long verified = SSL_get_verify_result(tls->ssl);

    tls->over = true;
    if (verified != X509_V_OK) {
        ERR_clear_error();
        return error_set(err, status, "TLS: the certificate is not accepted: %s",
                         X509_verify_cert_error_string(verified));
    }
    return error_set(err, status, "TLS: %s", tls_reason(text, sizeof(text)));
}

static int over(struct tls *tls, int status, struct impel_error *err)
{
    tls->over = true;
    return error_set(err, status, "TLS: %s", status_text(status));
}

/* What the last call of OpenSSL on this session means, if it did not do all that was asked. */
static int outcome(struct tls *tls, int result, struct impel_error *err)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return IMPEL_OK;
    case SSL_ERROR_ZERO_RETURN:
        return over(tls, IMPEL_ERR_DISCONNECTED, err);
    default:
        return fail(tls, IMPEL_ERR_PROTOCOL, err);
    }
}

/* Appends all that can be read now. */
static int read_plain(struct tls *tls, struct buf *plain, struct impel_error *err)
{
    for (;;) {
        size_t got = 0;
        void *room = buf_reserve(plain, PLAIN_CHUNK);
        if (room == NULL) {
            return over(tls, buf_status(plain), err);
        }
        int result = SSL_read_ex(tls->ssl, room, PLAIN_CHUNK, &got);
        if (result != 1) {
            return outcome(tls, result, err);
        }
        plain->size += got;
    }
}

int tls_begin(struct tls *tls, struct buf *wire, struct impel_error *err)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    int rc = result == 1 ? IMPEL_OK : outcome(tls, result, err);
    int taken = take_wire(tls, wire);

    return rc < 0 ? rc : taken < 0 ? over(tls, taken, err) : IMPEL_OK;
}

int tls_receive(struct tls *tls,
                struct impel_bytes input,
                struct buf *plain,
                struct buf *wire,
                struct impel_error *err)
{
    size_t taken = 0;

    if (tls->over) {
        return error_set(err, IMPEL_ERR_DISCONNECTED, "TLS: the connection is over");
    }
    ERR_clear_error();
    if (input.size > 0 && BIO_write_ex(tls->in, input.data, input.size, &taken) != 1) {
        return over(tls, IMPEL_ERR_NOMEM, err);
    }
    int rc = read_plain(tls, plain, err);
    int sent = take_wire(tls, wire);
    return rc < 0 ? rc : sent < 0 ? over(tls, sent, err) : IMPEL_OK;
}

int tls_send(struct tls *tls, struct impel_bytes plain, struct buf *wire, struct impel_error *err)
{
    const char *data = plain.data;

    if (tls->over) {
        return error_set(err, IMPEL_ERR_DISCONNECTED, "TLS: the connection is over");
    }
    ERR_clear_error();
    for (size_t at = 0; at < plain.size;) {
        size_t written = 0;
        size_t piece = plain.size - at < SEND_CHUNK ? plain.size - at : SEND_CHUNK;
        if (SSL_write_ex(tls->ssl, data + at, piece, &written) != 1) {
            return fail(tls, IMPEL_ERR_PROTOCOL, err);
        }
        at += written;
        int rc = take_wire(tls, wire);
        if (rc < 0) {
            return over(tls, rc, err);
        }
    }
    return IMPEL_OK;
}

void tls_end(struct tls *tls, struct buf *wire)
{
    if (!tls->over && SSL_is_init_finished(tls->ssl)) {
        tls->over = true;
        (void)SSL_shutdown(tls->ssl);
        (void)take_wire(tls, wire);
    }
    ERR_clear_error();
}
