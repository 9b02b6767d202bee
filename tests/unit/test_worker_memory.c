/* test_worker_memory.c -- every allocation of a worker's life fails once: it goes on without, or
 * stops with exit code 1, but it neither crashes nor (under the sanitizers) leaks.
 *
 * Linked with the allocator's functions wrapped; only what the worker itself asks for can fail. */
#include "hand.h"

#include <stdlib.h>

/* The linker's names, not ours. NOLINTBEGIN(readability-identifier-naming) */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static uint64_t allocations; /* so far, in this life */
static uint64_t failing;     /* which of them fails; 0 = none */

static bool fails(void)
{
    return hand_inside && ++allocations == failing;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

/* NOLINTEND(readability-identifier-naming) */

static void list_stray(struct request *pending, uint64_t ms)
{
    pending->pending.rows = arena_calloc(&pending->arena, 1, sizeof(*pending->pending.rows));
    pending->pending.row_count = 1;
    pending->pending.rows[0].id.ms = ms;
    pending->pending.rows[0].owner = pending->pending.owner;
    pending->pending.rows[0].deliveries = 1;
    hand_reply(pending);
}

static void answer(uint64_t turn)
{
    static const struct hand_owner owners[] = {
        {"w", 3, OWNER_DEAD}, {"f", 2, OWNER_FOREIGN}, {"e", 0, OWNER_DEAD}, {NULL, 0, 0}};

    for (size_t left = hand_count(REQUEST_READ); left > 0; left--) {
        hand_deliver(hand_take(REQUEST_READ), 0, 1000 + turn * 10, turn < 10 ? 3 : 0);
    }
    for (size_t left = hand_count(REQUEST_LOOK); left > 0; left--) {
        hand_look(hand_take(REQUEST_LOOK), owners);
    }
    for (size_t left = hand_count(REQUEST_CLAIM_FROM); left > 0; left--) {
        hand_claim(hand_take(REQUEST_CLAIM_FROM), turn < 10 ? 5000 + turn : 0, 2, 0);
    }
    for (size_t left = hand_count(REQUEST_PENDING); left > 0; left--) {
        list_stray(hand_take(REQUEST_PENDING), 9000 + turn);
    }
    for (enum request_kind kind = REQUEST_ADD; kind <= REQUEST_CALL; kind++) {
        hand_ok_all(kind);
    }
}

/* A short life in which everything happens. Returns how many allocations it took. */
static uint64_t live(uint64_t failing_now)
{
    struct worker_options options = hand_options();
    options.concurrency = 4;
    options.prefetch = 2;
    options.timeout_ms = 5000;

    allocations = 0;
    failing = failing_now;
    hand_start(&options);
    for (uint64_t turn = 0; turn < 60 && hand.worker != NULL && !hand.stopped; turn++) {
        answer(turn);
        for (size_t i = 0; i < hand.started_count && !hand.stopped; i++) {
            if (hand.started[i] != NULL && i % 5 != 4) { /* each fifth is never heard of */
                hand_outcome_of(hand.started[i], (enum worker_outcome)(i % 4), -1, "why");
            }
        }
        if (turn == 30) {
            hand_inside = true;
            worker_stop(hand.worker, hand.now_ms);
            hand_inside = false;
        }
        hand_advance(turn < 30 ? 400 : 1500);
    }
    CHECK(hand.worker == NULL || hand.stopped);
    CHECK(failing_now > 0 || hand.events[EVENT_STORE_ERROR] == 0);
    hand_end();
    return allocations;
}

TEST(no_failed_allocation_is_more_than_an_error)
{
    uint64_t all = live(0);
    CHECK(all > 200);
    for (uint64_t i = 1; i <= all; i++) {
        live(i);
    }
}

TAP_MAIN
