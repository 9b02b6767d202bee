#!/usr/bin/python3
"""top: on a terminal of every size, by keys; and once, for pipes."""
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios

from impeltest import (SLOWNESS, Failed, check, contains, equal, impel, impel_argv, impel_ok, main,
                       now, start, start_redis, test, wait_for)
from everystore import add, call, every_store, read

LEAVE = "\x1b[?1049l"  # back from the other screen: the terminal is as it was


class Screen:
    """The program on a terminal. What it draws is kept as it comes."""

    def __init__(self, store, *args, lines=24, columns=80, term="xterm"):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, LC_ALL="C.UTF-8", LINES="", COLUMNS="")
            del os.environ["LINES"], os.environ["COLUMNS"]
            argv = impel_argv("top", *args, store=store)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execv(argv[0], argv)

    def take(self, wait_s):
        """Reads what is there; false at the end."""
        if not select.select([self.fd], [], [], wait_s)[0]:
            return True
        try:
            self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
        except OSError:
            return False
        return True

    def until(self, part, after=0):
        """Waits until `part` was drawn, behind the first `after` characters."""
        end = now() + 30 * SLOWNESS
        while part not in self.text[after:]:
            if now() > end or not self.take(0.5):
                raise Failed("%r was not drawn\n%r" % (part, self.text[-2000:]))
        return len(self.text)

    def keys(self, text):
        at = len(self.text)
        os.write(self.fd, text.encode())
        return at

    def resize(self, lines, columns):
        at = len(self.text)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)
        return at

    def end(self):
        """The exit code."""
        while self.take(30 * SLOWNESS):
            pass
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


def scene(store):
    """Three groups: one that a foreign consumer left, one that nobody reads, one that is done."""
    add(store, "orders", *["%d-0" % i for i in range(1, 21)])
    add(store, "refunds-für-süd", "1-0")
    call(store, "XGROUP", "CREATE", "orders", "billing", "0")
    call(store, "XGROUP", "CREATE", "orders", "done", "$")
    call(store, "XGROUP", "CREATE", "refunds-für-süd", "audit", "0")
    read(store, "orders", "billing", "old-consumer", 12)


@every_store
def once_is_for_pipes(tmp, store):
    scene(store)
    lines = impel_ok("top", "--once", "--interval", "50ms", store=store).splitlines()
    equal(lines[0], "3 groups, 1 needs attention; workers 0/1; unread 9, pending 12, parked 0")
    equal(lines[1].split(), ["STREAM", "GROUP", "HEALTH", "UNREAD", "PEND", "DONE/S", "OLDEST",
                             "PARKED", "ALIVE"])
    rows = [line.split() for line in lines[2:]]
    equal([row[1:5] for row in rows], [["audit", "attention", "1", "0"], ["billing", "ok", "8", "12"],
                                       ["done", "ok", "0", "0"]])
    check(all(len(line) <= 80 for line in lines), lines)
    lines = impel_ok("top", "--once", "--interval", "50ms", "--group", "billing",
                     store=store).splitlines()
    equal(len(lines), 3)


@every_store
def a_terminal_shows_groups_and_obeys_keys(tmp, store):
    scene(store)
    screen = Screen(store, "--interval", "200ms")
    screen.until("3 groups, 1 needs attention")
    for part in ["refunds-für-süd", "billing", "by health", "q quit",
                 "audit: 1 undelivered entry and no live worker"]:
        screen.until(part)
    screen.until("billing: 12 abandoned or foreign", screen.keys("j"))
    screen.until("old-consumer")
    screen.until("name", screen.keys("s"))
    screen.until("reversed", screen.keys("r"))
    at = screen.keys("/nosuch")
    screen.until("nothing matches the filter", at)
    screen.until("billing", screen.keys("\x1b"))
    screen.until("paused", screen.keys("p"))
    screen.until("any key goes back", screen.keys("h"))
    screen.until("STREAM", screen.keys("x"))
    screen.keys("q")
    equal(screen.end(), 0)
    contains(screen.text, LEAVE)


