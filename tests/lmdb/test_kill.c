/* test_kill.c -- processes that share a file are killed, stopped and refused.
 *
 * The parent never has the store open while it forks: a child opens its own. They tell each other
 * what they have done through a page of shared memory. */
#include "await.h"
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/store.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    WRITERS = 4,
    STILL_MS = 2000, /* no survivor may stand still for so long, on a quiet machine */
    DEAD_AFTER_MS = 1500,
};

struct shared {
    _Atomic uint64_t turns[WRITERS]; /* how often a writer was answered */
    _Atomic uint64_t added[WRITERS]; /* entries that it was told are stored */
    _Atomic int64_t waited_ms;
    _Atomic int flag;
    _Atomic int status;
};

static struct shared *shared_new(void)
{
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    return shared;
}

static void await_flag(struct shared *shared, int flag)
{
    CHECK(await_value(&shared->flag, flag, 20000));
}

static struct store *open_in_child(const char *url, const struct store_env *env)
{
    struct store *store = NULL;
    struct impel_error err = {0};
    if (store_open(url, env, &store, &err) < 0) {
        printf("# %s\n", err.text);
        _exit(99);
    }
    return store;
}

/* Adds, reads and acks in its own stream, as fast as it goes, until it is killed. */
_Noreturn static void writer(struct shared *shared, const char *url, int index)
{
    struct store *store = open_in_child(url, NULL);
    char stream[16];

    (void)snprintf(stream, sizeof(stream), "s%d", index);
    (void)help_group(store, stream, "g");
    for (;;) {
        if (help_add(store, stream, ID_MIN, "a value of some bytes") < 0) {
            _exit(98);
        }
        atomic_fetch_add(&shared->added[index], 1);
        atomic_fetch_add(&shared->turns[index], 1);
        struct request *read = help_read(store, stream, "g", "c", 10);
        for (size_t i = 0; i < read->read.entry_count; i++) {
            (void)help_ack(store, stream, "g", read->read.entries[i].entry->id);
        }
        request_free(read);
        atomic_fetch_add(&shared->turns[index], 1);
    }
}

static pid_t writer_start(struct shared *shared, const char *url, int index)
{
    pid_t pid = fork();
    if (pid == 0) {
        writer(shared, url, index);
    }
    CHECK(pid > 0);
    return pid;
}

static void kill_and_reap(pid_t pid)
{
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
}

/* All of them go on within the deadline. */
static void await_progress(struct shared *shared, int64_t still_ms)
{
    uint64_t before[WRITERS];
    int64_t began = help_now_ms();

    for (int i = 0; i < WRITERS; i++) {
        before[i] = atomic_load(&shared->turns[i]);
    }
    for (int i = 0; i < WRITERS;) {
        CHECK(help_now_ms() - began <= still_ms);
        if (atomic_load(&shared->turns[i]) != before[i]) {
            i++;
        } else {
            await_clock_us(500);
        }
    }
}

static uint64_t length_of(struct store *store, int index)
{
    char stream[16];

    (void)snprintf(stream, sizeof(stream), "s%d", index);
    struct request *info = help_request(REQUEST_INFO, stream, "");
    CHECK(help_run(store, info) == IMPEL_OK);
    uint64_t length = info->info.length;
    request_free(info);
    return length;
}

static bool tell_problem(void *user, const char *text)
{
    (void)user;
    printf("# check: %s\n", text);
    return true;
}

static void check_file(const char *name)
{
    struct impel_error err = {0};
    int rc = lmdb_check(help_path(name), tell_problem, NULL, NULL, &err);
    if (rc < 0) {
        printf("# %s\n", err.text);
    }
    CHECK(rc == IMPEL_OK);
}

static void kills(int count, const char *name, const char *options, int64_t still_ms)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url(name, options));
    pid_t pids[WRITERS];
    uint64_t seed = (uint64_t)getpid() * 2654435761U + (uint64_t)help_now_ms();

    printf("# seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < WRITERS; i++) {
        pids[i] = writer_start(shared, url, i);
    }
    await_progress(shared, 20000);
    for (int k = 0; k < count; k++) {
        int victim = (int)(random_next(&seed) % WRITERS);
        await_clock_us((int64_t)(random_next(&seed) % 3000));
        kill_and_reap(pids[victim]);
        pids[victim] = writer_start(shared, url, victim);
        await_progress(shared, still_ms);
    }
    for (int i = 0; i < WRITERS; i++) {
        kill_and_reap(pids[i]);
    }
    struct store *store = help_open(url);
    for (int i = 0; i < WRITERS; i++) {
        CHECK(length_of(store, i) >= atomic_load(&shared->added[i]));
    }
    store_close(store);
    check_file(name);
    free(url);
    munmap(shared, sizeof(*shared));
}

