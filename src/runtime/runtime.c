/* runtime.c -- the life of a runtime: options, names, loop, start and end. The loop's turns are
 * driver.c's. */
#include "observe/events.h"
#include "runtime/state.h"

#include <sys/random.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TIMEOUT_MS = 15 * 60 * 1000,
    GRACE_MS = 25 * 1000,
};

static const int stop_signals[STOP_SIGNALS] = {SIGTERM, SIGINT, SIGHUP};

/* ---- options ---- */

void runtime_options_init(struct runtime_options *options)
{
    *options = (struct runtime_options){
        .worker =
            {
                .concurrency = 1,
                .prefetch = -1,
                .timeout_ms = TIMEOUT_MS,
                .grace_ms = GRACE_MS,
                .sweep_interval_ms = 1000,
            },
        .handler.kind = HANDLER_POOL,
        .signals = true,
        .event_level = IMPEL_INFO,
    };
    policy_defaults(&options->worker.policy);
}

bool runtime_dead_letter(struct arena *arena, struct impel_bytes stream, struct impel_bytes *out)
{
    static const char suffix[] = ":dead";
    char *name = arena_alloc(arena, stream.size + sizeof suffix);
    if (name == NULL) {
        return false;
    }
    if (stream.size > 0) {
        memcpy(name, stream.data, stream.size);
    }
    memcpy(name + stream.size, suffix, sizeof suffix);
    *out = (struct impel_bytes){name, stream.size + sizeof suffix - 1};
    return true;
}

static int check_options(const struct runtime_options *options, struct impel_error *err)
{
    const struct worker_options *worker = &options->worker;
    const char *problem = NULL;
    if (options->store_url == NULL) {
        problem = "no store is named";
    } else if (worker->stream_count == 0) {
        problem = "no stream is named";
    } else if (worker->stream_count > WORKER_STREAMS_MAX) {
        problem = "a worker reads at most 1000 streams";
    } else if (worker->group.data == NULL) {
        problem = "no group is named";
    } else if (bytes_equal(worker->consumer, bytes_of(RELEASED_NAME))) {
        problem = "the consumer name " RELEASED_NAME " is reserved";
    } else if (worker->concurrency == 0) {
        problem = "the concurrency must be at least 1";
    } else if (worker->policy.max_deliveries < 1) {
        problem = "max-deliveries must be at least 1";
    } else if (worker->policy.dead_after_ms < 1 || worker->policy.min_idle_ms < 1) {
        problem = "dead-after and min-idle must be at least 1 ms";
    } else if (worker->policy.backoff_base_ms < 0 || worker->policy.backoff_cap_ms < 0 ||
               worker->timeout_ms < 0 || worker->grace_ms < 0) {
        problem = "a duration must not be negative";
    }
    for (size_t i = 0; i < worker->stream_count && problem == NULL; i++) {
        for (size_t j = 0; j < i && problem == NULL; j++) {
            problem = bytes_equal(worker->streams[i], worker->streams[j])
                          ? "a stream is named twice"
                          : NULL;
        }
        if (problem == NULL && worker->dead_letters != NULL &&
            bytes_equal(worker->streams[i], worker->dead_letters[i])) {
            problem = "the dead-letter stream must be another than the stream itself";
        }
    }
    return problem == NULL ? IMPEL_OK : error_set(err, IMPEL_ERR_INVALID, "%s", problem);
}

static bool copy_text(struct arena *arena, const char *text, const char **out)
{
    struct impel_bytes copy;
    if (text == NULL) {
        *out = NULL;
        return true;
    }
    if (!arena_copy(arena, (struct impel_bytes){text, strlen(text) + 1}, &copy)) {
        return false;
    }
    *out = copy.data;
    return true;
}

