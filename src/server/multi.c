/* multi.c -- MULTI and WATCH: commands kept for later, and keys that must not change until then.
 *
 * Other processes change keys without a word to this one, so a watched key is not flagged by who
 * writes to it but compared: EXEC looks, in its own transaction, whether the key is still what it
 * was. What consumer groups do leaves no trace in that, as Redis has it. What comes and goes in between,
 * or writes what was there already, leaves none either: of this server's own commands the watches are
 * told at once. */
#include "server/state.h"

#include <stdlib.h>

enum {
    MULTI_COMMANDS_MAX = 1000000,
    MULTI_BYTES_MAX = 512 * 1024 * 1024,
    WATCHES_MAX = 8192, /* each new one is compared with all */
};

bool multi_queue(struct client *client,
                 struct row *row,
                 const struct impel_bytes *args,
                 size_t arg_count)
{
    struct multi *multi = &client->multi;

    if (multi->count == multi->room) {
        size_t room = multi->room == 0 ? 8 : multi->room * 2;
        struct queued *items =
            room > MULTI_COMMANDS_MAX ? NULL : realloc(multi->items, room * sizeof(*items));
        if (items == NULL) {
            return false;
        }
        multi->items = items;
        multi->room = room;
    }
    struct impel_bytes *copy = arena_calloc(&multi->arena, arg_count, sizeof(*copy));
    if (copy == NULL) {
        return false;
    }
    for (size_t i = 0; i < arg_count; i++) {
        multi->size_bytes += args[i].size + sizeof(*copy);
        if (multi->size_bytes > MULTI_BYTES_MAX || !arena_copy(&multi->arena, args[i], &copy[i])) {
            return false;
        }
    }
    multi->items[multi->count++] = (struct queued){row, copy, arg_count};
    return true;
}

void multi_release(struct multi *multi)
{
    free(multi->items);
    arena_release(&multi->arena);
    *multi = (struct multi){.items = NULL};
}

void multi_discard(struct client *client)
{
    multi_release(&client->multi);
    client->flags &= ~(unsigned)(CLIENT_MULTI | CLIENT_MULTI_BAD);
    watch_release(client);
}

void command_multi(struct serve *serve)
{
    if ((serve->client->flags & CLIENT_MULTI) != 0) {
        turn_error(serve->server, serve->out, "ERR MULTI calls can not be nested");
        return;
    }
    serve->client->flags |= CLIENT_MULTI;
    resp_put_status(serve->out, bytes_of("OK"));
}

void command_discard(struct serve *serve)
{
    if ((serve->client->flags & CLIENT_MULTI) == 0) {
        turn_error(serve->server, serve->out, "ERR DISCARD without MULTI");
        return;
    }
    multi_discard(serve->client);
    resp_put_status(serve->out, bytes_of("OK"));
}

/* ---- watches ---- */

void watch_release(struct client *client)
{
    client->server->watch_count -= client->watch_count;
    for (size_t i = 0; i < client->watch_count; i++) {
        free((void *)client->watches[i].key.data);
    }
    free(client->watches);
    client->watches = NULL;
    client->watch_count = client->watch_room = 0;
    link_remove(&client->watching);
}

static struct watch *watch_find(struct client *client, struct impel_bytes key)
{
    for (size_t i = 0; i < client->watch_count; i++) {
        if (bytes_equal(client->watches[i].key, key)) {
            return &client->watches[i];
        }
    }
    return NULL;
}

static bool watch_add(struct client *client, struct impel_bytes key)
{
    struct watch *watch = NULL;

    if (watch_find(client, key) != NULL) {
        return true;
    }
    if (client->watch_count == client->watch_room) {
        size_t room = client->watch_room == 0 ? 4 : client->watch_room * 2;
        watch = room > WATCHES_MAX ? NULL : realloc(client->watches, room * sizeof(*watch));
        if (watch == NULL) {
            return false;
        }
        client->watches = watch;
        client->watch_room = room;
    }
    void *copy = malloc(key.size + 1);
    if (copy == NULL) {
        return false;
    }
    watch = &client->watches[client->watch_count];
    *watch = (struct watch){.key = {copy, key.size}};
    for (size_t i = 0; i < key.size; i++) {
        ((char *)copy)[i] = ((const char *)key.data)[i];
    }
    if (engine_print(&client->server->engine, key, &watch->print) < 0) {
        free(copy);
        return false;
    }
    if (client->watch_count++ == 0) {
        link_append(&client->server->watching, &client->watching);
    }
    client->server->watch_count++;
    return true;
}

void command_watch(struct serve *serve)
{
    if ((serve->client->flags & CLIENT_MULTI) != 0) {
        turn_error(serve->server, serve->out, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    for (size_t i = 1; i < serve->arg_count; i++) {
        if (!watch_add(serve->client, serve->args[i])) {
            turn_error(serve->server, serve->out,
                       "OOM no memory to watch this key, or more than %d are watched", WATCHES_MAX);
            return;
        }
    }
    resp_put_status(serve->out, bytes_of("OK"));
}

void command_unwatch(struct serve *serve)
{
    watch_release(serve->client);
    resp_put_status(serve->out, bytes_of("OK"));
}

static bool watch_is_dirty(struct server *server, struct watch *watch)
{
    struct key_print print;

    if (!watch->dirty) {
        watch->dirty = engine_print(&server->engine, watch->key, &print) < 0 ||
                       !key_print_equal(&print, &watch->print);
    }
    return watch->dirty;
}

bool watch_touched(struct client *client)
{
    for (size_t i = 0; i < client->watch_count; i++) {
        if (watch_is_dirty(client->server, &client->watches[i])) {
            return true;
        }
    }
    return false;
}

static void each_watch(struct server *server,
                       struct impel_bytes key,
                       void (*each)(struct server *server, struct watch *watch))
{
    for (struct link *at = server->watching.next; at != &server->watching; at = at->next) {
        struct watch *watch = watch_find(LINK_OF(at, struct client, watching), key);
        if (watch != NULL) {
            each(server, watch);
        }
    }
}

static void check_one(struct server *server, struct watch *watch)
{
    (void)watch_is_dirty(server, watch);
}

static void refresh_one(struct server *server, struct watch *watch)
{
    if (!watch->dirty) {
        watch->dirty = engine_print(&server->engine, watch->key, &watch->print) < 0;
    }
}

static void touch_one(struct server *server, struct watch *watch)
{
    (void)server;
    watch->dirty = true;
}

void watch_check(void *server, struct impel_bytes key)
{
    each_watch(server, key, check_one);
}

void watch_touch(void *server, struct impel_bytes key)
{
    each_watch(server, key, touch_one);
}

void watch_refresh(struct server *server, struct impel_bytes key)
{
    each_watch(server, key, refresh_one);
}
