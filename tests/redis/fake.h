/* fake.h -- a server that does what no real one does on demand: a child process that answers commands
 * by a function of the test's. */
#ifndef FAKE_H
#define FAKE_H

#include "base/base.h"

#include <sys/types.h>

#include <stdio.h>

struct fake {
    char folder[32];
    char socket[64];
    pid_t pid;
};

/* Appends the reply to one command. `connection` counts from 0. Returning false closes the
 * connection (after what was appended). Runs in the child: it shares nothing with the test. */
typedef bool
fake_answer(struct buf *out, const struct impel_bytes *args, size_t arg_count, int connection);

void fake_start(struct fake *fake, fake_answer *answer);
void fake_end(struct fake *fake);
/* What a Redis 7.0 says to the commands of a greeting; false if it is none of them. */
bool fake_greeting(struct buf *out, const struct impel_bytes *args, size_t arg_count);

#endif /* FAKE_H */
