/* test_power.c -- the machine loses its power while a transaction is on its way to the disk.
 *
 * Of what was written since the last flush the disk may have any part, in units of a sector. So files are
 * put together from what was there before a transaction and what was there after it, at random, and opened
 * as after a reboot: then all rows are as before or as after, and nothing is damaged. */
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/compact.h"
#include "store/lmdb/pages.h"
#include "store/lmdb/redo.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    SECTOR = 512,
    STEPS = 30,    /* transactions */
    VARIANTS = 18, /* torn files of each */
    SOAK_ROUNDS = 100,
    AREA_AFTER = REDO_AFTER + 8,
};

struct image {
    uint8_t *bytes;
    size_t size;
    uint64_t last; /* transaction */
    uint64_t rows; /* a hash of all of them */
};

static uint64_t seed = 20261201;
static _Atomic bool disk_fails;
static _Atomic bool dies_at_flush;
static _Atomic unsigned flushes;

/* In the place of libc's, for LMDB as well. */
__attribute__((visibility("default"))) int fdatasync(int fildes)
{
    if (atomic_load(&dies_at_flush)) {
        (void)kill(getpid(), SIGKILL);
    }
    atomic_fetch_add(&flushes, 1);
    if (atomic_load(&disk_fails)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fildes);
}

static uint64_t random_below(uint64_t limit)
{
    return random_next(&seed) % limit;
}

static struct image image_read(const char *path)
{
    struct image image = {0};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    image.size = (size_t)st.st_size;
    image.bytes = malloc(image.size);
    CHECK(image.bytes != NULL && read(fd, image.bytes, image.size) == (ssize_t)image.size);
    close(fd);
    return image;
}

/* Into the file that is there: a file that is made anew would be a copy. */
static void image_write(const char *path, const struct image *image)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && ftruncate(fd, 0) == 0);
    CHECK(write(fd, image->bytes, image->size) == (ssize_t)image->size);
    close(fd);
}

static uint64_t hash_database(MDB_txn *txn, const char *name, uint64_t hash)
{
    MDB_dbi dbi = 0;
    MDB_cursor *cursor = NULL;
    MDB_val key;
    MDB_val value;

    CHECK(mdb_dbi_open(txn, name, 0, &dbi) == 0 && mdb_cursor_open(txn, dbi, &cursor) == 0);
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        if (key.mv_size == 1 && memcmp(key.mv_data, "r", 1) == 0) {
            continue; /* the area itself */
        }
        hash = hash_bytes((struct impel_bytes){key.mv_data, key.mv_size}, hash);
        hash = hash_bytes((struct impel_bytes){value.mv_data, value.mv_size}, hash);
    }
    mdb_cursor_close(cursor);
    return hash;
}

static uint64_t hash_rows(const char *path)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    uint64_t hash = 0;

    CHECK(mdb_env_create(&env) == 0 && mdb_env_set_maxdbs(env, DB_COUNT + 1) == 0);
    CHECK(mdb_env_open(env, path, MDB_NOSUBDIR | MDB_RDONLY | MDB_NOLOCK, 0) == 0);
    CHECK(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) == 0);
    for (int db = 0; db < DB_COUNT; db++) {
        hash = hash_database(txn, lmdb_database_names[db], hash);
    }
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return hash;
}

/* ---- what is done before the power goes ---- */

struct held {
    struct impel_id ids[512];
    size_t count;
};

static void read_some(struct store *store, struct held *held)
{
    struct request *read = help_read(store, "s", "g", "c", (uint32_t)(1 + random_below(40)));

    for (size_t i = 0; i < read->read.entry_count && held->count < ARRAY_SIZE(held->ids); i++) {
        held->ids[held->count++] = read->read.entries[i].entry->id;
    }
    request_free(read);
}

static void acknowledge_one(struct store *store, struct held *held)
{
    size_t at = random_below(held->count);

    CHECK(help_ack(store, "s", "g", held->ids[at]) >= 0);
    held->ids[at] = held->ids[--held->count];
}

