/* spawn.h -- starting a command, with no chance for anything to go along that should not.
 *
 * clone() with CLONE_VFORK: as cheap as it gets, however much memory this process has mapped, and
 * the reason of a failing exec comes back in memory. The child runs on a stack of its own and does
 * only system calls until it execs. It becomes its own process group, registers it with the guard,
 * dies with its parent thread, has signals as a fresh login shell has them, and three descriptors:
 * its standard input, its standard output or ours, its standard error. */
#ifndef IMPEL_RUNTIME_SPAWN_H
#define IMPEL_RUNTIME_SPAWN_H

#include "base/base.h"

#include <sys/types.h>

struct spawn_result {
    pid_t pid;       /* -1 = no process could be made: `error` is its errno */
    int pidfd;       /* close-on-exec; -1 if the kernel has none */
    int error;       /* of exec; 0 = it runs */
    bool registered; /* with the guard */
};

struct spawner {
    const char *path;            /* of the program, found already */
    char *const *argv;           /* argv[0] as it was given */
    int guard_fd;                /* -1 = none */
    bool pidfds;                 /* the kernel has them and lets us */
    void *stack;                 /* of the child, until it execs */
    struct spawn_result *shared; /* what the child says: in memory of its own, shared either way */
};

/* Finds `argv[0]` as execvp() would, but says so now. `path` gets the malloc'ed name. */
int spawn_find(const char *name, char **path, struct impel_error *err);
int spawner_init(struct spawner *spawner, struct impel_error *err);
void spawner_release(struct spawner *spawner);

struct spawn_files {
    int in, out, err; /* become 0, 1 and 2; `out` may be -1: ours */
};
/* Starts the command with these descriptors. Where the environment is too large for the kernel,
 * `small_env` is used instead. */
struct spawn_result spawner_start(struct spawner *spawner,
                                  const struct spawn_files *files,
                                  char *const *env,
                                  char *const *small_env);

/* A close-on-exec pipe whose ends are not 0, 1 or 2 even if those are closed. -1 and errno. */
int spawn_pipe(int fds[2]);

/* For a forked child; async-signal-safe. */

/* Every signal to `disposition` (SIG_DFL or SIG_IGN), and none blocked. */
void spawn_reset_signals(void (*disposition)(int));
/* Closes every descriptor but these two (the second may be -1). They keep their numbers: to copy
 * them takes a free one, which there may not be. */
void spawn_close_all_but(int first, int second);

#endif /* IMPEL_RUNTIME_SPAWN_H */
