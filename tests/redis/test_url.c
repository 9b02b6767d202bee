/* Where a server is, said in a URL; and names: of scripts, and of helper keys on the right slot. */
#include "redis_server.h"
#include "store/redis/redis.h"
#include "store/redis/url.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

static void check_url(const char *rest, bool is_unix, const char *host, uint16_t port, int db)
{
    struct redis_url url;
    struct impel_error err = {0};

    if (redis_url_parse(is_unix ? "unix" : "redis", rest, &url, &err) < 0) {
        printf("# %s: %s\n", rest, err.text);
        CHECK(false);
    }
    CHECK(strcmp(is_unix ? url.path : url.host, host) == 0);
    CHECK(url.port == port && url.db == db);
    redis_url_release(&url);
}

TEST(places)
{
    check_url("//", false, "127.0.0.1", 6379, 0);
    check_url("//example", false, "example", 6379, 0);
    check_url("//example:7000/3", false, "example", 7000, 3);
    check_url("//[::1]:7000", false, "::1", 7000, 0);
    check_url("//[fe80::1]/2", false, "fe80::1", 6379, 2);
    check_url("//example?db=4", false, "example", 6379, 4);
    check_url("///run/redis.sock", true, "/run/redis.sock", 6379, 0);
    check_url("/run/redis%20two.sock?db=1", true, "/run/redis two.sock", 6379, 1);
}

TEST(logins)
{
    struct redis_url url;

    CHECK(redis_url_parse("redis", "//me:p%40ss@h", &url, NULL) == IMPEL_OK);
    CHECK(bytes_equal(url.user, bytes_of("me")) && bytes_equal(url.password, bytes_of("p@ss")));
    redis_url_release(&url);
    CHECK(redis_url_parse("redis", "//:a:b/c@d@h:1", &url, NULL) == IMPEL_OK);
    CHECK(url.user.size == 0 && url.has_password && bytes_equal(url.password, bytes_of("a:b/c@d")));
    CHECK(strstr(url.shown, "a:b") == NULL && strcmp(url.shown, "h:1") == 0);
    redis_url_release(&url);
    CHECK(redis_url_parse("unix", "//u:p@/run/s", &url, NULL) == IMPEL_OK);
    CHECK(strcmp(url.path, "/run/s") == 0 && bytes_equal(url.password, bytes_of("p")));
    redis_url_release(&url);
}

TEST(what_tls_needs)
{
    struct redis_url url;

    CHECK(redis_url_parse("rediss", "//h?tls_ca=/a&tls_cert=/b%26c&tls_key=/d&tls_name=n", &url,
                          NULL) == IMPEL_OK);
    CHECK(url.tls && strcmp(url.tls_ca, "/a") == 0 && strcmp(url.tls_cert, "/b&c") == 0);
    CHECK(strcmp(url.tls_key, "/d") == 0 && strcmp(url.tls_name, "n") == 0);
    redis_url_release(&url);
    CHECK(redis_url_parse("valkeys", "//h?tls_ca=a&tls_ca=b/c", &url, NULL) == IMPEL_OK);
    CHECK(url.tls && url.tls_ca[0] == '/' && strstr(url.tls_ca, "/b/c") != NULL); /* absolute */
    CHECK(url.tls_name == NULL && url.tls_key == NULL);
    redis_url_release(&url);
    CHECK(redis_url_parse("redis", "//h?tls_ca=/a", &url, NULL) == IMPEL_ERR_INVALID);
    CHECK(redis_url_parse("rediss", "//h?tls_ca", &url, NULL) == IMPEL_ERR_INVALID);
    CHECK(redis_url_parse("rediss", "//h?tls_ca=%00", &url, NULL) == IMPEL_ERR_INVALID);
}

TEST(a_password_from_a_file)
{
    char path[] = "/tmp/impel-password-XXXXXX", rest[64];
    int fd = mkstemp(path);
    struct redis_url url;

    CHECK(fd >= 0 && write(fd, "secret\nmore", 11) == 11);
    close(fd);
    (void)snprintf(rest, sizeof(rest), "//h?password_file=%s&timeout=2s", path);
    CHECK(redis_url_parse("redis", rest, &url, NULL) == IMPEL_OK);
    CHECK(bytes_equal(url.password, bytes_of("secret")) && url.reply_timeout_ms == 2000);
    redis_url_release(&url);
    unlink(path);
    CHECK(redis_url_parse("redis", rest, &url, NULL) == IMPEL_ERR_IO);
}

