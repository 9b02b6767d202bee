/* place.h -- one running command: what it is fed, what it says last, how it ended.
 *
 * Only the ends of its pipes and its memory are here; processes and watching are children.c's,
 * cancelling is exec.c's. */
#ifndef IMPEL_RUNTIME_PLACE_H
#define IMPEL_RUNTIME_PLACE_H

#include "runtime/children.h"
#include "runtime/tail.h"

struct place {
    struct child child;
    struct delivery *delivery; /* NULL = free */
    struct place *next;        /* free, or waiting to be started */
    struct buf json;           /* what the command reads */
    size_t written;            /* of it */
    struct tail tail;          /* of its standard error */
    bool cancelled;
    enum cancel_reason reason;
};

/* Writes what the pipe of its standard input takes. True when nothing is left to be written, or
 * nobody reads it. */
bool place_feed(struct place *place);
/* Takes what is in the pipe of its standard error, with at most `reads` reads, and keeps the end of
 * it. False at the end of it. */
bool place_drain(struct place *place, int reads);
/* What its end means. The error is what it said last, or else `text`, which is filled in; it lives
 * as long as both. */
struct handler_result
place_result(const struct place *place, const siginfo_t *info, char *text, size_t size);

#endif /* IMPEL_RUNTIME_PLACE_H */
