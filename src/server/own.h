/* own.h -- what the rows of the server's own commands point to, by file; and what these share. */
#ifndef IMPEL_SERVER_OWN_H
#define IMPEL_SERVER_OWN_H

#include "server/state.h"

/* What clients take this for: a version whose streams behave as these do. */
#define OWN_REDIS_VERSION "7.4.1"

/* The word at `index` is this one, in any case. */
bool own_word_is(const struct serve *serve, size_t index, const char *word);
/* A strict decimal; false: the usual error was appended. */
bool own_integer(struct serve *serve, size_t index, int64_t *out);
void own_error(struct serve *serve, const char *format, ...) __attribute__((format(printf, 2, 3)));
void own_ok(struct serve *serve);
/* A subcommand with words that it does not know. */
void own_error_options(struct serve *serve);
void own_error_syntax(struct serve *serve);

/* connection.c */
void command_ping_server(struct serve *serve);
void command_quit(struct serve *serve);
void command_reset(struct serve *serve);
void command_select(struct serve *serve);
void command_auth(struct serve *serve);
void command_hello(struct serve *serve);
void command_exec(struct serve *serve); /* never called: see dispatch_exec() */
/* Sets a client's name; false: it cannot be one. */
bool client_set_name(struct client *client, struct impel_bytes name);

/* clients.c */
void command_client_id(struct serve *serve);
void command_client_getname(struct serve *serve);
void command_client_setname(struct serve *serve);
void command_client_setinfo(struct serve *serve);
void command_client_info(struct serve *serve);
void command_client_list(struct serve *serve);
void command_client_unblock(struct serve *serve);
void command_client_kill(struct serve *serve);
void command_client_reply(struct serve *serve);
void command_client_pause(struct serve *serve);
void command_client_unpause(struct serve *serve);
void command_client_no_evict(struct serve *serve);
void command_client_no_touch(struct serve *serve);
void command_client_tracking(struct serve *serve);
void command_client_caching(struct serve *serve);
void command_client_getredir(struct serve *serve);
void command_client_trackinginfo(struct serve *serve);
void command_client_help(struct serve *serve);

/* config.c */
void command_config_get(struct serve *serve);
void command_config_set(struct serve *serve);
void command_config_resetstat(struct serve *serve);
void command_config_rewrite(struct serve *serve);

/* describe.c */
void command_command(struct serve *serve);
void command_command_count(struct serve *serve);
void command_command_list(struct serve *serve);
void command_command_info(struct serve *serve);
void command_command_docs(struct serve *serve);
void command_command_getkeys(struct serve *serve);
void command_subcommands(struct serve *serve); /* names the subcommands */

/* info.c */
void command_info(struct serve *serve);
void command_role(struct serve *serve);
void command_lastsave(struct serve *serve);
void command_save(struct serve *serve);
void command_bgsave(struct serve *serve);
void command_bgrewriteaof(struct serve *serve);
void command_wait(struct serve *serve);
void command_shutdown(struct serve *serve);

/* small.c */
void command_ok(struct serve *serve);
void command_none(struct serve *serve); /* an empty array */
void command_zero(struct serve *serve);
void command_empty_map(struct serve *serve);
void command_function_flush(struct serve *serve);
void command_script_flush(struct serve *serve);
void command_slowlog_get(struct serve *serve);
void command_script_exists(struct serve *serve);
void command_cluster(struct serve *serve);
void command_acl_whoami(struct serve *serve);
void command_debug_sleep(struct serve *serve);
void command_debug_object(struct serve *serve);
void command_debug_log(struct serve *serve);

#endif /* IMPEL_SERVER_OWN_H */
