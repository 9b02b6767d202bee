/* call.h -- what the commands share: one command under way, how it ends, reading its words, and
 * building its reply.
 *
 * Functions that return bool return false when the command is over: an error reply has been set, or
 * `status` has (no memory, a failing store). Whoever gets false returns at once, so that each
 * command reads as the plain list of its steps. */
#ifndef IMPEL_STORE_LMDB_COMMAND_CALL_H
#define IMPEL_STORE_LMDB_COMMAND_CALL_H

#include "base/value.h"
#include "store/lmdb/command/command.h"
#include "store/lmdb/stream.h"

struct call;

enum command_flags {
    COMMAND_WRITES = 1,     /* may change something: needs a write transaction */
    COMMAND_CONTAINER = 2,  /* the second word is the command: XGROUP, XINFO */
    COMMAND_MAY_BLOCK = 4,  /* XREAD, XREADGROUP, BLPOP */
    COMMAND_SUBCOMMAND = 8, /* its name is in `name` as "xgroup|create" */
};

/* One row of the table. Keys are described as COMMAND INFO does. */
struct command {
    const char *name; /* lower case */
    int arity;        /* number of words, the name included; negative: at least that many */
    unsigned flags;
    int key_first; /* 0 = no keys */
    int key_last;  /* negative counts from the end */
    int key_step;
    void (*run)(struct call *call);
    const struct command *subcommands; /* of a container; ended by a row without a name */
};

/* The table, ended by a row without a name. */
extern const struct command lmdb_command_table[];

struct call {
    struct lmdb_txn *txn;
    struct request *request;
    struct arena *arena; /* the request's: all that the reply shows lives there */
    struct call_wait *wait;
    const struct command *command;
    const struct impel_bytes *args; /* args[0] is the name, as typed */
    size_t arg_count;
    struct value *reply;
    int status;       /* the first failure that no reply can tell; 0 while all is well */
    bool counts;      /* `changes` is what it changed; else the reply tells, see call_changed() */
    uint64_t changes; /* as Redis counts them */
};

/* ---- how a command ends; all return false ---- */

/* An error reply. CR and LF become blanks. */
bool call_error(struct call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool call_error_syntax(struct call *call);
bool call_error_arity(struct call *call);
/* A subcommand with words that it does not know. */
bool call_error_options(struct call *call);
/* "XGROUP" for any of its rows; returns `upper`, which has room for CALL_NAME_SIZE bytes. */
enum {
    CALL_NAME_SIZE = 16,
};
const char *call_container_name(const struct call *call, char *upper);
bool call_error_integer(struct call *call);
bool call_error_wrong_type(struct call *call);
/* Ends with a status: no memory, or what the store said. */
bool call_fail(struct call *call, int status);
/* "stream" and the like; "none" for a missing key. */
const char *key_type_name(enum lmdb_key_kind kind);
/* So much was changed, beside what was before. For commands whose reply does not tell: an integer
 * is what was changed, a null nothing, anything else one thing. */
void call_changed(struct call *call, uint64_t changes);
/* True if rc >= 0; else ends with it. */
bool call_check(struct call *call, int rc);

/* A span for "%.*s" in an error text: cut at a NUL, as Redis prints names. */
#define CALL_TEXT(BYTES) call_text_size(BYTES), call_text_data(BYTES)
int call_text_size(struct impel_bytes bytes);
const char *call_text_data(struct impel_bytes bytes);

/* ---- reading words (words.c) ---- */

/* The word at `index` is this option word, in any case. */
bool call_word_is(const struct call *call, size_t index, const char *word);
/* Strict decimal, 64 bits. False leaves `out` alone and sets no reply. */
bool word_integer(struct impel_bytes word, int64_t *out);
/* The same for the word at `index`; the usual error if it is none. */
bool call_integer(struct call *call, size_t index, int64_t *out);
/* An ID, completed with `seq_default`; "-" and "+" are refused. */
bool call_id(struct call *call, size_t index, uint64_t seq_default, struct impel_id *out);
/* An ID, or "-" or "+" for the smallest and the largest. */
bool call_id_loose(struct call *call, size_t index, uint64_t seq_default, struct impel_id *out);
/* The bounds of an interval, "(" making one exclusive; both come back inclusive. */
bool call_interval_start(struct call *call, size_t index, struct impel_id *out);
bool call_interval_end(struct call *call, size_t index, struct impel_id *out);
/* Strict IDs from the word at `first` to the last one, in the arena; NULL ends the command. */
struct impel_id *call_ids(struct call *call, size_t first);
/* "IDS numids id [id ...]" at `*index`, which is then the next word's. NULL ends the command. */
struct ids_errors {
    const char *number;  /* numids is none, or not positive */
    const char *too_few; /* fewer words follow */
};
struct impel_id *
call_numbered_ids(struct call *call, size_t *index, const struct ids_errors *errors, size_t *count);
bool call_error_id(struct call *call);
/* Parses without setting a reply. */
bool word_id(struct impel_bytes word, uint64_t seq_default, struct impel_id *out);

/* An idempotent ID as it is kept, apart from those that IDMPAUTO makes (add.c). */
bool call_iid_given(struct call *call, struct impel_bytes word, struct impel_bytes *out);

/* ---- finding what the words name (find.c) ---- */

/* The stream of a key; `*out` is NULL if there is no such key. Another type ends the command. */
bool call_stream(struct call *call, struct impel_bytes key, struct lmdb_stream **out);
/* The group of a stream; `*out` is NULL if the stream is NULL or has no such group. */
bool call_group(struct call *call,
                struct lmdb_stream *stream,
                struct impel_bytes name,
                struct lmdb_group **out);
/* Both, for the words `key group` at `index`; either missing is the usual NOGROUP error. */
bool call_key_and_group(struct call *call, size_t index, struct lmdb_group **out);
/* The consumer, created if need be, and seen now. */
bool call_consumer(struct call *call,
                   struct lmdb_group *group,
                   struct impel_bytes name,
                   struct lmdb_consumer **out);
/* Whether the entry of a pending row is still there; `raw` may be NULL. */
bool call_entry_exists(struct call *call,
                       struct lmdb_stream *stream,
                       struct impel_id id,
                       struct lmdb_raw *raw,
                       bool *exists);
/* The name of a row's owner; empty for nobody. */
bool call_owner_name(struct call *call,
                     struct lmdb_group *group,
                     uint64_t owner,
                     struct impel_bytes *name);

/* ---- building replies (reply.c). Where memory runs out they set `status` ---- */

void call_reply_integer(struct call *call, int64_t integer);
void call_reply_ok(struct call *call);
void call_reply_lines(struct call *call, const char *const *lines, size_t count); /* HELP */
/* A list of `count` nulls at `out`, to be filled in by index; NULL ends the command. */
struct value *call_list(struct call *call, struct value *out, enum value_kind kind, size_t count);
/* One null more at the end of a list begun with a count of 0; NULL ends the command. */
struct value *call_append(struct call *call, struct value *list);
bool call_bulk(struct call *call, struct value *out, struct impel_bytes bytes); /* copies */
bool call_bulk_id(struct call *call, struct value *out, struct impel_id id);
bool call_bulk_integer(struct call *call, struct value *out, uint64_t number); /* as text */
/* [ID, [field, value, ...]], copied out of the store's pages. */
bool call_entry(struct call *call, struct value *out, const struct lmdb_raw *raw);
/* At most `count` entries start <= id <= end, appended to a list begun with a count of 0. */
bool call_entries(struct call *call, struct value *list, struct lmdb_walk *walk, uint64_t count);

#endif /* IMPEL_STORE_LMDB_COMMAND_CALL_H */
