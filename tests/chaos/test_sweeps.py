"""Three sweeps side by side, and workers of somebody else's, all of them killed again and again: nothing is
lost, requeued twice for one abandonment, or parked early, and the order of the rest stays (A1, A5, E26)."""
import os
import random

import sweeps
from everystore import every_store
from fleet import rounds
from impeltest import check, equal, impel_argv, main, start


@every_store
def three_sweeps_requeue_each_abandonment_once(tmp, store):
    sweeps.run(tmp, store, rounds(10), int(os.environ.get("IMPEL_SEED", random.randrange(1 << 31))))


@every_store
def a_consumer_that_wakes_up_while_it_is_deleted_loses_nothing(tmp, store):
    """Its TTL is over at once, so every pause between two reads is one in which it may go (D26)."""
    store.client.xgroup_create("orders", "g", "0", mkstream=True)
    sweep = start(impel_argv("sweep", "--stream", "orders", "--group", "g", "--consumer-ttl", "1ms",
                             "--interval", "1ms", "--budget", "0", store=store), tmp, name="sweep")
    dice, lost = random.Random(5), 0
    for number in range(rounds(150)):
        # Before Redis 7.2 a consumer is gone only if others get something meanwhile.
        for name in ("busy", "sleeper"):
            store.client.xadd("orders", {"n": number})
            got = store.client.xreadgroup("g", name, {"orders": ">"})
            entries = [entry for _, some in got for entry, _ in some]
            lost += store.client.xpending("orders", "g")["pending"] != len(entries)
            lost += store.client.xack("orders", "g", *entries) != 1
            for _ in range(dice.randrange(60)):
                store.client.ping()  # time goes by
    equal(lost, 0)
    check(sweep.err().count("sleeper") > 3, "the consumer was hardly ever deleted: " + sweep.err()[-500:])


main()
