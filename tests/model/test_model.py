#!/usr/bin/python3
"""The model test: several clients send the same random commands to this server and to redis-server,
some of them wait, and every reply of every client is compared.

A round is a list of steps, made from a seed before any is sent: (client, words). A client that waits
sends nothing until something wakes it; who was woken, and by what reply, has to be the same on both
sides after each step. At the end of a round everybody is unblocked and the whole content is compared.

A round that differs is shrunk to the fewest steps that still do, printed, and written to
model-failure-SEED.txt in the build folder; put into replays/ that file is a test from then on.

    IMPEL_TEST_SEED=7 IMPEL_TEST_SECONDS=600 python3 tests/model/test_model.py
    IMPEL_TEST_REPLAY=model-failure-7.txt python3 tests/model/test_model.py

The commands are those of tests/command and tests/server; so are most of the differences between
versions (tests/lib/versions.py).
"""
import ast
import os
import pathlib
import re
import select
import socket

import versions

from impeltest import BUILD, Failed, borrow, check, main, now, start_redis, test

HERE = pathlib.Path(__file__).resolve().parent
differences = borrow(HERE.parent / "command" / "test_differences.py")
same_server = borrow(HERE.parent / "server" / "test_same.py")
import calls  # pylint: disable=wrong-import-position
from served import Served  # pylint: disable=wrong-import-position

SECONDS = float(os.environ.get("IMPEL_TEST_SECONDS", "12"))  # for each version of RESP
SEED = int(os.environ.get("IMPEL_TEST_SEED", "1"))
CLIENTS = 4
STEPS_A_ROUND = 150
ROUNDS_MIN = 8  # however slow the machine is
PATIENCE_S = 60

# What is not done while a client waits, on both sides, where the other server wakes readers with nothing.
NOT_WHILE_WAITING = (b"XTRIM", b"XSETID", b"EXEC")
# Such a server also wakes with an empty list who waits at a stream whose last ID (by XSETID, say) is above
# what is in it, as soon as anything happens to the key. Others let the reader wait: see end_empty.


# ---- steps ------------------------------------------------------------------------------------

class StepMaker(same_server.KeyMaker):
    """Steps of several clients: commands on streams and keys, transactions, and waits."""

    def wait_command(self):
        key = self.often([b"s", b"t"], 0.7)
        if self.chance(0.12):
            return [b"BLPOP", self.pick([b"q", b"q", b"text", key]), b"0"]
        count = self.maybe(0.4, [b"COUNT", self.random.randint(1, 3)])
        if self.chance(0.35):
            last = self.pick([b"$", b"$", self.id(0)])
            last = b"$" if last == b"+" and not versions.READS_LAST else last
            return [b"XREAD"] + count + [b"BLOCK", b"0", b"STREAMS", key, last]
        no_ack = self.maybe(0.15, [b"NOACK"])
        return [b"XREADGROUP", b"GROUP", self.pick([b"g", b"h"]), self.consumer()] + count + \
            [b"BLOCK", b"0"] + no_ack + [b"STREAMS", key, b">"]

    def pop(self, names):
        return [b"LPUSH", names[0], b"x"]  # waits are wait_command()'s

    def transaction_command(self):
        return self.pick([[b"MULTI"], [b"EXEC"], [b"EXEC"], [b"DISCARD"], [b"WATCH", self.pick([b"s", b"t"])],
                          [b"UNWATCH"]])

    def plain_add(self):
        self.top += 1
        self.given.append(b"%d-0" % self.top)
        return [b"XADD", self.often([b"s", b"t"], 0.7), b"%d-0" % self.top] + self.payload()

    def moved(self):
        """What makes a group deliver again, or an owner change."""
        key, group = self.often([b"s", b"t"], 0.7), self.pick([b"g", b"h"])
        return self.pick([
            [b"XGROUP", b"SETID", key, group, self.pick([b"0", b"$", self.id(0)])],
            [b"XGROUP", b"DELCONSUMER", key, group, self.consumer()],
            [b"XGROUP", b"CREATE", key, group, self.pick([b"0", b"$"]), b"MKSTREAM"],
            [b"XGROUP", b"DESTROY", key, group],
            [b"XCLAIM", key, group, self.consumer(), b"0", self.id(0), b"FORCE"],
            [b"XDEL", key, self.id(0)],
        ])

    def step(self):
        kind = self.random.random()
        client = self.random.randrange(CLIENTS)
        if kind < 0.16:
            words = self.wait_command()
        elif kind < 0.36:
            words = self.plain_add()
        elif kind < 0.48:
            words = self.transaction_command()
        elif kind < 0.62:
            words = self.moved()
        elif kind < 0.72:
            words = self.key_command()
        elif kind < 0.76:
            return client, [b"UNBLOCK", self.pick([b"TIMEOUT", b"ERROR"])]
        else:
            words = self.one()
            if b"BLOCK" in [w.upper() for w in words]:
                words = self.plain_add()
        return client, [w if isinstance(w, bytes) else str(w).encode() for w in words]


