/* store.c -- the embedded store as a store: opening by URL, submitting, and the turn as a whole.
 *
 *     lmdb:PATH[?sync=full|process][&map=SIZE][&create=yes|no]
 *
 * A turn first does what needs no lock, so that beats go out while another process sits in an
 * fsync; then takes the lock, with a deadline, and carries out the rest; then tries blocked reads,
 * if anybody has committed since; and tells last, outside of everything. */
#include "store/lmdb/store.h"

#include "store/lmdb/embedded.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the URL ---- */

/* A size with an optional unit: 64MiB, 1GiB, 4096. */
static bool size_parse(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        int shift;
    } units[] = {{"", 0},     {"B", 0},  {"K", 10},   {"KiB", 10}, {"M", 20},
                 {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40},   {"TiB", 40}};
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);

    if (end == text || text[0] == '-' || text[0] == '+') {
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(end, units[i].unit) == 0) {
            *out = number << units[i].shift;
            return number > 0 && *out >> units[i].shift == number;
        }
    }
    return false;
}

static int option_parse(const char *option, struct env_options *options, struct impel_error *err)
{
    if (strcmp(option, "sync=full") == 0) {
        options->sync = SIDE_SYNC_FULL;
        return IMPEL_OK;
    }
    if (strcmp(option, "sync=process") == 0) {
        options->sync = SIDE_SYNC_PROCESS;
        return IMPEL_OK;
    }
    if (strcmp(option, "create=yes") == 0 || strcmp(option, "create=no") == 0) {
        options->must_exist = option[strlen("create=")] == 'n';
        return IMPEL_OK;
    }
    if (strncmp(option, "map=", 4) == 0) {
        return size_parse(option + 4, &options->map_size)
                   ? IMPEL_OK
                   : error_set(err, IMPEL_ERR_INVALID,
                               "lmdb: '%s' is no size: map=SIZE takes a whole number above 0, with "
                               "a unit (such as map=64GiB)",
                               option);
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "lmdb: unknown option '%s': there are sync=full, sync=process, create=no "
                     "and map=SIZE (such as map=64GiB)",
                     option);
}

int env_url_parse(char *rest, struct env_options *options, struct impel_error *err)
{
    char *query = strchr(rest, '?');
    char *save = NULL;
    int rc = IMPEL_OK;

    options->path = rest;
    if (query != NULL) {
        *query++ = '\0';
        for (char *option = strtok_r(query, "&", &save); rc >= 0 && option != NULL;
             option = strtok_r(NULL, "&", &save)) {
            rc = option_parse(option, options, err);
        }
    }
    if (rc >= 0 && rest[0] == '\0') {
        return error_set(err, IMPEL_ERR_INVALID, "lmdb: a path is missing: lmdb:PATH");
    }
    return rc;
}

/* ---- opening and closing ---- */

static void handle_free(struct handle *handle)
{
    if (handle == NULL) {
        return;
    }
    if (handle->file != NULL && !env_forked(handle->file)) {
        env_watch_remove(handle->file, &handle->watch);
        if (handle->reader != NULL) {
            mdb_txn_abort(handle->reader);
        }
        env_close(handle->file);
    }
    for (struct op *op = handle->free_ops; op != NULL; op = handle->free_ops) {
        handle->free_ops = op->next;
        free(op);
    }
    free(handle->refs.items);
    free(handle);
}

static int handle_open(const char *rest,
                       const struct store_env *env,
                       struct store **out,
                       struct impel_error *err)
{
    struct env_options options = {.sync = SIDE_SYNC_FULL};
    struct handle *handle = calloc(1, sizeof(*handle));
    char *url = strdup(rest);
    int rc = IMPEL_ERR_NOMEM;

    if (handle == NULL || url == NULL) {
        error_set(err, rc, "out of memory");
        goto done;
    }
    rc = env_url_parse(url, &options, err);
    rc = rc < 0 ? rc : env_open(&options, &handle->file, err);
    if (rc < 0) {
        goto done;
    }
    handle->store.ops = &lmdb_store_ops;
    if (env != NULL) {
        handle->env = *env;
    }
    queue_init(&handle->submitted);
    queue_init(&handle->blocked);
    queue_init(&handle->done);
    handle->watch.wake = handle->env.wake;
    handle->watch.user = handle->env.user;
    env_watch_add(handle->file, &handle->watch);
    *out = &handle->store;
    handle = NULL;
done:
    free(url);
    free(handle);
    return rc;
}

