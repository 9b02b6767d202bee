"""SIGKILL of `impel serve` and of processes on the same file, under load, at moments that nothing
chooses: everything that was answered is there. And a disk that fills up. $IMPEL_ROUNDS = how often
(20); $IMPEL_SEED = the seed, which is printed."""
import json
import os
import random
import resource
import signal
import socket
import subprocess
import threading

import redis

from impeltest import (DEADLINE_S, SLOWNESS, Failed, check, contains, equal, free_port, impel_argv, main,
                       skip, start, test, wait_for)

ROUNDS = int(os.environ.get("IMPEL_ROUNDS", "20"))
SEED = int(os.environ.get("IMPEL_SEED", "0")) or random.randrange(1, 1 << 32)
DEPTH = 16  # requests under way at once, of one writer


def command(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Server:
    """`impel serve`, which may be killed and started again on the same file."""

    def __init__(self, folder, params="", db=None):
        self.folder, self.params, self.db = folder, params, db or folder / "db"
        self.port, self.process = free_port(), None
        self.start()

    def start(self):
        self.process = start(impel_argv("serve", "--listen", "127.0.0.1:%d" % self.port,
                                        store="lmdb:%s%s" % (self.db, self.params)), self.folder)
        self.process.wait_for_output("serving")

    def client(self):
        return redis.Redis(port=self.port, decode_responses=True, socket_timeout=DEADLINE_S * SLOWNESS)

    def kill(self):
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def check(self):
        done = start(impel_argv("check", store=self.db), self.folder).wait()
        equal(done.code, 0, done.out + done.err)


class Load:
    """Clients that add and one that reads and acknowledges, until their connection breaks. What was
    answered to whom is kept across rounds."""

    def __init__(self, writers=3):
        self.sent = [0] * writers       # adds that were begun, by writer
        self.answered = [0] * writers   # and answered
        self.acked, self.acking = set(), set()
        self.seen = set()               # entries that a read has brought
        self.failures = []
        self.threads = []

    def begin(self, port):
        targets = [(self.write, n) for n in range(len(self.sent))] + [(self.read, None)]
        self.threads = [threading.Thread(target=self.guard, args=(f, port, n)) for f, n in targets]
        for thread in self.threads:
            thread.start()

    def end(self):
        for thread in self.threads:
            thread.join(DEADLINE_S * SLOWNESS)
            check(not thread.is_alive(), "a client hangs after the kill")
        if self.failures:
            raise Failed(self.failures[0])

    def guard(self, function, port, number):
        try:
            with socket.create_connection(("127.0.0.1", port), DEADLINE_S * SLOWNESS) as s:
                function(s, number)
        except (OSError, redis.ConnectionError):
            pass  # the kill
        except Exception as why:  # pylint: disable=broad-except
            self.failures.append(repr(why))

    def write(self, s, number):
        stream = s.makefile("rb")
        while True:
            first = self.sent[number]
            self.sent[number] = first + DEPTH
            s.sendall(b"".join(command("XADD", "s", "*", "w", number, "n", n)
                               for n in range(first, first + DEPTH)))
            for _ in range(DEPTH):
                if not stream.readline().startswith(b"$") or not stream.readline().endswith(b"\n"):
                    return
                self.answered[number] += 1

    def read(self, s, _):
        connection = redis.connection.Connection()
        connection._sock = s  # the parser reads from it
        connection._parser.on_connect(connection)
        while True:
            s.sendall(command("XREADGROUP", "GROUP", "g", "c", "COUNT", 50, "BLOCK", 100, "STREAMS", "s", ">"))
            got = connection.read_response()
            ids = [entry[0] for entry in got[0][1]] if got else []
            self.seen.update(ids)
            half = ids[:len(ids) // 2]
            if half:
                self.acking.update(half)
                s.sendall(command("XACK", "s", "g", *half))
                equal(connection.read_response(), len(half), "acknowledged")
                self.acked.update(half)

    def total(self):
        return sum(self.answered)

    def verify(self, r):
        """Compares what clients were told with what is there; then they begin where it ends."""
        there = [[] for _ in self.sent]
        for _, fields in r.xrange("s"):
            there[int(fields["w"])].append(int(fields["n"]))
        for number, numbers in enumerate(there):
            equal(numbers, list(range(len(numbers))), "writer %d" % number)
            check(self.answered[number] <= len(numbers) <= self.sent[number],
                  "writer %d sent %d, was told of %d, there are %d" % (
                      number, self.sent[number], self.answered[number], len(numbers)))
            self.sent[number] = self.answered[number] = len(numbers)
        pending = {p["message_id"].encode() for p in r.xpending_range("s", "g", "-", "+", 1 << 30)}
        equal(pending & self.acked, set(), "acknowledged and still pending")
        equal((self.seen - self.acking) - pending, set(), "delivered, not acknowledged, not pending")
        equal(r.xpending("s", "g")["pending"], len(pending))


def rounds(tmp, params, count, disturb=None):
    print("# seed %d" % SEED)
    dice = random.Random(SEED)
    server, load, seen = Server(tmp, params), Load(), 0
    server.client().xgroup_create("s", "g", "0", mkstream=True)
    for number in range(count):
        if number % 10 == 9:  # or it would spend its time on reading what there is
            server.client().flushall()
            server.client().xgroup_create("s", "g", "0", mkstream=True)
            seen += len(load.seen)
            load = Load()
        target = load.total() + dice.randrange(1, 1500)
        load.begin(server.port)
        wait_for(lambda: load.total() >= target or load.failures, what="answers", pause_s=0.001)  # pylint: disable=cell-var-from-loop
        if disturb:
            disturb(server)
        server.kill()
        load.end()
        server.start()
        load.verify(server.client())
    equal(server.process.stop().code, 0)
    server.check()
    check(seen + len(load.seen) > 0, "the reader read nothing")


@test
def a_kill_loses_nothing_that_was_answered_sync_full(tmp):
    rounds(tmp, "", ROUNDS // 2)


@test
def a_kill_loses_nothing_that_was_answered_sync_process(tmp):
    rounds(tmp, "?sync=process", ROUNDS - ROUNDS // 2)


@test
def writers_beside_it_may_be_killed_while_it_serves(tmp):
    """Processes that have the file open and write without end; the server and its blocked clients go
    on, and what the dead were told is there."""
    print("# seed %d" % SEED)
    dice = random.Random(SEED)
    server = Server(tmp, "?sync=process")
    r = server.client()
    line = "".join(json.dumps({"n": str(n)}) + "\n" for n in range(200000))
    (tmp / "lines").write_text(line)
    r.xgroup_create("t", "g", "0", mkstream=True)
    for _ in range(max(2, ROUNDS // 8)):
        before = r.xlen("t")
        with open(tmp / "lines", "rb") as lines:
            writers = [start(impel_argv("add", "--stream", "t", "--jsonl", "-",
                                        store="lmdb:%s?sync=process" % (tmp / "db")), tmp, stdin=lines)
                       for _ in range(2)]
        target = before + dice.randrange(100, 5000)
        wait_for(lambda: r.xlen("t") >= target, what="adds", pause_s=0.001)  # pylint: disable=cell-var-from-loop
        for writer in writers:
            writer.signal(signal.SIGKILL)
        for writer in writers:
            writer.wait()
        last = r.xadd("t", {"after": "the kill"})
        while r.xreadgroup("g", "c", {"t": ">"}, count=10000, block=1000):
            pass
        groups = r.xinfo_groups("t")[0]
        equal((groups["last-delivered-id"], groups["lag"]), (last, 0))
        equal(groups["pending"], r.xlen("t"))
        r.xtrim("t", maxlen=0, approximate=False)
        r.xack("t", "g", *[p["message_id"] for p in r.xpending_range("t", "g", "-", "+", 1 << 30)])
    server.process.stop()
    server.check()


# ---- a disk that fills up ----

def fill(server):
    """Adds from two clients until both are refused. How many entries were answered."""
    answered = [0, 0]

    def add(number):
        r = server.client()
        while True:
            pipe = r.pipeline(transaction=False)
            for _ in range(20):
                pipe.xadd("s", {"f": "x" * 3000})
            got = pipe.execute(raise_on_error=False)
            errors = [g for g in got if isinstance(g, Exception)]
            answered[number] += len(got) - len(errors)
            if errors:
                contains(str(errors[0]), "full")
                return
    threads = [threading.Thread(target=add, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S * SLOWNESS)
        check(not thread.is_alive(), "it was never full")
    return sum(answered)


def full_and_room_again(server, make_room):
    r = server.client()
    r.xgroup_create("s", "g", "0", mkstream=True)
    added = fill(server)
    check(added > 50, "%d entries" % added)
    equal(r.xlen("s"), added)
    equal(r.ping(), True)
    server.check()
    added -= make_room() or 0
    wait_for(lambda: not isinstance(r.pipeline(transaction=False).xadd("s", {"f": "x" * 3000})
                                    .execute(raise_on_error=False)[0], Exception), what="room")
    equal(r.xlen("s"), added + 1)
    got = r.xreadgroup("g", "c", {"s": ">"}, count=added)[0][1]
    equal(r.xack("s", "g", *[i for i, _ in got]), added)
    equal(server.process.stop().code, 0)
    server.check()
    server.start()
    equal(server.client().xlen("s"), added + 1)


@test
def a_full_disk_refuses_and_goes_on_when_there_is_room(tmp):
    disk = tmp / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk], check=False,
                          stderr=subprocess.PIPE)
    if done.returncode != 0:
        skip("no tmpfs can be mounted here: " + done.stderr.decode().strip())
    server = None
    try:
        (disk / "ballast").write_bytes(b"x" * (2 << 20))
        server = Server(tmp, db=disk / "db")
        full_and_room_again(server, (disk / "ballast").unlink)
    finally:
        if server:
            server.process.kill()
        subprocess.run(["umount", "-l", disk], check=False)


@test
def a_file_that_may_not_grow_is_a_full_disk(tmp):
    server = Server(tmp, "?sync=process")
    _, hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (2 << 20, hard))

    def make_room():
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    full_and_room_again(server, make_room)


@test
def a_full_map_refuses_and_goes_on_when_there_is_room(tmp):
    server = Server(tmp, "?sync=process&map=4MiB")
    r = server.client()
    full_and_room_again(server, lambda: r.xtrim("s", maxlen=r.xlen("s") - 100, approximate=False))


main()
