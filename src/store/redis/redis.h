/* redis.h -- the Redis store's insides: a store with two links, and operations on them.
 *
 *   submit ──► queued ──turn──► op ──► link: sent, in order ──replies──► done ──turn──► request->done
 *                                └──► waits while the link is down
 *
 * An *op* is a request on its way, or something the store does for itself. Its kind writes commands
 * (send) and reads their replies (take); an op may go through several stages of both. A *link* is a
 * connection that is made again for ever: `main` for everything, `read` for reads that block. */
#ifndef IMPEL_STORE_REDIS_REDIS_H
#define IMPEL_STORE_REDIS_REDIS_H

#include "base/value.h"
#include "net/net.h"
#include "resp/resp.h"
#include "store/redis/script.h"
#include "store/redis/url.h"
#include "store/store.h"

enum {
    RUN_ID_SIZE = 41,
    LINK_STEPS_MAX = 10,
    EVENTS_MAX = 8, /* said at the next turn; more than that between two turns are not said */
    READ_MARGIN_MS = 5000, /* a blocked read may be answered this much late, or by its timeout */
    READ_SIZE_SMALL = 1024 * 1024,
};

struct redis_store;
struct link;
struct op;

enum op_next {
    OP_DONE,  /* the request is finished */
    OP_MORE,  /* there are more replies to this stage */
    OP_AGAIN, /* `stage` has been changed: send that */
};

struct op_kind {
    const char *name;
    /* Appends the commands of op->stage; returns how many replies they have, or a failure. */
    int (*send)(struct op *op, struct buf *out);
    /* Takes reply number op->taken of the stage. The value lives during the call only. */
    enum op_next (*take)(struct op *op, const struct value *reply);
    /* Instead of the reply, the link was lost. NULL for requests, which fail with `err`. */
    void (*lost)(struct op *op, const struct impel_error *err);
    void (*forget)(
        struct op *op); /* frees what op->user holds, before the op itself; may be NULL */
};

struct op {
    const struct op_kind *kind;
    struct redis_store *store;
    struct request *request; /* NULL for the store's own */
    struct link *link;       /* where it is sent or waits */
    struct op *next;
    unsigned stage;
    unsigned replies, taken; /* of this stage */
    bool sent;
    bool by_text;      /* the server does not know the script by name: send its text */
    bool cancelled;    /* a READ that is to end now */
    bool orphaned;     /* a READ whose connection broke, and which that was: */
    int64_t client_id; /* also, in a greeting, the one that the server gave */
    char run_id[RUN_ID_SIZE];
    void *user; /* of the kind */
};

struct op_list {
    struct op *first, **last;
};

enum link_state {
    LINK_IDLE,       /* nobody has asked for it */
    LINK_PAUSED,     /* waits before the next attempt */
    LINK_CONNECTING, /* the socket, then the greeting */
    LINK_READY,
    LINK_CLOSED,
};

struct link {
    struct redis_store *store;
    const char *name; /* what CLIENT LIST shows, after "impel" */
    enum link_state state;
    struct net_conn *conn;
    uv_timer_t timer;
    struct op_list sent;    /* await replies, in order */
    struct op_list waiting; /* until it is ready */
    struct op greeting;
    uint8_t steps[LINK_STEPS_MAX]; /* of the greeting, in the order of its replies */
    struct resp_scan scan;
    struct arena arena;       /* of one reply */
    int64_t client_id;        /* of this connection, or of the last one */
    char run_id[RUN_ID_SIZE]; /* of the server that gave it */
    unsigned attempts;        /* that failed since it was ready */
    uint64_t down_since_ms;
    bool said_down, said_unreachable;
};

struct redis_store {
    struct store store;
    struct store_env env;
    struct redis_url url;
    uv_loop_t *loop;
    uv_loop_t own_loop;
    bool own;         /* `loop` is own_loop, and turn() runs it */
    uv_timer_t slice; /* bounds such a run */
    struct link main, read;
    struct request *queued_first, **queued_last;
    struct request *done_first, **done_last;
    bool woken;         /* since the last turn */
    size_t outstanding; /* requests that are neither queued nor done */
    struct op_list
        orphans;       /* READs whose connection broke: finished when that is killed for good */
    unsigned unblocks; /* CLIENT UNBLOCKs under way: no read is sent meanwhile */
    bool old;          /* before 6.2, or nothing is known */
    bool native;       /* an `impel serve`: it has a command for each script */
    bool greeted;      /* by a Redis, at least once */
    bool said_evicts;  /* that the server's maxmemory-policy endangers streams */
    int64_t clock_offset_ms; /* the server's wall clock - ours */
    uint64_t seed;
    struct buf command; /* the one that is being written */
    size_t command_args;
    struct impel_field *fields; /* scratch, of one entry */
    size_t field_room;
    size_t entry_bytes; /* what an entry weighed lately: to turn a size into a COUNT */
    char script_names[SCRIPT_COUNT][SHA1_TEXT_SIZE];
    struct {
        const char *name;
        int level;
        char text[400];
    } events[EVENTS_MAX];
    size_t event_count;
    unsigned closing; /* handles that still have to be closed */
};

/* ---- store.c ---- */

