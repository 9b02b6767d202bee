/* process.c -- one process that stays: its start, what it reads and writes, its end. */
#include "runtime/answer.h"
#include "runtime/entry_json.h"
#include "runtime/pipe.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    OUT_SIZE_MAX = 2000 * 1000 * 1000, /* the largest entry, escaped, and what is before it */
    OUT_KEPT_MAX = 256 * 1024,         /* a larger buffer is not kept */
    BACKLOG_MAX = 64 * 1024,           /* more is not put behind what the pipe does not take */
    LINE_SIZE_MAX = 1024 * 1024,       /* of an answer */
    READ_SIZE = 64 * 1024,
    READS_MAX = 4,       /* of one process, before others have their turn */
    READS_LAST_MAX = 64, /* of one that is dead: somebody else may go on writing */
    FORWARD_SIZE = 4096, /* of its standard error at once: what a pipe takes or refuses whole */
    LINGER_MS = 5000,    /* for the end of one that was let go */
    PUT_OFF_MAX_MS = 1000,
    PROVEN_MS = 5000,       /* it lives so long without an answer: no longer probing */
    RESTART_FIRST_MS = 100, /* doubled with each failure in a row */
    RESTART_MAX_MS = 30000,
    QUOTED_SIZE = 120, /* of a line that is no answer */
};

static int64_t now_of(const struct process *process)
{
    return (int64_t)uv_now(process->pipe->env->loop);
}

static int fd_of(const struct process *process, enum child_fd what)
{
    return process->child.fds[what];
}

static void close_fd(struct process *process, enum child_fd what)
{
    child_close(&process->pipe->children, &process->child, what);
}

static bool watch(struct process *process, enum child_fd what, uint32_t events)
{
    return child_watch(&process->pipe->children, &process->child, what, events);
}

void process_init(struct pipe *pipe, struct process *process, size_t index)
{
    process->pipe = pipe;
    list_init(&process->flight);
    buf_init(&process->out, OUT_SIZE_MAX);
    buf_init(&process->in, LINE_SIZE_MAX + READ_SIZE);
    child_init(&pipe->children, &process->child, index);
}

void process_release(struct process *process)
{
    buf_release(&process->out);
    buf_release(&process->in);
    tail_release(&process->tail);
}

/* ---- the start ---- */

static bool build_env(struct pipe *pipe)
{
    struct entry_origin origin = {.group = pipe->env->group, .consumer = pipe->env->consumer};
    if (pipe->env->stream_count == 1) {
        origin.stream = pipe->env->streams[0];
    }
    return command_env_constant(&pipe->variables, &origin);
}

static int start(struct process *process)
{
    struct pipe *pipe = process->pipe;
    struct child *child = &process->child;
    struct child_ends ends = {-1, -1, -1};
    int error = tail_begin(&process->tail) && build_env(pipe) ? 0 : ENOMEM;
    error = error == 0 ? child_pipes(child, true, &ends) : error;
    if (error == 0) {
        error =
            child_start(&pipe->children, child, &ends, pipe->variables.full, pipe->variables.small);
    }
    /* No event of its standard input but that nobody reads it any more. */
    if (error == 0 && (!watch(process, CHILD_STDIN, 0) || !watch(process, CHILD_STDOUT, EPOLLIN) ||
                       !watch(process, CHILD_STDERR, EPOLLIN) ||
                       (child->fds[CHILD_DEATH] >= 0 && !watch(process, CHILD_DEATH, EPOLLIN)))) {
        error = errno == ENOSPC ? EAGAIN : errno;
        child_kill(&pipe->children, child);
    }
    if (error != 0) {
        child_unmake(&pipe->children, child, &ends);
    }
    return error;
}

bool process_start(struct process *process)
{
    struct pipe *pipe = process->pipe;
    int error = start(process);
    if (children_passing(error)) {
        process->restart_ms = now_of(process) + CHORE_MS;
        children_short(&pipe->children, error);
        return false;
    }
    if (error != 0) {
        children_give_up(&pipe->children, error);
        return false;
    }
    process->state = PROCESS_UP;
    process->started_ms = now_of(process);
    process->given = process->written = 0;
    process->out_watched = process->tail_held = false;
    process->answered = process->apart = process->distrusted = false;
    process->blameless = process->told_to_end = false;
    process->probing = process->failures > 0;
    process->end_by_ms = 0;
    process->why[0] = '\0';
    buf_clear(&process->out);
    buf_clear(&process->in);
    return true;
}

