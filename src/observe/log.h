/* log.h -- an event as one line of a log: for people, for grep, for machines. */
#ifndef IMPEL_OBSERVE_LOG_H
#define IMPEL_OBSERVE_LOG_H

#include "base/base.h"
#include "impel/event.h"

enum log_format {
    LOG_TEXT,   /* 10:37:26.123 warning: an entry failed ... stream=orders id=1-0 */
    LOG_LOGFMT, /* time=... level=warning event=retried msg="..." stream=orders id=1-0 */
    LOG_JSON,   /* {"time":"...","level":"warning","event":"retried","message":"...",...} */
};

/* "debug", "info", "warning", "error" */
const char *log_level_name(enum impel_level level);
/* Appends the line, line feed included. Bytes from outside cannot break a line or forge a field:
 * they are quoted and escaped where the format needs it. `unix_ms` is the wall clock's. */
void log_append(struct buf *buf,
                enum log_format format,
                const struct impel_event *event,
                int64_t unix_ms);

#endif /* IMPEL_OBSERVE_LOG_H */
