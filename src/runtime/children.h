/* children.h -- processes that handlers start: the command is found, started, watched, ended, buried.
 *
 * A handler has a fixed number of places for them. All descriptors (the ends of a child's pipes, the
 * pidfd that tells of its death) are in one epoll set, whose own descriptor is the one thing that
 * the loop watches. What is read and written, and what a death means, is the handler's: exec.c has
 * a process an entry, pipe.c processes that stay. */
#ifndef IMPEL_RUNTIME_CHILDREN_H
#define IMPEL_RUNTIME_CHILDREN_H

#include "core/list.h"
#include "runtime/guard.h"
#include "runtime/handler.h"
#include "runtime/spawn.h"

#include <sys/types.h>

#include <signal.h>

enum child_fd {
    CHILD_STDIN,
    CHILD_STDOUT, /* only where it was asked for; else it is ours */
    CHILD_STDERR,
    CHILD_DEATH,
    CHILD_FDS,
};

enum {
    KILL_AFTER_MS = 5000, /* between TERM and KILL */
    CHORE_MS = 100,       /* how often deadlines and delayed starts are looked at */
};

struct child {
    size_t index;       /* of its place */
    pid_t pid;          /* 0 = none */
    int fds[CHILD_FDS]; /* our ends, which do not block; -1 = closed */
    int64_t kill_at_ms; /* 0 = no KILL is due */
};

/* The ends that the child gets. */
struct child_ends {
    int in, out, err; /* -1 = none */
};

struct children {
    const struct handler_env *env;
    struct child **all; /* `count` of them, the handler's; fixed before the first start */
    size_t count;
    /* Something can be read or written, or the child has died. */
    void (*ready)(struct children *children, struct child *child, enum child_fd what);
    /* Every CHORE_MS; true if it has to be looked at again. */
    bool (*chores)(struct children *children);

    struct spawner spawner;
    struct guard guard;
    char *path;
    int epoll_fd;
    uv_poll_t poll;
    uv_timer_t timer;
    uv_signal_t deaths; /* where the kernel has no pidfds */
    int64_t short_ms;   /* when the system was last short of something, loop's time; 0 = never */
    bool failed;        /* the command cannot be executed */
    struct sigaction child_before;
    bool child_changed;
};

/* Finds the command, starts the guard, joins the loop. `ready` and `chores` are set, `guard` and `epoll_fd` empty, the rest is
 * zero. On failure
 * only children_free() is left to be called. `argv` and `env` outlive it. */
int children_open(struct children *children,
                  const struct handler_env *env,
                  char *const *argv,
                  size_t count,
                  struct impel_error *err);
void children_close(struct children *children); /* leaves the loop */
void children_free(struct children *children);
void child_init(struct children *children, struct child *child, size_t index);

/* Makes the pipes of a child that is to be started; with `with_stdout` also one for that. 0, or an
 * errno: then child_unmake() has to be called, as after a start that failed. */
int child_pipes(struct child *child, bool with_stdout, struct child_ends *ends);
/* Starts the command between them, and closes them. 0, or an errno. */
int child_start(struct children *children,
                struct child *child,
                struct child_ends *ends,
                char *const *full_env,
                char *const *small_env);
void child_unmake(struct children *children, struct child *child, struct child_ends *ends);
/* Puts a descriptor into the set. False if it takes no more. */
bool child_watch(struct children *children,
                 struct child *child,
                 enum child_fd what,
                 uint32_t events);
void child_rewatch(struct children *children,
                   struct child *child,
                   enum child_fd what,
                   uint32_t events);
void child_unwatch(struct children *children, struct child *child, enum child_fd what);
void child_close(struct children *children, struct child *child, enum child_fd what);

/* What may be over in a moment: no reason to give an entry up, nor to stop the worker. */
bool children_passing(int error);
/* Says that the system is short of something, if that is news; chores are due. */
void children_short(struct children *children, int error);
/* The command cannot be executed, and will not be: tells the worker. */
void children_give_up(struct children *children, int error);
void children_chores_due(struct children *children);

/* TERM to its group, KILL after a while. */
void child_term(struct children *children, struct child *child);
/* Ends it at once, unseen. */
void child_kill(struct children *children, struct child *child);
/* Looks whether it has exited, and if so buries it, and with `whole_group` what it left behind. */
bool child_reap(struct children *children, struct child *child, bool whole_group, siginfo_t *info);
/* "exit status 3", "killed by signal 11 (SIGSEGV)" */
void child_end_text(const siginfo_t *info, char *text, size_t size);

#endif /* IMPEL_RUNTIME_CHILDREN_H */
