"""Unchanged redis-py workers with `impel sweep --requeue` beside them: workers and sweeps are killed, and
nothing is lost, requeued twice for one abandonment, or parked early."""
import collections
import random

from impeltest import check, equal, impel_argv, json_lines, main, start, test, wait_for
from redishelp import Server

ROUNDS = 10
BATCH = 30

# Reads only what is new, is slow enough to be killed while it holds some, and says what it did.
WORKER = """
import redis, sys, time
r = redis.Redis(unix_socket_path=sys.argv[1], decode_responses=True)
while True:
    for _, entries in r.xreadgroup("g", sys.argv[2], {"orders": ">"}, count=5, block=200) or []:
        for entry, fields in entries:
            print("begin", entry, fields["n"], flush=True)
            r.xread({"slow": "$"}, block=10)  # the work: waits for somebody else
            print("done", entry, fields["n"], flush=True)
            r.xack("orders", "g", entry)
"""


class Scene:
    def __init__(self, tmp):
        self.tmp = tmp
        self.server = Server(tmp)
        self.client = self.server.client()
        self.client.xgroup_create("orders", "g", "0", mkstream=True)
        self.workers, self.sweeps = [], []  # all that ever ran
        self.added = 0

    def worker(self):
        name = "worker-%d" % len(self.workers)
        self.workers.append(start(["/usr/bin/python3", "-c", WORKER, self.server.socket, name], self.tmp, name=name))
        return self.workers[-1]

    def sweep(self):
        self.sweeps.append(start(impel_argv(
            "sweep", "--stream", "orders", "--group", "g", "--requeue", "--min-idle", "1s", "--backoff", "0",
            "--interval", "50ms", "--dead-after", "1s", "--max-deliveries", "50", "--log-format", "json",
            store=self.server.url), self.tmp, name="sweep-%d" % len(self.sweeps)))
        return self.sweeps[-1]

    def add(self, count):
        for number in range(self.added, self.added + count):
            self.client.xadd("orders", {"n": number})
        self.added += count

    def said(self, word):
        return [line.split() for worker in self.workers for line in worker.out().splitlines()
                if line.startswith(word + " ") and len(line.split()) == 3]

    def idle(self):
        group = self.client.xinfo_groups("orders")[0]
        return group["pending"] == 0 and group["last-delivered-id"] == self.client.xinfo_stream(
            "orders")["last-generated-id"]


@test
def killed_workers_and_three_sweeps_lose_nothing_and_requeue_once(tmp):
    scene = Scene(tmp)
    dice = random.Random(7)
    workers = [scene.worker() for _ in range(3)]
    sweeps = [scene.sweep() for _ in range(3)]
    for _ in range(ROUNDS):
        scene.add(BATCH)
        seen = len(scene.said("begin"))
        wait_for(lambda: len(scene.said("begin")) > seen, what="a worker at work")
        at = dice.randrange(3)
        workers[at].kill()
        workers[at] = scene.worker()
        at = dice.randrange(3)
        sweeps[at].kill()
        sweeps[at] = scene.sweep()
    wait_for(scene.idle, 90, "all to be done")
    done = collections.Counter(n for _, _, n in scene.said("done"))
    equal(sorted(map(int, done)), list(range(scene.added)))
    check(not scene.client.exists("orders:dead"), "something was parked early")
    # Each copy stands for one delivery that was abandoned; one of a kind per original.
    entries = scene.client.xrange("orders")
    copies = len(entries) - scene.added
    check(copies > 0, "no worker was killed while it held something")
    lives = collections.Counter(fields["n"] for _, fields in entries)
    killed = ROUNDS * 5  # what the killed could hold at most
    check(copies <= killed, "%d copies of %d abandoned deliveries" % (copies, killed))
    moved = collections.Counter(event["id"] for sweep in scene.sweeps for event in json_lines(
        "\n".join(line for line in sweep.err().splitlines() if line.endswith("}")))
        if event["event"] == "requeued")
    equal([entry for entry, times in moved.items() if times > 1], [])
    # Done twice only where a kill came between the work and its ack.
    check(sum(done.values()) - scene.added <= ROUNDS, done)
    check(max(lives.values()) <= ROUNDS + 1, lives)


@test
def a_consumer_that_wakes_up_while_it_is_deleted_loses_nothing(tmp):
    """Its TTL is over at once, so every pause between two reads is one in which it may go."""
    scene = Scene(tmp)
    sweep = start(impel_argv("sweep", "--stream", "orders", "--group", "g", "--consumer-ttl", "1ms", "--interval", "1ms",
                             "--budget", "0", store=scene.server.url), tmp, name="sweep")
    dice, client, lost = random.Random(5), scene.client, 0
    for number in range(500):
        # Before Redis 7.2 a consumer is gone only if others get something meanwhile.
        for name in ("busy", "sleeper"):
            client.xadd("orders", {"n": number})
            got = client.xreadgroup("g", name, {"orders": ">"})
            entries = [entry for _, some in got for entry, _ in some]
            lost += client.xpending("orders", "g")["pending"] != len(entries)
            lost += client.xack("orders", "g", *entries) != 1
            for _ in range(dice.randrange(60)):
                client.ping()  # time goes by
    equal(lost, 0)
    check(sweep.err().count("sleeper") > 10, "the consumer was hardly ever deleted: " + sweep.err()[-500:])


main()
