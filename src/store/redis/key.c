/* key.c -- the name of a group's workers table: impel:{TAG}:w:LENGTH:STREAM:GROUP.
 *
 * TAG puts it on the slot of its stream, as a cluster computes it: the part of a key between the
 * first "{" and the first "}" behind it, if there is anything, else the whole key. So it is the
 * stream's own tag, else its name; only a name that would be cut elsewhere (it has a "}" but no tag,
 * or is empty) needs a tag that is looked for: the first number with the same slot. LENGTH (of the
 * stream's name) keeps apart what colons in names would run together. */
#include "store/redis/redis.h"

#include <stdio.h>
#include <string.h>

enum {
    SLOTS = 16384,
};

/* CRC-16 as clusters use it (XMODEM). */
static unsigned slot_of(const char *text, size_t size)
{
    unsigned crc = 0;

    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(uint8_t)text[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc << 1 ^ (crc & 0x8000 ? 0x1021u : 0)) & 0xffff;
        }
    }
    return crc % SLOTS;
}

static bool own_tag(struct impel_bytes name, struct impel_bytes *tag)
{
    const char *open = name.size > 0 ? memchr(name.data, '{', name.size) : NULL;

    if (open == NULL) {
        return false;
    }
    size_t left = (size_t)((const char *)name.data + name.size - open) - 1;
    const char *close = memchr(open + 1, '}', left);
    if (close == NULL || close == open + 1) {
        return false;
    }
    *tag = (struct impel_bytes){open + 1, (size_t)(close - open) - 1};
    return true;
}

static struct impel_bytes found_tag(struct impel_bytes name, char *text, size_t size)
{
    unsigned slot = slot_of(name.data, name.size);

    for (unsigned number = 0;; number++) {
        int n = snprintf(text, size, "%u", number);
        if (slot_of(text, (size_t)n) == slot) {
            return (struct impel_bytes){text, (size_t)n};
        }
    }
}

struct impel_bytes helper_key(struct op *op, struct impel_bytes stream, char kind)
{
    struct request *request = op->request;
    struct impel_bytes tag = stream;
    char text[16];
    struct buf key;
    struct impel_bytes out = {"", 0};

    if (!own_tag(stream, &tag) &&
        (stream.size == 0 || memchr(stream.data, '}', stream.size) != NULL)) {
        tag = found_tag(stream, text, sizeof(text));
    }
    buf_init(&key, SIZE_MAX / 2);
    buf_append_text(&key, "impel:{");
    buf_append_bytes(&key, tag);
    buf_appendf(&key, "}:%c:%zu:", kind, stream.size);
    buf_append_bytes(&key, stream);
    buf_append_text(&key, ":");
    buf_append_bytes(&key, request->group);
    if (key.failed || !arena_copy(&request->arena, buf_bytes(&key), &out)) {
        op->store->command.failed = true;
    }
    buf_release(&key);
    return out;
}
