#!/usr/bin/python3
"""run --pipe: processes that stay, in sh and Python: outcomes, deaths of either side, poison, stops."""
import collections
import json
import os
import signal

from impeltest import (SLOWNESS, SOURCE, check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, now,
                       start, start_redis, stop_outside_its_lock, test, wait_for)

GROUP = ["--stream", "s", "--group", "g", "--dead-after", "2s", "--backoff", "20ms..50ms"]

# What the handlers below have: `lines` yields entries, `log` leaves a line in a file, `answer` answers, `hang`
# never returns, `pass_gate` does once the test has opened that gate.
PRELUDE = """
import json, os, signal, sys
def log(name, text):
    with open(name, "a") as file:
        file.write(str(text) + "\\n")
def answer(entry, outcome="done", **more):
    print(json.dumps({"id": entry["id"], "outcome": outcome, **more}), flush=True)
def hang():
    while True:
        signal.pause()
def pass_gate(name):
    open(name).close()  # a fifo: waits for somebody to write
def lines():
    data = b""
    while True:  # unlike sys.stdin it takes no more than there is, and gives up each line at once
        part = os.read(0, 65536)
        if not part:
            return
        data += part
        while b"\\n" in data:
            line, data = data.split(b"\\n", 1)
            yield json.loads(line)
"""


OPEN_GATES = []  # for good, so that whoever comes later passes, too


def open_gate(path):
    OPEN_GATES.append(os.open(path, os.O_RDWR))


def add(tmp, count):
    lines = "".join('{"n":"%d"}\n' % n for n in range(count))
    impel_ok("add", "--stream", "s", "--jsonl", "-", store=tmp / "db", stdin=lines)


def argv(tmp, code, *options, store=None):
    script = tmp / "handler.py"
    script.write_text(PRELUDE + "os.chdir(%r)\n" % str(tmp) + code)
    return impel_argv("run", *GROUP, "--pipe", *options, "--", "python3", str(script),
                      store=store or tmp / "db")


def run(tmp, code, *options):
    done = start(argv(tmp, code, "--until-idle", *options), tmp, name="run").wait(90)
    equal(done.code, 0, done.err)
    return done


