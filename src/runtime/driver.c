/* driver.c -- one turn of the loop: tick the machine, carry out its actions, give the store its turn,
 * hand back what it completed.
 *
 * Everything that happens (a timer, a wake of the store, a handler's end) only notes itself; the
 * work is done in runtime_pump(), once per turn of the loop. So all requests of a turn share one
 * transaction, and an inline handler costs no system call at all. Actions are bounded by number and
 * time, so that beats go out while a million entries pass. */
#include "observe/events.h"
#include "runtime/state.h"

#include <time.h>

int64_t runtime_now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- what is told ---- */

void runtime_tell(void *user, const struct impel_event *event)
{
    struct runtime *runtime = user;
    if (runtime->options.event != NULL && event->level >= runtime->options.event_level) {
        runtime->options.event(event, runtime->options.event_user);
    }
}

static void remember_failure(struct runtime *runtime, int status, const char *text)
{
    char name[SLOT_NAME_SIZE];
    bytes_quote(runtime->env.consumer, name, sizeof name);
    runtime->failed = true;
    (void)error_set(&runtime->failure, status, "%s (consumer %s)", text, name);
}

static void remember_refusal(struct runtime *runtime, const struct worker_event *event)
{
    char stream[SLOT_NAME_SIZE], group[SLOT_NAME_SIZE];
    runtime->failed = true;
    runtime->failure = runtime->refused;
    if (runtime->failure.status >= 0) {
        (void)error_set(&runtime->failure, IMPEL_ERR_IO, "%s",
                        event->text != NULL ? event->text : "the store refused a request");
    } else if (runtime->failure.status == IMPEL_ERR_NO_GROUP) {
        (void)error_set(
            &runtime->failure, IMPEL_ERR_NO_GROUP,
            "the stream '%s' has no group '%s', and it may not be created (no-create)",
            bytes_quote(runtime->env.streams[event->stream_index], stream, sizeof stream),
            bytes_quote(runtime->env.group, group, sizeof group));
    }
}

/* Should the machine end with exit code 1, this is why. */
static void note_cause(struct runtime *runtime, const struct worker_event *event)
{
    switch (event->kind) {
    case EVENT_REPLACED:
        remember_failure(runtime, IMPEL_ERR_REPLACED,
                         "another worker runs under the name of this one");
        break;
    case EVENT_NAME_TAKEN:
        runtime->name_taken = true;
        remember_failure(runtime, IMPEL_ERR_BUSY,
                         "another worker is alive under this name; give each worker its own");
        break;
    case EVENT_STORE_ERROR:
        remember_refusal(runtime, event);
        break;
    case EVENT_STARTED:
    case EVENT_STORE_BACK:
        runtime->failed = false;
        break;
    default:
        break;
    }
}

static void on_event(struct runtime *runtime, const struct worker_event *event)
{
    metrics_note(runtime->metrics, event);
    note_cause(runtime, event);
    if (event->kind == EVENT_NAME_TAKEN && runtime->slotted) {
        return; /* no news: another slot is tried */
    }
    if (event->kind == EVENT_STARTED) {
        atomic_store(&runtime->named, true);
    }
    if (runtime->options.event == NULL || event_level(event->kind) < runtime->options.event_level) {
        return;
    }
    struct event_context context = {
        .streams = runtime->env.streams,
        .dead_letters = runtime->options.worker.dead_letters,
        .group = runtime->env.group,
        .consumer = runtime->env.consumer,
    };
    struct impel_event told;
    event_from_worker(event, &context, &told);
    runtime->options.event(&told, runtime->options.event_user);
}

/* ---- requests ---- */

void runtime_completed(struct request *request)
{
    struct runtime *runtime = request->owner;
    request->next = NULL;
    *runtime->completed_tail = request;
    runtime->completed_tail = &request->next;
}

static void submit(struct runtime *runtime, struct request *request)
{
    request->owner = runtime;
    request->done = runtime_completed;
    runtime->outstanding++;
    store_submit(runtime->store, request);
}

void runtime_ask_dead_letters(struct runtime *runtime)
{
    const struct worker_options *worker = &runtime->options.worker;
    for (size_t i = 0; i < worker->stream_count; i++) {
        if (i > 0 && bytes_equal(worker->dead_letters[i], worker->dead_letters[i - 1])) {
            continue;
        }
        struct request *request = request_new(REQUEST_INFO);
        if (request == NULL) {
            return; /* the machine will say so */
        }
        request->stream = worker->dead_letters[i]; /* in the runtime's arena: it outlives this */
        runtime->asking++;
        submit(runtime, request);
    }
}

