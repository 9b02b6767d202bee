/* engine.c -- transactions begun late and ended together, and the few looks at rows that only the
 * server needs. */
#include "server/engine.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    EXPIRE_KEYS_MAX = 100, /* at a time: others wait meanwhile */
    SLOW_COMMIT_MS = 100,
    EXPIRES_COUNTED_MAX = 100000, /* INFO is asked for often */
    REPLY_KEPT_BYTES = 64 * 1024, /* of memory, from one reply to the next */
};

int engine_open(struct engine *engine,
                const struct engine_options *options,
                struct impel_error *err)
{
    *engine = (struct engine){
        .node_size_max = NODE_SIZE_MAX,
        .node_entries_max = NODE_ENTRIES_MAX,
        .idmp_duration_s = LMDB_IDMP_DURATION_S,
        .idmp_iids_max = LMDB_IDMP_IIDS_MAX,
    };
    engine->request.kind = REQUEST_CALL;
    int rc = env_open(&options->env, &engine->env, err);
    if (rc < 0) {
        return rc;
    }
    engine->watch.wake = options->wake;
    engine->watch.user = options->user;
    env_watch_add(engine->env, &engine->watch);
    engine->seen_word = side_word(&engine->env->side);
    engine->seen_commit = env_commit_number(engine->env);
    return IMPEL_OK;
}

void engine_close(struct engine *engine)
{
    if (engine->env == NULL) {
        return;
    }
    engine_abort(engine);
    env_watch_remove(engine->env, &engine->watch);
    if (engine->read_cache != NULL) {
        mdb_txn_abort(engine->read_cache);
    }
    arena_release(&engine->request.arena);
    free(engine->refs.items);
    env_close(engine->env);
    engine->env = NULL;
}

/* A process that is stopped from the terminal must not keep the lock meanwhile. */
static void hold_stop_signal(struct engine *engine)
{
    sigset_t stop;

    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &stop, &engine->signals);
}

static void release_stop_signal(struct engine *engine)
{
    pthread_sigmask(SIG_SETMASK, &engine->signals, NULL);
}

static void end_read(struct engine *engine)
{
    env_end_read(&engine->txn);
    engine->mode = ENGINE_IDLE;
}

static int begin_write(struct engine *engine, bool *foreign, struct impel_error *err)
{
    int rc = side_lock(&engine->env->side);

    if (rc < 0) {
        return error_set(err, rc, "another process has the store's lock");
    }
    hold_stop_signal(engine);
    rc = env_begin_write(engine->env, &engine->txn, err);
    if (rc < 0) {
        side_unlock(&engine->env->side);
        release_stop_signal(engine);
        return rc;
    }
    lmdb_node_limits(&engine->txn, engine->node_size_max, engine->node_entries_max);
    lmdb_idmp_defaults(&engine->txn, engine->idmp_duration_s, engine->idmp_iids_max);
    /* Under the lock nobody else commits, so what differs now was done before. */
    if (env_commit_number(engine->env) != engine->seen_commit) {
        *foreign = true;
    }
    engine->mode = ENGINE_WRITES;
    engine->begun_ms = side_now_ms();
    engine->any_signal = false;
    return IMPEL_OK;
}

int engine_begin(struct engine *engine, bool writes, bool *foreign, struct impel_error *err)
{
    if (engine->mode == ENGINE_WRITES || (engine->mode == ENGINE_READS && !writes)) {
        return IMPEL_OK;
    }
    if (engine->mode == ENGINE_READS) {
        end_read(engine);
    }
    if (writes) {
        return begin_write(engine, foreign, err);
    }
    int rc = env_begin_read(engine->env, &engine->read_cache, &engine->txn, err);
    if (rc >= 0) {
        engine->mode = ENGINE_READS;
    }
    return rc;
}

void engine_clock(struct engine *engine, uint64_t monotonic_ns)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    engine->clock_offset_us =
        (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 - (int64_t)(monotonic_ns / 1000);
    engine_time(engine, monotonic_ns);
}

