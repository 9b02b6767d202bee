"""Programs that people run already, left as they are: node-redis workers with `impel sweep --requeue`
beside them, and the two recovery loops that everybody copies, beside a sweep and beside `impel run`."""
import collections
import os
import random
import shutil
import signal

from impeltest import check, equal, impel_argv, main, skip, start, test, wait_for
from redishelp import Server

KILLS = int(os.environ.get("IMPEL_ROUNDS", "3"))

# Reads only what is new, five at a time, and says what it did.
NODE_WORKER = """
const { createClient } = require('redis');
(async () => {
    const client = createClient({ name: process.argv[3], socket: { path: process.argv[2] } });
    await client.connect();
    for (;;) {
        const replies = await client.xReadGroup('g', process.argv[3], { key: 'orders', id: '>' },
                                                { COUNT: 5, BLOCK: 200 });
        for (const { messages } of replies || []) {
            for (const { id, message } of messages) {
                console.log('begin', id, message.n);
                await client.xRead({ key: 'slow', id: '$' }, { BLOCK: 5 });  // the work: waits for somebody else
                await client.xAck('orders', 'g', id);
                console.log('done', id, message.n);
            }
        }
    }
})();
"""

# The same in Python; poison (n = -1) fails: it is not acknowledged.
WORK = """
import redis, sys, time
r = redis.Redis(unix_socket_path=sys.argv[1], decode_responses=True, client_name=sys.argv[2])
me, min_idle, hold = sys.argv[2], int(sys.argv[3]), sys.argv[4:] == ["hold"]

def work(entry, fields):
    print("begin", entry, fields["n"], flush=True)
    if fields["n"] == "-1":
        return
    r.xread({"slow": "$"}, block=5)
    if hold:
        r.blpop("never")
    r.xack("orders", "g", entry)
    print("done", entry, fields["n"], flush=True)
"""

WORKER = WORK + """
while True:
    for _, entries in r.xreadgroup("g", me, {"orders": ">"}, count=5, block=200) or []:
        for entry, fields in entries:
            work(entry, fields)
"""

# XAUTOCLAIM with COUNT 50, XPENDING for each entry, a dead-letter stream of its own; then a pause.
LOOP_PENDING = WORK + """
while True:
    cursor = "0-0"
    while True:
        cursor, entries = r.xautoclaim("orders", "g", me, min_idle, cursor, count=50)[:2]
        for entry, fields in entries:
            row = r.xpending_range("orders", "g", entry, entry, 1)
            if row and row[0]["times_delivered"] > 4:
                r.xadd("orders:dlq", fields)
                r.xack("orders", "g", entry)
            else:
                work(entry, fields)
        if cursor == "0-0":
            break
    r.xread({"pause": "$"}, block=min_idle // 4)
"""

# One XAUTOCLAIM with COUNT 25 a round, from where the last one stopped.
LOOP_CURSOR = WORK + """
cursor = "0-0"
while True:
    cursor, entries = r.xautoclaim("orders", "g", me, min_idle, cursor, count=25)[:2]
    for entry, fields in entries:
        work(entry, fields)
    r.xread({"pause": "$"}, block=min_idle // 8)
"""


class Scene:
    def __init__(self, tmp):
        self.tmp = tmp
        self.server = Server(tmp)
        self.client = self.server.client()
        self.client.xgroup_create("orders", "g", "0", mkstream=True)
        self.programs = []
        self.added = 0

    def add(self, count):
        for number in range(self.added, self.added + count):
            self.client.xadd("orders", {"n": number})
        self.added += count

    def python(self, text, name, *args):
        argv = ["/usr/bin/python3", "-c", text, self.server.socket, name, *args]
        self.programs.append(start(argv, self.tmp, name=name))
        return self.programs[-1]

    def impel(self, *args, name):
        self.programs.append(start(impel_argv(*args, store=self.server.url), self.tmp, name=name))
        return self.programs[-1]

    def said(self, word, programs=None):
        """(entry, n) of every whole line that begins with the word."""
        return [tuple(line.split()[1:]) for program in programs or self.programs
                for line in program.out().splitlines(True)
                if line.startswith(word + " ") and line.endswith("\n")]

    def kill_busy(self, program, name, least=1):
        """Adds entries until the worker holds so many, and kills it; returns what it held then, by number."""
        def holds():
            return self.client.xpending_range("orders", "g", "-", "+", 100, name)

        def busy():
            if self.all_read():
                self.add(5)
            if not self.said("begin", [program]):
                return False
            program.signal(signal.SIGSTOP)  # or it might be done by the time of the kill
            if len(holds()) >= least:
                return True
            program.signal(signal.SIGCONT)
            return False
        wait_for(busy, what="%s at work" % name, pause_s=0.005)
        program.kill()
        wait_for(lambda: name not in [c["name"] for c in self.client.client_list()], what="its last words")
        numbers = dict(self.client.xrange("orders"))
        return [numbers[row["message_id"]]["n"] for row in holds()]

    def all_read(self):
        return self.client.xinfo_groups("orders")[0]["last-delivered-id"] == self.client.xinfo_stream(
            "orders")["last-generated-id"]

    def idle(self):
        return self.client.xpending("orders", "g")["pending"] == 0 and self.all_read()


def node(tmp):
    binary, env = shutil.which("node"), {"NODE_PATH": "/usr/share/nodejs"}
    if binary is None or start([binary, "-e", "require('redis')"], tmp, env=env).wait().code != 0:
        skip("no node with node-redis here")
    script = tmp / "worker.js"
    script.write_text(NODE_WORKER)
    return lambda scene, name: start([binary, script, scene.server.socket, name], tmp, env=env, name=name)


