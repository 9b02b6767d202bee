#!/usr/bin/python3
"""sweep over many streams and groups: what names and patterns mean, and that a daemon follows what
comes and goes."""
import json
import re

import redis

from everystore import add, both_stores, call, every_store, read, status
from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start, test,
                       wait_for)

QUICK = ["--dead-after", "100ms", "--min-idle", "1ms", "--backoff", "0"]


def abandon(store, stream, *groups):
    """A stream with one entry, that a foreign consumer of each group holds."""
    add(store, stream, "1-0")
    for group in groups:
        call(store, "XGROUP", "CREATE", stream, group, "0")
        read(store, stream, group, "foreign")


def scene(store):
    abandon(store, "orders:a", "g", "h")
    abandon(store, "orders:b", "g")
    abandon(store, "other", "g")
    for aside in ("orders:b:dead", "orders:b:dead:audit", "orders:parked", "impel:{orders:b}:copy:orders:b"):
        abandon(store, aside, "g")
    call(store, "SET", "orders:word", "no stream")


def pairs(lines):
    return sorted({(line["stream"], line["group"]) for line in lines})


def once(store, *args, code=0):
    done = impel("sweep", "--once", "--json", *QUICK, *args, store=store)
    equal(done.code, code, done.err)
    return done


A, B = ("orders:a", "g"), ("orders:b", "g")
WANTED = [(["--stream", "orders:*", "--group", "g"], [A, B]),
          (["--stream", "orders:?", "--stream", "oth*", "--group", "*"], [A, ("orders:a", "h"), B, ("other", "g")]),
          (["--stream", "orders:a", "--stream", "orders:b", "--group", "g", "--group", "h"],
           [A, ("orders:a", "h"), B]),
          (["--stream", "orders:b", "--stream", "orders:a", "--group", "g"], [A, B]),
          (["--stream", "orders:[ac]", "--group", "[^g]"], [("orders:a", "h")]),
          (["--stream", "orders:b:dead", "--stream", "*:a", "--group", "*"],
           [A, ("orders:a", "h"), ("orders:b:dead", "g")])]


@every_store
def names_and_patterns_mean_the_same_everywhere(tmp, store):
    scene(store)
    for args, want in WANTED:
        args = args + ["--dead-letter", "orders:parked"]
        equal(pairs(json_lines(impel_ok("sweep", "--report", "--json", *QUICK, *args, store=store))), want, args)
        equal(pairs(json_lines(impel_ok("sweep", "--dry-run", "--json", *QUICK, *args, store=store))), want, args)
    equal(pairs(json_lines(once(store, *args).out)), want)
    equal([s["stream"] for s in status(store, "--stream", "orders:?", "--group", "*")], ["orders:a", "orders:b"])
    lines = json_lines(impel("trim", "--json", "--dry-run", "--stream", "o*", store=store).out)
    equal([line["stream"] for line in lines], ["orders:a", "orders:b", "orders:parked", "other"])


@both_stores
def a_daemon_follows_what_comes_and_goes(tmp, store):
    abandon(store, "s1", "g")
    daemon = start(impel_argv("sweep", "--stream", "s*", "--group", "*", "--park", "--interval", "20ms",
                              "--budget", "0", "--log-format", "json", "--metrics-file", tmp / "prom", *QUICK,
                              store=store), tmp)

    def told(name):
        return [(e.get("stream"), e.get("group")) for e in json_lines(
            "\n".join(t for t in daemon.err().splitlines() if t.endswith("}"))) if e["event"] == name]
    wait_for(lambda: told("parked") == [("s1", "g")], what="the first group")
    abandon(store, "s2", "g", "h")
    wait_for(lambda: len(told("parked")) == 3, what="a new stream")
    call(store, "XGROUP", "CREATE", "s1", "h", "0")
    read(store, "s1", "h", "foreign")
    wait_for(lambda: len(told("parked")) == 4, what="a new group")
    equal(told("group-found"), [("s2", "g"), ("s2", "h"), ("s1", "h")])
    call(store, "DEL", "s2")
    call(store, "XGROUP", "DESTROY", "s1", "g")
    call(store, "SET", "s2", "no stream any more")
    wait_for(lambda: len(told("group-gone")) >= 2, what="the news")
    wait_for(lambda: 'stream="s1",group="g"' not in (tmp / "prom").read_text(), what="the counters to go", pause_s=0.1)
    equal(daemon.stop().code, 0)
    equal(sorted(told("group-gone"), key=str), [("s1", "g"), ("s2", None)])
    equal(told("store-error"), [])
    contains((tmp / "prom").read_text(), 'impel_parked_total{stream="s1",group="h"} 1\n')


