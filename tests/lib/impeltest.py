"""impeltest -- what the Python tests share: TAP, temporary folders, processes that never outlive the
test, and waiting for an event with a deadline (tests never just sleep).

    from impeltest import test, check, equal, impel, main, wait_for

    @test
    def add_prints_the_id(tmp):
        done = impel("add", "--stream", "orders", "a=1", store=tmp / "db")
        equal(done.code, 0, done.err)

    main()

Each test gets a fresh folder, which is removed when it passes and kept, and named, when it fails.
One test alone:  PYTHONPATH=tests/lib IMPEL_BIN=build/impel python3 tests/cli/test_add.py add_prints
A deadline is how long a test may hang, not how long something should take: make it generous.
"""
import collections
import importlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback

SOURCE = pathlib.Path(os.environ.get("IMPEL_SOURCE")
                      or pathlib.Path(__file__).resolve().parent.parent.parent)
BUILD = pathlib.Path(os.environ.get("IMPEL_BUILD") or SOURCE / "build")
IMPEL = os.environ.get("IMPEL_BIN") or str(BUILD / "impel")
# Sanitizer builds are several times slower; every deadline here is stretched by this.
SLOWNESS = float(os.environ.get("IMPEL_TEST_SLOWNESS", "1"))
DEADLINE_S = 30
# The server that is asked instead of this machine's own: see tools/servers.
SERVER = os.environ.get("IMPEL_TEST_SERVER")

Done = collections.namedtuple("Done", "code out err")

_tests = []
_running = []


class Failed(Exception):
    """A check that did not hold."""


class Skipped(Exception):
    """The test cannot run here; the reason is shown."""


# ---- checks ----------------------------------------------------------------------------------

def test(function):
    """Marks a test. It takes one argument, its own folder, as a pathlib.Path."""
    _tests.append(function)
    return function


def check(condition, what="check failed"):
    if not condition:
        raise Failed(str(what))


def equal(got, want, what=""):
    if got != want:
        raise Failed("%s\n  got  %r\n  want %r" % (what, got, want))


def contains(text, part, what=""):
    if part not in text:
        raise Failed("%s\n  %r\n  is not in %r" % (what, part, text))


def skip(reason):
    raise Skipped(reason)


# ---- waiting ---------------------------------------------------------------------------------

def now():
    return time.monotonic()


def wait_for(predicate, deadline_s=DEADLINE_S, what="", pause_s=0.02):
    """Asks until the predicate gives something true, and returns that. For what cannot be waited for
    by a descriptor. Between two questions is a pause, at least as long as the last question took, so that
    whoever waits leaves the processor to what is waited for."""
    end = now() + deadline_s * SLOWNESS
    never = threading.Event()
    while True:
        asked = now()
        value = predicate()
        if value:
            return value
        took_s = now() - asked
        if now() > end:
            raise Failed("waited %g s in vain for %s" % (deadline_s * SLOWNESS,
                                                         what or predicate.__name__))
        never.wait(max(pause_s, took_s))


# ---- processes -------------------------------------------------------------------------------

def _guard(fd):
    """Kills the groups of what the test has started and not reaped, once the test has ended in any way."""
    started = {}
    with os.fdopen(fd, encoding="ascii") as lines:
        for line in lines:
            pid, since = line[1:].split()
            if line[0] == "+":
                started[int(pid)] = since
            else:
                started.pop(int(pid), None)
    for pid, since in started.items():
        _signal_group(pid, since, signal.SIGKILL)


NOBODY = "-"


def _since(pid):
    """When a process was started, as the kernel counts."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[19]
    except OSError:
        return NOBODY


def _signal_group(pid, since, number):
    """To the group of a program that may be long over: its number may be somebody else's by now."""
    if _since(pid) in (since, NOBODY):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            pass


def _start_guard():
    """Returns the descriptor that _note() writes to. (A function that the child runs before its exec could ask
    the kernel for its death, but makes Python copy itself for each start: eight times the cost.)"""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.dup2(ours, 0)
        os.closerange(1, theirs + 1)
        _guard(0)
        os._exit(0)
    os.close(ours)
    return theirs


_guard_fd = _start_guard()


def _note(sign, pid, since=NOBODY):
    os.write(_guard_fd, b"%s%d %s\n" % (sign, pid, since.encode()))


