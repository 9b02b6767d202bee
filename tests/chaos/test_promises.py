"""The promises of the README, each with real processes, on the embedded store or on Redis."""
import json
import signal

from fleet import Fleet, fresh_store, metric
from impeltest import (check, equal, impel, impel_ok, main, now, start, stop_outside_its_lock, test,
                       wait_for)


def _fleet(tmp, *options, work=":", dead_after="1s"):
    return Fleet(tmp, fresh_store(tmp), work=work,
                 options=["--dead-after", dead_after, *options])


@test
def a_killed_workers_entries_run_elsewhere_in_time(tmp):
    """Within dead-after + 1.5 s, measured from the kill to the start in the other worker; the slack of
    the deadline is for the machine, not for the worker."""
    fleet = _fleet(tmp, "--backoff", "100ms..1s", "--concurrency", "4", dead_after="3s",
                   work="case $IMPEL_ATTEMPT in 1) exec sleep 600;; esac")
    victim = fleet.start("--consumer", "victim")
    ids = fleet.add(4)
    fleet.wait_for_starts(4)
    other = fleet.start("--consumer", "other")
    wait_for(lambda: any(w["consumer"] == "other" and w["alive"] for w in fleet.group_status()["workers"]),
             what="the other worker's first beat")
    killed = now()
    victim.popen.kill()
    wait_for(lambda: len(fleet.starts()) >= 8, 60, "four more starts")
    took = now() - killed
    print("# from the kill to the last start elsewhere: %.2f s" % took)
    check(took < 30, "took %.1f s" % took)
    wait_for(lambda: set(ids) <= fleet.ended(), what="all done")
    equal(other.stop().code, 0)
    equal(fleet.check_all_settled(ids), set())
    equal({line.attempt for line in fleet.starts()}, {"1", "2"})


@test
def a_slow_healthy_worker_is_never_robbed(tmp):
    """A handler of 4 x min-idle beside another Impel worker and a plain XAUTOCLAIM loop, both with that
    same min-idle."""
    fleet = _fleet(tmp, "--min-idle", "2s", work="exec 3>&1; sleep 8", dead_after="5s")
    slow = fleet.start("--consumer", "slow")
    ids = fleet.add(1)
    fleet.wait_for_starts(1)
    peer = fleet.start("--consumer", "peer")
    robbed = []
    while not set(ids) <= fleet.ended():
        out = impel_ok("call", "XAUTOCLAIM", "orders", "g", "robber", "2000", "0-0", "JUSTID",
                       store=fleet.store)
        if ids[0] in out.split()[1:]:
            robbed.append(out)
        check(slow.running(), slow.err())
    equal(robbed, [], "XAUTOCLAIM took it from the slow worker")
    equal(len(fleet.starts()), 1)
    equal(slow.stop().code, 0)
    equal(peer.stop().code, 0)
    equal(fleet.check_all_settled(ids), set())
    equal(metric(slow.metrics, "impel_late_acks_total"), 0)


@test
def poison_is_parked_and_holds_nobody_up(tmp):
    """A handler that dies by SIGSEGV on one entry: five deliveries spaced by the backoff, then one record
    with the ten fields; everything else is done meanwhile."""
    fleet = _fleet(tmp, "--backoff", "200ms..1s", "--concurrency", "2",
                   work='case "$IMPEL_FIELD_n" in 3) kill -SEGV $$;; esac')
    worker = fleet.start("--consumer", "w")
    ids = fleet.add(20)
    others = set(ids) - {ids[3]}
    wait_for(lambda: others <= fleet.ended(), what="the other entries")
    wait_for(lambda: fleet.entries("orders:dead"), what="the record in orders:dead")
    attempts = [line for line in fleet.starts() if line.id == ids[3]]
    equal([line.attempt for line in attempts], ["1", "2", "3", "4", "5"])
    records = fleet.entries("orders:dead")
    equal(len(records), 1)
    fields = records[0]["fields"]
    equal(list(fields), ["n", "original_id", "original_stream", "original_group", "consumer", "deliveries",
                         "reason", "error", "last_active_ms", "parked_ms", "impel_fields"])
    equal([fields[k] for k in ("n", "original_id", "original_stream", "original_group", "consumer",
                               "deliveries", "reason", "impel_fields")],
          ["3", ids[3], "orders", "g", "w", "5", "max-deliveries", "10"])
    check("SIGSEGV" in fields["error"] or "signal 11" in fields["error"], fields["error"])
    equal(worker.stop().code, 0)
    equal(fleet.check_all_settled(ids), {ids[3]})
    equal(metric(worker.metrics, "impel_parked_total"), 1)
    fleet.check_file()


