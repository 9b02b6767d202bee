/* liveness.c -- is a worker alive? Silence is counted only while beats were being taken. */
#include "core/liveness.h"

#include <string.h>

bool token_equal(const struct token *a, const struct token *b)
{
    return memcmp(a->bytes, b->bytes, TOKEN_SIZE) == 0;
}

int64_t liveness_interval_ms(int64_t dead_after_ms)
{
    int64_t interval_ms = dead_after_ms / 4;
    interval_ms = interval_ms > BEAT_INTERVAL_MAX_MS ? BEAT_INTERVAL_MAX_MS : interval_ms;
    return interval_ms < 1 ? 1 : interval_ms;
}

int64_t liveness_gap_ms(int64_t dead_after_min_ms)
{
    int64_t gap_ms = dead_after_min_ms / 2;
    gap_ms = gap_ms > LIVENESS_GAP_MAX_MS ? LIVENESS_GAP_MAX_MS : gap_ms;
    return gap_ms < 1 ? 1 : gap_ms;
}

void liveness_note(struct liveness *table, int64_t gap_ms, int64_t now_ms)
{
    if (liveness_stale(table, gap_ms, now_ms)) {
        table->since_ms = now_ms;
    }
    table->last_ms = now_ms;
}

bool liveness_stale(const struct liveness *table, int64_t gap_ms, int64_t now_ms)
{
    return table->last_ms == 0 || now_ms < table->last_ms ||
           sub_saturating(now_ms, table->last_ms) > gap_ms;
}

int64_t
liveness_silence_ms(const struct liveness *table, const struct liveness_row *row, int64_t now_ms)
{
    int64_t heard_ms = row->beat_ms > now_ms ? table->since_ms : row->beat_ms;
    heard_ms = heard_ms < table->since_ms ? table->since_ms : heard_ms;
    int64_t silence_ms = sub_saturating(now_ms, heard_ms);
    return silence_ms < 0 ? 0 : silence_ms;
}

bool liveness_dead(const struct liveness *table, const struct liveness_row *row, int64_t now_ms)
{
    return liveness_silence_ms(table, row, now_ms) >= row->dead_after_ms;
}