TEST(what_is_no_url)
{
    static const char *const bad[] = {"h",          "//h:x",
                                      "//h:0",      "//h:65536",
                                      "//h/x",      "//[::1",
                                      "//user@h",   "//a:%zz@h",
                                      "//h?db=x",   "//h?timeout=5",
                                      "//h?what=1", "//h?timeout=0s",
                                      "//h/1/2",    "//h?connect_timeout=s"};
    struct redis_url url;
    struct impel_error err;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        err = (struct impel_error){0};
        if (redis_url_parse("redis", bad[i], &url, &err) != IMPEL_ERR_INVALID) {
            printf("# %s\n", bad[i]);
        }
        CHECK(err.status == IMPEL_ERR_INVALID && err.text[0] != '\0');
    }
    char path[120] = "///";
    memset(path + 3, 'x', sizeof(path) - 4); /* libuv would connect to a shorter one */
    CHECK(redis_url_parse("unix", path, &url, NULL) == IMPEL_ERR_INVALID);
    path[109] = '\0';
    CHECK(redis_url_parse("unix", path, &url, NULL) == IMPEL_OK);
    redis_url_release(&url);
    CHECK(redis_url_parse("unix", "///a%00b", &url, NULL) == IMPEL_ERR_INVALID);
    CHECK(redis_url_parse("redis", "//:hunter2%zz@h", &url, &err) == IMPEL_ERR_INVALID);
    CHECK(strstr(err.text, "hunter2") == NULL);
}

TEST(scripts_are_named_by_their_sha1)
{
    static const struct {
        const char *text, *sha1;
    } known[] = {{"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
                 {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
                 {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                  "84983e441c3bd26ebaae4aa1f95129e5e54670f1"}};
    char text[SHA1_TEXT_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        sha1_text(bytes_of(known[i].text), text);
        CHECK(strcmp(text, known[i].sha1) == 0);
    }
}

/* ---- the slot of a helper key, as a server in cluster mode computes it ---- */

static void ignore(struct request *request)
{
    (void)request;
}

static int64_t slot_of(struct store *store, struct impel_bytes key)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes args[] = {bytes_of("CLUSTER"), bytes_of("KEYSLOT"), key};

    request->done = ignore;
    request->call.args = args;
    request->call.arg_count = 3;
    CHECK(store_wait(store, request, 30000) == IMPEL_OK);
    CHECK(request->call.reply->kind == VALUE_INTEGER);
    int64_t slot = request->call.reply->integer;
    request_free(request);
    return slot;
}

static void check_slot(struct store *store, struct impel_bytes name, char letter)
{
    struct request *request = request_new(REQUEST_BEAT);
    struct op op = {.store = (struct redis_store *)store, .request = request};

    request->group = bytes_of("g}{x");
    struct impel_bytes key = helper_key(&op, name, letter);
    if (slot_of(store, key) != slot_of(store, name)) {
        printf("# %.*s: %.*s\n", (int)name.size, (const char *)name.data, (int)key.size,
               (const char *)key.data);
        CHECK(false);
    }
    request_free(request);
}

TEST(the_workers_table_is_on_the_slot_of_its_stream)
{
    static const char *const args[] = {"--cluster-enabled", "yes", NULL};
    static const char *const names[] = {"orders", "{orders}:dead", "orders{eu}", "orders:{3}",
                                        "a}b",    "a{b",           "{}x",        "",
                                        "{}{a}",  "x{{y}z",        "a{}b{c}",    "}{"};
    struct redis_server server;
    struct store *store = NULL;
    char url[96];
    const char *why = redis_server_start(&server, args);

    if (why != NULL) {
        SKIP(why);
    }
    (void)snprintf(url, sizeof(url), "unix://%s", server.socket);
    CHECK(store_open(url, NULL, &store, NULL) == IMPEL_OK);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        check_slot(store, bytes_of(names[i]), i % 2 == 0 ? 'w' : 'a');
    }
    store_close(store);
    redis_server_end(&server);
}

TAP_MAIN