static void tell(struct handle *handle)
{
    for (struct request *request; (request = queue_pop(&handle->done)) != NULL;) {
        request->done(request);
    }
}

static void end_all(struct handle *handle, int status)
{
    struct queue *queues[] = {&handle->submitted, &handle->blocked};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        for (struct request *request; (request = queue_pop(queues[i])) != NULL;) {
            error_set(&request->error, status, "%s: %s", request_name(request->kind),
                      status_text(status));
            turn_end(handle, request, status);
        }
    }
}

static void handle_close(struct store *store)
{
    struct handle *handle = (struct handle *)store;

    if (!env_forked(handle->file)) {
        env_watch_disarm(handle->file, &handle->watch);
    }
    end_all(handle, IMPEL_ERR_CANCELLED);
    tell(handle);
    handle_free(handle);
}

/* ---- submitting ---- */

static void handle_submit(struct store *store, struct request *request)
{
    request->store_data = NULL;
    queue_push(&((struct handle *)store)->submitted, request);
}

static void handle_cancel(struct store *store, struct request *request)
{
    struct handle *handle = (struct handle *)store;

    for (struct request *r = handle->submitted.first; r != NULL; r = r->next) {
        if (r == request && r->kind == REQUEST_READ) {
            r->read.block_ms = 0;
            if (r->store_data != NULL) {
                ((struct op *)r->store_data)->deadline_ms = INT64_MIN;
            }
        }
    }
    for (struct request *r = handle->blocked.first; r != NULL; r = r->next) {
        if (r == request) {
            ((struct op *)r->store_data)->deadline_ms = INT64_MIN;
        }
    }
}

static struct op *op_new(struct handle *handle)
{
    struct op *op = handle->free_ops;

    if (op == NULL) {
        return calloc(1, sizeof(*op));
    }
    handle->free_ops = op->next;
    *op = (struct op){0};
    return op;
}

/* Gives what was submitted its place in the store. */
static void prepare(struct handle *handle)
{
    struct queue queue = handle->submitted;

    if (queue.first == NULL) {
        return;
    }
    queue_init(&handle->submitted);
    for (struct request *request; (request = queue_pop(&queue)) != NULL;) {
        if (request->store_data == NULL) {
            struct op *op = op_new(handle);
            if (op == NULL) {
                error_set(&request->error, IMPEL_ERR_NOMEM, "out of memory");
                turn_end(handle, request, IMPEL_ERR_NOMEM);
                continue;
            }
            request->store_data = op;
            op->id = request->kind == REQUEST_ADD ? request->add.id : ID_MIN;
            op->deadline_ms = request->kind == REQUEST_READ
                                  ? add_saturating(handle->now_ms, request->read.block_ms)
                                  : INT64_MAX;
            op->blocks = request->kind == REQUEST_CALL ||
                         (request->kind == REQUEST_READ && request->read.block_ms > 0);
        }
        queue_push(&handle->submitted, request);
    }
}

/* ---- blocked requests ---- */

static bool blocked_expired(const struct handle *handle, const struct request *request)
{
    return ((const struct op *)request->store_data)->deadline_ms <= handle->now_ms;
}

/* True if trying again could give something else than waiting. */
static bool blocked_ready(struct handle *handle, struct request *request)
{
    struct lmdb_txn txn;
    struct impel_error err = {0};
    struct exec exec = {.env = handle->file, .txn = &txn, .refs = &handle->refs};
    bool ready = true;

    if (request->kind == REQUEST_READ &&
        env_begin_read(handle->file, &handle->reader, &txn, &err) >= 0) {
        ready = exec_read_ready(&exec, request) != 0;
        env_end_read(&txn);
    }
    return ready;
}

/* Submits again what may go on, ends what has waited for long enough. */
static void revive_blocked(struct handle *handle, uint64_t commit)
{
    struct queue waiting = handle->blocked;

    if (waiting.first == NULL) {
        return;
    }
    bool changed = commit != handle->seen_commit;
    handle->seen_commit = commit;
    queue_init(&handle->blocked);
    for (struct request *request; (request = queue_pop(&waiting)) != NULL;) {
        struct op *op = request->store_data;
        bool expired = blocked_expired(handle, request);
        bool due = op->again_ms <= handle->now_ms;
        if (due || (changed && blocked_ready(handle, request))) {
            op->blocks = !expired;
            queue_push(&handle->submitted, request);
        } else if (expired) {
            turn_end(handle, request, IMPEL_OK);
        } else {
            queue_push(&handle->blocked, request);
        }
    }
}

