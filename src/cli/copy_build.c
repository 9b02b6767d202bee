/* copy_build.c -- a stream made anew under its building name.
 *
 * WHOLE, by DUMP and RESTORE, if both sides can and it is not too large for one reply.
 *
 * IN PIECES else: entries with their IDs, groups, consumers, pending rows (XCLAIM FORCE), and last
 * what no sequence of adds and deletes can say (XSETID). A pending row whose entry is gone from the
 * stream needs one to be claimed: a stand-in is added in its place and taken out at the end.
 *
 *   Resumed after a kill: entries that are there already are compared with what should be; if they
 *   are its beginning, and what is missing can still be added behind them, it goes on there, else it
 *   begins anew. Groups are always made anew. */
#include "base/value.h"
#include "cli/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHOLE_BYTES_MAX = 64 << 20, /* of memory, by the server's own estimate */
    BATCH_MAX = 1024,
    BATCH_BYTES_MAX = 1 << 20,
};

#define STAND_IN "impel-copy-stand-in"

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

/* One command to the target. */
static int tell(struct copy_work *work,
                const struct impel_bytes *args,
                size_t arg_count,
                struct impel_error *err)
{
    struct request *request = NULL;
    int rc = session_call(work->to, args, arg_count, &request, err);

    if (rc >= 0) {
        request_free(request);
    }
    return rc;
}

/* ---- whole ---- */

/* What the server says that the stream takes of its memory; -1 if it does not. */
static int64_t memory_of(struct copy_work *work, const char *samples)
{
    const struct impel_bytes args[] = {bytes_of("MEMORY"), bytes_of("USAGE"), work->stream,
                                       bytes_of("SAMPLES"), bytes_of(samples)};
    struct request *request = NULL;

    if (session_call(work->from, args, ARRAY_SIZE(args), &request, NULL) < 0) {
        return -1;
    }
    const struct value *reply = request->call.reply;
    int64_t bytes = reply->kind == VALUE_INTEGER ? reply->integer : -1;
    request_free(request);
    return bytes;
}

/* Does the stream fit into one reply? A few samples, which cost nothing, may miss what is large; all are
 * asked for only where they say that there is not much. */
static bool fits_whole(struct copy_work *work)
{
    for (size_t i = 0; i < work->source->group_count; i++) {
        if (work->source->groups[i].nobodys > 0) {
            return false; /* a payload has no place for them */
        }
    }
    int64_t bytes = memory_of(work, "5");
    bytes = bytes >= 0 && bytes <= WHOLE_BYTES_MAX ? memory_of(work, "0") : -1;
    return bytes >= 0 && bytes <= WHOLE_BYTES_MAX;
}

/* 1 = done, 0 = one of the two cannot, or says no: in pieces it may still be possible. */
static int build_whole(struct copy_work *work, struct impel_error *err)
{
    const struct impel_bytes dump[] = {bytes_of("DUMP"), work->stream};
    struct request *request = NULL;
    struct impel_error why;
    struct buf ttl;
    int rc = session_call(work->from, dump, ARRAY_SIZE(dump), &request, &why);

    if (rc < 0 || request->call.reply->kind != VALUE_BULK) {
        request_free(rc < 0 ? NULL : request);
        return rc == IMPEL_ERR_REPLY || rc >= 0 ? 0 : error_set(err, rc, "%s", why.text);
    }
    buf_init(&ttl, 64);
    buf_appendf(&ttl, "%lld", work->source->ttl_ms < 0 ? 0LL : (long long)work->source->ttl_ms);
    const struct impel_bytes restore[] = {bytes_of("RESTORE"), work->building, buf_bytes(&ttl),
                                          request->call.reply->bytes, bytes_of("REPLACE")};
    rc = tell(work, restore, ARRAY_SIZE(restore), &why);
    buf_release(&ttl);
    request_free(request);
    if (rc == IMPEL_ERR_REPLY) {
        return 0;
    }
    return rc < 0 ? error_set(err, rc, "%s", why.text) : 1;
}

