/* logging.c -- one write per line, so that lines of several processes never mix. */
#include "cli/logging.h"

#include "observe/log.h"

#include <time.h>
#include <unistd.h>

enum {
    LINE_SIZE_MAX = 1 << 16,
};

void logging_init(struct logging *logging, const struct options *options)
{
    buf_init(&logging->line, LINE_SIZE_MAX);
    logging->format = options->log_format;
    logging->level = options->log_level;
}

void logging_release(struct logging *logging)
{
    buf_release(&logging->line);
}

void logging_event(const struct impel_event *event, void *user)
{
    struct logging *logging = user;
    struct timespec now;

    if ((int)event->level < logging->level) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    buf_clear(&logging->line);
    log_append(&logging->line, (enum log_format)logging->format, event,
               (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000);
    if (!logging->line.failed) {
        /* Nothing can be done about a log that cannot be written; the work goes on. */
        ssize_t written = write(STDERR_FILENO, logging->line.data, logging->line.size);
        (void)written;
    }
}
