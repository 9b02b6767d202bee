/* heap.c -- memory that nobody uses goes back to the system.
 *
 * Left to itself glibc raises its limits with every large buffer that is freed, and keeps for good what one
 * client's large request took. With its limits fixed it still gives back only the heap's end, and there
 * lie pages that LMDB keeps for its next transactions, below them what thousands of clients have left. So
 * when enough was freed the holes are given back as well: not more often than now and then, as it costs a
 * system call a hole, and page faults where one is filled again. Other C libraries do as they see fit. */
#include "server/state.h"

#ifdef __GLIBC__
#include <malloc.h>

enum {
    LARGE_BYTES = 512 * 1024, /* from here on memory is mapped, and unmapped at once when freed */
    KEPT_FREE_BYTES = 4 * 1024 * 1024,
    TRIM_PAUSE_MS = 5000,
};

void heap_limit(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
}

void heap_freed(struct server *server, size_t size)
{
    server->freed_bytes += size < LARGE_BYTES ? size : 0;
}

void heap_tick(struct server *server, int64_t now_ms)
{
    if (server->freed_bytes >= KEPT_FREE_BYTES && now_ms >= server->trim_after_ms) {
        (void)malloc_trim(0);
        server->freed_bytes = 0;
        server->trim_after_ms = now_ms + TRIM_PAUSE_MS;
    }
}

size_t heap_used(void)
{
    struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
}

#else

void heap_limit(void)
{
}

void heap_freed(struct server *server, size_t size)
{
    (void)server;
    (void)size;
}

void heap_tick(struct server *server, int64_t now_ms)
{
    (void)server;
    (void)now_ms;
}

size_t heap_used(void)
{
    return 0;
}

#endif
