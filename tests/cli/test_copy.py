#!/usr/bin/python3
"""impel copy: whole streams between any two stores, and what a kill leaves of it."""
import json
import os
import random
import signal
import subprocess

import redis
import versions

from everystore import Between, _redis, _serve
from impeltest import (SLOWNESS, check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, run, skip,
                       start, start_redis, stop_outside_its_lock, test, wait_for)


def call(store, *words):
    return impel_ok("call", *words, store=store)


def on_redis(tmp):
    _, port = start_redis(tmp)
    return "redis://127.0.0.1:%d" % port, redis.Redis(port=port)


def copy(source, target, *args):
    return impel("copy", "--from", source, "--to", target, *args, deadline_s=90)


def copy_ok(source, target, *args):
    done = copy(source, target, *args)
    equal(done.code, 0, done.err)
    return done.out


def fill(store, count, name="orders", size=20):
    lines = [{"n": str(i), "text": "x" * (i % size)} for i in range(count)]
    impel_ok("add", "--stream", name, "--jsonl", store=store,
             stdin="".join(json.dumps(line) + "\n" for line in lines), deadline_s=90)


def build(store):
    """Streams with all that can be in one, on any store."""
    fill(store, 300)
    call(store, "XADD", "orders", "*", "b", "\u00fc", "b", "", "", "empty name")
    for group, start_id in [("early", "0"), ("late", "$"), ("set back", "5-5")]:
        call(store, "XGROUP", "CREATE", "orders", group, start_id)
    call(store, "XREADGROUP", "GROUP", "early", "alice", "COUNT", "40", "STREAMS", "orders", ">")
    call(store, "XREADGROUP", "GROUP", "early", "bob", "COUNT", "30", "STREAMS", "orders", ">")
    call(store, "XREADGROUP", "GROUP", "set back", "bob", "COUNT", "3", "STREAMS", "orders", ">")
    call(store, "XGROUP", "CREATECONSUMER", "orders", "early", "idle")
    ids = call(store, "XRANGE", "orders", "-", "+", "COUNT", "70").split()
    ids = [i for i in ids if i[0].isdigit() and "-" in i]
    call(store, "XCLAIM", "orders", "early", "carol", "0", ids[5], ids[45], "RETRYCOUNT", "7",
         "TIME", "1000")
    call(store, "XCLAIM", "orders", "early", "carol", "0", ids[6], "RETRYCOUNT",
         "9223372036854775807", "JUSTID")
    call(store, "XACK", "orders", "early", ids[8])
    call(store, "XDEL", "orders", ids[30], ids[60], ids[69])
    call(store, "XTRIM", "orders", "MINID", ids[10])
    # Nothing in it, once something; trimmed empty with a pending entry; never anything.
    call(store, "XADD", "gone", "7-7", "a", "1")
    call(store, "XDEL", "gone", "7-7")
    call(store, "XADD", "trimmed", "9-1", "a", "1")
    call(store, "XGROUP", "CREATE", "trimmed", "g", "0")
    call(store, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "trimmed", ">")
    call(store, "XTRIM", "trimmed", "MAXLEN", "0")
    call(store, "XGROUP", "CREATE", "new", "g", "0", "MKSTREAM")
    call(store, "PEXPIRE", "new", "7200000")
    return ["gone", "new", "orders", "trimmed"]


def content(store, name):
    """What XINFO says of a stream, without what moves on its own."""
    full = call(store, "XINFO", "STREAM", name, "FULL", "COUNT", "1000").split("\n")
    leave_out = {"radix-tree-keys", "radix-tree-nodes", "seen-time", "active-time", "lag",
                 "entries-read"}
    return [a for a, before in zip(full, [""] + full) if not {a, before} & leave_out]


def same(a, b, names):
    for name in names:
        equal(content(b, name), content(a, name), name)


