/* group_sweep.c -- from the answers to a sweep's requests to events, counters and a report. */
#include "cli/group_sweep.h"

#include "cli/group_facts.h"
#include "cli/session.h"
#include "observe/events.h"

#include <stdlib.h>
#include <string.h>

enum {
    PARK_FAILED_TOLD_MS = 60000,
};

const char *owner_state_name(enum owner_state state)
{
    static const char *const names[] = {
        [OWNER_ME] = "alive",        [OWNER_LIVE] = "alive",        [OWNER_DEAD] = "dead",
        [OWNER_FOREIGN] = "foreign", [OWNER_RELEASED] = "released", [OWNER_NOBODY] = "nobody",
        [OWNER_UNKNOWN] = "unknown",
    };
    return names[state];
}

struct policy group_sweep_policy(const struct policy *policy, unsigned action)
{
    struct policy judged = *policy;

    if (action & CLAIM_HAND_OVER) {
        /* The reading of what was handed over counts once more. */
        judged.max_deliveries = sub_saturating(mul_saturating(judged.max_deliveries, 2), 1);
    }
    return judged;
}

int group_sweep_init(struct group_sweep *sweep,
                     const struct group_sweep_options *options,
                     struct logging *logging,
                     int64_t now_ms)
{
    struct sweep_options machine = {
        .stream = options->stream,
        .group = options->group,
        .policy = group_sweep_policy(&options->policy, options->action),
        .dead_letter = options->dead_letter,
        .interval_ms = options->interval_ms,
        .settle = true,
        .action = options->action,
        .consumer_ttl_ms = options->consumer_ttl_ms > 0 ? options->consumer_ttl_ms : -1,
        .seed = (uint64_t)now_ms,
    };
    *sweep = (struct group_sweep){
        .stream = options->stream,
        .group = options->group,
        .dead_letter = options->dead_letter,
        .policy = options->policy,
        .logging = logging,
        .action = options->action,
        .may_vanish = options->may_vanish,
    };
    sweep->machine = sweep_new(&machine, now_ms);
    sweep->metrics = metrics_new(&sweep->stream, 1, sweep->group);
    if (sweep->machine == NULL || sweep->metrics == NULL) {
        group_sweep_release(sweep);
        return IMPEL_ERR_NOMEM;
    }
    return IMPEL_OK;
}

void group_sweep_release(struct group_sweep *sweep)
{
    sweep_free(sweep->machine);
    metrics_free(sweep->metrics);
    free(sweep->reports);
    arena_release(&sweep->names);
    *sweep = (struct group_sweep){0};
}

int64_t group_sweep_deadline(const struct group_sweep *sweep, int64_t now_ms)
{
    return sweep_deadline(sweep->machine, now_ms);
}

static struct event_context context_of(const struct group_sweep *sweep)
{
    return (struct event_context){
        .streams = &sweep->stream, .dead_letters = &sweep->dead_letter, .group = sweep->group};
}

static void tell(struct group_sweep *sweep, const struct worker_event *event)
{
    struct event_context context = context_of(sweep);
    struct impel_event out;

    metrics_note(sweep->metrics, event);
    event_from_worker(event, &context, &out);
    logging_event(&out, sweep->logging);
}

/* The owner's line in the report, made on first mention; NULL if memory is out (then the report is
 * short of it, and the work goes on). */
static struct owner_report *
report_of(struct group_sweep *sweep, struct impel_bytes name, enum owner_state state)
{
    for (size_t i = 0; i < sweep->report_count; i++) {
        if (bytes_equal(sweep->reports[i].name, name)) {
            return &sweep->reports[i];
        }
    }
    if (sweep->report_count == sweep->report_capacity) {
        size_t capacity = sweep->report_capacity == 0 ? 16 : sweep->report_capacity * 2;
        struct owner_report *reports = realloc(sweep->reports, capacity * sizeof(*reports));
        if (reports == NULL) {
            return NULL;
        }
        sweep->reports = reports;
        sweep->report_capacity = capacity;
    }
    struct owner_report *report = &sweep->reports[sweep->report_count];
    *report = (struct owner_report){.state = state};
    if (!arena_copy(&sweep->names, name, &report->name)) {
        return NULL;
    }
    sweep->report_count++;
    return report;
}

/* With CLAIM_PARK both kinds are parked; the limit tells them apart. */
static struct impel_bytes
park_reason(const struct group_sweep *sweep, const struct request *claim, size_t i)
{
    int64_t deliveries = claim->claim_from.parked[i].deliveries;
    bool limit = policy_exhausted(&claim->claim_from.policy, deliveries);

    return bytes_of((sweep->action & CLAIM_PARK) != 0 && !limit ? "abandoned" : "max-deliveries");
}

