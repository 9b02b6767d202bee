#!/usr/bin/python3
"""Options: what is refused, with which words and which exit code; which of four places wins."""
import os

from impeltest import check, contains, equal, impel, json_lines, main, test


def refused(args, *parts, **options):
    """Exit 2, one clear line with all the parts in it, nothing on standard output."""
    done = impel(*args, **options)
    equal(done.code, 2, "impel %s\n%s" % (" ".join(args), done.err))
    equal(done.out, "", "data on standard output")
    for part in parts:
        contains(done.err.splitlines()[0], part, "impel %s" % " ".join(args))


@test
def unknown_options_and_commands_are_named_with_the_nearest(tmp):
    refused(["run", "--min-idel", "3s"], "unknown option '--min-idel'", "'--min-idle'")
    refused(["run", "--zzzzzzzz"], "unknown option '--zzzzzzzz'")
    refused(["stauts"], "unknown command 'stauts'", "'status'")
    refused(["--store", "x", "status"], "the command comes first")
    refused(["add", "--backoff", "1s"], "'--backoff' does not belong to this command")
    refused(["version", "word"], "'word' is one word too many")
    refused(["status", "--", "word"], "nothing may follow '--'")


@test
def bad_values_are_named_with_their_place(tmp):
    refused(["status", "--min-idle", "30"], '"30"', "'--min-idle'", "unit")
    refused(["status", "--min-idle", "30x"], '"30x"', "'--min-idle'")
    refused(["status", "--min-idle", ""], '""', "'--min-idle'")
    refused(["status", "--min-idle=-3s"], '"-3s"', "'--min-idle'")
    refused(["status", "--min-idle", "99999999999d"], "'--min-idle'")
    refused(["status", "--dead-after", "1ms"], "at least 100ms")
    refused(["status", "--backoff", "5m..1s"], "'--backoff'", "shorter")
    refused(["status", "--backoff", "1s.."], "'--backoff'")
    refused(["run", "--concurrency", "0"], "'--concurrency'", "from 1 to")
    refused(["run", "--concurrency", "2x"], "'--concurrency'", "whole number")
    refused(["run", "--max-deliveries", "0"], "'--max-deliveries'", "at least 1")
    refused(["run", "--log-format", "xml"], "'--log-format'", "text|logfmt|json")
    refused(["read", "--start", "x"], "'--start'", "ID")
    refused(["run", "--strict=maybe"], "'--strict'", "true or false")
    refused(["read", "--stream"], "'--stream' needs a value", "STREAM")
    refused(["run", "--until-idle=5"], "'--until-idle'")


@test
def an_empty_name_is_refused(tmp):
    """What an unset variable of a shell gives is no stream and no group that anybody means."""
    for command in ["run", "sweep", "status", "dead", "explain"]:
        refused([command, "--stream", "", "--group", "g"], '""', "'--stream'")
        refused([command, "--stream", "s", "--group="], '""', "'--group'")
    for command in ["add", "read"]:
        refused([command, "--stream", ""], '""', "'--stream'")
    refused(["run", "--consumer", ""], '""', "'--consumer'")
    refused(["run", "--dead-letter", ""], '""', "'--dead-letter'")
    config = tmp / "impel.yaml"
    config.write_text("stream: [a, '']\n")
    refused(["status", "--config", str(config)], "'stream'", "line 1")


@test
def bad_values_in_the_environment_are_named(tmp):
    refused(["status"], "the environment variable IMPEL_LOG_LEVEL", '"loud"', "debug|info",
            env={"IMPEL_LOG_LEVEL": "loud"})
    refused(["status"], "/does/not/exist", "cannot read the config file",
            env={"IMPEL_CONFIG": "/does/not/exist"})


@test
def help_is_given_whatever_the_environment_holds(tmp):
    config = tmp / "impel.yaml"
    config.write_text("- no options\n")
    for env in [{"IMPEL_CONFIG": "/does/not/exist"}, {"IMPEL_CONFIG": str(config)},
                {"IMPEL_LOG_LEVEL": "loud"}]:
        for args in [["help"], ["help", "run"], ["--help"], ["version"], ["--version"],
                     ["run", "--help"], ["status", "-h"]]:
            done = impel(*args, env=env)
            equal(done.code, 0, done.err)
            check(done.out != "", args)


