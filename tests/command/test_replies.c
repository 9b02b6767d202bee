/* test_replies.c -- replies.txt: commands and what they answer, each part on an empty store.
 *
 * A part is one TAP test. Its replies are compared as redis-cli shows them, so the same file reads
 * well and tests the showing too. Argument: the file. */
#include "call_store.h"
#include "cli/format_reply.h"
#include "resp/resp.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    AGE_SLACK_MS = 60000,
    REPLY_SIZE_MAX = 1 << 20,
};

static struct store *store;

/* ---- the file, line by line ---- */

struct lines {
    char *at; /* the rest of the file */
};

/* The next line, NUL-terminated, or NULL. */
static char *line_next(struct lines *lines)
{
    char *line = lines->at;

    if (*line == '\0') {
        return NULL;
    }
    char *end = strchr(line, '\n');
    if (end != NULL) {
        *end = '\0';
        lines->at = end + 1;
    } else {
        lines->at = line + strlen(line);
    }
    return line;
}

static char *file_read(const char *path)
{
    struct buf text;
    FILE *file = fopen(path, "r");
    size_t got = 1;

    buf_init(&text, (size_t)1 << 24);
    while (file != NULL && got > 0) {
        void *room = buf_reserve(&text, 65536);
        got = room == NULL ? 0 : fread(room, 1, 65536, file);
        text.size += got;
    }
    if (file != NULL) {
        fclose(file);
    }
    buf_append(&text, "", 1);
    return (char *)text.data;
}

/* ---- one command ---- */

static void run(const char *line, struct buf *out)
{
    struct arena arena = {.blocks = NULL};
    struct impel_bytes *args;
    size_t arg_count;

    buf_clear(out);
    if (resp_split_line(bytes_of(line), &arena, &args, &arg_count) < 0) {
        buf_append_text(out, "cannot be split\n");
    } else {
        struct request *request = call_store_run(store, args, arg_count, false);
        if (request == NULL) {
            buf_append_text(out, "the store failed\n");
        } else {
            format_reply(request->call.reply, REPLY_FORM_SHOW, out);
        }
        request_free(request);
    }
    buf_append(out, "", 1);
    arena_release(&arena);
}

/* "LOOP 1 12 XADD s %d f v", or a command as it stands. */
static void run_line(const char *line, struct buf *out)
{
    int first = 0, last = 0, used = 0;

    // NOLINTNEXTLINE(cert-err34-c): the file is our own
    if (sscanf(line, "LOOP %d %d %n", &first, &last, &used) < 2) {
        run(line, out);
        return;
    }
    const char *command = line + used;
    const char *number = strstr(command, "%d");
    for (int i = first; i <= last; i++) {
        char text[1024];
        if (number == NULL) {
            snprintf(text, sizeof(text), "%s", command);
        } else {
            snprintf(text, sizeof(text), "%.*s%d%s", (int)(number - command), command, i,
                     number + 2);
        }
        run(text, out);
    }
}

/* ---- comparing ---- */

static bool number_fits(const char *pattern, long long number)
{
    long long low = 0;

    if (strncmp(pattern, "<now>", 5) == 0) {
        low = (long long)time(NULL) * 1000 - AGE_SLACK_MS;
        return number >= low && number <= low + 2LL * AGE_SLACK_MS;
    }
    if (strncmp(pattern, "<age ", 5) == 0) {
        low = strtoll(pattern + 5, NULL, 10);
    }
    return number >= low && number <= low + AGE_SLACK_MS;
}

/* One line against what is expected, where "<...>" stands for a number at its end. */
static bool line_fits(const char *want, const char *got)
{
    const char *mark = strchr(want, '<');

    if (mark == NULL || (strncmp(mark, "<age", 4) != 0 && strncmp(mark, "<now>", 5) != 0)) {
        return strcmp(want, got) == 0;
    }
    size_t before = (size_t)(mark - want);
    char *end = NULL;
    if (strncmp(want, got, before) != 0) {
        return false;
    }
    long long number = strtoll(got + before, &end, 10);
    return end != got + before && *end == '\0' && number_fits(mark, number);
}

/* Compares the reply with the lines of the file up to the next command; says what differs. */
static bool reply_fits(struct lines *lines, const char *command, char *reply)
{
    struct lines got = {reply};
    bool fits = true;

    while (lines->at[0] != '\0' && lines->at[0] != '>' && strncmp(lines->at, "==", 2) != 0) {
        char *want_line = line_next(lines);
        if (*want_line == '\0') {
            continue;
        }
        char *got_line = line_next(&got);
        if (got_line == NULL || !line_fits(want_line, got_line)) {
            printf("# > %s\n#   want %s\n#   got  %s\n", command, want_line,
                   got_line == NULL ? "nothing" : got_line);
            fits = false;
        }
    }
    char *more = line_next(&got);
    if (more != NULL) {
        printf("# > %s\n#   more than wanted: %s\n", command, more);
        fits = false;
    }
    return fits;
}

static bool part_holds(struct lines *lines, struct buf *out)
{
    bool holds = true;

    run("FLUSHALL", out);
    while (lines->at[0] != '\0' && strncmp(lines->at, "==", 2) != 0) {
        char *line = line_next(lines);
        if (line[0] == '>' && line[1] == ' ') {
            run_line(line + 2, out);
            holds = reply_fits(lines, line + 2, (char *)out->data) && holds;
        }
    }
    return holds;
}

static unsigned parts_count(const char *text)
{
    unsigned count = 0;
    for (; text != NULL; text = strstr(text, "\n==")) {
        count += text[0] == '\n' ? 1 : 0;
        text++;
    }
    return count;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/impel-replies-XXXXXX";
    char path[64];
    struct lines lines = {argc > 1 ? file_read(argv[1]) : NULL};
    struct buf out;
    unsigned number = 0, failed = 0;

    if (lines.at == NULL || mkdtemp(folder) == NULL) {
        return 2;
    }
    char *text = lines.at;
    snprintf(path, sizeof(path), "%s/db", folder);
    store = call_store_open(path);
    buf_init(&out, REPLY_SIZE_MAX);
    printf("TAP version 13\n1..%u\n", parts_count(text));
    for (char *line = line_next(&lines); line != NULL; line = line_next(&lines)) {
        if (strncmp(line, "== ", 3) == 0) {
            bool good = part_holds(&lines, &out);
            failed += good ? 0 : 1;
            printf("%s %u - %s\n", good ? "ok" : "not ok", ++number, line + 3);
        }
    }
    store_close(store);
    buf_release(&out);
    free(text);
    for (const char *const *end = (const char *const[]){"", "-lock", "-wake", NULL}; *end != NULL;
         end++) {
        snprintf(path, sizeof(path), "%s/db%s", folder, *end);
        unlink(path);
    }
    rmdir(folder);
    return failed == 0 ? 0 : 1;
}
