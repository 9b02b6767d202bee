/* clients.c -- CLIENT: names, lists, and what one client may do to another. */
#include "server/own.h"

#include <stdlib.h>
#include <string.h>

static struct client *find_client(struct server *server, int64_t id)
{
    for (struct link *at = server->clients.next; at != &server->clients; at = at->next) {
        struct client *client = LINK_OF(at, struct client, all);
        if (client->id == (uint64_t)id && (client->flags & CLIENT_CLOSING) == 0) {
            return client;
        }
    }
    return NULL;
}

void command_client_id(struct serve *serve)
{
    resp_put_number(serve->out, (int64_t)serve->client->id);
}

void command_client_getname(struct serve *serve)
{
    if (serve->client->name.size == 0) {
        resp_put_null(serve->out, serve->version);
    } else {
        resp_put_bulk(serve->out, serve->client->name);
    }
}

void command_client_setname(struct serve *serve)
{
    if (client_set_name(serve->client, serve->args[2])) {
        own_ok(serve);
    } else {
        own_error(serve, "ERR Client names cannot contain spaces, newlines or special characters.");
    }
}

static bool set_text(struct impel_bytes *at, struct impel_bytes text)
{
    char *copy = NULL;

    for (size_t i = 0; i < text.size; i++) {
        unsigned char c = ((const unsigned char *)text.data)[i];
        if (c < '!' || c > '~') {
            return false;
        }
    }
    if (text.size > 0) {
        copy = malloc(text.size);
        if (copy == NULL) {
            return false;
        }
        memcpy(copy, text.data, text.size);
    }
    free((void *)at->data);
    *at = (struct impel_bytes){copy, text.size};
    return true;
}

void command_client_setinfo(struct serve *serve)
{
    bool is_name = own_word_is(serve, 2, "LIB-NAME");

    if (!is_name && !own_word_is(serve, 2, "LIB-VER")) {
        own_error(serve, "ERR Unrecognized option '%.*s'",
                  (int)(serve->args[2].size > 128 ? 128 : serve->args[2].size),
                  (const char *)serve->args[2].data);
    } else if (!set_text(is_name ? &serve->client->lib_name : &serve->client->lib_version,
                         serve->args[3])) {
        own_error(serve, "ERR %.*s cannot contain spaces, newlines or special characters.",
                  (int)serve->args[2].size, (const char *)serve->args[2].data);
    } else {
        own_ok(serve);
    }
}

/* ---- lists ---- */

void command_client_info(struct serve *serve)
{
    struct buf text;

    buf_init(&text, (size_t)64 * 1024);
    client_describe(serve->client, &text);
    resp_put_verbatim(serve->out, buf_bytes(&text), serve->version);
    buf_release(&text);
}

static bool list_has_id(const struct serve *serve, const struct client *client)
{
    int64_t id;

    for (size_t i = 3; i < serve->arg_count; i++) {
        if (resp_number(serve->args[i], &id) && client->id == (uint64_t)id) {
            return true;
        }
    }
    return false;
}

/* All clients here are normal ones; Redis has other types too. False: an error was appended. */
static bool type_is_known(struct serve *serve, size_t index)
{
    static const char *const types[] = {"normal", "master", "replica", "slave", "pubsub"};

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (own_word_is(serve, index, types[i])) {
            return true;
        }
    }
    own_error(serve, "ERR Unknown client type '%.*s'",
              (int)(serve->args[index].size > 128 ? 128 : serve->args[index].size),
              (const char *)serve->args[index].data);
    return false;
}

/* What CLIENT LIST is asked for. */
enum list_kind {
    LIST_ALL,
    LIST_NONE,
    LIST_IDS,
    LIST_BAD,
};

static enum list_kind list_parse(struct serve *serve)
{
    int64_t id;

    if (serve->arg_count == 2) {
        return LIST_ALL;
    }
    if (own_word_is(serve, 2, "TYPE") && serve->arg_count == 4) {
        bool normal = own_word_is(serve, 3, "normal");
        return !type_is_known(serve, 3) ? LIST_BAD : normal ? LIST_ALL : LIST_NONE;
    }
    if (own_word_is(serve, 2, "ID") && serve->arg_count > 3) {
        for (size_t i = 3; i < serve->arg_count; i++) {
            if (!resp_number(serve->args[i], &id)) {
                own_error(serve, "ERR Invalid client ID");
                return LIST_BAD;
            }
        }
        return LIST_IDS;
    }
    own_error_syntax(serve);
    return LIST_BAD;
}

void command_client_list(struct serve *serve)
{
    struct server *server = serve->server;
    enum list_kind kind = list_parse(serve);
    struct buf text;

    if (kind == LIST_BAD) {
        return;
    }
    buf_init(&text, (size_t)64 * 1024 * 1024);
    for (struct link *at = server->clients.next; at != &server->clients; at = at->next) {
        const struct client *client = LINK_OF(at, struct client, all);
        if ((client->flags & CLIENT_CLOSING) == 0 && kind != LIST_NONE &&
            (kind == LIST_ALL || list_has_id(serve, client))) {
            client_describe(client, &text);
        }
    }
    resp_put_verbatim(serve->out, buf_bytes(&text), serve->version);
    buf_release(&text);
}

