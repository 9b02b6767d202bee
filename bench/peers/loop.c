/* loop.c -- the loops that people write in C with hiredis, as fast as they get without pipelining:
 * XAUTOCLAIM (or XREADGROUP) of 1,000 entries, then one XACK with all their IDs. No liveness, no
 * delivery limit, nothing fenced. Prints how many entries it finished and how many seconds that took.
 *
 *     loop recover|steady SOCKET STREAM GROUP */
#include <hiredis/hiredis.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 1000,
    HEAD = 3, /* XACK stream group */
};

struct loop {
    redisContext *server;
    const char *stream, *group;
    char cursor[64];
    unsigned long long done;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* `entries` is an array of [id, fields]. */
static bool ack(struct loop *loop, const redisReply *entries)
{
    const char *argv[HEAD + BATCH] = {"XACK", loop->stream, loop->group};
    size_t sizes[HEAD + BATCH] = {4, strlen(loop->stream), strlen(loop->group)};
    size_t n = HEAD;

    for (size_t i = 0; i < entries->elements && n < HEAD + BATCH; i++) {
        const redisReply *entry = entries->element[i];
        if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2) {
            return false;
        }
        argv[n] = entry->element[0]->str;
        sizes[n++] = entry->element[0]->len;
    }
    redisReply *reply = redisCommandArgv(loop->server, (int)n, argv, sizes);
    bool good = reply != NULL && reply->type == REDIS_REPLY_INTEGER;
    loop->done += good ? (unsigned long long)reply->integer : 0;
    freeReplyObject(reply);
    return good;
}

/* Each: 1 = go on, 0 = all is done, -1 = failed. */
static int recover(struct loop *loop)
{
    redisReply *reply = redisCommand(loop->server, "XAUTOCLAIM %s %s loop 0 %s COUNT %d",
                                     loop->stream, loop->group, loop->cursor, BATCH);
    int rc = -1;

    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2) {
        const redisReply *entries = reply->element[1];
        snprintf(loop->cursor, sizeof(loop->cursor), "%s", reply->element[0]->str);
        rc = strcmp(loop->cursor, "0-0") != 0;
        rc = entries->elements > 0 && !ack(loop, entries) ? -1 : rc;
    }
    freeReplyObject(reply);
    return rc;
}

static int steady(struct loop *loop)
{
    redisReply *reply = redisCommand(loop->server, "XREADGROUP GROUP %s loop COUNT %d STREAMS %s >",
                                     loop->group, BATCH, loop->stream);
    int rc = -1;

    if (reply != NULL && reply->type == REDIS_REPLY_NIL) {
        rc = 0;
    } else if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1) {
        rc = ack(loop, reply->element[0]->element[1]) ? 1 : -1;
    }
    freeReplyObject(reply);
    return rc;
}

int main(int argc, char **argv)
{
    struct loop loop = {.cursor = "0-0"};
    int rc = 1;

    if (argc != 5) {
        fprintf(stderr, "usage: loop recover|steady SOCKET STREAM GROUP\n");
        return 2;
    }
    loop.stream = argv[3];
    loop.group = argv[4];
    loop.server = redisConnectUnix(argv[2]);
    if (loop.server == NULL || loop.server->err != 0) {
        fprintf(stderr, "loop: %s: no connection\n", argv[2]);
        return 1;
    }
    double begun = now();
    while (rc > 0) {
        rc = strcmp(argv[1], "recover") == 0 ? recover(&loop) : steady(&loop);
    }
    printf("%llu %f\n", loop.done, now() - begun);
    redisFree(loop.server);
    return rc < 0;
}
