/* store.h -- a store: where streams live.
 *
 * A store is named by a URL. `lmdb:PATH` is a file on this machine that any number of processes use
 * at once, no server needed; `redis://HOST:PORT/DB` and its kin are servers. Streams, groups and
 * entries are the same on all of them.
 *
 * DURABILITY. On the embedded store an add that returned survives a power cut
 * (`lmdb:PATH?sync=full`, the default), or the death of every process but not of the machine
 * (`?sync=process`, several times faster). On a server it is what the server is configured to do.
 *
 * THREADS. Every function here may be called from any thread; calls on one store wait for one
 * another, so threads that add a great deal each open their own. They block until the store has
 * answered. Opening the same file several times in one process is fine and cheap.
 *
 * FORKING. An open store must not be used in a forked child (IMPEL_ERR_FORKED); the child opens its
 * own.
 *
 * ERRORS. Negative, one of enum impel_status; `err` (may be NULL) then says in words what happened,
 * to what, and the way out, and is left alone otherwise. */
#ifndef IMPEL_STORE_API_H
#define IMPEL_STORE_API_H

#include "impel/types.h"
#include "impel/version.h"

#ifdef __cplusplus
extern "C" {
#endif

struct impel_store;

/* A member that is 0 means its default. New members are only ever added at the end. */
struct impel_store_options {
    int64_t timeout_ms; /* how long a call may take before it gives up with IMPEL_ERR_TIMEOUT;
                           default 30 s. What was asked may have been carried out */
};

/* Opens a store; `options` may be NULL. The store is the caller's, to be closed by
 * impel_store_close(). The file of an embedded store is made if it is missing; its folder is not.
 */
IMPEL_API int impel_store_open(const char *url,
                               const struct impel_store_options *options,
                               struct impel_store **store,
                               struct impel_error *err);
/* Closes it; NULL is fine. Workers made from it are not concerned. */
IMPEL_API void impel_store_close(struct impel_store *store);

/* ---- adding ---- */

/* Adds one entry with at least one field and returns its ID in `id` (may be NULL), generated from
 * the clock: every entry of a stream has a higher ID than those before it. The stream is created by
 * its first entry. Errors: IMPEL_ERR_INVALID without a field, IMPEL_ERR_WRONG_TYPE,
 * IMPEL_ERR_FULL, IMPEL_ERR_LIMIT. */
IMPEL_API int impel_add(struct impel_store *store,
                        struct impel_bytes stream,
                        const struct impel_field *fields,
                        size_t field_count,
                        struct impel_id *id,
                        struct impel_error *err);

/* One entry of a batch. */
struct impel_new_entry {
    const struct impel_field *fields;
    size_t field_count;
    struct impel_id id; /* in: 0-0 = generate, else the ID to give it, higher than all there are;
                           out: the ID it has, 0-0 if it was not added */
};
/* Adds many at once, in order, for the price of one write where the store can. Returns how many
 * were added, counted from the first: fewer than `count` means that the next one failed, as `err`
 * says; a negative status only if none was. */
IMPEL_API int64_t impel_add_batch(struct impel_store *store,
                                  struct impel_bytes stream,
                                  struct impel_new_entry *entries,
                                  size_t count,
                                  struct impel_error *err);

/* ---- reading ---- */

struct impel_range; /* entries that were read, and their memory */

/* Where to read: from `first` to `last`, both included, at most `count` of them (0 = 100), from the
 * end if `reverse` is non-zero. Zeroed: the stream's first 100 entries. */
struct impel_range_options {
    struct impel_id first;
    struct impel_id last; /* 0-0 = the end of the stream */
    uint32_t count;
    int reverse;
};
/* Reads entries as they stand in the stream, without a group: nothing becomes pending. `options`
 * may be NULL. A stream that does not exist is an empty range. The range is the caller's, to be
 * freed by impel_range_free(). */
IMPEL_API int impel_read(struct impel_store *store,
                         struct impel_bytes stream,
                         const struct impel_range_options *options,
                         struct impel_range **range,
                         struct impel_error *err);
IMPEL_API size_t impel_range_count(const struct impel_range *range);
/* The ID and the fields of one entry; `index` must be below the count. They live as long as the
 * range. `field_count` may be NULL. */
IMPEL_API struct impel_id impel_range_id(const struct impel_range *range, size_t index);
IMPEL_API const struct impel_field *
impel_range_fields(const struct impel_range *range, size_t index, size_t *field_count);
IMPEL_API void impel_range_free(struct impel_range *range); /* NULL is fine */

/* ---- any command ---- */

/* What a reply can be, in the words of the Redis protocol. */
enum impel_reply_kind {
    IMPEL_REPLY_NULL,
    IMPEL_REPLY_STATUS,  /* "OK" */
    IMPEL_REPLY_ERROR,   /* an answer as well: "WRONGTYPE Operation against a key ..." */
    IMPEL_REPLY_INTEGER, /* booleans too */
    IMPEL_REPLY_BYTES,   /* numbers beyond 64 bits too, as text */
    IMPEL_REPLY_ARRAY,   /* sets too */
    IMPEL_REPLY_MAP,     /* its items are key, value, key, value ... */
    IMPEL_REPLY_DOUBLE,
};

struct impel_reply; /* a tree; every part lives as long as its root */

/* Carries out one Redis command, words as bytes: on a server any, on the embedded store those it
 * knows. An error reply is a reply and returns 0; negative means that there was none. The reply is
 * the caller's, to be freed by impel_reply_free(). */
IMPEL_API int impel_call(struct impel_store *store,
                         const struct impel_bytes *words,
                         size_t word_count,
                         struct impel_reply **reply,
                         struct impel_error *err);
IMPEL_API enum impel_reply_kind impel_reply_kind(const struct impel_reply *reply);
IMPEL_API int64_t impel_reply_integer(const struct impel_reply *reply); /* else 0 */
IMPEL_API double impel_reply_double(const struct impel_reply *reply);   /* else 0 */
/* Of a STATUS, ERROR or BYTES; else empty. */
IMPEL_API struct impel_bytes impel_reply_bytes(const struct impel_reply *reply);
/* Of an ARRAY or MAP (two for each pair); else 0. */
IMPEL_API size_t impel_reply_count(const struct impel_reply *reply);
/* One item; NULL if there is none of that index. Not to be freed. */
IMPEL_API const struct impel_reply *impel_reply_item(const struct impel_reply *reply, size_t index);
IMPEL_API void impel_reply_free(struct impel_reply *reply); /* the root; NULL is fine */

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_STORE_API_H */
