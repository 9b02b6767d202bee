"""Blocked readers: what wakes them, in which order, what they then get, and how else a wait ends."""
import threading

from impeltest import check, equal, main, now, test, wait_for
from served import Served, error_of

GONE = "No such key 's' or consumer group 'g' in XREADGROUP with GROUP option"


class Waiter(threading.Thread):
    """A client that sends one command and keeps what comes back."""

    def __init__(self, served, *command, resp=2):
        super().__init__(daemon=True)
        self.command = command
        self.client = served.client(socket_timeout=60)
        self.connection = self.client.connection_pool.get_connection("x")
        if resp == 3:
            self.connection.send_command("HELLO", "3")
            self.connection.read_response()
        self.connection.send_command("CLIENT", "ID")
        self.id = self.connection.read_response()
        self.answer = None
        self.failed = None
        self.start()

    def run(self):
        try:
            self.connection.send_command(*self.command)
            self.answer = self.connection.read_response()
        except Exception as error:  # pylint: disable=broad-except
            self.failed = str(error)

    def result(self):
        self.join(60)
        check(not self.is_alive(), "no answer to %r" % (self.command,))
        return self.failed if self.failed is not None else self.answer


def waiting(served, *commands):
    """Starts the commands in this order, each blocked before the next begins."""
    waiters = []
    look = served.client()
    before = look.info("clients")["blocked_clients"]
    for command in commands:
        waiters.append(Waiter(served, *command.split()))
        wait_for(lambda: look.info("clients")["blocked_clients"] == before + len(waiters),
                 what="%r to block" % command)
    look.close()
    return waiters


def do(client, *commands):
    return [client.execute_command(*c.split()) for c in commands]


