/* dispatch.c -- from the words of a request to its reply: may it run, who runs it, what it tells
 * the others. */
#include "server/state.h"

#include <string.h>

/* ---- the store's commands ---- */

static void signal_key(void *user, struct impel_bytes key)
{
    wait_signal(user, key);
}

static void signal_keys(struct server *server,
                        const struct row *row,
                        const struct impel_bytes *args,
                        size_t arg_count)
{
    if (server->blocked_count > 0 && !row_keys(row, args, arg_count, signal_key, server)) {
        wait_signal_all(server);
    }
}

struct store_call {
    struct row *row;
    const struct impel_bytes *args;
    size_t arg_count;
    struct call_wait *wait;
};

/* The steps of Impel's own workers count as one change each. */
static uint64_t changes_of(const struct server *server, const struct row *row)
{
    return row->native != NULL ? 1 : server->engine.request.call.changes;
}

/* Tells those who watch what a command has changed. */
static void tell_watches(struct server *server, const struct store_call *call)
{
    const struct row *row = call->row;

    if (row->native != NULL || changes_of(server, row) == 0) {
        return;
    }
    if (strcmp(row->name, "copy") == 0) {
        watch_touch(server, call->args[2]); /* its source stays what it is */
    } else {
        row_keys(row, call->args, call->arg_count,
                 (row->flags & ROW_TOUCHES) != 0 ? watch_touch : watch_check, server);
    }
}

/* Carries out a store command and appends its reply. Negative: the transaction broke. */
static int call_store(struct client *client, const struct store_call *call)
{
    struct server *server = client->server;
    struct row *row = call->row;
    struct value *reply = NULL;
    uint64_t begun = server->clock_ns;
    bool watched = server->watch_count > 0 && (row->flags & ROW_WRITES) != 0;
    bool sets_id = watched && strcmp(row->name, "xsetid") == 0;

    if (sets_id) {
        watch_check(server, call->args[1]);
    }
    int rc = row->native != NULL
                 ? engine_native(&server->engine, row->native, call->args, call->arg_count, &reply)
                 : engine_call(&server->engine,
                               &(struct engine_call){row->command, call->args, call->arg_count,
                                                     client->version, call->wait},
                               &reply);
    if (rc < 0) {
        return rc;
    }
    if (sets_id) {
        watch_refresh(server, call->args[1]);
    } else if (watched) {
        tell_watches(server, call);
    }
    if ((row->flags & ROW_EXPIRES) != 0) {
        server->expiry_unknown = true;
    }
    if (server->engine.signalled) {
        signal_keys(server, row, call->args, call->arg_count);
    }
    uint64_t usec = (server_clock(server) - begun) / 1000;
    if (call->wait != NULL && call->wait->blocked) {
        client->wait.begun_us += usec;
        server->stats.changes += changes_of(server, row); /* a consumer may have been made */
        return IMPEL_OK;
    }
    turn_count_call(server, row, usec);
    if (reply->kind == VALUE_ERROR) {
        row->failed++;
        turn_count_error(server, reply->bytes);
    } else if ((row->flags & ROW_WRITES) != 0) {
        server->stats.changes += changes_of(server, row);
    }
    resp_put_value(&client->out, reply, client->version);
    return IMPEL_OK;
}

static void run_own(struct client *client, struct row *row, const struct queued *words, bool nested)
{
    struct serve serve = {
        .server = client->server,
        .client = client,
        .row = row,
        .args = words->args,
        .arg_count = words->arg_count,
        .out = &client->out,
        .version = client->version,
        .nested = nested,
    };
    struct server *server = client->server;
    uint64_t begun = server->clock_ns, errors = server->stats.errors;

    row->run(&serve);
    turn_count_call(server, row, (server_clock(server) - begun) / 1000);
    row->failed += server->stats.errors > errors; /* CONFIG RESETSTAT makes it less */
}

/* ---- ops ---- */

