/* side.c -- the side file: making it, joining it, its lock.
 *
 * Races: an opener first tries to be alone. If it is, it makes the contents and then shares; a
 * maker that died halfway left `ready` at 0, and the next opener that is alone makes it again. */
#include "store/lmdb/side.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SIDE_MAGIC 0x656b61772d6c706dU

enum {
    SIDE_GROUPS_AT = 4096,
    SIDE_ROWS_AT = SIDE_GROUPS_AT + SIDE_GROUPS_MAX * (int)sizeof(struct side_group),
    SIDE_SIZE = SIDE_ROWS_AT + SIDE_ROWS_MAX * (int)sizeof(struct side_row),
    SIDE_RESERVED = SIDE_ROWS_AT + 65536, /* so that the first workers can start on a full disk */
    SIDE_JOIN_MS = 10000,                 /* how long another opener may take to make the file */
};

int64_t side_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void side_boot(uint8_t boot[SIDE_BOOT_SIZE])
{
    char text[64] = "";
    size_t digits = 0;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(boot, 0, SIDE_BOOT_SIZE);
    if (file == NULL) {
        return;
    }
    if (fgets(text, sizeof(text), file) == NULL) {
        text[0] = '\0';
    }
    fclose(file);
    for (const char *c = text; *c != '\0' && digits < (size_t)SIDE_BOOT_SIZE * 2; c++) {
        static const char hex[] = "0123456789abcdef";
        const char *digit = strchr(hex, *c);
        if (digit != NULL) {
            boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | (digit - hex));
            digits++;
        }
    }
}

static uint64_t namespace_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* ---- openers ---- */

static int openers_lock(int fd, int type)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : errno;
}

bool side_alone(struct side *side)
{
    return openers_lock(side->fd, F_WRLCK) == 0;
}

void side_share(struct side *side)
{
    (void)openers_lock(side->fd, F_RDLCK);
}

static int lock_init(pthread_mutex_t *lock, struct impel_error *err)
{
    pthread_mutexattr_t attr;
    int code = pthread_mutexattr_init(&attr);

    if (code == 0) {
        pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        code = pthread_mutex_init(lock, &attr);
        pthread_mutexattr_destroy(&attr);
    }
    return code == 0 ? IMPEL_OK
                     : error_set(err, IMPEL_ERR_UNSUPPORTED, "a lock between processes: %s",
                                 strerror(code));
}

int side_reserve(int fd, size_t from, size_t size)
{
    int code;

    do {
        code = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)size) == 0 ? 0 : errno;
    } while (code == EINTR);
    return code == ENOSPC || code == EDQUOT ? code : 0;
}

/* Empties a file that is ours alone. Truncating first frees and zeroes what is in it. The file stays
 * empty where the disk has no room for what everybody writes. */
static int side_clear(struct side *side, struct impel_error *err)
{
    int code = ftruncate(side->fd, 0) < 0 ? errno : side_reserve(side->fd, 0, SIDE_RESERVED);

    if (code == 0 && ftruncate(side->fd, SIDE_SIZE) < 0) {
        code = errno;
    }
    if (code != 0) {
        return error_set(err, code == ENOSPC || code == EDQUOT ? IMPEL_ERR_FULL : IMPEL_ERR_IO,
                         "%s", strerror(code));
    }
    side->header->magic = SIDE_MAGIC;
    side->header->version = SIDE_VERSION;
    side_boot(side->header->boot);
    return IMPEL_OK;
}

/* Makes a file that is ours alone ready for use: with the tables that are in it, if they are whole.
 */
static int side_make(struct side *side, enum side_sync sync, struct impel_error *err)
{
    struct side_header *header = side->header;
    uint8_t boot[SIDE_BOOT_SIZE];
    struct stat st;
    int rc = IMPEL_OK;

    side_boot(boot);
    bool whole =
        fstat(side->fd, &st) == 0 && st.st_size == SIDE_SIZE && atomic_load(&header->ready) == 1 &&
        header->magic == SIDE_MAGIC && header->version == SIDE_VERSION &&
        header->rows_used <= SIDE_ROWS_MAX &&
        side_reserve(side->fd, 0, SIDE_ROWS_AT + header->rows_used * sizeof(struct side_row)) == 0;
    rc = whole ? IMPEL_OK : side_clear(side, err);
    rc = rc < 0 ? rc : lock_init(&header->lock, err);
    if (rc < 0) {
        return rc;
    }
    if (whole && memcmp(boot, header->boot, sizeof(boot)) != 0) {
        side_bury(side);
        memcpy(header->boot, boot, sizeof(boot));
    }
    side_repair(side);
    header->pid_namespace = namespace_of("/proc/self/ns/pid");
    header->time_namespace = namespace_of("/proc/self/ns/time");
    atomic_store(&header->sync, sync == SIDE_SYNC_KEEP ? SIDE_SYNC_FULL : sync);
    atomic_store(&header->waiters, 0);
    atomic_store(&header->holder, 0);
    atomic_store(&header->ready, 1);
    return IMPEL_OK;
}

int side_identify(struct side *side, const uint8_t identity[16], struct impel_error *err)
{
    static const uint8_t unknown[16];
    struct side_header *header = side->header;

    if (memcmp(header->identity, identity, sizeof(header->identity)) == 0) {
        return IMPEL_OK;
    }
    if (memcmp(header->identity, unknown, sizeof(unknown)) != 0) {
        if (!side_alone(side)) {
            return error_set(err, IMPEL_ERR_BUSY,
                             "other processes have it open, but not this file: it was replaced "
                             "under them; stop them first");
        }
        memset(side->groups, 0, SIDE_SIZE - SIDE_GROUPS_AT);
        header->rows_used = header->row_free = 0;
        side_share(side);
    }
    memcpy(header->identity, identity, sizeof(header->identity));
    return IMPEL_OK;
}

