/* wait.c -- clients whose XREAD, XREADGROUP or BLPOP found nothing: who waits for which key, in which
 * order, and when to try again.
 *
 * "Signal, then carry out the command again": a command that may have given waiters something
 * signals its keys; when it is over, for each signalled key those who wait for it are tried in the
 * order in which they blocked. Who still gets nothing goes to the tail. A commit of another process
 * does not say which keys it touched, so then everybody is tried; a look at the rows comes first,
 * because XREADGROUP writes (who read last, when) even where it gets nothing. After a signal that is
 * written then, and no more. */
#include "server/state.h"

#include <stdlib.h>
#include <string.h>

/* A key that somebody waits for. */
struct wait_key {
    struct wait_key *next; /* of its slot */
    uint64_t hash;
    struct link places;
    struct link signalled; /* of table->signalled, unless loose */
    size_t count, grouped_count;
    size_t size;
    char name[];
};

struct wait_table {
    struct wait_key **slots;
    size_t slot_count, key_count;
    struct link signalled;
};

enum {
    SLOTS_FIRST = 64,
};

int wait_init(struct server *server)
{
    struct wait_table *table = calloc(1, sizeof(*table));

    server->wait_table = table;
    if (table == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    link_init(&table->signalled);
    table->slot_count = SLOTS_FIRST;
    table->slots = calloc(table->slot_count, sizeof(struct wait_key *));
    return table->slots == NULL ? IMPEL_ERR_NOMEM : IMPEL_OK;
}

void wait_release(struct server *server)
{
    struct wait_table *table = server->wait_table;

    if (table == NULL) {
        return;
    }
    for (size_t i = 0; table->slots != NULL && i < table->slot_count; i++) {
        while (table->slots[i] != NULL) {
            struct wait_key *key = table->slots[i];
            table->slots[i] = key->next;
            free(key);
        }
    }
    free(table->slots);
    free(table);
    server->wait_table = NULL;
}

/* ---- keys ---- */

static struct wait_key *key_find(const struct wait_table *table, struct impel_bytes name)
{
    uint64_t hash = hash_bytes(name, 0);
    struct wait_key *key = table->slots[hash & (table->slot_count - 1)];

    while (key != NULL && !(key->hash == hash && key->size == name.size &&
                            (name.size == 0 || memcmp(key->name, name.data, name.size) == 0))) {
        key = key->next;
    }
    return key;
}

static void table_grow(struct wait_table *table)
{
    size_t slot_count = table->slot_count * 2;
    struct wait_key **slots = calloc(slot_count, sizeof(struct wait_key *));

    if (slots == NULL) {
        return; /* it works on, only slower */
    }
    for (size_t i = 0; i < table->slot_count; i++) {
        while (table->slots[i] != NULL) {
            struct wait_key *key = table->slots[i];
            table->slots[i] = key->next;
            key->next = slots[key->hash & (slot_count - 1)];
            slots[key->hash & (slot_count - 1)] = key;
        }
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = slot_count;
}

static struct wait_key *key_open(struct wait_table *table, struct impel_bytes name)
{
    struct wait_key *key = key_find(table, name);

    if (key != NULL) {
        return key;
    }
    if (table->key_count >= table->slot_count) {
        table_grow(table);
    }
    key = calloc(1, sizeof(*key) + name.size);
    if (key == NULL) {
        return NULL;
    }
    key->hash = hash_bytes(name, 0);
    key->size = name.size;
    if (name.size > 0) {
        memcpy(key->name, name.data, name.size);
    }
    link_init(&key->places);
    key->next = table->slots[key->hash & (table->slot_count - 1)];
    table->slots[key->hash & (table->slot_count - 1)] = key;
    table->key_count++;
    return key;
}

static void key_free(struct wait_table *table, struct wait_key *key)
{
    struct wait_key **at = &table->slots[key->hash & (table->slot_count - 1)];

    while (*at != key) {
        at = &(*at)->next;
    }
    *at = key->next;
    link_remove(&key->signalled);
    table->key_count--;
    free(key);
}

void wait_keys_count(const struct server *server, uint64_t *keys, uint64_t *keys_on_nokey)
{
    const struct wait_table *table = server->wait_table;

    *keys = table->key_count;
    *keys_on_nokey = 0;
    for (size_t i = 0; i < table->slot_count; i++) {
        for (const struct wait_key *key = table->slots[i]; key != NULL; key = key->next) {
            *keys_on_nokey += key->grouped_count > 0;
        }
    }
}

/* ---- blocking ---- */

static void on_timer(uv_timer_t *timer)
{
    struct client *client = timer->data;
    struct server *server = client->server;

    if ((int64_t)uv_now(&server->loop) >= client->wait.deadline_ms) {
        wait_give_up(client, NULL);
        return;
    }
    wait_signal_all(server);
    server_kick(server);
}

/* Sets the timer to the deadline or to the next try, whichever comes first. */
static void timer_set(struct client *client, int64_t again_ms)
{
    int64_t left_ms =
        sub_saturating(client->wait.deadline_ms, (int64_t)uv_now(&client->server->loop));

    left_ms = client->wait.deadline_ms == INT64_MAX ? INT64_MAX : left_ms;
    left_ms = again_ms < left_ms ? again_ms : left_ms;
    if (left_ms != INT64_MAX) {
        uv_timer_start(&client->timer, on_timer, left_ms < 0 ? 0 : (uint64_t)left_ms, 0);
    }
}

static bool copy_words(struct wait *wait, const struct impel_bytes *args, size_t arg_count)
{
    struct impel_bytes *copy = arena_calloc(&wait->arena, arg_count, sizeof(*copy));

    if (copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < arg_count; i++) {
        if (!arena_copy(&wait->arena, args[i], &copy[i])) {
            return false;
        }
    }
    wait->args = copy;
    wait->arg_count = arg_count;
    return true;
}

/* The options of an XREADGROUP that was understood. Names may be words of the grammar, too. */
static void read_options(struct wait *wait)
{
    for (size_t i = 1; i < wait->arg_count && !bytes_equal_nocase(wait->args[i], "STREAMS"); i++) {
        if (bytes_equal_nocase(wait->args[i], "GROUP") && i + 2 < wait->arg_count) {
            wait->group = wait->args[i + 1];
            wait->consumer = wait->args[i + 2];
            i += 2;
        } else if (!bytes_equal_nocase(wait->args[i], "NOACK")) {
            wait->claims |= bytes_equal_nocase(wait->args[i], "CLAIM");
            i++;
        }
    }
}

/* Takes a place for one of its keys, once for a key that is given twice. */
static void place_take(void *user, struct impel_bytes name)
{
    struct client *client = user;
    struct wait *wait = &client->wait;
    struct wait_key *key = key_open(client->server->wait_table, name);

    for (size_t i = 0; key != NULL && i < wait->place_count; i++) {
        if (wait->places[i].key == key) {
            return;
        }
    }
    if (key == NULL) {
        wait->failed = true;
        return;
    }
    struct wait_place *place = &wait->places[wait->place_count++];
    *place = (struct wait_place){.key = key, .client = client};
    link_append(&key->places, &place->link);
    key->count++;
    key->grouped_count += wait->grouped;
}

int wait_begin(struct client *client, const struct turn_op *op, const struct impel_bytes *args)
{
    struct server *server = client->server;
    struct row *row = op->row;
    size_t arg_count = op->arg_count;
    struct wait *wait = &client->wait;

    *wait = (struct wait){.row = row, .begun_us = wait->begun_us};
    wait->grouped = strcmp(row->name, "xreadgroup") == 0;
    wait->pops = strcmp(row->name, "blpop") == 0;
    client->flags |= CLIENT_BLOCKED;
    server->blocked_count++;
    link_append(&server->waiting, &client->waits);
    wait->places = arena_calloc(&wait->arena, arg_count, sizeof(*wait->places));
    if (wait->places == NULL || !copy_words(wait, args, arg_count)) {
        wait_end(client, NULL);
        return IMPEL_ERR_NOMEM;
    }
    if (wait->grouped) {
        read_options(wait);
    }
    row_keys(row, wait->args, arg_count, place_take, client);
    if (wait->failed) {
        wait_end(client, NULL);
        return IMPEL_ERR_NOMEM;
    }
    /* The loop's clock is cut to whole ms: one more, so that it never ends early. */
    wait->deadline_ms = op->block_ms > 0 ? add_saturating((int64_t)uv_now(&server->loop),
                                                          add_saturating(op->block_ms, 1))
                                         : INT64_MAX;
    timer_set(client, op->again_ms);
    return IMPEL_OK;
}

void wait_end(struct client *client, struct arena *owned)
{
    struct server *server = client->server;
    struct wait *wait = &client->wait;

    for (size_t i = 0; i < wait->place_count; i++) {
        struct wait_key *key = wait->places[i].key;
        link_remove(&wait->places[i].link);
        key->grouped_count -= wait->grouped;
        if (--key->count == 0) {
            key_free(server->wait_table, key);
        }
    }
    if (owned != NULL) {
        *owned = wait->arena;
    } else {
        arena_release(&wait->arena);
    }
    *wait = (struct wait){.row = NULL};
    link_remove(&client->waits);
    client->flags &= ~(unsigned)(CLIENT_BLOCKED | CLIENT_SKIP);
    server->blocked_count--;
    if (server->blocked_count == 0) {
        engine_disarm(&server->engine);
    }
    uv_timer_stop(&client->timer);
    client_ready(client); /* for what it has sent meanwhile */
    server_kick(server);
}

void wait_give_up(struct client *client, const char *error)
{
    struct row *row = client->wait.row;

    size_t out_start = client->out.size;

    turn_count_call(client->server, row, client->wait.begun_us);
    if (error != NULL) {
        row->failed++;
        turn_error(client->server, &client->out, "%s", error);
    } else {
        resp_put_null_array(&client->out, client->version);
    }
    if ((client->flags & (CLIENT_SILENT | CLIENT_SKIP)) != 0 && client->out.size > out_start) {
        client->out.size = out_start;
    }
    wait_end(client, NULL);
    client_dirty(client);
}

/* ---- waking ---- */

void wait_signal(struct server *server, struct impel_bytes name)
{
    struct wait_key *key = key_find(server->wait_table, name);

    if (key != NULL && key->signalled.next == NULL) {
        link_append(&server->wait_table->signalled, &key->signalled);
    }
}

void wait_signal_all(struct server *server)
{
    server->wake_all = server->blocked_count > 0;
}

bool wait_is_signalled(const struct server *server)
{
    return !link_empty(&server->wait_table->signalled);
}

/* Is it worth a try? IMPEL_OK or what broke the transaction. */
static int wait_ready(struct client *client, bool *ready)
{
    struct engine *engine = &client->server->engine;
    struct wait *wait = &client->wait;
    int rc = IMPEL_OK;

    *ready = (!wait->grouped && !wait->pops) || wait->claims;
    for (size_t i = 0; rc >= 0 && !*ready && i < wait->place_count; i++) {
        const struct wait_key *key = wait->places[i].key;
        struct impel_bytes name = {key->name, key->size};
        rc = wait->pops ? engine_list_ready(engine, name, ready)
                        : engine_group_ready(engine, name, wait->group, ready);
    }
    return rc;
}

static int wait_begin_txn(struct server *server, bool writes)
{
    struct impel_error err;
    bool foreign = false;
    int rc = engine_begin(&server->engine, writes, &foreign, &err);

    /* Whoever wrote in between may have given others something. */
    server->wake_all |= foreign;
    return rc;
}

/* What an XREADGROUP that gets nothing leaves behind: its consumer is there, and was seen now. */
static int wait_seen(struct client *client)
{
    struct engine *engine = &client->server->engine;
    const struct wait *wait = &client->wait;
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < wait->place_count; i++) {
        const struct wait_key *key = wait->places[i].key;
        rc = engine_consumer_seen(engine, (struct impel_bytes){key->name, key->size}, wait->group,
                                  wait->consumer);
        client->server->stats.changes += rc > 0;
    }
    return rc;
}

/* Tries one client, because one of its keys was signalled or in case there is something. IMPEL_OK,
 * IMPEL_ERR_BUSY, or what broke the transaction. */
static int wait_try(struct client *client, bool signalled)
{
    struct server *server = client->server;
    bool ready = false;
    int rc = wait_begin_txn(server, false);

    if (rc < 0) {
        return rc;
    }
    rc = wait_ready(client, &ready);
    if (rc < 0 && server->engine.mode == ENGINE_READS) {
        engine_abort(&server->engine); /* then it is tried, and told what is wrong */
        rc = IMPEL_OK;
        ready = true;
    }
    if (rc >= 0 && !ready && signalled && client->wait.grouped &&
        server->engine.mode == ENGINE_WRITES) {
        rc = wait_seen(client);
    }
    if (rc < 0 || !ready) {
        return rc;
    }
    rc = wait_begin_txn(server, (client->wait.row->flags & ROW_WRITES) != 0);
    if (rc < 0) {
        return rc;
    }
    struct turn_op *op = journal_add(server, client);
    if (op == NULL) {
        return IMPEL_OK; /* it waits on */
    }
    op->row = client->wait.row;
    op->args = client->wait.args;
    op->arg_count = client->wait.arg_count;
    op->waited = true;
    rc = dispatch_op(server, op);
    if (rc >= 0 && op->blocked) {
        if (client->wait.claims) {
            timer_set(client, op->again_ms);
        }
        journal_drop_last(server);
        return rc;
    }
    op->row->usec += client->wait.begun_us;
    wait_end(client, &op->owned);
    client_dirty(client);
    return rc;
}

static void places_to_tail(struct client *client)
{
    for (size_t i = 0; i < client->wait.place_count; i++) {
        struct wait_place *place = &client->wait.places[i];
        link_remove(&place->link);
        link_append(&place->key->places, &place->link);
    }
}

static int serve_key(struct wait_key *key)
{
    size_t count = key->count;
    int rc = IMPEL_OK;

    link_remove(&key->signalled);
    while (rc >= 0 && count > 0) {
        struct client *client = LINK_OF(key->places.next, struct wait_place, link)->client;
        bool last = key->count == 1; /* then the key goes with it */
        rc = wait_try(client, true);
        if ((client->flags & CLIENT_BLOCKED) != 0) {
            places_to_tail(client);
        } else if (last) {
            break;
        }
        count--;
    }
    return rc;
}

static int serve_all(struct server *server)
{
    size_t count = server->blocked_count;
    int rc = IMPEL_OK;

    engine_seen(&server->engine);
    while (rc >= 0 && count > 0 && !link_empty(&server->waiting)) {
        struct client *client = LINK_OF(server->waiting.next, struct client, waits);
        rc = wait_try(client, false);
        if ((client->flags & CLIENT_BLOCKED) != 0) {
            link_remove(&client->waits);
            link_append(&server->waiting, &client->waits);
        }
        count--;
    }
    return rc;
}

int wait_serve(struct server *server)
{
    struct wait_table *table = server->wait_table;
    int rc = IMPEL_OK;

    if (server->wake_all) {
        server->wake_all = false;
        rc = serve_all(server);
        if (rc == IMPEL_ERR_BUSY) {
            server->wake_all = true;
        }
    }
    while (rc >= 0 && !link_empty(&table->signalled)) {
        rc = serve_key(LINK_OF(table->signalled.next, struct wait_key, signalled));
    }
    return rc;
}
