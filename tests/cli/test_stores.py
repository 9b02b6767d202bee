#!/usr/bin/python3
"""Stores that cannot be used: each gives one clear line, exit 1 or 2, and never a crash; and what
`check` and `call` say of good ones."""
import os
import re
import shutil
import time

from impeltest import (IMPEL, check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, run, skip,
                       start, test, wait_for)


def fails(done, code, *parts):
    equal(done.code, code, done.err)
    equal(len(done.err.strip().splitlines()), 1, done.err)
    for part in parts:
        contains(done.err, part)


@test
def unknown_schemes_are_misuse(tmp):
    fails(impel("read", "--stream", "s", store="nosuch:x"), 2, "nosuch", "lmdb")


@test
def looking_does_not_make_a_store(tmp):
    for args in [["read", "--stream", "s"], ["status"], ["dead", "list", "--stream", "s"], ["check"]]:
        fails(impel(*args, store=tmp / "none"), 1, str(tmp / "none"))
        check(not (tmp / "none").exists(), "impel %s made a store" % args[0])


@test
def folders_that_cannot_be_made_or_written(tmp):
    (tmp / "file").write_text("x")
    fails(impel("add", "--stream", "s", "a=1", store=tmp / "file"), 1, str(tmp / "file"))
    fails(impel("add", "--stream", "s", "a=1", store=tmp / "no" / "where" / "db"), 1, "no/where")
    if os.getuid() == 0:
        fails(impel("add", "--stream", "s", "a=1", store="/proc/impel"), 1, "/proc/impel")
    else:
        (tmp / "shut").mkdir(mode=0o500)
        fails(impel("add", "--stream", "s", "a=1", store=tmp / "shut" / "db"), 1)


@test
def closed_standard_descriptors_are_not_given_to_the_store(tmp):
    impel_ok("add", "--stream", "s", "--jsonl", store=tmp / "db", stdin='{"a":"b"}\n' * 1000)
    for closed, args in [(">&-", "read --stream s"), ("<&-", "add --stream s --jsonl"),
                         (">&- 2>&- <&-", "call XRANGE s - +")]:
        line = "%s %s --store lmdb:%s" % (IMPEL, args, tmp / "db")
        if "call" in args:
            line = "IMPEL_STORE=lmdb:%s %s %s" % (tmp / "db", IMPEL, args)
        equal(run(["sh", "-c", "%s %s" % (line, closed)]).code, 1, line)
    contains(impel_ok("check", store=tmp / "db"), "1000 entries")


@test
def a_limit_on_the_size_of_files_is_told(tmp):
    impel_ok("add", "--stream", "s", "a=1", store=tmp / "db")
    line = "ulimit -f 0; %s add --stream s a=2 --store lmdb:%s" % (IMPEL, tmp / "db")
    fails(run(["bash", "-c", line]), 1, str(tmp / "db"))


@test
def a_full_disk_is_told_and_work_goes_on(tmp):
    (tmp / "disk").mkdir()
    script = """
        mount -t tmpfs -o size=8m tmpfs disk || exit 99
        cd disk
        export IMPEL_STORE=lmdb:db
        yes '{"v":"0123456789012345678901234567890123456789"}' | head -n 100000 |
            %(impel)s add --stream s --jsonl
        echo add: $?
        cat /dev/zero >fill
        %(impel)s add --stream s a=1; echo more: $?
        %(impel)s run --stream s --group g --until-idle=1s -- false; echo retries: $?
        %(impel)s run --stream s --group g --until-idle=1s -- sh -c 'exit 65'; echo parks: $?
        %(impel)s call XLEN s:dead; echo of the dead
        %(impel)s check; echo check: $?
        %(impel)s call XTRIM s MAXLEN 5 >/dev/null; echo trim: $?
        %(impel)s run --stream s --group g --until-idle -- true; echo drain: $?
        %(impel)s add --stream s a=1; echo again: $?
        rm -f db*; cat /dev/zero >>fill
        %(impel)s add --stream s a=1; echo new: $?
        %(impel)s run --stream s --group g --until-idle -- true; echo new run: $?
        """ % {"impel": IMPEL}
    done = run(["unshare", "--mount", "--map-root-user", "sh", "-c", script], cwd=tmp, deadline_s=30)
    if done.code == 99 or "unshare" in done.err:
        skip("no filesystem of one's own can be mounted here: " + done.err.strip())
    contains(done.err, "the disk is full")
    contains(done.err, "No space left on device")
    for line in ["add: 1", "more: 1", "retries: 1", "parks: 1", "check: 0", "trim: 0", "drain: 0",
                 "again: 0", "new: 1", "new run: 1"]:
        contains(done.out, line + "\n", done.err)
    check(not re.search(r"^0\nof the dead$", done.out, re.M), "nothing was parked")
    check("nothing can be given back" not in done.err, done.err)