@test
def everything_of_a_stream_arrives(tmp):
    one = "lmdb:%s/one" % tmp
    server, _ = on_redis(tmp)
    names = build(one)
    # To a server whose payloads are older: in pieces; from there, and between files: whole.
    in_pieces = not versions.READS_OUR_DUMPS
    out = copy_ok(one, server, "--json")
    equal([(r["stream"], r["outcome"], r["in_pieces"]) for r in json_lines(out)],
          [(n, "copied", in_pieces) for n in names])
    same(one, server, names)
    equal(json_lines(out)[2], {"stream": "orders", "entries": 288, "groups": 3, "pending": 72,
                               "outcome": "copied", "in_pieces": in_pieces, "idempotent_ids_left": 0})
    out = copy_ok(server, "lmdb:%s/two" % tmp, "--json")
    equal([r["in_pieces"] for r in json_lines(out)], [False] * 4)
    same(one, "lmdb:%s/two" % tmp, names)
    copy_ok(one, "lmdb:%s/three" % tmp)
    same(one, "lmdb:%s/three" % tmp, names)
    (tmp / "second").mkdir()
    other, _ = on_redis(tmp / "second")
    contains(copy_ok(server, other), "orders: 288 entries, 3 groups, 72 pending: copied")
    same(one, other, names)
    check(7000000 < int(call(other, "PTTL", "new")) <= 7200000, "the expiry")
    for file in "two", "three":
        impel_ok("check", store=tmp / file)
    # Each finds all of it in each other.
    for a, b in [(one, server), (server, "lmdb:%s/three" % tmp), (other, one)]:
        equal([r["outcome"] for r in json_lines(copy_ok(a, b, "--json"))], ["there already"] * 4)


@test
def names_and_patterns_choose(tmp):
    one = "lmdb:%s/one" % tmp
    for name in "a1", "a2", "b1", "c*", "impel:{a1}:copy:a1":
        call(one, "XADD", name, "1-1", "f", name)
    call(one, "SET", "text", "x")
    out = copy_ok(one, "lmdb:%s/two" % tmp, "--stream", "a?", "--stream", "c*", "--stream", "a1",
                  "--json")
    equal([r["stream"] for r in json_lines(out)], ["a1", "a2", "c*"])
    out = copy_ok(one, "lmdb:%s/two" % tmp, "--json", "--dry-run")
    equal([(r["stream"], r["outcome"]) for r in json_lines(out)],
          [("a1", "there already"), ("a2", "there already"), ("b1", "would be copied"),
           ("c*", "there already")])
    equal(call("lmdb:%s/two" % tmp, "EXISTS", "b1"), "0\n")
    out = copy_ok(one, "lmdb:%s/none" % tmp, "--stream", "b1", "--dry-run")
    contains(out, "would be copied")
    check(not (tmp / "none").exists(), "a dry run made a store")
    done = copy(one, "lmdb:%s/two" % tmp, "--stream", "nothing*", "--stream", "a1", "--stream", "text",
                "--stream", "b2")
    equal((done.code, done.out), (1, "a1: 1 entry, 0 groups, 0 pending: there already\n"))
    for what in "has no stream 'nothing*'", "has no stream 'b2'", "source's key 'text' is no stream":
        contains(done.err, what)


@test
def another_stream_is_not_overwritten(tmp):
    one, two = "lmdb:%s/one" % tmp, "lmdb:%s/two" % tmp
    for name in "a", "b", "c":
        call(one, "XADD", name, "1-1", "f", "1")
    call(two, "XADD", "b", "1-1", "f", "2")
    for more, outcome in (["--dry-run"], "would be copied"), ([], "copied"), ([], "there already"):
        done = copy(one, two, "--json", *more)
        equal((done.code, [(r["stream"], r["outcome"]) for r in json_lines(done.out)]),
              (1, [("a", outcome), ("c", outcome)]), "the others are copied")
        contains(done.err, "stream 'b' differs from its source: entry 1-1; --replace overwrites it")
        equal(call(two, "XRANGE", "b", "-", "+").split(), ["1-1", "f", "2"])
    contains(copy_ok(one, two, "--replace"), "b: 1 entry, 0 groups, 0 pending: replaced")
    equal(call(two, "XRANGE", "b", "-", "+").split(), ["1-1", "f", "1"])
    call(two, "DEL", "a")
    call(two, "SET", "a", "text")
    done = copy(one, two, "--replace")
    equal((done.code, call(two, "GET", "a")), (1, "text\n"))
    contains(done.err, "the target's key 'a' is no stream")


