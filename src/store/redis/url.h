/* url.h -- where a server is and how to be let in: the part of a store's URL after its scheme. */
#ifndef IMPEL_STORE_REDIS_URL_H
#define IMPEL_STORE_REDIS_URL_H

#include "base/base.h"

struct redis_url {
    char *host; /* NULL for a unix socket */
    char *path;
    uint16_t port;
    struct impel_bytes user; /* empty = the default user */
    struct impel_bytes password;
    bool has_password;
    int db;
    int64_t connect_timeout_ms; /* one attempt */
    int64_t give_up_ms; /* without a connection for this long, requests fail; 0 = with the first
                           attempt that fails */
    int64_t reply_timeout_ms;
    bool tls;
    char *tls_ca, *tls_cert, *tls_key; /* files, by absolute paths; NULL = not given */
    char *tls_name;                    /* whose certificate is wanted; NULL = the host's */
    char *shown;                       /* "127.0.0.1:6379/0": for people, without secrets */
};

/* Reads what follows "redis:", "valkey:" or, with TLS, "rediss:", "valkeys:"
 * ("//[user:password@]host[:port][/db]"), or "unix:" ("//[user:password@]/path"), and behind a "?"
 * `db=`, `connect_timeout=`, `timeout=` (durations like 500ms, 5s, 1m) and `password_file=`; with TLS
 * also `tls_ca=`, `tls_cert=`, `tls_key=` (files) and `tls_name=`. Percent signs quote as in any URL. */
int redis_url_parse(const char *scheme,
                    const char *rest,
                    struct redis_url *url,
                    struct impel_error *err);
void redis_url_release(struct redis_url *url);

#endif /* IMPEL_STORE_REDIS_URL_H */
