#!/usr/bin/python3
"""Damage: bytes of the file are changed, or its end is cut off, at rest and while it is served. Whatever
is asked then is answered with what is there or with an error that names the file and `impel check`;
where LMDB itself cannot read on, the server ends and says the same. It never crashes or hangs.

    IMPEL_TEST_SEED=7 IMPEL_ROUNDS=1000 python3 tests/server/test_damage.py
"""
import os
import pathlib
import random
import re
import shutil
import signal
import socket

from impeltest import SLOWNESS, Failed, borrow, check, contains, equal, free_port, main, run, skip, start, test, wait_for
from served import SERVE, Served

calls = borrow(pathlib.Path(__file__).resolve().parent.parent / "command" / "calls.py")

ROUNDS = int(os.environ.get("IMPEL_ROUNDS", "15"))
SEED = int(os.environ.get("IMPEL_TEST_SEED", "1"))
PAGE = 4096
DAMAGE = re.compile(rb"(MISCONF|ERR) .*db( is damaged .*see `impel check`| was removed or replaced or emptied |"
                    rb": (Input/output error|Bad address) .*see `impel check`)")
# Damage to a file in use that was met once: an inner page that LMDB then takes for a page of many; a large
# value that says it has hundreds of millions of pages, which LMDB notes one by one when they are freed; a
# consumer's row that cannot be found from an entry that it holds.
KNOWN = [1000251, 1000498, 21000181]
# What only damage explains.
SUSPECT = re.compile(rb"MISCONF|damaged|CORRUPT|corrupt")

NAMES = [b"s", b"t", b"n" * 600, b"e"]
CONTENT = \
    [[b"XADD", b"s", b"%d-1" % (n + 1), b"f", b"value %d" % n, b"g", b"x" * (n % 50)] for n in range(300)] + \
    [[b"XADD", b"t", b"IDMP", b"p%d" % (n % 3), b"i%d" % n, b"*", b"f", b"v"] for n in range(30)] + \
    [[b"XADD", b"n" * 600, b"%d-1" % (n + 1), b"f", b"big" * 2000] for n in range(5)] + [
        [b"XGROUP", b"CREATE", b"s", b"g", b"0"], [b"XGROUP", b"CREATE", b"s", b"G" * 700, b"5-0"],
        [b"XGROUP", b"CREATE", b"t", b"h", b"0"],
        [b"XREADGROUP", b"GROUP", b"g", b"a", b"COUNT", b"100", b"STREAMS", b"s", b">"],
        [b"XREADGROUP", b"GROUP", b"g", b"b", b"COUNT", b"50", b"STREAMS", b"s", b">"],
        [b"XREADGROUP", b"GROUP", b"h", b"c" * 500, b"CLAIM", b"0", b"STREAMS", b"t", b">"],
        [b"XNACK", b"s", b"g", b"FAIL", b"IDS", b"3", b"3-1", b"4-1", b"5-1"],
        [b"XDEL", b"s", b"7-1", b"8-1"], [b"SET", b"text", b"a string"], [b"SET", b"long", b"l" * 9000],
        [b"LPUSH", b"list", b"a", b"b", b"c"], [b"SADD", b"set", b"a", b"b", b"m" * 800],
        [b"XADD", b"e", b"1-1", b"f", b"v"], [b"PEXPIREAT", b"e", b"4000000000000"],
        [b"XGROUP", b"CREATE", b"e", b"gone", b"0"], [b"XGROUP", b"DESTROY", b"e", b"gone"]]
# What is asked of a damaged file: first what reads, then what writes.
READS = \
    [[b"XRANGE", n, b"-", b"+"] for n in NAMES] + [[b"XINFO", b"STREAM", n, b"FULL", b"COUNT", b"0"] for n in NAMES] + [
        [b"XPENDING", b"s", b"g", b"-", b"+", b"1000"], [b"XPENDING", b"t", b"h"], [b"XINFO", b"GROUPS", b"s"],
        [b"XINFO", b"CONSUMERS", b"s", b"g"], [b"GET", b"text"], [b"GET", b"long"], [b"DUMP", b"s"], [b"DUMP", b"t"],
        [b"KEYS", b"*"], [b"SCAN", b"0", b"COUNT", b"1000"], [b"DBSIZE"], [b"XREVRANGE", b"s", b"+", b"-", b"COUNT", b"10"],
        [b"XREAD", b"STREAMS", b"s", b"t", b"0", b"0"], [b"MEMORY", b"USAGE", b"s"], [b"INFO"], [b"RANDOMKEY"],
        [b"TTL", b"e"], [b"XLEN", b"s"]]
