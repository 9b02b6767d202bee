"""The same random commands to this server and to redis-server; every reply is compared.

The commands and the comparison are those of tests/command, here over a connection; beside them the
commands on keys, transactions and errors of the connection, which only a server has.

    IMPEL_TEST_SEED=7 IMPEL_TEST_ROUNDS=100 python3 tests/server/test_same.py
"""
import os
import pathlib
import sys

import versions

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "command"))

import calls  # pylint: disable=wrong-import-position
import impeltest  # pylint: disable=wrong-import-position
from served import Served  # pylint: disable=wrong-import-position


class OverConnection(calls.Side):
    """In the place of the store itself: a server of it."""

    def __init__(self, path, version=2):
        self.served = Served(path.parent)
        self.socket = calls.connect(self.served.port)
        super().__init__(self.socket.makefile("wb"), self.socket.makefile("rb"), "impel serve")
        if version == 3:
            self.call([b"HELLO", b"3"])

    def close(self):
        self.socket.close()


calls.Embedded = OverConnection
# The tests of that file run when it is imported; here they come with the others.
run_main, impeltest.main = impeltest.main, lambda: None
import test_differences as differences  # pylint: disable=wrong-import-position

NAMES = [b"s", b"s", b"t", b"u", b"text", b"q", b"none", b"", b"k\x00\xff"]
FAR = 4000000000


class KeyMaker(differences.Maker):
    """Commands on keys and transactions among those on streams."""

    open = False

    def key_command(self):
        pick = self.random.choice
        name, other = pick(NAMES), pick(NAMES)
        far = b"%d" % (FAR + self.random.randrange(1000))
        condition = pick([[], [], [b"NX"], [b"XX"], [b"GT"], [b"LT"], [b"NX", b"XX"], [b"GT", b"LT"],
                          [b"what"]])
        return pick([
            [b"RENAME", name, other], [b"RENAMENX", name, other], [b"COPY", name, other],
            [b"COPY", name, other, b"REPLACE"], [b"COPY", name, other, pick([b"DB", b"x"])],
            [b"EXPIREAT", name, far] + condition, [b"PEXPIREAT", name, far + b"123"] + condition,
            [b"EXPIRE", name, pick([b"-1", b"x", b"9223372036854775807", b"1000000"])] + condition,
            [b"PERSIST", name], [b"PEXPIRETIME", name], [b"EXPIRETIME", name],
            [b"EXISTS", name, other, name], [b"TYPE", name], [b"DEL", name], [b"UNLINK", name, other],
            [b"TOUCH", name, other], [b"DBSIZE"], [b"SET", name, b"value"], [b"GET", name],
            [b"OBJECT", b"REFCOUNT", name], [b"OBJECT", b"NOSUCH", name], [b"OBJECT"],
            [b"TTL", b"none"], [b"PTTL", b"none"], [b"SCAN", b"x"], [b"SCAN", b"0", b"COUNT", b"0"],
            [b"SCAN", b"0", b"MATCH"], [b"RENAME", name], [b"EXPIRE", name],
            self.other_types(name, other), self.other_types(name, other), self.other_types(name, other),
        ])

    def pop(self, names):
        return [b"BLPOP"] + names + [b"0.001"]

    def other_types(self, name, other):
        """Lists and sets, mostly where nobody works on a stream."""
        if self.chance(0.7):
            name = self.pick([b"q", b"text"])
        value = self.pick([b"x", b"y", b"", b"z" * 300, b"\x00\xff"])
        return self.pick([
            [b"LPUSH", name, value], [b"LPUSH", name, value, b"x"], [b"LPUSH", name, value],
            [b"SADD", name, value], [b"SADD", name, b"x", value, b"x"], [b"LPUSH", name], [b"SADD", name],
            self.pop([name]), self.pop([name, other]), [b"BLPOP", name],
            [b"BLPOP", name, self.pick([b"-1", b"x", b"", b" 1", b"1 ", b"inf", b"-inf", b"nan", b"1e30", b"9223372036854775",
                                        b"1x", b"-0.0001"])],
        ])

    def connection_command(self):
        return self.random.choice([
            [b"MULTI"], [b"MULTI"], [b"EXEC"], [b"EXEC"], [b"EXEC"], [b"DISCARD"],
            [b"WATCH", self.random.choice(NAMES)], [b"UNWATCH"], [b"PING"], [b"PING", b"a", b"b"],
            [b"PING", b"hi"], [b"ECHO"], [b"ECHO", b"x\r\ny"], [b"SELECT", b"0"], [b"SELECT", b"x"],
            [b"NOSUCH", b"a", b"b c", b"x" * 200], [b"CLIENT", b"GETNAME"], [b"CLIENT"],
            [b"CLIENT", b"NOSUCH"], [b"CLIENT", b"SETNAME", b"a b"], [b"HELLO", b"9"], [b"HELLO", b"x"],
            [b"CONFIG", b"GET", b"save"], [b"CONFIG", b"GET", b"nosuch"], [b"AUTH", b"x"],
            [b"AUTH", b"default", b"x"], [b"AUTH", b"nobody", b"x"],
            [b"CONFIG", b"SET", b"nosuch", b"1"], [b"CONFIG", b"SET", b"maxclients", b"x"],
            [b"CLIENT", b"UNBLOCK", b"999999"], [b"CLIENT", b"KILL", b"1.2.3.4:5"],
            [b"COMMAND", b"GETKEYS", b"XADD", b"s", b"*", b"f", b"v"],
            [b"COMMAND", b"GETKEYS", b"XREAD", b"COUNT", b"1", b"STREAMS", b"a", b"b", b"0", b"0"],
        ])

    def step(self):
        kind = self.random.random()
        if kind < 0.35:
            return self.key_command()
        if kind < 0.6:
            return self.connection_command()
        return self.one()


