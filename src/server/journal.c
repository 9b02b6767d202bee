/* journal.c -- what a turn did to the store, so that it can be done again, one by one, if the
 * transaction that all of it shared did not come through.
 *
 * Replies are in the clients' output buffers already, but none has left. For the second time each
 * output is rebuilt: what stood between the replies of ops is copied, the ops answer anew. */
#include "server/state.h"

#include <stdlib.h>

enum {
    LOCK_TRIES_MAX = 500, /* of 20 ms each */
    WORDS_KEPT_BYTES = 1024 * 1024,
};

struct turn_op *journal_add(struct server *server, struct client *client)
{
    struct journal *journal = &server->journal;

    if (journal->count == journal->room) {
        size_t room = journal->room == 0 ? 256 : journal->room * 2;
        struct turn_op *ops = realloc(journal->ops, room * sizeof(*ops));
        if (ops == NULL) {
            return NULL;
        }
        journal->ops = ops;
        journal->room = room;
    }
    struct turn_op *op = &journal->ops[journal->count++];
    *op = (struct turn_op){.client = client, .out_start = client->out.size};
    return op;
}

void journal_drop_last(struct server *server)
{
    struct turn_op *op = &server->journal.ops[--server->journal.count];

    arena_release(&op->owned);
    multi_release(&op->owned_multi);
}

void journal_clear(struct server *server)
{
    struct journal *journal = &server->journal;

    while (journal->count > 0) {
        journal_drop_last(server);
    }
    arena_reset(&journal->arena, WORDS_KEPT_BYTES);
    engine_rest(&server->engine);
}

/* ---- again, one by one ---- */

static void put_failure(struct server *server, struct turn_op *op, int status, const char *text)
{
    const char *code = status == IMPEL_ERR_FULL || status == IMPEL_ERR_NOMEM ? "OOM"
                       : status == IMPEL_ERR_LIMIT                           ? "ERR"
                                                                             : "MISCONF";

    op->client->out.size = op->out_start;
    op->row->failed++;
    turn_error(server, &op->client->out, "%s %s", code, text);
    op->out_end = op->client->out.size;
}

static int begin_alone(struct server *server, struct impel_error *err)
{
    bool foreign = false;
    int rc = IMPEL_ERR_BUSY;

    for (int i = 0; i < LOCK_TRIES_MAX && rc == IMPEL_ERR_BUSY; i++) {
        rc = engine_begin(&server->engine, true, &foreign, err);
    }
    server->wake_all |= foreign;
    return rc;
}

static void redo_op(struct server *server, struct turn_op *op)
{
    struct impel_error err = {0};
    int rc = begin_alone(server, &err);

    op->out_start = op->client->out.size;
    if (rc < 0) {
        put_failure(server, op, rc, err.text);
        return;
    }
    rc = dispatch_op(server, op);
    if (rc < 0) {
        (void)engine_explain(&server->engine, rc, &err);
        engine_abort(&server->engine);
    } else {
        rc = engine_commit(&server->engine, &err);
    }
    if (rc < 0) {
        put_failure(server, op, rc, err.text);
    }
}

static void copy_between(struct client *client, size_t end)
{
    if (end > client->redo_at) {
        buf_append(&client->out, client->redo.data + client->redo_at, end - client->redo_at);
    }
}

static void redo_all(struct server *server)
{
    struct journal *journal = &server->journal;
    size_t count = journal->count;

    server->stats.redone++;
    for (size_t i = 0; i < count; i++) {
        struct client *client = journal->ops[i].client;
        if (!client->is_redoing) {
            client->is_redoing = true;
            client->redo = client->out;
            client->redo_at = 0;
            buf_init(&client->out, client->redo.size_max);
        }
        size_t out_start = journal->ops[i].out_start, out_end = journal->ops[i].out_end;
        copy_between(client, out_start);
        client->redo_at = out_end;
        if (!journal->ops[i].blocked) {
            journal->ops[i].again = true; /* nothing may block now */
            journal->ops[i].waited = false;
            redo_op(server, &journal->ops[i]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct client *client = journal->ops[i].client;
        if (client->is_redoing) {
            copy_between(client, client->redo.size);
            buf_release(&client->redo);
            client->is_redoing = false;
            client_dirty(client);
        }
    }
}

void journal_commit(struct server *server, int status)
{
    struct impel_error err;
    bool wrote = server->engine.mode == ENGINE_WRITES;

    if (status < 0) {
        engine_abort(&server->engine);
    } else {
        status = engine_commit(&server->engine, &err);
        server->stats.commits += wrote && status >= 0;
    }
    if (status < 0) {
        redo_all(server);
    }
    journal_clear(server);
}
