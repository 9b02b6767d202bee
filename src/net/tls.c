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
#include <string.h>

enum {
    PLAIN_CHUNK = 16 * 1024, /* of one record at most */
    SEND_CHUNK = 1024 * 1024,
};

/* ---- beginning and end ---- */

/* Whose certificate a client wants to see. Addresses are not told to the server (RFC 6066 has names
 * only), and names without the dot that may end them. */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *rules = SSL_get0_param(ssl);
    size_t size = strlen(host);

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1;
    }
    char *name = strndup(host, size > 0 && host[size - 1] == '.' ? size - 1 : size);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    bool good =
        name != NULL && SSL_set_tlsext_host_name(ssl, name) == 1 && SSL_set1_host(ssl, name) == 1;
    free(name);
    return good;
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

/* The way out for a client that does not accept the server's certificate. */
static const char *certificate_advice(long verified)
{
    switch (verified) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return "; name the file of the authority to believe with --tls-ca (in a URL tls_ca=)";
    case X509_V_ERR_CERT_NOT_YET_VALID:
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "; the server needs a new one, or this machine's clock is wrong";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "; connect to the host that it names, or give that name with --tls-name (in a URL "
               "tls_name=)";
    default:
        return "";
    }
}

/* The way out for a client that could not agree with the server, by OpenSSL's reason. */
static const char *client_advice(int reason)
{
    switch (reason) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
        return "; the server does not speak TLS on this port: its TLS port, or redis:// in the URL";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "; the server wants a certificate of this client: --tls-cert and --tls-key (in a "
               "URL "
               "tls_cert= and tls_key=)";
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: /* of TLS 1.2, which says no more */
        return "; the server may want a certificate of this client: --tls-cert and --tls-key (in a "
               "URL tls_cert= and tls_key=)";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        return "; the server does not accept this client's certificate (--tls-cert)";
    default:
        return "";
    }
}

static int fail(struct tls *tls, int status, struct impel_error *err)
{
    char text[128];
    long verified = SSL_get_verify_result(tls->ssl);
    int reason = ERR_GET_REASON(ERR_peek_last_error());
    bool is_client = SSL_is_server(tls->ssl) == 0;

    tls->over = true;
    if (verified != X509_V_OK) {
        ERR_clear_error();
        return error_set(err, status, "TLS: the certificate is not accepted: %s%s",
                         X509_verify_cert_error_string(verified),
                         is_client ? certificate_advice(verified) : "");
    }
    return error_set(err, status, "TLS: %s%s", tls_reason(text, sizeof(text)),
                     is_client ? client_advice(reason) : "");
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