@test
def bad_config_files_are_named_with_the_line(tmp):
    config = tmp / "impel.yaml"
    for text, parts in [
            ("min-idle: 3s\nmin-idel: 3s\n", ["line 2", "unknown key 'min-idel'", "'min-idle'"]),
            ("min-idle: 3\n", ["line 1", "'min-idle'", '"3"']),
            ("store: [a, b]\n", ["line 1", "'store' takes one value"]),
            ("store: {a: b}\n", ["line 1", "'store' takes one value"]),
            ("help: true\n", ["line 1", "'help' belongs on the command line"]),
            ("stream: [b\n", ["line", "not YAML"]),
            ("- a\n", ["line 1", "name: value"]),
            ("groups: 3\n", ["line 1", "'groups' is a list"]),
            ("groups:\n- 3\n", ["line 2", "mapping"]),
            ("groups:\n- stream: a\n", ["line 2", "no 'group'"]),
            ("groups:\n- group: a\n  backoff: soon\n", ["line 3", "'backoff'", '"soon"']),
            ("groups:\n- group: a\n  color: red\n", ["line 3", "unknown key 'color'"]),
    ]:
        config.write_text(text)
        refused(["version", "--config", str(config)], str(config), *parts)


@test
def config_files_may_be_empty_and_hold_options_of_other_commands(tmp):
    config = tmp / "impel.yaml"
    for text in ["", "# nothing\n", "concurrency: 4\nstream: [a, b]\nstrict: yes\n",
                 "---\nbackoff: 1s..2m\n...\n"]:
        config.write_text(text)
        equal(impel("version", "--config", config).code, 0, text)


@test
def the_command_line_wins_over_environment_over_file_over_default(tmp):
    for name in ["default", "file", "environment", "line"]:
        store = tmp / "impel.db" if name == "default" else tmp / name
        equal(impel("add", "--stream", "s", "from=" + name, store=store).code, 0)
    config = tmp / "impel.yaml"
    config.write_text("store: lmdb:%s\n" % (tmp / "file"))

    def store_used(args, env):
        clean = {"IMPEL_STORE": "", "IMPEL_CONFIG": "", **env}
        done = impel("read", "--stream", "s", *args, env=clean, cwd=tmp)
        equal(done.code, 0, done.err)
        return json_lines(done.out)[0]["fields"]["from"]

    by_file = ["--config", str(config)]
    by_env = {"IMPEL_STORE": "lmdb:%s" % (tmp / "environment")}
    equal(store_used([], {}), "default")
    equal(store_used(by_file, {}), "file")
    equal(store_used([], {"IMPEL_CONFIG": str(config)}), "file")
    equal(store_used(by_file, by_env), "environment")
    equal(store_used(by_file + ["--store", "lmdb:%s" % (tmp / "line")], by_env), "line")


@test
def a_list_on_the_command_line_replaces_the_files(tmp):
    store = tmp / "db"
    for stream in "abc":
        equal(impel("add", "--stream", stream, "x=1", store=store).code, 0)
    config = tmp / "impel.yaml"
    config.write_text("stream: [a, b]\n")

    def streams(*args):
        done = impel("status", "--json", "--config", config, *args, store=store)
        return [s["stream"] for s in json_lines(done.out)[0]["streams"]]

    equal(streams(), ["a", "b"])
    equal(streams("--stream", "c"), ["c"])
    equal(streams("--stream", "c", "--stream", "a"), ["c", "a"])


@test
def options_and_their_values_may_be_joined_by_a_sign(tmp):
    store = tmp / "db"
    equal(impel("add", "--stream=a=b", "x=1", store=store).code, 0)
    done = impel("read", "--stream=a=b", store=store)
    equal(json_lines(done.out)[0]["stream"], "a=b")


@test
def a_password_in_the_url_does_not_stay_on_the_command_line(tmp):
    fifo = tmp / "fifo"
    os.mkfifo(fifo)
    from impeltest import IMPEL, start, wait_for
    # The config file is a pipe that nobody writes to: the program waits there, with its arguments
    # already taken.
    process = start([IMPEL, "read", "--store", "redis://user:s3cret@127.0.0.1:1/0", "--stream", "s",
                     "--config", fifo], tmp)

    def command_line():
        with open("/proc/%d/cmdline" % process.pid, "rb") as file:
            return file.read()
    wait_for(lambda: b"user:xxxxxx@" in command_line(), what="the password to be wiped")
    check(b"s3cret" not in command_line(), command_line())
    process.kill()


main()
