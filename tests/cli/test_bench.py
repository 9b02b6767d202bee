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
        contains(done.err, "recover, steady or memory")


main()
