/* dead_move.c -- where each record goes, how fast, and how many at once. */
#include "cli/dead_move.h"

#include "cli/group_facts.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH_BYTES = 8 << 20, /* a step holds up the store's other users */
    BATCHES_PER_SECOND = 10,
};

/* ---- rate ---- */

/* "100", "100/s", "30/m", "5/h". */
static int parse_rate(const char *text, double *per_second, struct impel_error *err)
{
    char *end = NULL, quoted[60];

    errno = 0;
    double number = strtod(text, &end);
    double seconds = strcmp(end, "") == 0 || strcmp(end, "/s") == 0 ? 1
                     : strcmp(end, "/m") == 0                       ? 60
                     : strcmp(end, "/h") == 0                       ? 3600
                                                                    : 0;
    if (end == text || errno != 0 || !isfinite(number) || number <= 0 || seconds == 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "bad value \"%s\" for '--rate': a rate is like 100/s, 30/m or 5/h",
                         bytes_quote(bytes_of(text), quoted, sizeof(quoted)));
    }
    *per_second = number / seconds;
    return IMPEL_OK;
}

void mover_pace(struct mover *mover)
{
    if (mover->per_second <= 0) {
        return;
    }
    double due_ms = (double)mover->sent * 1000 / mover->per_second;
    for (;;) {
        double wait_ms = due_ms - (double)(clock_now_ms() - mover->begun_ms);
        if (wait_ms < 1) {
            return;
        }
        progress_show(&mover->progress, mover->seen, mover->counts[REPLAY_DONE]);
        (void)poll(NULL, 0, wait_ms > 500 ? 500 : (int)wait_ms);
    }
}

/* ---- who does it ---- */

static bool line_add(struct mover *mover, const char *name, const char *value)
{
    struct impel_field *field = &mover->line[mover->line_count++];

    ASSERT(mover->line_count <= AUDIT_LINE_MAX);
    field->name = bytes_of(name);
    return arena_copy(&mover->arena, bytes_of(value), &field->value);
}

static bool describe(struct mover *mover)
{
    static const char *const actions[] = {
        [REPLAY_ADD] = "replay", [REPLAY_BACK] = "replay --in-place", [REPLAY_DROP] = "drop"};
    const struct passwd *user = getpwuid(getuid());
    char host[256] = "", number[24];

    (void)gethostname(host, sizeof(host) - 1);
    (void)snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    return line_add(mover, "action", actions[mover->mode]) &&
           line_add(mover, "user", user != NULL ? user->pw_name : number) &&
           line_add(mover, "host", host);
}