@test
def wrong_use_is_told(tmp):
    one = "lmdb:%s/one" % tmp
    for args, code, words in [
            (["--from", one], 2, "--to URL"), (["--to", one], 2, "--from URL"),
            (["--from", one, "--to", one], 2, "the same store"),
            (["--from", one, "--to", "lmdb:%s/two" % tmp], 1, "no such store"),
            (["--from", "bad:x", "--to", one], 2, "bad"),
            (["--from", one, "--to", one, "--store", one], 2, "--store")]:
        done = impel("copy", *args)
        equal(done.code, code, done.err)
        contains(done.err, words)
    check(not (tmp / "two").exists(), "the target was made for nothing")
    call(one, "XADD", "gone", "1-0", "a", "b")
    call(one, "DEL", "gone")
    contains(copy(one, "lmdb:%s/two" % tmp).err, "nothing to copy")


@test
def it_waits_for_no_living_worker(tmp):
    one = "lmdb:%s/one" % tmp
    fill(one, 5)
    worker = start(impel_argv("run", "--stream", "orders", "--group", "g", "--consumer", "w", "--",
                              "sh", "-c", "echo ran >> %s/ran" % tmp, store=one), tmp)
    wait_for(lambda: (tmp / "ran").exists() and len((tmp / "ran").read_text()) == 20,
             what="the worker's work")
    done = copy(one, "lmdb:%s/two" % tmp)
    equal(done.code, 1)
    contains(done.err, "worker 'w' of group 'g' is alive")
    contains(copy_ok(one, "lmdb:%s/two" % tmp, "--force"), "copied")
    equal(worker.stop().code, 0)
    fill(one, 1)
    contains(copy_ok(one, "lmdb:%s/two" % tmp, "--replace"), "replaced")
    # On a server the table of workers is a key; it stays where it is.
    server, r = on_redis(tmp)
    contains(copy_ok(one, server), "copied")
    equal(r.keys(), [b"orders"])


def killed_at(source, target, r, entries, tmp):
    """Copies, and kills it when so many entries are there. True if it was not over by then."""
    process = start(impel_argv("copy", "--from", source, "--to", target), tmp)
    wait_for(lambda: r.xlen("impel:{orders}:copy:orders") >= entries or not process.running(),
             pause_s=0.001)
    process.signal(signal.SIGKILL)
    process.wait()
    return not r.exists("orders")


@test
def what_a_kill_left_is_taken_up(tmp):
    one = "lmdb:%s/one?sync=process" % tmp
    server, r = on_redis(tmp)
    fill(one, 30000)
    call(one, "XGROUP", "CREATE", "orders", "g", "0")
    call(one, "XREADGROUP", "GROUP", "g", "c", "COUNT", "2000", "STREAMS", "orders", ">")
    caught = 0
    for entries in 1, 4000, 12000:
        caught += killed_at(one, server, r, entries, tmp)
    check(caught > 0, "it was always over before the kill")
    if not r.exists("orders"):
        left = r.xlen("impel:{orders}:copy:orders")
        check(left >= 12000, "only %d entries were left" % left)
        r.config_resetstat()
        copy_ok(one, server)
        adds = r.info("commandstats").get("cmdstat_xadd", {"calls": 0})
        equal(adds["calls"], 30000 - left, "entries were added again")
    equal([r["outcome"] for r in json_lines(copy_ok(one, server, "--json"))], ["there already"])
    equal(r.keys(), [b"orders"])
    # What is not the beginning of the source is no help.
    r.delete("orders")
    r.xadd("impel:{orders}:copy:orders", {"n": "other"}, id="1-1")
    copy_ok(one, server)
    equal((r.xlen("orders"), r.keys()), (30000, [b"orders"]))


@test
def an_embedded_target_has_all_or_nothing(tmp):
    rng = random.Random(4)
    server, r = on_redis(tmp)
    fill(server, 12000, size=100)
    r.xgroup_create("orders", "g", 0)
    for _ in range(4):
        r.xreadgroup("g", "c", {"orders": ">"}, count=500)
    for round_number in range(6):
        target = "lmdb:%s/two" % tmp
        process = start(impel_argv("copy", "--from", server, "--to", target), tmp)
        wait_for(lambda: (tmp / "two").exists() or not process.running(), pause_s=0.001)
        steps = rng.randrange(200)
        wait_for(lambda left=[steps]: left.append(left.pop() - 1) or left[0] < 0, pause_s=0.001)
        process.signal(signal.SIGKILL)
        process.wait()
        if (tmp / "two").exists():
            equal(impel("check", store=tmp / "two").code, 0, "round %d" % round_number)
            there = call(target, "XLEN", "orders")
            check(there in ("0\n", "12000\n"), "half a stream: " + there)
    copy_ok(server, "lmdb:%s/two" % tmp)
    equal(call("lmdb:%s/two" % tmp, "KEYS", "*"), "orders\n")
    same(server, "lmdb:%s/two" % tmp, ["orders"])


