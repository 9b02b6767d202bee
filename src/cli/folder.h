/* folder.h -- temporary folders, for the drill and the benchmarks.
 *
 * Each has a keeper: a small process that waits for the end of the one that made the folder, however
 * that ends, and then removes it. So Ctrl-C leaves nothing behind, and neither does SIGKILL. */
#ifndef IMPEL_CLI_FOLDER_H
#define IMPEL_CLI_FOLDER_H

#include "base/base.h"

#include <sys/types.h>

enum {
    FOLDER_PATH_SIZE = 128,
};

struct folder {
    char path[FOLDER_PATH_SIZE]; /* "" = there is none */
    pid_t keeper;
    int keeper_fd; /* closed by our end, which is what the keeper waits for */
};

/* Makes an empty folder in $TMPDIR or /tmp. */
int folder_make(struct folder *folder, const char *name, struct impel_error *err);
void folder_remove(struct folder *folder); /* with all that is in it */
void folder_keep(struct folder *folder);   /* it stays, and nobody removes it */

#endif /* IMPEL_CLI_FOLDER_H */
