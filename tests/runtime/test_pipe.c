/* test_pipe.c -- processes that stay: what they are given, what they answer, how they end. */
#include "runtime/bench.h"

#include <sys/wait.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct bench bench;
static char folder[64]; /* the processes' working folder: what they leave there tells of them */

/* What every line of shell below may use: next reads an entry, answer says its outcome. A shell reads
 * byte by byte, so what it has not asked for stays in the pipe. */
static const char prelude[] =
    "next() { read -r line || exit 0; id=${line#*'\"id\":\"'}; id=${id%%'\"'*}; }\n"
    "answer() { printf '{\"id\":\"%s\",\"outcome\":\"%s\"%s}\\n' \"$id\" \"$1\" \"$2\"; }\n"
    "n() { n=${line#*'\"n\":\"'}; n=${n%%'\"'*}; }\n";

static void open_pipe(uint32_t concurrency, uint32_t processes, const char *line)
{
    static char *argv[4] = {(char *)"/bin/sh", (char *)"-c", NULL, NULL};
    static char script[4096];
    (void)snprintf(script, sizeof script, "%s cd %s; %s", prelude, folder, line);
    argv[2] = script;
    struct runtime_handler options = {.kind = HANDLER_PIPE, .argv = argv, .processes = processes};
    bench_open_command(&bench, concurrency, &options);
}

static void begin(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/impel-test-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    bench.timeout_ms = 0;
}

static void end(void)
{
    char command[128];
    bench_close(&bench);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

static void check_text(const char *got, const char *part)
{
    if (strstr(got, part) == NULL) {
        printf("# '%s' is not in '%s'\n", part, got);
    }
    CHECK(strstr(got, part) != NULL);
}

/* The first line of a file in the folder, "" if there is none. */
static const char *line_of(const char *name)
{
    static char line[8192];
    char path[128];
    line[0] = '\0';
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fgets(line, sizeof line, file) != NULL) {
            line[strcspn(line, "\n")] = '\0';
        }
        (void)fclose(file);
    }
    return line;
}

static void touch(const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fclose(file) == 0);
}

/* Turns the loop until the file has a line. */
static void wait_for_file(const char *name)
{
    while (line_of(name)[0] == '\0') {
        CHECK(bench_turn(&bench));
    }
}

static enum worker_outcome outcome_of(size_t number)
{
    return bench.results[number].outcome;
}

/* ---- the ordinary way ---- */

TEST(the_three_outcomes)
{
    begin();
    open_pipe(1, 1,
              "while next; do n; case $n in 1) answer done;; "
              "2) answer retry ',\"delay_ms\":1234,\"error\":\"later\"';; "
              "*) answer reject ',\"error\":\"never\"';; esac; done");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 2));
    bench_start_text(&bench, "n", "3");
    CHECK(bench_wait(&bench, 3));
    CHECK(outcome_of(0) == OUTCOME_DONE && bench.results[0].error_size == 0);
    CHECK(outcome_of(1) == OUTCOME_RETRY && bench.results[1].delay_ms == 1234);
    CHECK(strcmp(bench.results[1].error, "later") == 0);
    CHECK(outcome_of(2) == OUTCOME_REJECT && strcmp(bench.results[2].error, "never") == 0);
    CHECK(bench.begun[0] == 1 && bench.events == 0);
    end();
}

TEST(what_a_process_is_given)
{
    begin();
    const struct impel_field fields[] = {{bytes_of("n"), bytes_of("1")},
                                         {bytes_of("raw"), {"\xff\x00x", 3}}};
    setenv("IMPEL_ID", "stale", 1);
    setenv("IMPEL_PASSWORD", "secret", 1);
    open_pipe(1, 1,
              "next; printf '%s\\n' \"$line\" > line; env | grep -E "
              "'^IMPEL_(ATT|CON|FIE|GRO|ID|PAS|STR)' | sort | tr '\\n' ' ' > env;"
              "ls /proc/$$/fd | tr '\\n' ' ' > fds; answer done");
    bench_start(&bench, fields, ARRAY_SIZE(fields));
    CHECK(bench_wait(&bench, 1));
    unsetenv("IMPEL_ID");
    unsetenv("IMPEL_PASSWORD");
    CHECK(strcmp(line_of("line"), "{\"id\":\"1-0\",\"stream\":\"orders\",\"group\":\"billing\","
                                  "\"consumer\":\"me-1\",\"attempt\":1,\"fields\":{\"n\":\"1\","
                                  "\"raw\":{\"base64\":\"/wB4\"}}}") == 0);
    CHECK(strcmp(line_of("env"), "IMPEL_CONSUMER=me-1 IMPEL_GROUP=billing IMPEL_STREAM=orders ") ==
          0);
    CHECK(strcmp(line_of("fds"), "0 1 2 ") == 0);
    end();
}