@test
def a_stream_that_changes_is_not_named(tmp):
    one = "lmdb:%s/one?sync=process" % tmp
    server, r = on_redis(tmp)
    fill(one, 30000)
    process = start(impel_argv("copy", "--from", one, "--to", server), tmp)
    wait_for(lambda: r.xlen("impel:{orders}:copy:orders") > 0 or not process.running(),
             pause_s=0.001)
    stop_outside_its_lock(process, one)
    over = r.exists("orders")
    call(one, "XADD", "orders", "*", "late", "1")
    process.signal(signal.SIGCONT)
    done = process.wait()
    if not over:
        equal(done.code, 1, done.err)
        contains(done.err, "changed while it was copied")
        equal(r.exists("orders"), 0)
        copy_ok(one, server)
        equal(r.xlen("orders"), 30001)


@test
def what_one_stream_is_refused_for_is_told_with_its_name(tmp):
    one = "lmdb:%s/one" % tmp
    server, r = on_redis(tmp)
    for name in "a", "b", "c":
        fill(one, 3, name)
    r.execute_command("ACL", "SETUSER", "default", "resetkeys", "~a", "~c", "~impel:{a}:*", "~impel:{c}:*")
    done = copy(one, server)
    equal((done.code, [line.split(":")[0] for line in done.out.splitlines()]), (1, ["a", "c"]), done.err)
    contains(done.err, "stream 'b': NOPERM")
    # Also a name that stands in the server's words by chance.
    fill(one, 3, "e")
    contains(copy(one, server, "--stream", "e").err, "stream 'e': NOPERM")


def limit_memory(argv, mib):
    """The program may have so much memory, mapped files not counted."""
    code = ("import os, resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (%d, %d)); "
            "os.execv(sys.argv[1], sys.argv[1:])" % (mib << 20, mib << 20))
    return ["/usr/bin/python3", "-c", code, *argv]


@test
def large_entries_need_the_memory_of_a_few(tmp):
    if SLOWNESS > 1:
        skip("sanitizers have their own memory")
    server, r = on_redis(tmp)
    large = "x" * (4 << 20)
    for i in range(24):
        r.xadd("large", {"n": large}, id="1-%d" % (i + 1))
    one, two = "lmdb:%s/one?sync=process" % tmp, "lmdb:%s/two?sync=process" % tmp

    def copy_in_little(source, target, name):
        done = run(limit_memory(impel_argv("copy", "--from", source, "--to", target, "--stream", name), 110),
                   deadline_s=90)
        equal((done.code, done.out.count("copied")), (0, 1), done.err)
    copy_in_little(server, one, "large")
    # Behind small ones, where a page would have had room for all of them.
    fill(one, 100, "mixed")
    impel_ok("add", "--stream", "mixed", "--jsonl", store=one, deadline_s=90,
             stdin="".join(json.dumps({"n": large}) + "\n" for _ in range(24)))
    copy_in_little(one, two, "mixed")
    # A server does not say what comes: small ones until pages are large, then megabytes, of which one would hold all.
    pipe = r.pipeline(transaction=False)
    for i in range(1500):
        pipe.xadd("surprise", {"n": "small"}, id="1-%d" % (i + 1))
    pipe.execute()
    for i in range(100):
        r.xadd("surprise", {"n": "x" * (1 << 20)}, id="2-%d" % (i + 1))
    copy_in_little(server, two, "surprise")


@test
def a_nameless_consumer_is_somebody(tmp):
    """Beside entries that are nobody's, of which one has a count that a script tells only nearly."""
    one, two = "lmdb:%s/one" % tmp, "lmdb:%s/two" % tmp
    server, r = on_redis(tmp)
    for i in range(1, 4):
        call(one, "XADD", "orders", "1-%d" % i, "n", "1")
    call(one, "XGROUP", "CREATE", "orders", "g", "0")
    call(one, "XREADGROUP", "GROUP", "g", "", "STREAMS", "orders", ">")
    call(one, "XNACK", "orders", "g", "FATAL", "IDS", "1", "1-2")
    call(one, "XCLAIM", "orders", "g", "", "0", "1-2", "JUSTID")
    call(one, "XNACK", "orders", "g", "SILENT", "IDS", "1", "1-2")
    contains(call(one, "XPENDING", "orders", "g", "1-2", "1-2", "1"), str(2**63 - 2))
    for target in two, server:
        copy_ok(one, target)
        rows = [call(target, "XPENDING", "orders", "g", "-", "+", "1", name).split("\n")[0]
                for name in ("", "impel-released")]
        equal(rows, ["1-1", "1-2"])
    equal([p["consumer"] for p in r.xpending_range("orders", "g", "-", "+", 9)], [b"", b"impel-released", b""])
    contains(impel_ok("explain", "--stream", "orders", "--group", "g", "1-2", store=one), "held by nobody")
    contains(impel_ok("explain", "--stream", "orders", "--group", "g", "1-1", store=one), "held by '' since")


