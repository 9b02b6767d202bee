/* command_drill.c -- impel drill: the story, as it happens, and the four results at its end. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/drill.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    POLL_MS = 50,
    HELD_DEADLINE_MS = 30 * 1000,    /* for workers to start and hold something */
    SETTLE_DEADLINE_MS = 180 * 1000, /* for everything to be settled; a minute is a slow machine */
    QUIET_DEADLINE_MS = 15 * 1000,
};

struct result {
    const char *title;
    char text[256];
    bool holds;
};

enum {
    RESULT_TAKEOVER,
    RESULT_SWEEPS,
    RESULT_NOTHING_LOST,
    RESULT_METRICS,
    RESULT_COUNT,
};

static void tell(const struct drill *drill, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* One line of the story. Data goes to standard output, and under --json that is the results. */
static void tell(const struct drill *drill, const char *format, ...)
{
    double seconds = (double)(clock_now_ms() - drill->begun_ms) / 1000;
    FILE *out = drill->options->json ? stderr : stdout;
    va_list args;

    va_start(args, format);
    fprintf(out, "  %s%5.1f s%s  ", console_style(drill->options->json ? 2 : 1, STYLE_DIM), seconds,
            console_style(drill->options->json ? 2 : 1, STYLE_END));
    vfprintf(out, format, args);
    fputc('\n', out);
    va_end(args);
    fflush(out);
}

/* ---- a signal in between: the scene is cleared all the same ---- */

static volatile sig_atomic_t stopped_by;

static void note_signal(int number)
{
    stopped_by = number;
}

/* The first one only: whoever insists gets the usual end, and the folder's keeper clears up. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* Is all well, that is, shall the drill go on? */
static int check(struct drill *drill, struct impel_error *err)
{
    if (stopped_by != 0) {
        return error_set(err, IMPEL_ERR_IO, "the drill was stopped by a signal");
    }
    return drill_check_workers(drill, err);
}

static void pause_ms(int64_t ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* ---- acts ---- */

/* A living worker that holds at least `least` entries, or NULL. */
static struct drill_worker *holder(struct drill *drill, uint64_t least)
{
    for (size_t i = 0; i < drill->worker_count; i++) {
        struct drill_worker *worker = &drill->workers[i];
        if (!worker->killed && worker->held >= least) {
            return worker;
        }
    }
    return NULL;
}

static size_t killed_count(const struct drill *drill)
{
    size_t count = 0;
    for (size_t i = 0; i < drill->worker_count; i++) {
        count += drill->workers[i].killed && drill->workers[i].held_when_dead > 0;
    }
    return count;
}

static size_t living_count(const struct drill *drill)
{
    size_t count = 0;
    for (size_t i = 0; i < drill->worker_count; i++) {
        count += !drill->workers[i].killed;
    }
    return count;
}

/* Kills a worker the moment it holds something, and deletes one of the entries that the first of
 * them leaves behind. */
static int kill_one(struct drill *drill, struct impel_error *err)
{
    int64_t end_ms = clock_now_ms() + HELD_DEADLINE_MS;

    for (;;) {
        struct drill_worker *worker;
        int rc = drill_look(drill, err);
        if (rc < 0) {
            return rc;
        }
        worker = holder(drill, 2);
        if (worker != NULL && living_count(drill) > 1) {
            long pid = (long)worker->pid;
            rc = drill_kill(drill, worker, err);
            if (rc >= 0) {
                tell(drill, "%s (pid %ld) is killed with SIGKILL; it held %s", worker->name, pid,
                     counted((uint64_t)worker->held_when_dead, "entry", "entries").text);
                return IMPEL_OK;
            }
            if (rc != IMPEL_ERR_BUSY) {
                return rc;
            }
            tell(drill, "%s is killed, but had just finished; another one, then", worker->name);
        }
        rc = check(drill, err);
        if (rc < 0) {
            return rc;
        }
        if (clock_now_ms() > end_ms || living_count(drill) < 2) {
            return error_set(err, IMPEL_ERR_TIMEOUT,
                             "no worker could be killed while it held entries; logs are in %s (add "
                             "--keep-scene)",
                             drill->folder.path);
        }
        pause_ms(POLL_MS);
    }
}

static int kill_some(struct drill *drill, struct impel_error *err)
{
    char id[ID_TEXT_SIZE];

    while (killed_count(drill) < drill->kill_count) {
        int rc = kill_one(drill, err);
        if (rc < 0) {
            return rc;
        }
        for (size_t i = 0; i < drill->worker_count && id_is_zero(drill->trimmed); i++) {
            const struct drill_worker *worker = &drill->workers[i];
            if (!worker->killed || worker->held_when_dead == 0) {
                continue;
            }
            rc = drill_trim(drill, worker, err);
            if (rc < 0 && rc != IMPEL_ERR_BUSY) {
                return rc;
            }
            if (rc >= 0) {
                tell(drill, "%s is deleted from the stream while %s's entry is pending",
                     id_format(drill->trimmed, id), worker->name);
            }
        }
    }
    return id_is_zero(drill->trimmed)
               ? error_set(err, IMPEL_ERR_TIMEOUT, "no pending entry could be deleted")
               : IMPEL_OK;
}

/* Until nothing is pending and nothing undelivered. */
static int wait_until_settled(struct drill *drill, struct impel_error *err)
{
    int64_t end_ms = clock_now_ms() + SETTLE_DEADLINE_MS;
    uint64_t held_by_dead = drill->held_by_dead;
    struct progress progress;
    int rc = IMPEL_OK;

    progress_init(&progress, "settling", 0);
    while (rc >= 0) {
        struct drill_metrics metrics;
        rc = drill_look(drill, err);
        if (rc >= 0) {
            rc = check(drill, err);
        }
        if (rc < 0) {
            break;
        }
        drill_read_metrics(drill, &metrics);
        drill->not_due_seen =
            metrics.not_due > drill->not_due_seen ? metrics.not_due : drill->not_due_seen;
        if (held_by_dead > 0 && drill->held_by_dead == 0) {
            progress_end(&progress);
            tell(drill, "the dead workers' entries are in living hands");
        }
        held_by_dead = drill->held_by_dead;
        if (drill->pending == 0 && drill->undelivered == 0) {
            break;
        }
        if (clock_now_ms() > end_ms) {
            rc = error_set(err, IMPEL_ERR_TIMEOUT, "%s still pending after %d s",
                           counted(drill->pending, "entry", "entries").text,
                           SETTLE_DEADLINE_MS / 1000);
        }
        progress_show(&progress, 0, drill->pending);
        pause_ms(POLL_MS);
    }
    progress_end(&progress);
    return rc;
}

/* Until the last sweep of every survivor found nothing: each sweeps by turns, and tells of its own
 * sweeps only. Nothing depends on it but what the metrics tell. */
static int wait_for_quiet(struct drill *drill, struct impel_error *err)
{
    int64_t end_ms = clock_now_ms() + QUIET_DEADLINE_MS;
    int rc = IMPEL_OK;

    while (rc >= 0 && clock_now_ms() < end_ms) {
        struct drill_metrics metrics;
        drill_read_metrics(drill, &metrics);
        if (metrics.due == 0 && metrics.not_due == 0) {
            break;
        }
        pause_ms(POLL_MS);
        rc = check(drill, err);
    }
    return rc;
}

static int play(struct drill *drill, struct impel_error *err)
{
    int rc = drill_add_entries(drill, err);

    if (rc < 0) {
        return rc;
    }
    tell(drill, "%llu entries are added to the stream %s; one of them is poison",
         (unsigned long long)drill->entries, drill->stream);
    rc = drill_start_workers(drill, err);
    if (rc < 0) {
        return rc;
    }
    tell(drill, "%zu workers are started, %d handlers each", drill->worker_count,
         DRILL_CONCURRENCY);
    rc = kill_some(drill, err);
    if (rc >= 0) {
        rc = wait_until_settled(drill, err);
    }
    if (rc >= 0) {
        tell(drill, "everything is settled");
        rc = wait_for_quiet(drill, err);
    }
    return rc;
}

/* ---- results ---- */

static void result_takeover(const struct drill *drill,
                            const struct drill_metrics *metrics,
                            struct result *result)
{
    uint64_t held = 0;

    for (size_t i = 0; i < drill->worker_count; i++) {
        held += drill->workers[i].held_when_dead;
    }
    snprintf(result->text, sizeof(result->text),
             "held by the dead: %llu, now %llu; taken over by the living: %.0f, and 1 was deleted",
             (unsigned long long)held, (unsigned long long)drill->held_by_dead,
             metrics->recovery_count);
    result->holds = held > 0 && drill->held_by_dead == 0 && metrics->recovery_count > 0;
}

static void
result_sweeps(const struct drill *drill, const struct drill_metrics *metrics, struct result *result)
{
    char id[ID_TEXT_SIZE];

    snprintf(result->text, sizeof(result->text),
             "%.0f sweeps; the cursor was seen on its way %llu times, and stands at %s",
             metrics->sweeps, (unsigned long long)drill->cursor_moves,
             id_format(drill->cursor.id, id));
    result->holds = metrics->sweeps >= 1 && id_is_zero(drill->cursor.id);
}

static int
result_nothing_lost(const struct drill *drill, struct result *result, struct impel_error *err)
{
    uint64_t done, again, parked;
    int rc = drill_count_parked(drill, &parked, err);

    drill_read_done(drill, &done, &again);
    /* The deleted entry's handler died with its worker; if it had left its line by then, the line
     * counts, and the entry is not missing. */
    snprintf(result->text, sizeof(result->text),
             "%llu done + %llu parked + 1 deleted = %llu added; pending %llu, run twice %llu",
             (unsigned long long)done, (unsigned long long)parked,
             (unsigned long long)drill->entries, (unsigned long long)drill->pending,
             (unsigned long long)again);
    result->holds = rc >= 0 && parked == 1 && drill->pending == 0 && drill->undelivered == 0 &&
                    (done + parked + 1 == drill->entries || done + parked == drill->entries);
    return rc;
}

static void result_metrics(const struct drill *drill,
                           const struct drill_metrics *metrics,
                           struct result *result)
{
    double mean =
        metrics->recovery_count > 0 ? metrics->recovery_seconds / metrics->recovery_count : 0;

    snprintf(
        result->text, sizeof(result->text),
        "redelivered %.0f, failed %.0f, parked %.0f, lost %.0f, recovered %.0f after %.1f s on "
        "average; abandoned: due %.0f, not due yet %.0f (at most %.0f)",
        metrics->redelivered, metrics->retried, metrics->parked, metrics->lost,
        metrics->recovery_count, mean, metrics->due, metrics->not_due, drill->not_due_seen);
    /* A slow machine's living workers give back what they cannot start in time: that is claimed, and no
     * recovery. */
    result->holds = metrics->complete && metrics->redelivered > 0 && metrics->retried > 0 &&
                    metrics->parked == 1 && metrics->lost == 1 &&
                    metrics->recovery_count <= metrics->claimed && metrics->recovery_count > 0 &&
                    metrics->due == 0 && metrics->not_due == 0;
}

static void print_table(const struct result *results, bool passed)
{
    console_outf("\n");
    for (size_t i = 0; i < RESULT_COUNT; i++) {
        console_outf("  %s%s%s  %zu. %s\n        %s\n",
                     console_style(1, results[i].holds ? STYLE_GOOD : STYLE_BAD),
                     results[i].holds ? " holds" : " FAILS", console_style(1, STYLE_END), i + 1,
                     results[i].title, results[i].text);
    }
    console_outf("\n  %s%s%s\n", console_style(1, passed ? STYLE_GOOD : STYLE_BAD),
                 passed ? "Recovery works." : "Recovery does not work.",
                 console_style(1, STYLE_END));
}

static void print_json(const struct result *results, bool passed)
{
    struct buf out;

    buf_init(&out, 1 << 16);
    buf_append_text(&out, "{\"results\":[");
    for (size_t i = 0; i < RESULT_COUNT; i++) {
        buf_appendf(&out, "%s{\"title\":\"%s\",\"holds\":%s,\"text\":", i == 0 ? "" : ",",
                    results[i].title, results[i].holds ? "true" : "false");
        json_text(&out, results[i].text);
        buf_append_text(&out, "}");
    }
    buf_appendf(&out, "],\"passed\":%s}\n", passed ? "true" : "false");
    console_out(buf_bytes(&out));
    buf_release(&out);
}

static int show_results(struct drill *drill, struct impel_error *err)
{
    struct result results[RESULT_COUNT] = {
        [RESULT_TAKEOVER] = {.title = "the dead workers' entries went to the living"},
        [RESULT_SWEEPS] = {.title = "every sweep went on and came full circle"},
        [RESULT_NOTHING_LOST] = {.title = "every entry was acknowledged or parked"},
        [RESULT_METRICS] = {.title = "the metrics tell what happened"},
    };
    struct drill_metrics metrics;
    bool passed = true;
    int rc;

    drill_read_metrics(drill, &metrics);
    result_takeover(drill, &metrics, &results[RESULT_TAKEOVER]);
    result_sweeps(drill, &metrics, &results[RESULT_SWEEPS]);
    rc = result_nothing_lost(drill, &results[RESULT_NOTHING_LOST], err);
    result_metrics(drill, &metrics, &results[RESULT_METRICS]);
    for (size_t i = 0; i < RESULT_COUNT; i++) {
        passed = passed && results[i].holds;
    }
    if (rc >= 0) {
        (drill->options->json ? print_json : print_table)(results, passed);
    }
    return rc < 0 ? rc : passed ? EXIT_DONE : EXIT_FAILED;
}

int command_drill(struct options *options, struct impel_error *err)
{
    struct drill drill;
    int rc;

    if (options->kills >= options->workers) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--kills must be smaller than --workers: somebody has to take over");
    }
    catch_signals();
    rc = drill_open(&drill, options, err);
    if (rc >= 0) {
        rc = play(&drill, err);
    }
    if (rc >= 0 && !drill_stop_workers(&drill)) {
        drill.log_told = true;
        rc = error_set(err, IMPEL_ERR_IO, "a worker did not end cleanly; its log is in %s",
                       drill.folder.path);
    }
    if (rc >= 0) {
        rc = drill_look(&drill, err);
    }
    if (rc >= 0) {
        rc = show_results(&drill, err);
    }
    if (options->keep_scene) {
        console_note("left in place: %s and the streams %s and %s", drill.folder.path, drill.stream,
                     drill.dead_letter);
    }
    drill_close(&drill);
    if (stopped_by != 0) {
        console_note("stopped; what the drill made is %s",
                     options->keep_scene ? "kept" : "removed");
        raise(stopped_by); /* for whoever waits: ended by that signal, as without us */
    }
    return rc;
}
