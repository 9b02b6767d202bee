/* bench_plain.c -- what a queue by hand costs: a loop over LMDB that keeps the rows a consumer group
 * needs (each pending entry in two orders, a row with counters for the group and for each consumer),
 * in transactions of the same size, and does nothing else. No liveness, no fences, no verdicts, no
 * requests; but a row for each entry, where the store has blocks (store/lmdb/block.h). */
#include "cli/bench.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_SIZE = 24, /* number, ms, seq */
    STREAM = 1,
    GROUP = 2,
    OWNER = 3, /* who left the entries */
    TAKER = 4, /* who takes them */
};
#define MAP_SIZE ((size_t)1 << 36)

struct pending {
    uint64_t owner;
    int64_t delivered_ms;
    int64_t deliveries;
};

struct counters {
    uint64_t pending, last_ms, last_seq;
    int64_t seen_ms;
    uint64_t rest[2];
};

struct plain {
    const struct bench_case *bench;
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi catalog, entries, pel, owned;
    uint64_t next;      /* the next entry to be taken */
    uint64_t ack_first; /* the batch that is to be acknowledged */
    uint64_t ack_count;
    int rc; /* sticky: the first error */
};

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void bench_settle(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

static void make_key(uint8_t *key, uint64_t number, uint64_t ms)
{
    uint64_t words[3] = {htobe64(number), htobe64(ms), 0};
    memcpy(key, words, KEY_SIZE);
}

static void put(struct plain *plain, MDB_dbi dbi, const uint8_t *key, const void *data, size_t size)
{
    MDB_val k = {KEY_SIZE, (void *)key}, v = {size, (void *)data};

    if (plain->rc == 0) {
        plain->rc = mdb_put(plain->txn, dbi, &k, &v, 0);
    }
}

static void del(struct plain *plain, MDB_dbi dbi, const uint8_t *key)
{
    MDB_val k = {KEY_SIZE, (void *)key};

    if (plain->rc == 0) {
        plain->rc = mdb_del(plain->txn, dbi, &k, NULL);
    }
}

static void get(struct plain *plain, MDB_dbi dbi, const uint8_t *key, MDB_val *value)
{
    MDB_val k = {KEY_SIZE, (void *)key};

    if (plain->rc == 0) {
        plain->rc = mdb_get(plain->txn, dbi, &k, value);
    }
}

/* The rows with counters that every step changes. */
static void put_counters(struct plain *plain, uint64_t number, uint64_t pending)
{
    struct counters counters = {.pending = pending, .last_ms = plain->next};
    uint8_t key[KEY_SIZE];

    make_key(key, number, 0);
    put(plain, plain->catalog, key, &counters, sizeof(counters));
}

static void begin(struct plain *plain)
{
    if (plain->rc == 0) {
        plain->rc = mdb_txn_begin(plain->env, NULL, 0, &plain->txn);
    }
}

static void commit(struct plain *plain)
{
    if (plain->rc == 0) {
        plain->rc = mdb_txn_commit(plain->txn);
        plain->txn = NULL;
    }
}

/* ---- opening and filling ---- */

static void open_env(struct plain *plain, bool sync)
{
    unsigned flags = MDB_NOTLS | MDB_NORDAHEAD | (sync ? 0 : MDB_NOSYNC);

    plain->rc = mdb_env_create(&plain->env);
    if (plain->rc == 0) {
        mdb_env_set_maxdbs(plain->env, 8);
        plain->rc = mdb_env_set_mapsize(plain->env, MAP_SIZE);
    }
    if (plain->rc == 0) {
        plain->rc = mdb_env_open(plain->env, plain->bench->folder, flags, 0644);
    }
    begin(plain);
    const struct {
        const char *name;
        MDB_dbi *dbi;
    } names[] = {{"catalog", &plain->catalog},
                 {"entries", &plain->entries},
                 {"pel", &plain->pel},
                 {"owned", &plain->owned}};
    for (size_t i = 0; plain->rc == 0 && i < ARRAY_SIZE(names); i++) {
        plain->rc = mdb_dbi_open(plain->txn, names[i].name, MDB_CREATE, names[i].dbi);
    }
    commit(plain);
}

static void put_pending(struct plain *plain, uint64_t ms, uint64_t owner, int64_t deliveries)
{
    struct pending pending = {owner, (int64_t)ms, deliveries};
    uint8_t key[KEY_SIZE];

    make_key(key, GROUP, ms);
    put(plain, plain->pel, key, &pending, sizeof(pending));
    make_key(key, owner, ms);
    put(plain, plain->owned, key, "", 0);
}

/* The entries, then whose they are: in transactions of the size that Impel's side makes them in, so
 * that the work finds trees and free pages alike. */
static void fill(struct plain *plain)
{
    size_t size = plain->bench->value_size + 6; /* the field's name and the sizes */
    uint64_t count = plain->bench->entries;
    void *value = calloc(1, size);
    uint8_t key[KEY_SIZE];

    begin(plain);
    for (uint64_t i = 1; value != NULL && i <= count; i++) {
        make_key(key, STREAM, i);
        put(plain, plain->entries, key, value, size);
        if (i % BENCH_ADD_BATCH == 0) {
            commit(plain);
            begin(plain);
        }
    }
    for (uint64_t i = 1; plain->bench->work == BENCH_RECOVER && i <= count; i++) {
        put_pending(plain, i, OWNER, 1);
        if (i % BENCH_READ_BATCH == 0) {
            commit(plain);
            begin(plain);
        }
    }
    commit(plain);
    plain->rc = value == NULL ? ENOMEM : plain->rc;
    free(value);
}

static void close_env(struct plain *plain)
{
    if (plain->txn != NULL && plain->rc != 0) {
        mdb_txn_abort(plain->txn);
    }
    mdb_env_close(plain->env);
    plain->env = NULL;
    plain->txn = NULL;
}

/* ---- the work ---- */

/* A handler that does nothing still has to be given the bytes. */
static volatile uint64_t seen;

static void take_entry(struct plain *plain, uint64_t ms)
{
    uint8_t key[KEY_SIZE];
    MDB_val value = {0};
    void *copy;

    make_key(key, STREAM, ms);
    get(plain, plain->entries, key, &value);
    copy = plain->rc == 0 ? malloc(value.mv_size) : NULL;
    if (copy != NULL) {
        memcpy(copy, value.mv_data, value.mv_size);
        seen += *(const uint8_t *)copy;
    }
    free(copy);
    if (plain->bench->work == BENCH_RECOVER) {
        make_key(key, GROUP, ms);
        get(plain, plain->pel, key, &value);
        make_key(key, OWNER, ms);
        del(plain, plain->owned, key);
        put_pending(plain, ms, TAKER, 2);
    } else {
        put_pending(plain, ms, TAKER, 1);
    }
}

static void ack_entry(struct plain *plain, uint64_t ms)
{
    uint8_t key[KEY_SIZE];
    MDB_val value;

    make_key(key, GROUP, ms);
    get(plain, plain->pel, key, &value);
    del(plain, plain->pel, key);
    make_key(key, TAKER, ms);
    del(plain, plain->owned, key);
}

/* One transaction: acknowledges the last batch and takes the next. */
static void step(struct plain *plain)
{
    uint64_t batch = plain->bench->work == BENCH_RECOVER ? BENCH_CLAIM_BATCH : BENCH_READ_BATCH;
    uint64_t left = plain->bench->entries + 1 - plain->next;
    uint64_t take = left < batch ? left : batch;

    begin(plain);
    for (uint64_t i = 0; i < plain->ack_count; i++) {
        ack_entry(plain, plain->ack_first + i);
    }
    for (uint64_t i = 0; i < take; i++) {
        take_entry(plain, plain->next + i);
    }
    plain->ack_first = plain->next;
    plain->ack_count = take;
    plain->next += take;
    put_counters(plain, GROUP, take);
    put_counters(plain, TAKER, take);
    if (plain->bench->work == BENCH_RECOVER) {
        put_counters(plain, OWNER, left - take);
    }
    commit(plain);
}

int bench_plain(const struct bench_case *bench, double *seconds, struct impel_error *err)
{
    struct plain plain = {.bench = bench, .next = 1};
    char path[256];
    double begun;

    open_env(&plain, false);
    fill(&plain);
    close_env(&plain);
    snprintf(path, sizeof(path), "%s/data.mdb", bench->folder);
    bench_settle(path);
    if (plain.rc == 0) {
        open_env(&plain, bench->sync_full);
    }
    begun = bench_now();
    while (plain.rc == 0 && (plain.next <= bench->entries || plain.ack_count > 0)) {
        step(&plain);
    }
    *seconds = bench_now() - begun;
    close_env(&plain);
    if (plain.rc != 0) {
        return error_set(err, IMPEL_ERR_IO, "the plain loop: %s", mdb_strerror(plain.rc));
    }
    return IMPEL_OK;
}
