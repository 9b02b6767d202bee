/* info.c -- INFO and the commands that ask about persistence and roles.
 *
 * Figures are what they say or are left out; those that clients and monitors cannot do without but
 * that have no meaning here (replication, AOF rewrites) have the value of a server that never does
 * such a thing. */
#include "server/own.h"

#include <sys/resource.h>
#include <sys/utsname.h>

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t uptime_s(const struct server *server)
{
    return ((int64_t)uv_now(&server->loop) - server->started_ms) / 1000;
}

static void put_server(struct server *server, struct buf *out)
{
    struct utsname os = {.sysname = ""};
    int64_t up_s = uptime_s(server);

    (void)uname(&os);
    buf_appendf(out, "redis_version:%s\r\n", OWN_REDIS_VERSION);
    buf_append_text(out, "redis_mode:standalone\r\n");
    buf_appendf(out, "server_name:impel\r\nimpel_version:%s\r\n", IMPEL_VERSION);
    buf_appendf(out, "os:%.64s %.64s %.64s\r\n", os.sysname, os.release, os.machine);
    buf_appendf(out, "arch_bits:%d\r\nmultiplexing_api:libuv\r\n", (int)sizeof(long) * 8);
    buf_appendf(out, "process_id:%d\r\nrun_id:%s\r\n", (int)getpid(), server->run_id);
    buf_appendf(out, "tcp_port:%d\r\nserver_time_usec:%lld\r\n", server->tcp_port,
                (long long)time(NULL) * 1000000);
    buf_appendf(out, "uptime_in_seconds:%lld\r\nuptime_in_days:%lld\r\n", (long long)up_s,
                (long long)up_s / 86400);
    buf_append_text(out, "executable:impel\r\nconfig_file:\r\nio_threads_active:0\r\n");
}

static void put_clients(struct server *server, struct buf *out)
{
    uint64_t keys = 0, keys_on_nokey = 0;

    wait_keys_count(server, &keys, &keys_on_nokey);
    buf_appendf(out, "connected_clients:%zu\r\nmaxclients:%u\r\n", server->client_count,
                server->options.clients_max);
    buf_appendf(out, "blocked_clients:%zu\r\ntotal_blocking_keys:%llu\r\n", server->blocked_count,
                (unsigned long long)keys);
    buf_appendf(out, "total_blocking_keys_on_nokey:%llu\r\n", (unsigned long long)keys_on_nokey);
}

static void put_memory(struct server *server, struct buf *out)
{
    struct rusage usage = {.ru_maxrss = 0};

    (void)server;
    (void)getrusage(RUSAGE_SELF, &usage);
    buf_appendf(out, "used_memory:%zu\r\nused_memory_peak:%lld\r\n", heap_used(),
                (long long)usage.ru_maxrss * 1024);
    buf_append_text(out, "maxmemory:0\r\nmaxmemory_policy:noeviction\r\nmem_allocator:libc\r\n");
}

static void put_persistence(struct server *server, struct buf *out)
{
    buf_append_text(out, "loading:0\r\nasync_loading:0\r\n");
    buf_appendf(out, "rdb_changes_since_last_save:%llu\r\nrdb_bgsave_in_progress:0\r\n",
                (unsigned long long)server->stats.changes);
    buf_appendf(out, "rdb_last_save_time:%lld\r\nrdb_last_bgsave_status:ok\r\n",
                (long long)server->started_unix_s);
    buf_append_text(out, "aof_enabled:1\r\naof_rewrite_in_progress:0\r\n"
                         "aof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n"
                         "aof_last_write_status:ok\r\n");
    buf_appendf(out, "impel_sync:%s\r\nimpel_commits:%llu\r\nimpel_redone_turns:%llu\r\n",
                server->store.sync == SIDE_SYNC_PROCESS ? "process" : "full",
                (unsigned long long)server->stats.commits,
                (unsigned long long)server->stats.redone);
}

