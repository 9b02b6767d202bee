/* sha1.c -- SHA-1 (FIPS 180-4), because that is how a server names its scripts. No secret is hashed
 * here, and no library is worth it. */
#include "store/redis/script.h"

#include <stdio.h>
#include <string.h>

enum {
    BLOCK_SIZE = 64,
};

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

static uint32_t mix(unsigned round, uint32_t b, uint32_t c, uint32_t d)
{
    switch (round / 20) {
    case 0:
        return ((b & c) | (~b & d)) + 0x5a827999;
    case 1:
        return (b ^ c ^ d) + 0x6ed9eba1;
    case 2:
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    default:
        return (b ^ c ^ d) + 0xca62c1d6;
    }
}

static void block_add(uint32_t state[5], const uint8_t block[BLOCK_SIZE])
{
    uint32_t w[80];
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];

    for (size_t i = 0; i < 16; i++) {
        w[i] = (uint32_t)block[i * 4] << 24 | (uint32_t)block[i * 4 + 1] << 16 |
               (uint32_t)block[i * 4 + 2] << 8 | block[i * 4 + 3];
    }
    for (unsigned i = 16; i < 80; i++) {
        w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    }
    for (unsigned i = 0; i < 80; i++) {
        uint32_t next = rotate(a, 5) + mix(i, b, c, d) + e + w[i];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

void sha1_text(struct impel_bytes bytes, char text[SHA1_TEXT_SIZE])
{
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const uint8_t *data = bytes.data;
    size_t left = bytes.size;
    uint8_t tail[BLOCK_SIZE * 2] = {0};
    uint64_t bits = (uint64_t)bytes.size * 8;

    for (; left >= BLOCK_SIZE; left -= BLOCK_SIZE, data += BLOCK_SIZE) {
        block_add(state, data);
    }
    if (left > 0) {
        memcpy(tail, data, left);
    }
    tail[left] = 0x80;
    size_t size = left + 9 > BLOCK_SIZE ? sizeof(tail) : BLOCK_SIZE;
    for (unsigned i = 0; i < 8; i++) {
        tail[size - 1 - i] = (uint8_t)(bits >> (8 * i));
    }
    block_add(state, tail);
    if (size > BLOCK_SIZE) {
        block_add(state, tail + BLOCK_SIZE);
    }
    (void)snprintf(text, SHA1_TEXT_SIZE, "%08x%08x%08x%08x%08x", state[0], state[1], state[2],
                   state[3], state[4]);
}