/* Every park would fail, and the entries stay pending for ever. Other failures are the machine's to
 * meet and to try again. */
static void dead_letter_known(struct runtime *runtime, const struct request *request)
{
    char name[SLOT_NAME_SIZE];
    bool no_stream = request->status == IMPEL_ERR_WRONG_TYPE;
    if ((!no_stream && request->status != IMPEL_ERR_AUTH) || runtime->stopped) {
        return;
    }
    runtime->failed = true;
    runtime->failure = request->error; /* of a missing right: it names the stream */
    if (no_stream) {
        (void)error_set(&runtime->failure, IMPEL_ERR_INVALID,
                        "the dead-letter stream '%s' is no stream: the key holds something else",
                        bytes_quote(request->stream, name, sizeof name));
    }
    runtime->exit_code = 1;
    runtime->name_taken = false;
    if (runtime->running == 0) {
        runtime->stopped = true; /* it was asked first: the machine has not entered yet */
    } else {
        atomic_fetch_add(&runtime->stops, 1);
    }
}

/* Gives the machine what the store completed. What comes back after its end is only freed. */
static void hand_back(struct runtime *runtime)
{
    struct request *list = runtime->completed;
    runtime->completed = NULL;
    runtime->completed_tail = &runtime->completed;
    int64_t now_ms = list != NULL ? runtime_now_ms() : 0;
    while (list != NULL) {
        struct request *request = list;
        list = request->next;
        runtime->outstanding--;
        if (request->kind == REQUEST_INFO) { /* ours: the machine asks for none */
            runtime->asking--;
            dead_letter_known(runtime, request);
            request_free(request);
            continue;
        }
        if (request->status < 0) {
            runtime->refused = request->error;
            runtime->refused.status = request->status;
        }
        if (runtime->stopped) {
            request_free(request);
        } else {
            worker_done(runtime->worker, request, now_ms);
        }
    }
}

/* ---- handlers ---- */

/* What the machine has to know before it starts anything more. */
static void take_news(struct runtime *runtime, int64_t now_ms)
{
    unsigned asked = atomic_load(&runtime->stops);
    while (runtime->stops_seen < asked) {
        runtime->stops_seen++;
        worker_stop(runtime->worker, now_ms);
        if (runtime->handler->ops->stopping != NULL) {
            runtime->handler->ops->stopping(runtime->handler);
        }
    }
    if (runtime->cut) {
        runtime->cut = false;
        worker_disconnected(runtime->worker, now_ms);
    }
}

void runtime_finished(void *user, struct delivery *delivery, const struct handler_result *result)
{
    struct runtime *runtime = user;
    ASSERT(runtime->running > 0);
    runtime->running--;
    if (!runtime->stopped) {
        int64_t now_ms = runtime_now_ms();
        take_news(runtime, now_ms); /* first: what is asked to stop starts nothing in this place */
        worker_outcome(runtime->worker, delivery, result->outcome, result->delay_ms, result->error,
                       now_ms);
    }
}

void runtime_begun(void *user, struct delivery *delivery)
{
    struct runtime *runtime = user;
    if (!runtime->stopped) {
        worker_begun(runtime->worker, delivery, runtime_now_ms());
    }
}

bool runtime_may_begin(void *user, struct delivery *delivery)
{
    struct runtime *runtime = user;
    return runtime->stopped || worker_may_begin(runtime->worker, delivery, runtime_now_ms());
}

void runtime_failed(void *user, const struct impel_error *error)
{
    struct runtime *runtime = user;
    if (!runtime->failed || runtime->failure.status != error->status) {
        runtime->failed = true;
        runtime->failure = *error;
        struct impel_event event;
        event_init(&event, "handler-failed", IMPEL_ERROR, error->text);
        event.group = runtime->env.group;
        event.consumer = runtime->env.consumer;
        runtime_tell(runtime, &event);
    }
    runtime->exit_code = 1;
    atomic_fetch_add(&runtime->stops, 1);
}

/* The store was to be tried only for so long. What is held cannot be released; others recover it. */
void runtime_unreachable(struct runtime *runtime, const char *text)
{
    runtime->failed = true;
    (void)error_set(&runtime->failure, IMPEL_ERR_DISCONNECTED, "%s", text);
    runtime->exit_code = 1;
    runtime->unreachable = true;
    atomic_fetch_add(&runtime->stops, 2); /* at once: there is no one to finish it for */
}

/* ---- actions ---- */