static void put_stats(struct server *server, struct buf *out)
{
    const struct server_stats *stats = &server->stats;

    buf_appendf(out, "total_connections_received:%llu\r\ntotal_commands_processed:%llu\r\n",
                (unsigned long long)stats->connections, (unsigned long long)stats->commands);
    buf_appendf(out, "total_net_input_bytes:%llu\r\ntotal_net_output_bytes:%llu\r\n",
                (unsigned long long)stats->input_bytes, (unsigned long long)stats->output_bytes);
    buf_appendf(out, "rejected_connections:%llu\r\ntotal_error_replies:%llu\r\n",
                (unsigned long long)stats->rejected_connections, (unsigned long long)stats->errors);
    buf_appendf(out,
                "client_query_buffer_limit_disconnections:%llu\r\n"
                "client_output_buffer_limit_disconnections:%llu\r\n",
                (unsigned long long)stats->cut_full, (unsigned long long)stats->cut_slow);
    buf_appendf(out, "eventloop_cycles:%llu\r\nimpel_failed_handshakes:%llu\r\n",
                (unsigned long long)stats->turns, (unsigned long long)stats->failed_handshakes);
}

static void put_replication(struct server *server, struct buf *out)
{
    (void)server;
    buf_append_text(out,
                    "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\n");
}

static void put_cpu(struct server *server, struct buf *out)
{
    struct rusage usage = {.ru_maxrss = 0};

    (void)server;
    (void)getrusage(RUSAGE_SELF, &usage);
    buf_appendf(out, "used_cpu_sys:%lld.%06ld\r\nused_cpu_user:%lld.%06ld\r\n",
                (long long)usage.ru_stime.tv_sec, (long)usage.ru_stime.tv_usec,
                (long long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec);
}

static void put_commandstats(struct server *server, struct buf *out)
{
    for (size_t i = 0; i < server->rows.count; i++) {
        const struct row *row = &server->rows.rows[i];
        if (row->calls == 0 && row->rejected == 0 && row->failed == 0) {
            continue;
        }
        buf_appendf(out,
                    "cmdstat_%s:calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,"
                    "failed_calls=%llu\r\n",
                    row->name, (unsigned long long)row->calls, (unsigned long long)row->usec,
                    row->calls == 0 ? 0.0 : (double)row->usec / (double)row->calls,
                    (unsigned long long)row->rejected, (unsigned long long)row->failed);
    }
}

static void put_errorstats(struct server *server, struct buf *out)
{
    for (size_t i = 0; i < server->stats.code_count; i++) {
        const struct error_count *code = &server->stats.codes[i];
        buf_appendf(out, "errorstat_%s:count=%llu\r\n", code->code,
                    (unsigned long long)code->count);
    }
}

static void put_nothing(struct server *server, struct buf *out)
{
    (void)server;
    (void)out;
}

static void put_cluster(struct server *server, struct buf *out)
{
    (void)server;
    buf_append_text(out, "cluster_enabled:0\r\n");
}

static void put_keyspace(struct server *server, struct buf *out)
{
    uint64_t count = 0, expires = 0;
    int64_t mean_ms = 0;

    if (engine_key_count(&server->engine, &count) >= 0 && count > 0 &&
        engine_expire_count(&server->engine, &expires, &mean_ms) >= 0) {
        buf_appendf(out, "db0:keys=%llu,expires=%llu,avg_ttl=%lld\r\n", (unsigned long long)count,
                    (unsigned long long)expires, (long long)mean_ms);
    }
}

static const struct {
    const char *name, *title;
    bool asked_only; /* not without being asked for, or "all" */
    void (*put)(struct server *server, struct buf *out);
} sections[] = {
    {"server", "Server", false, put_server},
    {"clients", "Clients", false, put_clients},
    {"memory", "Memory", false, put_memory},
    {"persistence", "Persistence", false, put_persistence},
    {"stats", "Stats", false, put_stats},
    {"replication", "Replication", false, put_replication},
    {"cpu", "CPU", false, put_cpu},
    {"modules", "Modules", false, put_nothing},
    {"commandstats", "Commandstats", true, put_commandstats},
    {"errorstats", "Errorstats", false, put_errorstats},
    {"cluster", "Cluster", false, put_cluster},
    {"keyspace", "Keyspace", false, put_keyspace},
};

static bool section_is_asked(const struct serve *serve, size_t section)
{
    for (size_t i = 1; i < serve->arg_count; i++) {
        if (own_word_is(serve, i, "all") || own_word_is(serve, i, "everything") ||
            own_word_is(serve, i, sections[section].name) ||
            (own_word_is(serve, i, "default") && !sections[section].asked_only)) {
            return true;
        }
    }
    return serve->arg_count == 1 && !sections[section].asked_only;
}

void command_info(struct serve *serve)
{
    struct buf text;

    buf_init(&text, (size_t)1024 * 1024);
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
        if (section_is_asked(serve, i)) {
            buf_appendf(&text, "%s# %s\r\n", text.size > 0 ? "\r\n" : "", sections[i].title);
            sections[i].put(serve->server, &text);
        }
    }
    resp_put_verbatim(serve->out, buf_bytes(&text), serve->version);
    buf_release(&text);
}

