/* test_share.c -- several handles, threads and processes on one file: sharing, waking, and a reader
 * that stops in the middle. */
#include "await.h"
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/store.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

TEST(a_second_open_in_one_process_shares_the_first)
{
    char *url = strdup(help_url("twice.db", "?sync=process"));
    char link_url[400];

    struct store *one = help_open(url);
    struct store *two = help_open(url);
    CHECK(((struct handle *)one)->file == ((struct handle *)two)->file);
    /* Under another name, too. */
    (void)snprintf(link_url, sizeof(link_url), "lmdb:%s/./twice.db", help_folder());
    struct store *three = help_open(link_url);
    CHECK(((struct handle *)three)->file == ((struct handle *)one)->file);
    CHECK(help_add(one, "s", ID_MIN, "1") == IMPEL_OK);
    store_close(one);
    CHECK(help_add(two, "s", ID_MIN, "2") == IMPEL_OK);
    store_close(two);
    CHECK(help_add(three, "s", ID_MIN, "3") == IMPEL_OK);
    store_close(three);
    CHECK(lmdb_check(help_path("twice.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
    free(url);
}

/* ---- threads ---- */

enum {
    THREADS = 4,
    ADDS = 300,
};

struct worker_thread {
    pthread_t thread;
    char url[300];
    int index;
    int failed;
};

static void *add_and_read(void *argument)
{
    struct worker_thread *self = argument;
    struct store *store = NULL;
    char consumer[8];

    (void)snprintf(consumer, sizeof(consumer), "c%d", self->index);
    if (store_open(self->url, NULL, &store, NULL) < 0) {
        self->failed++;
        return NULL;
    }
    for (int i = 0; i < ADDS; i++) {
        self->failed += help_add(store, "s", ID_MIN, consumer) < 0;
        struct request *beat = help_beat(store, "s", "g", consumer, (uint8_t)self->index, 60000);
        self->failed += beat->status < 0 || beat->beat.result == BEAT_OCCUPIED;
        request_free(beat);
        struct request *read = help_read(store, "s", "g", consumer, 1);
        for (size_t e = 0; e < read->read.entry_count; e++) {
            self->failed += help_ack(store, "s", "g", read->read.entries[e].entry->id) != 1;
        }
        request_free(read);
    }
    store_close(store);
    return NULL;
}

TEST(handles_in_several_threads)
{
    struct worker_thread threads[THREADS] = {0};
    struct store *store = help_open(help_url("threads.db", "?sync=process"));

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    for (int i = 0; i < THREADS; i++) {
        threads[i].index = i + 1;
        (void)snprintf(threads[i].url, sizeof(threads[i].url), "%s",
                       help_url("threads.db", "?sync=process"));
        CHECK(pthread_create(&threads[i].thread, NULL, add_and_read, &threads[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i].thread, NULL) == 0);
        CHECK(threads[i].failed == 0);
    }
    struct request *info = help_request(REQUEST_INFO, "s", "");
    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK_U64(info->info.length, (uint64_t)THREADS * ADDS);
    request_free(info);
    store_close(store);
    CHECK(lmdb_check(help_path("threads.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
}

/* ---- waking ---- */

static _Atomic int woken;

static void count_wake(void *user)
{
    (void)user;
    await_count(&woken);
}

static void set_true(struct request *request)
{
    *(bool *)request->owner = true;
}

/* Turns only when the store says so, as a driver does. */
static void drive_until(struct store *store, const bool *over)
{
    int64_t deadline = help_now_ms() + 20000;
    int64_t next_ms = 0;
    int64_t turned_ms = 0;

    while (!*over) {
        if (atomic_exchange(&woken, 0) > 0 ||
            (next_ms >= 0 && help_now_ms() >= turned_ms + next_ms)) {
            turned_ms = help_now_ms();
            next_ms = store_turn(store, turned_ms);
        }
        CHECK(help_now_ms() < deadline);
        if (!*over) {
            int64_t left_ms = turned_ms + next_ms - help_now_ms();
            await_change(&woken, 0,
                         next_ms < 0 || left_ms > 1000 ? 1000
                         : left_ms < 0                 ? 0
                                                       : left_ms);
        }
    }
}

static struct request *blocked_read(struct store *store, const char *consumer, bool *over)
{
    struct request *read = help_request(REQUEST_READ, "", "g");
    struct impel_bytes *streams = arena_alloc(&read->arena, sizeof(*streams));

    *streams = bytes_of("s");
    read->consumer = bytes_of(consumer);
    read->read.streams = streams;
    read->read.stream_count = 1;
    read->read.count = 10;
    read->read.block_ms = 100000;
    read->done = set_true;
    read->owner = over;
    store_submit(store, read);
    return read;
}

TEST(another_process_wakes_a_blocked_read)
{
    char *url = strdup(help_url("wake.db", "?sync=process"));
    struct store_env env = {.wake = count_wake};
    struct store *store = NULL;
    bool over = false;
    int to_child[2];
    char byte = 0;

    CHECK(pipe(to_child) == 0);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (read(to_child[0], &byte, 1) != 1) {
            _exit(99);
        }
        struct store *mine = NULL;
        if (store_open(url, NULL, &mine, NULL) < 0) {
            _exit(98);
        }
        _exit(help_add(mine, "s", ID_MIN, "hello") < 0);
    }
    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    struct request *read = blocked_read(store, "c", &over);
    (void)store_turn(store, help_now_ms());
    CHECK(write(to_child[1], "x", 1) == 1);
    drive_until(store, &over);
    CHECK(read->status == IMPEL_OK);
    CHECK_U64(read->read.entry_count, 1);
    request_free(read);
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    close(to_child[0]);
    close(to_child[1]);
    store_close(store);
    free(url);
}

TEST(a_handle_wakes_its_neighbour)
{
    char *url = strdup(help_url("wake2.db", "?sync=process"));
    struct store_env env = {.wake = count_wake};
    struct store *store = NULL;
    bool over = false;

    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    struct store *other = help_open(url);
    struct request *read = blocked_read(store, "c", &over);
    (void)store_turn(store, help_now_ms());
    CHECK(help_add(other, "s", ID_MIN, "hello") == IMPEL_OK);
    drive_until(store, &over);
    CHECK_U64(read->read.entry_count, 1);
    request_free(read);
    /* Destroying the group ends a read as well. */
    over = false;
    read = blocked_read(store, "c", &over);
    (void)store_turn(store, help_now_ms());
    struct request *call = help_request(REQUEST_CALL, "", "");
    struct impel_bytes words[] = {bytes_of("XGROUP"), bytes_of("DESTROY"), bytes_of("s"),
                                  bytes_of("g")};
    call->call.args = words;
    call->call.arg_count = ARRAY_SIZE(words);
    CHECK(help_run(other, call) == IMPEL_OK);
    request_free(call);
    drive_until(store, &over);
    CHECK(read->status == IMPEL_ERR_NO_GROUP);
    request_free(read);
    store_close(other);
    store_close(store);
    free(url);
}

TEST(at_rest_nothing_is_committed_and_nobody_woken)
{
    char *url = strdup(help_url("rest.db", ""));
    struct store_env env = {.wake = count_wake};
    struct store *store = NULL;
    bool over = false;

    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_read(store, "s", "g", "c", 1));
    uint64_t before = env_commit_number(((struct handle *)store)->file);
    for (int i = 0; i < 20; i++) {
        struct request *read = blocked_read(store, "c", &over);
        (void)store_turn(store, help_now_ms());
        store_cancel(store, read);
        (void)store_turn(store, help_now_ms());
        CHECK(over);
        over = false;
        request_free(read);
        request_free(help_beat(store, "s", "g", "c", 1, 60000));
    }
    uint64_t commits = env_commit_number(((struct handle *)store)->file) - before;
    CHECK_U64(commits, 0);
    store_close(store);
    free(url);
}

/* ---- what is told, and when ---- */

static struct side *watched;
static pthread_t turner; /* who takes the lock: the thread that wakes never does */
static _Atomic int told, told_inside;

static void note_lock(void)
{
    bool inside = pthread_equal(pthread_self(), turner) && atomic_load(&watched->locked);

    atomic_fetch_add(&told, 1);
    atomic_fetch_add(&told_inside, inside);
}

static void note_done(struct request *request)
{
    note_lock();
    *(bool *)request->owner = true;
}

static void note_wake(void *user)
{
    (void)user;
    note_lock();
}

TEST(nobody_is_called_back_while_the_lock_is_held)
{
    char *url = strdup(help_url("calls.db", "?sync=process"));
    struct store_env env = {.wake = note_wake};
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    struct store *store = NULL;
    struct store *waiting = NULL;
    bool over = false;
    bool added = false;

    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    CHECK(store_open(url, &env, &waiting, NULL) == IMPEL_OK);
    watched = &((struct handle *)store)->file->side;
    turner = pthread_self();
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    struct request *read = blocked_read(waiting, "c", &over);
    read->done = note_done;
    (void)store_turn(waiting, help_now_ms());
    struct request *add = help_request(REQUEST_ADD, "s", "");
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    add->done = note_done;
    add->owner = &added;
    store_submit(store, add);
    int64_t deadline = help_now_ms() + 20000;
    while (!added || !over) {
        (void)store_turn(store, help_now_ms());
        (void)store_turn(waiting, help_now_ms());
        CHECK(help_now_ms() < deadline);
    }
    CHECK(atomic_load(&told) >= 2);
    CHECK(atomic_load(&told_inside) == 0);
    request_free(add);
    request_free(read);
    store_close(waiting);
    store_close(store);
    free(url);
}

/* ---- how often it is written ---- */

TEST(all_of_a_turn_is_one_commit)
{
    enum { COUNT = 100 };
    struct impel_field field = {bytes_of("f"), bytes_of("v")};
    struct store *store = help_open(help_url("turn.db", ""));
    struct request *adds[COUNT];
    bool over[COUNT] = {false};

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    uint64_t before = env_commit_number(((struct handle *)store)->file);
    for (int i = 0; i < COUNT; i++) {
        adds[i] = help_request(REQUEST_ADD, i % 2 == 0 ? "s" : "t", "");
        adds[i]->add.fields = &field;
        adds[i]->add.field_count = 1;
        adds[i]->add.length_max = -1;
        adds[i]->done = set_true;
        adds[i]->owner = &over[i];
        store_submit(store, adds[i]);
    }
    struct request *read = blocked_read(store, "c", &(bool){false});
    while (!over[COUNT - 1]) {
        (void)store_turn(store, help_now_ms());
    }
    CHECK_U64(read->read.entry_count, 10);
    CHECK_U64(env_commit_number(((struct handle *)store)->file) - before, 1);
    for (int i = 0; i < COUNT; i++) {
        CHECK(over[i] && adds[i]->status == IMPEL_OK);
        request_free(adds[i]);
    }
    request_free(read);
    store_close(store);
}

/* ---- how the file is opened ---- */

TEST(no_database_has_sorted_duplicates_and_readers_are_many)
{
    struct store *store = help_open(help_url("flags.db", "?sync=process"));
    struct lmdb_env *env = ((struct handle *)store)->file;
    struct lmdb_txn txn;
    MDB_txn *mdb = NULL;
    unsigned readers = 0;

    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    CHECK(mdb_env_get_maxreaders(env->mdb, &readers) == 0 && readers == 4096);
    CHECK(env_begin_read(env, &mdb, &txn, NULL) == IMPEL_OK);
    for (int db = 0; db < DB_COUNT; db++) {
        unsigned flags = 0;
        CHECK(mdb_dbi_flags(mdb, txn.dbi[db], &flags) == 0);
        CHECK((flags & MDB_DUPSORT) == 0);
    }
    env_end_read(&txn);
    mdb_txn_abort(mdb);
    store_close(store);
}

/* ---- a reader that stops in the middle of a read transaction ---- */

TEST(a_stopped_reader_costs_adds_not_acks)
{
    _Atomic int *flag =
        mmap(NULL, sizeof(*flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *url = strdup(help_url("reader.db", "?sync=process&map=8MiB"));
    int64_t deadline = help_now_ms() + 60000;
    int rc = IMPEL_OK;

    CHECK(flag != MAP_FAILED);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *store = NULL;
        struct lmdb_txn txn;
        MDB_txn *mdb = NULL;
        if (!await_value(flag, 1, deadline - help_now_ms())) {
            _exit(1); /* the test that was to say so is gone */
        }
        if (store_open(url, NULL, &store, NULL) < 0 ||
            env_begin_read(((struct handle *)store)->file, &mdb, &txn, NULL) < 0) {
            _exit(99);
        }
        atomic_store(flag, 2);
        (void)raise(SIGSTOP);
        _exit(98);
    }
    struct store *store = help_open(url);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    CHECK(help_add(store, "s", ID_MIN, "kept until the end") == IMPEL_OK);
    struct request *kept = help_read(store, "s", "g", "c", 1);
    await_set(flag, 1);
    CHECK(waitpid(pid, NULL, WUNTRACED) == pid);
    CHECK(atomic_load(flag) == 2);
    /* Every commit now takes new pages: what it frees is still seen by the reader. */
    while (rc >= 0) {
        rc = help_add(store, "s", ID_MIN, "more");
        CHECK(help_now_ms() < deadline);
    }
    CHECK(rc == IMPEL_ERR_FULL);
    CHECK(help_ack(store, "s", "g", kept->read.entries[0].entry->id) == 1);
    request_free(kept);
    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    /* Its slot is cleared before anything is called full. */
    CHECK(help_add(store, "s", ID_MIN, "more") == IMPEL_OK);
    store_close(store);
    free(url);
    munmap(flag, sizeof(*flag));
}

TEST(the_slot_of_a_killed_reader_is_cleared_within_seconds)
{
    _Atomic int *flag =
        mmap(NULL, sizeof(*flag), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *url = strdup(help_url("slot.db", "?sync=process"));
    int dead = 0;

    CHECK(flag != MAP_FAILED);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *store = NULL;
        struct lmdb_txn txn;
        MDB_txn *mdb = NULL;
        if (!await_value(flag, 1, 20000) || store_open(url, NULL, &store, NULL) < 0 ||
            env_begin_read(((struct handle *)store)->file, &mdb, &txn, NULL) < 0) {
            _exit(99);
        }
        await_set(flag, 2);
        (void)raise(SIGKILL);
    }
    struct store *store = help_open(url);
    struct lmdb_env *env = ((struct handle *)store)->file;
    await_set(flag, 1);
    CHECK(await_value(flag, 2, 20000));
    CHECK(waitpid(pid, NULL, 0) == pid);
    /* Others go on with what they do; then there is nothing left to be cleared. */
    for (int64_t end = help_now_ms() + ENV_READERS_CHECK_MS + 200; help_now_ms() < end;) {
        CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
        await_clock_us(20000);
    }
    CHECK(mdb_reader_check(env->mdb, &dead) == 0 && dead == 0);
    store_close(store);
    free(url);
    munmap((void *)flag, sizeof(*flag));
}

/* ---- odd sizes ---- */

TEST(one_request_at_fault_does_not_fail_its_batch)
{
    struct store *store = help_open(help_url("batch.db", "?sync=process&map=2MiB"));
    char *big = malloc(3 << 20);
    struct impel_field small = {bytes_of("f"), bytes_of("v")};
    struct impel_field large = {bytes_of("f"), {big, 3 << 20}};
    struct request *adds[5];
    bool over[5] = {false};

    CHECK(big != NULL);
    memset(big, 'b', 3 << 20);
    for (int i = 0; i < 5; i++) {
        adds[i] = help_request(REQUEST_ADD, "s", "");
        adds[i]->add.fields = i == 2 ? &large : &small;
        adds[i]->add.field_count = 1;
        adds[i]->add.length_max = -1;
        adds[i]->done = set_true;
        adds[i]->owner = &over[i];
        store_submit(store, adds[i]);
    }
    while (!over[4]) {
        (void)store_turn(store, help_now_ms());
    }
    struct impel_id first = adds[0]->add.id;
    for (int i = 0; i < 5; i++) {
        CHECK(over[i]);
        CHECK(adds[i]->status == (i == 2 ? IMPEL_ERR_FULL : IMPEL_OK));
        CHECK(i == 0 || i == 2 || id_compare(adds[i]->add.id, first) > 0);
        CHECK(i != 2 || id_is_zero(adds[i]->add.id));
        request_free(adds[i]);
    }
    free(big);
    store_close(store);
}

TEST(names_and_values_of_any_bytes_and_sizes)
{
    static const size_t sizes[] = {0, 1, 399, 400, 401, 511, 5000, 70000};
    struct store *store = help_open(help_url("names.db", "?sync=process"));
    char *name = malloc(70000);

    CHECK(name != NULL);
    for (size_t i = 0; i < ARRAY_SIZE(sizes) * 2; i++) {
        struct impel_bytes bytes = {name, sizes[i / 2]};
        memset(name, i % 2 == 0 ? '\0' : 0xff, 70000);
        if (sizes[i / 2] > 0) {
            name[sizes[i / 2] - 1] = '\n'; /* the same first bytes, another end */
        }
        struct request *create = help_request(REQUEST_GROUP_CREATE, "", "");
        create->stream = create->group = bytes;
        CHECK(help_run(store, create) == IMPEL_OK);
        CHECK(create->group_set.created == !(i % 2 == 1 && sizes[i / 2] <= 1));
        request_free(create);
        struct impel_field fields[] = {{bytes, bytes}, {bytes, {NULL, 0}}};
        struct request *add = help_request(REQUEST_ADD, "", "");
        add->stream = bytes;
        add->add.fields = fields;
        add->add.field_count = 2;
        add->add.length_max = -1;
        CHECK(help_run(store, add) == IMPEL_OK);
        request_free(add);
        struct request *read = help_request(REQUEST_READ, "", "");
        read->group = read->consumer = bytes;
        read->read.streams = &bytes;
        read->read.stream_count = 1;
        read->read.count = 10;
        CHECK(help_run(store, read) == IMPEL_OK);
        CHECK_U64(read->read.entry_count, 1);
        CHECK(bytes_equal(read->read.entries[0].entry->fields[0].value, bytes));
        CHECK_U64(read->read.entries[0].entry->fields[1].value.size, 0);
        request_free(read);
    }
    free(name);
    store_close(store);
    CHECK(lmdb_check(help_path("names.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
}

TEST(a_value_of_64_mebibytes)
{
    size_t size = (size_t)64 << 20;
    struct store *store = help_open(help_url("large.db", "?sync=process"));
    char *value = malloc(size);

    CHECK(value != NULL);
    memset(value, 'L', size);
    struct impel_field field = {bytes_of("f"), {value, size}};
    struct request *add = help_request(REQUEST_ADD, "s", "");
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    CHECK(help_run(store, add) == IMPEL_OK);
    request_free(add);
    struct request *read = help_read(store, "s", "g", "c", 1);
    CHECK_U64(read->read.entry_count, 1);
    CHECK(bytes_equal(read->read.entries[0].entry->fields[0].value, field.value));
    request_free(read);
    free(value);
    store_close(store);
    CHECK(lmdb_check(help_path("large.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
}

TAP_MAIN