def lines_of(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


def pending(tmp):
    return int(impel_ok("call", "XPENDING", "s", "g", store=tmp / "db").split("\n")[0])


def dead(tmp):
    return json_lines(impel_ok("dead", "list", "--stream", "s", "--json", store=tmp / "db"))


def finish(tmp):
    """Runs what is left; {n: attempt}."""
    out = impel_ok("run", *GROUP, "--until-idle", "--concurrency", "4", "--", "sh", "-c",
                   'echo "$IMPEL_FIELD_n $IMPEL_ATTEMPT"', store=tmp / "db", deadline_s=60)
    return {int(n): int(attempt) for n, attempt in (line.split() for line in out.splitlines())}


# ---- the ordinary way ------------------------------------------------------------------------

@test
def every_entry_is_handled_once_by_processes_that_stay(tmp):
    add(tmp, 200)
    done = run(tmp, """
log("pids", os.getpid())
for entry in lines():
    log("out", entry["fields"]["n"])
    answer(entry)
""", "--processes", "3", "--concurrency", "30")
    equal(sorted(map(int, lines_of(tmp / "out"))), list(range(200)))
    equal(len(lines_of(tmp / "pids")), 3)
    equal(pending(tmp), 0)
    contains(done.err, "up to 30 at once in 3 processes")


@test
def the_example_works(tmp):
    for fields in (["order_id=7"], ["other=x"]):
        impel_ok("add", "--stream", "s", *fields, store=tmp / "db")
    done = impel("run", *GROUP, "--until-idle", "--pipe", "--", str(SOURCE / "examples/handler.py"),
                 store=tmp / "db")
    equal(done.code, 0, done.err)
    contains(done.err, "shipping 7\n")
    equal([(r["fields"], r["reason"], r["error"]) for r in dead(tmp)],
          [({"other": "x"}, "rejected", "'no order_id'")])


@test
def two_streams_and_a_retry_with_a_delay(tmp):
    add(tmp, 1)
    impel_ok("add", "--stream", "t", "n=9", store=tmp / "db")
    run(tmp, """
for entry in lines():
    log("out", "%s %d %s" % (entry["stream"], entry["attempt"], os.environ.get("IMPEL_STREAM")))
    answer(entry, "done" if entry["attempt"] > 1 else "retry", delay_ms=100 if entry["attempt"] == 1 else None)
""", "--stream", "t")
    equal(sorted(lines_of(tmp / "out")), ["s 1 None", "s 2 None", "t 1 None", "t 2 None"])


@test
def misuse_is_told_before_anything_is_read(tmp):
    add(tmp, 1)
    base = ["run", "--stream", "s", "--group", "g"]
    for args, part in [
            (["--processes", "2", "--", "true"], "--processes goes with --pipe"),
            (["--pipe", "--processes", "0", "--", "cat"], "'--processes'"),
            (["--pipe"], "behind '--'"),
            (["--pipe", "--", "no-such-command-here"], "no-such-command-here")]:
        done = impel(*base, *args, store=tmp / "db")
        equal(done.code, 2, "%s\n%s" % (args, done.err))
        contains(done.err, part)
    plain = tmp / "plain"
    plain.write_text("#!/no/such/interpreter\n")
    plain.chmod(0o755)
    done = impel(*base, "--pipe", "--", plain, store=tmp / "db")
    equal(done.code, 2, done.err)
    contains(done.err, "the interpreter that it names does not exist")
    equal(finish(tmp), {0: 1}, "it cost no attempt")


# ---- processes that die ----------------------------------------------------------------------

@test
def poison_is_parked_and_takes_no_neighbour_along(tmp):
    """One entry of 60 kills its process whenever it is read."""
    add(tmp, 60)
    run(tmp, """
for entry in lines():
    n = entry["fields"]["n"]
    log("reads", "%s %d" % (n, entry["attempt"]))
    if n == "13":
        print("cannot stand 13", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    log("out", n)
    answer(entry)
""", "--processes", "2", "--concurrency", "16", "--max-deliveries", "4")
    equal(sorted(map(int, lines_of(tmp / "out"))), [n for n in range(60) if n != 13])
    records = dead(tmp)
    equal([(r["fields"]["n"], r["deliveries"], r["reason"]) for r in records],
          [("13", 4, "max-deliveries")])
    contains(records[0]["error"], "killed by signal 9 (SIGKILL)")
    contains(records[0]["error"], "cannot stand 13")
    attempts = collections.Counter()
    for line in lines_of(tmp / "reads"):
        n, attempt = line.split()
        attempts[int(n)] = max(attempts[int(n)], int(attempt))
    del attempts[13]
    check(max(attempts.values()) <= 2, "a neighbour lost more than one attempt: %s" % attempts)


@test
def a_killed_process_is_replaced_and_its_entry_tried_again_at_once(tmp):
    add(tmp, 2)
    worker = start(argv(tmp, """
for entry in lines():
    if entry["attempt"] == 1 and entry["fields"]["n"] == "0":
        log("pid", os.getpid())
        hang()
    log("out", "%s %d" % (entry["fields"]["n"], entry["attempt"]))
    answer(entry)
"""), tmp)
    pid = int(wait_for(lambda: lines_of(tmp / "pid"), what="the first entry")[0])
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: sorted(lines_of(tmp / "out")) == ["0 2", "1 1"], what="both entries")
    contains(worker.err(), "killed by signal 9 (SIGKILL); 1 that it had read failed with it")
    equal(worker.stop().code, 0)
    equal(pending(tmp), 0)


@test
def a_killed_worker_takes_its_processes_along(tmp):
    add(tmp, 2)
    worker = start(argv(tmp, """
import subprocess
child = subprocess.Popen(["sleep", "1000"])
log("pids", "%d\\n%d" % (os.getpid(), child.pid))
for entry in lines():
    log("in", entry["fields"]["n"])
""", "--processes", "2"), tmp)
    wait_for(lambda: len(lines_of(tmp / "in")) == 2, what="both entries")
    pids = [int(pid) for pid in lines_of(tmp / "pids")]
    equal(len(pids), 4)
    worker.signal(signal.SIGKILL)

    def gone(pid):
        try:
            with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
        except OSError:
            return True
    wait_for(lambda: all(map(gone, pids)), what="all processes to be gone")
    equal(finish(tmp), {0: 2, 1: 2})