/* ---- commands to the target, many at a time ---- */

struct batch {
    struct store *store;
    struct request *requests[BATCH_MAX];
    size_t count, size_bytes;
};

static void batch_over(struct request *request)
{
    *(bool *)request->owner = true;
}

static int batch_reply(const struct request *request, struct impel_error *err)
{
    const struct value *reply = request->call.reply;

    if (request->status < 0) {
        return error_set(err, request->status, "%s",
                         request->error.text[0] != '\0' ? request->error.text
                                                        : status_text(request->status));
    }
    if (reply->kind == VALUE_ERROR) {
        char text[200];
        return error_set(err, IMPEL_ERR_REPLY, "the target refuses %.*s: %s",
                         (int)request->call.args[0].size, (const char *)request->call.args[0].data,
                         bytes_quote(reply->bytes, text, sizeof(text)));
    }
    return IMPEL_OK;
}

/* Hands all to the store, in their order, and waits for the last. */
static int batch_flush(struct batch *batch, struct impel_error *err)
{
    bool over[BATCH_MAX] = {false};
    size_t count = batch->count;
    int rc = IMPEL_OK;

    if (count == 0) {
        return IMPEL_OK;
    }
    for (size_t i = 0; i + 1 < count; i++) {
        batch->requests[i]->owner = &over[i];
        batch->requests[i]->done = batch_over;
        store_submit(batch->store, batch->requests[i]);
    }
    store_wait(batch->store, batch->requests[count - 1], -1);
    for (size_t i = 0; i < count; i++) {
        ASSERT(i + 1 == count || over[i]);
        rc = rc < 0 ? rc : batch_reply(batch->requests[i], err);
        request_free(batch->requests[i]);
    }
    batch->count = 0;
    batch->size_bytes = 0;
    return rc;
}

static void batch_drop(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        request_free(batch->requests[i]);
    }
    batch->count = 0;
}

/* Adds a command; its words are copied. */
static int batch_add(struct batch *batch,
                     const struct impel_bytes *args,
                     size_t arg_count,
                     struct impel_error *err)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *copies =
        request == NULL ? NULL : arena_calloc(&request->arena, arg_count, sizeof(*copies));

    for (size_t i = 0; copies != NULL && i < arg_count; i++) {
        if (!arena_copy(&request->arena, args[i], &copies[i])) {
            copies = NULL;
            break;
        }
        batch->size_bytes += args[i].size;
    }
    if (copies == NULL) {
        request_free(request);
        return no_memory(err);
    }
    request->call.args = copies;
    request->call.arg_count = arg_count;
    batch->requests[batch->count++] = request;
    return batch->count == BATCH_MAX || batch->size_bytes >= BATCH_BYTES_MAX
               ? batch_flush(batch, err)
               : IMPEL_OK;
}

/* ---- in pieces ---- */

struct pieces {
    struct copy_work *work;
    struct batch batch;
    struct impel_id *gone; /* pending, but no longer in the stream; sorted */
    size_t gone_count, gone_room;
    struct impel_field *fields; /* of a stand-in */
    struct copy_entries source;
    const struct entry *entry; /* the source's next; NULL = none is left */
    size_t gone_at;            /* and the next of `gone` */
};

static int compare_ids(const void *a, const void *b)
{
    return id_compare(*(const struct impel_id *)a, *(const struct impel_id *)b);
}

static int gone_add(struct pieces *pieces, struct impel_id id, struct impel_error *err)
{
    if (pieces->gone_count == pieces->gone_room) {
        size_t room = pieces->gone_room == 0 ? 64 : pieces->gone_room * 2;
        struct impel_id *more = realloc(pieces->gone, room * sizeof(*more));
        if (more == NULL) {
            return no_memory(err);
        }
        pieces->gone = more;
        pieces->gone_room = room;
    }
    pieces->gone[pieces->gone_count++] = id;
    return IMPEL_OK;
}

