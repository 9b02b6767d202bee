#!/usr/bin/python3
"""What people run into who recover entries by other means (tests/README.md), on the embedded store and
on a Redis."""
import re

from everystore import add, add_many, both_stores, call, ids, read
from impeltest import check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start, wait_for

HURRY = ["--dead-after", "300ms", "--backoff", "0"]
LONG_MS = "7200000"


def sweep(store, *args):
    """One pass over s and g, in which two hours without a word are too long."""
    done = impel("sweep", "--once", "--json", "--stream", "s", "--group", "g", "--min-idle", "1h", *HURRY, *args,
                 store=store)
    equal(done.code, 0, done.err)
    return {line["consumer"]: line for line in json_lines(done.out)}


def group(store, *consumers, entries):
    """Who has read how many of s in g, in the order of the stream; the rest is unread."""
    add_many(store, "s", entries)
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    return [read(store, "s", "g", name, count) for name, count in consumers]


def abandon(store, consumer, entries):
    pipe = store.client.pipeline(transaction=False)
    for entry in entries:
        pipe.execute_command("XCLAIM", "s", "g", consumer, "0", entry, "IDLE", LONG_MS, "JUSTID")
    pipe.execute()


@both_stores
def the_tail_behind_healthy_rows_is_found(tmp, store):
    """A2: the first hundred are worked on, the last fifty were left long ago, all by one consumer."""
    held, = group(store, ("a", 1150), entries=1150)
    abandon(store, "a", held[-50:])
    line = sweep(store)["a"]
    equal((line["abandoned"], line["not_due"]), (50, 1100))
    equal(sweep(store, "--requeue")["a"]["moved"], 50)
    equal(len(read(store, "s", "g", "b")), 50)


@both_stores
def one_pass_restores_all_and_tells_how_many_wait(tmp, store):
    """F37: the pass is not bounded to a few entries, and the metrics tell of the backlog."""
    held, = group(store, ("gone", 3000), entries=3000)
    abandon(store, "gone", held)
    metrics = tmp / "metrics"
    equal(sweep(store, "--metrics-file", str(metrics))["gone"]["abandoned"], 3000)

    def metric(name):
        return int(re.search(r"^impel_%s\{.*\} (\d+)$" % name, metrics.read_text(), re.M)[1])
    equal((metric("sweep_due"), metric("sweeps_total")), (3000, 1))
    equal(sweep(store, "--requeue")["gone"]["moved"], 3000)
    equal(len(read(store, "s", "g", "b", 5000)), 3000)


@both_stores
def a_late_ack_neither_takes_the_copy_nor_brings_another(tmp, store):
    """F39: a worker that was only slow acknowledges after its entry was requeued."""
    (held,) = group(store, ("slow", 1), entries=1)
    abandon(store, "slow", held)
    equal(sweep(store, "--requeue")["slow"]["moved"], 1)
    equal(call(store, "XACK", "s", "g", *held), 0)
    copy = read(store, "s", "g", "b")
    equal(len(copy), 1)
    equal(call(store, "XACK", "s", "g", *held), 0)
    equal(call(store, "XPENDING", "s", "g")["pending"], 1)
    sweep(store, "--requeue")
    equal(ids(store), held + copy)
    equal(call(store, "XACK", "s", "g", *copy), 1)


@both_stores
def without_retries_a_crash_loses_nothing(tmp, store):
    """F40: one delivery is all there is; what was under way when its holder died is parked."""
    (held,) = group(store, ("gone", 3), entries=3)
    abandon(store, "gone", held)
    equal(sweep(store, "--requeue", "--max-deliveries", "1")["gone"]["parked"], 3)
    records = json_lines(impel_ok("dead", "list", "--stream", "s", "--json", store=store))
    equal([(r["original_id"], r["reason"], r["deliveries"]) for r in records],
          [(entry, "max-deliveries", 1) for entry in held])
    equal(call(store, "XPENDING", "s", "g")["pending"], 0)


@both_stores
def one_groups_ack_removes_nothing_from_another(tmp, store):
    """F36: one group has finished with the stream, and it is trimmed all the time; the other has not begun."""
    add_many(store, "s", 20)
    for name in ("g", "late"):
        call(store, "XGROUP", "CREATE", "s", name, "0")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "a"))
    read(store, "s", "late", "b", 1)
    sweep(store, "--trim")
    equal(len(ids(store)), 20)
    rest = read(store, "s", "late", "b")
    equal(len(rest), 19)
    call(store, "XACK", "s", "late", *rest)
    sweep(store, "--trim")
    equal(len(ids(store)), 20, "the first one is still pending")
    call(store, "XACK", "s", "late", ids(store)[0])
    sweep(store, "--trim")
    equal(ids(store), [])


@both_stores
def who_polls_an_empty_stream_is_not_gone(tmp, store):
    """D27: before Redis 7.2 the idle time of a consumer that gets nothing grows however often it asks."""
    call(store, "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    add(store, "s", "1-0")
    call(store, "XACK", "s", "g", *read(store, "s", "g", "poller"))
    daemon = start(impel_argv("sweep", "--stream", "s", "--group", "g", "--consumer-ttl", "1s", "--interval", "20ms",
                              *HURRY, store=store), tmp)
    polls = []

    def long_enough():
        polls.append(store.client.xreadgroup("g", "poller", {"s": ">"}, block=20))
        return len(polls) > 120  # more than twice its time
    wait_for(long_enough)
    equal([each["name"] for each in store.client.xinfo_consumers("s", "g")], ["poller"])
    check("poller" not in daemon.err(), daemon.err())
    # Another one works on, and this one does not ask any more.
    for i in range(2, 200):
        add(store, "s", "%d-0" % i)
        call(store, "XACK", "s", "g", *read(store, "s", "g", "busy"))
        if "poller" in daemon.err():
            break
        store.client.xread({"nothing": "$"}, block=10)
    wait_for(lambda: "poller" in daemon.err(), what="the end of a consumer that is gone")
    equal([each["name"] for each in store.client.xinfo_consumers("s", "g")], ["busy"])


@both_stores
def a_scan_by_xautoclaim_has_the_same_cursors_everywhere(tmp, store):
    """F42: rows that are not idle for long enough take no place in COUNT, but bound the work; the cursor is the
    next ID, and 0-0 at the end."""
    add(store, "s", *["%d-1" % i for i in range(1, 151)])
    call(store, "XGROUP", "CREATE", "s", "g", "0")
    held = read(store, "s", "g", "a", 150)
    abandon(store, "a", held[100:])

    def scan(cursor, count):
        reply = call(store, "XAUTOCLAIM", "s", "g", "b", "3600000", cursor, "COUNT", str(count))
        return reply[0], [entry for entry, _ in reply[1]]
    equal(scan("0-0", 10), ("101-1", []))
    equal(scan("101-1", 10), ("111-1", held[100:110]))
    equal(scan("111-1", 100), ("0-0", held[110:]))
    equal(scan("0-0", 20), ("0-0", []), "150 rows are fewer than ten times as many as are wanted")
    contains(str(call(store, "XPENDING", "s", "g")), "'pending': 150")


main()
