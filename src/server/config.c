/* config.c -- CONFIG: a table of what exists here, and of what clients ask for and would miss.
 *
 * A parameter is a number in the server or a fixed text. Only what has an effect can be set to
 * something new; a fixed one may be set to the value that it has, so that tools which do that on
 * connecting go on. */
#include "base/glob.h"
#include "server/own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct parameter {
    const char *name;
    const char *fixed; /* its value, if it cannot be changed */
    size_t at;         /* else: where the number is in struct server */
    bool wide;         /* it has 64 bits, else 32 */
    bool bytes;        /* "1mb" is understood */
    int64_t min, max;
    void (*get)(const struct server *server, struct buf *out); /* else: computed */
};

/* As Redis has it: a port with TLS is another parameter. */
static void get_port(const struct server *server, struct buf *out)
{
    buf_appendf(out, "%d", server->tls == NULL ? server->tcp_port : 0);
}

static void get_tls_port(const struct server *server, struct buf *out)
{
    buf_appendf(out, "%d", server->tls == NULL ? 0 : server->tcp_port);
}

static void get_bind(const struct server *server, struct buf *out)
{
    for (size_t i = 0; i < server->listener_count; i++) {
        const struct listener *listener = &server->listeners[i];
        const char *colon = strrchr(listener->text, ':');
        if (!listener->is_unix && colon != NULL) {
            buf_appendf(out, "%s%.*s", out->size > 0 ? " " : "", (int)(colon - listener->text),
                        listener->text);
        }
    }
}

static void get_unix(const struct server *server, struct buf *out)
{
    buf_append_text(out, server->unix_path == NULL ? "" : server->unix_path);
}

static void get_dir(const struct server *server, struct buf *out)
{
    const char *slash = strrchr(server->path, '/');
    char here[4096];

    if (slash != NULL && slash > server->path) {
        buf_append(out, server->path, (size_t)(slash - server->path));
    } else {
        buf_append_text(out, slash != NULL ? "/" : getcwd(here, sizeof(here)) != NULL ? here : ".");
    }
}

static void get_file(const struct server *server, struct buf *out)
{
    const char *slash = strrchr(server->path, '/');
    buf_append_text(out, slash == NULL ? server->path : slash + 1);
}

static void get_sync(const struct server *server, struct buf *out)
{
    /* "process" survives the death of every process, as an operating system's buffers do. */
    buf_append_text(out, server->store.sync == SIDE_SYNC_PROCESS ? "no" : "always");
}

static void get_output_limit(const struct server *server, struct buf *out)
{
    buf_appendf(out, "normal %llu 0 0", (unsigned long long)server->options.output_bytes_max);
}

#define OPTION(FIELD) offsetof(struct server, options.FIELD)

static const struct parameter parameters[] = {
    {.name = "appendfsync", .get = get_sync},
    {.name = "appendonly", .fixed = "yes"},
    {.name = "bind", .get = get_bind},
    {.name = "client-output-buffer-limit", .get = get_output_limit},
    {.name = "client-query-buffer-limit",
     .at = OPTION(input_bytes_max),
     .wide = true,
     .bytes = true,
     .min = (int64_t)1024 * 1024,
     .max = (int64_t)4 << 30},
    {.name = "cluster-enabled", .fixed = "no"},
    {.name = "databases", .fixed = "1"},
    {.name = "dbfilename", .get = get_file},
    {.name = "dir", .get = get_dir},
    {.name = "lazyfree-lazy-user-del", .fixed = "no"},
    {.name = "maxclients", .at = OPTION(clients_max), .min = 1, .max = 1000000},
    {.name = "maxmemory", .fixed = "0"},
    {.name = "maxmemory-policy", .fixed = "noeviction"},
    {.name = "notify-keyspace-events", .fixed = ""},
    {.name = "port", .get = get_port},
    {.name = "proto-max-bulk-len", .fixed = "536870912"},
    {.name = "save", .fixed = ""},
    {.name = "stream-idmp-duration",
     .at = offsetof(struct server, engine.idmp_duration_s),
     .min = 1,
     .max = LMDB_IDMP_DURATION_MAX_S},
    {.name = "stream-idmp-maxsize",
     .at = offsetof(struct server, engine.idmp_iids_max),
     .min = 1,
     .max = LMDB_IDMP_IIDS_MAX_MAX},
    {.name = "stream-node-max-bytes",
     .at = offsetof(struct server, engine.node_size_max),
     .wide = true,
     .bytes = true,
     .min = 0,
     .max = (int64_t)1 << 40},
    {.name = "stream-node-max-entries",
     .at = offsetof(struct server, engine.node_entries_max),
     .wide = true,
     .min = 0,
     .max = INT64_MAX},
    {.name = "tcp-keepalive", .fixed = "300"},
    {.name = "timeout", .at = OPTION(idle_timeout_s), .min = 0, .max = INT32_MAX},
    {.name = "tls-port", .get = get_tls_port},
    {.name = "unixsocket", .get = get_unix},
};

