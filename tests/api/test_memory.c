/* test_memory.c -- every allocation of the library fails once, and nothing is lost by it.
 *
 * Round n lets the n-th allocation fail, of adding, reading and working through a stream. Whatever
 * that was for, the answer is success or an error, never a crash; and afterwards, with memory again,
 * every entry that was added is done exactly as often as it must be. The linker wraps the allocator
 * for our own code only: what other libraries do about it is theirs.
 *
 * All rounds are many; without an argument every seventh is tried, from a start that changes with
 * the process, so that all get their turn. */
#include "impel/impel.h"
#include "tap.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ENTRIES = 20,
    STEP = 7,
    ROUNDS_MAX = 100000,
};

/* ---- the allocator ---- */

static atomic_long countdown; /* to the allocation that fails; below 0 = none will */
static atomic_bool failed;    /* it did */

static int fails_now(void)
{
    if (atomic_load(&countdown) <= 0 || atomic_fetch_sub(&countdown, 1) != 1) {
        return 0;
    }
    atomic_store(&failed, 1);
    return 1;
}

/* The linker's names, not ours. NOLINTBEGIN(readability-identifier-naming) */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *data, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *data, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *data, size_t size)
{
    return fails_now() ? NULL : __real_realloc(data, size);
}

char *__wrap_strdup(const char *text)
{
    return fails_now() ? NULL : __real_strdup(text);
}

/* NOLINTEND(readability-identifier-naming) */

/* ---- one round ---- */

static char url[128];
static int done_count[ENTRIES]; /* by the number in the entry */

static struct impel_bytes text(const char *text)
{
    return (struct impel_bytes){text, strlen(text)};
}

/* Entry 0 fails once, entry 1 is rejected. */
static enum impel_outcome handle(struct impel_delivery *delivery, void *user)
{
    struct impel_bytes value = impel_delivery_field(delivery, "n");
    char digits[8] = "";
    (void)user;
    memcpy(digits, value.data, value.size < sizeof digits ? value.size : sizeof digits - 1);
    long number = strtol(digits, NULL, 10);
    if (number == 1) {
        return impel_delivery_reject(delivery, "no such customer");
    }
    if (number == 0 && impel_delivery_attempt(delivery) == 1) {
        return impel_delivery_fail(delivery, "not yet");
    }
    done_count[number]++;
    return IMPEL_DONE;
}

/* How many entries were added. */
static int64_t add_all(struct impel_store *store)
{
    static char digits[ENTRIES][8];
    struct impel_field fields[ENTRIES];
    struct impel_new_entry entries[ENTRIES];
    for (int i = 0; i < ENTRIES; i++) {
        (void)snprintf(digits[i], sizeof digits[i], "%d", i);
        fields[i] = (struct impel_field){text("n"), text(digits[i])};
        entries[i] = (struct impel_new_entry){.fields = &fields[i], .field_count = 1};
    }
    return impel_add_batch(store, text("orders"), entries, ENTRIES, NULL);
}

static int work(struct impel_store *store, int64_t give_up_ms)
{
    struct impel_worker *worker = NULL;
    struct impel_error error = {0};
    struct impel_worker_options options = {.stream = "orders",
                                           .group = "billing",
                                           .handler = handle,
                                           .concurrency = 3,
                                           .inline_handler = 1,
                                           .dead_after_ms = 100,
                                           .backoff_base_ms = 1,
                                           .backoff_cap_ms = 1,
                                           .until_idle = 1,
                                           .until_idle_ms = give_up_ms};
    int rc = impel_worker_new(store, &options, &worker, &error);
    if (rc >= 0) {
        rc = impel_worker_run(worker, &error);
    }
    impel_worker_free(worker);
    return rc;
}

static size_t length_of(struct impel_store *store, const char *stream)
{
    struct impel_range *range = NULL;
    size_t count = 0;
    if (impel_read(store, text(stream), NULL, &range, NULL) >= 0) {
        count = impel_range_count(range);
    }
    impel_range_free(range);
    return count;
}

/* All of it, with the n-th allocation failing (0 = none). Returns how many entries were added, as
 * far as the adding itself got to know; -1 = not even the store could be opened. */
static int64_t go_through(long n)
{
    struct impel_store *store = NULL;
    int64_t added = -1;
    atomic_store(&failed, 0);
    atomic_store(&countdown, n);
    if (impel_store_open(url, NULL, &store, NULL) >= 0) {
        added = add_all(store);
        (void)length_of(store, "orders");
        (void)work(store, 20000);
    }
    impel_store_close(store);
    atomic_store(&countdown, -1);
    return added;
}

/* What must hold afterwards: the rest is done, and nothing was lost. */
static int settled(long n, int64_t added)
{
    struct impel_store *store = NULL;
    int good = impel_store_open(url, NULL, &store, NULL) >= 0;
    size_t there = good ? length_of(store, "orders") : 0;
    good = good && (added < 0 || there == (size_t)added);
    int rc = good && there > 0 ? work(store, 60000) : 0;
    good = good && rc >= 0;
    size_t dead = good ? length_of(store, "orders:dead") : 0;
    impel_store_close(store);
    int missed = 0;
    for (size_t i = 0; i < there; i++) {
        missed += i != 1 && there == ENTRIES && done_count[i] == 0 ? 1 : 0;
    }
    good = good && missed == 0 && (there < ENTRIES || dead == 1);
    if (!good) {
        printf("# round %ld: added %ld, there %zu, not done %d, parked %zu, last answer %d\n", n,
               (long)added, there, missed, dead, rc);
    }
    return good;
}

/* Runs round n in a folder of its own. */
static int one_round(long n)
{
    char folder[64], command[128];
    (void)snprintf(folder, sizeof folder, "/tmp/impel-memory-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        return 0;
    }
    (void)snprintf(url, sizeof url, "lmdb:%s/db?sync=process", folder);
    memset(done_count, 0, sizeof done_count);
    int good = settled(n, go_through(n));
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 && good;
}

TEST(with_all_memory_all_is_done)
{
    CHECK(one_round(0));
}

TEST(any_allocation_may_fail)
{
    const char *all = getenv("IMPEL_TEST_ALL");
    long step = all != NULL ? 1 : STEP;
    long first = all != NULL ? 1 : 1 + getpid() % STEP;
    printf("# rounds %ld, %ld, ...\n", first, first + step);
    long n = first;
    for (; n < ROUNDS_MAX; n += step) {
        CHECK(one_round(n));
        if (!failed) {
            break; /* there are fewer than n */
        }
    }
    printf("# %ld allocations\n", n);
    CHECK(n > 50 && n < ROUNDS_MAX);
}

TAP_MAIN
