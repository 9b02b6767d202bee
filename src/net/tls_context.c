/* tls_context.c -- certificates, keys and rules, read from files and checked before anything is sent.
 *
 * OpenSSL's own words for a file that cannot be used ("PEM routines::no start line") help nobody who
 * has mistaken one file for another, so the usual mistakes have sentences of their own here. */
#include "net/tls_state.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The reason of OpenSSL's latest failure; its queue is empty afterwards. */
const char *tls_reason(char *text, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);

    (void)snprintf(text, size, "%s", reason == NULL ? "no reason is given" : reason);
    ERR_clear_error();
    return text;
}

static int refuse(const char *option, const char *path, const char *why, struct impel_error *err)
{
    char text[128];

    return error_set(err, IMPEL_ERR_INVALID, "%s %s: %s (%s)", option, path, why,
                     tls_reason(text, sizeof(text)));
}

static int check_readable(const char *option, const char *path, struct impel_error *err)
{
    if (access(path, R_OK) < 0) {
        return error_set(err, IMPEL_ERR_INVALID, "%s %s: %s", option, path, strerror(errno));
    }
    return IMPEL_OK;
}

/* An encrypted key: nobody is there to type its passphrase. */
static int no_passphrase(char *text, int size, int writing, void *user)
{
    bool *asked = user;

    (void)text;
    (void)size;
    (void)writing;
    *asked = true;
    return -1;
}

static int use_key(SSL_CTX *ssl, const char *path, struct impel_error *err)
{
    bool asked = false;

    SSL_CTX_set_default_passwd_cb(ssl, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ssl, &asked);
    int rc = SSL_CTX_use_PrivateKey_file(ssl, path, SSL_FILETYPE_PEM);
    bool mismatch = rc != 1 && ERR_GET_LIB(ERR_peek_last_error()) == ERR_LIB_X509;
    SSL_CTX_set_default_passwd_cb_userdata(ssl, NULL);
    if (rc == 1) {
        return IMPEL_OK;
    }
    if (asked) {
        return refuse("--tls-key", path, "it is encrypted; give one that is not", err);
    }
    return refuse("--tls-key", path,
                  mismatch ? "it is not the key of the certificate of --tls-cert"
                           : "it has no private key in PEM form",
                  err);
}

static int use_own(SSL_CTX *ssl, const struct tls_options *options, struct impel_error *err)
{
    if (options->cert_file == NULL && options->key_file == NULL && !options->is_server) {
        return IMPEL_OK;
    }
    if (options->cert_file == NULL || options->key_file == NULL) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--tls-cert and --tls-key go together: %s is missing",
                         options->cert_file == NULL ? "--tls-cert" : "--tls-key");
    }
    int rc = check_readable("--tls-cert", options->cert_file, err);
    rc = rc < 0 ? rc : check_readable("--tls-key", options->key_file, err);
    if (rc < 0) {
        return rc;
    }
    if (SSL_CTX_use_certificate_chain_file(ssl, options->cert_file) != 1) {
        return refuse("--tls-cert", options->cert_file, "it has no usable certificate in PEM form",
                      err);
    }
    return use_key(ssl, options->key_file, err);
}

static int use_authorities(SSL_CTX *ssl, const struct tls_options *options, struct impel_error *err)
{
    const char *path = options->ca_file;

    if (path == NULL) {
        if (!options->is_server) {
            SSL_CTX_set_default_verify_paths(ssl);
            SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
        }
        return IMPEL_OK;
    }
    int rc = check_readable("--tls-ca", path, err);
    if (rc < 0) {
        return rc;
    }
    if (SSL_CTX_load_verify_file(ssl, path) != 1) {
        return refuse("--tls-ca", path, "it has no certificate in PEM form", err);
    }
    if (options->is_server) {
        SSL_CTX_set_client_CA_list(ssl, SSL_load_client_CA_file(path));
    }
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return IMPEL_OK;
}

int tls_context_new(const struct tls_options *options,
                    struct tls_context **out,
                    struct impel_error *err)
{
    static const unsigned char name[] = "impel";
    struct tls_context *context = calloc(1, sizeof(*context));
    int rc = IMPEL_ERR_NOMEM;

    if (context == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for TLS");
    }
    context->is_server = options->is_server;
    context->ssl = SSL_CTX_new(options->is_server ? TLS_server_method() : TLS_client_method());
    if (context->ssl == NULL) {
        (void)error_set(err, rc, "no memory for TLS");
        goto done;
    }
    SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION);
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                          SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* Buffers of connections at rest are given back: a server has thousands. */
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_session_id_context(context->ssl, name, sizeof(name) - 1);
    ERR_clear_error();
    rc = use_own(context->ssl, options, err);
    rc = rc < 0 ? rc : use_authorities(context->ssl, options, err);
done:
    if (rc < 0) {
        tls_context_free(context);
        return rc;
    }
    *out = context;
    return IMPEL_OK;
}

void tls_context_free(struct tls_context *context)
{
    if (context != NULL) {
        SSL_CTX_free(context->ssl);
        free(context);
    }
}
