/* command_compact.c -- impel compact: an embedded store's file as small as what is in it. */
#include "cli/command.h"
#include "cli/console.h"
#include "cli/session.h"
#include "store/lmdb/compact.h"

#include <stdio.h>

/* "12.3 MiB" */
static const char *size_format(uint64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double number = (double)bytes;
    size_t unit = 0;

    while (number >= 1024 && unit + 1 < ARRAY_SIZE(units)) {
        number /= 1024;
        unit++;
    }
    (void)snprintf(text, size, unit == 0 ? "%.0f %s" : "%.1f %s", number, units[unit]);
    return text;
}

int command_compact(struct options *options, struct impel_error *err)
{
    struct lmdb_compact_sizes sizes = {0};
    const char *path = NULL;
    char before[32], after[32];
    int rc = session_path(options, "compacted", &path, err);

    rc = rc < 0 ? rc : lmdb_compact(path, &sizes, err);
    if (rc < 0) {
        return rc;
    }
    if (options->json) {
        console_outf("{\"before_bytes\":%llu,\"after_bytes\":%llu}\n",
                     (unsigned long long)sizes.before_bytes, (unsigned long long)sizes.after_bytes);
    } else {
        console_outf("%s: %s before, %s now\n", path,
                     size_format(sizes.before_bytes, before, sizeof(before)),
                     size_format(sizes.after_bytes, after, sizeof(after)));
    }
    return EXIT_DONE;
}
