/* drill_scene.c -- the stream, the workers and the accidents of the fire drill.
 *
 * The workers are `impel run` as anybody would start it, with a shell command as their handler; the
 * drill itself only looks at the store from outside. */
#include "base/value.h"
#include "cli/console.h"
#include "cli/drill.h"
#include "cli/folder.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP "drill"

/* The poison entry kills the process that handles it; all others take a moment, and leave a line. */
static const char handler[] = "if [ -n \"$IMPEL_FIELD_poison\" ]; then kill -SEGV $$; fi; "
                              "sleep 0.2; echo \"$IMPEL_FIELD_n\" >> \"$1\"";

/* ---- opening and closing ---- */

static int create_group(const struct drill *drill, struct impel_error *err)
{
    struct request *create =
        session_request(REQUEST_GROUP_CREATE, bytes_of(drill->stream), bytes_of(GROUP));
    int rc = session_ask(drill->store, create, err);

    request_free(create);
    return rc;
}

int drill_open(struct drill *drill, const struct options *options, struct impel_error *err)
{
    struct options of_store = *options;
    const char *env = getenv("IMPEL_STORE");
    int rc;

    *drill = (struct drill){.options = options, .begun_ms = clock_now_ms()};
    drill->own_store = !option_given(options, "store") && (env == NULL || *env == '\0');
    rc = folder_make(&drill->folder, "impel-drill", err);
    if (rc < 0) {
        return rc;
    }
    if (drill->own_store) {
        snprintf(drill->store_url, sizeof(drill->store_url), "lmdb:%s/store", drill->folder.path);
    } else {
        int size = snprintf(drill->store_url, sizeof(drill->store_url), "%s", options->store);
        if (size >= (int)sizeof(drill->store_url)) {
            return error_set(err, IMPEL_ERR_INVALID, "the store's URL is too long for a drill");
        }
    }
    snprintf(drill->stream, sizeof(drill->stream), "impel-drill-%d", (int)getpid());
    snprintf(drill->dead_letter, sizeof(drill->dead_letter), "%s:dead", drill->stream);
    snprintf(drill->done_path, sizeof(drill->done_path), "%s/done", drill->folder.path);
    drill->entries = options->entries > 0 ? (uint64_t)options->entries : 60;
    drill->dead_after_ms = option_given(options, "dead-after") ? options->dead_after_ms : 1000;
    drill->worker_count = (size_t)options->workers;
    drill->kill_count = (size_t)options->kills;
    of_store.store = drill->store_url;
    rc = session_open(&of_store, &drill->store, err);
    return rc < 0 ? rc : create_group(drill, err);
}

static void delete_streams(struct drill *drill)
{
    const struct impel_bytes args[] = {bytes_of("DEL"), bytes_of(drill->stream),
                                       bytes_of(drill->dead_letter)};
    struct request *request = NULL;

    if (session_call(drill->store, args, ARRAY_SIZE(args), &request, NULL) >= 0) {
        request_free(request);
    }
}

void drill_close(struct drill *drill)
{
    for (size_t i = 0; i < drill->worker_count; i++) {
        if (drill->workers[i].pid > 0) {
            kill(drill->workers[i].pid, SIGKILL);
            waitpid(drill->workers[i].pid, NULL, 0);
        }
    }
    if (drill->store != NULL && !drill->options->keep_scene) {
        delete_streams(drill);
    }
    store_close(drill->store);
    if (drill->options->keep_scene || drill->log_told) {
        folder_keep(&drill->folder);
    } else {
        folder_remove(&drill->folder);
    }
}

/* ---- entries ---- */

static int add_entry(struct drill *drill, uint64_t number, bool poison, struct impel_error *err)
{
    struct request *add =
        session_request(REQUEST_ADD, bytes_of(drill->stream), (struct impel_bytes){0});
    char text[24];
    struct impel_field fields[] = {
        {bytes_of("n"), {text, 0}},
        {bytes_of("poison"), bytes_of("yes")},
    };
    int rc;

    fields[0].value.size = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    if (add != NULL) {
        add->add.fields = fields;
        add->add.field_count = poison ? 2 : 1;
        add->add.length_max = -1;
    }
    rc = session_ask(drill->store, add, err);
    ASSERT(rc < 0 || add != NULL);
    if (rc >= 0 && poison) {
        drill->poison = add->add.id;
    }
    request_free(add);
    return rc;
}

