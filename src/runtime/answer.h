/* answer.h -- what a process that stays says of an entry: one JSON object on a line.
 *
 *     {"id":"1700000000000-0","outcome":"done"}
 *     {"id":"...","outcome":"retry","delay_ms":30000,"error":"the bank is closed"}
 *     {"id":"...","outcome":"reject","error":"no such customer"}
 *
 * Members of other names are left alone, so that an entry may come back with an outcome added. A
 * member that stands twice is refused, and so is a delay of anything but a retry: both are mistakes
 * of whoever wrote the handler. */
#ifndef IMPEL_RUNTIME_ANSWER_H
#define IMPEL_RUNTIME_ANSWER_H

#include "core/worker.h"

struct answer {
    struct impel_id id;
    enum worker_outcome outcome; /* DONE, RETRY or REJECT */
    int64_t delay_ms;            /* -1 = none */
    struct impel_bytes error;    /* in the arena; empty = none */
};

/* Parses a line without its line feed. The error says what is wrong, for whoever wrote the handler.
 * IMPEL_ERR_IO = it is no answer; IMPEL_ERR_NOMEM. */
int answer_parse(struct impel_bytes line,
                 struct arena *arena,
                 struct answer *answer,
                 struct impel_error *err);

#endif /* IMPEL_RUNTIME_ANSWER_H */
