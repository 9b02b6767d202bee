/* command_sweep.c -- impel sweep: one pass, or a daemon, over one group or all of the config file.
 *
 * One thread, one request at a time: a sweep is no hurry. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/group_sweep.h"
#include "cli/session.h"
#include "cli/sweep_preview.h"
#include "cli/sweep_trim.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>

enum {
    WAIT_MS = 500, /* for the store, before asking again whether to stop */
    METRICS_MS = 1000,
};

struct sweeper {
    struct store *store;
    struct group_sweep *groups;
    size_t group_count;
    struct logging logging;
    struct sweep_trim trim;
    const char *metrics_file;
    int64_t metrics_ms;  /* when it was written last */
    bool metrics_failed; /* and that was said */
    struct sweep_pace pace;
    sigset_t before; /* the signals that are blocked while nothing waits */
};

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

    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGINT) == 1);
}

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
}

/* Waits, at most until a signal says to stop. True if one did. */
static bool wait_ms(const struct sweeper *sweeper, int64_t ms)
{
    struct timespec timeout = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    ppoll(NULL, 0, &timeout, &sweeper->before);
    return stopped;
}

/* The counters of all groups. That the file cannot be written is said once, and is no reason to
 * stop. */
static void write_metrics(struct sweeper *sweeper)
{
    struct impel_error err = {0};

    if (sweeper->metrics_file == NULL || sweeper->group_count == 0) {
        return;
    }
    bool failed = metrics_write(sweeper->groups[0].metrics, sweeper->metrics_file, &err) < 0;
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

/* Waits for the store's answer, or for a signal: false then, and the request stays with the store.
 */
static bool ask(const struct sweeper *sweeper, struct request *request)
{
    int rc = IMPEL_ERR_TIMEOUT;

    while (rc == IMPEL_ERR_TIMEOUT) {
        if (stop_wanted()) {
            return false;
        }
        rc = store_wait(sweeper->store, request, WAIT_MS);
    }
    return true;
}

static void request_dropped(struct request *request)
{
    (void)request;
}

/* The next step of one group: 1 = it was asked, 0 = nothing is due, negative = a signal came. */
static int step_group(struct sweeper *sweeper, struct group_sweep *group)
{
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
    if (request == NULL) {
        return 0;
    }
    if (!ask(sweeper, request)) {
        /* The store is closed next and lets go of it; so does the end of the program. */
        request->done = request_dropped;
        return IMPEL_ERR_CANCELLED;
    }
    group_sweep_done(group, request, clock_now_ms());
    return group->status < 0 ? 0 : 1;
}

/* All that is due now in one group: one pass, or nothing. False if a signal came. */
static bool sweep_group(struct sweeper *sweeper, struct group_sweep *group)
{
    int rc;

    do {
        rc = step_group(sweeper, group);
    } while (rc > 0);
    return rc == 0 && !stop_wanted();
}

/* One step of each group that has something to do, so that none waits for another's long pass. 1 =
 * there may be more, 0 = there is not, negative = a signal came. */
static int step_groups(struct sweeper *sweeper)
{
    int more = 0;

    for (size_t i = 0; i < sweeper->group_count; i++) {
        int rc = step_group(sweeper, &sweeper->groups[i]);
        if (rc < 0) {
            return rc;
        }
        more |= rc;
    }
    return more;
}

/* ---- once ---- */

/* Beats on behalf of nobody until silence means something, as long as the slowest row asks. */
static int watch_beats(struct sweeper *sweeper, struct impel_error *err)
{
    int64_t begun_ms = clock_now_ms(), dead_after_ms = 0;

    for (size_t i = 0; i < sweeper->group_count; i++) {
        int64_t own_ms = sweeper->groups[i].policy.dead_after_ms;
        dead_after_ms = own_ms > dead_after_ms ? own_ms : dead_after_ms;
    }
    while (clock_now_ms() - begun_ms <= dead_after_ms) {
        for (size_t i = 0; i < sweeper->group_count; i++) {
            const struct group_sweep *group = &sweeper->groups[i];
            struct request *look = session_request(REQUEST_LOOK, group->stream, group->group);
            if (look != NULL) {
                look->look.flags = LOOK_BEAT;
                look->dead_after_ms = group->policy.dead_after_ms;
            }
            int rc = session_ask(sweeper->store, look, err);
            request_free(look);
            if (rc < 0) {
                return rc;
            }
        }
        if (wait_ms(sweeper, liveness_interval_ms(dead_after_ms))) {
            return error_set(err, IMPEL_ERR_CANCELLED, "stopped before the pass began");
        }
    }
    return IMPEL_OK;
}

static void print_json(struct buf *out, const struct group_sweep *group)
{
    for (size_t i = 0; i < group->report_count; i++) {
        const struct owner_report *report = &group->reports[i];
        buf_append_text(out, "{\"stream\":");
        json_value(out, group->stream);
        buf_append_text(out, ",\"group\":");
        json_value(out, group->group);
        buf_append_text(out, ",\"consumer\":");
        json_value(out, report->name);
        buf_appendf(out,
                    ",\"state\":\"%s\",\"abandoned\":%llu,\"not_due\":%llu,\"parked\":%llu,"
                    "\"lost\":%llu,\"moved\":%llu}\n",
                    owner_state_name(report->state), (unsigned long long)report->due,
                    (unsigned long long)report->not_due, (unsigned long long)report->parked,
                    (unsigned long long)report->reaped, (unsigned long long)report->moved);
    }
}

static void print_table(struct buf *out, const struct group_sweep *group)
{
    char stream[64], name[64];

    buf_appendf(out, "%s%s%s, group %s\n", console_style(1, STYLE_BOLD),
                bytes_quote(group->stream, stream, sizeof(stream)), console_style(1, STYLE_END),
                bytes_quote(group->group, name, sizeof(name)));
    for (size_t i = 0; i < group->report_count; i++) {
        const struct owner_report *report = &group->reports[i];
        buf_appendf(out, "  %-24s %-8s abandoned %llu, not due %llu, parked %llu, lost %llu",
                    report->name.size == 0 ? "(nobody)"
                                           : bytes_quote(report->name, name, sizeof(name)),
                    owner_state_name(report->state), (unsigned long long)report->due,
                    (unsigned long long)report->not_due, (unsigned long long)report->parked,
                    (unsigned long long)report->reaped);
        if (group->action & (CLAIM_REQUEUE | CLAIM_HAND_OVER)) {
            buf_appendf(out, ", %s %llu",
                        group->action & CLAIM_REQUEUE ? "requeued" : "handed over",
                        (unsigned long long)report->moved);
        }
        buf_append_text(out, "\n");
    }
    if (group->report_count == 0) {
        buf_append_text(out, "  nothing is abandoned\n");
    }
}

static int print_reports(const struct sweeper *sweeper, bool json, struct impel_error *err)
{
    struct buf out;
    int rc;

    buf_init(&out, SIZE_MAX / 4);
    for (size_t i = 0; i < sweeper->group_count; i++) {
        (json ? print_json : print_table)(&out, &sweeper->groups[i]);
    }
    rc = buf_status(&out);
    if (rc < 0) {
        error_set(err, rc, "%s", status_text(rc));
    } else {
        console_out(buf_bytes(&out));
    }
    buf_release(&out);
    return rc;
}

/* Each stream once, in whichever of the groups it was named first. */
static void trim_streams(struct sweeper *sweeper)
{
    if (!sweep_trim_due(&sweeper->trim, clock_now_ms())) {
        return;
    }
    for (size_t i = 0; i < sweeper->group_count && !stop_wanted(); i++) {
        struct impel_bytes stream = sweeper->groups[i].stream;
        bool seen = false;
        for (size_t j = 0; j < i; j++) {
            seen |= bytes_equal(sweeper->groups[j].stream, stream);
        }
        if (!seen) {
            sweep_trim_stream(&sweeper->trim, sweeper->store, stream);
        }
    }
    sweep_trim_over(&sweeper->trim, clock_now_ms());
}

static int sweep_once(struct sweeper *sweeper, bool json, struct impel_error *err)
{
    int rc = watch_beats(sweeper, err);

    for (size_t i = 0; rc >= 0 && i < sweeper->group_count; i++) {
        struct group_sweep *group = &sweeper->groups[i];
        sweep_hurry(group->machine, clock_now_ms());
        if (!sweep_group(sweeper, group)) {
            rc = error_set(err, IMPEL_ERR_CANCELLED, "stopped before the pass was over");
        } else if (group->status < 0) {
            rc = error_set(err, group->status, "the sweep failed: %s", status_text(group->status));
        }
    }
    if (rc >= 0) {
        trim_streams(sweeper);
    }
    return rc < 0 ? rc : print_reports(sweeper, json, err);
}

/* Shows what a pass would do, and does none of it. */
static int preview(struct sweeper *sweeper, const struct options *options, struct impel_error *err)
{
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < sweeper->group_count; i++) {
        const struct group_sweep *group = &sweeper->groups[i];
        struct sweep_preview shown = {
            .store = sweeper->store,
            .pace = &sweeper->pace,
            .policy = group->policy,
            .consumer_ttl_ms = options->consumer_ttl_ms > 0 ? options->consumer_ttl_ms : -1,
            .action = group->action,
            .list = options->dry_run,
            .json = options->json,
        };
        rc = sweep_preview_print(&shown, group->stream, group->group, err);
    }
    if (rc >= 0 && options->dry_run) {
        trim_streams(sweeper);
    }
    return rc;
}

