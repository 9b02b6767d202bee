/* command.c -- finds the row of a command, checks the number of its words, runs it.
 *
 * The table is the one place where a command is announced. A container (XGROUP, XINFO) has a table
 * of its own for the second word. */
#include "store/lmdb/command/command.h"

#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/txn.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUOTED_SIZE_MAX = 128, /* of what is typed, an error text shows no more than about this */
};

static const struct command group_table[] = {
    {"xgroup|create", -5, COMMAND_WRITES | COMMAND_SUBCOMMAND, 2, 2, 1, call_xgroup_create, NULL},
    {"xgroup|setid", -5, COMMAND_WRITES | COMMAND_SUBCOMMAND, 2, 2, 1, call_xgroup_setid, NULL},
    {"xgroup|destroy", 4, COMMAND_WRITES | COMMAND_SUBCOMMAND, 2, 2, 1, call_xgroup_destroy, NULL},
    {"xgroup|createconsumer", 5, COMMAND_WRITES | COMMAND_SUBCOMMAND, 2, 2, 1,
     call_xgroup_createconsumer, NULL},
    {"xgroup|delconsumer", 5, COMMAND_WRITES | COMMAND_SUBCOMMAND, 2, 2, 1, call_xgroup_delconsumer,
     NULL},
    {"xgroup|help", 2, COMMAND_SUBCOMMAND, 0, 0, 0, call_xgroup_help, NULL},
    {.name = NULL},
};

static const struct command info_table[] = {
    {"xinfo|stream", -3, COMMAND_SUBCOMMAND, 2, 2, 1, call_xinfo_stream, NULL},
    {"xinfo|groups", 3, COMMAND_SUBCOMMAND, 2, 2, 1, call_xinfo_groups, NULL},
    {"xinfo|consumers", 4, COMMAND_SUBCOMMAND, 2, 2, 1, call_xinfo_consumers, NULL},
    {"xinfo|help", 2, COMMAND_SUBCOMMAND, 0, 0, 0, call_xinfo_help, NULL},
    {.name = NULL},
};

static const struct command object_table[] = {
    {"object|encoding", 3, COMMAND_SUBCOMMAND, 2, 2, 1, call_object_encoding, NULL},
    {"object|refcount", 3, COMMAND_SUBCOMMAND, 2, 2, 1, call_object_refcount, NULL},
    {"object|idletime", 3, COMMAND_SUBCOMMAND, 2, 2, 1, call_object_idletime, NULL},
    {"object|freq", 3, COMMAND_SUBCOMMAND, 2, 2, 1, call_object_freq, NULL},
    {"object|help", 2, COMMAND_SUBCOMMAND, 0, 0, 0, call_object_help, NULL},
    {.name = NULL},
};

static const struct command memory_table[] = {
    {"memory|usage", -3, COMMAND_SUBCOMMAND, 2, 2, 1, call_memory_usage, NULL},
    {.name = NULL},
};

