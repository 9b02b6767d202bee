/* commands.h -- what the table points to, one function a command. Each leaves a reply or a status
 * in the call; its file tells the grammar. */
#ifndef IMPEL_STORE_LMDB_COMMAND_COMMANDS_H
#define IMPEL_STORE_LMDB_COMMAND_COMMANDS_H

struct call;

/* add.c, trim.c */
void command_xadd(struct call *call);
void command_xtrim(struct call *call);

/* entries.c */
void command_xlen(struct call *call);
void command_xrange(struct call *call);
void command_xrevrange(struct call *call);
void command_xdel(struct call *call);
void command_xsetid(struct call *call);

/* read.c */
void command_xread(struct call *call);
void command_xreadgroup(struct call *call);

/* pending.c */
void command_xack(struct call *call);
void command_xpending(struct call *call);

/* claim.c */
void command_xclaim(struct call *call);
void command_xautoclaim(struct call *call);

/* group.c */
void command_xgroup_create(struct call *call);
void command_xgroup_setid(struct call *call);
void command_xgroup_destroy(struct call *call);
void command_xgroup_createconsumer(struct call *call);
void command_xgroup_delconsumer(struct call *call);
void command_xgroup_help(struct call *call);

/* info.c */
void command_xinfo_stream(struct call *call);
void command_xinfo_groups(struct call *call);
void command_xinfo_consumers(struct call *call);
void command_xinfo_help(struct call *call);

/* keys.c */
void command_del(struct call *call);
void command_exists(struct call *call);
void command_type(struct call *call);
void command_keys(struct call *call);
void command_dbsize(struct call *call);
void command_set(struct call *call);
void command_get(struct call *call);
void command_flush(struct call *call);

/* connection.c */
void command_ping(struct call *call);
void command_echo(struct call *call);
void command_time(struct call *call);

#endif /* IMPEL_STORE_LMDB_COMMAND_COMMANDS_H */
