#!/usr/bin/python3
"""impel compact: the file shrinks, and whatever happens on the way, it is the old or the new one."""
import json
import os
import signal

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start,
                       test, wait_for)


def fill(store, count, keep, size=400):
    lines = "".join('{"n":"%d","text":"%s"}\n' % (i, "x" * size) for i in range(count))
    impel_ok("add", "--stream", "s", "--jsonl", store="lmdb:%s?sync=process" % store, stdin=lines)
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", store=store)
    impel_ok("call", "XREADGROUP", "GROUP", "g", "c", "COUNT", "10", "STREAMS", "s", ">",
             store=store)
    impel_ok("call", "XTRIM", "s", "MAXLEN", keep, store=store)
    impel_ok("call", "SET", "text", "y" * 5000, store=store)


def content(store):
    return (impel_ok("read", "--stream", "s", store=store),
            impel_ok("call", "XPENDING", "s", "g", store=store),
            impel_ok("call", "GET", "text", store=store))


@test
def the_file_shrinks_and_nothing_else_changes(tmp):
    db = tmp / "db"
    fill(db, 10000, 100)
    before, mode = content(db), os.stat(db).st_mode
    size = os.path.getsize(db)
    os.chmod(db, 0o640)
    out = json.loads(impel_ok("compact", "--json", store=db))
    equal(out, {"before_bytes": size, "after_bytes": os.path.getsize(db)})
    check(size > 4000000 and os.path.getsize(db) < 400000, out)
    equal(content(db), before)
    equal((os.stat(db).st_mode & 0o777, mode & 0o200), (0o640, 0o200))
    impel_ok("check", store=db)
    contains(impel_ok("compact", store=db), "KiB before, ")
    equal(sorted(os.listdir(tmp)), ["db", "db-lock", "db-wake"])
    impel_ok("add", "--stream", "s", "a=1", store=db)
    equal(len(json_lines(impel_ok("read", "--stream", "s", store=db))), 101)


@test
def it_must_be_alone(tmp):
    db = tmp / "db"
    fill(db, 10, 10)
    inode = os.stat(db).st_ino
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--", "touch", tmp / "ran",
                              store=db), tmp)
    impel_ok("add", "--stream", "s", "a=1", store=db)
    wait_for((tmp / "ran").exists, what="the worker")
    done = impel("compact", store=db)
    equal(done.code, 1)
    contains(done.err, "somebody has it open")
    equal((os.stat(db).st_ino, os.path.exists(str(db) + "-compact")), (inode, False))
    equal(worker.stop().code, 0)
    impel_ok("compact", store=db)
    check(os.stat(db).st_ino != inode, "the file is the same")


@test
def wrong_use_is_told(tmp):
    for store, code, words in [(tmp / "none", 1, "no such store"), ("redis://127.0.0.1:1", 2,
                                                                    "only an embedded store")]:
        done = impel("compact", store=store)
        equal(done.code, code, done.err)
        contains(done.err, words)
    (tmp / "text").write_text("x" * 9000)
    done = impel("compact", store=tmp / "text")
    equal((done.code, (tmp / "text").read_text()), (1, "x" * 9000))


@test
def a_link_stays_a_link(tmp):
    fill(tmp / "real", 2000, 5)
    os.symlink(tmp / "real", tmp / "db")
    size = os.path.getsize(tmp / "real")
    impel_ok("compact", store=tmp / "db")
    check(os.path.islink(tmp / "db") and os.path.getsize(tmp / "real") < size / 4)
    equal(len(json_lines(impel_ok("read", "--stream", "s", store=tmp / "db"))), 5)


@test
def a_full_disk_leaves_the_old_file(tmp):
    db = tmp / "db"
    fill(db, 3000, 3000)
    inode = os.stat(db).st_ino
    limit = "ulimit -f 400; exec %s compact --store lmdb:%s" % (impel_argv("x")[0], db)
    done = start(["bash", "-c", limit], tmp).wait()
    equal(done.code, 1, done.err)
    contains(done.err, "no room for the compacted file")
    equal((os.stat(db).st_ino, os.path.exists(str(db) + "-compact")), (inode, False))
    impel_ok("check", store=db)


@test
def a_kill_leaves_the_old_file_or_the_new(tmp):
    db, copy = tmp / "db", str(tmp / "db") + "-compact"
    fill(db, 30000, 25000)
    before = content(db)
    olds = 0
    for share in 0, 0.3, 0.7, 1, 1, 2:
        size, inode = os.path.getsize(db), os.stat(db).st_ino
        process = start(impel_argv("compact", store=db), tmp)

        def reached():
            try:
                return share < 2 and os.path.getsize(copy) >= share * size * 0.75
            except FileNotFoundError:
                return os.stat(db).st_ino != inode or not process.running()
        wait_for(lambda: reached() or not process.running(), pause_s=0.0005)
        process.signal(signal.SIGKILL)
        process.wait()
        olds += os.stat(db).st_ino == inode
        impel_ok("check", store=db)
        equal(content(db) == before, True, "the content is another")
    check(olds > 0, "it was always over before the kill")
    impel_ok("compact", store=db)
    equal(content(db) == before, True, "the content is another")
    check(not os.path.exists(copy), "a copy was left")


@test
def who_opens_meanwhile_waits_and_loses_nothing(tmp):
    db = tmp / "db"
    fill(db, 5000, 3000)
    ids, compacted = [], 0
    for _ in range(6):
        compact = start(impel_argv("compact", store=db), tmp)
        adders = [start(impel_argv("add", "--stream", "s", "a=%d" % i, store=db), tmp)
                  for i in range(4)]
        for adder in adders:
            done = adder.wait()
            equal(done.code, 0, done.err)
            ids.append(done.out.strip())
        done = compact.wait()
        compacted += done.code == 0
        if done.code != 0:
            contains(done.err, "somebody has it open")
    there = [e["id"] for e in json_lines(impel_ok("read", "--stream", "s", "--start", ids[0][:10],
                                                  store=db))]
    equal([i for i in ids if i not in there], [], "lost after %d compactions" % compacted)
    equal(impel_ok("call", "XLEN", "s", store=db), "%d\n" % (3000 + len(ids)))
    impel_ok("check", store=db)


main()
