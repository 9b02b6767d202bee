/* group.c -- XGROUP: making, moving and removing groups and consumers.
 *
 *   XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n]
 *   XGROUP SETID key group id|$ [ENTRIESREAD n]
 *   XGROUP DESTROY key group
 *   XGROUP CREATECONSUMER key group consumer
 *   XGROUP DELCONSUMER key group consumer
 *
 * Options are read first, then the key is looked up, then the group, and only then the ID is
 * parsed: so a bad ID of a missing group is a missing group. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum {
    CREATE_WORDS_MAX = 8,
};

enum group_options {
    TAKES_MKSTREAM = 1,
    TAKES_ENTRIESREAD = 2,
    NEEDS_GROUP = 4,
};

struct xgroup {
    bool make_stream;
    int64_t entries_read; /* -1 = unknown */
    struct lmdb_stream *stream;
    struct lmdb_group *group; /* NULL if there is none */
};

static bool options_parse(struct call *call, struct xgroup *words, unsigned options)
{
    words->entries_read = -1;
    for (size_t i = 5; i < call->arg_count;) {
        if ((options & TAKES_MKSTREAM) != 0 && call_word_is(call, i, "MKSTREAM")) {
            words->make_stream = true;
            i++;
        } else if ((options & TAKES_ENTRIESREAD) != 0 && i + 1 < call->arg_count &&
                   call_word_is(call, i, "ENTRIESREAD")) {
            if (!call_integer(call, i + 1, &words->entries_read)) {
                return false;
            }
            if (words->entries_read < -1) {
                return call_error(call, "ERR value for ENTRIESREAD must be positive or -1");
            }
            i += 2;
        } else {
            return call_error_options(call);
        }
    }
    return true;
}

/* The part that all share. */
static bool xgroup_parse(struct call *call, struct xgroup *words, unsigned options)
{
    if (!options_parse(call, words, options) || !call_stream(call, call->args[2], &words->stream)) {
        return false;
    }
    if (words->stream == NULL && !words->make_stream) {
        return call_error(call, "ERR The XGROUP subcommand requires the key to exist. Note that "
                                "for CREATE you may want to use the MKSTREAM option to create an "
                                "empty stream automatically.");
    }
    if (!call_group(call, words->stream, call->args[3], &words->group)) {
        return false;
    }
    if ((options & NEEDS_GROUP) != 0 && words->group == NULL) {
        return call_error(call, "NOGROUP No such consumer group '%.*s' for key name '%.*s'",
                          CALL_TEXT(call->args[3]), CALL_TEXT(call->args[2]));
    }
    return true;
}

/* The ID of CREATE and SETID; SETID takes "-" and "+" too. */
static bool
position_parse(struct call *call, const struct xgroup *words, bool loose, struct impel_id *out)
{
    if (bytes_equal(call->args[4], bytes_of("$"))) {
        *out = words->stream == NULL ? ID_MIN : words->stream->last_id;
        return true;
    }
    return loose ? call_id_loose(call, 4, 0, out) : call_id(call, 4, 0, out);
}

void call_xgroup_create(struct call *call)
{
    struct xgroup words = {.stream = NULL};
    struct impel_id id;

    if (!xgroup_parse(call, &words, TAKES_MKSTREAM | TAKES_ENTRIESREAD)) {
        return;
    }
    if (call->arg_count > CREATE_WORDS_MAX) {
        call_error_options(call);
        return;
    }
    if (!position_parse(call, &words, false, &id)) {
        return;
    }
    if (words.group != NULL) {
        call_error(call, "BUSYGROUP Consumer Group name already exists");
        return;
    }
    if (words.stream == NULL &&
        !call_check(call, lmdb_stream_open(call->txn, call->args[2], &words.stream))) {
        return;
    }
    if (call_check(call, lmdb_group_create(call->txn, words.stream, call->args[3], id,
                                           words.entries_read, NULL))) {
        call_reply_ok(call);
    }
}

void call_xgroup_setid(struct call *call)
{
    struct xgroup words = {.stream = NULL};
    struct impel_id id;

    if (!xgroup_parse(call, &words, TAKES_ENTRIESREAD | NEEDS_GROUP)) {
        return;
    }
    if (call->arg_count != 5 && call->arg_count != 7) {
        call_error_options(call);
        return;
    }
    if (!position_parse(call, &words, true, &id)) {
        return;
    }
    words.group->last_id = id;
    words.group->entries_read = words.entries_read;
    lmdb_group_changed(call->txn, words.group);
    call_reply_ok(call);
}

void call_xgroup_destroy(struct call *call)
{
    struct xgroup words = {.stream = NULL};

    if (!xgroup_parse(call, &words, 0)) {
        return;
    }
    bool there = words.group != NULL;
    if (!there || (call_check(call, lmdb_group_keep_floor(call->txn, words.group)) &&
                   call_check(call, lmdb_group_destroy(call->txn, words.group)))) {
        call_reply_integer(call, there ? 1 : 0);
    }
}

void call_xgroup_createconsumer(struct call *call)
{
    struct xgroup words = {.stream = NULL};
    struct lmdb_consumer *consumer;

    if (!xgroup_parse(call, &words, NEEDS_GROUP)) {
        return;
    }
    int created = lmdb_consumer_open(call->txn, words.group, call->args[4], &consumer);
    if (call_check(call, created)) {
        call_reply_integer(call, created);
    }
}

void call_xgroup_delconsumer(struct call *call)
{
    struct xgroup words = {.stream = NULL};
    struct lmdb_consumer *consumer;
    uint64_t pending = 0;

    if (!xgroup_parse(call, &words, NEEDS_GROUP)) {
        return;
    }
    int rc = lmdb_consumer_find(call->txn, words.group, call->args[4], &consumer);
    call_changed(call, rc >= 0);
    if (rc >= 0) {
        rc = lmdb_consumer_delete(call->txn, consumer, &pending);
    }
    if (rc == IMPEL_ERR_NOT_FOUND || call_check(call, rc)) {
        call_reply_integer(call, (int64_t)pending);
    }
}

void call_xgroup_help(struct call *call)
{
    static const char *const lines[] = {
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
        "HELP",
        "    Print this help.",
    };
    call_reply_lines(call, lines, ARRAY_SIZE(lines));
}
