#!/usr/bin/python3
"""sweep: parks poison, reaps what is gone, reports what is abandoned, and never claims."""
import json
import re
import time

from impeltest import (SERVER, check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start,
                       start_redis, test, wait_for)

POLICY = ["--dead-after", "500ms", "--min-idle", "50ms", "--backoff", "0"]


def place(tmp):
    """The embedded store or, where one is named, that server."""
    return "redis://127.0.0.1:%d" % start_redis(tmp)[1] if SERVER else "lmdb:%s" % (tmp / "db")


def check_file(store):
    if not SERVER:
        impel_ok("check", store=store)


def call(store, *words):
    return impel_ok("call", *words, store=store)


def scene(store, stream="s", group="g"):
    """Four entries under a foreign consumer: poison (delivered 7 times), deleted, and two others."""
    for i in range(1, 5):
        call(store, "XADD", stream, "%d-0" % i, "n", str(i))
    call(store, "XGROUP", "CREATE", stream, group, "0")
    call(store, "XREADGROUP", "GROUP", group, "foreign", "STREAMS", stream, ">")
    call(store, "XCLAIM", stream, group, "foreign", "0", "1-0", "RETRYCOUNT", "7")
    call(store, "XDEL", stream, "2-0")


def comes(store, name):
    """A consumer that asks and gets nothing; before Redis 7.2 that alone does not make it."""
    call(store, "XGROUP", "CREATECONSUMER", "s", "g", name)
    call(store, "XREADGROUP", "GROUP", "g", name, "STREAMS", "s", ">")


def pending(store, stream="s", group="g"):
    text = call(store, "XPENDING", stream, group, "-", "+", "10")
    return text.split("\n")[0:-1:4] if text.strip() else []


@test
def one_pass_parks_reaps_and_reports(tmp):
    db = place(tmp)
    scene(db)
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", *POLICY, store=db)
    equal(done.code, 0, done.err)
    equal(json_lines(done.out), [{"stream": "s", "group": "g", "consumer": "foreign",
                                  "state": "foreign", "abandoned": 2, "not_due": 0, "parked": 1,
                                  "park_failed": 0, "lost": 1, "moved": 0}])
    contains(done.err, "1-0")
    contains(done.err, "2-0")
    equal(pending(db), ["3-0", "4-0"])
    records = json_lines(impel_ok("dead", "list", "--stream", "s", "--json", store=db))
    equal([(r["original_id"], r["reason"], r["deliveries"], r["consumer"]) for r in records],
          [("1-0", "max-deliveries", 7, "foreign")])


@test
def what_is_left_keeps_owner_and_count(tmp):
    db = place(tmp)
    scene(db)
    before = call(db, "XPENDING", "s", "g", "3-0", "4-0", "10").split("\n")
    impel_ok("sweep", "--once", "--stream", "s", "--group", "g", *POLICY, store=db)
    after = call(db, "XPENDING", "s", "g", "3-0", "4-0", "10").split("\n")
    for column in (0, 1, 3):
        equal(after[column::4], before[column::4], "column %d" % column)


@test
def the_report_is_readable(tmp):
    db = place(tmp)
    call(db, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    text = impel_ok("sweep", "--once", "--stream", "s", "--group", "g", *POLICY, store=db)
    contains(text, "s, group g\n  nothing is abandoned")
    call(db, "XADD", "s", "*", "a", "1")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">")
    text = impel_ok("sweep", "--once", "--stream", "s", "--group", "g", "--dead-after", "500ms",
                    store=db)
    contains(text, "abandoned 0, not due 1, parked 0, lost 0")


@test
def all_of_a_long_list_is_seen_in_one_pass(tmp):
    db = place(tmp)
    impel_ok("add", "--stream", "s", "--jsonl", store=db, stdin='{"n":1}\n' * 12000)
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">")
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", *POLICY, store=db)
    equal([r["abandoned"] for r in json_lines(done.out)], [12000], done.err)


@test
def a_missing_group_is_an_error(tmp):
    db = place(tmp)
    call(db, "XADD", "s", "*", "a", "1")
    done = impel("sweep", "--once", "--stream", "s", "--group", "g", *POLICY, store=db)
    equal(done.code, 1, done.out)
    check(done.err.strip(), "nothing is said")
    equal(impel("sweep", "--once", "--stream", "s", store=db).code, 2)
    equal(impel("sweep", "--once", "--group", "g", store=db).code, 2)
    done = impel("sweep", "--once", "--stream", "s", "--group", "g", "--dead-letter", "s", store=db)
    equal(done.code, 2)
    contains(done.err, "another than the stream itself")