int mover_init(struct mover *mover, struct impel_error *err)
{
    const char *rate = mover->dead->options->rate;
    int rc = rate == NULL ? IMPEL_OK : parse_rate(rate, &mover->per_second, err);

    if (rc < 0) {
        return rc;
    }
    mover->batch_max = REPLAY_ITEMS_MAX;
    if (mover->per_second > 0 && mover->per_second < REPLAY_ITEMS_MAX * BATCHES_PER_SECOND) {
        mover->batch_max = (size_t)(mover->per_second / BATCHES_PER_SECOND);
        mover->batch_max = mover->batch_max == 0 ? 1 : mover->batch_max;
    }
    mover->begun_ms = clock_now_ms();
    return describe(mover) ? IMPEL_OK : error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

void mover_release(struct mover *mover)
{
    request_free(mover->batch);
    arena_release(&mover->place_arena);
    arena_release(&mover->arena);
}

/* ---- where to ---- */

int mover_refuse_groups(struct impel_bytes stream,
                        const struct impel_bytes *other,
                        struct impel_error *err)
{
    char name[100], quoted[80], group[100] = "another group";

    if (other != NULL) {
        (void)snprintf(group, sizeof(group), "the group '%s'",
                       bytes_quote(*other, quoted, sizeof(quoted)));
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "'%s' also has %s, which would get the entries as new work: --in-place "
                     "gives them back to their own group only, --to STREAM adds them elsewhere, "
                     "--all-groups lets all groups have them",
                     bytes_quote(stream, name, sizeof(name)), group);
}

/* Of a stream's groups: is there one beside the record's own? Of one that has a single group, that
 * is taken for the record's where the record does not say. */
static int check_groups(struct mover *mover, struct impel_error *err)
{
    struct request *info =
        session_request(REQUEST_INFO, mover->place_stream, (struct impel_bytes){0});
    int rc = session_ask(mover->dead->store, info, err);
    size_t count = rc < 0 ? 0 : info->info.group_count;

    if (rc >= 0 && mover->group.size == 0 && count == 1 &&
        !arena_copy(&mover->place_arena, info->info.groups[0].name, &mover->group)) {
        rc = error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; rc >= 0 && i < count; i++) {
        if (!bytes_equal(info->info.groups[i].name, mover->group)) {
            rc = mover_refuse_groups(mover->place_stream, &info->info.groups[i].name, err);
        }
    }
    request_free(info);
    return rc;
}

static bool asks_for_groups(const struct mover *mover)
{
    return mover->mode == REPLAY_ADD && mover->dead->options->to == NULL &&
           !mover->dead->options->all_groups;
}

/* The stream that a record came from, and its group, as it or the user says. */
static struct impel_bytes stream_of(const struct mover *mover, const struct dead_record *record)
{
    return record->original_stream.size > 0 ? record->original_stream : mover->dead->stream;
}

static struct impel_bytes group_of(const struct mover *mover, const struct dead_record *record)
{
    const char *given = mover->dead->options->group;

    return record->original_group.size > 0 ? record->original_group
           : given != NULL                 ? bytes_of(given)
                                           : (struct impel_bytes){NULL, 0};
}

/* Finds where the record goes: 1, or 0 if it does not say enough. A place that is another than
 * before is looked up. */
static int
find_place(struct mover *mover, const struct dead_record *record, struct impel_error *err)
{
    const char *to = mover->dead->options->to;
    struct impel_bytes stream = mover->mode == REPLAY_DROP ? mover->dead->dead_letter
                                : to != NULL               ? bytes_of(to)
                                                           : stream_of(mover, record);
    struct impel_bytes group =
        mover->mode == REPLAY_DROP ? (struct impel_bytes){NULL, 0} : group_of(mover, record);

    if (stream.size == 0) {
        mover->why = "it names no stream; --stream or --to does";
        return 0;
    }
    if (mover->mode == REPLAY_BACK && group.size == 0) {
        mover->why = "it names no group; --group does";
        return 0;
    }
    if (mover->mode != REPLAY_DROP && (bytes_equal(stream, mover->dead->dead_letter) ||
                                       bytes_equal(stream, mover->dead->audit))) {
        mover->why = "it names the stream of the records or of the audit as its own; --to names "
                     "another";
        return 0;
    }
    if (mover->placed && bytes_equal(stream, mover->place_stream) &&
        bytes_equal(group, mover->place_group)) {
        return 1;
    }
    int rc = mover_flush(mover, err);
    if (rc < 0) {
        return rc;
    }
    arena_release(&mover->place_arena);
    mover->placed = arena_copy(&mover->place_arena, stream, &mover->place_stream) &&
                    arena_copy(&mover->place_arena, group, &mover->place_group);
    if (!mover->placed) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    mover->group = mover->place_group;
    rc = asks_for_groups(mover) ? check_groups(mover, err) : IMPEL_OK;
    return rc < 0 ? rc : 1;
}

/* ---- dry runs ---- */

/* What a put-back would find, by what is in the stream, pending, and delivered. */
static enum replay_result
back_result(const struct request *range, const struct request *pending, const struct request *info)
{
    if (range->range.entry_count == 0) {
        return REPLAY_GONE;
    }
    const struct info_group *group = facts_group(info, info->group);
    if (group != NULL && id_compare(range->range.start, group->last_delivered) > 0) {
        return REPLAY_STANDS;
    }
    return pending->pending.row_count > 0 ? REPLAY_STANDS : REPLAY_DONE;
}

static int foresee_back(struct mover *mover,
                        const struct request *batch,
                        struct replay_item *item,
                        struct impel_error *err)
{
    struct request *range = session_request(REQUEST_RANGE, batch->stream, batch->group);
    struct request *pending = session_request(REQUEST_PENDING, batch->stream, batch->group);
    struct request *info = session_request(REQUEST_INFO, batch->stream, batch->group);
    int rc = IMPEL_ERR_NOMEM;

    if (range == NULL || pending == NULL || info == NULL) {
        (void)error_set(err, rc, "out of memory");
    } else {
        range->range.start = range->range.end = item->original_id;
        pending->pending.start = pending->pending.end = item->original_id;
        range->range.count = pending->pending.count = 1;
        rc = session_ask(mover->dead->store, range, err);
        rc = rc < 0 ? rc : session_ask(mover->dead->store, pending, err);
        rc = rc < 0 ? rc : session_ask(mover->dead->store, info, err);
        item->result = rc < 0 ? REPLAY_NONE : back_result(range, pending, info);
    }
    request_free(range);
    request_free(pending);
    request_free(info);
    return rc;
}

int mover_foresee(struct mover *mover, struct request *batch, struct impel_error *err)
{
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < batch->replay.item_count; i++) {
        batch->replay.items[i].result = REPLAY_DONE;
        if (mover->mode == REPLAY_BACK) {
            rc = foresee_back(mover, batch, &batch->replay.items[i], err);
        }
    }
    return rc;
}

