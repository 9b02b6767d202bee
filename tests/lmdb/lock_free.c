/* lock_free.c -- lock-free PATH PID: whether a process that was stopped holds the lock of the store at
 * PATH. Exits with 0 if it does not, with 1 if it does, with 2 if that cannot be known. */
#include "store/lmdb/side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIES = 500, /* each takes SIDE_LOCK_MS while somebody has the lock */
};

int main(int argc, char **argv)
{
    struct impel_error err = {0};
    struct side side;
    char path[4096];

    if (argc != 3 || snprintf(path, sizeof(path), "%s-wake", argv[1]) >= (int)sizeof(path)) {
        (void)fputs("usage: lock-free PATH PID\n", stderr);
        return 2;
    }
    long pid = strtol(argv[2], NULL, 10);
    if (side_open(&side, path, SIDE_SYNC_KEEP, &err) < 0) {
        (void)fprintf(stderr, "lock-free: %s\n", err.text);
        return 2;
    }
    int found = 2;
    for (int i = 0; i < TRIES && found == 2; i++) {
        if (side_lock(&side) >= 0) {
            side_unlock(&side);
            found = 0;
        } else if (atomic_load(&side.header->holder) == pid) {
            found = 1; /* it does not move, so it has it for good */
        }
    }
    side_close(&side);
    return found;
}
