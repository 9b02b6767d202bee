/* command_sweep.c -- impel sweep: one pass, or a daemon, over all groups that are meant.
 *
 * One thread, one request at a time: a sweep is no hurry. The groups take turns, a step each; between
 * them go the steps that look for new groups, and those that trim. */
#include "cli/command.h"
#include "cli/console.h"
#include "cli/sweep_discovery.h"
#include "cli/sweep_preview.h"
#include "cli/sweep_report.h"
#include "cli/sweep_trim.h"
#include "cli/sweep_watch.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

enum {
    WAIT_MS = 500,     /* before a store that refuses is asked again */
    METRICS_MS = 1000, /* and one more for each group, of which each is 2 KB in the file */
    REST_MAX_MS = 60000,
};

struct sweeper {
    struct store *store;
    struct sweep_choices choices;
    struct sweep_list list;
    struct sweep_discovery discovery;
    struct logging logging;
    struct sweep_trim trim;
    size_t trim_at; /* how far the list has been gone through to trim */
    const char *metrics_file;
    int64_t metrics_ms;  /* when it was written last */
    bool metrics_failed; /* and that was said */
    struct sweep_pace pace;
    bool answered;               /* by a store, be it with an error */
    struct impel_error no_store; /* what answers is none, or nothing does: why it ends */
    int64_t give_up_ms;          /* --connect-timeout; 0 = never */
    int64_t lost_since_ms;       /* when it was asked what reached no server; 0 = the last did */
    sigset_t before;             /* the signals that are blocked while nothing waits */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* TERM and INT are blocked except in ppoll(), so that none is missed. */
static void block_signals(sigset_t *before)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    sigset_t stops;

    sigemptyset(&stops);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        sigaddset(&stops, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &stops, before);
}

static bool stop_wanted(void)
{
    sigset_t pending;

    return stopped || (sigpending(&pending) == 0 &&
                       (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1));
}

/* Waits, at most until a signal says to stop. True if one did. */
static bool wait_ms(const struct sweeper *sweeper, int64_t ms)
{
    struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    ppoll(NULL, 0, &timeout, &sweeper->before);
    return stopped;
}

/* The counters of all groups. That the file cannot be written is said once, and is no reason for a
 * daemon to stop. */
static void write_metrics(struct sweeper *sweeper)
{
    struct impel_error err = {0};

    bool failed = sweeper->metrics_file != NULL &&
                  sweep_list_write_metrics(&sweeper->list, sweeper->metrics_file, &err) < 0;
    if (failed && !sweeper->metrics_failed) {
        console_error("%s", err.text);
    }
    sweeper->metrics_failed = failed;
}

/* ---- asking ---- */

/* Waits until another command may go out. False if a signal came. */
static bool within_budget(struct sweeper *sweeper)
{
    int64_t pause_ms;

    while ((pause_ms = sweep_pace_take(&sweeper->pace, clock_now_ms())) > 0) {
        if (wait_ms(sweeper, pause_ms)) {
            return false;
        }
    }
    return true;
}

/* 1 = it was answered, 0 = nothing was to be asked (`request` is NULL), negative = a signal came, what
 * answers is no store and never was, or there was no server for as long as it is to be waited for. */
static int ask_next(struct sweeper *sweeper, struct request *request)
{
    int64_t asked_ms = clock_now_ms();

    if (request == NULL) {
        return 0;
    }
    if (session_ask(sweeper->store, request, NULL) == IMPEL_ERR_CANCELLED) {
        request_free(request);
        return IMPEL_ERR_CANCELLED;
    }
    if (request->status == IMPEL_ERR_PROTOCOL && !sweeper->answered) {
        session_failure(request, &sweeper->no_store);
        request_free(request);
        return IMPEL_ERR_PROTOCOL;
    }
    bool lost = request->status == IMPEL_ERR_DISCONNECTED;
    sweeper->answered |= !lost;
    sweeper->lost_since_ms = !lost                        ? 0
                             : sweeper->lost_since_ms > 0 ? sweeper->lost_since_ms
                                                          : asked_ms;
    if (lost && sweeper->give_up_ms > 0 &&
        clock_now_ms() - sweeper->lost_since_ms >= sweeper->give_up_ms) {
        session_failure(request, &sweeper->no_store);
        request_free(request);
        return IMPEL_ERR_DISCONNECTED;
    }
    return 1;
}

