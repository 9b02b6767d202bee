/* explain_gather.c -- asking a store for everything that is to be told of one entry. */
#include "cli/dead_record.h"
#include "cli/explanation.h"
#include "cli/group_facts.h"
#include "cli/pages.h"

static int ask_info(struct explanation *entry, struct store *store, struct impel_error *err)
{
    struct request *info = session_request(REQUEST_INFO, entry->stream, (struct impel_bytes){0});
    int rc = session_ask(store, info, err);
    char stream[64], name[64];

    if (rc >= 0) {
        entry->now_ms = info->store_now_ms;
        entry->first_id = info->info.first_id;
        entry->last_id = info->info.last_id;
        entry->length = info->info.length;
        const struct info_group *group = facts_group(info, entry->group);
        if (group != NULL) {
            entry->last_delivered = group->last_delivered;
        } else {
            bytes_quote(entry->stream, stream, sizeof(stream));
            rc = info->info.exists
                     ? error_set(err, IMPEL_ERR_NO_GROUP,
                                 "there is no group '%s' on the stream '%s'",
                                 bytes_quote(entry->group, name, sizeof(name)), stream)
                     : error_set(err, IMPEL_ERR_NOT_FOUND, "there is no stream '%s' in this store",
                                 stream);
        }
    }
    request_free(info);
    return rc;
}

static int ask_exists(struct explanation *entry, struct store *store, struct impel_error *err)
{
    struct request *range = session_request(REQUEST_RANGE, entry->stream, (struct impel_bytes){0});
    int rc;

    if (range != NULL) {
        range->range.start = range->range.end = entry->id;
        range->range.count = 1;
    }
    rc = session_ask(store, range, err);
    ASSERT(rc < 0 || range != NULL);
    entry->exists = rc >= 0 && range->range.entry_count == 1;
    request_free(range);
    return rc;
}

/* Who is alive, and who the owner of the pending row (NULL: there is none) is, by the workers table. */
static int ask_workers(struct explanation *entry,
                       const struct pending_row *row,
                       struct store *store,
                       struct impel_error *err)
{
    struct request *look = session_request(REQUEST_LOOK, entry->stream, entry->group);
    int rc = session_ask(store, look, err);

    entry->view.owner = row == NULL || pending_row_nobodys(row) ? OWNER_NOBODY : OWNER_FOREIGN;
    entry->beat_age_ms = -1;
    entry->live_count = 0;
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        const struct look_owner *other = &look->look.owners[i];
        entry->live_count += other->state == OWNER_LIVE;
        if (row != NULL && !pending_row_nobodys(row) && bytes_equal(other->name, row->owner)) {
            entry->view.owner = other->state;
            entry->beat_age_ms = other->in_table ? other->beat_age_ms : -1;
            entry->view.silence_ms = entry->beat_age_ms < 0 ? 0 : entry->beat_age_ms;
        }
    }
    request_free(look);
    return rc;
}

static void judge(struct explanation *entry, const struct pending_row *row)
{
    struct pending_view later;

    entry->view.id = row->id;
    entry->view.idle_ms = row->idle_ms;
    entry->view.deliveries = facts_deliveries(row);
    entry->carried = row->carried;
    entry->view.exists = row->exists;
    entry->exists = row->exists;
    entry->undated = row->idle_ms < 0 || row->idle_ms > IDLE_MAX_MS;
    entry->verdict = policy_verdict(&entry->policy, &entry->view, &entry->wait_ms);
    later = entry->view;
    later.idle_ms = INT64_MAX;
    entry->verdict_1 = policy_verdict(&entry->policy, &later, NULL);
}

/* 1 = it is pending. */
static int ask_pending(struct explanation *entry, struct store *store, struct impel_error *err)
{
    struct request *page = session_request(REQUEST_PENDING, entry->stream, entry->group);
    int rc;

    if (page != NULL) {
        page->pending.start = page->pending.end = entry->id;
        page->pending.count = 1;
    }
    rc = session_ask(store, page, err);
    ASSERT(rc < 0 || page != NULL);
    if (rc >= 0 && page->pending.row_count == 1) {
        bytes_quote(page->pending.rows[0].owner, entry->owner, sizeof(entry->owner));
        rc = ask_workers(entry, &page->pending.rows[0], store, err);
        judge(entry, &page->pending.rows[0]);
        rc = rc < 0 ? rc : 1;
    } else if (rc >= 0) {
        rc = ask_workers(entry, NULL, store, err);
    }
    request_free(page);
    return rc;
}

static int match_record(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct explanation *wanted = user;
    struct dead_record record;
    char id[ID_TEXT_SIZE];

    (void)stream;
    if (dead_record_parse(entry, &record) &&
        bytes_equal(record.original_id, bytes_of(id_format(wanted->id, id))) &&
        bytes_equal(record.original_stream, wanted->stream) &&
        bytes_equal(record.original_group, wanted->group)) {
        wanted->state = ENTRY_PARKED;
        wanted->parked_as = record.id;
        wanted->parked_ms = record.parked_ms;
        wanted->view.deliveries = record.deliveries;
        bytes_quote(record.consumer, wanted->owner, sizeof(wanted->owner));
        bytes_quote(record.reason, wanted->reason, sizeof(wanted->reason));
        bytes_quote(record.error, wanted->error, sizeof(wanted->error));
    }
    return 0;
}

static int ask_parked(struct explanation *entry,
                      struct options *options,
                      struct store *store,
                      struct impel_error *err)
{
    struct pages pages = {
        .store = store,
        .start = ID_MIN,
        .end = ID_MAX,
        .entry = match_record,
        .user = entry,
    };
    int rc;

    if (!options_dead_letter(options, &options->arena, entry->stream, &pages.stream)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = pages_walk(&pages, err);
    return rc == IMPEL_ERR_WRONG_TYPE ? IMPEL_OK : rc; /* nothing can be parked there */
}

int explanation_gather(struct explanation *entry,
                       struct options *options,
                       struct store *store,
                       struct impel_error *err)
{
    int rc = ask_info(entry, store, err);

    entry->policy = options_policy(options);
    rc = rc < 0 ? rc : ask_exists(entry, store, err);
    rc = rc < 0 ? rc : ask_pending(entry, store, err);
    if (rc != 0) {
        entry->state = ENTRY_PENDING;
        return rc;
    }
    if (id_compare(entry->id, entry->last_id) > 0) {
        entry->state = ENTRY_UNKNOWN;
        return IMPEL_OK;
    }
    entry->state = !entry->exists                                     ? ENTRY_GONE
                   : id_compare(entry->id, entry->last_delivered) > 0 ? ENTRY_UNDELIVERED
                                                                      : ENTRY_ACKED;
    return ask_parked(entry, options, store, err);
}

int explanation_rule(const struct explanation *entry)
{
    static const int rules[] = {
        [OWNER_ME] = 1,   [OWNER_LIVE] = 2,    [OWNER_RELEASED] = 4, [OWNER_NOBODY] = 4,
        [OWNER_DEAD] = 5, [OWNER_FOREIGN] = 6, [OWNER_UNKNOWN] = 0,
    };
    return entry->state == ENTRY_PENDING ? rules[entry->view.owner] : 0;
}
