"""everystore -- one test, run on every kind of store: the embedded one, a Redis, and `impel serve`.

Scenes are set by a Redis client, which on the embedded store speaks to an `impel serve` beside it:
that costs no process for each command. Where $IMPEL_TEST_SERVER names a server, only that is asked."""
import json

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