/* Several groups may wait for the same entry. */
static void gone_sort(struct pieces *pieces)
{
    size_t kept = 0;

    if (pieces->gone_count > 0) {
        qsort(pieces->gone, pieces->gone_count, sizeof(*pieces->gone), compare_ids);
    }
    for (size_t i = 0; i < pieces->gone_count; i++) {
        if (kept == 0 || !id_equal(pieces->gone[kept - 1], pieces->gone[i])) {
            pieces->gone[kept++] = pieces->gone[i];
        }
    }
    pieces->gone_count = kept;
}

static int find_gone(struct pieces *pieces, struct impel_error *err)
{
    const struct copy_work *work = pieces->work;
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < work->source->group_count; i++) {
        struct copy_pending pending = {
            .store = work->from, .stream = work->stream, .group = work->source->groups[i].name};
        struct copy_row row;
        do {
            rc = copy_next_row(&pending, &row, err);
            if (rc > 0 && !row.exists) {
                int added = gone_add(pieces, row.id, err);
                rc = added < 0 ? added : rc;
            }
        } while (rc > 0);
        copy_pending_end(&pending);
    }
    gone_sort(pieces);
    return rc;
}

/* What the target should have next: 1 = `*id`, an entry of the source or (`*entry` is NULL) a stand-in;
 * 0 = no more. */
static int wanted(struct pieces *pieces, struct impel_id *id, const struct entry **entry)
{
    bool stand_in =
        pieces->gone_at < pieces->gone_count &&
        (pieces->entry == NULL || id_compare(pieces->gone[pieces->gone_at], pieces->entry->id) < 0);

    if (!stand_in && pieces->entry == NULL) {
        return 0;
    }
    *entry = stand_in ? NULL : pieces->entry;
    *id = stand_in ? pieces->gone[pieces->gone_at] : pieces->entry->id;
    return 1;
}

/* Past that one. */
static int advance(struct pieces *pieces, bool stand_in, struct impel_error *err)
{
    int rc = IMPEL_OK;

    if (stand_in) {
        pieces->gone_at++;
        return rc;
    }
    rc = copy_next_entry(&pieces->source, &pieces->entry, err);
    if (rc == 0) {
        pieces->entry = NULL;
    }
    copy_went_on(pieces->work);
    return rc;
}

static int rewind_source(struct pieces *pieces, struct impel_error *err)
{
    copy_entries_end(&pieces->source);
    pieces->source = (struct copy_entries){.store = pieces->work->from,
                                           .stream = pieces->work->stream,
                                           .until = pieces->work->source->last_id};
    pieces->gone_at = 0;
    return advance(pieces, false, err);
}

static bool is_wanted(const struct entry *there, struct impel_id id, const struct entry *entry)
{
    if (!id_equal(there->id, id)) {
        return false;
    }
    if (entry == NULL) {
        return there->field_count == 1 && bytes_equal(there->fields[0].name, bytes_of(STAND_IN));
    }
    bool same = there->field_count == entry->field_count;
    for (size_t i = 0; same && i < entry->field_count; i++) {
        same = bytes_equal(there->fields[i].name, entry->fields[i].name) &&
               bytes_equal(there->fields[i].value, entry->fields[i].value);
    }
    return same;
}

/* Can what is wanted next still be added? Not where the target has had it already, and more: a stand-in that
 * was taken out at the end. */
static int goes_on(struct pieces *pieces, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    struct copy_state target;
    const struct entry *entry = NULL;
    struct impel_id id = ID_MAX;
    int rc = copy_state_read(work->to, work->building, &target, err);

    if (rc >= 0) {
        rc = wanted(pieces, &id, &entry) == 0 || id_compare(id, target.last_id) > 0;
    }
    copy_state_release(&target);
    return rc;
}

/* Moves past what the target has already. 1 = that is the beginning of what it should have, 0 = it is
 * something else. */