/* The options with all that they point to, in the runtime's arena. False if memory is out. */
static bool copy_options(struct runtime *runtime, const struct runtime_options *options)
{
    struct arena *arena = &runtime->arena;
    struct worker_options *worker = &runtime->options.worker;
    runtime->options = *options;
    size_t count = worker->stream_count;
    struct impel_bytes *streams = arena_calloc(arena, count, sizeof *streams);
    struct impel_bytes *dead_letters = arena_calloc(arena, count, sizeof *dead_letters);
    if (streams == NULL || dead_letters == NULL ||
        !arena_copy(arena, worker->group, &worker->group) ||
        !arena_copy(arena, worker->consumer, &worker->consumer) ||
        !copy_text(arena, options->store_url, &runtime->options.store_url) ||
        !copy_text(arena, options->metrics_file, &runtime->options.metrics_file)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!arena_copy(arena, worker->streams[i], &streams[i]) ||
            !(worker->dead_letters != NULL
                  ? arena_copy(arena, worker->dead_letters[i], &dead_letters[i])
                  : runtime_dead_letter(arena, streams[i], &dead_letters[i]))) {
            return false;
        }
    }
    runtime->slotted = worker->consumer.size == 0;
    worker->name_exclusive = runtime->slotted;
    worker->streams = streams;
    worker->dead_letters = dead_letters;
    runtime->env.streams = streams;
    runtime->env.stream_count = count;
    runtime->env.timeout_ms = worker->timeout_ms;
    runtime->env.group = worker->group;
    runtime->env.consumer = worker->consumer;
    runtime->env.concurrency = worker->concurrency;
    runtime->env.store_url = runtime->options.store_url;
    return true;
}

/* ---- the state machine and its name ---- */

static void next_slot_name(struct runtime *runtime)
{
    char host[SLOT_NAME_SIZE - 16] = "";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') {
        (void)snprintf(host, sizeof host, "worker");
    }
    runtime->slot++;
    (void)snprintf(runtime->slot_name, sizeof runtime->slot_name, "%s-%u", host, runtime->slot);
    runtime->env.consumer = bytes_of(runtime->slot_name);
    runtime->options.worker.consumer = runtime->env.consumer;
}

int runtime_make_worker(struct runtime *runtime, struct impel_error *err)
{
    worker_free(runtime->worker);
    runtime->worker = NULL;
    if (runtime->slotted) {
        if (runtime->slot >= SLOTS_MAX) {
            return error_set(err, IMPEL_ERR_BUSY, "no slot name is free; give the worker a name");
        }
        next_slot_name(runtime);
    }
    runtime->worker = worker_new(&runtime->options.worker, runtime_now_ms());
    if (runtime->worker == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
    }
    return IMPEL_OK;
}

/* A token that no other start ever had, and a seed for the jitter. */
static int draw_identity(struct worker_options *options, struct impel_error *err)
{
    uint8_t bytes[TOKEN_SIZE + sizeof options->seed];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return error_set(err, IMPEL_ERR_IO, "no random bytes: %s", strerror(errno));
    }
    memcpy(options->token.bytes, bytes, TOKEN_SIZE);
    memcpy(&options->seed, bytes + TOKEN_SIZE, sizeof options->seed);
    return IMPEL_OK;
}

/* ---- the loop's handles ---- */

static void on_prepare(uv_prepare_t *handle)
{
    runtime_pump(handle->data);
}

static void on_wake(uv_async_t *handle)
{
    (void)handle; /* the loop woke up, that is all: the pump follows */
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct runtime *runtime = handle->data;
    (void)number;
    atomic_fetch_add(&runtime->stops, 1);
}

static void write_metrics(struct runtime *runtime)
{
    struct impel_error error;
    if (runtime->options.metrics_file != NULL &&
        metrics_write(runtime->metrics, runtime->options.metrics_file, &error) < 0) {
        struct impel_event event;
        event_init(&event, "metrics-failed", IMPEL_WARNING, error.text);
        runtime_tell(runtime, &event);
    }
}

static void on_metrics(uv_timer_t *handle)
{
    struct runtime *runtime = handle->data;
    for (size_t i = 0; i < runtime->options.worker.stream_count; i++) {
        metrics_set_held(runtime->metrics, i, worker_held_in(runtime->worker, i));
    }
    write_metrics(runtime);
}