WRITES = [
    [b"XADD", b"s", b"*", b"f", b"v"], [b"XADD", b"t", b"IDMP", b"p1", b"i4", b"*", b"f", b"v"],
    [b"XREADGROUP", b"GROUP", b"g", b"d", b"COUNT", b"20", b"STREAMS", b"s", b">"],
    [b"XREADGROUP", b"GROUP", b"g", b"a", b"STREAMS", b"s", b"0"],
    [b"XREADGROUP", b"GROUP", b"h", b"d", b"CLAIM", b"0", b"STREAMS", b"t", b">"],
    [b"XACK", b"s", b"g"] + [b"%d-1" % n for n in range(1, 40)], [b"XAUTOCLAIM", b"s", b"g", b"d", b"0", b"-"],
    [b"XCLAIM", b"s", b"g", b"d", b"0", b"50-1", b"51-1"], [b"XNACK", b"s", b"g", b"SILENT", b"IDS", b"1", b"60-1"],
    [b"COPY", b"s", b"copy"], [b"COPY", b"t", b"copy2"], [b"COPY", b"list", b"list2"], [b"COPY", b"set", b"set2"],
    [b"LPUSH", b"list", b"d"], [b"SADD", b"set", b"z", b"m" * 800], [b"BLPOP", b"list", b"0.01"], [b"RENAME", b"e", b"ee"],
    [b"XTRIM", b"s", b"MAXLEN", b"20"], [b"XDEL", b"n" * 600, b"2-1"], [b"XGROUP", b"DELCONSUMER", b"s", b"g", b"b"],
    [b"XGROUP", b"DESTROY", b"s", b"G" * 700], [b"XCFGSET", b"t", b"IDMP-MAXSIZE", b"5"], [b"SET", b"text", b"other"],
    [b"PERSIST", b"ee"], [b"DEL", b"t", b"long", b"set"], [b"FLUSHALL"], [b"XADD", b"s", b"*", b"f", b"v"]]


def made(tmp, sync):
    """A file that has something of everything; with `full` also an area for records."""
    folder = tmp / ("whole-" + sync)
    folder.mkdir()
    served = Served(folder, sync=sync)
    side = Connection(served)
    for words in CONTENT:
        reply = side.call(words)
        check(not isinstance(reply, calls.Error), "%r: %r" % (words, reply))
    equal(served.process.stop().code, 0)
    equal(run([SERVE, served.db, "check"]).code, 0)
    return served.db.read_bytes()


class Connection(calls.Side):
    def __init__(self, served):
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=30 * SLOWNESS)
        super().__init__(self.socket.makefile("wb"), self.socket.makefile("rb"), "the server")


