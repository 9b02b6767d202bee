"""The rules that the README gives for users of a Redis: who has exactly these rights can do all, and who lacks
one is told so."""
import os
import re

from impeltest import SOURCE, check, contains, equal, impel, impel_argv, main, start, test, wait_for
from redishelp import Server

RULES = {name: words.split() for name, words in re.findall(
    r"^ACL SETUSER (\w+) on >\S+ (.*)$", (SOURCE / "README.md").read_text(encoding="utf-8").replace("\\\n ", ""), re.M)}
POLICY = ["--min-idle", "1ms", "--backoff", "0", "--dead-after", "500ms"]


class Scene:
    """A server where one entry is new, two are held by a client that is gone, and one is parked."""

    def __init__(self, tmp):
        self.server = Server(tmp)
        self.client = self.server.client()

    def begin(self, rule):
        r = self.client
        r.flushall()
        r.script_flush()
        r.execute_command("ACL", "SETUSER", "some", "reset", "on", ">secret", *rule)
        for n in range(1, 4):
            r.xadd("orders", {"n": n}, id="%d-0" % n)
        r.xgroup_create("orders", "g", "0")
        r.xreadgroup("g", "gone", {"orders": ">"})
        r.xack("orders", "g", "1-0")
        r.xadd("orders", {"n": 4}, id="4-0")
        r.xadd("orders:dead", {"n": "1", "original_id": "1-0", "original_stream": "orders", "original_group": "g",
                               "reason": "rejected"})

    def store(self):
        return "unix://some:secret@%s?connect_timeout=300ms" % self.server.socket

    def impel(self, *args):
        return impel(*args, store=self.store())


def worker(scene):
    """New work, abandoned work, one retry, one that is parked."""
    return [scene.impel("run", "--stream", "orders", "--group", "g", *POLICY, "--until-idle=10s", "--", "sh", "-c",
                        '[ "$IMPEL_ID" != 2-0 ] || exit 65; [ "$IMPEL_ID" != 4-0 ] || [ "$IMPEL_ATTEMPT" = 2 ]')]


def sweep(scene):
    call = ["sweep", "--once", "--stream", "orders", "--group", "g", *POLICY]
    return [scene.impel(*call, "--requeue"), scene.impel(*call, "--trim", "--consumer-ttl", "1ms")]


def oncall(scene):
    dead = ["dead", "replay", "--stream", "orders"]
    return [scene.impel("status"), scene.impel(*dead, "--in-place"), scene.impel("trim", "--stream", "orders"),
            scene.impel("explain", "--stream", "orders", "--group", "g", "2-0")]


@test
def a_stream_out_of_reach_keeps_no_sweep_from_the_others(tmp):
    scene = Scene(tmp)
    scene.begin([*RULES["sweep"], "+scan", "+type", "~ours:*", "~impel:{ours:*"])
    for n in range(20):
        for stream in ["ours:%d" % n, "theirs:%d" % n]:
            scene.client.xadd(stream, {"n": n})
            scene.client.xgroup_create(stream, "g", "0")
            scene.client.xreadgroup("g", "gone", {stream: ">"})
    daemon = start(impel_argv("sweep", "--stream", "*", "--group", "*", *POLICY, "--park", "--interval", "50ms",
                              store=scene.store()), tmp)
    wait_for(lambda: all(scene.client.exists("ours:%d:dead" % n) for n in range(20)), what="all that may be swept")
    wait_for(lambda: "theirs:" in daemon.err(), what="a word of the others")
    equal(daemon.stop().code, 0)
    equal(daemon.err().count("NOPERM"), 1)


@test
def a_stream_out_of_reach_that_is_named_keeps_nobody_from_the_others(tmp):
    scene = Scene(tmp)
    rights = [*RULES["sweep"], *RULES["oncall"], "+xtrim", "+scan", "+type", "~ours:*", "~impel:{ours:*"]

    def begin():
        scene.begin([r for r in rights if "orders" not in r])
        for stream in "ours:1", "theirs:1", "theirs:2", "ours:2":
            scene.client.xadd(stream, {"n": 1})
            scene.client.xgroup_create(stream, "g", "0")
            scene.client.xack(stream, "g", scene.client.xreadgroup("g", "gone", {stream: ">"})[0][1][0][0])
            scene.client.xadd(stream, {"n": 2})
            scene.client.xreadgroup("g", "gone", {stream: ">"})
    named = [word for stream in ("theirs:1", "ours:1", "theirs:2", "ours:2") for word in ("--stream", stream)]
    for which in named, ["--stream", "*"]:
        for group in (["--group", "g"], ["--group", "g", "--group", "g*"]):
            begin()
            for call in (["sweep", "--report", "--json"], ["sweep", "--dry-run", "--requeue", "--json"],
                         ["status", "--json"], ["top", "--once", "--interval", "1ms"],
                         ["sweep", "--once", "--requeue", "--trim", "--json", "--metrics-file", tmp / "prom"],
                         ["trim", "--json"]):
                done = scene.impel(*call, *which, *([] if call[0] == "trim" else group),
                                   *([] if call[0] == "trim" else POLICY))
                equal(done.code, 1, (call, done.err))
                for stream in "theirs:1", "theirs:2":
                    contains(done.err, "(the stream is '%s')" % stream)
                    check(stream not in done.out, done.out)
                contains(done.out, "ours:1")
                contains(done.out, "ours:2")
            equal([scene.client.xlen(s) for s in ("ours:1", "ours:2", "theirs:1")], [1, 1, 2], "requeued and trimmed")
            contains((tmp / "prom").read_text(), 'impel_sweeps_total{stream="ours:1",group="g"} 1')


