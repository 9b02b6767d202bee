/* command_run.c -- impel run: the options of a worker, handed to the runtime. */
#include "cli/command.h"
#include "cli/logging.h"
#include "runtime/runtime.h"

static int spans_of(struct options *options,
                    const struct text_list *list,
                    const struct impel_bytes **out,
                    struct impel_error *err)
{
    struct impel_bytes *spans = arena_calloc(&options->arena, list->count, sizeof(*spans));

    if (spans == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < list->count; i++) {
        spans[i] = bytes_of(list->texts[i]);
    }
    *out = spans;
    return IMPEL_OK;
}

/* With --pipe at least one for each process. */
static uint32_t concurrency_of(const struct options *options)
{
    bool raised = options->pipe && options->processes > options->concurrency;
    return (uint32_t)(raised ? options->processes : options->concurrency);
}

static int check(const struct options *options, struct impel_error *err)
{
    if (options->streams.count == 0) {
        return command_needs("stream", err);
    }
    if (options->group == NULL) {
        return command_needs("group", err);
    }
    if (options->streams.count > WORKER_STREAMS_MAX) {
        return error_set(err, IMPEL_ERR_INVALID, "at most %d streams may be given",
                         WORKER_STREAMS_MAX);
    }
    if (!options->pipe && option_given(options, "processes")) {
        return error_set(err, IMPEL_ERR_INVALID, "--processes goes with --pipe");
    }
    if (options->tail.count == 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the command to run is needed, behind '--': impel run ... -- ./handle");
    }
    return IMPEL_OK;
}

static int
fill_worker(struct options *options, struct worker_options *worker, struct impel_error *err)
{
    struct impel_bytes *dead_letters =
        arena_calloc(&options->arena, options->streams.count, sizeof(*dead_letters));
    int rc = spans_of(options, &options->streams, &worker->streams, err);

    if (rc < 0 || dead_letters == NULL) {
        return rc < 0 ? rc : error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    worker->stream_count = options->streams.count;
    worker->group = bytes_of(options->group);
    if (options->consumer != NULL) {
        worker->consumer = bytes_of(options->consumer);
    }
    for (size_t i = 0; i < options->streams.count; i++) {
        if (!options_dead_letter(options, &options->arena, worker->streams[i], &dead_letters[i])) {
            return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
        }
    }
    worker->dead_letters = dead_letters;
    worker->policy = options_policy(options);
    worker->concurrency = concurrency_of(options);
    worker->prefetch = options->prefetch;
    worker->waiting_max = (uint32_t)options->max_waiting;
    worker->timeout_ms = options->timeout_ms;
    worker->grace_ms = options->grace_ms;
    worker->strict = options->strict;
    worker->recover_only = options->recover_only;
    worker->no_create = options->no_create;
    worker->until_idle = options->until_idle.given;
    worker->until_idle_ms = options->until_idle.ms;
    return IMPEL_OK;
}

/* The command and its arguments as execvp() takes them. */
static char **handler_argv(struct options *options)
{
    char **argv = arena_calloc(&options->arena, options->tail.count + 1, sizeof(*argv));

    for (size_t i = 0; argv != NULL && i < options->tail.count; i++) {
        argv[i] = (char *)options->tail.texts[i];
    }
    return argv;
}

int command_run(struct options *options, struct impel_error *err)
{
    struct runtime_options run;
    struct runtime *runtime = NULL;
    struct logging logging;
    int rc;

    rc = check(options, err);
    if (rc < 0) {
        return rc;
    }
    runtime_options_init(&run);
    rc = fill_worker(options, &run.worker, err);
    if (rc < 0) {
        return rc;
    }
    logging_init(&logging, options);
    run.store_url = options->store;
    run.handler.kind = options->pipe ? HANDLER_PIPE : HANDLER_EXEC;
    run.handler.processes = (uint32_t)options->processes;
    run.handler.argv = handler_argv(options);
    run.metrics_file = options->metrics_file;
    run.event = logging_event;
    run.event_user = &logging;
    run.event_level = (enum impel_level)options->log_level;
    rc = run.handler.argv == NULL ? error_set(err, IMPEL_ERR_NOMEM, "out of memory")
                                  : runtime_new(&run, &runtime, err);
    if (rc >= 0) {
        rc = runtime_run(runtime, err);
    }
    runtime_free(runtime);
    logging_release(&logging);
    return rc < 0 ? rc : EXIT_DONE;
}
