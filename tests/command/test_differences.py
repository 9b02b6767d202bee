#!/usr/bin/python3
"""The same random commands on the embedded store and on redis-server; every reply is compared.

A round is a few hundred commands on empty stores, made from a seed before any is sent, so that a
difference can be shrunk: the fewest commands that still show it are printed. Then the whole content
of both stores is compared.

The store answers as Redis 7.4 and later; the server here may be another. Where the two differ on purpose
stands in tests/lib/versions.py.

    IMPEL_TEST_SEED=7 IMPEL_TEST_ROUNDS=100 python3 tests/command/test_differences.py
"""
import os
import random
import re

import versions
from calls import Embedded, Error, Null, Server
from impeltest import SLOWNESS, check, main, now, test

ROUNDS = int(os.environ.get("IMPEL_TEST_ROUNDS", "12"))
COMMANDS_A_ROUND = 250
TIME_SLACK_MS = 20000 * SLOWNESS

# What no two servers have in common, and the times, which are only near each other.
LEFT_OUT = {b"radix-tree-nodes"} | versions.MISSING_INFO
TIMES = {b"inactive", b"active-time", b"idle", b"seen-time"}
# These two are counted by other rules as soon as entries were deleted or counters set by hand: with such a
# server they are compared in rounds without such commands.
COUNTERS = {b"lag", b"entries-read"}

# The first of each is taken most of the time, so that something builds up.
KEYS = [b"s", b"t", b"", b"k\x00\xff", b"L" * 600, b"text", b"none"]
GROUPS = [b"g", b"h", b"", b"g\x00\n", b"G" * 700]
CONSUMERS = [b"alice", b"bob", b"Zed", b"", b"c\x00\xfe"]
NUMBERS = [0, 1, 2, 3, 10, -1, -5, 100, 9223372036854775807, -9223372036854775808,
           b"9223372036854775808", b"01", b"+1", b"", b" 1", b"1 ", b"x", b"-0", b"1.5"]
ODD_IDS = [b"-", b"+", b"$", b">", b"*", b"0", b"0-0", b"5-", b"-5", b"5--1", b"5--01", b"005-03", b"+6-1",
           b" 7-1", b"7-1 ", b"0x9", b"18446744073709551615", b"18446744073709551615-18446744073709551615",
           b"18446744073709551615-18446744073709551614", b"18446744073709551616", b"9" * 130, b"", b"3-*",
           b"(", b"(-", b"(+", b"(0-0", b"(18446744073709551615-18446744073709551615", b"1-1\x00z", b"("]
WORDS = [b"COUNT", b"BLOCK", b"STREAMS", b"GROUP", b"NOACK", b"MAXLEN", b"MINID", b"LIMIT", b"~", b"=",
         b"NOMKSTREAM", b"MKSTREAM", b"ENTRIESREAD", b"IDLE", b"TIME", b"RETRYCOUNT", b"FORCE", b"JUSTID",
         b"LASTID", b"FULL", b"ENTRIESADDED", b"MAXDELETEDID", b"nonsense", b""]


# ---- making commands -------------------------------------------------------------------------