static int64_t number_get(const struct server *server, const struct parameter *parameter)
{
    const char *at = (const char *)server + parameter->at;
    uint64_t wide;
    uint32_t narrow;

    memcpy(&wide, at, parameter->wide ? sizeof(wide) : 0);
    memcpy(&narrow, at, sizeof(narrow));
    return parameter->wide ? (int64_t)wide : (int64_t)narrow;
}

static void number_set(struct server *server, const struct parameter *parameter, int64_t number)
{
    char *at = (char *)server + parameter->at;
    uint64_t wide = (uint64_t)number;
    uint32_t narrow = (uint32_t)number;

    if (parameter->wide) {
        memcpy(at, &wide, sizeof(wide));
    } else {
        memcpy(at, &narrow, sizeof(narrow));
    }
}

static void
parameter_get(const struct server *server, const struct parameter *parameter, struct buf *out)
{
    if (parameter->fixed != NULL) {
        buf_append_text(out, parameter->fixed);
    } else if (parameter->get != NULL) {
        parameter->get(server, out);
    } else {
        buf_appendf(out, "%lld", (long long)number_get(server, parameter));
    }
}

static bool lower(struct impel_bytes word, char *out, size_t size)
{
    if (word.size >= size) {
        return false;
    }
    for (size_t i = 0; i < word.size; i++) {
        char c = ((const char *)word.data)[i];
        out[i] = (char)(c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
    }
    out[word.size] = '\0';
    return true;
}

/* Under which name it is asked for: as typed, or its own where a pattern fits. Data NULL: it is not. */
static struct impel_bytes asked_name(const struct serve *serve, const struct parameter *parameter)
{
    char pattern[256];
    struct impel_bytes name = {NULL, 0};

    for (size_t i = 2; i < serve->arg_count; i++) {
        if (!lower(serve->args[i], pattern, sizeof(pattern))) {
            continue;
        }
        if (strcmp(pattern, parameter->name) == 0) {
            return serve->args[i];
        }
        if (glob_matches(bytes_of(pattern), bytes_of(parameter->name))) {
            name = bytes_of(parameter->name);
        }
    }
    return name;
}

void command_config_get(struct serve *serve)
{
    struct impel_bytes names[ARRAY_SIZE(parameters)];
    size_t count = 0;
    struct buf text;

    for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
        names[i] = asked_name(serve, &parameters[i]);
        count += names[i].data != NULL;
    }
    resp_put_map(serve->out, count, serve->version);
    buf_init(&text, (size_t)64 * 1024);
    for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
        if (names[i].data != NULL) {
            buf_clear(&text);
            parameter_get(serve->server, &parameters[i], &text);
            resp_put_bulk(serve->out, names[i]);
            resp_put_bulk(serve->out, buf_bytes(&text));
        }
    }
    buf_release(&text);
}

/* ---- SET ---- */

static const struct parameter *parameter_find(struct impel_bytes name)
{
    for (size_t i = 0; i < ARRAY_SIZE(parameters); i++) {
        if (bytes_equal_nocase(name, parameters[i].name)) {
            return &parameters[i];
        }
    }
    return NULL;
}

