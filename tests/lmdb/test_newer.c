/* test_newer.c -- rows that came with versions 2 to 4 of the format: when a file becomes one, and that the
 * check compares every such row with what it belongs to. */
#include "base/value.h"
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/store.h"

#include <stdlib.h>

static void command(struct store *store, const char *line)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *args = arena_calloc(&request->arena, 32, sizeof(*args));
    char *words = arena_alloc(&request->arena, strlen(line) + 1);
    char *rest = NULL;

    CHECK(args != NULL && words != NULL);
    memcpy(words, line, strlen(line) + 1);
    for (char *w = strtok_r(words, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        args[request->call.arg_count++] = help_bytes(w);
    }
    request->call.args = args;
    CHECK(help_run(store, request) == IMPEL_OK);
    if (request->call.reply->kind == VALUE_ERROR) {
        printf("# %s: %.*s\n", line, (int)request->call.reply->bytes.size,
               (const char *)request->call.reply->bytes.data);
    }
    CHECK(request->call.reply->kind != VALUE_ERROR);
    request_free(request);
}

static uint32_t version_of(struct store *store)
{
    struct lmdb_env *env = ((struct handle *)store)->file;
    struct impel_error err = {0};
    struct lmdb_txn txn;
    MDB_txn *mdb = NULL;

    CHECK(env_begin_read(env, &mdb, &txn, &err) == IMPEL_OK);
    CHECK(catalog_meta(&txn) == IMPEL_OK);
    uint32_t version = txn.meta.version;
    lmdb_txn_release(&txn);
    mdb_txn_abort(mdb);
    return version;
}

/* A group with two consumers' rows and two that are nobody's. */
static void make_group(struct store *store)
{
    command(store, "XADD s 1-0 f v");
    command(store, "XADD s 2-0 f v");
    command(store, "XADD s 3-0 f v");
    command(store, "XADD s 4-0 f v");
    command(store, "XGROUP CREATE s g 0");
    command(store, "XREADGROUP GROUP g c STREAMS s >");
    command(store, "XCLAIM s g d 0 4-0");
}

