/* test_sweep.c -- one group's sweep: whom it walks, in which order, what it remembers. */
#include "core/sweep.h"
#include "tap.h"

#include <stdio.h>

static int64_t now_ms;
static struct sweep *sweep;

static void begin_with(bool worker, unsigned action)
{
    struct sweep_options options = {
        .stream = bytes_of("s"),
        .group = bytes_of("g"),
        .consumer = bytes_of(worker ? "me" : ""),
        .dead_letter = bytes_of("s:dead"),
        .interval_ms = 1000,
        .settle = true,
        .action = action,
        .consumer_ttl_ms = action != 0 ? 3600000 : -1,
        .seed = 3,
    };
    policy_defaults(&options.policy);
    now_ms = 1000000;
    sweep_free(sweep); /* of a test that failed */
    sweep = sweep_new(&options, now_ms);
}

static void begin(bool worker)
{
    begin_with(worker, 0);
}

static void end(void)
{
    sweep_free(sweep);
    sweep = NULL;
}

static struct request *next(uint32_t places)
{
    return sweep_next(sweep, places, false, now_ms);
}

static void done(struct request *request)
{
    sweep_done(sweep, request, now_ms);
    request_free(request);
}

static void
owner_add(struct request *look, const char *name, uint64_t pending, enum owner_state state)
{
    if (look->look.owners == NULL) {
        look->look.owners = arena_calloc(&look->arena, 64, sizeof(*look->look.owners));
    }
    struct look_owner *owner = &look->look.owners[look->look.owner_count++];
    owner->name = bytes_of(name);
    owner->pending = pending;
    owner->state = state;
    owner->seen_age_ms = 3600000;
    owner->in_table = state == OWNER_DEAD || state == OWNER_LIVE || state == OWNER_ME;
    look->look.pending += pending;
    look->look.stamped = true;
}

static struct request *looked(void)
{
    struct request *look = next(0);
    CHECK(look != NULL && look->kind == REQUEST_LOOK);
    CHECK(look->look.flags == (LOOK_BEAT | LOOK_STAMP) && look->look.interval_ms == 1000);
    /* Without a worker nobody beats as often as this would ask for. */
    CHECK((look->dead_after_ms > 0) == (look->consumer.size > 0));
    return look;
}

/* The next step is a claim from this owner; answered: walked to `next_ms`, 0 = its end. */
static void step(const char *owner, uint32_t places, uint64_t from_ms, uint64_t next_ms, size_t due)
{
    struct request *claim = next(places);
    CHECK(claim != NULL && claim->kind == REQUEST_CLAIM_FROM);
    CHECK(bytes_equal(claim->claim_from.owner, bytes_of(owner)));
    CHECK_U64(claim->claim_from.from.ms, from_ms);
    CHECK_U64(claim->claim_from.claims_max, places);
    CHECK(claim->claim_from.flags == CLAIM_SETTLE);
    claim->claim_from.state = OWNER_DEAD;
    claim->claim_from.next.ms = next_ms;
    claim->claim_from.due = due;
    claim->claim_from.due_first.ms = due > 0 ? from_ms + 1 : 0;
    claim->claim_from.not_due = 2;
    done(claim);
}

TEST(somebody_elses_stamp_ends_it)
{
    begin(true);
    struct request *look = looked();
    CHECK(next(0) == NULL && sweep_deadline(sweep, now_ms) == INT64_MAX);
    done(look);
    CHECK(next(4) == NULL);
    int64_t wait_ms = sweep_deadline(sweep, now_ms);
    CHECK(wait_ms > 0 && wait_ms <= 1001);
    now_ms += wait_ms;
    CHECK(sweep_deadline(sweep, now_ms) == 0);
    done(looked());
    end();
}

TEST(a_free_handler_is_told_of)
{
    begin(true);
    sweep_set_free(sweep, true);
    struct request *look = next(0);
    CHECK(look->look.flags == (LOOK_BEAT | LOOK_STAMP | LOOK_FREE));
    done(look);
    now_ms += sweep_deadline(sweep, now_ms);
    sweep_set_free(sweep, false);
    done(looked());
    sweep_set_free(sweep, true);
    sweep_hurry(sweep, now_ms);
    look = next(0);
    CHECK(look->look.flags == LOOK_BEAT); /* no stamp is asked for */
    done(look);
    end();
}