@test
def ids_that_stay_behind_are_told(tmp):
    one, two = "lmdb:%s/one" % tmp, "lmdb:%s/two" % tmp
    server, _ = on_redis(tmp)
    for producer, iid in ("p", "1"), ("p", "2"), ("q", "1"), ("p", "1"):
        call(one, "XADD", "orders", "IDMP", producer, iid, "*", "n", iid)
    call(one, "XADD", "others", "1-1", "n", "1")
    for target, more, words in (two, ["--dry-run"], "would stay behind"), (two, [], "stay behind"), (server, [], "stay behind"):
        done = copy(one, target, "--json", *more)
        equal((done.code, [r["idempotent_ids_left"] for r in json_lines(done.out)]), (0, [3, 0]), done.err)
        contains(done.err, "stream 'orders': 3 IDs of idempotent adds " + words)
        check("others" not in done.err, done.err)
    done = copy(one, two, "--json")
    equal(([r["idempotent_ids_left"] for r in json_lines(done.out)], done.err), ([0, 0], ""))
    # As was said.
    for store, length in (one, "3\n"), (two, "4\n"):
        call(store, "XADD", "orders", "IDMP", "p", "1", "*", "n", "1")
        equal(call(store, "XLEN", "orders"), length)


def scene(store):
    """Small streams with all that a copy has to say in other ways than it came about; on an embedded store or
    `impel serve`."""
    for i in range(1, 11):
        call(store, "XADD", "orders", "5-%d" % i, "n", str(i))
    call(store, "XGROUP", "CREATE", "orders", "early", "0")
    call(store, "XGROUP", "CREATE", "orders", "late", "5-3")
    call(store, "XREADGROUP", "GROUP", "early", "alice", "COUNT", "6", "STREAMS", "orders", ">")
    call(store, "XREADGROUP", "GROUP", "early", "bob", "COUNT", "4", "STREAMS", "orders", ">")
    call(store, "XGROUP", "CREATECONSUMER", "orders", "late", "idle")
    call(store, "XNACK", "orders", "early", "FAIL", "IDS", "2", "5-2", "5-9")
    call(store, "XCLAIM", "orders", "early", "carol", "0", "5-4", "RETRYCOUNT", "7", "TIME", "1000")
    # Pending, but gone: before the first, between two, behind the last.
    call(store, "XDEL", "orders", "5-5", "5-10")
    call(store, "XTRIM", "orders", "MINID", "5-2")
    call(store, "XCFGSET", "orders", "IDMP-DURATION", "777", "IDMP-MAXSIZE", "55")
    # All of it gone.
    call(store, "XADD", "trimmed", "9-1", "a", "1")
    call(store, "XGROUP", "CREATE", "trimmed", "g", "0")
    call(store, "XREADGROUP", "GROUP", "g", "c", "STREAMS", "trimmed", ">")
    call(store, "XNACK", "trimmed", "g", "FATAL", "IDS", "1", "9-1")
    call(store, "XTRIM", "trimmed", "MAXLEN", "0")
    call(store, "XGROUP", "CREATE", "new", "g", "0", "MKSTREAM")
    return ["new", "orders", "trimmed"]