static void tell_moved(struct group_sweep *sweep, const struct request *claim, size_t i)
{
    const struct moved *moved = &claim->claim_from.moved[i];
    bool requeued = (sweep->action & CLAIM_REQUEUE) != 0;
    /* What was handed back was not abandoned. */
    int64_t idle_ms = moved->idle_ms > IDLE_MAX_MS ? -1 : moved->idle_ms;
    char copy[ID_TEXT_SIZE];
    struct impel_event event;

    /* Counted like what a worker takes over. */
    metrics_note(sweep->metrics,
                 &(struct worker_event){
                     .kind = EVENT_CLAIMED, .count = 1, .id = moved->id, .idle_ms = idle_ms});
    event_init(&event, requeued ? "requeued" : "handed-over", IMPEL_DEBUG,
               requeued ? "an abandoned entry is at the end of its stream again"
                        : "an abandoned entry was given to another consumer");
    event.stream = sweep->stream;
    event.group = sweep->group;
    event.subject = claim->claim_from.owner;
    event.target = requeued ? bytes_of(id_format(moved->copy, copy)) : claim->claim_from.heir;
    event.id = moved->id;
    event.attempt = moved->deliveries;
    event.idle_ms = idle_ms;
    logging_event(&event, sweep->logging);
}

/* A line for each entry would drown all others: that is for debugging. */
static void take_moved(struct group_sweep *sweep, const struct request *claim)
{
    bool requeued = (sweep->action & CLAIM_REQUEUE) != 0;
    struct impel_event event;

    for (size_t i = 0; i < claim->claim_from.moved_count; i++) {
        tell_moved(sweep, claim, i);
    }
    if (claim->claim_from.moved_count > 0) {
        event_init(&event, "recovered", IMPEL_INFO,
                   requeued ? "abandoned entries are at the end of their stream again"
                            : "abandoned entries were given to another consumer");
        event.stream = sweep->stream;
        event.group = sweep->group;
        event.subject = claim->claim_from.owner;
        event.target = requeued ? (struct impel_bytes){0} : claim->claim_from.heir;
        event.count = claim->claim_from.moved_count;
        logging_event(&event, sweep->logging);
    }
    if (claim->claim_from.other_groups && !sweep->refused_told) {
        event_init(&event, "requeue-refused", IMPEL_WARNING,
                   "the stream has another group, to which requeued entries would be new work: "
                   "nothing is requeued without --all-groups");
        event.stream = sweep->stream;
        event.group = sweep->group;
        logging_event(&event, sweep->logging);
    }
    sweep->refused_told = claim->claim_from.other_groups;
}

static void take_settled(struct group_sweep *sweep, const struct request *claim)
{
    for (size_t i = 0; i < claim->claim_from.parked_count; i++) {
        tell(sweep, &(struct worker_event){.kind = EVENT_PARKED,
                                           .count = 1,
                                           .id = claim->claim_from.parked[i].id,
                                           .attempt = claim->claim_from.parked[i].deliveries,
                                           .name = claim->claim_from.owner,
                                           .reason = park_reason(sweep, claim, i)});
    }
    for (size_t i = 0; i < claim->claim_from.reaped_count; i++) {
        tell(sweep, &(struct worker_event){.kind = EVENT_LOST_WORK,
                                           .count = 1,
                                           .id = claim->claim_from.reaped[i].id,
                                           .attempt = claim->claim_from.reaped[i].deliveries,
                                           .name = claim->claim_from.owner});
    }
}

/* Once a minute: the same entries fail in every pass. */
static void tell_park_failed(struct group_sweep *sweep, const struct request *claim, int64_t now_ms)
{
    if (claim->claim_from.park_failed > 0 &&
        (sweep->park_failed_ms == 0 || now_ms - sweep->park_failed_ms >= PARK_FAILED_TOLD_MS)) {
        const struct worker_event failed = {.kind = EVENT_PARK_FAILED,
                                            .count = claim->claim_from.park_failed,
                                            .text = claim->claim_from.park_error.text};
        struct event_context context = context_of(sweep);
        struct impel_event event;

        sweep->park_failed_ms = now_ms;
        event_from_worker(&failed, &context, &event);
        if (sweep->action & CLAIM_REQUEUE) {
            event.text = "an entry could not be requeued or parked and stays pending";
        }
        logging_event(&event, sweep->logging);
    }
}

