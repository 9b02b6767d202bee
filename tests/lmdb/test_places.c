/* test_places.c -- files of a store that are deleted or replaced while processes have it open: nobody
 * may write beside them, and they themselves are told. */
#include "await.h"
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/compact.h"
#include "store/lmdb/store.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static struct shared {
    _Atomic uint64_t added; /* that the child was told of */
    char text[512];         /* what its first refused add said */
    _Atomic int events;     /* how often the store said that it cannot be used */
} * shared;

struct child {
    pid_t pid;
    int from; /* a byte when it has the store open, another when an add was refused */
    int to;   /* closed: it shall end */
};

static void count_unreachable(void *user, const struct store_event *event)
{
    (void)user;
    atomic_fetch_add(&shared->events, strcmp(event->name, "unreachable") == 0);
}

/* Adds until it is refused. The wait between is not for an event: it keeps the file small. */
static int child_run(const char *url, int from, int to)
{
    int64_t deadline = help_now_ms() + 30000;
    struct store_env env = {.event = count_unreachable};
    struct store *store = NULL;
    struct impel_field field = {bytes_of("field"), bytes_of("value")};
    bool refused = false;
    char byte = 0;

    if (store_open(url, &env, &store, NULL) < 0) {
        return 96;
    }
    while (!refused && help_now_ms() < deadline) {
        struct request *add = help_request(REQUEST_ADD, "s", "");
        add->add.fields = &field;
        add->add.field_count = 1;
        add->add.length_max = -1;
        refused = help_run(store, add) < 0;
        if (refused) {
            (void)snprintf(shared->text, sizeof(shared->text), "%s", add->error.text);
        } else if (atomic_fetch_add(&shared->added, 1) == 0 && write(to, "o", 1) != 1) {
            return 99;
        }
        request_free(add);
        await_clock_us(2000);
    }
    if (write(to, "r", 1) != 1) {
        return 98;
    }
    (void)!read(from, &byte, 1);
    store_close(store);
    return refused ? 0 : 97;
}

static void shared_make(void)
{
    if (shared == NULL) {
        shared =
            mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        CHECK(shared != MAP_FAILED);
    }
    memset(shared, 0, sizeof(*shared));
}

static struct child child_start(const char *url)
{
    int to_child[2];
    int from_child[2];
    char byte = 0;

    shared_make();
    CHECK(pipe(to_child) == 0 && pipe(from_child) == 0);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(to_child[1]);
        close(from_child[0]);
        (void)freopen("/dev/null", "w", stdout);
        _exit(child_run(url, to_child[0], from_child[1]));
    }
    close(to_child[0]);
    close(from_child[1]);
    struct child child = {.pid = pid, .from = from_child[0], .to = to_child[1]};
    CHECK(read(child.from, &byte, 1) == 1 && byte == 'o');
    return child;
}

/* Waits until an add of it was refused, with this in the text, and ends it. */
static void child_refused(struct child *child, const char *word)
{
    char byte = 0;
    int status = 0;

    CHECK(read(child->from, &byte, 1) == 1 && byte == 'r');
    printf("# told: %s\n", shared->text);
    CHECK(strstr(shared->text, word) != NULL);
    CHECK(strstr(shared->text, "was removed or replaced") != NULL);
    close(child->to);
    close(child->from);
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(atomic_load(&shared->events) == 1);
}

static void busy(const char *url, const char *word)
{
    struct store *store = NULL;
    struct impel_error err = {0};
    int rc = store_open(url, NULL, &store, &err);

    store_close(store);
    printf("# refused: %s\n", err.text);
    CHECK(rc == IMPEL_ERR_BUSY);
    CHECK(strstr(err.text, word) != NULL);
}

/* All that was acknowledged is there. */
static void whole(const char *url, const char *path)
{
    struct store *store = help_open(url);
    struct request *info = help_request(REQUEST_INFO, "s", "");

    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK_U64(info->info.length, atomic_load(&shared->added));
    request_free(info);
    store_close(store);
    CHECK(lmdb_check(path, NULL, NULL, NULL, NULL) == IMPEL_OK);
}

