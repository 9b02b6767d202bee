"""calls.py -- the embedded store and a real server behind one face: send words, get a reply.

Replies are Python values: int, bytes, list, dict (RESP3 maps), and for the rest small classes, so
that a null array is not a null and an error is not a string."""
import socket
import subprocess

from impeltest import BUILD, DEADLINE_S, SLOWNESS, Failed, start_redis


class Status(bytes):
    pass


class Error(bytes):
    pass


class Null:
    """A null bulk, or a null array: told apart in RESP2."""

    def __init__(self, kind):
        self.kind = kind

    def __eq__(self, other):
        return isinstance(other, Null) and other.kind == self.kind

    def __repr__(self):
        return "Null(%s)" % self.kind


def encode(words):
    words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def connect(port):
    """To a server that has to answer each command within the deadline."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S * SLOWNESS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class Side:
    """One end that takes commands."""

    def __init__(self, into, out, name):
        self.into = into
        self.out = out
        self.name = name

    def call(self, words):
        self.into.write(encode(words))
        self.into.flush()
        try:
            return self._read()
        except TimeoutError:
            raise Failed("%s does not answer %r" % (self.name, words)) from None

    def calls(self, commands):
        """Many at once; the replies in order."""
        self.into.write(b"".join(encode(c) for c in commands))
        self.into.flush()
        return [self._read() for _ in commands]

    def _read(self):
        line = self.out.readline()
        if not line.endswith(b"\r\n"):
            raise Failed("%s ended in the middle of a reply" % self.name)
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Status(rest)
        if kind == b"-":
            return Error(rest)
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return Null("any")
        size = int(rest)
        if kind == b"$":
            return Null("bulk") if size < 0 else self.out.read(size + 2)[:-2]
        if kind == b"*":
            return Null("array") if size < 0 else [self._read() for _ in range(size)]
        if kind == b"%":
            return {self._read(): self._read() for _ in range(size)}
        raise Failed("%s sent %r" % (self.name, line))


class Embedded(Side):
    def __init__(self, path, version=2):
        self.process = subprocess.Popen(
            [str(BUILD / "tests" / "command" / "call-server"), str(path), str(version)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=65536)
        super().__init__(self.process.stdin, self.process.stdout, "the embedded store")

    def close(self):
        self.process.stdin.close()
        code = self.process.wait()
        if code != 0:
            raise Failed("call-server ended with %d" % code)


class Server(Side):
    def __init__(self, folder):
        self.process, port = start_redis(folder)
        self.socket = connect(port)
        super().__init__(self.socket.makefile("wb"), self.socket.makefile("rb"), "redis-server")
