#!/usr/bin/python3
"""100,000 parked entries are replayed, killed ten times on the way; and a value of 64 MiB."""
import os

from impeltest import check, equal, impel_ok, main
from deadhelp import (added_anew, audited, entries, facts, killed_replay, park_many, pending_again, raw)
from everystore import every_store

COUNT = 100000


@every_store
def each_of_very_many_is_added_once(tmp, store):
    park_many(store, COUNT)
    killed_replay(tmp, store, COUNT, 10, "--rate", "20000/s")
    added_anew(store, COUNT)
    records = audited(store)
    equal((len(records), len(set(records))), (COUNT, COUNT))


@every_store
def each_of_very_many_is_put_back_once(tmp, store):
    ids = park_many(store, COUNT)
    killed_replay(tmp, store, COUNT, 10, "--in-place", "--rate", "20000/s")
    pending_again(store, ids)


@every_store
def a_value_of_64_mib_comes_back_whole(tmp, store):
    value = os.urandom(1 << 20) * 64
    raw(store).execute_command("XADD", "s:dead", "*", "v", value, *facts(b"s", b"1-0"))
    equal(impel_ok("dead", "replay", "--stream", "s", "--connect-timeout", "2m", store=store,
                   deadline_s=180), "1 replayed\n")
    check([e[1] for e in entries(store, "s")] == [[b"v", value]], "they differ")


main()