@test
def killed_node_redis_workers_are_made_good_by_requeueing(tmp):
    make = node(tmp)
    scene = Scene(tmp)
    dice = random.Random(11)
    scene.impel("sweep", "--stream", "orders", "--group", "g", "--requeue", "--min-idle", "5s", "--backoff", "0",
                "--interval", "100ms", "--max-deliveries", "50", name="sweep")
    names = ["worker-%d" % number for number in range(2)]
    workers = {name: make(scene, name) for name in names}
    every, held = list(workers.values()), []
    for number in range(KILLS):
        scene.add(20)
        name = dice.choice(sorted(workers))
        held += scene.kill_busy(workers.pop(name), name, 2)
        name = "worker-%d" % (number + 2)
        workers[name] = make(scene, name)
        every.append(workers[name])
    wait_for(scene.idle, 90, "all to be done")
    begun = collections.Counter(n for _, n in scene.said("begin", every))
    done = collections.Counter(n for _, n in scene.said("done", every))
    equal(sorted(map(int, begun)), list(range(scene.added)))
    untold = set(begun) - set(done)  # acknowledged, and killed before the word
    check(len(untold) <= KILLS and untold <= set(n for _, n in scene.said("begin", every)), untold)
    # What a crash left is in the stream once more for each time it was left, and nothing else is.
    entries = [fields["n"] for _, fields in scene.client.xrange("orders")]
    copies = collections.Counter(entries)
    copies.subtract(map(str, range(scene.added)))
    equal({n: count for n, count in copies.items() if count}, dict(collections.Counter(held)))
    check({n for n, times in begun.items() if times > 1} <= set(held), "done twice without a crash: %s" % begun)
    check({n for n, times in done.items() if times > 1} <= set(held), done)
    # The rest keeps its order: in the stream, and for each worker.
    seen = set()
    equal([n for n in entries if not (n in seen or seen.add(n))], [str(n) for n in range(scene.added)])
    for worker in every:
        ids = [tuple(map(int, entry.split("-"))) for entry, _ in scene.said("begin", [worker])]
        equal(ids, sorted(ids))
    check(not scene.client.exists("orders:dead"), "something was parked early")


def loops(scene, min_idle_ms):
    return [scene.python(LOOP_PENDING, "loop-pending", min_idle_ms),
            scene.python(LOOP_CURSOR, "loop-cursor", min_idle_ms)]


@test
def the_loops_that_people_copy_beside_a_sweep(tmp):
    """Whoever comes first recovers; nobody recovers what another has."""
    scene = Scene(tmp)
    loops(scene, 2000)
    scene.impel("sweep", "--stream", "orders", "--group", "g", "--requeue", "--min-idle", "2s", "--backoff", "0",
                "--interval", "100ms", "--max-deliveries", "3", name="sweep")
    scene.python(WORKER, "worker", 0)
    held = []
    for number in range(KILLS):
        name = "victim-%d" % number
        victim = scene.python(WORKER, name, 0, "hold")
        scene.add(20)
        held += scene.kill_busy(victim, name)
    scene.client.xadd("orders", {"n": -1})
    wait_for(scene.idle, 90, "all to be done")
    done = collections.Counter(n for _, n in scene.said("done"))
    equal(sorted(map(int, done)), list(range(scene.added)))
    equal([n for n, times in done.items() if times > 1], [], "recovered twice")
    begun = collections.Counter(n for _, n in scene.said("begin"))
    check({n for n, times in begun.items() if times > 1} <= set(held) | {"-1"}, begun)
    buried = [fields["n"] for key in ("orders:dead", "orders:dlq") for _, fields in scene.client.xrange(key)]
    equal(buried, ["-1"])


@test
def the_loops_that_people_copy_beside_impels_workers(tmp):
    """They steal nothing that is being worked on, however long that takes, and what others dropped is done
    once, whoever takes it."""
    scene = Scene(tmp)
    thieves = loops(scene, 3000)
    workers = [scene.impel("run", "--stream", "orders", "--group", "g", "--consumer", "impel-%d" % number,
                           "--min-idle", "3s", "--dead-after", "3s", "--backoff", "0", "--concurrency", "2", "--",
                           "sh", "-c",
                           'n=$IMPEL_FIELD_n; echo "begin $IMPEL_ID $n"; if [ "$n" -lt 2 ]; then read x < gate; fi; '
                           'echo "done $IMPEL_ID $n"', name="impel-%d" % number) for number in range(2)]
    os.mkfifo(tmp / "gate")
    scene.add(2)  # their handlers wait at the gate
    wait_for(lambda: len(scene.said("begin", workers)) == 2, what="both handlers")
    victim = scene.python(WORKER, "victim", 0, "hold")
    held = scene.kill_busy(victim, "victim")
    # Longer than the loops' min-idle: what the victim held is taken over after that, by anybody.
    wait_for(lambda: scene.client.xpending("orders", "g")["pending"] == 2, 60, "the victim's entries to be done")
    equal(sorted(n for _, n in scene.said("begin", thieves) if n in ("0", "1")), [])
    with open(tmp / "gate", "w", encoding="ascii") as gate:
        gate.write("\n\n\n\n")
    wait_for(scene.idle, 60, "all to be done")
    done = collections.Counter(n for _, n in scene.said("done"))
    equal(done, collections.Counter(map(str, range(scene.added))))
    begun = collections.Counter(n for _, n in scene.said("begin"))
    again = {n for n, times in begun.items() if times > 1}
    check(again and again <= set(held), begun)
    for worker in workers:
        equal(worker.stop().code, 0)


main()
