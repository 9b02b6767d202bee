"""redishelp -- a redis-server of the test's own, to be stopped, killed, started again and lied to about
the time, and a redis-py client for it."""
import pathlib
import struct
import time

from impeltest import BUILD, check, redis_server_binary, skip, start, wait_for

try:
    import redis
except ImportError:
    redis = None

CLOCK = BUILD / "tests" / "redis" / "libclock.so"


class Server:
    """Listens on a unix socket in the folder. `clock`: with a wall clock that step_clock() moves."""

    def __init__(self, folder, *args, clock=False):
        if redis is None:
            skip("no python3-redis here")
        self.folder = pathlib.Path(folder)
        self.socket = self.folder / "redis.sock"
        self.url = "unix://%s" % self.socket
        self.args = args
        self.binary = redis_server_binary(folder)
        if self.binary is None:
            skip("no redis-server or redis-check-rdb here")
        self.env = None
        if clock:
            if not CLOCK.exists():
                skip("%s is not built" % CLOCK)
            self.clock = self.folder / "clock"
            self.clock.write_bytes(struct.pack("=q", 0))
            self.env = {"LD_PRELOAD": str(CLOCK), "CLOCK_OFFSET_FILE": str(self.clock)}
        self.again()

    def again(self):
        self.process = start([self.binary, "--port", "0", "--unixsocket", self.socket,
                              "--dir", self.folder, "--save", "", *self.args],
                             self.folder, env=self.env, name="redis")

        def up():
            check(self.process.running(), "redis-server ended:\n" + self.process.out()[-2000:])
            try:
                return self.client().ping()
            except redis.exceptions.RedisError:
                return False
        wait_for(up, what="redis-server")

    def kill(self):
        self.process.kill()

    def client(self):
        return redis.Redis(unix_socket_path=str(self.socket), decode_responses=True)

    def step_clock(self, seconds):
        """The server's wall clock is off by so much from now on; it sees that at once."""
        with open(self.clock, "r+b") as file:
            file.write(struct.pack("=q", seconds))
        shown = self.client().time()[0] - time.time()
        check(abs(shown - seconds) < 5, "the server's clock is off by %d s" % shown)
