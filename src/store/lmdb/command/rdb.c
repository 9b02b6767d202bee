/* rdb.c -- reading and writing the pieces of DUMP payloads. */
#include "store/lmdb/command/rdb.h"

#include "store/lmdb/command/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CRC_POLYNOMIAL 0x95ac9329ac4bc9b5ULL /* ad93d23594c935a9, bits reversed */

enum {
    PAYLOAD_MAX = 512 * 1024 * 1024,
    LISTPACK_HEADER = 6,
    UNPACKED_MAX = 512 * 1024 * 1024,
};

uint64_t rdb_checksum(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t table[256];
    uint64_t crc = 0;

    for (unsigned i = 0; i < 256; i++) {
        uint64_t entry = i;
        for (int bit = 0; bit < 8; bit++) {
            entry = (entry & 1) != 0 ? entry >> 1 ^ CRC_POLYNOMIAL : entry >> 1;
        }
        table[i] = entry;
    }
    for (size_t i = 0; i < size; i++) {
        crc = table[(crc ^ bytes[i]) & 0xff] ^ crc >> 8;
    }
    return crc;
}

/* ---- writing ---- */

static void put_bytes(struct buf *buf, uint64_t number, int count, bool big_endian)
{
    uint8_t bytes[8];

    for (int i = 0; i < count; i++) {
        bytes[big_endian ? count - 1 - i : i] = (uint8_t)(number >> (8 * i));
    }
    buf_append(buf, bytes, (size_t)count);
}

void rdb_put_u64_le(struct buf *buf, uint64_t number)
{
    put_bytes(buf, number, 8, false);
}

void rdb_put_u64_be(struct buf *buf, uint64_t number)
{
    put_bytes(buf, number, 8, true);
}

void rdb_put_len(struct buf *buf, uint64_t len)
{
    if (len < 1 << 6) {
        put_bytes(buf, len, 1, true);
    } else if (len < 1 << 14) {
        put_bytes(buf, 0x4000 | len, 2, true);
    } else if (len <= UINT32_MAX) {
        put_bytes(buf, 0x80, 1, true);
        put_bytes(buf, len, 4, true);
    } else {
        put_bytes(buf, 0x81, 1, true);
        put_bytes(buf, len, 8, true);
    }
}

void rdb_put_string(struct buf *buf, struct impel_bytes bytes)
{
    rdb_put_len(buf, bytes.size);
    buf_append_bytes(buf, bytes);
}

void listpack_init(struct listpack *pack)
{
    buf_init(&pack->buf, PAYLOAD_MAX);
    pack->count = 0;
    buf_append(&pack->buf, "\0\0\0\0\0", LISTPACK_HEADER);
}

void listpack_release(struct listpack *pack)
{
    buf_release(&pack->buf);
}

/* The size of the element before it, readable from behind. */
static void put_back_length(struct listpack *pack, size_t size)
{
    uint8_t bytes[5];
    int count = 0;

    do {
        bytes[count++] = (uint8_t)(size & 0x7f);
        size >>= 7;
    } while (size > 0);
    for (int i = count - 1; i >= 0; i--) {
        uint8_t byte = bytes[i] | (i < count - 1 ? 0x80 : 0);
        buf_append(&pack->buf, &byte, 1);
    }
    pack->count++;
}

void listpack_put_number(struct listpack *pack, int64_t number)
{
    struct buf *buf = &pack->buf;
    size_t start = buf->size;
    uint64_t bits = (uint64_t)number;

    if (number >= 0 && number < 128) {
        put_bytes(buf, bits, 1, true);
    } else if (number >= -4096 && number < 4096) {
        put_bytes(buf, 0xc000 | (bits & 0x1fff), 2, true);
    } else if (number >= INT16_MIN && number <= INT16_MAX) {
        put_bytes(buf, 0xf1, 1, true);
        put_bytes(buf, bits, 2, false);
    } else if (number >= -(1 << 23) && number < 1 << 23) {
        put_bytes(buf, 0xf2, 1, true);
        put_bytes(buf, bits, 3, false);
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        put_bytes(buf, 0xf3, 1, true);
        put_bytes(buf, bits, 4, false);
    } else {
        put_bytes(buf, 0xf4, 1, true);
        put_bytes(buf, bits, 8, false);
    }
    put_back_length(pack, buf->size - start);
}