@test
def an_entry_goes_to_who_blocked_first(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    first, second = waiting(served, "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s >",
                            "XREADGROUP GROUP g b COUNT 1 BLOCK 0 STREAMS s >")
    r.xadd("s", {"f": 1}, id="1-1")
    equal(first.result(), [["s", [["1-1", ["f", "1"]]]]])
    equal(r.info("clients")["blocked_clients"], 1)
    r.xadd("s", {"f": 2}, id="2-1")
    equal(second.result(), [["s", [["2-1", ["f", "2"]]]]])
    equal(r.xpending("s", "g")["pending"], 2)
    equal(r.info("commandstats")["cmdstat_xreadgroup"]["calls"], 2)


@test
def two_adds_in_one_transaction_serve_two(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    first, second = waiting(served, "XREADGROUP GROUP g a COUNT 1 BLOCK 0 STREAMS s >",
                            "XREADGROUP GROUP g b COUNT 1 BLOCK 0 STREAMS s >")
    pipe = r.pipeline()
    pipe.xadd("s", {"f": 1}, id="1-1").xadd("s", {"f": 2}, id="2-1").execute()
    equal(first.result()[0][1][0][0], "1-1")
    equal(second.result()[0][1][0][0], "2-1")


@test
def the_end_of_the_key_or_group_is_told(tmp):
    served = Served(tmp)
    r = served.client()
    for command in ["DEL s", "UNLINK s", "XGROUP DESTROY s g", "FLUSHDB", "FLUSHALL"]:
        r.execute_command("DEL", "s")
        r.xgroup_create("s", "g", "$", mkstream=True)
        waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
        do(r, command)
        equal(waiter.result(), "NOGROUP " + GONE if waiter.failed is None else waiter.failed)
        check(GONE in waiter.result(), command)
    r.xgroup_create("s", "g", "$", mkstream=True)
    waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    do(r, "SET s x")
    check("wrong kind of value" in waiter.result(), waiter.result())


@test
def a_plain_read_waits_through_everything_else(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="5-1")
    waiter, = waiting(served, "XREAD BLOCK 0 STREAMS s $")
    do(r, "DEL s", "SET s x", "DEL s", "XADD s 4-1 f v", "XDEL s 4-1", "XADD s 5-1 f v")
    equal(r.info("clients")["blocked_clients"], 1)
    do(r, "XADD s 6-1 f v")
    equal(waiter.result(), [["s", [["6-1", ["f", "v"]]]]])


@test
def two_keys_filled_in_one_transaction_come_together(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="1-1")
    waiter, = waiting(served, "XREAD BLOCK 0 STREAMS s t $ $")
    pipe = r.pipeline()
    pipe.xadd("s", {"f": "v"}, id="2-0").xadd("t", {"f": "v"}, id="1-0").execute()
    equal(waiter.result(), [["s", [["2-0", ["f", "v"]]]], ["t", [["1-0", ["f", "v"]]]]])


@test
def added_and_deleted_in_one_transaction_wakes_nobody(tmp):
    served = Served(tmp)
    r = served.client()
    waiter, = waiting(served, "XREAD BLOCK 0 STREAMS s $")
    pipe = r.pipeline()
    pipe.xadd("s", {"f": "v"}, id="2-0").xdel("s", "2-0").execute()
    do(r, "XADD s MAXLEN 0 3-0 f v")
    equal(r.info("clients")["blocked_clients"], 1)
    equal(r.info("clients")["total_blocking_keys"], 1)
    r.xadd("s", {"f": "v"}, id="4-0")
    equal(waiter.result()[0][1][0][0], "4-0")


@test
def who_waits_is_made_and_seen_again_by_every_signal(tmp):
    """As the read is carried out again, even where there is nothing for it."""
    served = Served(tmp)
    r = served.client()
    for signal in ("XADD s MAXLEN 0 * f v", "XADD t MAXLEN 0 * f v", "XGROUP DESTROY s other"):
        r.flushall()
        do(r, "XGROUP CREATE s g $ MKSTREAM", "XGROUP CREATE t g $ MKSTREAM", "XGROUP CREATE s other $")
        waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s t > >")

        def seen():
            at = r.execute_command("XINFO", "STREAM", "s", "FULL")
            for name in ("groups", "consumers"):
                at = at[at.index(name) + 1][0]
            return at[at.index("seen-time") + 1]
        before = seen()
        wait_for(lambda: r.xinfo_consumers("s", "g")[0]["idle"] > 2, what="the clock to go on")
        do(r, signal)
        check(seen() > before, "%s: not seen" % signal)
        r.xgroup_delconsumer("s", "g", "c")
        do(r, "XGROUP CREATE s other $" if "DESTROY" in signal else "PING", signal)
        equal([c["name"] for c in r.xinfo_consumers("s", "g")], ["c"], signal)
        r.execute_command("CLIENT", "UNBLOCK", waiter.id)
        equal(waiter.result(), None)


@test
def the_last_group_counts(tmp):
    served = Served(tmp)
    r = served.client()
    do(r, "XGROUP CREATE s GROUP 0 MKSTREAM", "XGROUP CREATE s ahead 9-0")
    waiter, = waiting(served, "XREADGROUP GROUP ahead COUNT BLOCK 0 GROUP GROUP STREAMS STREAMS s >")
    r.xadd("s", {"f": "v"}, id="1-0")
    equal(waiter.result(), [["s", [["1-0", ["f", "v"]]]]])
    equal(r.xpending("s", "GROUP")["consumers"], [{"name": "STREAMS", "pending": 1}])


@test
def moving_the_group_wakes_nobody(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="1-0")
    r.xgroup_create("s", "g", "$")
    waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 300 STREAMS s >")
    r.xgroup_setid("s", "g", "0")
    equal(waiter.result(), None)


@test
def a_wait_ends_in_time_and_not_before(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    begun = now()
    waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 700 STREAMS s >")
    do(r, "XADD s MAXLEN 0 9-1 f v")  # it is tried meanwhile, which must not begin its time anew
    equal(waiter.result(), None)
    check(0.69 < now() - begun, "after %g s" % (now() - begun))
    equal(r.info("clients")["blocked_clients"], 0)


@test
def client_unblock_ends_a_wait(tmp):
    served = Served(tmp)
    r = served.client()
    one, two = waiting(served, "XREAD BLOCK 0 STREAMS s $", "XREAD BLOCK 0 STREAMS s $")
    equal(r.client_unblock(one.id), True)
    equal(one.result(), None)
    equal(r.client_unblock(two.id, error=True), True)
    equal(two.result(), "UNBLOCKED client unblocked via CLIENT UNBLOCK")
    equal(r.client_unblock(two.id), False)


@test
def what_was_sent_behind_a_wait_is_carried_out_after_it(tmp):
    served = Served(tmp)
    r = served.client()
    connection = served.client().connection_pool.get_connection("x")
    connection.send_packed_command(connection.pack_commands(
        [("XREAD", "BLOCK", "0", "STREAMS", "s", "$"), ("ECHO", "after"), ("XLEN", "s")]))
    served.client_id_blocked(1)
    r.xadd("s", {"f": "v"}, id="1-1")
    equal(connection.read_response(), [["s", [["1-1", ["f", "v"]]]]])
    equal(connection.read_response(), "after")
    equal(connection.read_response(), 1)


@test
def a_client_that_goes_is_forgotten(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    gone = served.client()
    connection = gone.connection_pool.get_connection("x")
    connection.send_command("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
    served.client_id_blocked(1)
    connection.disconnect()
    served.client_id_blocked(0)
    r.xadd("s", {"f": "v"})
    equal(r.xpending("s", "g")["pending"], 0)


@test
def another_process_wakes_them(tmp):
    served = Served(tmp)
    other = Served(tmp / "other" if (tmp / "other").mkdir() is None else tmp, db=served.db)
    r = other.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    for i in range(20):
        reader, grouped = waiting(served, "XREAD BLOCK 0 STREAMS s $",
                                  "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
        r.xadd("s", {"f": i}, id="%d-0" % (i + 1))
        equal(reader.result()[0][1][0][0], "%d-0" % (i + 1))
        equal(grouped.result()[0][1][0][0], "%d-0" % (i + 1))
    waiter, = waiting(served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    r.execute_command("DEL", "s")
    check(GONE in waiter.result())


@test
def a_hundred_waiters_get_one_each(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    waiters = [Waiter(served, *("XREADGROUP GROUP g c%d COUNT 1 BLOCK 0 STREAMS s >" % i).split())
               for i in range(100)]
    served.client_id_blocked(100)
    pipe = r.pipeline(transaction=False)
    for i in range(100):
        pipe.xadd("s", {"f": i}, id="%d-0" % (i + 1))
    pipe.execute()
    got = sorted(int(w.result()[0][1][0][0].split("-")[0]) for w in waiters)
    equal(got, list(range(1, 101)))


@test
def nothing_blocks_inside_a_transaction(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    pipe = r.pipeline()
    for command in ["XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XREAD BLOCK 0 STREAMS s $",
                    "XADD s 5-1 f v", "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"]:
        pipe.execute_command(*command.split())
    got = pipe.execute()
    equal(got[2], "5-1")
    check(not got[0] and not got[1], got)
    equal(len(got[3]), 1)


@test
def waiting_costs_nothing(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    waiting(served, "XREADGROUP GROUP g c BLOCK 0 STREAMS s >", "XREAD BLOCK 0 STREAMS s $")

    def ticks():
        with open("/proc/%d/stat" % served.process.pid, encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    before, begun = ticks(), now()
    wait_for(lambda: now() - begun > 2, pause_s=0.5)
    check(ticks() - before < 20, "%d ticks in 2 s" % (ticks() - before))
    equal(error_of(r.execute_command, "XREAD", "BLOCK", "-1", "STREAMS", "s", "$"),
          "timeout is negative")


@test
def what_is_claimed_may_become_due_while_one_waits(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="1-0")
    r.xgroup_create("s", "g", "0")
    r.xreadgroup("g", "a", {"s": ">"})
    begun = now()
    waiter, = waiting(served, "XREADGROUP GROUP g b BLOCK 60000 CLAIM 1500 STREAMS s >")
    key, entries = waiter.result()[0]
    check(1 < now() - begun < 30, "after %.1f s" % (now() - begun))
    equal((key, entries[0][:2], entries[0][3]), ("s", ["1-0", ["f", "1"]], 1))
    check(entries[0][2] >= 1500, "idle for %d ms" % entries[0][2])
    equal(r.xpending_range("s", "g", "-", "+", 9)[0]["consumer"], "b")


@test
def a_new_entry_comes_before_the_time_is_up(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="1-0")
    r.xgroup_create("s", "g", "0")
    r.xreadgroup("g", "a", {"s": ">"})
    waiter, = waiting(served, "XREADGROUP GROUP g b BLOCK 0 CLAIM 600000 STREAMS s >")
    r.xadd("s", {"f": 2}, id="2-0")
    equal(waiter.result(), [["s", [["2-0", ["f", "2"], 0, 0]]]])
    waiter, = waiting(served, "XREADGROUP GROUP g b BLOCK 300 CLAIM 600000 STREAMS s >")
    equal(waiter.result(), None)


@test
def two_who_claim_get_the_same_entry_one_after_the_other(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "0", mkstream=True)
    waiters = waiting(served, "XREADGROUP GROUP g a BLOCK 0 CLAIM 100 STREAMS s >",
                      "XREADGROUP GROUP g b BLOCK 0 CLAIM 100 STREAMS s >")
    r.xadd("s", {"f": 1}, id="1-0")
    equal(waiters[0].result(), [["s", [["1-0", ["f", "1"], 0, 0]]]])
    entry = waiters[1].result()[0][1][0]
    equal((entry[0], entry[3]), ("1-0", 1))


@test
def what_is_given_back_wakes_who_claims(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": 1}, id="1-0")
    r.xadd("s", {"f": 2}, id="2-0")
    r.xgroup_create("s", "g", "0")
    r.xreadgroup("g", "a", {"s": ">"})
    waiter, plain = waiting(served, "XREADGROUP GROUP g b BLOCK 0 CLAIM 600000 STREAMS s >",
                            "XREADGROUP GROUP g c BLOCK 0 STREAMS s >")
    equal(r.execute_command("XNACK", "s", "g", "FAIL", "IDS", 2, "2-0", "1-0"), 2)
    equal([[e[0], e[3]] for e in waiter.result()[0][1]], [["2-0", 1], ["1-0", 1]])
    served.client_id_blocked(1)  # who only reads goes on waiting
    r.xadd("s", {"f": 3}, id="3-0")
    equal(plain.result(), [["s", [["3-0", ["f", "3"]]]]])


@test
def who_waits_for_a_list_is_not_woken_by_a_stream(tmp):
    served = Served(tmp)
    r = served.client()
    pop, second, read = waiting(served, "BLPOP q other 0", "BLPOP q 0", "XREAD BLOCK 0 STREAMS q $")
    equal(r.info("clients")["total_blocking_keys"], 2)
    do(r, "XADD q 5-1 f v")
    equal(read.result(), [["q", [["5-1", ["f", "v"]]]]])
    do(r, "DEL q", "SADD q m", "DEL q", "SET q x", "DEL q")
    equal(r.info("clients")["blocked_clients"], 2)
    equal(do(r, "LPUSH q a b c"), [3])
    equal(pop.result(), ["q", "c"])
    equal(second.result(), ["q", "b"])
    do(r, "DEL q")
    read, = waiting(served, "XREAD BLOCK 0 STREAMS q 0")
    do(r, "LPUSH q d", "DEL q", "XADD q 6-1 f v")
    equal(read.result(), [["q", [["6-1", ["f", "v"]]]]])


@test
def a_wait_for_a_list_ends_in_time_or_by_others(tmp):
    served = Served(tmp)
    r = served.client()
    begun = now()
    equal(r.blpop("q", timeout=0.2), None)
    check(now() - begun >= 0.2, "too early")
    waiter, = waiting(served, "BLPOP q 0")
    equal(r.client_unblock(waiter.id), 1)
    equal(waiter.result(), None)
    waiter, = waiting(served, "BLPOP q 0")
    pipe = r.pipeline()
    pipe.lpush("q", "a").delete("q").execute()
    equal(r.info("clients")["blocked_clients"], 1)
    pipe = r.pipeline()
    equal(pipe.lpush("q", "a", "b").blpop("q").blpop("nothing").execute(), [2, ("q", "b"), None])
    equal(waiter.result(), ["q", "a"])
    equal(r.exists("q"), 0)
    waiter, = waiting(served, "BLPOP copy 0")
    do(r, "LPUSH q c", "COPY q copy")
    equal(waiter.result(), ["copy", "c"])


main()