TEST(a_sole_worker_is_never_refused_its_own_stamp)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "me", 3, OWNER_ME);
    done(look);
    CHECK(next(0) == NULL);
    int64_t wait_ms = sweep_deadline(sweep, now_ms);
    CHECK(wait_ms > 1000 && wait_ms < 1200);
    end();
}

TEST(only_the_abandoned_are_walked_and_the_empty_dead_are_dropped)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "me", 3, OWNER_ME);
    owner_add(look, "live", 9, OWNER_LIVE);
    owner_add(look, "foreign", 9, OWNER_FOREIGN);
    owner_add(look, "dead-empty", 0, OWNER_DEAD);
    owner_add(look, "dead", 4, OWNER_DEAD);
    owner_add(look, "unknown", 4, OWNER_UNKNOWN);
    owner_add(look, "foreign-empty", 0, OWNER_FOREIGN);
    owner_add(look, RELEASED_NAME, 1, OWNER_RELEASED);
    look->look.pending += 2; /* unowned */
    done(look);
    step("", 0, 0, 0, 0); /* nobody's */
    step("dead", 0, 0, 0, 0);
    step(RELEASED_NAME, 0, 0, 0, 0);
    step("foreign", 0, 0, 0, 0);
    struct request *drop = next(0);
    CHECK(drop->kind == REQUEST_DROP && bytes_equal(drop->leave.name, bytes_of("dead-empty")));
    done(drop);
    uint64_t due = 99;
    uint64_t not_due = 99;
    CHECK(!sweep_report(sweep, &due, &not_due));
    CHECK(next(0) == NULL);
    CHECK(sweep_report(sweep, &due, &not_due) && due == 0 && not_due == 8);
    CHECK(!sweep_report(sweep, &due, &not_due));
    end();
}

TEST(nobody_is_asked_for_by_flag)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "live", 1, OWNER_LIVE);
    look->look.pending = 2;
    done(look);
    struct request *claim = next(0);
    CHECK(claim->claim_from.nobody && claim->claim_from.owner.size == 0);
    done(claim);
    end();
}

TEST(what_no_place_was_for_is_claimed_when_places_come)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 4, OWNER_DEAD);
    owner_add(look, "b", 4, OWNER_DEAD);
    done(look);
    step("a", 0, 0, 0, 3);
    step("b", 0, 0, 0, 2);
    CHECK(next(0) == NULL && sweep_due(sweep, NULL) && sweep_claimable(sweep));
    step("a", 1, 1, 3, 0); /* from where due work was found; more behind it */
    step("b", 2, 1, 0, 0); /* in turns */
    step("a", 1, 3, 0, 0);
    CHECK(!sweep_due(sweep, NULL) && next(5) == NULL);
    end();
}

TEST(a_walk_with_places_claims_as_it_goes)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 3000, OWNER_DEAD);
    done(look);
    step("a", 2, 0, 7, 0);
    step("a", 2, 7, 1007, 0);
    step("a", 2, 1007, 0, 0);
    CHECK(!sweep_due(sweep, NULL) && next(2) == NULL);
    end();
}

TEST(a_last_attempt_waits_to_be_alone)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 1, OWNER_DEAD);
    done(look);
    struct request *claim = next(4);
    CHECK(!(claim->claim_from.flags & CLAIM_LAST));
    claim->claim_from.state = OWNER_DEAD;
    claim->claim_from.due = claim->claim_from.due_last = 1;
    claim->claim_from.due_first.ms = 9;
    done(claim);
    bool last = false;
    CHECK(sweep_due(sweep, &last) && last && !sweep_claimable(sweep));
    CHECK(next(4) == NULL);
    claim = sweep_next(sweep, 1, true, now_ms);
    CHECK(claim->claim_from.flags & CLAIM_LAST);
    CHECK(claim->claim_from.claims_max == 1 && claim->claim_from.from.ms == 9);
    claim->claim_from.state = OWNER_DEAD; /* somebody else had it: nothing, to the end */
    done(claim);
    CHECK(!sweep_due(sweep, &last) && !last);
    end();
}

