/* events.c -- the table of worker events. */
#include "observe/events.h"

struct event_row {
    const char *name; /* for programs: never changes */
    enum impel_level level;
    const char *text; /* for people, where the event brings no text of its own */
};

static const struct event_row event_rows[] = {
    [EVENT_STARTED] = {"started", IMPEL_INFO, "working on the stream"},
    [EVENT_DELIVERED] = {"delivered", IMPEL_DEBUG, "entries were read"},
    [EVENT_CLAIMED] = {"claimed", IMPEL_INFO, "an abandoned entry was taken over"},
    [EVENT_REDELIVERED] = {"redelivered", IMPEL_DEBUG, "an entry is handled again"},
    [EVENT_DONE] = {"done", IMPEL_DEBUG, "entries were handled"},
    [EVENT_LATE_ACK] = {"late-ack", IMPEL_WARNING,
                        "an entry was finished, but was no longer pending here"},
    [EVENT_RETRIED] = {"retried", IMPEL_WARNING, "an entry failed and will be tried again"},
    [EVENT_TIMED_OUT] = {"timed-out", IMPEL_WARNING, "a handler took too long and is ended"},
    [EVENT_PARKED] = {"parked", IMPEL_WARNING, "an entry was moved to the dead-letter stream"},
    [EVENT_PARK_FAILED] = {"park-failed", IMPEL_ERROR,
                           "an entry could not be parked and stays pending"},
    [EVENT_LOST_WORK] = {"lost-work", IMPEL_ERROR,
                         "an entry was deleted from the stream before anybody had handled it"},
    [EVENT_LOST_ENTRY] = {"lost-entry", IMPEL_WARNING,
                          "an entry is no longer ours; its handler is ended"},
    [EVENT_RELEASED] = {"released", IMPEL_INFO, "entries were given back"},
    [EVENT_RENEWED] = {"renewed", IMPEL_DEBUG, "entries in hand were renewed"},
    [EVENT_SWEPT] = {"swept", IMPEL_DEBUG, "looked for abandoned entries"},
    [EVENT_WORKER_DEAD] = {"worker-dead", IMPEL_WARNING, "a worker is silent and taken for dead"},
    [EVENT_CONSUMER_DROPPED] = {"consumer-dropped", IMPEL_INFO,
                                "a dead consumer that held nothing was deleted"},
    [EVENT_GROUP_CREATED] = {"group-created", IMPEL_INFO, "the group was created"},
    [EVENT_GROUP_LOST] = {"group-lost", IMPEL_ERROR,
                          "the group is gone; all of its work is dropped"},
    [EVENT_STORE_ERROR] = {"store-error", IMPEL_ERROR, "the store refused a request"},
    [EVENT_STORE_BACK] = {"store-back", IMPEL_INFO, "the store answers again"},
    [EVENT_NAME_TAKEN] = {"name-taken", IMPEL_WARNING,
                          "another worker is alive under this name; waiting"},
    [EVENT_REPLACED] = {"replaced", IMPEL_ERROR,
                        "another worker runs under this name now; this one stops"},
    [EVENT_WAITING_FOR] = {"waiting-for", IMPEL_INFO, "waiting for the last of the work"},
    [EVENT_STOPPING] = {"stopping", IMPEL_INFO, "stopping: running handlers may finish"},
};

static const struct event_row *row_of(enum worker_event_kind kind)
{
    ASSERT((size_t)kind < ARRAY_SIZE(event_rows) && event_rows[kind].name != NULL);
    return &event_rows[kind];
}

enum impel_level event_level(enum worker_event_kind kind)
{
    return row_of(kind)->level;
}

void event_init(struct impel_event *event,
                const char *name,
                enum impel_level level,
                const char *text)
{
    *event = (struct impel_event){
        .name = name, .level = level, .text = text, .count = 1, .delay_ms = -1, .idle_ms = -1};
}

void event_from_worker(const struct worker_event *event,
                       const struct event_context *context,
                       struct impel_event *out)
{
    const struct event_row *row = row_of(event->kind);
    event_init(out, row->name, row->level, row->text);
    out->stream = context->streams[event->stream_index];
    out->group = context->group;
    out->consumer = context->consumer;
    out->reason = event->reason;
    out->id = event->id;
    out->count = event->count > 0 ? event->count : 1;
    out->attempt = event->attempt;
    if (event->kind != EVENT_GROUP_CREATED) {
        out->subject = event->name; /* there it is the group, which is told anyway */
    }
    if (event->text != NULL) {
        out->error = bytes_of(event->text);
    }
    if (event->kind == EVENT_RETRIED || event->kind == EVENT_NAME_TAKEN) {
        out->delay_ms = event->delay_ms;
    }
    if (event->kind == EVENT_PARK_FAILED && context->dead_letters != NULL) {
        out->target = context->dead_letters[event->stream_index];
    }
    if (event->kind == EVENT_CLAIMED) {
        out->idle_ms = event->idle_ms;
    }
    if (event->kind == EVENT_SWEPT) {
        out->due = event->due;
        out->not_due = event->not_due;
    }
}
