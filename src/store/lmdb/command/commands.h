/* commands.h -- what the table points to, one function a command. Each leaves a reply or a status
 * in the call; its file tells the grammar. */
#ifndef IMPEL_STORE_LMDB_COMMAND_COMMANDS_H
#define IMPEL_STORE_LMDB_COMMAND_COMMANDS_H

struct call;

/* add.c, trim.c */
void call_xadd(struct call *call);
void call_xtrim(struct call *call);

/* cfgset.c */
void call_xcfgset(struct call *call);

/* idmprecord.c */
void call_xidmprecord(struct call *call);

/* delex.c */
void call_xdelex(struct call *call);
void call_xackdel(struct call *call);

/* nack.c */
void call_xnack(struct call *call);

/* entries.c */
void call_xlen(struct call *call);
void call_xrange(struct call *call);
void call_xrevrange(struct call *call);
void call_xdel(struct call *call);
void call_xsetid(struct call *call);

/* read.c */
void call_xread(struct call *call);
void call_xreadgroup(struct call *call);

/* pending.c */
void call_xack(struct call *call);
void call_xpending(struct call *call);

/* claim.c */
void call_xclaim(struct call *call);
void call_xautoclaim(struct call *call);

/* group.c */
void call_xgroup_create(struct call *call);
void call_xgroup_setid(struct call *call);
void call_xgroup_destroy(struct call *call);
void call_xgroup_createconsumer(struct call *call);
void call_xgroup_delconsumer(struct call *call);
void call_xgroup_help(struct call *call);

/* info.c */
void call_xinfo_stream(struct call *call);
void call_xinfo_groups(struct call *call);
void call_xinfo_consumers(struct call *call);
void call_xinfo_help(struct call *call);

/* keys.c */
void call_del(struct call *call);
void call_exists(struct call *call);
void call_type(struct call *call);
void call_keys(struct call *call);
void call_dbsize(struct call *call);
void call_flush(struct call *call);

/* others.c */
void call_set(struct call *call);
void call_get(struct call *call);
void call_lpush(struct call *call);
void call_sadd(struct call *call);
void call_blpop(struct call *call);

/* expire.c */
void call_expire(struct call *call);
void call_pexpire(struct call *call);
void call_expireat(struct call *call);
void call_pexpireat(struct call *call);
void call_ttl(struct call *call);
void call_pttl(struct call *call);
void call_expiretime(struct call *call);
void call_pexpiretime(struct call *call);
void call_persist(struct call *call);

/* move.c */
void call_rename(struct call *call);
void call_renamenx(struct call *call);
void call_copy(struct call *call);

/* dump.c, restore.c */
void call_dump(struct call *call);
void call_restore(struct call *call);

/* object.c */
void call_object_encoding(struct call *call);
void call_object_refcount(struct call *call);
void call_object_idletime(struct call *call);
void call_object_freq(struct call *call);
void call_object_help(struct call *call);
void call_memory_usage(struct call *call);

/* scan.c */
void call_scan(struct call *call);
void call_randomkey(struct call *call);

/* connection.c */
void call_ping(struct call *call);
void call_echo(struct call *call);
void call_time(struct call *call);

#endif /* IMPEL_STORE_LMDB_COMMAND_COMMANDS_H */