/* One with a single pending entry, which is a row as it always was. */
static void make_small_group(struct store *store)
{
    command(store, "XADD s 1-0 f v");
    command(store, "XADD s 2-0 f v");
    command(store, "XGROUP CREATE s g 0");
    command(store, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
}

TEST(a_file_gets_a_newer_version_when_it_has_newer_rows)
{
    char *url = strdup(help_url("version.db", "?sync=process"));
    struct store *store = help_open(url);

    make_small_group(store);
    command(store, "XACK s g 1-0");
    command(store, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    command(store, "XACKDEL s g ACKED IDS 1 2-0");
    command(store, "XADD s 3-0 f v");
    command(store, "XREADGROUP GROUP g c MAXSIZE 10 STREAMS s >");
    CHECK_U64(version_of(store), 1);
    command(store, "XNACK s g FAIL IDS 1 9-0"); /* nothing to give back */
    CHECK_U64(version_of(store), 1);
    command(store, "XNACK s g FAIL IDS 1 3-0");
    CHECK_U64(version_of(store), 2);
    store_close(store);
    store = help_open(url);
    CHECK_U64(version_of(store), 2);
    store_close(store);
    free(url);
    url = strdup(help_url("idmp.db", "?sync=process"));
    store = help_open(url);
    command(store, "XADD s IDMP p i * f v");
    CHECK_U64(version_of(store), 2);
    store_close(store);
    free(url);
    url = strdup(help_url("claim.db", "?sync=process"));
    store = help_open(url);
    make_small_group(store);
    command(store, "XGROUP SETID s g 2-0");
    CHECK_U64(version_of(store), 1);
    command(store, "XREADGROUP GROUP g e CLAIM 1000000 STREAMS s >");
    CHECK_U64(version_of(store), 2);
    store_close(store);
    free(url);
}

/* Requeues all that the consumer holds. */
static void requeue(struct store *store, const char *owner)
{
    struct request *claim = help_request(REQUEST_CLAIM_FROM, "s", "g");

    claim->dead_after_ms = 1000;
    claim->claim_from.owner = bytes_of(owner);
    claim->claim_from.dead_letter = bytes_of("s:dead");
    claim->claim_from.rows_max = claim->claim_from.claims_max = 100;
    claim->claim_from.flags = CLAIM_REQUEUE;
    policy_defaults(&claim->claim_from.policy);
    claim->claim_from.policy.backoff_base_ms = claim->claim_from.policy.min_idle_ms = 0;
    CHECK(help_run(store, claim) == IMPEL_OK);
    CHECK_U64(claim->claim_from.moved_count, 1);
    request_free(claim);
}

/* Who does not know them would give an entry that kills its workers to them for ever, and a group that
 * is made again all that it had finished with. */
TEST(what_recovery_keeps_makes_it_version_3)
{
    char *url = strdup(help_url("requeue.db", "?sync=process"));
    struct store *store = help_open(url);
    struct impel_error err = {0};

    make_small_group(store);
    CHECK_U64(version_of(store), 1);
    requeue(store, "c");
    CHECK_U64(version_of(store), 3);
    CHECK(check_contents(((struct handle *)store)->file, NULL, NULL, &err) == IMPEL_OK);
    store_close(store);
    free(url);
    url = strdup(help_url("floor.db", "?sync=process"));
    store = help_open(url);
    make_small_group(store);
    command(store, "XGROUP DESTROY s g");
    CHECK_U64(version_of(store), 3);
    CHECK(check_contents(((struct handle *)store)->file, NULL, NULL, &err) == IMPEL_OK);
    store_close(store);
    free(url);
}

TEST(several_pending_entries_in_a_row_make_it_version_4)
{
    char *url = strdup(help_url("block.db", "?sync=process"));
    struct store *store = help_open(url);
    struct impel_error err = {0};

    make_small_group(store);
    CHECK_U64(version_of(store), 1);
    command(store, "XREADGROUP GROUP g c COUNT 1 STREAMS s >");
    CHECK_U64(version_of(store), 4);
    command(store, "XACK s g 1-0 2-0");
    CHECK_U64(version_of(store), 4);
    CHECK(check_contents(((struct handle *)store)->file, NULL, NULL, &err) == IMPEL_OK);
    store_close(store);
    free(url);
}

static void put_row(struct handle *handle, MDB_val key, MDB_val value)
{
    struct lmdb_txn txn;
    struct impel_error err = {0};

    CHECK(env_begin_write(handle->file, &txn, &err) == IMPEL_OK);
    CHECK(row_put(&txn, DB_CATALOG, key, value) == IMPEL_OK);
    CHECK(env_commit(handle->file, &txn, &err) == IMPEL_OK);
}

/* A row that is there, but is not what it should be. */
static void check_changed(struct handle *handle, MDB_val key, const uint8_t *kept, size_t size)
{
    struct impel_error err = {0};
    char letter = *(const char *)key.mv_data;
    uint8_t changed[512];

    memcpy(changed, kept, size);
    changed[size - 1] ^= 0xff;
    put_row(handle, key, (MDB_val){size, changed});
    int found = check_contents(handle->file, NULL, NULL, &err);
    /* Of 'i' the last byte is of a count that nothing can be held against. */
    if (found != IMPEL_ERR_CORRUPT && letter != 'i') {
        printf("# a wrong row '%c' was not found\n", letter);
        CHECK(false);
    }
}

/* Takes the first row of a letter away, has the file checked, and puts it back. */
static void check_without(struct handle *handle, char letter)
{
    struct lmdb_txn txn;
    struct impel_error err = {0};
    uint8_t start = (uint8_t)letter;
    uint8_t kept_key[512], kept[512];
    MDB_val key = {1, &start};
    MDB_val value = {0, NULL};

    CHECK(side_lock(&handle->file->side) == IMPEL_OK);
    CHECK(env_begin_write(handle->file, &txn, &err) == IMPEL_OK);
    CHECK(row_seek(&txn, DB_CATALOG, &key, 1, &value) == IMPEL_OK);
    size_t key_size = key.mv_size, size = value.mv_size;
    memcpy(kept_key, key.mv_data, key_size);
    memcpy(kept, value.mv_data, size);
    CHECK(row_delete(&txn, DB_CATALOG, (MDB_val){key_size, kept_key}) == IMPEL_OK);
    CHECK(env_commit(handle->file, &txn, &err) == IMPEL_OK);
    int found = check_contents(handle->file, NULL, NULL, &err);
    if (found != IMPEL_ERR_CORRUPT) {
        printf("# a missing row '%c' was not found\n", letter);
    }
    CHECK(found == IMPEL_ERR_CORRUPT);
    if (size > 0) {
        check_changed(handle, (MDB_val){key_size, kept_key}, kept, size);
    }
    put_row(handle, (MDB_val){key_size, kept_key}, (MDB_val){size, kept});
    CHECK(check_contents(handle->file, NULL, NULL, &err) == IMPEL_OK);
    side_unlock(&handle->file->side);
}

TEST(the_check_knows_the_newer_rows)
{
    char *url = strdup(help_url("newer.db", "?sync=process"));
    struct store *store = help_open(url);
    struct impel_error err = {0};
    static const char letters[] = "dtiPpJje";

    make_group(store);
    command(store, "XGROUP CREATE s h 0");
    command(store, "XREADGROUP GROUP h c STREAMS s >");
    command(store, "XACK s h 4-0");
    command(store, "XNACK s g FAIL IDS 2 2-0 1-0");
    command(store, "XADD s IDMP p one * f v");
    command(store, "XADD s IDMP p two * f v");
    command(store, "XADD s IDMPAUTO q * f v");
    for (const char *letter = letters; *letter != '\0'; letter++) {
        check_without((struct handle *)store, *letter);
    }
    command(store, "XREADGROUP GROUP g e CLAIM 1000000 STREAMS s >");
    check_without((struct handle *)store, 't');
    command(store, "DEL s");
    CHECK(check_contents(((struct handle *)store)->file, NULL, NULL, &err) == IMPEL_OK);
    store_close(store);
    free(url);
}

/* What is kept of producers has to go again, whoever comes back. */
TEST(producers_who_never_come_back_leave_nothing_behind)
{
    char *url = strdup(help_url("old.db", "?sync=process"));
    struct store *store = help_open(url);
    struct handle *handle = (struct handle *)store;
    struct impel_error err = {0};
    struct lmdb_stream *stream = NULL;
    struct lmdb_idmp idmp;
    struct lmdb_txn txn;

    command(store, "XADD s 1-0 f v");
    CHECK(side_lock(&handle->file->side) == IMPEL_OK);
    CHECK(env_begin_write(handle->file, &txn, &err) == IMPEL_OK);
    CHECK(lmdb_stream_find(&txn, help_bytes("s"), &stream) == IMPEL_OK);
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "p%d", i);
        txn.now_ms = 1000 + i;
        struct lmdb_iid iid = {help_bytes(name), help_bytes("i"), {10, (uint64_t)i}, txn.now_ms};
        CHECK(lmdb_idmp_add(&txn, stream, &iid) == IMPEL_OK);
    }
    CHECK(lmdb_idmp_get(&txn, stream, &idmp) == IMPEL_OK);
    CHECK_U64(idmp.producers, 100);
    txn.now_ms += (int64_t)idmp.duration_s * 1000;
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "i%d", i);
        struct lmdb_iid iid = {help_bytes("q"), help_bytes(name), {20, (uint64_t)i}, txn.now_ms};
        CHECK(lmdb_idmp_add(&txn, stream, &iid) == IMPEL_OK);
    }
    CHECK(lmdb_idmp_get(&txn, stream, &idmp) == IMPEL_OK);
    CHECK_U64(idmp.producers, 1);
    CHECK_U64(idmp.iids, 20);
    CHECK_U64(idmp.added, 120);
    struct impel_id id;
    CHECK(lmdb_idmp_find(&txn, stream, help_bytes("q"), help_bytes("i3"), &id) == IMPEL_OK);
    CHECK(id_equal(id, ((struct impel_id){20, 3})));
    txn.now_ms += (int64_t)idmp.duration_s * 1000;
    CHECK(lmdb_idmp_find(&txn, stream, help_bytes("q"), help_bytes("i3"), &id) ==
          IMPEL_ERR_NOT_FOUND);
    CHECK(env_commit(handle->file, &txn, &err) == IMPEL_OK);
    CHECK(check_contents(handle->file, NULL, NULL, &err) == IMPEL_OK);
    side_unlock(&handle->file->side);
    store_close(store);
    free(url);
}

TAP_MAIN
