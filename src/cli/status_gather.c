/* status_gather.c -- asking a store for all that `status` shows.
 *
 * A look without a beat says who holds how much. Only the pending entries of those who are not
 * alive are walked, so that the cost follows abandoned work. */
#include "base/glob.h"
#include "cli/console.h"
#include "cli/dead_record.h"
#include "cli/group_facts.h"
#include "cli/pages.h"
#include "cli/status.h"
#include "cli/stream_names.h"
#include "core/policy.h"

#include <string.h>

enum {
    ROWS_MAX = 1000,
};

/* What a gathering needs on the way. */
struct gatherer {
    struct store *store;
    const struct options *options;
    struct arena *arena;
    struct impel_error *err;
    uint64_t count_max;            /* for lag */
    const struct status *previous; /* may be NULL */
};

static int no_memory(const struct gatherer *gatherer)
{
    return error_set(gatherer->err, IMPEL_ERR_NOMEM, "out of memory");
}

/* ---- pending entries of those who are not alive ---- */

static void count_row(const struct gatherer *gatherer,
                      struct status_group *group,
                      const struct look_owner *owner,
                      const struct pending_row *row)
{
    struct policy policy = options_policy(gatherer->options);
    struct pending_view view = {
        .id = row->id,
        .owner = owner->state,
        .idle_ms = row->idle_ms,
        .silence_ms = owner->beat_age_ms < 0 ? 0 : owner->beat_age_ms,
        .deliveries = facts_deliveries(row),
        .exists = row->exists,
    };
    switch (policy_verdict(&policy, &view, NULL)) {
    case VERDICT_WAIT:
        group->not_due++;
        break;
    case VERDICT_REAP:
        group->lost_pending++;
        group->abandoned++;
        break;
    case VERDICT_CLAIM:
    case VERDICT_PARK:
        group->abandoned++;
        break;
    case VERDICT_MINE:
    case VERDICT_LEAVE:
        break;
    }
}

/* Walks the pending entries of one owner, or of all owners for those of nobody. */
static int walk_pending(const struct gatherer *gatherer,
                        struct status_group *group,
                        struct impel_bytes stream,
                        const struct look_owner *owner)
{
    struct impel_id from = ID_MIN;
    bool more = true;
    int rc = IMPEL_OK;

    while (more && rc >= 0) {
        struct request *page = session_request(REQUEST_PENDING, stream, group->name);
        if (page != NULL) {
            page->pending.start = from;
            page->pending.end = ID_MAX;
            page->pending.count = ROWS_MAX;
            page->pending.by_owner = owner->state != OWNER_NOBODY;
            page->pending.owner = owner->name;
        }
        rc = session_ask(gatherer->store, page, gatherer->err);
        ASSERT(rc < 0 || page != NULL);
        for (size_t i = 0; rc >= 0 && i < page->pending.row_count; i++) {
            const struct pending_row *row = &page->pending.rows[i];
            if (owner->state != OWNER_NOBODY || pending_row_nobodys(row)) {
                count_row(gatherer, group, owner, row);
            }
            from = row->id;
        }
        more = rc >= 0 && page->pending.row_count == ROWS_MAX && id_next(&from);
        request_free(page);
    }
    return rc;
}

static void add_worker(const struct gatherer *gatherer,
                       struct status_group *group,
                       const struct look_owner *owner)
{
    struct status_worker *worker = &group->workers[group->worker_count];

    if (owner->state == OWNER_RELEASED || owner->state == OWNER_NOBODY) {
        return;
    }
    *worker = (struct status_worker){
        .foreign = !owner->in_table,
        .held = owner->pending,
        .beat_age_ms = owner->in_table ? owner->beat_age_ms : -1,
    };
    if (!arena_copy(gatherer->arena, owner->name, &worker->consumer)) {
        return;
    }
    if (owner->state == OWNER_LIVE || owner->state == OWNER_ME) {
        worker->alive = ALIVE_YES;
        group->live_count++;
    } else if (owner->state == OWNER_DEAD) {
        worker->alive = ALIVE_NO;
    }
    group->foreign_count += worker->foreign;
    group->unknown += owner->state == OWNER_UNKNOWN ? owner->pending : 0;
    group->worker_count++;
}

