/* info.c -- XINFO: what streams, groups and consumers look like from outside.
 *
 *   XINFO STREAM key [FULL [COUNT n]]      XINFO GROUPS key      XINFO CONSUMERS key group
 *
 * Names and order of the pairs are Redis's. Where it counts radix tree nodes we give a number that
 * grows with the stream as its own does: there is no such tree here. */
#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum {
    FULL_COUNT_DEFAULT = 10,
};

/* A map that is filled in pair by pair. */
struct pairs {
    struct call *call;
    struct value *at; /* NULL once memory is out */
};

static struct pairs pairs_begin(struct call *call, struct value *out, size_t pair_count)
{
    return (struct pairs){call, call_list(call, out, VALUE_MAP, pair_count * 2)};
}

/* Sets the next key; returns the place of its value, or NULL. */
static struct value *pair(struct pairs *pairs, const char *key)
{
    struct value *at = pairs->at;

    if (at == NULL) {
        return NULL;
    }
    at[0] = value_text(key);
    pairs->at = at + 2;
    return &at[1];
}

static void pair_integer(struct pairs *pairs, const char *key, int64_t integer)
{
    struct value *value = pair(pairs, key);
    if (value != NULL) {
        *value = value_integer(integer);
    }
}

static void pair_id(struct pairs *pairs, const char *key, struct impel_id id)
{
    struct value *value = pair(pairs, key);
    if (value != NULL && !call_bulk_id(pairs->call, value, id)) {
        pairs->at = NULL;
    }
}

static void pair_bytes(struct pairs *pairs, const char *key, struct impel_bytes bytes)
{
    struct value *value = pair(pairs, key);
    if (value != NULL && !call_bulk(pairs->call, value, bytes)) {
        pairs->at = NULL;
    }
}

/* entries-read and lag; null where unknown. */
static void pairs_progress(struct pairs *pairs, const struct lmdb_group *group)
{
    int64_t lag;

    if (group->entries_read < 0) {
        pair(pairs, "entries-read"); /* stays null */
    } else {
        pair_integer(pairs, "entries-read", group->entries_read);
    }
    if (lmdb_group_lag(group, &lag)) {
        pair_integer(pairs, "lag", lag);
    } else {
        pair(pairs, "lag");
    }
}

/* The key of every XINFO; a missing one ends the command. */
static bool info_stream(struct call *call, struct lmdb_stream **stream)
{
    if (!call_stream(call, call->args[2], stream)) {
        return false;
    }
    return *stream != NULL || call_error(call, "ERR no such key");
}

/* ---- XINFO STREAM ---- */

static void pairs_stream(struct pairs *pairs, const struct lmdb_stream *stream)
{
    pair_integer(pairs, "length", (int64_t)stream->length);
    pair_integer(pairs, "radix-tree-keys", (int64_t)stream->node_count);
    pair_integer(pairs, "radix-tree-nodes", (int64_t)stream->node_count + 1);
    pair_id(pairs, "last-generated-id", stream->last_id);
    pair_id(pairs, "max-deleted-entry-id", stream->max_deleted_id);
    pair_integer(pairs, "entries-added", (int64_t)stream->entries_added);
    pair_id(pairs, "recorded-first-entry-id", stream->first_id);
}

/* The first or the last entry, or null. */
static bool
entry_at_end(struct call *call, struct lmdb_stream *stream, bool last, struct value *out)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_raw raw;
    int more = lmdb_walk_entries(&walk, call->txn, stream, ID_MIN, ID_MAX, last);

    if (more >= 0) {
        more = lmdb_next_entry(&walk, &raw);
    }
    bool good = call_check(call, more) && (more == 0 || call_entry(call, out, &raw));
    lmdb_walk_end(&walk);
    return good;
}

enum {
    IDMP_PAIRS = 6,
};

/* Whether the stream has to do with idempotent adds; only then it is told. */
static bool
idmp_of(struct call *call, struct lmdb_stream *stream, struct lmdb_idmp *idmp, bool *has)
{
    int rc = lmdb_idmp_get(call->txn, stream, idmp);

    *has = rc >= 0;
    return rc == IMPEL_ERR_NOT_FOUND || call_check(call, rc);
}

static void pairs_idmp(struct pairs *pairs, const struct lmdb_idmp *idmp)
{
    pair_integer(pairs, "idmp-duration", idmp->duration_s);
    pair_integer(pairs, "idmp-maxsize", idmp->iids_max);
    pair_integer(pairs, "pids-tracked", (int64_t)idmp->producers);
    pair_integer(pairs, "iids-tracked", (int64_t)idmp->iids);
    pair_integer(pairs, "iids-added", (int64_t)idmp->added);
    pair_integer(pairs, "iids-duplicates", (int64_t)idmp->duplicates);
}

