/* value.h -- a RESP reply as a tree, in an arena: what `call` answers and the codec reads and
 * writes. */
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

#endif /* IMPEL_BASE_VALUE_H */