TEST(whoever_is_alone_is_given_a_last_attempt_and_nothing_else)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 1, OWNER_DEAD);
    owner_add(look, "b", 1, OWNER_DEAD);
    done(look);
    step("a", 0, 0, 0, 1);
    struct request *find = next(0);
    find->claim_from.state = OWNER_DEAD;
    find->claim_from.due = find->claim_from.due_last = 1;
    done(find);
    CHECK(next(0) == NULL);
    struct request *claim = sweep_next(sweep, 1, true, now_ms);
    CHECK(bytes_equal(claim->claim_from.owner, bytes_of("b")));
    CHECK(claim->claim_from.flags & CLAIM_LAST);
    claim->claim_from.state = OWNER_DEAD;
    done(claim);
    end();
}

TEST(an_owner_that_came_back_is_left_alone)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 4, OWNER_DEAD);
    done(look);
    step("a", 0, 0, 0, 3);
    CHECK(next(0) == NULL);
    struct request *claim = next(1);
    claim->claim_from.state = OWNER_LIVE;
    done(claim);
    CHECK(!sweep_due(sweep, NULL) && next(1) == NULL);
    end();
}

TEST(a_long_list_is_gone_on_with_in_the_next_sweep)
{
    begin(true);
    for (uint64_t turn = 0; turn < 2; turn++) {
        struct request *look = looked();
        owner_add(look, "a", 100000, OWNER_DEAD);
        done(look);
        for (uint64_t i = 0; i < SWEEP_STEPS_MAX; i++) {
            uint64_t from = (turn * SWEEP_STEPS_MAX + i) * 1000;
            step("a", 0, from, from + 1000, 0);
        }
        CHECK(next(0) == NULL);
        now_ms += sweep_deadline(sweep, now_ms);
    }
    end();
}

static struct request *look_foreign(const char *cursor, uint64_t cursor_ms)
{
    struct request *look = looked();
    owner_add(look, "a", 100000, OWNER_FOREIGN);
    owner_add(look, "b", 100000, OWNER_FOREIGN);
    owner_add(look, "c", 1, OWNER_FOREIGN);
    look->look.cursor.owner = bytes_of(cursor);
    look->look.cursor.id.ms = cursor_ms;
    return look;
}

TEST(foreign_lists_are_walked_a_little_each_sweep_from_the_cursor)
{
    begin(true);
    done(look_foreign("b", 500));
    for (uint64_t i = 0; i < SWEEP_STEPS_FOREIGN; i++) {
        step("b", 0, 500 + i * 1000, 1500 + i * 1000, 0);
    }
    CHECK(next(0) == NULL);
    now_ms += sweep_deadline(sweep, now_ms);
    /* The group's cursor stands with an owner that is not foreign: our own is used. */
    done(look_foreign("dead", 7));
    step("b", 0, 4500, 0, 0);
    step("c", 0, 0, 0, 0);
    step("a", 0, 0, 1000, 0);
    step("a", 0, 1000, 2000, 0);
    CHECK(next(0) == NULL);
    end();
}

/* Wherever another one's walk stands: `sweep --once` makes only this one. */
TEST(without_a_worker_the_first_sweep_walks_all)
{
    begin(false);
    done(look_foreign("b", 500));
    for (uint64_t i = 0; i < 40; i++) {
        step("a", 0, i * 1000, i == 39 ? 0 : (i + 1) * 1000, 0);
    }
    step("b", 0, 0, 0, 0);
    step("c", 0, 0, 0, 0);
    CHECK(next(0) == NULL);
    end();
}