/* One transaction: mostly small ones, of many rows at times, and now and then one that does not fit. */
static void step(struct store *store, struct held *held)
{
    static char value[2 * REDO_SLOT_SIZE];
    char stream[16];
    uint64_t kind = random_below(12);
    size_t size = random_below(kind == 0 ? sizeof(value) - 1 : kind < 3 ? 20000 : 200);

    if (kind > 9) {
        read_some(store, held);
        return;
    }
    if (kind > 6 && held->count > 0) {
        acknowledge_one(store, held);
        return;
    }
    memset(value, 'v', size);
    value[size] = '\0';
    (void)snprintf(stream, sizeof(stream), "s%" PRIu64, random_below(7));
    CHECK(help_add(store, kind > 4 ? stream : "s", ID_MIN, value) >= 0);
}

static uint64_t last_of(const char *path)
{
    struct pages_metas metas;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && pages_metas(fd, &metas));
    close(fd);
    return metas.txns[0] > metas.txns[1] ? metas.txns[0] : metas.txns[1];
}

/* The file before and after each transaction, of a store that has an area. */
static void record(const char *path, const char *url, struct image *images)
{
    struct store *store = help_open(url);
    struct held held = {.count = 0};
    struct redo_pointer pointer;

    CHECK(help_group(store, "s", "g") >= 0);
    for (int i = 0; i < AREA_AFTER; i++) {
        CHECK(help_add(store, "s", ID_MIN, "before") >= 0);
    }
    for (size_t i = 0; i <= STEPS; i++) {
        uint64_t last = last_of(path);
        while (i > 0 && last_of(path) == last) { /* there was nothing to read */
            step(store, &held);
        }
        CHECK_U64(last_of(path), last + (i > 0));
        images[i] = image_read(path);
        images[i].rows = hash_rows(path);
        images[i].last = last_of(path);
    }
    store_close(store);
    memcpy(&pointer, images[0].bytes + REDO_POINTER_AT, sizeof(pointer));
    CHECK(pointer.magic == REDO_MAGIC && pointer.hash == redo_pointer_hash(&pointer));
}

/* ---- what is left of it ---- */

/* Whole records are of a boot before this one. */
static void reboot(struct image *image)
{
    struct redo_pointer pointer;

    memcpy(&pointer, image->bytes + REDO_POINTER_AT, sizeof(pointer));
    for (size_t slot = 0; slot < 2; slot++) {
        uint8_t *at = image->bytes + pointer.at + slot * REDO_SLOT_SIZE;
        struct redo_head head;
        memcpy(&head, at, sizeof(head));
        if (head.magic == REDO_MAGIC && head.size <= REDO_SLOT_SIZE - sizeof(head) &&
            head.hash == redo_hash(&head, at + sizeof(head))) {
            head.boot[0] ^= 1;
            head.hash = redo_hash(&head, at + sizeof(head));
            memcpy(at, &head, sizeof(head));
        }
    }
}

/* Was LMDB's own order kept: all pages are on the disk before the meta page is written? */
static bool is_plain(const struct image *after, uint64_t last)
{
    struct redo_pointer pointer;
    struct redo_head head;

    memcpy(&pointer, after->bytes + REDO_POINTER_AT, sizeof(pointer));
    memcpy(&head, after->bytes + pointer.at + last % 2 * REDO_SLOT_SIZE, sizeof(head));
    CHECK_U64(head.txn, last);
    return head.kind == REDO_PLAIN;
}

/* Each sector as it was before or after, `percent` of them after; the file as long as one of them. */
static struct image tear(const struct image *before, const struct image *after, uint64_t percent)
{
    size_t longer = before->size > after->size ? before->size : after->size;
    struct image torn = {.bytes = calloc(1, longer),
                         .size = random_below(100) < percent ? after->size : before->size};
    bool plain = is_plain(after, after->last);
    bool pages_first = plain && random_below(2) == 0; /* all is there, but perhaps the meta page */

    CHECK(torn.bytes != NULL);
    torn.size = pages_first ? after->size : torn.size;
    for (size_t at = 0; at < torn.size; at += SECTOR) {
        bool is_meta = at == after->last % 2 * (size_t)sysconf(_SC_PAGESIZE);
        bool written = random_below(100) < percent;
        if (plain) {
            written = pages_first ? written || !is_meta : (written && !is_meta) || percent == 100;
        }
        const struct image *from = written ? after : before;
        if (at + SECTOR <= from->size) {
            memcpy(torn.bytes + at, from->bytes + at, SECTOR);
        }
    }
    return torn;
}

static bool tell_problem(void *user, const char *text)
{
    (void)user;
    printf("# %s\n", text);
    return true;
}