static void stream_short(struct call *call, struct lmdb_stream *stream)
{
    struct lmdb_idmp idmp;
    bool idempotent;

    if (!idmp_of(call, stream, &idmp, &idempotent)) {
        return;
    }
    struct pairs pairs = pairs_begin(call, call->reply, 10 + (idempotent ? IDMP_PAIRS : 0));
    pairs_stream(&pairs, stream);
    if (idempotent) {
        pairs_idmp(&pairs, &idmp);
    }
    pair_integer(&pairs, "groups", (int64_t)stream->group_count);
    struct value *first = pair(&pairs, "first-entry");
    struct value *last = pair(&pairs, "last-entry");
    if (first != NULL && last != NULL && entry_at_end(call, stream, false, first)) {
        entry_at_end(call, stream, true, last);
    }
}

/* ---- XINFO STREAM FULL ---- */

/* At most `count` rows of a walk: with the owner's name in a group's list, without in a
 * consumer's. Ends the walk. */
static bool full_rows(struct call *call,
                      struct lmdb_group *group,
                      struct lmdb_walk *walk,
                      uint64_t count,
                      bool with_owner,
                      struct value *list)
{
    struct lmdb_pending row;
    bool good = true;
    int more = 0;

    list->kind = VALUE_ARRAY;
    for (uint64_t i = 0; good && i < count && (more = lmdb_next_pending(walk, &row)) > 0; i++) {
        struct impel_bytes owner;
        struct value *item = call_append(call, list);
        struct value *at =
            item == NULL ? NULL : call_list(call, item, VALUE_ARRAY, with_owner ? 4 : 3);
        good = at != NULL && call_bulk_id(call, at, row.id);
        if (good && with_owner) {
            good = call_owner_name(call, group, row.owner, &owner) && call_bulk(call, ++at, owner);
        }
        if (good) {
            at[1] = value_integer(row.delivered_ms);
            at[2] = value_integer(row.deliveries);
        }
    }
    lmdb_walk_end(walk);
    return good && call_check(call, more);
}

static bool
full_consumer(struct call *call, struct lmdb_consumer *consumer, uint64_t count, struct value *out)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct pairs pairs = pairs_begin(call, out, 5);

    pair_bytes(&pairs, "name", consumer->name);
    pair_integer(&pairs, "seen-time", consumer->seen_ms);
    pair_integer(&pairs, "active-time", consumer->active_ms);
    pair_integer(&pairs, "pel-count", (int64_t)consumer->pending);
    struct value *rows = pair(&pairs, "pending");
    return rows != NULL && call_check(call, lmdb_walk_owned(&walk, call->txn, consumer, ID_MIN)) &&
           full_rows(call, consumer->group, &walk, count, false, rows);
}

