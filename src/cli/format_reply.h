/* format_reply.h -- a reply for people and for pipes, in the two forms of redis-cli. */
#ifndef IMPEL_CLI_FORMAT_REPLY_H
#define IMPEL_CLI_FORMAT_REPLY_H

#include "base/value.h"

enum reply_form {
    REPLY_FORM_RAW,  /* the bytes as they are, a line an element: when stdout is no terminal */
    REPLY_FORM_SHOW, /* quoted, numbered and indented: for a terminal */
};

/* Appends the whole reply, ended by a newline, to `out`; see buf_status() for the outcome. Maps and
 * sets are shown as the flat arrays that they are in RESP2. */
void format_reply(const struct value *reply, enum reply_form form, struct buf *out);

#endif /* IMPEL_CLI_FORMAT_REPLY_H */
