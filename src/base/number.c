/* number.c -- hashing, seeded numbers, and arithmetic that stops at the ends instead of wrapping.
 */
#include "base/base.h"

#include <string.h>

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

uint64_t hash_bytes(struct impel_bytes bytes, uint64_t seed)
{
    const uint8_t *data = bytes.data;
    uint64_t hash = mix(seed + 0x9e3779b97f4a7c15U + bytes.size);
    size_t left = bytes.size;

    for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, data, sizeof(word));
        hash = mix(hash ^ (word + 0x9e3779b97f4a7c15U * sizeof(word)));
        data += sizeof(word);
    }
    if (left > 0) {
        uint64_t word = 0;
        memcpy(&word, data, left);
        hash = mix(hash ^ (word + 0x9e3779b97f4a7c15U * left));
    }
    return hash;
}

uint64_t random_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15U;
    return mix(*state);
}

int64_t add_saturating(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum)) {
        return sum;
    }
    return b > 0 ? INT64_MAX : INT64_MIN;
}

int64_t sub_saturating(int64_t a, int64_t b)
{
    int64_t difference;
    if (!__builtin_sub_overflow(a, b, &difference)) {
        return difference;
    }
    return b < 0 ? INT64_MAX : INT64_MIN;
}

int64_t mul_saturating(int64_t a, int64_t b)
{
    int64_t product;
    if (!__builtin_mul_overflow(a, b, &product)) {
        return product;
    }
    return (a < 0) == (b < 0) ? INT64_MAX : INT64_MIN;
}