static int take_look(const struct gatherer *gatherer,
                     struct status_group *group,
                     struct impel_bytes stream,
                     const struct request *look)
{
    static const struct look_owner nobody = {.state = OWNER_NOBODY, .beat_age_ms = -1};
    uint64_t owned = 0;
    int rc = IMPEL_OK;

    group->pending = look->look.pending;
    group->workers = arena_calloc(gatherer->arena, look->look.owner_count, sizeof(*group->workers));
    if (group->workers == NULL) {
        return no_memory(gatherer);
    }
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        add_worker(gatherer, group, owner);
        owned += owner->pending;
        if (owner->pending > 0 && owner->state != OWNER_LIVE && owner->state != OWNER_ME) {
            rc = walk_pending(gatherer, group, stream, owner);
        }
    }
    if (rc >= 0 && owned < look->look.pending) {
        rc = walk_pending(gatherer, group, stream, &nobody);
    }
    return rc;
}

/* ---- parked ---- */

struct count_parked {
    struct impel_bytes group;
    uint64_t ours; /* of this group */
    uint64_t all;
};

static int count_record(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct count_parked *parked = user;
    struct dead_record record;

    (void)stream;
    parked->all++;
    parked->ours +=
        dead_record_parse(entry, &record) && bytes_equal(record.original_group, parked->group);
    return 0;
}

/* The same group in the gathering before, if there was one. */
static const struct status_group *
find_previous(const struct status *previous, struct impel_bytes stream, struct impel_bytes group)
{
    for (size_t i = 0; previous != NULL && i < previous->stream_count; i++) {
        const struct status_stream *other = &previous->streams[i];
        for (size_t j = 0; bytes_equal(other->name, stream) && j < other->group_count; j++) {
            if (bytes_equal(other->groups[j].name, group)) {
                return &other->groups[j];
            }
        }
    }
    return NULL;
}

static int count_parked(const struct gatherer *gatherer,
                        struct impel_bytes dead_letter,
                        struct impel_id from,
                        struct count_parked *parked)
{
    struct pages pages = {
        .store = gatherer->store,
        .stream = dead_letter,
        .start = from,
        .end = ID_MAX,
        .entry = count_record,
        .user = parked,
    };

    parked->ours = parked->all = 0;
    return pages_walk(&pages, gatherer->err);
}

/* Counts the records of this group. Whoever gathered before has counted most of them: if there are as
 * many as then and those that came since, the new ones are counted alone. */
static int count_records(const struct gatherer *gatherer,
                         struct status_group *group,
                         struct impel_bytes stream,
                         const struct request *info)
{
    const struct status_group *before = find_previous(gatherer->previous, stream, group->name);
    struct count_parked parked = {.group = group->name};
    struct impel_id from = before == NULL ? ID_MIN : before->dead_last_id;
    int rc = IMPEL_OK;

    group->dead_last_id = info->info.last_id;
    group->dead_length = info->info.length;
    if (before != NULL && id_equal(from, info->info.last_id) &&
        before->dead_length == info->info.length) {
        group->parked = before->parked;
        return IMPEL_OK;
    }
    if (before != NULL && id_next(&from)) {
        rc = count_parked(gatherer, info->stream, from, &parked);
        if (rc < 0 || before->dead_length + parked.all == info->info.length) {
            group->parked = before->parked + parked.ours;
            return rc;
        }
    }
    rc = count_parked(gatherer, info->stream, ID_MIN, &parked);
    group->parked = parked.ours;
    return rc;
}

static int gather_parked(const struct gatherer *gatherer,
                         struct status_group *group,
                         struct impel_bytes stream)
{
    struct impel_bytes dead_letter;
    struct request *info = NULL;
    int rc;

    if (!options_dead_letter(gatherer->options, gatherer->arena, stream, &dead_letter)) {
        return no_memory(gatherer);
    }
    info = session_request(REQUEST_INFO, dead_letter, (struct impel_bytes){0});
    rc = session_ask(gatherer->store, info, gatherer->err);
    if (rc >= 0 && info->info.exists) {
        rc = count_records(gatherer, group, stream, info);
    }
    request_free(info);
    return rc == IMPEL_ERR_WRONG_TYPE ? IMPEL_OK : rc;
}

/* ---- groups and streams ---- */

static int
gather_group(const struct gatherer *gatherer, struct status_group *group, struct impel_bytes stream)
{
    struct request *look = session_request(REQUEST_LOOK, stream, group->name);
    int rc;

    if (look != NULL) {
        look->dead_after_ms = gatherer->options->dead_after_ms;
    }
    rc = session_ask(gatherer->store, look, gatherer->err);
    ASSERT(rc < 0 || look != NULL);
    if (rc >= 0) {
        rc = take_look(gatherer, group, stream, look);
    }
    request_free(look);
    if (rc >= 0) {
        rc = gather_parked(gatherer, group, stream);
    }
    if (rc >= 0 && group->lag > 0 && group->live_count == 0 && group->foreign_count > 0) {
        rc = facts_seen_ms(gatherer->store, stream, group->name, &group->seen_ms, gatherer->err);
    }
    group->lost = group->lost_pending + group->lost_unread;
    return rc;
}