def steps_of(seed):
    maker = StepMaker(seed)
    return [(0, words) for words in maker.begin()] + [maker.step() for _ in range(STEPS_A_ROUND)]


def spread(step):
    """What a step is on the wire: a consumer is made before its first read, say (see there)."""
    client, words = step
    return [step] if words[0] == b"UNBLOCK" else [(client, w) for w in differences.spread(words)]


# ---- one side ---------------------------------------------------------------------------------

class Client(calls.Side):
    def __init__(self, port, version, name):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(self.socket.makefile("wb"), self.socket.makefile("rb"), name)
        if version == 3:
            self.call([b"HELLO", b"3"])
        self.id = self.call([b"CLIENT", b"ID"])
        self.wait_key = None  # of the command that waits

    def send(self, words):
        self.into.write(calls.encode(words))
        self.into.flush()

    def has_reply(self, timeout=0):
        return bool(select.select([self.socket], [], [], timeout)[0])

    def reply(self):
        return self._read()


class Place:
    """A server with its clients. `control` counts who waits and unblocks."""

    def __init__(self, port, version, name):
        self.waits = self.wakes = 0  # how often somebody waited, and got something
        self.control = Client(port, 2, name)
        self.clients = [Client(port, version, name) for _ in range(CLIENTS)]

    def blocked_count(self):
        info = self.control.call([b"INFO", b"clients"])
        return int(re.search(rb"blocked_clients:(\d+)", info).group(1))

    def waiting(self):
        return [c for c in self.clients if c.wait_key is not None]

    def woken(self):
        """What those got who do not wait any more: {client: reply}."""
        left = self.blocked_count()
        replies = {}
        end = now() + PATIENCE_S
        while len(self.waiting()) > left:
            for number, client in enumerate(self.clients):
                if client.wait_key is not None and client.has_reply():
                    client.wait_key = None
                    replies[number] = client.reply()
                    self.wakes += isinstance(replies[number], (list, dict))
            if len(self.waiting()) > left:
                check(now() < end, "%s: %d wait, the server says %d" % (
                    self.control.name, len(self.waiting()), left))
        return replies

    def run(self, number, words, key):
        """The reply, or None: it waits now."""
        client = self.clients[number]
        before = len(self.waiting())
        client.send(words)
        if key is None:
            return client.reply()
        end = now() + PATIENCE_S
        while not client.has_reply(0.0005):
            if self.blocked_count() > before and not client.has_reply():
                client.wait_key = key
                self.waits += 1
                return None
            check(now() < end, "%s: neither a reply nor a wait" % self.control.name)
        return client.reply()

    def clear(self):
        self.unblock_all()
        for client in self.clients:
            client.call([b"DISCARD"])
            client.call([b"UNWATCH"])
        self.clients[0].call([b"FLUSHALL"])

    def unblock_all(self):
        for client in self.waiting():
            self.control.call([b"CLIENT", b"UNBLOCK", client.id])
        return self.woken()


