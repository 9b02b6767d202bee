/* pipe.h -- processes that stay and are given many entries: shared by pipe.c (entries: the queue, who
 * gets which) and process.c (one process: what it reads and writes, how it ends).
 *
 *   start ─► queue ─► given: a line into the process's standard input ─► its line ─► outcome
 *              ▲                    │ it ends before that
 *              └── it never read it─┴─ it did: retry, counted, and the next time apart
 *
 * An entry that was read by a process which then died may be what it died of. All of them are tried
 * again, and count; but from then on each with a process to itself, and so is every last attempt. So
 * poison costs a neighbour one attempt at most, and never its place in the stream. What still was in
 * the pipe nobody has seen: it goes to the next process, uncounted. */
#ifndef IMPEL_RUNTIME_PIPE_H
#define IMPEL_RUNTIME_PIPE_H

#include "core/list.h"
#include "runtime/children.h"
#include "runtime/command_env.h"
#include "runtime/tail.h"

/* A delivery in the handler's hands. */
struct item {
    struct link link;          /* of the queue, or of its process's flight */
    struct delivery *delivery; /* NULL = free */
    struct item *chain;        /* of the index; of the free ones */
    struct process *process;   /* NULL = queued */
    uint64_t from;             /* where its line begins in all that its process was given */
    int64_t queued_ms;         /* when it was started */
    int64_t lost_until_ms; /* somebody else's by now: how long its process may go on; 0 = ever */
    bool cancelled;
    enum cancel_reason reason;
};

enum process_state {
    PROCESS_DOWN,
    PROCESS_UP,
    PROCESS_ENDING, /* is given nothing more */
};

struct process {
    struct child child;
    struct pipe *pipe;
    enum process_state state;
    struct link flight; /* what it was given and has not answered, in that order */
    size_t flight_count;
    size_t cancelled_count; /* of these */
    int64_t timed_ms;       /* when the timeouts of all but the first were put off last */
    struct buf out;         /* lines that its standard input has not taken yet */
    size_t written;         /* of `out` */
    uint64_t given;         /* bytes of lines in all, since it started */
    bool out_watched;
    struct buf in; /* the beginning of a line */
    struct tail tail;
    bool tail_held; /* our own standard error takes nothing for now */
    int64_t started_ms;
    int64_t restart_ms; /* DOWN: not before this */
    uint32_t failures;  /* ends in a row, without an answer in between */
    bool answered;      /* since it started */
    bool probing;       /* the one before failed: one entry at a time until this one answers */
    bool apart;         /* has one that is to be alone */
    bool distrusted;    /* wrote what is no answer: nothing more is believed */
    bool blameless;     /* ended for a known reason: what else it had goes back uncounted */
    bool told_to_end;   /* TERM was sent */
    int64_t end_by_ms;  /* it ought to be gone by then; 0 = no matter */
    char why[256];      /* it is ended by us; "" = by itself */
};

struct pipe {
    struct handler base;
    const struct handler_env *env;
    struct children children;
    struct command_env variables;
    struct process *processes;
    uint32_t process_count;
    uint32_t share; /* in flight in one process, at most */
    struct item *items;
    struct item *free;
    struct item **index; /* in flight, by ID */
    size_t index_size;
    struct link queue; /* not given yet, oldest first */
    size_t queue_count;
    size_t queued_apart;
    struct process *reserved; /* is given nothing, until it is empty: one waits to be alone in it */
    struct arena arena;       /* of an answer */
    uv_timer_t soon;          /* what was queued in a turn of the loop is given at its end */
    int64_t broken_ms; /* processes fail without having answered, since then; 0 = they do not */
    bool stopping;     /* nothing more is given */
    bool closing;
};

/* ---- pipe.c ---- */

/* The item of this process and ID; NULL = it has none. */
struct item *pipe_find(const struct pipe *pipe, const struct process *process, struct impel_id id);
/* Its end, with this result. */
void pipe_finish(struct pipe *pipe, struct item *item, const struct handler_result *result);
void pipe_release(struct pipe *pipe, struct item *item); /* it never ran: uncounted */
/* Out of its process's hands and to the front of the queue. */
void pipe_take_back(struct pipe *pipe, struct item *item);
/* Something may be given, or written: a look at it, once this turn of the loop is over. */
void pipe_soon(struct pipe *pipe);
void pipe_ended(struct pipe *pipe, struct process *process); /* it is down */
void pipe_tell(struct pipe *pipe, const char *name, enum impel_level level, const char *text);

/* ---- process.c ---- */

void process_init(struct pipe *pipe, struct process *process, size_t index);
void process_release(struct process *process);
/* Starts it. False if it cannot be, for now or at all. */
bool process_start(struct process *process);
/* Puts the item's line behind what it was given. False if memory is out. */
bool process_give(struct process *process, struct item *item);
void process_flush(struct process *process);
bool process_has_room(const struct process *process);
/* Ends it: TERM, KILL after a while. Answers that come in between count. */
void process_end(struct process *process, const char *why, bool blameless);
/* No more is coming: its standard input is closed, and it should end by itself. */
void process_let_go(struct process *process);
void process_ready(struct process *process, enum child_fd what);
/* Deadlines; true if there is one to come. */
bool process_chores(struct process *process, int64_t now_ms);

#endif /* IMPEL_RUNTIME_PIPE_H */