TEST(quick_killed_writers_leave_nobody_waiting)
{
    kills(30, "kill.db", "?sync=process", 10000);
}

TEST(quick_killed_writers_leave_nobody_waiting_synced)
{
    kills(10, "kill-full.db", "", 10000);
}

TEST(soak_killed_writers_leave_nobody_waiting)
{
    kills(300, "soak.db", "?sync=process", STILL_MS);
}

TEST(soak_killed_writers_leave_nobody_waiting_synced)
{
    kills(300, "soak-full.db", "", 10000);
}

/* ---- stopped inside a transaction ---- */

static char told[512];

static void keep_event(void *user, const struct store_event *event)
{
    (void)user;
    if (strcmp(event->name, "lock-held") == 0) {
        (void)snprintf(told, sizeof(told), "%s", event->text);
    }
}

/* Stops itself inside a transaction, as Ctrl-Z or a debugger might do it. */
_Noreturn static void stopped_holder(struct shared *shared, const char *url)
{
    struct handle *handle = (struct handle *)open_in_child(url, NULL);
    struct lmdb_txn txn;
    struct lmdb_stream *stream = NULL;
    struct impel_error err = {0};

    while (side_lock(&handle->file->side) < 0) {
    }
    if (env_begin_write(handle->file, &txn, &err) < 0 ||
        lmdb_stream_open(&txn, bytes_of("half"), &stream) < 0) {
        _exit(97);
    }
    await_set(&shared->flag, 1);
    (void)raise(SIGSTOP);
    _exit(96); /* with the lock */
}

static void set_true(struct request *request)
{
    *(bool *)request->owner = true;
}

TEST(quick_a_stopped_holder_is_named)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("stop.db", "?sync=process"));
    struct store_env env = {.event = keep_event};
    struct store *store = NULL;
    struct impel_error err = {0};
    bool over = false;
    int64_t longest_ms = 0;
    char number[32];

    pid_t pid = fork();
    if (pid == 0) {
        await_flag(shared, 9);
        stopped_holder(shared, url);
    }
    CHECK(store_open(url, &env, &store, &err) == IMPEL_OK);
    await_set(&shared->flag, 9);
    await_flag(shared, 1);
    CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
    struct request *add = help_request(REQUEST_ADD, "s", "");
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    add->done = set_true;
    add->owner = &over;
    store_submit(store, add);
    int64_t deadline = help_now_ms() + 20000;
    while (told[0] == '\0') {
        int64_t before = help_now_ms();
        CHECK(store_turn(store, before) == 0);
        int64_t took = help_now_ms() - before;
        longest_ms = took > longest_ms ? took : longest_ms;
        CHECK(!over);
        CHECK(help_now_ms() < deadline);
    }
    (void)snprintf(number, sizeof(number), "process %d ", (int)pid);
    CHECK(strstr(told, number) != NULL);
    CHECK(strstr(told, "stopped") != NULL);
    CHECK(longest_ms < 2000); /* a turn waits for 20 ms; a busy machine makes that more */
    kill_and_reap(pid);
    deadline = help_now_ms() + 20000;
    while (!over) {
        (void)store_turn(store, help_now_ms());
        CHECK(help_now_ms() < deadline);
    }
    CHECK(add->status == IMPEL_OK);
    request_free(add);
    struct request *info = help_request(REQUEST_INFO, "half", "");
    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK(!info->info.exists); /* what it had begun has not happened */
    request_free(info);
    store_close(store);
    check_file("stop.db");
    free(url);
    munmap(shared, sizeof(*shared));
}

/* As a terminal does it; a process that stops holds no lock. */
static void stop_and_continue(pid_t pid, const struct side *side)
{
    int64_t deadline = help_now_ms() + 20000;
    int status = 0;

    CHECK(kill(pid, SIGTSTP) == 0);
    while (waitpid(pid, &status, WUNTRACED | WNOHANG) == 0) {
        CHECK(help_now_ms() < deadline);
        await_clock_us(200);
    }
    CHECK(WIFSTOPPED(status));
    CHECK(atomic_load(&side->header->holder) == 0);
    CHECK(kill(pid, SIGCONT) == 0);
}