/* ---- daemon ---- */

static void sweep_on(struct sweeper *sweeper)
{
    for (;;) {
        int more = step_groups(sweeper);
        if (more < 0) {
            return;
        }
        int64_t now_ms = clock_now_ms(), deadline_ms = more > 0 ? 0 : INT64_C(60000);
        for (size_t i = 0; i < sweeper->group_count; i++) {
            struct group_sweep *group = &sweeper->groups[i];
            int64_t own_ms = group_sweep_deadline(group, now_ms);
            /* A store that refuses is asked again, but not without a pause. */
            own_ms = group->status < 0 && own_ms < WAIT_MS ? WAIT_MS : own_ms;
            deadline_ms = own_ms < deadline_ms ? own_ms : deadline_ms;
        }
        trim_streams(sweeper);
        if (now_ms - sweeper->metrics_ms >= METRICS_MS) {
            sweeper->metrics_ms = now_ms;
            write_metrics(sweeper);
        }
        if (stop_wanted() || (more == 0 && wait_ms(sweeper, deadline_ms < 1 ? 1 : deadline_ms))) {
            return;
        }
    }
}

/* ---- which groups ---- */

static int action_of(const struct options *options, unsigned *action, struct impel_error *err)
{
    if (options->requeue + options->hand_over + options->park > 1) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "one entry has one way: give one of --requeue, --hand-over and --park");
    }
    if (options->report &&
        (options->dry_run || options->requeue || options->hand_over || options->park)) {
        return error_set(
            err, IMPEL_ERR_INVALID,
            "--report tells what each way would do: give it alone, or --dry-run with the "
            "one way");
    }
    *action = options->requeue     ? CLAIM_REQUEUE | (options->all_groups ? CLAIM_ALL_GROUPS : 0U)
              : options->hand_over ? (unsigned)CLAIM_HAND_OVER
              : options->park      ? (unsigned)CLAIM_PARK
              : options->report && options->all_groups ? (unsigned)CLAIM_ALL_GROUPS
                                                       : 0U;
    return IMPEL_OK;
}

