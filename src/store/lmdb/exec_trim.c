/* exec_trim.c -- removing what every group has finished with: asked and done in one transaction, so
 * that nothing is taken away from a group that reads at the same moment. */
#include "store/lmdb/exec.h"

static bool is_ignored(const struct request *request, struct impel_bytes group)
{
    for (size_t i = 0; i < request->trim_done.ignored_count; i++) {
        if (bytes_equal(request->trim_done.ignored[i], group)) {
            return true;
        }
    }
    return false;
}

/* The first ID that the group has not finished with. A pending one may lie behind last-delivered: a
 * group can be moved back. */
static int group_floor(struct exec *exec, struct lmdb_group *group, struct impel_id *floor)
{
    struct lmdb_pending first;
    int rc = lmdb_pending_first(exec->txn, group, &first);

    *floor = group->last_id;
    (void)id_next(floor); /* of the last possible ID: that one stays */
    if (rc >= 0 && id_compare(first.id, *floor) < 0) {
        *floor = first.id;
    }
    return rc == IMPEL_ERR_NOT_FOUND ? IMPEL_OK : rc;
}

/* 1 = some group was asked, 0 = there is none to ask. */
static int find_floor(struct exec *exec, struct request *request, struct lmdb_stream *stream)
{
    struct lmdb_walk walk = {0};
    struct lmdb_group *group = NULL;
    bool any = false;
    int rc = lmdb_walk_groups(&walk, exec->txn, stream);

    request->trim_done.floor = ID_MAX;
    while (rc >= 0 && (rc = lmdb_next_group(&walk, &group)) > 0) {
        struct impel_id mine;
        if (is_ignored(request, group->name)) {
            continue;
        }
        rc = group_floor(exec, group, &mine);
        if (rc >= 0 && id_compare(mine, request->trim_done.floor) < 0) {
            request->trim_done.floor = mine;
        }
        any = true;
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : any;
}

/* The ID to cut at, so that neither more goes than may nor what is to be kept. */
static int find_cut(struct exec *exec,
                    struct request *request,
                    struct lmdb_stream *stream,
                    struct impel_id *cut)
{
    struct lmdb_walk walk = {0};
    struct lmdb_raw raw;
    uint64_t spare = stream->length - request->trim_done.length_min;
    uint64_t most = spare < request->trim_done.limit ? spare : request->trim_done.limit;
    uint64_t count = 0;
    int rc = lmdb_walk_entries(&walk, exec->txn, stream, ID_MIN, *cut, false);

    while (rc >= 0 && (rc = lmdb_next_entry(&walk, &raw)) > 0 && id_compare(raw.id, *cut) < 0) {
        if (count++ == most) {
            request->trim_done.more = spare > most;
            *cut = raw.id;
            break;
        }
    }
    lmdb_walk_end(&walk);
    return rc < 0 ? rc : IMPEL_OK;
}

int exec_trim_done(struct exec *exec, struct request *request)
{
    struct lmdb_stream *stream = NULL;
    int rc = lmdb_stream_find(exec->txn, request->stream, &stream);

    request->trim_done.removed = 0;
    request->trim_done.more = false;
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return exec_fail(exec, request, IMPEL_ERR_NO_GROUP, "no such stream");
    }
    rc = rc < 0 ? rc : find_floor(exec, request, stream);
    if (rc == 0) {
        return exec_fail(exec, request, IMPEL_ERR_NO_GROUP, "no group says what is finished");
    }
    if (rc > 0 && stream->length > request->trim_done.length_min) {
        struct lmdb_trim trim = {.by_id = true, .id_min = request->trim_done.floor};
        if (id_compare(request->trim_done.keep_from, trim.id_min) < 0) {
            trim.id_min = request->trim_done.keep_from;
        }
        rc = find_cut(exec, request, stream, &trim.id_min);
        rc = rc < 0 ? rc : lmdb_stream_trim(exec->txn, stream, &trim, &request->trim_done.removed);
    }
    return rc < 0 ? exec_fail(exec, request, rc, status_text(rc)) : IMPEL_OK;
}