static bool
full_consumers(struct call *call, struct lmdb_group *group, uint64_t count, struct value *list)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_consumer *consumer;
    bool good = call_check(call, lmdb_walk_consumers(&walk, call->txn, group));
    int more = 0;

    list->kind = VALUE_ARRAY;
    while (good && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        struct value *item = call_append(call, list);
        good = item != NULL && full_consumer(call, consumer, count, item);
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

/* How many pending rows are nobody's: what the consumers do not have. */
static bool count_nobodys(struct call *call, struct lmdb_group *group, uint64_t *count)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_consumer *consumer;
    bool good = call_check(call, lmdb_walk_consumers(&walk, call->txn, group));
    int more = 0;

    *count = group->pending;
    while (good && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        *count -= consumer->pending;
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

static bool
full_group(struct call *call, struct lmdb_group *group, uint64_t count, struct value *out)
{
    struct lmdb_walk walk = {.txn = NULL};
    uint64_t nobodys = 0;

    if (!count_nobodys(call, group, &nobodys)) {
        return false;
    }
    struct pairs pairs = pairs_begin(call, out, nobodys > 0 ? 8 : 7);
    pair_bytes(&pairs, "name", group->name);
    pair_id(&pairs, "last-delivered-id", group->last_id);
    pairs_progress(&pairs, group);
    pair_integer(&pairs, "pel-count", (int64_t)group->pending);
    struct value *rows = pair(&pairs, "pending");
    struct value *consumers = pair(&pairs, "consumers");
    if (nobodys > 0) {
        pair_integer(&pairs, "nacked-count", (int64_t)nobodys);
    }
    return consumers != NULL &&
           call_check(call, lmdb_walk_pending(&walk, call->txn, group, ID_MIN)) &&
           full_rows(call, group, &walk, count, true, rows) &&
           full_consumers(call, group, count, consumers);
}

static bool
full_groups(struct call *call, struct lmdb_stream *stream, uint64_t count, struct value *list)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_group *group;
    bool good = call_check(call, lmdb_walk_groups(&walk, call->txn, stream));
    int more = 0;

    list->kind = VALUE_ARRAY;
    while (good && (more = lmdb_next_group(&walk, &group)) > 0) {
        struct value *item = call_append(call, list);
        good = item != NULL && full_group(call, group, count, item);
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

static void stream_full(struct call *call, struct lmdb_stream *stream, uint64_t count)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_idmp idmp;
    bool idempotent;

    if (!idmp_of(call, stream, &idmp, &idempotent)) {
        return;
    }
    struct pairs pairs = pairs_begin(call, call->reply, 9 + (idempotent ? IDMP_PAIRS : 0));
    pairs_stream(&pairs, stream);
    if (idempotent) {
        pairs_idmp(&pairs, &idmp);
    }
    struct value *entries = pair(&pairs, "entries");
    struct value *groups = pair(&pairs, "groups");
    if (groups == NULL) {
        return;
    }
    entries->kind = VALUE_ARRAY;
    bool good =
        call_check(call, lmdb_walk_entries(&walk, call->txn, stream, ID_MIN, ID_MAX, false)) &&
        call_entries(call, entries, &walk, count);
    lmdb_walk_end(&walk);
    if (good) {
        full_groups(call, stream, count, groups);
    }
}

/* FULL [COUNT n]; 0 is no limit, a negative one the default. */
static bool full_parse(struct call *call, uint64_t *count)
{
    int64_t given = FULL_COUNT_DEFAULT;
    bool counted = call->arg_count == 6;

    if ((call->arg_count != 4 && !counted) || !call_word_is(call, 3, "FULL") ||
        (counted && !call_word_is(call, 4, "COUNT"))) {
        return call_error_options(call);
    }
    if (counted && !call_integer(call, 5, &given)) {
        return false;
    }
    given = given < 0 ? FULL_COUNT_DEFAULT : given;
    *count = given == 0 ? UINT64_MAX : (uint64_t)given;
    return true;
}

void call_xinfo_stream(struct call *call)
{
    struct lmdb_stream *stream;
    uint64_t count = 0;

    if (!info_stream(call, &stream)) {
        return;
    }
    if (call->arg_count == 3) {
        stream_short(call, stream);
    } else if (full_parse(call, &count)) {
        stream_full(call, stream, count);
    }
}

/* ---- XINFO GROUPS, CONSUMERS, HELP ---- */

void call_xinfo_groups(struct call *call)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_stream *stream;
    struct lmdb_group *group;
    int more = 0;

    if (!info_stream(call, &stream)) {
        return;
    }
    call->reply->kind = VALUE_ARRAY;
    bool good = call_check(call, lmdb_walk_groups(&walk, call->txn, stream));
    while (good && (more = lmdb_next_group(&walk, &group)) > 0) {
        struct value *item = call_append(call, call->reply);
        if (item == NULL) {
            break;
        }
        struct pairs pairs = pairs_begin(call, item, 6);
        pair_bytes(&pairs, "name", group->name);
        pair_integer(&pairs, "consumers", (int64_t)group->consumer_count);
        pair_integer(&pairs, "pending", (int64_t)group->pending);
        pair_id(&pairs, "last-delivered-id", group->last_id);
        pairs_progress(&pairs, group);
        good = pairs.at != NULL;
    }
    call_check(call, more);
    lmdb_walk_end(&walk);
}

void call_xinfo_consumers(struct call *call)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_stream *stream;
    struct lmdb_group *group;
    struct lmdb_consumer *consumer;
    int64_t now_ms = lmdb_now_ms(call->txn);
    int more = 0;

    if (!info_stream(call, &stream) || !call_group(call, stream, call->args[3], &group)) {
        return;
    }
    if (group == NULL) {
        call_error(call, "NOGROUP No such consumer group '%.*s' for key name '%.*s'",
                   CALL_TEXT(call->args[3]), CALL_TEXT(call->args[2]));
        return;
    }
    call->reply->kind = VALUE_ARRAY;
    bool good = call_check(call, lmdb_walk_consumers(&walk, call->txn, group));
    while (good && (more = lmdb_next_consumer(&walk, &consumer)) > 0) {
        int64_t idle_ms = sub_saturating(now_ms, consumer->seen_ms);
        struct value *item = call_append(call, call->reply);
        if (item == NULL) {
            break;
        }
        struct pairs pairs = pairs_begin(call, item, 4);
        pair_bytes(&pairs, "name", consumer->name);
        pair_integer(&pairs, "pending", (int64_t)consumer->pending);
        pair_integer(&pairs, "idle", idle_ms < 0 ? 0 : idle_ms);
        pair_integer(&pairs, "inactive",
                     consumer->active_ms < 0 ? -1 : sub_saturating(now_ms, consumer->active_ms));
        good = pairs.at != NULL;
    }
    call_check(call, more);
    lmdb_walk_end(&walk);
}

void call_xinfo_help(struct call *call)
{
    static const char *const lines[] = {
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
        "HELP",
        "    Print this help.",
    };
    call_reply_lines(call, lines, ARRAY_SIZE(lines));
}