/* What the rows are once it was opened; 0 if it is damaged. By `impel check`, or by whoever uses it. */
static uint64_t rows_after(const char *path, const char *url, bool by_check)
{
    struct lmdb_check_counts counts = {0};
    struct impel_error err = {0};

    if (!by_check) {
        store_close(help_open(url));
    }
    int rc = lmdb_check(path, tell_problem, NULL, &counts, &err);
    if (rc < 0 || counts.problems > 0) {
        printf("# %s\n", err.text);
        return 0;
    }
    return hash_rows(path);
}

/* A new file that holds this. */
static void copy_to(const char *path, const struct image *image)
{
    static const char *const suffixes[] = {"", "-lock", "-wake"};
    char name[300];

    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        (void)snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
        (void)unlink(name);
    }
    image_write(path, image);
}

static bool can_be_opened(const char *url)
{
    struct store *store = NULL;
    struct impel_error err = {0};

    if (store_open(url, NULL, &store, &err) < 0) {
        printf("# refused: %s\n", err.text);
        return false;
    }
    store_close(store);
    return true;
}

static void images_free(struct image *images)
{
    for (size_t i = 0; i <= STEPS; i++) {
        free(images[i].bytes);
    }
}

/* One torn file: true if its rows are as after the transaction. */
static bool is_as_after(const char *path,
                        const char *url,
                        const struct image *before,
                        const struct image *after,
                        size_t variant)
{
    static const uint64_t percents[] = {3, 30, 50, 70, 97, 100};
    uint64_t percent = percents[variant % ARRAY_SIZE(percents)];
    struct image torn = tear(before, after, percent);

    reboot(&torn);
    image_write(path, &torn);
    free(torn.bytes);
    uint64_t rows = rows_after(path, url, variant % 2 == 0);
    if (rows != before->rows && rows != after->rows) {
        printf("# transaction %" PRIu64 ", variant %zu: neither as before nor as after\n",
               after->last, variant);
    }
    CHECK(rows == before->rows || rows == after->rows);
    CHECK(percent < 100 || rows == after->rows);
    return rows == after->rows;
}

static void round_of(const char *name)
{
    struct image images[STEPS + 1] = {0};
    char path[256];
    char url[320];
    size_t fresh = 0;

    (void)snprintf(path, sizeof(path), "%s", help_path(name));
    (void)snprintf(url, sizeof(url), "%s", help_url(name, "?sync=full"));
    record(path, url, images);
    for (size_t i = 1; i <= STEPS; i++) {
        for (size_t variant = 0; variant < VARIANTS; variant++) {
            fresh += is_as_after(path, url, &images[i - 1], &images[i], variant);
        }
    }
    printf("# %zu of %d as after\n", fresh, STEPS * VARIANTS);
    CHECK(fresh > STEPS && fresh < (size_t)STEPS * (VARIANTS - 1));
    images_free(images);
}

TEST(quick_a_transaction_is_whole_or_was_never_there)
{
    round_of("power.db");
}

/* Nothing is taken back in a copy: what is torn is refused, never shown. */
static bool is_refused(const char *copy,
                       const char *url,
                       const struct image *before,
                       const struct image *after,
                       uint64_t percent)
{
    struct image torn = tear(before, after, percent);

    reboot(&torn);
    copy_to(copy, &torn);
    free(torn.bytes);
    if (!can_be_opened(url)) {
        return true;
    }
    uint64_t rows = hash_rows(copy);
    CHECK(rows == before->rows || rows == after->rows);
    return false;
}