static int take_lag(const struct gatherer *gatherer,
                    struct status_group *group,
                    const struct request *info,
                    const struct info_group *from)
{
    struct group_lag lag;
    int rc = facts_lag(gatherer->store, info, from, gatherer->count_max, &lag, gatherer->err);

    group->lag = rc < 0 ? -1 : lag.entries;
    group->lag_exact = rc >= 0 && lag.exact;
    return rc;
}

static int take_facts(const struct gatherer *gatherer,
                      struct status_group *group,
                      const struct request *info,
                      const struct info_group *from)
{
    *group = (struct status_group){
        .oldest_idle_ms = from->oldest_idle_ms > IDLE_MAX_MS ? -1 : from->oldest_idle_ms,
        .lost_unread = facts_lost_unread(info, from),
        .seen_ms = -1,
    };
    return take_lag(gatherer, group, info, from);
}

static int take_groups(const struct gatherer *gatherer,
                       struct status_stream *stream,
                       const struct request *info)
{
    const struct text_list *only = &gatherer->options->group_names;
    int rc = IMPEL_OK;

    stream->groups = arena_calloc(gatherer->arena, info->info.group_count, sizeof(*stream->groups));
    if (stream->groups == NULL) {
        return no_memory(gatherer);
    }
    for (size_t i = 0; rc >= 0 && i < info->info.group_count; i++) {
        const struct info_group *from = &info->info.groups[i];
        struct status_group *group = &stream->groups[stream->group_count];
        if (only->count > 0 && names_match(only, from->name) == NAME_OTHER) {
            continue;
        }
        rc = take_facts(gatherer, group, info, from);
        if (!arena_copy(gatherer->arena, from->name, &group->name)) {
            return no_memory(gatherer);
        }
        rc = rc < 0 ? rc : gather_group(gatherer, group, stream->name);
        stream->group_count++;
    }
    return rc;
}

/* What nobody reads is counted after nobody was found: a group that moved meanwhile is counted again. */
static int count_moved(const struct gatherer *gatherer,
                       struct status_stream *stream,
                       const struct request *before)
{
    struct request *later = NULL;
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < stream->group_count; i++) {
        struct status_group *group = &stream->groups[i];
        const struct info_group *then = facts_group(before, group->name);
        if (group->lag <= 0 || group->live_count > 0 || then == NULL) {
            continue;
        }
        if (later == NULL) {
            later = session_request(REQUEST_INFO, stream->name, (struct impel_bytes){0});
            rc = session_ask(gatherer->store, later, gatherer->err);
        }
        const struct info_group *now = rc < 0 ? NULL : facts_group(later, group->name);
        if (now != NULL && !facts_same_work(then, later)) {
            rc = take_lag(gatherer, group, later, now);
        }
    }
    request_free(later);
    return rc;
}

static void judge_groups(const struct gatherer *gatherer, struct status_stream *stream)
{
    struct policy policy = options_policy(gatherer->options);

    for (size_t i = 0; i < stream->group_count; i++) {
        status_judge(&stream->groups[i], stream->name, &policy);
    }
}

/* 1 = it exists, 0 = it does not. */
static int gather_stream(const struct gatherer *gatherer, struct status_stream *stream)
{
    struct request *info = session_request(REQUEST_INFO, stream->name, (struct impel_bytes){0});
    bool exists = false;
    int rc = session_ask(gatherer->store, info, gatherer->err);

    if (rc >= 0) {
        exists = info->info.exists;
        stream->length = info->info.length;
        stream->entries_added = info->info.entries_added;
        rc = take_groups(gatherer, stream, info);
        rc = rc < 0 ? rc : count_moved(gatherer, stream, info);
    }
    request_free(info);
    judge_groups(gatherer, stream);
    return rc < 0 ? rc : exists;
}

/* A stream nobody asked for by name is left out if it has no group and the name of a dead-letter
 * stream, which is seen in the groups that park to it, or of the audit beside one. */
static bool worth_showing(const struct gatherer *gatherer, const struct status_stream *stream)
{
    const struct options *options = gatherer->options;

    if (names_match(&options->streams, stream->name) == NAME_GIVEN || stream->group_count > 0) {
        return true;
    }
    return options->group == NULL && !stream_is_set_aside(stream->name, NULL);
}

/* What was asked for by name and is not there is an error, lest a misspelt name pass for a healthy
 * group. */
