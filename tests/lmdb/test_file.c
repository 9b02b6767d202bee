/* test_file.c -- files that are full, damaged, foreign, newer, or may not be written. */
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/env.h"
#include "store/lmdb/store.h"

#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static int open_status(const char *url, struct impel_error *err)
{
    struct store *store = NULL;
    int rc = store_open(url, NULL, &store, err);

    store_close(store);
    return rc;
}

/* The error has to name the path and this. */
static void refused(const char *url, int status, const char *path, const char *word)
{
    struct impel_error err = {0};
    int rc = open_status(url, &err);

    if (rc != status || strstr(err.text, path) == NULL || strstr(err.text, word) == NULL) {
        printf("# got %d: %s\n", rc, err.text);
    }
    CHECK(rc == status);
    CHECK(strstr(err.text, path) != NULL);
    CHECK(strstr(err.text, word) != NULL);
}

static void write_file(const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    CHECK(fd >= 0);
    CHECK(write(fd, data, size) == (ssize_t)size);
    close(fd);
}

TEST(urls_that_make_no_sense)
{
    refused("lmdb:", IMPEL_ERR_INVALID, "lmdb:", "path");
    refused(help_url("x.db", "?sync=maybe"), IMPEL_ERR_INVALID, "sync=maybe", "sync=full");
    refused(help_url("x.db", "?map=12Q"), IMPEL_ERR_INVALID, "'map=12Q' is no size", "map=SIZE");
    refused(help_url("x.db", "?map=-1"), IMPEL_ERR_INVALID, "'map=-1' is no size", "map=SIZE");
    refused(help_url("x.db", "?map="), IMPEL_ERR_INVALID, "'map=' is no size", "map=SIZE");
    refused(help_url("x.db", "?map=0"), IMPEL_ERR_INVALID, "'map=0' is no size", "map=SIZE");
    refused(help_url("x.db", "?size=1"), IMPEL_ERR_INVALID, "'size=1'", "unknown option");
    refused("mysql:there", IMPEL_ERR_INVALID, "", "lmdb:");
    refused(help_url("none.db", "?create=no"), IMPEL_ERR_NOT_FOUND, "none.db", "no such store");
    CHECK(access(help_path("none.db"), F_OK) < 0);
    refused(help_url("nowhere/x.db", ""), IMPEL_ERR_NOT_FOUND, "nowhere", "folder");
}

TEST(a_map_too_small_for_a_new_store)
{
    refused(help_url("small.db", "?map=1"), IMPEL_ERR_FULL, "small.db", "map is too small");
    store_close(help_open(help_url("small.db", "?map=1MiB")));
}

TEST(things_that_are_no_store)
{
    CHECK(mkdir(help_path("folder"), 0777) == 0);
    refused(help_url("folder", ""), IMPEL_ERR_INVALID, "folder", "is a folder");
    write_file(help_path("text"), "this is a text file, no store; long enough", 42);
    refused(help_url("text", ""), IMPEL_ERR_CORRUPT, "text", "not an Impel store");
    write_file(help_path("short"), "x", 1);
    refused(help_url("short", ""), IMPEL_ERR_CORRUPT, "short", "not an Impel store");
    CHECK(access(help_path("text"), F_OK) == 0);
}

TEST(an_lmdb_file_of_something_else)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi = 0;
    char text[] = "word";
    MDB_val word = {4, text};

    CHECK(mdb_env_create(&env) == 0);
    CHECK(mdb_env_open(env, help_path("other.db"), MDB_NOSUBDIR, 0666) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, NULL, 0, &dbi) == 0);
    CHECK(mdb_put(txn, dbi, &word, &word, 0) == 0);
    CHECK(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
    refused(help_url("other.db", ""), IMPEL_ERR_CORRUPT, "other.db", "not an Impel store");
}

/* Changes the file's own row, as a newer program would write it. */
static void set_version(const char *path, uint32_t version)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi dbi = 0;
    char letter[] = "m";
    MDB_val key = {1, letter};
    MDB_val value;
    struct disk_meta meta;

    CHECK(mdb_env_create(&env) == 0);
    mdb_env_set_maxdbs(env, 8);
    CHECK(mdb_env_open(env, path, MDB_NOSUBDIR, 0666) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, "catalog", 0, &dbi) == 0);
    CHECK(mdb_get(txn, dbi, &key, &value) == 0);
    memcpy(&meta, value.mv_data, sizeof(meta));
    meta.version = version;
    value = (MDB_val){sizeof(meta), &meta};
    CHECK(mdb_put(txn, dbi, &key, &value, 0) == 0);
    CHECK(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
}