const struct command lmdb_command_table[] = {
    {"xadd", -5, COMMAND_WRITES, 1, 1, 1, call_xadd, NULL},
    {"xlen", 2, 0, 1, 1, 1, call_xlen, NULL},
    {"xrange", -4, 0, 1, 1, 1, call_xrange, NULL},
    {"xrevrange", -4, 0, 1, 1, 1, call_xrevrange, NULL},
    {"xread", -4, COMMAND_MAY_BLOCK, 0, 0, 0, call_xread, NULL},
    {"xreadgroup", -7, COMMAND_WRITES | COMMAND_MAY_BLOCK, 0, 0, 0, call_xreadgroup, NULL},
    {"xack", -4, COMMAND_WRITES, 1, 1, 1, call_xack, NULL},
    {"xclaim", -6, COMMAND_WRITES, 1, 1, 1, call_xclaim, NULL},
    {"xautoclaim", -6, COMMAND_WRITES, 1, 1, 1, call_xautoclaim, NULL},
    {"xpending", -3, 0, 1, 1, 1, call_xpending, NULL},
    {"xtrim", -4, COMMAND_WRITES, 1, 1, 1, call_xtrim, NULL},
    {"xdel", -3, COMMAND_WRITES, 1, 1, 1, call_xdel, NULL},
    {"xdelex", -5, COMMAND_WRITES, 1, 1, 1, call_xdelex, NULL},
    {"xackdel", -6, COMMAND_WRITES, 1, 1, 1, call_xackdel, NULL},
    {"xnack", -7, COMMAND_WRITES, 1, 1, 1, call_xnack, NULL},
    {"xcfgset", -2, COMMAND_WRITES, 1, 1, 1, call_xcfgset, NULL},
    {"xidmprecord", 5, COMMAND_WRITES, 1, 1, 1, call_xidmprecord, NULL},
    {"xsetid", -3, COMMAND_WRITES, 1, 1, 1, call_xsetid, NULL},
    {"xgroup", -2, COMMAND_CONTAINER, 0, 0, 0, NULL, group_table},
    {"xinfo", -2, COMMAND_CONTAINER, 0, 0, 0, NULL, info_table},
    {"del", -2, COMMAND_WRITES, 1, -1, 1, call_del, NULL},
    {"unlink", -2, COMMAND_WRITES, 1, -1, 1, call_del, NULL},
    {"exists", -2, 0, 1, -1, 1, call_exists, NULL},
    {"touch", -2, 0, 1, -1, 1, call_exists, NULL},
    {"type", 2, 0, 1, 1, 1, call_type, NULL},
    {"keys", 2, 0, 0, 0, 0, call_keys, NULL},
    {"dbsize", 1, 0, 0, 0, 0, call_dbsize, NULL},
    {"scan", -2, 0, 0, 0, 0, call_scan, NULL},
    {"randomkey", 1, 0, 0, 0, 0, call_randomkey, NULL},
    {"rename", 3, COMMAND_WRITES, 1, 2, 1, call_rename, NULL},
    {"renamenx", 3, COMMAND_WRITES, 1, 2, 1, call_renamenx, NULL},
    {"dump", 2, 0, 1, 1, 1, call_dump, NULL},
    {"restore", -4, COMMAND_WRITES, 1, 1, 1, call_restore, NULL},
    {"copy", -3, COMMAND_WRITES, 1, 2, 1, call_copy, NULL},
    {"expire", -3, COMMAND_WRITES, 1, 1, 1, call_expire, NULL},
    {"pexpire", -3, COMMAND_WRITES, 1, 1, 1, call_pexpire, NULL},
    {"expireat", -3, COMMAND_WRITES, 1, 1, 1, call_expireat, NULL},
    {"pexpireat", -3, COMMAND_WRITES, 1, 1, 1, call_pexpireat, NULL},
    {"ttl", 2, 0, 1, 1, 1, call_ttl, NULL},
    {"pttl", 2, 0, 1, 1, 1, call_pttl, NULL},
    {"expiretime", 2, 0, 1, 1, 1, call_expiretime, NULL},
    {"pexpiretime", 2, 0, 1, 1, 1, call_pexpiretime, NULL},
    {"persist", 2, COMMAND_WRITES, 1, 1, 1, call_persist, NULL},
    {"object", -2, COMMAND_CONTAINER, 0, 0, 0, NULL, object_table},
    {"memory", -2, COMMAND_CONTAINER, 0, 0, 0, NULL, memory_table},
    {"flushall", -1, COMMAND_WRITES, 0, 0, 0, call_flush, NULL},
    {"flushdb", -1, COMMAND_WRITES, 0, 0, 0, call_flush, NULL},
    {"set", -3, COMMAND_WRITES, 1, 1, 1, call_set, NULL},
    {"get", 2, 0, 1, 1, 1, call_get, NULL},
    {"lpush", -3, COMMAND_WRITES, 1, 1, 1, call_lpush, NULL},
    {"sadd", -3, COMMAND_WRITES, 1, 1, 1, call_sadd, NULL},
    {"blpop", -3, COMMAND_WRITES | COMMAND_MAY_BLOCK, 1, -2, 1, call_blpop, NULL},
    {"ping", -1, 0, 0, 0, 0, call_ping, NULL},
    {"echo", 2, 0, 0, 0, 0, call_echo, NULL},
    {"time", 1, 0, 0, 0, 0, call_time, NULL},
    {.name = NULL},
};

/* The row for a typed word, or NULL. Rows of a container are compared after their "|". */
static const struct command *find_row(const struct command *table, struct impel_bytes word)
{
    for (const struct command *row = table; row->name != NULL; row++) {
        const char *bar = strchr(row->name, '|');
        if (bytes_equal_nocase(word, bar == NULL ? row->name : bar + 1)) {
            return row;
        }
    }
    return NULL;
}

static bool arity_fits(const struct command *command, size_t arg_count)
{
    size_t words = (size_t)abs(command->arity);
    return command->arity < 0 ? arg_count >= words : arg_count == words;
}

