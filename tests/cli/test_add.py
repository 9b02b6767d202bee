#!/usr/bin/python3
"""add and read: what goes in comes out, byte for byte, whatever the bytes; what cannot go in is
named."""
import array
import base64
import fcntl
import json
import os
import random
import re
import signal
import termios

from impeltest import (IMPEL, check, contains, equal, impel, impel_ok, json_lines, main, start, start_redis, test,
                       wait_for)


def b64(data):
    return {"base64": base64.b64encode(data).decode()}


def read_fields(store, stream="s", *args):
    return [e["fields"] for e in json_lines(impel_ok("read", "--stream", stream, *args, store=store))]


def add_lines(store, lines, *args, stream="s"):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n"
    return impel("add", "--stream", stream, "--jsonl", *args, store=store, stdin=text,
                 deadline_s=120)


@test
def one_entry_prints_its_id(tmp):
    out = impel_ok("add", "--stream", "s", "a=1", "b=x=y", "c=", "=d", store=tmp / "db")
    check(re.fullmatch(r"\d+-\d+\n", out), out)
    entry = json_lines(impel_ok("read", "--stream", "s", store=tmp / "db"))[0]
    equal(entry, {"id": out.strip(), "stream": "s", "fields": {"a": "1", "b": "x=y", "c": "",
                                                               "": "d"}})


@test
def words_behind_two_dashes_and_repeated_fields(tmp):
    impel_ok("add", "--stream", "s", "a=1", "a=2", "--", "--b=3", "a=4", store=tmp / "db")
    equal(read_fields(tmp / "db"), [{"a": ["1", "2", "4"], "--b": "3"}])


@test
def an_id_of_ones_own_must_grow(tmp):
    equal(impel_ok("add", "--stream", "s", "--id", "5-1", "a=1", store=tmp / "db"), "5-1\n")
    done = impel("add", "--stream", "s", "--id", "5-1", "a=1", store=tmp / "db")
    equal(done.code, 1)
    contains(done.err, "not above")


@test
def what_cannot_be_added_is_named(tmp):
    db = tmp / "db"
    for args, code, part in [
            (["--stream", "s"], 2, "nothing to add"),
            (["a=1"], 2, "--stream STREAM is needed"),
            (["--stream", "s", "--stream", "t", "a=1"], 2, "only once"),
            (["--stream", "s", "a"], 2, "'a' is no FIELD=VALUE"),
            (["--stream", "s", "--no-create", "a=1"], 1,
             "there is no stream 's', and it may not be created (--no-create)"),
            (["--stream", "s", "--jsonl", "/does/not/exist"], 1, "/does/not/exist"),
            (["--stream", "s", "--jsonl", "a", "b"], 2, "one file")]:
        done = impel("add", *args, store=db)
        equal(done.code, code, done.err)
        contains(done.err, part)
        equal(done.out, "")


@test
def a_byte_order_mark_before_the_first_line_is_no_part_of_it(tmp):
    done = add_lines(tmp / "db", ['\ufeff{"a":"1"}', '{"a":"\ufeff2"}'])
    equal((done.code, done.out), (0, "2\n"), done.err)
    equal(read_fields(tmp / "db"), [{"a": "1"}, {"a": "\ufeff2"}])
    equal(add_lines(tmp / "db", ["\ufeff"]).out, "0\n")
    done = add_lines(tmp / "db", ['{"a":"1"}', '\ufeff{"a":"2"}'])
    equal(done.code, 1, done.err)
    contains(done.err, "line 2")


@test
def lines_come_out_as_they_went_in(tmp):
    lines = [
        {"a": "1"},
        {"empty": "", "": "no name"},
        {"quote": "\"\\/\b\f\n\r\t\x01\x7f", "uni": "äöü€😀\u2028"},
        {"nul\x00name": "nul\x00value"},
        {"bytes": b64(b"\xff\x00\xfe"), "base64:" + base64.b64encode(b"\x80name").decode(): "x"},
        {"list": ["1", "2", b64(b"\xff")]},
        {"%d" % i: "v%d" % i for i in range(300)},
        {"large": "x" * 1000000},
    ]
    done = add_lines(tmp / "db", lines)
    equal(done.out, "%d\n" % len(lines), done.err)
    equal(read_fields(tmp / "db"), lines)