void listpack_put(struct listpack *pack, struct impel_bytes bytes)
{
    struct buf *buf = &pack->buf;
    size_t start = buf->size;
    int64_t number;

    if (bytes.size <= 20 && word_integer(bytes, &number)) {
        listpack_put_number(pack, number);
        return;
    }
    if (bytes.size < 64) {
        put_bytes(buf, 0x80 | bytes.size, 1, true);
    } else if (bytes.size < 4096) {
        put_bytes(buf, 0xe000 | bytes.size, 2, true);
    } else {
        put_bytes(buf, 0xf0, 1, true);
        put_bytes(buf, bytes.size, 4, false);
    }
    buf_append_bytes(buf, bytes);
    put_back_length(pack, buf->size - start);
}

struct impel_bytes listpack_end(struct listpack *pack)
{
    uint64_t count = pack->count < UINT16_MAX ? pack->count : UINT16_MAX;

    put_bytes(&pack->buf, 0xff, 1, true);
    if (!pack->buf.failed) {
        for (int i = 0; i < 4; i++) {
            pack->buf.data[i] = (uint8_t)(pack->buf.size >> (8 * i));
        }
        pack->buf.data[4] = (uint8_t)count;
        pack->buf.data[5] = (uint8_t)(count >> 8);
    }
    return buf_bytes(&pack->buf);
}

/* ---- reading ---- */

static const uint8_t *take(struct rdb_reader *reader, uint64_t size)
{
    const uint8_t *at = reader->at;

    if (reader->failed || size > (uint64_t)(reader->end - at)) {
        reader->failed = true;
        return NULL;
    }
    reader->at += size;
    return at;
}

static uint64_t read_bytes(struct rdb_reader *reader, int count, bool big_endian)
{
    const uint8_t *bytes = take(reader, (uint64_t)count);
    uint64_t number = 0;

    for (int i = 0; bytes != NULL && i < count; i++) {
        number |= (uint64_t)bytes[big_endian ? count - 1 - i : i] << (8 * i);
    }
    return number;
}

uint64_t rdb_read_u64_le(struct rdb_reader *reader)
{
    return read_bytes(reader, 8, false);
}

uint64_t rdb_read_u64_be(struct rdb_reader *reader)
{
    return read_bytes(reader, 8, true);
}

/* `special` gets the encoding if it is no length: 0 to 63. */
static uint64_t read_len(struct rdb_reader *reader, int *special)
{
    uint64_t first = read_bytes(reader, 1, true);

    *special = -1;
    switch (first >> 6) {
    case 0:
        return first;
    case 1:
        return (first & 0x3f) << 8 | read_bytes(reader, 1, true);
    case 2:
        if (first == 0x80 || first == 0x81) {
            return read_bytes(reader, first == 0x80 ? 4 : 8, true);
        }
        reader->failed = true;
        return 0;
    default:
        *special = (int)(first & 0x3f);
        return 0;
    }
}

uint64_t rdb_read_len(struct rdb_reader *reader)
{
    int special;
    uint64_t len = read_len(reader, &special);

    reader->failed |= special >= 0;
    return reader->failed ? 0 : len;
}

static struct impel_bytes number_text(struct rdb_reader *reader, int64_t number)
{
    char *text = arena_alloc(reader->arena, 24);

    if (text == NULL) {
        reader->failed = reader->no_memory = true;
        return (struct impel_bytes){NULL, 0};
    }
    return (struct impel_bytes){text, (size_t)snprintf(text, 24, "%" PRId64, number)};
}

/* LZF: runs of literal bytes, and repetitions of what came before. False if it breaks the format. */
static bool lzf_unpack(const uint8_t *in, size_t in_size, uint8_t *out, size_t out_size)
{
    size_t from = 0, to = 0;

    while (from < in_size) {
        size_t control = in[from++], size = control + 1;
        if (control < 32) {
            if (size > in_size - from || size > out_size - to) {
                return false;
            }
            memcpy(out + to, in + from, size);
            from += size;
            to += size;
            continue;
        }
        size = control >> 5;
        if (size == 7) {
            size += from < in_size ? in[from++] : 0;
        }
        size += 2;
        size_t distance = from < in_size ? ((control & 31) << 8 | in[from++]) + 1 : SIZE_MAX;
        if (distance > to || size > out_size - to) {
            return false;
        }
        for (; size > 0; size--, to++) {
            out[to] = out[to - distance];
        }
    }
    return to == out_size;
}

static struct impel_bytes read_packed(struct rdb_reader *reader)
{
    uint64_t in_size = rdb_read_len(reader), out_size = rdb_read_len(reader);
    const uint8_t *in = take(reader, in_size);
    /* No byte of it stands for more than this many, so a lie about the size costs nothing. */
    bool plausible = in != NULL && out_size <= UNPACKED_MAX && out_size / 300 <= in_size;
    uint8_t *out = plausible ? arena_alloc(reader->arena, out_size) : NULL;

