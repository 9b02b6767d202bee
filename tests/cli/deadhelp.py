"""deadhelp -- dead-letter streams as Impel and as other tools write them, and replays that are killed."""
import signal

import redis

from impeltest import check, equal, impel_argv, start, wait_for


def raw(store):
    """A client that gives bytes."""
    pool = store.client.connection_pool
    options = dict(pool.connection_kwargs, decode_responses=False)
    return redis.Redis(connection_pool=redis.ConnectionPool(pool.connection_class, **options))


def payload(i):
    """Fields that would not come through unharmed by accident: bytes that are no text, a repeated
    name, an empty value, and Impel's own names."""
    return [b"n", b"%d" % i, b"bytes", b"\x00\xff\r\n%d" % i, b"reason", b"mine", b"n", b"",
            b"impel_fields", b"3"]


def facts(stream, original, reason=b"rejected", parked_ms=1, group=b"g", error=b"why"):
    """What Impel puts behind the entry's own fields."""
    return [b"original_id", original, b"original_stream", stream, b"original_group", group,
            b"consumer", b"w", b"deliveries", b"5", b"reason", reason, b"error", error,
            b"last_active_ms", b"1", b"parked_ms", b"%d" % parked_ms, b"impel_fields", b"10"]


def park_many(store, count, stream=b"s", dead=b"s:dead"):
    """Entries of a stream that its group g has read and parked. Returns their IDs."""
    client = raw(store)
    client.execute_command("XGROUP", "CREATE", stream, "g", "0", "MKSTREAM")
    ids = []
    for begin in range(0, count, 1000):
        pipe = client.pipeline(transaction=False)
        for i in range(begin, min(begin + 1000, count)):
            pipe.execute_command("XADD", stream, "%d-0" % (i + 1), *payload(i))
        ids += pipe.execute()
        pipe = client.pipeline(transaction=False)
        for i, each in enumerate(ids[begin:], begin):
            pipe.execute_command("XADD", dead, "*", *payload(i), *facts(stream, each))
        pipe.execute()
    client.execute_command("XGROUP", "SETID", stream, "g", "$")
    return ids


def entries(store, stream, start="-"):
    """ID and flat fields, as bytes. No pairs are folded."""
    out = []
    client = raw(store)
    while True:
        reply = plain(client, "XRANGE", stream, start, "+", "COUNT", "10000")
        out += reply
        if len(reply) < 10000:
            return out
        start = b"(" + reply[-1][0]


def plain(client, *words):
    """One command, and its reply as it is."""
    connection = client.connection_pool.get_connection(words[0])
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def killed_replay(tmp, store, count, kills, *options):
    """Replays, killed so many times on the way at different moments; then once to the end. A kill that
    comes late, because the machine is busy, may find the replay at its end: then there are fewer."""
    client = store.client
    left = count
    landed = 0
    for i in range(kills):
        target = left - max(1, left // (kills - i + 1))
        process = start(impel_argv("dead", "replay", "--stream", "s", *options, store=store), tmp)
        wait_for(lambda end=target: client.xlen("s:dead") <= end or not process.running(),
                 what="%d records left" % target, deadline_s=120, pause_s=0.001)
        process.signal(signal.SIGKILL)
        code = process.wait().code
        left = client.xlen("s:dead")
        if left == 0:
            break
        equal(code, -signal.SIGKILL, "it ended too early: %s" % process.err())
        landed += 1
    check(landed > kills // 2, "only %d kills on the way" % landed)
    done = start(impel_argv("dead", "replay", "--stream", "s", *options, store=store), tmp).wait(300)
    equal(done.code, 0, done.err)
    equal(client.xlen("s:dead"), 0)


def audited(store, dead="s:dead"):
    """The IDs of all records that the audit stream tells of."""
    lines = store.client.xrange(dead + ":audit")
    return [each for _, line in lines for each in line["records"].split()]


def added_anew(store, count):
    """Each entry is in the stream once more, in order, byte for byte."""
    got = entries(store, "s")
    equal(len(got), 2 * count)
    for i in range(count):
        equal(got[count + i][1], payload(i))


def pending_rows(store, count):
    """ID, owner, deliveries."""
    rows = []
    begin = b"-"
    while len(rows) < count:
        reply = plain(raw(store), "XPENDING", "s", "g", begin, "+", "10000")
        if not reply:
            break
        rows += [(r[0], r[1], r[3]) for r in reply]
        begin = b"(" + rows[-1][0]
    return rows


def pending_again(store, ids):
    """Each original is pending once, released, as if it had never been tried; nothing was added."""
    rows = pending_rows(store, len(ids))
    equal(len(rows), len(ids))
    for got, want in zip(rows, ids):
        equal(got, (want, b"impel-released", 0))
    equal(store.client.xlen("s"), len(ids))
