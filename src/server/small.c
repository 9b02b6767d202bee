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

void command_debug_log(struct serve *serve)
{
    char text[256];

    server_log(serve->server, 2, "DEBUG LOG: %s", bytes_quote(serve->args[2], text, sizeof(text)));
    own_ok(serve);
}