# ---- a round ----------------------------------------------------------------------------------

def block_key(words, queued):
    """The key for which a command may wait."""
    upper = [w.upper() for w in words]
    if upper[0] == b"BLPOP" and queued is None and len(words) > 2:
        return words[1]
    if queued is not None or upper[0] not in (b"XREAD", b"XREADGROUP") or b"BLOCK" not in upper:
        return None
    return words[upper.index(b"STREAMS") + 1] if b"STREAMS" in upper else None


def is_left_out(place, words, queued):
    name = words[0].upper()
    upper = [w.upper() for w in words]
    if name == b"XINFO" and versions.MAKES_NO_EMPTY_CONSUMERS:
        return True
    if name == b"XADD" and queued is not None and b"*" in b" ".join(words):
        return True  # each side would make an ID of its own
    if queued is not None and (
            b"BLOCK" in upper or name in versions.ABORTS_IN_MULTI or versions.is_not_for_transactions(words)):
        return True
    if not place.waiting() or not versions.WAKES_EMPTY:
        return False
    trims = name == b"XADD" and (b"MAXLEN" in upper or b"MINID" in upper)
    moves = name in (b"RENAME", b"RENAMENX", b"COPY")
    drops = upper[:2] == [b"XGROUP", b"DELCONSUMER"]
    return trims or moves or drops or name in NOT_WHILE_WAITING


def same_reply(words, ours, theirs, queued):
    if words[0].upper() == b"EXEC" and isinstance(ours, list) and isinstance(theirs, list) and queued:
        return len(ours) == len(theirs) and all(
            differences.same(w, a, b, False) for w, a, b in zip(queued, ours, theirs))
    if b"QUEUED" in (ours, theirs):
        return ours == theirs
    return differences.same(words, ours, theirs, False)


def same_wakes(ours, theirs):
    def fits(a, b):
        if isinstance(a, calls.Error) and isinstance(b, calls.Error):
            return a == b or versions.in_other_words(a, b, versions.WOKEN)
        return type(a) is type(b) and a == b
    return ours.keys() == theirs.keys() and all(fits(ours[n], theirs[n]) for n in ours)


def is_empty(reply):
    """What a read brings that found a stream but nothing in it: [[s, []]], or {s: []}."""
    if isinstance(reply, dict):
        return all(entries == [] for entries in reply.values())
    return isinstance(reply, list) and all(isinstance(each, list) and each[1:] == [[]] for each in reply)


def end_empty(place, ours, theirs):
    """Whom only the older server woke, with nothing, is sent away here too."""
    for number in [n for n in theirs if versions.WAKES_EMPTY and n not in ours and is_empty(theirs[n])]:
        place.control.call([b"CLIENT", b"UNBLOCK", place.clients[number].id, b"TIMEOUT"])
        check(list(place.woken()) == [number], "nobody else is woken by that")
        del theirs[number]


def told(step, ours, theirs):
    return "client %d: %s\n  ours   %r\n  theirs %r" % (step[0], differences.shown(step[1]), ours, theirs)


def unblock(places, number, how):
    replies = []
    for place in places:
        client = place.clients[number]
        if client.wait_key is not None:
            place.control.call([b"CLIENT", b"UNBLOCK", client.id, how])
        replies.append(place.woken())
    return replies


