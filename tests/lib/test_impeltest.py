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


def gone(pid):
    try:
        os.kill(pid, 0)
        with open("/proc/%d/stat" % pid, encoding="utf-8") as stat:
            return stat.read().split()[2] == "Z"
    except (ProcessLookupError, FileNotFoundError):
        return True


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

    wait_for(lambda: gone(child), what="the child's end")


@test
def who_got_a_dead_programs_number_is_left_alone(tmp):
    process = start(["sleep", "1000"], tmp)
    since, process.popen.since = process.popen.since, "1"
    process.signal_group(signal.SIGKILL)
    check(process.running(), "it was started later than that")
    process.popen.since = since
    process.signal_group(signal.SIGKILL)
    equal(process.wait().code, -signal.SIGKILL)


@test
def nothing_outlives_a_killed_test(tmp):
    program = tmp / "program.py"
    program.write_text("import pathlib, impeltest\n"
                       "here = pathlib.Path(%r)\n"
                       "print(impeltest.start(['sh', '-c', 'sleep 1000 & echo $!; wait'], here).pid, flush=True)\n"
                       "impeltest.run(['sh', '-c', 'echo $$ > running; exec sleep 1000'], cwd=here)\n" % str(tmp))
    process = start([sys.executable, program], tmp)
    wait_for((tmp / "running").exists, what="both programs")
    others = wait_for(lambda: [p for p in tmp.glob("sh-*.out") if p.read_text().strip()], what="the child")
    pids = [int(text) for text in [process.out(), others[0].read_text(), (tmp / "running").read_text()]]
    check(not any(gone(pid) for pid in pids), pids)
    process.popen.kill()
    wait_for(lambda: all(gone(pid) for pid in pids), what="everybody's end")


@test
def the_program_is_found(_tmp):
    done = impel("version")
    equal(done.code, 0, done.err)
    contains(done.out, "impel ")


main()