/* Joins a file that somebody has open. */
static int side_join(struct side *side, enum side_sync sync, struct impel_error *err)
{
    struct side_header *header = side->header;

    if (header->magic != SIDE_MAGIC || header->version != SIDE_VERSION) {
        return error_set(err, IMPEL_ERR_VERSION,
                         "a program of another version of Impel has the store open (side file "
                         "version %u, this one has %u): stop it first",
                         header->version, SIDE_VERSION);
    }
    if (header->pid_namespace != namespace_of("/proc/self/ns/pid") ||
        header->time_namespace != namespace_of("/proc/self/ns/time")) {
        return error_set(err, IMPEL_ERR_UNSUPPORTED,
                         "a process in another PID or time namespace (another container?) has the "
                         "store open: let one process own it, with `impel serve`");
    }
    if (sync == SIDE_SYNC_FULL) {
        atomic_store(&header->sync, SIDE_SYNC_FULL);
    }
    return IMPEL_OK;
}

/* Is it made? One of another version may have any size: side_join() refuses it. */
static bool joinable(struct side_header *header, off_t size)
{
    return size >= SIDE_GROUPS_AT && atomic_load(&header->ready) == 1 &&
           (size == SIDE_SIZE || header->version != SIDE_VERSION);
}

/* Becomes an opener: makes the contents if nobody else has it open, else joins. */
static int side_enter(struct side *side, enum side_sync sync, struct impel_error *err)
{
    int64_t deadline = side_now_ms() + SIDE_JOIN_MS;

    for (;;) {
        if (side_alone(side)) {
            int rc = side_make(side, sync, err);
            side_share(side);
            return rc;
        }
        if (openers_lock(side->fd, F_RDLCK) == 0) {
            struct stat st;
            if (fstat(side->fd, &st) == 0 && joinable(side->header, st.st_size)) {
                return side_join(side, sync, err);
            }
            (void)openers_lock(side->fd, F_UNLCK); /* its maker died: be the next */
        }
        if (side_now_ms() > deadline) {
            return error_set(err, IMPEL_ERR_BUSY,
                             "another process has had the store for itself for %d s: is it being "
                             "compacted or checked, or is that process stopped?",
                             SIDE_JOIN_MS / 1000);
        }
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

int side_open(struct side *side, const char *path, enum side_sync sync, struct impel_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    void *map = MAP_FAILED;

    *side = (struct side){.fd = -1};
    if (fd < 0) {
        int code = errno;
        return error_set(err,
                         code == ENOSPC || code == EDQUOT                   ? IMPEL_ERR_FULL
                         : code == EACCES || code == EROFS || code == EPERM ? IMPEL_ERR_READ_ONLY
                                                                            : IMPEL_ERR_IO,
                         "%s: %s", path, strerror(code));
    }
    map = mmap(NULL, SIDE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) {
        int code = errno;
        close(fd);
        return error_set(err, IMPEL_ERR_NOMEM, "%s: %s", path, strerror(code));
    }
    side->fd = fd;
    side->header = map;
    side->groups = (struct side_group *)(void *)((char *)map + SIDE_GROUPS_AT);
    side->rows = (struct side_row *)(void *)((char *)map + SIDE_ROWS_AT);
    struct impel_error cause = {0};
    int rc = side_enter(side, sync, &cause);
    if (rc < 0) {
        side_close(side);
        return error_set(err, rc, "%s: %s", path, cause.text);
    }
    return IMPEL_OK;
}

bool side_whole(struct side *side)
{
    struct stat st;

    if (!atomic_load(&side->cut) && !atomic_load(&side->locked) && fstat(side->fd, &st) == 0 &&
        st.st_size < SIDE_SIZE) {
        void *map = mmap(side->header, SIDE_SIZE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        ASSERT(map == (void *)side->header);
        atomic_store(&side->cut, true);
    }
    return !atomic_load(&side->cut);
}

void side_close(struct side *side)
{
    if (side->header != NULL) {
        munmap(side->header, SIDE_SIZE);
    }
    if (side->fd >= 0) {
        close(side->fd);
    }
    *side = (struct side){.fd = -1};
}

/* ---- the lock ---- */

/* Waits for a slice. On a clock that nobody sets; but the thread sanitizer of gcc 12 knows only the
 * older call, and would take every access under the lock for a race. */
static int lock_slice(pthread_mutex_t *lock)
{
#ifdef __SANITIZE_THREAD__
    clockid_t clock = CLOCK_REALTIME;
#else
    clockid_t clock = CLOCK_MONOTONIC;
#endif
    struct timespec until;

    clock_gettime(clock, &until);
    until.tv_nsec += SIDE_LOCK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
#ifdef __SANITIZE_THREAD__
    return pthread_mutex_timedlock(lock, &until);
#else
    return pthread_mutex_clocklock(lock, clock, &until);
#endif
}

int side_lock(struct side *side)
{
    struct side_header *header = side->header;

    (void)side_whole(side);
    int code = pthread_mutex_trylock(&header->lock);

    code = code == EBUSY ? lock_slice(&header->lock) : code;
    if (code == EOWNERDEAD) {
        side_repair(side);
        side->owner_died = true;
        pthread_mutex_consistent(&header->lock);
        code = 0;
    }
    if (code != 0) {
        return IMPEL_ERR_BUSY;
    }
    atomic_store(&side->locked, true);
    atomic_store(&header->held_since, side_now_ms());
    atomic_store(&header->holder, (int32_t)getpid());
    return IMPEL_OK;
}

void side_unlock(struct side *side)
{
    atomic_store(&side->header->holder, 0);
    atomic_store(&side->locked, false);
    pthread_mutex_unlock(&side->header->lock);
}
