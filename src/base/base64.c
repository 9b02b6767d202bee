/* base64.c -- the ordinary alphabet, with padding, no line breaks. */
#include "base/json.h"

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_append(struct buf *buf, struct impel_bytes bytes)
{
    const uint8_t *data = bytes.data;
    size_t groups = bytes.size / 3 + (bytes.size % 3 != 0);
    uint8_t *out;

    if (bytes.size == 0) {
        return;
    }
    out = groups > SIZE_MAX / 4 ? NULL : buf_reserve(buf, groups * 4);
    if (out == NULL) {
        buf->failed = true;
        return;
    }
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t word = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                        (left > 2 ? data[i + 2] : 0);
        *out++ = (uint8_t)digits[word >> 18];
        *out++ = (uint8_t)digits[word >> 12 & 63];
        *out++ = (uint8_t)(left > 1 ? digits[word >> 6 & 63] : '=');
        *out++ = (uint8_t)(left > 2 ? digits[word & 63] : '=');
    }
    buf->size += groups * 4;
}

/* The value of a digit, or -1. */
static int digit_value(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct buf *buf, struct impel_bytes text)
{
    const uint8_t *data = text.data;
    size_t padding = 0;

    if (text.size % 4 != 0) {
        return false;
    }
    while (padding < 2 && padding < text.size && data[text.size - 1 - padding] == '=') {
        padding++;
    }
    for (size_t i = 0; i < text.size; i += 4) {
        size_t skip = i + 4 == text.size ? padding : 0;
        uint32_t word = 0;
        uint8_t out[3];
        for (size_t j = 0; j < 4; j++) {
            int value = j >= 4 - skip ? 0 : digit_value(data[i + j]);
            if (value < 0) {
                return false;
            }
            word = word << 6 | (uint32_t)value;
        }
        out[0] = (uint8_t)(word >> 16);
        out[1] = (uint8_t)(word >> 8);
        out[2] = (uint8_t)word;
        buf_append(buf, out, 3 - skip);
    }
    return !buf->failed;
}