/* ---- what it reads ---- */

bool process_has_room(const struct process *process)
{
    uint32_t most = process->probing ? 1 : process->pipe->share;
    return process->state == PROCESS_UP && !process->apart && process->flight_count < most &&
           process->out.size - process->written < BACKLOG_MAX;
}

static void drop_written(struct process *process)
{
    struct buf *out = &process->out;
    size_t left = out->size - process->written;
    if (left == 0 && out->capacity > OUT_KEPT_MAX) {
        buf_release(out);
    } else if (left == 0) {
        buf_clear(out);
    } else if (process->written >= out->size / 2) {
        memmove(out->data, out->data + process->written, left);
        out->size = left;
    } else {
        return;
    }
    process->written = 0;
}

bool process_give(struct process *process, struct item *item)
{
    const struct handler_env *env = process->pipe->env;
    const struct delivery *delivery = item->delivery;
    struct entry_origin origin = {
        .stream = env->streams[delivery->stream_index],
        .group = env->group,
        .consumer = env->consumer,
        .attempt = delivery->attempt,
    };
    struct buf *out = &process->out;
    drop_written(process);
    size_t before = out->size;
    entry_json(out, delivery->entry, &origin);
    if (buf_status(out) < 0) {
        out->size = before;
        out->failed = out->over_max = false;
        return false;
    }
    item->from = process->given;
    process->given += out->size - before;
    return true;
}

static bool is_cut_off(const struct process *process)
{
    struct pollfd poller = {.fd = fd_of(process, CHILD_STDIN)};
    return poll(&poller, 1, 0) == 1 && (poller.revents & POLLERR) != 0;
}

/* What it never read, the kernel still has; nobody has seen it, so it counts for nothing. */
static void take_back_unread(struct process *process)
{
    int unread = 0;
    if (fd_of(process, CHILD_STDIN) < 0 || ioctl(fd_of(process, CHILD_STDIN), FIONREAD, &unread)) {
        return;
    }
    uint64_t left = process->out.size - process->written + (uint64_t)(unread > 0 ? unread : 0);
    while (!list_empty(&process->flight)) {
        struct item *item = CONTAINER(process->flight.previous, struct item, link);
        if (item->from < process->given - left) {
            break;
        }
        if (item->cancelled) {
            pipe_release(process->pipe, item);
        } else {
            pipe_take_back(process->pipe, item);
        }
    }
    buf_clear(&process->out);
    process->written = 0;
}

static void end_by(struct process *process, int64_t wait_ms)
{
    process->state = PROCESS_ENDING;
    if (process->end_by_ms == 0) {
        process->end_by_ms = now_of(process) + wait_ms;
    }
    children_chores_due(&process->pipe->children);
}

/* It closed its standard input: it wants no more, and may still answer what it has. */
static void cut_off(struct process *process)
{
    take_back_unread(process);
    close_fd(process, CHILD_STDIN);
    process->state = PROCESS_ENDING;
    if (process->flight_count == 0) {
        end_by(process, LINGER_MS);
    }
    pipe_soon(process->pipe);
}

static void watch_out(struct process *process, bool on)
{
    if (process->out_watched != on) {
        process->out_watched = on;
        child_rewatch(&process->pipe->children, &process->child, CHILD_STDIN, on ? EPOLLOUT : 0);
    }
}

void process_flush(struct process *process)
{
    while (fd_of(process, CHILD_STDIN) >= 0 && process->written < process->out.size) {
        ssize_t n = write(fd_of(process, CHILD_STDIN), process->out.data + process->written,
                          process->out.size - process->written);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            watch_out(process, true);
            return;
        }
        if (n < 0) {
            cut_off(process);
            return;
        }
        process->written += (size_t)n;
    }
    if (fd_of(process, CHILD_STDIN) >= 0) {
        watch_out(process, false);
    }
}

static void on_stdin(struct process *process)
{
    if (is_cut_off(process)) {
        cut_off(process);
        return;
    }
    process_flush(process);
    if (process->pipe->queue_count > 0) {
        pipe_soon(process->pipe);
    }
}

/* ---- what it writes ---- */

