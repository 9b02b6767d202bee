/* object.c -- OBJECT and MEMORY USAGE: what a key is and what it costs. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum {
    SAMPLES_DEFAULT = 5,
    ROW_COST = 48,     /* of a row beside its value: key, header, share of the tree */
    PENDING_COST = 96, /* two rows */
};

/* The kind of the key at args[2]; a missing key ends the command with a null. */
static bool object_kind_of(struct call *call, enum lmdb_key_kind *kind)
{
    return call_check(call, lmdb_key_kind(call->txn, call->args[2], kind)) &&
           *kind != LMDB_KEY_NONE;
}

void call_object_encoding(struct call *call)
{
    enum lmdb_key_kind kind;

    if (object_kind_of(call, &kind)) {
        static const char *const names[] = {[LMDB_KEY_NONE] = "",
                                            [LMDB_KEY_STREAM] = "stream",
                                            [LMDB_KEY_STRING] = "raw",
                                            [LMDB_KEY_LIST] = "quicklist",
                                            [LMDB_KEY_SET] = "hashtable"};
        *call->reply = value_text(names[kind]);
    }
}

void call_object_refcount(struct call *call)
{
    enum lmdb_key_kind kind;

    if (object_kind_of(call, &kind)) {
        call_reply_integer(call, 1);
    }
}

/* Nobody keeps when a key was last looked at. */
void call_object_idletime(struct call *call)
{
    enum lmdb_key_kind kind;

    if (object_kind_of(call, &kind)) {
        call_reply_integer(call, 0);
    }
}

void call_object_freq(struct call *call)
{
    enum lmdb_key_kind kind;

    if (object_kind_of(call, &kind)) {
        call_error(call, "ERR An LFU maxmemory policy is not selected, access frequency not "
                         "tracked. Please note that when switching between policies at runtime "
                         "LRU and LFU data will take some time to adjust.");
    }
}

void call_object_help(struct call *call)
{
    static const char *const lines[] = {
        "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "ENCODING <key>",
        "    Return the kind of internal representation of the key.",
        "FREQ <key>",
        "    Not kept here.",
        "IDLETIME <key>",
        "    Not kept here: 0.",
        "REFCOUNT <key>",
        "    1 for a key that exists.",
        "HELP",
        "    Print this help.",
    };
    call_reply_lines(call, lines, ARRAY_SIZE(lines));
}

/* ---- MEMORY USAGE ---- */

/* The mean of the first entries stands for all. */
static bool
entries_cost(struct call *call, struct lmdb_stream *stream, uint64_t samples, uint64_t *cost)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_raw raw;
    uint64_t seen = 0, bytes = 0;
    struct impel_id end = {UINT64_MAX, UINT64_MAX};
    int more = lmdb_walk_entries(&walk, call->txn, stream, (struct impel_id){0, 0}, end, false);

    while (more >= 0 && (samples == 0 || seen < samples) &&
           (more = lmdb_next_entry(&walk, &raw)) > 0) {
        seen++;
        bytes += raw.bytes.size + ROW_COST;
    }
    lmdb_walk_end(&walk);
    *cost = seen == 0 ? 0 : bytes * stream->length / seen;
    return call_check(call, more);
}

static bool groups_cost(struct call *call, struct lmdb_stream *stream, uint64_t *cost)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_group *group = NULL;
    int more = lmdb_walk_groups(&walk, call->txn, stream);

    *cost = 0;
    while (more >= 0 && (more = lmdb_next_group(&walk, &group)) > 0) {
        *cost += group->pending * PENDING_COST + (group->consumer_count + 1) * 2 * ROW_COST;
    }
    lmdb_walk_end(&walk);
    return call_check(call, more);
}

void call_memory_usage(struct call *call)
{
    int64_t samples = SAMPLES_DEFAULT;
    struct lmdb_stream *stream = NULL;
    struct impel_bytes value;
    uint64_t entries = 0, groups = 0;

    if (call->arg_count != 3 && (call->arg_count != 5 || !call_word_is(call, 3, "SAMPLES"))) {
        call_error_syntax(call);
        return;
    }
    if (call->arg_count == 5 && !call_integer(call, 4, &samples)) {
        return;
    }
    if (samples < 0) {
        call_error_syntax(call);
        return;
    }
    int rc = lmdb_stream_find(call->txn, call->args[2], &stream);
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        rc = lmdb_string_get(call->txn, call->args[2], &value);
        if (rc == IMPEL_ERR_WRONG_TYPE) {
            struct lmdb_collection collection = {0};
            rc = lmdb_collection_look(call->txn, call->args[2], &collection);
            entries = collection.count * ROW_COST;
        } else if (rc >= 0) {
            entries = value.size;
        }
        if (call_check(call, rc)) {
            call_reply_integer(call, (int64_t)entries + (int64_t)2 * ROW_COST);
        }
    } else if (rc != IMPEL_ERR_NOT_FOUND && call_check(call, rc) &&
               entries_cost(call, stream, (uint64_t)samples, &entries) &&
               groups_cost(call, stream, &groups)) {
        call_reply_integer(call,
                           (int64_t)(entries + groups + (stream->node_count + 2) * 2 * ROW_COST));
    }
}