/* The next step of one group: 1 = it was asked, 0 = nothing is due, negative = as ask_next(). */
static int step_group(struct sweeper *sweeper, struct swept *swept)
{
    struct group_sweep *group = &swept->sweep;

    if (stop_wanted()) {
        return IMPEL_ERR_CANCELLED;
    }
    if (group_sweep_deadline(group, clock_now_ms()) > 0) {
        return 0;
    }
    if (!within_budget(sweeper)) {
        return IMPEL_ERR_CANCELLED;
    }
    struct request *request = group_sweep_next(group, clock_now_ms());
    int rc = ask_next(sweeper, request);
    if (rc <= 0) {
        return rc;
    }
    group_sweep_done(group, request, clock_now_ms());
    return group->status < 0 ? 0 : 1;
}

/* The next step of looking for groups, in the same way. */
static int step_discovery(struct sweeper *sweeper, struct impel_error *err)
{
    if (stop_wanted()) {
        return error_set(err, IMPEL_ERR_CANCELLED, "stopped while looking for groups");
    }
    if (sweep_discovery_deadline(&sweeper->discovery, clock_now_ms()) > 0) {
        return 0;
    }
    if (!within_budget(sweeper)) {
        return error_set(err, IMPEL_ERR_CANCELLED, "stopped while looking for groups");
    }
    struct request *request = sweep_discovery_next(&sweeper->discovery, clock_now_ms());
    int rc = ask_next(sweeper, request);
    if (rc == IMPEL_ERR_PROTOCOL || rc == IMPEL_ERR_DISCONNECTED) {
        *err = sweeper->no_store;
    }
    if (rc <= 0) {
        return rc;
    }
    rc = sweep_discovery_done(&sweeper->discovery, request, clock_now_ms(), err);
    return rc < 0 ? rc : 1;
}

/* Trims the next stream whose turn it is. Each stream once, wherever in the list its groups begin. */
static bool step_trim(struct sweeper *sweeper)
{
    struct sweep_list *list = &sweeper->list;

    if (sweep_trim_due(&sweeper->trim, clock_now_ms())) {
        sweep_trim_over(&sweeper->trim, clock_now_ms());
        sweeper->trim_at = 0;
        for (size_t i = 0; i < list->count; i++) {
            list->items[i]->trim_due = i == 0 || !bytes_equal(list->items[i - 1]->sweep.stream,
                                                              list->items[i]->sweep.stream);
        }
    }
    for (; sweeper->trim_at < list->count; sweeper->trim_at++) {
        struct swept *swept = list->items[sweeper->trim_at];
        if (swept->trim_due && !stop_wanted() && within_budget(sweeper)) {
            swept->trim_due = false;
            sweep_trim_stream(&sweeper->trim, sweeper->store, swept->sweep.stream, swept->found);
            return true;
        }
    }
    return false;
}

/* Between the steps of the groups: 1 = something was done, negative = as ask_next(). Errors of
 * looking are told by the looking itself, and are no reason to stop. */
static int step_aside(struct sweeper *sweeper)
{
    struct impel_error err;
    int rc = step_discovery(sweeper, &err);

    if (rc == IMPEL_ERR_CANCELLED || sweeper->no_store.status < 0) {
        return rc;
    }
    return step_trim(sweeper) || rc > 0;
}

static void forget_stream(void *user, struct impel_bytes stream)
{
    struct sweeper *sweeper = user;

    sweep_trim_forget(&sweeper->trim, stream);
}

/* One step of each group that has something to do, so that none waits for another's long pass. 1 =
 * there may be more, 0 = there is not, negative = as ask_next(). */
static int step_groups(struct sweeper *sweeper)
{
    int more = 0;

    for (size_t i = 0; i < sweeper->list.count; i++) { /* which may grow meanwhile */
        int rc = step_group(sweeper, sweeper->list.items[i]);
        int aside = rc > 0 ? step_aside(sweeper) : rc;
        if (aside < 0) {
            return aside;
        }
        more |= rc;
    }
    int aside = step_aside(sweeper);
    sweep_list_drop_gone(&sweeper->list, forget_stream, sweeper);
    return aside < 0 ? aside : more | aside;
}

/* ---- once ---- */

/* A beat on behalf of nobody in each group. Those of a stream that alone is the matter are over with that.
 * 1, or 0 if all are. */