static struct impel_bytes cut_error(struct impel_bytes error)
{
    const uint8_t *data = error.data;
    if (error.size > ERROR_SIZE_MAX) {
        error.size = ERROR_SIZE_MAX;
        while (error.size > 0 && (data[error.size] & 0xc0) == 0x80) {
            error.size--;
        }
    }
    return error;
}

/* What it wrote is no answer. Nothing that it says is believed from here on. */
static void nonsense(struct process *process, struct impel_bytes line, const char *what)
{
    char text[512], quoted[QUOTED_SIZE], why[256];
    process->distrusted = true;
    (void)snprintf(why, sizeof why, "it wrote what is no answer: %s", what);
    (void)snprintf(text, sizeof text, "process %zu of the handler wrote what is no answer: %s: %s",
                   process->child.index + 1, what, bytes_quote(line, quoted, sizeof quoted));
    pipe_tell(process->pipe, "process-nonsense", IMPEL_ERROR, text);
    process_end(process, why, false);
}

static bool is_blank(struct impel_bytes line)
{
    const char *data = line.data;
    for (size_t i = 0; i < line.size; i++) {
        if (strchr(" \t\r", data[i]) == NULL || data[i] == '\0') {
            return false;
        }
    }
    return true;
}

static void take_answer(struct process *process, struct impel_bytes line)
{
    struct pipe *pipe = process->pipe;
    struct answer answer;
    struct impel_error error;
    arena_reset(&pipe->arena, READ_SIZE);
    if (is_blank(line)) {
        return;
    }
    if (answer_parse(line, &pipe->arena, &answer, &error) < 0) {
        nonsense(process, line, error.text);
        return;
    }
    struct item *item = pipe_find(pipe, process, answer.id);
    if (item == NULL) {
        nonsense(process, line, "no entry of this ID is in its hands (any more)");
        return;
    }
    struct handler_result result = {
        .outcome = answer.outcome, .delay_ms = answer.delay_ms, .error = cut_error(answer.error)};
    process->answered = true;
    process->probing = false;
    process->failures = 0;
    pipe->broken_ms = 0;
    pipe_finish(pipe, item, &result);
}

/* The lines that are whole. */
static void take_answers(struct process *process)
{
    struct buf *in = &process->in;
    size_t begin = 0;
    while (!process->distrusted) {
        const uint8_t *feed =
            begin < in->size ? memchr(in->data + begin, '\n', in->size - begin) : NULL;
        size_t size = (feed != NULL ? (size_t)(feed - in->data) : in->size) - begin;
        struct impel_bytes line = {in->data + begin, size};
        if (size > LINE_SIZE_MAX) {
            nonsense(process, line, "a line of more than 1 MiB");
        } else if (feed == NULL) {
            break;
        } else {
            take_answer(process, line);
            begin += size + 1;
        }
    }
    if (process->distrusted) {
        begin = in->size;
    }
    if (begin > 0) {
        memmove(in->data, in->data + begin, in->size - begin);
        in->size -= begin;
    }
}

/* False once there is nothing more to read for now. */
static bool read_some(struct process *process)
{
    struct buf *in = &process->in;
    void *room = buf_reserve(in, READ_SIZE);
    if (room == NULL) {
        in->failed = in->over_max = false;
        nonsense(process, (struct impel_bytes){0}, "no memory for its answers");
        return false;
    }
    ssize_t n = read(fd_of(process, CHILD_STDOUT), room, READ_SIZE);
    if (n < 0) {
        return errno == EINTR;
    }
    if (n == 0) {
        close_fd(process, CHILD_STDOUT);
        return false;
    }
    in->size += (size_t)n;
    take_answers(process);
    return true;
}

/* True if its standard output is open still. */
static bool read_answers(struct process *process, int reads)
{
    while (reads-- > 0 && fd_of(process, CHILD_STDOUT) >= 0 && read_some(process)) {
    }
    return fd_of(process, CHILD_STDOUT) >= 0;
}

static void on_stdout(struct process *process)
{
    bool open = read_answers(process, READS_MAX);
    /* Without it nothing can be said that it does. */
    if (!open || (process->state == PROCESS_ENDING && process->flight_count == 0)) {
        end_by(process, LINGER_MS);
    }
    if (process->pipe->queue_count > 0) {
        pipe_soon(process->pipe);
    }
}

