/* state.h -- what the files of the server share: the server, its clients, the turn.
 *
 * A TURN. Read callbacks only fill input buffers and put clients on the ready list. After each poll
 * of the loop turn_run() takes them in order: parses, carries out, appends replies to output
 * buffers, all in one transaction; then it commits and lets the outputs go. Everything that touched
 * the store in this turn is in the journal: if the transaction breaks, each is carried out again
 * alone, so that only the guilty one gets the error. */
#ifndef IMPEL_SERVER_STATE_H
#define IMPEL_SERVER_STATE_H

#include "net/tls.h"
#include "resp/resp.h"
#include "server/engine.h"
#include "server/native.h"
#include "server/server.h"

#include <uv.h>

struct client;
struct server;
struct serve;

/* ---- links: intrusive lists with a head that is a link itself ---- */

struct link {
    struct link *next, *previous; /* of a head: the first and the last; of a loose one: NULL */
};
static inline void link_init(struct link *head)
{
    head->next = head->previous = head;
}
static inline bool link_empty(const struct link *head)
{
    return head->next == head;
}
static inline void link_append(struct link *head, struct link *link)
{
    link->next = head;
    link->previous = head->previous;
    head->previous->next = link;
    head->previous = link;
}
static inline void link_remove(struct link *link)
{
    if (link->next != NULL) {
        link->next->previous = link->previous;
        link->previous->next = link->next;
        link->next = link->previous = NULL;
    }
}
#define LINK_OF(LINK, TYPE, FIELD) ((TYPE *)(void *)((char *)(LINK)-offsetof(TYPE, FIELD)))

/* ---- commands ---- */

enum row_flags {
    ROW_WRITES = 1,
    ROW_MAY_BLOCK = 2,
    ROW_CONTAINER = 4,   /* the second word is the command */
    ROW_SUBCOMMAND = 8,  /* named "client|id" */
    ROW_NO_AUTH = 16,    /* may be sent before the password */
    ROW_NOT_QUEUED = 32, /* MULTI does not queue it */
    ROW_LOCAL = 64,      /* for clients on this machine only */
    ROW_ADMIN = 128,
    ROW_READS = 256,    /* the server's own, but looks at the store */
    ROW_IS_EXEC = 512,  /* the one command that is many */
    ROW_EXPIRES = 1024, /* may change when a key expires */
    ROW_TOUCHES = 2048, /* WATCH sees it even where it leaves the key as it was */
    ROW_KEYS = 4096,    /* the server's own, and all its words are keys */
};

enum {
    ROW_NAME_SIZE = 32,
};

/* What the server itself answers. The store's own commands come from its table. */
struct row_spec {
    const char *name;
    int arity;
    unsigned flags;
    void (*run)(struct serve *serve);
};
extern const struct row_spec row_specs[]; /* ended by a row without a name */

struct row {
    char name[ROW_NAME_SIZE];
    size_t name_size;
    int arity;
    unsigned flags;
    int key_first, key_last, key_step;
    void (*run)(struct serve *serve); /* NULL: the store carries it out */
    const struct native *native;      /* one of the port's steps; else NULL */
    const struct command *command;    /* one of the store's; else NULL */
    uint64_t calls, usec, rejected, failed;
};

struct row_table {
    struct row *rows;
    size_t count;
    uint16_t *slots; /* index + 1 by hash of the name; a power of two of them */
    size_t slot_count;
};
int row_table_init(struct row_table *table);
void row_table_release(struct row_table *table);
/* By lower-case name, NULL if there is none. */
struct row *row_find(const struct row_table *table, struct impel_bytes name);
/* Finds the row of a command and checks the number of words. NULL: an error was appended. */
struct row *
row_for(struct server *server, const struct impel_bytes *args, size_t arg_count, struct buf *out);
/* The name of its container in capitals, in `upper`, which has room for ROW_NAME_SIZE bytes. */
const char *row_container_upper(const struct row *row, char *upper);
/* The keys among the words: calls `each` for every one. False if the command names none. */
bool row_keys(const struct row *row,
              const struct impel_bytes *args,
              size_t arg_count,
              void (*each)(void *user, struct impel_bytes key),
              void *user);

