#!/usr/bin/python3
"""bench: it measures both sides and says so in both forms. What the numbers are is no test's
business."""
from impeltest import contains, equal, impel, impel_ok, json_lines, main, test


@test
def both_kinds_compare_both_modes(tmp):
    for work in ["recover", "steady"]:
        out = impel_ok("bench", work, "--entries", "3000", "--runs", "1", "--json",
                       env={"TMPDIR": str(tmp)}, deadline_s=60)
        lines = json_lines(out)
        pairs = [(line["work"], line["impel"], line["against"]) for line in lines]
        equal(pairs[:2], [(work, "sync=full", "plain LMDB"), (work, "sync=process", "plain LMDB")])
        # redis-server and the loops are what every build here has.
        contains(pairs, (work, "redis", "C loop, redis"))
        equal((work, "redis", "Python loop, redis") in pairs, work == "recover")
        for line in lines:
            equal(line["entries"], 3000)
            ratio = line["impel_per_s"] / line["against_per_s"]
            equal(abs(line["ratio"] - ratio) < 0.01 * max(1, ratio), True, line)
    contains(impel_ok("bench", "steady", "--entries", "2000", "--runs", "1",
                      env={"TMPDIR": str(tmp)}), "sync=process")


@test
def a_command_for_each_entry_against_xargs(tmp):
    line = json_lines(impel_ok("bench", "exec", "--entries", "20", "--runs", "1", "--json",
                               env={"TMPDIR": str(tmp)}, deadline_s=60))[0]
    equal((line["work"], line["against"], line["goal"]), ("exec", "xargs -n1 -P4", 1.0))
    equal(line["impel_per_s"] > 0 and line["against_per_s"] > 0, True, line)


@test
def commands_that_stay_against_one_for_each_entry(tmp):
    line = json_lines(impel_ok("bench", "pipe", "--entries", "2000", "--runs", "1", "--json",
                               env={"TMPDIR": str(tmp)}, deadline_s=60))[0]
    equal((line["work"], line["against"], line["goal"]), ("pipe", "a command for each", 20.0))
    equal(line["impel_per_s"] > 0 and line["against_per_s"] > 0, True, line)


@test
def a_killed_workers_entries_run_elsewhere(tmp):
    line = json_lines(impel_ok("bench", "takeover", "--runs", "1", "--json",
                               env={"TMPDIR": str(tmp)}, deadline_s=120))[0]
    # Not before the dead worker counts as dead; how soon after that is no test's business.
    equal(line["seconds"] > 2 and line["longest"] == line["seconds"], True, line)


@test
def what_a_sweep_costs_beside_healthy_work(tmp):
    """A3: the same beside few and many; where all has to be looked at, in steps."""
    out = impel_ok("bench", "sweep", "--entries", "5000", "--runs", "1", "--json",
                   env={"TMPDIR": str(tmp)}, deadline_s=120)
    lines = {line["store"]: line for line in json_lines(out) if line["work"] == "sweep"}
    equal(sorted(lines), ["redis", "sync=process"])
    for line in lines.values():
        equal((line["few"], line["many"]), (1000, 5000))
        equal(line["few_cpu_us"] > 0 and line["many_cpu_us"] > 0, True, line)
    # The same commands, however much is healthy.
    equal(lines["redis"]["few_commands"] > 1, True, lines)
    equal(round(lines["redis"]["few_commands"]), round(lines["redis"]["many_commands"]), lines)
    passes = {line["holders"]: line for line in json_lines(out) if line["work"] == "pass"}
    equal(sorted(passes), ["others", "workers"])
    for line in passes.values():
        equal((line["found"], line["abandoned"], line["goal_us"]), (500, 500, 5000))
    # Behind workers only what is abandoned is looked at, behind others all is, a thousand rows a step.
    few, many = (passes["workers"][which + "_commands"] for which in ("few", "many"))
    equal(many < few + 50, True, passes)
    equal(passes["others"]["many_commands"] > passes["workers"]["many_commands"], True, passes)


@test
def memory_of_a_worker_that_holds_entries(tmp):
    line = json_lines(impel_ok("bench", "memory", "--json", env={"TMPDIR": str(tmp)},
                               deadline_s=60))[0]
    equal((line["entries"], line["value_size"]), (10000, 1024))
    equal(line["bytes"] > 10000 * 1024, True, line)


@test
def nothing_to_measure_is_misuse(tmp):
    for words in [[], ["speed"]]:
        done = impel("bench", *words)
        equal(done.code, 2)
        contains(done.err, "recover, steady, exec, pipe, takeover, sweep or memory")


main()
