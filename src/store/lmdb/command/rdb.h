/* rdb.h -- the pieces that DUMP payloads are made of: lengths, strings, listpacks, the checksum.
 *
 *     payload   type (1 byte), body, version (2 bytes, little-endian), CRC-64 (8, little-endian)
 *     len       00xxxxxx | 01xxxxxx + 1 byte | 0x80 + 4 bytes | 0x81 + 8 bytes (big-endian)
 *     string    len, bytes | 0xC0, C1, C2: an integer of 1, 2, 4 bytes | 0xC3: compressed (LZF)
 *     listpack  total size (4), element count (2), elements, 0xFF
 *
 * Reading never goes past what is there: it fails once, and then stays failed. */
#ifndef IMPEL_STORE_LMDB_COMMAND_RDB_H
#define IMPEL_STORE_LMDB_COMMAND_RDB_H

#include "base/base.h"

enum {
    RDB_STRING = 0,
    RDB_STREAM_5 = 15, /* Redis 5 and 6 */
    RDB_STREAM_7 = 19, /* 7.0: first ID, largest deleted ID, entries added, entries read */
    RDB_STREAM = 21,   /* 7.2: and when consumers were active */
    RDB_VERSION = 11,  /* written */
    RDB_VERSION_MAX = 12,
    RDB_VERSION_VALKEY = 80, /* Valkey 9 counts on from here; its streams look the same */
    RDB_FOOTER_SIZE = 10,
};

uint64_t rdb_checksum(const void *data, size_t size);

/* ---- writing ---- */

void rdb_put_len(struct buf *buf, uint64_t len);
void rdb_put_string(struct buf *buf, struct impel_bytes bytes);
void rdb_put_u64_le(struct buf *buf, uint64_t number);
void rdb_put_u64_be(struct buf *buf, uint64_t number);

struct listpack {
    struct buf buf;
    uint32_t count;
};
void listpack_init(struct listpack *pack);
void listpack_put(struct listpack *pack, struct impel_bytes bytes); /* a number as one, if it is */
void listpack_put_number(struct listpack *pack, int64_t number);
/* Writes header and end; the bytes live until the next change. */
struct impel_bytes listpack_end(struct listpack *pack);
void listpack_release(struct listpack *pack);

/* ---- reading ---- */

struct rdb_reader {
    const uint8_t *at, *end;
    struct arena *arena; /* for what has to be unpacked */
    bool failed;
    bool no_memory;
};
uint64_t rdb_read_len(struct rdb_reader *reader);
struct impel_bytes rdb_read_string(struct rdb_reader *reader);
uint64_t rdb_read_u64_le(struct rdb_reader *reader);
uint64_t rdb_read_u64_be(struct rdb_reader *reader);

/* Begins to read a listpack; false if its header does not fit its size. */
bool listpack_open(struct impel_bytes pack, struct arena *arena, struct rdb_reader *reader);
/* The next element as bytes (a number as its decimal text, in the arena), or as a number. */
struct impel_bytes listpack_read(struct rdb_reader *reader);
int64_t listpack_read_number(struct rdb_reader *reader);
bool listpack_is_end(const struct rdb_reader *reader);

#endif /* IMPEL_STORE_LMDB_COMMAND_RDB_H */