@test
def the_daemon_settles_all_groups_of_the_config_file(tmp):
    db = place(tmp)
    scene(db, "a", "x")
    scene(db, "b", "y")
    config = tmp / "impel.yaml"
    config.write_text("store: %s\nmin-idle: 1h\nbackoff: 0s\ndead-after: 500ms\n"
                      "interval: 100ms\nmetrics-file: %s\n"
                      "groups:\n- group: x\n  stream: a\n  min-idle: 50ms\n"
                      "- group: y\n  stream: [b]\n  min-idle: 50ms\n  max-deliveries: 99\n"
                      % (db, tmp / "metrics"))
    daemon = start(impel_argv("sweep", "--config", config, "--log-format", "json"), tmp)
    wait_for(lambda: pending(db, "a", "x") == ["3-0", "4-0"]
             and pending(db, "b", "y") == ["1-0", "3-0", "4-0"], what="the sweeps")
    wait_for(lambda: "abandoned" in daemon.err(), what="a word on what is abandoned")
    equal(daemon.stop().code, 0)
    events = json_lines(daemon.err())
    told = [(e["event"], e["stream"], e.get("id")) for e in events
            if e["event"] in ("parked", "lost-work")]
    equal(sorted(told), [("lost-work", "a", "2-0"), ("lost-work", "b", "2-0"),
                         ("parked", "a", "1-0")])
    text = (tmp / "metrics").read_text()
    contains(text, 'impel_parked_total{stream="a",group="x"} 1\n')
    contains(text, 'impel_lost_total{stream="b",group="y"} 1\n')
    equal(text.count("# TYPE impel_parked_total"), 1)
    check_file(db)


@test
def a_long_pass_of_one_group_holds_no_other_up(tmp):
    db = place(tmp)
    impel_ok("add", "--stream", "a", "--jsonl", store=db, stdin='{"n":1}\n' * 12000)
    call(db, "XGROUP", "CREATE", "a", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "a", ">")
    scene(db, "b", "g")
    daemon = start(impel_argv("sweep", "--stream", "a", "--stream", "b", "--group", "g", "--budget", "20",
                              "--log-format", "json", *POLICY, store=db), tmp)
    wait_for(lambda: any('"abandoned"' in line and '"a"' in line
                         for line in daemon.err().splitlines()), what="the end of the long pass")
    equal(daemon.stop().code, 0)
    told = [(e["event"], e["stream"]) for e in json_lines(daemon.err())]
    check(told.index(("parked", "b")) < told.index(("abandoned", "a")), told)


@test
def a_dead_workers_entries_are_reported_under_its_name(tmp):
    """A4: and not before it is dead: what a living worker runs is left to it."""
    db = place(tmp)
    call(db, "XADD", "s", "*", "a", "1")
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--consumer", "w",
                              "--dead-after", "3s", "--", "sh", "-c",
                              "echo > begun; exec sleep 1000", store=db), tmp)
    wait_for(lambda: (tmp / "begun").exists(), what="the handler")
    look = ["sweep", "--once", "--json", "--stream", "s", "--group", "g", *POLICY[2:], "--dead-after"]
    equal([r for r in json_lines(impel_ok(*look, "500ms", store=db)) if r["abandoned"]], [])
    worker.kill()
    done = impel(*look, "3s", store=db)
    equal([(r["consumer"], r["state"], r["abandoned"]) for r in json_lines(done.out)],
          [("w", "dead", 1)], done.err)
    equal(json.loads(impel("status", "--json", store=db).out)["streams"][0]["groups"][0]["pending"],
          1)


def killed(tmp, db, dead_after):
    """A worker that holds an entry and is gone."""
    call(db, "XADD", "s", "*", "a", "1")
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--consumer", "w",
                              "--dead-after", dead_after, "--", "sh", "-c",
                              "echo > begun; exec sleep 1000", store=db), tmp)
    wait_for(lambda: (tmp / "begun").exists(), what="the handler")
    worker.kill()