static void take_claim(struct group_sweep *sweep, const struct request *claim, int64_t now_ms)
{
    struct owner_report *report =
        report_of(sweep, claim->claim_from.owner, claim->claim_from.state);

    take_settled(sweep, claim);
    tell_park_failed(sweep, claim, now_ms);
    take_moved(sweep, claim);
    if (report != NULL) {
        report->state = claim->claim_from.state;
        report->due += claim->claim_from.due;
        report->not_due += claim->claim_from.not_due;
        report->parked += claim->claim_from.parked_count;
        report->park_failed += claim->claim_from.park_failed;
        report->reaped += claim->claim_from.reaped_count;
        report->moved += claim->claim_from.moved_count;
    }
}

static void take_look(struct group_sweep *sweep, const struct request *look)
{
    if (!look->look.stamped) {
        return;
    }
    arena_release(&sweep->names);
    sweep->report_count = 0;
}

/* A pass that did not see everybody is no whole one, which nobody would guess. */
static void tell_left_out(struct group_sweep *sweep)
{
    size_t left_out = sweep_left_out(sweep->machine);
    struct impel_event event;

    if (left_out > 0 && !sweep->left_out_told) {
        event_init(&event, "sweep-partial", IMPEL_WARNING,
                   "the group has more consumers than one pass walks: the rest waits until some of "
                   "them hold nothing; delete those that are gone (--consumer-ttl)");
        event.stream = sweep->stream;
        event.group = sweep->group;
        event.count = left_out;
        logging_event(&event, sweep->logging);
    }
    sweep->left_out_told = left_out > 0;
}

/* The end of a pass: says so, and says who left what behind, if that changed. */
static void pass_over(struct group_sweep *sweep, uint64_t due, uint64_t not_due)
{
    sweep->passes++;
    tell_left_out(sweep);
    tell(sweep,
         &(struct worker_event){.kind = EVENT_SWEPT, .count = 1, .due = due, .not_due = not_due});
    for (size_t i = 0; due != sweep->due_told && i < sweep->report_count; i++) {
        const struct owner_report *report = &sweep->reports[i];
        struct impel_event event;
        if (report->due == 0) {
            continue;
        }
        event_init(&event, "abandoned", IMPEL_WARNING,
                   "abandoned entries wait for a worker to take them over");
        event.stream = sweep->stream;
        event.group = sweep->group;
        event.subject = report->name;
        event.reason = bytes_of(owner_state_name(report->state));
        event.count = report->due;
        logging_event(&event, sweep->logging);
    }
    sweep->due_told = due;
}

struct request *group_sweep_next(struct group_sweep *sweep, int64_t now_ms)
{
    struct request *request = sweep_next(sweep->machine, 0, false, now_ms);
    uint64_t due, not_due;

    if (sweep_report(sweep->machine, &due, &not_due)) {
        pass_over(sweep, due, not_due);
    }
    return request;
}

bool group_sweep_missing(const struct group_sweep *sweep)
{
    return sweep->status == IMPEL_ERR_NO_GROUP || sweep->status == IMPEL_ERR_WRONG_TYPE;
}

void group_sweep_failed(struct group_sweep *sweep, const struct request *request)
{
    int before = sweep->status;

    sweep->status = request->status;
    session_failure(request, &sweep->error);
    if (sweep->status != before && !(sweep->may_vanish && group_sweep_missing(sweep))) {
        tell(sweep, &(struct worker_event){
                        .kind = EVENT_STORE_ERROR, .count = 1, .text = sweep->error.text});
    }
}

void group_sweep_done(struct group_sweep *sweep, struct request *request, int64_t now_ms)
{
    if (request->status < 0) {
        group_sweep_failed(sweep, request);
    } else {
        if (sweep->status < 0) {
            tell(sweep, &(struct worker_event){.kind = EVENT_STORE_BACK, .count = 1});
        }
        sweep->status = IMPEL_OK;
        if (request->kind == REQUEST_LOOK) {
            take_look(sweep, request);
        } else if (request->kind == REQUEST_CLAIM_FROM) {
            take_claim(sweep, request, now_ms);
        } else if (request->kind == REQUEST_DROP && request->leave.left) {
            tell(sweep, &(struct worker_event){.kind = EVENT_CONSUMER_DROPPED,
                                               .count = 1,
                                               .name = request->leave.name});
        }
    }
    sweep_done(sweep->machine, request, now_ms);
    request_free(request);
}
