/* loop.c -- what a careful person writes by hand in C: no liveness, no backoff, no fences, no parking.
 *
 *   bench-loop SOCKET fill N SIZE     N entries in the stream, and the group
 *   bench-loop SOCKET abandon         all of them delivered to a consumer that is gone, two minutes ago
 *   bench-loop SOCKET steady N        XREADGROUP 1000, a no-op, one batched XACK
 *   bench-loop SOCKET recover N       XAUTOCLAIM 1000, a look at each count, one batched XACK
 *
 * The last two print the seconds they took. */
#include <hiredis/hiredis.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    BATCH = 1000,
};

static redisContext *server;
static volatile long handled;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static redisReply *check(redisReply *reply)
{
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "bench-loop: %s\n", reply == NULL ? server->errstr : reply->str);
        exit(1);
    }
    return reply;
}

static void fill(long count, long size)
{
    char *value = calloc(1, (size_t)size + 1);

    memset(value, 'v', (size_t)size);
    for (long i = 1; i <= count; i++) {
        redisAppendCommand(server, "XADD bench * v %b", value, (size_t)size);
        if (i % 10000 == 0 || i == count) {
            for (long j = (i - 1) / 10000 * 10000; j < i; j++) {
                redisReply *reply = NULL;
                redisGetReply(server, (void **)&reply);
                freeReplyObject(check(reply));
            }
        }
    }
    freeReplyObject(check(redisCommand(server, "XGROUP CREATE bench bench 0")));
    free(value);
}

/* The batched XACK of what a reply's entries hold. */
static void ack(redisReply *const *entries, size_t count)
{
    const char *argv[BATCH + 3] = {"XACK", "bench", "bench"};
    size_t sizes[BATCH + 3] = {4, 5, 5};

    for (size_t i = 0; i < count; i++) {
        argv[i + 3] = entries[i]->element[0]->str;
        sizes[i + 3] = (size_t)entries[i]->element[0]->len;
        handled++;
    }
    freeReplyObject(check(redisCommandArgv(server, (int)count + 3, argv, sizes)));
}

/* As if they had been left two minutes ago. */
static void age(redisReply *const *entries, size_t count)
{
    const char *argv[BATCH + 8] = {"XCLAIM", "bench", "bench", "gone", "0"};

    for (size_t i = 0; i < count; i++) {
        argv[i + 5] = entries[i]->element[0]->str;
    }
    argv[count + 5] = "IDLE";
    argv[count + 6] = "120000";
    argv[count + 7] = "JUSTID";
    freeReplyObject(check(redisCommandArgv(server, (int)count + 8, argv, NULL)));
}

static size_t read_once(const char *consumer, int acks)
{
    redisReply *reply = check(redisCommand(
        server, "XREADGROUP GROUP bench %s COUNT %d STREAMS bench >", consumer, BATCH));
    size_t count = 0;

    if (reply->type == REDIS_REPLY_ARRAY) {
        const redisReply *entries = reply->element[0]->element[1];
        count = entries->elements;
        if (acks) {
            ack(entries->element, count);
        } else {
            age(entries->element, count);
        }
    }
    freeReplyObject(reply);
    return count;
}

static double steady(void)
{
    double begun = now();

    while (read_once("worker", 1) > 0) {
    }
    return now() - begun;
}

static double recover(void)
{
    char cursor[64] = "0-0";
    double begun = now();

    do {
        redisReply *reply = check(
            redisCommand(server, "XAUTOCLAIM bench bench worker 60000 %s COUNT %d", cursor, BATCH));
        const redisReply *entries = reply->element[1];
        snprintf(cursor, sizeof(cursor), "%s", reply->element[0]->str);
        if (entries->elements > 0) {
            const redisReply *first = entries->element[0],
                             *last = entries->element[entries->elements - 1];
            redisReply *counts =
                check(redisCommand(server, "XPENDING bench bench %s %s %d worker",
                                   first->element[0]->str, last->element[0]->str, BATCH));
            for (size_t i = 0; i < counts->elements; i++) {
                handled += counts->element[i]->element[3]->integer > 100;
            }
            freeReplyObject(counts);
            ack(entries->element, entries->elements);
        }
        freeReplyObject(reply);
    } while (strcmp(cursor, "0-0") != 0);
    return now() - begun;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: bench-loop SOCKET fill|abandon|steady|recover [N [SIZE]]\n");
        return 2;
    }
    server = redisConnectUnix(argv[1]);
    if (server == NULL || server->err != 0) {
        fprintf(stderr, "bench-loop: no connection\n");
        return 1;
    }
    if (strcmp(argv[2], "fill") == 0) {
        fill(atol(argv[3]), atol(argv[4]));
    } else if (strcmp(argv[2], "abandon") == 0) {
        while (read_once("gone", 0) > 0) {
        }
    } else {
        printf("%f\n", strcmp(argv[2], "steady") == 0 ? steady() : recover());
        if (argc > 3 && handled != atol(argv[3])) {
            fprintf(stderr, "bench-loop: %ld handled\n", handled);
            return 1;
        }
    }
    redisFree(server);
    return 0;
}
