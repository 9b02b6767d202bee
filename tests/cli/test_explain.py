#!/usr/bin/python3
"""explain: each state an entry can be in, in words and as JSON."""
import json

from impeltest import contains, equal, impel, impel_ok, main, test

WHERE = ["--stream", "s", "--group", "g"]


def call(store, *words):
    return impel_ok("call", *words, store=store)


def told(store, entry, *args):
    tree = json.loads(impel_ok("explain", *WHERE, "--json", *args, entry, store=store))
    text = impel_ok("explain", *WHERE, *args, entry, store=store)
    contains(text, tree["state"])
    return tree


@test
def every_state_is_told(tmp):
    db = tmp / "db"
    for i in range(1, 7):
        call(db, "XADD", "s", "%d-0" % i, "n", str(i))
    call(db, "XGROUP", "CREATE", "s", "g", "0")
    call(db, "XREADGROUP", "GROUP", "g", "c", "COUNT", "5", "STREAMS", "s", ">")
    call(db, "XACK", "s", "g", "1-0")
    call(db, "XCLAIM", "s", "g", "c", "0", "3-0", "RETRYCOUNT", "9")
    call(db, "XDEL", "s", "4-0")

    equal(told(db, "1-0")["state"], "settled")
    tree = told(db, "2-0")
    equal((tree["state"], tree["consumer"], tree["owner"], tree["deliveries"], tree["exists"]),
          ("pending", "c", "foreign", 1, True))
    equal(0 < tree["wait_ms"] <= 60000, True, tree)
    contains(tree["reason"], "due in")
    soon = ["--min-idle", "1ms", "--backoff", "0"]
    contains(told(db, "2-0", *soon)["reason"], "no worker is alive")
    contains(told(db, "3-0", *soon)["reason"], "the next sweep parks it")
    tree = told(db, "4-0", *soon)
    equal(tree["exists"], False)
    contains(tree["reason"], "lost work")
    equal(told(db, "6-0")["state"], "undelivered")
    equal(told(db, "7-0")["state"], "never")

    impel_ok("sweep", "--once", *WHERE, *soon, "--dead-after", "200ms", store=db)
    tree = told(db, "3-0")
    equal(tree["state"], "parked")
    contains(tree["reason"], "9 deliveries (max-deliveries)")


@test
def what_is_missing_is_named(tmp):
    db = tmp / "db"
    call(db, "XADD", "s", "1-0", "n", "1")
    for args, code, part in [
            (["1-0"], 2, "--stream"),
            (["--stream", "s", "1-0"], 2, "--group"),
            ([*WHERE], 2, "the ID of an entry is needed"),
            ([*WHERE, "x"], 2, "the ID of an entry is needed"),
            ([*WHERE, "1-0"], 1, "no group 'g'")]:
        done = impel("explain", *args, store=db)
        equal(done.code, code, done.err)
        contains(done.err, part)


main()