void store_say(struct redis_store *store, const char *name, int level, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The request of the op is finished with `status`; frees the op. */
void op_finish(struct op *op, int status);
void op_fail(struct op *op, const struct impel_error *err);
/* Sends an op over a link, or keeps it until the link is ready. */
void op_submit(struct op *op, struct link *link);
struct op *op_new(struct redis_store *store, const struct op_kind *kind, struct request *request);
void op_list_init(struct op_list *list);
void op_push(struct op_list *list, struct op *op);
struct op *op_pop(struct op_list *list);
bool op_remove(struct op_list *list, const struct op *op);
void store_link_ready(struct link *link);
/* A READ had been sent over a connection that is gone: see to it that it has no effect any more. */
void store_orphan(struct op *op);

/* ---- link.c ---- */

void link_init(struct link *link, struct redis_store *store, const char *name);
/* Reads what a URL with TLS names. */
int link_tls(const struct redis_url *url, struct tls_context **out, struct impel_error *err);
void link_start(struct link *link); /* connects, if nothing is under way */
void link_send(struct link *link, struct op *op);
void link_flush(struct link *link);
/* Ends it; ops go to `ops` to be finished by the caller. */
void link_close(struct link *link, struct op_list *ops);

/* ---- command.c: writing commands, reading values ---- */

void cmd_begin(struct op *op);
void cmd_text(struct op *op, const char *text);
void cmd_bytes(struct op *op, struct impel_bytes bytes);
void cmd_number(struct op *op, int64_t number);
void cmd_id(struct op *op, struct impel_id id);
void cmd_end(struct op *op, struct buf *out);
/* Begins a script: its name or text, keys, and the five arguments that all have. */
void cmd_script(struct op *op, enum script_name script, struct impel_bytes dead_letter);
/* A key that the group has beside its stream, in the same slot: 'w' the workers table, 'a' the
 * attempts of requeued entries. */
struct impel_bytes helper_key(struct op *op, struct impel_bytes stream, char kind);

/* The i-th element, or a null value where there is none. */
const struct value *item(const struct value *array, size_t i);
int64_t item_number(const struct value *array, size_t i); /* integers and their text; saturates */
bool item_id(const struct value *array, size_t i, struct impel_id *out);
struct impel_bytes item_bytes(const struct value *array, size_t i);
/* A new entry from a flat array of names and values; NULL if memory is out or it is none. */
struct entry *
entry_of(struct redis_store *store, const struct value *id, const struct value *fields);
void op_refusal(const struct op *op, const struct value *reply, struct impel_error *err);
/* Finishes the op with an error reply's meaning. Returns OP_DONE. */
enum op_next op_refused(struct op *op, const struct value *reply);
/* The error of a connection that ended over a request, with what it says where that was large. */
struct impel_error op_say_large(const struct op *op, const struct impel_error *err);
enum op_next op_garbled(struct op *op); /* the same for a reply that makes no sense */
/* For answers of scripts: takes over the store's time (element 0); false and finished if the reply
 * is an error or no array. */
bool script_answered(struct op *op, const struct value *reply);

/* ---- refusal.c ---- */

/* What an error reply means. */
int reply_status(struct impel_bytes text);
/* The part of it that is for people: without the place in a script. */
struct impel_bytes refusal_words(struct impel_bytes text);

/* ---- the kinds ---- */

extern const struct op_kind op_add, op_ack, op_strict_ack, op_range, op_info, op_group, op_trim,
    op_trim_done, op_call, op_pending;                                      /* plain.c */
extern const struct op_kind op_read, op_read_many;                          /* read.c */
extern const struct op_kind op_beat, op_look, op_leave, op_drop, op_create; /* table.c */
extern const struct op_kind op_claim;                                       /* claim.c */
extern const struct op_kind op_take, op_renew, op_release;                  /* items.c */
extern const struct op_kind op_park;                                        /* park.c */
extern const struct op_kind op_replay;                                      /* replay.c */

/* Kinds that a request begins with; NULL for one that this store does not know. */
const struct op_kind *op_kind_of(const struct request *request);

/* The MULTI that parks or requeues what is too large for a script: XADD, then settle.lua. */
struct large {
    struct impel_id id;
    struct impel_bytes owner;
    int64_t deliveries; /* of the row: the fence */
    int64_t total;      /* with what the entry carries */
    bool requeue;       /* to its own stream, as it is; else to the dead-letter stream */
    int64_t last_active_ms, parked_ms;
    struct impel_bytes reason, error;
    struct impel_bytes row; /* the owner's, as it was seen; with `mine` not used */
    bool mine;
    struct entry *entry; /* owned */
    void *result;        /* of the kind */
};
enum {
    PARK_REPLIES = 5, /* MULTI, settle.lua before, XADD, settle.lua, EXEC */
};
unsigned large_send(struct op *op,
                    const struct large *large,
                    struct impel_bytes dead_letter,
                    struct buf *out);
/* Takes reply number op->taken of those. True when it was the last: then `*result` is an
 * item_result, `copy` the ID of the copy where it is ITEM_DONE, and `why` says why of ITEM_FAILED. */
bool large_take(struct op *op,
                const struct value *reply,
                int *result,
                struct impel_id *copy,
                struct impel_error *why);

#endif /* IMPEL_STORE_REDIS_REDIS_H */