@every_store
def a_group_that_is_missing_is_told_in_plain_words(tmp, store):
    add(store, "s", "1-0")
    for way in ("--once", "--report", "--dry-run"):
        done = impel("sweep", way, *QUICK, "--stream", "s", "--group", "g", store=store)
        equal(done.code, 1)
        contains(done.err, "there is no stream 's', or it has no group 'g'")
        check("NOGROUP" not in done.err, done.err)
    daemon = start(impel_argv("sweep", *QUICK, "--stream", "s", "--group", "g", store=store), tmp)
    daemon.wait_for_output("or it has no group 'g'")
    check("NOGROUP" not in daemon.stop().err, daemon.err())


@both_stores
def what_only_a_pattern_means_is_not_requeued_to_other_groups(tmp, store):
    scene(store)
    done = once(store, "--stream", "orders:*", "--group", "g", "--requeue")
    equal([(r["stream"], r["moved"], r["abandoned"]) for r in json_lines(done.out)],
          [("orders:a", 0, 1), ("orders:b", 1, 0), ("orders:parked", 1, 0)])
    contains(done.err, "nothing is requeued without --all-groups")
    contains(once(store, "--stream", "orders:a", "--group", "*", "--requeue", code=2).err, "has 2 groups")


@test
def what_is_named_must_be_there(tmp):
    db = tmp / "db"
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=db)
    for args, word in ((["--stream", "nope", "--group", "*"], "there is no stream 'nope'"),
                       (["--stream", "nope", "--stream", "nor", "--group", "g"], "nor"),
                       (["--stream", "*", "--group", "nope"], "none of these streams has a group 'nope'")):
        for way in ("--once", "--report", "--dry-run"):
            done = impel("sweep", way, *QUICK, *args, store=db)
            equal((done.code, done.out), (1, ""), args)
            contains(done.err, word)
    done = impel("sweep", "--once", *QUICK, "--stream", "x*", "--group", "*", store=db)
    equal((done.code, done.out), (0, ""))
    contains(done.err, "there is nothing to do")
    contains(impel("status", "--stream", "*", "--group", "g", "--group", "nope", store=db).err, "no group 'nope'")
    for command in ("run", "explain", "dead"):
        done = impel(command, "--stream", "s", "--group", "g", "--group", "h", store=db)
        equal(done.code, 2, command)
        contains(done.err, "--group may be given only once here")


@every_store
def what_is_missing_keeps_nobody_from_the_others(tmp, store):
    """Neither a name that is not there nor a key that is no stream."""
    call(store, "SET", "word", "no stream")
    for n, (args, word) in enumerate([
            (["--stream", "nope", "--stream", "s", "--group", "g"], "nope"),
            (["--stream", "word", "--stream", "s", "--group", "g"], "'word'"),
            (["--stream", "nope", "--stream", "?", "--group", "*"], "there is no stream 'nope'"),
            (["--stream", "word", "--stream", "s", "--group", "*"], "'word'"),
            (["--stream", "s", "--group", "g", "--group", "nope"], "'nope'")]):
        store.client.delete("s", "s:dead")
        abandon(store, "s", "g")
        want = [("s", "g")]
        for way in ("--report", "--dry-run"):
            done = impel("sweep", way, "--json", *QUICK, *args, store=store)
            equal((done.code, pairs(json_lines(done.out))), (1, want), done.err)
            contains(done.err, word)
        done = once(store, *args, "--park", "--metrics-file", tmp / "prom", code=1)
        equal(pairs(json_lines(done.out)), want, args)
        contains(done.err, word)
        equal(store.client.xlen("s:dead"), 1, n)
        contains((tmp / "prom").read_text(), 'impel_parked_total{stream="s",group="g"} 1')
    for command in (["status"], ["top", "--once", "--interval", "1ms"], ["trim"]):
        for name, word in (("word", "stream 'word'|stream is 'word'"), ("nope", "no stream 'nope'")):
            done = impel(*command, "--stream", name, "--stream", "s", store=store)
            equal(done.code, 1, done.out)
            check(re.search(word, done.err), done.err)
            check(re.search("^s ", done.out, re.MULTILINE), done.out)
            equal(impel(*command, "--stream", name, store=store).out, "")