    if (plausible && out == NULL) {
        reader->no_memory = true;
    }
    if (out == NULL || !lzf_unpack(in, in_size, out, out_size)) {
        reader->failed = true;
        return (struct impel_bytes){NULL, 0};
    }
    return (struct impel_bytes){out, out_size};
}

struct impel_bytes rdb_read_string(struct rdb_reader *reader)
{
    int special;
    uint64_t len = read_len(reader, &special);

    switch (special) {
    case -1: {
        const uint8_t *bytes = take(reader, len);
        return (struct impel_bytes){bytes, bytes == NULL ? 0 : len};
    }
    case 0:
        return number_text(reader, (int8_t)read_bytes(reader, 1, false));
    case 1:
        return number_text(reader, (int16_t)read_bytes(reader, 2, false));
    case 2:
        return number_text(reader, (int32_t)read_bytes(reader, 4, false));
    case 3:
        return read_packed(reader);
    default:
        reader->failed = true;
        return (struct impel_bytes){NULL, 0};
    }
}

bool listpack_open(struct impel_bytes pack, struct arena *arena, struct rdb_reader *reader)
{
    const uint8_t *data = pack.data;

    *reader = (struct rdb_reader){.arena = arena};
    if (pack.size < LISTPACK_HEADER + 1 || data[pack.size - 1] != 0xff) {
        return false;
    }
    reader->at = data;
    reader->end = data + pack.size - 1;
    uint64_t size = read_bytes(reader, 4, false);
    (void)read_bytes(reader, 2, false);
    return size == pack.size;
}

bool listpack_is_end(const struct rdb_reader *reader)
{
    return reader->at == reader->end;
}

static void skip_back_length(struct rdb_reader *reader, size_t size)
{
    (void)take(reader, size < 128         ? 1
                       : size < 16383     ? 2
                       : size < 2097151   ? 3
                       : size < 268435455 ? 4
                                          : 5);
}

/* One element: bytes, or a number if `text.data` is NULL and nothing failed. */
static struct impel_bytes read_element(struct rdb_reader *reader, int64_t *number)
{
    const uint8_t *start = reader->at;
    uint64_t first = read_bytes(reader, 1, true);
    struct impel_bytes text = {NULL, 0};

    if (first < 0x80) {
        *number = (int64_t)first;
    } else if (first < 0xc0) {
        text = (struct impel_bytes){take(reader, first & 0x3f), first & 0x3f};
    } else if (first < 0xe0) {
        uint64_t bits = (first & 0x1f) << 8 | read_bytes(reader, 1, true);
        *number = bits >= 4096 ? (int64_t)bits - 8192 : (int64_t)bits;
    } else if (first < 0xf0) {
        uint64_t size = (first & 0x0f) << 8 | read_bytes(reader, 1, true);
        text = (struct impel_bytes){take(reader, size), size};
    } else if (first == 0xf0) {
        uint64_t size = read_bytes(reader, 4, false);
        text = (struct impel_bytes){take(reader, size), size};
    } else if (first == 0xf1) {
        *number = (int16_t)read_bytes(reader, 2, false);
    } else if (first == 0xf2) {
        uint64_t bits = read_bytes(reader, 3, false);
        *number = bits >= 1 << 23 ? (int64_t)bits - (1 << 24) : (int64_t)bits;
    } else if (first == 0xf3) {
        *number = (int32_t)read_bytes(reader, 4, false);
    } else if (first == 0xf4) {
        *number = (int64_t)read_bytes(reader, 8, false);
    } else {
        reader->failed = true;
    }
    if (!reader->failed) {
        skip_back_length(reader, (size_t)(reader->at - start));
    }
    return text;
}

struct impel_bytes listpack_read(struct rdb_reader *reader)
{
    int64_t number = 0;
    struct impel_bytes text = read_element(reader, &number);

    if (reader->failed || text.data != NULL) {
        return reader->failed ? (struct impel_bytes){NULL, 0} : text;
    }
    return number_text(reader, number);
}

int64_t listpack_read_number(struct rdb_reader *reader)
{
    int64_t number = 0;
    struct impel_bytes text = read_element(reader, &number);

    /* Where a number is due, a string is a decimal that was too unusual to be stored as one. */
    if (!reader->failed && text.data != NULL && !word_integer(text, &number)) {
        reader->failed = true;
    }
    return reader->failed ? 0 : number;
}
