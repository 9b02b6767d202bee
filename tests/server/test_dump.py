"""DUMP and RESTORE, here and between this server and redis-server."""
import random

import redis
import versions

from impeltest import check, contains, equal, main, run, start_redis, test
from served import SERVE, Served, error_of


def build(r, seed):
    """A stream with all that can be in one."""
    rng = random.Random(seed)
    ids = []
    values = ["", "0", "-1", "127", "128", "4095", "-4096", "70000", "-8388608", "2147483647",
              "9223372036854775807", "-9223372036854775808", "007", "x", "y" * 63, "z" * 64,
              "w" * 5000, "\u00fc\n\x00"]
    for i in range(rng.choice([1, 50, 350])):
        fields = {"name%d" % j: rng.choice(values) for j in range(rng.choice([1, 2, 2, 2, 5]))}
        ids.append(r.xadd("s", fields, id="%d-%d" % (1000 + 4 * i + rng.choice([0, 2]), i)))
    for g in range(3):
        r.xgroup_create("s", "g%d" % g, rng.choice(["0", "$", ids[len(ids) // 2]]))
        for c in range(3):
            r.xreadgroup("g%d" % g, "c%d" % c, {"s": ">"}, count=rng.choice([1, 10, 100]))
        r.xgroup_createconsumer("s", "g%d" % g, "idle")
    for i in rng.sample(ids, len(ids) // 3):
        r.xdel("s", i)
    return ids


def pairs(flat, leave_out=()):
    if isinstance(flat, dict):
        return {k: v for k, v in flat.items() if k not in leave_out}
    return {k: v for k, v in zip(flat[::2], flat[1::2]) if k not in leave_out}


def content(r, key):
    """Everything of a stream but what an older server counts otherwise or does not have."""
    raw = redis.Redis(port=r.connection_pool.connection_kwargs["port"])
    raw.response_callbacks.clear()
    info = pairs(raw.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", 0),
                 (b"radix-tree-keys", b"radix-tree-nodes"))
    info[b"groups"] = [pairs(g, (b"lag",)) for g in info[b"groups"]]
    for group in info[b"groups"]:
        group[b"consumers"] = [pairs(c, (b"active-time",)) for c in group[b"consumers"]]
    return info


def servers(tmp):
    _, port = start_redis(tmp)
    return Served(tmp), redis.Redis(port=port), port


@test
def a_stream_moves_to_redis_and_back(tmp):
    served, theirs, port = servers(tmp)
    ours = redis.Redis(port=served.port)
    for seed in range(6):
        ours.flushall()
        theirs.flushall()
        build(ours, seed)
        payload = ours.dump("s")
        equal(theirs.restore("s", 0, as_read_there(payload)), b"OK")
        equal(content(theirs, "s"), content(ours, "s"), "to redis, seed %d" % seed)
        equal(ours.restore("t", 0, theirs.dump("s")), b"OK")
        equal(content(ours, "t"), content(ours, "s"), "and back, seed %d" % seed)
        equal(ours.restore("s", 0, payload, replace=True), b"OK")
        equal(ours.dump("s"), payload)
    done = run([SERVE, served.db, "check"])
    equal(done.code, 0, done.out)
    check(port > 0)


def crc64(data):
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x95ac9329ac4bc9b5 if crc & 1 else 0)
    return crc


def as_read_there(payload):
    return payload if versions.READS_OUR_DUMPS else b_19(payload)


def b_19(payload):
    """The same payload as redis-server 7.0 reads it: without when consumers were active."""
    body = Reader(payload[1:-10])
    out = bytearray([19])
    out += body.keep(lambda: [(body.string(), body.string()) for _ in range(body.len())])
    out += body.keep(lambda: [body.len() for _ in range(8)])
    out += body.keep(body.groups)
    for _ in range(body.group_count):
        out += body.keep(lambda: (body.string(), body.len(), body.len(), body.len()))
        out += body.keep(lambda: [(body.take(24), body.len()) for _ in range(body.len())])
        start = body.at
        consumers = body.len()
        out += body.data[start:body.at]
        for _ in range(consumers):
            out += body.keep(lambda: (body.string(), body.take(8)))
            body.take(8)
            out += body.keep(lambda: body.take(16 * body.len()))
    equal(body.at, len(body.data))
    out += b"\x0a\x00"
    return bytes(out + crc64(out).to_bytes(8, "little"))


class Reader:
    def __init__(self, data):
        self.data, self.at, self.group_count = data, 0, 0

    def take(self, size):
        self.at += size
        return self.data[self.at - size:self.at]

    def len(self):
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3f) << 8 | self.take(1)[0]
        return int.from_bytes(self.take(4 if first == 0x80 else 8), "big")

    def string(self):
        return self.take(self.len())

    def groups(self):
        self.group_count = self.len()

    def keep(self, read):
        start = self.at
        read()
        return self.data[start:self.at]


@test
def versions_of_payloads(tmp):
    """Up to Redis 8.0, and Valkey 9, which has a number of its own; unknown ones are refused."""
    r = redis.Redis(port=Served(tmp).port)
    build(r, 1)
    body = r.dump("s")[:-10]
    for version, known in [(9, True), (11, True), (12, True), (13, False), (79, False), (80, True), (81, False)]:
        payload = body + version.to_bytes(2, "little")
        payload += crc64(payload).to_bytes(8, "little")
        if known:
            equal(r.restore("t", 0, payload, replace=True), b"OK", "version %d" % version)
        else:
            contains(error_of(r.restore, "u", 0, payload), "version or checksum")


@test
def damaged_payloads_are_refused_and_change_nothing(tmp):
    served = Served(tmp)
    r = redis.Redis(port=served.port)
    build(r, 1)
    payload = r.dump("s")
    rng = random.Random(7)
    contains(error_of(r.restore, "t", 0, payload[:-1]), "version or checksum")
    contains(error_of(r.restore, "t", 0, b""), "version or checksum")
    contains(error_of(r.restore, "s", 0, payload), "Target key name already exists")
    contains(error_of(r.restore, "t", -1, payload), "Invalid TTL value")
    refused = 0
    for _ in range(400):
        body = bytearray(payload[:-8])
        for _ in range(rng.choice([1, 1, 2, 8])):
            body[rng.randrange(1, len(body) - 2)] = rng.randrange(256)
        if rng.random() < 0.2:
            del body[rng.randrange(1, len(body) - 2):-2]
        try:
            r.restore("t", 0, bytes(body) + crc64(body).to_bytes(8, "little"), replace=True)
            r.xinfo_stream("t", full=True)
        except redis.ResponseError as error:
            contains(str(error), "Bad data format")
            refused += 1
    check(refused > 50, "only %d of 400 refused" % refused)
    done = run([SERVE, served.db, "check"])
    equal(done.code, 0, done.out)


@test
def what_redis_5_wrote_is_read(tmp):
    r = redis.Redis(port=Served(tmp).port)
    r.set("text", "x" * 300)
    equal(r.restore("copy", 100000, r.dump("text")), b"OK")
    equal((r.get("copy"), 90 < r.ttl("copy") <= 100), (b"x" * 300, True))
    # Type 15: one node with 1-0 {a: 5}, no groups.
    pack = bytes([1, 1, 0, 1, 1, 1, 0x81, 97, 2, 0, 1, 2, 1, 0, 1, 0, 1, 5, 1, 4, 1, 255])
    pack = (len(pack) + 6).to_bytes(4, "little") + (10).to_bytes(2, "little") + pack
    body = (bytes([15, 1, 16]) + (1).to_bytes(8, "big") + bytes(8) + bytes([len(pack)]) + pack +
            bytes([1, 1, 0, 0]) + b"\x09\x00")
    equal(r.restore("old", 0, body + crc64(body).to_bytes(8, "little")), b"OK")
    equal(r.xrange("old"), [(b"1-0", {b"a": b"5"})])
    equal(r.dump("nokey"), None)


@test
def what_is_nobodys_comes_back_as_released(tmp):
    served, theirs, _ = servers(tmp)
    ours = redis.Redis(port=served.port, decode_responses=True)
    for i in range(1, 5):
        ours.xadd("s", {"f": i}, id="%d-0" % i)
    ours.xgroup_create("s", "g", "0")
    ours.xreadgroup("g", "c", {"s": ">"}, count=3)
    equal(ours.execute_command("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "1-0"), 2)
    ours.xreadgroup("g", "impel-released", {"s": ">"})  # it may be there before
    raw = redis.Redis(port=served.port)
    want = [("1-0", "impel-released", 1), ("2-0", "impel-released", 1), ("3-0", "c", 1),
            ("4-0", "impel-released", 1)]
    equal(theirs.restore("s", 0, as_read_there(raw.dump("s"))), b"OK")
    equal(raw.restore("t", 0, raw.dump("s")), b"OK")
    there = redis.Redis(port=theirs.connection_pool.connection_kwargs["port"], decode_responses=True)
    for r, key in ((there, "s"), (ours, "t")):
        rows = r.xpending_range(key, "g", "-", "+", 10)
        equal([(row["message_id"], row["consumer"], row["times_delivered"]) for row in rows], want)
        taken = r.execute_command("XAUTOCLAIM", key, "g", "d", 10 ** 9, "0")
        equal([entry[0] for entry in taken[1]], ["1-0", "2-0"])
    ours.xgroup_delconsumer("s", "g", "impel-released")
    equal(raw.restore("u", 0, raw.dump("s")), b"OK")
    equal(ours.xpending("u", "g")["consumers"], [{"name": "c", "pending": 1},
                                                 {"name": "impel-released", "pending": 2}])
    equal(run([SERVE, served.db, "check"]).code, 0)


main()