class Maker:
    """Random commands; `deletes` allows what makes the counters' rules differ."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.deletes = self.random.random() < 0.7
        self.top = 1
        self.given = [b"1-0"]  # IDs of adds that may have worked

    def begin(self):
        """Something to work on."""
        return [[b"XGROUP", b"CREATE", k, g, b"0", b"MKSTREAM"] for k in KEYS[:2] for g in GROUPS[:2]]

    def one(self):
        makers = [self.xadd] * 8 + [self.xreadgroup] * 6 + [self.xack] * 2 + [self.xclaim] * 3
        makers += [self.xautoclaim] * 3 + [self.xpending] * 3 + [self.xgroup] * 3 + [self.xinfo] * 3
        makers += [self.xrange] * 2 + [self.xread] * 2 + [self.keys] + [self.unknown]
        if self.deletes:
            makers += [self.xdel] * 2 + [self.xtrim] * 2 + [self.xsetid] + [self.many]
        words = self.pick(makers)()
        if words[0] != b"MANY" and self.chance(0.12):
            words = self.spoil(words)
        return self.tame([w if isinstance(w, bytes) else str(w).encode() for w in words])

    def pick(self, choices):
        return self.random.choice(choices)

    def chance(self, share):
        return self.random.random() < share

    def often(self, choices, share=0.6):
        return choices[0] if self.chance(share) else self.pick(choices)

    def key(self):
        return self.often(KEYS)

    def group(self):
        return self.often(GROUPS)

    def consumer(self):
        return self.often(CONSUMERS, 0.3)

    def some(self, make, most=4):
        return [make() for _ in range(self.random.randint(1, most))]

    def id(self, odd=0.06):
        if self.chance(odd):
            return self.pick(ODD_IDS)
        if self.chance(0.7):
            return self.pick(self.given[-40:])
        ms = self.random.randint(1, self.top + 2)
        return b"%d" % ms if self.chance(0.3) else b"%d-%d" % (ms, self.random.randint(0, 3))

    def bound(self, end):
        if self.chance(0.4):
            return b"+" if end else b"-"
        return (b"(" if self.chance(0.2) else b"") + self.id(0.15)

    def count(self):
        return [self.pick([b"COUNT", b"count"]),
                self.pick(NUMBERS) if self.chance(0.2) else self.random.randint(1, 5)]

    def maybe(self, share, words):
        return words if self.chance(share) else []

    def trimming(self):
        by_length = self.chance(0.5)
        words = [b"MAXLEN", self.pick([0, 1, 3, 10, 60, 100, 150])] if by_length else \
            [b"MINID", self.id()]
        words[1:1] = self.pick([[], [], [b"="], [b"~"]])
        return words + self.maybe(0.3, [b"LIMIT", self.pick([0, 1, 50, 100, 200, -1])])

    def payload(self):
        names = [b"f", b"name", b"", b"\x00\x01\xff", b"f"]
        values = [b"v", b"", b"12345", b"-7", b"\r\n", b"x" * 40, b"\xff\x00"]
        words = []
        for _ in range(self.random.randint(1, 3)):
            words += [self.pick(names), self.pick(values)]
        return words

    def xadd(self):
        self.top += self.random.randint(0, 1)
        ident = self.pick([b"%d-%d" % (self.top, self.random.randint(0, 3)), b"%d-*" % self.top, self.id()])
        self.given.append(ident.replace(b"*", b"0"))
        words = [b"XADD", self.key()] + self.maybe(0.1, [b"NOMKSTREAM"])
        words += self.maybe(0.15 if self.deletes else 0, self.trimming())
        return words + [b"*" if self.chance(0.01) else ident] + self.payload()

    def many(self):
        self.top += 1
        return [b"MANY", self.often(KEYS[:2]), self.top, self.pick([30, 99, 100, 101, 150])]

    def xread(self):
        keys = self.some(self.key, 3)
        words = [b"XREAD"] + self.maybe(0.5, self.count()) + self.maybe(0.1, [b"BLOCK", self.pick(NUMBERS)])
        return words + [b"STREAMS"] + keys + [self.pick([self.id(), self.id(), b"$"]) for _ in keys]

    def xreadgroup(self):
        keys = [self.key()] if self.chance(0.7) else self.some(self.key, 3)
        words = [b"XREADGROUP", b"GROUP", self.group(), self.consumer()]
        words += self.maybe(0.6, self.count()) + self.maybe(0.1, [b"NOACK"])
        words += self.maybe(0.1, [b"BLOCK", self.pick(NUMBERS)])
        ids = [b">" if self.chance(0.7) else self.pick([b"0", self.id()]) for _ in keys]
        return words + [b"STREAMS"] + keys + ids

    def xack(self):
        return [b"XACK", self.key(), self.group()] + self.some(self.id)

    def xdel(self):
        return [b"XDEL", self.key()] + self.some(self.id)

    def min_idle(self):
        return self.pick(NUMBERS) if self.chance(0.08) else self.pick([0, 0, 0, -5, 50000, 10 ** 9])

    def xclaim(self):
        words = [b"XCLAIM", self.key(), self.group(), self.consumer(), self.min_idle()]
        words += self.some(lambda: self.id(0.03), 3)
        words += self.maybe(0.3, [b"IDLE", self.pick([0, 100000, 200000, -50, b"x"])])
        words += self.maybe(0.1, [b"TIME", self.pick([0, 1000, -1, -7, 10 ** 15])])
        words += self.maybe(0.2, [b"RETRYCOUNT", self.pick([0, 7, -1, 9223372036854775807])])
        words += self.maybe(0.3, [b"FORCE"]) + self.maybe(0.3, [b"JUSTID"])
        return words + self.maybe(0.1, [b"LASTID", self.id()])

    def xautoclaim(self):
        words = [b"XAUTOCLAIM", self.key(), self.group(), self.consumer(), self.min_idle()]
        words += [self.pick([b"-", b"0", self.bound(False)])] + self.maybe(0.5, self.count())
        return words + self.maybe(0.3, [b"JUSTID"])

    def xpending(self):
        words = [b"XPENDING", self.key(), self.group()]
        if self.chance(0.3):
            return words
        words += self.maybe(0.4, [b"IDLE", self.pick([0, 50000, -1, 10 ** 9, b"x"])])
        words += [self.bound(False), self.bound(True), self.pick([10, 10, 1, 0, -1, b"x"])]
        return words + self.maybe(0.4, [self.consumer()]) + self.maybe(0.05, [b"tail"])

    def xgroup(self):
        words = [b"XGROUP", self.pick([b"CREATE"] * 5 + [b"SETID", b"DESTROY", b"CREATECONSUMER",
                                                         b"DELCONSUMER", b"nope", b"create"])]
        words += [self.key(), self.group()]
        known = self.maybe(0.2 if self.deletes else 0, [b"ENTRIESREAD", self.pick([0, 1, 5, -1, -2, b"x"])])
        if words[1].upper() == b"CREATE":
            return words + [self.pick([b"0", b"$", self.id()])] + self.maybe(0.6, [b"MKSTREAM"]) + known
        if words[1] == b"SETID":
            return words + [self.pick([b"0", b"$", b"-", b"+", self.id()])] + known
        if words[1].endswith(b"CONSUMER"):
            return words + [self.consumer()]
        return words

    def xinfo(self):
        kind = self.pick([b"STREAM", b"STREAM", b"GROUPS", b"CONSUMERS"])
        words = [b"XINFO", kind, self.key()]
        if kind == b"CONSUMERS":
            return words + [self.group()]
        if kind == b"STREAM" and self.chance(0.5):
            return words + [b"FULL"] + self.maybe(0.5, [b"COUNT", self.pick([0, 1, 3, -1, b"x"])])
        return words

    def xrange(self):
        name = self.pick([b"XRANGE", b"XREVRANGE"])
        bounds = [self.bound(name == b"XREVRANGE"), self.bound(name == b"XRANGE")]
        return [name, self.key()] + bounds + self.maybe(0.5, self.count())

    def xtrim(self):
        return [b"XTRIM", self.key()] + self.trimming()

    def xsetid(self):
        words = [b"XSETID", self.key(), self.id()]
        words += self.maybe(0.3, [b"ENTRIESADDED", self.pick([0, 5, 1000, -1])])
        return words + self.maybe(0.3, [b"MAXDELETEDID", self.id()])

    def keys(self):
        return self.pick([[b"DEL", self.key()], [b"UNLINK", self.key(), self.key()], [b"EXISTS", b"s", b"s", b"t"],
                          [b"TYPE", self.key()], [b"DBSIZE"], [b"KEYS", self.pick([b"*", b"?", b"[st]", b"te*t", b"*\\?"])],
                          [b"SET", b"text", b"x"], [b"XLEN", self.key()], [b"XLEN", self.key()], [b"GET", self.key()],
                          [b"PING"], [b"PING", b"a\x00b"], [b"ECHO", b""], [b"FLUSHALL", b"nope"]])

    def unknown(self):
        return self.pick([[b"NOSUCH", b"a", b"b\nc"], [b"XGROUP"], [b"XINFO", b"HELP", b"x"], [b"XADD", b"s"], [b"xlen"],
                          [b"X" * 300, b"y" * 300, b"z"], [b"XINFO", b"STREAM"], [b"PING", b"a", b"b"]])

    def spoil(self, words):
        """One word more, less, or another."""
        words = list(words)
        at = self.random.randint(1, len(words))
        junk = self.pick(WORDS + ODD_IDS + NUMBERS)
        how = self.random.randint(0, 2)
        if how == 0:
            words.insert(at, junk)
        elif how == 1 and at < len(words):
            del words[at]
        elif at < len(words):
            words[at] = junk
        return words

    @staticmethod
    def tame(words):
        """Nothing may wait for ever, no idle time may be a matter of how fast we are, and "+" is no
        ID to an older XREAD."""
        for i, word in enumerate(words):
            idle = i == 4 and words[0] in (b"XCLAIM", b"XAUTOCLAIM") or \
                words[0] == b"XPENDING" and words[i - 1].upper() == b"IDLE"
            if idle and re.fullmatch(rb"[1-9][0-9]{0,3}", word):
                words[i] = b"0"
        if words[0] in (b"XREAD", b"XREADGROUP"):
            for i in range(1, len(words)):
                if words[i - 1].upper() == b"BLOCK" and re.fullmatch(rb"[0-9]+", words[i]):
                    words[i] = b"1" if len(words[i]) < 18 else words[i]
            if words[0] == b"XREAD":
                words = [b"0" if w == b"+" else w for w in words]
        return words


# ---- comparing replies -----------------------------------------------------------------------

class Near:
    """A time in ms: equal to another that is not far from it."""

    def __init__(self, ms):
        self.ms = ms

    def __eq__(self, other):
        return isinstance(other, Near) and abs(self.ms - other.ms) <= TIME_SLACK_MS

    def __repr__(self):
        return "~%d" % self.ms


def pairs(reply):
    """A map, whichever protocol it came by."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


