/* test_side.c -- the workers tables in the side file: beats without a lock against judges with it,
 * and what is left of a table when everybody died. */
#include "await.h"
#include "lmdb/help.h"
#include "store/lmdb/store.h"

#include <sys/wait.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct side open_side(const char *name)
{
    struct side side;
    struct impel_error err = {0};

    CHECK(side_open(&side, help_path(name), SIDE_SYNC_FULL, &err) == IMPEL_OK);
    return side;
}

enum {
    GROUP = 77,
    DEAD_AFTER_MS = 1000,
};

TEST(silence_counts_only_while_beats_are_taken)
{
    struct side side = open_side("a-wake");
    struct token one = help_token(1);
    struct token two = help_token(2);
    struct side_group *group = side_group(&side, GROUP, true);

    side_note(group, DEAD_AFTER_MS, 10000);
    struct side_row *a = side_take(&side, group, bytes_of("a"), &one, DEAD_AFTER_MS, 10000);
    struct side_row *b = side_take(&side, group, bytes_of("b"), &two, DEAD_AFTER_MS, 10000);
    struct side_ref ref = side_ref(&side, group, b);
    CHECK(!side_judge(group, a, 10900));
    /* Nobody beat for 20 s: the store stood still, and nobody is dead of that. */
    side_note(group, DEAD_AFTER_MS, 30000);
    CHECK(!side_judge(group, a, 30000));
    CHECK(!side_judge(group, a, 30999));
    for (int64_t now_ms = 30100; now_ms <= 31000; now_ms += 100) {
        CHECK(side_beat(&side, &ref, DEAD_AFTER_MS, now_ms));
    }
    CHECK(side_judge(group, a, 31000));
    CHECK(!side_judge(group, b, 31000));
    side_close(&side);
}

TEST(a_beat_that_comes_too_late_fails)
{
    struct side side = open_side("b-wake");
    struct token one = help_token(1);
    struct token two = help_token(2);
    struct side_group *group = side_group(&side, GROUP, true);

    side_note(group, DEAD_AFTER_MS, 10000);
    struct side_row *row = side_take(&side, group, bytes_of("a"), &one, DEAD_AFTER_MS, 10000);
    struct side_ref ref = side_ref(&side, group, row);
    side_note(group, DEAD_AFTER_MS, 10400);
    side_note(group, DEAD_AFTER_MS, 10800);
    side_note(group, DEAD_AFTER_MS, 11000);
    CHECK(side_judge(group, row, 11000));
    CHECK(!side_beat(&side, &ref, DEAD_AFTER_MS, 11001)); /* judged */
    (void)side_take(&side, group, bytes_of("a"), &two, DEAD_AFTER_MS, 11002);
    CHECK(!side_beat(&side, &ref, DEAD_AFTER_MS, 11003)); /* another's by now */
    struct side_ref other = side_ref(&side, group, row);
    CHECK(side_beat(&side, &other, DEAD_AFTER_MS, 11004));
    side_remove(&side, group, row);
    CHECK(!side_beat(&side, &other, DEAD_AFTER_MS, 11005)); /* nobody's */
    CHECK(side_take(&side, group, bytes_of("z"), &one, DEAD_AFTER_MS, 11006) == row);
    CHECK(!side_beat(&side, &other, DEAD_AFTER_MS, 11007)); /* the same place, another worker */
    side_close(&side);
}

/* One thread beats without the lock, one judges with it. Whenever the judge has said "dead", no
 * beat may have passed after it. */
struct race {
    struct side *side;
    struct side_group *group;
    struct side_row *row;
    _Atomic int64_t clock_ms;
    _Atomic bool stop;
    _Atomic uint64_t beats;
};

static void *race_beat(void *argument)
{
    struct race *race = argument;
    struct side_ref ref = side_ref(race->side, race->group, race->row);

    while (!atomic_load(&race->stop)) {
        int64_t now_ms = atomic_load(&race->clock_ms);
        if (!side_beat(race->side, &ref, DEAD_AFTER_MS, now_ms)) {
            return NULL; /* judged dead: from now on every beat fails */
        }
        atomic_fetch_add(&race->beats, 1);
    }
    return NULL;
}

