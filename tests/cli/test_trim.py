#!/usr/bin/python3
"""trim: only what every group has finished with goes; who holds the rest back is named, and what
others removed too early is told. On every kind of store."""
import json

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, main, start, test,
                       wait_for)
from everystore import (Between, add, add_many, call, every_store, ids, read, while_work_ends,
                        wire_stores)


def trim(store, *args, code=0):
    done = impel("trim", "--stream", "s", "--json", *args, store=store)
    equal(done.code, code, done.out + done.err)
    return json.loads(done.out)


def group_of(tree, name):
    return [g for g in tree["groups"] if g["group"] == name][0]


@every_store
def acknowledged_entries_do_not_pile_up(tmp, store):
    """E30: XACK does not delete: memory grows until somebody removes what is done."""
    add_many(store, "s", 2000)
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    done = read(store, "s", "g", "a", 2000)
    equal(len(done), 2000)
    equal(trim(store)["removed"], 0)
    call(store, "XACK", "s", "g", *done)
    equal(call(store, "XLEN", "s"), 2000)
    dry = trim(store, "--dry-run")
    equal((dry["removed"], dry["dry_run"], call(store, "XLEN", "s")), (2000, True, 2000))
    tree = trim(store)
    equal((tree["length"], tree["removed"], tree["held_by"]), (2000, 2000, None))
    equal(call(store, "XLEN", "s"), 0)
    equal(trim(store)["removed"], 0)


@every_store
def every_group_is_asked(tmp, store):
    """F36: what one has finished with stays for the others."""
    add(store, "s", *["%d-0" % i for i in range(1, 11)])
    for group in ("fast", "slow"):
        call(store, "XGROUP", "CREATE", "s", group, "0")
    call(store, "XACK", "s", "fast", *read(store, "s", "fast", "a"))
    read(store, "s", "slow", "b", 6)
    call(store, "XACK", "s", "slow", "1-0", "2-0", "3-0", "5-0", "6-0")
    tree = trim(store, "--dry-run")
    equal((tree["removed"], tree["held_by"]), (3, "slow"))
    equal(group_of(tree, "slow")["floor"], "4-0")
    equal(group_of(tree, "fast")["unfinished"], False)
    text = impel_ok("trim", "--stream", "s", store=store)
    contains(text, "removed 3 of 10; 4-0 holds what lies behind: slow has not finished it yet")
    equal(ids(store)[0], "4-0")
    call(store, "XACK", "s", "slow", "4-0")
    contains(impel_ok("trim", "--stream", "s", store=store), "slow has not read it yet")
    equal(ids(store), ["7-0", "8-0", "9-0", "10-0"])
    equal(read(store, "s", "slow", "b"), ["7-0", "8-0", "9-0", "10-0"])


@every_store
def what_is_to_be_kept_is_kept(tmp, store):
    add(store, "s", *["%d-0" % i for i in range(1, 21)])
    new = call(store, "XADD", "s", "*", "n", "new")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "a"))
    equal(trim(store, "--keep", "30")["removed"], 0)
    equal(trim(store, "--keep", "18", "--dry-run")["removed"], 3)
    equal(trim(store, "--keep", "18")["removed"], 3)
    equal(ids(store)[0], "4-0")
    equal(trim(store, "--keep", "1h", "--dry-run")["removed"], 17)
    equal(trim(store, "--keep", "1h")["removed"], 17)
    equal(ids(store), [new])
    equal(trim(store)["removed"], 1)


@every_store
def a_stalled_group_is_not_run_over_unless_told(tmp, store):
    add(store, "s", *["%d-0" % i for i in range(1, 6)])
    for group in ("g", "old"):
        call(store, "XGROUP", "CREATE", "s", group, "0")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "a"))
    tree = trim(store, code=3)  # "old" never had a consumer
    equal((tree["removed"], tree["held_by"], group_of(tree, "old")["stalled"]), (0, "old", True))
    done = impel("trim", "--stream", "s", store=store)
    equal(done.code, 3)
    contains(done.out, "group old is stalled: it has unfinished work and no consumer")
    contains(done.out, "--ignore-group old")

    read(store, "s", "old", "b", 2)
    call(store, "XACK", "s", "old", "1-0")
    tree = trim(store)  # somebody came for it a moment ago
    equal((tree["removed"], group_of(tree, "old")["stalled"]), (1, False))
    tree = trim(store, "--stalled-after", "0", code=3)
    equal((tree["removed"], group_of(tree, "old")["stalled"]), (0, True))
    tree = trim(store, "--stalled-after", "0", "--ignore-group", "old", "--dry-run")
    equal((tree["removed"], tree["held_by"]), (4, None))
    equal(trim(store, "--stalled-after", "0", "--ignore-group", "old")["removed"], 4)
    equal(ids(store), [])
    tree = trim(store, "--ignore-group", "old", code=3)
    equal(group_of(tree, "old")["lost_pending"], 1)
    equal(group_of(tree, "old")["lost_unread"], 3)


