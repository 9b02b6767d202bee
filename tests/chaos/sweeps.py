"""sweeps -- foreign workers, as people have them, and sweeps beside them that requeue what they drop: both
are killed, and afterwards each delivery that did not end in an ack has to be explained by a kill."""
import collections
import ctypes
import os
import pathlib
import random
import signal
import time

import redis

from impeltest import check, equal, impel_argv, json_lines, start, wait_for

BATCH = 20
READ_COUNT = 8
MIN_IDLE_MS = 400


class Worker:
    """A redis-py worker in a forked process. It reads only what is new, and says what it does."""

    def __init__(self, scene, name):
        self.name = name
        self.killed = False
        self.log = pathlib.Path(scene.tmp) / (name + ".log")
        pool = scene.client.connection_pool
        self.pid = os.fork()
        if self.pid == 0:
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                self._work(redis.Redis(connection_pool=redis.ConnectionPool(
                    pool.connection_class, **dict(pool.connection_kwargs, client_name=name))))
            finally:
                os._exit(1)

    def _work(self, client):
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

        def say(*words):
            os.write(log, (" ".join(map(str, words)) + "\n").encode())
        while True:
            asked = time.monotonic()
            for _, entries in client.xreadgroup("g", self.name, {"orders": ">"}, count=READ_COUNT, block=200) or []:
                for entry, _ in entries:
                    say("got", entry)
                for entry, fields in entries:
                    say("begin", entry, fields["n"])
                    client.xread({"slow": "$"}, block=5)  # the work: waits for somebody else
                    say("done", entry, fields["n"])
                    acked = client.xack("orders", "g", entry)
                    say("acked", entry, acked, round((time.monotonic() - asked) * 1000))

    def said(self, word):
        """What it said after `word`, in the order in which it did."""
        if not self.log.exists():
            return []
        return [line.split()[1:] for line in self.log.read_text().splitlines() if line.startswith(word + " ")]

    def kill(self):
        if not self.killed:
            self.killed = True
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