@test
def a_worker_that_asks_for_longer_is_watched_for_longer(tmp):
    """Its own dead-after counts, whatever the sweep's; and whoever waits is told for whom."""
    db = place(tmp)
    killed(tmp, db, "5s")
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", *POLICY, store=db)
    equal([(r["consumer"], r["state"], r["abandoned"]) for r in json_lines(done.out)],
          [("w", "dead", 1)], done.err)
    contains(done.err, "waiting for worker w of group g on s, which is silent and dead after 5s: ")


@test
def a_daemon_that_is_less_patient_than_its_pace_judges(tmp):
    db = place(tmp)
    killed(tmp, db, "3s")
    daemon = start(impel_argv("sweep", "--stream", "s", "--group", "g", "--log-format", "logfmt", *POLICY,
                              store=db), tmp)
    wait_for(lambda: "event=abandoned" in daemon.err(), what="the dead worker's entry")
    contains(daemon.err(), "reason=dead")


def sweep(db, *options, code=0):
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", *POLICY, *options, store=db)
    equal(done.code, code, done.err)
    return done


@test
def what_is_requeued_reaches_workers_that_read_only_new_entries(tmp):
    """A1: nobody offers them what a dead consumer holds."""
    db = place(tmp)
    scene(db)
    done = sweep(db, "--requeue", "--log-format", "logfmt", "--log-level", "debug")
    equal([(r["parked"], r["lost"], r["moved"], r["abandoned"]) for r in json_lines(done.out)], [(1, 1, 2, 0)])
    line, = [t for t in done.err.splitlines() if "event=requeued" in t and " id=3-0 " in t]
    copies = [t for t in call(db, "XRANGE", "s", "5-0", "+").splitlines() if "-" in t]
    check(" target=%s " % copies[0] in line and "reason=" not in line, line)
    line, = [t for t in done.err.splitlines() if "event=recovered" in t]
    check("level=info" in line and "count=2" in line, line)
    equal(pending(db), [])
    call(db, "XGROUP", "DELCONSUMER", "s", "g", "foreign")
    again = call(db, "XREADGROUP", "GROUP", "g", "other", "STREAMS", "s", ">").split()
    equal(again[2::3] and [w for w in again if w in ("1", "2", "3", "4")], ["3", "4"])
    check_file(db)


@test
def what_was_handed_back_has_no_idle_time(tmp):
    """A7: it is taken at once, and does not count as having waited since 1970."""
    db = place(tmp)
    scene(db)
    call(db, "XCLAIM", "s", "g", "impel-released", "0", "4-0", "TIME", "1")
    done = sweep(db, "--requeue", "--metrics-file", str(tmp / "prom"), "--log-level", "debug")
    line, = [t for t in done.err.splitlines() if "subject=impel-released" in t and "id=" in t]
    check("id=4-0" in line and "idle_ms" not in line, line)
    total = re.search(r"impel_recovery_seconds_sum\S* (\S+)", (tmp / "prom").read_text())
    check(float(total[1]) < 1e6, "the age of 1970 is among the recovery times: " + total[0])


@test
def a_requeue_into_another_group_is_refused(tmp):
    db = place(tmp)
    scene(db)
    call(db, "XGROUP", "CREATE", "s", "audit", "0")
    contains(sweep(db, "--requeue", code=2).err, "--all-groups")
    equal(pending(db), ["1-0", "2-0", "3-0", "4-0"])
    equal([r["moved"] for r in json_lines(sweep(db, "--requeue", "--all-groups").out)], [2])


@test
def a_live_consumer_gets_what_is_handed_over(tmp):
    db = place(tmp)
    scene(db)
    comes(db, "heir")
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", "--dead-after", "500ms",
                 "--min-idle", "1h", "--backoff", "0", "--hand-over", store=db)
    equal([r["moved"] for r in json_lines(done.out)], [0], "not idle for an hour")
    for entry in ("3-0", "4-0"):
        call(db, "XCLAIM", "s", "g", "foreign", "0", entry, "IDLE", "4000000", "JUSTID")
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", "--dead-after", "500ms",
                 "--min-idle", "1h", "--backoff", "0", "--hand-over", "--log-format", "logfmt", store=db)
    equal([r["moved"] for r in json_lines(done.out)], [2], done.err)
    line, = [t for t in done.err.splitlines() if "event=recovered" in t]
    check("subject=foreign target=heir count=2" in line, line)
    rows = call(db, "XPENDING", "s", "g", "3-0", "4-0", "10").split("\n")
    equal(rows[1::4], ["heir", "heir"])
    equal(rows[3::4], ["2", "2"])


