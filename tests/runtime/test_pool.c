/* test_pool.c -- callbacks on a pool of threads, and inline. Runs under the thread sanitizer too. */
#include "runtime/bench.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

static struct bench bench;

static void open_calls(enum handler_kind kind,
                       uint32_t concurrency,
                       enum impel_outcome (*call)(struct impel_delivery *, void *),
                       void *user)
{
    struct runtime_handler options = {.kind = kind, .call = call, .user = user};
    CHECK(bench_open(&bench, concurrency, &options, NULL) == IMPEL_OK);
}

static enum impel_outcome returns_outcome(struct impel_delivery *delivery, void *user)
{
    (void)delivery;
    return *(enum impel_outcome *)user;
}

static void check_outcomes(enum handler_kind kind)
{
    static const enum worker_outcome want[] = {OUTCOME_DONE, OUTCOME_RETRY, OUTCOME_REJECT};
    enum impel_outcome outcome = IMPEL_DONE;
    open_calls(kind, 1, returns_outcome, &outcome);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        outcome = (enum impel_outcome)i;
        size_t number = bench_start_text(&bench, "n", "1");
        CHECK(bench_wait(&bench, number + 1));
        CHECK(bench.results[number].outcome == want[i]);
        CHECK(bench.results[number].delay_ms == -1);
    }
    bench_close(&bench);
}

TEST(outcomes_come_back_from_the_pool)
{
    check_outcomes(HANDLER_POOL);
}

TEST(outcomes_come_back_inline)
{
    check_outcomes(HANDLER_INLINE);
}

TEST(an_outcome_that_does_not_exist_is_a_retry_and_is_said)
{
    enum impel_outcome outcome = (enum impel_outcome)99;
    open_calls(HANDLER_POOL, 1, returns_outcome, &outcome);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    CHECK(strstr(bench.results[0].error, "does not exist") != NULL);
}

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int inside, inside_max, wanted;
    bool open;
};
#define GATE_INIT                                                              \
    {                                                                          \
        .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER \
    }

/* Waits inside until as many are in as are wanted, or the gate is opened. */
static enum impel_outcome passes_gate(struct impel_delivery *delivery, void *user)
{
    struct gate *gate = user;
    (void)delivery;
    pthread_mutex_lock(&gate->lock);
    gate->inside++;
    gate->inside_max = gate->inside > gate->inside_max ? gate->inside : gate->inside_max;
    gate->open = gate->open || gate->inside == gate->wanted;
    pthread_cond_broadcast(&gate->changed);
    while (!gate->open) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    gate->inside--;
    pthread_mutex_unlock(&gate->lock);
    return IMPEL_DONE;
}

TEST(as_many_run_at_once_as_may)
{
    struct gate gate = GATE_INIT;
    gate.wanted = 8; /* with fewer threads this would stand still */
    open_calls(HANDLER_POOL, 8, passes_gate, &gate);
    for (int i = 0; i < 8; i++) {
        bench_start_text(&bench, "n", "1");
    }
    CHECK(bench_wait(&bench, 8));
    bench_close(&bench);
    CHECK_U64((uint64_t)gate.inside_max, 8);
}

static enum impel_outcome counts_up(struct impel_delivery *delivery, void *user)
{
    atomic_uint *count = user;
    (void)delivery;
    return atomic_fetch_add(count, 1) % 3 == 0 ? IMPEL_RETRY : IMPEL_DONE;
}

TEST(many_pass_through_few_threads)
{
    atomic_uint count = 0;
    open_calls(HANDLER_POOL, 4, counts_up, &count);
    bench_start_many(&bench, BENCH_MAX, 4);
    bench_close(&bench);
    CHECK_U64(count, BENCH_MAX);
}

/* Runs until it is cancelled. */
static enum impel_outcome until_cancelled(struct impel_delivery *delivery, void *user)
{
    struct gate *gate = user;
    pthread_mutex_lock(&gate->lock);
    gate->inside++;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
    while (!atomic_load(&delivery->cancelled)) {
        sched_yield();
    }
    return IMPEL_RETRY;
}

static void wait_inside(struct gate *gate, int count)
{
    pthread_mutex_lock(&gate->lock);
    while (gate->inside < count) {
        pthread_cond_wait(&gate->changed, &gate->lock);
    }
    pthread_mutex_unlock(&gate->lock);
}

TEST(a_running_callback_is_told_that_it_is_cancelled)
{
    struct gate gate = GATE_INIT;
    open_calls(HANDLER_POOL, 2, until_cancelled, &gate);
    size_t lost = bench_start_text(&bench, "n", "1");
    size_t stopped = bench_start_text(&bench, "n", "2");
    wait_inside(&gate, 2);
    bench_cancel(&bench, lost, CANCEL_LOST);
    CHECK(bench_wait(&bench, 1));
    bench_cancel(&bench, stopped, CANCEL_STOP);
    CHECK(bench_wait(&bench, 2));
    bench_close(&bench);
    CHECK(bench.results[lost].outcome == OUTCOME_RETRY);
    CHECK(bench.results[stopped].outcome == OUTCOME_RELEASE);
}

/* A thread gets no signals that are the program's. */
static enum impel_outcome looks_at_its_mask(struct impel_delivery *delivery, void *user)
{
    sigset_t mask;
    (void)delivery;
    (void)user;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    return sigismember(&mask, SIGTERM) && sigismember(&mask, SIGUSR1) &&
                   !sigismember(&mask, SIGSEGV)
               ? IMPEL_DONE
               : IMPEL_REJECT;
}

TEST(threads_of_the_pool_leave_signals_to_the_program)
{
    open_calls(HANDLER_POOL, 1, looks_at_its_mask, NULL);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

TAP_MAIN
