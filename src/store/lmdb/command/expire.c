/* expire.c -- EXPIRE and its kin: how long a key lives. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

#include <string.h>

enum expire_flags {
    EXPIRE_NX = 1, /* only a key that lives for ever */
    EXPIRE_XX = 2, /* only one that does not */
    EXPIRE_GT = 4, /* only to a later time */
    EXPIRE_LT = 8, /* only to an earlier one */
};

static bool expire_flags(struct call *call, unsigned *flags)
{
    static const char *const words[] = {"NX", "XX", "GT", "LT"};

    for (size_t i = 3; i < call->arg_count; i++) {
        size_t word = 0;
        while (word < ARRAY_SIZE(words) && !call_word_is(call, i, words[word])) {
            word++;
        }
        if (word == ARRAY_SIZE(words)) {
            return call_error(call, "ERR Unsupported option %.*s", CALL_TEXT(call->args[i]));
        }
        *flags |= 1U << word;
    }
    if ((*flags & EXPIRE_NX) != 0 && *flags != EXPIRE_NX) {
        return call_error(call, "ERR NX and XX, GT or LT options at the same time are not "
                                "compatible");
    }
    if ((*flags & EXPIRE_GT) != 0 && (*flags & EXPIRE_LT) != 0) {
        return call_error(call, "ERR GT and LT options at the same time are not compatible");
    }
    return true;
}

/* The time that is meant, in unix ms; never 0, which would be "never". */
static bool expire_time(struct call *call, bool seconds, bool absolute, int64_t *out)
{
    int64_t number;

    if (!call_integer(call, 2, &number)) {
        return false;
    }
    int64_t scaled = seconds ? mul_saturating(number, 1000) : number;
    int64_t base = absolute ? 0 : lmdb_now_ms(call->txn);
    if ((seconds && (number > INT64_MAX / 1000 || number < INT64_MIN / 1000)) ||
        scaled > INT64_MAX - base) {
        return call_error(call, "ERR invalid expire time in '%s' command", call->command->name);
    }
    *out = scaled + base;
    *out = *out == 0 ? -1 : *out;
    return true;
}

/* A key that lives for ever counts as one that expires after all others. */
static bool expire_allowed(unsigned flags, int64_t old_ms, int64_t new_ms)
{
    if (((flags & EXPIRE_NX) != 0 && old_ms != 0) || ((flags & EXPIRE_XX) != 0 && old_ms == 0)) {
        return false;
    }
    if ((flags & EXPIRE_GT) != 0 && (old_ms == 0 || new_ms <= old_ms)) {
        return false;
    }
    return (flags & EXPIRE_LT) == 0 || old_ms == 0 || new_ms < old_ms;
}

static void expire(struct call *call, bool seconds, bool absolute)
{
    unsigned flags = 0;
    int64_t old_ms = 0, new_ms = 0;

    if (!expire_flags(call, &flags) || !expire_time(call, seconds, absolute, &new_ms)) {
        return;
    }
    int rc = lmdb_key_expires(call->txn, call->args[1], &old_ms);
    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && !expire_allowed(flags, old_ms, new_ms))) {
        call_reply_integer(call, 0);
        return;
    }
    rc = rc < 0 ? rc : lmdb_key_expire(call->txn, call->args[1], new_ms);
    if (call_check(call, rc)) {
        call_reply_integer(call, 1);
    }
}

void call_expire(struct call *call)
{
    expire(call, true, false);
}

void call_pexpire(struct call *call)
{
    expire(call, false, false);
}

void call_expireat(struct call *call)
{
    expire(call, true, true);
}

void call_pexpireat(struct call *call)
{
    expire(call, false, true);
}

/* -2 without the key, -1 without an end. */
static void time_left(struct call *call, bool seconds, bool absolute)
{
    int64_t expires_ms = 0;
    int rc = lmdb_key_expires(call->txn, call->args[1], &expires_ms);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        call_reply_integer(call, -2);
    } else if (call_check(call, rc)) {
        int64_t ms = expires_ms;
        if (expires_ms != 0 && !absolute) {
            ms = expires_ms - lmdb_now_ms(call->txn);
        }
        /* Rounded, without an overflow at the end of time. */
        int64_t s = ms / 1000 + (ms % 1000 >= 500 ? 1 : 0);
        call_reply_integer(call, expires_ms == 0 ? -1 : seconds ? s : ms);
    }
}

void call_ttl(struct call *call)
{
    time_left(call, true, false);
}

void call_pttl(struct call *call)
{
    time_left(call, false, false);
}

void call_expiretime(struct call *call)
{
    time_left(call, true, true);
}

void call_pexpiretime(struct call *call)
{
    time_left(call, false, true);
}

void call_persist(struct call *call)
{
    int64_t expires_ms = 0;
    int rc = lmdb_key_expires(call->txn, call->args[1], &expires_ms);

    if (rc == IMPEL_ERR_NOT_FOUND || (rc >= 0 && expires_ms == 0)) {
        call_reply_integer(call, 0);
        return;
    }
    rc = rc < 0 ? rc : lmdb_key_expire(call->txn, call->args[1], 0);
    if (call_check(call, rc)) {
        call_reply_integer(call, 1);
    }
}