@test
def all_that_is_abandoned_can_be_parked(tmp):
    db = place(tmp)
    scene(db)
    sweep(db, "--park")
    equal(pending(db), [])
    records = json_lines(impel_ok("dead", "list", "--stream", "s", "--json", store=db))
    equal([(r["original_id"], r["reason"]) for r in records],
          [("1-0", "max-deliveries"), ("3-0", "abandoned"), ("4-0", "abandoned")])


@test
def two_ways_at_once_are_refused(tmp):
    db = place(tmp)
    scene(db)
    contains(sweep(db, "--requeue", "--park", code=2).err, "--hand-over")


@test
def a_budget_slows_the_pass(tmp):
    db = place(tmp)
    impel_ok("add", "--stream", "s", "--jsonl", store=db, stdin='{"n":1}\n' * 12000)
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">")
    begun = time.monotonic()
    equal([r["abandoned"] for r in json_lines(sweep(db, "--budget", "10").out)], [12000])
    check(time.monotonic() - begun > 1.5, "13 commands, 10 a second, after half a second of beats")


def untouched(db):
    """All that a sweep could change: pending rows without their idle times, and every key."""
    rows = call(db, "XPENDING", "s", "g", "-", "+", "10").split("\n")
    return (rows[0::4], rows[1::4], rows[3::4], call(db, "XLEN", "s"), call(db, "SCAN", "0"),
            call(db, "XINFO", "GROUPS", "s"))


def preview(db, *options, code=0):
    done = impel("sweep", "--json", "--stream", "s", "--group", "g", *POLICY, *options, store=db)
    equal(done.code, code, done.err)
    return json_lines(done.out)


def a_minute_old(db):
    """So that the scene is due whatever the machine's load."""
    for entry in ("3-0", "4-0"):
        call(db, "XCLAIM", "s", "g", "foreign", "0", entry, "IDLE", "60000", "JUSTID")


@test
def a_report_says_what_each_way_would_do_and_touches_nothing(tmp):
    db = place(tmp)
    scene(db)
    a_minute_old(db)
    before = untouched(db)
    line, = preview(db, "--report")
    equal((line["consumer"], line["state"], line["held"], line["abandoned"], line["not_due"]),
          ("foreign", "foreign", 4, 4, 0))
    check(line["oldest_idle_ms"] >= 60000 and line["beat_age_ms"] is None, line)
    rest = {"park": 1, "reap": 1}
    equal(line["would"]["none"], {"move": 0, "leave": 2, **rest})
    equal(line["would"]["requeue"], {"move": 2, "leave": 0, **rest})
    equal(line["would"]["hand-over"], {"move": 0, "leave": 3, "park": 0, "reap": 1},
          "there is no heir, and twice as many deliveries are allowed")
    equal(line["would"]["park"], {"move": 0, "leave": 0, "park": 3, "reap": 1})
    equal(untouched(db), before)
    call(db, "XGROUP", "CREATE", "s", "audit", "0")
    equal(preview(db, "--report")[0]["would"]["requeue"], None)
    equal(preview(db, "--report", "--all-groups")[0]["would"]["requeue"]["move"], 2)
    text = impel_ok("sweep", "--report", "--stream", "s", "--group", "g", *POLICY, store=db)
    contains(text, "foreign: foreign, last seen")
    contains(text, "--park      would park 3, reap 1, leave 0")
    preview(db, "--report", "--park", code=2)


@test
def a_dry_run_lists_what_would_happen_and_it_then_happens(tmp):
    db = place(tmp)
    for way, acts in (((), ["park", "reap", "leave", "leave"]),
                      (("--park",), ["park", "reap", "park", "park"]),
                      (("--requeue",), ["park", "reap", "requeue", "requeue"])):
        if not way:
            scene(db)
            a_minute_old(db)
        before = untouched(db)
        lines = preview(db, "--dry-run", *way)
        equal([(line["id"], line["action"]) for line in lines],
              list(zip(["1-0", "2-0", "3-0", "4-0"], acts)), str(way))
        contains(lines[0]["reason"], "delivered 7 times, the limit is 5")
        equal(untouched(db), before, str(way))
    report, = json_lines(sweep(db, "--requeue").out)
    equal((report["parked"], report["lost"], report["moved"]), (1, 1, 2))
    equal(preview(db, "--dry-run", "--requeue"), [])


