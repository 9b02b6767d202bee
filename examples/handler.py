#!/usr/bin/python3
"""handler.py -- a handler that stays: one line of JSON in, one line of JSON out.

    impel run --pipe --processes 2 --stream orders --group workers -- examples/handler.py

Whatever it writes to standard error goes to the worker's. Standard output is for answers alone, so
print() has to go elsewhere. Answers may come in any order: with a pool of threads, or asyncio, a
process works on as many entries at once as --concurrency gives it.
"""
import json
import sys


def handle(order):
    """What you do with an order."""
    if "order_id" not in order:
        raise KeyError("no order_id")
    print("shipping", order["order_id"], file=sys.stderr)


def answer(entry, outcome, **more):
    print(json.dumps({"id": entry["id"], "outcome": outcome, **more}), flush=True)


def main():
    for line in sys.stdin:  # ends when the worker stops
        entry = json.loads(line)
        try:
            handle(entry["fields"])
        except KeyError as error:
            answer(entry, "reject", error=str(error))  # it will never be any better
        except OSError as error:
            answer(entry, "retry", delay_ms=5000, error=str(error))
        else:
            answer(entry, "done")


main()