def _popen(argv, env, **options):
    """Starts a program as the head of a group of its own."""
    popen = subprocess.Popen([str(a) for a in argv], process_group=0,
                             env=None if env is None else dict(os.environ, **env), **options)
    popen.since = _since(popen.pid)
    _note(b"+", popen.pid, popen.since)
    return popen


class Process:
    """A started program, in its own process group. Its output goes to files in the test's folder,
    so that no pipe fills up; `out()` and `err()` read what is there so far."""

    def __init__(self, argv, folder, env=None, stdin=None, name=None):
        self.name = "%s-%d" % (name or pathlib.Path(str(argv[0])).name, len(_running))
        self.out_path = pathlib.Path(folder) / (self.name + ".out")
        self.err_path = pathlib.Path(folder) / (self.name + ".err")
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.popen = _popen(argv, env, cwd=str(folder), stdout=out, stderr=err,
                                stdin=subprocess.DEVNULL if stdin is None else stdin)
        self.pid = self.popen.pid
        _running.append(self)

    def out(self):
        return self.out_path.read_text(encoding="utf-8", errors="backslashreplace")

    def err(self):
        return self.err_path.read_text(encoding="utf-8", errors="backslashreplace")

    def running(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def signal_group(self, number):
        _signal_group(self.pid, self.popen.since, number)

    def wait(self, deadline_s=DEADLINE_S):
        """Waits for the end and returns a Done; a program that does not end fails the test."""
        try:
            code = self.popen.wait(deadline_s * SLOWNESS)
        except subprocess.TimeoutExpired:
            raise Failed("%s still runs after %g s\n%s" % (self.name, deadline_s * SLOWNESS,
                                                           self.err()[-2000:])) from None
        return Done(code, self.out(), self.err())

    def kill(self):
        """SIGKILL to the program and its children, and reaps it."""
        self.signal_group(signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        _note(b"-", self.pid)

    def stop(self, deadline_s=DEADLINE_S):
        """SIGTERM, and waits for a clean end."""
        self.signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def wait_for_output(self, text, deadline_s=DEADLINE_S):
        """Until `text` stands in what it printed, on either side."""
        def printed():
            if text in self.out() or text in self.err():
                return True
            if not self.running():
                raise Failed("%s ended with %s without printing %r\n%s" % (
                    self.name, self.popen.returncode, text, self.err()[-2000:]))
            return False
        wait_for(printed, deadline_s, "%s to print %r" % (self.name, text))


def start(argv, folder, env=None, stdin=None, name=None):
    """Starts a program; it is killed, with its group, when the test ends."""
    return Process(argv, folder, env, stdin, name)


def run(argv, deadline_s=DEADLINE_S, stdin=b"", env=None, cwd=None):
    """Runs a program to its end and returns Done(code, out, err), both decoded. Past its deadline it
    is killed and the test fails."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    popen = _popen(argv, env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE)
    try:
        out, err = popen.communicate(stdin, deadline_s * SLOWNESS)
    except subprocess.TimeoutExpired:
        os.killpg(popen.pid, signal.SIGKILL)
        out, err = popen.communicate()
        raise Failed("%s still ran after %g s\n%s" % (
            " ".join(map(str, argv)), deadline_s * SLOWNESS,
            err.decode(errors="backslashreplace")[-2000:])) from None
    finally:
        _note(b"-", popen.pid)
    return Done(popen.returncode, out.decode(errors="backslashreplace"),
                err.decode(errors="backslashreplace"))


# ---- impel -----------------------------------------------------------------------------------

def store_url(store, params=""):
    """A path is the embedded store there; anything with a scheme is taken as it is."""
    text = str(store)
    return text if ":" in text else "lmdb:" + text + params


def impel_argv(*args, store=None):
    """The command line of `impel SUBCOMMAND --store URL …`."""
    args = [str(a) for a in args]
    if store is not None:
        args[1:1] = ["--store", store_url(store)]
    return [IMPEL, *args]


def impel(*args, store=None, stdin=b"", deadline_s=DEADLINE_S, env=None, cwd=None):
    """Runs the program: impel("status", "--json", store=tmp / "db").code == 0."""
    return run(impel_argv(*args, store=store), deadline_s, stdin, env, cwd)


def impel_ok(*args, **options):
    """The same, where anything but exit 0 fails the test. Returns its standard output."""
    done = impel(*args, **options)
    equal(done.code, 0, "impel %s\n%s" % (" ".join(map(str, args)), done.err))
    return done.out


def _all_stopped(process):
    threads = list(pathlib.Path("/proc/%d/task" % process.popen.pid).glob("*/stat"))
    return all(each.read_text().rsplit(")", 1)[1].split()[0] == "T" for each in threads)


def stop_outside_its_lock(process, store):
    """SIGSTOPs a process, and if its store is an embedded one at a moment when it does not hold the store's
    lock: who is stopped with it keeps everybody else out until it is continued."""
    path = str(store).removeprefix("lmdb:").split("?")[0]
    asking = [BUILD / "tests" / "lmdb" / "lock-free", path, process.popen.pid]
    while True:
        process.signal(signal.SIGSTOP)
        wait_for(lambda: _all_stopped(process), what="the process to be stopped")
        done = None if "://" in path else run(asking)
        if done is None or done.code == 0:
            return
        equal(done.code, 1, done.err)
        process.signal(signal.SIGCONT)


def json_lines(text):
    return [json.loads(line) for line in text.split("\n") if line.strip()]


# ---- servers ---------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def redis_server_binary(folder):
    """$IMPEL_TEST_SERVER, else redis-server, or the same binary under its name in the tools' package, which
    looks at its own name to know what it is. None where there is none of them."""
    if SERVER:
        return SERVER
    found = shutil.which("redis-server")
    if found:
        return found
    twin = shutil.which("redis-check-rdb")
    if not twin:
        return None
    link = pathlib.Path(folder) / "redis-server"
    if not link.exists():
        link.symlink_to(os.path.realpath(twin))
    return str(link)


def accepts(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def start_redis(folder, *args, port=None):
    """A redis-server of this test's own, without persistence unless args say so. Returns
    (process, port). Skips the test where there is no Redis."""
    binary = redis_server_binary(folder)
    if binary is None:
        skip("no redis-server or redis-check-rdb here")
    port = port or free_port()
    process = start([binary, "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "",
                     "--appendonly", "no", *args], folder, name="redis")

    def up():
        check(process.running(), "redis-server ended:\n" + process.out()[-2000:])
        return accepts(port)
    wait_for(up, what="redis-server on port %d" % port)
    return process, port


# ---- the runner ------------------------------------------------------------------------------

def read_ready(fd, deadline_s=DEADLINE_S):
    """Waits until a descriptor can be read."""
    ready, _, _ = select.select([fd], [], [], deadline_s * SLOWNESS)
    check(ready, "nothing to read after %g s" % (deadline_s * SLOWNESS))


def _kill_all():
    while _running:
        _running.pop().kill()


def _say(text):
    for line in str(text).splitlines():
        print("# " + line)


def _run_one(number, function):
    name = function.__name__
    folder = pathlib.Path(tempfile.mkdtemp(prefix="impel-test-"))
    begun = now()
    try:
        function(folder)
        print("ok %d - %s (%.1f s)" % (number, name, now() - begun))
        good = True
    except Skipped as reason:
        print("ok %d - %s # SKIP %s" % (number, name, reason))
        good = True
    except Failed as why:
        frame = traceback.extract_tb(why.__traceback__)
        where = [f for f in frame if f.filename != __file__] or list(frame)
        _say("%s:%d: %s" % (where[-1].filename, where[-1].lineno, why))
        good = False
    except Exception:  # pylint: disable=broad-except
        _say(traceback.format_exc())
        good = False
    finally:
        _kill_all()
    if good:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        _say("left for you to look at: %s" % folder)
        print("not ok %d - %s" % (number, name))
    sys.stdout.flush()
    return good


def borrow(path):
    """A file of tests as a module, for what else is in it: its own tests are not run."""
    global main  # pylint: disable=global-statement
    before, run_main = list(_tests), main
    folder = str(pathlib.Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    main = lambda: None  # pylint: disable=unnecessary-lambda-assignment
    try:
        return importlib.import_module(pathlib.Path(path).stem)
    finally:
        main = run_main
        _tests[:] = before


def main():
    """Runs the tests of the file, or those whose names contain argv[1]."""
    signal.signal(signal.SIGTERM, lambda *_: (_kill_all(), os._exit(1)))
    wanted = [t for t in _tests if len(sys.argv) < 2 or sys.argv[1] in t.__name__]
    print("TAP version 13\n1..%d" % len(wanted), flush=True)
    good = [_run_one(i + 1, t) for i, t in enumerate(wanted)]
    sys.exit(0 if all(good) else 1)