TEST(answers_come_in_any_order)
{
    begin();
    open_pipe(4, 1,
              "while next; do ids=\"$id $ids\"; count=$((count + 1)); "
              "[ $count = 4 ] || continue; for id in $ids; do answer done; done; "
              "ids=; count=0; done");
    for (int i = 0; i < 4; i++) {
        bench_start_text(&bench, "n", "1");
    }
    CHECK(bench_wait(&bench, 4));
    CHECK(outcome_of(0) == OUTCOME_DONE && outcome_of(3) == OUTCOME_DONE);
    end();
}

TEST(entries_are_spread_over_processes)
{
    begin();
    /* Each answers only when all four have one: one process alone would wait for ever. */
    open_pipe(4, 4,
              "while next; do : > at-$id; until [ $(ls at-* | wc -l) -ge 4 ]; do sleep 0.02; done; "
              "answer done; done");
    for (int i = 0; i < 4; i++) {
        bench_start_text(&bench, "n", "1");
    }
    CHECK(bench_wait(&bench, 4));
    end();
}

TEST(two_entries_of_one_id_are_not_in_a_process_at_once)
{
    begin();
    open_pipe(2, 1,
              "while next; do n; echo $n >> order; [ $n = 2 ] || sleep 0.2; answer done; done");
    bench.id_ms = 77; /* of two streams */
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 1));
    CHECK(outcome_of(0) == OUTCOME_DONE && bench.deliveries[1].entry != NULL);
    CHECK(bench_wait(&bench, 2));
    CHECK(bench.events == 0);
    bench.id_ms = 0;
    end();
}

TEST(many_entries_pass)
{
    begin();
    int before = open_descriptors();
    open_pipe(32, 2, "while next; do answer done; done");
    bench_start_many(&bench, 250, 32);
    for (size_t i = 0; i < 250; i++) {
        CHECK(outcome_of(i) == OUTCOME_DONE);
    }
    end();
    CHECK_U64((uint64_t)open_descriptors(), (uint64_t)before);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD); /* no zombie, no guard */
}

TEST(a_process_that_does_not_read_holds_up_nobody)
{
    begin();
    size_t size = (size_t)8 * 1024 * 1024;
    char *body = malloc(size);
    CHECK(body != NULL);
    memset(body, 'x', size);
    struct impel_field field = {bytes_of("body"), {body, size}};
    open_pipe(2, 1,
              "echo up > up; until [ -e go ]; do sleep 0.02; done; exec python3 -c '\n"
              "import json, sys\n"
              "for line in sys.stdin:\n"
              "    done = {\"id\": json.loads(line)[\"id\"], \"outcome\": \"done\"}\n"
              "    print(json.dumps(done), flush=True)\n'");
    bench_start(&bench, &field, 1);
    bench_start_text(&bench, "n", "2");
    wait_for_file("up"); /* the loop turns, with 8 MiB to be written */
    for (int i = 0; i < 10; i++) {
        CHECK(bench_turn(&bench));
    }
    CHECK(bench.finished == 0);
    touch("go");
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(0) == OUTCOME_DONE && outcome_of(1) == OUTCOME_DONE);
    free(body);
    end();
}

