"""versions -- what servers of other kinds and versions answer otherwise than this one, which answers as
Redis 7.4 and later: the one table, for all tests that compare replies.

`HERE` is the server that is compared with. Everything else here follows from it, so that a server is
held to all that it ought to answer the same."""
import collections
import re
import tempfile

from impeltest import redis_server_binary, run

Version = collections.namedtuple("Version", "kind number")


def _here():
    """By what the program says of itself: "Redis server v=7.0.15 sha=…"."""
    with tempfile.TemporaryDirectory() as folder:
        binary = redis_server_binary(folder)
        said = run([binary, "--version"]).out if binary else ""
    found = re.match(r"(\w+) server v=([\d.]+)", said)
    if not found:
        return Version("redis", (7, 0))
    return Version(found.group(1).lower(), tuple(int(n) for n in found.group(2).split(".")))


def redis_before(*number):
    return HERE.kind == "redis" and HERE.number < number


def valkey_before(*number):
    return HERE.kind == "valkey" and HERE.number < number


HERE = _here()
IS_BEFORE_7_2 = redis_before(7, 2)
IS_BEFORE_8 = redis_before(8) or HERE.kind == "valkey"

# Errors that are said in other words: (where, ours, theirs).
ERRORS = [
    (IS_BEFORE_7_2, rb"ERR Unbalanced 'xread(group)?' list", rb"ERR Unbalanced XREAD list"),
    (IS_BEFORE_7_2, rb"ERR The ID specified in XADD is equal or smaller", rb"ERR Elements are too large"),
    (redis_before(7, 4), rb"ERR The \+ ID is meaningless", rb"ERR Invalid stream ID"),
    (IS_BEFORE_8, rb"ERR Unbalanced 'xread' list of streams: .* an ID, '\+', or '\$' must",
     rb"ERR Unbalanced 'xread' list of streams: .* an ID or '\$' must"),
]
# Errors of ours where the other goes on and does something: such a command is not sent to it.
_newer_checks = rb"ERR (The ID specified in XSETID is smaller than current max_deleted_entry_id|timeout is out of range)"
NEWER_CHECKS = re.compile(_newer_checks if IS_BEFORE_7_2 else rb"(?!)")


def is_not_for_transactions(words):
    """What cannot be compared within one: where an older server does not refuse what we do, our refusal comes too
    late for the command not to be sent; and a string that was set in it may have the reference of the words too."""
    name = words[0].upper()
    if name == b"OBJECT":
        return words[1:2] == [b"REFCOUNT"]
    return IS_BEFORE_7_2 and (
        name == b"XSETID" or name == b"BLPOP" and not re.fullmatch(rb"-?[0-9.]{1,9}", words[-1]))


# How a wait ends by an error: before 7.2 in words of its own, because it answers from what it kept where
# newer ones carry out the command again.
WOKEN = [
    (IS_BEFORE_7_2, rb"(NOGROUP|WRONGTYPE) ", rb"(NOGROUP|UNBLOCKED|WRONGTYPE) "),
]
# Before 7.2 a consumer is made only when it gets something, so it is made before each command.
MAKES_NO_EMPTY_CONSUMERS = IS_BEFORE_7_2
# What is done otherwise before 7.2 while somebody waits, so it is not done then: it wakes readers with an
# empty list when what was added is gone again before they are served, and looks at one key only; and it
# does not make a consumer again that was deleted while it waited.
WAKES_EMPTY = IS_BEFORE_7_2

# What ends a transaction as a failed one where others only refuse it and go on.
ABORTS_IN_MULTI = {b"MULTI", b"WATCH"} if HERE.kind == "valkey" else set()
# What has no reply at all in that of EXEC, so that the client waits for it for ever.
SILENT_IN_MULTI = {b"AUTH"} if valkey_before(9) or (HERE.kind == "redis" and not IS_BEFORE_8) else set()

# Pairs of XINFO that some do not have; and those that count by older rules as soon as entries were deleted
# or counters set by hand.
MISSING_INFO = {b"inactive", b"active-time", b"idle", b"seen-time"} if IS_BEFORE_7_2 else set()
COUNTS_BY_OLDER_RULES = IS_BEFORE_8
# XREAD's `+`, the last entry, is Redis's from 7.4 on: others refuse it at once, where we may wait.
READS_LAST = not (redis_before(7, 4) or HERE.kind == "valkey")
# The payloads of DUMP: from 7.2 on they are ours.
READS_OUR_DUMPS = not IS_BEFORE_7_2


def in_other_words(ours, theirs, rows=None):
    return any(where and re.match(o, ours) and re.match(t, theirs) for where, o, t in rows or ERRORS)
