#!/usr/bin/python3
"""run: outcomes of handlers, what a handler is given, until-idle, clean stops, and misuse."""
import json
import os
import signal

from impeltest import (check, contains, equal, impel, impel_argv, impel_ok, json_lines, main, start,
                       test, wait_for)

QUICK = ["--group", "g", "--dead-after", "2s", "--backoff", "50ms..100ms"]


def add(store, count=1, stream="s", **fields):
    text = "".join(json.dumps({"n": str(i), **fields}) + "\n" for i in range(count))
    impel_ok("add", "--stream", stream, "--jsonl", store=store, stdin=text)


def run_until_idle(store, script, *args, stream="s", code=0, env=None):
    done = impel("run", "--stream", stream, *QUICK, "--until-idle", *args, "--", "sh", "-c", script,
                 store=store, deadline_s=90, env=env)
    equal(done.code, code, done.err)
    return done


def status(store, stream="s"):
    done = impel("status", "--json", "--stream", stream, store=store)
    check(done.code in (0, 3), done.err)
    return json.loads(done.out)["streams"][0]


def dead(store, stream="s"):
    return json_lines(impel_ok("dead", "list", "--stream", stream, "--json", store=store))


@test
def every_entry_is_handled_once(tmp):
    add(tmp / "db", 50)
    run_until_idle(tmp / "db", "echo $IMPEL_FIELD_n >> %s/out" % tmp, "--concurrency", "4")
    equal(sorted(map(int, (tmp / "out").read_text().split())), list(range(50)))
    group = status(tmp / "db")["groups"][0]
    equal((group["pending"], group["lag"], group["parked"]), (0, 0, 0))


@test
def the_handler_is_given_json_and_environment(tmp):
    impel_ok("add", "--stream", "s", "name=välue", "two words=x", "r=1", "r=2", store=tmp / "db")
    run_until_idle(tmp / "db", "cat > %s/in; env > %s/env" % (tmp, tmp), "--consumer", "me",
                   env={"IMPEL_PASSWORD": "s3cret"})
    text = (tmp / "in").read_text()
    equal(text.count("\n"), 1, text)
    entry = json.loads(text)
    equal(list(entry), ["id", "stream", "group", "consumer", "attempt", "fields"])
    equal((entry["stream"], entry["group"], entry["consumer"], entry["attempt"]),
          ("s", "g", "me", 1))
    equal(entry["fields"], {"name": "välue", "two words": "x", "r": ["1", "2"]})
    env = dict(line.split("=", 1) for line in (tmp / "env").read_text().splitlines() if "=" in line)
    equal((env["IMPEL_STREAM"], env["IMPEL_GROUP"], env["IMPEL_CONSUMER"], env["IMPEL_ATTEMPT"]),
          ("s", "g", "me", "1"))
    equal(env["IMPEL_ID"], entry["id"])
    equal(env["IMPEL_FIELD_name"], "välue")
    check("IMPEL_FIELD_r" not in env and "IMPEL_PASSWORD" not in env, env)
    check("s3cret" not in (tmp / "env").read_text(), "the password reached the handler")


@test
def failures_are_retried_and_then_parked(tmp):
    """F35: with the reason, and all that the entry had."""
    add(tmp / "db", 3)
    run_until_idle(tmp / "db", "echo $IMPEL_FIELD_n >> %s/tries; echo no luck >&2; "
                   "[ $IMPEL_FIELD_n != 1 ]" % tmp, "--max-deliveries", "3")
    tries = (tmp / "tries").read_text().split()
    equal((tries.count("0"), tries.count("1"), tries.count("2")), (1, 3, 1))
    records = dead(tmp / "db")
    equal(len(records), 1)
    record = records[0]
    equal((record["fields"], record["reason"], record["deliveries"], record["original_stream"],
           record["original_group"]), ({"n": "1"}, "max-deliveries", 3, "s", "g"))
    contains(record["error"], "no luck")
    equal(status(tmp / "db")["groups"][0]["parked"], 1)


@test
def exit_65_parks_at_once(tmp):
    add(tmp / "db", 2)
    run_until_idle(tmp / "db", "echo x >> %s/tries; echo bad data >&2; exit 65" % tmp)
    equal((tmp / "tries").read_text().count("x"), 2)
    records = dead(tmp / "db")
    equal([r["reason"] for r in records], ["rejected", "rejected"])
    equal(records[0]["deliveries"], 1)
    contains(records[0]["error"], "bad data")
    equal(len(json_lines(impel_ok("dead", "list", "--stream", "s", "--reason", "max-deliveries",
                                  "--json", store=tmp / "db"))), 0)
    table = impel_ok("dead", "list", "--stream", "s", store=tmp / "db")
    contains(table, "rejected")
    contains(table, "bad data")


