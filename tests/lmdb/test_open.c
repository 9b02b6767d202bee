/* test_open.c -- opening a file while others close it.
 *
 * The parent never has the store open while it forks: a child opens its own. */
#include "await.h"
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/side.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void add_one(const char *url)
{
    struct store *store = help_open(url);

    CHECK(help_add(store, "s", ID_MIN, "one") == IMPEL_OK);
    store_close(store);
}

static uint64_t length_of(const char *url)
{
    struct store *store = help_open(url);
    struct request *info = help_request(REQUEST_INFO, "s", "");

    CHECK(help_run(store, info) == IMPEL_OK);
    uint64_t length = info->info.length;
    request_free(info);
    store_close(store);
    return length;
}

/* Opens, adds one entry and closes, `rounds` times. */
static pid_t opener_start(const char *url, int rounds)
{
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct impel_error err = {0};
        struct store *store = NULL;
        for (int i = 0; i < rounds; i++) {
            if (store_open(url, NULL, &store, &err) < 0) {
                printf("# open %d of %d: %s\n", i + 1, rounds, err.text);
                (void)fflush(stdout);
                _exit(99);
            }
            if (help_add(store, "s", ID_MIN, "one") < 0) {
                _exit(98);
            }
            store_close(store);
        }
        _exit(0);
    }
    CHECK(pid > 0);
    return pid;
}

static void opener_end(pid_t pid)
{
    int status = 0;

    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFEXITED(status));
    CHECK_U64(WEXITSTATUS(status), 0);
}

/* ---- the last to close, stopped where it hurts ---- */

enum {
    LOCK_FILE_HEAD = 4096,
    READERS_LOCK_AT = 8, /* in LMDB's lock file, from 0.9.11 on */
    WRITER_LOCK_AT = 64,
};

/* The lock is none any more, whether LMDB saw to that or not (it does from 0.9.26 on). */
static void destroy_lock(void *at)
{
    pthread_mutex_t *lock = at;
    int code = pthread_mutex_trylock(lock);

    if (code == 0) {
        CHECK(pthread_mutex_unlock(lock) == 0);
        CHECK(pthread_mutex_destroy(lock) == 0);
        code = EINVAL;
    }
    CHECK(code == EINVAL);
}

/* Does it wait for a lock on a file? Fails the test if it has ended. */
static bool waits_for_lock(pid_t pid)
{
    char line[256], waiter[64];
    bool found = false;
    siginfo_t ended = {0};
    FILE *file = fopen("/proc/locks", "re");

    CHECK(file != NULL);
    CHECK(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0);
    (void)snprintf(waiter, sizeof(waiter), " %d ", (int)pid);
    while (!found && fgets(line, sizeof(line), file) != NULL) {
        found = strstr(line, "-> POSIX") != NULL && strstr(line, waiter) != NULL;
    }
    (void)fclose(file);
    return found;
}

TEST(whoever_closed_last_takes_lmdbs_locks_along)
{
    char *url = strdup(help_url("last.db", "?sync=process"));
    struct flock alone = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    struct side side;

    add_one(url);
    CHECK(side_open(&side, help_path("last.db-wake"), SIDE_SYNC_KEEP, NULL) == IMPEL_OK);
    /* As LMDB closes an environment that nobody else has open: alone with its lock file it destroys the
     * locks in there. The side file is closed after it. */
    int fd = open(help_path("last.db-lock"), O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_SETLK, &alone) == 0);
    uint8_t *head = mmap(NULL, LOCK_FILE_HEAD, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(head != MAP_FAILED);
    destroy_lock(head + READERS_LOCK_AT);
    destroy_lock(head + WRITER_LOCK_AT);
    /* And one who opens it just then gets to share it, so takes it for made. */
    pid_t pid = opener_start(url, 1);
    int64_t deadline = help_now_ms() + 20000;
    while (!waits_for_lock(pid)) {
        CHECK(help_now_ms() < deadline);
        await_clock_us(1000);
    }
    CHECK(munmap(head, LOCK_FILE_HEAD) == 0);
    CHECK(close(fd) == 0);
    side_close(&side);
    opener_end(pid);
    CHECK_U64(length_of(url), 2);
    CHECK(lmdb_check(help_path("last.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
    free(url);
}

/* ---- many at once ---- */

enum {
    OPENERS = 4,
    ROUNDS = 50,
};

TEST(processes_open_and_close_as_fast_as_they_can)
{
    char *url = strdup(help_url("many.db", "?sync=process"));
    pid_t pids[OPENERS];

    for (int i = 0; i < OPENERS; i++) {
        pids[i] = opener_start(url, ROUNDS);
    }
    for (int i = 0; i < OPENERS; i++) {
        opener_end(pids[i]);
    }
    CHECK_U64(length_of(url), (uint64_t)OPENERS * ROUNDS);
    CHECK(lmdb_check(help_path("many.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
    free(url);
}

TAP_MAIN
