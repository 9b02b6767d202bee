/* url.c -- reads a server's URL. The password is never repeated in an error. */
#include "store/redis/url.h"

#include <sys/un.h>

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PORT_DEFAULT = 6379,
    CONNECT_TIMEOUT_MS = 5000,
    REPLY_TIMEOUT_MS = 10000,
    DB_MAX = 1000000,
    DURATION_MAX = 1000000000, /* of any unit */
    PASSWORD_MAX = 64 * 1024,
};

static int bad(struct impel_error *err, const char *why)
{
    return error_set(err, IMPEL_ERR_INVALID,
                     "the store's URL: %s (redis://[user:password@]host[:port][/db], with TLS "
                     "rediss://, or unix:///path[?db=n])",
                     why);
}

static int hex_value(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* A NUL-terminated copy without its percent signs; NULL if memory is out or a quote is broken. */
static char *unquoted(const char *text, size_t size, size_t *out_size)
{
    char *out = malloc(size + 1);
    size_t n = 0;

    for (size_t i = 0; out != NULL && i < size; i++) {
        char c = text[i];
        if (c == '%') {
            if (size - i < 3 || !isxdigit((unsigned char)text[i + 1]) ||
                !isxdigit((unsigned char)text[i + 2])) {
                free(out);
                return NULL;
            }
            c = (char)(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
            i += 2;
        }
        out[n++] = c;
    }
    if (out != NULL) {
        out[n] = '\0';
        *out_size = n;
    }
    return out;
}

static int keep(struct impel_bytes *out, const char *text, size_t size, struct impel_error *err)
{
    size_t n = 0;
    char *copy = unquoted(text, size, &n);

    if (copy == NULL) {
        return bad(err, "a percent sign without two hexadecimal digits");
    }
    free((void *)out->data);
    *out = (struct impel_bytes){copy, n};
    return IMPEL_OK;
}

static int parse_number(const char *text, size_t size, long max, long *out)
{
    char copy[16];
    char *end;

    if (size == 0 || size >= sizeof(copy) || !isdigit((unsigned char)text[0])) {
        return IMPEL_ERR_INVALID;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    *out = strtol(copy, &end, 10);
    return *end != '\0' || *out > max ? IMPEL_ERR_INVALID : IMPEL_OK;
}

static int parse_duration(const char *text, size_t size, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    size_t digits = 0;
    long number;

    while (digits < size && isdigit((unsigned char)text[digits])) {
        digits++;
    }
    if (parse_number(text, digits, DURATION_MAX, &number) < 0) {
        return IMPEL_ERR_INVALID;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].unit) == size - digits &&
            memcmp(units[i].unit, text + digits, size - digits) == 0) {
            *out = number * units[i].ms;
            return IMPEL_OK;
        }
    }
    return IMPEL_ERR_INVALID;
}

/* The first line of a file, so that no password has to stand in a URL. */
static int read_password(struct redis_url *url, const char *path, struct impel_error *err)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(PASSWORD_MAX);
    size_t size = 0;

    if (file == NULL || text == NULL) {
        free(text);
        if (file != NULL) {
            fclose(file);
        }
        return error_set(err, IMPEL_ERR_IO, "the password file %s cannot be read", path);
    }
    size = fread(text, 1, PASSWORD_MAX, file);
    fclose(file);
    const char *end = memchr(text, '\n', size);
    size = end != NULL ? (size_t)(end - text) : size;
    free((void *)url->password.data);
    url->password = (struct impel_bytes){text, size};
    url->has_password = true;
    return IMPEL_OK;
}

/* Files are opened at every connection, wherever the program has gone to meanwhile. */
static int keep_path(char **out, struct impel_error *err)
{
    char *folder = **out == '/' ? NULL : get_current_dir_name(), *path = NULL;

    if (folder == NULL) {
        return IMPEL_OK;
    }
    int size = asprintf(&path, "%s/%s", folder, *out);
    free(folder);
    if (size < 0) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    free(*out);
    *out = path;
    return IMPEL_OK;
}