static int resume(struct pieces *pieces, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    struct copy_entries there = {
        .store = work->to, .stream = work->building, .until = ID_MAX, .beside = &pieces->source};
    const struct entry *have = NULL;
    const struct entry *entry = NULL;
    struct impel_id id = {0, 0};
    bool same = true;
    int rc = copy_next_entry(&there, &have, err);

    while (rc > 0 && same) {
        same = wanted(pieces, &id, &entry) > 0 && is_wanted(have, id, entry);
        rc = same ? advance(pieces, entry == NULL, err) : 0;
        rc = rc < 0 || !same ? rc : copy_next_entry(&there, &have, err);
    }
    copy_entries_end(&there);
    return rc < 0 ? rc : same ? goes_on(pieces, err) : 0;
}

static int add_entry(struct pieces *pieces,
                     struct impel_id id,
                     const struct entry *entry,
                     struct impel_error *err)
{
    static const struct impel_field stand_in = {{STAND_IN, sizeof(STAND_IN) - 1}, {"", 0}};
    const struct impel_field *fields = entry == NULL ? &stand_in : entry->fields;
    size_t count = entry == NULL ? 1 : entry->field_count;
    struct impel_bytes *args = calloc(3 + 2 * count, sizeof(*args));
    char text[ID_TEXT_SIZE];

    if (args == NULL) {
        return no_memory(err);
    }
    args[0] = bytes_of("XADD");
    args[1] = pieces->work->building;
    args[2] = bytes_of(id_format(id, text));
    for (size_t i = 0; i < count; i++) {
        args[3 + 2 * i] = fields[i].name;
        args[4 + 2 * i] = fields[i].value;
    }
    int rc = batch_add(&pieces->batch, args, 3 + 2 * count, err);
    free(args);
    return rc;
}

static int drop_building(struct copy_work *work, struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("UNLINK"), work->building};
    return tell(work, args, ARRAY_SIZE(args), err);
}

/* Makes the stream even if it has no entry. */
static int make_empty(struct copy_work *work, struct impel_error *err)
{
    const struct impel_bytes create[] = {bytes_of("XGROUP"), bytes_of("CREATE"),
                                         work->building,     bytes_of(STAND_IN),
                                         bytes_of("0"),      bytes_of("MKSTREAM")};
    const struct impel_bytes destroy[] = {bytes_of("XGROUP"), bytes_of("DESTROY"), work->building,
                                          bytes_of(STAND_IN)};
    int rc = tell(work, create, ARRAY_SIZE(create), err);
    return rc < 0 ? rc : tell(work, destroy, ARRAY_SIZE(destroy), err);
}

/* Of a copy that was killed; also the one that made the stream. */
static int drop_groups(struct copy_work *work, struct impel_error *err)
{
    struct copy_state target;
    int rc = copy_state_read(work->to, work->building, &target, err);

    for (size_t i = 0; rc >= 0 && i < target.group_count; i++) {
        const struct impel_bytes args[] = {bytes_of("XGROUP"), bytes_of("DESTROY"), work->building,
                                           target.groups[i].name};
        rc = tell(work, args, ARRAY_SIZE(args), err);
    }
    copy_state_release(&target);
    return rc;
}

static int put_entries(struct pieces *pieces, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    const struct entry *entry = NULL;
    struct impel_id id;
    int rc = resume(pieces, err);

    if (rc == 0) {
        rc = drop_building(work, err);
        rc = rc < 0 ? rc : rewind_source(pieces, err);
    }
    rc = rc < 0 ? rc : drop_groups(work, err);
    rc = rc < 0 ? rc : make_empty(work, err);
    while (rc >= 0 && wanted(pieces, &id, &entry) > 0) {
        rc = add_entry(pieces, id, entry, err);
        rc = rc < 0 ? rc : advance(pieces, entry == NULL, err);
    }
    return rc < 0 ? rc : batch_flush(&pieces->batch, err);
}

/* ---- groups ---- */