@test
def a_group_belongs_to_the_item_that_names_more_of_it(tmp):
    db = tmp / "db"
    for stream in ("a", "b"):
        for group in ("g", "slow"):
            impel_ok("call", "XGROUP", "CREATE", stream, group, "0", "MKSTREAM", store=db)
        impel_ok("add", "--stream", stream, "n=1", store=db)
        for group in ("g", "slow"):
            impel_ok("call", "XREADGROUP", "GROUP", group, "foreign", "STREAMS", stream, ">", store=db)
    config = tmp / "impel.yaml"
    config.write_text("dead-after: 100ms\nbackoff: 0\ninterval: 20ms\ngroups:\n"
                      "- group: '*'\n  stream: '*'\n  park: true\n  min-idle: 1ms\n"
                      "- group: [slow, other]\n  stream: '*'\n  min-idle: 1h\n"
                      "- group: slow\n  stream: b\n  min-idle: 1ms\n")
    done = impel("sweep", "--dry-run", "--json", "--config", config, store=db)
    equal(done.code, 1, "the group other is nowhere")
    config.write_text(config.read_text().replace("[slow, other]", "[slow, g?]"))
    lines = json_lines(impel_ok("sweep", "--once", "--json", "--config", config, store=db))
    equal([(r["stream"], r["group"], r["parked"], r["abandoned"], r["not_due"]) for r in lines],
          [("a", "g", 1, 0, 0), ("a", "slow", 0, 0, 1), ("b", "g", 1, 0, 0), ("b", "slow", 0, 1, 0)])


@test
def one_pass_goes_through_the_groups_in_turns(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "a", "--jsonl", store=db, stdin='{"n":1}\n' * 5000)
    impel_ok("add", "--stream", "b", "n=1", store=db)
    for stream in "ab":
        impel_ok("call", "XGROUP", "CREATE", stream, "g", "0", store=db)
        impel_ok("call", "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", stream, ">", store=db)
    done = impel("sweep", "--once", "--json", "--park", "--stream", "?", "--group", "g", "--log-format", "json", *QUICK,
                 "--budget", "50", store=db)
    equal([r["parked"] for r in json_lines(done.out)], [5000, 1])
    order = [e["stream"] for e in json_lines(done.err) if e["event"] == "parked"]
    check(order.index("b") < len(order) - 1, "the short pass came last")


@test
def the_counters_of_many_groups_are_written_less_often(tmp):
    db, prom = tmp / "db", tmp / "prom"
    server = start(impel_argv("serve", "--unix", tmp / "sock", store="lmdb:%s?sync=process" % db), tmp)
    server.wait_for_output("serving")
    pipe = redis.Redis(unix_socket_path=str(tmp / "sock")).pipeline(transaction=False)
    for number in range(3000):
        pipe.xgroup_create("s", "g%d" % number, "0", mkstream=True)
    pipe.execute()
    daemon = start(impel_argv("sweep", "--stream", "s", "--group", "*", "--budget", "0", "--metrics-file", prom,
                              store="unix://%s" % (tmp / "sock")), tmp)

    def written(files):
        """When the next two that have all groups were written: each is a file of its own."""
        if prom.exists() and prom.stat().st_size > 3000 * 1000:
            files.add(prom.stat().st_mtime_ns)
        return len(files) > 1 and sorted(files)
    first, second = wait_for(lambda files=set(): written(files), what="two files of metrics", pause_s=0.05)[:2]
    check(second - first > 2e9, "written again after %d ms" % ((second - first) / 1e6))
    equal(daemon.stop().code, 0)
    equal(prom.read_text().count("impel_sweeps_total{"), 3000)


@test
def a_thousand_streams_in_one_sweep(tmp):
    db = tmp / "db"
    lines = "".join('{"n":%d}\n' % n for n in range(3))
    impel_ok("add", "--stream", "many", "--jsonl", store=db, stdin=lines)
    server = start(impel_argv("serve", "--unix", tmp / "sock", store="lmdb:%s?sync=process" % db), tmp)
    server.wait_for_output("serving")
    client = redis.Redis(unix_socket_path=str(tmp / "sock"), decode_responses=True)
    pipe = client.pipeline(transaction=False)
    for number in range(1000):
        pipe.xadd("many:%d" % number, {"n": number}, id="1-0")
        pipe.xgroup_create("many:%d" % number, "g", "0")
        pipe.xreadgroup("g", "foreign", {"many:%d" % number: ">"})
    pipe.execute()
    done = impel("sweep", "--once", "--json", "--park", "--stream", "many:*", "--group", "*", "--budget", "0", *QUICK,
                 store="unix://%s" % (tmp / "sock"))
    equal(sum(r["parked"] for r in json_lines(done.out)), 1000, done.err[-500:])
    check(json.loads(done.out.splitlines()[0])["stream"] == "many:0")


main()
