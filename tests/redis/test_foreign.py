"""Workers that are not ours: what they leave behind is finished, and they steal nothing from ours."""
import shutil
import signal

from impeltest import check, equal, impel, impel_argv, main, skip, start, test, wait_for
from redishelp import Server

ENTRIES = 1000

READ_ALL = """
import redis, signal, sys
r = redis.Redis(unix_socket_path=sys.argv[1])
got = 0
while got < %d:
    for _, entries in r.xreadgroup("g", "worker-a", {"orders": ">"}, count=100) or []:
        got += len(entries)
print("has all", flush=True)
signal.pause()  # until it is killed
""" % ENTRIES

READ_ALL_NODE = """
const { createClient } = require('redis');
(async () => {
    const client = createClient({ socket: { path: process.argv[2] } });
    await client.connect();
    let got = 0;
    while (got < %d) {
        const replies = await client.xReadGroup('g', 'worker-a', { key: 'orders', id: '>' }, { COUNT: 100 });
        for (const stream of replies || []) got += stream.messages.length;
    }
    console.log('has all');
    setTimeout(() => {}, 600000);
})();
""" % ENTRIES

STEAL = """
import redis, sys
r = redis.Redis(unix_socket_path=sys.argv[1])
while True:
    reply = r.xautoclaim("orders", "g", "thief", 2000, "0-0", justid=True)
    if reply:
        print("stole", reply, flush=True)
"""


def _fill(server):
    client = server.client()
    pipe = client.pipeline()
    for number in range(ENTRIES):
        pipe.xadd("orders", {"n": number})
    pipe.xgroup_create("orders", "g", "0")
    pipe.execute()
    return client


def _finish(server, tmp, reader):
    """The reader is killed; one Impel worker finishes what it held."""
    reader.wait_for_output("has all")
    reader.kill()
    client = server.client()
    equal(client.xpending("orders", "g")["pending"], ENTRIES)
    done = impel("run", "--stream", "orders", "--group", "g", "--consumer", "worker-b", "--min-idle", "2s",
                 "--concurrency", "8", "--until-idle=120s", "--", "sh", "-c", 'echo "$IMPEL_ATTEMPT $IMPEL_ID"',
                 store=server.url, deadline_s=180)
    equal(done.code, 0, done.err[-3000:])
    lines = [line.split() for line in done.out.splitlines() if line]
    equal(len(lines), ENTRIES)
    equal(len({i for _, i in lines}), ENTRIES)
    equal({attempt for attempt, _ in lines}, {"2"})
    equal(client.xpending("orders", "g")["pending"], 0)
    held = {c["name"]: c["pending"] for c in client.xinfo_consumers("orders", "g")}
    equal(held.get("worker-a", 0), 0)


@test
def what_a_killed_redis_py_worker_left_is_finished(tmp):
    server = Server(tmp)
    _fill(server)
    _finish(server, tmp, start(["/usr/bin/python3", "-c", READ_ALL, server.socket], tmp, name="worker-a"))


@test
def what_a_killed_node_redis_worker_left_is_finished(tmp):
    node = shutil.which("node")
    server = Server(tmp)
    if node is None or start([node, "-e", "require('redis')"], tmp,
                                            env={"NODE_PATH": "/usr/share/nodejs"}).wait().code != 0:
        skip("no node with node-redis here")
    _fill(server)
    script = tmp / "worker-a.js"
    script.write_text(READ_ALL_NODE)
    _finish(server, tmp, start([node, script, server.socket], tmp, name="worker-a",
                               env={"NODE_PATH": "/usr/share/nodejs"}))


@test
def an_xautoclaim_loop_steals_nothing_from_slow_healthy_workers(tmp):
    """A5: With the same min-idle as theirs, which their handlers outlive four times."""
    server = Server(tmp)
    client = server.client()
    client.xgroup_create("orders", "g", "0", mkstream=True)
    workers = [start(impel_argv("run", "--stream", "orders", "--group", "g", "--min-idle", "2s",
                                "--dead-after", "5s", "--concurrency", "3", "--", "sh", "-c", "sleep 8; echo done",
                                store=server.url), tmp, name="worker") for _ in range(2)]
    thief = start(["/usr/bin/python3", "-c", STEAL, server.socket], tmp, name="thief")
    for number in range(6):
        client.xadd("orders", {"n": number})
    wait_for(lambda: sum(w.out().count("done") for w in workers) >= 6, 60, "six results")
    wait_for(lambda: client.xpending("orders", "g")["pending"] == 0, what="six acks")
    equal(thief.out(), "")
    check(thief.running(), thief.err())
    for worker in workers:
        worker.signal(signal.SIGTERM)
        equal(worker.wait().code, 0, worker.err())
    equal(sum(w.out().count("done") for w in workers), 6)


main()