@test
def a_dead_letter_stream_of_ones_own(tmp):
    add(tmp / "db", 1)
    run_until_idle(tmp / "db", "exit 65", "--dead-letter", "graves")
    equal(len(json_lines(impel_ok("dead", "list", "--dead-letter", "graves", "--json",
                                  store=tmp / "db"))), 1)
    equal(dead(tmp / "db"), [])


@test
def several_streams_by_one_worker(tmp):
    add(tmp / "db", 5, "a")
    add(tmp / "db", 5, "b")
    done = impel("run", "--stream", "a", "--stream", "b", *QUICK, "--until-idle", "--", "sh", "-c",
                 "echo $IMPEL_STREAM >> %s/out" % tmp, store=tmp / "db", deadline_s=60)
    equal(done.code, 0, done.err)
    equal(sorted((tmp / "out").read_text().split()), ["a"] * 5 + ["b"] * 5)


@test
def a_groups_part_of_the_config_file_counts_for_it_alone(tmp):
    add(tmp / "db", 1, "a")
    add(tmp / "db", 1, "b")
    config = tmp / "impel.yaml"
    config.write_text("store: lmdb:%s\nstream: a\nmax-deliveries: 2\nbackoff: 10ms..20ms\n"
                      "dead-after: 2s\ngroups:\n- group: special\n  stream: b\n"
                      "  max-deliveries: 4\n" % (tmp / "db"))

    def tries(group):
        done = impel("run", "--config", config, "--group", group, "--until-idle", "--", "sh", "-c",
                     "echo $IMPEL_STREAM >> %s/%s; exit 1" % (tmp, group), deadline_s=60)
        equal(done.code, 0, done.err)
        return (tmp / group).read_text().split()
    equal(tries("plain"), ["a"] * 2)
    equal(tries("special"), ["b"] * 4)


@test
def misuse_is_told_before_anything_is_read(tmp):
    """F35: what is wrong with the options costs no entry an attempt."""
    add(tmp / "db", 1)
    base = ["run", "--stream", "s"]
    for args, part in [
            (["run", "--group", "g", "--", "true"], "--stream STREAM is needed"),
            (base + ["--", "true"], "--group GROUP is needed"),
            (base + ["--group", "g"], "behind '--'"),
            (base + ["--group", "g", "--"], "behind '--'"),
            (base + ["--group", "g", "true"], "one word too many"),
            (base + ["--group", "g", "--", "/does/not/exist"], "/does/not/exist"),
            (base + ["--group", "g", "--", "no-such-command-here"], "no-such-command-here"),
            (base + ["--group", "g", "--", str(tmp)], str(tmp)),
            (base + ["--group", "g", "--dead-letter", "s", "--", "true"], "s")]:
        done = impel(*args, store=tmp / "db")
        equal(done.code, 2, "%s\n%s" % (args, done.err))
        contains(done.err, part)
    plain = tmp / "plain"
    plain.write_text("#!/bin/sh\n")
    done = impel(*base, "--group", "g", "--", plain, store=tmp / "db")
    equal(done.code, 2, done.err)
    groups = status(tmp / "db")["groups"]
    equal([g["pending"] for g in groups if g["pending"]], [])


@test
def a_dead_letter_key_that_is_no_stream_is_told_before_anything_is_read(tmp):
    add(tmp / "db", 1)
    impel_ok("call", "SET", "word", "x", store=tmp / "db")
    done = impel("run", "--stream", "s", *QUICK, "--dead-letter", "word", "--until-idle", "--",
                 "sh", "-c", "exit 65", store=tmp / "db")
    equal(done.code, 2, done.err)
    contains(done.err, "the dead-letter stream 'word' is no stream")
    equal(status(tmp / "db")["groups"], [])  # nor was anything made


@test
def a_missing_group_is_made_unless_told_otherwise(tmp):
    add(tmp / "db", 1)
    done = impel("run", "--stream", "s", *QUICK, "--no-create", "--until-idle", "--", "true",
                 store=tmp / "db")
    equal(done.code, 1, done.err)
    contains(done.err, "g")
    equal(status(tmp / "db")["groups"], [])
    run_until_idle(tmp / "db", "true")
    equal(status(tmp / "db")["groups"][0]["group"], "g")


