#!/usr/bin/python3
"""status: the exact shape of its JSON, what it calls healthy, and its exit codes."""
import json
import signal

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, main, start, test,
                       wait_for)

GROUP_KEYS = ["group", "lag", "pending", "oldest_idle_ms", "abandoned", "not_due", "parked", "lost",
              "health", "reason", "workers"]


def status(store, *args):
    done = impel("status", "--json", *args, store=store)
    check(done.code in (0, 3), done.err)
    tree = json.loads(done.out)
    needs = any(g["health"] in ("attention", "unknown") for s in tree["streams"]
                for g in s["groups"])
    equal(done.code, 3 if needs else 0, done.out)
    return tree["streams"]


def call(store, *words):
    return impel_ok("call", *words, store=store)


def worker(store, tmp, *args, script="true"):
    return start(impel_argv("run", "--stream", "s", "--group", "g", "--dead-after", "1s", *args,
                            "--", "sh", "-c", script, store=store), tmp)


@test
def the_shape_is_the_promised_one(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "*", "a", "1")
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    streams = status(db)
    equal(len(streams), 1)
    equal(list(streams[0]), ["stream", "length", "groups"])
    group = streams[0]["groups"][0]
    equal(list(group), GROUP_KEYS)
    equal((group["group"], group["lag"], group["pending"], group["abandoned"], group["not_due"],
           group["parked"], group["lost"]), ("g", 0, 1, 0, 1, 0, 0))
    check(0 <= group["oldest_idle_ms"] < 60000, group)
    equal(group["workers"], [{"consumer": "c", "alive": None, "held": 1, "beat_age_ms": None}])
    text = impel_ok("status", store=db)
    for part in ["s  1 entry", "g  ok", "foreign", "held 1"]:
        contains(text, part)


@test
def foreign_work_is_abandoned_after_min_idle(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "*", "a", "1")
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    group = wait_for(lambda: [g for s in status(db, "--min-idle", "100ms", "--backoff", "10ms")
                              for g in s["groups"] if g["abandoned"]], what="the entry")[0]
    equal((group["abandoned"], group["not_due"], group["health"]), (1, 0, "attention"))
    contains(group["reason"], "no live worker")


@test
def undelivered_work_without_a_worker_needs_attention(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "*", "a", "1")
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    group = status(db)[0]["groups"][0]
    equal((group["lag"], group["health"]), (1, "attention"))
    contains(group["reason"], "no live worker")


@test
def a_live_worker_is_seen_and_a_stopped_one_is_gone(tmp):
    db = tmp / "db"
    process = worker(db, tmp, "--consumer", "w")
    wait_for(lambda: db.exists() and impel("status", "--json", "--stream", "s", store=db).code == 0,
             what="the stream")

    def workers():
        groups = status(db, "--stream", "s")[0]["groups"]
        return groups[0]["workers"] if groups else []
    seen = wait_for(lambda: [w for w in workers() if w["alive"]], what="a live worker")
    equal((seen[0]["consumer"], seen[0]["held"]), ("w", 0))
    check(0 <= seen[0]["beat_age_ms"] < 10000, seen)
    equal(status(db)[0]["groups"][0]["health"], "ok")
    equal(process.stop().code, 0)
    equal(workers(), [])


@test
def a_killed_worker_with_nobody_left_is_unknown(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "*", "a", "1")
    process = worker(db, tmp, "--consumer", "w", script="echo > begun; exec sleep 1000")
    wait_for(lambda: (tmp / "begun").exists(), what="the handler")
    process.kill()
    group = wait_for(lambda: [g for g in status(db)[0]["groups"] if g["health"] == "unknown"],
                     what="nobody to be known alive")[0]
    equal(group["workers"][0]["alive"], None)
    contains(group["reason"], "nobody beats")


@test
def a_killed_worker_beside_a_live_one_is_dead(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "*", "a", "1")
    first = worker(db, tmp, "--consumer", "one", "--backoff", "1h..1h",
                   script="echo > begun; exec sleep 1000")
    wait_for(lambda: (tmp / "begun").exists(), what="the handler")
    second = worker(db, tmp, "--consumer", "two", "--backoff", "1h..1h")
    wait_for(lambda: len(status(db)[0]["groups"][0]["workers"]) == 2, what="two workers")
    first.kill()

    def dead():
        groups = status(db, "--backoff", "1h..1h")[0]["groups"]
        return [g for g in groups if any(w["alive"] is False for w in g["workers"])]
    group = wait_for(dead, what="a dead worker")[0]
    equal((group["pending"], group["abandoned"], group["not_due"]), (1, 0, 1))
    equal(group["health"], "ok")
    second.signal(signal.SIGTERM)
    equal(second.wait().code, 0)


@test
def parked_and_lost_entries_need_attention(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "1-1", "a", "1")
    impel_ok("run", "--stream", "s", "--group", "g", "--dead-after", "1s", "--until-idle", "--",
             "sh", "-c", "exit 65", store=db)
    group = status(db)[0]["groups"][0]
    equal((group["parked"], group["health"]), (1, "attention"))
    contains(group["reason"], "impel dead list --stream s")
    call(db, "XADD", "s", "*", "a", "1")
    call(db, "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">")
    last = call(db, "XREVRANGE", "s", "+", "-", "COUNT", "1").split()[0]
    call(db, "XDEL", "s", last)
    group = wait_for(lambda: [g for g in status(db, "--min-idle", "50ms", "--backoff", "0")[0][
        "groups"] if g["lost"]], what="the lost entry")[0]
    equal((group["lost"], group["health"]), (1, "attention"))
    contains(group["reason"], "gone from the stream")


@test
def streams_and_groups_can_be_chosen(tmp):
    db = tmp / "db"
    for stream in "ab":
        call(db, "XADD", stream, "*", "a", "1")
        for group in "xy":
            call(db, "XGROUP", "CREATE", stream, group, "$")
    equal([(s["stream"], [g["group"] for g in s["groups"]]) for s in status(db)],
          [("a", ["x", "y"]), ("b", ["x", "y"])])
    equal([(s["stream"], [g["group"] for g in s["groups"]])
           for s in status(db, "--stream", "b", "--group", "x")], [("b", ["x"])])
    call(db, "XADD", "c", "*", "a", "1")
    call(db, "XADD", "c:dead", "*", "a", "1")
    equal([(s["stream"], len(s["groups"])) for s in status(db)], [("a", 2), ("b", 2), ("c", 0)])
    equal([s["stream"] for s in status(db, "--group", "x")], ["a", "b"])
    done = impel("status", "--stream", "nothing", store=db)
    equal(done.code, 1)
    contains(done.err, "no stream 'nothing'")
    for args, part in [(["--group", "nosuch"], "no group 'nosuch' in this store"),
                       (["--stream", "b", "--group", "nosuch"], "'b' has no group 'nosuch'"),
                       (["--stream", "b", "--stream", "c", "--group", "x"], "'c' has no group 'x'"),
                       (["--stream", "nothing", "--group", "x"], "no stream 'nothing'")]:
        for form in [[], ["--json"]]:
            done = impel("status", *form, *args, store=db)
            equal((done.code, done.out), (1, ""), done.err)
            contains(done.err, part)


@test
def names_of_any_bytes_are_shown(tmp):
    db = tmp / "db"
    call(db, "XADD", "a\nb", "*", "a", "1")
    call(db, "XGROUP", "CREATE", "a\nb", "gröup", "$")
    streams = status(db)
    equal((streams[0]["stream"], streams[0]["groups"][0]["group"]), ("a\nb", "gröup"))
    contains(impel_ok("status", store=db), "a\\x0ab")


main()
