/* command_copy.c -- impel copy: streams from one store to another, with all that belongs to them.
 *
 * First everything is looked at, and what stands against a stream's copy is told before anything is
 * written; then stream after stream is built, compared and named (copy.h). One that is refused keeps
 * nobody from the others. */
#include "base/json.h"
#include "base/value.h"
#include "cli/command.h"
#include "cli/copy.h"

#include <stdio.h>
#include <string.h>

enum plan_kind {
    PLAN_COPY,
    PLAN_REPLACE,
    PLAN_THERE,   /* the target has it already, and it is the same */
    PLAN_REFUSED, /* told why */
};

struct plan {
    struct impel_bytes stream, building;
    enum plan_kind kind;
    uint64_t length, pending;
    size_t group_count;
    uint64_t iids; /* of idempotent adds, that the source keeps and no copy can get */
    bool in_pieces;
};

struct copying {
    struct options *options;
    struct store *from, *to;
    struct plan *plans;
    size_t count;
    bool refused; /* one of them was */
    struct progress progress;
    uint64_t done;
};

/* Only this stream is the matter: others can be copied all the same. */
static bool stream_refused(int status)
{
    return session_stream_refused(status) || status == IMPEL_ERR_EXISTS ||
           status == IMPEL_ERR_BUSY || status == IMPEL_ERR_REPLY || status == IMPEL_ERR_LIMIT;
}

/* IMPEL_OK if the next may follow. */
static int refuse(struct copying *copying, struct plan *plan, int rc, const struct impel_error *why)
{
    if (rc >= 0 || !stream_refused(rc)) {
        return rc;
    }
    char quoted[96], named[100];
    bytes_quote(plan->stream, quoted, sizeof(quoted));
    (void)snprintf(named, sizeof(named), "'%s'", quoted);
    progress_end(&copying->progress);
    if (strstr(why->text, named) != NULL) {
        console_error("%s", why->text);
    } else { /* a server's words */
        console_error("stream '%s': %s", quoted, why->text);
    }
    plan->kind = PLAN_REFUSED;
    copying->refused = true;
    return IMPEL_OK;
}

/* ---- one stream ---- */

static struct copy_work
work_of(struct copying *copying, const struct plan *plan, const struct copy_state *source)
{
    return (struct copy_work){
        .from = copying->from,
        .to = copying->to,
        .stream = plan->stream,
        .building = plan->building,
        .source = source,
        .progress = &copying->progress,
        .done = copying->done,
    };
}

static int read_source(struct copying *copying,
                       const struct plan *plan,
                       struct copy_state *source,
                       struct impel_error *err)
{
    char quoted[96];
    int rc = copy_state_read(copying->from, plan->stream, source, err);

    if (rc == IMPEL_ERR_WRONG_TYPE) {
        rc = error_set(err, rc, "the source's key '%s' is no stream",
                       bytes_quote(plan->stream, quoted, sizeof(quoted)));
    }
    if (rc >= 0 && !source->exists) {
        rc = error_set(err, IMPEL_ERR_NOT_FOUND, "the source has no stream '%s'",
                       bytes_quote(plan->stream, quoted, sizeof(quoted)));
    }
    return rc;
}

/* The copy is not what the source is now: because of a change meanwhile, or of something worse? */
static int
explain_difference(struct copying *copying, const struct copy_work *work, struct impel_error *err)
{
    struct impel_error difference = *err;
    struct copy_state now;
    char quoted[96];
    int rc = copy_state_read(copying->from, work->stream, &now, err);

    bool changed = rc >= 0 && !copy_state_equal(&now, work->source);
    copy_state_release(&now);
    if (rc < 0) {
        return rc;
    }
    bytes_quote(work->stream, quoted, sizeof(quoted));
    if (changed && copying->options->force) {
        console_note("stream '%s' changed while it was copied: what came later is missing", quoted);
        return IMPEL_OK;
    }
    if (changed) {
        return error_set(
            err, IMPEL_ERR_BUSY,
            "stream '%s' changed while it was copied: stop what adds to it and works on "
            "it, then copy again (or --force)",
            quoted);
    }
    return error_set(err, IMPEL_ERR_EXISTS, "%s", difference.text);
}

static int give_name(struct copying *copying, const struct plan *plan, struct impel_error *err)
{
    bool replace = plan->kind == PLAN_REPLACE;
    const struct impel_bytes args[] = {bytes_of(replace ? "RENAME" : "RENAMENX"), plan->building,
                                       plan->stream};
    struct request *request = NULL;
    char quoted[96];
    int rc = session_call(copying->to, args, ARRAY_SIZE(args), &request, err);

    if (rc < 0) {
        return rc;
    }
    bool taken = !replace && request->call.reply->integer == 0;
    request_free(request);
    return taken ? error_set(err, IMPEL_ERR_EXISTS,
                             "stream '%s' appeared in the target while it was copied",
                             bytes_quote(plan->stream, quoted, sizeof(quoted)))
                 : IMPEL_OK;
}

