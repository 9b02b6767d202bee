/* copy_read.c -- the entries and the pending rows of a stream, in order, a page at a time. */
#include "cli/copy.h"
#include "cli/pages.h"
#include "core/policy.h"

enum {
    ROWS_PAGE = 1000,
};

/* ---- entries ---- */

static int turn_page(struct copy_entries *entries, struct impel_error *err)
{
    struct request *page =
        session_request(REQUEST_RANGE, entries->stream, (struct impel_bytes){NULL, 0});

    uint32_t size = page_next_size(entries->page);
    if (entries->beside != NULL && entries->beside->page != NULL) {
        uint32_t likely = page_next_size(entries->beside->page);
        size = likely < size ? likely : size;
    }
    request_free(entries->page);
    entries->page = page;
    entries->at = 0;
    if (page != NULL) {
        page->range.start = entries->from;
        page->range.end = entries->until;
        page->range.count = size;
        page->range.bytes_max = PAGE_BYTES;
    }
    int rc = session_ask(entries->store, page, err);
    if (rc < 0) {
        return rc;
    }
    ASSERT(page != NULL);
    if (page->range.entry_count > 0) {
        entries->from = page->range.entries[page->range.entry_count - 1]->id;
    }
    entries->over = !page_is_full(page) || !id_next(&entries->from) ||
                    id_compare(entries->from, entries->until) > 0;
    return rc;
}

int copy_next_entry(struct copy_entries *entries,
                    const struct entry **entry,
                    struct impel_error *err)
{
    if (entries->page == NULL ||
        (entries->at == entries->page->range.entry_count && !entries->over)) {
        int rc = turn_page(entries, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (entries->at == entries->page->range.entry_count) {
        return 0;
    }
    *entry = entries->page->range.entries[entries->at++];
    return 1;
}

void copy_entries_end(struct copy_entries *entries)
{
    request_free(entries->page);
    entries->page = NULL;
}

/* ---- pending rows ---- */

static int turn_rows(struct copy_pending *pending, struct impel_error *err)
{
    struct request *page = session_request(REQUEST_PENDING, pending->stream, pending->group);

    request_free(pending->page);
    pending->page = page;
    pending->at = 0;
    if (page != NULL) {
        page->pending.start = pending->from;
        page->pending.end = ID_MAX;
        page->pending.count = ROWS_PAGE;
    }
    int rc = session_ask(pending->store, page, err);
    if (rc < 0) {
        return rc;
    }
    ASSERT(page != NULL);
    if (page->pending.row_count > 0) {
        pending->from = page->pending.rows[page->pending.row_count - 1].id;
    }
    pending->over = page->pending.row_count < ROWS_PAGE || !id_next(&pending->from);
    return rc;
}

int copy_next_row(struct copy_pending *pending, struct copy_row *row, struct impel_error *err)
{
    if (pending->page == NULL ||
        (pending->at == pending->page->pending.row_count && !pending->over)) {
        int rc = turn_rows(pending, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (pending->at == pending->page->pending.row_count) {
        return 0;
    }
    const struct pending_row *from = &pending->page->pending.rows[pending->at++];
    *row = (struct copy_row){
        .id = from->id,
        .owner = pending_row_nobodys(from) ? bytes_of(RELEASED_NAME) : from->owner,
        .nobodys = pending_row_nobodys(from),
        .now_ms = pending->page->store_now_ms,
        .deliveries = from->deliveries < 0 ? INT64_MAX : from->deliveries,
        .exists = from->exists,
    };
    /* A row of nobody's may be taken at once, which a very old delivery says as well. */
    row->delivered_ms = row->nobodys ? 1 : sub_saturating(row->now_ms, from->idle_ms);
    return 1;
}

void copy_pending_end(struct copy_pending *pending)
{
    request_free(pending->page);
    pending->page = NULL;
}
