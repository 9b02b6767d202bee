/* The two halves of the filter, a client's and a server's, with nothing but memory in between. What
 * sockets add to it is tested on the server. */
#include "certificate.h"
#include "net/tls_state.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BYTES = 3 * 1024 * 1024,
    WIRE_MAX = 8 * 1024 * 1024,
};

static char folder[64] = "/tmp/impel-tls-XXXXXX";

static void remove_files(void)
{
    char path[96];

    (void)snprintf(path, sizeof(path), "%s/key", folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/cert", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

/* One for all tests; skips the test where there is nothing to make it with. */
static void need_certificate(void)
{
    static int made = -1;

    if (made < 0) {
        CHECK(mkdtemp(folder) != NULL);
        (void)atexit(remove_files);
        made = certificate_make(folder);
    }
    if (made == 0) {
        SKIP("no openssl command here");
    }
}

struct side {
    struct tls_context *context;
    struct tls *tls;
    struct buf plain, wire;
    struct impel_error err;
    int status;
};

static void side_open(struct side *side, bool is_server, const char *host)
{
    char cert[96], key[96];

    (void)snprintf(cert, sizeof(cert), "%s/cert", folder);
    (void)snprintf(key, sizeof(key), "%s/key", folder);
    struct tls_options options = {
        .cert_file = is_server ? cert : NULL,
        .key_file = is_server ? key : NULL,
        .ca_file = is_server ? NULL : cert,
        .is_server = is_server,
    };
    *side = (struct side){.status = IMPEL_OK};
    buf_init(&side->plain, WIRE_MAX);
    buf_init(&side->wire, WIRE_MAX);
    CHECK(tls_context_new(&options, &side->context, &side->err) == IMPEL_OK);
    CHECK(tls_new(side->context, host, &side->tls) == IMPEL_OK);
}

static void side_release(struct side *side)
{
    tls_free(side->tls);
    tls_context_free(side->context);
    buf_release(&side->plain);
    buf_release(&side->wire);
}

/* Carries what each has for the other, in pieces, until neither has anything. */
static void carry(struct side *a, struct side *b, size_t piece)
{
    while (a->wire.size > 0) {
        for (size_t at = 0; at < a->wire.size && b->status >= 0; at += piece) {
            size_t size = a->wire.size - at < piece ? a->wire.size - at : piece;
            struct impel_bytes bytes = {a->wire.data + at, size};
            b->status = tls_receive(b->tls, bytes, &b->plain, &b->wire, &b->err);
        }
        buf_clear(&a->wire);
        struct side *other = a;
        a = b;
        b = other;
    }
}

struct pair {
    struct side client, server;
};

/* A client that asks for `host`, and the server; not a byte has passed between them. */
static void pair_open(struct pair *pair, const char *host)
{
    need_certificate();
    side_open(&pair->client, false, host);
    side_open(&pair->server, true, NULL);
}

static void pair_release(struct pair *pair)
{
    side_release(&pair->client);
    side_release(&pair->server);
}

/* The handshake, as far as it comes. */
static void pair_meet(struct pair *pair, size_t piece)
{
    CHECK(tls_begin(pair->client.tls, &pair->client.wire, &pair->client.err) == IMPEL_OK);
    carry(&pair->client, &pair->server, piece);
}

static bool pair_is_open(const struct pair *pair)
{
    return tls_is_open(pair->client.tls) && tls_is_open(pair->server.tls);
}

/* One side says something to the other. */
static void say(struct side *from, struct side *to, struct impel_bytes bytes, size_t piece)
{
    CHECK(tls_send(from->tls, bytes, &from->wire, &from->err) == IMPEL_OK);
    carry(from, to, piece);
}

TEST(bytes_go_both_ways_in_any_pieces)
{
    static const size_t pieces[] = {1, 1000, WIRE_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        struct pair pair;
        struct side *client = &pair.client, *server = &pair.server;
        size_t size = pieces[i] == 1 ? 40000 : BYTES;

        pair_open(&pair, i == 0 ? "127.0.0.1" : "localhost");
        uint8_t *data = malloc(size);
        CHECK(data != NULL);
        memset(data, 'x', size);
        CHECK(!tls_is_open(client->tls) && !tls_is_open(server->tls));
        pair_meet(&pair, pieces[i]);
        CHECK(pair_is_open(&pair));
        say(client, server, (struct impel_bytes){data, size}, pieces[i]);
        CHECK(server->plain.size == size && memcmp(server->plain.data, data, size) == 0);
        CHECK(tls_send(server->tls, bytes_of("answer"), &server->wire, &server->err) == IMPEL_OK);
        tls_end(server->tls, &server->wire);
        carry(server, client, pieces[i]);
        CHECK(client->plain.size == 6 && client->status == IMPEL_ERR_DISCONNECTED);
        pair_release(&pair);
        free(data);
    }
}

/* As servers do after much data: the other side answers at once, while it has nothing to say itself. */
TEST(keys_may_be_changed_meanwhile)
{
    struct pair pair;

    pair_open(&pair, "localhost");
    pair_meet(&pair, 1000);
    for (int i = 0; i < 5; i++) {
        CHECK(SSL_key_update(pair.server.tls->ssl, SSL_KEY_UPDATE_REQUESTED) == 1);
        say(&pair.server, &pair.client, bytes_of("a"), 7);
        say(&pair.client, &pair.server, bytes_of("b"), 7);
        CHECK(pair.client.status == IMPEL_OK && pair.server.status == IMPEL_OK);
    }
    CHECK(pair.client.plain.size == 5 && pair.server.plain.size == 5);
    pair_release(&pair);
}

TEST(a_certificate_for_another_host_is_not_accepted)
{
    struct pair pair;

    pair_open(&pair, "example.org");
    pair_meet(&pair, 1000);
    CHECK(pair.client.status == IMPEL_ERR_PROTOCOL);
    CHECK(strstr(pair.client.err.text, "hostname mismatch") != NULL);
    CHECK(!tls_is_open(pair.client.tls) && !tls_is_open(pair.server.tls));
    pair_release(&pair);
}

TEST(a_small_buffer_ends_the_session_and_nothing_else)
{
    struct pair pair;

    pair_open(&pair, "localhost");
    pair_meet(&pair, 1000);
    pair.server.plain.size_max = 40000;
    uint8_t *data = calloc(1, BYTES);
    CHECK(data != NULL);
    say(&pair.client, &pair.server, (struct impel_bytes){data, BYTES}, 1000);
    CHECK(pair.server.status == IMPEL_ERR_LIMIT);
    free(data);
    pair_release(&pair);
}

TAP_MAIN
