"""What the server counts, and replies that are not wanted."""
import socket

from impeltest import check, equal, main, test
from served import Served

CHANGES = [
    ("FLUSHALL", 0), ("XADD s 1-0 a b", 1), ("XADD s MAXLEN 1 2-0 a b", 1), ("XADD no NOMKSTREAM * a b", 0),
    ("XADD s 5-0 a b", 1), ("XADD s 6-0 a b", 1), ("XGROUP CREATE s g 0", 1), ("XGROUP CREATECONSUMER s g z", 1),
    ("XGROUP CREATECONSUMER s g z", 0), ("XREADGROUP GROUP g a COUNT 2 STREAMS s >", 2),
    ("XREADGROUP GROUP g a STREAMS s 0", 0), ("XREADGROUP GROUP g a STREAMS s >", 1),
    ("XREADGROUP GROUP g new STREAMS s >", 1), ("XREADGROUP GROUP g new STREAMS s >", 0),
    ("XREADGROUP GROUP g waits BLOCK 1 STREAMS s >", 1), ("XREADGROUP GROUP g waits BLOCK 1 STREAMS s >", 0),
    ("XACK s g 2-0", 1), ("XACK s g 2-0", 0), ("XCLAIM s g a 0 5-0 6-0 99-0", 2), ("XCLAIM s g c 100000 5-0", 1),
    ("XAUTOCLAIM s g a 100000 0", 0), ("XDEL s 5-0", 1), ("XDEL s 5-0", 0), ("XAUTOCLAIM s g a 0 0", 2),
    ("XTRIM s MAXLEN 0", 2), ("XTRIM s MAXLEN 0", 0), ("XGROUP SETID s g 0", 1), ("XSETID s 9-0", 1),
    ("XGROUP DELCONSUMER s g no", 0), ("XGROUP DELCONSUMER s g c", 1), ("XGROUP DESTROY s no", 0),
    ("XGROUP DESTROY s g", 1), ("SET t x", 1), ("LPUSH l a b c", 3), ("BLPOP l 1", 1), ("SADD e a b a", 2),
    ("EXPIRE t 100", 1), ("EXPIRE no 100", 0), ("PERSIST t", 1), ("PERSIST t", 0), ("RENAME t u", 1),
    ("RENAMENX u l", 0), ("COPY u v", 1), ("COPY u v", 0), ("DEL u v no", 2), ("TOUCH l", 0),
    ("XADD s 10-0 a b", 1), ("XDELEX s IDS 2 10-0 11-0", 1), ("FLUSHALL", 3)]


@test
def changes_are_counted_as_redis_counts_them(tmp):
    r = Served(tmp).client()

    def changes():
        return r.info("persistence")["rdb_changes_since_last_save"]

    for command, count in CHANGES:
        before = changes()
        r.execute_command(*command.split())
        equal(changes(), before + count, command)
    r.save()
    equal(changes(), 0)


class Raw:
    def __init__(self, served):
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        self.input = self.socket.makefile("rb")

    def send(self, *lines):
        self.socket.sendall(b"".join(line + b"\r\n" for line in lines))

    def until(self, line):
        got = []
        while not got or got[-1] != line:
            got.append(self.input.readline()[:-2])
            check(self.socket.fileno() >= 0 and got[-1:] != [b""], got)
        return got[:-1]


@test
def calls_are_counted_once_and_by_how_they_end(tmp):
    served = Served(tmp)
    raw = Raw(served)
    raw.send(b"FOO", b"CONFIG RESETSTAT", b"FOO", b"XLEN", b"EXEC", b"MULTI", b"XLEN s", b"XADD s 0 a b", b"EXEC",
             b"MULTI", b"FOO", b"EXEC", b"XADD s 0 a b", b"XREAD BLOCK 1 STREAMS s $", b"CONFIG SET foo bar",
             b"PING done")
    raw.until(b"done")
    r = served.client()
    stats = {k[8:]: (v["calls"], v["rejected_calls"], v["failed_calls"]) for k, v in r.info("commandstats").items()}
    for name, want in [("xlen", (1, 1, 0)), ("exec", (3, 0, 2)), ("multi", (2, 0, 0)), ("xadd", (2, 0, 2)),
                       ("xread", (1, 0, 0)), ("config|set", (1, 0, 1)), ("config|resetstat", (1, 0, 0)),
                       ("ping", (1, 0, 0))]:
        equal(stats[name], want, name)
    # Without what was refused or only kept for EXEC; with the INFO before.
    equal(r.info("stats")["total_commands_processed"], sum(calls for calls, _, _ in stats.values()) + 1)


@test
def a_reply_that_is_not_wanted_does_not_come_later_either(tmp):
    served = Served(tmp)
    control = served.client()
    for quiet, after in ((b"OFF", [b"+OK"]), (b"SKIP", [b"+OK"])):
        for ends in ("XADD s * a b", "CLIENT UNBLOCK"):
            raw = Raw(served)
            raw.send(b"CLIENT ID")
            number = raw.input.readline()[1:-2].decode()
            raw.send(b"CLIENT REPLY " + quiet, b"XREAD BLOCK 0 STREAMS s $")
            served.client_id_blocked()
            control.execute_command(*ends.split(), *([number] if ends.endswith("BLOCK") else []))
            raw.send(b"CLIENT REPLY ON", b"ECHO end")
            equal(raw.until(b"end"), after + [b"$3"], "%s, %s" % (quiet, ends))


main()
