"""MULTI, EXEC, DISCARD and WATCH."""
from impeltest import contains, equal, main, test
from served import Served, error_of


class Talk:
    """One connection, one command at a time; errors come back as text."""

    def __init__(self, served):
        self.connection = served.client().connection_pool.get_connection("x")

    def __call__(self, *words):
        self.connection.send_command(*(words[0].split() if len(words) == 1 else words))
        try:
            return self.connection.read_response()
        except Exception as error:  # pylint: disable=broad-except
            return "error: " + str(error)


@test
def commands_are_kept_and_carried_out_together(tmp):
    t = Talk(Served(tmp))
    equal([t("MULTI"), t("XADD s 1-1 a b"), t("XLEN s"), t("PING"), t("EXEC")],
          ["OK", "QUEUED", "QUEUED", "QUEUED", ["1-1", 1, "PONG"]])
    equal([t("MULTI"), t("EXEC")], ["OK", []])
    equal([t("MULTI"), t("XADD s 2-1 a b"), t("DISCARD"), t("XLEN s")],
          ["OK", "QUEUED", "OK", 1])


@test
def misuse_is_told(tmp):
    t = Talk(Served(tmp))
    equal(t("EXEC"), "error: EXEC without MULTI")
    equal(t("DISCARD"), "error: DISCARD without MULTI")
    equal(t("MULTI"), "OK")
    equal(t("MULTI"), "error: MULTI calls can not be nested")
    equal(t("WATCH s"), "error: WATCH inside MULTI is not allowed")
    equal(t("XADD s 1-1 a b"), "QUEUED")
    equal(t("EXEC"), ["1-1"])
    equal(t("MULTI"), "OK")
    contains(t("NOSUCH"), "unknown command")
    equal(t("XLEN s"), "QUEUED")
    contains(t("EXEC"), "Transaction discarded because of previous errors.")
    equal([t("MULTI"), t("XADD s"), t("EXEC")][2].split(".")[0],
          "error: Transaction discarded because of previous errors")


@test
def what_went_within_a_transaction_is_gone_for_what_follows_in_it(tmp):
    t = Talk(Served(tmp))
    t("XADD s 1-1 a b")
    t("XGROUP CREATE s g 0")
    t("XREADGROUP GROUP g c STREAMS s >")
    t("MULTI")
    for command in ("XACK s g 9-9", "XGROUP DESTROY s g", "XACK s g 1-1", "XGROUP CREATE s g 0",
                    "XACK s g 1-1", "XGROUP DELCONSUMER s g c", "DEL s", "XLEN s", "XADD s 1-1 a b", "XLEN s",
                    "RENAME s t", "XLEN s", "XLEN t", "XACK t g 1-1"):
        equal(t(command), "QUEUED")
    equal(t("EXEC"), [0, 1, 0, "OK", 0, 0, 1, 0, "1-1", 1, "OK", 0, 1, 0])
    equal(t("XINFO GROUPS t"), [])


@test
def an_error_inside_does_not_stop_the_rest(tmp):
    r = Served(tmp).client()
    pipe = r.pipeline()
    pipe.xadd("s", {"a": "b"}, id="1-1").xadd("s", {"a": "b"}, id="1-1").xlen("s")
    got = pipe.execute(raise_on_error=False)
    equal((got[0], got[2]), ("1-1", 1))
    contains(str(got[1]), "equal or smaller")


@test
def watch_sees_what_changes_a_key_and_nothing_else(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": "v"}, id="1-0")
    r.xgroup_create("s", "g", "0")
    for command, touches in [
            ("XREADGROUP GROUP g c STREAMS s >", False), ("XACK s g 1-0", False),
            ("XGROUP SETID s g 0", False), ("XGROUP CREATECONSUMER s g d", False),
            ("XCLAIM s g d 0 1-0 FORCE", False), ("XAUTOCLAIM s g c 0 0", False),
            ("XGROUP DESTROY s g", False), ("XSETID s 9-0", False), ("XADD s 10-0 f v", True),
            ("XADD s 10-0 f v", False), ("XDEL s 10-0", True), ("XDEL s 10-0", False),
            ("XTRIM s MAXLEN 100", False), ("XTRIM s MAXLEN 0", True),
            ("XADD s MAXLEN 0 11-0 f v", True), ("XGROUP CREATE s h $", False), ("DEL s", True),
            ("DEL s", False), ("XGROUP CREATE s g $ MKSTREAM", True), ("SET s x", True),
            ("SET s y", True), ("FLUSHALL", True), ("FLUSHALL", False)]:
        t = Talk(served)
        t("WATCH s")
        try:
            r.execute_command(*command.split())
        except Exception:  # pylint: disable=broad-except
            pass
        t("MULTI")
        t("PING")
        equal(t("EXEC"), None if touches else ["PONG"], command)


@test
def watch_sees_what_leaves_no_trace(tmp):
    """Written back, written anew as it was, come and gone."""
    served = Served(tmp)
    r = served.client()
    for before, between, touches in [
            ("SET t x", "SET t x", True), ("XADD s 1-1 a b,EXPIREAT s 9999999999", "EXPIREAT s 9999999999", True),
            ("XADD s 1-1 a b", "EXPIREAT s 9999999999 XX", False), ("XADD s 1-1 a b", "RENAME s u,RENAME u s", True),
            ("XADD s 1-1 a b", "RENAME s s", False), ("", "XADD s 1-1 a b,DEL s", True), ("", "DEL s", False),
            ("SET t x", "COPY t u,COPY u t REPLACE", True), ("SET t x", "COPY t u", False),
            ("SADD t x", "SADD t x", False), ("XADD s 1-1 a b", "PERSIST s", False),
            ("XADD s 1-1 a b,EXPIRE s 100", "PERSIST s", True), ("", "XADD s NOMKSTREAM * a b", False)]:
        r.flushall()
        for command in filter(None, before.split(",")):
            r.execute_command(*command.split())
        t = Talk(served)
        t("WATCH s t")
        for command in between.split(","):
            r.execute_command(*command.split())
        t("MULTI")
        t("PING")
        equal(t("EXEC"), None if touches else ["PONG"], between)


@test
def exec_with_words_ends_the_transaction(tmp):
    t = Talk(Served(tmp))
    t("MULTI")
    t("XADD s 1-1 a b")
    contains(t("EXEC now"), "Transaction discarded because of: wrong number of arguments for 'exec' command")
    equal([t("XLEN s"), t("EXEC")], [0, "error: EXEC without MULTI"])


@test
def watch_sees_other_processes(tmp):
    served = Served(tmp)
    (tmp / "other").mkdir()
    other = Served(tmp / "other", db=served.db).client()
    t = Talk(served)
    for touches in (True, False):
        t("WATCH s")
        if touches:
            other.xadd("s", {"f": "v"})
        t("MULTI")
        t("XLEN s")
        equal(t("EXEC"), None if touches else [1])


@test
def unwatch_and_reset_forget(tmp):
    served = Served(tmp)
    r = served.client()
    t = Talk(served)
    for forget in ("UNWATCH", "RESET"):
        t("WATCH s")
        r.xadd("s", {"f": "v"})
        t(forget)
        t("MULTI")
        t("PING")
        equal(t("EXEC"), ["PONG"])
    t("MULTI")
    equal(t("RESET"), "RESET")
    equal(error_of(r.execute_command, "EXEC"), "EXEC without MULTI")
    equal(t("EXEC"), "error: EXEC without MULTI")


main()