/* Programs that take a new name at every start leave thousands. */
TEST(every_owner_is_walked_however_many_there_are)
{
    enum { OWNERS = 10000 };
    static char names[OWNERS][8];

    begin(false);
    for (int round = 0; round < 2; round++) {
        struct request *look = looked();
        look->look.owners = arena_calloc(&look->arena, OWNERS, sizeof(*look->look.owners));
        for (size_t i = 0; i < OWNERS; i++) {
            (void)snprintf(names[i], sizeof(names[i]), "%05zu", i);
            owner_add(look, names[i], 1, OWNER_DEAD);
        }
        done(look);
        for (size_t i = 0; i < OWNERS; i++) {
            step(names[i], 0, 0, 0, i == 7);
        }
        CHECK(next(0) == NULL);
        CHECK(sweep_due(sweep, NULL));
        now_ms += sweep_deadline(sweep, now_ms);
    }
    end();
}

TEST(a_failure_ends_the_sweep_but_not_the_sweeping)
{
    begin(true);
    struct request *look = looked();
    owner_add(look, "a", 4, OWNER_DEAD);
    done(look);
    step("a", 0, 0, 0, 3);
    CHECK(next(0) == NULL);
    struct request *claim = next(1);
    claim->status = IMPEL_ERR_DISCONNECTED;
    done(claim);
    CHECK(!sweep_due(sweep, NULL) && next(1) == NULL);
    CHECK(sweep_deadline(sweep, now_ms) > 0);
    now_ms += sweep_deadline(sweep, now_ms);
    done(looked());
    end();
}

TEST(hurry_does_not_wait_for_the_stamp)
{
    begin(true);
    done(looked());
    sweep_hurry(sweep, now_ms);
    struct request *look = next(0);
    CHECK(look->kind == REQUEST_LOOK && look->look.flags == LOOK_BEAT);
    done(look);
    end();
}

TAP_MAIN

/* ---- a sweep that acts ---- */

/* The next step is a claim from this owner; it moves so many. */
static void act(const char *owner, unsigned flags, const char *heir, uint64_t next_ms, size_t moved)
{
    struct request *claim = next(0);
    CHECK(claim != NULL && claim->kind == REQUEST_CLAIM_FROM);
    CHECK(bytes_equal(claim->claim_from.owner, bytes_of(owner)));
    CHECK(bytes_equal(claim->claim_from.heir, bytes_of(heir)));
    CHECK(claim->claim_from.flags == (CLAIM_SETTLE | flags));
    CHECK_U64(claim->claim_from.claims_max, SWEEP_CLAIMS_MAX);
    claim->claim_from.state = OWNER_FOREIGN;
    claim->claim_from.next.ms = next_ms;
    claim->claim_from.moved_count = moved;
    done(claim);
}

static struct look_owner *owner_of(struct request *look, const char *name)
{
    struct look_owner *owner = look->look.owners;
    while (!bytes_equal(owner->name, bytes_of(name))) {
        owner++;
    }
    return owner;
}

/* It has no limits; the next has. */
static void first_sweep(void)
{
    struct request *look = looked();
    look->look.stamped = true;
    done(look);
    CHECK(next(0) == NULL);
    now_ms += 2000;
}

TEST(a_walk_that_moves_entries_goes_on_to_its_end)
{
    begin_with(false, CLAIM_REQUEUE);
    first_sweep();
    struct request *look = looked();
    owner_add(look, "f", 100000, OWNER_FOREIGN);
    done(look);
    for (uint64_t i = 1; i <= 100; i++) {
        act("f", CLAIM_REQUEUE, "", i, 200);
    }
    act("f", CLAIM_REQUEUE, "", 0, 5);
    CHECK(next(0) == NULL);
    end();
}

/* How many steps of so many rows a sweep makes that is not its first. */
static uint64_t foreign_steps(size_t owners, uint64_t pending, size_t rows)
{
    static const char *const names[] = {"f", "g", "h", "i", "j", "k", "l", "m", "n", "o"};
    struct request *look = looked();
    uint64_t steps = 0;

    for (size_t i = 0; i < owners; i++) {
        owner_add(look, names[i % 10], pending, OWNER_FOREIGN);
    }
    done(look);
    while (sweep_deadline(sweep, now_ms) == 0) {
        struct request *claim = next(0);
        if (claim == NULL) {
            break;
        }
        claim->claim_from.state = OWNER_FOREIGN;
        claim->claim_from.rows = rows;
        claim->claim_from.next.ms = ++steps;
        done(claim);
    }
    return steps;
}

