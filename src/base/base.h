/* base.h -- the few helpers that every room uses: spans, errors, arenas, bounded buffers, hashing.
 *
 * Uses libc only. No clock, no I/O, no global state. */
#ifndef IMPEL_BASE_H
#define IMPEL_BASE_H

#include "impel/types.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(A) (sizeof(A) / sizeof((A)[0]))

/* A promise inside Impel. Checked in release builds as well: going on with broken state could lose
 * somebody's work, stopping cannot. */
#define ASSERT(COND) ((COND) ? (void)0 : base_assert_failed(#COND, __FILE__, __LINE__))
_Noreturn void base_assert_failed(const char *what, const char *file, int line);

/* ---- spans ---- */

/* The bytes of a NUL-terminated string, without the NUL; lives as long as `text`. */
struct impel_bytes bytes_of(const char *text);
bool bytes_equal(struct impel_bytes a, struct impel_bytes b);
/* memcmp order, the shorter first where one is the other's prefix: Redis's order of names. */
int bytes_compare(struct impel_bytes a, struct impel_bytes b);
/* True if `bytes` is the text, ASCII case ignored. */
bool bytes_equal_nocase(struct impel_bytes bytes, const char *text);

/* ---- errors ---- */

/* A sentence for a status; never NULL. */
const char *status_text(int status);
/* Fills `err` (may be NULL) and returns `status`, so that `return error_set(err, ...)` reads well.
 * Control characters in the text become '?', so that a name from outside cannot forge a log line.
 */
int error_set(struct impel_error *err, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Writes `bytes` for people: printable ASCII as it is, the rest as \xHH, cut with "..." to fit.
 * Returns `text`. */
const char *bytes_quote(struct impel_bytes bytes, char *text, size_t size);

/* ---- arena: many small allocations with one lifetime ---- */

struct arena_block;
struct arena {
    struct arena_block *blocks; /* the newest first; NULL when empty */
    size_t used;                /* in the newest block */
};
/* A zeroed arena is empty and ready. Returns memory aligned for any type, or NULL. */
void *arena_alloc(struct arena *arena, size_t size);
void *arena_calloc(struct arena *arena, size_t count, size_t size); /* checks the product */
/* A copy of the bytes in the arena. On failure returns false and leaves `out` alone. */
bool arena_copy(struct arena *arena, struct impel_bytes bytes, struct impel_bytes *out);
void arena_release(struct arena *arena); /* frees all; the arena is empty and ready again */
/* The same, but keeps one block that holds as much as all did together, unless that is more than
 * `keep_max`: for an arena that is filled over and over. */
void arena_reset(struct arena *arena, size_t keep_max);

/* ---- buf: a growable run of bytes with a maximum ---- */

struct buf {
    uint8_t *data;
    size_t size;
    size_t capacity;
    size_t size_max; /* never grows past this */
    bool failed;     /* out of memory or past the maximum; sticky, so one check at the end does */
    bool over_max;   /* it was the maximum */
};
void buf_init(struct buf *buf, size_t size_max);
void buf_release(struct buf *buf);
void buf_clear(struct buf *buf); /* empty, memory kept, `failed` reset */
/* Room for `size` more bytes, not yet counted in buf->size; NULL (and `failed`) if refused. */
void *buf_reserve(struct buf *buf, size_t size);
void buf_append(struct buf *buf, const void *data, size_t size);
void buf_append_bytes(struct buf *buf, struct impel_bytes bytes);
void buf_append_text(struct buf *buf, const char *text);
void buf_appendf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
struct impel_bytes buf_bytes(const struct buf *buf); /* until the next change of the buffer */
int buf_status(const struct buf *buf); /* IMPEL_OK, or IMPEL_ERR_NOMEM / IMPEL_ERR_LIMIT */

/* ---- hashing and numbers ---- */

uint64_t hash_bytes(struct impel_bytes bytes, uint64_t seed); /* spreads well; not secret */
/* splitmix64: a stream of numbers from a seed, the same on every machine. */
uint64_t random_next(uint64_t *state);
int64_t add_saturating(int64_t a, int64_t b); /* clamps at INT64_MIN and INT64_MAX */
int64_t sub_saturating(int64_t a, int64_t b);
int64_t mul_saturating(int64_t a, int64_t b);

#endif /* IMPEL_BASE_H */