def play_step(places, step, queued):
    """None, or what differs. Keeps `queued`: what each client has in its transaction."""
    number, words = step
    ours, theirs = places
    if words[0] == b"UNBLOCK":
        wakes = unblock(places, number, words[1])
        return None if same_wakes(*wakes) else told(step, *wakes)
    if ours.clients[number].wait_key is not None or is_left_out(ours, words, queued[number]):
        return None
    key = block_key(words, queued[number])
    our_reply = ours.run(number, words, key)
    if isinstance(our_reply, calls.Error) and versions.NEWER_CHECKS.match(our_reply):
        return None
    if queued[number] is None:
        words = differences.same_id(words, our_reply)
    their_reply = theirs.run(number, words, key)
    if (our_reply is None) != (their_reply is None) or \
            our_reply is not None and not same_reply(words, our_reply, their_reply, queued[number]):
        return told((number, words), our_reply, their_reply)
    wakes = ours.woken(), theirs.woken()
    end_empty(ours, *wakes)
    if not same_wakes(*wakes):
        return "woken by " + told((number, words), *wakes)
    name = words[0].upper()
    if name == b"MULTI" and queued[number] is None:
        queued[number] = []
    elif name in (b"EXEC", b"DISCARD"):
        queued[number] = None
    elif our_reply == b"QUEUED" and queued[number] is not None:
        queued[number].append(words)
    return None


def first_difference(places, steps):
    for place in places:
        place.clear()
    queued = [None] * CLIENTS
    for step in (part for whole in steps for part in spread(whole)):
        what = play_step(places, step, queued)
        if what:
            return what
    wakes = [place.unblock_all() for place in places]
    if not same_wakes(*wakes):
        return "unblocked at the end\n  ours   %r\n  theirs %r" % tuple(wakes)
    for number in range(CLIENTS):
        for place in places:
            place.clients[number].call([b"DISCARD"])
    for words in differences.CONTENT:
        replies = [place.clients[0].call(words) for place in places]
        if not differences.same(words, replies[0], replies[1], False):
            return "at the end: " + told((0, words), *replies)
    return None


def shrink(places, steps, seconds=60):
    end = now() + seconds
    size = len(steps) // 2
    while size >= 1 and now() < end:
        at = 0
        while at < len(steps) and now() < end:
            fewer = steps[:at] + steps[at + size:]
            if first_difference(places, fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


def write_steps(path, steps, what):
    lines = ["# " + line for line in what.splitlines()]
    lines += ["%d %r" % step for step in steps]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_steps(path):
    steps = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            number, words = line.split(" ", 1)
            steps.append((int(number), ast.literal_eval(words)))
    return steps


def places_of(folder, version):
    served = Served(folder)
    _, port = start_redis(folder)
    return [Place(served.port, version, "impel serve"), Place(port, version, "redis-server")]


def play(folder, version, seed):
    places = places_of(folder, version)
    begun, number = now(), 0
    while now() - begun < SECONDS or number < ROUNDS_MIN:
        round_seed = seed * 1000003 + number
        steps = steps_of(round_seed)
        what = first_difference(places, steps)
        if what:
            steps = shrink(places, steps)
            what = first_difference(places, steps) or what
            path = BUILD / ("model-failure-%d.txt" % round_seed)
            write_steps(path, steps, "RESP%d\n%s" % (version, what))
            raise Failed("seed %d, round %d, RESP%d: %s\nafter\n%s\nin %s" % (
                seed, number, version, what,
                "\n".join("  %d %s" % (c, differences.shown(w)) for c, w in steps), path))
        number += 1
    print("# seed %d, RESP%d: %d rounds, %d waits, %d of them ended by something to read" % (
        seed, version, number, places[0].waits, places[0].wakes))
    check(places[0].wakes > number, "hardly anybody was woken")


@test
def what_differed_once_does_not_any_more(tmp):
    one = os.environ.get("IMPEL_TEST_REPLAY")
    paths = [pathlib.Path(one)] if one else sorted((HERE / "replays").glob("*.txt"))
    for version in (2, 3):
        folder = tmp / str(version)
        folder.mkdir()
        places = places_of(folder, version)
        for path in paths:
            what = first_difference(places, read_steps(path))
            check(not what, "%s: %s" % (path.name, what))


@test
def many_clients_see_the_same(tmp):
    play(tmp, 2, SEED)


@test
def many_clients_see_the_same_in_resp3(tmp):
    play(tmp, 3, SEED + 7)


main()
