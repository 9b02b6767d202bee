/* command_check.c -- impel check: all invariants of an embedded store's file. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/session.h"
#include "store/lmdb/check.h"

static bool report(void *user, const char *problem)
{
    const struct options *options = user;
    struct buf line;

    if (!options->json) {
        console_outf("%s\n", problem);
        return true;
    }
    buf_init(&line, 1 << 16);
    buf_append_text(&line, "{\"problem\":");
    json_value(&line, bytes_of(problem));
    buf_append_text(&line, "}\n");
    console_out(buf_bytes(&line));
    buf_release(&line);
    return true;
}

int command_check(struct options *options, struct impel_error *err)
{
    struct lmdb_check_counts counts = {0};
    const char *path = NULL;
    int rc = session_path(options, "checked", &path, err);

    if (rc >= 0) {
        rc = lmdb_check(path, report, options, &counts, err);
    }
    if (rc < 0 && rc != IMPEL_ERR_CORRUPT) {
        return rc;
    }
    if (options->json) {
        console_outf("{\"streams\":%llu,\"entries\":%llu,\"groups\":%llu,\"consumers\":%llu,"
                     "\"pending\":%llu,\"problems\":%llu}\n",
                     (unsigned long long)counts.streams, (unsigned long long)counts.entries,
                     (unsigned long long)counts.groups, (unsigned long long)counts.consumers,
                     (unsigned long long)counts.pending, (unsigned long long)counts.problems);
    } else if (rc >= 0) {
        console_outf("%s is sound: %s, %s, %s, %s, %llu pending\n", path,
                     counted(counts.streams, "stream", "streams").text,
                     counted(counts.entries, "entry", "entries").text,
                     counted(counts.groups, "group", "groups").text,
                     counted(counts.consumers, "consumer", "consumers").text,
                     (unsigned long long)counts.pending);
    }
    return rc < 0 ? rc : EXIT_DONE;
}