/* Lets time pass in steps until the judge finds the worker dead, or gives up. */
static bool race_judge(struct race *race)
{
    for (int step = 0; step < 2000; step++) {
        int64_t now_ms = atomic_fetch_add(&race->clock_ms, 100) + 100;
        side_note(race->group, DEAD_AFTER_MS, now_ms);
        if (side_judge(race->group, race->row, now_ms)) {
            return true;
        }
    }
    return false;
}

/* One death, or none: true if the judge won. */
static bool race_run(struct side *side, int64_t began_ms)
{
    struct token one = help_token(1);
    struct side_group *group = side_group(side, GROUP, true);
    struct race race = {.side = side, .group = group, .clock_ms = began_ms};
    pthread_t thread;

    side_note(group, DEAD_AFTER_MS, began_ms);
    race.row = side_take(side, group, bytes_of("a"), &one, DEAD_AFTER_MS, began_ms);
    CHECK(pthread_create(&thread, NULL, race_beat, &race) == 0);
    int64_t deadline = help_now_ms() + 20000;
    while (atomic_load(&race.beats) == 0) {
        CHECK(help_now_ms() < deadline);
    }
    bool dead = race_judge(&race);
    int64_t beat_ms = side_beat_ms(race.row);
    /* A beat in flight has failed: the word stays as it was judged. */
    for (int i = 0; dead && i < 1000; i++) {
        CHECK(side_beat_ms(race.row) == beat_ms && side_marked(race.row));
    }
    atomic_store(&race.stop, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!dead || (side_beat_ms(race.row) == beat_ms && side_marked(race.row)));
    side_remove(side, group, race.row);
    return dead;
}

TEST(beats_race_with_judges)
{
    struct side side = open_side("c-wake");
    int deaths = 0;

    for (int64_t round = 0; round < 200; round++) {
        deaths += race_run(&side, 100000 + round * 300000);
    }
    printf("# %d of 200 judged dead in the race\n", deaths);
    side_close(&side);
}

TEST(tables_are_whole_after_their_holder_died)
{
    struct side side = open_side("d-wake");
    struct token one = help_token(1);
    struct side_group *group = side_group(&side, GROUP, true);
    char name[16];

    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "w%d", i);
        CHECK(side_take(&side, group, bytes_of(name), &one, DEAD_AFTER_MS, 1000) != NULL);
    }
    for (int i = 0; i < 100; i += 3) {
        (void)snprintf(name, sizeof(name), "w%d", i);
        side_remove(&side, group, side_row(&side, group, bytes_of(name)));
    }
    /* As if it had died between writing a row and linking it, with both lists lost. */
    group->row_first = 0;
    side.header->row_free = 0;
    side_repair(&side);
    for (int i = 0; i < 100; i++) {
        (void)snprintf(name, sizeof(name), "w%d", i);
        CHECK((side_row(&side, group, bytes_of(name)) != NULL) == (i % 3 != 0));
    }
    uint32_t used = side.header->rows_used;
    CHECK(side_take(&side, group, bytes_of("new"), &one, DEAD_AFTER_MS, 1000) != NULL);
    CHECK_U64(side.header->rows_used, used); /* from the free ones */
    side_group_remove(&side, group);
    CHECK(side_group(&side, GROUP, false) == NULL);
    side_close(&side);
}

TEST(the_table_is_full_with_an_error)
{
    struct side side = open_side("e-wake");
    struct token one = help_token(1);
    struct side_group *group = side_group(&side, GROUP, true);
    char name[16];
    size_t count = 0;

    /* Taking walks the group's list: a group each, so that the lists stay short. */
    for (; count <= SIDE_ROWS_MAX; count++) {
        (void)snprintf(name, sizeof(name), "w%zu", count);
        group = side_group(&side, 100 + count / 32, true);
        if (group == NULL ||
            side_take(&side, group, bytes_of(name), &one, DEAD_AFTER_MS, 1000) == NULL) {
            break;
        }
    }
    CHECK(group != NULL);
    CHECK_U64(count, SIDE_ROWS_MAX);
    for (uint64_t number = 100000; side_group(&side, number, true) != NULL; number++) {
        CHECK(number < 100000 + SIDE_GROUPS_MAX);
    }
    side_close(&side);
}

