/* login.c -- $IMPEL_PASSWORD and --connect-timeout put into the store's URL, where it brings none of
 * its own. */
#include "cli/options.h"

#include <ctype.h>
#include <string.h>

enum {
    URL_SIZE_MAX = 1 << 16,
};

static void append_quoted(struct buf *url, const char *text)
{
    for (; *text != '\0'; text++) {
        if (isalnum((unsigned char)*text)) {
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

static bool is_server(const char *url)
{
    static const char *const schemes[] = {"redis:", "valkey:", "unix:"};

    for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
        if (strncmp(url, schemes[i], strlen(schemes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static int add_timeout(struct options *options, struct impel_error *err)
{
    const char *query = options->store + strcspn(options->store, "?");
    struct impel_bytes copy;
    struct buf url;

    if (options->connect_timeout_ms == 0 || !is_server(options->store) ||
        strstr(query, "connect_timeout=") != NULL) {
        return IMPEL_OK;
    }
    buf_init(&url, URL_SIZE_MAX);
    buf_appendf(&url, "%s%cconnect_timeout=%lldms", options->store, *query == '?' ? '&' : '?',
                (long long)options->connect_timeout_ms);
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

int options_login(struct options *options, struct impel_error *err)
{
    options->store_given = options->store;
    int rc = add_password(options, err);
    return rc < 0 ? rc : add_timeout(options, err);
}