TEST(what_it_says_is_passed_on_and_waits_where_ours_is_full)
{
    begin();
    int ours[2];
    char data[65536];
    size_t size = 0;
    fflush(stderr);
    int keep = dup(STDERR_FILENO);
    CHECK(pipe(ours) == 0 && keep > 2);
    CHECK(dup2(ours[1], STDERR_FILENO) == STDERR_FILENO);
    close(ours[1]);
    open_pipe(2, 2,
              "while next; do n; [ $n != 1 ] || head -c 300000 /dev/zero | tr '\\0' a >&2; "
              "answer done; done");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 1)); /* the loop is not held up by what nobody reads */
    CHECK(outcome_of(1) == OUTCOME_DONE && bench.deliveries[0].entry != NULL);
    while (bench.finished < 2) {
        struct pollfd poller = {.fd = ours[0], .events = POLLIN};
        ssize_t n = poll(&poller, 1, 0) == 1 ? read(ours[0], data, sizeof data) : 0;
        size += n > 0 ? (size_t)n : 0;
        CHECK(bench_turn(&bench));
    }
    bench_close(&bench); /* with room for the rest */
    CHECK(dup2(keep, STDERR_FILENO) == STDERR_FILENO);
    close(keep);
    for (ssize_t n = 1; n > 0; size += n > 0 ? (size_t)n : 0) {
        n = read(ours[0], data, sizeof data);
    }
    close(ours[0]);
    CHECK_U64(size, 300000);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

/* ---- processes that die ---- */

TEST(what_a_dead_process_had_read_is_tried_again)
{
    begin();
    open_pipe(1, 1, "next; echo out of paper >&2; kill -SEGV $$");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    CHECK(outcome_of(0) == OUTCOME_CRASHED);
    check_text(bench.results[0].error, "killed by signal 11 (SIGSEGV)");
    check_text(bench.results[0].error, "out of paper");
    CHECK(strcmp(bench.event_name, "process-ended") == 0);
    check_text(bench.event_text, "1 that it had read failed with it");
    end();
}

TEST(what_it_had_not_read_goes_to_the_next_one)
{
    begin();
    open_pipe(4, 1,
              "mkdir first 2>/dev/null && { until [ -e go ]; do sleep 0.02; done; next; exit 3; }; "
              "while next; do answer done; done");
    for (int i = 0; i < 4; i++) {
        bench_start_text(&bench, "n", "1");
    }
    touch("go");
    CHECK(bench_wait(&bench, 4));
    CHECK(outcome_of(0) == OUTCOME_CRASHED);
    check_text(bench.results[0].error, "exit status 3");
    for (size_t i = 1; i < 4; i++) {
        CHECK(outcome_of(i) == OUTCOME_DONE && bench.begun[i] >= 2);
    }
    end();
}

TEST(all_that_it_had_read_may_be_to_blame)
{
    begin();
    open_pipe(3, 1, "next; next; next; kill -KILL $$");
    for (int i = 0; i < 3; i++) {
        bench_start_text(&bench, "n", "1");
    }
    CHECK(bench_wait(&bench, 3));
    for (size_t i = 0; i < 3; i++) {
        CHECK(outcome_of(i) == OUTCOME_CRASHED);
    }
    end();
}

TEST(what_it_answered_before_it_died_counts)
{
    begin();
    open_pipe(2, 1, "next; answer done; next; answer reject; kill -KILL $$");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(0) == OUTCOME_DONE && outcome_of(1) == OUTCOME_REJECT);
    end();
}

/* Gone, or as good as: whoever adopts it may be slow to reap. */
static bool is_gone(pid_t pid)
{
    char path[64], state[8] = "Z";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        (void)fscanf(file, "%*d (%*[^)]) %7s", state);
        (void)fclose(file);
    }
    return state[0] == 'Z';
}

TEST(what_it_left_behind_is_ended)
{
    begin();
    open_pipe(1, 1, "next; sleep 1000 & echo $! > pid; kill -KILL $$");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    pid_t left = (pid_t)strtol(line_of("pid"), NULL, 10);
    CHECK(left > 1);
    while (!is_gone(left)) {
        CHECK(bench_turn(&bench));
    }
    end();
}

