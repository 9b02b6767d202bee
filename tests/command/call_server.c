/* call_server.c -- commands in RESP on stdin, replies in RESP on stdout, one store for all of them.
 *
 *   call_server PATH [3]      "3": replies as RESP3 has them
 *
 * What a program in another language needs to compare the embedded store with a real server. */
#include "call_store.h"
#include "resp/resp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    READ_SIZE = 65536,
};

static void write_all(struct impel_bytes bytes)
{
    const char *data = bytes.data;
    size_t written = 0;

    while (written < bytes.size) {
        ssize_t size = write(STDOUT_FILENO, data + written, bytes.size - written);
        if (size <= 0) {
            exit(0); /* nobody listens any more */
        }
        written += (size_t)size;
    }
}

/* A failing store is told as an error of its own code. */
static void answer(struct store *store, struct impel_bytes message, int version, struct buf *out)
{
    struct arena arena = {.blocks = NULL};
    struct impel_bytes *args;
    size_t arg_count;

    if (resp_read_request(message, &arena, &args, &arg_count, NULL) >= 0 && arg_count > 0) {
        struct request *request = call_store_run(store, args, arg_count, version == 3);
        if (request == NULL) {
            resp_put_error(out, bytes_of("STOREFAILED see stderr"));
        } else {
            resp_put_value(out, request->call.reply, version);
        }
        request_free(request);
    }
    arena_release(&arena);
}

int main(int argc, char **argv)
{
    int version = argc > 2 && strcmp(argv[2], "3") == 0 ? 3 : 2;
    struct store *store = call_store_open(argc > 1 ? argv[1] : "call.db");
    struct resp_request_scan scan;
    struct resp_limits limits;
    struct buf in, out;
    ssize_t got = 1;

    resp_limits_default(&limits);
    resp_request_scan_init(&scan, &limits);
    buf_init(&in, (size_t)1 << 31);
    buf_init(&out, (size_t)1 << 31);
    while (got > 0) {
        size_t size = 0;
        while (resp_scan_request(&scan, buf_bytes(&in), &size, NULL) > 0) {
            answer(store, (struct impel_bytes){in.data, size}, version, &out);
            memmove(in.data, in.data + size, in.size - size);
            in.size -= size;
        }
        write_all(buf_bytes(&out));
        buf_clear(&out);
        void *room = buf_reserve(&in, READ_SIZE);
        got = room == NULL ? -1 : read(STDIN_FILENO, room, READ_SIZE);
        in.size += got > 0 ? (size_t)got : 0;
    }
    buf_release(&in);
    buf_release(&out);
    store_close(store);
    return 0;
}
