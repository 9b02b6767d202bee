/* value.h -- a RESP reply as a tree, in an arena: what `call` answers and the codec reads and
 * writes.
 *
 * Bytes are borrowed unless a function says that it copies; usually they live in the same arena. */
#ifndef IMPEL_BASE_VALUE_H
#define IMPEL_BASE_VALUE_H

#include "base/base.h"

enum value_kind {
    VALUE_NULL,       /* RESP2: null bulk */
    VALUE_NULL_ARRAY, /* RESP2: null array; RESP3: the same null */
    VALUE_STATUS,     /* +OK */
    VALUE_ERROR,      /* -CODE text */
    VALUE_INTEGER,
    VALUE_BULK,
    VALUE_ARRAY,
    VALUE_MAP,     /* items are key, value, key, value; RESP2: a flat array */
    VALUE_SET,     /* RESP2: an array */
    VALUE_PUSH,    /* RESP3 only */
    VALUE_DOUBLE,  /* RESP2: a bulk */
    VALUE_BOOLEAN, /* RESP2: an integer */
    VALUE_BIG_NUMBER,
    VALUE_VERBATIM, /* `bytes` without the "txt:" prefix */
};

struct value {
    enum value_kind kind;
    int64_t integer;          /* INTEGER, BOOLEAN */
    double number;            /* DOUBLE */
    struct impel_bytes bytes; /* STATUS, ERROR, BULK, BIG_NUMBER, VERBATIM */
    struct value *items;      /* ARRAY, MAP, SET, PUSH */
    size_t item_count;        /* a MAP of n pairs has 2n */
};

struct value value_integer(int64_t integer);
struct value value_status(const char *text); /* borrows the text */
struct value value_bulk(struct impel_bytes bytes);
struct value value_text(const char *text); /* a bulk; borrows the text */

/* True for the kinds that have items. */
bool value_is_list(const struct value *value);

/* Makes `out` a list of `count` items, each VALUE_NULL, to be filled in by index. Returns the
 * items, or NULL if memory is out; `out` is then an empty list. */
struct value *
value_list_init(struct value *out, enum value_kind kind, size_t count, struct arena *arena);

/* Adds one VALUE_NULL to the end of a list that was started by value_list_init(..., 0, ...) and
 * has only been appended to. Returns it, valid until the next append, or NULL if memory is out. */
struct value *value_append(struct value *list, struct arena *arena);

#endif /* IMPEL_BASE_VALUE_H */
