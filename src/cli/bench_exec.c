/* bench_exec.c -- commands: one for each entry, by a worker of Impel's and by xargs, which does nothing
 * else and has nothing to lose; and commands that stay. The command is `true`, so that what is
 * measured is what starting costs; the one that stays is this program, which only answers. */
#include "cli/bench.h"
#include "runtime/runtime.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ANSWER_LINE_MAX = 1 << 26, /* of an entry */
    ANSWER_READ_SIZE = 1 << 16,
};

/* The worker of `handler`, until all is done. */
static int run_worker(const struct bench_case *bench,
                      const struct runtime_handler *handler,
                      uint32_t concurrency,
                      double *seconds,
                      struct impel_error *err)
{
    struct runtime_options options;
    struct runtime *runtime = NULL;
    char url[BENCH_URL_SIZE];
    int rc = bench_prepare(bench, err);

    if (rc < 0) {
        return rc;
    }
    bench_url(bench, bench->sync_full, url, sizeof(url));
    bench_worker(&options, url);
    options.worker.concurrency = concurrency;
    options.worker.until_idle = true;
    options.handler = *handler;
    rc = runtime_new(&options, &runtime, err);
    double begun = bench_now();
    rc = rc < 0 ? rc : runtime_run(runtime, err);
    *seconds = bench_now() - begun;
    runtime_free(runtime);
    return rc;
}

int bench_exec(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    char command[] = "true";
    char *const argv[] = {command, NULL};
    struct runtime_handler handler = {.kind = HANDLER_EXEC, .argv = argv};

    return run_worker(bench, &handler, BENCH_EXEC_CONCURRENCY, seconds, err);
}

/* ---- commands that stay ---- */

int bench_pipe(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    char self[] = "/proc/self/exe", word[] = "bench", answer[] = "answer";
    char *const argv[] = {self, word, answer, NULL};
    struct runtime_handler handler = {
        .kind = HANDLER_PIPE, .argv = argv, .processes = BENCH_PIPE_PROCESSES};

    return run_worker(bench, &handler, BENCH_PIPE_CONCURRENCY, seconds, err);
}

/* The ID is the first member of an entry's line: {"id":"1-0",... */
static void answer_line(struct buf *out, const uint8_t *line, size_t size)
{
    static const char before[] = "{\"id\":\"";
    size_t from = sizeof(before) - 1;
    const uint8_t *quote = size > from ? memchr(line + from, '"', size - from) : NULL;

    if (quote != NULL) {
        buf_append(out, line, (size_t)(quote - line));
        buf_append_text(out, "\",\"outcome\":\"done\"}\n");
    }
}

static bool write_all(const struct buf *out)
{
    size_t written = 0;

    while (written < out->size) {
        ssize_t n = write(STDOUT_FILENO, out->data + written, out->size - written);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        written += n > 0 ? (size_t)n : 0;
    }
    return true;
}

int bench_answer(struct impel_error *err)
{
    struct buf in, out;
    bool good = true;
    ssize_t n = 1;

    buf_init(&in, ANSWER_LINE_MAX);
    buf_init(&out, ANSWER_LINE_MAX);
    while (good && n > 0) {
        void *room = buf_reserve(&in, ANSWER_READ_SIZE);
        n = room == NULL ? -1 : read(STDIN_FILENO, room, ANSWER_READ_SIZE);
        in.size += n > 0 ? (size_t)n : 0;
        size_t begin = 0;
        const uint8_t *feed;
        buf_clear(&out);
        while (begin < in.size && (feed = memchr(in.data + begin, '\n', in.size - begin)) != NULL) {
            answer_line(&out, in.data + begin, (size_t)(feed - in.data) - begin);
            begin = (size_t)(feed - in.data) + 1;
        }
        if (begin > 0) {
            memmove(in.data, in.data + begin, in.size - begin);
            in.size -= begin;
        }
        good = buf_status(&out) >= 0 && write_all(&out);
    }
    buf_release(&in);
    buf_release(&out);
    return good && n == 0 ? IMPEL_OK : error_set(err, IMPEL_ERR_IO, "cannot answer");
}

/* ---- xargs ---- */

/* One line an entry, as large as the entries are not: xargs would make arguments of them. */
static int write_lines(const struct bench_case *bench, const char *path, struct impel_error *err)
{
    FILE *file = fopen(path, "we");
    bool good = file != NULL;

    for (uint64_t i = 1; good && i <= bench->entries; i++) {
        good = fprintf(file, "%llu\n", (unsigned long long)i) > 0;
    }
    if (file != NULL) {
        good = fclose(file) == 0 && good;
    }
    return good ? IMPEL_OK : error_set(err, IMPEL_ERR_IO, "%s: %s", path, strerror(errno));
}

static void exec_xargs(const char *path)
{
    char places[16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)snprintf(places, sizeof(places), "-P%d", BENCH_EXEC_CONCURRENCY);
    if (fd >= 0 && dup2(fd, 0) == 0) {
        (void)execlp("xargs", "xargs", "-n1", places, "true", (char *)NULL);
    }
    _exit(127);
}

int bench_xargs(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    char path[BENCH_URL_SIZE];
    int status = 0;

    (void)snprintf(path, sizeof(path), "%s/lines", bench->folder);
    int rc = write_lines(bench, path, err);
    if (rc < 0) {
        return rc;
    }
    double begun = bench_now();
    pid_t pid = fork();
    if (pid < 0) {
        return error_set(err, IMPEL_ERR_IO, "fork: %s", strerror(errno));
    }
    if (pid == 0) {
        exec_xargs(path);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    *seconds = bench_now() - begun;
    return status == 0 ? IMPEL_OK
                       : error_set(err, IMPEL_ERR_NOT_FOUND, "xargs could not be run to its end");
}
