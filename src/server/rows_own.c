/* rows_own.c -- the commands that the server answers itself, one row each. */
#include "server/own.h"

#define FREE (ROW_NO_AUTH | ROW_NOT_QUEUED)

const struct row_spec row_specs[] = {
    /* connection.c */
    {"ping", -1, 0, command_ping_server},
    {"quit", -1, FREE, command_quit},
    {"reset", 1, FREE, command_reset},
    {"select", 2, 0, command_select},
    {"auth", -2, ROW_NO_AUTH, command_auth},
    {"hello", -1, ROW_NO_AUTH, command_hello},

    /* multi.c */
    {"multi", 1, ROW_NOT_QUEUED, command_multi},
    {"exec", 1, ROW_NOT_QUEUED | ROW_IS_EXEC, command_exec},
    {"discard", 1, ROW_NOT_QUEUED, command_discard},
    {"watch", -2, ROW_NOT_QUEUED | ROW_READS, command_watch},
    {"unwatch", 1, 0, command_unwatch},

    /* clients.c */
    {"client", -2, ROW_CONTAINER, NULL},
    {"client|id", 2, ROW_SUBCOMMAND, command_client_id},
    {"client|getname", 2, ROW_SUBCOMMAND, command_client_getname},
    {"client|setname", 3, ROW_SUBCOMMAND, command_client_setname},
    {"client|setinfo", 4, ROW_SUBCOMMAND, command_client_setinfo},
    {"client|info", 2, ROW_SUBCOMMAND, command_client_info},
    {"client|list", -2, ROW_SUBCOMMAND | ROW_ADMIN, command_client_list},
    {"client|unblock", -3, ROW_SUBCOMMAND | ROW_ADMIN, command_client_unblock},
    {"client|kill", -3, ROW_SUBCOMMAND | ROW_ADMIN, command_client_kill},
    {"client|reply", 3, ROW_SUBCOMMAND, command_client_reply},
    {"client|pause", -3, ROW_SUBCOMMAND | ROW_ADMIN, command_client_pause},
    {"client|unpause", 2, ROW_SUBCOMMAND | ROW_ADMIN, command_client_unpause},
    {"client|no-evict", 3, ROW_SUBCOMMAND | ROW_ADMIN, command_client_no_evict},
    {"client|no-touch", 3, ROW_SUBCOMMAND, command_client_no_touch},
    {"client|tracking", -3, ROW_SUBCOMMAND, command_client_tracking},
    {"client|getredir", 2, ROW_SUBCOMMAND, command_client_getredir},
    {"client|trackinginfo", 2, ROW_SUBCOMMAND, command_client_trackinginfo},
    {"client|help", 2, ROW_SUBCOMMAND, command_client_help},

    /* config.c */
    {"config", -2, ROW_CONTAINER, NULL},
    {"config|get", -3, ROW_SUBCOMMAND | ROW_ADMIN, command_config_get},
    {"config|set", -4, ROW_SUBCOMMAND | ROW_ADMIN, command_config_set},
    {"config|resetstat", 2, ROW_SUBCOMMAND | ROW_ADMIN, command_config_resetstat},
    {"config|rewrite", 2, ROW_SUBCOMMAND | ROW_ADMIN, command_config_rewrite},

    /* describe.c */
    {"command", -1, ROW_CONTAINER, command_command},
    {"command|count", 2, ROW_SUBCOMMAND, command_command_count},
    {"command|list", -2, ROW_SUBCOMMAND, command_command_list},
    {"command|info", -2, ROW_SUBCOMMAND, command_command_info},
    {"command|docs", -2, ROW_SUBCOMMAND, command_command_docs},
    {"command|getkeys", -3, ROW_SUBCOMMAND, command_command_getkeys},

    /* info.c */
    {"info", -1, ROW_READS, command_info},
    {"role", 1, 0, command_role},
    {"lastsave", 1, 0, command_lastsave},
    {"save", 1, ROW_ADMIN, command_save},
    {"bgsave", -1, ROW_ADMIN, command_bgsave},
    {"bgrewriteaof", 1, ROW_ADMIN, command_bgrewriteaof},
    {"wait", 3, 0, command_wait},
    {"shutdown", -1, ROW_ADMIN | ROW_LOCAL, command_shutdown},

    /* small.c */
    {"cluster", -2, ROW_CONTAINER, NULL},
    {"cluster|info", 2, ROW_SUBCOMMAND, command_cluster},
    {"function", -2, ROW_CONTAINER, NULL},
    {"function|flush", -2, ROW_SUBCOMMAND, command_ok},
    {"script", -2, ROW_CONTAINER, NULL},
    {"script|exists", -3, ROW_SUBCOMMAND, command_script_exists},
    {"script|flush", -2, ROW_SUBCOMMAND, command_ok},
    {"acl", -2, ROW_CONTAINER, NULL},
    {"acl|whoami", 2, ROW_SUBCOMMAND, command_acl_whoami},
    {"module", -2, ROW_CONTAINER, NULL},
    {"module|list", 2, ROW_SUBCOMMAND, command_none},
    {"slowlog", -2, ROW_CONTAINER, NULL},
    {"slowlog|get", -2, ROW_SUBCOMMAND, command_none},
    {"slowlog|len", 2, ROW_SUBCOMMAND, command_zero},
    {"slowlog|reset", 2, ROW_SUBCOMMAND, command_ok},
    {"latency", -2, ROW_CONTAINER, NULL},
    {"latency|latest", 2, ROW_SUBCOMMAND, command_none},
    {"latency|reset", -2, ROW_SUBCOMMAND, command_zero},
    {"debug", -2, ROW_CONTAINER | ROW_LOCAL, NULL},
    {"debug|sleep", 3, ROW_SUBCOMMAND | ROW_LOCAL, command_debug_sleep},
    {"debug|set-active-expire", 3, ROW_SUBCOMMAND | ROW_LOCAL, command_ok},
    {"debug|object", 3, ROW_SUBCOMMAND | ROW_LOCAL, command_ok},
    {"debug|log", 3, ROW_SUBCOMMAND | ROW_LOCAL, command_debug_log},
    {"debug|reload", -2, ROW_SUBCOMMAND | ROW_LOCAL, command_ok},
    {"debug|loadaof", 2, ROW_SUBCOMMAND | ROW_LOCAL, command_ok},
    {.name = NULL},
};
