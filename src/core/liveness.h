/* liveness.h -- is a worker alive? The first of the two clocks, as pure functions.
 *
 * A group has a *workers table*: a row per worker (its last beat, its token, its dead-after) and
 * two times for the table as a whole, `last` and `since`. Silence only counts while the store was
 * demonstrably taking beats: when beats stop arriving from everybody (a stalled, restarted, paused
 * or full store) or the store's clock steps back, `since` moves up to now and nobody looks dead.
 *
 * All times are the store's own clock in milliseconds. Each store keeps the rows in its own way and
 * calls these functions inside its atomic step. */
#ifndef IMPEL_CORE_LIVENESS_H
#define IMPEL_CORE_LIVENESS_H

#include "base/base.h"

enum {
    TOKEN_SIZE = 16, /* an instance token: random bytes, new for every start */
    LIVENESS_GAP_MAX_MS =
        2000, /* a longer pause between any two beats says nothing about anybody */
    BEAT_INTERVAL_MAX_MS = 1000,
};

struct token {
    uint8_t bytes[TOKEN_SIZE];
};

struct liveness {
    int64_t last_ms;  /* when the last beat of anybody was taken; 0 = never */
    int64_t since_ms; /* since when beats have been taken without a gap */
};

struct liveness_row {
    int64_t beat_ms;
    int64_t dead_after_ms; /* the row's own worker's setting: it is judged by it */
    struct token token;
};

bool token_equal(const struct token *a, const struct token *b);
/* How often a worker with this dead-after beats: min(1 s, dead_after / 4), at least 1 ms. */
int64_t liveness_interval_ms(int64_t dead_after_ms);
/* The longest pause between beats that still counts as "taking beats": min(2 s, half of the
 * smallest dead-after in the table, the beating worker's own included). */
int64_t liveness_gap_ms(int64_t dead_after_min_ms);
/* Notes that a beat (anybody's) is taken now. Call it before the beating row itself is written and
 * before anybody is judged. */
void liveness_note(struct liveness *table, int64_t gap_ms, int64_t now_ms);
/* True if `last` is too old (or in the future) for any verdict: what status and dry runs, which do
 * not beat, call "unknown". */
bool liveness_stale(const struct liveness *table, int64_t gap_ms, int64_t now_ms);
/* now - max(beat, since), never negative; a beat later than now counts as `since`. */
int64_t
liveness_silence_ms(const struct liveness *table, const struct liveness_row *row, int64_t now_ms);
bool liveness_dead(const struct liveness *table, const struct liveness_row *row, int64_t now_ms);

#endif /* IMPEL_CORE_LIVENESS_H */