TEST(one_apart_has_its_process_to_itself)
{
    begin();
    /* It takes at once all that it was given, and does not stand what is apart. */
    open_pipe(
        4, 1,
        "echo up > up; until [ -e go ]; do sleep 0.02; done; exec python3 -c '\n"
        "import json, os\n"
        "while True:\n"
        "    entries = [json.loads(line) for line in os.read(0, 65536).split(b\"\\n\") if line]\n"
        "    if not entries:\n"
        "        break\n"
        "    if any(entry[\"fields\"][\"n\"] == \"apart\" for entry in entries):\n"
        "        os.abort()\n"
        "    for entry in entries:\n"
        "        print(json.dumps({\"id\": entry[\"id\"], \"outcome\": \"done\"}), flush=True)\n'");
    bench_start_text(&bench, "n", "before");
    bench.apart = true;
    size_t apart = bench_start_text(&bench, "n", "apart");
    bench.apart = false;
    bench_start_text(&bench, "n", "behind");
    bench_start_text(&bench, "n", "behind");
    wait_for_file("up");
    touch("go");
    CHECK(bench_wait(&bench, 4));
    CHECK(outcome_of(apart) == OUTCOME_CRASHED);
    CHECK(outcome_of(0) == OUTCOME_DONE && outcome_of(2) == OUTCOME_DONE &&
          outcome_of(3) == OUTCOME_DONE);
    end();
}

TEST(one_apart_waits_for_no_process_that_takes_nothing_more)
{
    begin();
    open_pipe(
        4, 2,
        "next; n; echo $n > has-$n; if [ $n = 1 ]; then until [ -e close ]; do sleep 0.02; done; "
        "exec 0<&-; echo closed > closed; exec sleep 1000; fi; "
        "until [ -e go ]; do sleep 0.02; done; printf $n >> order; answer done; "
        "while next; do n; printf $n >> order; answer done; done");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    wait_for_file("has-1");
    wait_for_file("has-2");
    bench.apart = true;
    bench_start_text(&bench, "n", "3"); /* is to have the first process */
    bench.apart = false;
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    touch("close");
    wait_for_file("closed");
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    bench_start_text(&bench, "n", "4"); /* the second is not to be filled up any more */
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    touch("go");
    CHECK(bench_wait(&bench, 3));
    CHECK(strcmp(line_of("order"), "234") == 0);
    bench_cancel(&bench, 0, CANCEL_STOP);
    CHECK(bench_wait(&bench, 4));
    end();
}

TEST(one_apart_gets_the_process_kept_for_it_whatever_came_before_it_again)
{
    begin();
    open_pipe(
        6, 2,
        "next; n; echo $n > has-$n; if [ $n = 2 ]; then until [ -e close ]; do sleep 0.02; done; "
        "exec 0<&-; echo closed > closed; exec sleep 1000; fi; "
        "until [ -e go ]; do sleep 0.02; done; printf $n >> order; answer done; "
        "while next; do n; printf $n >> order; answer done; done");
    for (int i = 0; i < 4; i++) {
        const char *const numbers[] = {"1", "2", "3", "4"};
        bench_start_text(&bench, "n", numbers[i]);
    }
    wait_for_file("has-1");
    wait_for_file("has-2");
    bench.apart = true;
    bench_start_text(&bench, "n", "5"); /* is to have the first process */
    bench.apart = false;
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    touch("close"); /* the second one's other entry waits again, before that */
    wait_for_file("closed");
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    touch("go");
    CHECK(bench_wait(&bench, 4));
    CHECK(strcmp(line_of("order"), "1354") == 0);
    bench_cancel(&bench, 1, CANCEL_STOP);
    CHECK(bench_wait(&bench, 5));
    end();
}

TEST(what_waited_is_given_only_if_it_may_begin)
{
    begin();
    open_pipe(
        2, 1,
        "next; until [ -e go ]; do sleep 0.02; done; answer done; while next; do echo two > two; "
        "answer done; done");
    bench.apart = true;
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2"); /* behind the first, which is alone */
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    bench.unsure = &bench.deliveries[1]; /* the worker slept */
    touch("go");
    CHECK(bench_wait(&bench, 1));
    int before = bench.begun[1];
    while (bench.begun[1] < before + 3) { /* it is asked again and again, and its timeout put off */
        CHECK(bench_turn(&bench));
    }
    CHECK(bench.finished == 1 && line_of("two")[0] == '\0');
    bench.unsure = NULL;
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(1) == OUTCOME_DONE);
    end();
}

