/* login.c -- $IMPEL_PASSWORD, --connect-timeout and what there is of --tls-… put into the store's URL,
 * where it brings none of its own. */
#include "cli/options.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum {
    URL_SIZE_MAX = 1 << 16,
};

static void append_quoted(struct buf *url, const char *text)
{
    for (; *text != '\0'; text++) {
        if (isalnum((unsigned char)*text) || strchr("/._-", *text) != NULL) {
            buf_append(url, text, 1);
        } else {
            buf_appendf(url, "%%%02X", (unsigned char)*text);
        }
    }
}

/* Where the login of a URL stands and what of it is there: scheme:[//][user[:password]@]place. */
struct login {
    size_t begin;
    size_t size; /* without the "@"; 0 = there is none */
    bool has_password;
};

static struct login find_login(const char *url)
{
    struct login login = {.begin = strcspn(url, ":")};
    const char *end = url + strcspn(url, "?"), *at = NULL;

    login.begin += url[login.begin] == ':';
    if (strncmp(url + login.begin, "//", 2) == 0) {
        login.begin += 2;
    }
    for (const char *c = url + login.begin; c < end; c++) {
        at = *c == '@' ? c : at;
    }
    if (at != NULL) {
        login.size = (size_t)(at - url) - login.begin;
        login.has_password = memchr(url + login.begin, ':', login.size) != NULL;
    }
    login.has_password = login.has_password || strstr(end, "password_file=") != NULL;
    return login;
}

static int add_password(struct options *options, struct impel_error *err)
{
    struct login login = find_login(options->store);
    struct impel_bytes copy;
    struct buf url;
    int rc;

    if (options->password == NULL || login.has_password ||
        strncmp(options->store, "lmdb:", 5) == 0) {
        return IMPEL_OK;
    }
    buf_init(&url, URL_SIZE_MAX);
    buf_append(&url, options->store, login.begin + login.size);
    buf_append_text(&url, ":");
    append_quoted(&url, options->password);
    buf_append_text(&url, login.size > 0 ? "" : "@");
    buf_append_text(&url, options->store + login.begin + login.size);
    buf_append(&url, "", 1);
    rc = buf_status(&url);
    if (rc >= 0 && !arena_copy(&options->arena, buf_bytes(&url), &copy)) {
        rc = IMPEL_ERR_NOMEM;
    }
    if (rc < 0) {
        error_set(err, rc, "the store's URL: %s", status_text(rc));
    } else {
        options->store = copy.data;
    }
    buf_release(&url);
    return rc;
}

static bool has_scheme(const char *url, const char *const *schemes)
{
    size_t size = strcspn(url, ":");

    for (; *schemes != NULL; schemes++) {
        if (strlen(*schemes) == size && strncmp(url, *schemes, size) == 0) {
            return true;
        }
    }
    return false;
}

/* "name=" as an option of the URL, its value included. */
static bool has_option(const char *url, const char *name)
{
    const char *at = url + strcspn(url, "?");
    size_t size = strlen(name);

    while (*at != '\0') {
        at++; /* the ? or & */
        if (strncmp(at, name, size) == 0 && at[size] == '=') {
            return true;
        }
        at += strcspn(at, "&");
    }
    return false;
}

/* Puts an option behind those that the URL has; one of its own wins. */
static int
add_option(struct options *options, const char *name, const char *value, struct impel_error *err)
{
    struct impel_bytes copy;
    struct buf url;

    if (has_option(options->store, name)) {
        return IMPEL_OK;
    }
    buf_init(&url, URL_SIZE_MAX);
    buf_appendf(&url, "%s%c%s=", options->store, strchr(options->store, '?') != NULL ? '&' : '?',
                name);
    append_quoted(&url, value);
    buf_append(&url, "", 1);
    int rc = buf_status(&url);
    if (rc >= 0 && !arena_copy(&options->arena, buf_bytes(&url), &copy)) {
        rc = IMPEL_ERR_NOMEM;
    }
    if (rc < 0) {
        error_set(err, rc, "the store's URL: %s", status_text(rc));
    } else {
        options->store = copy.data;
    }
    buf_release(&url);
    return rc;
}

static int add_timeout(struct options *options, struct impel_error *err)
{
    static const char *const servers[] = {"redis", "rediss", "valkey", "valkeys", "unix", NULL};
    char text[32];

    if (options->connect_timeout_ms == 0 || !has_scheme(options->store, servers)) {
        return IMPEL_OK;
    }
    (void)snprintf(text, sizeof(text), "%lldms", (long long)options->connect_timeout_ms);
    return add_option(options, "connect_timeout", text, err);
}

/* A file of TLS for a server that is asked without would be a false comfort. */
static int add_tls(struct options *options, struct impel_error *err)
{
    static const char *const secure[] = {"rediss", "valkeys", NULL};
    static const char *const plain[] = {"redis", "valkey", "unix", NULL};
    const struct {
        const char *name, *option, *value;
    } given[] = {
        {"tls_ca", "--tls-ca", options->tls_ca},
        {"tls_cert", "--tls-cert", options->tls_cert},
        {"tls_key", "--tls-key", options->tls_key},
        {"tls_name", "--tls-name", options->tls_name},
    };
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < ARRAY_SIZE(given); i++) {
        if (given[i].value == NULL) {
            continue;
        }
        if (has_scheme(options->store, secure)) {
            rc = add_option(options, given[i].name, given[i].value, err);
        } else if (has_scheme(options->store, plain) && options->from == NULL) {
            rc = error_set(err, IMPEL_ERR_INVALID,
                           "%s is for a store over TLS, and this one is not: its URL begins with "
                           "rediss:// then",
                           given[i].option);
        }
    }
    return rc;
}

int options_login(struct options *options, struct impel_error *err)
{
    int rc = add_tls(options, err);

    options->store_given = options->store;
    rc = rc < 0 ? rc : add_password(options, err);
    return rc < 0 ? rc : add_timeout(options, err);
}
