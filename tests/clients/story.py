"""The story of test_clients.py, told with redis-py. story.py STEP PORT"""
import json
import sys

import redis


def numbers(entries):
    return [int(fields["n"]) for _, fields in entries]


def produce(r):
    r.xgroup_create("s", "g", "0", mkstream=True)
    pipe = r.pipeline(transaction=False)
    for n in range(100):
        pipe.xadd("s", {"n": n, "pad": "ü\r\n"})
    pipe.execute()
    return r.pipeline().xadd("s", {"n": 100}).xadd("s", {"n": 101}).xlen("s").execute()[2]


def work(r):
    ids = [i for i, _ in r.xreadgroup("g", "a", {"s": ">"}, count=40)[0][1]]
    print(r.xack("s", "g", *ids[:10]))
    r.xreadgroup("g", "a", {"s": ">"}, count=5)
    print("holding", flush=True)
    r.xread({"never": "$"}, block=0)


def recover(r):
    seen, start = [], "0-0"
    while True:
        start, entries = r.xautoclaim("s", "g", "b", 0, start_id=start, count=10)[:2]
        seen += numbers(entries)
        if entries:
            r.xack("s", "g", *[i for i, _ in entries])
        if start == "0-0":
            break
    while True:
        got = r.xreadgroup("g", "b", {"s": ">"}, count=25)
        if not got:
            return sorted(seen)
        seen += numbers(got[0][1])
        r.xack("s", "g", *[i for i, _ in got[0][1]])


def wait(r):
    return numbers(r.xreadgroup("g", "b", {"s": ">"}, block=60000)[0][1])


def watch(r):
    with r.pipeline() as pipe:
        pipe.watch("s")
        r.xadd("s", {"n": -1})
        pipe.multi()
        pipe.xlen("s")
        try:
            return pipe.execute()
        except redis.WatchError:
            return "aborted"


def wrong(r):
    r.set("text", "x")
    try:
        return r.xadd("text", {"a": "b"})
    except redis.ResponseError as error:
        return str(error).split(" ", maxsplit=1)[0]


print(json.dumps(globals()[sys.argv[1]](redis.Redis(port=int(sys.argv[2]), decode_responses=True))))