TEST(one_apart_that_may_not_begin_keeps_no_process_from_others)
{
    begin();
    open_pipe(3, 1,
              "next; echo read > read; until [ -e go ]; do sleep 0.02; done; answer done; "
              "while next; do answer done; done");
    bench_start_text(&bench, "n", "1");
    wait_for_file("read");
    bench.apart = true;
    size_t apart = bench_start_text(&bench, "n", "2");
    bench.apart = false;
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    bench.unsure = &bench.deliveries[apart]; /* of another stream than the next, say */
    bench_start_text(&bench, "n", "3");
    touch("go");
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(2) == OUTCOME_DONE && bench.deliveries[apart].entry != NULL);
    bench.unsure = NULL;
    CHECK(bench_wait(&bench, 3));
    CHECK(outcome_of(apart) == OUTCOME_DONE);
    end();
}

TEST(one_that_never_reads_costs_no_attempt_and_is_not_started_hotly)
{
    begin();
    open_pipe(4, 1, "printf x >> starts; exit 1");
    for (int i = 0; i < 4; i++) {
        bench_start_text(&bench, "n", "1");
    }
    CHECK(bench_wait(&bench, 4));
    for (size_t i = 0; i < 4; i++) {
        CHECK(outcome_of(i) == OUTCOME_RELEASE);
    }
    size_t starts = strlen(line_of("starts"));
    printf("# %zu starts\n", starts);
    CHECK(starts >= 3 && starts <= 12);
    end();
}

TEST(one_that_wants_to_be_replaced_closes_its_input)
{
    begin();
    open_pipe(3, 1,
              "mkdir first 2>/dev/null && { until [ -e go ]; do sleep 0.02; done; next; exec 0<&-; "
              "answer done; sleep 0.1; exit 0; }; while next; do answer done; done");
    for (int i = 0; i < 3; i++) {
        bench_start_text(&bench, "n", "1");
    }
    touch("go");
    CHECK(bench_wait(&bench, 3));
    for (size_t i = 0; i < 3; i++) {
        CHECK(outcome_of(i) == OUTCOME_DONE);
    }
    end();
}

/* ---- nonsense ---- */

static void check_nonsense(const char *script, const char *what)
{
    begin();
    open_pipe(1, 1, script);
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    CHECK(outcome_of(0) == OUTCOME_CRASHED);
    check_text(bench.results[0].error, what);
    CHECK(bench.events == 2); /* what was wrong, and the end */
    end();
}

TEST(what_is_no_answer_ends_the_process)
{
    check_nonsense("next; echo hello; sleep 1000", "column 1: a JSON object is needed here");
    check_nonsense("next; answer fine; sleep 1000", "\"outcome\" has to be done, retry or reject");
    check_nonsense("next; id=9-9; answer done; sleep 1000", "no entry of this ID is in its hands");
    check_nonsense("next; head -c 1100000 /dev/zero | tr '\\0' a; sleep 1000",
                   "a line of more than 1 MiB");
    check_nonsense(
        "next; printf '{\"id\":\"1-0\",\"outcome\":\"done\",\"error\":\"\\377\"}\\n'; sleep 9",
        "not UTF-8");
}

TEST(a_second_answer_is_nonsense_and_the_first_one_counts)
{
    begin();
    open_pipe(2, 1, "next; next; id=1-0; answer done; answer done; sleep 1000");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(0) == OUTCOME_DONE && outcome_of(1) == OUTCOME_CRASHED);
    end();
}

TEST(half_a_line_is_no_answer_and_blank_ones_are_nothing)
{
    begin();
    open_pipe(1, 1, "next; echo; echo ' '; printf '{\"id\":\"1-0\",\"outcome\":\"done\"}'; exit 0");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    CHECK(outcome_of(0) == OUTCOME_CRASHED);
    CHECK(bench.events == 1);
    end();
}

