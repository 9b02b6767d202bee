"""Keys whatever they hold: expiry, other names, copies, scans."""
from impeltest import check, contains, equal, main, run, test, wait_for
from served import SERVE, Served, error_of


def make_stream(r):
    r.xadd("s", {"f": "v"}, id="1-0")
    r.xadd("s", {"f": "v"}, id="2-0")
    r.xgroup_create("s", "g", "0")
    r.xreadgroup("g", "c", {"s": ">"})
    r.xdel("s", "2-0")


def checked(served):
    """Every invariant of the file holds."""
    done = run([SERVE, served.db, "check"])
    equal(done.code, 0, done.out + done.err)


@test
def a_copy_has_it_all_and_goes_its_own_way(tmp):
    served = Served(tmp)
    r = served.client()
    make_stream(r)
    equal(r.expire("s", 1000), True)
    equal(r.copy("s", "t"), True)
    equal(r.xinfo_stream("t")["last-generated-id"], "2-0")
    equal(r.xpending("t", "g"),
          {"pending": 2, "min": "1-0", "max": "2-0", "consumers": [{"name": "c", "pending": 2}]})
    contains(error_of(r.xadd, "t", {"f": "v"}, id="2-0"), "equal or smaller")
    check(990 < r.ttl("t") <= 1000, r.ttl("t"))
    equal(r.xack("t", "g", "1-0"), 1)
    equal(r.xpending("s", "g")["pending"], 2)
    equal(r.copy("s", "t"), False)
    equal(r.copy("s", "t", replace=True), True)
    equal(r.xpending("t", "g")["pending"], 2)
    equal(r.copy("nokey", "t"), False)
    equal(error_of(r.copy, "s", "s"), "source and destination objects are the same")
    equal(r.dbsize(), 2)
    checked(served)


@test
def a_renamed_key_is_the_same_key(tmp):
    served = Served(tmp)
    r = served.client()
    make_stream(r)
    r.expire("s", 1000)
    r.xadd("t", {"old": 1})
    equal(r.rename("s", "t"), True)
    equal((r.exists("s"), r.xlen("t"), r.xpending("t", "g")["pending"]), (0, 1, 2))
    check(990 < r.ttl("t") <= 1000)
    equal(error_of(r.rename, "s", "t"), "no such key")
    r.xadd("s", {"f": "v"})
    equal(r.renamenx("s", "t"), False)
    equal(r.renamenx("s", "u"), True)
    equal(r.rename("t", "t"), True)
    pipe = r.pipeline()  # one transaction: the group is in memory while its stream moves
    pipe.xadd("a", {"f": 1}, id="1-0").xgroup_create("a", "g", "0").rename("a", "b")
    pipe.xadd("b", {"f": 2}, id="2-0").xadd("a", {"f": 3}, id="3-0").xlen("b")
    equal(pipe.execute()[-1], 2)
    equal(len(r.xreadgroup("g", "c", {"b": ">"})[0][1]), 2)
    equal(sorted(r.keys()), ["a", "b", "t", "u"])
    checked(served)


@test
def keys_expire(tmp):
    served = Served(tmp)
    r = served.client()
    r.xadd("s", {"f": "v"})
    equal((r.ttl("s"), r.ttl("nokey"), r.expire("nokey", 5)), (-1, -2, False))
    equal(r.pexpire("s", 200), True)
    check(0 < r.pttl("s") <= 200)
    wait_for(lambda: r.exists("s") == 0, what="the key to expire")
    equal((r.xlen("s"), r.type("s"), r.keys(), r.scan()[1]), (0, "none", [], []))
    wait_for(lambda: r.dbsize() == 0, what="the key to be deleted")
    r.xadd("s", {"f": "v"}, id="1-0")  # a new one: it begins anew, and lives on
    equal(r.ttl("s"), -1)
    equal(r.expire("s", -1), True)
    equal(r.exists("s"), 0)
    equal(error_of(r.execute_command, "EXPIRE", "s", "9223372036854775807"),
          "invalid expire time in 'expire' command")
    equal(error_of(r.execute_command, "EXPIRE", "s", "1", "FOO"), "Unsupported option FOO")
    checked(served)


@test
def expiry_conditions(tmp):
    r = Served(tmp).client()
    r.xadd("s", {"f": "v"})
    for words, answer, ttl in [("100 XX", 0, -1), ("100 GT", 0, -1), ("100 LT", 1, 100),
                               ("200 NX", 0, 100), ("50 GT", 0, 100), ("200 GT", 1, 200),
                               ("300 LT", 0, 200), ("30 XX", 1, 30)]:
        equal(int(r.execute_command("EXPIRE", "s", *words.split())), answer, words)
        check(abs(r.ttl("s") - ttl) <= 1, words)
    equal((r.persist("s"), r.persist("s"), r.ttl("s")), (True, False, -1))
    r.execute_command("PEXPIREAT", "s", "4000000000123")
    equal((r.execute_command("PEXPIRETIME", "s"), r.execute_command("EXPIRETIME", "s")),
          (4000000000123, 4000000000))
    r.xadd("s", {"f": "v"})
    equal(r.execute_command("PEXPIRETIME", "s"), 4000000000123)