@every_store
def what_a_producer_trimmed_away_is_reported(tmp, store):
    """E32: MAXLEN takes no notice of groups: entries go that are pending, or that nobody has read."""
    add(store, "s", "1-0")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    read(store, "s", "g", "a", 1)
    for i in range(2, 6):
        call(store, "XADD", "s", "MAXLEN", "2", "%d-0" % i, "n", str(i))
    equal(ids(store), ["4-0", "5-0"])
    for dry in (["--dry-run"], []):
        tree = trim(store, *dry, code=3)
        group = group_of(tree, "g")
        equal((tree["removed"], group["lost_pending"], group["lost_unread"]), (0, 1, 2))
    done = impel("trim", "--stream", "s", store=store)
    contains(done.out, "group g lost 1 pending")
    contains(done.out, "group g lost 2 unread")
    equal(read(store, "s", "g", "a"), ["4-0", "5-0"])
    equal(group_of(trim(store, code=3), "g")["lost_unread"], 0)  # it has read past the gap


@every_store
def a_long_cut_is_made_of_steps(tmp, store):
    """E31: what is said to be removed is what is missing."""
    add_many(store, "s", 25000)
    call(store, "XGROUP", "CREATE", "s", "g", "$")
    equal(trim(store, "--keep", "123")["removed"], 24877)
    equal(call(store, "XLEN", "s"), 123)


@every_store
def nothing_is_lost_to_a_trim_beside_a_worker(tmp, store):
    add_many(store, "s", 120)
    seen = tmp / "seen"
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--dead-after", "1s",
                              "--concurrency", "4", "--until-idle", "--", "sh", "-c",
                              "echo $IMPEL_FIELD_n >> %s" % seen, store=store), tmp)
    wait_for(seen.exists, what="the first entry")
    removed, trims = 0, 0
    while worker.running():
        removed += trim(store)["removed"]
        trims += 1
    equal(worker.wait().code, 0, worker.err())
    equal(removed + trim(store)["removed"], 120)
    equal(sorted(map(int, seen.read_text().split())), list(range(120)))
    check(trims > 1, "the worker was done before the first trim")


@wire_stores
def who_ends_its_work_and_leaves_while_trim_looks_has_not_stalled(_, store):
    while_work_ends(store, trim)


@every_store
def a_stream_that_nobody_reads_is_left_alone(tmp, store):
    add(store, "s", "1-0")
    done = impel("trim", "--stream", "s", store=store)
    equal(done.code, 1)
    contains(done.err, "the stream 's' has no group that could say what is finished")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    for dry in ([], ["--dry-run"]):
        done = impel("trim", "--stream", "s", "--ignore-group", "g", *dry, store=store)
        equal(done.code, 1)
        contains(done.err, "has no group but ignored ones")
    equal(ids(store), ["1-0"])
    done = impel("trim", "--stream", "nothing", store=store)
    equal(done.code, 1)
    contains(done.err, "there is no stream 'nothing'")
    call(store, "XGROUP", "CREATE", "s", "h", "0")
    done = impel("trim", "--stream", "s", "--ignore-group", "H", store=store)
    equal(done.code, 2)
    contains(done.err, "no group 'H'")


@every_store
def a_sweep_trims_as_well(tmp, store):
    for stream in ("s", "t"):
        add(store, stream, "1-0", "2-0", "3-0")
        call(store, "XGROUP", "CREATE", stream, "g", "0")
        call(store, "XACK", stream, "g", *read(store, stream, "g", "a", 2))
    call(store, "XGROUP", "CREATE", "t", "old", "0")
    args = ["--stream", "s", "--stream", "t", "--group", "g", "--dead-after", "200ms",
            "--log-format", "logfmt"]
    done = impel("sweep", "--once", *args, store=store)
    equal((done.code, len(ids(store)), len(ids(store, "t"))), (0, 3, 3), done.err)
    done = impel("sweep", "--once", "--trim", "--keep", "2", *args, store=store)
    equal((done.code, ids(store)), (0, ["2-0", "3-0"]), done.err)
    daemon = start(impel_argv("sweep", "--trim", *args, store=store), tmp)
    daemon.wait_for_output("event=stalled")
    daemon.wait_for_output("event=trimmed")
    equal((ids(store), len(ids(store, "t"))), (["3-0"], 3))
    contains(daemon.err(), "group=old")
    equal(daemon.stop().code, 0)
    done = impel("sweep", "--once", "--trim", "--ignore-group", "old", *args, store=store)
    equal((done.code, ids(store, "t")), (0, ["3-0"]), done.err)


