#!/usr/bin/python3
"""drill: it passes on the embedded store, it shows the four results, it cleans up, and it notices
when recovery does not work."""
import json
import os
import pathlib
import re
import signal

from impeltest import check, contains, equal, impel, impel_argv, impel_ok, main, start, test, wait_for


@test
def the_drill_passes_and_leaves_nothing_behind(tmp):
    done = impel("drill", "--json", env={"TMPDIR": str(tmp), "IMPEL_STORE": ""}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    result = json.loads(done.out)
    equal([r["holds"] for r in result["results"]], [True] * 4, done.out)
    equal(result["passed"], True)
    for part in ["killed with SIGKILL", "deleted from the stream", "poison"]:
        contains(done.err, part)
    equal(list(pathlib.Path(tmp).glob("impel-drill-*")), [])


@test
def the_drill_runs_on_a_given_store_and_removes_its_streams(tmp):
    impel_ok("add", "--stream", "mine", "a=1", store=tmp / "db")
    done = impel("drill", "--workers", "3", "--kills", "1", "--entries", "30", store=tmp / "db",
                 env={"TMPDIR": str(tmp)}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    equal(done.out.count(" holds"), 4, done.out)
    contains(done.out, "Recovery works.")
    equal(impel_ok("call", "KEYS", "*", store=tmp / "db"), "mine\n")
    equal(impel("check", store=tmp / "db").code, 0)


@test
def what_living_workers_give_back_is_no_recovery(tmp):
    """Their handlers take longer than dead-after, as on a slow machine, so that they do not start all in time."""
    done = impel("drill", "--dead-after", "300ms", "--entries", "40", env={"TMPDIR": str(tmp), "IMPEL_STORE": ""},
                 deadline_s=120)
    equal(done.code, 0, done.out + done.err)


@test
def a_signal_ends_it_and_leaves_nothing_behind(tmp):
    impel_ok("add", "--stream", "mine", "a=1", store=tmp / "db")
    for number in [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]:
        temporary = tmp / number.name
        temporary.mkdir()
        drill = start(impel_argv("drill", "--workers", "2", "--kills", "1", store=tmp / "db"), tmp,
                      env={"TMPDIR": str(temporary)})
        drill.wait_for_output("workers are started")
        check(list(temporary.iterdir()), "no folder was made")
        drill.signal(number)
        equal(drill.wait().code, -number)
        wait_for(lambda: list(temporary.iterdir()) == [], what=f"an empty folder after {number}")
        if number != signal.SIGKILL:
            equal(impel_ok("call", "KEYS", "*", store=tmp / "db"), "mine\n")


@test
def what_is_kept_is_named(tmp):
    done = impel("drill", "--workers", "2", "--kills", "1", "--entries", "20", "--keep-scene",
                 store=tmp / "db", env={"TMPDIR": str(tmp)}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    contains(done.err, "left in place")
    keys = impel_ok("call", "KEYS", "*", store=tmp / "db").split()
    equal(len([k for k in keys if k.startswith("impel-drill-")]), 2, keys)
    check(list(pathlib.Path(tmp).glob("impel-drill-*/*.prom")), "no metrics were kept")


@test
def somebody_has_to_be_left(tmp):
    done = impel("drill", "--workers", "2", "--kills", "2", store=tmp / "db")
    equal(done.code, 2)
    contains(done.err, "smaller than --workers")


def kill_workers(drill):
    """Each of its children that is a worker by now: one that is between its fork and its exec is not."""
    children = pathlib.Path("/proc/%d/task/%d/children" % (drill.pid, drill.pid)).read_text().split()
    for pid in children:
        try:
            if b"drill-" in pathlib.Path("/proc/%s/cmdline" % pid).read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass  # over, and reaped by the drill


@test
def a_log_that_is_named_stays(tmp):
    drill = start(impel_argv("drill", "--entries", "200"), tmp, env={"TMPDIR": str(tmp), "IMPEL_STORE": ""})

    def has_lost_its_workers():
        if drill.running():
            kill_workers(drill)
        return not drill.running()
    wait_for(has_lost_its_workers, what="the drill to end without its workers")
    done = drill.wait()
    equal(done.code, 1, done.err)
    check(pathlib.Path(re.search(r"its log is (\S+)", done.err)[1]).exists(), done.err)


main()
