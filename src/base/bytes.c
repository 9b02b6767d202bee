/* bytes.c -- spans: comparing them and showing them to people. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct impel_bytes bytes_of(const char *text)
{
    return (struct impel_bytes){text, strlen(text)};
}

bool bytes_equal(struct impel_bytes a, struct impel_bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

int bytes_compare(struct impel_bytes a, struct impel_bytes b)
{
    size_t shared = a.size < b.size ? a.size : b.size;
    int order = shared == 0 ? 0 : memcmp(a.data, b.data, shared);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

bool bytes_equal_nocase(struct impel_bytes bytes, const char *text)
{
    if (bytes.size == 0) {
        return text[0] == '\0';
    }
    /* Mostly the first byte tells: letters differ from theirs of the other case in 0x20 alone. */
    return ((*(const unsigned char *)bytes.data ^ (unsigned char)text[0]) & 0xdf) == 0 &&
           bytes.size == strlen(text) && strncasecmp(bytes.data, text, bytes.size) == 0;
}

const char *bytes_quote(struct impel_bytes bytes, char *text, size_t size)
{
    const uint8_t *data = bytes.data;
    size_t used = 0;

    ASSERT(size >= 8);
    for (size_t i = 0; i < bytes.size; i++) {
        bool plain = data[i] >= 0x20 && data[i] < 0x7f && data[i] != '\\';
        size_t need = plain ? 1 : 4;
        if (used + need + 4 > size) {
            memcpy(text + used, "...", 3);
            used += 3;
            break;
        }
        if (plain) {
            text[used] = (char)data[i];
        } else {
            snprintf(text + used, size - used, "\\x%02x", data[i]);
        }
        used += need;
    }
    text[used] = '\0';
    return text;
}