static int beat_all(struct sweeper *sweeper, struct sweep_watch *watch, struct impel_error *err)
{
    int any = 0;

    for (size_t i = 0; i < sweeper->list.count; i++) {
        struct swept *swept = sweeper->list.items[i];
        struct group_sweep *group = &swept->sweep;
        int64_t asked_ms = clock_now_ms();
        if (swept->over) {
            continue;
        }
        struct request *look = session_request(REQUEST_LOOK, group->stream, group->group);
        if (look != NULL) {
            look->look.flags = LOOK_BEAT;
        }
        int rc = session_ask(sweeper->store, look, err);
        if (rc >= 0) {
            sweep_watch_take(watch, look, asked_ms);
        }
        swept->over = session_stream_refused(rc);
        if (swept->over) {
            group_sweep_failed(group, look);
        }
        request_free(look);
        if (rc < 0 && !swept->over) {
            return rc;
        }
        any |= !swept->over;
        if (stop_wanted()) {
            return error_set(err, IMPEL_ERR_CANCELLED, "stopped before the pass began");
        }
    }
    return any;
}

/* Beats until silence means something: for --dead-after, and longer where a worker that holds entries is
 * silent and its own dead-after, or a store that stood still, asks for more. */
static int watch_beats(struct sweeper *sweeper, struct impel_error *err)
{
    int64_t dead_after_ms = 0;
    struct sweep_watch watch;

    for (size_t i = 0; i < sweeper->list.count; i++) {
        int64_t own_ms = sweeper->list.items[i]->sweep.policy.dead_after_ms;
        dead_after_ms = own_ms > dead_after_ms ? own_ms : dead_after_ms;
    }
    sweep_watch_init(&watch, dead_after_ms);
    for (;;) {
        sweep_watch_round(&watch);
        int rc = beat_all(sweeper, &watch, err);
        if (rc <= 0) {
            return rc;
        }
        if (sweep_watch_over(&watch)) {
            return IMPEL_OK;
        }
        if (wait_ms(sweeper, watch.interval_ms)) {
            return error_set(err, IMPEL_ERR_CANCELLED, "stopped before the pass began");
        }
    }
}

/* One pass of each group, in turns. */
static int sweep_all(struct sweeper *sweeper, struct impel_error *err)
{
    int more = 1;

    for (size_t i = 0; i < sweeper->list.count; i++) {
        sweep_hurry(sweeper->list.items[i]->sweep.machine, clock_now_ms());
    }
    while (more > 0) {
        more = 0;
        for (size_t i = 0; i < sweeper->list.count; i++) {
            struct swept *swept = sweeper->list.items[i];
            int step = swept->over ? 0 : step_group(sweeper, swept);
            if (step < 0) {
                return error_set(err, step, "stopped before the pass was over");
            }
            swept->over |= swept->sweep.passes > 0;
            more |= step;
        }
    }
    return IMPEL_OK;
}

/* What the pass failed of: first of all what is not only the matter of one stream. */
static int first_failure(const struct sweeper *sweeper, struct impel_error *err)
{
    const struct group_sweep *failed = NULL;
    unsigned long long park_failed = 0;
    bool requeues = false;

    for (size_t i = 0; i < sweeper->list.count; i++) {
        const struct swept *swept = sweeper->list.items[i];
        const struct group_sweep *group = &swept->sweep;
        bool vanished = swept->found && group_sweep_missing(group);
        if (group->status < 0 && !vanished &&
            (failed == NULL ||
             (session_stream_refused(failed->status) && !session_stream_refused(group->status)))) {
            failed = group;
        }
        for (size_t j = 0; j < group->report_count; j++) {
            park_failed += group->reports[j].park_failed;
        }
        requeues |= (group->action & CLAIM_REQUEUE) != 0;
    }
    if (failed != NULL) {
        return error_set(err, failed->status, "the sweep failed: %s", failed->error.text);
    }
    return park_failed == 0
               ? IMPEL_OK
               : error_set(err, IMPEL_ERR_IO, "%llu %s could not be %sparked: still pending",
                           park_failed, park_failed == 1 ? "entry" : "entries",
                           requeues ? "requeued or " : "");
}