@test
def numbers_and_words_keep_their_text(tmp):
    done = add_lines(tmp / "db", ['{"a": 1.50, "b":-0, "c":12345678901234567890123, "d":1E+2, '
                                  '"e":true , "f" : false, "g":[1,2.0,"x"]}'])
    equal(done.out, "1\n", done.err)
    equal(read_fields(tmp / "db"), [{"a": "1.50", "b": "-0", "c": "12345678901234567890123",
                                     "d": "1E+2", "e": "true", "f": "false",
                                     "g": ["1", "2.0", "x"]}])


@test
def escapes_are_decoded(tmp):
    done = add_lines(tmp / "db", [r'{"a":"\u00e4\ud83d\ude00\u0000\/"}', '{"a":1,"a":2}'])
    equal(done.out, "2\n", done.err)
    equal(read_fields(tmp / "db"), [{"a": "ä😀\0/"}, {"a": ["1", "2"]}])


@test
def a_bad_line_is_named_and_those_before_it_are_in(tmp):
    bad = ['[]', '{}', '{"a":}', '{"a":null}', '{"a":{"b":1}}', '{"a":[[1]]}', '{"a":[]}', '{"a":01}',
           '{"a":1.}', '{"a":-}', '{"a":+1}', '{"a":1e}', '{"a":"x}', '{"a":"\\x"}', '{"a":"\\ud800"}',
           '{"a":"\\ud800\\u0041"}', '{"a":"\\udc00"}', '{"a":1} x', '{"a":1', '{"a" 1}', '{a:1}',
           '{"a":1,}', '{"a":{"base64":"!"}}', '{"a":{"base64":"YQ=="},"b":{"base64":"YQ==","c":1}}',
           '{"base64:!":"x"}', '{"a":"\x01"}', 'null', '{"a":tru}', '{"a":"\\u12g4"}', '{"a":"\\']
    for number, line in enumerate(bad):
        stream = "s%d" % number
        done = add_lines(tmp / "db", ['{"n":"1"}', "", line, '{"n":"2"}'], stream=stream)
        equal(done.code, 1, line)
        contains(done.err, "line 3, column ", line)
        equal(done.out, "1\n", line)
        equal(read_fields(tmp / "db", stream), [{"n": "1"}], line)


@test
def bytes_that_are_not_utf8_are_refused_in_json(tmp):
    done = impel("add", "--stream", "s", "--jsonl", store=tmp / "db", stdin=b'{"a":"\xff"}\n')
    equal((done.code, done.out), (1, "0\n"))
    contains(done.err, "line 1, column 1: not UTF-8")


@test
def files_and_standard_input_work_alike(tmp):
    path = tmp / "lines"
    path.write_text('{"a":1}\r\n\n{"a":2}')
    equal(impel_ok("add", "--stream", "s", "--jsonl", path, store=tmp / "db"), "2\n")
    for words in [[], ["-"]]:
        equal(impel_ok("add", "--stream", "s", "--jsonl", *words, store=tmp / "db",
                       stdin='{"a":3}'), "1\n")
    equal(read_fields(tmp / "db"), [{"a": "1"}, {"a": "2"}, {"a": "3"}, {"a": "3"}])
    equal(impel_ok("add", "--stream", "s", "--jsonl", store=tmp / "db", stdin=""), "0\n")


@test
def lines_of_a_slow_writer_are_not_kept_waiting(tmp):
    import os
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "$", "MKSTREAM", store=tmp / "db")  # there is a stream to read
    reader, writer = os.pipe()
    process = start([IMPEL, "add", "--store", "lmdb:%s" % (tmp / "db"), "--stream", "s", "--jsonl"],
                    tmp, stdin=reader)
    os.close(reader)
    for number in range(1, 4):
        os.write(writer, b'{"a":%d}\n' % number)
        wait_for(lambda: len(read_fields(tmp / "db")) == number, what="line %d" % number)
    os.close(writer)
    equal(process.wait().out, "3\n")


