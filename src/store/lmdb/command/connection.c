/* connection.c -- PING, ECHO, TIME: what clients send to see that somebody is there. */
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"

#include <time.h>

void call_ping(struct call *call)
{
    if (call->arg_count > 2) {
        call_error_arity(call);
    } else if (call->arg_count == 2) {
        call_bulk(call, call->reply, call->args[1]);
    } else {
        *call->reply = value_status("PONG");
    }
}

void call_echo(struct call *call)
{
    call_bulk(call, call->reply, call->args[1]);
}

/* Seconds and microseconds. The clock itself is asked, since the transaction knows only ms. */
void call_time(struct call *call)
{
    struct timespec now;
    struct value *items = call_list(call, call->reply, VALUE_ARRAY, 2);

    clock_gettime(CLOCK_REALTIME, &now);
    if (items != NULL && call_bulk_integer(call, &items[0], (uint64_t)now.tv_sec)) {
        call_bulk_integer(call, &items[1], (uint64_t)now.tv_nsec / 1000);
    }
}
