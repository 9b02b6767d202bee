#!/usr/bin/python3
"""explain: each state that an entry can be in, in words and as JSON, on every kind of store."""
import json
import re
import time

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start, test,
                       wait_for)
from everystore import add, call, every_store, read

WHERE = ["--stream", "s", "--group", "g"]
DUE = ["--min-idle", "1ms", "--backoff", "0"]
LONG = ["--backoff", "1h..1h"]
BASE_KEYS = ["id", "stream", "group", "state", "exists"]
PENDING_KEYS = ["consumer", "owner", "alive", "clock", "beat_age_ms", "deliveries", "idle_ms",
                "since_ms", "rule", "wait_ms", "due_ms"]
PARKED_KEYS = ["consumer", "deliveries", "parked_as", "parked_ms", "parked_reason", "error"]
KEYS = {"pending": BASE_KEYS + PENDING_KEYS, "parked": BASE_KEYS + PARKED_KEYS}


def told(store, *entries, args=()):
    """What is said of entries: a JSON object and a text for each."""
    lines = impel_ok("explain", *WHERE, "--json", *args, *entries, store=store).splitlines()
    text = impel_ok("explain", *WHERE, *args, *entries, store=store)
    texts = re.split(r"^(?=\d+-\d+  )", text, flags=re.MULTILINE)[1:]
    equal((len(lines), len(texts)), (len(entries), len(entries)), text)
    answers = []
    for entry, line, text in zip(entries, lines, texts):
        tree = json.loads(line)
        equal(list(tree), KEYS.get(tree["state"], BASE_KEYS) + ["next", "reason"])
        equal((tree["id"], tree["stream"], tree["group"]), (entry, "s", "g"))
        contains(text.splitlines()[0], "%s  %s" % (entry, tree["state"]))
        answers.append((tree, text))
    return answers


def check_rows(store, args, *rows):
    """A table: of each entry, what the JSON has, and what stands in the text."""
    for row, (tree, text) in zip(rows, told(store, *[r[0] for r in rows], args=args)):
        for key, value in row[1].items():
            equal(tree[key], value, "%s of %s %s\n%s" % (key, row[0], args, text))
        for part in row[2:]:
            contains(text, part)


def owner_of(store, entry):
    return json.loads(impel_ok("explain", *WHERE, "--json", entry, store=store))["owner"]


def pending(owner, alive, clock, rule, then):
    return {"state": "pending", "owner": owner, "alive": alive, "clock": clock, "rule": rule,
            "next": then}


