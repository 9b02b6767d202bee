/* native.h -- the store port's fenced steps as commands: IMPEL.BEAT, IMPEL.CLAIM, ...
 *
 * Impel's own workers may use this server as their store. On Redis each fenced step is a script;
 * here it is one command that takes the words of that script and answers as it does, so that the
 * same client code serves both:
 *
 *     IMPEL.NAME  numkeys key...  group consumer token dead-after old  words of the step...
 *
 * The keys are the stream, a name that only scripts need, for CLAIM, PARK and REPLAY the dead-letter
 * stream, for REPLAY also the audit stream, and for CLAIM, LOOK and PENDING one more name that only
 * scripts need; for READ all of them are streams. `token` is hexadecimal, `old` is ignored. The answer is
 * an array that begins with the store's time in unix ms, or an error: REPLACED, FENCED, NOGROUP,
 * WRONGTYPE. */
#ifndef IMPEL_SERVER_NATIVE_H
#define IMPEL_SERVER_NATIVE_H

#include "server/engine.h"

struct native {
    const char *name; /* "impel.beat" */
    int words_min;    /* behind `old` */
    bool writes;
    /* Reads the words into the request; false: they make no sense. */
    bool (*parse)(struct request *request, const struct impel_bytes *words, size_t count);
    /* Fills the answer, whose first item is the time; false: no memory. */
    bool (*answer)(const struct request *request, struct value *answer, struct arena *arena);
    enum request_kind kind;
};
extern const struct native native_table[]; /* ended by a row without a name */

/* Carries one out in the transaction. As engine_call(). */
int engine_native(struct engine *engine,
                  const struct native *native,
                  const struct impel_bytes *args,
                  size_t arg_count,
                  struct value **reply);

#endif /* IMPEL_SERVER_NATIVE_H */