int drill_add_entries(struct drill *drill, struct impel_error *err)
{
    for (uint64_t i = 1; i <= drill->entries; i++) {
        /* Early, so that its attempts are over when the others' work is. */
        int rc = add_entry(drill, i, i == 3, err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

/* ---- workers ---- */

/* The workers get the password by their environment, since a command line is for all to see. */
static const char *worker_store(const struct drill *drill)
{
    return drill->own_store ? drill->store_url : drill->options->store_given;
}

static void exec_worker(const struct drill *drill, const struct drill_worker *worker, pid_t parent)
{
    char dead_after[DURATION_TEXT_SIZE], backoff[DURATION_TEXT_SIZE];
    char deliveries[8], concurrency[8], log_path[160];
    int log;

    /* The drill's end, of whatever kind, is the workers' end. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1); /* it was over before that took effect */
    }
    /* One wait of three times dead-after for all retries: long enough that a sweep finds entries
     * which are abandoned, but not due yet. */
    duration_format(drill->dead_after_ms, dead_after);
    duration_format(drill->dead_after_ms * 3, backoff);
    snprintf(deliveries, sizeof(deliveries), "%d", DRILL_DELIVERIES_MAX);
    snprintf(concurrency, sizeof(concurrency), "%d", DRILL_CONCURRENCY);
    snprintf(log_path, sizeof(log_path), "%s/%s.log", drill->folder.path, worker->name);
    log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (drill->options->password != NULL) {
        setenv("IMPEL_PASSWORD", drill->options->password, 1);
    }
    if (log >= 0) {
        dup2(log, STDERR_FILENO);
        dup2(log, STDOUT_FILENO);
    }
    execl("/proc/self/exe", "impel", "run", "--store", worker_store(drill), "--stream",
          drill->stream, "--group", GROUP, "--consumer", worker->name, "--concurrency", concurrency,
          "--prefetch", "1", "--dead-after", dead_after, "--backoff", backoff, "--max-deliveries",
          deliveries, "--metrics-file", worker->metrics_path, "--", "sh", "-c", handler, "handler",
          drill->done_path, (char *)NULL);
    _exit(127);
}

static int start_worker(struct drill *drill, size_t index, struct impel_error *err)
{
    struct drill_worker *worker = &drill->workers[index];
    pid_t parent = getpid();

    snprintf(worker->name, sizeof(worker->name), "drill-%zu", index + 1);
    snprintf(worker->metrics_path, sizeof(worker->metrics_path), "%s/%s.prom", drill->folder.path,
             worker->name);
    fflush(NULL);
    worker->pid = fork();
    if (worker->pid < 0) {
        worker->pid = 0;
        return error_set(err, IMPEL_ERR_IO, "cannot start a worker: %s", strerror(errno));
    }
    if (worker->pid == 0) {
        exec_worker(drill, worker, parent);
    }
    return IMPEL_OK;
}

int drill_start_workers(struct drill *drill, struct impel_error *err)
{
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < drill->worker_count; i++) {
        rc = start_worker(drill, i, err);
    }
    return rc;
}

int drill_check_workers(struct drill *drill, struct impel_error *err)
{
    for (size_t i = 0; i < drill->worker_count; i++) {
        struct drill_worker *worker = &drill->workers[i];
        if (worker->pid > 0 && waitpid(worker->pid, NULL, WNOHANG) == worker->pid) {
            worker->pid = 0;
            drill->log_told = true;
            return error_set(err, IMPEL_ERR_IO, "worker %s ended by itself; its log is %s/%s.log",
                             worker->name, drill->folder.path, worker->name);
        }
    }
    return IMPEL_OK;
}

bool drill_stop_workers(struct drill *drill)
{
    bool clean = true;

    for (size_t i = 0; i < drill->worker_count; i++) {
        if (drill->workers[i].pid > 0) {
            kill(drill->workers[i].pid, SIGTERM);
        }
    }
    for (size_t i = 0; i < drill->worker_count; i++) {
        struct drill_worker *worker = &drill->workers[i];
        int status = 0;
        if (worker->pid > 0) {
            waitpid(worker->pid, &status, 0);
            worker->pid = 0;
            clean = clean && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
    }
    return clean;
}

/* ---- looking and hurting ---- */

static void take_owner(struct drill *drill, const struct look_owner *owner)
{
    for (size_t i = 0; i < drill->worker_count; i++) {
        struct drill_worker *worker = &drill->workers[i];
        if (bytes_equal(owner->name, bytes_of(worker->name))) {
            worker->held = owner->pending;
            drill->held_by_dead += worker->killed ? owner->pending : 0;
        }
    }
}

int drill_look(struct drill *drill, struct impel_error *err)
{
    struct request *look = session_request(REQUEST_LOOK, bytes_of(drill->stream), bytes_of(GROUP));
    int rc;

    if (look != NULL) {
        look->dead_after_ms = drill->dead_after_ms;
    }
    rc = session_ask(drill->store, look, err);
    ASSERT(rc < 0 || look != NULL);
    if (rc >= 0) {
        drill->held_by_dead = 0;
        for (size_t i = 0; i < drill->worker_count; i++) {
            drill->workers[i].held = 0;
        }
        for (size_t i = 0; i < look->look.owner_count; i++) {
            take_owner(drill, &look->look.owners[i]);
        }
        drill->pending = look->look.pending;
        drill->undelivered = look->look.undelivered;
        drill->cursor.id = look->look.cursor.id;
        drill->cursor_moves += !id_is_zero(drill->cursor.id);
    }
    request_free(look);
    return rc;
}

int drill_kill(struct drill *drill, struct drill_worker *worker, struct impel_error *err)
{
    int rc;

    kill(worker->pid, SIGKILL);
    waitpid(worker->pid, NULL, 0);
    worker->pid = 0;
    worker->killed = true;
    rc = drill_look(drill, err);
    worker->held_when_dead = worker->held;
    return rc < 0 ? rc : worker->held > 0 ? IMPEL_OK : IMPEL_ERR_BUSY;
}

/* Deletes one entry from the stream by XDEL: 1 = it was there. */
static int delete_entry(const struct drill *drill, struct impel_id id, struct impel_error *err)
{
    char text[ID_TEXT_SIZE];
    const struct impel_bytes args[] = {bytes_of("XDEL"), bytes_of(drill->stream),
                                       bytes_of(id_format(id, text))};
    struct request *request = NULL;
    int rc = session_call(drill->store, args, ARRAY_SIZE(args), &request, err);

    if (rc >= 0) {
        rc = request->call.reply->integer > 0;
        request_free(request);
    }
    return rc;
}

int drill_trim(struct drill *drill, const struct drill_worker *worker, struct impel_error *err)
{
    struct request *page =
        session_request(REQUEST_PENDING, bytes_of(drill->stream), bytes_of(GROUP));
    int rc;

    if (page != NULL) {
        page->pending.end = ID_MAX;
        page->pending.count = 8;
        page->pending.by_owner = true;
        page->pending.owner = bytes_of(worker->name);
    }
    rc = session_ask(drill->store, page, err);
    if (rc >= 0) {
        rc = IMPEL_ERR_BUSY;
    }
    for (size_t i = 0; page != NULL && rc == IMPEL_ERR_BUSY && i < page->pending.row_count; i++) {
        struct impel_id id = page->pending.rows[i].id;
        if (id_equal(id, drill->poison)) {
            continue;
        }
        int deleted = delete_entry(drill, id, err);
        drill->trimmed = deleted > 0 ? id : drill->trimmed;
        rc = deleted < 0 ? deleted : deleted > 0 ? IMPEL_OK : IMPEL_ERR_BUSY;
    }
    request_free(page);
    return rc;
}
