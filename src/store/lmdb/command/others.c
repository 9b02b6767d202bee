/* others.c -- the least of the other types: SET, GET, LPUSH, BLPOP, SADD.
 *
 * They are there so that there are other types to be wrong about, and somebody who waits for what is no
 * stream.
 *
 *   BLPOP key [key ...] seconds      the first key that has a list gives its first; none: it waits */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FLOAT_SIZE_MAX = 256, /* of a number as a word */
};

void call_set(struct call *call)
{
    if (call->arg_count != 3) {
        call_error_syntax(call);
    } else if (call_check(call, lmdb_string_set(call->txn, call->args[1], call->args[2]))) {
        call_reply_ok(call);
    }
}

void call_get(struct call *call)
{
    struct impel_bytes value;
    int rc = lmdb_string_get(call->txn, call->args[1], &value);

    if (rc == IMPEL_ERR_WRONG_TYPE) {
        call_error_wrong_type(call);
    } else if (rc != IMPEL_ERR_NOT_FOUND && call_check(call, rc)) {
        call_bulk(call, call->reply, value);
    }
}

void call_lpush(struct call *call)
{
    uint64_t length = 0;
    int rc = lmdb_list_push(call->txn, call->args[1], call->args + 2, call->arg_count - 2, &length);

    if (rc == IMPEL_ERR_WRONG_TYPE) {
        call_error_wrong_type(call);
    } else if (call_check(call, rc)) {
        call_changed(call, call->arg_count - 2);
        call_reply_integer(call, (int64_t)length);
    }
}

void call_sadd(struct call *call)
{
    uint64_t added = 0;
    int rc = lmdb_set_add(call->txn, call->args[1], call->args + 2, call->arg_count - 2, &added);

    if (rc == IMPEL_ERR_WRONG_TYPE) {
        call_error_wrong_type(call);
    } else if (call_check(call, rc)) {
        call_reply_integer(call, (int64_t)added);
    }
}

/* ---- BLPOP ---- */

/* Seconds, with a fraction perhaps, as whole ms; 0 = without end. */
static bool blpop_timeout(struct call *call, int64_t *timeout_ms)
{
    struct impel_bytes word = call->args[call->arg_count - 1];
    char text[FLOAT_SIZE_MAX];
    char *end = NULL;

    if (word.size == 0 || word.size >= sizeof(text)) {
        return call_error(call, "ERR timeout is not a float or out of range");
    }
    memcpy(text, word.data, word.size);
    text[word.size] = '\0';
    errno = 0;
    long double seconds = strtold(text, &end);
    if (strchr(" \t\n\v\f\r", text[0]) != NULL || end != text + word.size || isnan(seconds) ||
        (errno == ERANGE && (isinf(seconds) || seconds == 0))) {
        return call_error(call, "ERR timeout is not a float or out of range");
    }
    long double ms = seconds * 1000;
    if (ms <= -1) { /* what is rounded up to 0 is not */
        return call_error(call, "ERR timeout is negative");
    }
    if (ms > (long double)(INT64_MAX - lmdb_now_ms(call->txn))) {
        return call_error(call, "ERR timeout is out of range");
    }
    *timeout_ms = (int64_t)ms;
    *timeout_ms += (long double)*timeout_ms < ms ? 1 : 0; /* up; without libm's ceill() */
    return true;
}

/* Does one of the keys hold a list? Only that ends a wait. */
static bool blpop_any_list(struct call *call, bool *any)
{
    *any = false;
    for (size_t i = 1; i + 1 < call->arg_count && !*any; i++) {
        enum lmdb_key_kind kind;
        if (!call_check(call, lmdb_key_kind(call->txn, call->args[i], &kind))) {
            return false;
        }
        *any = kind == LMDB_KEY_LIST;
    }
    return true;
}

static void blpop_reply(struct call *call, struct impel_bytes key, struct impel_bytes value)
{
    struct value *pair = call_list(call, call->reply, VALUE_ARRAY, 2);

    if (pair != NULL && call_bulk(call, &pair[0], key)) {
        call_bulk(call, &pair[1], value);
    }
}

void call_blpop(struct call *call)
{
    int64_t timeout_ms = 0;
    bool again = call->wait != NULL && call->wait->again;
    bool any = true;

    if (!blpop_timeout(call, &timeout_ms) || (again && !blpop_any_list(call, &any))) {
        return;
    }
    for (size_t i = 1; any && i + 1 < call->arg_count; i++) {
        struct impel_bytes value = {NULL, 0};
        int rc = lmdb_list_pop(call->txn, call->args[i], call->arena, &value);
        if (rc == IMPEL_ERR_NOT_FOUND) {
            continue;
        }
        if (rc == IMPEL_ERR_WRONG_TYPE) {
            call_error_wrong_type(call);
        } else if (call_check(call, rc)) {
            blpop_reply(call, call->args[i], value);
        }
        return;
    }
    call->reply->kind = VALUE_NULL_ARRAY;
    if (call->wait != NULL) {
        *call->wait = (struct call_wait){
            .again = again, .blocked = true, .block_ms = timeout_ms, .again_ms = INT64_MAX};
    }
}