static int copy_one(struct copying *copying, struct plan *plan, struct impel_error *err)
{
    struct copy_state source;
    int rc = read_source(copying, plan, &source, err);
    struct copy_work work = work_of(copying, plan, &source);

    rc = rc < 0 ? rc : copy_build(&work, err);
    if (rc >= 0 && !copying->options->no_verify) {
        rc = copy_compare(&work, plan->building, err);
    }
    /* Comparing takes its time, in which another copy may have begun to build there, too. */
    rc = rc < 0 ? rc : copy_compare_heads(&work, plan->building, err);
    if (rc == IMPEL_ERR_EXISTS) {
        rc = explain_difference(copying, &work, err);
    }
    rc = rc < 0 ? rc : give_name(copying, plan, err);
    plan->in_pieces = work.in_pieces;
    copying->done += 2 * (plan->length + plan->pending);
    copy_state_release(&source);
    return rc;
}

/* ---- looking first ---- */

/* What to do with a stream that the target has already. */
static int plan_existing(struct copying *copying,
                         struct plan *plan,
                         const struct copy_state *source,
                         const struct copy_state *target,
                         struct impel_error *err)
{
    const struct options *options = copying->options;
    struct copy_work work = work_of(copying, plan, source);
    int rc = copy_compare(&work, plan->stream, err);

    if (rc != IMPEL_ERR_EXISTS) {
        plan->kind = PLAN_THERE;
        return rc;
    }
    plan->kind = PLAN_REPLACE;
    if (!options->replace) {
        struct impel_error difference = *err;
        return error_set(err, rc, "the target has it already, and %s; --replace overwrites it",
                         difference.text);
    }
    return options->force ? IMPEL_OK : copy_state_alive(copying->to, plan->stream, target, err);
}

static int plan_one(struct copying *copying, struct plan *plan, struct impel_error *err)
{
    const struct options *options = copying->options;
    struct copy_state source;
    struct copy_state target = {.ttl_ms = -1};
    char quoted[96];
    int rc = read_source(copying, plan, &source, err);

    plan->length = source.length;
    plan->pending = source.pending;
    plan->group_count = source.group_count;
    plan->iids = source.idmp_iids > 0 ? (uint64_t)source.idmp_iids : 0;
    if (rc >= 0 && copying->to != NULL) {
        rc = copy_state_read(copying->to, plan->stream, &target, err);
        if (rc == IMPEL_ERR_WRONG_TYPE) {
            rc = error_set(err, rc, "the target's key '%s' is no stream: remove it first",
                           bytes_quote(plan->stream, quoted, sizeof(quoted)));
        }
    }
    if (rc >= 0 && target.exists) {
        rc = plan_existing(copying, plan, &source, &target, err);
    }
    if (rc >= 0 && plan->kind != PLAN_THERE && !options->force) {
        rc = copy_state_alive(copying->from, plan->stream, &source, err);
    }
    copy_state_release(&source);
    copy_state_release(&target);
    return rc;
}

