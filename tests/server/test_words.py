"""What the words of commands may be: words.txt, sent to this server and to redis-server, and every reply
compared byte for byte. Errors, their order and their texts are part of it."""
import pathlib
import shlex
import socket

import versions

from impeltest import borrow, check, equal, main, start_redis, test
from served import Served

HERE = pathlib.Path(__file__).resolve().parent
calls = borrow(HERE.parent / "command" / "calls.py")
WORDS = HERE / "words.txt"
NEWER = "7.2: "


class Wire:
    """A connection whose replies are bytes as they came."""

    def __init__(self, port, version):
        self.port, self.version = port, version
        self.open()

    def open(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self.input = self.socket.makefile("rb")
        if self.version == 3:
            self.call([b"HELLO", b"3"])

    def reply(self):
        line = self.input.readline()
        if not line:
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and rest != b"-1":
            line += self.input.read(int(rest) + 2)
        elif kind in b"*~%" and rest != b"-1":
            for _ in range(int(rest) * (2 if kind == b"%" else 1)):
                line += self.reply()
        return line

    def call(self, words):
        try:
            self.socket.sendall(calls.encode(words))
            return self.reply()
        except (EOFError, ConnectionError):  # after QUIT
            self.open()
            return b"closed"


def lines():
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line.startswith(NEWER) and not versions.IS_BEFORE_7_2:
            line = line[len(NEWER):]
        if line and not line.startswith(("#", NEWER)):
            yield line, [w.encode().decode("unicode_escape").encode("latin1") for w in shlex.split(line)]


def compare(tmp, version):
    _, port = start_redis(tmp, "--enable-debug-command", "local")
    ours, theirs = Wire(Served(tmp).port, version), Wire(port, version)
    wrong, count = [], 0
    for line, words in lines():
        count += 1
        replies = ours.call(words), theirs.call(words)
        if replies[0] != replies[1]:
            wrong.append("%s\n  ours   %r\n  theirs %r" % ((line,) + replies))
    check(count > 500, "only %d lines" % count)
    equal("\n".join(wrong), "", "RESP%d" % version)


# What may be done before the password, and what becomes of it; the replies of HELLO tell versions and are left out.
BEFORE_THE_PASSWORD = [
    "PING|ECHO x|HELLO 9|HELLO x|HELLO 3 AUTH default x|AUTH x|AUTH default x|AUTH|AUTH nobody 'sec ret'|AUTH a b c|"
    "CLIENT ID|COMMAND|INFO|MULTI|EXEC|DISCARD|WATCH a|DEBUG SLEEP 0|RESET|PING|QUIT|PING",
    "7.2: HELLO|HELLO 2|HELLO 3 SETNAME x|HELLO 3 FOO",
    "AUTH 'sec ret'|PING|AUTH x|PING|RESET|PING|AUTH default 'sec ret'|PING",
    "7.2: HELLO 3 AUTH default 'sec ret' SETNAME 'a b'|PING",
    "7.2: HELLO 3 AUTH default 'sec ret' FOO|PING|HELLO 3 AUTH default bad SETNAME foo|PING|AUTH 'sec ret'|"
    "CLIENT GETNAME",
]


@test
def a_password_opens_what_it_opens_in_redis(tmp):
    _, port = start_redis(tmp, "--enable-debug-command", "local", "--requirepass", "sec ret")
    served = Served(tmp, "password:sec ret")
    for row in BEFORE_THE_PASSWORD:
        if row.startswith(NEWER) and versions.IS_BEFORE_7_2:
            continue
        ours, theirs = Wire(served.port, 2), Wire(port, 2)
        for line in row.removeprefix(NEWER).split("|"):
            words = [word.encode() for word in shlex.split(line)]
            equal(ours.call(words), theirs.call(words), line)


@test
def words_are_judged_as_redis_does(tmp):
    compare(tmp, 2)


@test
def and_in_resp3(tmp):
    compare(tmp, 3)


main()
