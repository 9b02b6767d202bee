/* impel/types.h -- the words that every other Impel header speaks in.
 *
 * Nothing here allocates, locks or fails. Spans (`struct impel_bytes`) are borrowed: each function
 * that returns one says how long it lives, and none that takes one keeps it. They are never
 * NUL-terminated. Names, field names and values are bytes: a NUL, a newline or invalid UTF-8 is as
 * good as any other byte, and an empty span is a legal name: a zeroed one names a stream too.
 *
 * SIZES. The structs of this header never change. Those that a program makes for the library to
 * read or to fill (options, metrics) end in `reserved`, which is zeroed and left alone: new members
 * take its place, so that a program need not be compiled again. */
#ifndef IMPEL_TYPES_H
#define IMPEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a function of this library can answer. Success is 0 or more; every failure is negative, so
 * that `rc < 0` is the whole test (impel_add_batch() has a second one). More of them may be added:
 * one that a program does not know is a failure like any other. impel_status_text() has a sentence
 * for each.
 *
 * After IMPEL_ERR_TIMEOUT, _DISCONNECTED, _PROTOCOL, _IO and _NOMEM what was asked may have been
 * carried out all the same: ask again only for what may happen twice. */
enum impel_status {
    IMPEL_OK = 0,
    IMPEL_ERR_NOMEM = -1,         /* memory could not be had */
    IMPEL_ERR_INVALID = -2,       /* the caller's arguments are wrong */
    IMPEL_ERR_NOT_FOUND = -3,     /* no such file, stream, entry or consumer */
    IMPEL_ERR_NO_GROUP = -4,      /* the stream or the group does not exist (Redis: NOGROUP) */
    IMPEL_ERR_WRONG_TYPE = -5,    /* the key is not a stream (Redis: WRONGTYPE) */
    IMPEL_ERR_EXISTS = -6,        /* it is there already (Redis: BUSYGROUP, BUSYKEY) */
    IMPEL_ERR_FULL = -7,          /* the file's size limit was reached, or the disk is full */
    IMPEL_ERR_IO = -8,            /* the operating system reported an error */
    IMPEL_ERR_READ_ONLY = -9,     /* the file or its folder cannot be written */
    IMPEL_ERR_CORRUPT = -10,      /* the file breaks its own rules */
    IMPEL_ERR_VERSION = -11,      /* the file or the peer is of a version that is not understood */
    IMPEL_ERR_BUSY = -12,         /* somebody else holds it; trying again may succeed */
    IMPEL_ERR_TIMEOUT = -13,      /* a deadline passed; see above */
    IMPEL_ERR_FENCED = -14,       /* the entry is no longer the caller's */
    IMPEL_ERR_REPLACED = -15,     /* another worker runs under the caller's name */
    IMPEL_ERR_DISCONNECTED = -16, /* the connection broke; the command may have been carried out */
    IMPEL_ERR_FORKED = -17,       /* used in a forked child of the process that opened it */
    IMPEL_ERR_UNSUPPORTED = -18,  /* this store or this machine cannot do it */
    IMPEL_ERR_AUTH = -19,         /* the password or the permission is missing or wrong */
    IMPEL_ERR_PROTOCOL = -20,     /* the peer does not speak RESP */
    IMPEL_ERR_REPLY = -21,        /* the store answered with another error; the text is its own */
    IMPEL_ERR_LIMIT = -22,        /* larger than Impel or the store allows */
    IMPEL_ERR_CANCELLED = -23,    /* ended by the caller before it was done */
};

/* A borrowed run of bytes; `data` may be NULL when `size` is 0. */
struct impel_bytes {
    const void *data;
    size_t size;
};

/* An entry ID, `ms-seq`. Ordered by ms, then seq. 0-0 is never a real entry. */
struct impel_id {
    uint64_t ms;
    uint64_t seq;
};

/* One field of an entry. Names may repeat; order is kept. */
struct impel_field {
    struct impel_bytes name;
    struct impel_bytes value;
};

/* What went wrong, for people: the thing, the cause, the way out. Left untouched on success: it
 * says nothing then, not even that there was none. Programs go by the status; the text changes. */
struct impel_error {
    int status;     /* an enum impel_status, negative */
    char text[384]; /* one line, NUL-terminated, cut if longer */
};

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_TYPES_H */
