/* The two halves of the filter, a client's and a server's, with nothing but memory in between. What
 * sockets add to it is tested on the server. */
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

/* One for all tests; false where there is nothing to make it with. */
static bool make_certificate(void)
{
    static int made = -1;
    char command[512];

    if (made < 0) {
        CHECK(mkdtemp(folder) != NULL);
        (void)atexit(remove_files);
        (void)snprintf(command, sizeof(command),
                       "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                       "-nodes -subj /CN=localhost -addext "
                       "subjectAltName=DNS:localhost,IP:127.0.0.1 -days 2 -keyout key -out cert "
                       ">/dev/null 2>&1",
                       folder);
        made = system(command) == 0; // NOLINT(cert-env33-c)
    }
    return made > 0;
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

static void talk(struct side *client, struct side *server, size_t piece)
{
    CHECK(tls_begin(client->tls, &client->wire, &client->err) == IMPEL_OK);
    carry(client, server, piece);
}

TEST(bytes_go_both_ways_in_any_pieces)
{
    static const size_t pieces[] = {1, 1000, WIRE_MAX};

    if (!make_certificate()) {
        SKIP("no openssl command here");
    }
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        struct side client, server;
        struct impel_error err;
        size_t size = pieces[i] == 1 ? 40000 : BYTES;
        uint8_t *data = malloc(size);

        CHECK(data != NULL);
        memset(data, 'x', size);
        side_open(&client, false, i == 0 ? "127.0.0.1" : "localhost");
        side_open(&server, true, NULL);
        CHECK(!tls_is_open(client.tls) && !tls_is_open(server.tls));
        talk(&client, &server, pieces[i]);
        CHECK(tls_is_open(client.tls) && tls_is_open(server.tls));
        CHECK(tls_send(client.tls, (struct impel_bytes){data, size}, &client.wire, &err) ==
              IMPEL_OK);
        carry(&client, &server, pieces[i]);
        CHECK(server.plain.size == size && memcmp(server.plain.data, data, size) == 0);
        CHECK(tls_send(server.tls, (struct impel_bytes){"answer", 6}, &server.wire, &err) ==
              IMPEL_OK);
        tls_end(server.tls, &server.wire);
        carry(&server, &client, pieces[i]);
        CHECK(client.plain.size == 6 && client.status == IMPEL_ERR_DISCONNECTED);
        side_release(&client);
        side_release(&server);
        free(data);
    }
}

/* As servers do after much data: the other side answers at once, while it has nothing to say itself. */
TEST(keys_may_be_changed_meanwhile)
{
    struct side client, server;
    struct impel_error err;

    if (!make_certificate()) {
        SKIP("no openssl command here");
    }
    side_open(&client, false, "localhost");
    side_open(&server, true, NULL);
    talk(&client, &server, 1000);
    for (int i = 0; i < 5; i++) {
        CHECK(SSL_key_update(server.tls->ssl, SSL_KEY_UPDATE_REQUESTED) == 1);
        CHECK(tls_send(server.tls, (struct impel_bytes){"a", 1}, &server.wire, &err) == IMPEL_OK);
        carry(&server, &client, 7);
        CHECK(tls_send(client.tls, (struct impel_bytes){"b", 1}, &client.wire, &err) == IMPEL_OK);
        carry(&client, &server, 7);
        CHECK(client.status == IMPEL_OK && server.status == IMPEL_OK);
    }
    CHECK(client.plain.size == 5 && server.plain.size == 5);
    side_release(&client);
    side_release(&server);
}

TEST(a_certificate_for_another_host_is_not_accepted)
{
    struct side client, server;

    if (!make_certificate()) {
        SKIP("no openssl command here");
    }
    side_open(&client, false, "example.org");
    side_open(&server, true, NULL);
    talk(&client, &server, 1000);
    CHECK(client.status == IMPEL_ERR_PROTOCOL);
    CHECK(strstr(client.err.text, "hostname mismatch") != NULL);
    CHECK(!tls_is_open(client.tls) && !tls_is_open(server.tls));
    side_release(&client);
    side_release(&server);
}

TEST(a_small_buffer_ends_the_session_and_nothing_else)
{
    struct side client, server;
    struct impel_error err;

    if (!make_certificate()) {
        SKIP("no openssl command here");
    }
    side_open(&client, false, "localhost");
    side_open(&server, true, NULL);
    talk(&client, &server, 1000);
    server.plain.size_max = 40000;
    uint8_t *data = calloc(1, BYTES);
    CHECK(data != NULL);
    CHECK(tls_send(client.tls, (struct impel_bytes){data, BYTES}, &client.wire, &err) == IMPEL_OK);
    carry(&client, &server, 1000);
    CHECK(server.status == IMPEL_ERR_LIMIT);
    free(data);
    side_release(&client);
    side_release(&server);
}

TAP_MAIN