/* 1 = it was one of TLS. */
static int parse_tls(struct redis_url *url,
                     struct impel_bytes key,
                     struct impel_bytes value,
                     struct impel_error *err)
{
    const struct {
        const char *name;
        char **member;
    } options[] = {
        {"tls_ca", &url->tls_ca},
        {"tls_cert", &url->tls_cert},
        {"tls_key", &url->tls_key},
        {"tls_name", &url->tls_name},
    };
    size_t size = 0;

    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (!bytes_equal(key, bytes_of(options[i].name))) {
            continue;
        }
        if (!url->tls) {
            return bad(err, "the options that begin with tls_ are for rediss://");
        }
        free(*options[i].member);
        *options[i].member = unquoted(value.data, value.size, &size);
        if (*options[i].member == NULL || size == 0 || strlen(*options[i].member) != size) {
            return bad(err, "an option that begins with tls_ has no value that can be one");
        }
        int rc = options[i].member == &url->tls_name ? IMPEL_OK : keep_path(options[i].member, err);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

static int parse_option(struct redis_url *url,
                        struct impel_bytes key,
                        struct impel_bytes value,
                        struct impel_error *err)
{
    struct impel_bytes path = {NULL, 0};
    long db;

    if (bytes_equal(key, bytes_of("db"))) {
        if (parse_number(value.data, value.size, DB_MAX, &db) < 0) {
            return bad(err, "db is not a number");
        }
        url->db = (int)db;
        return IMPEL_OK;
    }
    if (bytes_equal(key, bytes_of("connect_timeout"))) {
        if (parse_duration(value.data, value.size, &url->give_up_ms) < 0) {
            return bad(err, "connect_timeout is not a duration like 5s");
        }
        if (url->give_up_ms > 0 && url->give_up_ms < url->connect_timeout_ms) {
            url->connect_timeout_ms = url->give_up_ms;
        }
        return IMPEL_OK;
    }
    if (bytes_equal(key, bytes_of("timeout"))) {
        if (parse_duration(value.data, value.size, &url->reply_timeout_ms) < 0 ||
            url->reply_timeout_ms == 0) {
            return bad(err, "timeout is not a duration like 5s");
        }
        return IMPEL_OK;
    }
    if (bytes_equal(key, bytes_of("password_file"))) {
        int rc = keep(&path, value.data, value.size, err);
        rc = rc < 0 ? rc : read_password(url, path.data, err);
        free((void *)path.data);
        return rc;
    }
    int rc = parse_tls(url, key, value, err);
    if (rc != 0) {
        return rc < 0 ? rc : IMPEL_OK;
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "the store's URL: unknown option (there are db, connect_timeout, timeout, "
                     "password_file, and with TLS tls_ca, tls_cert, tls_key, tls_name)");
}

static int parse_options(struct redis_url *url, const char *text, struct impel_error *err)
{
    int rc = IMPEL_OK;

    while (rc >= 0 && *text != '\0') {
        size_t size = strcspn(text, "&"), name = strcspn(text, "=&");
        size_t begin = name < size ? name + 1 : size;
        struct impel_bytes key = {text, name}, value = {text + begin, size - begin};
        rc = parse_option(url, key, value, err);
        text += size + (text[size] == '&');
    }
    return rc;
}

/* "user:password@"; `*at` moves behind it. The last "@" ends it, whatever the password has. */
static int
parse_login(struct redis_url *url, const char **at, const char *end, struct impel_error *err)
{
    const char *login = *at, *stop = NULL;
    int rc = IMPEL_OK;

    for (const char *c = login; c < end; c++) {
        stop = *c == '@' ? c : stop;
    }
    if (stop == NULL) {
        return IMPEL_OK;
    }
    const char *colon = memchr(login, ':', (size_t)(stop - login));
    if (colon == NULL) {
        return bad(err, "a user without a password (user:password@)");
    }
    ASSERT(colon < stop);
    rc = keep(&url->user, login, (size_t)(colon - login), err);
    rc = rc < 0 ? rc : keep(&url->password, colon + 1, (size_t)(stop - colon - 1), err);
    url->has_password = true;
    *at = stop + 1;
    return rc;
}

static int
parse_place(struct redis_url *url, const char *at, const char *end, struct impel_error *err)
{
    const char *slash = memchr(at, '/', (size_t)(end - at));
    const char *host_end = slash != NULL ? slash : end;
    const char *bracket = *at == '[' ? memchr(at, ']', (size_t)(host_end - at)) : NULL;
    const char *host = bracket != NULL ? at + 1 : at;
    const char *after = bracket != NULL ? bracket + 1 : at;
    const char *colon = memchr(after, ':', (size_t)(host_end - after));
    long number = PORT_DEFAULT;
    size_t size = 0;

    if (*at == '[' && bracket == NULL) {
        return bad(err, "a [ without a ]");
    }
    if (colon != NULL &&
        (parse_number(colon + 1, (size_t)(host_end - colon - 1), UINT16_MAX, &number) < 0 ||
         number == 0)) {
        return bad(err, "the port is not a number");
    }
    url->port = (uint16_t)number;
    if (slash != NULL && slash + 1 < end) {
        if (parse_number(slash + 1, (size_t)(end - slash - 1), DB_MAX, &number) < 0) {
            return bad(err, "the database is not a number");
        }
        url->db = (int)number;
    }
    const char *stop = bracket != NULL ? bracket : colon != NULL ? colon : host_end;
    url->host = stop > host ? unquoted(host, (size_t)(stop - host), &size)
                            : unquoted("127.0.0.1", 9, &size);
    return url->host == NULL ? bad(err, "the host") : IMPEL_OK;
}

static int show(struct redis_url *url, struct impel_error *err)
{
    const char *format = url->host == NULL ? "%s" : strchr(url->host, ':') ? "[%s]:%u" : "%s:%u";
    char text[512];

    if (url->host == NULL) {
        (void)snprintf(text, sizeof(text), "%s", url->path);
    } else {
        (void)snprintf(text, sizeof(text), strchr(format, '[') ? "[%s]:%u" : "%s:%u", url->host,
                       url->port);
    }
    url->shown = strdup(text);
    return url->shown == NULL ? error_set(err, IMPEL_ERR_NOMEM, "out of memory") : IMPEL_OK;
}

int redis_url_parse(const char *scheme,
                    const char *rest,
                    struct redis_url *url,
                    struct impel_error *err)
{
    const char *at = rest, *end = rest + strcspn(rest, "?");
    bool is_unix = strcmp(scheme, "unix") == 0;
    size_t size = 0;