@test
def what_is_broken_from_the_start_costs_no_attempt(tmp):
    add(tmp, 3)
    worker = start(argv(tmp, 'log("starts", "x")\nsys.exit("no module named billing")\n',
                        "--concurrency", "3"), tmp)
    wait_for(lambda: len(lines_of(tmp / "starts")) >= 4, what="some starts")
    contains(worker.err(), "no module named billing")
    contains(worker.err(), "exit status 1; the next one starts in 400 ms")
    equal(worker.stop().code, 0)
    equal(finish(tmp), {0: 1, 1: 1, 2: 1})


@test
def nonsense_is_told_and_parked_in_the_end(tmp):
    add(tmp, 3)
    done = run(tmp, """
for entry in lines():
    if entry["fields"]["n"] == "1":
        print("starting with 1", flush=True)
    answer(entry)
""", "--max-deliveries", "2")
    contains(done.err, "wrote what is no answer: column 1: a JSON object is needed here: starting with 1")
    equal([r["fields"]["n"] for r in dead(tmp)], ["1"])


# ---- slow, wedged, lost ----------------------------------------------------------------------

@test
def a_wedged_process_is_ended_by_the_timeout_and_its_neighbours_lose_nothing(tmp):
    add(tmp, 4)
    run(tmp, """
for entry in lines():
    if entry["fields"]["n"] == "0":
        hang()
    log("out", "%s %d" % (entry["fields"]["n"], entry["attempt"]))
    answer(entry)
""", "--concurrency", "4", "--timeout", "%ds" % (2 * SLOWNESS), "--max-deliveries", "2", "--dead-after", "30s")
    equal([(r["fields"]["n"], r["deliveries"]) for r in dead(tmp)], [("0", 2)])
    equal(sorted(line.split()[0] for line in lines_of(tmp / "out")), ["1", "2", "3"])


@test
def a_slow_process_is_never_robbed(tmp):
    add(tmp, 1)
    os.mkfifo(tmp / "go")
    worker = start(argv(tmp, """
for entry in lines():
    log("in", "x")
    pass_gate("go")
    answer(entry)
    log("out", "x")
""", "--min-idle", "1s"), tmp)
    wait_for(lambda: lines_of(tmp / "in"), what="the entry to be read")
    begun, stolen = now(), []

    def robbed():
        out = impel_ok("call", "XAUTOCLAIM", "s", "g", "foreign", "1000", "0-0", "JUSTID",
                       store=tmp / "db")
        stolen.extend(out.split()[1:])
        return stolen
    wait_for(lambda: robbed() or now() - begun >= 4, 60, what="four times the min-idle", pause_s=0.2)
    open_gate(tmp / "go")
    wait_for(lambda: robbed() or lines_of(tmp / "out"), what="its end")
    equal(stolen, [])
    equal(worker.stop().code, 0)
    equal(pending(tmp), 0)


@test
def a_paused_worker_loses_its_entry_and_the_process_that_has_it_is_ended(tmp):
    """F39: what comes late takes nothing away, and adds nothing."""
    add(tmp, 1)
    first = start(argv(tmp, """
for entry in lines():
    log("first", entry["fields"]["n"])
    if entry["attempt"] == 1:
        hang()
    answer(entry)
""", "--dead-after", "1s"), tmp, name="first")
    wait_for(lambda: lines_of(tmp / "first"), what="the entry to be read")
    stop_outside_its_lock(first, tmp / "db")
    equal(finish(tmp), {0: 2})
    first.signal(signal.SIGCONT)
    first.wait_for_output("no longer this worker's")
    add(tmp, 1)
    wait_for(lambda: len(lines_of(tmp / "first")) == 2, what="the first worker to go on")
    first.signal(signal.SIGTERM)
    first.wait_for_output("stopping")
    equal(first.stop().code, 0)


