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

uint32_t page_next_size(const struct request *page)
{
    size_t heaviest = 1;

    if (page == NULL) {
        return PAGE_ENTRIES_FIRST;
    }
    for (size_t i = 0; i < page->range.entry_count; i++) {
        size_t size_bytes = page->range.entries[i]->size_bytes;
        heaviest = size_bytes > heaviest ? size_bytes : heaviest;
    }
    size_t most = PAGE_BYTES / heaviest;
    most = most > page->range.count * (size_t)PAGE_GROWTH ? page->range.count * (size_t)PAGE_GROWTH
                                                          : most;
    return most == 0 ? 1 : most > PAGE_ENTRIES_MAX ? PAGE_ENTRIES_MAX : (uint32_t)most;
}

/* Moves the range behind the page; false at its end. */
static bool turn_page(struct pages *pages, const struct request *page)
{
    struct impel_id last;

    if (!page_is_full(page)) {
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
    uint32_t size = page_next_size(NULL);
    int rc = IMPEL_OK;

    while (more && rc >= 0 && left > 0) {
        struct request *page =
            session_request(REQUEST_RANGE, pages->stream, (struct impel_bytes){0});
        if (page != NULL) {
            page->range.start = pages->start;
            page->range.end = pages->end;
            page->range.reverse = pages->reverse;
            page->range.bytes_max = PAGE_BYTES;
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
        size = more ? page_next_size(page) : size;
        request_free(page);
    }
    return rc;
}