@test
def rates_and_workers_are_live(tmp):
    db = tmp / "db"
    text = "".join('{"n":"%d"}\n' % i for i in range(100000))
    impel_ok("add", "--stream", "s", "--jsonl", store="lmdb:%s?sync=process" % db, stdin=text)
    worker = start(impel_argv("run", "--stream", "s", "--group", "g", "--consumer", "w1",
                              "--dead-after", "1s", "--", "true",
                              store="lmdb:%s?sync=process" % db), tmp)

    def working():
        row = impel_ok("top", "--once", "--interval", "300ms", store=db).splitlines()[-1].split()
        known = row[1] == "g" and row[-1] == "1/1" and row[5] != "-"
        return row if known and float(row[5].rstrip("k")) > 0 else None
    wait_for(working, what="a worker with a rate")
    screen = Screen(db, "--interval", "200ms")
    screen.until("w1")
    screen.until("alive")
    screen.until("beat")
    worker.kill()
    screen.until("unknown")  # nobody else beats, so nobody can call it dead
    screen.keys("q")
    equal(screen.end(), 0)


@test
def a_server_that_went_away_is_told_and_waited_for(tmp):
    server, port = start_redis(tmp)
    store = "redis://127.0.0.1:%d" % port
    make = ["call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]
    impel_ok(*make, store=store)
    screen = Screen(store, "--interval", "200ms")
    screen.until("1 group")
    server.kill()
    screen.until("old numbers: ")
    start_redis(tmp, port=port)
    impel_ok(*make, store=store)
    screen.until("q quit", len(screen.text))
    screen.keys("q")
    equal(screen.end(), 0)


@test
def any_size_and_any_terminal_will_do(tmp):
    db = tmp / "db"
    for i in range(30):
        impel_ok("call", "XGROUP", "CREATE", "s%02d" % i, "g", "0", "MKSTREAM", store=db)
    screen = Screen(db, "--interval", "200ms")
    screen.until("s17")  # the last that has room
    check("s18" not in screen.text, "more was drawn than there is room for")
    for lines, columns in [(10, 40), (3, 20), (1, 1), (50, 200)]:
        at = screen.resize(lines, columns)
        screen.until("30 groups" if columns > 1 else "", at)
    screen.until("s29")  # all of them fit now
    screen.keys("q")
    equal(screen.end(), 0)
    screen = Screen(db, "--interval", "200ms", term="vt100")
    screen.until("30 groups")
    screen.keys("jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj")
    screen.until("s29")
    screen.keys("q")
    equal(screen.end(), 0)


@test
def without_a_terminal_to_ask_it_ends(tmp):
    """It waits for keys: where none can come it would turn without a rest."""
    db = tmp / "db"
    impel_ok("call", "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM", store=db)
    environment = dict(os.environ, TERM="xterm")
    ours, theirs = pty.openpty()
    done = subprocess.run(impel_argv("top", store=db), stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
                          env=environment, timeout=30 * SLOWNESS, check=False)
    equal(done.returncode, 2)
    contains(done.stderr.decode(), "standard input is no terminal")
    with subprocess.Popen(impel_argv("top", store=db), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE,
                          env=environment) as process:
        os.close(theirs)
        text = b""
        while b"1 group" not in text:
            text += os.read(ours, 65536)
        os.close(ours)
        equal(process.wait(30 * SLOWNESS), 0)


@test
def what_cannot_be_shown_is_named(tmp):
    db = tmp / "db"
    impel_ok("add", "--stream", "s", "n=1", store=db)
    done = impel("top", store=db)
    equal(done.code, 2)
    contains(done.err, "--once")
    done = impel("top", "--once", "--stream", "nothing", "--interval", "10ms", store=db)
    equal(done.code, 1)
    contains(done.err, "no stream 'nothing'")
    screen = Screen(db, term="nosuch")
    equal(screen.end(), 1)
    contains(screen.text, "'nosuch' of $TERM is not known")


main()