static void carry_out(struct runtime *runtime, const struct action *action)
{
    switch (action->kind) {
    case ACTION_SUBMIT:
        submit(runtime, action->request);
        break;
    case ACTION_UNBLOCK:
        store_cancel(runtime->store, action->request);
        break;
    case ACTION_START:
        runtime->running++;
        runtime->handler->ops->start(runtime->handler, action->delivery);
        break;
    case ACTION_CANCEL:
        runtime->handler->ops->cancel(runtime->handler, action->delivery, action->cancel);
        break;
    case ACTION_EVENT:
        on_event(runtime, &action->event);
        break;
    case ACTION_STOPPED:
        runtime->stopped = true;
        runtime->gave_up = action->gave_up;
        if (action->exit_code != 0) {
            runtime->exit_code = action->exit_code;
        }
        break;
    }
}

/* Carries out what the machine wants done, within bounds; returns how much that was. */
static int act(struct runtime *runtime, int64_t now_ms)
{
    bool timed = runtime->options.handler.kind == HANDLER_INLINE;
    struct action action;
    int count = 0;
    while (count < ACTIONS_MAX && !runtime->stopped && worker_next(runtime->worker, &action)) {
        count++;
        carry_out(runtime, &action);
        if (timed && action.kind == ACTION_START && runtime_now_ms() - now_ms > ACTIONS_MS_MAX) {
            break;
        }
    }
    return count;
}

/* ---- the turn ---- */

/* One round: true if anything happened, so that another may find more to do. `wait_ms` gets the next
 * deadline; it holds only if nothing did. */
static bool round_once(struct runtime *runtime, int64_t *wait_ms)
{
    int64_t now_ms = runtime_now_ms();
    *wait_ms = -1;
    int actions = 0;
    if (!runtime->stopped && (runtime->asking == 0 || atomic_load(&runtime->stops) > 0)) {
        take_news(runtime, now_ms);
        *wait_ms = worker_tick(runtime->worker, now_ms);
        actions = act(runtime, now_ms);
    }
    int64_t store_ms = store_turn(runtime->store, runtime_now_ms());
    bool completed = runtime->completed != NULL;
    hand_back(runtime);
    if (store_ms >= 0 && (*wait_ms < 0 || store_ms < *wait_ms)) {
        *wait_ms = store_ms;
    }
    return actions > 0 || completed;
}

/* The machine has stopped: on to another slot if this one was taken, else to the end. */
static bool next_slot(struct runtime *runtime)
{
    if (!runtime->name_taken || !runtime->slotted || runtime->exit_code == 0) {
        return false;
    }
    if (atomic_load(&runtime->stops) > 0) {
        runtime->failed = false; /* stopped while it looked for a name: it never held anything */
        runtime->exit_code = 0;
        return false;
    }
    if (runtime->outstanding > 0) {
        return true; /* the old machine's; they are not for the new one */
    }
    runtime->stopped = false;
    runtime->failed = false;
    runtime->name_taken = false;
    runtime->exit_code = 0;
    if (runtime_make_worker(runtime, &runtime->failure) < 0) {
        runtime->stopped = true;
        runtime->failed = true;
        runtime->exit_code = 1;
        return false;
    }
    return true;
}

static void on_idle(uv_idle_t *handle)
{
    (void)handle; /* keeps the loop from sleeping; the pump is in the prepare phase */
}

static void on_timer(uv_timer_t *handle)
{
    (void)handle; /* the same: the loop woke up, that is all */
}

static void arm(struct runtime *runtime, int64_t wait_ms)
{
    if (wait_ms == 0) {
        (void)uv_idle_start(&runtime->idle, on_idle);
        return;
    }
    (void)uv_idle_stop(&runtime->idle);
    if (wait_ms < 0) {
        (void)uv_timer_stop(&runtime->timer);
        return;
    }
    uv_update_time(&runtime->loop);
    (void)uv_timer_start(&runtime->timer, on_timer, (uint64_t)wait_ms, 0);
}

void runtime_pump(struct runtime *runtime)
{
    int64_t wait_ms = 0;
    bool busy = true;
    for (int i = 0; i < ROUNDS_MAX && busy; i++) {
        busy = round_once(runtime, &wait_ms);
    }
    runtime->stopped = runtime->stopped || (runtime->unreachable && runtime->running == 0);
    if (runtime->stopped && runtime->running == 0) {
        if (!next_slot(runtime)) {
            uv_stop(&runtime->loop);
            return;
        }
        busy = busy || !runtime->stopped;
    }
    arm(runtime, busy ? 0 : wait_ms);
}
