/* store.h -- a store: where streams live.
 *
 * A store is named by a URL. `lmdb:PATH` is a file on this machine that any number of processes use
 * at once, no server needed; `redis://HOST:PORT/DB` and its kin are servers. Streams, groups and
 * entries are the same on all of them.
 *
 * TLS. `rediss://HOST:PORT/DB?tls_ca=FILE&tls_cert=FILE&tls_key=FILE&tls_name=HOST`, all options
 * optional: whom to believe instead of the system's authorities, a certificate of one's own and its
 * key, the name that the server's has if not the URL's host. It is always checked. The files are
 * read at every connection; one that cannot be used at the first is IMPEL_ERR_INVALID. A server that
 * is not believed, or does not believe, is IMPEL_ERR_PROTOCOL at the first connection, and later
 * waited for like one that is gone.
 *
 * DURABILITY. On the embedded store an add that returned survives a power cut
 * (`lmdb:PATH?sync=full`, the default), or the death of every process but not of the machine
 * (`?sync=process`, several times faster). On a server it is what the server is configured to do.
 *
 * THREADS. Every function here may be called from any thread; calls on one store wait for one
 * another, so threads that add a great deal each open their own. They block until the store has
 * answered. Opening the same file several times in one process is fine and cheap. What was read
 * (ranges, replies) takes no lock: any number of threads may look at one, while nobody frees it.
 *
 * FORKING. An open store must not be used in a forked child (IMPEL_ERR_FORKED), nor closed there;
 * the child opens its own. A child that goes on to exec() is no concern.
 *
 * ERRORS. Negative, one of enum impel_status; `err` (may be NULL) then says in words what happened,
 * to what, and the way out, and is left alone otherwise. What a function was to hand out (a store,
 * a range, a reply) is NULL after a failure, so that freeing it is fine. The statuses named below
 * are those with a reason of their own; any call may also answer with what the store ran into. */
#ifndef IMPEL_STORE_API_H
#define IMPEL_STORE_API_H

#include "impel/types.h"
#include "impel/version.h"

#ifdef __cplusplus
extern "C" {
#endif

struct impel_store;

/* A member that is 0 means its default: zero the whole before setting any. */
struct impel_store_options {
    int64_t timeout_ms;   /* how long a call may take before it gives up with IMPEL_ERR_TIMEOUT;
                           default 30 s. What was asked may have been carried out */
    uint64_t reserved[7]; /* 0; room for more */
};

/* Opens a store; `options` may be NULL. The store is the caller's, to be closed by
 * impel_store_close(). The file of an embedded store is made if it is missing (a misspelt path is a
 * new store); its folder is not: IMPEL_ERR_NOT_FOUND. IMPEL_ERR_INVALID for a URL that is not
 * understood. */
IMPEL_API int impel_store_open(const char *url,
                               const struct impel_store_options *options,
                               struct impel_store **store,
                               struct impel_error *err);
/* Closes it, once no thread is in a call on it any more; NULL is fine. Workers made from it, ranges
 * and replies live on. */
IMPEL_API void impel_store_close(struct impel_store *store);

/* ---- adding ---- */

/* Adds one entry with at least one field and returns its ID in `id` (may be NULL), generated from
 * the clock: every entry of a stream has a higher ID than those before it. The stream is created by
 * its first entry. An add that failed with IMPEL_ERR_TIMEOUT or _DISCONNECTED may be in the stream;
 * whoever adds again may add twice, unless the ID was chosen (impel_add_batch()). Errors:
 * IMPEL_ERR_INVALID without a field, IMPEL_ERR_WRONG_TYPE, IMPEL_ERR_FULL, IMPEL_ERR_LIMIT. */
IMPEL_API int impel_add(struct impel_store *store,
                        struct impel_bytes stream,
                        const struct impel_field *fields,
                        size_t field_count,
                        struct impel_id *id,
                        struct impel_error *err);

/* One entry of a batch. This struct never changes: it stands in arrays. */
struct impel_new_entry {
    const struct impel_field *fields;
    size_t field_count;
    struct impel_id id; /* in: 0-0 = generate, else the ID to give it, higher than all there are;
                           out: the ID it has, 0-0 if it was not added (or nobody knows, after
                           IMPEL_ERR_TIMEOUT and the like): to try again set it anew */
};
/* Adds many at once, in order, for the price of one write where the store can. Returns how many were
 * added; a negative status only if none was. So `rc < 0` is not the whole test here: fewer than
 * `count` means that some were refused, `err` says why the first of them was (its `status` too), and
 * the `id` of each says which (0-0). One that is refused does not keep the next from being added: a
 * batch of chosen IDs may simply be added again after a timeout, since an ID that is not higher than
 * all there are is refused (IMPEL_ERR_REPLY). It is not one atomic step: entries of others may come
 * to stand in between. 0 entries are 0. */
IMPEL_API int64_t impel_add_batch(struct impel_store *store,
                                  struct impel_bytes stream,
                                  struct impel_new_entry *entries,
                                  size_t count,
                                  struct impel_error *err);

/* ---- reading ---- */

struct impel_range; /* entries that were read, and their memory */

/* Where to read: from `first` to `last`, both included, at most `count` of them (0 = 100), from the
 * end (the highest ID first) if `reverse` is non-zero; `first` <= `last` then too. Zeroed: the
 * stream's first 100 entries. All of a millisecond is {ms, 0} to {ms, UINT64_MAX}. The next page
 * begins at the last ID read with its seq one higher. */
struct impel_range_options {
    struct impel_id first;
    struct impel_id last; /* 0-0 = the end of the stream */
    uint32_t count;
    int reverse;
    uint64_t reserved[3]; /* 0; room for more */
};
/* Reads entries as they stand in the stream, without a group: nothing becomes pending. `options`
 * may be NULL. A stream that does not exist is an empty range, and so is `first` > `last`. The
 * range is the caller's, to be freed by impel_range_free(). */
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

/* What a reply can be, in the words of the Redis protocol. More kinds may be added. The same
 * command may answer with an ARRAY on one server and a MAP on another: their items are the same. */
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
 * knows. An error reply is a reply and returns 0: look at its kind; negative means that there was
 * none. The reply is the caller's, to be freed by impel_reply_free().
 *
 * Not for commands that change the connection itself (SELECT, AUTH, HELLO, MULTI, SUBSCRIBE,
 * MONITOR, CLIENT REPLY ...): the store's other calls use the same one. One that blocks keeps every
 * other call on this store waiting. */
IMPEL_API int impel_call(struct impel_store *store,
                         const struct impel_bytes *words,
                         size_t word_count,
                         struct impel_reply **reply,
                         struct impel_error *err);
/* NULL, what impel_reply_item() gives for an item that is not there, is as good as a reply of the
 * kind NULL: chains of these need one test at their end. */
IMPEL_API enum impel_reply_kind impel_reply_kind(const struct impel_reply *reply);
IMPEL_API int64_t impel_reply_integer(const struct impel_reply *reply); /* else 0 */
IMPEL_API double impel_reply_double(const struct impel_reply *reply);   /* else 0 */
/* Of a STATUS, ERROR or BYTES; else empty. Lives as long as the root. */
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
