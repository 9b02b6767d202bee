/* test_exec.c -- commands as handlers: what they are given, how they end, what they may not do. */
#include "runtime/bench.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct bench bench;

/* A handler that runs a line of shell. */
static void open_shell(uint32_t concurrency, const char *line)
{
    static char *argv[4] = {(char *)"/bin/sh", (char *)"-c", NULL, NULL};
    argv[2] = (char *)line;
    struct runtime_handler options = {.kind = HANDLER_EXEC, .argv = argv};
    bench_open_command(&bench, concurrency, &options);
}

static int open_command(const char *command, struct impel_error *error)
{
    static char *argv[2]; /* it outlives the handler */
    argv[0] = (char *)command;
    struct runtime_handler options = {.kind = HANDLER_EXEC, .argv = argv};
    return bench_open(&bench, 1, &options, error);
}

/* Runs the line on one entry and closes; the outcome is bench.results[0]. */
static void run_once(const char *line)
{
    open_shell(1, line);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
}

/* The error text of the first entry. */
static void check_error(const char *want)
{
    const char *got = bench.results[0].error;
    if (strcmp(got, want) != 0) {
        printf("# error text: got '%s', want '%s'\n", got, want);
    }
    CHECK(strcmp(got, want) == 0);
}

/* ---- outcomes ---- */

TEST(exit_0_is_done)
{
    run_once("exit 0");
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
    CHECK(bench.results[0].error_size == 0);
}

TEST(exit_65_rejects_with_what_it_said)
{
    run_once("echo no such customer >&2; exit 65");
    CHECK(bench.results[0].outcome == OUTCOME_REJECT);
    check_error("no such customer");
}

TEST(any_other_exit_retries)
{
    run_once("exit 3");
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    check_error("exit status 3");
}

TEST(death_by_a_signal_retries)
{
    run_once("kill -SEGV $$");
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    check_error("killed by signal 11 (SIGSEGV)");
}

TEST(the_last_4_kib_of_stderr_are_the_error_text)
{
    run_once("head -c 100000 /dev/zero | tr '\\0' a >&2; echo the end >&2; exit 1");
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    CHECK_U64(bench.results[0].error_size, ERROR_SIZE_MAX - 1); /* without the line feed */
    CHECK(strcmp(bench.results[0].error + bench.results[0].error_size - 8, "athe end") == 0);
}

TEST(a_cut_error_text_begins_with_a_whole_character)
{
    /* 4,098 bytes, of which the cut takes the first two: one and a half characters of two bytes
     * would be left of "xéé". */
    run_once(
        "{ printf 'x\\303\\251\\303\\251'; head -c 4093 /dev/zero | tr '\\0' a; } >&2; exit 1");
    CHECK(bench.results[0].error[0] == '\303');
    CHECK_U64(bench.results[0].error_size, ERROR_SIZE_MAX - 1);
}

/* ---- what a command is given ---- */