/* Whether a worker has the descriptors for its loop, its store, its guard and one command. Where
 * there are fewer libuv aborts, or no command could ever be started. */
static bool descriptors_suffice(void)
{
    int fds[20];
    size_t count = 0;

    while (count < ARRAY_SIZE(fds)) {
        fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fds[count] < 0) {
            break;
        }
        count++;
    }
    bool suffice = count == ARRAY_SIZE(fds);
    while (count > 0) {
        (void)close(fds[--count]);
    }
    return suffice;
}

static int init_loop(struct runtime *runtime, struct impel_error *err)
{
    if (!descriptors_suffice()) {
        return error_set(err, IMPEL_ERR_LIMIT,
                         "a worker cannot open the files it needs: %s; raise the limit "
                         "(ulimit -n)",
                         strerror(errno));
    }
    if (uv_loop_init(&runtime->loop) != 0) {
        return error_set(err, IMPEL_ERR_IO, "no event loop: %s", strerror(errno));
    }
    runtime->loop_ready = true;
    runtime->env.loop = &runtime->loop;
    if (uv_async_init(&runtime->loop, &runtime->wake, on_wake) != 0) {
        return error_set(err, IMPEL_ERR_IO, "no event loop: %s", strerror(errno));
    }
    (void)uv_prepare_init(&runtime->loop, &runtime->prepare);
    (void)uv_timer_init(&runtime->loop, &runtime->timer);
    (void)uv_idle_init(&runtime->loop, &runtime->idle);
    (void)uv_timer_init(&runtime->loop, &runtime->metrics_timer);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        (void)uv_signal_init(&runtime->loop, &runtime->signals[i]);
        runtime->signals[i].data = runtime;
    }
    runtime->prepare.data = runtime;
    runtime->metrics_timer.data = runtime;
    runtime->handles_ready = true;
    return IMPEL_OK;
}

static void close_loop(struct runtime *runtime)
{
    if (runtime->handles_ready) {
        uv_close((uv_handle_t *)&runtime->wake, NULL);
        uv_close((uv_handle_t *)&runtime->prepare, NULL);
        uv_close((uv_handle_t *)&runtime->timer, NULL);
        uv_close((uv_handle_t *)&runtime->idle, NULL);
        uv_close((uv_handle_t *)&runtime->metrics_timer, NULL);
        for (int i = 0; i < STOP_SIGNALS; i++) {
            uv_close((uv_handle_t *)&runtime->signals[i], NULL);
        }
    }
    if (runtime->loop_ready) {
        (void)uv_run(&runtime->loop, UV_RUN_DEFAULT);
        int rc = uv_loop_close(&runtime->loop);
        ASSERT(rc == 0);
    }
}

/* ---- the store's callbacks ---- */

static void on_store_wake(void *user)
{
    struct runtime *runtime = user;
    (void)uv_async_send(&runtime->wake);
}

static void on_store_event(void *user, const struct store_event *told)
{
    struct runtime *runtime = user;
    struct impel_event event;
    event_init(&event, told->name, (enum impel_level)told->level, told->text);
    event.consumer = runtime->env.consumer;
    runtime_tell(runtime, &event);
    runtime->cut = runtime->cut || strcmp(told->name, "disconnected") == 0;
    if (strcmp(told->name, "unreachable") == 0) {
        runtime_unreachable(runtime, told->text);
    }
}

/* ---- life ---- */

static int open_parts(struct runtime *runtime, struct impel_error *err)
{
    struct worker_options *worker = &runtime->options.worker;
    int rc = draw_identity(worker, err);
    if (rc < 0) {
        return rc;
    }
    runtime->metrics = metrics_new(worker->streams, worker->stream_count, worker->group);
    if (runtime->metrics == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
    }
    rc = init_loop(runtime, err);
    if (rc < 0) {
        return rc;
    }
    if (runtime->options.metrics_file != NULL) {
        rc = metrics_write(runtime->metrics, runtime->options.metrics_file, err);
        if (rc < 0) {
            return rc;
        }
    }
    /* Before the store: the guard of the exec handler is a fork, and should be a small one. */
    rc = handler_open(&runtime->env, &runtime->options.handler, &runtime->handler, err);
    if (rc < 0) {
        return rc;
    }
    struct store_env env = {
        .wake = on_store_wake, .event = on_store_event, .user = runtime, .loop = &runtime->loop};
    rc = store_open(runtime->options.store_url, &env, &runtime->store, err);
    return rc < 0 ? rc : runtime_make_worker(runtime, err);
}