void command_role(struct serve *serve)
{
    resp_put_array(serve->out, 3);
    resp_put_text(serve->out, "master");
    resp_put_number(serve->out, 0);
    resp_put_array(serve->out, 0);
}

/* ---- persistence: what was answered is in the file already ---- */

void command_lastsave(struct serve *serve)
{
    resp_put_number(serve->out, (int64_t)time(NULL));
}

void command_save(struct serve *serve)
{
    serve->server->stats.changes = 0;
    own_ok(serve);
}

void command_bgsave(struct serve *serve)
{
    if (serve->arg_count > 2 || (serve->arg_count == 2 && !own_word_is(serve, 1, "SCHEDULE"))) {
        own_error_syntax(serve);
        return;
    }
    serve->server->stats.changes = 0;
    resp_put_status(serve->out, bytes_of("Background saving started"));
}

void command_bgrewriteaof(struct serve *serve)
{
    resp_put_status(serve->out, bytes_of("Background append only file rewriting started"));
}

/* No replicas: the number that has it all is always 0. */
void command_wait(struct serve *serve)
{
    int64_t number;

    if (!own_integer(serve, 1, &number)) {
        return;
    }
    if (!resp_number(serve->args[2], &number)) {
        own_error(serve, "ERR timeout is not an integer or out of range");
    } else if (number < 0) {
        own_error(serve, "ERR timeout is negative");
    } else {
        resp_put_number(serve->out, 0);
    }
}

/* The words mean little, since nothing is left to be saved, but what is none must not end the server. */
static bool shutdown_fits(struct serve *serve, bool *abort)
{
    bool save = false, no_save = false;

    for (size_t i = 1; i < serve->arg_count; i++) {
        save |= own_word_is(serve, i, "SAVE");
        no_save |= own_word_is(serve, i, "NOSAVE");
        *abort |= own_word_is(serve, i, "ABORT");
        if (!own_word_is(serve, i, "SAVE") && !own_word_is(serve, i, "NOSAVE") &&
            !own_word_is(serve, i, "ABORT") && !own_word_is(serve, i, "NOW") &&
            !own_word_is(serve, i, "FORCE")) {
            return false;
        }
    }
    return !(save && no_save) && !(*abort && serve->arg_count > 2);
}

void command_shutdown(struct serve *serve)
{
    bool abort = false;

    if (!shutdown_fits(serve, &abort)) {
        own_error_syntax(serve);
        return;
    }
    if (abort) {
        own_error(serve, "ERR No shutdown in progress.");
        return;
    }
    server_log(serve->server, 1, "SHUTDOWN from %s: ending", serve->client->address);
    client_close_after(serve->client);
    server_stop(serve->server);
}
