"""served -- what the tests of the server share: a server of the test's own, and clients for it."""
import os
import pathlib

import redis

from impeltest import BUILD, check, free_port, start, wait_for

SERVE = os.environ.get("IMPEL_SERVE") or str(BUILD / "tests" / "server" / "serve")


class Served:
    """A running server. `db` is its file; others may open it too."""

    def __init__(self, folder, *args, sync="process", db=None):
        self.port = free_port()
        self.db = pathlib.Path(db or folder / "db")
        self.folder = folder
        self.unix = str(folder / "s")
        self.args = [SERVE, self.db, sync, "127.0.0.1:%d" % self.port, "unix:" + self.unix, *args]
        self.process = None
        self.start()

    def start(self):
        self.process = start(self.args, self.folder, name="serve")
        self.process.wait_for_output("serving")

    def client(self, **options):
        options.setdefault("decode_responses", True)
        return redis.Redis(port=self.port, **options)

    def client_id_blocked(self, count=1):
        """Waits until so many clients are blocked."""
        look = self.client()
        wait_for(lambda: look.info("clients")["blocked_clients"] == count,
                 what="%d blocked clients" % count)
        look.close()


def error_of(call, *args, **options):
    """The text of the error that a call gives."""
    try:
        got = call(*args, **options)
    except redis.RedisError as error:
        return str(error)
    check(False, "no error but %r" % (got,))
    return None
