/* native.c -- the table of the fenced steps, and how one is carried out: the embedded store does it. */
#include "server/native_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WORDS_COMMON = 5, /* group, consumer, token, dead-after, old */
};

const struct native native_table[] = {
    {"impel.beat", 1, true, native_parse_beat, native_answer_beat, REQUEST_BEAT},
    {"impel.look", 4, true, native_parse_look, native_answer_look, REQUEST_LOOK},
    {"impel.claim", 14, true, native_parse_claim, native_answer_claim, REQUEST_CLAIM_FROM},
    {"impel.create", 0, true, native_parse_create, native_answer_create, REQUEST_GROUP_CREATE},
    {"impel.take", 2, true, native_parse_items, native_answer_take, REQUEST_RETRY},
    {"impel.renew", 2, true, native_parse_items, native_answer_renew, REQUEST_RENEW},
    {"impel.ack", 2, true, native_parse_ack, native_answer_ack, REQUEST_ACK},
    {"impel.release", 3, true, native_parse_release, native_answer_release, REQUEST_RELEASE},
    {"impel.park", 2, true, native_parse_park, native_answer_park, REQUEST_PARK},
    {"impel.leave", 0, true, native_parse_leave, native_answer_leave, REQUEST_LEAVE},
    {"impel.drop", 2, true, native_parse_drop, native_answer_leave, REQUEST_DROP},
    {"impel.read", 2, true, native_parse_read, native_answer_read, REQUEST_READ},
    {"impel.pending", 5, false, native_parse_pending, native_answer_pending, REQUEST_PENDING},
    {"impel.replay", 4, true, native_parse_replay, native_answer_replay, REQUEST_REPLAY},
    {"impel.info", 0, false, native_parse_info, native_answer_info, REQUEST_INFO},
    {"impel.trim", 3, true, native_parse_trim, native_answer_trim, REQUEST_TRIM_DONE},
    {.name = NULL},
};

static void request_end(struct request *request)
{
    if (request == NULL) {
        return;
    }
    if (request->kind == REQUEST_PARK) {
        for (size_t i = 0; i < request->items.item_count; i++) {
            entry_free((struct entry *)request->items.items[i].copy);
        }
    }
    request_free(request);
}

/* numkeys, the keys, and the words that all steps have. Returns where the step's own begin, or 0. */
static size_t
parse_common(struct request *request, const struct impel_bytes *args, size_t arg_count)
{
    int64_t keys = 0;

    if (arg_count < 2 || !native_number(args[1], &keys) || keys < 1 ||
        (uint64_t)keys + WORDS_COMMON > arg_count - 2) {
        return 0;
    }
    const struct impel_bytes *words = args + 2 + keys;
    request->stream = args[2];
    if (request->kind == REQUEST_READ) {
        request->read.streams = args + 2;
        request->read.stream_count = (size_t)keys;
    }
    request->group = words[0];
    request->consumer = words[1];
    if (keys == 3 && request->kind == REQUEST_PARK) {
        request->items.dead_letter = args[4];
    } else if (keys == 4 && request->kind == REQUEST_CLAIM_FROM) {
        request->claim_from.dead_letter = args[4];
    } else if (keys == 5 && request->kind == REQUEST_REPLAY) {
        request->replay.dead_letter = args[4];
        request->replay.audit = args[5];
    }
    return native_token(words[2], &request->token) &&
                   native_number(words[3], &request->dead_after_ms)
               ? 2 + (size_t)keys + WORDS_COMMON
               : 0;
}

/* Entries that are gone and of which the caller has a copy: it has to send it. They are left out, and keep
 * the mark by which park_join() knows them: IDs would not do, the same one may come twice. */
static int park_ask(struct engine *engine, struct request *request, struct request_item *all)
{
    struct lmdb_stream *stream = NULL;
    size_t count = request->items.item_count;
    int rc = lmdb_stream_find(&engine->txn, request->stream, &stream);

    request->items.item_count = 0;
    for (size_t i = 0; engine->txn.status >= 0 && i < count; i++) {
        struct request_item *each = &all[i];
        if (each->idle_ms == NATIVE_PARK_COPY_LATER) {
            if (rc < 0 || lmdb_entry_get(&engine->txn, stream, each->id, NULL) < 0) {
                continue;
            }
            each->idle_ms = 0;
        }
        request->items.items[request->items.item_count++] = *each;
    }
    return engine->txn.status;
}