static int sweep_once(struct sweeper *sweeper, bool json, struct impel_error *err)
{
    struct impel_error failure;
    int rc = watch_beats(sweeper, err);

    rc = rc < 0 ? rc : sweep_all(sweeper, err);
    int failed = first_failure(sweeper, &failure);
    while (rc >= 0 && (failed >= 0 || session_stream_refused(failed)) && step_trim(sweeper)) {
    }
    if (failed >= 0 && sweeper->trim.failed > 0) {
        failed = error_set(&failure, IMPEL_ERR_IO, "not all streams could be trimmed");
    }
    if (rc >= 0 && sweeper->trim.wanted && stop_wanted()) {
        rc = error_set(err, IMPEL_ERR_CANCELLED, "stopped before all was done");
    }
    if (rc == IMPEL_ERR_CANCELLED) {
        return rc;
    }
    int printed = sweep_report_print(&sweeper->list, json, rc < 0 ? NULL : err);
    rc = rc < 0 ? rc : printed;
    if (rc >= 0 && failed < 0) {
        *err = failure;
        rc = failed;
    }
    return rc;
}

/* Shows what a pass would do, and does none of it. */
static int preview(struct sweeper *sweeper, const struct options *options, struct impel_error *err)
{
    bool failed = false;
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < sweeper->list.count; i++) {
        const struct swept *swept = sweeper->list.items[i];
        const struct group_sweep *group = &swept->sweep;
        int64_t ttl_ms = swept->choice->options->consumer_ttl_ms;
        struct sweep_preview shown = {
            .store = sweeper->store,
            .pace = &sweeper->pace,
            .policy = group->policy,
            .consumer_ttl_ms = ttl_ms > 0 ? ttl_ms : -1,
            .action = group->action,
            .list = options->dry_run,
            .json = options->json,
        };
        rc = sweep_preview_print(&shown, group->stream, group->group, err);
        rc = rc == IMPEL_ERR_NO_GROUP && swept->found ? IMPEL_OK : rc; /* gone since */
        if (session_stream_refused(rc)) {
            console_error("%s", err->text);
            failed = true;
            rc = IMPEL_OK;
        }
    }
    while (rc >= 0 && options->dry_run && step_trim(sweeper)) {
    }
    return rc < 0 ? rc : failed ? EXIT_FAILED : EXIT_DONE;
}

/* ---- daemon ---- */

/* How long nothing is due. */
static int64_t rest_ms(const struct sweeper *sweeper)
{
    int64_t now_ms = clock_now_ms(), rest_ms = REST_MAX_MS;
    int64_t own_ms = sweep_discovery_deadline(&sweeper->discovery, now_ms);

    rest_ms = own_ms < rest_ms ? own_ms : rest_ms;
    for (size_t i = 0; i < sweeper->list.count; i++) {
        const struct group_sweep *group = &sweeper->list.items[i]->sweep;
        own_ms = group_sweep_deadline(group, now_ms);
        /* A store that refuses is asked again, but not without a pause. */
        own_ms = group->status < 0 && own_ms < WAIT_MS ? WAIT_MS : own_ms;
        rest_ms = own_ms < rest_ms ? own_ms : rest_ms;
    }
    return rest_ms < 1 ? 1 : rest_ms;
}

static void sweep_on(struct sweeper *sweeper)
{
    for (;;) {
        int more = step_groups(sweeper);
        if (more < 0) {
            return;
        }
        int64_t now_ms = clock_now_ms();
        if (now_ms - sweeper->metrics_ms >= METRICS_MS + (int64_t)sweeper->list.count) {
            sweeper->metrics_ms = now_ms;
            write_metrics(sweeper);
        }
        if (stop_wanted() || (more == 0 && wait_ms(sweeper, rest_ms(sweeper)))) {
            return;
        }
    }
}

/* ---- before anything is done ---- */

/* Every park would fail. */
static int check_dead_letter(const struct group_sweep *group,
                             const struct request *info,
                             struct impel_error *err)
{
    char name[64];

    if (info->status != IMPEL_ERR_WRONG_TYPE) {
        return IMPEL_OK;
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "the dead-letter stream '%s' is no stream: the key holds something else",
                     bytes_quote(group->dead_letter, name, sizeof(name)));
}

static int
check_groups(const struct group_sweep *group, const struct request *info, struct impel_error *err)
{
    char stream[64];

    if (info->status < 0 || info->info.group_count <= 1 ||
        (group->action & (CLAIM_REQUEUE | CLAIM_ALL_GROUPS)) != CLAIM_REQUEUE) {
        return IMPEL_OK;
    }
    return error_set(err, IMPEL_ERR_INVALID,
                     "the stream '%s' has %zu groups, and what is requeued would be new work to "
                     "all of them: give --all-groups if that is wanted, or use --hand-over",
                     bytes_quote(group->stream, stream, sizeof(stream)), info->info.group_count);
}

