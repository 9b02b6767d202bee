#!/usr/bin/python3
"""serve.py -- `impel serve` beside redis-server, in one run, as ratios of what each does in a second.

    bench/serve.py [--rounds N] [--impel build/impel] [--full] [--sizes] [--large [--largest N]]

50 clients, pipelines of 1, 16 and 128, first of redis-benchmark, then of our own loader (bench/load.c),
which acknowledges in the order of the entries, as workers do, and not at random. Without --full: ?sync=process beside a
redis-server without persistence; the ratios aimed at are 1.0, 1.3 and 1.5. With --full: ?sync=full
beside appendfsync always; 2 times. The two sides take turns and the median of the rounds counts. A
second ratio compares processor time per request, which says more where other programs run. A third
and a fourth one, with --full, say what there is to reach: bench/peers/flusher.c does nothing but write
what it gets to a file and flush it, once for each batch, before it answers; and a redis-server without
persistence writes nothing at all.
--sizes: what a command costs at 10^3, 10^5 and 10^7 entries (--largest), all of them pending (one client, pipeline
16); it should not grow. Each side reads, claims and acknowledges what it has been given itself.
--large: a file of 10^7 entries of 100 bytes (--largest), served anew: how long until it answers, and what
it then holds in memory of its own; aimed at are 1 s and 64 MiB. Ends with 1 where that is missed.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
LOADER = HERE.parent / "build" / "bench" / "load"
AIMS = {1: 1.0, 16: 1.3, 128: 1.5}
REQUESTS = {1: 20000, 16: 300000, 128: 400000}  # a run takes half a second or more
TICKS = os.sysconf("SC_CLK_TCK")


def encode(*words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Side:
    """A server on a unix socket of its own."""

    def __init__(self, name, argv, path):
        self.name, self.path = name, path
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        pause = threading.Event()
        while True:
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    sys.exit("%s does not start" % name)
                pause.wait(0.02)
        self.replies = self.socket.makefile("rb")

    def reply(self):
        line = self.replies.readline()
        if line[:1] in b"-":
            sys.exit("%s: %s" % (self.name, line.decode().strip()))
        if line[:1] == b"$" and int(line[1:]) >= 0:
            return self.replies.read(int(line[1:]) + 2)[:-2]
        if line[:1] == b"*":
            return [self.reply() for _ in range(int(line[1:]))]
        return line

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return self.reply()

    def fill(self, count, pending):
        """A stream of so many entries, the first `pending` of them with consumer `c`."""
        if self.name == "flusher":
            return
        self.call("FLUSHALL")
        self.call("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
        if count > 0:
            self.load(["xadd", "s", "__seq__-1", "f", "v" * 16], count, 128, 1)
        read = ["xreadgroup", "group", "g", "c", "count"]
        if pending >= 1000:
            self.load([*read, "1000", "streams", "s", ">"], pending // 1000, 4, 1)
        if pending % 1000 > 0:
            self.call(*read, pending % 1000, "streams", "s", ">")

    def load(self, words, requests, pipeline, clients):
        argv = [str(LOADER), self.path, str(clients), str(pipeline), str(requests), *words]
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()

    def processor_s(self):
        with open("/proc/%d/stat" % self.process.pid, encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def measure(self, words, requests, pipeline, clients, ours=False):
        """Requests a second, and microseconds of the server's processor for each."""
        before = self.processor_s()
        if ours:
            out = self.load([word.replace("__rand_int__", "__seq__") for word in words], requests, pipeline, clients)
            speed = re.findall(r"([0-9.]+)", out)
        else:
            argv = ["redis-benchmark", "-s", self.path, "-c", str(clients), "-n", str(requests),
                    "-P", str(pipeline), "-r", str(requests), "-q", *words]
            out = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout.decode()
            speed = re.findall(r"([0-9.]+) requests per second", out)
        return float(speed[-1]), (self.processor_s() - before) * 1e6 / requests

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


# What is measured: a name, the words, and what has to be there: entries, and how many are pending.
def rows(requests):
    return [
        ("XADD", ["xadd", "s", "*", "f", "v123456789"], 0, 0),
        ("XREADGROUP", ["xreadgroup", "group", "g", "c", "count", "1", "streams", "s", ">"], requests + 6400, 0),
        ("XACK", ["xack", "s", "g", "__rand_int__-1"], requests, requests),
        ("XAUTOCLAIM", ["xautoclaim", "s", "g", "d", "0", "0", "count", "1"], 1000, 1000),
        ("XRANGE", ["xrange", "s", "-", "+", "count", "10"], 1000, 0),
    ]


def compare(sides, options):
    for own in (False, True):
        print("# %s" % ("our own loader" if own else "redis-benchmark"))
        compare_by(own, sides, options)


def compare_by(own, sides, options):
    ours, theirs = sides[:2]
    print("%-11s %8s %12s %12s %8s %8s %7s%s" % ("command", "pipeline", ours.name, theirs.name, "speed", "cpu", "aim",
                                                "  flusher nothing" if options.full else ""))
    for pipeline, requests in REQUESTS.items():
        requests = requests // 10 if options.full and pipeline == 1 else requests
        for name, words, entries, pending in rows(requests):
            measured = sides[:2] if name == "XRANGE" else sides  # nothing is written, so nothing is flushed
            got = {side: [] for side in measured}
            for number in range(options.rounds):
                for side in measured if number % 2 == 0 else reversed(measured):
                    side.fill(entries, pending)
                    got[side].append(side.measure(words, requests, pipeline, 50, own))
            speed = {side: statistics.median(x[0] for x in got[side]) for side in measured}
            cost = {side: statistics.median(x[1] for x in got[side]) for side in measured}
            most = "".join(" %7.2fx" % (speed[side] / speed[theirs]) for side in measured[2:])
            print("%-11s %8d %10d/s %10d/s %7.2fx %7.2fx %6.1fx%s" % (
                name, pipeline, speed[ours], speed[theirs], speed[ours] / speed[theirs],
                cost[theirs] / max(cost[ours], 0.01), 2.0 if options.full else AIMS[pipeline], most), flush=True)