static int no_stream(const struct gatherer *gatherer, const struct status_stream *stream)
{
    char quoted[64];

    return error_set(gatherer->err, IMPEL_ERR_NOT_FOUND, "there is no stream '%s' in this store",
                     bytes_quote(stream->name, quoted, sizeof(quoted)));
}

static bool has_group(const struct status_stream *stream, struct impel_bytes name)
{
    for (size_t i = 0; i < stream->group_count; i++) {
        if (bytes_equal(stream->groups[i].name, name)) {
            return true;
        }
    }
    return false;
}

/* The stream that was named has none of the groups that were. */
static int no_group_of(const struct gatherer *gatherer, const struct status_stream *stream)
{
    const struct text_list *names = &gatherer->options->group_names;
    char quoted[64], group[64];

    bytes_quote(stream->name, quoted, sizeof(quoted));
    if (names->count > 1) {
        return error_set(gatherer->err, IMPEL_ERR_NOT_FOUND,
                         "the stream '%s' has none of these groups", quoted);
    }
    return error_set(gatherer->err, IMPEL_ERR_NOT_FOUND, "the stream '%s' has no group '%s'",
                     quoted, bytes_quote(bytes_of(names->texts[0]), group, sizeof(group)));
}

/* Each group that was named must be in some stream; patterns may match nothing. */
static int check_groups(const struct gatherer *gatherer, const struct status *status)
{
    const struct text_list *names = &gatherer->options->group_names;

    for (size_t i = 0; i < names->count; i++) {
        struct impel_bytes name = bytes_of(names->texts[i]);
        bool found = glob_is_pattern(name);
        for (size_t j = 0; j < status->stream_count && !found; j++) {
            found = has_group(&status->streams[j], name);
        }
        if (!found) {
            char group[64];
            return error_set(gatherer->err, IMPEL_ERR_NOT_FOUND,
                             "there is no group '%s' in this store",
                             bytes_quote(name, group, sizeof(group)));
        }
    }
    return IMPEL_OK;
}

/* 0 = the others go on. */
static int note_refused(const struct gatherer *gatherer, struct status *status)
{
    size_t size = strlen(gatherer->err->text) + 1;
    struct impel_bytes copy;

    if (!arena_copy(gatherer->arena, (struct impel_bytes){gatherer->err->text, size}, &copy) ||
        !text_list_add(gatherer->arena, &status->refused, copy.data)) {
        return no_memory(gatherer);
    }
    return 0;
}

static int
gather_streams(struct gatherer *gatherer, struct status *status, const struct stream_names *names)
{
    const struct options *options = gatherer->options;

    for (size_t i = 0; i < names->count; i++) {
        struct status_stream *stream = &status->streams[status->stream_count];
        bool given = names_match(&options->streams, names->items[i]) == NAME_GIVEN;
        *stream = (struct status_stream){.name = names->items[i]};
        int rc = gather_stream(gatherer, stream);
        if (rc == 0 && given) {
            rc = no_stream(gatherer, stream);
        } else if (rc > 0 && given && options->group != NULL && stream->group_count == 0) {
            rc = no_group_of(gatherer, stream);
        } else if (rc == IMPEL_ERR_WRONG_TYPE && !given) {
            rc = 0;
        }
        if (session_stream_refused(rc)) {
            rc = note_refused(gatherer, status);
        }
        if (rc < 0) {
            return rc;
        }
        status->stream_count += rc > 0 && worth_showing(gatherer, stream);
    }
    /* What could not be asked may have them. */
    return status->refused.count > 0 ? IMPEL_OK : check_groups(gatherer, status);
}

int status_gather(struct status *status,
                  struct store *store,
                  const struct options *options,
                  struct impel_error *err)
{
    struct gatherer gatherer = {
        .store = store,
        .options = options,
        .arena = &status->arena,
        .err = err,
        .count_max = status->previous == NULL ? LAG_COUNT_MAX : LAG_COUNT_MAX / 10,
        .previous = status->previous,
    };
    struct stream_names names = {.arena = &status->arena};
    int rc = stream_names_find(&names, store, &options->streams, options->dead_letter, err);

    if (rc < 0) {
        return rc;
    }
    status->streams = arena_calloc(&status->arena, names.count, sizeof(*status->streams));
    if (status->streams == NULL) {
        return no_memory(&gatherer);
    }
    return gather_streams(&gatherer, status, &names);
}

bool status_tell_refused(const struct status *status)
{
    for (size_t i = 0; i < status->refused.count; i++) {
        console_error("%s", status->refused.texts[i]);
    }
    return status->refused.count > 0;
}

void status_release(struct status *status)
{
    arena_release(&status->arena);
    *status = (struct status){0};
}
