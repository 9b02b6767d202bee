/* turn.c -- one turn: all that was submitted, in one transaction and with at most one fsync.
 *
 * If the transaction breaks (a full map, a disk error), nothing of it has happened. Then each
 * request gets a transaction of its own, so that only the one at fault fails. */
#include "store/lmdb/store.h"

#include <signal.h>

void queue_init(struct queue *queue)
{
    queue->first = NULL;
    queue->last = &queue->first;
}

void queue_push(struct queue *queue, struct request *request)
{
    request->next = NULL;
    *queue->last = request;
    queue->last = &request->next;
}

struct request *queue_pop(struct queue *queue)
{
    struct request *request = queue->first;

    if (request != NULL) {
        queue->first = request->next;
        if (queue->first == NULL) {
            queue->last = &queue->first;
        }
        request->next = NULL;
    }
    return request;
}

void turn_end(struct handle *handle, struct request *request, int status)
{
    struct op *op = request->store_data;

    request->status = status < 0 ? status : IMPEL_OK;
    if (op != NULL) {
        op->next = handle->free_ops;
        handle->free_ops = op;
        request->store_data = NULL;
    }
    queue_push(&handle->done, request);
}

/* What a try has come to: told at the end of the turn, or kept waiting. */
static void turn_settle(struct handle *handle, struct request *request, int status)
{
    if (status == EXEC_BLOCKED) {
        struct op *op = request->store_data;
        op->wait.again = true;
        op->again_ms = request->kind == REQUEST_CALL
                           ? add_saturating(handle->now_ms, op->wait.again_ms)
                           : INT64_MAX;
        if (request->kind == REQUEST_CALL && op->deadline_ms == INT64_MAX &&
            op->wait.block_ms > 0) {
            op->deadline_ms = add_saturating(handle->now_ms, op->wait.block_ms);
        }
        queue_push(&handle->blocked, request);
        return;
    }
    turn_end(handle, request, status);
}

/* ---- without the lock ---- */

/* Tries a request in a read transaction. True: it is over. `behind`: a write was submitted before
 * it, and may make what it misses. */
static bool
read_only_try(struct exec *exec, struct handle *handle, struct request *request, bool behind)
{
    struct op *op = request->store_data;

    exec_begin(exec, request);
    if (request->kind == REQUEST_BEAT) {
        int rc = op->fast_failed ? 0 : exec_beat_fast(exec, request);
        op->fast_failed = true;
        if (rc < 0 && behind) {
            exec_reset(request);
            return false;
        }
        if (rc != 0) {
            turn_end(handle, request, rc);
        }
        return rc != 0;
    }
    if (request->kind == REQUEST_READ) {
        int idle = exec_read_idle(exec, request);
        if (idle != 0) {
            request->read.entry_count = 0;
            turn_settle(handle, request, op->blocks ? EXEC_BLOCKED : IMPEL_OK);
        }
        return idle != 0;
    }
    turn_settle(handle, request, exec_request(exec, request));
    return true;
}

/* Reads alone, in their own order, may pass by what waits for the lock: nobody was told yet that
 * it was done. But a handle's own requests take effect in the order of submitting, so that a read
 * behind a write sees it: once a write was met only beats go on. */
void turn_without_lock(struct handle *handle)
{
    struct queue rest;
    struct lmdb_txn txn;
    struct exec exec = {.env = handle->file, .txn = &txn, .refs = &handle->refs};
    struct impel_error err = {0};
    bool wrote = false;
    bool began = false;

    queue_init(&rest);
    for (struct request *request; (request = queue_pop(&handle->submitted)) != NULL;) {
        bool fits = request->kind == REQUEST_BEAT ||
                    (!wrote && (request->kind == REQUEST_READ || exec_only_reads(request)));
        if (fits && !began) {
            began = env_begin_read(handle->file, &handle->reader, &txn, &err) >= 0;
            exec.boot_ms = side_now_ms();
        }
        if (!fits || !began || txn.status < 0 || !read_only_try(&exec, handle, request, wrote)) {
            wrote = true;
            queue_push(&rest, request);
        }
    }
    if (began) {
        env_end_read(&txn);
    }
    if (rest.first != NULL) {
        handle->submitted = rest;
    }
}

