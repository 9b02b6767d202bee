/* test_liveness.c -- who is alive: silence counts only while the store was taking beats. */
#include "core/liveness.h"
#include "tap.h"

enum {
    DEAD_AFTER = 5000,
    GAP = 2000,
    START = 1000000,
};

/* Somebody beats every second from `from` to `to`. */
static void others_beat(struct liveness *table, int64_t from, int64_t to)
{
    for (int64_t now = from; now <= to; now += 1000) {
        liveness_note(table, GAP, now);
    }
}

TEST(intervals_follow_dead_after)
{
    CHECK(liveness_interval_ms(5000) == 1000);
    CHECK(liveness_interval_ms(3000) == 750);
    CHECK(liveness_interval_ms(100) == 25);
    CHECK(liveness_interval_ms(1) == 1);
    CHECK(liveness_gap_ms(5000) == 2000);
    CHECK(liveness_gap_ms(200) == 100);
    CHECK(liveness_gap_ms(0) == 1);
}

TEST(a_silent_worker_is_dead_after_its_own_dead_after)
{
    struct liveness table = {0};
    struct liveness_row row = {.beat_ms = START, .dead_after_ms = DEAD_AFTER};
    others_beat(&table, START, START + 5000);
    CHECK(!liveness_dead(&table, &row, START + 4999));
    CHECK(liveness_dead(&table, &row, START + 5000));
    row.dead_after_ms = 6000;
    CHECK(!liveness_dead(&table, &row, START + 5000));
}

TEST(a_stalled_store_condemns_nobody)
{
    struct liveness table = {0};
    struct liveness_row row = {.beat_ms = START, .dead_after_ms = DEAD_AFTER};
    others_beat(&table, START, START);
    /* Nothing was taken for 6.5 s; the first command served is a judge's, who beats first. */
    liveness_note(&table, GAP, START + 6500);
    CHECK(liveness_silence_ms(&table, &row, START + 6500) == 0);
    CHECK(!liveness_dead(&table, &row, START + 6500));
    others_beat(&table, START + 7000, START + 11000);
    CHECK(!liveness_dead(&table, &row, START + 11499));
    CHECK(liveness_dead(&table, &row, START + 11500));
}

TEST(a_clock_step_condemns_nobody)
{
    struct liveness table = {0};
    struct liveness_row row = {.beat_ms = START, .dead_after_ms = DEAD_AFTER};
    others_beat(&table, START, START);
    liveness_note(&table, GAP, START + 10000);
    CHECK(!liveness_dead(&table, &row, START + 10000));

    /* One hour back: the beat is in the future and counts as `since`. */
    int64_t back = START - 3600000 / 4;
    liveness_note(&table, GAP, back);
    CHECK(liveness_silence_ms(&table, &row, back) == 0);
    others_beat(&table, back + 1000, back + 5000);
    CHECK(liveness_dead(&table, &row, back + 5000));
}

TEST(a_gap_of_exactly_the_limit_is_none)
{
    struct liveness table = {.last_ms = START, .since_ms = START};
    CHECK(!liveness_stale(&table, GAP, START + GAP));
    CHECK(liveness_stale(&table, GAP, START + GAP + 1));
    CHECK(liveness_stale(&table, GAP, START - 1));
    struct liveness never = {0};
    CHECK(liveness_stale(&never, GAP, 1));
}

TEST(tokens_are_compared_whole)
{
    struct token a = {{0}};
    struct token b = {{0}};
    CHECK(token_equal(&a, &b));
    b.bytes[TOKEN_SIZE - 1] = 1;
    CHECK(!token_equal(&a, &b));
}

TAP_MAIN