/* ---- cancelling ---- */

TEST(a_timeout_ends_the_process_and_gives_its_neighbours_back)
{
    begin();
    open_pipe(3, 1,
              "trap 'id=3-0; answer done; exit 0' TERM; next; next; next; echo read > read; "
              "sleep 1000 & wait");
    for (int i = 0; i < 3; i++) {
        bench_start_text(&bench, "n", "1");
    }
    wait_for_file("read");
    bench_cancel(&bench, 0, CANCEL_TIMEOUT);
    CHECK(bench_wait(&bench, 3));
    CHECK(outcome_of(1) == OUTCOME_RELEASE);
    CHECK(outcome_of(2) == OUTCOME_DONE); /* it had the time to say so */
    check_text(bench.event_text,
               "entry 1-0 was not answered within the timeout, nor was any other");
    end();
}

TEST(the_timeout_runs_for_the_one_that_a_process_has_had_longest)
{
    begin();
    bench.timeout_ms = 400;
    open_pipe(2, 1,
              "next; next; echo read > read; until [ -e go ]; do sleep 0.02; done; "
              "id=1-0; answer done; until [ -e on ]; do sleep 0.02; done; id=2-0; answer done; "
              "exec sleep 1000");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    wait_for_file("read");
    int before = bench.begun[0];
    bench.begun[1] = 0;
    while (bench.begun[1] < 3) {
        CHECK(bench_turn(&bench));
    }
    CHECK(bench.begun[0] == before);
    touch("go");
    CHECK(bench_wait(&bench, 1));
    before = bench.begun[1];
    bench_start_text(&bench, "n", "3"); /* never read, and behind the second */
    while (bench.begun[2] < 3) {
        CHECK(bench_turn(&bench));
    }
    CHECK(bench.begun[1] == before);
    touch("on");
    CHECK(bench_wait(&bench, 2));
    bench_cancel(&bench, 2, CANCEL_STOP);
    CHECK(bench_wait(&bench, 3));
    end();
}

TEST(a_stopped_process_is_killed_by_its_timeout)
{
    begin();
    open_pipe(1, 1,
              "next; echo $$ > pid; kill -STOP $$; trap '' TERM; while :; do sleep 0.1; done");
    bench_start_text(&bench, "n", "1");
    wait_for_file("pid");
    bench_cancel(&bench, 0, CANCEL_TIMEOUT);
    CHECK(bench_wait(&bench, 1));
    check_text(bench.event_text, "signal");
    end();
}

TEST(a_lost_entry_ends_no_process_that_has_another)
{
    begin();
    open_pipe(2, 1,
              "next; next; echo read > read; until [ -e go ]; do sleep 0.02; done; "
              "id=1-0; answer done; id=2-0; answer done; next");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    wait_for_file("read");
    bench_cancel(&bench, 0, CANCEL_LOST);
    touch("go");
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(0) == OUTCOME_DONE); /* late: the machine knows what to do with it */
    CHECK(outcome_of(1) == OUTCOME_DONE);
    CHECK(bench.events == 0);
    end();
}

TEST(but_one_that_has_nothing_else)
{
    begin();
    open_pipe(2, 1, "next; next; echo read > read; exec sleep 1000");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    wait_for_file("read");
    bench_cancel(&bench, 1, CANCEL_LOST);
    bench_cancel(&bench, 0, CANCEL_LOST);
    CHECK(bench_wait(&bench, 2));
    check_text(bench.event_text, "no longer this worker's");
    end();
}

TEST(and_one_that_does_not_answer_a_lost_one_within_the_timeout)
{
    begin();
    bench.timeout_ms = 200;
    open_pipe(2, 1, "next; next; echo read > read; exec sleep 1000");
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    wait_for_file("read");
    bench_cancel(&bench, 0, CANCEL_LOST);
    CHECK(bench_wait(&bench, 2));
    CHECK(outcome_of(1) == OUTCOME_RELEASE);
    check_text(bench.event_text, "another worker's by now");
    end();
}

