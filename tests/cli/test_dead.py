#!/usr/bin/python3
"""dead: what was parked is looked at, put back to work, or dropped; on every kind of store."""
import json
import os
import pwd
import re
import time

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start,
                       test, wait_for)
from deadhelp import (added_anew, audited, entries, facts, killed_replay, park_many, payload,
                      pending_again, raw)
from everystore import KINDS, call, every_store

DAY_MS = 24 * 3600 * 1000


def embedded(function):
    """A test that asks nothing of a store that the others have not answered already."""
    def once(tmp):
        function(tmp, KINDS["lmdb"](tmp))
    once.__name__ = function.__name__
    return test(once)


def dead(store, *args, code=0):
    done = impel("dead", *args, store=store)
    equal(done.code, code, "dead %s\n%s%s" % (" ".join(args), done.out, done.err))
    return done


def listed(store, *args):
    return json_lines(dead(store, "list", "--stream", "s", "--json", *args).out)


def numbers(store, *args):
    return [r["fields"]["n"][0] for r in listed(store, *args)]


def refused(args, *parts, store):
    done = impel("dead", *args, store=store)
    equal(done.code, 2, "dead %s\n%s" % (" ".join(args), done.err))
    equal(done.out, "")
    for part in parts:
        contains(done.err, part)


# ---- being killed ----

@every_store
def killed_ten_times_it_adds_each_once_in_order(tmp, store):
    park_many(store, 3000)
    killed_replay(tmp, store, 3000, 10, "--rate", "1500/s")
    added_anew(store, 3000)
    records = audited(store)
    equal((len(records), len(set(records))), (3000, 3000))


@every_store
def killed_ten_times_it_puts_each_back_once(tmp, store):
    ids = park_many(store, 3000)
    killed_replay(tmp, store, 3000, 10, "--in-place", "--rate", "1500/s")
    pending_again(store, ids)


@every_store
def three_at_once_replay_each_record_once(tmp, store):
    park_many(store, 2000)
    several = [start(impel_argv("dead", "replay", "--stream", "s", store=store), tmp)
               for _ in range(3)]
    done = [p.wait() for p in several]
    equal([d.code for d in done], [0, 0, 0])
    equal(sum(int(d.out.split()[0]) for d in done), 2000)
    got = sorted(e[1] for e in entries(store, "s")[2000:])
    check(got == sorted(payload(i) for i in range(2000)), "the entries differ")


# ---- the way round ----

@every_store
def a_rejected_entry_goes_round_as_attempt_one(tmp, store):
    impel_ok("add", "--stream", "s", "n=1", store=store)
    run = ["run", "--stream", "s", "--group", "g", "--until-idle", "--", "sh", "-c"]
    impel_ok(*run, "echo bad >&2; exit 65", store=store)
    for way in ([], ["--in-place"]):
        record = listed(store)[0]
        equal((record["reason"], record["error"], record["deliveries"], record["impel"]),
              ("rejected", "bad", 1, True))
        dead(store, "replay", "--stream", "s", *way)
        equal(listed(store), [])
        out = json.loads(impel_ok(*run, "cat; echo bad >&2; exit 65", store=store))
        equal((out["attempt"], out["fields"]), (1, {"n": "1"}))
        check((out["id"] == record["original_id"]) == bool(way), "the ID")


@every_store
def what_is_parked_meanwhile_is_left_alone(tmp, store):
    """Poison comes back while the replay still runs; it ends all the same."""
    impel_ok("add", "--stream", "s", "--jsonl", store=store, stdin='{"n":"1"}\n' * 12)
    run = impel_argv("run", "--stream", "s", "--group", "g", "--concurrency", "4", "--", "sh", "-c",
                     "exit 65", store=store)
    worker = start(run, tmp)
    wait_for(lambda: store.client.xlen("s:dead") == 12, what="12 parked")
    done = dead(store, "replay", "--stream", "s", "--rate", "12/s")
    equal(done.out, "12 replayed\n")
    wait_for(lambda: store.client.xlen("s:dead") == 12, what="the 12 parked again")
    equal(worker.stop().code, 0)