/* A requeue into a stream with another group is refused before anything is done. The step itself
 * refuses it too, where the other group comes later. */
static int check_groups(struct sweeper *sweeper, struct impel_error *err)
{
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < sweeper->group_count; i++) {
        const struct group_sweep *group = &sweeper->groups[i];
        char stream[64];
        if ((group->action & (CLAIM_REQUEUE | CLAIM_ALL_GROUPS)) != CLAIM_REQUEUE) {
            continue;
        }
        struct request *info =
            session_request(REQUEST_INFO, group->stream, (struct impel_bytes){NULL, 0});
        rc = session_ask(sweeper->store, info, err);
        if (rc >= 0 && info->info.group_count > 1) {
            rc = error_set(
                err, IMPEL_ERR_INVALID,
                "the stream '%s' has %zu groups, and what is requeued would be new work to "
                "all of them: give --all-groups if that is wanted, or use --hand-over",
                bytes_quote(group->stream, stream, sizeof(stream)), info->info.group_count);
        }
        request_free(info);
    }
    return rc;
}

static int add_group(struct sweeper *sweeper, struct options *options, struct impel_error *err)
{
    struct group_sweep_options sweep = {
        .policy = options_policy(options),
        .interval_ms = options->interval_ms,
        .consumer_ttl_ms = options->consumer_ttl_ms,
    };

    if (options->streams.count == 0) {
        return command_needs("stream", err);
    }
    int bad = action_of(options, &sweep.action, err);
    if (bad < 0) {
        return bad;
    }
    for (size_t i = 0; i < options->streams.count; i++) {
        struct group_sweep *groups =
            realloc(sweeper->groups, (sweeper->group_count + 1) * sizeof(*groups));
        sweep.stream = bytes_of(options->streams.texts[i]);
        sweep.group = bytes_of(options->group);
        if (groups == NULL ||
            !options_dead_letter(options, &options->arena, sweep.stream, &sweep.dead_letter)) {
            sweeper->groups = groups == NULL ? sweeper->groups : groups;
            return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
        }
        sweeper->groups = groups;
        if (bytes_equal(sweep.dead_letter, sweep.stream)) {
            return error_set(err, IMPEL_ERR_INVALID,
                             "the dead-letter stream must be another than the stream itself");
        }
        int rc = group_sweep_init(&groups[sweeper->group_count], &sweep, &sweeper->logging,
                                  clock_now_ms());
        if (rc < 0) {
            return error_set(err, rc, "%s", status_text(rc));
        }
        sweeper->group_count++;
    }
    return IMPEL_OK;
}

