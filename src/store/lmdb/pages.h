/* pages.h -- is the file whole as an LMDB file? Read without LMDB, which trusts what it maps and may
 * crash on a damaged page. */
#ifndef IMPEL_STORE_LMDB_PAGES_H
#define IMPEL_STORE_LMDB_PAGES_H

#include "base/base.h"

/* Nobody may write the file meanwhile. IMPEL_OK; IMPEL_ERR_CORRUPT with the first thing that is
 * wrong; or IO, NOMEM. A file that is missing or empty is whole. */
int pages_check(const char *path, struct impel_error *err);
/* How long the file has to be by its own account, 0 if it does not say. */
int pages_size(const char *path, uint64_t *is, uint64_t *should_be, struct impel_error *err);

/* The two meta pages: LMDB takes the one with the higher transaction number. */
struct pages_metas {
    uint64_t page_size;
    uint64_t txns[2];
};
/* False if a meta page is not one. */
bool pages_metas(int fd, struct pages_metas *out);
/* The newer one becomes what the older one is, synced: the last transaction never was. 0, or an errno. */
int pages_step_back(int fd, const struct pages_metas *metas);

#endif /* IMPEL_STORE_LMDB_PAGES_H */
