"""Clients from npm, which `make servers` fetches: ioredis 5 and redis 5 tell the story of test_clients.py to
`impel serve`, and are the workers that stay as they are beside `impel run` and `impel sweep` on a Redis."""
import os
import pathlib

from impeltest import borrow, equal, impel, impel_argv, impel_ok, main, skip, start, start_redis, test, wait_for

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "impel" / "npm"
NODE = {"NODE_PATH": str(CACHE / "node_modules")}
CLIENTS = {"ioredis": "ioredis.js", "redis": "story.js"}

clients = borrow(HERE / "test_clients.py")


def argv_of(client):
    if not clients.has(["node", "-e", "require('%s')" % client], NODE):
        skip("no %s here: tools/servers fetches it" % client)
    return ["node", HERE / CLIENTS[client]]


def each_client(function):
    def make(client):
        def with_client(tmp):
            function(tmp, argv_of(client))
        with_client.__name__ = "%s_%s" % (client, function.__name__)
        test(with_client)
    for client in CLIENTS:
        make(client)


def abandoned(tmp, argv):
    """A Redis, 102 entries, and a worker killed while it holds 35 of them; 10 are done."""
    socket = tmp / "redis.sock"
    start_redis(tmp, "--unixsocket", socket)
    equal(start([*argv, "produce", socket], tmp, env=NODE).wait().out, "102\n")
    worker = start([*argv, "work", socket], tmp, env=NODE)
    worker.wait_for_output("holding")
    worker.kill()
    return socket, "unix://%s" % socket


@each_client
def tells_the_story(tmp, argv):
    clients.story(tmp, argv, NODE)


@each_client
def is_helped_by_a_worker(tmp, argv):
    _, store = abandoned(tmp, argv)
    done = impel("run", "--stream", "s", "--group", "g", "--min-idle", "1s", "--concurrency", "4", "--until-idle=60s",
                 "--", "sh", "-c", 'echo "$IMPEL_FIELD_n $IMPEL_ATTEMPT"', store=store, deadline_s=90)
    equal(done.code, 0, done.err)
    ran = {int(n): int(attempt) for n, attempt in (line.split() for line in done.out.splitlines())}
    equal(sorted(ran), list(range(10, 102)))
    equal(sorted(n for n in ran if ran[n] == 2), list(range(10, 45)))


@each_client
def reads_again_what_a_sweep_requeued(tmp, argv):
    socket, store = abandoned(tmp, argv)
    sweep = start(impel_argv("sweep", "--stream", "s", "--group", "g", "--requeue", "--min-idle", "1s", "--backoff", "0",
                             "--interval", "100ms", "--dead-after", "1s", store=store), tmp, name="sweep")
    worker = start([*argv, "serve", socket], tmp, env=NODE, name="worker")

    def did():
        return sorted(int(line.split()[1]) for line in worker.out().splitlines() if line.startswith("did "))
    wait_for(lambda: len(did()) >= 92, 60, "the worker to be done with all")
    wait_for(lambda: impel_ok("call", "XPENDING", "s", "g", store=store).split()[0] == "0", what="the last ack")
    equal(did(), list(range(10, 102)))
    equal(sweep.stop().code, 0, sweep.err())


main()