@test
def random_entries_survive_the_way_through(tmp):
    seed = random.randrange(1 << 32)
    print("# seed %d" % seed)
    rng = random.Random(seed)

    def data():
        raw = bytes(rng.choice([rng.randrange(256), rng.randrange(32, 127), 0, 10])
                    for _ in range(rng.choice([0, 1, 5, 40])))
        try:
            return raw.decode(), raw.decode()
        except UnicodeDecodeError:
            return b64(raw), "base64:" + base64.b64encode(raw).decode()
    lines = []
    for _ in range(500):
        fields = {}
        for _ in range(rng.randrange(1, 6)):
            name = data()[1]
            if not isinstance(name, str) or (name.startswith("base64:") and len(name) < 8):
                continue
            fields[name] = data()[0]
        lines.append(fields or {"n": "1"})
    done = add_lines(tmp / "db", lines)
    equal(done.out, "500\n", done.err)
    equal(read_fields(tmp / "db"), lines)


@test
def large_values_pass(tmp):
    line = {"value": "x" * (64 << 20)}
    done = add_lines(tmp / "db", [line])
    equal(done.out, "1\n", done.err)
    equal(read_fields(tmp / "db"), [line])
    name = {"n" * (1 << 20): "v"}
    equal(add_lines(tmp / "db", [name], stream="t").out, "1\n")
    equal(read_fields(tmp / "db", "t"), [name])


@test
def ranges_of_read(tmp):
    db = tmp / "db"
    for i in range(1, 41):
        impel_ok("call", "--store", "lmdb:%s" % db, "XADD", "s", "%d-1" % i, "n", str(i))

    def numbers(*args):
        return [int(f["n"]) for f in read_fields(db, "s", *args)]
    equal(numbers(), list(range(1, 41)))
    equal(numbers("--reverse"), list(range(40, 0, -1)))
    equal(numbers("--count", "3"), [1, 2, 3])
    equal(numbers("--count", "17", "--reverse"), list(range(40, 23, -1)))
    equal(numbers("--start", "38"), [38, 39, 40])
    equal(numbers("--end", "2"), [1, 2])
    equal(numbers("--start", "5-2", "--end", "7-0"), [6])
    equal(numbers("--start", "7", "--end", "6"), [])


@test
def max_length_trims(tmp):
    for i in range(5):
        impel_ok("add", "--stream", "s", "--max-length", "2", "n=%d" % i, store=tmp / "db")
    equal(read_fields(tmp / "db"), [{"n": "3"}, {"n": "4"}])


@test
def a_reader_that_goes_away_is_no_failure_to_speak_of(tmp):
    from impeltest import run
    add_lines(tmp / "db", [{"n": str(i) * 100} for i in range(5000)])
    done = run(["sh", "-c", "%s read --store lmdb:%s --stream s | head -n 1" % (IMPEL, tmp / "db")])
    equal(done.err, "")
    equal(json.loads(done.out)["fields"]["n"][0], "0")


@test
def long_work_shows_a_bar_on_a_terminal_only(tmp):
    import shutil
    from impeltest import run, skip
    if not shutil.which("script"):
        skip("no script(1) to make a terminal with")
    with open(tmp / "lines", "w", encoding="utf-8") as file:
        file.write(('{"v":"%s"}\n' % ("x" * 500)) * 60000)
    command = "%s add --store lmdb:%s --stream s --jsonl %s/lines" % (IMPEL, tmp / "db", tmp)
    shown = run(["script", "-qec", command, "/dev/null"], deadline_s=120).out
    contains(shown, "adding")
    contains(shown, "%")
    contains(shown, "60000")
    equal(run(["sh", "-c", command], deadline_s=120).err, "")


@test
def output_that_cannot_be_written_is_a_failure(tmp):
    import os
    impel_ok("add", "--stream", "s", "n=1", store=tmp / "db")
    if not os.path.exists("/dev/full"):
        from impeltest import skip
        skip("no /dev/full here")
    from impeltest import run
    done = run(["sh", "-c", "%s read --store lmdb:%s --stream s > /dev/full" % (IMPEL, tmp / "db")])
    equal(done.code, 1)
    contains(done.err, "cannot write to standard output")