TEST(a_newer_format_is_refused)
{
    store_close(help_open(help_url("newer.db", "")));
    set_version(help_path("newer.db"), LMDB_FORMAT_VERSION + 1);
    refused(help_url("newer.db", ""), IMPEL_ERR_VERSION, "newer.db", "newer");
    set_version(help_path("newer.db"), LMDB_FORMAT_VERSION);
    store_close(help_open(help_url("newer.db", "")));
}

TEST(a_folder_that_cannot_be_written)
{
    struct impel_error err = {0};
    int status = 0;

    CHECK(chmod(help_folder(), 0755) == 0);
    CHECK(mkdir(help_path("locked"), 0555) == 0);
    char *url = strdup(help_url("locked/x.db", ""));
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0)) {
            _exit(77);
        }
        int rc = open_status(url, &err);
        _exit(rc == IMPEL_ERR_READ_ONLY && strstr(err.text, "writable") != NULL ? 0 : 1);
    }
    free(url);
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        SKIP("root cannot become another user here");
    }
    CHECK(status == 0);
}

/* ---- where it lies ---- */

static unsigned long pretended_magic; /* 0: as it is */

/* In the place of the C library's, as no network filesystem can be had here. */
int statfs(const char *file, struct statfs *buf)
{
    int rc = (int)syscall(SYS_statfs, file, buf);

    if (rc == 0 && pretended_magic != 0) {
        buf->f_type = (__fsword_t)pretended_magic;
    }
    return rc;
}

TEST(a_network_filesystem_is_refused)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } kinds[] = {
        {NFS_SUPER_MAGIC, "NFS"},
        {0xff534d42UL, "CIFS"},
        {0xffffffff00000000UL | 0xfe534d42UL, "SMB"},
        {V9FS_MAGIC, "9p"},
        {FUSE_SUPER_MAGIC, "FUSE"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        pretended_magic = kinds[i].magic;
        refused(help_url("far.db", ""), IMPEL_ERR_UNSUPPORTED, kinds[i].name, "impel serve");
        CHECK(access(help_path("far.db"), F_OK) < 0);
    }
    pretended_magic = EXT4_SUPER_MAGIC;
    store_close(help_open(help_url("far.db", "")));
    pretended_magic = 0;
}

/* ---- full ---- */

static char kibibytes[8 * 1024];

/* Adds until it is refused; the answer to that. */
static int fill(struct store *store, const char *stream, size_t *count)
{
    int rc = IMPEL_OK;

    memset(kibibytes, 'x', sizeof(kibibytes) - 1);
    for (*count = 0; rc >= 0; (*count)++) {
        CHECK(*count < 100000);
        rc = help_add(store, stream, ID_MIN, kibibytes);
    }
    (*count)--;
    return rc;
}

static int items_of_all(struct store *store, enum request_kind kind, struct request *read)
{
    struct request *request = help_request(kind, "s", "g");
    size_t count = read->read.entry_count;
    struct request_item *items = arena_calloc(&request->arena, count, sizeof(*items));

    for (size_t i = 0; i < count; i++) {
        items[i].id = read->read.entries[i].entry->id;
        items[i].deliveries = 1;
        items[i].reason = bytes_of("rejected");
    }
    request->consumer = bytes_of("c");
    request->token = help_token(1);
    request->dead_after_ms = 600000;
    if (kind == REQUEST_ACK) {
        request->ack.items = items;
        request->ack.item_count = count;
    } else {
        request->items.items = items;
        request->items.item_count = count;
        request->items.dead_letter = bytes_of("s:dead");
    }
    int rc = help_run(store, request);
    for (size_t i = 0; rc >= 0 && i < count; i++) {
        rc = items[i].result == ITEM_DONE ? rc : IMPEL_ERR_FENCED;
    }
    request_free(request);
    return rc;
}

