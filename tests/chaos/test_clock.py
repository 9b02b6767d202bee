"""The machine's wall clock is stepped under an embedded store at work: nobody alive is declared dead,
nothing runs twice, and a worker that is killed meanwhile is noticed."""
import os
import struct

from fleet import Fleet
from impeltest import BUILD, check, equal, main, skip, test, wait_for

CLOCK = BUILD / "tests" / "redis" / "libclock.so"
OPTIONS = ["--dead-after", "2s", "--backoff", "50ms..200ms", "--concurrency", "2"]


def _stepped(tmp, seconds):
    if not CLOCK.exists():
        skip("%s is not built" % CLOCK)
    offset = tmp / "clock"
    offset.write_bytes(struct.pack("=q", 0))
    # Of all programs that the test starts: it is the machine's clock.
    os.environ.update(LD_PRELOAD=str(CLOCK), CLOCK_OFFSET_FILE=str(offset))
    fleet = Fleet(tmp, "lmdb:%s/db" % tmp, work="sleep 0.2", options=OPTIONS)
    held = tmp / "held"
    held.touch()
    victim = fleet.start("--consumer", "victim",
                         handler=["sh", "-c", 'echo "$IMPEL_ID" >> %s; exec sleep 600' % held])
    ids = fleet.add(2)
    wait_for(lambda: len(held.read_text().split()) == 2, what="the victim to hold two entries")
    healthy = [fleet.start("--consumer", "healthy-%d" % i) for i in range(2)]
    ids += fleet.add(30, first=2)
    fleet.wait_for_starts(6)
    with open(offset, "r+b") as file:
        file.write(struct.pack("=q", seconds))
    fleet.wait_for_starts(10)
    victim.popen.kill()
    wait_for(lambda: set(ids) <= fleet.ended(), 60, "all entries to be done")
    wait_for(lambda: fleet.group_status()["pending"] == 0, what="an empty PEL")
    equal(sorted(line.id for line in fleet.starts()), sorted(ids), "something ran twice")
    dead = [line for worker in healthy for line in worker.err().splitlines() if "taken for dead" in line]
    check(dead and all("victim" in line for line in dead), dead)
    for worker in healthy:
        equal(worker.stop().code, 0, worker.err()[-2000:])
    fleet.check_file()


@test
def a_clock_that_leaps_ahead(tmp):
    _stepped(tmp, 10)


@test
def a_clock_that_is_set_back(tmp):
    _stepped(tmp, -3600)


main()