@test
def a_dry_run_names_the_heir_and_the_consumers_to_delete(tmp):
    db = place(tmp)
    scene(db)
    comes(db, "heir")
    for entry in ("3-0", "4-0"):
        call(db, "XCLAIM", "s", "g", "foreign", "0", entry, "IDLE", "4000000", "JUSTID")
    lines = preview(db, "--dry-run", "--hand-over", "--min-idle", "1h")
    equal([(line["id"], line["action"], line["to"]) for line in lines],
          [("3-0", "hand-over", "heir"), ("4-0", "hand-over", "heir")])
    lines = preview(db, "--dry-run", "--min-idle", "2h", "--consumer-ttl", "1ms")
    equal([(line["consumer"], line["action"]) for line in lines], [("heir", "drop-consumer")])
    contains(call(db, "XINFO", "CONSUMERS", "s", "g"), "heir")


@test
def without_beats_workers_are_unknown(tmp):
    db = place(tmp)
    call(db, "XADD", "s", "*", "a", "1")
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--consumer", "w",
                              "--dead-after", "500ms", "--", "sh", "-c",
                              "echo > begun; exec sleep 1000", store=db), tmp)
    wait_for(lambda: (tmp / "begun").exists(), what="the handler")
    worker.kill()
    wait_for(lambda: preview(db, "--report"), what="the beats to be old")
    line, = preview(db, "--report")
    equal((line["consumer"], line["state"], line["held"], line["abandoned"], line["would"]),
          ("w", "unknown", 1, None, None))
    line, = preview(db, "--dry-run", "--park")
    equal((line["consumer"], line["action"]), ("w", None))


@test
def a_consumer_that_is_gone_and_holds_nothing_is_deleted(tmp):
    """D28: consumers do not pile up."""
    db = place(tmp)
    scene(db)
    call(db, "XGROUP", "CREATECONSUMER", "s", "g", "gone")
    sweep(db, "--min-idle", "1h", "--consumer-ttl", "1h")
    contains(call(db, "XINFO", "CONSUMERS", "s", "g"), "gone")
    # Before Redis 7.2 a consumer is gone only if others get something meanwhile.
    call(db, "XADD", "s", "5-0", "n", "5")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">")
    done = sweep(db, "--min-idle", "1h", "--consumer-ttl", "1ms")
    contains(done.err, "gone")
    names = call(db, "XINFO", "CONSUMERS", "s", "g")
    check("gone" not in names and "foreign" in names, names)


@test
def what_cannot_be_parked_is_in_the_report(tmp):
    db = tmp / "db"
    scene(db)
    call(db, "SET", "s:dead", "no stream")
    for way in ([], ["--once"], ["--dry-run"], ["--report"]):
        done = impel("sweep", *way, "--stream", "s", "--group", "g", *POLICY, store=db)
        equal((done.code, done.out), (2, ""), done.err)
        contains(done.err, "the dead-letter stream 's:dead' is no stream")
    # What only a pattern found keeps nobody from the others.
    found = ["--stream", "[s]", "--group", "g", *POLICY]
    done = impel("sweep", "--once", "--json", *found, store=db)
    report, = json_lines(done.out)
    equal((report["parked"], report["park_failed"], report["lost"], report["abandoned"]), (0, 1, 1, 2))
    equal((done.code, done.err.splitlines()[-1]), (1, "impel sweep: 1 entry could not be parked: still pending"))
    contains(impel("sweep", "--once", *found, store=db).out, ", could not park 1")
    equal(pending(db), ["1-0", "3-0", "4-0"])
    # A daemon says it once a minute, and where it should have gone; not in every pass.
    daemon = start(impel_argv("sweep", "--interval", "10ms", "--log-level", "debug", *found, store=db), tmp)
    wait_for(lambda: daemon.err().count("looked for abandoned entries") > 5, what="some passes")
    err = daemon.stop().err
    equal(err.count("could not be parked"), 1, err)
    contains(err, "target=s:dead")


@test
def counters_that_cannot_be_written_are_a_failure(tmp):
    db = tmp / "db"
    scene(db)
    done = sweep(db, "--metrics-file", str(tmp / "nowhere" / "prom"), code=1)
    contains(done.err, "cannot write the metrics file")
    equal([r["parked"] for r in json_lines(done.out)], [1], "the pass itself is told")


main()
