/* runtime.h -- a worker in the real world: the state machine of core/worker.h on a libuv loop, over
 * one store handle, with handlers that run as functions or as commands.
 *
 *     struct runtime_options options;
 *     runtime_options_init(&options);
 *     options.store_url = "lmdb:orders.db";
 *     options.worker.streams = ...; options.worker.group = ...;
 *     options.handler.kind = HANDLER_EXEC;
 *     options.handler.argv = argv;
 *     rc = runtime_new(&options, &runtime, &err);
 *     rc = rc < 0 ? rc : runtime_run(runtime, &err);
 *     runtime_free(runtime);
 *
 * A runtime has its own loop and its own store handle and is driven by the one thread that calls
 * runtime_run(). Not here: parsing of options, the text of logs (observe/log.h), the public API
 * over this (src/lib). A later handler (an HTTP endpoint) is a row in the table of handler.c. */
#ifndef IMPEL_RUNTIME_H
#define IMPEL_RUNTIME_H

#include "core/worker.h"
#include "impel/event.h"
#include "impel/worker.h"

enum handler_kind {
    HANDLER_INLINE, /* `call` on the loop's own thread; it has to be quick */
    HANDLER_POOL,   /* `call` on a pool of `concurrency` threads */
    HANDLER_EXEC,   /* one process an entry: `argv` */
    HANDLER_PIPE,   /* `processes` of `argv` that stay, and answer on a line each */
};

struct runtime_handler {
    enum handler_kind kind;
    enum impel_outcome (*call)(struct impel_delivery *delivery, void *user);
    void *user;
    char *const
        *argv; /* NULL-terminated; argv[0] is searched in $PATH. Lives as long as the runtime
                */
    uint32_t processes; /* of HANDLER_PIPE, at most the concurrency; 0 = 1 */
};

struct runtime_options {
    const char *store_url;
    /* As the state machine takes it, except: an empty `consumer` means the lowest free slot name
     * <host>-<n>; `dead_letters` may be NULL (<stream>:dead each, see runtime_dead_letter());
     * `token` and `seed` are chosen by the runtime; `name_exclusive` too. */
    struct worker_options worker;
    struct runtime_handler handler;
    bool signals;             /* TERM, INT and HUP (if not ignored) stop it; the second at once */
    const char *metrics_file; /* NULL = none; rewritten every second, by rename */
    void (*event)(const struct impel_event *event, void *event_user); /* may be NULL */
    void *event_user;
    enum impel_level event_level; /* events below it are not made */
};

/* Defaults: policy, concurrency 1, prefetch auto, timeout 15 min, grace 25 s, sweeps once a second,
 * a pool, signals on, events from IMPEL_INFO up. */
void runtime_options_init(struct runtime_options *options);

struct runtime;

/* Checks the options, finds the command, opens the store, starts the guard of child processes. The
 * options and what they point to are copied (except argv and user pointers). IMPEL_ERR_INVALID =
 * bad use, a command that cannot be found or run among it: exit 2. */
int runtime_new(const struct runtime_options *options,
                struct runtime **out,
                struct impel_error *err);
/* Runs until stopped, idle (`until_idle`) or at an end of another kind. Returns IMPEL_OK for exit
 * 0; IMPEL_ERR_INVALID for exit 2 (the command turned out not to be executable); any other negative
 * status for exit 1. Once per runtime. */
int runtime_run(struct runtime *runtime, struct impel_error *err);
/* Drain and stop; the second call ends the grace at once. From any thread, async-signal-safe. */
void runtime_stop(struct runtime *runtime);
void runtime_free(struct runtime *runtime); /* not while it runs; NULL is fine */

/* Sums over all streams; from any thread. */
void runtime_metrics(const struct runtime *runtime, struct impel_metrics *metrics);
/* The name it runs under: given, or the slot once the first beat was taken (until then empty). */
struct impel_bytes runtime_consumer(const struct runtime *runtime);
/* The default dead-letter stream of `stream`, in the arena: "orders" -> "orders:dead". False if
 * memory is out. */
bool runtime_dead_letter(struct arena *arena, struct impel_bytes stream, struct impel_bytes *out);

#endif /* IMPEL_RUNTIME_H */