void engine_time(struct engine *engine, uint64_t monotonic_ns)
{
    engine->now_ms = (engine->clock_offset_us + (int64_t)(monotonic_ns / 1000)) / 1000;
}

int engine_call(struct engine *engine, const struct engine_call *call, struct value **reply)
{
    struct request *request = &engine->request;

    ASSERT(engine->mode != ENGINE_IDLE);
    arena_reset(&request->arena, REPLY_KEPT_BYTES);
    request->call.args = call->args;
    request->call.arg_count = call->arg_count;
    request->call.resp3 = call->version >= 3;
    request->call.reply = NULL;
    engine->txn.now_ms = engine->now_ms;
    engine->txn.signal = false;
    int rc = lmdb_call_known(&engine->txn, request, call->command, call->wait);
    engine->signalled = engine->txn.signal;
    engine->any_signal |= engine->signalled;
    if (rc >= 0 && engine->txn.status < 0) {
        rc = engine->txn.status;
    }
    *reply = request->call.reply;
    return rc;
}

void engine_rest(struct engine *engine)
{
    arena_reset(&engine->request.arena, REPLY_KEPT_BYTES);
    engine->request.call.reply = NULL;
}

int engine_explain(struct engine *engine, int status, struct impel_error *err)
{
    const char *text = engine->txn.status < 0 && engine->txn.error.text[0] != '\0'
                           ? engine->txn.error.text
                           : status_text(status);

    return status == IMPEL_ERR_CORRUPT ? env_explain(engine->env, status, text, err)
                                       : error_set(err, status, "%s", text);
}

static void end_write(struct engine *engine)
{
    /* Those who beat through this server could not while it was in here. */
    if (side_now_ms() - engine->begun_ms > SLOW_COMMIT_MS) {
        struct exec exec = {.env = engine->env, .refs = &engine->refs, .boot_ms = engine->begun_ms};
        exec_beat_own(&exec);
    }
    /* What this process wrote its own waiters have seen; others' waiters see it by the word. */
    engine->seen_word = side_word(&engine->env->side);
    engine->seen_commit = env_commit_number(engine->env);
    side_unlock(&engine->env->side);
    release_stop_signal(engine);
    engine->mode = ENGINE_IDLE;
}

int engine_commit(struct engine *engine, struct impel_error *err)
{
    int rc = IMPEL_OK;

    if (engine->mode == ENGINE_READS) {
        end_read(engine);
    } else if (engine->mode == ENGINE_WRITES) {
        engine->txn.signal = engine->any_signal;
        rc = env_commit(engine->env, &engine->txn, err);
        end_write(engine);
    }
    return rc;
}

void engine_abort(struct engine *engine)
{
    if (engine->mode == ENGINE_READS) {
        end_read(engine);
    } else if (engine->mode == ENGINE_WRITES) {
        env_abort(&engine->txn);
        end_write(engine);
    }
}

bool engine_arm(struct engine *engine)
{
    return env_watch_arm(engine->env, &engine->watch, engine->seen_word, engine->seen_commit);
}

bool engine_outdated(const struct engine *engine)
{
    return engine->seen_word != side_word(&engine->env->side) ||
           engine->seen_commit != env_commit_number(engine->env);
}

void engine_disarm(struct engine *engine)
{
    env_watch_disarm(engine->env, &engine->watch);
}

void engine_seen(struct engine *engine)
{
    engine->seen_word = side_word(&engine->env->side);
    engine->seen_commit = env_commit_number(engine->env);
}

/* ---- looks at rows ---- */

