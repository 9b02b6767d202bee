/* scan.c -- SCAN and RANDOMKEY.
 *
 * Every stream has a number of its own that is never used again, and rows ordered by it: the cursor
 * is the number of the next one. So a scan needs no memory between its steps, gives a key that is
 * there all the time exactly once, and does not mind what comes and goes. The few other keys,
 * which have no such rows, come with the last step. */
#include "base/glob.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/txn.h"

enum {
    COUNT_DEFAULT = 10,
    ALL_KINDS = ((1 << (LMDB_KEY_SET + 1)) - 1) & ~(1 << LMDB_KEY_NONE),
};

struct scan {
    uint64_t cursor;
    int64_t count;
    struct impel_bytes pattern; /* data NULL: all */
    unsigned kinds;             /* the types that are asked for, 1 << enum lmdb_key_kind each */
    struct value *list;
};

static bool scan_cursor(struct call *call, uint64_t *out)
{
    struct impel_bytes word = call->args[1];
    uint64_t number = 0;

    for (size_t i = 0; i < word.size; i++) {
        unsigned digit = ((const unsigned char *)word.data)[i] - (unsigned)'0';
        if (digit > 9 || number > (UINT64_MAX - digit) / 10) {
            return call_error(call, "ERR invalid cursor");
        }
        number = number * 10 + digit;
    }
    if (word.size == 0) {
        return call_error(call, "ERR invalid cursor");
    }
    *out = number;
    return true;
}

static unsigned kinds_named(struct call *call, size_t index)
{
    for (unsigned kind = LMDB_KEY_STREAM; kind <= LMDB_KEY_SET; kind++) {
        if (call_word_is(call, index, key_type_name((enum lmdb_key_kind)kind))) {
            return 1U << kind;
        }
    }
    return 0;
}

static bool scan_words(struct call *call, struct scan *scan)
{
    if (!scan_cursor(call, &scan->cursor)) {
        return false;
    }
    for (size_t i = 2; i < call->arg_count; i += 2) {
        if (i + 1 == call->arg_count) {
            return call_error_syntax(call);
        }
        if (call_word_is(call, i, "COUNT")) {
            if (!call_integer(call, i + 1, &scan->count)) {
                return false;
            }
            if (scan->count < 1) {
                return call_error_syntax(call);
            }
        } else if (call_word_is(call, i, "MATCH")) {
            scan->pattern = call->args[i + 1];
        } else if (call_word_is(call, i, "TYPE")) {
            scan->kinds = kinds_named(call, i + 1);
        } else {
            return call_error_syntax(call);
        }
    }
    return true;
}

/* Adds a name, if it is asked for and its key has not expired. */
static bool scan_take(struct call *call, struct scan *scan, struct impel_bytes name)
{
    enum lmdb_key_kind kind;
    struct value item;

    if (scan->pattern.data != NULL && !glob_matches(scan->pattern, name)) {
        return true;
    }
    /* Copied first: looking at the key may delete it, and then its page changes. */
    if (!call_bulk(call, &item, name) ||
        !call_check(call, lmdb_key_kind(call->txn, item.bytes, &kind))) {
        return false;
    }
    if ((scan->kinds & 1U << kind) == 0) {
        return true;
    }
    struct value *at = call_append(call, scan->list);
    if (at != NULL) {
        *at = item;
    }
    return at != NULL;
}

/* The next stream at or behind a number. IMPEL_OK or NOT_FOUND. */
static int next_stream(struct call *call, uint64_t from, uint64_t *number, struct impel_bytes *name)
{
    struct lmdb_key key;
    MDB_val value;

    key_of_number(&key, 's', from);
    MDB_val at = {key.size, key.data};
    int rc = row_seek(call->txn, DB_CATALOG, &at, 1, &value);
    if (rc < 0) {
        return rc;
    }
    if (at.mv_size != key.size || value.mv_size < sizeof(struct disk_stream)) {
        return lmdb_fail(call->txn, IMPEL_ERR_CORRUPT, "a stream's row");
    }
    *number = get_be64((const uint8_t *)at.mv_data + 1);
    *name = (struct impel_bytes){(const uint8_t *)value.mv_data + sizeof(struct disk_stream),
                                 value.mv_size - sizeof(struct disk_stream)};
    return rc;
}

/* Streams created in this transaction have their row only after this. */
static bool write_back(struct call *call)
{
    return !call->txn->write || call_check(call, lmdb_txn_flush(call->txn));
}

static bool scan_streams(struct call *call, struct scan *scan)
{
    uint64_t number = scan->cursor;
    struct impel_bytes name = {0};

    for (int64_t i = 0; i < scan->count; i++) {
        int rc = next_stream(call, number, &number, &name);
        if (rc == IMPEL_ERR_NOT_FOUND) {
            scan->cursor = 0;
            return true;
        }
        if (!call_check(call, rc) ||
            ((scan->kinds & 1U << LMDB_KEY_STREAM) != 0 && !scan_take(call, scan, name))) {
            return false;
        }
        number++;
    }
    scan->cursor = number;
    return true;
}

static bool scan_others(struct call *call, struct scan *scan)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct impel_bytes name = {0};
    enum lmdb_key_kind kind;
    uint8_t letter = 'v';
    MDB_val key = {1, &letter};
    MDB_val value;
    int more = row_seek(call->txn, DB_CATALOG, &key, 1, &value);

    if (more == IMPEL_ERR_NOT_FOUND) {
        return true;
    }
    more = more < 0 ? more : lmdb_walk_keys(&walk, call->txn, (struct impel_bytes){NULL, 0});
    while (more >= 0 && (more = lmdb_next_key(&walk, &name, &kind)) > 0) {
        if (kind != LMDB_KEY_STREAM && !scan_take(call, scan, name)) {
            break;
        }
    }
    lmdb_walk_end(&walk);
    return call_check(call, more) && call->status >= 0;
}

void call_scan(struct call *call)
{
    struct scan scan = {.count = COUNT_DEFAULT, .kinds = ALL_KINDS};

    if (!scan_words(call, &scan) || !write_back(call)) {
        return;
    }
    struct value *pair = call_list(call, call->reply, VALUE_ARRAY, 2);
    if (pair == NULL) {
        return;
    }
    pair[1].kind = VALUE_ARRAY;
    scan.list = &pair[1];
    if (!scan_streams(call, &scan) ||
        (scan.cursor == 0 && (scan.kinds & ~(1U << LMDB_KEY_STREAM)) != 0 &&
         !scan_others(call, &scan))) {
        return;
    }
    call_bulk_integer(call, &pair[0], scan.cursor);
}

void call_randomkey(struct call *call)
{
    uint64_t seed = (uint64_t)lmdb_now_ms(call->txn) ^ (uint64_t)(uintptr_t)call->reply;
    struct scan scan = {.kinds = ALL_KINDS, .list = call->reply};
    uint64_t number = 0;
    struct impel_bytes name = {0};

    if (!write_back(call) || !call_check(call, catalog_meta(call->txn))) {
        return;
    }
    /* From a random number on; if nothing is there, from the first. */
    uint64_t from = random_next(&seed) % (call->txn->meta.next_number + 1);
    int rc = next_stream(call, from, &number, &name);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        rc = next_stream(call, 0, &number, &name);
    }
    if (rc == IMPEL_ERR_NOT_FOUND) {
        struct value list = {.kind = VALUE_ARRAY};
        scan.list = &list;
        if (scan_others(call, &scan) && list.item_count > 0) {
            *call->reply = list.items[0];
        }
    } else if (call_check(call, rc)) {
        call_bulk(call, call->reply, name);
    }
}
