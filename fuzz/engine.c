/* engine.c -- see engine.h. */
#include "engine.h"

#include "store/lmdb/check.h"
#include "store/lmdb/command/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    WORDS_MAX = 64,
};

static struct lmdb_env *env;
static char folder[64];
static char path[80];

static void engine_close(void)
{
    static const char *const ends[] = {"", "-lock", "-wake"};
    char text[96];

    env_close(env);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        (void)snprintf(text, sizeof(text), "%s%s", path, ends[i]);
        (void)unlink(text);
    }
    (void)rmdir(folder);
}

struct lmdb_env *engine_open(const char *const *lines, size_t line_count)
{
    struct env_options options = {.path = path, .map_size = 64 << 20, .sync = SIDE_SYNC_PROCESS};
    struct impel_error err = {0};
    struct lmdb_txn txn;

    if (env != NULL) {
        return env;
    }
    (void)snprintf(folder, sizeof(folder), "%s/impel-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ASSERT(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof(path), "%s/db", folder);
    if (env_open(&options, &env, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    (void)atexit(engine_close);
    engine_begin(&txn);
    for (size_t i = 0; i < line_count; i++) {
        struct arena arena = {0};
        const struct value *reply = engine_line(&txn, lines[i], &arena);
        ASSERT(reply != NULL && reply->kind != VALUE_ERROR);
        arena_release(&arena);
    }
    ASSERT(env_commit(env, &txn, &err) >= 0);
    return env;
}

const char *engine_path(void)
{
    return path;
}

void engine_begin(struct lmdb_txn *txn)
{
    struct impel_error err = {0};

    ASSERT(env_begin_write(env, txn, &err) >= 0);
}

void engine_abort(struct lmdb_txn *txn)
{
    env_abort(txn);
}

static const struct value *run(struct lmdb_txn *txn, struct request *request, struct arena *arena)
{
    const struct value *reply = lmdb_call(txn, request, NULL) < 0 ? NULL : request->call.reply;

    /* The reply outlives the request: its arena is handed on. */
    ASSERT(arena->blocks == NULL);
    *arena = request->arena;
    request->arena = (struct arena){0};
    request_free(request);
    return reply;
}

const struct value *engine_call(struct lmdb_txn *txn,
                                const struct impel_bytes *args,
                                size_t arg_count,
                                struct arena *arena)
{
    struct request *request = request_new(REQUEST_CALL);

    ASSERT(request != NULL);
    request->call.args = args;
    request->call.arg_count = arg_count;
    return run(txn, request, arena);
}

const struct value *engine_line(struct lmdb_txn *txn, const char *line, struct arena *arena)
{
    struct impel_bytes words[WORDS_MAX];
    size_t count = 0;

    while (*line != '\0' && count < WORDS_MAX) {
        size_t size = strcspn(line, " ");
        words[count++] = (struct impel_bytes){line, size};
        line += size + (line[size] == ' ');
    }
    return engine_call(txn, words, count, arena);
}

static bool tell(void *user, const char *problem)
{
    (void)user;
    (void)fprintf(stderr, "broken: %s\n", problem);
    return true;
}

void engine_check(struct lmdb_txn *txn)
{
    struct impel_error err = {0};

    ASSERT(lmdb_txn_flush(txn) >= 0);
    ASSERT(check_transaction(txn, tell, NULL, &err) >= 0);
}
