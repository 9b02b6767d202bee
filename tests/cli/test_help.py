#!/usr/bin/python3
"""Help in all its forms: every command and option is told everywhere, and what is printed is valid
where another program reads it."""
import re
import shutil
import subprocess

from impeltest import SOURCE, check, contains, equal, impel, impel_ok, main, run, skip, test


def commands():
    return re.findall(r"^  (\w+) +\S", impel_ok("help").split("\nCommands\n")[1], re.M)


def options_of_table():
    """The names in the table itself, so that a form that leaves one out is found."""
    text = (SOURCE / "src/cli/options_table.c").read_text()
    names = re.findall(r'^    \{"([a-z-]+)",', text, re.M)
    check(len(names) > 30, "the table is read wrongly")
    return names


@test
def help_lists_every_command(tmp):
    text = (SOURCE / "src/cli/command_table.c").read_text()
    equal(commands(), re.findall(r'\.name = "(\w+)"', text))


@test
def every_option_is_explained_by_help_and_manual(tmp):
    helps = {c: impel_ok("help", c) for c in commands()}
    mans = {c: impel_ok("help", "--man", c) for c in commands()}
    for option in options_of_table():
        used = [c for c in helps if re.search(r"^  --%s(?![\w-])" % option, helps[c], re.M)]
        check(used, "no command's help has --" + option)
        for command in used:
            contains(mans[command], "\\-\\-" + option.replace("-", "\\-"),
                     "the manual page of %s" % command)
            explained = re.search(r"^  --%s(?![\w-]).*\n      (\S.*)" % option, helps[command],
                                  re.M)
            check(explained and len(explained.group(1)) > 10, "--%s says nothing" % option)


@test
def every_command_has_an_installed_manual_page(tmp):
    text = (SOURCE / "man/meson.build").read_text()
    for command in commands():
        contains(text, "'%s'" % command)


@test
def every_command_has_text_and_examples(tmp):
    for command in commands():
        text = impel_ok("help", command)
        contains(text, "Examples\n  impel " + command)
        contains(text, "  impel %s [OPTION...]" % command)
        equal(impel_ok(command, "--help"), text)
        equal(impel_ok(command, "-h"), text)


@test
def examples_use_options_that_exist(tmp):
    known = set(options_of_table())
    for command in commands():
        examples = impel_ok("help", command).split("Examples\n")[1]
        for line in examples.splitlines():
            for part in line.split("|"):
                words = part.split(" -- ")[0].split()
                if words and words[0] == "impel":
                    for word in words[1:]:
                        if word.startswith("--"):
                            check(word[2:].split("=")[0] in known, line)


@test
def manual_pages_are_clean_roff(tmp):
    if not shutil.which("groff") and not shutil.which("mandoc"):
        skip("neither groff nor mandoc is here")
    for command in commands() + [None]:
        page = impel_ok(*(["help", "--man"] + ([command] if command else [])))
        if shutil.which("mandoc"):
            done = run(["mandoc", "-Tlint", "-Werror"], stdin=page)
        else:
            done = run(["groff", "-man", "-Tascii", "-ww"], stdin=page)
        equal(done.err, "", command)


@test
def completion_is_sound_and_offers_what_fits(tmp):
    script = tmp / "completion"
    script.write_text(impel_ok("help", "--completion"))
    equal(run(["bash", "-n", script]).code, 0)

    def offers(*words):
        code = "source %s; COMP_WORDS=(%s); COMP_CWORD=%d; _impel; printf '%%s\\n' \"${COMPREPLY[@]}\"" % (
            script, " ".join("'%s'" % w for w in words), len(words) - 1)
        return subprocess.run(["bash", "-c", code], check=True, capture_output=True,
                              text=True).stdout.split()
    equal(sorted(offers("impel", "")), sorted(commands()))
    equal(offers("impel", "sta"), ["status"])
    equal(offers("impel", "run", "--max-d"), ["--max-deliveries"])
    equal(offers("impel", "add", "--max-d"), [])
    equal(offers("impel", "run", "--log-format", "l"), ["logfmt"])


@test
def the_sample_config_is_valid_once_uncommented(tmp):
    sample = impel_ok("help", "--sample-config")
    config = tmp / "impel.yaml"
    config.write_text(sample)
    equal(impel("version", "--config", config).code, 0)
    config.write_text(re.sub(r"^#(?=[a-z ])(?! [A-Z])", "", sample, flags=re.M))
    lines = [line[1:] for line in sample.splitlines() if re.match(r"#( *-? *)?[a-z-]+: ?", line)]
    config.write_text("\n".join(lines) + "\n")
    done = impel("version", "--config", config)
    equal(done.code, 0, done.err)
    for option in ["store", "min-idle", "backoff", "concurrency", "metrics-file", "log-level"]:
        check(any(line.startswith(option + ":") for line in lines), option)


@test
def no_command_at_all_shows_help_and_is_misuse(tmp):
    done = impel()
    equal(done.code, 2)
    contains(done.out, "Commands")
    equal(impel("--help").code, 0)
    equal(impel("--version").out, impel_ok("version"))
    equal(impel("help", "nothing").code, 2)


@test
def colour_is_for_terminals_only(tmp):
    check("\033" not in impel_ok("help", "run"), "colour into a pipe")
    if not shutil.which("script"):
        skip("no script(1) to make a terminal with")
    from impeltest import IMPEL
    shown = run(["script", "-qec", "%s help" % IMPEL, "/dev/null"], env={"NO_COLOR": ""})
    contains(shown.out, "\033[1m")
    plain = run(["script", "-qec", "%s help" % IMPEL, "/dev/null"], env={"NO_COLOR": "1"})
    check("\033[" not in plain.out, plain.out)


main()