class Scene:
    def __init__(self, tmp, store, deliveries_max):
        self.tmp, self.store, self.client = tmp, store, store.client
        self.deliveries_max = deliveries_max
        self.client.xgroup_create("orders", "g", "0", mkstream=True)
        self.workers, self.sweeps = [], []  # all that ever ran
        self.originals = []                 # IDs; their number is their place

    def worker(self):
        self.workers.append(Worker(self, "worker-%d" % len(self.workers)))
        return self.workers[-1]

    def sweep(self):
        self.sweeps.append(start(impel_argv(
            "sweep", "--stream", "orders", "--group", "g", "--requeue", "--min-idle", "%dms" % MIN_IDLE_MS,
            "--backoff", "0", "--interval", "50ms", "--dead-after", "1s", "--max-deliveries", self.deliveries_max,
            "--log-format", "json", "--log-level", "debug", store=self.store), self.tmp,
                                 name="sweep-%d" % len(self.sweeps)))
        return self.sweeps[-1]

    def add(self, count):
        pipe = self.client.pipeline(transaction=False)
        for number in range(len(self.originals), len(self.originals) + count):
            pipe.xadd("orders", {"n": number})
        self.originals += pipe.execute()

    def idle(self):
        group = self.client.xinfo_groups("orders")[0]
        return group["pending"] == 0 and group["last-delivered-id"] == self.client.xinfo_stream(
            "orders")["last-generated-id"]

    def round(self, workers, sweeps, dice):
        """Some work, and in the midst of it the death of a worker and of a sweep or two."""
        before = [len(worker.said("begin")) for worker in workers]
        self.add(BATCH)
        wanted = dice.randrange(READ_COUNT)

        def at_work():
            return [at for at, worker in enumerate(workers) if len(worker.said("begin")) > before[at] + wanted]
        at = dice.choice(wait_for(lambda: at_work() or self.idle() and [0], what="a worker at work", pause_s=0.003))
        workers[at].kill()
        workers[at] = self.worker()
        for at in dice.sample(range(len(sweeps)), dice.randint(1, 2)):
            sweeps[at].kill()
            sweeps[at] = self.sweep()

    def alive(self):
        return [worker for worker in self.workers if not worker.killed]

    def end(self):
        for worker in self.workers:
            worker.kill()

    # ---- what became of it all ----

    def check(self):
        entries = self.client.xrange("orders")
        equal([entry for entry, fields in entries if self.originals[int(fields["n"])] == entry],
              self.originals, "the originals stay where they are")
        lives = collections.defaultdict(list)  # of each number: its entry, the copy of that, and so on
        for entry, fields in entries:
            equal(list(fields), ["n"])
            lives[int(fields["n"])].append(entry)
        self._check_order()
        parked = self._parked()
        settled = self._settled()
        kept = self._kept() | settled
        done = collections.Counter(entry for worker in self.workers for entry, _ in worker.said("done"))
        equal([entry for entry, times in done.items() if times > 1], [], "done twice in one delivery")
        for number, life in sorted(lives.items()):
            self._check_life("%d: %s" % (number, [(e, e in done, e in settled, e in kept, e in parked)
                                                  for e in life]), life, kept, parked)
            check(life[-1] in parked or life[-1] in done, "lost: %d, %s" % (number, life))
        self._check_events(lives)
        return len(entries) - len(self.originals), len(parked)

    def _check_order(self):
        for worker in self.workers:
            begun = [tuple(map(int, entry.split("-"))) for entry, _ in worker.said("begin")]
            equal(begun, sorted(set(begun)), worker.name)

    def _parked(self):
        """Entry -> deliveries, of what is in the dead-letter stream."""
        parked = {}
        for _, fields in self.client.xrange("orders:dead"):
            equal((fields["reason"], fields["deliveries"]), ("max-deliveries", str(self.deliveries_max)), fields)
            check(fields["original_id"] not in parked, "parked twice: %s" % fields)
            parked[fields["original_id"]] = int(fields["deliveries"])
        return parked

    def _settled(self):
        """Entries that a worker acknowledged, as far as it lived to say so."""
        return {entry for worker in self.workers for entry, acked, _ in worker.said("acked") if acked == "1"}

    def _kept(self):
        """Entries that no kill explains: a worker that was not killed had them in hand, and took less time,
        as busy as this machine may be, than after which an entry counts as abandoned."""
        kept = {entry for worker in self.alive() for entry, in worker.said("got")}
        return kept - {entry for worker in self.alive() for entry, acked, took in worker.said("acked")
                       if acked == "0" and int(took) >= MIN_IDLE_MS}

    def _check_life(self, story, life, kept, parked):
        """Each copy stands for one delivery that a kill cut short, one for one."""
        for entry in life[:-1]:
            check(entry not in kept and entry not in parked, "requeued, but " + story)
        check(len(life) <= self.deliveries_max, "not parked: " + story)
        if life[-1] in parked:
            equal(len(life), self.deliveries_max, "parked early: " + story)
            check(life[-1] not in kept, "parked, but " + story)

    def _check_events(self, lives):
        """What the sweeps said, as far as they lived to say it."""
        place = {entry: (life, at) for life in lives.values() for at, entry in enumerate(life)}
        moved = collections.Counter()
        for sweep in self.sweeps:
            lines = [line for line in sweep.err().splitlines() if line.endswith("}")]
            for event in json_lines("\n".join(lines)):
                if event["event"] == "requeued":
                    life, at = place[event["id"]]
                    equal((life[at + 1], at + 1), (event["target"], event["attempt"]), event)
                    moved[event["id"]] += 1
        equal([entry for entry, times in moved.items() if times > 1], [], "requeued twice")


def run(tmp, store, rounds, seed):
    dice = random.Random(seed)
    scene = Scene(tmp, store, dice.choice([2, 3]))
    try:
        workers = [scene.worker() for _ in range(3)]
        sweeps = [scene.sweep() for _ in range(3)]
        for _ in range(rounds):
            scene.round(workers, sweeps, dice)
        wait_for(scene.idle, 90, "all to be done")
        copies, parked = scene.check()
        check(copies > rounds / 2, "only %d were requeued in %d rounds" % (copies, rounds))
        print("# %d rounds, IMPEL_SEED=%d: %d entries, %d requeued, %d parked" % (
            rounds, seed, len(scene.originals), copies, parked), flush=True)
    finally:
        scene.end()
