#!/usr/bin/python3
"""Records that nobody here wrote: 100,000 of them go in, come out as they were, and go through a
shell pipeline entry by entry with the same result that the pipeline has on the whole file.

A process an entry takes milliseconds, so 1,000 go through the pipeline here and all with --all."""
import json
import subprocess
import sys

from impeltest import SOURCE, equal, impel, impel_ok, json_lines, main, test

RECORDS = 100000
ALL = "--all" in sys.argv
if ALL:
    sys.argv.remove("--all")
HANDLED = RECORDS if ALL else 1000

PIPELINE = (r"""sed -n 's/.*"code":"\([^"]*\)","name":"\([^"]*\)","category":"\([^"]*\)".*/\3 \1 \2/p' """
            r"""| tr A-Z a-z""")


def make_records(path):
    with open(path, "wb") as file:
        subprocess.run([SOURCE / "tools" / "make-records", str(RECORDS)], stdout=file, check=True)


@test
def records_come_out_as_they_went_in(tmp):
    make_records(tmp / "records")
    equal(impel_ok("add", "--stream", "s", "--jsonl", tmp / "records", store=tmp / "db",
                   deadline_s=120), "%d\n" % RECORDS)
    got = [e["fields"] for e in json_lines(impel_ok("read", "--stream", "s", store=tmp / "db",
                                                    deadline_s=120))]
    with open(tmp / "records", encoding="utf-8", newline="\n") as file:
        want = [json.loads(line) for line in file]
    equal(len(got), RECORDS)
    for a, b in zip(got, want):
        equal(a, b)


@test
def the_pipeline_gives_the_same_by_entry_as_by_file(tmp):
    make_records(tmp / "records")
    head = tmp / "head"
    with open(head, "wb") as file:
        subprocess.run(["head", "-n", str(HANDLED), tmp / "records"], stdout=file, check=True)
    want = subprocess.run("{ %s; } < %s" % (PIPELINE, head), shell=True, check=True,
                          capture_output=True).stdout
    equal(want.count(b"\n"), HANDLED)
    store = "lmdb:%s?sync=process" % (tmp / "db")
    impel_ok("add", "--stream", "s", "--jsonl", head, store=store, deadline_s=120)
    done = impel("run", "--stream", "s", "--group", "g", "--concurrency", "4", "--until-idle", "--",
                 "sh", "-c", "%s >> %s/out" % (PIPELINE, tmp), store=store, deadline_s=7000)
    equal(done.code, 0, done.err)
    got = (tmp / "out").read_bytes()
    equal(sorted(got.splitlines()) == sorted(want.splitlines()), True, "the results differ")


main()
