"""Several processes on one file: writers that have it open, and two servers with blocked readers. No
wake-up is lost, and nobody is busy while there is nothing to do. $IMPEL_ADDS = how many entries
(20,000)."""
import json
import os
import select
import socket
import threading

import redis

from impeltest import (DEADLINE_S, SLOWNESS, check, equal, free_port, impel_argv, main, now, run, start, test,
                       wait_for)

ADDS = int(os.environ.get("IMPEL_ADDS", "20000"))
WRITERS = 4
LONG_S = DEADLINE_S + ADDS / 200


class Place:
    """Two servers on one file."""

    def __init__(self, tmp):
        self.tmp = tmp
        self.url = "lmdb:%s?sync=process" % (tmp / "db")
        self.ports = [free_port(), free_port()]
        self.servers = [start(impel_argv("serve", "--listen", "127.0.0.1:%d" % port, store=self.url), tmp)
                        for port in self.ports]
        for server in self.servers:
            server.wait_for_output("serving")

    def client(self, which, **options):
        return redis.Redis(port=self.ports[which], decode_responses=True, **options)

    def blocked(self, which, count):
        look = self.client(which)
        wait_for(lambda: look.info("clients")["blocked_clients"] == count, what="%d blocked" % count)

    def end(self):
        for server in self.servers:
            equal(server.stop().code, 0)
        equal(run(impel_argv("check", store=self.url)).code, 0)


def ticks(pid):
    with open("/proc/%d/stat" % pid, encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


@test
def four_writers_and_four_blocked_readers(tmp):
    place = Place(tmp)
    place.client(0).xgroup_create("s", "g", "0", mkstream=True)
    got = [[] for _ in range(4)]

    def read(number):
        r = place.client(number % 2, socket_timeout=LONG_S * SLOWNESS)
        while True:
            for entry_id, fields in r.xreadgroup("g", "c%d" % number, {"s": ">"}, count=50, block=0)[0][1]:
                if "end" in fields:
                    return
                got[number].append((entry_id, fields["n"]))
    readers = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for reader in readers:
        reader.start()
    place.blocked(0, 2)
    place.blocked(1, 2)
    writers = []
    for writer in range(WRITERS):
        path = tmp / ("lines%d" % writer)
        path.write_text("".join(json.dumps({"n": "%d.%d" % (writer, n)}) + "\n" for n in range(ADDS // WRITERS)))
        with open(path, "rb") as lines:
            writers.append(start(impel_argv("add", "--stream", "s", "--jsonl", "-", store=place.url), tmp,
                                 stdin=lines))
    for writer in writers:
        done = writer.wait(LONG_S)
        equal(done.code, 0, done.err)
    wait_for(lambda: sum(map(len, got)) >= ADDS, LONG_S, "every entry to be read")
    for number in range(4):  # each reader takes one: it asks for no more than one end
        place.client(number % 2).xadd("s", {"end": 1})
        readers[number].join(0)
        wait_for(lambda: sum(not r.is_alive() for r in readers) > number, what="a reader to end")  # pylint: disable=cell-var-from-loop
    entries = [entry for some in got for entry in some]
    equal(len(entries), ADDS)
    equal(len(set(entries)), ADDS)
    equal({n for _, n in entries}, {"%d.%d" % (w, n) for w in range(WRITERS) for n in range(ADDS // WRITERS)})
    equal(place.client(0).xpending("s", "g")["pending"], ADDS + 4)
    place.end()


@test
def one_at_a_time_each_wakes_its_reader(tmp):
    """An entry, its reader in another process, the next entry. A wake-up that is lost would be made up
    for by the look that the sleeping reader takes once a second, so it shows as that second."""
    place, rounds, slow, last = Place(tmp), ADDS // 20, 0, "0"
    readers = []
    for which in (0, 1):
        readers.append(socket.create_connection(("127.0.0.1", place.ports[which]), DEADLINE_S * SLOWNESS))
    writers = [place.client(1), place.client(0)]
    place.client(0).xadd("s", {"a": 1}, id="1-1")
    last = "1-1"
    for number in range(rounds):
        which = number % 2
        readers[which].sendall(b"XREAD BLOCK 0 STREAMS s %s\r\n" % last.encode())
        if number % 16 < 2:
            place.blocked(which, 1)
        begun = now()
        last = writers[which].xadd("s", {"n": number})
        reply = b""
        while not reply.endswith(b"$%d\r\n%d\r\n" % (len(str(number)), number)):
            piece = readers[which].recv(65536)
            check(piece, "the reader was closed")
            reply += piece
        slow += now() - begun > 0.9
    check(slow <= 1 + rounds // 5000, "%d of %d wake-ups took a second" % (slow, rounds))
    place.end()


@test
def nobody_is_busy_while_nothing_happens(tmp):
    place = Place(tmp)
    blocked = []
    for which in (0, 1):
        for _ in range(4):
            s = socket.create_connection(("127.0.0.1", place.ports[which]))
            s.sendall(b"XREAD BLOCK 0 STREAMS s $\r\n")
            blocked.append(s)
        place.blocked(which, 4)
    before = [ticks(server.pid) for server in place.servers]
    ready, _, _ = select.select(blocked, [], [], 2)
    check(not ready, "a blocked read ended")
    used = [ticks(server.pid) - b for server, b in zip(place.servers, before)]
    check(max(used) <= 10, "%s ticks in 2 s of nothing" % used)
    place.client(0).xadd("s", {"a": 1})
    for s in blocked:
        s.settimeout(DEADLINE_S)
        check(s.recv(100).startswith(b"*1\r\n"), "woken")


main()
