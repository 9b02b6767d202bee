"""Clients that people have, against `impel serve`: entries are produced, consumed by a process that is
killed while it holds some, and recovered; and what else a client does: blocking, pipelines,
transactions, errors. One script a client tells the same story in its language."""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess

import redis

from impeltest import check, contains, equal, free_port, impel_argv, main, run, skip, start, test, wait_for

HERE = pathlib.Path(__file__).resolve().parent
NODE = {"NODE_PATH": "/usr/share/nodejs"}


def serve(tmp, *args):
    port = free_port()
    process = start(impel_argv("serve", "--listen", "127.0.0.1:%d" % port, *args,
                               store="lmdb:%s?sync=process" % (tmp / "db")), tmp)
    process.wait_for_output("serving")
    return process, port


def story(tmp, argv, env=None):
    server, port = serve(tmp)
    look = redis.Redis(port=port, decode_responses=True)

    def step(name):
        done = start([*argv, name, port], tmp, env=env).wait()
        equal(done.code, 0, name + "\n" + done.out + done.err)
        return json.loads(done.out.splitlines()[-1])

    equal(step("produce"), 102)
    first = look.xrange("s", count=1)[0][1]
    equal(first, {"n": "0", "pad": "ü\r\n"})

    worker = start([*argv, "work", port], tmp, env=env)
    worker.wait_for_output("holding")
    wait_for(lambda: look.info("clients")["blocked_clients"] == 1, what="the worker to block")
    worker.signal(signal.SIGKILL)
    worker.wait()
    equal(worker.out().split(), ["10", "holding"])
    held = {c["name"]: c["pending"] for c in look.xinfo_consumers("s", "g")}
    equal(held, {"a": 35})

    # The server's turn to die: nothing that it answered is lost.
    server.signal(signal.SIGKILL)
    server.wait()
    server = start(server.popen.args, tmp)
    server.wait_for_output("serving")

    equal(step("recover"), list(range(10, 102)))
    equal(look.xpending("s", "g")["pending"], 0)
    equal(look.xinfo_groups("s")[0]["lag"], 0)

    waiter = start([*argv, "wait", port], tmp, env=env)
    wait_for(lambda: look.info("clients")["blocked_clients"] == 1, what="the reader to block")
    look.xadd("s", {"n": 200})
    done = waiter.wait()
    equal((done.code, done.out), (0, "[200]\n"), done.err)
    equal(step("watch"), "aborted")
    equal(step("wrong"), "WRONGTYPE")
    equal(server.stop().code, 0)
    equal(run(impel_argv("check", store=tmp / "db")).code, 0)


def has(argv, env=None):
    if shutil.which(argv[0]) is None:
        return False
    return subprocess.run(argv, env=dict(os.environ, **(env or {})), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


@test
def redis_py(tmp):
    story(tmp, ["/usr/bin/python3", HERE / "story.py"])


@test
def node_redis(tmp):
    if not has(["node", "-e", "require('redis')"], NODE):
        skip("no node with node-redis here")
    story(tmp, ["node", HERE / "story.js"], NODE)


@test
def redis_rb(tmp):
    if not has(["ruby", "-e", "require 'redis'"]):
        skip("no ruby with ruby-redis here")
    story(tmp, ["ruby", HERE / "story.rb"])


@test
def phpredis(tmp):
    if not has(["php", "-r", "new Redis();"]):
        skip("no php with php-redis here")
    story(tmp, ["php", HERE / "story.php"])


# ---- redis-cli ----

def cli(port, *args, stdin=b""):
    done = run(["redis-cli", "-p", port, *args], stdin=stdin)
    equal(done.code, 0, done.err)
    return done.out


def need_cli():
    if shutil.which("redis-cli") is None:
        skip("no redis-cli here")


@test
def redis_cli_in_both_versions(tmp):
    need_cli()
    _, port = serve(tmp)
    for flags in [[], ["-3"]]:
        key = "s" + "".join(flags)
        equal(cli(port, *flags, "XGROUP", "CREATE", key, "g", "0", "MKSTREAM"), "OK\n")
        adds = "".join("XADD %s %d-1 n %d\n" % (key, n + 1, n) for n in range(20))
        equal(cli(port, *flags, stdin=adds), "".join("%d-1\n" % (n + 1) for n in range(20)))
        # Its process ends with each call: what it has read stays pending, as after a crash.
        contains(cli(port, *flags, "XREADGROUP", "GROUP", "g", "a", "COUNT", 5, "STREAMS", key, ">"), "5-1")
        claimed = cli(port, *flags, "--json", "XAUTOCLAIM", key, "g", "b", 0, "0-0")
        equal(len(json.loads(claimed)[1]), 5)
        equal(cli(port, *flags, "XACK", key, "g", *["%d-1" % n for n in range(1, 6)]), "5\n")
        equal(cli(port, *flags, stdin="MULTI\nXLEN %s\nXTRIM %s MAXLEN 5\nEXEC\n" % (key, key)).split(),
              ["OK", "QUEUED", "QUEUED", "20", "15"])
        contains(cli(port, *flags, "--no-raw", "XINFO", "STREAM", key), "length")
    equal(sorted(cli(port, "--scan").split()), ["s", "s-3"])
    contains(cli(port, "--bigkeys"), "2 streams with 10 entries")
    contains(cli(port, "INFO", "server"), "redis_mode:standalone")


@test
def redis_cli_pipes_a_mass_of_commands(tmp):
    need_cli()
    _, port = serve(tmp)
    requests = b"".join(b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nn\r\n$5\r\n%05d\r\n" % n
                        for n in range(50000))
    contains(cli(port, "--pipe", stdin=requests), "errors: 0, replies: 50000")
    equal(cli(port, "XLEN", "s"), "50000\n")


@test
def redis_cli_on_a_terminal_knows_the_commands(tmp):
    """It asks for COMMAND DOCS at the start, and shows what it got as hints and help."""
    need_cli()
    _, port = serve(tmp)
    look = redis.Redis(port=port, decode_responses=True)
    master, slave = pty.openpty()
    process = start(["redis-cli", "-p", port], tmp, stdin=slave,
                    env={"TERM": "dumb", "HOME": str(tmp)})
    os.write(master, b"XADD s 7-7 a b\n")
    wait_for(lambda: look.xlen("s") == 1, what="the command to arrive")
    os.write(master, b"HELP XAUTOCLAIM\nQUIT\n")
    process.wait()
    os.close(master)
    os.close(slave)
    contains(process.out(), "7-7")
    contains(process.out(), "XAUTOCLAIM")
    calls = look.info("commandstats")
    check(calls["cmdstat_command|docs"]["calls"] >= 1, "it asked for COMMAND DOCS")
    equal(calls["cmdstat_command|docs"]["failed_calls"], 0)


@test
def redis_benchmark(tmp):
    if shutil.which("redis-benchmark") is None:
        skip("no redis-benchmark here")
    _, port = serve(tmp)
    done = run(["redis-benchmark", "-p", port, "-t", "ping", "-n", "1000", "-q"])
    equal(done.code, 0, done.err)
    check("WARN" not in done.out + done.err, done.out + done.err)
    for words in [["xadd", "s", "*", "f", "v"], ["xlen", "s"], ["xrange", "s", "-", "+", "COUNT", "2"]]:
        equal(run(["redis-benchmark", "-p", port, "-q", "-n", "3000", "-P", "16", *words]).code, 0)
    check(redis.Redis(port=port).xlen("s") >= 3000, "each request adds one")


main()