@every_store
def every_state_without_a_worker(tmp, store):
    add(store, "s", *["%d-0" % i for i in range(1, 13)])
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    read(store, "s", "g", "c", 10)
    call(store, "XACK", "s", "g", "1-0", "2-0", "9-0")
    call(store, "XCLAIM", "s", "g", "c", "0", "4-0", "RETRYCOUNT", "9")
    call(store, "XCLAIM", "s", "g", "impel-released", "0", "6-0", "TIME", "1", "RETRYCOUNT", "0",
         "JUSTID")
    call(store, "XCLAIM", "s", "g", "impel-released", "0", "7-0", "RETRYCOUNT", "2", "JUSTID")
    call(store, "XDEL", "s", "5-0", "9-0", "11-0")
    call(store, "XTRIM", "s", "MINID", "2-0")

    foreign = pending("foreign", None, "idle", 6, "claim")
    freed = pending("released", None, "idle", 4, "claim")
    gone = {"state": "gone", "exists": False, "next": None}
    check_rows(
        store, [],
        ("1-0", gone, "trimmed, or never there: the stream begins at 2-0", "nothing to do"),
        ("2-0", {"state": "acked", "exists": True, "next": None}, "done: it was delivered"),
        ("3-0", dict(foreign, consumer="c", deliveries=1, exists=True), "held by c since 20",
         "delivered 1 time, at most 5", "c is no worker of Impel's", "rule 6", "not due yet: idle",
         "of 1m00s; in ", "taken over and run again, as soon as a worker is started"),
        ("4-0", dict(foreign, deliveries=9, next="park"), "it will be parked"),
        ("5-0", dict(foreign, exists=False, next="reap"), "not in the stream", "lost work"),
        ("6-0", dict(freed, deliveries=0, idle_ms=None, since_ms=None, wait_ms=0),
         "held by impel-released, delivered 0 times", "a worker that stopped handed it back",
         "rule 4", "due: it will be taken over"),
        ("8-1", gone, "never there"),
        ("9-0", gone, "deleted, or never there", "nothing to do with it"),
        ("11-0", gone, "this group had not read it, and never will"),
        ("12-0", {"state": "undelivered", "exists": True, "next": "read"},
         "the group is at 10-0", "no worker is alive now"),
        ("12-1", {"state": "unknown", "exists": False, "next": None}, "never had an entry"))
    check_rows(
        store, DUE,
        ("3-0", dict(foreign, wait_ms=0), "due: it will be taken over"),
        ("4-0", dict(foreign, next="park", wait_ms=0), "due: it will be parked, since it had all "
         "its deliveries, as soon as a worker or impel sweep is started"),
        ("5-0", dict(foreign, next="reap", wait_ms=0), "due: it will be reported as lost"))
    check_rows(store, LONG, ("7-0", dict(freed, deliveries=2), "of 1h0", "not due yet"))
    tree = told(store, "3-0")[0][0]
    check(0 <= tree["wait_ms"] <= 60000 and tree["due_ms"] - tree["since_ms"] == 60000, tree)
    check(abs(tree["since_ms"] / 1000 + tree["idle_ms"] / 1000 - time.time()) < 30, tree)

    impel_ok("sweep", "--once", *WHERE, *DUE, "--dead-after", "200ms", store=store)
    check_rows(store, [],
               ("4-0", {"state": "parked", "exists": True, "deliveries": 9, "consumer": "c",
                        "parked_reason": "max-deliveries", "next": None},
                "after 9 deliveries (max-deliveries), as "),
               ("5-0", gone, "deleted, or never there"))
    tree = told(store, "4-0")[0][0]
    check(abs(tree["parked_ms"] / 1000 - time.time()) < 60, tree)


def worker(store, tmp, name, *args):
    """Runs handlers that say which entry they have, and do not end."""
    script = "echo > %s.$IMPEL_ID; exec sleep 1000" % name
    return start(impel_argv("run", *WHERE, "--consumer", name, "--dead-after", "1s", "--backoff",
                            "1h..1h", *args, "--", "sh", "-c", script, store=store), tmp)


@every_store
def every_state_with_workers(tmp, store):
    add(store, "s", "1-0")
    first = worker(store, tmp, "one")
    wait_for((tmp / "one.1-0").exists, what="the first handler")
    second = worker(store, tmp, "two")
    add(store, "s", "2-0")
    wait_for((tmp / "two.2-0").exists, what="the second handler")
    add(store, "s", "3-0")
    live = pending("alive", True, "beats", 2, "settle")
    call(store, "XDEL", "s", "2-0")
    check_rows(store, [],
               ("1-0", dict(live, consumer="one", wait_ms=None, due_ms=None), "held by one since",
                "one is alive by its beats, the last of them", "rule 2", "left to its holder"),
               ("2-0", dict(live, exists=False), "done is done, what fails is parked"),
               ("3-0", {"state": "undelivered"}, "a live worker will read it in its turn"))

    first.kill()
    wait_for(lambda: owner_of(store, "1-0") == "dead", what="a dead worker")
    dead = pending("dead", False, "beats", 5, "claim")
    check_rows(store, LONG,
               ("1-0", dict(dead, deliveries=1), "one is dead by its beats", "rule 5",
                "not due yet", "taken over and run again, by a live worker"))
    check_rows(store, DUE, ("1-0", dict(dead, wait_ms=0),
                            "due: it will be taken over and run again, by a live worker"))
    check_rows(store, [*LONG, "--max-deliveries", "1"], ("1-0", dict(dead, next="park"), "parked"))
    call(store, "XDEL", "s", "1-0")
    check_rows(store, DUE, ("1-0", dict(dead, exists=False, next="reap"), "lost work"))

    second.kill()
    wait_for(lambda: owner_of(store, "2-0") == "unknown", what="nobody to be known alive")
    check_rows(store, [],
               ("2-0", pending("unknown", None, "beats", None, None), "two may be dead",
                "its silence proves nothing", "impel sweep --once"),
               ("3-0", {"state": "undelivered"}, "no worker is alive now"))


