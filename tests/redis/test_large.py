#!/usr/bin/python3
"""A stream whose first and last entry are large: the sweep's look, once a second, leaves them alone."""
from impeltest import equal, impel_argv, main, start, test, wait_for
from redishelp import Server

LARGE = 1 << 20
TABLE = "impel:{s}:w:1:s:g"


def questions(client):
    """How often the server was asked for what brings both entries along."""
    return client.info("commandstats")["cmdstat_xinfo|stream"]["calls"]


def wait_for_looks(client, count):
    for _ in range(count):
        before = client.hget(TABLE, "stamp")
        wait_for(lambda last=before: client.hget(TABLE, "stamp") != last, what="the next look")


@test
def large_entries_are_not_fetched_with_every_look(tmp):
    server = Server(tmp)
    client = server.client()
    client.xadd("s", {"n": "x" * LARGE})
    client.xgroup_create("s", "g", "0")
    last = client.xadd("s", {"n": "x" * LARGE})
    client.xreadgroup("g", "c", {"s": ">"})
    start(impel_argv("sweep", "--stream", "s", "--group", "g", store=server.url), tmp)
    wait_for(lambda: client.hget(TABLE, "floor"), what="the floor")
    asked = questions(client)
    wait_for_looks(client, 1)
    client.xack("s", "g", *(entry for entry, _ in client.xrange("s")))
    wait_for_looks(client, 2)
    equal(questions(client), asked)
    equal(client.hget(TABLE, "floor").split(" ")[0], last)


main()
