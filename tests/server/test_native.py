"""The fenced steps as commands, with words that none of Impel's workers would send: whatever they are, each
is answered, the server goes on, and the file keeps every invariant.

    IMPEL_TEST_SEED=7 IMPEL_ROUNDS=100 python3 tests/server/test_native.py
"""
import os
import pathlib
import random
import socket

from impeltest import SLOWNESS, borrow, check, equal, main, run, test
from served import SERVE, Served

calls = borrow(pathlib.Path(__file__).resolve().parent.parent / "command" / "calls.py")

SEED = int(os.environ.get("IMPEL_TEST_SEED", "1"))
ROUNDS = int(os.environ.get("IMPEL_ROUNDS", "4"))
STEPS_A_ROUND = 400
TOKENS = [b"0" * 32, b"f" * 32, b"00112233445566778899aabbccddeeff"]
BAD_TOKENS = [b"", b"0" * 31, b"0" * 33, b"-1" * 16, b"zz" * 16, b" 1" * 16]
NUMBERS = [0, 1, 2, 5, 100, 1000, 60000, -1, -2, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 62, 2 ** 63 - 1, -2 ** 63, b"", b"x", b"1 ",
           b"9" * 30]
IDS = [b"0", b"0-0", b"1-1", b"5-1", b"18446744073709551615-18446744073709551615", b"-", b"+", b"x", b"", b"5-", b"9" * 200]
KEYS = [b"s", b"s", b"s", b"t", b"{s}:dead", b"audit", b"none", b"text", b"", b"k" * 700]
WORDS = [b"", b"0", b"1", b"1", b"a", b"b", b"impel-released", b"requeue", b"hand-over", b"park", b"add", b"back", b"drop",
         b"rejected", b"x" * 5000, b"\x00\xff"]

# Copies to park where there is no stream, and beside one of the same ID that is asked for (a leak once).
PARKED = [b"0-0", 1, b"rejected", b"why", 2, b"f", b"v"]
LEFT_OUT = [[stream, b"x", b"{s}:dead", b"g", b"a", TOKENS[0], 60000, 0, 0, 1] + items + PARKED
            for stream in (b"none", b"s") for items in ([], [b"0-0", 1, b"rejected", b"why", -2])]


