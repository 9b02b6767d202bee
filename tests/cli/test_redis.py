#!/usr/bin/python3
"""The same commands on a Redis: only --store differs."""
import contextlib
import json
import re
import signal
import socket
import subprocess
import threading

import redis

from impeltest import (check, contains, equal, free_port, impel, impel_argv, impel_ok, json_lines, main, start,
                       start_redis, test, wait_for)


def server(tmp):
    _, port = start_redis(tmp)
    return "redis://127.0.0.1:%d" % port


@test
def entries_go_in_and_come_out(tmp):
    store = server(tmp)
    lines = [{"n": str(i), "bytes": {"base64": "/wA="}} for i in range(2500)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    equal(impel_ok("add", "--stream", "s", "--jsonl", store=store, stdin=text), "2500\n")
    got = [e["fields"] for e in json_lines(impel_ok("read", "--stream", "s", store=store))]
    equal(got == lines, True, "the entries differ")
    equal(impel_ok("call", "XLEN", "s", store=store), "2500\n")


@test
def work_is_done_retried_and_parked(tmp):
    store = server(tmp)
    for i in range(4):
        impel_ok("add", "--stream", "s", "n=%d" % i, store=store)
    done = impel("run", "--stream", "s", "--group", "g", "--dead-after", "2s", "--backoff",
                 "50ms..100ms", "--max-deliveries", "2", "--until-idle", "--", "sh", "-c",
                 "echo $IMPEL_FIELD_n >> %s/out; [ $IMPEL_FIELD_n != 1 ]" % tmp, store=store,
                 deadline_s=60)
    equal(done.code, 0, done.err)
    equal(sorted((tmp / "out").read_text().split()), ["0", "1", "1", "2", "3"])
    records = json_lines(impel_ok("dead", "list", "--stream", "s", "--json", store=store))
    equal([(r["fields"], r["reason"], r["deliveries"]) for r in records],
          [({"n": "1"}, "max-deliveries", 2)])
    done = impel("status", "--json", store=store)
    equal(done.code, 3, done.err)
    streams = json.loads(done.out)["streams"]
    equal([(s["stream"], s["groups"][0]["parked"], s["groups"][0]["pending"]) for s in streams],
          [("s", 1, 0)])


@test
def a_sweep_settles_foreign_work(tmp):
    store = server(tmp)
    for i in (1, 2, 3):
        impel_ok("call", "XADD", "s", "%d-0" % i, "n", str(i), store=store)
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", store=store)
    impel_ok("call", "XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">", store=store)
    impel_ok("call", "XCLAIM", "s", "g", "c", "0", "1-0", "RETRYCOUNT", "9", store=store)
    impel_ok("call", "XDEL", "s", "2-0", store=store)
    out = impel_ok("sweep", "--once", "--json", "--stream", "s", "--group", "g", "--min-idle",
                   "10ms", "--backoff", "0", "--dead-after", "500ms", store=store)
    equal([(r["abandoned"], r["parked"], r["lost"]) for r in json_lines(out)], [(1, 1, 1)])


@test
def the_drill_passes(tmp):
    done = impel("drill", "--json", "--workers", "3", "--kills", "1", "--entries", "30",
                 store=server(tmp), env={"TMPDIR": str(tmp)}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)


@test
def the_password_comes_from_the_environment_and_reaches_no_handler(tmp):
    _, port = start_redis(tmp, "--requirepass", "p@ss:w/rd")
    env = {"IMPEL_PASSWORD": "p@ss:w/rd"}
    store = "redis://127.0.0.1:%d" % port
    done = impel("add", "--stream", "s", "a=1", store=store)
    equal(done.code, 1, done.err)
    equal(impel("add", "--stream", "s", "a=1", store=store, env=env).code, 0)
    equal(impel("add", "--stream", "s", "a=2", store="redis://default@127.0.0.1:%d" % port,
                env=env).code, 0)
    done = impel("run", "--stream", "s", "--group", "g", "--until-idle", "--", "sh", "-c",
                 "env > %s/env" % tmp, store=store, env=env, deadline_s=60)
    equal(done.code, 0, done.err)
    text = (tmp / "env").read_text()
    contains(text, "IMPEL_STREAM=s")
    equal("p@ss" in text or "IMPEL_PASSWORD" in text, False, text)


@test
def the_drill_keeps_the_password_to_itself(tmp):
    _, port = start_redis(tmp, "--requirepass", "s3cret")
    done = impel("drill", "--workers", "2", "--kills", "1", "--entries", "20",
                 store="redis://127.0.0.1:%d" % port, env={"IMPEL_PASSWORD": "s3cret",
                                                           "TMPDIR": str(tmp)}, deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    equal("s3cret" in done.out + done.err, False)


@test
def a_server_that_is_not_there_is_told(tmp):
    from impeltest import free_port
    store = "redis://user:s3cret@127.0.0.1:%d" % free_port()
    done = impel("read", "--stream", "s", store=store + "?connect_timeout=1s", deadline_s=60)
    equal(done.code, 1, done.err)
    contains(done.err, "127.0.0.1")
    equal("s3cret" in done.err, False, done.err)


@test
def lines_that_may_be_in_are_named_when_a_connection_breaks(tmp):
    _, port = start_redis(tmp, "--proto-max-bulk-len", "1mb")
    lines = "".join('{"v":"%s"}\n' % ("x" * (1100000 if n == 2 else 10)) for n in range(1, 4))
    (tmp / "lines").write_text(lines, encoding="utf-8")
    done = impel("add", "--stream", "s", "--jsonl", tmp / "lines", store="redis://127.0.0.1:%d" % port)
    equal(done.code, 1, done.err)
    check(re.search(r"whether these lines were added is not known: (1-)?3\n", done.err), done.err)
    done = impel("add", "--stream", "s", "--jsonl", tmp / "lines", store="redis://127.0.0.1:%d" % free_port())
    equal((done.code, done.out), (1, "0\n"), done.err)
    equal("not known" in done.err, False, done.err)


@test
def a_connection_that_was_closed_between_two_lines_is_made_again(tmp):
    _, port = start_redis(tmp)
    client = redis.Redis(port=port)
    adding = start(impel_argv("add", "--stream", "s", "--jsonl", store="redis://127.0.0.1:%d" % port), tmp,
                   stdin=subprocess.PIPE)
    for n in range(1, 4):
        adding.popen.stdin.write(b'{"n":%d}\n' % n)
        adding.popen.stdin.flush()
        wait_for(lambda n=n: client.xlen("s") == n, what="line %d" % n)
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    adding.popen.stdin.close()
    done = adding.wait()
    equal((done.code, done.out), (0, "3\n"), done.err)


class NoRedis(threading.Thread):
    """Something else listens there: it answers as a web server does, or as it is told to."""

    def __init__(self, answer=b"HTTP/1.1 400 Bad Request\r\n\r\n", port=0):
        super().__init__(daemon=True)
        self.answer, self.answered = answer, 0
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.recv(1000)
                connection.sendall(self.answer)
            self.answered += 1

    def end(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self.socket.close()


@test
def what_cannot_be_worked_on_ends_a_worker_with_a_word(tmp):
    _, port = start_redis(tmp, "--requirepass", "s3cret")
    right = "redis://:s3cret@127.0.0.1:%d" % port
    equal(impel_ok("call", "SET", "text", "x", store=right), "OK\n")
    for store, stream, code, part in [
            ("redis://127.0.0.1:%d" % port, "s", 1, "NOAUTH"),
            ("redis://:wr0ng@127.0.0.1:%d" % port, "s", 1, "WRONGPASS"),
            (right, "text", 1, "WRONGTYPE"),
            (right + "?db=99", "s", 1, "DB index"),
            ("redis://no-such-host.invalid", "s", 1, "no-such-host.invalid"),
            ("redis://127.0.0.1:%d" % NoRedis().port, "s", 1, "not a RESP reply: 'HTTP/1.1 400")]:
        done = impel("run", "--stream", stream, "--group", "g", "--connect-timeout", "500ms", "--", "true",
                     store=store)
        equal(done.code, code, done.err)
        contains(done.err.splitlines()[-1], part)
        equal("s3cret" in done.err or "wr0ng" in done.err, False, done.err)


DAEMONS = [["run", "--stream", "s", "--group", "g", "--", "true"],
           ["sweep", "--stream", "s", "--group", "g"],
           ["sweep", "--stream", "*", "--group", "*"],
           ["sweep", "--requeue", "--stream", "s", "--group", "g"]]


@test
def what_is_no_redis_is_not_tried_for_ever(tmp):
    for answer in b"HTTP/1.1 400 Bad\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\0\x02\x02\x46":
        store = "redis://127.0.0.1:%d" % NoRedis(answer).port
        for daemon in DAEMONS:
            for wait in [], ["--connect-timeout", "1h"]:
                done = impel(daemon[0], *wait, *daemon[1:], store=store)
                equal(done.code, 1, done.err)
                contains(done.err, "this is no Redis server: not a RESP reply")
                check("trying again" not in done.err, done.err)


@test
def what_stands_in_a_server_s_place_for_a_while_is_outlived(tmp):
    server, port = start_redis(tmp)
    store = "redis://127.0.0.1:%d" % port
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=store)
    daemons = [start(impel_argv(*words, store=store), tmp) for words in DAEMONS]
    client = redis.Redis(port=port)
    wait_for(lambda: len(client.client_list()) >= 6, what="all of them to be there")
    server.kill()
    other = NoRedis(port=port)
    wait_for(lambda: other.answered > 5 * len(daemons), what="all of them to have met it")
    other.end()
    start_redis(tmp, port=port)
    impel("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=store)  # or the worker was first
    impel_ok("add", "--stream", "s", "n=1", store=store)
    there = redis.Redis(port=port)
    wait_for(lambda: there.xinfo_groups("s")[0]["last-delivered-id"] != b"0-0", what="the worker to be back")
    for daemon in daemons:
        wait_for(lambda: "is back" in daemon.err() or "answers again" in daemon.err(), what=daemon.err())
        equal(daemon.stop().code, 0, daemon.err())


@test
def a_sweep_waits_for_its_server_as_long_as_it_is_told_to(tmp):
    """For ever, whatever its way; or until --connect-timeout is over."""
    port = free_port()
    store = "redis://127.0.0.1:%d" % port
    group = ["--stream", "s", "--group", "g", "--interval", "10ms"]
    for way in (["--requeue"], ["--park"], []):
        daemon = start(impel_argv("sweep", *way, *group, store=store), tmp)
        daemon.wait_for_output("connection refused")
        done = daemon.stop()
        equal(done.code, 0, done.err)
    for args in (group, [*group, "--requeue"], ["--stream", "s*", "--group", "*"]):
        done = impel("sweep", *args, "--connect-timeout", "200ms", store=store)
        equal(done.code, 1, done.err)
        contains(done.err.splitlines()[-1], "impel sweep: redis at 127.0.0.1:%d: connection refused" % port)


@test
def what_a_server_refuses_is_said_of_the_stream(tmp):
    """With no word of scripts; and a replica says what to do."""
    _, port = start_redis(tmp)
    store = "redis://127.0.0.1:%d" % port
    client = redis.Redis(port=port)
    client.set("text", "x")
    client.xadd("s", {"n": 1})
    client.xgroup_create("s", "g", "0")
    client.xack("s", "g", client.xreadgroup("g", "c", {"s": ">"})[0][1][0][0])
    client.xadd("s:dead", {"original_id": "1-0", "original_stream": "s", "original_group": "g", "n": 1})
    for command in (["status"], ["trim"], ["dead", "list", "--dead-letter", "text"]):
        done = impel(*command, "--stream", "text", store=store)
        equal(done.code, 1)
        contains(done.err, "(the stream is 'text')")
    client.replicaof("127.0.0.1", "1")
    for command in (["trim", "--stream", "s"], ["dead", "drop", "--all", "--stream", "s"],
                    ["sweep", "--once", "--stream", "s", "--group", "g"]):
        done = impel(*command, store=store)
        equal(done.code, 1)
        contains(done.err, "(give the address of its primary)")
        equal("script:" in done.err, False, done.err)


@test
def a_stream_that_is_gone_leaves_nothing_behind(tmp):
    _, port = start_redis(tmp)
    store, client = "redis://127.0.0.1:%d" % port, redis.Redis(port=port, decode_responses=True)
    quick = ["--dead-after", "100ms", "--min-idle", "1ms", "--backoff", "0"]

    def helpers():
        return sorted(client.keys("impel:*"))
    kept = ["impel:{s}:a:1:s:g", "impel:{s}:w:1:s:g"]
    for which in "s", "s*":
        client.xgroup_create("s", "g", "0", mkstream=True)
        client.xadd("s", {"n": 1})
        daemon = start(impel_argv("sweep", "--requeue", "--stream", which, "--group", "g", *quick, "--interval", "20ms",
                                  "--budget", "0", "--max-deliveries", "1000", store=store), tmp)
        client.xreadgroup("g", "gone", {"s": ">"})
        wait_for(lambda: helpers() == kept, what="a requeue")
        client.hset(kept[0], mapping={"0-%d" % n: 1 for n in range(1, 6000)})
        client.delete("s")
        wait_for(lambda: helpers() == [], what="all to be gone")
        equal(daemon.stop().code, 0)

    # What is there still, or will be made again by who lives, keeps it.
    once = ["sweep", "--once", "--stream", "s", "--group", "g", *quick]
    client.xgroup_create("s", "g", "0", mkstream=True)
    impel_ok(*once, store=store)
    client.xgroup_destroy("s", "g")
    equal((impel(*once, store=store).code, helpers()), (1, kept[1:]))
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--consumer", "w", "--dead-after", "1h", "--",
                              "true", store=store), tmp)
    wait_for(lambda: client.hexists(kept[1], "w:w"), what="the worker")
    worker.signal(signal.SIGSTOP)
    client.delete("s")
    equal((impel(*once, store=store).code, client.hexists(kept[1], "w:w")), (1, True))
    worker.kill()


@test
def a_server_that_may_evict_streams_is_named(tmp):
    """E34: Under memory pressure it would delete whole streams, groups and all, without a word."""
    for policy, told in [("allkeys-lru", True), ("volatile-lru", False), ("noeviction", False)]:
        _, port = start_redis(tmp, "--maxmemory-policy", policy)
        store = "redis://127.0.0.1:%d" % port
        done = impel("status", store=store)
        equal((done.code, "maxmemory-policy is %s; make it noeviction" % policy in done.err),
              (0, told), done.err)
        done = impel("run", "--stream", "s", "--group", "g", "--until-idle", "--", "true",
                     store=store)
        equal((done.code, "may throw whole streams away" in done.err), (0, told), done.err)


@test
def a_value_that_the_server_finds_too_large_is_named(tmp):
    _, port = start_redis(tmp, "--proto-max-bulk-len", "1mb")
    store = "redis://127.0.0.1:%d" % port
    line = json.dumps({"a": "x" * (3 << 20)}) + "\n"
    done = impel("add", "--stream", "s", "--jsonl", store=store, stdin=line, deadline_s=90)
    equal(done.code, 1)
    check("a value of 3145728 bytes" in done.err and "proto-max-bulk-len" in done.err, done.err)


main()