static void removed_under_it(const char *name, bool lock, bool wake)
{
    char *url = strdup(help_url(name, "?sync=process"));
    char *path = strdup(help_path(name));
    char file[300];
    struct child child = child_start(url);

    if (lock) {
        (void)snprintf(file, sizeof(file), "%s-lock", path);
        CHECK(unlink(file) == 0);
    }
    if (wake) {
        (void)snprintf(file, sizeof(file), "%s-wake", path);
        CHECK(unlink(file) == 0);
    }
    busy(url, wake ? "-wake was removed" : "-lock was removed");
    child_refused(&child, lock ? "-lock" : "-wake");
    whole(url, path);
    free(url);
    free(path);
}

TEST(both_locks_removed)
{
    removed_under_it("both.db", true, true);
}

TEST(the_lock_file_removed)
{
    removed_under_it("lock.db", true, false);
}

TEST(the_side_file_removed)
{
    removed_under_it("side.db", false, true);
}

TEST(the_data_file_removed)
{
    char *url = strdup(help_url("data.db", "?sync=process"));
    char *path = strdup(help_path("data.db"));
    struct child child = child_start(url);

    CHECK(unlink(path) == 0);
    busy(url, "data.db was removed");
    CHECK(access(path, F_OK) < 0);
    child_refused(&child, "data.db was");
    free(url);
    free(path);
}

/* What is left is LMDB's lock file, which a new store must not share with the old one. */
TEST(all_but_the_lock_file_removed)
{
    char *url = strdup(help_url("left.db", "?sync=process"));
    char *path = strdup(help_path("left.db"));
    char file[300];
    struct child child = child_start(url);

    (void)snprintf(file, sizeof(file), "%s-wake", path);
    CHECK(unlink(path) == 0 && unlink(file) == 0);
    busy(url, "left.db-wake was removed");
    CHECK(access(path, F_OK) < 0);
    child_refused(&child, "left.db was");
    free(url);
    free(path);
}

/* A copy has the same identity in it: only its place on the disk tells it from the one in use. */
TEST(the_data_file_replaced_by_a_copy)
{
    char *url = strdup(help_url("copy.db", "?sync=process"));
    char *path = strdup(help_path("copy.db"));
    char command[800];
    struct child child = child_start(url);

    (void)snprintf(command, sizeof(command), "cp '%s' '%s.copy' && mv '%s.copy' '%s'", path, path,
                   path, path);
    CHECK(system(command) == 0);
    busy(url, "copy.db was removed or replaced");
    child_refused(&child, "copy.db was");
    free(url);
    free(path);
}

/* However a file is named, all who have it open share its locks. A link may lead to a file that is yet
 * to be made, from another folder, and through a second link. */
TEST(a_symbolic_link_leads_to_the_same_store)
{
    char *path = strdup(help_path("real.db"));
    char *first = strdup(help_path("link.db"));
    char *folder = strdup(help_path("folder"));
    char *second = strdup(help_path("folder/link2.db"));
    char *url = strdup(help_url("folder/link2.db", "?sync=process"));
    char file[300];

    CHECK(mkdir(folder, 0700) == 0);
    CHECK(symlink("real.db", first) == 0 && symlink("../link.db", second) == 0);
    struct child child = child_start(url);
    CHECK(access(path, F_OK) == 0);
    (void)snprintf(file, sizeof(file), "%s-wake", path);
    CHECK(access(file, F_OK) == 0);
    (void)snprintf(file, sizeof(file), "%s-wake", second);
    CHECK(access(file, F_OK) < 0);
    struct store *store = help_open(help_url("real.db", "?sync=process"));
    struct request *length = help_request(REQUEST_INFO, "s", "");
    CHECK(help_run(store, length) == IMPEL_OK && length->info.length > 0);
    request_free(length);
    CHECK(lmdb_check(first, NULL, NULL, NULL, NULL) == IMPEL_OK);
    CHECK(lmdb_compact(first, NULL, NULL) == IMPEL_ERR_BUSY); /* the child is there */
    store_close(store);
    CHECK(unlink(path) == 0);
    child_refused(&child, "real.db was");
    free(path);
    free(first);
    free(folder);
    free(second);
    free(url);
}

