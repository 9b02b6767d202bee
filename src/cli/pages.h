/* pages.h -- walking through a range of a stream, a page at a time. */
#ifndef IMPEL_CLI_PAGES_H
#define IMPEL_CLI_PAGES_H

#include "cli/session.h"

enum {
    PAGE_ENTRIES_FIRST = 1, /* an entry may weigh hundreds of megabytes */
    PAGE_ENTRIES_MAX = 1024,
    PAGE_GROWTH = 4,
    PAGE_BYTES = 8 << 20,
};

struct pages {
    struct store *store;
    struct impel_bytes stream;
    struct impel_id start, end; /* inclusive */
    uint64_t count;             /* at most this many; 0 = all */
    bool reverse;
    bool filtered; /* most entries may not count: pages stay large even where little is left */
    /* Gets each entry; a negative status ends the walk. A positive one means that the entry does
     * not count. */
    int (*entry)(void *user, struct impel_bytes stream, const struct entry *entry);
    void *user;
};

/* How many entries the page after this one should have (NULL: the first): so many that they weigh
 * PAGE_BYTES if they are like the heaviest of these, but few more than these, since the next may be of
 * another kind. */
uint32_t page_next_size(const struct request *page);
/* A page that ends before its range does. */
static inline bool page_is_full(const struct request *page)
{
    return page->range.cut || page->range.entry_count == page->range.count;
}

int pages_walk(struct pages *pages, struct impel_error *err);

#endif /* IMPEL_CLI_PAGES_H */
