/* wake.c -- the word that blocked readers sleep on. */
#include "store/lmdb/side.h"

#include <limits.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>

#include <unistd.h>

static void word_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void word_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout, NULL, 0);
}
#else
/* Elsewhere it is looked at every 50 ms. */
static void word_wake(_Atomic uint32_t *word)
{
    (void)word;
}

static void word_wait(_Atomic uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    struct timespec slice = {.tv_nsec = 50000000};
    if (atomic_load(word) == seen) {
        nanosleep(timeout->tv_sec > 0 || timeout->tv_nsec > slice.tv_nsec ? &slice : timeout, NULL);
    }
}
#endif

uint32_t side_word(struct side *side)
{
    (void)side_whole(side);
    return atomic_load(&side->header->wake);
}

void side_wake(struct side *side)
{
    (void)side_whole(side);
    atomic_fetch_add(&side->header->wake, 1);
    if (atomic_load(&side->header->waiters) != 0) {
        word_wake(&side->header->wake);
    }
}

void side_sleep(struct side *side, uint32_t seen, int64_t timeout_ms)
{
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};

    atomic_fetch_add(&side->header->waiters, 1);
    word_wait(&side->header->wake, seen, &timeout);
    (void)side_whole(side); /* much may have happened */
    atomic_fetch_sub(&side->header->waiters, 1);
}