static int run_multi(struct turn_op *op)
{
    struct client *client = op->client;

    resp_put_array(&client->out, op->multi->count);
    for (size_t i = 0; i < op->multi->count; i++) {
        struct queued *item = &op->multi->items[i];
        if (item->row->run != NULL) {
            run_own(client, item->row, item, true);
            continue;
        }
        struct store_call call = {item->row, item->args, item->arg_count, NULL};
        int rc = call_store(client, &call);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

int dispatch_op(struct server *server, struct turn_op *op)
{
    struct client *client = op->client;
    struct call_wait wait = {.again = op->waited};
    bool may_block = (op->row->flags & ROW_MAY_BLOCK) != 0 && (!op->again || op->waited);
    int rc;

    (void)server;
    op->out_start = client->out.size;
    op->blocked = false;
    if (op->multi != NULL) {
        rc = run_multi(op);
    } else {
        struct store_call call = {op->row, op->args, op->arg_count, may_block ? &wait : NULL};
        rc = call_store(client, &call);
    }
    if (rc >= 0 && wait.blocked) {
        op->blocked = true;
        op->block_ms = wait.block_ms;
        op->again_ms = wait.again_ms;
    }
    if ((client->flags & (CLIENT_SILENT | CLIENT_SKIP)) != 0) {
        client->out.size = op->out_start;
    }
    op->out_end = client->out.size;
    return rc;
}

/* Carries an op out with all that follows from it. What breaks the transaction makes the whole turn
 * so far be done again, one by one; then this op has been done as well. */
static void run_op(struct server *server, struct turn_op *op)
{
    struct client *client = op->client;
    int rc = dispatch_op(server, op);

    if (rc >= 0 && op->blocked) {
        const struct impel_bytes *args = server->engine.request.call.args; /* "$" replaced */
        if (wait_begin(client, op, args) < 0) {
            turn_error(server, &client->out, "OOM no memory to wait");
        }
    }
    if (rc >= 0 && (wait_is_signalled(server) || server->wake_all)) {
        rc = wait_serve(server);
        rc = rc == IMPEL_ERR_BUSY ? IMPEL_OK : rc;
    }
    if (rc < 0) {
        journal_commit(server, rc);
    }
}

/* 1 = there is a transaction, 0 = try again later, -1 = an error was appended. */
static int begin(struct client *client, bool writes)
{
    struct server *server = client->server;
    struct impel_error err;
    bool foreign = false;
    int rc = engine_begin(&server->engine, writes, &foreign, &err);

    if (rc == IMPEL_ERR_BUSY) {
        return 0;
    }
    if (rc < 0) {
        turn_error(server, &client->out, "MISCONF %s", err.text);
        return -1;
    }
    if (foreign && server->blocked_count > 0) {
        server->wake_all = true;
    }
    return 1;
}

static int
run_stored(struct client *client, struct row *row, struct impel_bytes *args, size_t arg_count)
{
    struct server *server = client->server;
    int rc = begin(client, (row->flags & ROW_WRITES) != 0);

    if (rc <= 0) {
        return rc < 0;
    }
    struct turn_op *op = journal_add(server, client);
    if (op == NULL) {
        turn_error(server, &client->out, "OOM no memory for another command");
        return 1;
    }
    op->row = row;
    op->args = args;
    op->arg_count = arg_count;
    run_op(server, op);
    return 1;
}

/* ---- EXEC ---- */

static bool multi_writes(const struct multi *multi)
{
    for (size_t i = 0; i < multi->count; i++) {
        if ((multi->items[i].row->flags & ROW_WRITES) != 0) {
            return true;
        }
    }
    return false;
}

/* There is nothing to carry out, or something in it was wrong. */
static bool exec_refused(struct client *client, struct row *row)
{
    bool begun = (client->flags & CLIENT_MULTI) != 0;

    if (begun && (client->flags & CLIENT_MULTI_BAD) == 0) {
        return false;
    }
    turn_count_call(client->server, row, 0);
    row->failed++;
    turn_error(client->server, &client->out,
               begun ? "EXECABORT Transaction discarded because of previous errors."
                     : "ERR EXEC without MULTI");
    if (begun) {
        multi_discard(client);
    }
    return true;
}

int dispatch_exec(struct client *client, struct row *row)
{
    struct server *server = client->server;
    bool touched = false;

    if (exec_refused(client, row)) {
        return 1;
    }
    int rc = begin(client, multi_writes(&client->multi));
    if (rc <= 0) {
        return rc < 0;
    }
    if (client->watch_count > 0) {
        touched = watch_touched(client);
    }
    struct turn_op *op = touched ? NULL : journal_add(server, client);
    turn_count_call(server, row, 0);
    if (op == NULL) {
        if (touched) {
            resp_put_null_array(&client->out, client->version);
        } else {
            turn_error(server, &client->out, "OOM no memory for the transaction");
        }
        multi_discard(client);
        return 1;
    }
    op->row = row;
    op->owned_multi = client->multi;
    client->multi = (struct multi){.items = NULL};
    multi_discard(client);
    struct multi *moved = arena_alloc(&op->owned, sizeof(*moved));
    if (moved == NULL) {
        journal_drop_last(server);
        turn_error(server, &client->out, "OOM no memory for the transaction");
        return 1;
    }
    *moved = op->owned_multi;
    op->multi = moved;
    run_op(server, op);
    return 1;
}

/* ---- any request ---- */

static bool may_run(struct client *client, struct row *row)
{
    struct server *server = client->server;

    if ((client->flags & CLIENT_UNPRIVILEGED) != 0 && (row->flags & ROW_NO_AUTH) == 0) {
        row->rejected++;
        turn_error(
            server, &client->out, "%sNOAUTH Authentication required.",
            (row->flags & ROW_IS_EXEC) == 0 ? "" : "EXECABORT Transaction discarded because of: ");
        return false;
    }
    if ((row->flags & ROW_LOCAL) != 0 && (client->flags & CLIENT_LOCAL) == 0) {
        row->rejected++;
        turn_error(server, &client->out,
                   "ERR DEBUG command not allowed. It is only for clients on this machine.");
        return false;
    }
    return true;
}

static int run_row(struct client *client, struct row *row, struct impel_bytes *args, size_t count)
{
    if ((client->flags & CLIENT_MULTI) != 0 && (row->flags & ROW_NOT_QUEUED) == 0) {
        if (multi_queue(client, row, args, count)) {
            resp_put_status(&client->out, bytes_of("QUEUED"));
        } else {
            client->flags |= CLIENT_MULTI_BAD;
            turn_error(client->server, &client->out, "OOM the transaction is too large");
        }
        return 1;
    }
    if ((row->flags & ROW_IS_EXEC) != 0) {
        return dispatch_exec(client, row);
    }
    if (row->run == NULL) {
        return run_stored(client, row, args, count);
    }
    if ((row->flags & ROW_READS) != 0) {
        int rc = begin(client, false);
        if (rc <= 0) {
            return rc < 0;
        }
    }
    run_own(client, row, &(struct queued){row, args, count}, false);
    return 1;
}

/* A browser can be made to send any body to any port, behind words of its own. It comes no further
 * than these. */
static bool is_http(struct impel_bytes word)
{
    return bytes_equal_nocase(word, "post") || bytes_equal_nocase(word, "host:");
}

int dispatch(struct client *client, struct impel_bytes *args, size_t arg_count)
{
    struct server *server = client->server;

    if (is_http(args[0])) {
        server_log(server, 2, "client %llu at %s speaks HTTP and is cut",
                   (unsigned long long)client->id, client->address);
        client_close_after(client);
        return 1;
    }
    size_t out_start = client->out.size;
    struct row *row = row_for(server, args, arg_count, &client->out);
    int rc = 1;

    if (row == NULL && bytes_equal_nocase(args[0], "exec")) { /* with words it does not take */
        multi_discard(client);
    } else if (row == NULL || !may_run(client, row)) {
        client->flags |= (client->flags & CLIENT_MULTI) != 0 ? CLIENT_MULTI_BAD : 0;
    } else if (server->paused_until_ms > 0 && server_holds(server, row)) {
        return -1;
    } else {
        client->last_row = row;
        rc = run_row(client, row, args, arg_count);
    }
    if (rc == 0) {
        return 0;
    }
    if ((client->flags & (CLIENT_SILENT | CLIENT_SKIP)) != 0 && client->out.size > out_start) {
        client->out.size = out_start;
    }
    if ((client->flags & CLIENT_BLOCKED) == 0) { /* else it is for the reply that is to come */
        client->flags &= ~(unsigned)CLIENT_SKIP;
    }
    if ((client->flags & CLIENT_SKIP_NEXT) != 0) {
        client->flags = (client->flags & ~(unsigned)CLIENT_SKIP_NEXT) | CLIENT_SKIP;
    }
    return rc;
}
