/* fuzz_command.c -- what a client sends to `impel serve`, as bytes: requests are cut out of it as the
 * server does (inline or multibulk), looked up in the table of commands and carried out, all in one
 * transaction. Whatever they were, every invariant of the file holds afterwards. */
#include "engine.h"
#include "resp/resp.h"

enum {
    COMMANDS_MAX = 64,
};

static const char *const content[] = {
    "XADD s 1-1 a 1 b 2",
    "XADD s 2-1 a 1 b 2",
    "XADD s 5-1 c 3",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s h 2",
    "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "XREADGROUP GROUP g d COUNT 1 STREAMS s >",
    "XDEL s 2-1",
    "SET t text",
};

/* Cuts the next request off. False: there is no other. */
static bool next_request(struct impel_bytes *rest,
                         struct arena *arena,
                         struct impel_bytes **args,
                         size_t *count)
{
    struct resp_limits limits = {.bulk_max = 1 << 20, .items_max = 1 << 12, .total_max = 1 << 21};
    struct resp_request_scan scan;
    size_t size = 0;

    resp_request_scan_init(&scan, &limits);
    if (resp_scan_request(&scan, *rest, &size, NULL) != 1) {
        return false;
    }
    struct impel_bytes whole = {rest->data, size};
    *rest = (struct impel_bytes){(const uint8_t *)rest->data + size, rest->size - size};
    return resp_read_request(whole, arena, args, count, NULL) == IMPEL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct impel_bytes rest = {data, size};
    struct impel_bytes *args = NULL;
    size_t count = 0;
    struct arena arena = {0};
    struct lmdb_txn txn;
    bool good = true;

    (void)engine_open(content, ARRAY_SIZE(content));
    engine_begin(&txn);
    for (int i = 0; good && i < COMMANDS_MAX && next_request(&rest, &arena, &args, &count); i++) {
        struct arena reply = {0};
        good = count == 0 || engine_call(&txn, args, count, &reply) != NULL;
        arena_release(&reply);
        arena_release(&arena);
    }
    arena_release(&arena);
    if (good) {
        engine_check(&txn);
    }
    engine_abort(&txn);
    return 0;
}
