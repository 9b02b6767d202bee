"""What peers may do to the server: many, slow, silent, greedy, gone. Whatever it is, the others are
served on and memory stays bounded.
$IMPEL_CONNECTIONS says how many connections (1,000)."""
import os
import resource
import select
import socket
import struct

from impeltest import DEADLINE_S, check, contains, equal, main, run, test, wait_for
from served import SERVE, Served, error_of

MIB = 1024 * 1024
CONNECTIONS = int(os.environ.get("IMPEL_CONNECTIONS", "1000"))


def raise_files(count):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count), hard))
    return min(hard, count)


def connect(served):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(DEADLINE_S)
    s.connect(served.unix)
    return s


def read_exactly(s, size):
    got = bytearray()
    while len(got) < size:
        piece = s.recv(min(size - len(got), MIB))
        if not piece:
            break
        got += piece
    return bytes(got)


def read_to_end(s):
    got = b""
    try:
        while True:
            piece = s.recv(65536)
            if not piece:
                return got
            got += piece
    except ConnectionError:
        return got


def resident(served):
    with open("/proc/%d/status" % served.process.pid, encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


def ticks(served):
    with open("/proc/%d/stat" % served.process.pid, encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@test
def many_connections_are_served_and_cost_little(tmp):
    room = raise_files(CONNECTIONS + 200)
    count = min(CONNECTIONS, room - 200)
    served = Served(tmp, "clients:%d" % (count + 10))
    r = served.client()
    r.xadd("s", {"a": 1}, id="1-1")
    before, used = resident(served), r.info("memory")["used_memory"]
    clients = []
    for at in range(0, count, 200):
        some = [connect(served) for _ in range(min(200, count - at))]
        for s in some:
            s.sendall(b"XLEN s\r\n")
        for s in some:
            equal(read_exactly(s, 4), b":1\r\n")
        clients += some
    equal(r.info("clients")["connected_clients"], count + 1)
    # At once, without any room for what they might send.
    used = r.info("memory")["used_memory"] - used
    check(used < count * 3072, "%d bytes a client" % (used / count))
    check(resident(served) - before < count * 3072 + 2 * MIB, "the heap has holes")
    for s in clients:
        s.sendall(b"XADD t * a b\r\n")
    for s in clients:
        equal(read_exactly(s, 1), b"$")
    equal(r.xlen("t"), count)
    for s in clients:
        s.close()
    wait_for(lambda: r.info("clients")["connected_clients"] == 1, what="all to be gone")


@test
def what_many_have_sent_is_given_back(tmp):
    """While they are there but say nothing, and when they are gone: although the store has taken memory
    meanwhile, behind theirs."""
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"a": 1})
    before = resident(served)
    clients = [connect(served) for _ in range(400)]
    for after in ("rested", "gone"):
        for s in clients:
            s.sendall(b"ECHO " + b"x" * 40000 + b"\r\n")
        for s in clients:
            equal(len(read_exactly(s, 40010)), 40010)
        for i in range(50):
            r.xadd("s", {"f": "x" * 1000})
        check(r.info("memory")["used_memory_peak"] > before + 24 * MIB, "nothing to give back")
        if after == "gone":
            for s in clients:
                s.close()
        wait_for(lambda: resident(served) - before < 4 * MIB,
                 what="the memory of those who have %s to be given back" % after)