/* One command of the server's own under way. */
struct serve {
    struct server *server;
    struct client *client;
    const struct row *row;
    const struct impel_bytes *args;
    size_t arg_count;
    struct buf *out; /* the client's */
    int version;     /* RESP */
    bool nested;     /* inside EXEC */
};

/* ---- clients ---- */

enum client_flags {
    CLIENT_CLOSE_AFTER = 1, /* closed once its output has left */
    CLIENT_CLOSING = 2,     /* uv_close() was called */
    CLIENT_UNIX = 4,
    CLIENT_MULTI = 8,
    CLIENT_MULTI_BAD = 16, /* EXEC will refuse */
    CLIENT_SILENT = 32,    /* CLIENT REPLY OFF */
    CLIENT_SKIP_NEXT = 64, /* CLIENT REPLY SKIP was just given */
    CLIENT_SKIP = 128,     /* this command's reply is left out */
    CLIENT_NO_EVICT = 256,
    CLIENT_NO_TOUCH = 512,
    CLIENT_BLOCKED = 1024,
    CLIENT_UNPRIVILEGED = 2048, /* the password has not been given */
    CLIENT_LOCAL = 4096,        /* from loopback or a unix socket */
    CLIENT_ENDED = 8192,        /* it has said that nothing follows */
};

/* A command with its own copy of its words. */
struct queued {
    struct row *row;
    struct impel_bytes *args;
    size_t arg_count;
};

struct multi {
    struct arena arena;
    struct queued *items;
    size_t count, room;
    size_t size_bytes;
};

struct watch {
    struct impel_bytes key;
    struct key_print print; /* as it was when it was watched */
    bool dirty;
};

/* A client's place among those who wait for a key. */
struct wait_place {
    struct link link; /* of the key's list */
    struct wait_key *key;
    struct client *client;
};

struct wait {
    struct arena arena; /* all of this */
    struct row *row;
    const struct impel_bytes *args;
    size_t arg_count;
    bool grouped;                       /* XREADGROUP */
    struct impel_bytes group, consumer; /* XREADGROUP */
    struct wait_place *places;
    size_t place_count;
    uint64_t begun_us;   /* what it took before it blocked */
    bool failed;         /* no memory for a place */
    bool claims;         /* XREADGROUP with CLAIM: what it waits for may come with time alone */
    bool pops;           /* BLPOP */
    int64_t deadline_ms; /* of the loop; INT64_MAX = none */
};

struct client {
    struct server *server;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    uv_timer_t timer; /* the deadline of its handshake, its BLOCK (or next try), its goodbye */
    uv_write_t write;
    int handles; /* that are not closed yet */
    unsigned flags;
    uint64_t id;
    int version; /* RESP */
    char address[64], local_address[64];
    struct impel_bytes name, lib_name, lib_version; /* malloc'ed */
    int64_t created_ms, active_ms;                  /* of the loop */
    const struct row *last_row;

    struct link all;      /* of server->clients */
    struct link ready;    /* of server->ready: has input to be looked at */
    struct link dirty;    /* of server->dirty: has output to be let go */
    struct link waits;    /* of server->waiting */
    struct link watching; /* of server->watching: has watches */

    struct buf in;
    size_t in_at; /* what stands before this is done with */
    struct resp_request_scan scan;
    struct buf out;     /* replies of this turn, and what could not leave yet */
    struct buf sending; /* given to the kernel */
    bool is_sending;
    struct tls *tls; /* NULL: the socket has plain bytes */
    struct buf wire; /* what TLS made of `out` */

    struct multi multi;
    struct watch *watches;
    size_t watch_count, watch_room;
    struct wait wait; /* with CLIENT_BLOCKED */

    struct buf redo; /* journal.c: the output of a turn that is done again */
    size_t redo_at;
    bool is_redoing;
};

/* ---- the turn ---- */

/* Something that touched the store in this turn. */
struct turn_op {
    struct client *client;
    struct row *row;
    const struct impel_bytes *args;
    size_t arg_count;
    const struct multi *multi; /* EXEC: what to carry out; in `owned_multi` */
    size_t out_start, out_end; /* its reply in client->out */
    bool waited;               /* the repetition of a command that had blocked */
    bool again;                /* done again, alone: it may not block now */
    bool blocked;              /* it gave no reply: it blocked, for so long */
    int64_t block_ms;
    int64_t again_ms;   /* blocked: to be tried again after so long; INT64_MAX = need not */
    struct arena owned; /* what it refers to and nobody else keeps */
    struct multi owned_multi;
};