static void read_and_settle_all(struct store *store, size_t count)
{
    for (size_t left = count; left > 0;) {
        struct request *read = help_read(store, "s", "g", "c", 4);
        CHECK(read->status == IMPEL_OK && read->read.entry_count > 0);
        left -= read->read.entry_count;
        /* A few are parked, which takes more room; the others are acked. */
        CHECK(items_of_all(store, left >= count - 8 ? REQUEST_PARK : REQUEST_ACK, read) ==
              IMPEL_OK);
        request_free(read);
    }
}

TEST(a_full_map_refuses_adds_only)
{
    struct store *store = help_open(help_url("full.db", "?sync=process&map=4MiB"));
    size_t count = 0;

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_beat(store, "s", "g", "c", 1, 600000));
    CHECK(fill(store, "s", &count) == IMPEL_ERR_FULL);
    CHECK(count > 100 && count < 512);
    read_and_settle_all(store, count);
    CHECK(help_add(store, "s", ID_MIN, kibibytes) == IMPEL_ERR_FULL);
    struct request *trim = help_request(REQUEST_TRIM, "s", "");
    CHECK(help_run(store, trim) == IMPEL_OK);
    CHECK_U64(trim->trim.removed, count);
    request_free(trim);
    CHECK(help_add(store, "s", ID_MIN, kibibytes) == IMPEL_OK);
    store_close(store);
    CHECK(lmdb_check(help_path("full.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
}

TEST(in_a_full_map_holders_go_on)
{
    struct store *store = help_open(help_url("held.db", "?sync=process&map=4MiB"));
    size_t count = 0;

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_beat(store, "s", "g", "c", 1, 600000));
    CHECK(fill(store, "s", &count) == IMPEL_ERR_FULL);
    struct request *read = help_read(store, "s", "g", "c", 8);
    CHECK_U64(read->read.entry_count, 8);
    for (int i = 0; i < 50; i++) {
        CHECK(items_of_all(store, REQUEST_RENEW, read) == IMPEL_OK);
        request_free(help_beat(store, "s", "g", "c", 1, 600000));
    }
    CHECK(items_of_all(store, REQUEST_RELEASE, read) == IMPEL_OK);
    request_free(read);
    struct request *claim = help_request(REQUEST_CLAIM_FROM, "s", "g");
    claim->consumer = bytes_of("c");
    claim->token = help_token(1);
    claim->dead_after_ms = 600000;
    claim->claim_from.owner = bytes_of(RELEASED_NAME);
    claim->claim_from.rows_max = claim->claim_from.claims_max = 100;
    policy_defaults(&claim->claim_from.policy);
    claim->claim_from.policy.backoff_base_ms = 0;
    CHECK(help_run(store, claim) == IMPEL_OK);
    CHECK_U64(claim->claim_from.entry_count, 8);
    request_free(claim);
    read = help_read(store, "s", "g", "c", 8);
    CHECK(items_of_all(store, REQUEST_RETRY, read) == IMPEL_OK);
    request_free(read);
    CHECK(help_add(store, "s", ID_MIN, kibibytes) == IMPEL_ERR_FULL);
    store_close(store);
    CHECK(lmdb_check(help_path("held.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
}

/* Writes a file until the disk has no byte left. */
static void fill_disk(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    CHECK(fd >= 0);
    while (write(fd, kibibytes, sizeof(kibibytes)) > 0) {
    }
    close(fd);
}

TEST(a_full_disk_refuses_adds_only)
{
    size_t count = 0;

    CHECK(mkdir(help_path("disk"), 0777) == 0);
    if (mount("tmpfs", help_path("disk"), "tmpfs", 0, "size=8m") < 0) {
        SKIP("a small disk cannot be mounted here");
    }
    struct store *store = help_open(help_url("disk/x.db", "?sync=process"));
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    request_free(help_beat(store, "s", "g", "c", 1, 600000));
    CHECK(fill(store, "s", &count) == IMPEL_ERR_FULL);
    CHECK(count > 400);
    fill_disk(help_path("disk/other"));
    struct request *add = help_request(REQUEST_ADD, "s", "");
    struct impel_field field = {bytes_of("f"), bytes_of(kibibytes)};
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    CHECK(help_run(store, add) == IMPEL_ERR_FULL);
    CHECK(strstr(add->error.text, "disk is full") != NULL);
    request_free(add);
    read_and_settle_all(store, count);
    struct request *trim = help_request(REQUEST_TRIM, "s", "");
    trim->trim.length_max = 1;
    CHECK(help_run(store, trim) == IMPEL_OK);
    request_free(trim);
    CHECK(help_add(store, "s", ID_MIN, kibibytes) ==
          IMPEL_OK); /* into what was freed in the file */
    store_close(store);
    struct lmdb_check_counts counts;
    CHECK(lmdb_check(help_path("disk/x.db"), NULL, NULL, &counts, NULL) == IMPEL_OK);
    CHECK_U64(counts.entries, 2 + 8);
    CHECK(umount2(help_path("disk"), MNT_DETACH) == 0);
}

/* ---- written without fsync when the machine went down ---- */

/* Makes a loosely written file, and dies with it open. */
static void make_loose(const char *url)
{
    int status = 0;

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *store = help_open(url);
        (void)help_group(store, "s", "g");
        (void)help_add(store, "s", ID_MIN, "loosely");
        (void)raise(SIGKILL);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
}

/* As the file would be found after a reboot; with `torn` a row is gone as well. */
static void reboot(const char *path, bool torn)
{
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    MDB_dbi catalog = 0;
    MDB_dbi entries = 0;
    char letter[] = "m";
    MDB_val key = {1, letter};
    MDB_val value;
    struct disk_meta meta;

    CHECK(mdb_env_create(&env) == 0);
    mdb_env_set_maxdbs(env, 8);
    CHECK(mdb_env_open(env, path, MDB_NOSUBDIR, 0666) == 0);
    CHECK(mdb_txn_begin(env, NULL, 0, &txn) == 0);
    CHECK(mdb_dbi_open(txn, "catalog", 0, &catalog) == 0);
    CHECK(mdb_dbi_open(txn, "entries", 0, &entries) == 0);
    CHECK(mdb_get(txn, catalog, &key, &value) == 0);
    memcpy(&meta, value.mv_data, sizeof(meta));
    CHECK(meta.loose == 1);
    meta.boot[0] ^= 0xff;
    value = (MDB_val){sizeof(meta), &meta};
    CHECK(mdb_put(txn, catalog, &key, &value, 0) == 0);
    CHECK(!torn || mdb_drop(txn, entries, 0) == 0);
    CHECK(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
}

TEST(a_loose_file_is_checked_after_a_reboot)
{
    char *url = strdup(help_url("loose.db", "?sync=process"));

    make_loose(url);
    reboot(help_path("loose.db"), false);
    store_close(help_open(url)); /* whole: it opens */
    make_loose(url);
    reboot(help_path("loose.db"), true);
    refused(url, IMPEL_ERR_CORRUPT, "loose.db", "sync=process");
    free(url);
}

TEST(the_stronger_wish_for_durability_wins)
{
    char *process = strdup(help_url("both.db", "?sync=process"));
    char *full = strdup(help_url("both.db", "?sync=full"));

    struct store *one = help_open(process);
    CHECK(help_add(one, "s", ID_MIN, "1") == IMPEL_OK);
    CHECK(atomic_load(&((struct handle *)one)->file->nosync));
    struct store *two = help_open(full);
    CHECK(help_add(one, "s", ID_MIN, "2") == IMPEL_OK);
    CHECK(!atomic_load(&((struct handle *)one)->file->nosync));
    store_close(two);
    CHECK(help_add(one, "s", ID_MIN, "3") == IMPEL_OK);
    CHECK(!atomic_load(&((struct handle *)one)->file->nosync));
    store_close(one);
    free(process);
    free(full);
}

/* ---- damaged ---- */

static size_t read_all(const char *path, uint8_t **data)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    *data = malloc((size_t)st.st_size);
    CHECK(*data != NULL);
    CHECK(read(fd, *data, (size_t)st.st_size) == st.st_size);
    close(fd);
    return (size_t)st.st_size;
}

/* Opens a damaged file, uses it and checks it, in a child: it may fail, but it may not crash. */
static int survives(const char *path, const char *url)
{
    int status = 0;

    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *store = NULL;
        struct impel_error err = {0};
        (void)alarm(60);
        int checked = lmdb_check(path, NULL, NULL, NULL, &err);
        if (store_open(url, NULL, &store, &err) >= 0) {
            struct request *range = help_request(REQUEST_RANGE, "s", "");
            range->range.end = ID_MAX;
            range->range.count = 1000;
            range->done = NULL;
            (void)freopen("/dev/null", "w", stdout);
            (void)help_run(store, range);
            request_free(range);
            request_free(help_read(store, "s", "g", "c", 100));
            (void)help_add(store, "s", ID_MIN, "more");
            store_close(store);
        }
        _exit(checked < 0 ? 1 : 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status)) {
        printf("# signal %d\n", WTERMSIG(status));
    }
    CHECK(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void make_file(const char *url)
{
    struct store *store = help_open(url);
    char value[64];

    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    for (int i = 0; i < 400; i++) {
        (void)snprintf(value, sizeof(value), "value number %d of the stream", i);
        CHECK(help_add(store, "s", ID_MIN, value) == IMPEL_OK);
    }
    CHECK(help_add(store, "s", ID_MIN, kibibytes) == IMPEL_OK);
    request_free(help_read(store, "s", "g", "c", 100));
    store_close(store);
}

TEST(flipped_bytes_are_reported_not_crashed_on)
{
    char *url = strdup(help_url("flip.db", "?sync=process"));
    char *path = strdup(help_path("flip.db"));
    uint8_t *good = NULL;
    uint64_t seed = (uint64_t)help_now_ms();
    int found = 0;
    int rounds = 40;

    memset(kibibytes, 'x', sizeof(kibibytes) - 1);
    make_file(url);
    size_t size = read_all(path, &good);
    printf("# seed %llu, %zu bytes\n", (unsigned long long)seed, size);
    for (int round = 0; round < rounds; round++) {
        uint8_t *bad = malloc(size);
        CHECK(bad != NULL);
        memcpy(bad, good, size);
        /* Page heads and meta pages more often than the middle of a value. */
        size_t page = random_next(&seed) % (size / 4096);
        size_t at = page * 4096 + random_next(&seed) % (round % 2 == 0 ? 160 : 4096);
        for (int i = 0; i < 8; i++) {
            bad[at + (size_t)i < size ? at + (size_t)i : at] ^= (uint8_t)(random_next(&seed) | 1);
        }
        write_file(path, bad, size);
        free(bad);
        found += survives(path, url) != 0;
    }
    printf("# found in %d of %d\n", found, rounds);
    CHECK(found > 0);
    write_file(path, good, size);
    CHECK(survives(path, url) == 0);
    free(good);
    free(url);
    free(path);
}

/* One meta page tells that the other was one. */
TEST(a_damaged_meta_page_is_not_another_kind_of_file)
{
    char *url = strdup(help_url("meta.db", "?sync=process"));
    char *path = strdup(help_path("meta.db"));
    uint8_t *good = NULL;

    make_file(url);
    size_t size = read_all(path, &good);
    for (size_t at = 16; at <= 20; at += 4) { /* its magic, its version */
        good[at] ^= 0xff;
        write_file(path, good, size);
        refused(url, IMPEL_ERR_CORRUPT, path, "is damaged: its first page");
        good[at] ^= 0xff;
    }
    write_file(path, good, size);
    store_close(help_open(url));
    free(good);
    free(url);
    free(path);
}

/* The descriptor that LMDB writes meta pages through; -1 if there is none. */
static int meta_descriptor(const char *path)
{
    char link[64];
    char target[400];

    for (int fd = 3; fd < 200; fd++) {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, target, sizeof(target) - 1);
        target[size < 0 ? 0 : size] = '\0';
        if (strcmp(target, path) == 0 && (fcntl(fd, F_GETFL) & O_DSYNC) != 0) {
            return fd;
        }
    }
    return -1;
}

static void count_unreachable(void *user, const struct store_event *event)
{
    *(int *)user += strcmp(event->name, "unreachable") == 0;
}

TEST(a_failed_write_of_a_meta_page_is_said)
{
    int told = 0;
    struct store_env env = {.event = count_unreachable, .user = &told};
    struct store *store = NULL;
    char *url = strdup(help_url("panic.db", ""));
    char *path = realpath(help_folder(), NULL);
    char file[400];
    struct impel_field field = {bytes_of("f"), bytes_of("v")};

    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    (void)snprintf(file, sizeof(file), "%s/panic.db", path);
    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    int meta = meta_descriptor(file);
    int read_only = open(file, O_RDONLY | O_CLOEXEC);
    CHECK(meta >= 0 && read_only >= 0);
    CHECK(dup2(read_only, meta) == meta); /* writing through it fails now */
    close(read_only);
    for (int i = 0; i < 2; i++) {
        struct request *add = help_request(REQUEST_ADD, "s", "");
        add->add.fields = &field;
        add->add.field_count = 1;
        add->add.length_max = -1;
        CHECK(help_run(store, add) == IMPEL_ERR_IO);
        CHECK(strstr(add->error.text, "start the process again") != NULL);
        CHECK(strstr(add->error.text, "damaged") == NULL);
        request_free(add);
    }
    CHECK(told == 1); /* a worker ends then, instead of trying for ever */
    store_close(store);
    CHECK(lmdb_check(help_path("panic.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
    free(url);
    free(path);
}

TEST(a_file_cut_off_is_refused)
{
    char *url = strdup(help_url("cut.db", "?sync=process"));
    uint8_t *good = NULL;

    memset(kibibytes, 'x', sizeof(kibibytes) - 1);
    make_file(url);
    size_t size = read_all(help_path("cut.db"), &good);
    for (size_t keep = 1; keep < 16; keep++) {
        write_file(help_path("cut.db"), good, size / 16 * keep);
        struct impel_error err = {0};
        CHECK(open_status(url, &err) == IMPEL_ERR_CORRUPT);
        CHECK(strstr(err.text, "cut.db") != NULL);
    }
    free(good);
    free(url);
}

/* A folder stands for what can be opened and not mapped: whoever is told of damage takes a copy's place. */
TEST(what_cannot_be_looked_at_is_not_called_damaged)
{
    struct impel_error err = {0};

    CHECK(env_check_pages(help_folder(), true, &err) == IMPEL_ERR_IO);
    printf("# %s\n", err.text);
    CHECK(strstr(err.text, "damaged") == NULL && strstr(err.text, "No such device") != NULL);
}

/* Rows that contradict each other. */
TEST(the_check_finds_what_does_not_add_up)
{
    struct lmdb_check_counts counts;
    struct impel_error err = {0};
    char *url = strdup(help_url("sum.db", "?sync=process"));

    memset(kibibytes, 'x', sizeof(kibibytes) - 1);
    make_file(url);
    CHECK(lmdb_check(help_path("sum.db"), NULL, NULL, &counts, NULL) == IMPEL_OK);
    CHECK_U64(counts.entries, 401);
    CHECK_U64(counts.pending, 100);
    CHECK_U64(counts.consumers, 1);
    for (int db = DB_ENTRIES; db < DB_COUNT; db++) {
        struct handle *handle = (struct handle *)help_open(url);
        struct lmdb_txn txn;
        MDB_val key = {0, NULL};
        MDB_val value;
        uint8_t kept_key[ROW_KEY_SIZE];
        uint8_t kept[4096];
        CHECK(side_lock(&handle->file->side) == IMPEL_OK);
        CHECK(env_begin_write(handle->file, &txn, &err) == IMPEL_OK);
        CHECK(mdb_cursor_open(txn.mdb, txn.dbi[db], &txn.cursors[db]) == 0);
        CHECK(mdb_cursor_get(txn.cursors[db], &key, &value, MDB_FIRST) == 0);
        CHECK(value.mv_size <= sizeof(kept));
        memcpy(kept_key, key.mv_data, sizeof(kept_key));
        memcpy(kept, value.mv_data, value.mv_size);
        size_t kept_size = value.mv_size;
        CHECK(row_delete(&txn, (enum lmdb_database)db, (MDB_val){ROW_KEY_SIZE, kept_key}) == 0);
        CHECK(env_commit(handle->file, &txn, &err) == IMPEL_OK);
        CHECK(check_contents(handle->file, NULL, NULL, &err) == IMPEL_ERR_CORRUPT);
        CHECK(env_begin_write(handle->file, &txn, &err) == IMPEL_OK);
        CHECK(row_put(&txn, (enum lmdb_database)db, (MDB_val){ROW_KEY_SIZE, kept_key},
                      (MDB_val){kept_size, kept}) == 0);
        CHECK(env_commit(handle->file, &txn, &err) == IMPEL_OK);
        CHECK(check_contents(handle->file, NULL, NULL, &err) == IMPEL_OK);
        side_unlock(&handle->file->side);
        store_close(&handle->store);
    }
    free(url);
}

TAP_MAIN
