/* connection.c -- commands about the connection itself: who is there, and how they talk. */
#include "server/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool own_word_is(const struct serve *serve, size_t index, const char *word)
{
    return index < serve->arg_count && bytes_equal_nocase(serve->args[index], word);
}

void own_error(struct serve *serve, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    turn_error(serve->server, serve->out, "%s", text);
}

void own_ok(struct serve *serve)
{
    resp_put_status(serve->out, bytes_of("OK"));
}

void own_error_syntax(struct serve *serve)
{
    own_error(serve, "ERR syntax error");
}

void own_error_options(struct serve *serve)
{
    char upper[ROW_NAME_SIZE];

    own_error(serve, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
              (int)(serve->args[1].size > 128 ? 128 : serve->args[1].size),
              (const char *)serve->args[1].data, row_container_upper(serve->row, upper));
}

bool own_integer(struct serve *serve, size_t index, int64_t *out)
{
    if (!resp_number(serve->args[index], out)) {
        own_error(serve, "ERR value is not an integer or out of range");
        return false;
    }
    return true;
}

void command_ping_server(struct serve *serve)
{
    if (serve->arg_count > 2) {
        own_error(serve, "ERR wrong number of arguments for 'ping' command");
    } else if (serve->arg_count == 2) {
        resp_put_bulk(serve->out, serve->args[1]);
    } else {
        resp_put_status(serve->out, bytes_of("PONG"));
    }
}

void command_quit(struct serve *serve)
{
    own_ok(serve);
    client_close_after(serve->client);
}

void command_exec(struct serve *serve)
{
    (void)serve;
}

void command_reset(struct serve *serve)
{
    struct client *client = serve->client;

    multi_discard(client);
    (void)client_set_name(client, (struct impel_bytes){NULL, 0});
    client->version = 2;
    client->flags &= ~(unsigned)(CLIENT_SILENT | CLIENT_SKIP | CLIENT_SKIP_NEXT | CLIENT_NO_EVICT |
                                 CLIENT_NO_TOUCH);
    if (serve->server->password != NULL) {
        client->flags |= CLIENT_UNPRIVILEGED;
        client->scan.unauthenticated = true;
    }
    resp_put_status(serve->out, bytes_of("RESET"));
}

void command_select(struct serve *serve)
{
    int64_t number;

    if (!own_integer(serve, 1, &number)) {
        return;
    }
    if (number < INT32_MIN || number > INT32_MAX) {
        own_error(serve, "ERR value is out of range, value must between %d and %d", INT32_MIN,
                  INT32_MAX);
        return;
    }
    if (number != 0) {
        own_error(serve, "ERR DB index is out of range");
        return;
    }
    own_ok(serve);
}

/* ---- the password ---- */

/* In a time that does not tell how much of it was right. */
static bool password_fits(const struct server *server, struct impel_bytes given)
{
    struct impel_bytes wanted = bytes_of(server->password);
    unsigned differs = given.size != wanted.size;

    for (size_t i = 0; i < given.size; i++) {
        unsigned char right =
            wanted.size == 0 ? 0 : ((const unsigned char *)wanted.data)[i % wanted.size];
        differs |= ((const unsigned char *)given.data)[i] ^ (unsigned)right;
    }
    return differs == 0;
}

static bool log_in(struct serve *serve, struct impel_bytes user, struct impel_bytes password)
{
    const struct server *server = serve->server;

    if (!bytes_equal(user, bytes_of("default")) ||
        (server->password != NULL && !password_fits(server, password))) {
        own_error(serve, "WRONGPASS invalid username-password pair or user is disabled.");
        return false;
    }
    serve->client->flags &= ~(unsigned)CLIENT_UNPRIVILEGED;
    serve->client->scan.unauthenticated = false;
    return true;
}

