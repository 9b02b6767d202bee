/* fuzz_restore.c -- RESTORE with any payload under a right checksum: it is refused, or makes a key
 * that keeps every invariant and whose own DUMP makes the same key again. */
#include "engine.h"
#include "store/lmdb/command/rdb.h"

#include <string.h>

static void restore(struct lmdb_txn *txn, const char *key, struct impel_bytes payload, bool *made)
{
    const struct impel_bytes args[] = {bytes_of("RESTORE"), bytes_of(key), bytes_of("0"), payload};
    struct arena arena = {0};
    const struct value *reply = engine_call(txn, args, ARRAY_SIZE(args), &arena);

    *made = reply != NULL && reply->kind == VALUE_STATUS;
    arena_release(&arena);
}

static struct impel_bytes dump(struct lmdb_txn *txn, const char *key, struct arena *arena)
{
    const struct impel_bytes args[] = {bytes_of("DUMP"), bytes_of(key)};
    const struct value *reply = engine_call(txn, args, ARRAY_SIZE(args), arena);

    ASSERT(reply != NULL && reply->kind == VALUE_BULK);
    return reply->bytes;
}

static void check_again(struct lmdb_txn *txn)
{
    struct arena arena = {0};
    struct arena other = {0};
    struct impel_bytes payload = dump(txn, "k", &arena);
    bool made = false;

    restore(txn, "again", payload, &made);
    ASSERT(made);
    ASSERT(bytes_equal(dump(txn, "again", &other), payload));
    arena_release(&other);
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t version[2] = {RDB_VERSION, 0};
    struct lmdb_txn txn;
    struct buf payload;
    bool made = false;

    (void)engine_open(NULL, 0);
    buf_init(&payload, 1 << 24);
    buf_append(&payload, data, size);
    buf_append(&payload, version, sizeof(version));
    rdb_put_u64_le(&payload, rdb_checksum(payload.data, payload.size));
    engine_begin(&txn);
    restore(&txn, "k", buf_bytes(&payload), &made);
    if (made) {
        check_again(&txn);
    }
    if (txn.status >= 0) {
        engine_check(&txn);
    }
    engine_abort(&txn);
    buf_release(&payload);
    return 0;
}