    *url = (struct redis_url){
        .port = PORT_DEFAULT,
        .connect_timeout_ms = CONNECT_TIMEOUT_MS,
        .reply_timeout_ms = REPLY_TIMEOUT_MS,
        .tls = strcmp(scheme, "rediss") == 0 || strcmp(scheme, "valkeys") == 0,
    };
    int rc = IMPEL_OK;
    if (strncmp(at, "//", 2) == 0) {
        at += 2;
    } else if (!is_unix) {
        rc = bad(err, "there is no //");
    }
    const char *login_end = is_unix ? memchr(at, '/', (size_t)(end - at)) : end;
    rc = rc < 0 ? rc : parse_login(url, &at, login_end != NULL ? login_end : end, err);
    if (rc >= 0 && is_unix) {
        url->path = end > at ? unquoted(at, (size_t)(end - at), &size) : NULL;
        bool fits = size < sizeof(((struct sockaddr_un *)NULL)->sun_path);
        rc = url->path == NULL ? bad(err, "there is no path")
             : !fits || size != strlen(url->path)
                 ? bad(err, "this is no path that a socket can have")
                 : IMPEL_OK;
    } else if (rc >= 0) {
        rc = parse_place(url, at, end, err);
    }
    rc = rc < 0 || *end == '\0' ? rc : parse_options(url, end + 1, err);
    rc = rc < 0 ? rc : show(url, err);
    if (rc < 0) {
        redis_url_release(url);
    }
    return rc;
}

void redis_url_release(struct redis_url *url)
{
    free(url->host);
    free(url->path);
    free((void *)url->user.data);
    if (url->password.data != NULL) {
        explicit_bzero((void *)url->password.data, url->password.size);
    }
    free((void *)url->password.data);
    free(url->tls_ca);
    free(url->tls_cert);
    free(url->tls_key);
    free(url->tls_name);
    free(url->shown);
    *url = (struct redis_url){.host = NULL};
}
