/* turn.c -- one turn of the loop: what every client has sent, in one transaction. */
#include "server/state.h"

#include <stdio.h>
#include <string.h>

enum {
    TURN_REQUESTS_MAX = 20000,  /* then it commits: replies should not wait for ever */
    TURN_NS_MAX = 50000000,     /* likewise, of costly ones; cheap ones are as many by then */
    CLIENT_REQUESTS_MAX = 1000, /* of one client in a row, while others wait */
};

/* ---- errors ---- */

void turn_count_error(struct server *server, struct impel_bytes text)
{
    struct server_stats *stats = &server->stats;
    const char *begin = text.data;
    const char *blank = text.size == 0 ? NULL : memchr(begin, ' ', text.size);
    size_t size = blank == NULL ? text.size : (size_t)(blank - begin);

    stats->errors++;
    size = size < sizeof(stats->codes[0].code) ? size : sizeof(stats->codes[0].code) - 1;
    for (size_t i = 0; i < stats->code_count; i++) {
        struct error_count *known = &stats->codes[i];
        if (strlen(known->code) == size && memcmp(known->code, begin, size) == 0) {
            known->count++;
            return;
        }
    }
    if (stats->code_count < ERROR_CODES_MAX) {
        struct error_count *fresh = &stats->codes[stats->code_count++];
        memcpy(fresh->code, begin, size);
        fresh->code[size] = '\0';
        fresh->count = 1;
    }
}

void turn_count_call(struct server *server, struct row *row, uint64_t usec)
{
    row->calls++;
    row->usec += usec;
    server->stats.commands++;
}

void turn_error(struct server *server, struct buf *out, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    int size = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    size = size < 0 ? 0 : size >= (int)sizeof(text) ? (int)sizeof(text) - 1 : size;
    struct impel_bytes bytes = {text, (size_t)size};
    turn_count_error(server, bytes);
    resp_put_error(out, bytes);
}

/* ---- requests ---- */

static bool may_run(const struct client *client)
{
    return (client->flags & (CLIENT_CLOSING | CLIENT_CLOSE_AFTER | CLIENT_BLOCKED)) == 0 &&
           !client->out.failed; /* it will be cut */
}

/* What is no request ends the connection, with Redis's words. */
static void protocol_error(struct client *client, const struct impel_error *err)
{
    turn_error(client->server, &client->out, "%s", err->text);
    client->in_at = client->in.size;
    client_close_after(client);
}

enum request_outcome {
    REQUEST_HELD = -2, /* until the end of CLIENT PAUSE, which has it looked at again */
    REQUEST_BUSY = -1, /* the store is not to be had now */
    REQUEST_NONE = 0,  /* it has not arrived yet, or never will */
    REQUEST_DONE = 1,
};

static enum request_outcome run_request(struct client *client)
{
    struct server *server = client->server;
    struct impel_bytes input = {client->in.data + client->in_at, client->in.size - client->in_at};
    struct impel_error err;
    struct impel_bytes *args = NULL;
    size_t size = 0, arg_count = 0;

    if (input.size == 0) {
        return REQUEST_NONE;
    }
    int rc = resp_scan_request(&client->scan, input, &size, &err);
    if (rc == 0) {
        return REQUEST_NONE;
    }
    input.size = size;
    if (rc > 0) {
        rc = resp_read_request(input, &server->journal.arena, &args, &arg_count, &err);
    }
    if (rc < 0) {
        protocol_error(client, &err);
        return REQUEST_NONE;
    }
    rc = arg_count > 0 ? dispatch(client, args, arg_count) : 1;
    if (rc <= 0) {
        return rc < 0 ? REQUEST_HELD : REQUEST_BUSY;
    }
    client->in_at += size;
    return REQUEST_DONE;
}

/* Nothing follows what it has sent, and that has been carried out. */
static void end_client(struct client *client)
{
    if ((client->flags & CLIENT_BLOCKED) != 0) {
        client_close(client);
    } else {
        client_close_after(client);
    }
}

static bool turn_is_over(const struct server *server)
{
    return server->clock_ns - server->requests_ns >= TURN_NS_MAX;
}

/* True: the store is not to be had now, so nobody else need try. */
static bool run_client(struct client *client, size_t *budget)
{
    size_t left = CLIENT_REQUESTS_MAX;
    enum request_outcome outcome = REQUEST_DONE;

    while (outcome == REQUEST_DONE && left > 0 && *budget > 0 && may_run(client)) {
        outcome = run_request(client);
        left--;
        *budget = turn_is_over(client->server) ? 0 : *budget - 1;
    }
    if (outcome == REQUEST_BUSY) {
        return true;
    }
    link_remove(&client->ready);
    if (outcome == REQUEST_DONE && may_run(client)) {
        client_ready(client); /* at the end of the list */
    } else if (outcome != REQUEST_HELD && (client->flags & CLIENT_ENDED) != 0) {
        end_client(client);
    }
    if (client->out.size > 0 || client->out.failed) {
        client_dirty(client);
    }
    return false;
}

static void run_ready(struct server *server)
{
    size_t budget = TURN_REQUESTS_MAX;
    bool busy = false;

    server->requests_ns = server_clock(server); /* what came before it takes nothing from them */
    while (!busy && budget > 0 && !link_empty(&server->ready)) {
        busy = run_client(LINK_OF(server->ready.next, struct client, ready), &budget);
    }
}

static void flush_dirty(struct server *server)
{
    while (!link_empty(&server->dirty)) {
        struct client *client = LINK_OF(server->dirty.next, struct client, dirty);
        link_remove(&client->dirty);
        client_flush(client);
    }
}

void turn_run(struct server *server)
{
    int rc = IMPEL_OK;

    server->now_ms = (int64_t)uv_now(&server->loop);
    server->clock_ns = uv_hrtime();
    engine_clock(&server->engine, server->clock_ns);
    server->stats.turns++;
    if (server->expiry_due) {
        rc = expiry_run(server);
    }
    if (rc >= 0 && (server->wake_all || wait_is_signalled(server))) {
        rc = wait_serve(server);
    }
    if (rc >= 0) {
        run_ready(server);
    }
    journal_commit(server, rc == IMPEL_ERR_BUSY ? IMPEL_OK : rc);
    flush_dirty(server);
    if (server->expiry_unknown) {
        expiry_plan(server);
    }
    if (server->blocked_count > 0 && !engine_arm(&server->engine)) {
        server->wake_all = true;
    }
}