@test
def many_blocked_clients_wake_one_for_each_entry(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    blocked = [connect(served) for _ in range(300)]
    for i, s in enumerate(blocked):
        s.sendall(b"XREADGROUP GROUP g c%d COUNT 1 BLOCK 0 STREAMS s >\r\n" % i)
    served.client_id_blocked(300)
    for i in range(100):
        r.xadd("s", {"n": i})
    served.client_id_blocked(200)
    equal(r.xpending("s", "g")["pending"], 100)
    for s in blocked:
        s.close()
    served.client_id_blocked(0)


@test
def a_pipeline_of_costly_requests_is_interrupted_for_others(tmp):
    served = Served(tmp)
    r, greedy = served.client(), connect(served)
    with r.pipeline(transaction=False) as p:
        for i in range(1, 50001):
            p.xadd("s", {"a": 1}, id="%d-0" % i)
        p.xgroup_create("s", "g", "0")
        p.execute()
    r.execute_command("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    # Each looks at all that is pending: together a second or more, and fewer than a turn may have.
    greedy.sendall(b"XPENDING s g IDLE 999999999 - + 10\r\n" * 900 + b"XADD done 1-1 a b\r\n")
    equal(read_exactly(greedy, 4), b"*0\r\n")
    equal(r.xlen("done"), 0, "all were carried out before one was answered")
    equal(read_exactly(greedy, 899 * 4 + 9), b"*0\r\n" * 899 + b"$3\r\n1-1\r\n")


@test
def slow_writers_keep_nobody_waiting(tmp):
    served = Served(tmp)
    request = b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\na\r\n$2\r\nbc\r\n"
    slow = [connect(served) for _ in range(100)]
    r = served.client()
    for byte in request[:-1]:
        for s in slow:
            s.sendall(bytes([byte]))
        equal(r.ping(), True)
    equal(r.xlen("s"), 0)
    for s in slow:
        s.sendall(request[-1:])
        equal(read_exactly(s, 1), b"$")
    equal(r.xlen("s"), 100)


@test
def announcements_cost_nothing(tmp):
    """Headers of half a gigabyte and of a million arguments, with nothing behind them."""
    served = Served(tmp)
    r = served.client()
    r.ping()
    before = resident(served)
    idle = [connect(served) for _ in range(200)]
    for i, s in enumerate(idle):
        s.sendall([b"*2\r\n$4\r\nECHO\r\n$536870912\r\nx", b"*1048576\r\n$1\r\na\r\n",
                   b"*3\r\n$4\r\nXLEN\r\n$536870912\r\n"][i % 3])
    equal(r.ping(), True)
    check(resident(served) - before < 16 * MIB, "memory was set aside")
    for data, answer in [(b"*1048577\r\n", b"-ERR Protocol error: invalid multibulk length\r\n"),
                         (b"*2\r\n$4\r\nECHO\r\n$536870913\r\n",
                          b"-ERR Protocol error: invalid bulk length\r\n"),
                         (b"x" * 65536 + b"y", b"-ERR Protocol error: too big inline request\r\n")]:
        s = connect(served)
        s.sendall(data)
        equal(read_to_end(s), answer)


@test
def requests_larger_than_allowed_are_cut_and_room_is_given_back(tmp):
    served = Served(tmp)
    r = served.client()
    r.config_set("client-query-buffer-limit", "2mb")
    s = connect(served)
    try:
        s.sendall(b"*2\r\n$4\r\nECHO\r\n$100000000\r\n" + b"x" * 3 * MIB)
    except OSError:
        pass
    equal(read_to_end(s), b"-ERR Protocol error: request of more than 2097152 bytes\r\n")
    r.config_set("client-query-buffer-limit", "1gb")
    s = connect(served)
    big = b"x" * 48 * MIB
    s.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % len(big) + big + b"\r\n")
    equal(read_exactly(s, len(big) + 13), b"$%d\r\n" % len(big) + big + b"\r\n")
    wait_for(lambda: resident(served) < 24 * MIB, what="the memory of a large request to be given back")


@test
def a_reader_that_stops_is_cut_before_it_costs_much(tmp):
    served = Served(tmp, "output:4000000")
    r = served.client()
    for i in range(10):
        r.xadd("s", {"big": "x" * 100000})
    stopped = [connect(served) for _ in range(10)]
    for s in stopped:
        s.sendall(b"XRANGE s - +\r\n" * 1000)
    wait_for(lambda: r.info("stats")["client_output_buffer_limit_disconnections"] == 10,
             what="ten slow readers to be cut")
    check(resident(served) < 100 * MIB, "they cost %d MiB" % (resident(served) / MIB))
    equal(r.xlen("s"), 10)


@test
def peers_that_vanish_leave_nothing_behind(tmp):
    """Resets in the middle of requests, of blocked reads and of transactions."""
    served = Served(tmp)
    r = served.client()
    for i in range(200):
        s = socket.create_connection(("127.0.0.1", served.port), timeout=DEADLINE_S)
        s.sendall([b"*3\r\n$4\r\nXADD\r\n$1", b"XREAD BLOCK 0 STREAMS s $\r\n",
                   b"MULTI\r\nXADD s * a b\r\n", b"WATCH s\r\nPING\r\n"][i % 4])
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
    wait_for(lambda: r.info("clients")["connected_clients"] == 1, what="all to be gone")
    equal(r.info("clients")["blocked_clients"], 0)
    equal(r.xlen("s"), 0)


@test
def what_was_sent_before_the_end_is_carried_out_and_answered(tmp):
    served = Served(tmp)
    r = served.client()
    for _ in range(50):
        s = connect(served)
        s.sendall(b"XADD s * a b\r\n" * 3)
        s.close()
    wait_for(lambda: r.xlen("s") == 150, what="150 entries")
    r.xadd("big", {"f": "x" * 2000000}, id="1-1")
    s = connect(served)
    s.sendall(b"XRANGE big - +\r\nXLEN s\r\n")
    s.shutdown(socket.SHUT_WR)
    got = read_to_end(s)
    check(len(got) > 2000000 and got.endswith(b":150\r\n"), got[-100:])


@test
def clients_that_pause_hold_up_nobody_else(tmp):
    served = Served(tmp)
    r, held = served.client(), connect(served)
    r.execute_command("CLIENT", "PAUSE", "60000", "WRITE")
    held.sendall(b"XADD s 1-1 a b\r\nXLEN s\r\n")
    before = ticks(served)
    for _ in range(20):
        equal(r.xlen("s"), 0)
    ready, _, _ = select.select([held], [], [], 1)
    check(not ready, "a write went through the pause")
    check(ticks(served) - before < 50, "the server spun for %d ticks" % (ticks(served) - before))
    r.execute_command("CLIENT", "UNPAUSE")
    equal(read_exactly(held, 13), b"$3\r\n1-1\r\n:1\r\n")


@test
def at_rest_it_uses_no_processor(tmp):
    served = Served(tmp)
    blocked = [connect(served) for _ in range(50)]
    for s in blocked:
        s.sendall(b"XREAD BLOCK 0 STREAMS s $\r\n")
    served.client_id_blocked(50)
    before = ticks(served)
    ready, _, _ = select.select(blocked, [], [], 2)
    check(not ready, "a blocked read ended")
    check(ticks(served) - before <= 10, "%d ticks in 2 s at rest" % (ticks(served) - before))


@test
def too_few_files_are_told_and_survived(tmp):
    served = Served(tmp, "clients:5000")
    served.process.stop()
    limited = ["sh", "-c", 'ulimit -n 90; exec "$@"', "sh"]
    served.args = limited + [str(a) for a in served.args]
    served.start()
    contains(served.process.out(), "the limit of open files, 90, leaves room for 26 clients")
    r = served.client()
    equal(r.info("clients")["maxclients"], 26)
    others = [connect(served) for _ in range(40)]
    answers = []
    for s in others:
        try:
            s.sendall(b"PING\r\n")
        except OSError:
            pass
        answers.append(read_exactly(s, 7))
    equal(answers.count(b"+PONG\r\n"), 25)
    equal(set(answers), {b"+PONG\r\n", b"-ERR ma"})
    equal(r.ping(), True)


@test
def watched_keys_have_a_limit_too(tmp):
    served = Served(tmp)
    r = served.client()
    contains(error_of(r.execute_command, "WATCH", *["k%d" % i for i in range(8193)]), "more than 8192")
    equal(run([SERVE, served.db, "check"]).code, 0)


main()