def comparable_info(reply, counters):
    info = {k: Near(v) if k in TIMES else v for k, v in pairs(reply).items()
            if k not in LEFT_OUT and (counters or k not in COUNTERS)}
    if isinstance(info.get(b"groups"), list):
        info[b"groups"] = [comparable_info(g, counters) for g in info[b"groups"]]
    if isinstance(info.get(b"consumers"), list):
        info[b"consumers"] = [comparable_info(c, counters) for c in info[b"consumers"]]
    if isinstance(info.get(b"pending"), list):
        info[b"pending"] = [row[:-2] + [Near(row[-2]), row[-1]] for row in info[b"pending"]]
    return info


def comparable(words, reply, counters):
    """The reply, without what cannot be the same on both sides."""
    name = words[0].upper()
    if isinstance(reply, (Error, Null)):
        return reply
    if len(words) == 2 and words[1].upper() == b"HELP":
        return reply[:-1]  # "Prints this help.", once
    if name == b"XINFO" and words[1].upper() == b"STREAM":
        return comparable_info(reply, counters)
    if name == b"XINFO" and isinstance(reply, list):
        return [comparable_info(r, counters) for r in reply]
    if name == b"XPENDING" and len(words) > 3:
        return [[r[0], r[1], Near(r[2]), r[3]] for r in reply]
    if name in (b"PTTL", b"PEXPIRETIME", b"TTL", b"EXPIRETIME") and reply > 0:
        return Near(reply if name.startswith(b"P") else reply * 1000)
    if name == b"KEYS":
        return sorted(reply)
    return reply