int runtime_new(const struct runtime_options *options,
                struct runtime **out,
                struct impel_error *err)
{
    int rc = check_options(options, err);
    if (rc < 0) {
        return rc;
    }
    struct runtime *runtime = calloc(1, sizeof *runtime);
    if (runtime == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
    }
    runtime->completed_tail = &runtime->completed;
    runtime->env.finished = runtime_finished;
    runtime->env.begun = runtime_begun;
    runtime->env.may_begin = runtime_may_begin;
    runtime->env.failed = runtime_failed;
    runtime->env.event = runtime_tell;
    runtime->env.user = runtime;
    rc = copy_options(runtime, options) ? open_parts(runtime, err)
                                        : error_set(err, IMPEL_ERR_NOMEM, "no memory for a worker");
    if (rc < 0) {
        runtime_free(runtime);
        return rc;
    }
    *out = runtime;
    return IMPEL_OK;
}

/* What these signals did before the first of the process's workers began to run: it is so again after
 * the last. */
static struct {
    pthread_mutex_t lock;
    unsigned running;
    struct sigaction before[STOP_SIGNALS];
} shared_signals = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void watch_signals(struct runtime *runtime)
{
    pthread_mutex_lock(&shared_signals.lock);
    for (int i = 0; i < STOP_SIGNALS; i++) {
        if (shared_signals.running == 0) {
            (void)sigaction(stop_signals[i], NULL, &shared_signals.before[i]);
        }
        /* Under nohup a closed terminal is to be survived. */
        if (stop_signals[i] != SIGHUP || shared_signals.before[i].sa_handler != SIG_IGN) {
            (void)uv_signal_start(&runtime->signals[i], on_signal, stop_signals[i]);
        }
    }
    shared_signals.running++;
    pthread_mutex_unlock(&shared_signals.lock);
}

static void unwatch_signals(struct runtime *runtime)
{
    pthread_mutex_lock(&shared_signals.lock);
    shared_signals.running--;
    for (int i = 0; i < STOP_SIGNALS; i++) {
        (void)uv_signal_stop(&runtime->signals[i]);
        if (shared_signals.running == 0) {
            (void)sigaction(stop_signals[i], &shared_signals.before[i], NULL);
        }
    }
    pthread_mutex_unlock(&shared_signals.lock);
}

static sigset_t only_sigpipe(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    return set;
}

/* A write to a command that does not read must not end the process: SIGPIPE is blocked in this
 * thread only, and what came of it is taken away before it is unblocked. */
static void enter_thread(struct runtime *runtime)
{
    sigset_t pipe_only = only_sigpipe();
    pthread_sigmask(SIG_BLOCK, &pipe_only, &runtime->mask_before);
    if (runtime->options.signals) {
        watch_signals(runtime);
    }
}

static void leave_thread(struct runtime *runtime)
{
    sigset_t pipe_only = only_sigpipe();
    const struct timespec at_once = {0};
    if (runtime->options.signals) {
        unwatch_signals(runtime);
    }
    while (!sigismember(&runtime->mask_before, SIGPIPE) &&
           sigtimedwait(&pipe_only, NULL, &at_once) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &runtime->mask_before, NULL);
}

