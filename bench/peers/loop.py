#!/usr/bin/python3
"""loop.py -- how people recover abandoned entries with redis-py: XAUTOCLAIM in batches of 50, then for
each entry a look at its delivery count and an acknowledgement, each its own round trip. Prints how
many entries it finished and how many seconds that took.

    loop.py recover SOCKET STREAM GROUP
"""
import sys
import time

import redis


def recover(server, stream, group):
    cursor, done = "0-0", 0
    while True:
        answer = server.xautoclaim(stream, group, "loop", min_idle_time=0, start_id=cursor, count=50)
        cursor, entries = answer[0], answer[1]
        for entry_id, _fields in entries:
            rows = server.xpending_range(stream, group, min=entry_id, max=entry_id, count=1)
            if rows and rows[0]["times_delivered"] > 1000:
                continue  # where the entry would be parked
            server.xack(stream, group, entry_id)
            done += 1
        if cursor == b"0-0":
            return done


def main():
    _work, socket, stream, group = sys.argv[1:]
    server = redis.Redis(unix_socket_path=socket)
    server.ping()
    begun = time.monotonic()
    done = recover(server, stream, group)
    print(done, time.monotonic() - begun)


main()