/* "10", and for sizes, which are never negative, "64mb". */
static bool number_parse(struct impel_bytes word, bool bytes, int64_t *out)
{
    static const struct {
        const char *unit;
        int64_t size;
    } units[] = {{"kb", 1 << 10}, {"mb", 1 << 20},   {"gb", 1 << 30}, {"k", 1000},
                 {"m", 1000000},  {"g", 1000000000}, {"b", 1}};

    if (resp_number(word, out)) {
        return !bytes || *out >= 0;
    }
    for (size_t i = 0; bytes && i < ARRAY_SIZE(units); i++) {
        size_t size = strlen(units[i].unit);
        if (word.size <= size) {
            continue;
        }
        struct impel_bytes unit = {(const char *)word.data + word.size - size, size};
        if (bytes_equal_nocase(unit, units[i].unit) &&
            resp_number((struct impel_bytes){word.data, word.size - size}, out) && *out >= 0) {
            *out = mul_saturating(*out, units[i].size);
            return true;
        }
    }
    return false;
}

static const char *set_refused(const struct server *server,
                               const struct parameter *parameter,
                               struct impel_bytes value,
                               int64_t *number,
                               char *text,
                               size_t size)
{
    struct buf now;

    if (parameter->fixed == NULL && parameter->get == NULL) {
        if (!number_parse(value, parameter->bytes, number)) {
            return parameter->bytes ? "argument must be a memory value"
                                    : "argument couldn't be parsed into an integer";
        }
        if (*number < parameter->min || *number > parameter->max) {
            (void)snprintf(text, size, "argument must be between %lld and %lld inclusive",
                           (long long)parameter->min, (long long)parameter->max);
            return text;
        }
        return NULL;
    }
    buf_init(&now, (size_t)64 * 1024);
    parameter_get(server, parameter, &now);
    bool same = bytes_equal(buf_bytes(&now), value);
    buf_release(&now);
    return same ? NULL : "can't set immutable config";
}

/* The parameter of the word at `index` stands before, too. */
static bool is_given_twice(const struct serve *serve, size_t index)
{
    const struct parameter *parameter = parameter_find(serve->args[index]);

    for (size_t i = 2; i < index; i += 2) {
        if (parameter_find(serve->args[i]) == parameter) {
            return true;
        }
    }
    return false;
}

void command_config_set(struct serve *serve)
{
    char text[128];
    int64_t number = 0;

    if (serve->arg_count % 2 != 0) {
        own_error_syntax(serve);
        return;
    }
    /* All are judged before the first is set. */
    for (size_t i = 2; i < serve->arg_count; i += 2) {
        struct impel_bytes name = serve->args[i];
        const struct parameter *parameter = parameter_find(name);
        int shown = (int)(name.size > 128 ? 128 : name.size);
        if (parameter == NULL) {
            own_error(serve, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                      shown, (const char *)name.data);
            return;
        }
        const char *why = is_given_twice(serve, i)
                              ? "duplicate parameter"
                              : set_refused(serve->server, parameter, serve->args[i + 1], &number,
                                            text, sizeof(text));
        if (why != NULL) {
            own_error(serve, "ERR CONFIG SET failed (possibly related to argument '%.*s') - %s",
                      shown, (const char *)name.data, why);
            return;
        }
    }
    for (size_t i = 2; i < serve->arg_count; i += 2) {
        const struct parameter *parameter = parameter_find(serve->args[i]);
        if (parameter->fixed == NULL && parameter->get == NULL) {
            (void)number_parse(serve->args[i + 1], parameter->bytes, &number);
            number_set(serve->server, parameter, number);
        }
    }
    own_ok(serve);
}

void command_config_resetstat(struct serve *serve)
{
    struct server *server = serve->server;
    struct server_stats *stats = &server->stats;

    for (size_t i = 0; i < server->rows.count; i++) {
        struct row *row = &server->rows.rows[i];
        row->calls = row->usec = row->rejected = row->failed = 0;
    }
    *stats = (struct server_stats){.changes = stats->changes};
    own_ok(serve);
}

void command_config_rewrite(struct serve *serve)
{
    own_error(serve, "ERR The server is running without a config file");
}
