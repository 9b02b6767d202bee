/* fuzz_id.c -- the parser of entry IDs. What it takes is written and read again as the same ID; what
 * is written plainly is taken, and nothing else that a plain reading of the rule forbids. */
#include "core/id.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* "ms-seq" or "ms" of decimal digits only, without leading zeros, that fit into 64 bits. */
static bool read_plain(const uint8_t *at, size_t size, uint64_t *number, size_t *used)
{
    *number = 0;
    *used = 0;
    while (*used < size && at[*used] >= '0' && at[*used] <= '9') {
        uint64_t digit = (uint64_t)(at[*used] - '0');
        if (*number > (UINT64_MAX - digit) / 10) {
            return false;
        }
        *number = *number * 10 + digit;
        ++*used;
    }
    return *used > 0 && (at[0] != '0' || *used == 1);
}

static bool is_plain(const uint8_t *data, size_t size, struct impel_id *id)
{
    size_t used = 0;
    size_t more = 0;

    if (!read_plain(data, size, &id->ms, &used)) {
        return false;
    }
    id->seq = 7;
    if (used == size) {
        return true;
    }
    return data[used] == '-' && read_plain(data + used + 1, size - used - 1, &id->seq, &more) &&
           used + 1 + more == size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct impel_id id = {1, 1};
    struct impel_id again = {2, 2};
    struct impel_id plain = {0, 0};
    char text[ID_TEXT_SIZE];
    int rc = id_parse((struct impel_bytes){data, size}, 7, &id);

    if (rc >= 0) {
        ASSERT(strlen(id_format(id, text)) < sizeof(text));
        ASSERT(id_parse(bytes_of(text), 0, &again) >= 0 && id_equal(id, again));
        struct impel_id next = id;
        ASSERT(!id_next(&next) || (id_compare(id, next) < 0 && id_previous(&next)));
        ASSERT(id_equal(id, next));
    } else {
        ASSERT(rc == IMPEL_ERR_INVALID && id.ms == 1 && id.seq == 1);
    }
    if (is_plain(data, size, &plain)) {
        ASSERT(rc >= 0 && id_equal(id, plain));
    }
    return 0;
}
