/* folder.c -- temporary folders, and the process that removes one when its maker cannot. */
#include "cli/folder.h"

#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    DESCRIPTORS_MAX = 16, /* that the walk keeps open */
    TRIES_MAX = 50, /* of the keeper: who wrote there is killed with the maker, but not at once */
    TRY_AGAIN_MS = 100,
};

static const char word_keep = 'k'; /* to the keeper: end, and remove nothing */

static int remove_one(const char *path, const struct stat *file, int kind, struct FTW *where)
{
    (void)file;
    (void)kind;
    (void)where;
    remove(path);
    return 0;
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
}

/* The keeper's life. It has a session of its own, so that what the terminal or a shell sends to all
 * of us does not reach it, and keeps nothing open that somebody could wait for. */
static void keep_watch(const char *path, int fd)
{
    const struct timespec pause = {.tv_nsec = TRY_AGAIN_MS * 1000000L};
    char word = 0;
    ssize_t got;

    setsid();
    dup2(fd, STDIN_FILENO);
    close_range(STDIN_FILENO + 1, ~0U, 0);
    do {
        got = read(STDIN_FILENO, &word, 1);
    } while (got < 0 && errno == EINTR);
    for (int i = 0; got == 0 && i < TRIES_MAX && access(path, F_OK) == 0; i++) {
        if (i > 0) {
            nanosleep(&pause, NULL);
        }
        remove_tree(path);
    }
    _exit(0);
}

/* Without a keeper the folder is as good, unless we are killed. */
static void start_keeper(struct folder *folder)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return;
    }
    fflush(NULL);
    folder->keeper = fork();
    if (folder->keeper == 0) {
        close(ends[1]);
        keep_watch(folder->path, ends[0]);
    }
    close(ends[0]);
    if (folder->keeper < 0) {
        close(ends[1]);
        folder->keeper = 0;
        return;
    }
    folder->keeper_fd = ends[1];
}

int folder_make(struct folder *folder, const char *name, struct impel_error *err)
{
    const char *parent = getenv("TMPDIR");

    *folder = (struct folder){0};
    if (parent == NULL || *parent == '\0') {
        parent = "/tmp";
    }
    if (snprintf(folder->path, FOLDER_PATH_SIZE, "%s/%s-XXXXXX", parent, name) >=
        FOLDER_PATH_SIZE) {
        folder->path[0] = '\0';
        return error_set(err, IMPEL_ERR_LIMIT, "the path in $TMPDIR is too long: %.200s", parent);
    }
    if (mkdtemp(folder->path) == NULL) {
        folder->path[0] = '\0';
        return error_set(err, IMPEL_ERR_IO, "cannot make a folder in %.200s: %s", parent,
                         strerror(errno));
    }
    start_keeper(folder);
    return IMPEL_OK;
}

void folder_keep(struct folder *folder)
{
    if (folder->keeper > 0) {
        ssize_t wrote = write(folder->keeper_fd, &word_keep, 1);
        (void)wrote; /* one byte into an empty pipe, whose reader waits for it */
        close(folder->keeper_fd);
        waitpid(folder->keeper, NULL, 0);
        folder->keeper = 0;
    }
}

void folder_remove(struct folder *folder)
{
    if (folder->path[0] != '\0') {
        remove_tree(folder->path);
        folder_keep(folder);
        folder->path[0] = '\0';
    }
}