def first_difference(sides, commands):
    """With its place, or None. Inside MULTI only the shape of an EXEC's reply is compared where it
    has times in it: what is read there is read again outside."""
    for side in sides:
        side.call([b"DISCARD"])
        side.call([b"UNWATCH"])
        side.call([b"FLUSHALL"])
    queued = None
    for words in commands:
        name = words[0].upper()
        if name == b"XADD" and queued is not None and b"*" in b" ".join(words):
            continue  # each side would make an ID of its own
        if queued is not None and name in versions.ABORTS_IN_MULTI | versions.SILENT_IN_MULTI:
            continue
        if versions.MAKES_NO_EMPTY_CONSUMERS and (
                name == b"XINFO" or words[:2] == [b"XGROUP", b"CREATECONSUMER"]):
            continue
        if queued is not None and versions.is_not_for_transactions(words):
            continue
        if name == b"BLPOP" and words[-1] in (b"0", b"-0.0001"):  # the latter is rounded to 0
            continue
        if name in (b"XREAD", b"XREADGROUP") and b"BLOCK" in [w.upper() for w in words]:
            continue
        ours = sides[0].call(words)
        if isinstance(ours, calls.Error) and versions.NEWER_CHECKS.match(ours):
            continue
        theirs = sides[1].call(differences.same_id(words, ours) if queued is None else words)
        if name == b"EXEC" and isinstance(ours, list) and isinstance(theirs, list) and queued:
            good = len(ours) == len(theirs) and all(
                differences.same(w, a, b, False) for w, a, b in zip(queued, ours, theirs))
        elif b"QUEUED" in (ours, theirs):
            good = ours == theirs
        else:
            good = differences.same(words, ours, theirs, False)
        if not good:
            return "%s\n  ours   %r\n  theirs %r" % (differences.shown(words), ours, theirs)
        if name == b"MULTI" and queued is None:
            queued = []
        elif name in (b"EXEC", b"DISCARD"):
            queued = None
        elif ours == b"QUEUED" and queued is not None:
            queued.append(words)
    return None


def play(folder, version, seed):
    sides = OverConnection(folder / "db", version), calls.Server(folder)
    if version == 3:
        sides[1].call([b"HELLO", b"3"])
    rounds = int(os.environ.get("IMPEL_TEST_ROUNDS", "12"))
    print("# seed %d, RESP%d, %d rounds" % (seed, version, rounds))
    for number in range(rounds):
        maker = KeyMaker(seed * 1000003 + number)
        commands = maker.begin() + [maker.step() for _ in range(300)]
        commands = [c for words in commands for c in differences.spread(words)]
        what = first_difference(sides, commands)
        if what:
            end = impeltest.now() + 20
            size = len(commands) // 2
            while size >= 1 and impeltest.now() < end:
                at = 0
                while at < len(commands):
                    fewer = commands[:at] + commands[at + size:]
                    if first_difference(sides, fewer):
                        commands = fewer
                    else:
                        at += size
                size //= 2
            what = first_difference(sides, commands) or what
            impeltest.check(False, "seed %d, round %d: %s\nafter\n%s" % (
                seed, number, what, "\n".join("  " + differences.shown(w) for w in commands)))
    sides[0].close()


@impeltest.test
def commands_on_keys_and_transactions_answer_as_redis(tmp):
    play(tmp, 2, differences.SEED)


@impeltest.test
def the_same_in_resp3(tmp):
    play(tmp, 3, differences.SEED + 7)


run_main()