def sizes(sides, options):
    print("%-14s %10s %14s %14s   microseconds of processor a request" % (
        "command", "entries", sides[0].name, sides[1].name))
    for count in sorted({10 ** 3, 10 ** 5, options.largest}):
        for side in sides:
            side.fill(count, count)
        for name, words, requests in [
                ("XADD", ["xadd", "s", "*", "f", "v"], 20000),
                ("XREADGROUP >", ["xreadgroup", "group", "g", "c", "count", "1", "streams", "s", ">"], 10000),
                ("XACK", ["xack", "s", "g", "__rand_int__-1"], 20000),
                ("XPENDING", ["xpending", "s", "g"], 20000),
                ("XINFO GROUPS", ["xinfo", "groups", "s"], 20000)]:
            costs = [side.measure(words, requests, 16, 1)[1] for side in sides]
            print("%-14s %10d %14.2f %14.2f" % (name, count, *costs), flush=True)


ASKED_OF_LARGE = [
    ("XLEN", "s"), ("XRANGE", "s", "-", "+", "COUNT", 10), ("XREVRANGE", "s", "+", "-", "COUNT", 10),
    ("XINFO", "STREAM", "s"), ("XADD", "s", "*", "f", "v"), ("XGROUP", "CREATE", "s", "g", "0"),
    ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1000, "STREAMS", "s", ">"), ("XPENDING", "s", "g"),
    ("XINFO", "GROUPS", "s"), ("DBSIZE",)]


def large(folder, options):
    """Whether a server of a large file is there soon, and small."""
    argv = [options.impel, "serve", "--store", "lmdb:%s?sync=process" % (folder / "db"), "--unix", str(folder / "i")]
    side = Side("impel", argv, str(folder / "i"))
    try:
        side.measure(["xadd", "s", "*", "f", "v" * 98], options.largest, 128, 8)
    finally:
        side.end()
    begun = time.monotonic()
    side = Side("impel", argv, str(folder / "i"))
    try:
        side.call("PING")
        side.call("XRANGE", "s", "-", "+", "COUNT", 1)
        first = time.monotonic() - begun
        print("the first answers after %.0f ms" % (first * 1e3))
        for words in ASKED_OF_LARGE:
            asked = time.monotonic()
            side.call(*words)
            print("%-12s %9.1f ms" % (words[0], (time.monotonic() - asked) * 1e3))
        with open("/proc/%d/status" % side.process.pid, encoding="ascii") as status:
            memory = {name: int(kib) for name, kib in re.findall(r"(Rss\w+):\s+(\d+) kB", status.read())}
    finally:
        side.end()
    print("file %d MiB, heap %.1f MiB, mapped file %.1f MiB" % (
        (folder / "db").stat().st_size >> 20, memory["RssAnon"] / 1024, memory["RssFile"] / 1024))
    return first <= 1 and memory["RssAnon"] <= 64 * 1024


def redis_argv(folder, name, append_only):
    (folder / ("of-" + name)).mkdir()
    return [str(folder / "redis-server"), "--port", "0", "--unixsocket", str(folder / name), "--dir",
            str(folder / ("of-" + name)), "--save", "", "--appendonly", append_only, "--appendfsync", "always"]


def main():
    parser = argparse.ArgumentParser(usage="serve.py [--rounds N] [--impel PROGRAM] [--full] [--sizes] [--large] [--largest N]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--impel", default=str(HERE.parent / "build" / "impel"))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--largest", type=int, default=10 ** 7)
    options = parser.parse_args()
    redis = shutil.which("redis-server") or shutil.which("redis-check-rdb")
    if redis is None or shutil.which("redis-benchmark") is None:
        sys.exit("serve.py: redis-server or redis-benchmark is missing (Debian: redis-tools)")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="impel-bench-"))
    (folder / "redis-server").symlink_to(os.path.realpath(redis))  # it looks at its own name
    sync = "full" if options.full else "process"
    sides = []
    try:
        if options.large:
            sys.exit(0 if large(folder, options) else 1)
        sides.append(Side("impel", [options.impel, "serve", "--store", "lmdb:%s?sync=%s" % (folder / "db", sync),
                                    "--unix", str(folder / "i")], str(folder / "i")))
        sides.append(Side("redis", redis_argv(folder, "r", "yes" if options.full else "no"), str(folder / "r")))
        if options.full and not options.sizes:
            sides.append(Side("flusher", [str(LOADER.parent / "peers" / "flusher"), str(folder / "f"),
                                          str(folder / "log")], str(folder / "f")))
            sides.append(Side("nothing", redis_argv(folder, "n", "no"), str(folder / "n")))
        print("# %s beside redis-server %s, 50 clients, load %.1f" % (
            "?sync=" + sync, "appendfsync always" if options.full else "without persistence", os.getloadavg()[0]))
        (sizes if options.sizes else compare)(sides, options)
    finally:
        for side in sides:
            side.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