class Silence(Between):
    """A way on which everything is lost from the first question for a stream's consumers on, which only a
    trim asks."""

    def __init__(self, store):
        super().__init__(store, 0, lambda: None)
        self.silent = False

    def says(self, piece):
        self.silent = self.silent or b"\r\nCONSUMERS\r\n" in piece
        return b"" if self.silent else piece


@wire_stores
def a_sweep_that_trims_ends_although_the_server_is_gone(tmp, store):
    add(store, "s", "1-0")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    for way in [], ["--once"]:
        silence = Silence(store)
        sweep = start(impel_argv("sweep", "--trim", *way, "--stream", "s", "--group", "g", "--dead-after", "100ms",
                                 store=silence.url), tmp)
        wait_for(lambda: silence.silent, what="the trim to ask")
        done = sweep.stop()
        equal((done.code, "could not be trimmed" in done.err), (1 if way else 0, False), done.err)
        silence.acted()


@test
def misuse_is_named(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "s", "n=1", store=db)
    for args, part in [([], "--stream"),
                       (["--stream", "s", "--keep", "x"], "a duration like 1h, or a number"),
                       (["--stream", "s", "--keep", "-1"], "a duration like 1h, or a number"),
                       (["--stream", "s", "--keep", "99999999999999999999"], "no stream is that"),
                       (["--stream", "s", "--group", "g"], "--group")]:
        done = impel("trim", *args, store=db)
        equal(done.code, 2, done.err)
        contains(done.err, part)
    equal(impel_ok("call", "XLEN", "s", store=db), "1\n")


@test
def an_option_that_does_nothing_without_another_says_so(tmp):
    db = tmp / "db"
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=db)
    sweep = ["sweep", "--once", "--stream", "s", "--group", "g", "--dead-after", "100ms"]
    for args, part in [(["--keep", "1h"], "--keep does nothing without --trim"),
                       (["--ignore-group", "h"], "--ignore-group does nothing without --trim"),
                       (["--stalled-after", "1h"], "--stalled-after does nothing without --trim"),
                       (["--all-groups", "--park"], "--all-groups does nothing without --requeue"),
                       (["--report", "--trim"], "--dry-run does")]:
        done = impel(*sweep, *args, store=db)
        equal(done.code, 2, done.err)
        contains(done.err, part)
    config = tmp / "impel.yaml"  # may be for other commands, too
    config.write_text("keep: 1h\nstalled-after: 1h\nall-groups: true\n")
    impel_ok(*sweep, "--config", config, store=db)
    config.write_text("groups:\n- {group: g, stream: s}\n- {group: h, stream: '*', requeue: true}\n")
    done = impel("sweep", "--dry-run", "--config", config, "--all-groups", store=db)
    check("--all-groups" not in done.err, done.err)


@every_store
def the_holder_is_named_with_an_entry_that_there_is(tmp, store):
    """A group that read nothing yet holds the first entry there is, not 0-1."""
    add(store, "s", "5-3", "9-0")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    tree = trim(store, code=3)
    equal((group_of(tree, "g")["floor"], tree["held_by"], group_of(tree, "g")["stalled"]), ("5-3", "g", True))
    contains(impel("trim", "--stream", "s", store=store).out, "5-3 holds what lies behind: g has not read it yet")
    call(store, "XGROUP", "SETID", "s", "g", "5-3")
    equal(group_of(trim(store, code=3), "g")["floor"], "9-0")
    call(store, "XDEL", "s", "9-0")
    tree = trim(store)
    equal((group_of(tree, "g")["unfinished"], tree["held_by"]), (False, None), "nothing is left to read")


@every_store
def a_new_group_is_not_stalled(tmp, store):
    call(store, "XADD", "s", "*", "n", "v")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    tree = trim(store)
    equal((group_of(tree, "g")["stalled"], group_of(tree, "g")["unfinished"], tree["held_by"]), (False, True, "g"))
    equal(group_of(trim(store, "--stalled-after", "0", code=3), "g")["stalled"], True)


main()