@test
def a_group_destroyed_under_a_worker_begins_again_behind_what_was_acked(tmp):
    add(tmp / "db", 20)
    worker = start(impel_argv("run", "--stream", "s", *QUICK, "--", "sh", "-c",
                              "echo $IMPEL_FIELD_n >> %s/out" % tmp, store=tmp / "db"), tmp)
    wait_for(lambda: "entries-read\n20\n" in impel_ok("call", "XINFO", "GROUPS", "s", store=tmp / "db") and
             status(tmp / "db")["groups"][0]["pending"] == 0, what="all to be acked")
    impel_ok("call", "XGROUP", "DESTROY", "s", "g", store=tmp / "db")
    wait_for(lambda: worker.err().count("the group was created") == 2, what="the group to be back")
    add(tmp / "db", 1)
    wait_for(lambda: len((tmp / "out").read_text().split()) > 20, what="the new entry")
    equal(worker.stop().code, 0)
    equal(sorted(map(int, (tmp / "out").read_text().split())), sorted([*range(20), 0]))


@test
def until_idle_with_a_duration_gives_up(tmp):
    add(tmp / "db", 1)
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", store=tmp / "db")
    impel_ok("call", "XREADGROUP", "GROUP", "g", "foreign", "STREAMS", "s", ">", store=tmp / "db")
    done = impel("run", "--stream", "s", *QUICK, "--until-idle=1s", "--", "true", store=tmp / "db")
    equal(done.code, 1, done.err)
    contains(done.err, "waiting for the last of the work")
    check("others" not in done.err, done.err)


@test
def term_finishes_what_runs_and_hands_back_the_rest(tmp):
    add(tmp / "db", 3)
    worker = start(impel_argv("run", "--stream", "s", *QUICK, "--prefetch", "2", "--", "sh", "-c",
                              "echo $IMPEL_FIELD_n >> %s/begun; read x < %s/gate; "
                              "echo $IMPEL_FIELD_n >> %s/done" % (tmp, tmp, tmp),
                              store=tmp / "db"), tmp)
    os.mkfifo(tmp / "gate")
    wait_for(lambda: (tmp / "begun").exists(), what="the first handler")
    worker.signal(signal.SIGTERM)
    wait_for(lambda: "stopping" in worker.err(), what="the worker to say that it stops")
    with open(tmp / "gate", "w", encoding="utf-8") as gate:
        gate.write("go\n")
    equal(worker.wait().code, 0, worker.err())
    equal((tmp / "done").read_text().split(), ["0"])
    (tmp / "gate").unlink()
    run_until_idle(tmp / "db", "echo $IMPEL_FIELD_n:$IMPEL_ATTEMPT >> %s/later" % tmp)
    equal(sorted((tmp / "later").read_text().split()), ["1:1", "2:1"])


@test
def a_killed_workers_entry_goes_to_another(tmp):
    """A10: recovery is on without being asked for."""
    add(tmp / "db", 1)
    first = start(impel_argv("run", "--stream", "s", *QUICK, "--", "sh", "-c",
                             "echo x >> %s/begun; exec sleep 1000" % tmp, store=tmp / "db"), tmp)
    wait_for(lambda: (tmp / "begun").exists(), what="the first handler")
    first.kill()
    run_until_idle(tmp / "db", "echo $IMPEL_ATTEMPT > %s/attempt" % tmp)
    equal((tmp / "attempt").read_text(), "2\n")


@test
def metrics_are_written_for_prometheus(tmp):
    add(tmp / "db", 4)
    run_until_idle(tmp / "db", "[ $IMPEL_FIELD_n != 2 ] || exit 65", "--metrics-file",
                   tmp / "metrics")
    text = (tmp / "metrics").read_text()
    contains(text, "# TYPE impel_done_total counter\n")
    contains(text, 'impel_delivered_total{stream="s",group="g"} 4\n')
    contains(text, 'impel_done_total{stream="s",group="g"} 3\n')
    contains(text, 'impel_parked_total{stream="s",group="g"} 1\n')
    contains(text, "# TYPE impel_recovery_seconds histogram\n")
    equal([p.name for p in tmp.iterdir() if p.name.startswith("metrics.")], [])


@test
def logs_come_in_three_forms_and_are_filtered(tmp):
    add(tmp / "db", 1)
    for form, stream in [("json", "a"), ("logfmt", "b"), ("text", "c")]:
        add(tmp / "db", 1, stream)
        done = run_until_idle(tmp / "db", "exit 65", "--log-format", form, stream=stream)
        equal(done.out, "")
        if form == "json":
            events = [e["event"] for e in json_lines(done.err)]
            check("started" in events and "parked" in events, events)
        elif form == "logfmt":
            contains(done.err, "event=parked")
        else:
            contains(done.err, "dead-letter")
    done = run_until_idle(tmp / "db", "exit 65", "--log-level", "error")
    equal(done.err, "")


main()
