/* place.h -- one running command: what it is fed, what it says last, how it ended.
 *
 * Only the ends of its pipes and its memory are here; processes, watching and cancelling are
 * exec.c's. */
#ifndef IMPEL_RUNTIME_PLACE_H
#define IMPEL_RUNTIME_PLACE_H

#include "runtime/handler.h"

#include <sys/types.h>

#include <signal.h>

enum watched {
    WATCH_STDIN,
    WATCH_STDERR,
    WATCH_DEATH,
    WATCH_COUNT,
};

struct place {
    struct delivery *delivery; /* NULL = free */
    struct place *next;        /* free, or waiting to be started */
    pid_t pid;                 /* 0 = not started */
    int fds[WATCH_COUNT];      /* -1 = closed */
    struct buf json;           /* what the command reads */
    size_t written;            /* of it */
    char *tail;                /* the end of what it wrote to its standard error */
    size_t tail_size;
    bool tail_cut; /* there was more before it */
    bool cancelled;
    enum cancel_reason reason;
    int64_t kill_at_ms; /* 0 = no KILL is due */
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