/* ---- what it says ---- */

static bool ours_takes(void)
{
    struct pollfd poller = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&poller, 1, 0) != 0; /* an error is found out by the write */
}

static void hold_back(struct process *process)
{
    if (!process->tail_held) {
        process->tail_held = true;
        child_unwatch(&process->pipe->children, &process->child, CHILD_STDERR);
        children_chores_due(&process->pipe->children);
    }
}

/* Passes on what it writes to its standard error, and keeps the end of it. Ours may be a pipe that
 * nobody reads for now: then it has to wait, and not the loop; a dead one's rest is only kept. */
static void pass_on(struct process *process, int reads)
{
    char data[FORWARD_SIZE];
    while (reads-- > 0 && fd_of(process, CHILD_STDERR) >= 0) {
        bool takes = ours_takes();
        if (!takes && process->child.pid > 0) {
            hold_back(process);
            return;
        }
        ssize_t n = read(fd_of(process, CHILD_STDERR), data, sizeof data);
        if (n > 0) {
            tail_keep(&process->tail, data, (size_t)n);
            if (takes) {
                (void)!write(STDERR_FILENO, data, (size_t)n);
            }
        } else if (n == 0) {
            close_fd(process, CHILD_STDERR);
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* ---- the end ---- */

void process_end(struct process *process, const char *why, bool blameless)
{
    if (process->told_to_end) {
        return;
    }
    process->told_to_end = true;
    process->state = PROCESS_ENDING;
    process->blameless = blameless;
    (void)snprintf(process->why, sizeof process->why, "%s", why);
    if (process->child.pid > 0) { /* else it is dead, and this was among its last words */
        child_term(&process->pipe->children, &process->child);
    }
}

void process_let_go(struct process *process)
{
    if (process->child.pid > 0) {
        close_fd(process, CHILD_STDIN);
        end_by(process, LINGER_MS);
    }
}

/* "killed by signal 11 (SIGSEGV)", and what it wrote last, in `text`. */
static struct impel_bytes words_of(const struct process *process, const char *ended, char *text)
{
    struct impel_bytes said = tail_text(&process->tail);
    size_t size = (size_t)snprintf(text, ERROR_SIZE_MAX, "the handler's process ended: %s%s%s%s%s",
                                   process->why, process->why[0] != '\0' ? " (" : "", ended,
                                   process->why[0] != '\0' ? ")" : "", said.size > 0 ? "; " : "");
    size_t room = ERROR_SIZE_MAX - size;
    const char *data = said.data;
    if (said.size > room) {
        data += said.size - room;
        said.size = room;
        while (said.size > 0 && ((uint8_t)*data & 0xc0) == 0x80) {
            data++;
            said.size--;
        }
    }
    memcpy(text + size, data, said.size);
    return (struct impel_bytes){text, size + said.size};
}

/* What it had read and not answered. Returns how many count as an attempt. */
static size_t settle(struct process *process, struct impel_bytes words)
{
    size_t counted = 0;
    while (!list_empty(&process->flight)) {
        struct item *item = CONTAINER(process->flight.next, struct item, link);
        struct handler_result result = {.outcome = OUTCOME_CRASHED, .delay_ms = -1, .error = words};
        if (item->cancelled || process->blameless) {
            pipe_release(process->pipe, item); /* of what is lost or timed out no matter */
        } else {
            counted++;
            pipe_finish(process->pipe, item, &result);
        }
    }
    return counted;
}

/* When the next may be started, and with how much trust. */
static void plan_restart(struct process *process, bool clean)
{
    int64_t wait_ms = 0;
    if (clean || (process->blameless && process->failures == 0)) {
        process->failures = clean ? 0 : 1;
    } else {
        bool news = process->pipe->broken_ms == 0 && !process->answered;
        process->pipe->broken_ms = news ? now_of(process) : process->pipe->broken_ms;
        process->failures += process->failures < 16;
        wait_ms = (int64_t)RESTART_FIRST_MS << (process->failures - 1);
        wait_ms = wait_ms < RESTART_MAX_MS ? wait_ms : RESTART_MAX_MS;
    }
    process->restart_ms = now_of(process) + wait_ms;
}

static void tell_end(struct process *process, const char *ended, size_t counted, bool clean)
{
    char text[640];
    int64_t wait_ms = process->restart_ms - now_of(process);
    int size = snprintf(text, sizeof text, "process %zu of the handler ended: %s%s%s%s",
                        process->child.index + 1, process->why, process->why[0] != '\0' ? " (" : "",
                        ended, process->why[0] != '\0' ? ")" : "");
    if (counted > 0) {
        size += snprintf(text + size, sizeof text - (size_t)size,
                         "; %zu that it had read failed with it", counted);
    }
    if (!process->pipe->closing && !process->pipe->stopping && wait_ms > 0) {
        (void)snprintf(text + size, sizeof text - (size_t)size, "; the next one starts in %lld ms",
                       (long long)wait_ms);
    }
    pipe_tell(process->pipe, "process-ended", clean ? IMPEL_DEBUG : IMPEL_WARNING, text);
}

static void on_death(struct process *process)
{
    siginfo_t info;
    char ended[64], text[ERROR_SIZE_MAX];
    if (!child_reap(&process->pipe->children, &process->child, true, &info)) {
        return;
    }
    (void)read_answers(process, READS_LAST_MAX);
    pass_on(process, READS_LAST_MAX);
    take_back_unread(process);
    for (int i = 0; i < CHILD_FDS; i++) {
        close_fd(process, (enum child_fd)i);
    }
    process->state = PROCESS_DOWN;
    child_end_text(&info, ended, sizeof ended);
    bool clean = info.si_code == CLD_EXITED && info.si_status == 0 && !process->told_to_end &&
                 process->flight_count == 0 && (process->answered || process->pipe->closing);
    plan_restart(process, clean);
    size_t counted = settle(process, words_of(process, ended, text));
    tell_end(process, ended, counted, clean);
    pipe_ended(process->pipe, process);
}

/* ---- events ---- */

void process_ready(struct process *process, enum child_fd what)
{
    switch (what) {
    case CHILD_STDIN:
        on_stdin(process);
        break;
    case CHILD_STDOUT:
        on_stdout(process);
        break;
    case CHILD_STDERR:
        pass_on(process, 1);
        break;
    default:
        on_death(process);
        break;
    }
}

static bool some_lost_for_long(const struct process *process, int64_t now_ms)
{
    const struct link *at = process->flight.next;
    for (; at != &process->flight; at = at->next) {
        const struct item *item = CONTAINER(at, const struct item, link);
        if (item->lost_until_ms > 0 && now_ms >= item->lost_until_ms) {
            return true;
        }
    }
    return false;
}

/* A process may take its entries one after the other, so the timeout runs for the one that it has
 * had longest. True while there are others. */
static bool put_off_timeouts(struct process *process, int64_t now_ms)
{
    const struct handler_env *env = process->pipe->env;
    int64_t interval_ms =
        env->timeout_ms / 4 < PUT_OFF_MAX_MS ? env->timeout_ms / 4 : PUT_OFF_MAX_MS;
    if (env->timeout_ms <= 0 || process->flight_count < 2) {
        return false;
    }
    if (now_ms - process->timed_ms >= interval_ms) {
        process->timed_ms = now_ms;
        const struct link *at = process->flight.next->next;
        for (; at != &process->flight; at = at->next) {
            env->begun(env->user, CONTAINER(at, struct item, link)->delivery);
        }
    }
    return true;
}

bool process_chores(struct process *process, int64_t now_ms)
{
    if (process->state == PROCESS_DOWN) {
        return false;
    }
    bool more = put_off_timeouts(process, now_ms);
    if (process->tail_held && ours_takes()) {
        process->tail_held = false;
        (void)watch(process, CHILD_STDERR, EPOLLIN);
    }
    if (process->probing && now_ms - process->started_ms >= PROVEN_MS) {
        process->probing = false;
        pipe_soon(process->pipe);
    }
    if (process->cancelled_count > 0 && some_lost_for_long(process, now_ms)) {
        process_end(process, "it is not done with an entry that is another worker's by now", true);
    }
    if (process->end_by_ms > 0 && now_ms >= process->end_by_ms) {
        process_end(process, "it neither takes nor answers entries any more, and does not end",
                    false);
    }
    return more || process->tail_held || process->probing || process->cancelled_count > 0 ||
           (process->end_by_ms > 0 && !process->told_to_end);
}