class Damage:
    """A few bytes of a file, changed."""

    def __init__(self, seed, size):
        self.random = random.Random(seed)
        self.cut = None
        self.bytes = {}
        if self.random.random() < 0.12:
            self.cut = self.random.randrange(size)
            return
        page = self.random.randrange(size // PAGE) * PAGE
        for _ in range(self.random.choice([1, 1, 1, 2, 8])):
            kind = self.random.random()
            at = self.random.randrange(16) if kind < 0.15 else \
                self.random.randrange(400) if kind < 0.5 else self.random.randrange(PAGE)
            self.bytes[page + at] = self.random.randrange(256)

    def done_to(self, path):
        with open(path, "r+b") as file:
            for at, byte in self.bytes.items():
                file.seek(at)
                file.write(bytes([byte]))
            if self.cut is not None:
                file.truncate(self.cut)


def ended_well(served):
    """The server has ended by itself: it said why. Where LMDB wrote over the heap the C library aborts."""
    done = served.process.wait()
    told = done.err + done.out
    check(done.code == 1 or (done.code == -signal.SIGABRT and "crashed while" in told),
          "it ended with %d: %s" % (done.code, done.err[-2000:]))
    check(str(served.db) in told and "impel check" in told, told[-2000:])


def ask(served, commands):
    """False if the server ended, which it then explained."""
    try:
        side = Connection(served)
        for words in commands:
            reply = side.call(words)
            if isinstance(reply, calls.Error) and SUSPECT.search(reply):
                check(DAMAGE.match(reply), "%r: %r" % (words, reply))
                served.told = True
    except TimeoutError:
        check(False, "no answer to %r" % (words,))
    except OSError:
        ended_well(served)
        return False
    except Failed as failed:
        check("ended in the middle" in str(failed), str(failed))
        ended_well(served)
        return False
    return True


def start_damaged(folder, db, sync):
    """A server of a file that may be damaged; None if it refused, saying so."""
    served = Served.__new__(Served)
    served.port, served.db, served.folder, served.told = free_port(), db, folder, False
    served.process = start([SERVE, db, sync, "127.0.0.1:%d" % served.port], folder, name="serve")
    wait_for(lambda: "serving" in served.process.out() or not served.process.running(),
             what="the server to serve or to refuse")
    if not served.process.running():
        ended_well(served)
        return None
    return served


def play(tmp, whole, seed, sync, live):
    damage = Damage(seed, len(whole))
    folder = tmp / ("round-%d" % seed)
    folder.mkdir()
    db = folder / "db"
    db.write_bytes(whole)
    if not live:
        damage.done_to(db)
    served = start_damaged(folder, db, sync)
    if served is None:
        shutil.rmtree(folder)
        return "refused"
    if live:
        ask(served, READS[:2])
        damage.done_to(db)
    outcome = "ended"
    if ask(served, READS) and ask(served, WRITES):
        done = served.process.stop()
        check(done.code == 0 or str(db) in done.err + done.out, "it ended with %d: %s" % (done.code, done.err[-2000:]))
        outcome = "told" if served.told else "silent"
    done = run([SERVE, db, "check"])
    check(done.code in (0, 1), "check ended with %d: %s" % (done.code, done.err[-2000:]))
    shutil.rmtree(folder)
    return outcome


def rounds(tmp, live):
    for sync in ("process", "full"):
        rounds_of(tmp, made(tmp, sync), sync, live)


def rounds_of(tmp, whole, sync, live):
    count = {}
    for seed in [SEED * 1000003 + number for number in range(ROUNDS)] + (KNOWN if live and sync == "process" else []):
        try:
            outcome = play(tmp, whole, seed, sync, live)
        except BaseException:
            print("# seed %d, %s, %s: %r" % (seed, sync, "live" if live else "at rest", vars(Damage(seed, len(whole)))))
            raise
        count[outcome] = count.get(outcome, 0) + 1
    print("# %s, %d bytes, %s" % (sync, len(whole), count))


@test
def a_damaged_file_is_told_of_when_it_is_opened_or_asked(tmp):
    rounds(tmp, False)


@test
def a_file_that_is_damaged_while_it_is_served_is_told_of(tmp):
    if "ASAN_OPTIONS" in os.environ:
        skip("the sanitizer ends the server where LMDB leaves its own copy of a page")
    rounds(tmp, True)


@test
def a_large_row_that_is_replaced_is_looked_at_first(tmp):
    """LMDB frees as many pages as the old one says it has."""
    if "ASAN_OPTIONS" in os.environ:
        skip("the sanitizer ends the server where LMDB leaves its own copy of a page")
    served = Served(tmp)
    side = Connection(served)
    name = b"n" * 3000
    equal(side.call([b"XADD", name, b"1-1", b"f", b"v"]), b"1-1")
    whole = served.db.read_bytes()
    with open(served.db, "r+b") as file:
        for found in re.finditer(re.escape(name), whole):
            page = found.start() // PAGE * PAGE
            if whole[page + 10] & 4:  # the first of several
                file.seek(page + 12)
                file.write((400000000).to_bytes(4, "little"))
    reply = side.call([b"XADD", name, b"2-1", b"f", b"v"])
    check(isinstance(reply, calls.Error) and DAMAGE.match(reply) and b"number of pages" in reply, repr(reply))


@test
def a_crash_names_the_file_that_may_be_the_cause(tmp):
    for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL):
        folder = tmp / number.name
        folder.mkdir()
        served = Served(folder)
        equal(Connection(served).call([b"XADD", b"s", b"1-1", b"f", b"v"]), b"1-1")
        served.process.signal(number)
        done = served.process.wait()
        if "ASAN_OPTIONS" not in os.environ or number == signal.SIGABRT:  # it ends the others in its own way
            equal(done.code, -number)
        contains(done.err, "impel serve: crashed while it had %s open: if `impel check` finds that damaged" % served.db)
        equal(run([SERVE, served.db, "check"]).code, 0)


main()
