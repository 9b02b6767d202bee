/* keys.c -- commands on keys whatever they hold: DEL, EXISTS, TYPE, KEYS, DBSIZE, FLUSHALL. */
#include "base/glob.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

void call_del(struct call *call)
{
    int64_t deleted = 0;

    for (size_t i = 1; i < call->arg_count; i++) {
        int rc = lmdb_key_delete(call->txn, call->args[i]);
        if (!call_check(call, rc)) {
            return;
        }
        deleted += rc;
    }
    call_reply_integer(call, deleted);
}

void call_exists(struct call *call)
{
    int64_t found = 0;

    for (size_t i = 1; i < call->arg_count; i++) {
        enum lmdb_key_kind kind;
        if (!call_check(call, lmdb_key_kind(call->txn, call->args[i], &kind))) {
            return;
        }
        found += kind != LMDB_KEY_NONE ? 1 : 0;
    }
    call_reply_integer(call, found);
}

const char *key_type_name(enum lmdb_key_kind kind)
{
    static const char *const names[] = {
        [LMDB_KEY_NONE] = "none", [LMDB_KEY_STREAM] = "stream", [LMDB_KEY_STRING] = "string",
        [LMDB_KEY_LIST] = "list", [LMDB_KEY_SET] = "set",
    };
    return names[kind];
}

void call_type(struct call *call)
{
    enum lmdb_key_kind kind;

    if (call_check(call, lmdb_key_kind(call->txn, call->args[1], &kind))) {
        *call->reply = value_status(key_type_name(kind));
    }
}

static const struct impel_bytes from_the_first = {NULL, 0};

void call_keys(struct call *call)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct impel_bytes name;
    enum lmdb_key_kind kind;
    int more = lmdb_walk_keys(&walk, call->txn, from_the_first);

    call->reply->kind = VALUE_ARRAY;
    while (more >= 0 && (more = lmdb_next_key(&walk, &name, &kind)) > 0) {
        if (!glob_matches(call->args[1], name)) {
            continue;
        }
        struct value *item = call_append(call, call->reply);
        if (item == NULL || !call_bulk(call, item, name)) {
            break;
        }
    }
    call_check(call, more);
    lmdb_walk_end(&walk);
}

void call_dbsize(struct call *call)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct impel_bytes name;
    enum lmdb_key_kind kind;
    int64_t count = 0;
    int more = lmdb_walk_keys(&walk, call->txn, from_the_first);

    while (more >= 0 && (more = lmdb_next_key(&walk, &name, &kind)) > 0) {
        count++;
    }
    if (call_check(call, more)) {
        call_reply_integer(call, count);
    }
    lmdb_walk_end(&walk);
}

/* The name is copied: deleting its key takes away the page it lies in. */
static int delete_next(struct call *call, struct lmdb_walk *walk)
{
    struct impel_bytes name, copy;
    enum lmdb_key_kind kind;
    int more = lmdb_next_key(walk, &name, &kind);

    if (more <= 0) {
        return more;
    }
    if (!arena_copy(call->arena, name, &copy)) {
        return IMPEL_ERR_NOMEM;
    }
    return lmdb_key_delete(call->txn, copy);
}

void call_flush(struct call *call)
{
    struct lmdb_walk walk = {.txn = NULL};
    bool known = call_word_is(call, 1, "SYNC") || call_word_is(call, 1, "ASYNC");

    if (call->arg_count > 2 || (call->arg_count == 2 && !known)) {
        call_error_syntax(call);
        return;
    }
    int more = lmdb_walk_keys(&walk, call->txn, from_the_first);
    call_changed(call, 0);
    while (more >= 0 && (more = delete_next(call, &walk)) > 0) {
        call_changed(call, 1);
    }
    if (call_check(call, more)) {
        call_reply_ok(call);
    }
    lmdb_walk_end(&walk);
}