@test
def a_dangling_entry_is_reported_and_blocks_nothing(tmp):
    fleet = _fleet(tmp, "--backoff", "50ms..1s", work="case $IMPEL_ATTEMPT in 1) exec sleep 600;; esac")
    victim = fleet.start("--consumer", "victim", "--concurrency", "3")
    ids = fleet.add(3)
    fleet.wait_for_starts(3)
    victim.popen.kill()
    equal(impel_ok("call", "XDEL", "orders", ids[1], store=fleet.store).strip(), "1")
    worker = fleet.start("--consumer", "w")
    wait_for(lambda: {ids[0], ids[2]} <= fleet.ended(), what="the two that are left")
    wait_for(lambda: fleet.group_status()["pending"] == 0, what="an empty PEL")
    wait_for(lambda: ids[1] in worker.err(), what="the lost entry's ID in the log")
    equal(worker.stop().code, 0)
    equal(metric(worker.metrics, "impel_lost_total"), 1)
    fleet.check_file()


@test
def a_clean_stop_burns_no_attempt(tmp):
    """TERM: what has not started goes back with its count as it was, what runs may finish."""
    fleet = _fleet(tmp, "--concurrency", "1", "--prefetch", "10", "--grace", "20s",
                   work="case $IMPEL_FIELD_n in 0) exec 3>&1; sleep 1;; esac")
    worker = fleet.start()
    ids = fleet.add(8)
    fleet.wait_for_starts(1)
    done = worker.stop()
    equal(done.code, 0, done.err)
    check(ids[0] in fleet.ended(), "the running handler was not let finish")
    fleet.finish("--prefetch", "0")
    equal(fleet.check_all_settled(ids), set())
    equal({line.attempt for line in fleet.starts()}, {"1"}, fleet.starts())


@test
def a_name_given_twice_stops_the_second(tmp):
    fleet = _fleet(tmp, dead_after="3s")
    first = fleet.start("--consumer", "same")
    fleet.wait_for_a_beat()
    second = fleet.start("--consumer", "same")
    done = second.wait()
    equal(done.code, 1, done.err)
    check("same" in done.err, done.err)
    check(first.running(), first.err())
    equal(first.stop().code, 0)


@test
def a_worker_that_slept_is_replaced_and_says_so(tmp):
    """F39: what it did in vain is not done twice over."""
    fleet = _fleet(tmp, dead_after="3s")
    sleeper = fleet.start("--consumer", "same")
    fleet.wait_for_a_beat()
    stop_outside_its_lock(sleeper, fleet.store)
    heir = fleet.start("--consumer", "same")
    ids = fleet.add(3)
    wait_for(lambda: set(ids) <= fleet.ended(), what="the heir's work")
    sleeper.signal(signal.SIGCONT)
    done = sleeper.wait()
    equal(done.code, 1, done.err)
    check("same" in done.err, done.err)
    equal(heir.stop().code, 0)
    equal(fleet.check_all_settled(ids), set())


@test
def grandchildren_do_not_outlive_a_killed_worker(tmp):
    pids = tmp / "pids"
    pids.touch()
    fleet = _fleet(tmp)
    worker = fleet.start(handler=["sh", "-c", "sleep 601 & echo $! >> %s; echo $$ >> %s; wait" % (pids, pids)])
    fleet.add(1)
    wait_for(lambda: len(pids.read_text().split()) == 2, what="the handler's two processes")
    worker.popen.kill()

    def gone(pid):
        try:
            with open("/proc/%s/stat" % pid, encoding="ascii") as stat:
                return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True
    wait_for(lambda: all(gone(p) for p in pids.read_text().split()), what="their end")


@test
def the_drill_passes_and_a_broken_one_would_not(tmp):
    done = impel("drill", cwd=str(tmp), deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    done = impel("drill", "--json", cwd=str(tmp), deadline_s=120)
    equal(done.code, 0, done.out + done.err)
    for line in done.out.splitlines():
        json.loads(line)


main()