TEST(stdin_is_the_entry_as_json)
{
    run_once(
        "read -r line; [ \"$line\" = '{\"id\":\"1-0\",\"stream\":\"orders\","
        "\"group\":\"billing\",\"consumer\":\"me-1\",\"attempt\":1,\"fields\":{\"n\":\"1\"}}' ]"
        " || { echo \"$line\" >&2; exit 1; }; ! read -r more");
    check_error("");
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

TEST(the_environment_tells_the_entry)
{
    run_once("env | grep -E '^IMPEL_(ATT|CON|FIE|GRO|ID|STR)' | sort | tr '\\n' ' ' >&2; exit 1");
    check_error(
        "IMPEL_ATTEMPT=1 IMPEL_CONSUMER=me-1 IMPEL_FIELD_n=1 IMPEL_GROUP=billing IMPEL_ID=1-0 "
        "IMPEL_STREAM=orders");
}

TEST(only_fields_that_a_shell_can_use_become_variables)
{
    static char large[64 * 1024 + 1];
    memset(large, 'x', sizeof large);
    const struct impel_field fields[] = {
        {bytes_of("good_1"), bytes_of("a b\n'")},
        {bytes_of("twice"), bytes_of("1")},
        {bytes_of("twice"), bytes_of("2")},
        {bytes_of("with-dash"), bytes_of("1")},
        {bytes_of(""), bytes_of("1")},
        {bytes_of("nul"), {"a\0b", 3}},
        {bytes_of("fits"), {large, sizeof large - 1}},
        {bytes_of("large"), {large, sizeof large}},
        {bytes_of("empty"), bytes_of("")},
    };
    open_shell(
        1, "[ \"$IMPEL_FIELD_good_1\" = \"a b\n'\" ] || exit 1; [ ${#IMPEL_FIELD_fits} = 65536 ] "
           "|| exit 2; env | grep -a '^IMPEL_FIELD_' | cut -d= -f1 | sort | tr '\\n' ' ' >&2; "
           "exit 3");
    bench_start(&bench, fields, ARRAY_SIZE(fields));
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    check_error("IMPEL_FIELD_empty IMPEL_FIELD_fits IMPEL_FIELD_good_1");
}

TEST(more_fields_than_an_environment_holds_are_on_stdin_only)
{
    static char large[64 * 1024];
    static char names[100][8];
    static struct impel_field fields[100];
    memset(large, 'x', sizeof large);
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        (void)snprintf(names[i], sizeof names[i], "f%zu", i);
        fields[i] = (struct impel_field){bytes_of(names[i]), {large, sizeof large}};
    }
    open_shell(1,
               "[ -z \"$IMPEL_FIELD_f0\" ] && [ \"$IMPEL_ID\" = 1-0 ] && [ $(wc -c) -gt 6553600 ]");
    bench_start(&bench, fields, ARRAY_SIZE(fields));
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

TEST(passwords_and_stale_variables_are_not_inherited)
{
    setenv("IMPEL_PASSWORD", "secret", 1);
    setenv("IMPEL_STORE", "redis://:secret@localhost", 1);
    setenv("IMPEL_FIELD_old", "1", 1);
    setenv("OTHER", "kept", 1);
    run_once("[ \"$OTHER\" = kept ] && ! env | grep -e secret -e IMPEL_FIELD_old");
    unsetenv("IMPEL_PASSWORD");
    unsetenv("IMPEL_STORE");
    unsetenv("IMPEL_FIELD_old");
    unsetenv("OTHER");
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

TEST(a_command_has_three_descriptors_only)
{
    int extra = dup(0); /* as a careless library would leave it: not close-on-exec */
    CHECK(extra > 2);
    run_once("ls /proc/$$/fd | tr '\\n' ' ' >&2; exit 1");
    close(extra);
    check_error("0 1 2");
}

TEST(a_command_has_fresh_signals)
{
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    /* Signals 32 and 33 are the C library's own: whoever started the tests may have left them
     * ignored, and no program can change that through it. */
    run_once("mask() { sed -n \"s/^$1:[[:space:]]*/0x/p\" /proc/$$/status; }; "
             "printf '%x %x' $(($(mask SigBlk))) $(($(mask SigIgn) & ~0x180000000)) >&2; exit 1");
    signal(SIGPIPE, before);
    signal(SIGUSR1, SIG_DFL);
    check_error("0 0");
}

/* ---- what a command cannot do ---- */

TEST(a_body_of_64_mib_arrives_whole)
{
    size_t size = (size_t)64 * 1024 * 1024;
    char *body = malloc(size);
    CHECK(body != NULL);
    memset(body, 'x', size);
    struct impel_field field = {bytes_of("body"), {body, size}};
    open_shell(2, "if [ \"$IMPEL_FIELD_small\" = 1 ]; then exit 0; fi; "
                  "n=$(wc -c); [ $n -gt 67108864 ] || { echo $n >&2; exit 1; }");
    bench_start(&bench, &field, 1);
    size_t small = bench_start_text(&bench, "small", "1"); /* is not held up by it */
    CHECK(bench_wait(&bench, 2));
    bench_close(&bench);
    free(body);
    check_error("");
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
    CHECK(bench.results[small].outcome == OUTCOME_DONE);
}

TEST(a_command_need_not_read_its_stdin)
{
    size_t size = (size_t)1024 * 1024;
    char *body = malloc(size);
    CHECK(body != NULL);
    memset(body, 'x', size);
    struct impel_field field = {bytes_of("body"), {body, size}};
    open_shell(1, "exec 0<&-; exit 0");
    bench_start(&bench, &field, 1);
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    free(body);
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

TEST(a_grandchild_that_keeps_stderr_does_not_keep_the_place)
{
    open_shell(1, "sleep 60 & echo $! >&2; exit 1");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    pid_t grandchild = (pid_t)strtol(bench.results[0].error, NULL, 10);
    CHECK(grandchild > 1);
    CHECK(kill(grandchild, SIGKILL) == 0); /* it was left alone: the command had ended by itself */
    bench_close(&bench);
}

TEST(nothing_is_left_behind)
{
    int before = open_descriptors();
    open_shell(16, "echo $IMPEL_ID >&2; exit 1");
    bench_start_many(&bench, 200, 16);
    bench_close(&bench);
    bool right = true;
    for (int i = 0; i < 200; i++) {
        char want[32];
        (void)snprintf(want, sizeof want, "%d-0", i + 1);
        right = right && strcmp(bench.results[i].error, want) == 0;
    }
    CHECK(right);
    CHECK_U64((uint64_t)open_descriptors(), (uint64_t)before);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no zombie, no guard */
}

/* ---- cancelling ---- */

/* Starts the line, whose standard output is a pipe; returns its other end once the command has
 * written a line there. Its end of file means that every process of it is gone. */
static int start_with_pipe(const char *line)
{
    int out[2];
    char byte = 0;
    fflush(stdout);
    int keep = dup(STDOUT_FILENO);
    CHECK(pipe(out) == 0 && keep > 2);
    CHECK(dup2(out[1], STDOUT_FILENO) == STDOUT_FILENO);
    close(out[1]);
    open_shell(1, line);
    bench_start_text(&bench, "n", "1");
    CHECK(dup2(keep, STDOUT_FILENO) == STDOUT_FILENO);
    close(keep);
    do {
        CHECK(read(out[0], &byte, 1) == 1);
    } while (byte != '\n');
    return out[0];
}

static bool all_gone(int fd)
{
    char data[256];
    ssize_t n = 1;
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    while (n > 0 && poll(&poller, 1, BENCH_DEADLINE_MS) == 1) {
        n = read(fd, data, sizeof data);
    }
    close(fd);
    return n == 0;
}

TEST(a_cancelled_command_is_ended_with_its_whole_group)
{
    int fd = start_with_pipe("sleep 1000 | sleep 1000 & echo ready; wait");
    bench_cancel(&bench, 0, CANCEL_TIMEOUT);
    CHECK(bench_wait(&bench, 1));
    CHECK(all_gone(fd));
    CHECK(bench.results[0].outcome == OUTCOME_RETRY);
    check_error("killed by signal 15 (SIGTERM)");
    bench_close(&bench);
}

TEST(one_that_ignores_term_is_killed)
{
    int fd = start_with_pipe("trap '' TERM; sleep 1000 & echo ready; wait; wait");
    bench_cancel(&bench, 0, CANCEL_LOST);
    CHECK(bench_wait(&bench, 1));
    CHECK(all_gone(fd));
    check_error("killed by signal 9 (SIGKILL)");
    bench_close(&bench);
}

TEST(a_stop_gives_back_what_had_no_outcome)
{
    int fd = start_with_pipe("echo ready; exec sleep 1000");
    bench_cancel(&bench, 0, CANCEL_STOP);
    CHECK(bench_wait(&bench, 1));
    CHECK(bench.results[0].outcome == OUTCOME_RELEASE);
    CHECK(all_gone(fd));
    bench_close(&bench);
}

TEST(a_stop_does_not_undo_an_outcome)
{
    int fd = start_with_pipe("trap 'exit 0' TERM; echo ready; sleep 1000 & wait");
    bench_cancel(&bench, 0, CANCEL_STOP);
    CHECK(bench_wait(&bench, 1));
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
    CHECK(all_gone(fd));
    bench_close(&bench);
}

/* ---- commands that cannot be run ---- */

static char *make_file(const char *text, mode_t mode)
{
    static char path[64];
    (void)snprintf(path, sizeof path, "/tmp/impel-test-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
    return path;
}

TEST(a_missing_command_is_told_at_once)
{
    struct impel_error error = {0};
    CHECK(open_command("no-such-command-anywhere", &error) == IMPEL_ERR_INVALID);
    CHECK(strcmp(error.text,
                 "cannot run the command 'no-such-command-anywhere': it is in no folder of "
                 "$PATH") == 0);
    CHECK(open_command("/no/such/command", &error) == IMPEL_ERR_INVALID);
    CHECK(strstr(error.text, "No such file") != NULL);
    CHECK(open_command("/tmp", &error) == IMPEL_ERR_INVALID);
    CHECK(strstr(error.text, "it is a folder") != NULL);
}

TEST(a_file_that_is_not_executable_is_told_at_once)
{
    struct impel_error error = {0};
    char *path = make_file("#!/bin/sh\n", 0600);
    int rc = open_command(path, &error);
    unlink(path);
    CHECK(rc == IMPEL_ERR_INVALID);
    CHECK(strstr(error.text, "chmod +x") != NULL);
}

TEST(a_command_that_fails_to_exec_costs_no_attempt)
{
    struct impel_error error = {0};
    char *path = make_file("#!/no/such/interpreter\n", 0700);
    CHECK(open_command(path, &error) == IMPEL_OK);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_start_text(&bench, "n", "2"); /* the machine may have more to start before it stops */
    CHECK(bench_wait(&bench, 2));
    bench_close(&bench);
    unlink(path);
    CHECK(bench.results[0].outcome == OUTCOME_RELEASE);
    CHECK(bench.results[1].outcome == OUTCOME_RELEASE);
    CHECK(bench.failures == 1 && bench.failure.status == IMPEL_ERR_INVALID);
    CHECK(strstr(bench.failure.text, "interpreter") != NULL);
}

TEST(a_script_without_interpreter_runs_in_a_shell)
{
    struct impel_error error = {0};
    char *path = make_file("echo from $IMPEL_ID >&2\nexit 7\n", 0700);
    CHECK(open_command(path, &error) == IMPEL_OK);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    unlink(path);
    check_error("from 1-0");
}

TEST(a_busy_executable_is_waited_for)
{
    struct impel_error error = {0};
    char *path = make_file("", 0600);
    char copy[128];
    (void)snprintf(copy, sizeof copy, "cp /bin/true %s && chmod 700 %s", path, path);
    CHECK(system(copy) == 0);
    int writer = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(writer >= 0);
    CHECK(open_command(path, &error) == IMPEL_OK);
    bench_start_text(&bench, "n", "1");
    while (bench.events == 0) {
        CHECK(bench_turn(&bench));
    }
    CHECK(strcmp(bench.event_name, "start-postponed") == 0);
    CHECK(bench.finished == 0);
    close(writer);
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    unlink(path);
    CHECK(bench.results[0].outcome == OUTCOME_DONE);
}

/* With room for one command of three, two are postponed again and again while each of the others
 * starts: that is one shortage, told once. */
TEST(a_lasting_shortage_is_told_once)
{
    struct rlimit before, low;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    open_shell(3, "exec sleep 0.15");
    low = before;
    int lowest = dup(STDOUT_FILENO);
    CHECK(lowest >= 0);
    close(lowest);
    low.rlim_cur = (rlim_t)lowest + 6; /* a start takes five, and a running command less */
    CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
    bench_start_many(&bench, 6, 3);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    bench_close(&bench);
    CHECK(bench.events == 1 && strcmp(bench.event_name, "start-postponed") == 0);
    for (size_t i = 0; i < 6; i++) {
        CHECK(bench.results[i].outcome == OUTCOME_DONE);
    }
}

/* ---- the guard ---- */

/* A worker in a process of its own with one command running, after another that has ended (of which
 * the guard must know as well: it has room for one); returns the reading end of the command's
 * standard output once it is up. */
static int fork_worker(const char *line, pid_t *worker)
{
    int out[2];
    char byte = 0;
    CHECK(pipe(out) == 0);
    fflush(stdout);
    *worker = fork();
    CHECK(*worker >= 0);
    if (*worker == 0) {
        dup2(out[1], STDOUT_FILENO);
        close(out[0]);
        close(out[1]);
        setpgid(0, 0);
        open_shell(1, line);
        bench_start_text(&bench, "n", "short");
        (void)bench_wait(&bench, 1);
        bench_start_text(&bench, "n", "long");
        (void)bench_wait(&bench, 2);
        _exit(0);
    }
    close(out[1]);
    do {
        CHECK(read(out[0], &byte, 1) == 1);
    } while (byte != '\n');
    return out[0];
}

TEST(a_killed_worker_takes_the_children_of_its_commands_along)
{
    pid_t worker;
    int fd = fork_worker("[ $IMPEL_FIELD_n = long ] || exit 0; "
                         "sleep 1000 | { trap '' TERM HUP; sleep 1000; } & echo ready; wait",
                         &worker);
    CHECK(kill(worker, SIGKILL) == 0);
    CHECK(waitpid(worker, NULL, 0) == worker);
    CHECK(all_gone(fd));
}

TEST(so_does_one_whose_process_group_was_killed)
{
    pid_t worker;
    int fd = fork_worker("[ $IMPEL_FIELD_n = long ] || exit 0; "
                         "sleep 1000 | sleep 1000 & echo ready; wait",
                         &worker);
    CHECK(kill(-worker, SIGKILL) == 0);
    CHECK(waitpid(worker, NULL, 0) == worker);
    CHECK(all_gone(fd));
}

static bool is_guard(pid_t pid)
{
    char path[64];
    char name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    bool guard = fgets(name, sizeof name, file) != NULL && strcmp(name, "impel-guard\n") == 0;
    (void)fclose(file);
    return guard;
}

/* The worker's child of that name, by the kernel's own list (a bare machine has no tool for it); -1
 * while there is none: a new guard needs a moment to take its name. */
static pid_t find_guard(pid_t worker)
{
    char path[64];
    char children[4096] = "";
    char *rest = NULL;
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)worker, (int)worker);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char *word = fgets(children, sizeof children, file);
    (void)fclose(file);
    for (word = strtok_r(word, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        pid_t pid = (pid_t)strtol(word, NULL, 10);
        if (is_guard(pid)) {
            return pid;
        }
    }
    return -1;
}

static pid_t guard_of(pid_t worker)
{
    pid_t guard = -1;
    for (int looks = 0; guard < 0 && looks < 3000; looks++) {
        guard = find_guard(worker);
        (void)poll(NULL, 0, guard < 0 ? 10 : 0);
    }
    CHECK(guard > 0);
    return guard;
}

TEST(a_killed_guard_comes_back_and_harms_nobody)
{
    open_shell(2, "case $IMPEL_FIELD_n in long) read -r line; exec sleep 1000;; *) exit 0;; esac");
    size_t longer = bench_start_text(&bench, "n", "long");
    pid_t guard = guard_of(getpid());
    siginfo_t info;
    CHECK(kill(guard, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)guard, &info, WEXITED | WNOWAIT) == 0);
    /* Its pipe breaks at once; the next command cannot register, and a new guard is made. */
    bench_start_text(&bench, "n", "short");
    CHECK(bench_wait(&bench, 1));
    CHECK(strcmp(bench.event_name, "guard-renewed") == 0);
    CHECK(guard_of(getpid()) != guard);
    CHECK(bench.deliveries[longer].entry != NULL); /* still runs */
    bench_cancel(&bench, longer, CANCEL_STOP);
    CHECK(bench_wait(&bench, 2));
    bench_close(&bench);
}

TEST(a_stopped_guard_stops_nobody)
{
    open_shell(1, "exit 0");
    CHECK(kill(guard_of(getpid()), SIGSTOP) == 0);
    bench_start_many(&bench, 50, 1);
    bench_close(&bench); /* waits for the guard */
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

TAP_MAIN