/* ---- with the lock ---- */

/* Roughly what a request makes a commit write. */
static size_t request_weight(const struct request *request)
{
    size_t size = 256;

    if (request->kind == REQUEST_ADD) {
        for (size_t i = 0; i < request->add.field_count; i++) {
            size += request->add.fields[i].name.size + request->add.fields[i].value.size;
        }
    } else if (request->kind == REQUEST_CALL) {
        for (size_t i = 0; i < request->call.arg_count; i++) {
            size += request->call.args[i].size;
        }
    }
    return size;
}

/* Takes as many requests as one transaction should carry. */
static void take_batch(struct handle *handle, struct queue *batch)
{
    size_t count = 0;
    size_t size = 0;

    queue_init(batch);
    while (handle->submitted.first != NULL && count < TURN_REQUESTS_MAX && size < TURN_BYTES_MAX) {
        struct request *request = queue_pop(&handle->submitted);
        size += request_weight(request);
        count++;
        queue_push(batch, request);
    }
}

/* One request in a transaction of its own. */
static void run_alone(struct handle *handle, struct exec *exec, struct request *request)
{
    struct lmdb_txn txn;
    struct impel_error err = {0};
    int rc = env_begin_write(handle->file, &txn, &err);

    if (rc >= 0) {
        exec->txn = &txn;
        exec->boot_ms = side_now_ms();
        rc = exec_request(exec, request);
        if (txn.status < 0) {
            err = request->error;
            env_abort(&txn);
        } else {
            int committed = env_commit(handle->file, &txn, &err);
            rc = committed < 0 ? committed : rc;
            err = committed < 0 ? err : request->error;
        }
    }
    exec->txn = NULL;
    if (rc < 0) {
        exec_reset(request);
        request->error = err;
    }
    turn_settle(handle, request, rc);
}

/* The batch in one transaction; false if it broke, and then none of it has happened. */
static bool run_batch(struct handle *handle, struct exec *exec, const struct queue *batch)
{
    struct lmdb_txn txn;
    struct impel_error err = {0};
    bool whole = env_begin_write(handle->file, &txn, &err) >= 0;

    if (!whole) {
        return false;
    }
    exec->txn = &txn;
    exec->boot_ms = side_now_ms();
    for (struct request *request = batch->first; whole && request != NULL;
         request = request->next) {
        request->status = exec_request(exec, request);
        whole = txn.status >= 0;
    }
    if (!whole) {
        env_abort(&txn);
    } else {
        whole = env_commit(handle->file, &txn, &err) >= 0;
    }
    exec->txn = NULL;
    return whole;
}

static void run(struct handle *handle, struct queue *batch)
{
    struct exec exec = {.env = handle->file, .refs = &handle->refs};
    int64_t began_ms = side_now_ms();

    if (run_batch(handle, &exec, batch)) {
        for (struct request *request; (request = queue_pop(batch)) != NULL;) {
            turn_settle(handle, request, request->status);
        }
    } else {
        for (struct request *request = batch->first; request != NULL; request = request->next) {
            exec_reset(request);
        }
        for (struct request *request; (request = queue_pop(batch)) != NULL;) {
            run_alone(handle, &exec, request);
        }
    }
    if (side_now_ms() - began_ms > SLOW_TURN_MS) {
        /* Others could beat meanwhile, this thread could not: before anybody may judge. */
        exec.boot_ms = began_ms;
        exec_beat_own(&exec);
    }
}

int turn_with_lock(struct handle *handle)
{
    struct queue batch;
    sigset_t stop;
    sigset_t before;

    /* Ctrl-Z waits until the transaction is over: it would stop every other process. */
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &stop, &before);
    int rc = side_lock(&handle->file->side);
    if (rc >= 0) {
        take_batch(handle, &batch);
        run(handle, &batch);
        side_unlock(&handle->file->side);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
