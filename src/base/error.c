/* error.c -- one table of statuses, and the way an error is filled in. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const status_texts[] = {
    [-IMPEL_OK] = "success",
    [-IMPEL_ERR_NOMEM] = "out of memory",
    [-IMPEL_ERR_INVALID] = "invalid argument",
    [-IMPEL_ERR_NOT_FOUND] = "not found",
    [-IMPEL_ERR_NO_GROUP] = "no such stream or consumer group",
    [-IMPEL_ERR_WRONG_TYPE] = "the key holds something other than a stream",
    [-IMPEL_ERR_EXISTS] = "exists already",
    [-IMPEL_ERR_FULL] = "the map or the disk is full",
    [-IMPEL_ERR_IO] = "input/output error",
    [-IMPEL_ERR_READ_ONLY] = "not writable",
    [-IMPEL_ERR_CORRUPT] = "the file is damaged",
    [-IMPEL_ERR_VERSION] = "made by a newer or unknown version",
    [-IMPEL_ERR_BUSY] = "held by somebody else",
    [-IMPEL_ERR_TIMEOUT] = "timed out",
    [-IMPEL_ERR_FENCED] = "the entry is no longer this worker's",
    [-IMPEL_ERR_REPLACED] = "another worker runs under this name",
    [-IMPEL_ERR_DISCONNECTED] = "the connection to the store broke",
    [-IMPEL_ERR_FORKED] = "opened before a fork, used after it",
    [-IMPEL_ERR_UNSUPPORTED] = "not supported here",
    [-IMPEL_ERR_AUTH] = "not permitted by the store",
    [-IMPEL_ERR_PROTOCOL] = "the peer does not speak RESP",
    [-IMPEL_ERR_REPLY] = "the store answered with an error",
    [-IMPEL_ERR_LIMIT] = "larger than allowed",
    [-IMPEL_ERR_CANCELLED] = "cancelled",
};

const char *status_text(int status)
{
    if (status >= 0) {
        return status_texts[0];
    }
    if (status <= -(int)ARRAY_SIZE(status_texts)) {
        return "unknown error";
    }
    return status_texts[-status];
}

int error_set(struct impel_error *err, int status, const char *format, ...)
{
    va_list args;

    if (err == NULL) {
        return status;
    }
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    for (char *c = err->text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            *c = '?';
        }
    }
    return status;
}

_Noreturn void base_assert_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "impel: broken promise: %s (%s:%d)\n", what, file, line);
    abort();
}
