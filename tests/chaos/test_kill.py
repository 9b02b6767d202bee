"""Workers are SIGKILLed at random moments, alone or with their group; nothing is lost, nothing runs in
two live workers at once, nothing is left pending, and the file stays sound."""
import os
import random
import signal
import threading

from fleet import Fleet, fresh_store, rounds
from impeltest import check, equal, main, stop_outside_its_lock, test

OPTIONS = ["--dead-after", "600ms", "--backoff", "20ms..200ms", "--max-deliveries", "50",
           "--concurrency", "3"]


def _one_round(folder, seed):
    dice = random.Random(seed)
    fleet = Fleet(folder, fresh_store(folder, "?sync=" + dice.choice(["full", "process"])),
                  work="sleep 0.0%d" % dice.randint(1, 9),
                  options=OPTIONS)
    ids = fleet.add(60)
    alive = [fleet.start() for _ in range(3)]
    pause = threading.Event()
    for _ in range(dice.randint(2, 5)):
        fleet.wait_for_starts(1)
        pause.wait(dice.uniform(0, 0.4))
        victim = dice.choice(alive)
        alive.remove(victim)
        if dice.random() < 0.3:
            victim.signal_group(signal.SIGKILL)
        victim.popen.kill()
        victim.popen.wait()
        alive.append(fleet.start())
    for worker in alive:
        if dice.random() < 0.5:
            worker.popen.kill()
            worker.popen.wait()
        else:
            # TERM may come before a worker that was just started minds it.
            check(worker.stop().code in (0, -signal.SIGTERM), worker.err()[-2000:])
    fleet.finish()
    parked = fleet.check_all_settled(ids)
    equal(parked, set(), "parked although every handler succeeds")
    equal(fleet.overlaps(), [], "ran in two live workers at once")
    fleet.check_file()


@test
def killed_workers_lose_nothing(tmp):
    seed = int(os.environ.get("IMPEL_SEED", random.randrange(1 << 31)))
    for number in range(rounds(20)):
        print("# round %d: IMPEL_SEED=%d IMPEL_ROUNDS=1" % (number, seed + number), flush=True)
        folder = tmp / ("round-%d" % number)
        folder.mkdir()
        _one_round(folder, seed + number)


@test
def a_stopped_worker_does_not_block_the_others(tmp):
    """The rest goes on while one is stopped, and what ran twice because the pause outlived dead-after is
    counted."""
    fleet = Fleet(tmp, fresh_store(tmp), options=OPTIONS)
    stopped, other = fleet.start(), fleet.start()
    ids = fleet.add(50)
    fleet.wait_for_starts(5)
    stop_outside_its_lock(stopped, fleet.store)
    ids += fleet.add(100, first=50)
    fleet.finish()
    check(set(ids) <= fleet.ended(), "unfinished while one worker was stopped")
    stopped.signal(signal.SIGCONT)
    ids += fleet.add(50, first=150)
    fleet.finish()
    equal(fleet.check_all_settled(ids), set())
    for worker in (stopped, other):
        if worker.running():
            worker.stop()
    fleet.check_file()


main()
