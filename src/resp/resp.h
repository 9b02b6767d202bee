/* resp.h -- the RESP2 and RESP3 codec, both directions, for clients and servers.
 *
 * Reading goes in two passes. A *scan* looks at the bytes that have arrived so far and says whether
 * a whole message stands at their start; it remembers where it was, so that each byte is looked at
 * once however small the pieces are. Then the message is *read*: into a tree of values (replies) or
 * a list of arguments (requests) whose spans point into the input, without a copy.
 *
 * So nothing is ever allocated for bytes that were announced but have not arrived: the input buffer
 * belongs to the caller and grows with what came in, and the tree is smaller than a constant times
 * that. Every size has a limit nevertheless, and what is over it is an error as soon as it is
 * announced.
 *
 * Not here: connections, what the commands mean. Streamed strings and aggregates of RESP3 ("$?"),
 * which no server sends, are refused. */
#ifndef IMPEL_RESP_H
#define IMPEL_RESP_H

#include "base/base.h"
#include "base/value.h"

enum {
    RESP_DEPTH_MAX = 32,               /* nesting of arrays; real replies have at most 7 */
    RESP_LINE_MAX = 65536,             /* a header, status, error or inline request */
    RESP_BULK_MAX = 512 * 1024 * 1024, /* Redis's own proto-max-bulk-len */
    RESP_ITEMS_MAX = INT32_MAX,        /* of one array, as Redis has it */
};

struct resp_limits {
    size_t bulk_max;  /* bytes of one bulk */
    size_t items_max; /* elements of one array (a map of n pairs has 2n), arguments of a request */
    size_t total_max; /* bytes of a whole message */
};
/* Redis's own limits, and 1 GiB in all. */
void resp_limits_default(struct resp_limits *limits);

/* ---- replies in ---- */

struct resp_scan {
    struct resp_limits limits;
    size_t at;                      /* what stands before this has been looked at */
    unsigned depth;                 /* aggregates that are open */
    uint64_t left[RESP_DEPTH_MAX];  /* elements that each of them still lacks */
    bool attribute[RESP_DEPTH_MAX]; /* it is an attribute: precedes a value, is none */
};

void resp_scan_init(struct resp_scan *scan, const struct resp_limits *limits);
/* `input` begins with the same message as at the last call, with at least as many bytes. Returns 1
 * and its `size` when it is whole (the scan is then ready for the next message), 0 if bytes are
 * missing, IMPEL_ERR_PROTOCOL or IMPEL_ERR_LIMIT if it can never become one: the connection has to
 * be closed then. */
int resp_scan_reply(struct resp_scan *scan,
                    struct impel_bytes input,
                    size_t *size,
                    struct impel_error *err);
/* Reads a message that the scan has found to be whole. The tree lies in the arena; its bytes are
 * spans of `message`. Attributes are left out. IMPEL_ERR_NOMEM, or IMPEL_ERR_PROTOCOL for a number
 * that is none. */
int resp_read_reply(struct impel_bytes message,
                    struct arena *arena,
                    struct value *out,
                    struct impel_error *err);

/* ---- requests in ---- */

struct resp_request_scan {
    struct resp_limits limits;
    bool unauthenticated; /* set by the server: at most 10 arguments of 16 KiB */
    size_t at;
    bool inside;   /* the "*N" line has been read */
    uint64_t left; /* arguments that have not been seen yet */
};

void resp_request_scan_init(struct resp_request_scan *scan, const struct resp_limits *limits);
/* As resp_scan_reply(). The text of a failure is what Redis answers, without the "-": the server
 * sends it and closes. */
int resp_scan_request(struct resp_request_scan *scan,
                      struct impel_bytes input,
                      size_t *size,
                      struct impel_error *err);
/* The arguments of a whole request, in the arena. An empty line and "*0" have none: there is
 * nothing to answer. Spans point into `message`, those of quoted inline words into the arena. */
int resp_read_request(struct impel_bytes message,
                      struct arena *arena,
                      struct impel_bytes **args,
                      size_t *arg_count,
                      struct impel_error *err);
/* Splits a line as Redis's inline requests are: blanks, "..." with \n \r \t \b \a \xHH, '...' with
 * \'. IMPEL_ERR_PROTOCOL if a quote is not closed, or not followed by a blank. */
int resp_split_line(struct impel_bytes line,
                    struct arena *arena,
                    struct impel_bytes **args,
                    size_t *arg_count);

/* ---- out ---- */

/* All of these append to the buffer; one look at buf->failed at the end tells whether they fit. */
void resp_put_array(struct buf *buf, size_t count); /* a request is an array of bulks */
void resp_put_bulk(struct buf *buf, struct impel_bytes bytes);
void resp_put_text(struct buf *buf, const char *text); /* as a bulk */
void resp_put_bulk_number(struct buf *buf, int64_t number);
void resp_put_command(struct buf *buf, const struct impel_bytes *args, size_t arg_count);

/* Replies, as the connection's `version` (2 or 3) has them. */
void resp_put_status(struct buf *buf, struct impel_bytes text); /* CR and LF become blanks */
void resp_put_error(struct buf *buf, struct impel_bytes text);  /* the same */
void resp_put_number(struct buf *buf, int64_t number);
void resp_put_null(struct buf *buf, int version);
void resp_put_null_array(struct buf *buf, int version);
void resp_put_map(struct buf *buf, size_t pairs, int version);
void resp_put_set(struct buf *buf, size_t count, int version);
void resp_put_double(struct buf *buf, double number, int version);
void resp_put_boolean(struct buf *buf, bool truth, int version);
void resp_put_verbatim(struct buf *buf, struct impel_bytes text, int version);
void resp_put_value(struct buf *buf, const struct value *value, int version);

/* ---- for this room ---- */

/* A canonical signed decimal as Redis's own parser takes it: no blanks, no '+', no leading zeros.
 * False if it is anything else. */
bool resp_number(struct impel_bytes text, int64_t *out);

#endif /* IMPEL_RESP_H */