struct journal {
    struct turn_op *ops;
    size_t count, room;
    struct arena arena; /* the words of requests */
};

struct error_count {
    char code[32];
    uint64_t count;
};

enum {
    ERROR_CODES_MAX = 128,
};

struct server_stats {
    uint64_t connections, commands, errors, rejected_connections;
    uint64_t input_bytes, output_bytes;
    uint64_t turns, commits, redone;
    uint64_t changes; /* rdb_changes_since_last_save */
    uint64_t cut_slow, cut_full, failed_handshakes;
    struct error_count codes[ERROR_CODES_MAX];
    size_t code_count;
};

struct listener {
    struct server *server;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    bool is_unix, is_tls;
    bool is_open;
    char text[128];
};

enum {
    LISTENERS_MAX = 16,
};

struct server {
    struct server_options options;
    char *path, *unix_path, *password;
    char *tls_cert, *tls_key, *tls_ca;
    struct tls_context *tls;  /* NULL: plain TCP */
    char arrived[64 * 1024];  /* what one read has brought, before it is decrypted or kept */
    struct env_options store; /* its path is `path` */
    uv_loop_t loop;
    bool loop_open;
    uv_check_t check;
    uv_idle_t idle;
    uv_timer_t tick;
    uv_timer_t expiry;
    uv_async_t wake;
    uv_signal_t signals[3];
    struct listener listeners[LISTENERS_MAX];
    size_t listener_count;
    int tcp_port;
    bool stopping;

    struct engine engine;
    struct row_table rows;
    struct journal journal;
    struct link clients, ready, dirty, waiting, watching;
    size_t client_count, blocked_count;
    size_t watch_count; /* over all clients */
    uint64_t next_client_id;
    struct wait_table *wait_table;
    bool wake_all;                   /* another process wrote: every waiter looks again */
    bool expiry_due, expiry_unknown; /* of the next key to expire */
    int64_t paused_until_ms;         /* CLIENT PAUSE */
    bool paused_writes_only;

    uint64_t freed_bytes;  /* of clients, since the heap was trimmed */
    int64_t trim_after_ms; /* and when it may be again */

    uint64_t clock_ns;    /* uv_hrtime() when the last command ended, and so the next one began */
    uint64_t requests_ns; /* when the first of this turn began */
    int64_t now_ms;       /* of this turn, monotonic */
    int64_t started_ms;
    int64_t started_unix_s;
    struct server_stats stats;
    char run_id[41];
};

