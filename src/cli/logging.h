/* logging.h -- events as lines on standard error, in the form that --log-format asks for. */
#ifndef IMPEL_CLI_LOGGING_H
#define IMPEL_CLI_LOGGING_H

#include "cli/options.h"
#include "impel/event.h"

struct logging {
    struct buf line;
    int format; /* enum log_format */
    int level;  /* enum impel_level: what is below is not shown */
};

void logging_init(struct logging *logging, const struct options *options);
void logging_release(struct logging *logging);
/* Has the shape of an event callback: `user` is the logging. */
void logging_event(const struct impel_event *event, void *user);

#endif /* IMPEL_CLI_LOGGING_H */