void command_auth(struct serve *serve)
{
    bool named = serve->arg_count == 3;

    if (serve->arg_count > 3) {
        own_error_syntax(serve);
        return;
    }
    if (!named && serve->server->password == NULL) {
        own_error(serve,
                  "ERR AUTH <password> called without any password configured for the default "
                  "user. Are you sure your configuration is correct?");
        return;
    }
    if (log_in(serve, named ? serve->args[1] : bytes_of("default"),
               serve->args[serve->arg_count - 1])) {
        own_ok(serve);
    }
}

/* ---- HELLO ---- */

static bool name_fits(struct impel_bytes name)
{
    for (size_t i = 0; i < name.size; i++) {
        unsigned char c = ((const unsigned char *)name.data)[i];
        if (c < '!' || c > '~') {
            return false;
        }
    }
    return true;
}

bool client_set_name(struct client *client, struct impel_bytes name)
{
    char *copy = NULL;

    if (!name_fits(name)) {
        return false;
    }
    if (name.size > 0) {
        copy = malloc(name.size);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, name.data, name.size);
    }
    free((void *)client->name.data);
    client->name = (struct impel_bytes){copy, name.size};
    return true;
}

struct hello {
    int64_t version;
    bool logs_in;
    struct impel_bytes user, password;
    bool names;
    struct impel_bytes name;
};

static bool hello_parse(struct serve *serve, struct hello *hello)
{
    for (size_t i = 2; i < serve->arg_count; i++) {
        size_t left = serve->arg_count - i - 1;
        if (own_word_is(serve, i, "AUTH") && left >= 2) {
            hello->logs_in = true;
            hello->user = serve->args[i + 1];
            hello->password = serve->args[i + 2];
            i += 2;
        } else if (own_word_is(serve, i, "SETNAME") && left >= 1) {
            hello->names = true;
            hello->name = serve->args[i + 1];
            i++;
        } else {
            own_error(serve, "ERR Syntax error in HELLO option '%.*s'",
                      (int)(serve->args[i].size > 128 ? 128 : serve->args[i].size),
                      (const char *)serve->args[i].data);
            return false;
        }
    }
    return true;
}

static void hello_reply(struct serve *serve)
{
    int version = serve->client->version;
    struct buf *out = serve->out;

    resp_put_map(out, 7, version);
    resp_put_text(out, "server");
    resp_put_text(out, "redis");
    resp_put_text(out, "version");
    resp_put_text(out, OWN_REDIS_VERSION);
    resp_put_text(out, "proto");
    resp_put_number(out, version);
    resp_put_text(out, "id");
    resp_put_number(out, (int64_t)serve->client->id);
    resp_put_text(out, "mode");
    resp_put_text(out, "standalone");
    resp_put_text(out, "role");
    resp_put_text(out, "master");
    resp_put_text(out, "modules");
    resp_put_array(out, 0);
}

void command_hello(struct serve *serve)
{
    struct client *client = serve->client;
    struct hello hello = {.version = client->version};

    if (serve->arg_count >= 2 && !resp_number(serve->args[1], &hello.version)) {
        own_error(serve, "ERR Protocol version is not an integer or out of range");
        return;
    }
    if (hello.version < 2 || hello.version > 3) {
        own_error(serve, "NOPROTO unsupported protocol version");
        return;
    }
    if (!hello_parse(serve, &hello)) {
        return;
    }
    if (hello.names && !name_fits(hello.name)) { /* before the password is looked at */
        own_error(serve, "ERR Client names cannot contain spaces, newlines or special characters.");
        return;
    }
    if (hello.logs_in && !log_in(serve, hello.user, hello.password)) {
        return;
    }
    if ((client->flags & CLIENT_UNPRIVILEGED) != 0) {
        own_error(serve, "NOAUTH HELLO must be called with the client already authenticated, "
                         "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to "
                         "authenticate the client and select the RESP protocol version at the "
                         "same time");
        return;
    }
    if (hello.names && !client_set_name(client, hello.name)) {
        own_error(serve, "OOM no memory for the client's name");
        return;
    }
    client->version = (int)hello.version;
    hello_reply(serve);
}