ROLES = {"worker": worker, "sweep": sweep, "oncall": oncall}


REFUSED = re.compile(r"no permissions|can't run this command|NOPERM")


@test
def who_has_the_rights_of_the_readme_can_do_all(tmp):
    equal(sorted(RULES), sorted(ROLES))
    scene = Scene(tmp)
    for name, role in ROLES.items():
        scene.begin(RULES[name])
        for done in role(scene):
            check(done.code in (0, 3), "%s: %s" % (name, done.err[-1000:]))
            check(not REFUSED.search(done.err), "%s: %s" % (name, done.err[-1000:]))
        refused = {entry["object"] for entry in scene.client.acl_log()} - {"client|setinfo"}
        equal(refused, set(), name)


@test
def what_can_be_left_out_and_what_large_entries_take(tmp):
    scene = Scene(tmp)
    scene.begin([r for r in RULES["worker"] if r != "+info" and "client" not in r] +
                ["+multi", "+exec", "+xrevrange", "+xdel"])
    scene.client.xadd("orders", {str(n): n for n in range(3950)}, id="5-0")
    scene.client.delete("orders:dead")
    done = scene.impel("run", "--stream", "orders", "--group", "g", *POLICY, "--until-idle=10s", "--", "sh", "-c",
                       '[ "$IMPEL_ID" != 5-0 ] || exit 65')
    equal(done.code, 0, done.err[-1000:])
    equal([len(fields) for _, fields in scene.client.xrange("orders:dead")], [3960])


@test
def who_lacks_a_right_is_told_so(tmp):
    scene = Scene(tmp)
    for right, told in [("+ping", "'ping'"), ("+evalsha", "'evalsha'"), ("~orders", "the stream is 'orders'"),
                        ("~orders:dead", "the stream is 'orders:dead'"), ("~impel:{orders}:*", "the stream is 'orders'"),
                        ("+scan", "'scan'"), ("+xrange", "'xrange'"),
                        ("+time", "the stream is 'orders'"), ("+xpending", "the stream is 'orders'")]:
        scene.begin([r for r in RULES["oncall"] if r != right])
        done = scene.impel("status")
        equal(done.code, 1, right)
        check(REFUSED.search(done.err), done.err)
        contains(done.err, told)


@test
def a_worker_that_may_not_park_says_so_at_the_start(tmp):
    scene = Scene(tmp)
    scene.begin([r for r in RULES["worker"] if r != "~orders:dead"])
    done = scene.impel("run", "--stream", "orders", "--group", "g", *POLICY, "--", "true")
    equal(done.code, 1, done.err)
    check(REFUSED.search(done.err), done.err)
    contains(done.err, "the stream is 'orders:dead'")
    equal(scene.client.xinfo_groups("orders")[0]["last-delivered-id"], "3-0")


@test
def what_may_no_longer_be_parked_is_given_back_by_a_stop(tmp):
    scene = Scene(tmp)
    scene.begin(RULES["worker"])
    os.mkfifo(tmp / "go")
    worker = start(impel_argv("run", "--stream", "orders", "--group", "g", *POLICY, "--min-idle", "1h", "--", "sh", "-c",
                              "cat %s; exit 65" % (tmp / "go"), store=scene.store()), tmp)
    with open(tmp / "go", "wb"):  # until the handler has opened its side
        scene.client.execute_command("ACL", "SETUSER", "some", "resetkeys", "~orders", "~impel:{orders}:*")
    wait_for(lambda: "could not be parked" in worker.err(), what="a word of the park")
    equal(worker.stop().code, 0)
    check("did not answer" not in worker.err(), worker.err())
    equal([c["name"] for c in scene.client.xinfo_consumers("orders", "g") if c["pending"] > 0],
          ["gone", "impel-released"])


main()
