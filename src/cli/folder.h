/* folder.h -- temporary folders, for the drill and the benchmarks. */
#ifndef IMPEL_CLI_FOLDER_H
#define IMPEL_CLI_FOLDER_H

#include "base/base.h"

enum {
    FOLDER_PATH_SIZE = 128,
};

/* Makes an empty folder in $TMPDIR or /tmp; `path` holds FOLDER_PATH_SIZE bytes. */
int folder_make(const char *name, char *path, struct impel_error *err);
void folder_remove(const char *path); /* with all that is in it */

#endif /* IMPEL_CLI_FOLDER_H */