def same(words, ours, theirs, counters):
    if isinstance(ours, Error) and isinstance(theirs, Error):
        return ours == theirs or versions.in_other_words(ours, theirs)
    return type(ours) is type(theirs) and \
        comparable(words, ours, counters) == comparable(words, theirs, counters)


def counted(maker):
    return not (maker.deletes and versions.COUNTS_BY_OLDER_RULES)


# ---- a round ---------------------------------------------------------------------------------

def consumers_made_first(words):
    """Where a consumer is made only when it gets something."""
    upper = [w.upper() for w in words]
    if not versions.MAKES_NO_EMPTY_CONSUMERS:
        return []
    if upper[0] in (b"XCLAIM", b"XAUTOCLAIM") and len(words) >= 4:
        return [[b"XGROUP", b"CREATECONSUMER"] + words[1:4]]
    if upper[0] == b"XREADGROUP" and b"GROUP" in upper[1:] and b"STREAMS" in upper:
        at, first = upper.index(b"GROUP", 1), upper.index(b"STREAMS") + 1
        if at + 2 < len(words):
            keys = words[first:first + (len(words) - first) // 2]
            return [[b"XGROUP", b"CREATECONSUMER", k] + words[at + 1:at + 3] for k in keys]
    return []


def spread(words):
    """MANY is many XADDs in one ms; everything else is itself."""
    if words[0] != b"MANY":
        return consumers_made_first(words) + [words]
    return [[b"XADD", words[1], words[2] + b"-%d" % (i + 1), b"f", b"v"] for i in range(int(words[3]))]


def same_id(words, our_reply):
    """The clocks are not the same: what "*" became on our side is given to the other."""
    by_the_clock = type(our_reply) is bytes and re.match(rb"[0-9]{13}-", our_reply)
    if words[0].upper() != b"XADD" or b"*" not in words or not by_the_clock:
        return words
    at = words.index(b"*")
    return words[:at] + [our_reply] + words[at + 1:]


def shown(words):
    return " ".join(repr(w)[1:] if len(w) < 80 else "%r*%d" % (w[:1], len(w)) for w in words)


CONTENT = [[b"XINFO", b"STREAM", k, b"FULL", b"COUNT", b"0"] for k in sorted(set(KEYS))] + \
    [[b"XINFO", b"GROUPS", k] for k in sorted(set(KEYS))] + [[b"DBSIZE"], [b"KEYS", b"*"]]


def first_difference(sides, commands, counters):
    """Plays the commands, then compares the contents. None, or what differs."""
    ours, theirs = sides
    ours.call([b"FLUSHALL"])
    theirs.call([b"FLUSHALL"])
    played = [c for words in commands for c in spread(words)]
    for words in played + CONTENT:
        our_reply = ours.call(words)
        if isinstance(our_reply, Error) and versions.NEWER_CHECKS.match(our_reply):
            continue
        their_reply = theirs.call(same_id(words, our_reply))
        if not same(words, our_reply, their_reply, counters):
            return "%s\n  ours   %r\n  theirs %r" % (shown(words), our_reply, their_reply)
    return None


def shrink(sides, commands, counters, seconds=30):
    """Leaves out what is not needed for a difference, in ever smaller pieces."""
    end = now() + seconds
    size = len(commands) // 2
    while size >= 1 and now() < end:
        at = 0
        while at < len(commands) and now() < end:
            fewer = commands[:at] + commands[at + size:]
            if first_difference(sides, fewer, counters):
                commands = fewer
            else:
                at += size
        size //= 2
    return commands


def play(folder, version, seed):
    sides = Embedded(folder / "db", version), Server(folder)
    if version == 3:
        sides[1].call([b"HELLO", b"3"])
    print("# seed %d, RESP%d, %d rounds" % (seed, version, ROUNDS // 2))
    for number in range(ROUNDS // 2):
        maker = Maker(seed * 1000003 + number)
        commands = maker.begin() + [maker.one() for _ in range(COMMANDS_A_ROUND)]
        what = first_difference(sides, commands, counted(maker))
        if what:
            commands = shrink(sides, commands, counted(maker))
            what = first_difference(sides, commands, counted(maker)) or what
            lines = "\n".join("  " + shown(words) for words in commands)
            check(False, "seed %d, round %d: %s\nafter\n%s" % (seed, number, what, lines))
    sides[0].close()


# The same each time, so that a change that breaks nothing is not met by an old difference.
SEED = int(os.environ.get("IMPEL_TEST_SEED", "1"))


@test
def replies_are_redis_replies(tmp):
    play(tmp, 2, SEED)


@test
def replies_are_redis_replies_in_resp3(tmp):
    play(tmp, 3, SEED + 1)


main()
