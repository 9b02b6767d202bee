/* exec.c -- which function carries out which request, and taking a try back. */
#include "store/lmdb/exec.h"

#include <time.h>

enum {
    WALL_USES_MAX = 16,
};

int exec_fail(struct exec *exec, struct request *request, int status, const char *what)
{
    if (exec->txn->status < 0) {
        return env_explain(exec->env, exec->txn->status, exec->txn->error.text, &request->error);
    }
    return error_set(&request->error, status, "%s: %s", request_name(request->kind), what);
}

int exec_nomem(struct exec *exec)
{
    return lmdb_fail(exec->txn, IMPEL_ERR_NOMEM, "out of memory");
}

int exec_copy(struct exec *exec,
              struct request *request,
              struct impel_bytes bytes,
              struct impel_bytes *out)
{
    return arena_copy(&request->arena, bytes, out) ? IMPEL_OK : exec_nomem(exec);
}

int exec_find(struct exec *exec,
              struct request *request,
              struct lmdb_stream **stream,
              struct lmdb_group **group)
{
    int rc = lmdb_stream_find(exec->txn, request->stream, stream);

    rc = rc < 0 ? rc : lmdb_group_find(exec->txn, *stream, request->group, group);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return exec_fail(exec, request, IMPEL_ERR_NO_GROUP, "there is no such stream");
    }
    if (rc == IMPEL_ERR_NO_GROUP) {
        return exec_fail(exec, request, rc, "the stream has no such group");
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}

int64_t exec_idle_ms(const struct exec *exec, const struct lmdb_pending *row)
{
    return row->owner == 0 ? -1 : sub_saturating(exec->txn->now_ms, row->delivered_ms);
}

static int exec_call(struct exec *exec, struct request *request)
{
    struct op *op = request->store_data;

    op->wait.blocked = false;
    int rc = lmdb_call(exec->txn, request, op->blocks ? &op->wait : NULL);
    if (rc < 0) {
        (void)lmdb_fail(exec->txn, rc, "%s", status_text(rc));
        return exec_fail(exec, request, rc, status_text(rc));
    }
    return op->wait.blocked ? EXEC_BLOCKED : IMPEL_OK;
}

bool exec_only_reads(const struct request *request)
{
    switch (request->kind) {
    case REQUEST_RANGE:
    case REQUEST_INFO:
    case REQUEST_PENDING:
        return true;
    case REQUEST_LOOK:
        return request->look.flags == 0;
    case REQUEST_CALL:
        return lmdb_call_only_reads(request);
    default:
        return false;
    }
}

/* The wall clock. A request takes about a microsecond, so a few may share one reading. */
static int64_t wall_now_ms(struct exec *exec)
{
    struct timespec now;

    if (exec->wall_uses == 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        exec->wall_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    exec->wall_uses = (exec->wall_uses + 1) % WALL_USES_MAX;
    return exec->wall_ms;
}

void exec_begin(struct exec *exec, struct request *request)
{
    if (request->kind != REQUEST_ADD && request->kind != REQUEST_ACK) {
        exec->wall_uses = 0; /* these may take long */
    }
    exec->txn->now_ms = wall_now_ms(exec);
    request->store_now_ms = exec->txn->now_ms;
}

int exec_request(struct exec *exec, struct request *request)
{
    static int (*const table[])(struct exec *, struct request *) = {
        [REQUEST_ADD] = exec_add,
        [REQUEST_READ] = exec_read,
        [REQUEST_ACK] = exec_ack,
        [REQUEST_BEAT] = exec_beat,
        [REQUEST_LOOK] = exec_look,
        [REQUEST_CLAIM_FROM] = exec_claim_from,
        [REQUEST_RETRY] = exec_items,
        [REQUEST_ADOPT] = exec_items,
        [REQUEST_RENEW] = exec_items,
        [REQUEST_RELEASE] = exec_items,
        [REQUEST_PARK] = exec_items,
        [REQUEST_LEAVE] = exec_leave,
        [REQUEST_DROP] = exec_drop,
        [REQUEST_PENDING] = exec_pending,
        [REQUEST_RANGE] = exec_range,
        [REQUEST_INFO] = exec_info,
        [REQUEST_GROUP_CREATE] = exec_group_create,
        [REQUEST_GROUP_SET] = exec_group_set,
        [REQUEST_TRIM] = exec_trim,
        [REQUEST_TRIM_DONE] = exec_trim_done,
        [REQUEST_REPLAY] = exec_replay,
        [REQUEST_CALL] = exec_call,
    };

    ASSERT((size_t)request->kind < ARRAY_SIZE(table));
    exec_begin(exec, request);
    return table[request->kind](exec, request);
}

static void reset_delivered(struct delivered *entries, size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        entry_free(entries[i].entry);
    }
    *count = 0;
}

static void reset_items(struct request_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        entry_free(items[i].entry);
        items[i].entry = NULL;
        items[i].result = ITEM_NONE;
    }
}

void exec_reset(struct request *request)
{
    const struct op *op = request->store_data;

    request->error = (struct impel_error){0};
    switch (request->kind) {
    case REQUEST_ADD:
        request->add.id = op->id;
        break;
    case REQUEST_READ:
        reset_delivered(request->read.entries, &request->read.entry_count);
        break;
    case REQUEST_CLAIM_FROM:
        reset_delivered(request->claim_from.entries, &request->claim_from.entry_count);
        request->claim_from.parked_count = request->claim_from.reaped_count = 0;
        request->claim_from.moved_count = 0;
        break;
    case REQUEST_RETRY:
    case REQUEST_ADOPT:
    case REQUEST_RENEW:
    case REQUEST_RELEASE:
    case REQUEST_PARK:
        reset_items(request->items.items, request->items.item_count);
        break;
    case REQUEST_ACK:
        reset_items(request->ack.items, request->ack.item_count);
        break;
    case REQUEST_REPLAY:
        for (size_t i = 0; i < request->replay.item_count; i++) {
            request->replay.items[i].result = REPLAY_NONE;
        }
        break;
    case REQUEST_RANGE:
        for (size_t i = 0; i < request->range.entry_count; i++) {
            entry_free(request->range.entries[i]);
        }
        request->range.entry_count = 0;
        break;
    case REQUEST_CALL:
        request->call.reply = NULL;
        break;
    default:
        break;
    }
}