static int result_of_run(struct runtime *runtime, struct impel_error *err)
{
    if (runtime->exit_code == 0) {
        return IMPEL_OK;
    }
    if (!runtime->failed && runtime->gave_up) {
        return error_set(
            err, IMPEL_ERR_TIMEOUT,
            "the group was not idle within %lld ms; entries are undelivered or pending",
            (long long)runtime->options.worker.until_idle_ms);
    }
    if (!runtime->failed) {
        /* What is left: the machine abandoned them, and another worker runs their entries. */
        return error_set(err, IMPEL_ERR_IO,
                         "handlers did not end when the grace was over; their attempts count");
    }
    if (err != NULL) {
        *err = runtime->failure;
    }
    return runtime->failure.status;
}

static void duration_text(int64_t ms, char *text, size_t size)
{
    const char *unit = ms % 60000 == 0 ? "m" : ms % 1000 == 0 ? "s" : "ms";
    int64_t divisor = ms % 60000 == 0 ? 60000 : ms % 1000 == 0 ? 1000 : 1;
    (void)snprintf(text, size, "%lld%s", (long long)(ms / divisor), unit);
}

/* Said at the start, since it ends handlers that somebody may have meant to take longer. */
static void tell_limits(struct runtime *runtime)
{
    const struct worker_options *worker = &runtime->options.worker;
    uint32_t processes = runtime->options.handler.processes;
    char text[160], timeout[32], where[48] = "";
    duration_text(worker->timeout_ms, timeout, sizeof timeout);
    if (runtime->options.handler.kind == HANDLER_PIPE) {
        (void)snprintf(where, sizeof where, " in %u process%s", processes,
                       processes == 1 ? "" : "es");
    }
    (void)snprintf(
        text, sizeof text, "running up to %u at once%s; %s%s", worker->concurrency, where,
        worker->timeout_ms > 0 ? "a handler is ended after " : "handlers have no timeout",
        worker->timeout_ms > 0 ? timeout : "");
    struct impel_event event;
    event_init(&event, "running", IMPEL_INFO, text);
    event.group = worker->group;
    runtime_tell(runtime, &event);
}

int runtime_run(struct runtime *runtime, struct impel_error *err)
{
    if (runtime->ran) {
        return error_set(err, IMPEL_ERR_INVALID, "a worker runs only once; make another");
    }
    runtime->ran = true;
    tell_limits(runtime);
    enter_thread(runtime);
    runtime_ask_dead_letters(runtime);
    (void)uv_prepare_start(&runtime->prepare, on_prepare);
    (void)uv_timer_start(&runtime->metrics_timer, on_metrics, METRICS_MS, METRICS_MS);
    (void)uv_run(&runtime->loop, UV_RUN_DEFAULT);
    (void)uv_prepare_stop(&runtime->prepare);
    (void)uv_timer_stop(&runtime->metrics_timer);
    (void)uv_timer_stop(&runtime->timer);
    (void)uv_idle_stop(&runtime->idle);
    metrics_rest(runtime->metrics);
    write_metrics(runtime);
    leave_thread(runtime);
    return result_of_run(runtime, err);
}

void runtime_stop(struct runtime *runtime)
{
    atomic_fetch_add(&runtime->stops, 1);
    (void)uv_async_send(&runtime->wake);
}

void runtime_free(struct runtime *runtime)
{
    if (runtime == NULL) {
        return;
    }
    ASSERT(runtime->running == 0);
    if (runtime->store != NULL) {
        store_close(runtime->store);
        while (runtime->completed != NULL) {
            struct request *request = runtime->completed;
            runtime->completed = request->next;
            request_free(request);
        }
    }
    worker_free(runtime->worker);
    if (runtime->handler != NULL) {
        runtime->handler->ops->close(runtime->handler);
    }
    close_loop(runtime);
    if (runtime->handler != NULL) {
        runtime->handler->ops->free(runtime->handler);
    }
    metrics_free(runtime->metrics);
    arena_release(&runtime->arena);
    free(runtime);
}

void runtime_metrics(const struct runtime *runtime, struct impel_metrics *metrics)
{
    metrics_sum(runtime->metrics, metrics);
}

struct impel_bytes runtime_consumer(const struct runtime *runtime)
{
    if (!runtime->slotted || atomic_load(&runtime->named)) {
        return runtime->env.consumer;
    }
    return (struct impel_bytes){0};
}
