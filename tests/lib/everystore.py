"""everystore -- one test, run on every kind of store: the embedded one, a Redis, and `impel serve`.

Scenes are set by a Redis client, which on the embedded store speaks to an `impel serve` beside it:
that costs no process for each command. Where $IMPEL_TEST_SERVER names a server, only that is asked."""
import json
import select
import socket
import threading

import redis

from impeltest import (SERVER, check, equal, impel, impel_argv, start, start_redis, test)


class Store(str):
    """A store's URL, and a client for what is in it."""
    client = None


def _serve(tmp):
    path = tmp / "serve.sock"
    process = start(impel_argv("serve", "--unix", path, store="lmdb:%s?sync=process" % (tmp / "db")),
                    tmp)
    process.wait_for_output("serving")
    store = Store("unix://%s" % path)
    store.client = redis.Redis(unix_socket_path=str(path), decode_responses=True)
    return store


def _lmdb(tmp):
    store = Store("lmdb:%s?sync=process" % (tmp / "db"))
    store.client = _serve(tmp).client
    return store


def _redis(tmp):
    _, port = start_redis(tmp)
    store = Store("redis://127.0.0.1:%d" % port)
    store.client = redis.Redis(port=port, decode_responses=True)
    return store


KINDS = {"lmdb": _lmdb, "redis": _redis, "serve": _serve}


def _on(function, kinds):
    def make(kind):
        def on_kind(tmp):
            function(tmp, KINDS[kind](tmp))
        on_kind.__name__ = "%s_on_%s" % (function.__name__, kind)
        test(on_kind)
    for kind in ["redis"] if SERVER else kinds:
        make(kind)
    return function


def every_store(function):
    """Makes a test of a function(tmp, store) for each kind of store."""
    return _on(function, KINDS)


def both_stores(function):
    """The same without `impel serve`, for what it could only say again: its file is the embedded store's."""
    return _on(function, ("lmdb", "redis"))


def wire_stores(function):
    """The same for what is spoken to over a socket."""
    return _on(function, ("redis", "serve"))


class Between:
    """A way to a store for one program. `act` is called once, when `moment` pieces of what the
    program says have passed, before the next one does."""

    def __init__(self, store, moment, act):
        self.at, self.left, self.act = store.client, moment, act
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "redis://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                program, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(program,), daemon=True).start()

    def _upstream(self):
        at = self.at.connection_pool.connection_kwargs
        if "path" in at:
            server = socket.socket(socket.AF_UNIX)
            server.connect(at["path"])
            return server
        return socket.create_connection((at["host"], at["port"]))

    def _relay(self, program):
        with program, self._upstream() as server:
            while True:
                for ready in select.select([program, server], [], [])[0]:
                    piece = ready.recv(1 << 16)
                    if not piece:
                        return
                    if ready is program:
                        piece = self.says(piece)
                    (server if ready is program else program).sendall(piece)

    def _pass(self):
        self.left -= 1
        if self.left == -1:
            self.act()

    def says(self, piece):
        """A piece of what the program said; what is returned goes on to the store."""
        self._pass()
        return piece

    def acted(self):
        """Was there such a moment? Ends the way."""
        self.listener.close()
        return self.left < 0


def call(store, *words):
    """One command."""
    return store.client.execute_command(*words)


def add(store, stream, *ids):
    for each in ids:
        call(store, "XADD", stream, each, "n", "v")


def add_many(store, stream, count):
    pipe = store.client.pipeline(transaction=False)
    for i in range(count):
        pipe.execute_command("XADD", stream, "*", "n", str(i))
    pipe.execute()


def read(store, stream, group, consumer, count=1000):
    """Reads as a foreign consumer; returns the IDs."""
    reply = store.client.xreadgroup(group, consumer, {stream: ">"}, count)
    return [entry for _, entries in reply for entry, _ in entries]


def ids(store, stream="s"):
    """What is in a stream."""
    return [entry for entry, _ in store.client.xrange(stream)]


def status(store, *args):
    """What status says of each stream; its exit code fits what it says."""
    done = impel("status", "--json", *args, store=store)
    check(done.code in (0, 3), done.err)
    streams = json.loads(done.out)["streams"]
    needs = any(g["health"] in ("attention", "unknown") for s in streams for g in s["groups"])
    equal(done.code, 3 if needs else 0, done.out)
    return streams


def while_work_ends(store, look):
    """Calls look(url) while a consumer of group "g" of stream "s" ends its work and leaves: once for
    each moment at which that can happen."""
    def finish():
        call(store, "XACK", "s", "g", "1-1", "1-2", *read(store, "s", "g", "c"))
        call(store, "XGROUP", "DELCONSUMER", "s", "g", "c")

    moment, acted = 0, True
    while acted:
        call(store, "DEL", "s")
        add(store, "s", "1-1", "1-2", "1-3", "1-4")
        call(store, "XGROUP", "CREATE", "s", "g", "0")
        read(store, "s", "g", "c", 2)
        way = Between(store, moment, finish)
        look(way.url)
        acted = way.acted()
        moment += 1
    check(moment > 3, "only %d moments" % moment)
