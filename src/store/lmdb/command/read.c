/* read.c -- XREAD and XREADGROUP, once their words are read.
 *
 * All keys and IDs are judged before the first is read, so an error leaves everything as it was.
 * Then each key is served in turn: the same key twice sees what its first reading did. */
#include "store/lmdb/command/read.h"

#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

enum source_kind {
    SOURCE_AFTER,   /* XREAD: entries after `id` */
    SOURCE_NEW,     /* XREADGROUP ">" */
    SOURCE_HISTORY, /* XREADGROUP with an ID: what this consumer has pending after `id` */
};

/* One key of the command. */
struct source {
    struct impel_bytes key;
    enum source_kind kind;
    struct impel_id id;
    struct lmdb_stream *stream; /* NULL: XREAD of a missing key */
    struct lmdb_group *group;
};

/* ---- judging ---- */

static bool error_meaningless(struct call *call, const char *word)
{
    return call_error(call,
                      "ERR The %s ID is meaningless in the context of XREADGROUP: you want to read "
                      "the history of this consumer by specifying a proper ID, or use the > ID to "
                      "get new messages. The %s ID would just return an empty result set.",
                      word, word);
}

static bool source_id_group(struct call *call, size_t index, struct source *source)
{
    struct impel_bytes word = call->args[index];

    if (bytes_equal(word, bytes_of("$"))) {
        return error_meaningless(call, "$");
    }
    if (bytes_equal(word, bytes_of("+"))) {
        return error_meaningless(call, "+");
    }
    source->id = ID_MAX;
    if (!bytes_equal(word, bytes_of(">")) && !call_id(call, index, 0, &source->id)) {
        return false;
    }
    /* The largest ID is how Redis writes ">" to itself, and so it is the same from outside. */
    source->kind = id_equal(source->id, ID_MAX) ? SOURCE_NEW : SOURCE_HISTORY;
    return true;
}

static bool source_id_plain(struct call *call, size_t index, struct source *source)
{
    struct impel_bytes word = call->args[index];
    struct impel_id last = source->stream == NULL ? ID_MIN : source->stream->last_id;

    source->kind = SOURCE_AFTER;
    if (bytes_equal(word, bytes_of("$"))) {
        source->id = last;
        return true;
    }
    if (bytes_equal(word, bytes_of("+"))) {
        source->id = last; /* one less: then only the newest entry is after it */
        return source->stream == NULL || id_previous(&source->id) ||
               call_error(call, "ERR the stream last element ID is 0-0");
    }
    if (bytes_equal(word, bytes_of(">"))) {
        return call_error(call, "ERR The > ID can be specified only when calling XREADGROUP using "
                                "the GROUP <group> <consumer> option.");
    }
    return call_id(call, index, 0, &source->id);
}

static bool source_judge(struct call *call,
                         const struct read_words *words,
                         size_t number,
                         struct source *source)
{
    size_t id_index = words->stream_first + words->stream_count + number;

    source->key = call->args[words->stream_first + number];
    if (!call_stream(call, source->key, &source->stream)) {
        return false;
    }
    if (!words->grouped) {
        return source_id_plain(call, id_index, source);
    }
    if (!call_group(call, source->stream, words->group, &source->group)) {
        return false;
    }
    if (source->group == NULL) {
        return call_error(call,
                          "NOGROUP No such key '%.*s' or consumer group '%.*s' in XREADGROUP with "
                          "GROUP option",
                          CALL_TEXT(source->key), CALL_TEXT(words->group));
    }
    return source_id_group(call, id_index, source);
}

static struct source *sources_judge(struct call *call, const struct read_words *words)
{
    struct source *sources = arena_calloc(call->arena, words->stream_count, sizeof(*sources));

    if (sources == NULL) {
        call_fail(call, IMPEL_ERR_NOMEM);
        return NULL;
    }
    for (size_t i = 0; i < words->stream_count; i++) {
        if (!source_judge(call, words, i, &sources[i])) {
            return NULL;
        }
    }
    return sources;
}

/* ---- serving ---- */

/* True if the stream has an entry after `id`. */
static bool has_after(struct call *call, struct lmdb_stream *stream, struct impel_id id, bool *has)
{
    struct impel_id last;

    *has = false;
    if (stream == NULL || stream->length == 0) {
        return true;
    }
    if (!call_check(call, lmdb_stream_last(call->txn, stream, &last))) {
        return false;
    }
    *has = id_compare(last, id) > 0;
    return true;
}

/* One reading of one key. */
struct reading {
    struct call *call;
    const struct read_words *words;
    const struct source *source;
    struct lmdb_consumer *consumer;
    struct read_budget *budget;
    struct value *list; /* what it gives */
};

