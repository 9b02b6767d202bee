"""What most people write in Python: XAUTOCLAIM 50 at a time, then for each entry a look at its count by
XPENDING, and an XACK.  loop.py SOCKET N"""
import sys
import time

import redis

server = redis.Redis(unix_socket_path=sys.argv[1])
handled = 0
cursor = "0-0"
begun = time.monotonic()
while True:
    cursor, entries = server.xautoclaim("bench", "bench", "worker", 60000, cursor, count=50)[:2]
    for entry_id, _ in entries:
        row = server.xpending_range("bench", "bench", min=entry_id, max=entry_id, count=1)[0]
        if row["times_delivered"] <= 100:
            handled += 1
        server.xack("bench", "bench", entry_id)
    if cursor in (b"0-0", "0-0"):
        break
print("%f" % (time.monotonic() - begun))
if handled != int(sys.argv[2]):
    sys.exit("loop.py: %d handled" % handled)