/* Each group of the config file with its own options; these live in `options->arena`'s company. */
static int add_config_groups(struct sweeper *sweeper,
                             struct options *options,
                             struct options *of_group,
                             struct impel_error *err)
{
    size_t i = 0;

    for (const struct group_config *group = options->groups; group != NULL; group = group->next) {
        struct parse_input input = *options->input;
        input.group = group->name;
        int rc = options_parse(&of_group[i], &input, err);
        if (rc >= 0) {
            rc = add_group(sweeper, &of_group[i], err);
        }
        if (rc < 0) {
            return rc;
        }
        i++;
    }
    return IMPEL_OK;
}

static size_t count_groups(const struct options *options)
{
    size_t count = 0;
    for (const struct group_config *group = options->groups; group != NULL; group = group->next) {
        count++;
    }
    return count;
}

static int run(struct sweeper *sweeper, struct options *options, struct impel_error *err)
{
    int rc = session_open_existing(options, &sweeper->store, err);

    if (rc < 0) {
        return rc;
    }
    sweeper->metrics_file = options->metrics_file;
    sweeper->pace.budget = options->budget;
    for (size_t i = 1; i < sweeper->group_count; i++) {
        metrics_link(sweeper->groups[i - 1].metrics, sweeper->groups[i].metrics);
    }
    rc = check_groups(sweeper, err);
    if (rc < 0) {
        store_close(sweeper->store);
        return rc;
    }
    if (options->report || options->dry_run) {
        rc = preview(sweeper, options, err);
    } else if (options->once) {
        rc = sweep_once(sweeper, options->json, err);
    } else {
        sweep_on(sweeper);
    }
    if (!options->report && !options->dry_run) {
        write_metrics(sweeper);
    }
    store_close(sweeper->store);
    return rc;
}

int command_sweep(struct options *options, struct impel_error *err)
{
    struct sweeper sweeper = {0};
    size_t config_count = count_groups(options);
    struct options *of_group = NULL;
    int rc;

    if (options->group == NULL && config_count == 0) {
        return command_needs("group", err);
    }
    logging_init(&sweeper.logging, options);
    sweep_trim_init(&sweeper.trim, options, &sweeper.logging);
    if (!options->report && !options->dry_run) { /* what only looks may just be killed */
        block_signals(&sweeper.before);
        signal(SIGTERM, on_signal);
        signal(SIGINT, on_signal);
    }
    if (options->group != NULL) {
        rc = add_group(&sweeper, options, err);
    } else {
        of_group = arena_calloc(&options->arena, config_count, sizeof(*of_group));
        rc = of_group == NULL ? error_set(err, IMPEL_ERR_NOMEM, "out of memory")
                              : add_config_groups(&sweeper, options, of_group, err);
    }
    if (rc >= 0) {
        rc = run(&sweeper, options, err);
    }
    for (size_t i = 0; i < sweeper.group_count; i++) {
        group_sweep_release(&sweeper.groups[i]);
    }
    free(sweeper.groups);
    for (size_t i = 0; of_group != NULL && i < config_count; i++) {
        options_release(&of_group[i]);
    }
    sweep_trim_release(&sweeper.trim);
    logging_release(&sweeper.logging);
    return rc < 0 ? rc : EXIT_DONE;
}