/* What cannot go well is refused before anything is done. The steps themselves refuse it too: where it
 * comes later, where a pattern found the stream, of which others need not suffer, and where the store
 * does not answer yet. */
static int check_places(const struct sweeper *sweeper, struct impel_error *err)
{
    static int (*const checks[])(const struct group_sweep *group, const struct request *info,
                                 struct impel_error *err) = {check_groups, check_dead_letter};
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < sweeper->list.count; i++) {
        const struct swept *swept = sweeper->list.items[i];
        const struct impel_bytes streams[] = {swept->sweep.stream, swept->sweep.dead_letter};
        for (size_t j = 0; rc >= 0 && swept->stream_given && j < ARRAY_SIZE(streams); j++) {
            struct request *info =
                session_request(REQUEST_INFO, streams[j], (struct impel_bytes){NULL, 0});
            rc = session_ask(sweeper->store, info, err);
            bool asked = rc >= 0 || session_stream_refused(rc);
            rc = asked ? checks[j](&swept->sweep, info, err) : rc;
            request_free(info);
            if (!asked) {
                return rc == IMPEL_ERR_CANCELLED || rc == IMPEL_ERR_NOMEM ? rc : IMPEL_OK;
            }
        }
    }
    return rc;
}

/* Finds all that is meant now, for what looks only once. */
static int find_all(struct sweeper *sweeper, struct impel_error *err)
{
    int rc = 1;

    while (rc > 0) {
        rc = step_discovery(sweeper, err);
    }
    if (rc >= 0) {
        sweep_discovery_check(&sweeper->discovery);
    }
    if (rc >= 0 && sweeper->list.count == 0 && sweeper->discovery.refused == 0) {
        console_note("no stream and group in this store is meant: there is nothing to do");
    }
    return rc;
}

static int run(struct sweeper *sweeper, struct options *options, struct impel_error *err)
{
    bool looks = options->report || options->dry_run;
    bool once = looks || options->once;
    int rc = session_open_existing(options, &sweeper->store, err);

    if (rc < 0) {
        return rc;
    }
    sweeper->metrics_file = looks ? NULL : options->metrics_file;
    sweeper->pace.budget = options->budget;
    sweeper->give_up_ms = once ? 0 : options->connect_timeout_ms;
    sweep_discovery_init(&sweeper->discovery, &sweeper->choices, &sweeper->list, once);
    rc = once ? find_all(sweeper, err) : IMPEL_OK;
    rc = rc < 0 ? rc : check_places(sweeper, err);
    if (rc < 0) {
        store_close(sweeper->store);
        return rc;
    }
    if (looks) {
        rc = preview(sweeper, options, err);
    } else if (once) {
        rc = sweep_once(sweeper, options->json, err);
        if (rc != IMPEL_ERR_CANCELLED && sweeper->metrics_file != NULL) {
            int written = sweep_list_write_metrics(&sweeper->list, sweeper->metrics_file,
                                                   rc < 0 ? NULL : err);
            rc = rc < 0 ? rc : written;
        }
    } else {
        sweep_on(sweeper);
        write_metrics(sweeper);
        if (sweeper->no_store.status < 0) {
            *err = sweeper->no_store;
            rc = err->status;
        }
    }
    if (rc == IMPEL_OK && once && sweeper->discovery.refused > 0) {
        *err = sweeper->discovery.refusal;
        rc = err->status;
    }
    store_close(sweeper->store);
    return rc;
}

int command_sweep(struct options *options, struct impel_error *err)
{
    struct sweeper sweeper = {0};

    logging_init(&sweeper.logging, options);
    sweeper.list.logging = &sweeper.logging;
    sweep_trim_init(&sweeper.trim, options, &sweeper.logging);
    if (!options->report && !options->dry_run) { /* what only looks may just be killed */
        block_signals(&sweeper.before);
        session_stop_when(stop_wanted);
        signal(SIGTERM, on_signal);
        signal(SIGINT, on_signal);
    }
    int rc = sweep_choices_make(&sweeper.choices, options, err);
    rc = rc < 0 ? rc : sweep_list_add_given(&sweeper.list, &sweeper.choices, err);
    rc = rc < 0 ? rc : run(&sweeper, options, err);
    sweep_discovery_release(&sweeper.discovery);
    sweep_list_release(&sweeper.list);
    sweep_choices_release(&sweeper.choices);
    sweep_trim_release(&sweeper.trim);
    logging_release(&sweeper.logging);
    return rc;
}