static bool serve_after(struct reading *reading)
{
    struct call *call = reading->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_raw raw;
    struct impel_id start = reading->source->id;
    bool fits = id_next(&start);
    bool good =
        !fits || call_check(call, lmdb_walk_entries(&walk, call->txn, reading->source->stream,
                                                    start, ID_MAX, false));
    int more = 0;

    while (good && fits && (more = lmdb_next_entry(&walk, &raw)) > 0) {
        good = budget_take(call, reading->budget, &raw, &fits);
        if (good && fits) {
            struct value *item = call_append(call, reading->list);
            good = item != NULL && call_entry(call, item, &raw);
        }
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

/* Makes an entry that is being handed out pending. If the group was moved back it may be pending
 * already: then it changes hands and counts from 1 again. */
static bool deliver(struct call *call,
                    const struct source *source,
                    struct lmdb_consumer *consumer,
                    struct impel_id id)
{
    struct lmdb_pending old;
    int64_t now_ms = lmdb_now_ms(call->txn);
    ASSERT(consumer != NULL); /* only XREADGROUP delivers */
    struct lmdb_pending row = {
        .id = id, .owner = consumer->number, .delivered_ms = now_ms, .deliveries = 1};
    int rc = lmdb_pending_get(call->txn, source->group, id, &old);
    bool known = rc >= 0;

    if (rc != IMPEL_ERR_NOT_FOUND && !call_check(call, rc)) {
        return false;
    }
    consumer->active_ms = now_ms;
    lmdb_consumer_changed(call->txn, consumer);
    return call_check(call, lmdb_pending_put(call->txn, source->group, known ? &old : NULL, &row));
}

static bool serve_new(struct reading *reading)
{
    struct call *call = reading->call;
    const struct source *source = reading->source;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_raw raw;
    struct impel_id start = source->group->last_id;
    bool fits = true;
    bool good =
        id_next(&start) &&
        call_check(call, lmdb_walk_entries(&walk, call->txn, source->stream, start, ID_MAX, false));
    int more = 0;

    while (good && (more = lmdb_next_entry(&walk, &raw)) > 0) {
        struct impel_id id = raw.id;
        good = budget_take(call, reading->budget, &raw, &fits);
        if (!good || !fits) {
            break;
        }
        struct value *item = call_append(call, reading->list);
        good = item != NULL && (reading->words->claim ? claims_entry(call, item, &raw, 0, 0)
                                                      : call_entry(call, item, &raw));
        if (good) {
            lmdb_group_advance(call->txn, source->group, id);
            good = reading->words->no_ack || deliver(call, source, reading->consumer, id);
        }
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

/* One row of the consumer's own PEL: [ID, fields] and one more delivery, or [ID, null] and nothing
 * if its entry is gone. */
static bool serve_history_row(struct call *call,
                              const struct source *source,
                              const struct lmdb_pending *row,
                              struct value *out)
{
    struct lmdb_pending again = *row;
    struct lmdb_raw raw;
    bool exists;

    if (!call_entry_exists(call, source->stream, row->id, &raw, &exists)) {
        return false;
    }
    if (!exists) {
        struct value *pair = call_list(call, out, VALUE_ARRAY, 2);
        if (pair == NULL) {
            return false;
        }
        pair[1].kind = VALUE_NULL_ARRAY;
        return call_bulk_id(call, &pair[0], row->id);
    }
    again.delivered_ms = lmdb_now_ms(call->txn);
    again.deliveries = (int64_t)((uint64_t)row->deliveries + 1); /* wraps, as Redis's does */
    return call_entry(call, out, &raw) &&
           call_check(call, lmdb_pending_put(call->txn, source->group, row, &again));
}

static bool serve_history(struct reading *reading)
{
    struct call *call = reading->call;
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    struct lmdb_raw raw;
    struct impel_id start = reading->source->id;
    bool exists = false, fits = true;
    bool sized = reading->words->bytes_max != UINT64_MAX;
    bool good = id_next(&start) &&
                call_check(call, lmdb_walk_owned(&walk, call->txn, reading->consumer, start));
    int more = 0;

    while (good && reading->budget->stream > 0 && (more = lmdb_next_pending(&walk, &row)) > 0) {
        good =
            (!sized || call_entry_exists(call, reading->source->stream, row.id, &raw, &exists)) &&
            budget_take(call, reading->budget, exists ? &raw : NULL, &fits);
        if (!good || !fits) {
            break;
        }
        struct value *item = call_append(call, reading->list);
        good = item != NULL && serve_history_row(call, reading->source, &row, item);
    }
    lmdb_walk_end(&walk);
    return good && call_check(call, more);
}

/* A place in the reply for the entries of a key. RESP2: [key, entries]; RESP3: key => entries. */
static struct value *reply_key(struct call *call, struct impel_bytes key)
{
    struct value *items = NULL;

    if (call->request->call.resp3) {
        call->reply->kind = VALUE_MAP;
        items = call_append(call, call->reply);
        if (items == NULL || !call_bulk(call, items, key)) {
            return NULL;
        }
        items = call_append(call, call->reply);
    } else {
        call->reply->kind = VALUE_ARRAY;
        struct value *pair = call_append(call, call->reply);
        items = pair == NULL ? NULL : call_list(call, pair, VALUE_ARRAY, 2);
        if (items == NULL || !call_bulk(call, items, key)) {
            return NULL;
        }
        items++;
    }
    if (items != NULL) {
        items->kind = VALUE_ARRAY;
    }
    return items;
}

/* Is there anything for this key? Finds what is to be claimed, too. */
static bool look(struct reading *reading, struct read_claims *claims, bool *has)
{
    struct call *call = reading->call;
    const struct source *source = reading->source;

    switch (source->kind) {
    case SOURCE_NEW:
        if (reading->words->claim) {
            uint64_t most = reading->budget->stream < reading->budget->entries
                                ? reading->budget->stream
                                : reading->budget->entries;
            if (!claims_find(call, source->group, reading->words->min_idle_ms, most, claims)) {
                return false;
            }
        }
        return has_after(call, source->stream, source->group->last_id, has);
    case SOURCE_AFTER:
        return has_after(call, source->stream, source->id, has);
    default:
        *has = true;
        return true;
    }
}

static bool serve(struct call *call,
                  const struct read_words *words,
                  const struct source *source,
                  struct read_budget *budget)
{
    struct reading reading = {.call = call, .words = words, .source = source, .budget = budget};
    struct read_claims claims = {.rows = NULL};
    bool has = false;

    budget->stream = words->count;
    if (!look(&reading, &claims, &has)) {
        return false;
    }
    if (words->grouped && !call_consumer(call, source->group, words->consumer, &reading.consumer)) {
        return false;
    }
    if ((!has && claims.count == 0) || budget->entries == 0) {
        return true;
    }
    reading.list = reply_key(call, source->key);
    if (reading.list == NULL) {
        return false;
    }
    switch (source->kind) {
    case SOURCE_NEW:
        call_changed(call, 1); /* for each key, not for each entry; history is none */
        return claims_serve(call, &claims, reading.consumer, budget, reading.list) &&
               (!has || serve_new(&reading));
    case SOURCE_HISTORY:
        return serve_history(&reading);
    default:
        return serve_after(&reading);
    }
}

/* ---- waiting ---- */

/* Writes what "$" meant into the words, for the tries to come. */
static bool freeze_ids(struct call *call, const struct read_words *words, struct source *sources)
{
    struct impel_bytes *args = arena_calloc(call->arena, call->arg_count, sizeof(*args));

    if (args == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < call->arg_count; i++) {
        args[i] = call->args[i];
    }
    for (size_t i = 0; i < words->stream_count; i++) {
        struct impel_bytes *word = &args[words->stream_first + words->stream_count + i];
        struct value text;
        if (!bytes_equal(*word, bytes_of("$"))) {
            continue;
        }
        if (!call_bulk_id(call, &text, sources[i].id)) {
            return false;
        }
        *word = text.bytes;
    }
    call->request->call.args = args;
    return true;
}

/* Nothing to give: a null, and if the command may wait, that it does. `sources` may be NULL. */
static void serve_nothing(struct call *call, const struct read_words *words, struct source *sources)
{
    call->reply->kind = VALUE_NULL_ARRAY;
    if (!words->block || call->wait == NULL) {
        return;
    }
    call->wait->again_ms = INT64_MAX;
    for (size_t i = 0; words->claim && sources != NULL && i < words->stream_count; i++) {
        if (!claims_wait(call, sources[i].group, words->min_idle_ms, &call->wait->again_ms)) {
            return;
        }
    }
    if (sources == NULL || freeze_ids(call, words, sources)) {
        call->wait->blocked = true;
        call->wait->block_ms = words->block_ms;
    }
}

/* A plain XREAD that waits sits out that its key becomes something else for a while. */
static bool waits_through(const struct call *call, const struct read_words *words)
{
    return call->status >= 0 && call->wait != NULL && call->wait->again && !words->grouped;
}

static void read_streams(struct call *call, bool grouped)
{
    struct read_words words = {.grouped = grouped};

    if (!read_words_parse(call, &words, lmdb_now_ms(call->txn))) {
        return;
    }
    struct source *sources = sources_judge(call, &words);
    if (sources == NULL) {
        if (waits_through(call, &words)) {
            serve_nothing(call, &words, NULL);
        }
        return;
    }
    struct read_budget budget = {.entries = words.count_max, .bytes = words.bytes_max};
    for (size_t i = 0; i < words.stream_count; i++) {
        if (!serve(call, &words, &sources[i], &budget)) {
            return;
        }
    }
    if (call->reply->kind == VALUE_NULL) {
        serve_nothing(call, &words, sources);
    }
}

void call_xread(struct call *call)
{
    read_streams(call, false);
}

void call_xreadgroup(struct call *call)
{
    read_streams(call, true);
}
