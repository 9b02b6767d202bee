/* handler.h -- what runs an entry: one small table of functions per kind.
 *
 * The driver starts a handler on a delivery and is told, on its own thread, when that is over. A
 * handler never talks to the store or the state machine. All functions here are called on the
 * loop's thread; a kind that uses other threads keeps them to itself. */
#ifndef IMPEL_RUNTIME_HANDLER_H
#define IMPEL_RUNTIME_HANDLER_H

#include "runtime/runtime.h"

#include <stdatomic.h>
#include <uv.h>

enum {
    ERROR_SIZE_MAX = 4096, /* of an error text: what fits on a screen, and in a record */
};

struct handler_result {
    enum worker_outcome outcome;
    int64_t delay_ms; /* -1 = none */
    struct impel_bytes error;
};

/* What a handler may use of the runtime. */
struct handler_env {
    uv_loop_t *loop;
    uint32_t concurrency; /* never more are started than this */
    int64_t timeout_ms;   /* of one; 0 = none. The machine's to watch */
    const struct impel_bytes *streams;
    size_t stream_count;
    struct impel_bytes group;
    struct impel_bytes consumer; /* settled before the first start */
    const char *store_url;
    /* The handler of `delivery` is over; at most once per start, also from within start(). */
    void (*finished)(void *user, struct delivery *delivery, const struct handler_result *result);
    /* The handler of `delivery` begins only now, or later: its timeout does too. Again and again. */
    void (*begun)(void *user, struct delivery *delivery);
    /* Whether one that had to wait since its start may begin now. Where the worker slept, or was cut off,
     * others may have the entry by now: it is found out first, and what was lost is cancelled. */
    bool (*may_begin)(void *user, struct delivery *delivery);
    /* No handler can be started at all (the command cannot be executed): stop the worker. */
    void (*failed)(void *user, const struct impel_error *error);
    void (*event)(void *user, const struct impel_event *event);
    void *user;
};

struct handler;
struct handler_ops {
    /* Checks the options and makes ready. On failure nothing is left. `env` outlives the handler. */
    int (*open)(const struct handler_env *env,
                const struct runtime_handler *options,
                struct handler **out,
                struct impel_error *err);
    void (*start)(struct handler *handler, struct delivery *delivery);
    /* Its work is not wanted any more; `finished` is called all the same, when it is over. */
    void (*cancel)(struct handler *handler, struct delivery *delivery, enum cancel_reason reason);
    /* The worker stops: what has not begun yet is not to. May be NULL. */
    void (*stopping)(struct handler *handler);
    /* Nothing runs any more: closes what lives on the loop, which then runs until it is empty. */
    void (*close)(struct handler *handler);
    void (*free)(struct handler *handler);
};
struct handler {
    const struct handler_ops *ops;
};

extern const struct handler_ops handler_inline;
extern const struct handler_ops handler_pool;
extern const struct handler_ops handler_exec;
extern const struct handler_ops handler_pipe;

/* Opens the handler of the kind that the options name. */
int handler_open(const struct handler_env *env,
                 const struct runtime_handler *options,
                 struct handler **out,
                 struct impel_error *err);

/* What a C callback is given: the public `struct impel_delivery`. */
struct impel_delivery {
    const struct handler_env *env;
    const struct delivery *delivery;
    atomic_bool cancelled;
    int64_t delay_ms; /* asked for by impel_delivery_retry_after(); -1 = none */
    char *why;        /* the callback's words, malloc'ed; NULL = none */
};

/* What a callback returned, and said, as a result; the error borrows from `delivery`. A retry after
 * the worker's stop had cancelled it is no outcome: such an entry goes back uncounted. */
struct handler_result
handler_result_of(const struct impel_delivery *delivery, enum impel_outcome outcome, bool stopped);

#endif /* IMPEL_RUNTIME_HANDLER_H */