/* Ctrl-Z for a process that is in a transaction most of the time: it stops, but outside. */
TEST(quick_a_terminals_stop_waits_for_the_end_of_the_transaction)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("tstp.db", "?sync=process"));
    uint64_t seed = (uint64_t)help_now_ms();

    pid_t pid = fork();
    if (pid == 0) {
        (void)setpgid(0, 0); /* with its parent outside it is no orphan, which would not stop */
        writer(shared, url, 0);
    }
    CHECK(pid > 0);
    for (int64_t deadline = help_now_ms() + 20000; atomic_load(&shared->turns[0]) < 10;) {
        CHECK(help_now_ms() < deadline);
        await_clock_us(500);
    }
    struct store *store = help_open(url);
    const struct side *side = &((struct handle *)store)->file->side;
    for (int round = 0; round < 30; round++) {
        await_clock_us((int64_t)(random_next(&seed) % 2000));
        stop_and_continue(pid, side);
    }
    store_close(store);
    kill_and_reap(pid);
    check_file("tstp.db");
    free(url);
    munmap(shared, sizeof(*shared));
}

/* ---- a store that stands still ---- */

/* A worker of its own, then the lock, then nothing more. */
_Noreturn static void stuck_worker(struct shared *shared, const char *url)
{
    struct store *store = open_in_child(url, NULL);
    struct request *beat = help_beat(store, "s", "g", "stuck", 3, DEAD_AFTER_MS);

    if (beat->status < 0) {
        _exit(97);
    }
    while (side_lock(&((struct handle *)store)->file->side) < 0) {
    }
    await_set(&shared->flag, 1);
    (void)raise(SIGSTOP);
    _exit(96);
}

/* Beats as `name` until it is answered; the store may not make it wait for the lock. */
static void beat_through(struct store *store, const char *name, uint8_t token)
{
    struct request *beat = help_request(REQUEST_BEAT, "s", "g");
    bool over = false;
    int64_t deadline = help_now_ms() + 20000;

    beat->consumer = bytes_of(name);
    beat->token = help_token(token);
    beat->dead_after_ms = DEAD_AFTER_MS;
    beat->done = set_true;
    beat->owner = &over;
    store_submit(store, beat);
    while (!over) {
        (void)store_turn(store, help_now_ms());
        CHECK(help_now_ms() < deadline);
    }
    CHECK(beat->status == IMPEL_OK && beat->beat.result == BEAT_TAKEN);
    request_free(beat);
}

static enum owner_state state_of(struct store *store, const char *name)
{
    struct request *look = help_request(REQUEST_LOOK, "s", "g");
    enum owner_state state = OWNER_FOREIGN;

    look->look.flags = LOOK_BEAT;
    look->dead_after_ms = DEAD_AFTER_MS;
    CHECK(help_run(store, look) == IMPEL_OK);
    for (size_t i = 0; i < look->look.owner_count; i++) {
        if (bytes_equal(look->look.owners[i].name, bytes_of(name))) {
            state = look->look.owners[i].state;
        }
    }
    request_free(look);
    return state;
}

TEST(quick_beats_pass_a_store_that_stands_still)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("still.db", "?sync=process"));
    bool added = false;

    pid_t pid = fork();
    if (pid == 0) {
        await_flag(shared, 9);
        stuck_worker(shared, url);
    }
    struct store *store = help_open(url);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_beat(store, "s", "g", "a", 1, DEAD_AFTER_MS));
    await_set(&shared->flag, 9);
    await_flag(shared, 1);
    struct request *add = help_request(REQUEST_ADD, "s", "");
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    add->done = set_true;
    add->owner = &added;
    store_submit(store, add);
    for (int64_t end = help_now_ms() + 2000; help_now_ms() < end;) {
        beat_through(store, "a", 1);
        CHECK(!added);
    }
    kill_and_reap(pid);
    while (!added) {
        (void)store_turn(store, help_now_ms());
    }
    request_free(add);
    /* Nobody judged while it stood; now the one who beat is alive and the other is found dead. */
    int64_t deadline = help_now_ms() + 20000;
    do {
        beat_through(store, "a", 1);
        CHECK(state_of(store, "a") == OWNER_LIVE);
        CHECK(help_now_ms() < deadline);
    } while (state_of(store, "stuck") != OWNER_DEAD);
    store_close(store);
    free(url);
    munmap(shared, sizeof(*shared));
}

/* ---- killed between commit and wake-up ---- */

static _Atomic int woken;

static void count_wake(void *user)
{
    (void)user;
    await_count(&woken);
}

/* Commits an entry without waking anybody, as if it had been killed in between. */
_Noreturn static void silent_writer(struct shared *shared, const char *url)
{
    struct handle *handle = (struct handle *)open_in_child(url, NULL);
    struct lmdb_txn txn;
    struct lmdb_stream *stream = NULL;
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    struct impel_error err = {0};

    while (side_lock(&handle->file->side) < 0) {
    }
    if (env_begin_write(handle->file, &txn, &err) < 0 ||
        lmdb_stream_open(&txn, bytes_of("s"), &stream) < 0 ||
        lmdb_stream_append(&txn, stream, (struct impel_id){9, 9}, &field, 1, false) < 0) {
        _exit(97);
    }
    txn.signal = false;
    if (env_commit(handle->file, &txn, &err) < 0) {
        _exit(96);
    }
    await_set(&shared->flag, 1);
    (void)raise(SIGKILL);
    _exit(95);
}

