#!/usr/bin/python3
"""The commands of Redis 8.2 and later among all others, at random, on the embedded store.

There is no server to compare with, so what is compared is what the store says in different ways: the
pending entries by group and by consumer, how many they are, what CLAIM gives of them and in which
order, what DELREF and ACKED leave. In the end `impel check` looks at the file.

    IMPEL_TEST_SEED=7 IMPEL_TEST_ROUNDS=100 python3 tests/command/test_newer.py
"""
import os
import pathlib

from impeltest import borrow, check, equal, impel, main, test

differences = borrow(pathlib.Path(__file__).resolve().parent / "test_differences.py")
from calls import Embedded, Error  # pylint: disable=wrong-import-position

ROUNDS = int(os.environ.get("IMPEL_TEST_ROUNDS", "12"))
SEED = int(os.environ.get("IMPEL_TEST_SEED", "1"))
COMMANDS_A_ROUND = 250
KEYS, GROUPS = differences.KEYS[:2], differences.GROUPS[:2]


class NewerMaker(differences.Maker):
    def key(self):
        return self.pick(KEYS) if self.chance(0.9) else super().key()

    def group(self):
        return self.pick(GROUPS) if self.chance(0.9) else super().group()

    def refs(self, share=0.5):
        return self.maybe(share, [self.pick([b"KEEPREF", b"DELREF", b"ACKED", b"acked"])])

    def ids(self):
        ids = self.some(lambda: self.id(0.02))
        return [b"IDS", len(ids) if self.chance(0.97) else self.pick(differences.NUMBERS)] + ids

    def trimming(self):
        return super().trimming() + self.refs(0.6)

    def newer(self):
        return self.pick([self.xdelex, self.xackdel, self.xnack, self.xnack, self.claim, self.claim, self.limited,
                          self.idempotent, self.idempotent, self.xcfgset, self.moved])()

    def xdelex(self):
        return [b"XDELEX", self.key()] + self.refs() + self.ids()

    def xackdel(self):
        return [b"XACKDEL", self.key(), self.group()] + self.refs() + self.ids()

    def xnack(self):
        return [b"XNACK", self.key(), self.group(), self.pick([b"SILENT", b"FAIL", b"FAIL", b"FATAL"])] + \
            self.ids() + self.maybe(0.2, [b"RETRYCOUNT", self.pick([0, 7, -1])]) + self.maybe(0.3, [b"FORCE"])

    def claim(self):
        words = [b"XREADGROUP", b"GROUP", self.group(), self.consumer(), b"CLAIM", self.pick([0, 0, 50000])]
        words += self.maybe(0.6, self.count()) + self.maybe(0.2, [b"NOACK"])
        return words + [b"STREAMS", self.key(), b">"]

    def limited(self):
        limit = self.pick([[b"MAXCOUNT", self.random.randint(1, 6)], [b"MAXSIZE", self.random.randint(1, 300)]])
        return [b"XREADGROUP", b"GROUP", b"g", self.consumer()] + limit + \
            [b"STREAMS", b"s", b"t", self.pick([b">", b"0"]), self.pick([b">", b"0"])]

    def idempotent(self):
        word = self.pick([[b"IDMPAUTO", self.pick([b"p", b"q", b"P" * 500])],
                          [b"IDMP", self.pick([b"p", b"q"]), self.pick([b"one", b"two", b"\x00", b"I" * 600])]])
        return [b"XADD", self.key()] + word + [b"*"] + self.payload()

    def xcfgset(self):
        return [b"XCFGSET", self.key(), self.pick([b"IDMP-MAXSIZE", b"IDMP-DURATION"]), self.pick([1, 2, 3, 100, 0])]

    def moved(self):
        return self.pick([[b"RENAME", b"s", b"t"], [b"COPY", b"s", b"t", b"REPLACE"], [b"COPY", b"t", b"s"],
                          [b"XGROUP", b"SETID", self.key(), self.group(), b"0"]])

    def one(self):
        if self.chance(0.6):
            return super().one()
        words = self.newer()
        words = self.spoil(words) if self.chance(0.05) else words
        return self.tame([w if isinstance(w, bytes) else str(w).encode() for w in words])


def pairs(reply):
    return dict(zip(reply[::2], reply[1::2]))


