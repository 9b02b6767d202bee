/* folder.c -- temporary folders. */
#include "cli/folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DESCRIPTORS_MAX = 16, /* that the walk keeps open */
};

int folder_make(const char *name, char *path, struct impel_error *err)
{
    const char *parent = getenv("TMPDIR");

    if (parent == NULL || *parent == '\0') {
        parent = "/tmp";
    }
    if (snprintf(path, FOLDER_PATH_SIZE, "%s/%s-XXXXXX", parent, name) >= FOLDER_PATH_SIZE) {
        return error_set(err, IMPEL_ERR_LIMIT, "the path in $TMPDIR is too long: %.200s", parent);
    }
    if (mkdtemp(path) == NULL) {
        path[0] = '\0';
        return error_set(err, IMPEL_ERR_IO, "cannot make a folder in %.200s: %s", parent,
                         strerror(errno));
    }
    return IMPEL_OK;
}

static int remove_one(const char *path, const struct stat *file, int kind, struct FTW *where)
{
    (void)file;
    (void)kind;
    (void)where;
    remove(path);
    return 0;
}

void folder_remove(const char *path)
{
    nftw(path, remove_one, DESCRIPTORS_MAX, FTW_DEPTH | FTW_PHYS);
}