@every_store
def what_a_handler_settled_is_told(tmp, store):
    add(store, "s", "1-0", "2-0", "3-0")
    script = 'case $IMPEL_ID in 2-0) echo no such order >&2; exit 65;; esac'
    impel_ok("run", *WHERE, "--dead-after", "1s", "--until-idle", "--", "sh", "-c", script,
             store=store)
    add(store, "s", "4-0")
    process = worker(store, tmp, "w", "--grace", "0")
    wait_for((tmp / "w.4-0").exists, what="the handler")
    equal(process.stop().code, 0)
    check_rows(store, [],
               ("1-0", {"state": "acked"}),
               ("2-0", {"state": "parked", "parked_reason": "rejected", "deliveries": 1},
                "after 1 delivery", "no such order"),
               ("4-0", pending("released", None, "idle", 4, "claim"), "handed it back"))


@every_store
def what_an_entry_had_before_it_was_requeued_counts(tmp, store):
    """explain, status and a dry run foresee what a worker and a sweep then do. A count past the largest number stays there."""
    add(store, "s", "1-0", "2-0")
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    read(store, "s", "g", "c", 1)
    impel_ok("sweep", "--once", "--requeue", "--dead-after", "100ms", *DUE, *WHERE, store=store)
    read(store, "s", "g", "c", 2)
    copy = store.client.xrange("s")[-1][0]
    call(store, "XCLAIM", "s", "g", "c", "0", "2-0", "RETRYCOUNT", str(2 ** 63 - 1), "JUSTID")
    call(store, "XCLAIM", "s", "g", "c", "0", "2-0")
    call(store, "XCLAIM", "s", "g", "c", "0", copy, "TIME", "1", "JUSTID")
    limit = ["--max-deliveries", "2"]
    check_rows(store, [*DUE, *limit],
               (copy, pending("foreign", None, "idle", 6, "park"), "delivered 2 times (1 before it was requeued), at most 2"),
               ("2-0", {"deliveries": 2 ** 63 - 1, "next": "park"}, "delivered %d times, at most 2" % (2 ** 63 - 1)))
    rows = json_lines(impel_ok("sweep", "--dry-run", "--json", *DUE, *limit, *WHERE, store=store))
    equal(sorted((r["id"], r["deliveries"], r["action"]) for r in rows),
          sorted([(copy, 2, "park"), ("2-0", 2 ** 63 - 1, "park")]))
    equal([r["idle_ms"] for r in rows if r["id"] == copy], [None])
    call(store, "XCLAIM", "s", "g", "c", "0", copy, "IDLE", "5500000", "JUSTID")
    group = json.loads(impel("status", "--stream", "s", "--json", "--min-idle", "1ms", "--backoff", "1s..10h",
                             store=store).out)["streams"][0]["groups"][0]
    equal((group["abandoned"], group["not_due"]), (1, 1))
    group = json.loads(impel("status", "--stream", "s", "--json", "--min-idle", "1ms", "--backoff", "4000s..10h",
                             store=store).out)["streams"][0]["groups"][0]
    equal((group["abandoned"], group["not_due"]), (0, 2))


@test
def what_is_missing_is_named(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "s", "--id", "1-0", "n=1", store=db)
    for args, code, part in [
            (["1-0"], 2, "--stream"),
            (["--stream", "s", "1-0"], 2, "--group"),
            ([*WHERE], 2, "the ID of an entry is needed"),
            ([*WHERE, "1-0", "x"], 2, "'x' is no ID of an entry"),
            (["--stream", "t", "--group", "g", "1-0"], 1, "there is no stream 't'"),
            ([*WHERE, "1-0"], 1, "there is no group 'g' on the stream 's'")]:
        done = impel("explain", *args, store=db)
        equal(done.code, code, done.err)
        contains(done.err, part)


main()
