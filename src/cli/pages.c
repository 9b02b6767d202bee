/* pages.c -- a range in pages: large enough to be quick, small enough not to fill the memory. */
#include "cli/pages.h"

#include "cli/console.h"

/* Shows one page's entries; `left` counts down. */
static int
show_page(struct pages *pages, const struct request *page, uint64_t *left, struct impel_error *err)
{
    for (size_t i = 0; i<page->range.entry_count && * left> 0; i++) {
        int rc = pages->entry(pages->user, pages->stream, page->range.entries[i]);
        if (rc < 0) {
            return error_set(err, rc, "%s", status_text(rc));
        }
        *left -= rc == 0;
    }
    return IMPEL_OK;
}

/* A page of small entries is followed by a larger one, a page of large ones by a smaller. */
static uint32_t next_size(const struct request *page)
{
    uint32_t count = page->range.count;
    size_t size_bytes = 0;

    for (size_t i = 0; i < page->range.entry_count; i++) {
        size_bytes += page->range.entries[i]->size_bytes;
    }
    if (size_bytes > PAGE_BYTES) {
        return count > 1 ? count / 2 : 1;
    }
    return size_bytes < PAGE_BYTES / 4 && count < PAGE_ENTRIES_MAX ? count * 2 : count;
}

/* Moves the range behind the page; false at its end. */
static bool turn_page(struct pages *pages, const struct request *page)
{
    struct impel_id last;

    if (page->range.entry_count < page->range.count) {
        return false;
    }
    last = page->range.entries[page->range.entry_count - 1]->id;
    if (pages->reverse ? !id_previous(&last) : !id_next(&last)) {
        return false;
    }
    *(pages->reverse ? &pages->end : &pages->start) = last;
    return id_compare(pages->start, pages->end) <= 0;
}

int pages_walk(struct pages *pages, struct impel_error *err)
{
    uint64_t left = pages->count == 0 ? UINT64_MAX : pages->count;
    bool more = id_compare(pages->start, pages->end) <= 0;
    uint32_t size = PAGE_ENTRIES_FIRST;
    int rc = IMPEL_OK;

    while (more && rc >= 0 && left > 0) {
        struct request *page =
            session_request(REQUEST_RANGE, pages->stream, (struct impel_bytes){0});
        if (page != NULL) {
            page->range.start = pages->start;
            page->range.end = pages->end;
            page->range.reverse = pages->reverse;
            page->range.count = left < size && !pages->filtered ? (uint32_t)left : size;
        }
        rc = session_ask(pages->store, page, err);
        ASSERT(rc < 0 || page != NULL);
        if (rc >= 0) {
            rc = show_page(pages, page, &left, err);
        }
        /* A reader that went away ends the walk: head(1) wants no more. */
        if (rc >= 0) {
            rc = console_flush(err);
        }
        more = rc >= 0 && turn_page(pages, page);
        size = more ? next_size(page) : size;
        request_free(page);
    }
    return rc;
}
