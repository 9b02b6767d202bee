"""The helpers of the Python tests, which everything else relies on to go red."""
import os
import signal
import sys

from impeltest import (Failed, check, contains, equal, impel, main, run, start, test, wait_for)


def fails(function, *args, **options):
    try:
        function(*args, **options)
    except Failed as why:
        return str(why)
    raise Failed("it passed")


@test
def checks_go_red(_tmp):
    fails(check, False)
    contains(fails(equal, 1, 2, "sums"), "sums")
    contains(fails(wait_for, lambda: False, 0.05, "rain"), "rain")


@test
def a_hanging_program_is_killed_at_its_deadline(_tmp):
    contains(fails(run, ["sleep", "1000"], 0.1), "still ran")


@test
def output_and_exit_status_come_back(tmp):
    done = run([sys.executable, "-c", "import sys; print(sys.stdin.read()); sys.exit(7)"], stdin="x")
    equal((done.code, done.out), (7, "x\n"))
    process = start(["sh", "-c", "echo ready; exec sleep 1000"], tmp)
    process.wait_for_output("ready")
    process.signal(signal.SIGTERM)
    equal(process.wait().code, -signal.SIGTERM)


@test
def children_of_a_killed_program_die_too(tmp):
    process = start(["sh", "-c", "sleep 1000 & echo $!; wait"], tmp)
    wait_for(process.out, what="the child's pid")
    child = int(process.out())
    process.kill()

    def gone():
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        with open("/proc/%d/stat" % child, encoding="utf-8") as stat:
            return stat.read().split()[2] == "Z"
    wait_for(gone, what="the child's end")


@test
def the_program_is_found(_tmp):
    done = impel("version")
    equal(done.code, 0, done.err)
    contains(done.out, "impel ")


main()
