/* test_drop.c -- a consumer wakes up and reads in the very moment in which a sweep, having seen it hold
 * nothing, deletes it (D26): thousands of times, on a Redis and on a file that both have open. Nothing
 * that it was given is ever dropped with it.
 *
 * Each race is arranged: the sweep says that its next step is the deletion; the consumer reads when it
 * hears that, and each of them takes a random while. Which of the two comes first is the store's. */
#include "await.h"
#include "core/sweep.h"
#include "lmdb/help.h"
#include "redis_server.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    QUICK = 300,
    SOAK = 10000,
    PATIENCE_MS = 60000,
    PAUSE_US = 250, /* about as long as a process takes to wake up and ask */
};

struct shared {
    _Atomic int about;   /* how often the deletion was about to be sent */
    _Atomic int over;    /* how often it was answered */
    _Atomic int deleted; /* the consumer was gone before it read */
    _Atomic int kept;    /* it had read before */
    _Atomic int stop;
};

static void ignore_done(struct request *request)
{
    (void)request;
}

/* Now and then, so that each of the two comes first sometimes. */
static void pause_perhaps(uint64_t *dice)
{
    uint64_t pause_us = random_next(dice) % ((uint64_t)2 * PAUSE_US);

    if (pause_us > PAUSE_US) {
        await_clock_us((int64_t)pause_us - PAUSE_US);
    }
}

/* Sweeps without a pause and deletes whoever holds nothing, however short ago it asked. */
_Noreturn static void sweep_on(struct shared *shared, const char *url)
{
    struct sweep_options options = {
        .stream = bytes_of("s"),
        .group = bytes_of("g"),
        .policy = {.dead_after_ms = 1000, .min_idle_ms = 60000, .max_deliveries = 5},
        .dead_letter = bytes_of("s:dead"),
        .consumer_ttl_ms = 0,
    };
    struct store *store = help_open(url);
    struct sweep *sweep = sweep_new(&options, help_now_ms());
    uint64_t dice = 1;

    while (atomic_load(&shared->stop) == 0) {
        struct request *request = sweep_next(sweep, 0, false, help_now_ms());
        if (request == NULL) {
            sweep_hurry(sweep, help_now_ms());
            continue;
        }
        bool drop = request->kind == REQUEST_DROP;
        if (drop) {
            await_count(&shared->about);
            pause_perhaps(&dice);
        }
        request->done = ignore_done;
        if (store_wait(store, request, PATIENCE_MS) < 0) {
            printf("# %s: %s\n", request_name(request->kind), request->error.text);
            _exit(1);
        }
        if (drop) {
            atomic_fetch_add(request->leave.left ? &shared->deleted : &shared->kept, 1);
            await_count(&shared->over);
        }
        sweep_done(sweep, request, help_now_ms());
        request_free(request);
    }
    sweep_free(sweep);
    store_close(store);
    _exit(0);
}

/* One entry is read as the deletion is under way, is then pending, and can be acknowledged: after that
 * the consumer holds nothing, and is to be deleted again. */
static void race(struct store *store, struct shared *shared, int number)
{
    uint64_t dice = (uint64_t)number;

    CHECK(await_value(&shared->about, number, PATIENCE_MS));
    pause_perhaps(&dice);
    struct request *read = help_read(store, "s", "g", "sleeper", 1);
    CHECK_U64(read->read.entry_count, 1);
    struct impel_id id = read->read.entries[0].entry->id;
    request_free(read);

    struct request *pending = help_request(REQUEST_PENDING, "s", "g");
    pending->pending.end = ID_MAX;
    pending->pending.count = 10;
    CHECK(help_run(store, pending) == IMPEL_OK);
    CHECK_U64(pending->pending.row_count, 1);
    CHECK(bytes_equal(pending->pending.rows[0].owner, bytes_of("sleeper")));
    request_free(pending);
    CHECK(await_value(&shared->over, number, PATIENCE_MS));
    CHECK(help_add(store, "s", ID_MIN, "work") >= 0); /* for the next time */
    CHECK_U64((uint64_t)help_ack(store, "s", "g", id), 1);
}

static void races(const char *url, int count)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = 0;

    CHECK(shared != MAP_FAILED);
    struct store *store = help_open(url);
    CHECK(help_group(store, "s", "g") >= 0);
    /* It is there, and holds nothing; and there is something to read. */
    CHECK(help_add(store, "s", ID_MIN, "work") >= 0);
    CHECK(help_add(store, "s", ID_MIN, "work") >= 0);
    struct request *read = help_read(store, "s", "g", "sleeper", 1);
    CHECK_U64((uint64_t)help_ack(store, "s", "g", read->read.entries[0].entry->id), 1);
    request_free(read);
    store_close(store);

    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sweep_on(shared, url);
    }
    store = help_open(url);
    for (int i = 0; i < count; i++) {
        race(store, shared, i + 1);
    }
    atomic_store(&shared->stop, 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    store_close(store);
    int deleted = atomic_load(&shared->deleted), kept = atomic_load(&shared->kept);
    printf("# %d races: deleted before it read %d times, after it had read %d times not\n", count,
           deleted, kept);
    CHECK(deleted + kept >= count);
    CHECK(deleted > count / 100 && kept > count / 100); /* else it was no race */
    munmap(shared, sizeof(*shared));
}

static void races_on_redis(int count, bool impel)
{
    struct redis_server server;
    char url[96];
    const char *why = impel ? redis_server_start_impel(&server) : redis_server_start(&server, NULL);

    if (why != NULL) {
        SKIP(why);
    }
    (void)snprintf(url, sizeof(url), "unix://%s", server.socket);
    races(url, count);
    redis_server_end(&server);
}

static void races_on_lmdb(const char *name, int count)
{
    char *url = strdup(help_url(name, "?sync=process"));

    races(url, count);
    free(url);
}

TEST(quick_lmdb)
{
    races_on_lmdb("quick.db", QUICK);
}

TEST(quick_redis)
{
    races_on_redis(QUICK, false);
}

TEST(quick_serve)
{
    races_on_redis(QUICK, true);
}

TEST(soak_lmdb)
{
    races_on_lmdb("soak.db", SOAK);
}

TEST(soak_redis)
{
    races_on_redis(SOAK, false);
}

TEST(soak_serve)
{
    races_on_redis(SOAK, true);
}

TAP_MAIN