@test
def expiry_ends_a_wait(tmp):
    served = Served(tmp)
    r = served.client()
    r.xgroup_create("s", "g", "$", mkstream=True)
    r.pexpire("s", 300)
    contains(error_of(r.xreadgroup, "g", "c", {"s": ">"}, block=0), "No such key 's'")


@test
def a_scan_gives_every_key_once(tmp):
    served = Served(tmp)
    r = served.client()
    names = ["k%d" % i for i in range(500)]
    pipe = r.pipeline(transaction=False)
    for name in names:
        pipe.xadd(name, {"f": "v"})
    pipe.execute()
    r.set("text", "x")
    equal(sorted(r.scan_iter(count=7)), sorted(names + ["text"]))
    equal(sorted(r.scan_iter(match="k1?", _type="stream")), ["k1%d" % i for i in range(10)])
    equal(list(r.scan_iter(_type="string")), ["text"])
    equal(list(r.scan_iter(_type="hash")), [])
    equal(error_of(r.execute_command, "SCAN", "x"), "invalid cursor")
    check(r.randomkey() in names + ["text"])
    r.flushall()
    equal((r.dbsize(), r.randomkey()), (0, None))
    checked(served)


@test
def info_counts_what_there_is(tmp):
    served = Served(tmp)
    r = served.client()
    equal(r.info("keyspace"), {})
    for i in range(30):
        r.xadd("s%d" % i, {"f": "v"})
    equal(r.info("keyspace"), {"db0": {"keys": 30, "expires": 0, "avg_ttl": 0}})
    for i in range(10):
        r.expire("s%d" % i, 1000 * (i + 1))
    got = r.info("keyspace")["db0"]
    equal((got["keys"], got["expires"]), (30, 10))
    check(5400000 < got["avg_ttl"] <= 5500000, got)
    r.persist("s0")
    r.delete("s1")
    r.pexpire("s2", 1)
    wait_for(lambda: r.info("keyspace")["db0"]["keys"] == 28, what="the expiry of a key")
    equal(r.info("keyspace")["db0"]["expires"], 7)
    equal(r.execute_command("SCRIPT", "EXISTS", "a", "b"), [False, False])
    equal(r.execute_command("DEBUG", "OBJECT", "s4"), "OK")


@test
def what_a_key_is(tmp):
    r = Served(tmp).client()
    r.xadd("s", {"f": "v" * 1000})
    equal((r.object("encoding", "s"), r.object("refcount", "s"), r.object("encoding", "no")),
          ("stream", 1, None))
    check(1000 < r.memory_usage("s") < 10000)
    equal(r.memory_usage("no"), None)
    equal(r.set("t", "x"), True)
    contains(error_of(r.xlen, "t"), "wrong kind of value")
    equal(r.touch("s", "t", "no"), 2)


@test
def what_trimming_about_removes_goes_by_the_size_of_nodes(tmp):
    r = Served(tmp).client()
    for most, removed in [(5, 500), (100, 10000), (20000, 0), (0, 0)]:
        r.flushall()
        r.config_set("stream-node-max-entries", most)
        r.config_set("stream-node-max-bytes", 0)
        pipe = r.pipeline(transaction=False)
        for _ in range(12000):
            pipe.execute_command("XADD", "s", "*", "f", "v")
        pipe.execute()
        equal(r.execute_command("XTRIM", "s", "MAXLEN", "~", "100"), removed, "%d entries in a node" % most)


@test
def idempotent_adds_go_by_what_the_server_says(tmp):
    served = Served(tmp)
    r = served.client()

    def add(stream, iid):
        return r.execute_command("XADD", stream, "IDMP", "p", iid, "*", "f", "v")

    equal(r.config_get("stream-idmp-*"), {"stream-idmp-duration": "100", "stream-idmp-maxsize": "100"})
    before = add("before", "one")
    equal(r.config_set("stream-idmp-maxsize", 1), True)
    first = add("s", "one")
    add("s", "two")
    check(add("s", "one") != first, "an ID was kept beyond the limit")
    add("before", "two")
    equal(add("before", "one"), before)
    for name, most in [("duration", 86400), ("maxsize", 10000)]:
        for value in (0, most + 1):
            contains(error_of(r.config_set, "stream-idmp-" + name, value),
                     "argument must be between 1 and %d inclusive" % most)
    checked(served)


main()
