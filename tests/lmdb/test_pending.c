/* test_pending.c -- pending entries beside a plain sorted array of them: random puts, deletions and walks
 * must agree with it, and the check must find nothing, whatever rows they are kept in.
 *
 *     IMPEL_TEST_SEED=N test-lmdb-pending      one world instead of many */
#include "lmdb/help.h"
#include "store/lmdb/check.h"
#include "store/lmdb/store.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    GROUPS = 2,
    CONSUMERS = 80, /* more than a block has room for */
    ROWS_MAX = 1500,
    STEPS = 2500,
    WORLDS = 16,
    WORLDS_SOAK = 3000,
};

struct twin { /* a group and what it should hold */
    struct lmdb_group *group;
    struct lmdb_consumer *consumers[CONSUMERS];
    struct lmdb_pending rows[ROWS_MAX];
    size_t count;
};

struct world {
    uint64_t seed, random;
    struct handle *handle;
    struct lmdb_txn txn;
    struct lmdb_stream *stream;
    struct twin twins[GROUPS];
    size_t consumers; /* that take part */
    bool odd;         /* with much that fits no slot */
};

static uint64_t draw(struct world *world, uint64_t below)
{
    return random_next(&world->random) % below;
}

/* ---- the array ---- */

static size_t twin_find(const struct twin *twin, struct impel_id id)
{
    size_t low = 0;
    size_t high = twin->count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (id_compare(twin->rows[middle].id, id) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool twin_has(const struct twin *twin, size_t at, struct impel_id id)
{
    return at < twin->count && id_equal(twin->rows[at].id, id);
}

static void twin_delete(struct twin *twin, size_t at)
{
    twin->count--;
    memmove(&twin->rows[at], &twin->rows[at + 1], (twin->count - at) * sizeof(twin->rows[0]));
}

/* ---- transactions ---- */

static void open_consumers(struct world *world, struct twin *twin)
{
    char name[24];

    for (size_t i = 0; i < world->consumers; i++) {
        (void)snprintf(name, sizeof(name), "c%zu", i);
        CHECK(lmdb_consumer_open(&world->txn, twin->group, bytes_of(name), &twin->consumers[i]) >=
              0);
    }
}

static void begin(struct world *world)
{
    struct impel_error err = {0};
    char name[24];

    CHECK(env_begin_write(world->handle->file, &world->txn, &err) == IMPEL_OK);
    CHECK(lmdb_stream_open(&world->txn, bytes_of("s"), &world->stream) >= 0);
    for (size_t i = 0; i < GROUPS; i++) {
        struct twin *twin = &world->twins[i];
        (void)snprintf(name, sizeof(name), "group%zu", i);
        int rc = lmdb_group_find(&world->txn, world->stream, bytes_of(name), &twin->group);
        if (rc == IMPEL_ERR_NO_GROUP) {
            rc = lmdb_group_create(&world->txn, world->stream, bytes_of(name), ID_MIN, 0,
                                   &twin->group);
        }
        CHECK(rc >= 0);
        open_consumers(world, twin);
    }
}

/* No rule of the rows may fail hard. */
static void still_good(const struct world *world, int number)
{
    if (world->txn.status < 0) {
        printf("# seed %" PRIu64 ", step %d: %s\n", world->seed, number, world->txn.error.text);
    }
    CHECK(world->txn.status >= 0);
}

static void commit(struct world *world)
{
    struct impel_error err = {0};

    still_good(world, STEPS);
    CHECK(env_commit(world->handle->file, &world->txn, &err) == IMPEL_OK);
    if (check_contents(world->handle->file, NULL, NULL, &err) != IMPEL_OK) {
        printf("# seed %" PRIu64 ": %s\n", world->seed, err.text);
        CHECK(!"the check finds a problem");
    }
}

/* ---- drawing ---- */

static uint64_t owner_draw(struct world *world, const struct twin *twin)
{
    if (draw(world, world->odd ? 8 : 200) == 0) {
        return 0;
    }
    return twin->consumers[draw(world, world->consumers)]->number;
}

static int64_t time_draw(struct world *world)
{
    static const int64_t odd[] = {0,         1,         UINT32_MAX, (int64_t)UINT32_MAX + 1,
                                  INT64_MAX, INT64_MIN, -1};
    int64_t now = 1700000000000;

    if (draw(world, world->odd ? 4 : 100) == 0) {
        return odd[draw(world, ARRAY_SIZE(odd))];
    }
    if (draw(world, 20) == 0) {
        now += ((int64_t)draw(world, 5) - 2) * 2147483648; /* some 25 days */
    }
    return now + (int64_t)draw(world, 100000);
}

static struct lmdb_pending
row_draw(struct world *world, const struct twin *twin, struct impel_id id)
{
    static const int64_t odd[] = {0, UINT16_MAX, UINT16_MAX + 1, INT64_MAX};
    struct lmdb_pending row = {
        .id = id,
        .owner = owner_draw(world, twin),
        .delivered_ms = time_draw(world),
        .deliveries = 1 + (int64_t)draw(world, 3),
    };

    if (draw(world, world->odd ? 6 : 300) == 0) {
        row.deliveries = odd[draw(world, ARRAY_SIZE(odd))];
    }
    if (row.owner == 0) {
        row.delivered_ms = 0;
        row.released = 1 + draw(world, 1000000);
    }
    return row;
}

static struct impel_id id_draw(struct world *world)
{
    struct impel_id id = {draw(world, 400), draw(world, 4)};

    if (draw(world, world->odd ? 5 : 400) == 0) {
        id.seq = UINT32_MAX - 1U + draw(world, 4);
    }
    if (draw(world, world->odd ? 10 : 400) == 0) {
        id.ms += (uint64_t)UINT32_MAX - 200;
    }
    if (draw(world, 1000) == 0) {
        id = ID_MAX;
    }
    return id;
}

/* ---- steps ---- */

static void same_row(const struct lmdb_pending *row, const struct lmdb_pending *want)
{
    CHECK(id_equal(row->id, want->id));
    CHECK_U64(row->owner, want->owner);
    CHECK_U64(row->released, want->released);
    CHECK(row->delivered_ms == want->delivered_ms);
    CHECK(row->deliveries == want->deliveries);
}

static void put(struct world *world, struct twin *twin, struct impel_id id)
{
    size_t at = twin_find(twin, id);
    bool there = twin_has(twin, at, id);
    struct lmdb_pending row = row_draw(world, twin, id);

    if (!there && twin->count == ROWS_MAX) {
        return;
    }
    CHECK(lmdb_pending_put(&world->txn, twin->group, there ? &twin->rows[at] : NULL, &row) >= 0);
    if (!there) {
        memmove(&twin->rows[at + 1], &twin->rows[at], (twin->count - at) * sizeof(twin->rows[0]));
        twin->count++;
    }
    twin->rows[at] = row;
}

/* One consumer reads some entries behind all others. */
static void read_some(struct world *world, struct twin *twin)
{
    struct lmdb_pending row = {
        .owner = twin->consumers[draw(world, world->consumers)]->number,
        .delivered_ms = 1700000000000 + (int64_t)draw(world, 1000),
        .deliveries = 1,
    };

    for (size_t left = 1 + draw(world, 200); left > 0 && twin->count < ROWS_MAX; left--) {
        row.id = twin->count == 0 ? (struct impel_id){1, 0} : twin->rows[twin->count - 1].id;
        if (!id_next(&row.id)) {
            return;
        }
        CHECK(lmdb_pending_put(&world->txn, twin->group, NULL, &row) >= 0);
        twin->rows[twin->count++] = row;
    }
}

static void delete_at(struct world *world, struct twin *twin, size_t at)
{
    struct lmdb_pending row;
    struct impel_id id = twin->rows[at].id;

    CHECK(lmdb_pending_get(&world->txn, twin->group, id, &row) == IMPEL_OK);
    same_row(&row, &twin->rows[at]);
    CHECK(lmdb_pending_delete(&world->txn, twin->group, &row) >= 0);
    CHECK(lmdb_pending_get(&world->txn, twin->group, id, &row) == IMPEL_ERR_NOT_FOUND);
    twin_delete(twin, at);
}

static void delete_some(struct world *world, struct twin *twin)
{
    bool first = draw(world, 2) == 0;

    for (size_t left = draw(world, 150); left > 0 && twin->count > 0; left--) {
        delete_at(world, twin, first ? 0 : draw(world, twin->count));
    }
}

static void look(struct world *world, struct twin *twin)
{
    struct impel_id id = id_draw(world);
    size_t at = twin_find(twin, id);
    struct lmdb_pending row;
    int rc = lmdb_pending_get(&world->txn, twin->group, id, &row);

    CHECK(rc == (twin_has(twin, at, id) ? IMPEL_OK : IMPEL_ERR_NOT_FOUND));
    if (rc >= 0) {
        same_row(&row, &twin->rows[at]);
    }
    rc = lmdb_pending_first(&world->txn, twin->group, &row);
    CHECK(rc == (twin->count > 0 ? IMPEL_OK : IMPEL_ERR_NOT_FOUND));
    if (rc >= 0) {
        same_row(&row, &twin->rows[0]);
        CHECK(lmdb_pending_last(&world->txn, twin->group, &row) == IMPEL_OK);
        same_row(&row, &twin->rows[twin->count - 1]);
    }
    CHECK_U64(twin->group->pending, twin->count);
}

/* Walks, and deletes or changes what it stands on here and there. */
static void walk(struct world *world, struct twin *twin, bool owned)
{
    struct lmdb_walk walk = {0};
    struct lmdb_pending row;
    struct impel_id start = id_draw(world);
    struct lmdb_consumer *consumer = twin->consumers[draw(world, world->consumers)];
    size_t at = twin_find(twin, start);
    int rc = owned ? lmdb_walk_owned(&walk, &world->txn, consumer, start)
                   : lmdb_walk_pending(&walk, &world->txn, twin->group, start);

    CHECK(rc >= 0);
    while ((rc = lmdb_next_pending(&walk, &row)) > 0) {
        while (owned && at < twin->count && twin->rows[at].owner != consumer->number) {
            at++;
        }
        CHECK(at < twin->count);
        same_row(&row, &twin->rows[at]);
        if (draw(world, 10) == 0) {
            delete_at(world, twin, at);
        } else if (draw(world, 10) == 0) {
            put(world, twin, twin->rows[at++].id);
        } else {
            at++;
        }
    }
    lmdb_walk_end(&walk);
    CHECK(rc == 0);
    for (; at < twin->count; at++) {
        CHECK(owned && twin->rows[at].owner != consumer->number);
    }
}

static void consumer_leaves(struct world *world, struct twin *twin)
{
    size_t place = draw(world, world->consumers);
    uint64_t number = twin->consumers[place]->number;
    uint64_t pending = 0;
    uint64_t deleted = 0;
    char name[24];

    CHECK(lmdb_consumer_delete(&world->txn, twin->consumers[place], &pending) >= 0);
    for (size_t at = twin->count; at > 0; at--) {
        if (twin->rows[at - 1].owner == number) {
            twin_delete(twin, at - 1);
            deleted++;
        }
    }
    CHECK_U64(pending, deleted);
    (void)snprintf(name, sizeof(name), "c%zu", place);
    CHECK(lmdb_consumer_open(&world->txn, twin->group, bytes_of(name), &twin->consumers[place]) ==
          1);
}

/* What happens seldom. */
static void turn_over(struct world *world, struct twin *twin)
{
    if (draw(world, 20) == 0) {
        consumer_leaves(world, twin);
    } else if (draw(world, 200) == 0) {
        CHECK(lmdb_group_order(&world->txn, twin->group) >= 0);
    } else if (draw(world, 10) == 0) {
        commit(world);
        begin(world);
    }
}

static void step(struct world *world)
{
    struct twin *twin = &world->twins[draw(world, GROUPS)];

    switch (draw(world, 12)) {
    case 0:
        read_some(world, twin);
        break;
    case 1:
        delete_some(world, twin);
        break;
    case 2:
    case 3:
        walk(world, twin, draw(world, 2) == 0);
        break;
    case 4:
        look(world, twin);
        break;
    case 5:
        if (twin->count > 0) {
            delete_at(world, twin, draw(world, twin->count));
        }
        break;
    case 6:
        turn_over(world, twin);
        break;
    case 7:
        if (twin->count > 0) {
            put(world, twin, twin->rows[draw(world, twin->count)].id);
        }
        break;
    default:
        put(world, twin, id_draw(world));
        break;
    }
}

/* The disk would fill up in the long test. */
static void forget(const char *name)
{
    static const char *const parts[] = {"", "-lock", "-wake"};
    char file[400];

    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        (void)snprintf(file, sizeof(file), "%s/%s%s", help_folder(), name, parts[i]);
        CHECK(unlink(file) == 0);
    }
}

/* Whatever is in them: of a group that goes, and of a stream, no row is left. */
static void destroy_all(struct world *world)
{
    begin(world);
    CHECK(lmdb_group_destroy(&world->txn, world->twins[0].group) >= 0);
    commit(world);
    begin(world);
    CHECK(lmdb_key_delete(&world->txn, bytes_of("s")) == 1);
    commit(world);
}

static void run_world(uint64_t seed)
{
    struct world *world = calloc(1, sizeof(*world));
    char name[40];

    CHECK(world != NULL);
    world->seed = world->random = seed;
    world->odd = draw(world, 3) == 0;
    world->consumers = draw(world, 3) == 0 ? CONSUMERS : 1 + draw(world, 5);
    (void)snprintf(name, sizeof(name), "world%" PRIu64 ".db", seed);
    char *url = strdup(help_url(name, "?sync=process"));
    world->handle = (struct handle *)help_open(url);
    CHECK(side_lock(&world->handle->file->side) == IMPEL_OK);
    begin(world);
    for (int i = 0; i < STEPS; i++) {
        step(world);
        still_good(world, i);
    }
    commit(world);
    destroy_all(world);
    side_unlock(&world->handle->file->side);
    store_close(&world->handle->store);
    forget(name);
    free(url);
    free(world);
}

static void run_worlds(uint64_t count)
{
    const char *seed = getenv("IMPEL_TEST_SEED");
    uint64_t first = seed == NULL ? 1 : strtoull(seed, NULL, 10);

    for (uint64_t i = 0; i < (seed == NULL ? count : 1); i++) {
        run_world(first + i);
    }
}

TEST(quick_pending_entries_are_what_was_put_whatever_rows_they_are_in)
{
    run_worlds(WORLDS);
}

TEST(soak_pending_entries_are_what_was_put_whatever_rows_they_are_in)
{
    run_worlds(WORLDS_SOAK);
}

TAP_MAIN