@test
def a_store_that_is_emptied_under_a_worker_ends_it_with_a_word(tmp):
    for suffix in ["-wake", "-lock", ""]:
        db = tmp / ("db" + suffix + "x")
        impel_ok("add", "--stream", "s", "a=1", store=db)
        worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--", "true", store=db),
                       tmp)
        worker.wait_for_output("working on")
        wait_for(lambda: "entries-read\n1\n" in impel_ok("call", "XINFO", "GROUPS", "s", store=db) and
                 impel_ok("call", "XPENDING", "s", "g", store=db).startswith("0\n"),
                 what="the worker to have nothing to do")
        os.truncate(str(db) + suffix, 0)
        done = worker.wait()
        equal(done.code, 1, suffix + done.err)
        contains(done.err, "emptied")


@test
def a_file_that_is_no_store_gets_no_companions(tmp):
    (tmp / "notes").write_text("not a store, and longer than the head of one")
    for command in ["read", "add"]:
        words = ["a=1"] if command == "add" else []
        fails(impel(command, "--stream", "s", *words, store=tmp / "notes"), 1, "notes")
    equal(sorted(path.name for path in tmp.glob("notes*")), ["notes"])


@test
def a_damaged_file_is_told_and_not_crashed_on(tmp):
    impel_ok("add", "--stream", "s", "a=1", store=tmp / "db")
    for offset, size in [(0, 8192), (0, 64), (8192, 4096)]:
        for old in tmp.glob("bad*"):
            old.unlink()
        shutil.copy(tmp / "db", tmp / "bad")
        with open(tmp / "bad", "r+b") as file:
            file.seek(offset)
            file.write(b"\x5a" * size)
        for command in [["read", "--stream", "s"], ["check"], ["add", "--stream", "s", "a=2"]]:
            done = impel(*command, store=tmp / "bad")
            check(done.code in (0, 1), "%s: exit %d\n%s" % (command, done.code, done.err))
            if done.code:
                check(done.err.strip(), "nothing is said")


@test
def a_file_of_a_newer_version_is_refused_by_name(tmp):
    impel_ok("add", "--stream", "s", "a=1", store=tmp / "db")
    data = bytearray((tmp / "db").read_bytes())
    magic, found = b"IMPL\x01\x00\x00\x00", 0
    at = data.find(magic)
    while at >= 0:
        data[at + 4] = 99
        found += 1
        at = data.find(magic, at + 1)
    check(found, "the version's place in the file is not where it was")
    (tmp / "new").write_bytes(data)
    for command in [["read", "--stream", "s"], ["add", "--stream", "s", "a=2"], ["check"]]:
        done = impel(*command, store=tmp / "new")
        equal(done.code, 1, done.err)
        contains(done.err, "version")


@test
def a_full_map_is_told_and_nothing_is_half_there(tmp):
    store = "lmdb:%s?map=2MiB" % (tmp / "db")
    line = '{"v":"%s"}\n' % ("x" * 10000)
    done = impel("add", "--stream", "s", "--jsonl", store=store, stdin=line * 1000)
    if "map" in done.err and done.code == 2:
        skip("the map's size cannot be given like this: " + done.err)
    equal(done.code, 1, done.err)
    contains(done.err, "full")
    added = int(done.out)
    check(0 < added < 1000, done.out)
    equal(len(json_lines(impel_ok("read", "--stream", "s", store=store))), added)
    equal(impel("check", store=tmp / "db").code, 0)


