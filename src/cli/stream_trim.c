/* stream_trim.c -- asking about the groups, cutting in bounded steps. */
#include "cli/stream_trim.h"

#include "cli/console.h"
#include "cli/group_facts.h"
#include "cli/pages.h"

#include <string.h>

enum {
    STEP_ENTRIES = 10000, /* a server does nothing else meanwhile: a few ms */
};

static bool listed(const struct text_list *list, struct impel_bytes name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (bytes_equal(bytes_of(list->texts[i]), name)) {
            return true;
        }
    }
    return false;
}

/* ---- the groups ---- */

static void
find_floor(struct trim_group *group, const struct info_group *from, struct impel_id last)
{
    group->floor = from->last_delivered;
    (void)id_next(&group->floor);
    group->unfinished = id_compare(from->last_delivered, last) < 0 || from->pending > 0;
    if (from->pending > 0 && id_compare(from->first_pending, group->floor) < 0) {
        group->floor = from->first_pending;
        group->pending = true;
    }
}

/* The first entry that the group has not read: in its place stands an ID that may never have been.
 * Without one there is nothing left to read, whatever the last ID of the stream. */
static int find_unread(struct trim_group *group,
                       struct trim_report *report,
                       struct store *store,
                       struct impel_error *err)
{
    struct request *range = session_request(REQUEST_RANGE, report->stream, (struct impel_bytes){0});
    int rc;

    if (range != NULL) {
        range->range.start = group->floor;
        range->range.end = ID_MAX;
        range->range.count = 1;
    }
    rc = session_ask(store, range, err);
    ASSERT(rc < 0 || range != NULL);
    if (rc >= 0) {
        group->unfinished = range->range.entry_count > 0;
    }
    if (rc >= 0 && group->unfinished) {
        group->floor = range->range.entries[0]->id;
    }
    request_free(range);
    return rc;
}

/* A group without a consumer may be new, and its workers on their way: it counts as stalled when what
 * it has not read has waited for long. */
static bool is_stalled(const struct trim_group *group, int64_t now_ms, int64_t stalled_ms)
{
    if (group->seen_ms >= 0 || group->pending) {
        return group->seen_ms < 0 || group->seen_ms >= stalled_ms;
    }
    int64_t added_ms = group->floor.ms > INT64_MAX ? INT64_MAX : (int64_t)group->floor.ms;
    return sub_saturating(now_ms, added_ms) >= stalled_ms;
}

static int look_at_group(struct trim_report *report,
                         struct store *store,
                         const struct trim_plan *plan,
                         const struct request *info,
                         size_t index,
                         struct impel_error *err)
{
    const struct info_group *from = &info->info.groups[index];
    struct trim_group *group = &report->groups[index];
    bool alive = false;
    int rc;

    *group = (struct trim_group){.ignored = listed(plan->ignored, from->name)};
    if (!arena_copy(&report->arena, from->name, &group->name)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    find_floor(group, from, info->info.last_id);
    group->lost_unread = facts_lost_unread(info, from);
    rc = facts_lost_pending(store, info, from, &group->lost_pending, err);
    if (rc >= 0 && group->unfinished && !group->pending) {
        rc = find_unread(group, report, store, err);
    }
    if (rc < 0 || !group->unfinished) {
        return rc;
    }
    rc = facts_any_alive(store, report->stream, from->name, &alive, err);
    rc = rc < 0 ? rc : facts_seen_ms(store, report->stream, from->name, &group->seen_ms, err);
    group->stalled = !alive && is_stalled(group, info->store_now_ms, plan->stalled_ms);
    return rc;
}

/* Only what is still the same work has stalled. */
static int clear_moved(struct trim_report *report,
                       struct store *store,
                       const struct request *before,
                       struct impel_error *err)
{
    struct request *later = session_request(REQUEST_INFO, report->stream, (struct impel_bytes){0});
    int rc = session_ask(store, later, err);

    for (size_t i = 0; rc >= 0 && i < report->group_count; i++) {
        report->groups[i].stalled &= facts_same_work(&before->info.groups[i], later);
    }
    request_free(later);
    return rc;
}

/* A misspelt name would leave a group asked that was to be ignored, or hide that one is gone. */
static int check_ignored(const struct trim_report *report,
                         const struct trim_plan *plan,
                         struct impel_error *err)
{
    for (size_t i = 0; !plan->many && i < plan->ignored->count; i++) {
        struct impel_bytes name = bytes_of(plan->ignored->texts[i]);
        char stream[64], quoted[64];
        bool found = false;
        for (size_t j = 0; j < report->group_count; j++) {
            found |= bytes_equal(report->groups[j].name, name);
        }
        if (!found) {
            return error_set(err, IMPEL_ERR_INVALID,
                             "--ignore-group: there is no group '%s' on '%s'",
                             bytes_quote(name, quoted, sizeof(quoted)),
                             bytes_quote(report->stream, stream, sizeof(stream)));
        }
    }
    return IMPEL_OK;
}

static int look_at_groups(struct trim_report *report,
                          struct store *store,
                          const struct trim_plan *plan,
                          const struct request *info,
                          struct impel_error *err)
{
    char name[64];
    bool any_stalled = false;
    int rc = IMPEL_OK;

