/* guard.h -- a small process that ends what a killed worker leaves behind.
 *
 * PR_SET_PDEATHSIG ends a worker's children with it, but not their children: of `sh -c 'a | b'` only
 * the shell would go, and `a | b` would run on beside the next attempt. So each child registers its
 * process group, before it executes anything, with a guard process; when the worker is gone without
 * having said so, the guard kills every group that is still registered, and ends.
 *
 *   worker ──fork──► guard (own session: a kill of the worker's group does not reach it)
 *      │ pipe            ▲ reads +pgid, -pgid; end of file, or the worker's pidfd: kill, exit
 *      └─clone─► child ──┘ writes +pgid itself, then execs
 *
 * The worker writes -pgid while the dead child is still a zombie, so that its number cannot belong
 * to anybody else by then. */
#ifndef IMPEL_RUNTIME_GUARD_H
#define IMPEL_RUNTIME_GUARD_H

#include "base/base.h"

#include <sys/types.h>

struct guard {
    int fd;            /* the writing end: non-blocking, close-on-exec, never 0 to 2; -1 = none */
    pid_t pid;         /* of the guard process */
    size_t groups_max; /* registered at once */
};

int guard_start(struct guard *guard, size_t groups_max, struct impel_error *err);
/* Writes +pgid (or -pgid). Async-signal-safe; called in the child as well. False if the guard does
 * not take it: it is stopped or gone, and has to be renewed. */
bool guard_note(int fd, pid_t pgid);
/* Ends the guard and starts another that knows of these groups. On failure there is none: children
 * then die with the worker by PR_SET_PDEATHSIG alone. */
int guard_renew(struct guard *guard, const pid_t *groups, size_t count, struct impel_error *err);
/* Says goodbye: with nothing registered the guard just ends. Waits for it. */
void guard_stop(struct guard *guard);

#endif /* IMPEL_RUNTIME_GUARD_H */
