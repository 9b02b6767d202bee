/* small.c -- commands that clients send in passing and that mean little here. */
#include "server/own.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SLEEP_S_MAX = 60,
};

void command_ok(struct serve *serve)
{
    own_ok(serve);
}

void command_none(struct serve *serve)
{
    resp_put_array(serve->out, 0);
}

void command_zero(struct serve *serve)
{
    resp_put_number(serve->out, 0);
}

void command_empty_map(struct serve *serve)
{
    resp_put_map(serve->out, 0, serve->version);
}

/* FUNCTION FLUSH and SCRIPT FLUSH, [SYNC|ASYNC]. */
static bool flush_fits(const struct serve *serve)
{
    return serve->arg_count == 2 || (serve->arg_count == 3 && (own_word_is(serve, 2, "SYNC") ||
                                                               own_word_is(serve, 2, "ASYNC")));
}

void command_function_flush(struct serve *serve)
{
    if (serve->arg_count > 3) {
        own_error_options(serve);
    } else if (!flush_fits(serve)) {
        own_error(serve, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    } else {
        own_ok(serve);
    }
}

void command_script_flush(struct serve *serve)
{
    if (!flush_fits(serve)) {
        own_error(serve, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
    } else {
        own_ok(serve);
    }
}

void command_slowlog_get(struct serve *serve)
{
    int64_t count = 0;

    if (serve->arg_count > 3) {
        own_error_options(serve);
    } else if (serve->arg_count == 3 && (!resp_number(serve->args[2], &count) || count < -1)) {
        own_error(serve, "ERR count should be greater than or equal to -1");
    } else {
        command_none(serve);
    }
}

/* No script is ever here. */
void command_script_exists(struct serve *serve)
{
    resp_put_array(serve->out, serve->arg_count - 2);
    for (size_t i = 2; i < serve->arg_count; i++) {
        resp_put_number(serve->out, 0);
    }
}

void command_cluster(struct serve *serve)
{
    own_error(serve, "ERR This instance has cluster support disabled");
}

void command_acl_whoami(struct serve *serve)
{
    resp_put_text(serve->out, "default");
}

/* Everybody waits, as in Redis: it is there to try out what a slow server does to a client. */
void command_debug_sleep(struct serve *serve)
{
    char text[32];
    char *end = NULL;

    if (serve->args[2].size == 0 || serve->args[2].size >= sizeof(text)) {
        own_error(serve, "ERR value is not a valid float");
        return;
    }
    memcpy(text, serve->args[2].data, serve->args[2].size);
    text[serve->args[2].size] = '\0';
    double seconds = strtod(text, &end);
    if (*end != '\0' || !(seconds >= 0) || seconds > SLEEP_S_MAX) {
        own_error(serve, "ERR value is not a valid float");
        return;
    }
    struct timespec time = {.tv_sec = (time_t)seconds};
    time.tv_nsec = (long)((seconds - (double)time.tv_sec) * 1e9);
    nanosleep(&time, NULL);
    own_ok(serve);
}

void command_debug_object(struct serve *serve)
{
    struct key_print print = {.kind = LMDB_KEY_NONE};

    if (engine_print(&serve->server->engine, serve->args[2], &print) >= 0 &&
        print.kind == LMDB_KEY_NONE) {
        own_error(serve, "ERR no such key");
    } else {
        own_ok(serve);
    }
}

void command_debug_log(struct serve *serve)
{
    char text[256];

    server_log(serve->server, 2, "DEBUG LOG: %s", bytes_quote(serve->args[2], text, sizeof(text)));
    own_ok(serve);
}