TEST(without_a_worker_all_of_the_foreign_is_seen_in_min_idle)
{
    begin(false);
    first_sweep();
    CHECK_U64(foreign_steps(1, 1000000, 1000), 17); /* 1,000 steps in 60 sweeps */
    end();
}

TEST(consumers_beyond_what_is_kept_are_counted)
{
    enum { BEYOND = 7, COUNT = SWEEP_OWNERS_MAX - 1 + BEYOND };
    begin(false);
    CHECK_U64(sweep_left_out(sweep), 0);
    struct request *look = looked();
    look->look.owners = arena_calloc(&look->arena, COUNT, sizeof(*look->look.owners));
    for (size_t i = 0; i < COUNT; i++) {
        char name[24];
        struct impel_bytes kept;
        (void)snprintf(name, sizeof(name), "c%zu", i);
        CHECK(arena_copy(&look->arena, bytes_of(name), &kept));
        owner_add(look, "", 1, OWNER_FOREIGN);
        look->look.owners[i].name = kept;
    }
    done(look);
    CHECK_U64(sweep_left_out(sweep), BEYOND);
    end();
}

TEST(more_steps_where_a_busy_store_ends_them_early)
{
    begin(false);
    first_sweep();
    CHECK_U64(foreign_steps(1, 1000000, 500), 33);
    end();
    begin(false);
    first_sweep();
    CHECK_U64(foreign_steps(1, 1000000, 0), 17); /* no row is no progress */
    end();
}

TEST(each_foreign_owner_takes_a_step)
{
    begin(false);
    first_sweep();
    CHECK_U64(foreign_steps(60, 10000, 1000), 12); /* 660 steps in 60 sweeps */
    end();
}

TEST(the_heir_is_alive_holds_least_and_is_not_the_holder)
{
    begin_with(false, CLAIM_HAND_OVER);
    struct request *look = looked();
    owner_add(look, "gone", 3, OWNER_FOREIGN);
    owner_add(look, "busy", 9, OWNER_FOREIGN);
    owner_add(look, "free", 1, OWNER_FOREIGN);
    owner_add(look, "ours", 0, OWNER_LIVE);
    owner_of(look, "busy")->seen_age_ms = 59999;
    owner_of(look, "free")->seen_age_ms = 10;
    owner_of(look, "ours")->seen_age_ms = 0;
    done(look);
    act("busy", CLAIM_HAND_OVER, "free", 0, 0);
    act("free", CLAIM_HAND_OVER, "busy", 0, 0);
    act("gone", CLAIM_HAND_OVER, "free", 0, 3);
    CHECK(next(0) == NULL);
    end();
}

TEST(nobody_alive_is_no_heir)
{
    begin_with(false, CLAIM_HAND_OVER);
    struct request *look = looked();
    owner_add(look, "gone", 3, OWNER_FOREIGN);
    owner_add(look, "late", 3, OWNER_FOREIGN);
    owner_of(look, "late")->seen_age_ms = 60000;
    done(look);
    act("gone", CLAIM_HAND_OVER, "", 0, 0);
    end();
}

TEST(a_foreign_consumer_is_dropped_when_its_time_is_over)
{
    begin_with(false, CLAIM_PARK);
    struct request *look = looked();
    owner_add(look, "gone", 0, OWNER_FOREIGN);
    owner_add(look, "fresh", 0, OWNER_FOREIGN);
    owner_of(look, "fresh")->seen_age_ms = 3599999;
    done(look);
    struct request *drop = next(0);
    CHECK(drop != NULL && drop->kind == REQUEST_DROP);
    CHECK(bytes_equal(drop->leave.name, bytes_of("gone")));
    CHECK_U64(drop->leave.inactive_ms, 3600000);
    done(drop);
    CHECK(next(0) == NULL);
    end();
}