@test
def what_still_waits_in_a_paused_worker_is_not_run_a_second_time(tmp):
    """F39: with one attempt each an entry has the process to itself, and the others wait in the worker."""
    _, port = start_redis(tmp)
    store = "redis://127.0.0.1:%d" % port
    os.mkfifo(tmp / "go")
    impel_ok("add", "--stream", "s", "--jsonl", "-", store=store, stdin='{"n":"0"}\n{"n":"1"}\n{"n":"2"}\n')
    first = start(argv(tmp, """
for entry in lines():
    log("ran", entry["fields"]["n"] + " first")
    pass_gate("go")
    answer(entry)
    log("answered", "x")
""", "--dead-after", "1s", "--concurrency", "3", "--max-deliveries", "1", store=store), tmp, name="first")
    wait_for(lambda: lines_of(tmp / "ran"), what="an entry to be read")
    wait_for(lambda: int(impel_ok("call", "XPENDING", "s", "g", store=store).split("\n")[0]) == 3,
             what="all to be held")
    first.signal(signal.SIGSTOP)
    impel_ok("run", *GROUP, "--until-idle", "--", "sh", "-c", 'echo "$IMPEL_FIELD_n second" >> %s/ran' % tmp,
             store=store, deadline_s=60)
    open_gate(tmp / "go")
    wait_for(lambda: lines_of(tmp / "answered"), what="the process to go on")
    first.signal(signal.SIGCONT)
    impel_ok("add", "--stream", "s", "n=3", store=store)
    wait_for(lambda: "3 first" in lines_of(tmp / "ran"), what="the worker to go on")
    equal(first.stop().code, 0)
    equal(sorted(lines_of(tmp / "ran")),
          ["0 first", "0 second", "1 second", "2 second", "3 first"])


# ---- stopping --------------------------------------------------------------------------------

@test
def term_lets_processes_finish_and_closes_their_input(tmp):
    add(tmp, 6)
    os.mkfifo(tmp / "go")
    os.mkfifo(tmp / "bye")
    worker = start(argv(tmp, """
for entry in lines():
    log("in", entry["fields"]["n"])
    pass_gate("go")
    answer(entry)
    log("out", entry["fields"]["n"])
log("closed", "x")
pass_gate("bye")
log("end", "x")
""", "--processes", "2", "--prefetch", "2"), tmp)
    wait_for(lambda: len(lines_of(tmp / "in")) == 2, what="two entries")
    worker.signal(signal.SIGTERM)
    worker.wait_for_output("stopping")
    open_gate(tmp / "go")
    wait_for(lambda: len(lines_of(tmp / "closed")) == 2, what="both inputs to be closed")
    check(worker.running(), "both are waited for")
    open_gate(tmp / "bye")
    done = worker.wait()
    equal(done.code, 0, done.err)
    equal(lines_of(tmp / "end"), ["x", "x"], "both were waited for")
    ran = {int(n) for n in lines_of(tmp / "out")}
    equal(len(ran), 2)
    left = finish(tmp)
    equal(left, {n: 1 for n in range(6) if n not in ran}, "no attempt was burnt")


@test
def a_second_term_ends_processes_at_once(tmp):
    add(tmp, 3)
    worker = start(argv(tmp, """
for entry in lines():
    log("in", "x")
    hang()
""", "--concurrency", "3"), tmp)
    wait_for(lambda: lines_of(tmp / "in"), what="an entry to be read")
    worker.signal(signal.SIGTERM)
    worker.wait_for_output("stopping")
    check(worker.running())
    done = worker.stop()
    equal(done.code, 0, done.err)
    equal(finish(tmp), {0: 1, 1: 1, 2: 1})


@test
def options_come_from_the_config_file_too(tmp):
    add(tmp, 4)
    config = tmp / "impel.yaml"
    config.write_text("pipe: yes\nprocesses: 2\nstream: s\ngroup: g\nstore: lmdb:%s\n" % (tmp / "db"))
    script = tmp / "handler.sh"
    script.write_text("#!/bin/sh\necho $$ >> %s/pids\nwhile read -r line; do id=${line#*:}; "
                      "echo '{\"id\":'${id%%%%,*}',\"outcome\":\"done\"}'; done\n" % tmp)
    script.chmod(0o755)
    done = impel("run", "--config", config, "--until-idle", "--", script)
    equal(done.code, 0, done.err)
    equal(len(lines_of(tmp / "pids")), 2)
    equal(json.loads(impel_ok("status", "--json", "--stream", "s", store=tmp / "db"))["streams"][0]
          ["groups"][0]["pending"], 0)


main()
