"""The server and real clients: connections, the stream story, limits, and its end."""
import signal
import socket
import subprocess

import redis

from impeltest import check, contains, equal, impel, impel_argv, main, run, skip, test, wait_for
from served import SERVE, Served, error_of


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, served):
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=30)

    def ask(self, data, size):
        self.socket.sendall(data)
        return self.read(size)

    def read(self, size):
        got = b""
        while len(got) < size:
            piece = self.socket.recv(size - len(got))
            if not piece:
                break
            got += piece
        return got

    def read_all(self):
        got = b""
        while True:
            piece = self.socket.recv(65536)
            if not piece:
                return got
            got += piece


@test
def a_group_reads_crashes_and_recovers(tmp):
    r = Served(tmp).client()
    ids = [r.xadd("orders", {"n": i}) for i in range(10)]
    r.xgroup_create("orders", "g", "0")
    got = r.xreadgroup("g", "a", {"orders": ">"}, count=6)
    equal([i for i, _ in got[0][1]], ids[:6])
    equal(r.xack("orders", "g", *ids[:2]), 2)
    # `a` is gone; `b` takes over what it held.
    claimed = r.xautoclaim("orders", "g", "b", 0, count=100)
    equal([i for i, _ in claimed[1]], ids[2:6])
    equal(r.xack("orders", "g", *ids[2:6]), 4)
    equal([f["n"] for _, f in r.xreadgroup("g", "b", {"orders": ">"})[0][1]],
          ["6", "7", "8", "9"])
    equal(r.xpending("orders", "g")["pending"], 4)
    equal(r.xinfo_groups("orders")[0]["lag"], 0)
    equal(r.xlen("orders"), 10)


@test
def pipelines_are_answered_in_order(tmp):
    r = Served(tmp).client()
    pipe = r.pipeline(transaction=False)
    for i in range(5000):
        pipe.execute_command("XADD", "s", "%d-1" % (i + 1), "n", i)
        pipe.execute_command("ECHO", str(i))
    got = pipe.execute()
    equal(got, [x for i in range(5000) for x in ("%d-1" % (i + 1), str(i))])


@test
def requests_may_come_in_any_pieces(tmp):
    raw = Raw(Served(tmp))
    request = b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$3\r\n5-1\r\n$1\r\na\r\n$2\r\nbc\r\n"
    for byte in request:
        raw.socket.sendall(bytes([byte]))
    equal(raw.read(9), b"$3\r\n5-1\r\n")
    equal(raw.ask(b"PING\r\n*0\r\n\r\nXLEN 's'\r\n", 11), b"+PONG\r\n:1\r\n")