/* ---- to others ---- */

void command_client_unblock(struct serve *serve)
{
    bool error = own_word_is(serve, 3, "ERROR");
    int64_t id;

    if (serve->arg_count > 4) {
        own_error_options(serve);
        return;
    }
    if (serve->arg_count == 4 && !error && !own_word_is(serve, 3, "TIMEOUT")) {
        own_error(serve, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return;
    }
    if (!own_integer(serve, 2, &id)) {
        return;
    }
    struct client *client = find_client(serve->server, id);
    bool blocked = client != NULL && (client->flags & CLIENT_BLOCKED) != 0;
    if (blocked) {
        wait_give_up(client, error ? "UNBLOCKED client unblocked via CLIENT UNBLOCK" : NULL);
    }
    resp_put_number(serve->out, blocked ? 1 : 0);
}

/* A filter of CLIENT KILL; -1 and NULL mean any. */
struct kill_filter {
    int64_t id, age_s_max;
    struct impel_bytes address, local_address, user;
    bool none; /* a type that no client here has */
    bool skip_me;
};

static bool kill_parse_age(struct serve *serve, struct impel_bytes value, int64_t *age_s)
{
    if (!resp_number(value, age_s)) {
        own_error(serve, "ERR maxage is not an integer or out of range");
        return false;
    }
    if (*age_s <= 0) {
        own_error(serve, "ERR maxage should be greater than 0");
        return false;
    }
    return true;
}

static bool kill_parse_pair(struct serve *serve, size_t i, struct kill_filter *filter)
{
    struct impel_bytes value = serve->args[i + 1];

    if (own_word_is(serve, i, "ID")) {
        if (!resp_number(value, &filter->id) || filter->id <= 0) {
            own_error(serve, "ERR client-id should be greater than 0");
            return false;
        }
    } else if (own_word_is(serve, i, "MAXAGE")) {
        return kill_parse_age(serve, value, &filter->age_s_max);
    } else if (own_word_is(serve, i, "ADDR")) {
        filter->address = value;
    } else if (own_word_is(serve, i, "LADDR")) {
        filter->local_address = value;
    } else if (own_word_is(serve, i, "USER")) {
        if (!bytes_equal(value, bytes_of("default"))) {
            own_error(serve, "ERR No such user '%.*s'", (int)(value.size > 128 ? 128 : value.size),
                      (const char *)value.data);
            return false;
        }
    } else if (own_word_is(serve, i, "TYPE")) {
        filter->none |= !own_word_is(serve, i + 1, "normal");
        return type_is_known(serve, i + 1);
    } else if (own_word_is(serve, i, "SKIPME")) {
        filter->skip_me = own_word_is(serve, i + 1, "yes");
        if (!filter->skip_me && !own_word_is(serve, i + 1, "no")) {
            own_error_syntax(serve);
            return false;
        }
    } else {
        own_error_syntax(serve);
        return false;
    }
    return true;
}

static bool kill_fits(const struct kill_filter *filter, const struct client *client)
{
    int64_t age_s = ((int64_t)uv_now(&client->server->loop) - client->created_ms) / 1000;

    return (client->flags & CLIENT_CLOSING) == 0 && !filter->none &&
           (filter->id < 0 || client->id == (uint64_t)filter->id) &&
           (filter->age_s_max < 0 || age_s >= filter->age_s_max) &&
           (filter->address.data == NULL ||
            bytes_equal(filter->address, bytes_of(client->address))) &&
           (filter->local_address.data == NULL ||
            bytes_equal(filter->local_address, bytes_of(client->local_address)));
}

static int64_t kill_all(struct serve *serve, const struct kill_filter *filter)
{
    struct server *server = serve->server;
    int64_t killed = 0;
    struct link *next = NULL;

    for (struct link *at = server->clients.next; at != &server->clients; at = next) {
        struct client *client = LINK_OF(at, struct client, all);
        next = at->next;
        if (!kill_fits(filter, client) || (client == serve->client && filter->skip_me)) {
            continue;
        }
        killed++;
        if (client == serve->client) {
            client_close_after(client); /* it still gets its answer */
        } else {
            client_close(client);
        }
    }
    return killed;
}

void command_client_kill(struct serve *serve)
{
    struct kill_filter filter = {.id = -1, .age_s_max = -1, .skip_me = true};

    if (serve->arg_count == 3) {
        filter.address = serve->args[2];
        filter.skip_me = false;
        if (kill_all(serve, &filter) == 0) {
            own_error(serve, "ERR No such client");
        } else {
            own_ok(serve);
        }
        return;
    }
    if (serve->arg_count % 2 != 0) {
        own_error_syntax(serve);
        return;
    }
    for (size_t i = 2; i + 1 < serve->arg_count; i += 2) {
        if (!kill_parse_pair(serve, i, &filter)) {
            return;
        }
    }
    resp_put_number(serve->out, kill_all(serve, &filter));
}

void command_client_pause(struct serve *serve)
{
    int64_t duration_ms;
    bool writes = own_word_is(serve, 3, "WRITE");

    if (serve->arg_count > 4) {
        own_error_options(serve);
        return;
    }
    if (serve->arg_count == 4 && !writes && !own_word_is(serve, 3, "ALL")) {
        own_error(serve, "ERR CLIENT PAUSE mode must be WRITE or ALL");
        return;
    }
    if (!resp_number(serve->args[2], &duration_ms)) {
        own_error(serve, "ERR timeout is not an integer or out of range");
        return;
    }
    if (duration_ms < 0) {
        own_error(serve, "ERR timeout is negative");
        return;
    }
    server_pause(serve->server, duration_ms, writes);
    own_ok(serve);
}

void command_client_unpause(struct serve *serve)
{
    if (serve->server->paused_until_ms > 0) {
        server_pause(serve->server, 0, true);
    }
    own_ok(serve);
}

/* ---- switches ---- */

void command_client_reply(struct serve *serve)
{
    struct client *client = serve->client;

    if (own_word_is(serve, 2, "ON")) {
        client->flags &= ~(unsigned)(CLIENT_SILENT | CLIENT_SKIP | CLIENT_SKIP_NEXT);
        own_ok(serve);
    } else if (own_word_is(serve, 2, "OFF")) {
        client->flags |= CLIENT_SILENT;
    } else if (own_word_is(serve, 2, "SKIP")) {
        client->flags |= (client->flags & CLIENT_SILENT) == 0 ? CLIENT_SKIP_NEXT : 0;
    } else {
        own_error_syntax(serve);
    }
}

static void set_switch(struct serve *serve, unsigned flag)
{
    if (own_word_is(serve, 2, "ON")) {
        serve->client->flags |= flag;
        own_ok(serve);
    } else if (own_word_is(serve, 2, "OFF")) {
        serve->client->flags &= ~flag;
        own_ok(serve);
    } else {
        own_error_syntax(serve);
    }
}

void command_client_no_evict(struct serve *serve)
{
    set_switch(serve, CLIENT_NO_EVICT);
}

void command_client_no_touch(struct serve *serve)
{
    set_switch(serve, CLIENT_NO_TOUCH);
}

static bool tracking_options_fit(const struct serve *serve)
{
    for (size_t i = 3; i < serve->arg_count; i++) {
        bool more = i + 1 < serve->arg_count;
        if (more && (own_word_is(serve, i, "REDIRECT") || own_word_is(serve, i, "PREFIX"))) {
            i++;
        } else if (!own_word_is(serve, i, "BCAST") && !own_word_is(serve, i, "OPTIN") &&
                   !own_word_is(serve, i, "OPTOUT") && !own_word_is(serve, i, "NOLOOP")) {
            return false;
        }
    }
    return true;
}

void command_client_tracking(struct serve *serve)
{
    bool on = own_word_is(serve, 2, "ON");

    if ((!on && !own_word_is(serve, 2, "OFF")) || !tracking_options_fit(serve)) {
        own_error_syntax(serve);
    } else if (on) {
        own_error(serve, "ERR Client tracking is not supported by this server");
    } else {
        own_ok(serve);
    }
}

void command_client_caching(struct serve *serve)
{
    own_error(serve, "ERR CLIENT CACHING can be called only when the client is in tracking mode "
                     "with OPTIN or OPTOUT mode enabled");
}

void command_client_getredir(struct serve *serve)
{
    resp_put_number(serve->out, -1);
}

void command_client_trackinginfo(struct serve *serve)
{
    resp_put_map(serve->out, 3, serve->version);
    resp_put_text(serve->out, "flags");
    resp_put_set(serve->out, 1, serve->version);
    resp_put_text(serve->out, "off");
    resp_put_text(serve->out, "redirect");
    resp_put_number(serve->out, -1);
    resp_put_text(serve->out, "prefixes");
    resp_put_array(serve->out, 0);
}

void command_client_help(struct serve *serve)
{
    static const char *const lines[] = {
        "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GETNAME, ID, INFO, SETNAME <name>, SETINFO <LIB-NAME|LIB-VER> <text>",
        "    About this connection.",
        "LIST [TYPE <type> | ID <id> ...], KILL <addr> | <option> <value> ...",
        "    About all connections.",
        "UNBLOCK <id> [TIMEOUT|ERROR], PAUSE <ms> [WRITE|ALL], UNPAUSE",
        "    End a wait; hold commands back for a while.",
        "REPLY <ON|OFF|SKIP>, NO-EVICT <ON|OFF>, NO-TOUCH <ON|OFF>, TRACKING OFF",
        "    Switches of this connection.",
        "HELP",
        "    Print this help.",
    };

    resp_put_array(serve->out, ARRAY_SIZE(lines));
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        resp_put_status(serve->out, bytes_of(lines[i]));
    }
}