@every_store
def large_and_wide_entries_come_back_whole(tmp, store):
    """8 MiB in a value; more fields than a script of Redis can pass on."""
    client = raw(store)
    big = os.urandom(1 << 20) * 8
    wide = [b"%d" % (i // 2) for i in range(2 * 5000)]
    for fields in ([b"a", b"1"], [b"big", big], wide, [b"z", b"1"]):
        client.execute_command("XADD", "s:dead", "*", *fields, *facts(b"s", b"1-0"))
    equal(dead(store, "replay", "--stream", "s").out, "4 replayed\n")
    got = entries(store, "s")
    check([e[1] for e in got] == [[b"a", b"1"], [b"big", big], wide, [b"z", b"1"]], "they differ")
    equal(store.client.xlen("s:dead"), 0)


# ---- which records ----

def mixed(store):
    """Five records; two ages, two groups, two reasons. Their entries are all much older: age counts
    from the parking."""
    client = raw(store)
    now = int(time.time() * 1000)
    rows = [(b"a", b"rejected", 10, b"Paris"), (b"a", b"max-deliveries", 10, b"Parma"),
            (b"b", b"rejected", 10, b"P\xff"), (b"a", b"rejected", 1, b"Oslo"),
            (b"b", b"max-deliveries", 1, b"")]
    for i, (group, reason, days, city) in enumerate(rows):
        client.execute_command("XADD", "s:dead", "%d-0" % (i + 1), "n", str(i), "n", "x", "city", city,
                               *facts(b"s", b"%d-7" % (i + 1), reason, now - days * DAY_MS, group))


@embedded
def filters_pick_by_reason_age_id_field_and_group(tmp, store):
    mixed(store)
    equal(numbers(store), ["0", "1", "2", "3", "4"])
    equal(numbers(store, "--reason", "rejected"), ["0", "2", "3"])
    equal(numbers(store, "--group", "b"), ["2", "4"])
    equal(numbers(store, "--older-than", "5d"), ["0", "1", "2"])
    equal(numbers(store, "--newer-than", "5d"), ["3", "4"])
    equal(numbers(store, "--older-than", "5d", "--newer-than", "9d"), [])
    equal(numbers(store, "--start", "2-0", "--end", "4-0"), ["1", "2", "3"])
    equal(numbers(store, "--field", "city=Par*"), ["0", "1"])
    equal(numbers(store, "--field", "city=P?"), ["2"])
    equal(numbers(store, "--field", "city=*"), ["0", "1", "2", "3", "4"])
    equal(numbers(store, "--field", "city="), ["4"])
    equal(numbers(store, "--field", "city=*ar*a", "--field", "n=1"), ["1"])
    equal(numbers(store, "--field", "reason=*"), [])  # Impel's own fields are not the entry's
    equal(numbers(store, "--limit", "2"), ["0", "1"])
    equal(numbers(store, "--count", "2", "--reverse"), ["4", "3"])
    equal(numbers(store, "--reason", "rejected", "--limit", "2", "--reverse"), ["3", "2"])
    equal(numbers(store, "4-0", "2", "4-0"), ["1", "3"])
    equal(numbers(store, "--reason", "rejected", "1-0", "2-0"), ["0"])
    done = dead(store, "list", "--stream", "s", "9-0", code=1)
    contains(done.err, "no record 9-0 in 's:dead'")
    contains(dead(store, "list", "--stream", "s", "--reason", "x").err, "nothing of that kind")
    dead(store, "list", "--stream", "none", code=1)


@embedded
def show_has_it_all_and_stats_count(tmp, store):
    mixed(store)
    text = dead(store, "show", "--stream", "s", "3-0").out
    for part in ("3-0 of s:dead", "rejected", "why", "3-7", "city = P\\xff", "days", "deliveries 5"):
        contains(text.replace("10d", "10 days"), part)
    shown = json_lines(dead(store, "show", "--stream", "s", "3-0", "--json").out)
    equal(shown, listed(store, "3-0"))
    equal(shown[0]["fields"], {"n": ["2", "x"], "city": {"base64": "UP8="}})
    rows = json_lines(dead(store, "stats", "--stream", "s", "--json").out)
    equal([(r["records"], r["reason"], r["original_group"]) for r in rows][0], (2, "rejected", "a"))
    equal(sum(r["records"] for r in rows), 5)
    equal(len(rows), 4)
    equal(rows[0]["newest_ms"] - rows[0]["oldest_ms"], 9 * DAY_MS)
    text = dead(store, "stats", "--stream", "s", "--group", "b").out
    equal([line.split()[:4] for line in text.splitlines()[1:]],
          [["1", "max-deliveries", "s", "b"], ["1", "rejected", "s", "b"]])


@embedded
def named_records_are_meant_by_the_other_options_too(tmp, store):
    mixed(store)
    raw(store).execute_command("XADD", "s:dead", "6-0", "n", "5", "n", "x", *facts(b"other", b"6-7"))
    for args, want, passed in [(["--limit", "1", "2-0", "4-0"], ["1"], "1 of the records that were named was"),
                               (["--reverse", "2-0", "4-0"], ["3", "1"], None),
                               (["--start", "2-0", "--end", "3-0", "1-0", "2-0", "4-0"], ["1"],
                                "2 of the records that were named were"),
                               (["5-0", "6-0"], ["4"], "1 of the records that were named was"),
                               (["--end", "0-0", "1-0"], [], "1 of the records that were named was"),
                               (["--end", "0-0"], [], None)]:
        done = dead(store, "list", "--stream", "s", "--json", *args)
        equal([r["fields"]["n"][0] for r in json_lines(done.out)], want, args)
        equal((passed or "") in done.err, True, done.err)
        equal("passed over" in done.err, passed is not None, done.err)
    equal(dead(store, "drop", "--stream", "s", "6-0").out, "0 dropped\n")
    equal(impel("read", "--stream", "s:dead", "--end", "0-0", store=store).out, "")


@every_store
def drop_takes_what_is_named_and_no_more(tmp, store):
    mixed(store)
    refused(["drop", "--stream", "s"], "--all", store=store)
    equal(dead(store, "drop", "--stream", "s", "--end", "0-0").out, "0 dropped\n")
    equal(dead(store, "drop", "--stream", "s", "--dry-run").out.splitlines()[-1],
          "5 would be dropped")
    equal(dead(store, "drop", "--stream", "s", "--older-than", "5d", "--limit", "1").out,
          "1 dropped\n")
    equal(numbers(store), ["1", "2", "3", "4"])
    equal(dead(store, "drop", "--stream", "s", "2-0", "4-0").out, "2 dropped\n")
    lines = json_lines(dead(store, "drop", "--stream", "s", "--all", "--json").out)
    equal([(x["id"], x["action"], x["result"]) for x in lines],
          [("3-0", "drop", "done"), ("5-0", "drop", "done")])
    equal((numbers(store), store.client.exists("s")), ([], 0))
    equal(audited(store), ["1-0", "2-0", "4-0", "3-0", "5-0"])


# ---- where to ----

@every_store
def other_groups_get_nothing_unasked(tmp, store):
    park_many(store, 3)
    call(store, "XGROUP", "CREATE", "s", "audit", "$")
    for stream in "ts":
        call(store, "XADD", "graves", "*", "original_id", "1-0", "original_stream", stream, "original_group", "g",
             "f", "v")
    done = impel("dead", "replay", "--dead-letter", "graves", "--dry-run", store=store)
    equal((done.code, "would be added to 't'" in done.out, "before that" in done.err), (2, True, False), done.err)
    for more in ([], ["--dry-run"]):
        refused(["replay", "--stream", "s", *more], "'audit'", "--in-place", "--to", "--all-groups",
                store=store)
    equal((store.client.xlen("s"), store.client.xlen("s:dead")), (3, 3))
    equal(dead(store, "replay", "--stream", "s", "--limit", "1", "--all-groups").out, "1 replayed\n")
    equal(store.client.xlen("s"), 4)
    equal(dead(store, "replay", "--stream", "s", "--limit", "1", "--to", "new").out, "1 replayed\n")
    equal(entries(store, "new")[0][1], payload(1))
    equal(dead(store, "replay", "--stream", "s", "--in-place").out, "1 replayed\n")
    equal([(r["consumer"], r["pending"]) for r in store.client.xinfo_groups("s")
           for r in store.client.xinfo_consumers("s", r["name"]) for r in
           [{"consumer": r["name"], "pending": r["pending"]}]], [("impel-released", 1)])


@every_store
def in_place_leaves_what_cannot_be_put_back(tmp, store):
    park_many(store, 4)
    call(store, "XDEL", "s", "1-0")
    call(store, "XGROUP", "SETID", "s", "g", "1-0")
    raw(store).execute_command("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")  # 2-0
    call(store, "XGROUP", "SETID", "s", "g", "3-0")
    want = ["gone", "in-group", "would-be-done", "in-group"]
    dry = json_lines(dead(store, "replay", "--stream", "s", "--in-place", "--dry-run", "--json",
                          code=1).out)
    equal([line["result"] for line in dry], want)
    equal(store.client.xlen("s:dead"), 4)
    done = dead(store, "replay", "--stream", "s", "--in-place", code=1)
    equal(done.out, "1 replayed\n")
    contains(done.err, "1 stay parked: their original is no longer in its stream")
    contains(done.err, "2 stay parked: the group has their original before it already")
    equal(store.client.xlen("s:dead"), 3)


@embedded
def one_dead_letter_stream_may_serve_several(tmp, store):
    park_many(store, 2, b"a", b"graves")
    park_many(store, 2, b"b", b"graves")
    lines = json_lines(dead(store, "replay", "--dead-letter", "graves", "--dry-run", "--json").out)
    equal([line["stream"] for line in lines], ["a", "a", "b", "b"])
    dead(store, "replay", "--dead-letter", "graves", "--stream", "b")
    equal((store.client.xlen("a"), store.client.xlen("b")), (2, 4))
    dead(store, "replay", "--dead-letter", "graves")
    equal((store.client.xlen("a"), store.client.xlen("graves")), (4, 0))


@embedded
def records_of_other_tools_are_understood(tmp, store):
    client = raw(store)
    call(store, "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    client.execute_command("XADD", "s:dead", "5-0", "original_id", "1-1", "a", "\x00", "reason", "boom",
                           "error", "x", "a", "2", "attempts", "7")
    client.execute_command("XADD", "s:dead", "6-0", "just", "an entry")
    client.execute_command("XADD", "s:dead", "7-0", "reason", "nothing else")
    records = listed(store)
    equal([(r["id"], r["reason"], r["impel"], r["parked_ms"]) for r in records],
          [("5-0", "boom", False, 5), ("7-0", "nothing else", False, 7)])
    equal(records[0]["fields"], {"a": ["\x00", "2"], "error": "x", "attempts": "7"})
    done = dead(store, "replay", "--stream", "s", "--strip", "attempts", "--strip", "error", code=1)
    equal(done.out, "1 replayed\n")
    contains(done.err, "1 stay parked, the first for this reason:\nimpel dead: record 7-0: there is no field of "
                       "an entry in it")
    contains(done.err, "no records of dead letters")
    equal(entries(store, "s")[0][1], [b"a", b"\x00", b"a", b"2"])
    client.execute_command("XADD", "graves", "5-0", "original_id", "1-1", "reason", "x", "a", "2")
    done = dead(store, "replay", "--dead-letter", "graves", code=1)
    contains(done.err, "it names no stream; --stream or --to does")
    done = dead(store, "replay", "--dead-letter", "graves", "--stream", "s", "--in-place", code=1)
    contains(done.err, "it names no group; --group does")
    first = call(store, "XRANGE", "s", "-", "+")[0][0]
    call(store, "XGROUP", "SETID", "s", "g", "$")
    client.execute_command("XADD", "graves", "6-0", "original_id", first, "reason", "x")
    done = dead(store, "replay", "--dead-letter", "graves", "--stream", "s", "--group", "g",
                "--in-place", "6-0")
    equal(done.out, "1 replayed\n")


# ---- how ----

@every_store
def the_audit_stream_says_who_did_what(tmp, store):
    park_many(store, 3)
    ids = [each[0].decode() for each in entries(store, "s:dead")]
    dead(store, "replay", "--stream", "s", "--limit", "1")
    dead(store, "replay", "--stream", "s", "--in-place", "--limit", "1", "--audit", "log")
    dead(store, "drop", "--stream", "s", "--all", "--audit", "")
    me = pwd.getpwuid(os.getuid()).pw_name
    lines = [line for _, line in store.client.xrange("s:dead:audit")]
    equal([(x["action"], x["user"], x["count"], x["records"]) for x in lines],
          [("replay", me, "1", ids[0])])
    check(lines[0]["host"] != "", "a host")
    equal([line["action"] for _, line in store.client.xrange("log")], ["replay --in-place"])
    streams = [s["stream"] for s in
               json.loads(impel("status", "--json", store=store).out)["streams"]]
    check("s:dead:audit" not in streams, "status takes the audit for work")


@embedded
def a_rate_is_kept(tmp, store):
    park_many(store, 30)
    begun = time.monotonic()
    dead(store, "replay", "--stream", "s", "--rate", "20/s")
    check(time.monotonic() - begun >= 1.3, "30 records at 20 a second were too quick")
    equal(store.client.xlen("s:dead"), 0)


@every_store
def a_key_of_another_type_is_told(tmp, store):
    park_many(store, 1)
    call(store, "SET", "x", "v")
    for args in (["--to", "x"], ["--audit", "x"]):
        done = dead(store, "replay", "--stream", "s", *args, code=1)
        check(re.search("stream|WRONGTYPE", done.err), done.err)
        equal(store.client.xlen("s:dead"), 1)
    for words in ["--audit s", "--audit s:dead", "--to q --audit q", "--to s:dead:audit"]:
        refused(["replay", "--stream", "s", *words.split()], "a stream of its own", store=store)
    done = dead(store, "list", "--dead-letter", "x", code=1)
    check(re.search("stream|WRONGTYPE", done.err), done.err)
    refused(["replay", "--stream", "s", "--to", "s:dead"], "another stream than", store=store)
    equal(store.client.xlen("s:dead"), 1)


@every_store
def no_record_goes_where_the_audit_would_cut_it(tmp, store):
    for stream in ["graves", "graves:audit"]:
        store.client.xadd("graves", {"original_id": "1-0", "original_stream": stream,
                                     "original_group": "g", "reason": "x", "f": "v"})
        for how in [[], ["--in-place"], ["--dry-run"]]:
            done = dead(store, "replay", "--dead-letter", "graves", *how, code=1)
            check("--to names another" in done.err, done.err)
        equal((store.client.xlen("graves"), store.client.xlen("graves:audit")), (1, 0))
        dead(store, "replay", "--dead-letter", "graves", "--to", "q", "--audit", "log")
    equal(store.client.xlen("q"), 2)


@test
def misuse_is_told_before_anything_is_opened(tmp):
    store = tmp / "nothing"
    words = [
        ([], "list, show, stats, replay, drop"),
        (["lits", "--stream", "s"], "'lits'"),
        (["list"], "--stream"),
        (["list", "--stream", "a", "--stream", "b"], "only once"),
        (["show", "--stream", "s"], "IDs are needed"),
        (["show", "--stream", "s", "5x"], "'5x' is no ID"),
        (["list", "--stream", "s", "--to", "x"], "'--to' belongs to"),
        (["stats", "--stream", "s", "--in-place"], "'--in-place' belongs to"),
        (["drop", "--stream", "s", "--all-groups"], "'--all-groups' belongs to"),
        (["list", "--stream", "s", "--dry-run"], "'--dry-run' belongs to"),
        (["list", "--stream", "s", "--rate", "1/s"], "'--rate' belongs to"),
        (["replay", "--stream", "s", "--all"], "'--all' belongs to"),
        (["replay", "--stream", "s", "--reverse"], "--reverse"),
        (["replay", "--stream", "s", "--to", "x", "--in-place"], "only one of"),
        (["replay", "--stream", "s", "--to", ""], "'--to'"),
        (["list", "--stream", "s", "--field", "abc"], "NAME=PATTERN"),
        (["list", "--stream", "s", "--older-than", "5"], "'--older-than'"),
        (["list", "--stream", "s", "--limit", "-1"], "'--limit'"),
    ]
    for args, part in words:
        refused(args, part, store=store)
    park = tmp / "db"
    impel_ok("add", "--stream", "s:dead", "original_id=1-1", "a=1", store=park)
    for rate in ("0", "5/x", "1e999", "nan", "/s"):
        refused(["replay", "--stream", "s", "--rate=" + rate], "'--rate'", store=park)
    done = impel("dead", "list", "--stream", "s", store=store)
    equal(done.code, 1)
    check(not store.exists(), "a look made a store")


@every_store
def every_name_that_is_not_there_is_told(tmp, store):
    park_many(store, 2)
    first, second = [entry for entry, _ in entries(store, "s:dead")]
    done = impel("dead", "show", "--stream", "s", "1-0", first.decode(), "2-0", store=store)
    equal(done.code, 1)
    contains(done.err, "there is no record 1-0, 2-0 in 's:dead'")
    contains(done.out, first.decode())
    done = impel("dead", "show", "--stream", "s", *["%d-0" % i for i in range(1, 20)], store=store)
    contains(done.err, "8-0 and others in 's:dead'")
    for args, name in ((["list", "--stream", "misspelt"], "misspelt"),
                       (["list", "--stream", "s", "--dead-letter", "misspelt"], None),
                       (["drop", "--all", "--dead-letter", "misspelt"], "misspelt"),
                       (["stats", "--stream", "misspelt"], "misspelt"),
                       (["replay", "--stream", "misspelt"], "misspelt")):
        done = impel("dead", *args, store=store)
        equal(done.code, 1 if name else 0, args)
        contains(done.err, "there is no stream '%s' in this store" % name if name else "nothing is parked here")


@test
def what_a_store_refuses_is_said_with_its_place(tmp):
    store = "lmdb:%s?map=1MiB" % (tmp / "db")
    impel_ok("call", "XADD", "s:dead", "*", "a", "x" * 100000, "original_id", "1-1", "reason", "x", store=store)
    while impel("add", "--stream", "s", "a=" + "x" * 60000, store=store).code == 0:
        pass
    done = impel("dead", "replay", "--stream", "s", store=store)
    equal(done.code, 1)
    contains(done.err, "lmdb:%s: 's' does not take the entries: replay: the map or the disk is full" % (tmp / "db"))


main()