/* ---- whoever held the lock for long ---- */

TEST(a_slow_holder_beats_for_its_own)
{
    struct store *store = help_open(help_url("slow.db", "?sync=process"));
    struct handle *handle = (struct handle *)store;

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_beat(store, "s", "g", "quick", 1, 60000));
    request_free(help_beat(store, "s", "g", "silent", 2, 60000));
    CHECK_U64(handle->refs.count, 2);
    struct side *side = &handle->file->side;
    struct side_row *quick = &side->rows[handle->refs.items[0].side.row];
    struct side_row *silent = &side->rows[handle->refs.items[1].side.row];
    struct exec exec = {.env = handle->file, .refs = &handle->refs};
    /* A turn that began when the one had just beaten and the other was late already. */
    exec.boot_ms = help_now_ms();
    handle->refs.items[0].beat_ms = exec.boot_ms;
    handle->refs.items[1].beat_ms = exec.boot_ms - 40000;
    int64_t quick_ms = side_beat_ms(quick);
    int64_t silent_ms = side_beat_ms(silent);
    while (help_now_ms() <= quick_ms) {
        await_clock_us(500);
    }
    exec_beat_own(&exec);
    CHECK(side_beat_ms(quick) > quick_ms);
    CHECK(side_beat_ms(silent) == silent_ms);
    store_close(store);
}

/* ---- everybody died ---- */

_Noreturn static void mortal(const char *url)
{
    struct store *store = NULL;
    struct impel_error err = {0};

    if (store_open(url, NULL, &store, &err) < 0) {
        _exit(99);
    }
    (void)help_group(store, "s", "g");
    (void)help_add(store, "s", ID_MIN, "work");
    struct request *beat = help_beat(store, "s", "g", "w", 7, 300);
    struct request *read = help_read(store, "s", "g", "w", 1);
    if (beat->status < 0 || read->read.entry_count != 1) {
        _exit(98);
    }
    (void)raise(SIGKILL);
    _exit(97);
}

static struct request *look(struct store *store)
{
    struct request *request = help_request(REQUEST_LOOK, "s", "g");

    request->look.flags = LOOK_BEAT;
    request->dead_after_ms = 300;
    CHECK(help_run(store, request) == IMPEL_OK);
    CHECK_U64(request->look.owner_count, 1);
    CHECK(request->look.owners[0].in_table);
    return request;
}

static void await_dead(struct store *store)
{
    int64_t deadline = help_now_ms() + 20000;
    enum owner_state state = OWNER_LIVE;

    while (state != OWNER_DEAD) {
        struct request *request = look(store);
        state = request->look.owners[0].state;
        request_free(request);
        CHECK(help_now_ms() < deadline);
        await_clock_us(10000);
    }
}

TEST(a_worker_that_died_with_everybody_is_known_to_be_dead)
{
    char *url = strdup(help_url("dead.db", "?sync=process"));
    int status = 0;

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        mortal(url);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct store *store = help_open(url);
    await_dead(store);
    store_close(store);

    /* The machine's next boot: as its side file will be found. */
    store = help_open(url);
    struct handle *handle = (struct handle *)store;
    handle->file->side.header->boot[3] ^= 0x55;
    store_close(store);
    store = help_open(url);
    struct request *request = look(store);
    CHECK(request->look.owners[0].state == OWNER_DEAD); /* at once */
    request_free(request);
    store_close(store);

    /* Another data file under the same name starts with an empty table. */
    CHECK(unlink(help_path("dead.db")) == 0);
    CHECK(unlink(help_path("dead.db-lock")) == 0);
    store = help_open(url);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request = help_request(REQUEST_LOOK, "s", "g");
    CHECK(help_run(store, request) == IMPEL_OK);
    CHECK_U64(request->look.owner_count, 0);
    request_free(request);
    store_close(store);
    free(url);
}

TAP_MAIN