@test
def protocol_errors_close(tmp):
    served = Served(tmp)
    for data, answer in [
            (b"*1\r\n!4\r\nPING\r\n", b"-ERR Protocol error: expected '$', got '!'\r\n"),
            (b"*2\r\n$4\r\nECHO\r\n\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n"),
            (b"*zzz\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
            (b"*1\r\n$-5\r\n", b"-ERR Protocol error: invalid bulk length\r\n"),
            (b'PING "x\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n")]:
        raw = Raw(served)
        raw.socket.sendall(data)
        equal(raw.read_all(), answer)
    equal(served.client().ping(), True)


@test
def what_a_web_page_sends_is_not_carried_out(tmp):
    served = Served(tmp)
    head = b"Host: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\r\n"
    for first in [b"POST / HTTP/1.1\r\n", b"PUT / HTTP/1.1\r\n", b"post / HTTP/1.1\r\n", b""]:
        raw = Raw(served)
        raw.socket.sendall(first + head + b"XADD pwned * a b\r\n")
        check(b"-0\r\n" not in raw.read(1 << 20), first)
    equal(served.client().exists("pwned"), 0)


@test
def resp3_has_maps_and_nulls(tmp):
    raw = Raw(Served(tmp))
    check(raw.ask(b"HELLO 3\r\n", 4).startswith(b"%7\r\n"))
    got = raw.ask(b"ECHO end-of-hello\r\n", 1)
    while not got.endswith(b"\r\nend-of-hello\r\n"):
        got += raw.read(1)
    want = (b"$3\r\n1-1\r\n%1\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\na\r\n"
            b"$1\r\nb\r\n_\r\n")
    equal(raw.ask(b"XADD s 1-1 a b\r\nXREAD STREAMS s 0\r\nXREAD STREAMS s 5\r\n", len(want)), want)


@test
def unknown_and_wrong_commands_are_told_as_redis_does(tmp):
    r = Served(tmp).client()
    equal(error_of(r.execute_command, "FOO", "a", "b"),
          "unknown command 'FOO', with args beginning with: 'a' 'b' ")
    equal(error_of(r.execute_command, "CLIENT", "FOO"),
          "unknown subcommand 'FOO'. Try CLIENT HELP.")
    equal(error_of(r.execute_command, "XADD", "s"),
          "wrong number of arguments for 'xadd' command")
    equal(error_of(r.execute_command, "XGROUP", "CREATE", "s"),
          "wrong number of arguments for 'xgroup|create' command")
    stats = r.info("errorstats")
    check(stats["errorstat_ERR"] in ("count=4", {"count": 4}), stats)  # redis-py 5 takes it apart
    equal(r.info("stats")["total_error_replies"], 4)
    equal(r.info("commandstats")["cmdstat_xadd"]["rejected_calls"], 1)


@test
def a_password_is_asked_for(tmp):
    served = Served(tmp, "password:secret")
    contains(error_of(served.client().xlen, "s"), "Authentication required")
    contains(error_of(served.client(password="wrong").xlen, "s"), "invalid username-password")
    equal(served.client(password="secret").xlen("s"), 0)
    raw = Raw(served)
    raw.socket.sendall(b"*11\r\n")
    equal(raw.read_all(), b"-ERR Protocol error: unauthenticated multibulk length\r\n")


@test
def without_a_password_only_loopback_is_served(tmp):
    done = run([SERVE, tmp / "db", "full", "0.0.0.0:0"])
    equal(done.code, 1)
    contains(done.err, "there is no password")


@test
def too_many_clients_are_told_so(tmp):
    served = Served(tmp, "clients:2")
    first, second = served.client(), served.client()
    equal((first.ping(), second.ping()), (True, True))
    raw = Raw(served)
    equal(raw.read_all(), b"-ERR max number of clients reached\r\n")
    equal(first.info("stats")["rejected_connections"], 1)


@test
def a_client_that_does_not_read_is_cut(tmp):
    served = Served(tmp, "output:1000000")
    r = served.client()
    r.xadd("s", {"big": "x" * 100000})
    raw = Raw(served)
    try:
        for _ in range(2000):
            raw.socket.sendall(b"XRANGE s - +\r\n")
    except OSError:
        pass
    wait_for(lambda: r.info("stats")["client_output_buffer_limit_disconnections"] == 1,
             what="the slow reader to be cut")
    equal(r.xlen("s"), 1)


@test
def a_big_announcement_costs_nothing(tmp):
    served = Served(tmp)
    r = served.client()
    before = r.info("memory")["used_memory"]
    idle = [Raw(served) for _ in range(100)]
    for raw in idle:
        raw.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$536870912\r\nx")
    equal(r.ping(), True)
    check(r.info("memory")["used_memory"] - before < 32 * 1024 * 1024, "memory was set aside")


@test
def term_ends_cleanly_and_nothing_is_lost(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"a": 1})
    done = served.process.stop()
    equal(done.code, 0, done.err)
    served.start()
    equal(served.client().xlen("s"), 1)


@test
def a_kill_loses_nothing_answered(tmp):
    served = Served(tmp, sync="full")
    r = served.client()
    added = 0
    for _ in range(3):
        ids = []
        for _ in range(50):
            ids.append(r.xadd("s", {"n": added}))
            added += 1
        served.process.signal(signal.SIGKILL)
        served.process.wait()
        served.start()
        r = served.client()
        equal(r.xlen("s"), added)
        equal(r.xrevrange("s", count=1)[0][0], ids[-1])


@test
def a_full_store_refuses_adds_and_nothing_else(tmp):
    served = Served(tmp, sync="process&map=4MiB")
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    full, added = None, 0
    while full is None:
        pipe = r.pipeline(transaction=False)
        for i in range(50):
            pipe.execute_command("XADD", "s", "*", "f", "x" * 2000)
            pipe.execute_command("ECHO", str(i))
        got = pipe.execute(raise_on_error=False)
        # Whatever became of the adds, each reply is where it belongs.
        equal(got[1::2], [str(i) for i in range(50)])
        refused = [g for g in got[0::2] if isinstance(g, Exception)]
        added += 50 - len(refused)
        full = refused[0] if refused else None
    # redis-py 5 makes the code a class.
    check(str(full).startswith("OOM ") or type(full).__name__ == "OutOfMemoryError", full)
    contains(str(full), "full")
    equal(r.xlen("s"), added)
    ids = [i for i, _ in r.xreadgroup("g", "c", {"s": ">"}, count=100)[0][1]]
    equal(r.xack("s", "g", *ids), 100)
    equal(r.xtrim("s", maxlen=10, approximate=False), added - 10)
    wait_for(lambda: not isinstance(r.pipeline(transaction=False).execute_command(
        "XADD", "s", "*", "f", "x" * 2000).execute(raise_on_error=False)[0], Exception),
             what="room for adds after trimming")
    done = run([SERVE, served.db, "check"])
    equal(done.code, 0, done.out)


@test
def redis_cli_and_benchmark_work(tmp):
    served = Served(tmp)
    try:
        subprocess.run(["redis-cli", "--version"], stdout=subprocess.DEVNULL, check=True)
    except OSError:
        skip("no redis-cli here")
    done = run(["redis-cli", "-s", served.unix, "XADD", "s", "1-1", "a", "b"])
    equal(done.out, "1-1\n")
    done = run(["redis-benchmark", "-p", served.port, "-q", "-n", "2000", "-P", "16", "xadd", "b", "*",
                "f", "v"])
    equal(done.code, 0, done.err)
    equal(served.client().xlen("b"), 2000)
    equal(error_of(redis.Redis(port=served.port).execute_command, "SELECT", "1"),
          "DB index is out of range")


@test
def what_cannot_be_used_is_named_as_it_is(tmp):
    db = tmp / "db"
    done = impel("serve", "--unix", tmp / "sock", "--password-file", tmp / "nope", store=db)
    equal(done.code, 2, done.err)
    contains(done.err, "--password-file %s: No such file" % (tmp / "nope"))
    done = impel("serve", "--unix", tmp / "nowhere" / "sock", store=db)
    equal(done.code, 1, done.err)
    contains(done.err, "cannot listen on %s: no such file or directory" % (tmp / "nowhere" / "sock"))
    (tmp / "file").write_text("mine", encoding="utf-8")
    done = impel("serve", "--unix", tmp / "file", store=db)
    equal((done.code, (tmp / "file").read_text(encoding="utf-8")), (1, "mine"), done.err)
    contains(done.err, "there is something else than a socket")
    for path in ["", "/tmp/" + "x" * 103]:
        done = impel("serve", "--unix", path, store=db)
        equal(done.code, 2, done.err)
        contains(done.err, "the path of a socket has 1 to 107 bytes")
    done = run(["sh", "-c", 'ulimit -n 8 && exec "$@"', "sh", *impel_argv("serve", "--unix", tmp / "sock", store=db)])
    equal(done.code, 1, done.err)
    contains(done.err, "too many open files; raise the limit")


main()