/* ---- batches ---- */

static struct request *batch_new(const struct mover *mover)
{
    const struct dead *dead = mover->dead;
    struct request *batch = session_request(REQUEST_REPLAY, mover->place_stream, mover->group);
    struct replay_item *items =
        batch == NULL ? NULL
                      : arena_calloc(&batch->arena, REPLAY_ITEMS_MAX, sizeof(struct replay_item));

    if (items == NULL) {
        request_free(batch);
        return NULL;
    }
    batch->replay.mode = mover->mode;
    batch->replay.alone = asks_for_groups(mover);
    batch->replay.dead_letter = dead->dead_letter;
    batch->replay.audit = dead->audit;
    batch->replay.audit_fields = mover->line;
    batch->replay.audit_field_count = mover->line_count;
    batch->replay.items = items;
    return batch;
}

static int add_item(struct mover *mover,
                    const struct dead_record *record,
                    size_t size,
                    struct impel_error *err)
{
    struct dead_entry entry;
    struct request *batch = mover->batch != NULL ? mover->batch : batch_new(mover);

    mover->batch_bytes = (mover->batch == NULL ? 0 : mover->batch_bytes) + size;
    mover->batch = batch;
    size_t at = batch == NULL ? 0 : batch->replay.item_count;
    if (batch == NULL || !arena_copy(&batch->arena, record->original_id, &mover->originals[at]) ||
        dead_record_entry(record, &mover->dead->options->strip, &batch->arena, &entry) < 0) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    batch->replay.items[at] = (struct replay_item){.id = record->id,
                                                   .field_count = (uint32_t)record->total_count,
                                                   .runs = entry.runs,
                                                   .run_count = entry.run_count};
    (void)id_parse(record->original_id, 0, &batch->replay.items[at].original_id);
    if (entry.field_count == 0 && mover->mode == REPLAY_ADD) {
        mover->why = "there is no field of an entry in it";
        return 0;
    }
    batch->replay.item_count++;
    return 1;
}

static size_t size_of(const struct dead_record *record)
{
    size_t size = 0;

    for (size_t i = 0; i < record->field_count; i++) {
        size += record->fields[i].name.size + record->fields[i].value.size;
    }
    return size;
}

int mover_record(void *user, const struct dead_record *record, struct impel_error *err)
{
    struct mover *mover = user;
    struct impel_id original;
    size_t size = size_of(record);
    int rc = find_place(mover, record, err);

    if (rc > 0 && mover->mode == REPLAY_BACK && id_parse(record->original_id, 0, &original) < 0) {
        mover->why = "its original_id is no ID";
        rc = 0;
    }
    if (rc > 0 && mover->batch != NULL && mover->batch_bytes + size > BATCH_BYTES) {
        rc = mover_flush(mover, err);
        rc = rc < 0 ? rc : 1;
    }
    rc = rc <= 0 ? rc : add_item(mover, record, size, err);
    if (rc == 0 && mover->unplaced++ == 0) {
        (void)id_format(record->id, mover->unplaced_first);
        mover->unplaced_why = mover->why;
    }
    if (rc > 0 && mover->batch->replay.item_count >= mover->batch_max) {
        rc = mover_flush(mover, err);
    }
    return rc < 0 ? rc : IMPEL_OK;
}