/* The items that were left out come back, as not reached. */
static void park_join(struct request *request, struct request_item *all, size_t count)
{
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        if (all[i].idle_ms == NATIVE_PARK_COPY_LATER) {
            all[i].idle_ms = 0;
        } else if (at < request->items.item_count) {
            all[i] = request->items.items[at++];
        }
    }
    request->items.items = all;
    request->items.item_count = count;
}

static int run_park(struct engine *engine, struct exec *exec, struct request *request)
{
    size_t count = request->items.item_count;
    struct request_item *all = request->items.items;

    request->items.items = arena_calloc(&request->arena, count + 1, sizeof(*all));
    if (request->items.items == NULL) {
        request->items.items = all;
        return lmdb_fail(&engine->txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    int rc = park_ask(engine, request, all);
    rc = rc < 0 ? rc : exec_request(exec, request);
    park_join(request, all, count);
    return rc;
}

static void answer_error(struct engine *engine, const struct request *request, int rc)
{
    struct value *reply = engine->native_reply;
    const char *code = rc == IMPEL_ERR_NO_GROUP     ? "NOGROUP"
                       : rc == IMPEL_ERR_WRONG_TYPE ? "WRONGTYPE"
                       : rc == IMPEL_ERR_REPLACED   ? "REPLACED"
                       : rc == IMPEL_ERR_FENCED     ? "FENCED"
                       : rc == IMPEL_ERR_FULL       ? "OOM"
                       : rc == IMPEL_ERR_EXISTS     ? "OTHERS"
                                                    : "ERR";
    char text[sizeof(request->error.text) + 16];

    (void)snprintf(text, sizeof(text), "%s %s", code,
                   request->error.text[0] != '\0' ? request->error.text : status_text(rc));
    struct impel_bytes copy = bytes_of(status_text(rc));
    (void)arena_copy(&engine->request.arena, bytes_of(text), &copy);
    *reply = (struct value){.kind = VALUE_ERROR, .bytes = copy};
    if (request->kind == REQUEST_READ && (rc == IMPEL_ERR_NO_GROUP || rc == IMPEL_ERR_WRONG_TYPE)) {
        /* Which stream it is has to be said as well. */
        struct value *items = native_list(request, reply, 3, &engine->request.arena);
        if (items != NULL) {
            items[1] = value_integer((int64_t)request->read.missing);
            items[2] = value_bulk(copy);
        }
    }
}

int engine_native(struct engine *engine,
                  const struct native *native,
                  const struct impel_bytes *args,
                  size_t arg_count,
                  struct value **reply)
{
    struct exec exec = {
        .env = engine->env, .txn = &engine->txn, .refs = &engine->refs, .boot_ms = side_now_ms()};
    struct op op = {.blocks = false};
    struct request *request = request_new(native->kind);
    int rc = IMPEL_ERR_NOMEM;

    arena_release(&engine->request.arena);
    engine->txn.signal = false;
    *reply = engine->native_reply = arena_calloc(&engine->request.arena, 1, sizeof(struct value));
    if (request == NULL || *reply == NULL) {
        request_end(request);
        return lmdb_fail(&engine->txn, rc, "out of memory");
    }
    request->store_data = &op;
    size_t own = parse_common(request, args, arg_count);
    if (own == 0 || arg_count - own < (size_t)native->words_min ||
        !native->parse(request, args + own, arg_count - own)) {
        (void)error_set(&request->error, IMPEL_ERR_INVALID, "the words of %s make no sense",
                        native->name);
        rc = IMPEL_ERR_INVALID;
    } else if (native->kind == REQUEST_PARK) {
        rc = run_park(engine, &exec, request);
    } else {
        rc = exec_request(&exec, request);
    }
    if (rc >= 0 && !native->answer(request, *reply, &engine->request.arena)) {
        rc = lmdb_fail(&engine->txn, IMPEL_ERR_NOMEM, "out of memory");
    } else if (rc < 0 && engine->txn.status >= 0) {
        answer_error(engine, request, rc);
        rc = IMPEL_OK;
    }
    engine->signalled = engine->txn.signal;
    engine->any_signal |= engine->signalled;
    request_end(request);
    return engine->txn.status < 0 ? engine->txn.status : rc;
}
