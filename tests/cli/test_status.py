#!/usr/bin/python3
"""status: the exact shape of its JSON, what it calls healthy, and its exit codes."""
import json
import signal

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, main, start, test,
                       wait_for)
import everystore
from everystore import add, every_store, read, while_work_ends, wire_stores

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


@wire_stores
def who_ends_its_work_and_leaves_while_status_looks_leaves_nothing_unread(_, store):
    while_work_ends(store, lambda url: check_group(url, (), {"health": "ok"}, ""))


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


def one_group(store, *args):
    return everystore.status(store, "--stream", "s", "--group", "g", *args)[0]["groups"][0]


def check_group(store, args, want, part):
    """A row of a table: what the one group's JSON has, and what stands in its reason."""
    group = one_group(store, *args)
    for key, value in want.items():
        equal(group[key], value, "%s with %s in %s" % (key, args, group))
    contains(group["reason"], part)


@every_store
def every_state_of_an_entry_is_counted(tmp, store):
    """The same entries from being added to being settled; after each step the numbers are right."""
    due = ["--min-idle", "1ms", "--backoff", "0"]
    call = everystore.call
    add(store, "s", *["%d-0" % i for i in range(1, 7)])
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    none = {"lag": 6, "pending": 0, "oldest_idle_ms": None, "abandoned": 0, "not_due": 0,
            "parked": 0, "lost": 0, "workers": []}
    check_group(store, [], dict(none, health="attention"), "6 undelivered entries and no live worker")
    read(store, "s", "g", "c", 4)
    held = {"lag": 2, "pending": 4, "abandoned": 0, "not_due": 4, "parked": 0, "lost": 0}
    check_group(store, [], dict(held, health="ok"), "not idle for long enough yet")
    check_group(store, due, dict(held, abandoned=4, not_due=0, health="attention"),
                "4 abandoned entries and no live worker")
    call(store, "XACK", "s", "g", "1-0")
    call(store, "XCLAIM", "s", "g", "c", "0", "2-0", "RETRYCOUNT", "9")
    call(store, "XCLAIM", "s", "g", "impel-released", "0", "3-0", "TIME", "1", "RETRYCOUNT", "0",
         "JUSTID")
    check_group(store, [], dict(lag=2, pending=3, abandoned=1, not_due=2, lost=0), "1 abandoned")
    call(store, "XDEL", "s", "4-0")
    check_group(store, [], dict(lag=2, pending=3, abandoned=1, not_due=2, lost=0), "1 abandoned")
    check_group(store, due, dict(pending=3, abandoned=3, lost=1, health="attention"),
                "1 pending entry is gone from the stream")
    impel_ok("sweep", "--once", "--stream", "s", "--group", "g", *due, "--dead-after", "200ms",
             store=store)
    check_group(store, [], dict(lag=2, pending=1, abandoned=1, parked=1, lost=0), "1 abandoned")
    call(store, "XACK", "s", "g", "3-0")
    check_group(store, [], dict(lag=2, pending=0, parked=1, health="attention"), "1 parked entry")
    call(store, "DEL", "s:dead")
    check_group(store, [], dict(lag=2, parked=0, health="ok"), "somebody who comes for it")
    check_group(store, ["--min-idle", "1ms"], dict(lag=2, health="attention"),
                "2 undelivered entries, and no consumer came for")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "c"))
    check_group(store, ["--min-idle", "1ms"], dict(lag=0, pending=0, health="ok"), "nothing to do")


@every_store
def lag_is_what_is_left_whatever_the_server_says(tmp, store):
    """E33: Servers derive it from counters, which trimming and deleting ahead of a group falsify."""
    call = everystore.call
    add(store, "s", *["%d-0" % i for i in range(1, 6)])
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "c", 1))
    equal(one_group(store)["lag"], 4)
    call(store, "XTRIM", "s", "MAXLEN", "1")
    group = one_group(store)  # Redis 7.0 still says 4
    equal((group["lag"], group["lost"], group["health"]), (1, 3, "attention"))
    contains(group["reason"], "3 unread entries are gone from the stream")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "c"))
    group = one_group(store)  # Redis 7.0 says 3
    equal((group["lag"], group["lost"], group["health"]), (0, 0, "ok"))

    add(store, "s", *["%d-0" % i for i in range(6, 12)])
    call(store, "XDEL", "s", "8-0", "10-0")  # now it does not say anything
    equal(one_group(store)["lag"], 4)
    read(store, "s", "g", "c", 2)
    equal((one_group(store)["lag"], one_group(store)["pending"]), (2, 2))
    call(store, "XADD", "s", "MAXLEN", "1", "12-0", "n", "v")
    equal(one_group(store)["lag"], 1)
    call(store, "XGROUP", "SETID", "s", "g", "12-0")
    equal(one_group(store)["lag"], 0)
    call(store, "XTRIM", "s", "MAXLEN", "0")
    equal(one_group(store)["lag"], 0)


@every_store
def a_long_way_to_go_is_counted_from_the_shorter_side(tmp, store):
    everystore.add_many(store, "s", 12000)
    everystore.call(store, "XGROUP", "CREATE", "s", "g", "0")
    first = read(store, "s", "g", "c", 3)
    everystore.call(store, "XDEL", "s", everystore.ids(store)[11990])
    equal(one_group(store)["lag"], 11996)
    everystore.call(store, "XTRIM", "s", "MINID", first[2])
    equal(one_group(store)["lag"], 11996)
    everystore.add_many(store, "t", 25000)
    everystore.call(store, "XGROUP", "CREATE", "t", "g", "0")
    read(store, "t", "g", "c", 12000)
    where = ["--stream", "t", "--group", "g"]
    equal(everystore.status(store, *where)[0]["groups"][0]["lag"], 13000)
    contains(impel("status", *where, store=store).out, "undelivered about 13000, pending 12000")
    everystore.call(store, "XDEL", "t", everystore.ids(store, "t")[20000])
    equal(everystore.status(store, *where)[0]["groups"][0]["lag"], None)
    contains(impel("status", *where, store=store).out, "undelivered unknown, pending 12000")


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
                       (["--stream", "c", "--group", "x"], "'c' has no group 'x'"),
                       (["--stream", "nothing", "--group", "x"], "no stream 'nothing'")]:
        for form in [[], ["--json"]]:
            done = impel("status", *form, *args, store=db)
            equal((done.code, done.out), (1, ""), done.err)
            contains(done.err, part)
    done = impel("status", "--stream", "b", "--stream", "c", "--group", "x", "--json", store=db)
    equal((done.code, [s["stream"] for s in json.loads(done.out)["streams"]]), (1, ["b"]))
    contains(done.err, "'c' has no group 'x'")


@test
def names_of_any_bytes_are_shown(tmp):
    db = tmp / "db"
    call(db, "XADD", "a\nb", "*", "a", "1")
    call(db, "XGROUP", "CREATE", "a\nb", "gröup", "$")
    streams = status(db)
    equal((streams[0]["stream"], streams[0]["groups"][0]["group"]), ("a\nb", "gröup"))
    contains(impel_ok("status", store=db), "a\\x0ab")


main()