    if (!info->info.exists) {
        return error_set(err, IMPEL_ERR_NOT_FOUND, "there is no stream '%s' in this store",
                         bytes_quote(report->stream, name, sizeof(name)));
    }
    report->length = info->info.length;
    report->groups =
        arena_calloc(&report->arena, info->info.group_count + 1, sizeof(*report->groups));
    if (report->groups == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; rc >= 0 && i < info->info.group_count; i++) {
        rc = look_at_group(report, store, plan, info, i, err);
        any_stalled |= report->groups[i].stalled;
        report->group_count++;
    }
    rc = rc >= 0 && any_stalled ? clear_moved(report, store, info, err) : rc;
    for (size_t i = 0; rc >= 0 && i < report->group_count; i++) {
        const struct trim_group *group = &report->groups[i];
        if (group->unfinished && !group->ignored &&
            (report->holder == NULL || id_compare(group->floor, report->holder->floor) < 0)) {
            report->holder = group;
        }
    }
    return rc;
}

/* ---- cutting ---- */

/* What is younger stays: the ID of an entry begins with the store's time when it was added. */
static struct impel_id keep_from(const struct trim_plan *plan, int64_t now_ms)
{
    if (plan->keep.age_ms == 0) {
        return ID_MAX;
    }
    return (struct impel_id){
        .ms = now_ms > plan->keep.age_ms ? (uint64_t)(now_ms - plan->keep.age_ms) : 0};
}

static struct request *
step_request(struct impel_bytes stream, const struct trim_plan *plan, struct impel_id from)
{
    struct request *request = session_request(REQUEST_TRIM_DONE, stream, (struct impel_bytes){0});
    size_t count = plan->ignored->count;
    struct impel_bytes *ignored =
        request == NULL ? NULL : arena_calloc(&request->arena, count + 1, sizeof(*ignored));

    if (ignored == NULL) {
        request_free(request);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        ignored[i] = bytes_of(plan->ignored->texts[i]);
    }
    request->trim_done.ignored = ignored;
    request->trim_done.ignored_count = count;
    request->trim_done.length_min = plan->keep.length;
    request->trim_done.keep_from = from;
    request->trim_done.limit = STEP_ENTRIES;
    return request;
}

static int cut(struct trim_report *report,
               struct store *store,
               const struct trim_plan *plan,
               struct impel_id from,
               struct impel_error *err)
{
    struct progress progress;
    bool more = true;
    int rc = IMPEL_OK;

    progress_init(&progress, "trimming", report->length);
    while (more && rc >= 0) {
        struct request *step = step_request(report->stream, plan, from);
        rc = session_ask(store, step, err);
        if (rc >= 0) {
            report->removed += step->trim_done.removed;
            more = step->trim_done.more;
            progress_show(&progress, report->removed, report->removed);
        }
        request_free(step);
    }
    progress_end(&progress);
    return rc;
}

static int count_entry(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct trim_report *report = user;

    (void)stream;
    (void)entry;
    report->removed++;
    return IMPEL_OK;
}

/* What a cut would remove now. */
static int count(struct trim_report *report,
                 struct store *store,
                 const struct trim_plan *plan,
                 struct impel_id from,
                 struct impel_error *err)
{
    struct pages pages = {
        .store = store,
        .stream = report->stream,
        .end = ID_MAX,
        .entry = count_entry,
        .user = report,
    };
    bool any = false;

    for (size_t i = 0; i < report->group_count; i++) {
        const struct trim_group *group = &report->groups[i];
        if (!group->ignored) {
            any = true;
            pages.end = id_compare(group->floor, pages.end) < 0 ? group->floor : pages.end;
        }
    }
    if (!any) {
        return error_set(err, IMPEL_ERR_NO_GROUP, "no group says what is finished");
    }
    pages.end = id_compare(from, pages.end) < 0 ? from : pages.end;
    if (report->length <= plan->keep.length || !id_previous(&pages.end)) {
        return IMPEL_OK;
    }
    pages.count = report->length - plan->keep.length;
    return pages_walk(&pages, err);
}

int stream_trim(struct trim_report *report,
                struct store *store,
                const struct trim_plan *plan,
                struct impel_bytes stream,
                struct impel_error *err)
{
    struct request *info = session_request(REQUEST_INFO, stream, (struct impel_bytes){0});
    char name[64];
    int rc;

    *report = (struct trim_report){.stream = stream};
    rc = session_ask(store, info, err);
    rc = rc < 0 ? rc : look_at_groups(report, store, plan, info, err);
    rc = rc < 0 ? rc : check_ignored(report, plan, err);
    if (rc >= 0) {
        struct impel_id from = keep_from(plan, info->store_now_ms);
        rc = (plan->dry_run ? count : cut)(report, store, plan, from, err);
    }
    if (rc == IMPEL_ERR_NO_GROUP) {
        error_set(err, rc, "the stream '%s' has no group%s that could say what is finished",
                  bytes_quote(stream, name, sizeof(name)),
                  report->group_count > 0 ? " but ignored ones" : "");
    }
    request_free(info);
    return rc;
}

void trim_report_release(struct trim_report *report)
{
    arena_release(&report->arena);
    *report = (struct trim_report){0};
}

bool trim_needs_attention(const struct trim_report *report)
{
    for (size_t i = 0; i < report->group_count; i++) {
        const struct trim_group *group = &report->groups[i];
        if ((group->stalled && !group->ignored) || group->lost_pending + group->lost_unread > 0) {
            return true;
        }
    }
    return false;
}
