/* fuzz_resp.c -- the codec against any bytes. The first byte chooses: replies or requests, and the
 * size of the pieces in which the rest arrives.
 *
 * Checked beside "no crash": pieces and the whole give the same answer; what was read and is
 * written again reads as the same tree. */
#include "resp/resp.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool same(const struct value *a, const struct value *b)
{
    if (a->kind != b->kind || a->integer != b->integer || !bytes_equal(a->bytes, b->bytes) ||
        a->item_count != b->item_count) {
        return false;
    }
    for (size_t i = 0; i < a->item_count; i++) {
        if (!same(&a->items[i], &b->items[i])) {
            return false;
        }
    }
    return true;
}

/* In RESP3 a null has one form, and what is written as a line has blanks for ends of line. */
static bool writes_differently(const struct value *value)
{
    bool differs = value->kind == VALUE_NULL_ARRAY ||
                   (value->kind != VALUE_BULK && value->kind != VALUE_VERBATIM &&
                    value->bytes.size > 0 && memchr(value->bytes.data, '\n', value->bytes.size)) ||
                   (value->kind == VALUE_ERROR && value->bytes.size > 0 &&
                    memchr(value->bytes.data, '\r', value->bytes.size));

    for (size_t i = 0; i < value->item_count && !differs; i++) {
        differs = writes_differently(&value->items[i]);
    }
    return differs;
}

static void check_written(const struct value *value)
{
    struct arena arena = {0};
    struct resp_limits limits;
    struct resp_scan scan;
    struct value again;
    struct buf buf;
    size_t size = 0;

    buf_init(&buf, (size_t)1 << 30);
    resp_put_value(&buf, value, 3);
    resp_limits_default(&limits);
    resp_scan_init(&scan, &limits);
    ASSERT(!buf.failed);
    ASSERT(resp_scan_reply(&scan, buf_bytes(&buf), &size, NULL) == 1 && size == buf.size);
    ASSERT(resp_read_reply(buf_bytes(&buf), &arena, &again, NULL) == IMPEL_OK);
    ASSERT(writes_differently(value) || same(value, &again));
    arena_release(&arena);
    buf_release(&buf);
}

/* The bytes so far, in a block of just that size: a look beyond its end is seen by a sanitizer. */
static struct impel_bytes part_of(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size + 1);

    ASSERT(copy != NULL);
    memcpy(copy, data, size);
    return (struct impel_bytes){realloc(copy, size), size};
}

static void fuzz_reply(const uint8_t *data, size_t size, size_t piece)
{
    struct resp_limits limits = {.bulk_max = 1 << 20, .items_max = 1 << 16, .total_max = 1 << 21};
    struct resp_scan scan, scan_once;
    size_t whole = 0, whole_once = 0;
    int rc = 0;

    resp_scan_init(&scan, &limits);
    for (size_t have = 0; rc == 0 && have < size;) {
        have = have + piece < size ? have + piece : size;
        struct impel_bytes part = part_of(data, have);
        rc = resp_scan_reply(&scan, part, &whole, NULL);
        free((void *)part.data);
    }
    resp_scan_init(&scan_once, &limits);
    int rc_once = resp_scan_reply(&scan_once, (struct impel_bytes){data, size}, &whole_once, NULL);
    ASSERT(rc == rc_once && whole == whole_once);
    if (rc == 1) {
        struct arena arena = {0};
        struct value value;
        if (resp_read_reply((struct impel_bytes){data, whole}, &arena, &value, NULL) == IMPEL_OK) {
            check_written(&value);
        }
        arena_release(&arena);
    }
}

static void fuzz_request(const uint8_t *data, size_t size, size_t piece)
{
    struct resp_limits limits = {.bulk_max = 1 << 20, .items_max = 1 << 16, .total_max = 1 << 21};
    struct resp_request_scan scan;
    size_t whole = 0;
    int rc = 0;

    resp_request_scan_init(&scan, &limits);
    scan.unauthenticated = piece % 2 == 0;
    for (size_t have = 0; rc == 0 && have < size;) {
        have = have + piece < size ? have + piece : size;
        struct impel_bytes part = part_of(data, have);
        rc = resp_scan_request(&scan, part, &whole, NULL);
        free((void *)part.data);
    }
    if (rc == 1) {
        struct arena arena = {0};
        struct impel_bytes *args = NULL;
        size_t count = 0;
        rc = resp_read_request((struct impel_bytes){data, whole}, &arena, &args, &count, NULL);
        for (size_t i = 0; rc == IMPEL_OK && i < count; i++) {
            ASSERT(hash_bytes(args[i], 1) == hash_bytes(args[i], 1)); /* every byte is there */
        }
        arena_release(&arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t piece = (size_t)(data[0] >> 1) % 64 + 1;
    if (data[0] & 1) {
        fuzz_request(data + 1, size - 1, piece);
    } else {
        fuzz_reply(data + 1, size - 1, piece);
    }
    return 0;
}