TEST(a_link_to_itself_is_no_store)
{
    char *path = strdup(help_path("loop.db"));
    struct store *store = NULL;
    struct impel_error err = {0};

    CHECK(symlink("loop.db", path) == 0);
    CHECK(store_open(help_url("loop.db", ""), NULL, &store, &err) == IMPEL_ERR_IO && store == NULL);
    CHECK(strstr(err.text, "loop.db: Too many levels") != NULL);
    free(path);
}

/* A second name of the other kind cannot be told from the file, but that somebody has it open can. */
TEST(a_hard_link_to_a_store_in_use_is_refused)
{
    char *url = strdup(help_url("one.db", "?sync=process"));
    char *path = strdup(help_path("one.db"));
    struct child child = child_start(url);

    CHECK(link(path, help_path("two.db")) == 0);
    busy(help_url("two.db", ""), "under another name");
    CHECK(unlink(path) == 0);
    child_refused(&child, "one.db was");
    free(url);
    free(path);
}

/* In the process that has it open, too: what is left of its locks stays. */
TEST(the_own_data_file_removed)
{
    char *url = strdup(help_url("own.db", "?sync=process"));
    char *path = strdup(help_path("own.db"));
    struct store *store = help_open(url);

    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    CHECK(unlink(path) == 0);
    busy(url, "this process has it open");
    store_close(store);
    store = help_open(url);
    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    store_close(store);
    free(url);
    free(path);
}

/* ---- emptied under a process that has it open ---- */

static void count_wake(void *user)
{
    atomic_fetch_add((_Atomic int *)user, 1);
}

static void ended(struct request *request)
{
    (void)request;
}

/* With a blocked read, whose watcher sleeps on a word in the side file. */
static void emptied(const char *name, const char *suffix)
{
    char *url = strdup(help_url(name, "?sync=process"));
    char file[300];
    _Atomic int wakes = 0;
    struct store_env env = {.wake = count_wake, .user = &wakes};
    struct store *store = NULL;

    (void)snprintf(file, sizeof(file), "%s%s", help_path(name), suffix);
    CHECK(store_open(url, &env, &store, NULL) == IMPEL_OK);
    CHECK(help_group(store, "s", "g") == IMPEL_OK);
    struct request *read = help_read_request("s", "g", "c", 1, 2000);
    read->done = ended;
    store_submit(store, read);
    (void)store_turn(store, help_now_ms());
    CHECK(truncate(file, 0) == 0);
    struct request *add = help_request(REQUEST_ADD, "s", "");
    struct impel_field field = {bytes_of("field"), bytes_of("value")};
    add->add.fields = &field;
    add->add.field_count = 1;
    add->add.length_max = -1;
    CHECK(help_run(store, add) == IMPEL_ERR_IO);
    printf("# told: %s\n", add->error.text);
    CHECK(strstr(add->error.text, file) != NULL && strstr(add->error.text, "emptied") != NULL);
    request_free(add);
    store_close(store);
    request_free(read);
    free(url);
}

TEST(the_side_file_emptied)
{
    emptied("empty-side.db", "-wake");
    char *url = strdup(help_url("empty-side.db", "?sync=process"));
    struct store *store = help_open(url); /* whoever starts again finds all of it */
    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    store_close(store);
    CHECK(lmdb_check(help_path("empty-side.db"), NULL, NULL, NULL, NULL) == IMPEL_OK);
    free(url);
}

TEST(the_data_file_emptied)
{
    emptied("empty-data.db", "");
}

TEST(a_data_file_that_was_replaced_takes_no_commit_more)
{
    char *url = strdup(help_url("moved.db", "?sync=process"));
    char *path = strdup(help_path("moved.db"));
    char away[300];
    struct store *store = help_open(url);

    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_OK);
    (void)snprintf(away, sizeof(away), "%s.away", path);
    CHECK(rename(path, away) == 0);
    CHECK(help_add(store, "s", ID_MIN, "value") == IMPEL_ERR_IO);
    store_close(store);
    store = help_open(help_url("moved.db.away", "?sync=process"));
    struct request *info = help_request(REQUEST_INFO, "s", "");
    CHECK(help_run(store, info) == IMPEL_OK);
    CHECK_U64(info->info.length, 1);
    request_free(info);
    store_close(store);
    free(url);
    free(path);
}

TAP_MAIN
