/* clock.c -- a library that is loaded in front of a server's own (LD_PRELOAD) and moves its wall clock by
 * the seconds that stand in a file, as an int64, while it runs. Only the wall clock: timers go on.
 *
 * libfaketime does the same, but not to a program whose allocator asks for the time. */
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Mapped, so that a change is seen at once and reading it costs nothing. */
static const volatile int64_t *offset_s;

__attribute__((constructor)) static void find_offset(void)
{
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        void *map = mmap(NULL, sizeof(*offset_s), PROT_READ, MAP_SHARED, fd, 0);
        offset_s = map != MAP_FAILED ? map : NULL;
        close(fd);
    }
}

/* The parameters below have the names of the C library's headers. */
int clock_gettime(clockid_t clock_id, struct timespec *tp)
{
    int rc = (int)syscall(SYS_clock_gettime, clock_id, tp);

    if (rc == 0 && offset_s != NULL &&
        (clock_id == CLOCK_REALTIME || clock_id == CLOCK_REALTIME_COARSE)) {
        tp->tv_sec += *offset_s;
    }
    return rc;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    struct timespec precise;

    (void)tz;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) {
        return -1;
    }
    tv->tv_sec = precise.tv_sec;
    tv->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *timer)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (timer != NULL) {
        *timer = now.tv_sec;
    }
    return now.tv_sec;
}
