/* await.c -- waiting in tests. */
#include "await.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

#include <limits.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void wake(_Atomic int *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void await_set(_Atomic int *word, int value)
{
    atomic_store(word, value);
    wake(word);
}

void await_count(_Atomic int *word)
{
    atomic_fetch_add(word, 1);
    wake(word);
}

void await_change(_Atomic int *word, int seen, int64_t timeout_ms)
{
    struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000};

    syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout_ms < 0 ? NULL : &timeout, NULL, 0);
}

bool await_value(_Atomic int *word, int value, int64_t timeout_ms)
{
    int64_t deadline_ms = now_ms() + timeout_ms;
    int64_t left_ms = timeout_ms;
    int is = atomic_load(word);

    while (is != value && left_ms > 0) {
        await_change(word, is, left_ms);
        is = atomic_load(word);
        left_ms = deadline_ms - now_ms();
    }
    return is == value;
}

void await_clock_us(int64_t us)
{
    struct itimerspec when = {.it_value = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}};
    uint64_t times = 0;
    int fd = us > 0 ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)timerfd_settime(fd, 0, &when, NULL);
        (void)!read(fd, &times, sizeof(times));
        close(fd);
    }
}