static int plan_all(struct copying *copying, struct impel_error *err)
{
    struct impel_bytes *names = NULL;
    struct arena *arena = &copying->options->arena;
    int rc =
        copy_names(copying->from, &copying->options->streams, arena, &names, &copying->count, err);

    copying->plans = rc < 0 ? NULL : arena_calloc(arena, copying->count + 1, sizeof(struct plan));
    if (rc < 0 || copying->plans == NULL) {
        return rc < 0 ? rc : error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    progress_init(&copying->progress, "looking", 0);
    for (size_t i = 0; rc >= 0 && i < copying->count; i++) {
        struct plan *plan = &copying->plans[i];
        plan->stream = names[i];
        rc = copy_building_name(arena, names[i], &plan->building)
                 ? plan_one(copying, plan, err)
                 : error_set(err, IMPEL_ERR_NOMEM, "out of memory");
        rc = refuse(copying, plan, rc, err);
    }
    progress_end(&copying->progress);
    return rc;
}

/* ---- the whole ---- */

static const char *outcome_of(const struct copying *copying, const struct plan *plan)
{
    if (plan->kind == PLAN_THERE) {
        return "there already";
    }
    if (copying->options->dry_run) {
        return plan->kind == PLAN_REPLACE ? "would be replaced" : "would be copied";
    }
    return plan->kind == PLAN_REPLACE ? "replaced" : "copied";
}

/* What a copy cannot have, before it is made, too. */
static void report_left(const struct copying *copying, const struct plan *plan)
{
    char quoted[96];

    if (plan->iids > 0 && plan->kind < PLAN_THERE) {
        console_note("stream '%s': %s of idempotent adds %s behind: a producer that repeats an add "
                     "at the copy adds it again",
                     bytes_quote(plan->stream, quoted, sizeof(quoted)),
                     counted(plan->iids, "ID", "IDs").text,
                     copying->options->dry_run ? "would stay"
                     : plan->iids == 1         ? "stays"
                                               : "stay");
    }
}

static int report(const struct copying *copying, const struct plan *plan, struct impel_error *err)
{
    const char *outcome = outcome_of(copying, plan);
    char quoted[128];
    struct buf line;

    buf_init(&line, SIZE_MAX / 4);
    if (copying->options->json) {
        buf_append_text(&line, "{\"stream\":");
        json_value(&line, plan->stream);
        buf_appendf(&line,
                    ",\"entries\":%llu,\"groups\":%zu,\"pending\":%llu,\"outcome\":\"%s\","
                    "\"in_pieces\":%s,\"idempotent_ids_left\":%llu}\n",
                    (unsigned long long)plan->length, plan->group_count,
                    (unsigned long long)plan->pending, outcome, plan->in_pieces ? "true" : "false",
                    (unsigned long long)(plan->kind < PLAN_THERE ? plan->iids : 0));
    } else {
        buf_appendf(&line, "%s: %s, %s, %llu pending: %s\n",
                    bytes_quote(plan->stream, quoted, sizeof(quoted)),
                    counted(plan->length, "entry", "entries").text,
                    counted(plan->group_count, "group", "groups").text,
                    (unsigned long long)plan->pending, outcome);
    }
    int rc = console_print(&line, err);
    return rc < 0 ? rc : console_flush(err);
}

static int copy_all(struct copying *copying, struct impel_error *err)
{
    uint64_t total = 0;
    int rc = IMPEL_OK;

    for (size_t i = 0; i < copying->count; i++) {
        const struct plan *plan = &copying->plans[i];
        total += plan->kind < PLAN_THERE ? 2 * (plan->length + plan->pending) : 0;
    }
    copying->done = 0;
    progress_init(&copying->progress, "copying", total);
    for (size_t i = 0; rc >= 0 && i < copying->count; i++) {
        struct plan *plan = &copying->plans[i];
        if (plan->kind < PLAN_THERE && !copying->options->dry_run) {
            rc = refuse(copying, plan, copy_one(copying, plan, err), err);
        }
        if (rc >= 0 && plan->kind != PLAN_REFUSED) {
            progress_end(&copying->progress);
            rc = report(copying, plan, err);
            report_left(copying, plan);
        }
    }
    progress_end(&copying->progress);
    return rc;
}

/* One of the two sides, with the password and the patience that all commands have. */
static int open_side(struct options *options,
                     const char *url,
                     bool must_exist,
                     struct store **out,
                     struct impel_error *err)
{
    options->store = url;
    int rc = options_login(options, err);

    if (rc >= 0) {
        rc =
            must_exist ? session_open_existing(options, out, err) : session_open(options, out, err);
    }
    return rc;
}

int command_copy(struct options *options, struct impel_error *err)
{
    struct copying copying = {.options = options};

    if (options->from == NULL) {
        return command_needs("from", err);
    }
    if (options->to == NULL) { /* which elsewhere may be a stream */
        return error_set(err, IMPEL_ERR_INVALID, "the option --to URL is needed");
    }
    if (strcmp(options->from, options->to) == 0) {
        return error_set(err, IMPEL_ERR_INVALID, "--from and --to are the same store");
    }
    int rc = open_side(options, options->from, true, &copying.from, err);
    rc = rc < 0 ? rc : open_side(options, options->to, options->dry_run, &copying.to, err);
    if (rc == IMPEL_ERR_NOT_FOUND && options->dry_run && copying.from != NULL) {
        rc = IMPEL_OK; /* the target would be made */
    }
    rc = rc < 0 ? rc : plan_all(&copying, err);
    rc = rc < 0 ? rc : copy_all(&copying, err);
    if (rc >= 0 && copying.count == 0 && !options->json) {
        console_note("the source has no streams: there is nothing to copy");
    }
    store_close(copying.from);
    store_close(copying.to);
    return rc < 0 ? rc : copying.refused ? EXIT_FAILED : EXIT_DONE;
}