TEST(quick_a_lost_wake_up_costs_a_second_at_most)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("wake.db", "?sync=process"));
    struct store_env env = {.wake = count_wake};
    struct store *store = NULL;
    struct impel_error err = {0};
    bool over = false;

    pid_t pid = fork();
    if (pid == 0) {
        await_flag(shared, 9);
        silent_writer(shared, url);
    }
    CHECK(store_open(url, &env, &store, &err) == IMPEL_OK);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    struct request *read = help_request(REQUEST_READ, "", "g");
    struct impel_bytes stream = bytes_of("s");
    read->consumer = bytes_of("c");
    read->read.streams = &stream;
    read->read.stream_count = 1;
    read->read.count = 10;
    read->read.block_ms = 100000;
    read->done = set_true;
    read->owner = &over;
    store_submit(store, read);
    int64_t deadline = help_now_ms() + 20000;
    while (store_turn(store, help_now_ms()) == 0) {
        CHECK(help_now_ms() < deadline);
    }
    await_set(&shared->flag, 9);
    while (!over) { /* turns only when woken, as a driver does */
        if (atomic_exchange(&woken, 0) > 0) {
            (void)store_turn(store, help_now_ms());
        }
        CHECK(help_now_ms() < deadline);
        if (!over) {
            await_change(&woken, 0, 1000);
        }
    }
    CHECK_U64(read->read.entry_count, 1);
    request_free(read);
    CHECK(waitpid(pid, NULL, 0) == pid);
    store_close(store);
    free(url);
    munmap(shared, sizeof(*shared));
}

/* ---- refused ---- */

TEST(quick_a_forked_child_is_refused)
{
    struct shared *shared = shared_new();
    struct store *store = help_open(help_url("fork.db", "?sync=process"));

    CHECK(help_add(store, "s", ID_MIN, "parent") == IMPEL_OK);
    pid_t pid = fork();
    if (pid == 0) {
        atomic_store(&shared->status, help_add(store, "s", ID_MIN, "child"));
        store_close(store);
        _exit(0);
    }
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(atomic_load(&shared->status) == IMPEL_ERR_FORKED);
    CHECK(help_add(store, "s", ID_MIN, "parent") == IMPEL_OK);
    struct request *info = help_request(REQUEST_INFO, "s", "");
    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK_U64(info->info.length, 2);
    request_free(info);
    store_close(store);
    munmap(shared, sizeof(*shared));
}

TEST(quick_a_forked_child_does_not_keep_the_file_open)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("fork2.db", "?sync=process"));
    struct store *store = help_open(url);

    pid_t pid = fork();
    if (pid == 0) {
        await_flag(shared, 1);
        _exit(0);
    }
    store_close(store);
    struct side side;
    struct impel_error err = {0};
    char path[300];
    (void)snprintf(path, sizeof(path), "%s-wake", help_path("fork2.db"));
    CHECK(side_open(&side, path, SIDE_SYNC_KEEP, &err) == IMPEL_OK);
    bool alone = side_alone(&side);
    side_close(&side);
    await_set(&shared->flag, 1);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(alone);
    free(url);
    munmap(shared, sizeof(*shared));
}

TEST(quick_another_pid_namespace_is_refused)
{
    struct shared *shared = shared_new();
    char *url = strdup(help_url("ns.db", "?sync=process"));
    struct store *store = help_open(url);

    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWPID) < 0) {
            await_set(&shared->flag, 1);
            _exit(0);
        }
        pid_t inner = fork();
        if (inner == 0) {
            struct store *mine = NULL;
            struct impel_error err = {0};
            atomic_store(&shared->status, store_open(url, NULL, &mine, &err));
            _exit(strstr(err.text, "impel serve") != NULL ? 0 : 1);
        }
        int status = 0;
        _exit(waitpid(inner, &status, 0) == inner && status == 0 ? 0 : 1);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    store_close(store);
    free(url);
    if (atomic_load(&shared->flag) == 1) {
        SKIP("this user may not make a PID namespace");
    }
    CHECK(status == 0);
    CHECK(atomic_load(&shared->status) == IMPEL_ERR_UNSUPPORTED);
    munmap(shared, sizeof(*shared));
}

TAP_MAIN
