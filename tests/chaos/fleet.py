"""fleet -- real worker processes over one stream, and the ledger that their handlers write.

A handler appends "S <id> <attempt> <pid>" when it starts and "E <id> <attempt> <pid>" when it is over,
each line in one write with O_APPEND, so that the order of the lines is the order of the events. What
the promises say of a life of an entry can then be read off the file.
"""
import collections
import json
import os
import pathlib

from impeltest import (check, equal, impel, impel_argv, impel_ok, start, start_redis, wait_for)

Line = collections.namedtuple("Line", "kind id attempt pid")

HANDLER = """
printf 'S %s %s %s\\n' "$IMPEL_ID" "$IMPEL_ATTEMPT" $$ >> {ledger}
{work}
printf 'E %s %s %s\\n' "$IMPEL_ID" "$IMPEL_ATTEMPT" $$ >> {ledger}
"""


_server = []


def fresh_store(folder, params=""):
    """The URL of an empty store: an embedded one in the folder or, with IMPEL_TEST_STORE=redis, a
    redis-server that all tests of the file share, emptied."""
    if os.environ.get("IMPEL_TEST_STORE") != "redis":
        return "lmdb:%s/db%s" % (folder, params)
    if not _server or not _server[0].running():
        socket = pathlib.Path(folder) / "redis.sock"
        process, _ = start_redis(folder, "--unixsocket", socket)
        _server[:] = [process, "unix://%s" % socket]
    impel_ok("call", "FLUSHALL", store=_server[1])
    return _server[1]


class Fleet:
    """Workers of group `g` on stream `orders`, all with the same options."""

    def __init__(self, folder, store, work=":", options=(), stream="orders", group="g"):
        self.folder = pathlib.Path(folder)
        self.store = str(store)
        self.stream = stream
        self.group = group
        self.ledger = self.folder / "ledger"
        self.ledger.touch()
        self.work = work
        self.options = list(options)
        self.workers = []
        self.started = 0

    def handler(self):
        return ["sh", "-c", HANDLER.format(ledger=self.ledger, work=self.work)]

    def argv(self, *options, handler=None):
        return impel_argv("run", "--stream", self.stream, "--group", self.group, *self.options, *options,
                          "--", *(handler or self.handler()), store=self.store)

    def start(self, *options, handler=None):
        self.started += 1
        options = ("--metrics-file", self.folder / ("metrics-%d.prom" % self.started), *options)
        worker = start(self.argv(*options, handler=handler), self.folder, name="worker")
        worker.metrics = self.folder / ("metrics-%d.prom" % self.started)
        self.workers.append(worker)
        return worker

    def add(self, count, first=0):
        """Adds `count` entries n=first, n=first+1, … and returns their IDs in order."""
        lines = "".join('{"n":"%d"}\n' % (first + i) for i in range(count))
        equal(impel_ok("add", "--stream", self.stream, "--jsonl", "-", store=self.store,
                       stdin=lines).split(), [str(count)])
        return [e["id"] for e in self.entries()][-count:]

    def entries(self, stream=None):
        done = impel("read", "--stream", stream or self.stream, store=self.store)
        if done.code != 0 and stream and "there is no stream" in done.err:
            return []  # nothing was parked yet
        equal(done.code, 0, done.err)
        return [json.loads(line) for line in done.out.splitlines()]

    def status(self):
        done = impel("status", "--stream", self.stream, "--json", store=self.store)
        check(done.code in (0, 3), done.err)
        return json.loads(done.out)["streams"][0]

    def group_status(self):
        groups = [g for g in self.status()["groups"] if g["group"] == self.group]
        return groups[0] if groups else None

    def wait_for_a_beat(self):
        """Until a worker stands in the group's table. The first one makes the store, the stream and the group."""
        def beaten():
            done = impel("status", "--stream", self.stream, "--group", self.group, "--json", store=self.store)
            return done.code in (0, 3) and json.loads(done.out)["streams"][0]["groups"][0]["workers"]
        wait_for(beaten, what="the first beat")

    def lines(self):
        return [Line(*text.split()) for text in self.ledger.read_text().splitlines()]

    def starts(self):
        return [line for line in self.lines() if line.kind == "S"]

    def ended(self):
        return {line.id for line in self.lines() if line.kind == "E"}

    def wait_for_starts(self, count, deadline_s=30):
        wait_for(lambda: len(self.starts()) >= count, deadline_s, "%d handler starts" % count)

    def finish(self, *options, deadline_s=90):
        """One more worker runs until nothing is left."""
        worker = self.start("--until-idle=60s", *options)
        done = worker.wait(deadline_s)
        equal(done.code, 0, "the last worker did not find the group idle\n" + done.err[-3000:])

    def overlaps(self):
        """Attempts that ended after another attempt at the same entry had started."""
        newest, late = {}, []
        for line in self.lines():
            if line.kind == "S":
                newest[line.id] = (line.attempt, line.pid)
            elif newest.get(line.id) != (line.attempt, line.pid):
                late.append(line)
        return late

    def check_all_settled(self, ids):
        """Every entry ended in a handler or stands in the dead-letter stream; nothing is pending."""
        parked = {record["fields"]["original_id"] for record in self.entries(self.stream + ":dead")}
        missing = [i for i in ids if i not in self.ended() and i not in parked]
        equal(missing, [], "neither done nor parked")
        group = self.group_status()
        equal(group["pending"], 0, group)
        return parked

    def check_file(self):
        if self.store.startswith("lmdb:") or ":" not in self.store:
            done = impel("check", store=self.store)
            equal(done.code, 0, "impel check:\n" + done.out + done.err)


def metric(path, name, stream="orders"):
    """The sum of a counter over its label sets of this stream, 0 if the file or the counter is not there."""
    total = 0.0
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return 0.0
    for line in text.splitlines():
        if line.startswith(name + "{") and 'stream="%s"' % stream in line:
            total += float(line.rsplit(" ", 1)[1])
    return total


def rounds(quick):
    """How many rounds a repeated test makes: `quick` in the ordinary suite, IMPEL_ROUNDS otherwise."""
    return int(os.environ.get("IMPEL_ROUNDS", quick))