def look_at_group(store, key, group):
    """What is pending, said in several ways."""
    rows = store.call([b"XPENDING", key, group[b"name"], b"-", b"+", 100000])
    listed = [[row[0], row[1], row[3]] for row in rows]
    equal(listed, [[r[0], r[1], r[3]] for r in group[b"pending"]], "XPENDING and XINFO")
    equal(group[b"pel-count"], len(rows))
    nobodys = [r for r in rows if r[1] == b"" and r[2] == -1]
    equal(group.get(b"nacked-count", 0), len(nobodys))
    held = [[r[0], c[b"name"], r[2]] for c in map(pairs, group[b"consumers"]) for r in c[b"pending"]]
    equal(sorted(held), sorted(r for r, full in zip(listed, rows) if full[2] != -1), "by consumer")
    summary = store.call([b"XPENDING", key, group[b"name"]])
    equal(summary[0], len(rows))
    check(all(r[2] >= 0 for r in rows if r not in nobodys), rows)
    return rows, nobodys


def look_at_claims(store, key, group, rows, nobodys):
    """CLAIM gives all that is there, nobody's first, then by time, and nothing of it twice."""
    there = [r[0] for r in rows if store.call([b"XRANGE", key, r[0], r[0]])]
    free = {r[0] for r in nobodys}
    got = store.call([b"XREADGROUP", b"GROUP", group, b"last", b"CLAIM", 0, b"STREAMS", key, b">"])
    entries = got[0][1] if isinstance(got, list) else []
    claimed = [e for e in entries if e[2:] != [0, 0] or e[0] in there]
    claimed = claimed[:len(there)]
    equal(sorted(e[0] for e in claimed), sorted(there), "claimed")
    equal({e[0] for e in claimed[:len(free & set(there))]}, free & set(there), "nobody's come first")
    idles = [e[2] for e in claimed[len(free & set(there)):]]
    equal(idles, sorted(idles, reverse=True), "the longest idle first")
    # Another look: all of it has one owner now, and there is nothing that anybody else may have.
    again = store.call([b"XPENDING", key, group, b"-", b"+", 100000])
    equal([r[0] for r in again if r[1] == b"" and r[2] == -1], sorted_ids(free - set(there)), "left to nobody")


def sorted_ids(ids):
    return sorted(ids, key=lambda i: tuple(map(int, i.split(b"-"))))


def look(store, key):
    """Everything that one stream says of itself."""
    info = store.call([b"XINFO", b"STREAM", key, b"FULL", b"COUNT", 0])
    if isinstance(info, Error):
        return
    info = pairs(info)
    equal(store.call([b"XLEN", key]), len(info[b"entries"]))
    for group in map(pairs, info[b"groups"]):
        rows, nobodys = look_at_group(store, key, group)
        look_at_claims(store, key, group[b"name"], rows, nobodys)
    # What every group has finished with goes, and nothing else.
    store.call([b"XTRIM", key, b"MAXLEN", 0, b"ACKED"])
    left = {e[0] for e in store.call([b"XRANGE", key, b"-", b"+"])}
    if info[b"groups"]:
        pending = {r[0] for g in map(pairs, info[b"groups"])
                   for r in store.call([b"XPENDING", key, g[b"name"], b"-", b"+", 100000])}
        check(left <= pending, "not needed by anybody: %r" % (left - pending))
    else:
        equal(left, set())
    ids = sorted_ids(left)
    if ids:
        equal(store.call([b"XDELEX", key, b"DELREF", b"IDS", len(ids)] + ids), [1] * len(ids))
        for group in map(pairs, info[b"groups"]):
            rows = store.call([b"XPENDING", key, group[b"name"], b"-", b"+", 100000])
            check(not left & {r[0] for r in rows}, "DELREF left %r" % rows)


@test
def what_the_newer_commands_leave_fits_together(tmp):
    store = Embedded(tmp / "db", 2)
    print("# seed %d, %d rounds" % (SEED, ROUNDS))
    refused = done = 0
    for number in range(ROUNDS):
        maker = NewerMaker(SEED * 1000003 + number)
        commands = maker.begin() + [maker.one() for _ in range(COMMANDS_A_ROUND)]
        store.call([b"FLUSHALL"])
        for words in (part for made in commands for part in differences.spread(made)):
            reply = store.call(words)
            refused, done = refused + isinstance(reply, Error), done + 1
            check(not isinstance(reply, Error) or not reply.startswith(b"STORE"), "%r: %r" % (words, reply))
        for key in KEYS:
            look(store, key)
        if number % 4 == 3:
            found = impel("check", store=tmp / "db")
            equal(found.code, 0, "round %d: %s %s" % (number, found.out, found.err))
    print("# %d commands, %d of them refused" % (done, refused))
    check(refused < done * 2 / 3, "hardly anything was done")
    store.close()
    found = impel("check", store=tmp / "db")
    equal(found.code, 0, found.out)


main()