static bool error_unknown_command(struct call *call)
{
    struct buf args;

    buf_init(&args, (size_t)QUOTED_SIZE_MAX * 2);
    for (size_t i = 1; i < call->arg_count && args.size < QUOTED_SIZE_MAX; i++) {
        struct impel_bytes word = call->args[i];
        int room = QUOTED_SIZE_MAX - (int)args.size;
        int size = call_text_size(word);
        buf_appendf(&args, "'%.*s' ", size < room ? size : room, call_text_data(word));
    }
    int name_size = call_text_size(call->args[0]);
    if (buf_status(&args) < 0) {
        call_fail(call, IMPEL_ERR_NOMEM);
    } else {
        call_error(call, "ERR unknown command '%.*s', with args beginning with: %.*s",
                   name_size < QUOTED_SIZE_MAX ? name_size : QUOTED_SIZE_MAX,
                   call_text_data(call->args[0]), (int)args.size,
                   args.data == NULL ? "" : (const char *)args.data);
    }
    buf_release(&args);
    return false;
}

static bool error_unknown_subcommand(struct call *call)
{
    struct impel_bytes typed = call->args[1];
    char upper[CALL_NAME_SIZE];
    int size = call_text_size(typed);

    return call_error(call, "ERR unknown subcommand '%.*s'. Try %s HELP.",
                      size < QUOTED_SIZE_MAX ? size : QUOTED_SIZE_MAX, call_text_data(typed),
                      call_container_name(call, upper));
}

/* Finds the row that `call->args` ask for and leaves it in `call->command`. */
static bool find_command(struct call *call)
{
    const struct command *command = find_row(lmdb_command_table, call->args[0]);

    if (command == NULL) {
        return error_unknown_command(call);
    }
    call->command = command;
    if ((command->flags & COMMAND_CONTAINER) != 0 && call->arg_count >= 2) {
        command = find_row(command->subcommands, call->args[1]);
        if (command == NULL) {
            return error_unknown_subcommand(call);
        }
        call->command = command;
    }
    if (!arity_fits(command, call->arg_count)) {
        return call_error_arity(call);
    }
    return true;
}

/* What a command changed, as Redis counts it. */
static uint64_t changes_of(const struct call *call)
{
    const struct value *reply = call->reply;
    bool writes = call->command != NULL && (call->command->flags & COMMAND_WRITES) != 0;

    if (!writes || reply->kind == VALUE_ERROR) {
        return 0;
    }
    if (call->counts) {
        return call->changes;
    }
    if (reply->kind == VALUE_INTEGER) {
        return reply->integer > 0 ? (uint64_t)reply->integer : 0;
    }
    return reply->kind == VALUE_NULL || reply->kind == VALUE_NULL_ARRAY ? 0 : 1;
}

int lmdb_call_known(struct lmdb_txn *txn,
                    struct request *request,
                    const struct command *command,
                    struct call_wait *wait)
{
    struct value *reply = arena_calloc(&request->arena, 1, sizeof(*reply));
    struct call call = {
        .txn = txn,
        .request = request,
        .arena = &request->arena,
        .wait = wait,
        .command = command,
        .args = request->call.args,
        .arg_count = request->call.arg_count,
        .reply = reply,
    };

    if (reply == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    if (wait != NULL) {
        wait->blocked = false;
    }
    if (call.arg_count == 0) {
        return IMPEL_ERR_INVALID;
    }
    if (command != NULL || find_command(&call)) {
        call.command->run(&call);
    }
    if (call.status < 0) {
        /* A command has an answer for what may be missing; what else is, another row has told of. */
        bool is_missing = call.status == IMPEL_ERR_NOT_FOUND || call.status == IMPEL_ERR_NO_GROUP ||
                          call.status == IMPEL_ERR_WRONG_TYPE || call.status == IMPEL_ERR_EXISTS;
        return is_missing ? lmdb_fail(txn, IMPEL_ERR_CORRUPT, "rows that should agree do not")
                          : call.status;
    }
    request->call.reply = reply;
    request->call.changes = changes_of(&call);
    return IMPEL_OK;
}

int lmdb_call(struct lmdb_txn *txn, struct request *request, struct call_wait *wait)
{
    return lmdb_call_known(txn, request, NULL, wait);
}

bool lmdb_call_only_reads(const struct request *request)
{
    struct value reply = {.kind = VALUE_NULL};
    struct arena arena = {.blocks = NULL};
    struct call call = {
        .arena = &arena,
        .args = request->call.args,
        .arg_count = request->call.arg_count,
        .reply = &reply,
    };
    bool found = call.arg_count > 0 && find_command(&call);

    arena_release(&arena);
    return !found || (call.command->flags & COMMAND_WRITES) == 0;
}
