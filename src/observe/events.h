/* events.h -- what the state machine reports, in the words of the public event.
 *
 * One table: a kind of worker event, its name, how much it matters, a sentence. Counting is
 * metrics.h's, writing lines is log.h's. */
#ifndef IMPEL_OBSERVE_EVENTS_H
#define IMPEL_OBSERVE_EVENTS_H

#include "core/worker.h"
#include "impel/event.h"

/* Who speaks. Borrowed. */
struct event_context {
    const struct impel_bytes *streams;
    const struct impel_bytes *dead_letters; /* of each; NULL if unknown */
    struct impel_bytes group;
    struct impel_bytes consumer;
};

/* How much a kind matters: asked first, so that nobody makes an event that nobody wants. */
enum impel_level event_level(enum worker_event_kind kind);
/* Fills in `out`, which borrows from all three. */
void event_from_worker(const struct worker_event *event,
                       const struct event_context *context,
                       struct impel_event *out);
/* An event with nothing but name, level and sentence. */
void event_init(struct impel_event *event,
                const char *name,
                enum impel_level level,
                const char *text);

#endif /* IMPEL_OBSERVE_EVENTS_H */
