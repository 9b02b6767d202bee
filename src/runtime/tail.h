/* tail.h -- the end of what a command writes to its standard error: why it failed, mostly. */
#ifndef IMPEL_RUNTIME_TAIL_H
#define IMPEL_RUNTIME_TAIL_H

#include "base/base.h"

struct tail {
    char *data; /* ERROR_SIZE_MAX bytes; NULL = not made yet */
    size_t size;
    bool cut; /* there was more before it */
};

/* Makes it empty and ready. False if memory is out. */
bool tail_begin(struct tail *tail);
void tail_release(struct tail *tail);
void tail_keep(struct tail *tail, const char *data, size_t size);
/* The text without blanks at the end, nor half a character in front; until the next change. */
struct impel_bytes tail_text(const struct tail *tail);

#endif /* IMPEL_RUNTIME_TAIL_H */