static int64_t blocked_deadline(const struct handle *handle)
{
    int64_t next_ms = -1;

    for (const struct request *r = handle->blocked.first; r != NULL; r = r->next) {
        const struct op *op = r->store_data;
        int64_t deadline_ms = op->again_ms < op->deadline_ms ? op->again_ms : op->deadline_ms;
        int64_t left_ms = sub_saturating(deadline_ms, handle->now_ms);
        left_ms = left_ms < 0 ? 0 : left_ms;
        if (deadline_ms != INT64_MAX && (next_ms < 0 || left_ms < next_ms)) {
            next_ms = left_ms;
        }
    }
    return next_ms;
}

/* ---- the turn ---- */

static bool process_stopped(int32_t pid)
{
    char path[64];
    char line[256] = "";
    const char *state = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%" PRId32 "/stat", pid);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) != NULL) {
            state = strrchr(line, ')'); /* the name before it may hold anything */
        }
        fclose(file);
    }
    return state != NULL && (state[1] == ' ') && (state[2] == 'T' || state[2] == 't');
}

/* Says, once, who keeps everybody waiting. */
static void tell_holder(struct handle *handle)
{
    const struct side_header *header = handle->file->side.header;
    int32_t pid = atomic_load(&header->holder);
    int64_t since = atomic_load(&header->held_since);
    int64_t held_ms = side_now_ms() - since;
    char text[256];

    if (pid == 0 || held_ms < LOCK_TOLD_MS || handle->held_since == since ||
        handle->env.event == NULL) {
        return;
    }
    handle->held_since = since;
    bool stopped = process_stopped(pid);
    (void)snprintf(text, sizeof(text),
                   "%s: process %" PRId32 " has held the lock for %" PRId64 " ms and %s",
                   handle->file->path, pid, held_ms,
                   stopped ? "is stopped: continue it (kill -CONT) or kill it"
                           : "is running: its disk may be slow");
    struct store_event event = {.name = "lock-held", .level = 2, .text = text};
    handle->env.event(handle->env.user, &event);
}

/* Says, once, that nothing will succeed any more. */
static void tell_lost(struct handle *handle)
{
    struct impel_error err = {0};

    if (handle->told_lost || handle->env.event == NULL || files_check(handle->file, &err) >= 0) {
        return;
    }
    handle->told_lost = true;
    struct store_event event = {.name = "unreachable", .level = 3, .text = err.text};
    handle->env.event(handle->env.user, &event);
}

/* When to come again: as blocked reads need it, or at once if something is left. */
static int64_t turn_next(struct handle *handle, uint32_t word, uint64_t commit)
{
    int64_t next_ms = blocked_deadline(handle);

    if (handle->submitted.first != NULL) {
        return 0;
    }
    if (handle->blocked.first == NULL) {
        env_watch_disarm(handle->file, &handle->watch);
        return -1;
    }
    if (handle->env.wake == NULL) {
        return next_ms < 0 || next_ms > POLL_MS ? POLL_MS : next_ms;
    }
    return env_watch_arm(handle->file, &handle->watch, word, commit) ? next_ms : 0;
}

static int64_t handle_turn(struct store *store, int64_t now_ms)
{
    struct handle *handle = (struct handle *)store;
    int64_t next_ms = -1;

    handle->now_ms = now_ms;
    if (env_forked(handle->file)) {
        end_all(handle, IMPEL_ERR_FORKED);
        tell(handle);
        return -1;
    }
    prepare(handle);
    uint32_t word = side_word(&handle->file->side);
    uint64_t commit = env_commit_number(handle->file);
    revive_blocked(handle, commit);
    turn_without_lock(handle);
    if (handle->submitted.first != NULL && turn_with_lock(handle) < 0) {
        tell_holder(handle);
    }
    tell_lost(handle);
    next_ms = turn_next(handle, word, commit);
    tell(handle);
    return handle->submitted.first != NULL ? 0 : next_ms;
}

const struct store_ops lmdb_store_ops = {
    .scheme = "lmdb",
    .open = handle_open,
    .close = handle_close,
    .submit = handle_submit,
    .cancel = handle_cancel,
    .turn = handle_turn,
};
