/* suite.h -- the conformance suite's fixture: one fresh store a test, and requests in a line.
 *
 * The tests know the port (store/store.h) and nothing of the store behind it. Time belongs to the
 * store: suite_pause() lets a little of it pass, and tests wait for what they expect with a
 * deadline, so the same tests run on a clock that is set and on one that ticks. */
#ifndef SUITE_H
#define SUITE_H

#include "base/value.h"
#include "store/store.h"
#include "tap.h"

/* One store under test. Adding a store is adding a row in stores.c. */
struct suite_store {
    const char *name;
    /* Makes an empty store; `*context` is the row's own. NULL: cannot be had here (`why`). */
    struct store *(*open)(void **context, const struct store_env *env, const char **why);
    /* Another handle of the same store, as another process would have. */
    struct store *(*open_again)(void *context, const struct store_env *env);
    /* After all handles were closed. */
    void (*remove)(void *context);
    int64_t (*now_ms)(void *context); /* the driver's clock */
    void (*pause)(void *context, int64_t ms);
};
extern const struct suite_store suite_stores[];
extern const size_t suite_stores_count;

int suite_main(int argc, char **argv);

/* A worker, a sweep (no name) or another program, as it speaks in requests. */
struct who {
    struct impel_bytes name;
    uint8_t token;
    int64_t dead_after_ms;
};

enum {
    SUITE_WAIT_MS = 30000, /* patience for what must happen; never reached where it does */
    ALIVE_MS = 600000,     /* of workers that are not */
};

extern struct store *suite_handle;
extern size_t suite_wakes; /* how often the store asked for a turn */

/* Of workers that are to be seen dead. A machine that stands still for half of it lets nobody look dead, so it
 * is as much longer as $IMPEL_TEST_SLOWNESS says that all is slower. */
int64_t suite_dead_after_ms(void);

void suite_begin(void); /* first line of every test */
struct store *suite_second_handle(void);
void suite_close_second_handle(void);
int64_t suite_now_ms(void);
void suite_pause(int64_t ms);
bool suite_overdue(int64_t since_ms);

/* A request that the suite frees at the end of the test. */
struct request *ask(enum request_kind kind, const char *stream, const char *group);
struct request *
ask_as(enum request_kind kind, const char *stream, const char *group, struct who who);
void give(struct request *request); /* submits */
void give_to(struct store *store, struct request *request);
bool answered(const struct request *request);
int await(struct request *request); /* turns until it is done; its status */
int run(struct request *request);   /* give and await */

struct who worker(const char *name, uint8_t token); /* does not die in a test */
struct who mortal(const char *name,
                  uint8_t token); /* may be seen dead after suite_dead_after_ms() */
struct who foreign(const char *name);
struct who nobody(void); /* a sweep without a worker */

struct impel_bytes span(const char *text); /* bytes_of, short */
struct impel_id id_of(uint64_t ms, uint64_t seq);
bool same(struct impel_bytes bytes, const char *text);

/* ---- scenes: each checks that it succeeded ---- */

struct request *add_request(const char *stream, struct impel_id id); /* not submitted */
size_t length_of(const char *stream);                                /* 0 if it is missing */
struct impel_id add(const char *stream, struct impel_id id, const char *value); /* field "f" */
void group_make(const char *stream, const char *group);
void beat(const char *stream, const char *group, struct who who);
enum beat_result beat_result(const char *stream, const char *group, struct who who, bool first);
/* Reads up to `count` new entries; returns the request. */
struct request *read_new(const char *stream, const char *group, struct who who, uint32_t count);
/* `n` entries 1-0 .. n-0 in stream "s", group "g", all read by `who`, who has beaten if it has a
 * token. */
void scene(struct who who, uint64_t n);
/* A command as redis-cli would give it, words separated by blanks; false if the store refused it. */
bool command(const char *line);
/* The store is a server that refuses such a command, because it is too old for it. */
bool server_lacks(const char *line);
/* A server before 7.0. What it answers otherwise stands in tests/lib/versions.py; here, whoever reads a stream
 * that is removed is not told, and waits on. Needs the group g of s. */
bool server_before_7(void);
/* The pending row of `id` in s/g; NULL if there is none. Lives as long as the test. */
const struct pending_row *row_of(struct impel_id id);
size_t pending_of(const char *owner); /* rows of that consumer in s/g */
/* Beats as `judge` until it sees `name` dead in s/g. */
void await_dead(struct who judge, const char *name);
struct request *look(struct who who, unsigned flags);
const struct look_owner *look_at(const struct request *look, const char *name);
/* The stream's entries from the start, at most 1000. */
struct request *entries_of(const char *stream);
struct impel_bytes field_of(const struct entry *entry,
                            const char *name); /* the last of that name */
/* A request on items of s/g: the IDs 1-0 .. n-0 with `deliveries`. */
struct request *items(enum request_kind kind, struct who who, uint64_t n, int64_t deliveries);
/* Walks a PEL of s/g with the default policy, no backoff and min-idle 0; not submitted. */
struct request *claim_from(struct who who, const char *owner);

#endif /* SUITE_H */
