"""everystore -- one test, run on every kind of store: the embedded one, a Redis, and `impel serve`."""
import json

from impeltest import (equal, impel, impel_argv, impel_ok, run, start, start_redis, test)


def _lmdb(tmp):
    return "lmdb:%s" % (tmp / "db")


def _redis(tmp):
    _, port = start_redis(tmp)
    return "redis://127.0.0.1:%d" % port


def _serve(tmp):
    path = tmp / "serve.sock"
    process = start(impel_argv("serve", "--unix", path, store="lmdb:%s?sync=process" % (tmp / "db")),
                    tmp)
    process.wait_for_output("serving")
    return "unix://%s" % path


KINDS = {"lmdb": _lmdb, "redis": _redis, "serve": _serve}


def every_store(function, kinds=tuple(KINDS)):
    """Makes a test of a function(tmp, store) for each kind of store; `store` is its URL."""
    def make(kind):
        def on_kind(tmp):
            function(tmp, KINDS[kind](tmp))
        on_kind.__name__ = "%s_on_%s" % (function.__name__, kind)
        test(on_kind)
    for kind in kinds:
        make(kind)
    return function


def call(store, *words):
    """One command; its reply in raw form, without the newline at its end."""
    return impel_ok("call", *words, store=store).rstrip("\n")


def add(store, stream, *ids):
    for each in ids:
        call(store, "XADD", stream, each, "n", "v")


def add_many(store, stream, count):
    text = "".join('{"n":"%d"}\n' % i for i in range(count))
    equal(impel_ok("add", "--stream", stream, "--jsonl", store=store, stdin=text), "%d\n" % count)


def read(store, stream, group, consumer, count=1000):
    """Reads as a foreign consumer; returns the IDs."""
    out = impel_ok("call", "XREADGROUP", "GROUP", group, consumer, "COUNT", str(count), "STREAMS",
                   stream, ">", store=store)
    return [w for w in out.split() if "-" in w and w.replace("-", "").isdigit()]


def status(store, *args):
    """The one group's status, and the exit code."""
    done = impel("status", "--json", *args, store=store)
    equal(done.code in (0, 3), True, done.err)
    return json.loads(done.out)["streams"], done.code


def redis_version(store):
    """(7, 0) of a Redis; None of others."""
    if not store.startswith("redis:"):
        return None
    info = dict(line.split(":", 1) for line in call(store, "INFO", "server").split("\n")
                if ":" in line)
    return tuple(int(part) for part in info["redis_version"].split(".")[:2])


__all__ = ["add", "add_many", "call", "every_store", "read", "redis_version", "run", "status"]