static int create_group(struct pieces *pieces,
                        const struct copy_group *group,
                        bool counts,
                        struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    char id[ID_TEXT_SIZE], read[32];
    const struct impel_bytes args[] = {
        bytes_of("XGROUP"),
        bytes_of("CREATE"),
        work->building,
        group->name,
        bytes_of(id_format(group->last_id, id)),
        bytes_of("ENTRIESREAD"),
        (snprintf(read, sizeof(read), "%lld", (long long)group->entries_read), bytes_of(read))};
    bool told = counts && group->entries_read >= 0;
    int rc = tell(work, args, told ? ARRAY_SIZE(args) : 5, err);

    for (size_t i = 0; rc >= 0 && counts && i < group->consumer_count; i++) {
        const struct impel_bytes consumer[] = {bytes_of("XGROUP"), bytes_of("CREATECONSUMER"),
                                               work->building, group->name, group->consumers[i]};
        rc = batch_add(&pieces->batch, consumer, ARRAY_SIZE(consumer), err);
    }
    return rc;
}

static int
put_pending(struct pieces *pieces, const struct copy_group *group, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    struct copy_pending pending = {
        .store = work->from, .stream = work->stream, .group = group->name};
    struct copy_row row;
    char id[ID_TEXT_SIZE], delivered[32], deliveries[32];
    int rc;

    while ((rc = copy_next_row(&pending, &row, err)) > 0) {
        snprintf(delivered, sizeof(delivered), "%lld",
                 row.delivered_ms < 0 ? 0LL : (long long)row.delivered_ms);
        snprintf(deliveries, sizeof(deliveries), "%lld", (long long)row.deliveries);
        const struct impel_bytes args[] = {bytes_of("XCLAIM"),
                                           work->building,
                                           group->name,
                                           row.owner,
                                           bytes_of("0"),
                                           bytes_of(id_format(row.id, id)),
                                           bytes_of("TIME"),
                                           bytes_of(delivered),
                                           bytes_of("RETRYCOUNT"),
                                           bytes_of(deliveries),
                                           bytes_of("FORCE"),
                                           bytes_of("JUSTID")};
        rc = batch_add(&pieces->batch, args, ARRAY_SIZE(args), err);
        copy_went_on(work);
        if (rc < 0) {
            break;
        }
    }
    copy_pending_end(&pending);
    return rc < 0 ? rc : batch_flush(&pieces->batch, err);
}

static int put_groups(struct pieces *pieces, bool *counts, struct impel_error *err)
{
    const struct copy_state *source = pieces->work->source;
    struct copy_state target;
    int rc = copy_state_read(pieces->work->to, pieces->work->building, &target, err);

    *counts = target.counts;
    copy_state_release(&target);
    for (size_t i = 0; rc >= 0 && i < source->group_count; i++) {
        rc = create_group(pieces, &source->groups[i], *counts, err);
        rc = rc < 0 ? rc : put_pending(pieces, &source->groups[i], err);
    }
    return rc;
}

/* ---- the end ---- */

/* What was trimmed away is trimmed, what was deleted is deleted: only the latter is remembered as the
 * largest deleted ID. All that was trimmed stands before the first entry. */
static int drop_stand_ins(struct pieces *pieces, bool counts, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    const struct copy_state *source = work->source;
    char id[ID_TEXT_SIZE];
    bool empty = source->length == 0;
    const struct impel_bytes trim[] = {bytes_of("XTRIM"), work->building,
                                       bytes_of(empty ? "MAXLEN" : "MINID"), bytes_of("="),
                                       bytes_of(empty ? "0" : id_format(source->first_id, id))};
    int rc = IMPEL_OK;

    if (pieces->gone_count > 0 && (counts || empty)) {
        rc = tell(work, trim, ARRAY_SIZE(trim), err);
    }
    for (size_t i = 0; rc >= 0 && i < pieces->gone_count; i++) {
        if (counts && (empty || id_compare(pieces->gone[i], source->first_id) < 0)) {
            continue;
        }
        const struct impel_bytes args[] = {bytes_of("XDEL"), work->building,
                                           bytes_of(id_format(pieces->gone[i], id))};
        rc = batch_add(&pieces->batch, args, ARRAY_SIZE(args), err);
    }
    return rc < 0 ? rc : batch_flush(&pieces->batch, err);
}

