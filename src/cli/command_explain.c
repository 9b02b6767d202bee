/* command_explain.c -- impel explain: where one entry stands, why, and what will happen next.
 *
 * Only looks; no beat is taken, so of workers that nobody has heard of lately it says "unknown". */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dead_record.h"
#include "cli/group_sweep.h"
#include "cli/pages.h"

#include <stdio.h>
#include <string.h>

enum entry_state {
    ENTRY_UNDELIVERED,
    ENTRY_PENDING,
    ENTRY_SETTLED, /* delivered and acknowledged, as far as the group tells */
    ENTRY_PARKED,
    ENTRY_NEVER, /* no such ID was ever given to this stream */
};

struct explanation {
    struct impel_bytes stream, group;
    struct impel_id id;
    enum entry_state state;
    bool exists;  /* in the stream */
    bool undated; /* released: the idle time says nothing */
    char owner[64];
    struct pending_view view;
    enum verdict verdict;
    int64_t wait_ms;
    int64_t beat_age_ms;
    struct impel_id parked_as;
    char reason[64];
    size_t live_count;
    struct impel_id last_id, last_delivered;
};

/* ---- asking ---- */

static int ask_info(struct explanation *entry, struct store *store, struct impel_error *err)
{
    struct request *info = session_request(REQUEST_INFO, entry->stream, (struct impel_bytes){0});
    int rc = session_ask(store, info, err);
    char name[64];
    bool found = false;

    if (rc >= 0) {
        entry->last_id = info->info.last_id;
        for (size_t i = 0; i < info->info.group_count; i++) {
            if (bytes_equal(info->info.groups[i].name, entry->group)) {
                entry->last_delivered = info->info.groups[i].last_delivered;
                found = true;
            }
        }
        if (!found) {
            rc = error_set(err, IMPEL_ERR_NO_GROUP, "there is no group '%s' on this stream",
                           bytes_quote(entry->group, name, sizeof(name)));
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
    entry->exists = rc >= 0 && range->range.entry_count == 1;
    request_free(range);
    return rc;
}

/* Who the owner of the pending row is, by the workers table. */
static int ask_owner(struct explanation *entry,
                     struct impel_bytes owner,
                     struct store *store,
                     struct impel_error *err)
{
    struct request *look = session_request(REQUEST_LOOK, entry->stream, entry->group);
    int rc = session_ask(store, look, err);

    entry->view.owner = owner.size == 0 ? OWNER_NOBODY : OWNER_FOREIGN;
    entry->beat_age_ms = -1;
    for (size_t i = 0; rc >= 0 && i < look->look.owner_count; i++) {
        const struct look_owner *other = &look->look.owners[i];
        entry->live_count += other->state == OWNER_LIVE;
        if (owner.size > 0 && bytes_equal(other->name, owner)) {
            entry->view.owner = other->state;
            entry->beat_age_ms = other->in_table ? other->beat_age_ms : -1;
            entry->view.silence_ms = entry->beat_age_ms < 0 ? 0 : entry->beat_age_ms;
        }
    }
    request_free(look);
    return rc;
}

/* 1 = it is pending. */
static int ask_pending(struct explanation *entry,
                       const struct options *options,
                       struct store *store,
                       struct impel_error *err)
{
    struct request *page = session_request(REQUEST_PENDING, entry->stream, entry->group);
    struct policy policy = options_policy(options);
    int rc;

    if (page != NULL) {
        page->pending.start = page->pending.end = entry->id;
        page->pending.count = 1;
    }
    rc = session_ask(store, page, err);
    if (rc >= 0 && page->pending.row_count == 1) {
        const struct pending_row *row = &page->pending.rows[0];
        bytes_quote(row->owner, entry->owner, sizeof(entry->owner));
        rc = ask_owner(entry, row->owner, store, err);
        entry->view.id = row->id;
        entry->view.idle_ms = row->idle_ms;
        entry->view.deliveries = row->deliveries;
        entry->view.exists = row->exists;
        entry->undated = entry->view.owner == OWNER_RELEASED;
        entry->verdict = policy_verdict(&policy, &entry->view, &entry->wait_ms);
        rc = rc < 0 ? rc : 1;
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
        wanted->view.deliveries = record.deliveries;
        bytes_quote(record.reason, wanted->reason, sizeof(wanted->reason));
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

    if (!options_dead_letter(options, &options->arena, entry->stream, &pages.stream)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    return pages_walk(&pages, err);
}

static int ask_all(struct explanation *entry,
                   struct options *options,
                   struct store *store,
                   struct impel_error *err)
{
    int rc = ask_info(entry, store, err);

    rc = rc < 0 ? rc : ask_exists(entry, store, err);
    rc = rc < 0 ? rc : ask_pending(entry, options, store, err);
    if (rc != 0) {
        entry->state = ENTRY_PENDING;
        return rc;
    }
    if (id_compare(entry->id, entry->last_id) > 0) {
        entry->state = ENTRY_NEVER;
        return IMPEL_OK;
    }
    entry->state =
        id_compare(entry->id, entry->last_delivered) > 0 ? ENTRY_UNDELIVERED : ENTRY_SETTLED;
    return ask_parked(entry, options, store, err);
}

/* ---- telling ---- */

static void explain_pending(struct buf *out, const struct explanation *entry)
{
    char wait[DURATION_TEXT_SIZE];
    const char *next = entry->live_count > 0 ? "a live worker takes it over"
                                             : "no worker is alive to take it over: impel run";

    switch (entry->verdict) {
    case VERDICT_MINE:
    case VERDICT_LEAVE:
        buf_append_text(out, entry->view.owner == OWNER_UNKNOWN
                                 ? "nobody can say whether its worker lives, because no beat was "
                                   "taken lately: start a worker, or impel sweep --once"
                                 : "its worker is alive and accounts for it");
        break;
    case VERDICT_WAIT:
        buf_appendf(out, "abandoned, but not idle for long enough: due in %s",
                    duration_brief(entry->wait_ms, wait));
        break;
    case VERDICT_CLAIM:
        buf_appendf(out, "abandoned and due: %s", next);
        break;
    case VERDICT_PARK:
        buf_append_text(out, "abandoned, and had all its deliveries: the next sweep parks it");
        break;
    case VERDICT_REAP:
        buf_append_text(out, "abandoned, and gone from the stream: the next sweep reports it as "
                             "lost work");
        break;
    }
}

static void explain(struct buf *out, const struct explanation *entry)
{
    char id[ID_TEXT_SIZE];

    switch (entry->state) {
    case ENTRY_UNDELIVERED:
        buf_append_text(out, entry->exists ? "not delivered to this group yet"
                                           : "not delivered to this group, and gone from the "
                                             "stream: it never will be");
        break;
    case ENTRY_PENDING:
        explain_pending(out, entry);
        break;
    case ENTRY_SETTLED:
        buf_append_text(out, "done: it was delivered and acknowledged, or the group began behind "
                             "it");
        break;
    case ENTRY_PARKED:
        buf_appendf(out, "parked after %lld deliveries (%s), as %s in the dead-letter stream",
                    (long long)entry->view.deliveries, entry->reason,
                    id_format(entry->parked_as, id));
        break;
    case ENTRY_NEVER:
        buf_append_text(out, "this stream never had an entry of this ID");
        break;
    }
}

static const char *state_name(enum entry_state state)
{
    static const char *const names[] = {
        [ENTRY_UNDELIVERED] = "undelivered",
        [ENTRY_PENDING] = "pending",
        [ENTRY_SETTLED] = "settled",
        [ENTRY_PARKED] = "parked",
        [ENTRY_NEVER] = "never",
    };
    return names[state];
}

static void write_json(struct buf *out, const struct explanation *entry, struct impel_bytes text)
{
    char id[ID_TEXT_SIZE];

    buf_appendf(out, "{\"id\":\"%s\",\"stream\":", id_format(entry->id, id));
    json_value(out, entry->stream);
    buf_append_text(out, ",\"group\":");
    json_value(out, entry->group);
    buf_appendf(out, ",\"state\":\"%s\",\"exists\":%s", state_name(entry->state),
                entry->exists ? "true" : "false");
    if (entry->state == ENTRY_PENDING) {
        buf_append_text(out, ",\"consumer\":");
        json_text(out, entry->owner);
        buf_appendf(out, ",\"owner\":\"%s\",\"deliveries\":%lld,\"idle_ms\":",
                    owner_state_name(entry->view.owner), (long long)entry->view.deliveries);
        if (entry->undated) {
            buf_append_text(out, "null");
        } else {
            buf_appendf(out, "%lld", (long long)entry->view.idle_ms);
        }
        buf_appendf(out, ",\"wait_ms\":%lld", (long long)entry->wait_ms);
    }
    buf_append_text(out, ",\"reason\":");
    json_string(out, text);
    buf_append_text(out, "}\n");
}

static void write_text(struct buf *out, const struct explanation *entry, struct impel_bytes text)
{
    char id[ID_TEXT_SIZE], duration[DURATION_TEXT_SIZE];

    buf_appendf(out, "%s%s%s  %s%s\n", console_style(1, STYLE_BOLD), id_format(entry->id, id),
                console_style(1, STYLE_END), state_name(entry->state),
                entry->exists ? "" : ", not in the stream");
    if (entry->state == ENTRY_PENDING) {
        buf_appendf(out, "  held by %s (%s), delivered %lld times",
                    entry->owner[0] == '\0' ? "nobody" : entry->owner,
                    owner_state_name(entry->view.owner), (long long)entry->view.deliveries);
        if (!entry->undated) {
            buf_appendf(out, ", idle %s", duration_brief(entry->view.idle_ms, duration));
        }
        if (entry->beat_age_ms >= 0) {
            buf_appendf(out, ", last beat %s ago", duration_brief(entry->beat_age_ms, duration));
        }
        buf_append_text(out, "\n");
    }
    buf_append_text(out, "  ");
    buf_append_bytes(out, text);
    buf_append_text(out, "\n");
}

static int print(const struct explanation *entry, bool json, struct impel_error *err)
{
    struct buf text, out;
    int rc;

    buf_init(&text, 4096);
    buf_init(&out, 1 << 16);
    explain(&text, entry);
    (json ? write_json : write_text)(&out, entry, buf_bytes(&text));
    rc = buf_status(&out);
    if (rc < 0) {
        error_set(err, rc, "%s", status_text(rc));
    } else {
        console_out(buf_bytes(&out));
    }
    buf_release(&text);
    buf_release(&out);
    return rc;
}

int command_explain(struct options *options, struct impel_error *err)
{
    struct explanation entry = {0};
    struct store *store = NULL;
    int rc = command_one_stream(options, &entry.stream, err);

    if (rc < 0) {
        return rc;
    }
    if (options->group == NULL) {
        return command_needs("group", err);
    }
    if (options->words.count == 0 ||
        id_parse(bytes_of(options->words.texts[0]), 0, &entry.id) < 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the ID of an entry is needed, like 1700000000000-0");
    }
    entry.group = bytes_of(options->group);
    rc = session_open_existing(options, &store, err);
    if (rc >= 0) {
        rc = ask_all(&entry, options, store, err);
    }
    if (rc >= 0) {
        rc = print(&entry, options->json, err);
    }
    store_close(store);
    return rc < 0 ? rc : EXIT_DONE;
}