class CutBetween(Between):
    """The piece at that moment arrives in half."""
    def says(self, piece):
        self._pass()
        return piece[:len(piece) // 2] if self.left == -1 else piece


def look(r, name):
    """All of a stream but for what moves on its own, and what a server may not know."""
    if not r.exists(name):
        return None
    info = r.xinfo_stream(name)
    groups = [(g["name"], g["last-delivered-id"], g["pending"], g.get("entries-read"),
               sorted(c["name"] for c in r.xinfo_consumers(name, g["name"])),
               [(p["message_id"], p["consumer"], p["times_delivered"])
                for p in r.xpending_range(name, g["name"], "-", "+", 100)])
              for g in r.xinfo_groups(name)]
    return (r.xrange(name), info["last-generated-id"], info.get("entries-added"),
            info.get("max-deleted-entry-id"), sorted(groups))


# Of the moments at which a copy can be killed every so manieth is tried, from a random one on; all in the long tests.
STRIDE = int(os.environ.get("IMPEL_TEST_STRIDE", "6" if SLOWNESS == 1 else "20"))


def kill_at_moments(source, names, target, way_of, from_there=False):
    """Kills a copy at moments at which it says something to the target (or to the source), takes it up,
    and compares; also with one that nothing happened to."""
    copy_ok(source, target)
    whole = {name: look(target.client, name) for name in names}
    moment, acted, seen = random.randrange(STRIDE), True, set()
    print("# from moment %d on" % moment, flush=True)
    while acted:
        target.client.flushall()
        running = []
        asked = source if from_there else target
        way = way_of(asked, moment, lambda here=running: (here[0].send_signal(signal.SIGKILL), here[0].wait()))
        sides = [way.url, target] if from_there else [source, way.url]
        with subprocess.Popen(impel_argv("copy", "--from", sides[0], "--to", sides[1]),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            running.append(process)
        acted = way.acted()
        for name in names:
            there = look(target.client, name)
            check(there in (None, whole[name]), "half of %s at %d: %r" % (name, moment, there))
            seen.add(there is None)
        copy_ok(source, target)
        for name in names:
            equal(look(target.client, name), whole[name], "%s after %d" % (name, moment))
        equal(sorted(target.client.keys()), names, "at %d" % moment)
        moment += STRIDE
    check(moment > 30 and seen == {True, False}, "only %d moments, %r" % (moment, seen))


def whole_or_half(test_of):
    """Makes two tests: what was said last is said to the end, or in half."""
    for way, word in (Between, "between"), (CutBetween, "within"):
        def one(tmp, by=way):
            test_of(tmp, by)
        one.__name__ = "%s_%s_two_words" % (test_of.__name__, word)
        test(one)


@whole_or_half
def a_kill_at_any_moment_on_the_way_to_a_server(tmp, way):
    one = "lmdb:%s/one?sync=process" % tmp
    kill_at_moments(one, scene(one), _redis(tmp), way)


@whole_or_half
def a_kill_at_any_moment_on_the_way_to_serve(tmp, way):
    one = "lmdb:%s/one?sync=process" % tmp
    names = scene(one)
    target = _serve(tmp)
    kill_at_moments(one, names, target, way)
    info = target.client.execute_command("XINFO", "STREAM", "orders")
    info = info if isinstance(info, dict) else dict(zip(info[::2], info[1::2]))
    equal((info["idmp-duration"], info["idmp-maxsize"]), (777, 55))


@whole_or_half
def a_kill_at_any_moment_on_the_way_from_serve(tmp, way):
    source = _serve(tmp)
    names = scene(source)
    (tmp / "target").mkdir()
    kill_at_moments(source, names, _redis(tmp / "target"), way, from_there=True)


@test
def what_was_left_of_another_time_is_no_help(tmp):
    """The building name holds something of a source that is no longer so."""
    one = "lmdb:%s/one?sync=process" % tmp
    server, r = on_redis(tmp)
    scene(one)
    name = "impel:{orders}:copy:orders"
    copy_ok(one, server)
    whole = look(r, "orders")

    def finished():
        r.rename("orders", name)

    def made_only():
        r.xgroup_create(name, "impel-copy-stand-in", 0, mkstream=True)

    def expires():
        finished()
        r.pexpire(name, 3600000)

    def of_other_groups():
        finished()
        r.xgroup_create(name, "other", 0)
        r.xgroup_destroy(name, "early")

    def further():
        r.xadd(name, {"n": "2"}, id="5-2")
        r.execute_command("XSETID", name, "99-0")

    for left in finished, made_only, expires, of_other_groups, further:
        left()
        r.delete("orders")
        copy_ok(one, server)
        equal(look(r, "orders"), whole, left.__name__)
        equal((sorted(r.keys()), r.pttl("orders")), ([b"new", b"orders", b"trimmed"], -1), left.__name__)


main()
