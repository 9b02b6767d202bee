/* event.h -- what a worker tells about itself while it runs.
 *
 * An event is one thing that happened: entries were delivered, an entry was parked, the store went
 * away, a worker was seen dead. Its `name` is a word that stays the same over versions, for
 * programs; its `text` is a sentence, for people. Whoever wants a log writes one from these; the
 * library itself writes nothing anywhere.
 *
 * THREADS. The callback runs on the thread that runs the worker, between two steps of it. It should
 * be quick (the worker does not beat meanwhile), it must not call back into the worker
 * (impel_worker_stop() excepted), and nothing it is given may be kept: copy what is needed later.
 *
 * More names may be added, and more members at the end: programs skip the names they do not know.
 * `text` and `error` may quote what an entry or a server said. */
#ifndef IMPEL_EVENT_H
#define IMPEL_EVENT_H

#include "impel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum impel_level {
    IMPEL_DEBUG = 0,   /* the ordinary way of entries: delivered, done, renewed */
    IMPEL_INFO = 1,    /* what changes: started, claimed, stopping */
    IMPEL_WARNING = 2, /* what somebody may want to look at: retried, parked, a dead worker */
    IMPEL_ERROR = 3,   /* what somebody has to look at: the store refuses, the worker gives up */
};

/* Memory is the library's and lasts as long as the call. What an event does not tell is empty, 0,
 * 0-0, or -1 where it says so. The library alone makes these: do not go by the size. */
struct impel_event {
    const char *name; /* "delivered", "done", "retried", "parked", ...; never NULL */
    enum impel_level level;
    const char *text; /* one line without a line feed; never NULL */
    struct impel_bytes stream;
    struct impel_bytes group;
    struct impel_bytes consumer; /* the worker that speaks */
    struct impel_bytes subject;  /* another consumer that it is about: the one seen dead */
    struct impel_bytes reason;   /* why it was parked, ... */
    struct impel_bytes error;    /* the handler's or the store's own words, any bytes */
    struct impel_id id;          /* of the entry */
    uint64_t count;              /* for how many entries the event stands; at least 1 */
    int64_t attempt;             /* the entry's delivery counter; 0 = says nothing */
    int64_t delay_ms;            /* until the next attempt; -1 = says nothing */
    int64_t idle_ms;             /* how long the entry had been abandoned; -1 = says nothing */
    uint64_t due;                /* of a sweep: abandoned and due, but nobody was free to take it */
    uint64_t not_due;            /* of a sweep: abandoned, but not idle for long enough yet */
    struct impel_bytes
        target; /* where it went: the consumer that has it now, the copy's ID; what did
                                    not take it: the dead-letter stream */
};

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_EVENT_H */