@test
def which_lines_a_store_refused_is_said(tmp):
    """Those behind a refused line may be in: who went on from it would add them twice."""
    store = "lmdb:%s?map=4194304" % (tmp / "db")
    for large, told in [((9, 12), "lines that were not added: 9, 12\n"),
                        ((39, 40), None)]:
        with open(tmp / "lines", "w", encoding="utf-8") as file:
            for n in range(1, 41):
                if n == 5:
                    file.write("\n")
                else:
                    file.write(json.dumps({"n": n, "v": "x" * (4150000 if n in large else 10)}) + "\n")
        before = len(read_fields(store)) if told is None else 0
        done = impel("add", "--stream", "s", "--jsonl", tmp / "lines", store=store)
        equal((done.code, done.out), (1, "%d\n" % (39 - len(large))), done.err)
        contains(done.err, "line %d: " % large[0])
        equal([int(e["n"]) for e in read_fields(store)[before:]],
              [n for n in range(1, 41) if n != 5 and n not in large])
        equal(told is not None, "were added, and none behind it" in done.err, done.err)
        contains(done.err, told or "")


@test
def the_id_of_nothing_is_no_id(tmp):
    for word in ["0", "0-0"]:
        done = impel("add", "--stream", "s", "--id", word, "a=1", store=tmp / "db")
        equal(done.code, 2, done.err)
        contains(done.err, "greater than 0-0")


@test
def what_fails_is_said_of_the_stream(tmp):
    impel_ok("call", "SET", "text", "x", store=tmp / "db")
    for args in [["add", "--stream", "text", "a=1"], ["read", "--stream", "text"]]:
        contains(impel(*args, store=tmp / "db").err, "stream 'text': the key holds something other")


@test
def a_stream_that_is_not_there_is_not_read_as_an_empty_one(tmp):
    db = tmp / "db"
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=db)
    equal(impel_ok("read", "--stream", "s", store=db), "")
    done = impel("read", "--stream", "S", store=db)
    equal((done.code, done.out), (1, ""))
    contains(done.err, "there is no stream 'S' in this store")


def unread(pipe):
    """How much of a pipe is not read yet."""
    size = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


def adding(store, tmp, stdin):
    return start([IMPEL, "add", "--store", store, "--stream", "s", "--jsonl"], tmp, stdin=stdin)


@test
def a_stop_says_how_far_it_came(tmp):
    for number in signal.SIGTERM, signal.SIGINT:
        ours, theirs = os.pipe()
        with os.fdopen(theirs, "wb", buffering=0) as lines:
            with os.fdopen(ours, "rb") as their_end:
                process = adding("lmdb:%s" % (tmp / "db"), tmp, their_end)
            lines.write(b"\n" + b'{"a":"1"}\n' * 1500 + b'{"a":')
            wait_for(lambda: len(json_lines(impel("read", "--stream", "s", store=tmp / "db").out)) == 1500)
            process.signal(number)
            done = process.wait()
        equal((done.code, done.out), (1, "1500\n"), done.err)
        contains(done.err, "stopped by a signal: lines up to 1501 were added, and none behind it")
        impel_ok("call", "DEL", "s", store=tmp / "db")


@test
def a_stop_does_not_wait_for_a_store_that_does_not_answer(tmp):
    redis, port = start_redis(tmp)
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "wb", buffering=0) as lines:
        with os.fdopen(ours, "rb") as their_end:
            process = adding("redis://127.0.0.1:%d" % port, tmp, their_end)
        lines.write(b'{"a":"1"}\n')
        wait_for(lambda: impel("call", "XLEN", "s", store="redis://127.0.0.1:%d" % port).out == "1\n")
        redis.signal(signal.SIGSTOP)
        lines.write(b'{"a":"1"}\n' * 3)
        wait_for(lambda: unread(lines) == 0, what="the lines to be read")
        process.signal(signal.SIGTERM)
        done = process.wait()
    equal((done.code, done.out), (1, "1\n"), done.err)
    check("whether lines 2 to 4 were is not known" in done.err or "lines up to 1 were" in done.err, done.err)


main()
