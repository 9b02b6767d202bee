/* fuzz_records.c -- damaged rows of the embedded store. The input changes bytes of rows, or cuts them
 * short, and then every command that reads them is tried: errors are fine, also wrong answers, but
 * nothing may be read or written where it is not, and nothing may go on for ever.
 *
 *     per change    database | row | offset, cut if bit 7 is set | the new byte
 *     0xff          the rest is an entry's value by itself */
#include "engine.h"
#include "store/lmdb/check.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHANGES_MAX = 32,
};

static const char *const content[] = {
    "XADD s 1-1 a 1 b 2",
    "XADD s 2-1 a 1 b 2",
    "XADD s 3-1 name value",
    "XADD s 5-1 c 3",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s h 2",
    "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "XREADGROUP GROUP g d COUNT 1 STREAMS s >",
    "XREADGROUP GROUP h e STREAMS s >",
    "XACK s h 3-1",
    "XDEL s 2-1",
    "XADD u 9-9 x y",
    "SET t text",
    "PEXPIREAT u 9999999999999",
};

static const char *const probes[] = {
    "XRANGE s - +",
    "XREVRANGE s + -",
    "XINFO STREAM s FULL",
    "XINFO GROUPS s",
    "XINFO CONSUMERS s g",
    "XPENDING s g",
    "XPENDING s g - + 10",
    "XPENDING s g IDLE 1 - + 10 c",
    "XREAD STREAMS s u 0 0",
    "XREADGROUP GROUP g c STREAMS s >",
    "XREADGROUP GROUP g c STREAMS s 0",
    "DUMP s",
    "COPY s copy",
    "MEMORY USAGE s",
    "GET t",
    "PTTL u",
    "XCLAIM s g e 0 1-1 2-1",
    "XAUTOCLAIM s g e 0 0",
    "XACK s g 1-1 2-1 3-1",
    "XPENDING s h - + 10 e",
    "XNACK s h FAIL IDS 1 5-1",
    "XADD s * f v",
    "XTRIM s MAXLEN 1",
    "XDEL s 5-1",
    "XGROUP DELCONSUMER s g c",
    "XGROUP DESTROY s g",
    "RENAME s v",
    "SCAN 0",
    "DEL v t u copy",
    "FLUSHALL",
};

/* The row with this number in its database, or the last one. */
static bool
find_row(struct lmdb_txn *txn, enum lmdb_database db, uint8_t number, MDB_val *key, MDB_val *value)
{
    MDB_cursor *cursor = NULL;
    int code = mdb_cursor_open(txn->mdb, txn->dbi[db], &cursor);
    bool found = false;

    ASSERT(code == 0);
    while (mdb_cursor_get(cursor, key, value, MDB_NEXT) == 0) {
        found = true;
        if (number-- == 0) {
            break;
        }
    }
    mdb_cursor_close(cursor);
    return found;
}

static void change_row(struct lmdb_txn *txn, const uint8_t *change)
{
    static uint8_t row[1 << 12], name[512];
    MDB_val key;
    MDB_val value;
    enum lmdb_database db = (enum lmdb_database)(change[0] % DB_COUNT);

    if (!find_row(txn, db, change[1], &key, &value) || value.mv_size == 0) {
        return;
    }
    ASSERT(value.mv_size <= sizeof(row) && key.mv_size <= sizeof(name));
    memcpy(row, value.mv_data, value.mv_size);
    memcpy(name, key.mv_data, key.mv_size);
    size_t at = (change[2] & 0x7f) % value.mv_size;
    row[at] = change[3];
    size_t size = (change[2] & 0x80) != 0 ? at : value.mv_size;
    txn->changes++;
    ASSERT(mdb_put(txn->mdb, txn->dbi[db], &(MDB_val){key.mv_size, name}, &(MDB_val){size, row},
                   0) == 0);
}

/* An entry's value: what can be read is the same when it is written and read again. */
static void check_value(const uint8_t *data, size_t size)
{
    struct impel_bytes raw = {data, size};
    const uint8_t *sizes = NULL;
    struct arena arena = {0};
    int64_t count = fields_count(raw, &sizes);

    ASSERT(count < 0 || (uint64_t)count <= size);
    struct impel_field *fields =
        count < 0 ? NULL : arena_calloc(&arena, (size_t)count + 1, sizeof(*fields));
    if (fields != NULL && fields_read(raw, sizes, fields, (size_t)count)) {
        size_t again_size = fields_size(fields, (size_t)count);
        uint8_t *again = arena_alloc(&arena, again_size + 1);
        struct impel_field *read = arena_calloc(&arena, (size_t)count + 1, sizeof(*read));
        ASSERT(again != NULL && read != NULL && again_size <= size);
        fields_write(again, fields, (size_t)count);
        struct impel_bytes written = {again, again_size};
        ASSERT(fields_count(written, &sizes) == count &&
               fields_read(written, sizes, read, (size_t)count));
        for (int64_t i = 0; i < count; i++) {
            ASSERT(bytes_equal(fields[i].name, read[i].name) &&
                   bytes_equal(fields[i].value, read[i].value));
        }
    }
    arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct impel_error err = {0};
    struct lmdb_txn txn;

    if (size > 0 && data[0] == 0xff) {
        check_value(data + 1, size - 1);
        return 0;
    }
    (void)engine_open(content, ARRAY_SIZE(content));
    engine_begin(&txn);
    for (size_t i = 0; i < CHANGES_MAX && (i + 1) * 4 <= size; i++) {
        change_row(&txn, data + i * 4);
    }
    (void)check_transaction(&txn, NULL, NULL, &err);
    for (size_t i = 0; i < ARRAY_SIZE(probes) && txn.status >= 0; i++) {
        struct arena arena = {0};
        (void)engine_line(&txn, probes[i], &arena);
        arena_release(&arena);
    }
    engine_abort(&txn);
    return 0;
}