int engine_print(struct engine *engine, struct impel_bytes key, struct key_print *out)
{
    struct lmdb_stream *stream = NULL;
    struct impel_bytes value;

    *out = (struct key_print){.kind = LMDB_KEY_NONE};
    engine->txn.now_ms = engine->now_ms;
    int rc = lmdb_key_kind(&engine->txn, key, &out->kind);
    if (rc >= 0 && out->kind != LMDB_KEY_NONE) {
        rc = lmdb_key_expires(&engine->txn, key, &out->expires_ms);
    }
    if (rc >= 0 && out->kind == LMDB_KEY_STREAM) {
        rc = lmdb_stream_find(&engine->txn, key, &stream);
        if (rc >= 0) {
            out->number = stream->number;
            out->length = stream->length;
            out->entries_added = stream->entries_added;
            out->last_id = stream->last_id;
            out->first_id = stream->first_id;
        }
    } else if (rc >= 0 && out->kind == LMDB_KEY_STRING) {
        rc = lmdb_string_get(&engine->txn, key, &value);
        out->value_hash = rc >= 0 ? hash_bytes(value, 0) : 0;
    } else if (rc >= 0 && out->kind != LMDB_KEY_NONE) {
        struct lmdb_collection collection = {0};
        rc = lmdb_collection_look(&engine->txn, key, &collection);
        out->value_hash = collection.print;
    }
    return rc;
}

bool key_print_equal(const struct key_print *a, const struct key_print *b)
{
    return a->kind == b->kind && a->number == b->number && a->length == b->length &&
           a->entries_added == b->entries_added && id_equal(a->last_id, b->last_id) &&
           id_equal(a->first_id, b->first_id) && a->value_hash == b->value_hash &&
           a->expires_ms == b->expires_ms;
}

int engine_group_ready(struct engine *engine,
                       struct impel_bytes key,
                       struct impel_bytes group_name,
                       bool *ready)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct impel_id last;

    *ready = true; /* also for an error */
    engine->txn.now_ms = engine->now_ms;
    int rc = lmdb_stream_find(&engine->txn, key, &stream);
    rc = rc < 0 ? rc : lmdb_group_find(&engine->txn, stream, group_name, &group);
    if (rc < 0) {
        return engine->txn.status;
    }
    rc = lmdb_stream_last(&engine->txn, stream, &last);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        *ready = false;
        return IMPEL_OK;
    }
    *ready = rc < 0 || id_compare(last, group->last_id) > 0;
    return rc;
}

int engine_consumer_seen(struct engine *engine,
                         struct impel_bytes key,
                         struct impel_bytes group_name,
                         struct impel_bytes consumer_name)
{
    struct lmdb_stream *stream = NULL;
    struct lmdb_group *group = NULL;
    struct lmdb_consumer *consumer = NULL;

    int rc = lmdb_stream_find(&engine->txn, key, &stream);
    rc = rc < 0 ? rc : lmdb_group_find(&engine->txn, stream, group_name, &group);
    if (rc < 0) {
        return engine->txn.status;
    }
    rc = lmdb_consumer_open(&engine->txn, group, consumer_name, &consumer);
    if (rc >= 0) {
        consumer->seen_ms = lmdb_now_ms(&engine->txn);
        lmdb_consumer_changed(&engine->txn, consumer);
    }
    return rc;
}

int engine_list_ready(struct engine *engine, struct impel_bytes key, bool *ready)
{
    enum lmdb_key_kind kind = LMDB_KEY_NONE;

    engine->txn.now_ms = engine->now_ms;
    int rc = lmdb_key_kind(&engine->txn, key, &kind);
    *ready = kind == LMDB_KEY_LIST;
    return rc;
}

int engine_key_count(struct engine *engine, uint64_t *count)
{
    engine->txn.now_ms = engine->now_ms;
    return lmdb_key_count(&engine->txn, count);
}

int engine_expire_count(struct engine *engine, uint64_t *count, int64_t *mean_ms)
{
    engine->txn.now_ms = engine->now_ms;
    return lmdb_expire_count(&engine->txn, EXPIRES_COUNTED_MAX, count, mean_ms);
}

int engine_expire(struct engine *engine, int64_t *next_ms)
{
    engine->txn.now_ms = engine->now_ms;
    engine->txn.signal = false;
    int rc = lmdb_expire_due(&engine->txn, EXPIRE_KEYS_MAX, next_ms);
    engine->signalled = engine->txn.signal;
    engine->any_signal |= engine->signalled;
    return rc;
}
