/* worker.c -- workers of the public API: options with their defaults, over the runtime. */
#include "impel/worker.h"

#include "lib/store_state.h"
#include "runtime/runtime.h"

#include <stdlib.h>

struct impel_worker {
    struct runtime *runtime;
};

/* One number among the options: 0 is its default, IMPEL_NONE may stand for something. */
struct number {
    const char *name;
    int64_t given;
    bool none;          /* IMPEL_NONE is offered */
    int64_t none_means; /* what then */
    int64_t *out;       /* has the default */
};

static int take_number(const struct number *number, struct impel_error *err)
{
    if (number->given == 0) {
        return IMPEL_OK;
    }
    if (number->given == IMPEL_NONE && number->none) {
        *number->out = number->none_means;
        return IMPEL_OK;
    }
    if (number->given < 0) {
        return error_set(err, IMPEL_ERR_INVALID, "the worker's option %s must not be %lld%s",
                         number->name, (long long)number->given,
                         number->none ? " (IMPEL_NONE is the only negative)" : "");
    }
    *number->out = number->given;
    return IMPEL_OK;
}

static int take_numbers(const struct impel_worker_options *options,
                        struct runtime_options *out,
                        struct impel_error *err)
{
    struct worker_options *worker = &out->worker;
    struct policy *policy = &worker->policy;
    const struct number numbers[] = {
        {"prefetch", options->prefetch, true, 0, &worker->prefetch},
        {"timeout_ms", options->timeout_ms, true, 0, &worker->timeout_ms},
        {"grace_ms", options->grace_ms, true, 0, &worker->grace_ms},
        {"min_idle_ms", options->min_idle_ms, false, 0, &policy->min_idle_ms},
        {"dead_after_ms", options->dead_after_ms, false, 0, &policy->dead_after_ms},
        {"max_deliveries", options->max_deliveries, false, 0, &policy->max_deliveries},
        {"backoff_base_ms", options->backoff_base_ms, true, 0, &policy->backoff_base_ms},
        {"backoff_cap_ms", options->backoff_cap_ms, false, 0, &policy->backoff_cap_ms},
        {"until_idle_ms", options->until_idle_ms, false, 0, &worker->until_idle_ms},
    };
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        int rc = take_number(&numbers[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

static int check_options(const struct impel_worker_options *options, struct impel_error *err)
{
    const char *problem = NULL;
    if (options->handler == NULL) {
        problem = "the worker has no handler";
    } else if (options->group == NULL) {
        problem = "the worker has no group";
    } else if (options->stream == NULL && options->stream_count == 0) {
        problem = "the worker has no stream";
    } else if (options->stream != NULL && options->stream_count > 0) {
        problem = "the worker's streams are given twice: as `stream` and as `streams`";
    } else if (options->stream_count > 0 && options->streams == NULL) {
        problem = "the worker's `streams` are NULL";
    } else if (options->consumer != NULL && options->consumer[0] == '\0') {
        problem = "the worker's consumer name is empty";
    }
    for (size_t i = 0; i < ARRAY_SIZE(options->reserved); i++) {
        if (options->reserved[i] != 0) {
            problem = "the worker's options are not zeroed (reserved members are set)";
        }
    }
    return problem == NULL ? IMPEL_OK : error_set(err, IMPEL_ERR_INVALID, "%s", problem);
}

/* A stream without a name of bytes is the one with the empty name. */
static struct impel_bytes name_of(struct impel_bytes name)
{
    return name.data != NULL ? name : bytes_of("");
}

static int make_runtime(const struct impel_store *store,
                        const struct impel_worker_options *options,
                        struct runtime **out,
                        struct impel_error *err)
{
    struct runtime_options runtime;
    runtime_options_init(&runtime);
    size_t count = options->stream != NULL ? 1 : options->stream_count;
    struct impel_bytes *streams = calloc(count, sizeof *streams);
    struct impel_bytes *dead_letters = calloc(count, sizeof *dead_letters);
    int rc = take_numbers(options, &runtime, err);
    if (rc < 0) {
        goto done;
    }
    if (streams == NULL || dead_letters == NULL) {
        rc = error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
        goto done;
    }
    for (size_t i = 0; i < count; i++) {
        streams[i] =
            options->stream != NULL ? bytes_of(options->stream) : name_of(options->streams[i]);
        dead_letters[i] = bytes_of(options->dead_letter != NULL ? options->dead_letter : "");
    }
    struct worker_options *worker = &runtime.worker;
    worker->streams = streams;
    worker->stream_count = count;
    worker->dead_letters = options->dead_letter != NULL ? dead_letters : NULL;
    worker->group = bytes_of(options->group);
    worker->consumer = bytes_of(options->consumer != NULL ? options->consumer : "");
    worker->concurrency = options->concurrency > 0 ? options->concurrency : 1;
    worker->waiting_max = options->waiting_max;
    worker->strict = options->strict != 0;
    worker->recover_only = options->recover_only != 0;
    worker->no_create = options->no_create != 0;
    worker->until_idle = options->until_idle != 0;
    worker->group_start = options->group_start;
    runtime.store_url = store->url;
    runtime.handler = (struct runtime_handler){
        .kind = options->inline_handler != 0 ? HANDLER_INLINE : HANDLER_POOL,
        .call = options->handler,
        .user = options->user,
    };
    runtime.signals = options->no_signals == 0;
    runtime.event = options->event;
    runtime.event_user = options->event_user;
    runtime.event_level = options->event_level;
    runtime.metrics_file = options->metrics_file;
    rc = runtime_new(&runtime, out, err);
done:
    free(streams);
    free(dead_letters);
    return rc;
}

int impel_worker_new(struct impel_store *store,
                     const struct impel_worker_options *options,
                     struct impel_worker **out,
                     struct impel_error *err)
{
    *out = NULL;
    int rc = check_options(options, err);
    if (rc < 0) {
        return rc;
    }
    struct impel_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
    }
    rc = make_runtime(store, options, &worker->runtime, err);
    if (rc < 0) {
        free(worker);
        return rc;
    }
    *out = worker;
    return IMPEL_OK;
}

int impel_worker_run(struct impel_worker *worker, struct impel_error *err)
{
    return runtime_run(worker->runtime, err);
}

void impel_worker_stop(struct impel_worker *worker)
{
    runtime_stop(worker->runtime);
}

void impel_worker_free(struct impel_worker *worker)
{
    if (worker != NULL) {
        runtime_free(worker->runtime);
        free(worker);
    }
}

struct impel_bytes impel_worker_consumer(const struct impel_worker *worker)
{
    return runtime_consumer(worker->runtime);
}

void impel_worker_metrics(const struct impel_worker *worker, struct impel_metrics *metrics)
{
    runtime_metrics(worker->runtime, metrics);
}