class Steps:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.pick = self.random.choice

    def number(self):
        return self.random.randrange(400) if self.random.random() < 0.6 else self.pick(NUMBERS)

    def id(self):
        return b"%d-1" % self.random.randrange(1, 300) if self.random.random() < 0.75 else self.pick(IDS)

    def many(self, make, most=6):
        return [word for _ in range(self.random.randrange(most)) for word in make()]

    def own(self, name):
        """The words of a step after those that all have; mostly of the right form."""
        pick, number, ident = self.pick, self.number, self.id
        flag = lambda: pick([b"0", b"1"])  # noqa: E731
        item = lambda: [ident(), number()]  # noqa: E731
        old = [number(), number()]
        return {
            b"beat": lambda: [flag()],
            b"look": lambda: [flag(), flag(), number(), flag()],
            b"claim": lambda: [pick(WORDS), flag(), ident(), number(), number(), flag(), flag(), number(), number(), number(),
                               number(), pick([b"", b"", b"requeue", b"hand-over", b"park", b"x"]), pick(WORDS), flag()],
            b"create": lambda: [],
            b"take": lambda: old + self.many(item),
            b"renew": lambda: old + self.many(item),
            b"ack": lambda: old + self.many(item),
            b"release": lambda: old + [flag()] + self.many(lambda: item() + [flag(), number()]),
            b"park": lambda: old + self.many(lambda: item() + [pick(WORDS), pick(WORDS)] + self.copy()),
            b"leave": lambda: [],
            b"drop": lambda: [pick(WORDS), number()],
            b"read": lambda: [pick([1, 5, 100, number()]), number()],
            b"pending": lambda: [ident(), ident(), number(), flag(), pick(WORDS)],
            b"replay": lambda: [pick([b"add", b"back", b"drop", b"x"]), flag(), number(), 2, b"who", b"me"] +
                       self.many(lambda: [ident(), pick([12, 1, number()]), ident()] + pick([[0], [1, 0, 2], [2, 0, 1, 3, 1],
                                                                                             [number()]])),
            b"info": lambda: [],
            b"trim": lambda: [number(), ident(), number()] + self.many(lambda: [pick([b"g", b"h"])], 3),
        }[name]()

    def copy(self):
        kind = self.random.random()
        if kind < 0.4:
            return [-1]
        if kind < 0.6:
            return [-2]
        return [2, b"f", b"v"] if kind < 0.8 else [self.number()]

    def step(self, names):
        name = self.pick(names)
        known = self.random.random() < 0.7  # who asks is a worker that has beaten
        count = {b"claim": 4, b"park": 3, b"replay": 5, b"read": 1}.get(name, 2)
        keys = [b"s", b"x", b"{s}:dead", b"audit", b"x"][:count]
        if name == b"replay":
            keys[0] = b"{s}:dead"
        if not known:
            keys = [self.pick(KEYS) for _ in range(self.random.randrange(1, 6))]
        token = TOKENS[0] if known else self.pick(TOKENS + BAD_TOKENS)
        words = [b"impel." + name, len(keys) if self.random.random() < 0.95 else self.number()] + keys
        words += [self.pick([b"g", b"g", b"g", b"h", b"none", b""]), b"a" if known else self.pick([b"a", b"b", b"c" * 300, b""]),
                  token, 60000 if known else self.number(), self.pick([b"0", b"1", self.number()])]
        words += self.own(name)
        if self.random.random() < 0.15:
            at = self.random.randrange(1, len(words) + 1)
            words[at:at + self.random.randrange(2)] = self.pick([[], [self.number()], [self.pick(WORDS)], [self.id()]])
        return words


def fill(side):
    side.call([b"FLUSHALL"])
    side.call([b"SET", b"text", b"x"])
    for group in (b"g", b"h"):
        side.call([b"XGROUP", b"CREATE", b"s", group, b"0", b"MKSTREAM"])
    for n in range(1, 300):
        side.call([b"XADD", b"s", b"%d-1" % n, b"f", b"v%d" % n])
    for consumer, count in ((b"a", 100), (b"b", 80), (b"foreign", 20)):
        side.call([b"XREADGROUP", b"GROUP", b"g", consumer, b"COUNT", count, b"STREAMS", b"s", b">"])
    side.call([b"XDEL", b"s", b"7-1", b"8-1"])
    side.call([b"impel.beat", 2, b"s", b"x", b"g", b"a", TOKENS[0], 60000, 0, 1])


@test
def hostile_words_are_answered_and_break_nothing(tmp):
    served = Served(tmp)
    side = calls.Side.__new__(calls.Side)
    connection = socket.create_connection(("127.0.0.1", served.port), timeout=60 * SLOWNESS)
    calls.Side.__init__(side, connection.makefile("wb"), connection.makefile("rb"), "the server")
    names = [name[6:] for name in side.call([b"COMMAND", b"LIST"]) if name.startswith(b"impel.")]
    equal(len(names), 16)
    done = {name: 0 for name in names}
    for number in range(ROUNDS):
        seed = SEED * 1000003 + number
        steps = Steps(seed)
        fill(side)
        for park in LEFT_OUT:
            side.call([b"impel.park", 3] + park)
        for _ in range(STEPS_A_ROUND):
            words = steps.step(names)
            try:
                reply = side.call(words)
            except Exception:
                print("# seed %d: %r" % (seed, words))
                raise
            done[words[0][6:]] += not isinstance(reply, calls.Error)
        check(served.client().ping(), "it goes on")
        checked = run([SERVE, served.db, "check"])
        equal(checked.code, 0, "seed %d: %s" % (seed, checked.out))
    print("# took effect: %s" % ", ".join("%s %d" % (n.decode(), c) for n, c in sorted(done.items())))
    check(all(done.values()), "each was carried out at least once")
    equal(served.process.stop().code, 0)


main()