TEST(quick_a_torn_copy_is_refused)
{
    struct image images[STEPS + 1] = {0};
    char path[256];
    char url[320];
    size_t refused = 0;

    (void)snprintf(path, sizeof(path), "%s", help_path("copied.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("copied.db", "?sync=full"));
    record(path, url, images);
    (void)snprintf(path, sizeof(path), "%s", help_path("copy.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("copy.db", "?sync=full"));
    for (size_t i = 1; i <= STEPS; i++) {
        refused += is_refused(path, url, &images[i - 1], &images[i], i % 2 == 0 ? 50 : 90);
    }
    CHECK(refused > 0 && refused < STEPS);
    images_free(images);
}

/* Adds so many entries, and tears the file at the last of them. */
static void is_whole_after(const char *path, const char *url, int count)
{
    struct store *store = help_open(url);

    for (int i = 1; i < count; i++) {
        CHECK(help_add(store, "s", ID_MIN, "more") >= 0);
    }
    struct image before = image_read(path);
    before.rows = hash_rows(path);
    CHECK(help_add(store, "s", ID_MIN, "and more") >= 0);
    struct image after = image_read(path);
    after.rows = hash_rows(path);
    after.last = last_of(path);
    store_close(store);
    size_t fresh = 0;
    for (size_t variant = 0; variant < VARIANTS; variant++) {
        fresh += is_as_after(path, url, &before, &after, variant);
    }
    CHECK(fresh > 0 && fresh < VARIANTS);
    free(before.bytes);
    free(after.bytes);
}

/* What was closed is whole, and so is a copy of it, which goes on as any other file. */
TEST(quick_a_copy_of_a_closed_store_is_one)
{
    struct image images[STEPS + 1] = {0};
    struct redo_pointer pointer;
    struct redo_head head;
    char path[256];
    char url[320];

    (void)snprintf(path, sizeof(path), "%s", help_path("closed.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("closed.db", "?sync=full"));
    record(path, url, images);
    struct image closed = image_read(path);
    memcpy(&pointer, closed.bytes + REDO_POINTER_AT, sizeof(pointer));
    memcpy(&head, closed.bytes + pointer.at + last_of(path) % 2 * REDO_SLOT_SIZE, sizeof(head));
    CHECK_U64(head.kind, REDO_PLAIN);
    CHECK_U64(head.txn, last_of(path));
    reboot(&closed);
    (void)snprintf(path, sizeof(path), "%s", help_path("again.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("again.db", "?sync=full"));
    copy_to(path, &closed);
    free(closed.bytes);
    store_close(help_open(url));
    CHECK_U64(hash_rows(path), images[STEPS].rows);
    is_whole_after(path, url, 1); /* the very first commit of it */
    images_free(images);
}

TEST(quick_a_compacted_store_has_an_area_again)
{
    struct image images[STEPS + 1] = {0};
    struct lmdb_compact_sizes sizes;
    struct redo_pointer pointer;
    struct impel_error err = {0};
    char path[256];
    char url[320];

    (void)snprintf(path, sizeof(path), "%s", help_path("compact.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("compact.db", "?sync=full"));
    record(path, url, images);
    CHECK(lmdb_compact(path, &sizes, &err) >= 0);
    struct image compact = image_read(path);
    memcpy(&pointer, compact.bytes + REDO_POINTER_AT, sizeof(pointer));
    CHECK(pointer.magic == 0);
    CHECK_U64(hash_rows(path), images[STEPS].rows);
    is_whole_after(path, url, AREA_AFTER);
    free(compact.bytes);
    images_free(images);
}

/* A whole record whose rows are none: refused, not followed. */
TEST(quick_a_record_of_nonsense_is_refused)
{
    struct image images[STEPS + 1] = {0};
    struct redo_pointer pointer;
    struct redo_head head = {.magic = REDO_MAGIC, .kind = REDO_ROWS};
    struct redo_row row = {.key_size = ROW_KEY_SIZE, .database = DB_COUNT};
    struct stat st;
    char path[256];
    char url[320];

    (void)snprintf(path, sizeof(path), "%s", help_path("nonsense.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("nonsense.db", "?sync=full"));
    record(path, url, images);
    struct image *image = &images[STEPS];
    memcpy(&pointer, image->bytes + REDO_POINTER_AT, sizeof(pointer));
    CHECK(stat(path, &st) == 0);
    head.inode = (uint64_t)st.st_ino;
    head.txn = image->last + 1;
    head.size = sizeof(row) + ROW_KEY_SIZE;
    uint8_t *at = image->bytes + pointer.at + head.txn % 2 * REDO_SLOT_SIZE;
    for (int kind = 0; kind < 3; kind++) {
        row.database = kind == 0 ? DB_COUNT : DB_PEL;
        row.key_size = kind == 1 ? ROW_KEY_SIZE - 1 : ROW_KEY_SIZE;
        row.value_size = kind == 2 ? 1 : 0;
        memcpy(at + sizeof(head), &row, sizeof(row));
        head.hash = redo_hash(&head, at + sizeof(head));
        memcpy(at, &head, sizeof(head));
        image_write(path, image);
        CHECK(!can_be_opened(url));
    }
    row = (struct redo_row){.key_size = ROW_KEY_SIZE, .database = DB_PEL, .gone = 1};
    memcpy(at + sizeof(head), &row, sizeof(row));
    head.hash = redo_hash(&head, at + sizeof(head));
    memcpy(at, &head, sizeof(head));
    image_write(path, image);
    CHECK(can_be_opened(url)); /* a row that is not there anyway goes */
    CHECK_U64(hash_rows(path), image->rows);
    images_free(images);
}

/* What was not flushed is not answered for, and nothing more is, until the file is opened anew. */
TEST(quick_a_flush_that_fails_is_told)
{
    char path[256];
    char url[320];
    struct lmdb_check_counts counts = {0};
    struct impel_error err = {0};

    (void)snprintf(path, sizeof(path), "%s", help_path("failing.db"));
    (void)snprintf(url, sizeof(url), "%s", help_url("failing.db", "?sync=full"));
    struct store *store = help_open(url);
    for (int i = 0; i < AREA_AFTER; i++) {
        CHECK(help_add(store, "s", ID_MIN, "before") >= 0);
    }
    atomic_store(&disk_fails, true);
    int first = help_add(store, "s", ID_MIN, "lost");
    atomic_store(&disk_fails, false);
    int second = help_add(store, "s", ID_MIN, "later");
    store_close(store);
    CHECK(first == IMPEL_ERR_IO);
    CHECK(second == IMPEL_ERR_IO);
    store = help_open(url);
    CHECK(help_add(store, "s", ID_MIN, "again") >= 0);
    store_close(store);
    CHECK(lmdb_check(path, tell_problem, NULL, &counts, &err) >= 0);
    CHECK(counts.entries == AREA_AFTER + 1 || counts.entries == AREA_AFTER + 2);
}

/* In a process of its own: commits, and is killed before it has flushed that. */
_Noreturn static void commit_and_die(const char *url)
{
    struct store *store = help_open(url);

    if (help_add(store, "s", ID_MIN, "flushed") >= 0) {
        atomic_store(&dies_at_flush, true);
        (void)help_add(store, "s", ID_MIN, "not flushed");
    }
    _exit(1);
}

/* Another, which has the file open all the time: how many flushes its next commit takes. */
_Noreturn static void commit_after(const char *url, int ready, int go)
{
    char byte = 'x';
    struct store *store = help_open(url);

    if (help_add(store, "s", ID_MIN, "flushed") < 0 || write(ready, &byte, 1) != 1 ||
        read(go, &byte, 1) != 1) {
        _exit(100);
    }
    atomic_store(&flushes, 0);
    int rc = help_add(store, "s", ID_MIN, "behind it");
    unsigned count = atomic_load(&flushes);
    store_close(store);
    _exit(rc < 0 ? 100 : (int)count);
}

TEST(quick_what_a_killed_process_committed_is_flushed_first)
{
    char url[320];
    char byte = 'x';
    int ready[2];
    int go[2];
    int status = 0;

    (void)snprintf(url, sizeof(url), "%s", help_url("killed.db", "?sync=full"));
    struct store *store = help_open(url);
    for (int i = 0; i < AREA_AFTER; i++) {
        CHECK(help_add(store, "s", ID_MIN, "before") >= 0);
    }
    store_close(store);
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    pid_t other = fork();
    if (other == 0) {
        commit_after(url, ready[1], go[0]);
    }
    CHECK(other > 0 && read(ready[0], &byte, 1) == 1);
    pid_t victim = fork();
    if (victim == 0) {
        commit_and_die(url);
    }
    CHECK(victim > 0 && waitpid(victim, &status, 0) == victim);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(write(go[1], &byte, 1) == 1);
    CHECK(waitpid(other, &status, 0) == other && WIFEXITED(status));
    CHECK_U64((uint64_t)WEXITSTATUS(status), 2); /* the dead one's, and its own */
}

TEST(soak_a_transaction_is_whole_or_was_never_there)
{
    for (seed = 1; seed <= SOAK_ROUNDS; seed++) {
        char name[32];
        uint64_t number = seed;
        (void)snprintf(name, sizeof(name), "power-%" PRIu64 ".db", number);
        printf("# seed %" PRIu64 "\n", number);
        round_of(name);
        CHECK(unlink(help_path(name)) == 0);
        seed = number;
    }
}

TAP_MAIN