TEST(a_stop_gives_back_what_had_no_answer)
{
    begin();
    open_pipe(3, 1, "next; next; echo read > read; exec sleep 1000");
    for (int i = 0; i < 3; i++) {
        bench_start_text(&bench, "n", "1"); /* the third is never read */
    }
    wait_for_file("read");
    for (size_t i = 0; i < 3; i++) {
        bench_cancel(&bench, i, CANCEL_STOP);
    }
    CHECK(bench_wait(&bench, 3));
    for (size_t i = 0; i < 3; i++) {
        CHECK(outcome_of(i) == OUTCOME_RELEASE);
    }
    end();
}

TEST(what_waits_for_a_process_is_cancelled_at_once)
{
    begin();
    open_pipe(2, 1, "exec sleep 1000");
    bench.apart = true;
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2"); /* behind the first, which is alone */
    bench.apart = false;
    CHECK(bench_turn(&bench) && bench_turn(&bench));
    bench_cancel(&bench, 1, CANCEL_LOST);
    CHECK(bench.finished == 1 && outcome_of(1) == OUTCOME_RELEASE);
    bench_cancel(&bench, 0, CANCEL_STOP);
    CHECK(bench_wait(&bench, 2));
    end();
}

/* ---- the end ---- */

TEST(at_the_end_a_process_is_waited_for)
{
    begin();
    open_pipe(
        1, 1,
        "while read -r line; do id=1-0; answer done; done; sleep 0.3; echo bye > bye; exit 0");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    bench_close(&bench);
    CHECK(strcmp(line_of("bye"), "bye") == 0);
    CHECK(bench.events <= 1 &&
          strcmp(bench.event_text, "process 1 of the handler ended: exit status 0") == 0);
    char command[128];
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

TEST(one_that_does_not_end_is_ended)
{
    begin();
    open_pipe(1, 1, "next; answer done; exec sleep 1000");
    bench_start_text(&bench, "n", "1");
    CHECK(bench_wait(&bench, 1));
    end();
    check_text(bench.event_text, "killed by signal 15 (SIGTERM)");
}

/* ---- commands that cannot be run ---- */

TEST(a_command_that_cannot_be_run_is_told)
{
    static char *missing[] = {(char *)"no-such-command-anywhere", NULL};
    static char *good[] = {(char *)"true", NULL};
    struct impel_error error = {0};
    struct runtime_handler options = {.kind = HANDLER_PIPE, .argv = missing, .processes = 1};
    CHECK(bench_open(&bench, 1, &options, &error) == IMPEL_ERR_INVALID);
    check_text(error.text, "it is in no folder of $PATH");
    options.argv = good;
    options.processes = 3;
    CHECK(bench_open(&bench, 2, &options, &error) == IMPEL_ERR_INVALID);
    check_text(error.text, "3 processes for 2 entries at once");
}

TEST(a_command_that_fails_to_exec_costs_no_attempt)
{
    static char path[64];
    static char *argv[] = {path, NULL};
    struct runtime_handler options = {.kind = HANDLER_PIPE, .argv = argv, .processes = 2};
    struct impel_error error = {0};
    (void)snprintf(path, sizeof path, "/tmp/impel-test-XXXXXX");
    int fd = mkstemp(path);
    static const char text[] = "#!/no/such/interpreter\n";
    CHECK(fd >= 0 && write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    CHECK(fchmod(fd, 0700) == 0);
    close(fd);
    CHECK(bench_open(&bench, 2, &options, &error) == IMPEL_OK);
    bench_start_text(&bench, "n", "1");
    bench_start_text(&bench, "n", "2");
    CHECK(bench_wait(&bench, 2));
    bench_start_text(&bench, "n", "3"); /* the machine may have more to start before it stops */
    CHECK(bench_wait(&bench, 3));
    bench_close(&bench);
    unlink(path);
    CHECK(outcome_of(0) == OUTCOME_RELEASE && outcome_of(2) == OUTCOME_RELEASE);
    CHECK(bench.failures == 1 && bench.failure.status == IMPEL_ERR_INVALID);
    check_text(bench.failure.text, "interpreter");
}

TAP_MAIN