static int put_end(struct pieces *pieces, bool counts, struct impel_error *err)
{
    struct copy_work *work = pieces->work;
    const struct copy_state *source = work->source;
    char last[ID_TEXT_SIZE], deleted[ID_TEXT_SIZE], added[32], ttl[32];

    snprintf(added, sizeof(added), "%lld", (long long)source->entries_added);
    snprintf(ttl, sizeof(ttl), "%lld", (long long)source->ttl_ms);
    const struct impel_bytes set[] = {bytes_of("XSETID"),
                                      work->building,
                                      bytes_of(id_format(source->last_id, last)),
                                      bytes_of("ENTRIESADDED"),
                                      bytes_of(added),
                                      bytes_of("MAXDELETEDID"),
                                      bytes_of(id_format(source->max_deleted_id, deleted))};
    const struct impel_bytes expire[] = {bytes_of("PEXPIRE"), work->building, bytes_of(ttl)};
    const struct impel_bytes persist[] = {bytes_of("PERSIST"), work->building};
    bool expires = source->ttl_ms >= 0;
    int rc = tell(work, set, counts && source->counts ? ARRAY_SIZE(set) : 3, err);

    return rc < 0 ? rc : tell(work, expires ? expire : persist, expires ? 3 : 2, err);
}

static int build_pieces(struct copy_work *work, struct impel_error *err)
{
    struct pieces *pieces = calloc(1, sizeof(*pieces));
    bool counts = false;

    if (pieces == NULL) {
        return no_memory(err);
    }
    pieces->work = work;
    pieces->batch.store = work->to;
    int rc = find_gone(pieces, err);
    rc = rc < 0 ? rc : rewind_source(pieces, err);
    rc = rc < 0 ? rc : put_entries(pieces, err);
    rc = rc < 0 ? rc : put_groups(pieces, &counts, err);
    rc = rc < 0 ? rc : drop_stand_ins(pieces, counts, err);
    rc = rc < 0 ? rc : put_end(pieces, counts, err);
    batch_drop(&pieces->batch);
    copy_entries_end(&pieces->source);
    free(pieces->gone);
    free(pieces);
    return rc;
}

/* How a stream keeps the IDs of idempotent adds. The IDs themselves no command tells. */
static int put_idempotence(struct copy_work *work, struct impel_error *err)
{
    const struct copy_state *source = work->source;
    char duration[32], iids[32], stream[96];

    if (!copy_state_idempotent(source)) {
        return IMPEL_OK;
    }
    snprintf(duration, sizeof(duration), "%lld", (long long)source->idmp_duration_s);
    snprintf(iids, sizeof(iids), "%lld", (long long)source->idmp_iids_max);
    const struct impel_bytes set[] = {bytes_of("XCFGSET"),       work->building,
                                      bytes_of("IDMP-DURATION"), bytes_of(duration),
                                      bytes_of("IDMP-MAXSIZE"),  bytes_of(iids)};
    int rc = tell(work, set, ARRAY_SIZE(set), err);
    if (rc == IMPEL_ERR_REPLY) {
        console_note(
            "stream '%s': the target knows no idempotent adds, and gets none of their settings",
            bytes_quote(work->stream, stream, sizeof(stream)));
        return IMPEL_OK;
    }
    return rc;
}

int copy_build(struct copy_work *work, struct impel_error *err)
{
    int rc = fits_whole(work) ? build_whole(work, err) : 0;

    work->in_pieces = rc == 0;
    if (rc > 0) {
        work->done += work->source->length + work->source->pending;
    } else if (rc == 0) {
        rc = build_pieces(work, err);
    }
    return rc < 0 ? rc : put_idempotence(work, err);
}