/* ---- server.c ---- */
void server_log(struct server *server, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The loop must not sleep: something is ready or dirty. */
void server_kick(struct server *server);
void server_stop(struct server *server);
/* Reads the clock: a command has ended. */
uint64_t server_clock(struct server *server);
/* CLIENT PAUSE: is this command held back now? */
bool server_holds(const struct server *server, const struct row *row);
void server_pause(struct server *server, int64_t duration_ms, bool writes_only);

/* ---- heap.c ---- */
/* Sets what the allocator may keep. */
void heap_limit(void);
/* Clients have freed so much in one piece. */
void heap_freed(struct server *server, size_t size);
/* Once a tick: gives it back, if it is worth it. */
void heap_tick(struct server *server, int64_t now_ms);
/* What is in use; 0 = the C library does not tell. */
size_t heap_used(void);

/* ---- trap.c ---- */
/* Damage that LMDB stumbles over ends the process with a word of what it is; any other crash names the
 * file that may be the cause, and goes on. One server at a time. */
void trap_set(struct server *server);
void trap_release(void);

/* ---- expiry.c ---- */
/* Deletes what has expired. IMPEL_OK, IMPEL_ERR_BUSY, or what broke the transaction. */
int expiry_run(struct server *server);
/* Between transactions: finds out when the next key expires. */
void expiry_plan(struct server *server);

/* ---- listen.c ---- */
int listen_open(struct server *server, struct impel_error *err);
/* Reads the certificates; for new connections, where there were some already. */
int listen_tls(struct server *server, struct impel_error *err);
void listen_close(struct server *server);

/* ---- client.c ---- */
void client_accept(struct listener *listener);
/* Starts to close; the client lives until the loop has closed its handles. */
void client_close(struct client *client);
void client_ready(struct client *client); /* has input */
void client_dirty(struct client *client); /* has output */
/* ---- client_io.c ---- */
int client_read_start(struct client *client);
/* Closes once the output has left, or after a while. */
void client_close_after(struct client *client);
void client_flush(struct client *client); /* lets the output go */
/* Frees a buffer of a client, and counts that. */
void client_give_back(struct client *client, struct buf *buf);
/* Gives back what the buffers of a client at rest hold. */
void client_shrink(struct client *client);

/* ---- client.c, in words ---- */
/* `id=... addr=...`, as CLIENT LIST shows it. */
void client_describe(const struct client *client, struct buf *out);

/* ---- turn.c ---- */
void turn_run(struct server *server);
/* An error reply, counted. */
void turn_error(struct server *server, struct buf *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void turn_count_error(struct server *server, struct impel_bytes text);
/* A command was carried out, for commandstats; a blocked one when its wait ends. */
void turn_count_call(struct server *server, struct row *row, uint64_t usec);

/* ---- dispatch.c ---- */
/* Carries out one request of a client. 1 = done (or queued, or blocked), 0 = not now: the store's
 * lock is held by somebody else, or the transaction broke; ask again. -1 = held back until the end
 * of CLIENT PAUSE. */
int dispatch(struct client *client, struct impel_bytes *args, size_t arg_count);
/* Carries an op out and appends its reply. IMPEL_OK, or the status with which the transaction
 * broke. */
int dispatch_op(struct server *server, struct turn_op *op);
int dispatch_exec(struct client *client, struct row *row); /* as dispatch() */

/* ---- journal.c ---- */
/* The last op is only valid until the next is added. NULL if memory is out. */
struct turn_op *journal_add(struct server *server, struct client *client);
void journal_drop_last(struct server *server);
void journal_clear(struct server *server);
/* Commits the turn; if that fails, or a status says that it cannot, carries out each op alone. */
void journal_commit(struct server *server, int status);

/* ---- multi.c ---- */
bool multi_queue(struct client *client,
                 struct row *row,
                 const struct impel_bytes *args,
                 size_t arg_count);
void multi_release(struct multi *multi);
void multi_discard(struct client *client); /* and the watches */
void watch_release(struct client *client);
/* In the transaction: has a watched key changed? */
bool watch_touched(struct client *client);
/* Those who watch the key are told if it is not what it was (`server` is a struct server). */
void watch_check(void *server, struct impel_bytes key);
/* ... even if it is: it was written to. */
void watch_touch(void *server, struct impel_bytes key);
/* After a command that changes a key in a way that WATCH must not see: who had nothing to be told before,
 * takes the key as it is now. */
void watch_refresh(struct server *server, struct impel_bytes key);
void command_multi(struct serve *serve);
void command_discard(struct serve *serve);
void command_watch(struct serve *serve);
void command_unwatch(struct serve *serve);

/* ---- wait.c ---- */
int wait_init(struct server *server);
void wait_release(struct server *server);
/* Blocks the client on the keys of its command. IMPEL_ERR_NOMEM. */
int wait_begin(struct client *client, const struct turn_op *op, const struct impel_bytes *args);
/* Forgets that the client waits; its words go to `owned` (may be NULL). */
void wait_end(struct client *client, struct arena *owned);
/* A key has been signalled / all have. */
void wait_signal(struct server *server, struct impel_bytes name);
void wait_signal_all(struct server *server);
bool wait_is_signalled(const struct server *server);
/* Tries those who wait for signalled keys. IMPEL_OK or what broke the transaction. */
int wait_serve(struct server *server);
/* Ends the wait as if its time were up, or with an error reply. */
void wait_give_up(struct client *client, const char *error);
void wait_keys_count(const struct server *server, uint64_t *keys, uint64_t *keys_on_nokey);

#endif /* IMPEL_SERVER_STATE_H */