@test
def check_counts_what_there_is(tmp):
    for i in range(3):
        impel_ok("add", "--stream", "s", "n=%d" % i, store=tmp / "db")
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", store=tmp / "db")
    impel_ok("call", "XREADGROUP", "GROUP", "g", "c", "COUNT", "2", "STREAMS", "s", ">",
             store=tmp / "db")
    contains(impel_ok("check", store=tmp / "db"), "is sound: 1 stream, 3 entries, 1 group, 1 "
             "consumer, 2 pending")
    equal(json_lines(impel_ok("check", "--json", store=tmp / "db")),
          [{"streams": 1, "entries": 3, "groups": 1, "consumers": 1, "pending": 2, "problems": 0}])
    fails(impel("check", store="redis://127.0.0.1:1"), 2, "embedded")


@test
def call_answers_as_redis_cli_into_a_pipe(tmp):
    db = tmp / "db"
    equal(impel_ok("call", "XADD", "s", "5-1", "name", "a value", store=db), "5-1\n")
    equal(impel_ok("call", "XLEN", "s", store=db), "1\n")
    equal(impel_ok("call", "XRANGE", "s", "-", "+", store=db), "5-1\nname\na value\n")
    done = impel("call", "XADD", "s", "1-1", "a", "b", store=db)
    equal(done.code, 1)
    contains(done.out + done.err, "ERR The ID specified in XADD is equal or smaller")
    equal(impel("call", "NOSUCH", store=db).code, 1)
    equal(impel("call", store=db).code, 2)


def set_side_version(path, version):
    """As the side file of another version of Impel begins: the number behind 8 bytes of magic."""
    with open(str(path) + "-wake", "r+b") as file:
        file.seek(8)
        file.write(version.to_bytes(4, "little"))


def side_version(path):
    with open(str(path) + "-wake", "rb") as file:
        return int.from_bytes(file.read(12)[8:], "little")


@test
def a_side_file_of_another_version_is_made_anew(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "s", "a=1", store=db)
    ours = side_version(db)
    for size in [None, 4096]:
        set_side_version(db, ours + 6)
        if size is not None:
            os.truncate(str(db) + "-wake", size)
        equal(impel_ok("call", "XLEN", "s", store=db), "1\n")
        equal(side_version(db), ours)


@test
def a_side_file_of_another_version_in_use_is_refused(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "s", "a=1", store=db)
    ours = side_version(db)
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--", "true", store=db), tmp)
    worker.wait_for_output("working on the stream")
    set_side_version(db, ours + 6)
    os.truncate(str(db) + "-wake", os.path.getsize(str(db) + "-wake") + 4096)
    begun = time.monotonic()
    fails(impel("call", "XLEN", "s", store=db), 1, "another version of Impel has the store open",
          "version %d, this one has %d" % (ours + 6, ours), "stop it first")
    check(time.monotonic() - begun < 9, "it waited for the other to end")
    worker.kill()
    equal(impel_ok("call", "XLEN", "s", store=db), "1\n")


@test
def words_after_the_command_of_call_are_its_own(tmp):
    db = tmp / "db"
    impel_ok("call", "XADD", "s", "5-1", "--json", "--help", store=db)
    equal(impel_ok("call", "XRANGE", "s", "-", "+", store=db), "5-1\n--json\n--help\n")


@test
def call_on_a_terminal_shows_types(tmp):
    if not shutil.which("script"):
        skip("no script(1) to make a terminal with")
    from impeltest import IMPEL
    impel_ok("call", "XADD", "s", "5-1", "n", "v", store=tmp / "db")
    done = run(["script", "-qec", "%s call --store lmdb:%s XLEN s" % (IMPEL, tmp / "db"),
                "/dev/null"])
    equal(done.out.strip(), "(integer) 1")


main()
