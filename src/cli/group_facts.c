/* group_facts.c -- lag, losses and signs of life of a group, from IDs and counts instead of trust. */
#include "cli/group_facts.h"

#include "base/value.h"
#include "cli/pages.h"

enum {
    ROWS_MAX = 1000,
};

int64_t facts_deliveries(const struct pending_row *row)
{
    return row->deliveries < 0 ? INT64_MAX : add_saturating(row->deliveries, row->carried);
}

/* ---- the same work ---- */

const struct info_group *facts_group(const struct request *info, struct impel_bytes name)
{
    for (size_t i = 0; i < info->info.group_count; i++) {
        if (bytes_equal(info->info.groups[i].name, name)) {
            return &info->info.groups[i];
        }
    }
    return NULL;
}

bool facts_same_work(const struct info_group *before, const struct request *later)
{
    const struct info_group *now = facts_group(later, before->name);

    return now != NULL && now->pending == before->pending &&
           id_equal(now->last_delivered, before->last_delivered) &&
           id_equal(now->first_pending, before->first_pending);
}

/* ---- lag ---- */

struct counting {
    uint64_t count;
    size_t size_bytes;
};

static int count_entry(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct counting *counting = user;

    (void)stream;
    counting->count++;
    counting->size_bytes += entry->size_bytes;
    return counting->size_bytes > LAG_BYTES_MAX ? IMPEL_ERR_LIMIT : IMPEL_OK;
}

/* Counts the entries from `start` to `end`, at most `count_max`: 1 = that is all of them, 0 = there
 * are more. */
static int
count_range(struct pages *pages, uint64_t count_max, uint64_t *count, struct impel_error *err)
{
    struct counting counting = {0};
    struct impel_error why = {0};
    int rc;

    pages->count = count_max + 1;
    pages->entry = count_entry;
    pages->user = &counting;
    rc = pages_walk(pages, &why);
    *count = counting.count;
    if (rc == IMPEL_ERR_LIMIT) {
        return 0;
    }
    if (rc < 0) {
        return error_set(err, rc, "%s", why.text);
    }
    return counting.count <= count_max;
}

/* What the server says, as far as it does not contradict what was counted: at least `read` entries
 * lie before the group's place and `unread` behind it. */
static struct group_lag
believe(const struct request *info, int64_t said, uint64_t read, uint64_t unread)
{
    struct group_lag lag = {.entries = said};
    int64_t most = info->info.length > read ? (int64_t)(info->info.length - read) : 0;

    if (said < 0) {
        return lag;
    }
    lag.entries = lag.entries > most ? most : lag.entries;
    lag.entries = lag.entries < (int64_t)unread ? (int64_t)unread : lag.entries;
    return lag;
}

int facts_lag(struct store *store,
              const struct request *info,
              const struct info_group *group,
              uint64_t count_max,
              struct group_lag *lag,
              struct impel_error *err)
{
    struct pages ahead = {.store = store, .stream = info->stream, .end = ID_MAX};
    struct pages behind = {.store = store, .stream = info->stream, .end = group->last_delivered};
    uint64_t unread = 0, read = 0;
    int rc;

    *lag = (struct group_lag){.exact = true};
    if (info->info.length == 0 || id_compare(group->last_delivered, info->info.last_id) >= 0) {
        return IMPEL_OK;
    }
    if (id_compare(group->last_delivered, info->info.first_id) < 0) {
        lag->entries = (int64_t)info->info.length;
        return IMPEL_OK;
    }
    ahead.start = group->last_delivered;
    (void)id_next(&ahead.start);
    rc = count_range(&ahead, count_max, &unread, err);
    if (rc != 0) {
        lag->entries = (int64_t)unread;
        return rc < 0 ? rc : IMPEL_OK;
    }
    behind.reverse = true;
    rc = count_range(&behind, count_max, &read, err);
    if (rc > 0) {
        lag->entries = info->info.length > read ? (int64_t)(info->info.length - read) : 0;
    } else {
        *lag = believe(info, group->lag, read, unread);
    }
    return rc < 0 ? rc : IMPEL_OK;
}

/* ---- losses ---- */

uint64_t facts_lost_unread(const struct request *info, const struct info_group *group)
{
    bool before_all = info->info.length == 0
                          ? id_compare(group->last_delivered, info->info.last_id) < 0
                          : id_compare(group->last_delivered, info->info.first_id) < 0;
    uint64_t read = (uint64_t)group->entries_read;

    if (!before_all || group->entries_read < 0 ||
        info->info.entries_added < read + info->info.length) {
        return 0;
    }
    return info->info.entries_added - read - info->info.length;
}

int facts_lost_pending(struct store *store,
                       const struct request *info,
                       const struct info_group *group,
                       uint64_t *lost,
                       struct impel_error *err)
{
    struct impel_id from = ID_MIN, end = info->info.first_id;
    bool more = group->pending > 0;
    int rc = IMPEL_OK;

    *lost = 0;
    if (info->info.length == 0) {
        end = ID_MAX;
    } else if (!id_previous(&end)) {
        return IMPEL_OK;
    }
    while (more && rc >= 0) {
        struct request *page = session_request(REQUEST_PENDING, info->stream, group->name);
        if (page != NULL) {
            page->pending.start = from;
            page->pending.end = end;
            page->pending.count = ROWS_MAX;
        }
        rc = session_ask(store, page, err);
        ASSERT(rc < 0 || page != NULL);
        for (size_t i = 0; rc >= 0 && i < page->pending.row_count; i++) {
            *lost += !page->pending.rows[i].exists;
            from = page->pending.rows[i].id;
        }
        more = rc >= 0 && page->pending.row_count == ROWS_MAX && id_next(&from);
        request_free(page);
    }
    return rc;
}

/* ---- signs of life ---- */

/* The value of a name in a flat list or map of names and values; NULL if it is not there. */
static const struct value *value_of(const struct value *list, const char *name)
{
    for (size_t i = 0; i + 1 < list->item_count; i += 2) {
        if (bytes_equal(list->items[i].bytes, bytes_of(name))) {
            return &list->items[i + 1];
        }
    }
    return NULL;
}

int facts_seen_ms(struct store *store,
                  struct impel_bytes stream,
                  struct impel_bytes group,
                  int64_t *seen_ms,
                  struct impel_error *err)
{
    const struct impel_bytes args[] = {bytes_of("XINFO"), bytes_of("CONSUMERS"), stream, group};
    struct request *request = NULL;
    int rc = session_call(store, args, ARRAY_SIZE(args), &request, err);

    *seen_ms = -1;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < request->call.reply->item_count; i++) {
        const struct value *name = value_of(&request->call.reply->items[i], "name");
        const struct value *idle = value_of(&request->call.reply->items[i], "idle");
        if (name == NULL || idle == NULL || bytes_equal(name->bytes, bytes_of(RELEASED_NAME))) {
            continue;
        }
        if (*seen_ms < 0 || idle->integer < *seen_ms) {
            *seen_ms = idle->integer < 0 ? 0 : idle->integer;
        }
    }
    request_free(request);
    return IMPEL_OK;
}

int facts_any_alive(struct store *store,
                    struct impel_bytes stream,
                    struct impel_bytes group,
                    bool *alive,
                    struct impel_error *err)
{
    struct request *look = session_request(REQUEST_LOOK, stream, group);
    int rc = session_ask(store, look, err);

    *alive = false;
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        *alive |= look->look.owners[i].state == OWNER_LIVE;
    }
    request_free(look);
    return rc;
}
