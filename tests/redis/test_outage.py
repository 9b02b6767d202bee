"""The server stalls, pauses, fills up, steps its clock, dies and comes back, all under load: nobody
alive is declared dead, nothing runs twice, and a worker that is really killed meanwhile is noticed."""
import signal
import sys
import threading

from impeltest import SOURCE, check, contains, equal, main, now, test, wait_for

sys.path.insert(0, str(SOURCE / "tests" / "chaos"))
from fleet import Fleet  # pylint: disable=wrong-import-position
from redishelp import Server

DEAD_AFTER_S = 2
OPTIONS = ["--dead-after", "%ds" % DEAD_AFTER_S, "--backoff", "50ms..200ms", "--concurrency", "2"]


def _pass(seconds):
    """Time goes by; there is nothing to wait for."""
    threading.Event().wait(seconds)


def _victim(fleet):
    """A worker whose handlers hang; its starts stand in a ledger of their own."""
    ledger = fleet.folder / "victim-ledger"
    ledger.touch()
    victim = fleet.start("--consumer", "victim",
                         handler=["sh", "-c", 'echo "$IMPEL_ID" >> %s; exec sleep 600' % ledger])
    ids = fleet.add(2)
    wait_for(lambda: len(ledger.read_text().split()) == 2, what="the victim to hold two entries")
    return victim, ids


def _disturb(tmp, server, begin, end, url=""):
    """Healthy workers at work, the disturbance begins, one worker is killed, it ends, all is finished."""
    fleet = Fleet(tmp, server.url + url, work="sleep 0.3", options=OPTIONS)
    victim, ids = _victim(fleet)
    healthy = [fleet.start("--consumer", "healthy-%d" % i) for i in range(2)]
    ids += fleet.add(30, first=2)
    fleet.wait_for_starts(6)
    begin()
    _pass(1)
    victim.kill()
    _pass(3 * DEAD_AFTER_S - 1)
    end()
    wait_for(lambda: set(ids) <= fleet.ended(), 90, "all entries to be done")
    wait_for(lambda: fleet.group_status()["pending"] == 0, what="an empty PEL")
    starts = [line.id for line in fleet.starts()]
    equal(sorted(starts), sorted(ids), "something ran twice")
    dead = [line for worker in healthy for line in worker.err().splitlines() if "taken for dead" in line]
    check(dead and all("victim" in line for line in dead), dead)
    for worker in healthy:
        check(worker.running(), worker.err()[-2000:])
        equal(worker.stop().code, 0, worker.err()[-2000:])
    return fleet


@test
def a_server_that_stands_still(tmp):
    server = Server(tmp)
    _disturb(tmp, server, lambda: server.process.signal(signal.SIGSTOP),
             lambda: server.process.signal(signal.SIGCONT))


@test
def a_server_that_stands_still_until_connections_are_given_up(tmp):
    server = Server(tmp)
    _disturb(tmp, server, lambda: server.process.signal(signal.SIGSTOP),
             lambda: server.process.signal(signal.SIGCONT), url="?timeout=500ms")


@test
def a_server_that_pauses_writes(tmp):
    server = Server(tmp)
    client = server.client()
    _disturb(tmp, server,
             lambda: client.execute_command("CLIENT", "PAUSE", 3 * DEAD_AFTER_S * 1000, "WRITE"),
             lambda: None)


@test
def a_server_that_is_full(tmp):
    server = Server(tmp)
    client = server.client()
    _disturb(tmp, server, lambda: client.config_set("maxmemory", 1), lambda: client.config_set("maxmemory", 0))


@test
def a_server_whose_clock_leaps_ahead(tmp):
    server = Server(tmp, clock=True)
    _disturb(tmp, server, lambda: server.step_clock(10), lambda: None)


@test
def a_server_whose_clock_is_set_back(tmp):
    server = Server(tmp, clock=True)
    _disturb(tmp, server, lambda: server.step_clock(-3600), lambda: None)


@test
def a_server_that_is_killed_and_comes_back_with_its_log(tmp):
    server = Server(tmp, "--appendonly", "yes", "--appendfsync", "always")
    fleet = Fleet(tmp, server.url, work="sleep 0.1", options=OPTIONS)
    workers = [fleet.start() for _ in range(2)]
    ids = fleet.add(60)
    for _ in range(3):
        fleet.wait_for_starts(len(fleet.starts()) + 4)
        server.kill()
        server.again()
    wait_for(lambda: set(ids) <= fleet.ended(), 90, "all entries to be done")
    wait_for(lambda: fleet.group_status()["pending"] == 0, what="an empty PEL")
    equal(fleet.overlaps(), [], "ran in two live workers at once")
    for worker in workers:
        check(worker.running(), worker.err()[-2000:])
        check(len(worker.err().splitlines()) < 400, "a flood of log lines:\n" + worker.err()[-2000:])
        equal(worker.stop().code, 0, worker.err()[-2000:])


@test
def a_server_that_does_not_come_back_ends_the_worker_if_asked(tmp):
    server = Server(tmp)
    fleet = Fleet(tmp, server.url, options=[*OPTIONS, "--connect-timeout", "1s"])
    worker = fleet.start()
    ids = fleet.add(2)
    wait_for(lambda: set(ids) <= fleet.ended(), what="its work")
    server.kill()
    done = worker.wait()
    equal(done.code, 1, done.err)
    contains(done.err, "no connection within 1000 ms")


@test
def a_connection_that_breaks_is_followed_by_a_look_at_what_is_held(tmp):
    """Of four entries one is at work; the others are taken by hand, and the connections are cut."""
    server = Server(tmp)
    client = server.client()
    fleet = Fleet(tmp, server.url, work="while [ ! -e %s/go ]; do sleep 0.05; done" % tmp,
                  options=["--concurrency", "1", "--prefetch", "3"])
    worker = fleet.start("--consumer", "w")
    ids = fleet.add(4)
    fleet.wait_for_starts(1)  # then there is a group
    wait_for(lambda: client.xpending("orders", "g")["pending"] == 4, what="all four to be held")
    client.xclaim("orders", "g", "by-hand", 0, ids[1:])
    client.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
    worker.wait_for_output("trying again")
    (tmp / "go").touch()
    wait_for(lambda: worker.err().count("no longer ours") == 3, what="the three to be given up")
    wait_for(lambda: client.xpending("orders", "g")["pending"] == 3, what="the first to be done")
    equal(worker.stop().code, 0, worker.err()[-2000:])
    equal([line.id for line in fleet.starts()], ids[:1])


@test
def a_server_that_comes_back_empty(tmp):
    server = Server(tmp)
    fleet = Fleet(tmp, server.url, work="sleep 0.1", options=OPTIONS)
    workers = [fleet.start() for _ in range(2)]
    fleet.add(40)
    fleet.wait_for_starts(6)
    server.kill()
    _pass(1)
    server.again()
    begun = now()
    ids = fleet.add(20, first=1000)
    wait_for(lambda: set(ids) <= fleet.ended(), 90, "the new entries to be done")
    took = now() - begun
    calls = sum(command["calls"] for command in server.client().info("commandstats").values())
    print("# done %.1f s after the server was back, %d commands" % (took, calls))
    # Two workers at rest ask some ten times a second, an entry is a handful; a loop would be thousands.
    check(calls < 500 + 50 * took, "%d commands in %.1f s" % (calls, took))
    for worker in workers:
        check(worker.running(), worker.err()[-2000:])
        check(len(worker.err().splitlines()) < 200, "a flood of log lines:\n" + worker.err()[-2000:])
        equal(worker.stop().code, 0, worker.err()[-2000:])


main()
