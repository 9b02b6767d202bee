/* strangers.c -- groups whose consumers are none of ours, and three sweeps beside them that requeue, hand
 * over or park what those drop; and somebody who replays what was parked. Everything that can go wrong
 * goes wrong, by a seed: consumers die and come back, sweeps die in the midst of a step, answers are lost,
 * the store refuses, forgets its last writes, and has its clock set.
 *
 *   strangers --seeds 1..4000     worlds by seed, in TAP
 *
 * The book has a *life* for each entry of the stream; a requeue ends one and begins another. What holds
 * after every step: each entry that was added has exactly one life that is not over, so nothing is lost and
 * nothing doubled; and a step does to a life only what its store's clock and its attempts, those of its
 * former lives included, call for. */
#include "core/sweep.h"
#include "store/model.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES = 30,
    LIVES_MAX = 2000,
    CONSUMERS = 4,
    SWEEPS = 3,
    STEPS = 1500,       /* with faults */
    STEPS_LAST = 20000, /* without: far more than what is left can take */
    AUDIT_STEPS = 64,
    HELD_MAX = 3,
    SEEDS_A_TEST = 1000,
    START_MS = 1700000000,
};

enum place {
    PLACE_NEW,
    PLACE_PENDING,
    PLACE_ACKED,
    PLACE_PARKED,
    PLACE_LOST,
    PLACE_OVER, /* requeued or replayed: its copy goes on */
};

struct life {
    struct impel_id id;
    int root; /* which of the entries that were added */
    enum place place;
    int64_t carried, deliveries;
    int64_t since_ms; /* pending: on the world's clock, which nobody sets */
    int holder;       /* a consumer's number; -1 = nobody's */
    bool in_hand;     /* the holder knows of it */
    bool gone;        /* not in the stream any more */
};

struct consumer {
    int number; /* of this process: another one of the same name has another */
    char name[16];
    bool alive;
};

struct book {
    struct life lives[LIVES_MAX];
    size_t count;
};

struct world {
    uint64_t seed, random;
    int64_t now_ms, stepped_ms;
    struct model model;
    struct model_state kept; /* what a rollback goes back to */
    struct book book, kept_book;
    bool has_kept, quiet;
    struct policy policy;
    unsigned action;
    struct consumer consumers[CONSUMERS];
    int numbers, names, added;
    struct sweep *sweeps[SWEEPS];
    struct replay_item looked_at; /* by who replays */
    char text[256];
    jmp_buf abandon;
};

static struct world world[1]; /* the one there is */
static struct {
    uint64_t requeued, handed_over, parked, reaped, replayed, put_back, rolled_back, lost;
} seen; /* in all worlds: what never happens is not proved */

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it has just been started
    (void)vsnprintf(world->text, sizeof(world->text), format, args);
    va_end(args);
    longjmp(world->abandon, 1);
}

static uint64_t draw(uint64_t below)
{
    return random_next(&world->random) % below;
}

static bool chance(uint64_t percent)
{
    return draw(100) < percent;
}

/* ---- the book ---- */

static struct life *life_of(struct impel_id id)
{
    for (size_t i = world->book.count; i > 0; i--) {
        if (id_equal(world->book.lives[i - 1].id, id)) {
            return &world->book.lives[i - 1];
        }
    }
    fail("%d-%d was added by nobody", (int)id.ms, (int)id.seq);
}

static void begin_life(struct impel_id id, int root, int64_t carried)
{
    ASSERT(world->book.count < LIVES_MAX);
    world->book.lives[world->book.count++] =
        (struct life){.id = id, .root = root, .carried = carried, .holder = -1};
}

static struct consumer *consumer_of(struct impel_bytes name)
{
    for (size_t i = 0; i < CONSUMERS; i++) {
        if (bytes_equal(bytes_of(world->consumers[i].name), name)) {
            return &world->consumers[i];
        }
    }
    return NULL;
}

static void give(struct life *life, const struct consumer *consumer, bool in_hand)
{
    life->place = PLACE_PENDING;
    life->holder = consumer == NULL ? -1 : consumer->number;
    life->in_hand = in_hand;
    life->since_ms = world->now_ms;
    life->deliveries++;
}

static void check_roots(void)
{
    int open[ENTRIES] = {0};

    for (size_t i = 0; i < world->book.count; i++) {
        open[world->book.lives[i].root] += world->book.lives[i].place != PLACE_OVER;
    }
    for (int i = 0; i < world->added; i++) {
        if (open[i] != 1) {
            fail("entry %d is there %d times", i, open[i]);
        }
    }
}

/* The book against the store. */
static void audit(void)
{
    struct model_stream *stream = state_stream(&world->model.state, bytes_of("s"));
    struct model_stream *dead = state_stream(&world->model.state, bytes_of("s:dead"));
    struct model_group *group = stream_group(stream, bytes_of("g"));
    size_t pending = 0, parked = 0;

    check_roots();
    for (size_t i = 0; i < world->book.count; i++) {
        const struct life *life = &world->book.lives[i];
        const struct model_row *row = group_row(group, life->id);
        pending += life->place == PLACE_PENDING;
        parked += life->place == PLACE_PARKED;
        if ((row != NULL) != (life->place == PLACE_PENDING)) {
            fail("%d-%d: a pending row, or none, against the book", (int)life->id.ms,
                 (int)life->id.seq);
        }
        if (row != NULL && (row->deliveries != life->deliveries ||
                            group_carried(group, life->id) != life->carried)) {
            fail("%d-%d: %d + %d deliveries, not %d + %d", (int)life->id.ms, (int)life->id.seq,
                 (int)group_carried(group, life->id), (int)row->deliveries, (int)life->carried,
                 (int)life->deliveries);
        }
    }
    if (group->row_count != pending || (dead == NULL ? 0 : dead->entry_count) != parked) {
        fail("%d are pending and %d parked, not %d and %d", (int)group->row_count,
             dead == NULL ? 0 : (int)dead->entry_count, (int)pending, (int)parked);
    }
}

/* ---- what the store reports, before it does it ---- */

/* Nothing is taken early from whoever holds it. */
static void check_overdue(const struct life *life, const struct model_note *note)
{
    int64_t held_ms = world->now_ms - life->since_ms;
    int64_t wait_ms = policy_backoff_ms(&world->policy, life->carried + life->deliveries, life->id);

    if (life->place != PLACE_PENDING || note->state == OWNER_LIVE || note->state == OWNER_ME) {
        fail("%d-%d is taken, but nobody left it", (int)life->id.ms, (int)life->id.seq);
    }
    if (note->state == OWNER_RELEASED) {
        return; /* put back: due at once */
    }
    wait_ms = wait_ms < world->policy.min_idle_ms ? world->policy.min_idle_ms : wait_ms;
    if (note->idle_ms < wait_ms || (world->stepped_ms < life->since_ms && held_ms < wait_ms)) {
        fail("%d-%d is taken after %d ms, not %d", (int)life->id.ms, (int)life->id.seq,
             (int)held_ms, (int)wait_ms);
    }
}

static void on_moved(struct life *life, const struct model_note *note)
{
    check_overdue(life, note);
    if (life->carried + life->deliveries >= world->policy.max_deliveries) {
        fail("%d-%d goes on after %d deliveries", (int)life->id.ms, (int)life->id.seq,
             (int)(life->carried + life->deliveries));
    }
    if (world->action == CLAIM_REQUEUE) {
        seen.requeued++;
        life->place = PLACE_OVER;
        return;
    }
    /* It was there within min-idle: perhaps it has died since, and nobody has its name any more. */
    struct impel_bytes heir = note->request->claim_from.heir;
    if (heir.size == 0 || bytes_equal(heir, note->owner) ||
        group_consumer(note->group, heir) == NULL) {
        fail("%d-%d is handed over to nobody", (int)life->id.ms, (int)life->id.seq);
    }
    seen.handed_over++;
    give(life, consumer_of(heir), false);
}

static void on_parked(struct life *life, const struct model_note *note)
{
    check_overdue(life, note);
    if (world->action != CLAIM_PARK &&
        life->carried + life->deliveries != world->policy.max_deliveries) {
        fail("%d-%d is parked after %d deliveries", (int)life->id.ms, (int)life->id.seq,
             (int)(life->carried + life->deliveries));
    }
    seen.parked++;
    life->place = PLACE_PARKED;
}

static void observe(void *user, const struct model_note *note)
{
    (void)user;
    if (!bytes_equal(note->stream->name, bytes_of("s")) || note->what == MODEL_ADDED ||
        note->what == MODEL_DROPPED || note->what == MODEL_BEAT || note->what == MODEL_LEFT) {
        return;
    }
    struct life *life = life_of(note->id);
    switch (note->what) {
    case MODEL_DELIVERED:
        if (life->place != PLACE_NEW) {
            fail("%d-%d is delivered as new again", (int)life->id.ms, (int)life->id.seq);
        }
        give(life, consumer_of(note->request->consumer), true);
        break;
    case MODEL_ACKED:
        life->place = PLACE_ACKED;
        break;
    case MODEL_MOVED:
        on_moved(life, note);
        break;
    case MODEL_PARKED:
        on_parked(life, note);
        break;
    case MODEL_REAPED:
        if (!life->gone || life->place != PLACE_PENDING) {
            fail("%d-%d is reaped, but it is there", (int)life->id.ms, (int)life->id.seq);
        }
        seen.reaped++;
        life->place = PLACE_LOST;
        break;
    case MODEL_PUT_BACK:
        if (life->place != PLACE_PARKED) {
            fail("%d-%d is put back, but was not parked", (int)life->id.ms, (int)life->id.seq);
        }
        seen.put_back++;
        give(life, NULL, false);
        life->carried = life->deliveries = 0;
        break;
    default:
        fail("%d-%d: nobody here does that", (int)life->id.ms, (int)life->id.seq);
    }
}

/* ---- requests ---- */

static struct request *request_on(enum request_kind kind)
{
    struct request *request = request_new(kind);

    ASSERT(request != NULL);
    request->stream = bytes_of("s");
    request->group = bytes_of("g");
    return request;
}

static int root_of(struct impel_id id)
{
    const struct model_stream *stream = state_stream(&world->model.state, bytes_of("s"));
    const struct entry *entry = stream_entry(stream, id);
    char number[16] = "";

    if (entry == NULL || entry->field_count != 1 || entry->fields[0].value.size >= sizeof(number)) {
        fail("%d-%d is not what was added", (int)id.ms, (int)id.seq);
    }
    memcpy(number, entry->fields[0].value.data, entry->fields[0].value.size);
    return (int)strtol(number, NULL, 10);
}

/* Carries it out, and enters what it added. */
static void apply(struct request *request)
{
    (void)model_apply(&world->model, request);
    if (request->status < 0) {
        return;
    }
    if (request->kind == REQUEST_CLAIM_FROM && world->action == CLAIM_REQUEUE) {
        for (size_t i = 0; i < request->claim_from.moved_count; i++) {
            const struct moved *moved = &request->claim_from.moved[i];
            const struct life *life = life_of(moved->id);
            if (life->carried + life->deliveries != moved->deliveries ||
                root_of(moved->copy) != life->root) {
                fail("%d-%d: its copy is another one's", (int)moved->id.ms, (int)moved->id.seq);
            }
            begin_life(moved->copy, life->root, moved->deliveries);
        }
    }
    check_roots();
}

/* ---- actors ---- */

static void produce(void)
{
    struct request *request = request_on(REQUEST_ADD);
    char number[16];
    struct impel_field field = {{"n", 1}, {number, 0}};

    field.value.size = (size_t)snprintf(number, sizeof(number), "%d", world->added);
    request->add.fields = &field;
    request->add.field_count = 1;
    request->add.length_max = -1;
    (void)model_apply(&world->model, request);
    if (request->status >= 0) {
        begin_life(request->add.id, world->added++, 0);
    }
    request_free(request);
}

static void consumer_born(struct consumer *consumer, bool another_name)
{
    if (another_name) {
        (void)snprintf(consumer->name, sizeof(consumer->name), "c%d", world->names++);
    }
    consumer->number = world->numbers++;
    consumer->alive = true;
}

static void consumer_acks(const struct life *life)
{
    struct request *request = request_on(REQUEST_ACK);
    struct request_item item = {.id = life->id};

    request->ack.items = &item;
    request->ack.item_count = 1;
    apply(request);
    request->ack.item_count = 0;
    request_free(request);
}

static void consumer_reads(const struct consumer *consumer)
{
    static const struct impel_bytes streams[] = {{"s", 1}};
    struct request *request = request_on(REQUEST_READ);

    request->consumer = bytes_of(consumer->name);
    request->read.streams = streams;
    request->read.stream_count = 1;
    request->read.count = 1 + (uint32_t)draw(HELD_MAX);
    apply(request);
    request_free(request);
}

/* Acknowledges something, looks for what it was handed, or reads; now and then it dies. */
static void consumer_acts(struct consumer *consumer)
{
    struct life *held = NULL;

    if (!consumer->alive) {
        if (world->quiet || chance(10)) {
            consumer_born(consumer, chance(50));
        }
        return;
    }
    if (!world->quiet && chance(12)) {
        consumer->alive = false;
        return;
    }
    for (size_t i = 0; i < world->book.count; i++) {
        struct life *life = &world->book.lives[i];
        if (life->place == PLACE_PENDING && life->holder == consumer->number) {
            held = life->in_hand ? life : held;
            life->in_hand = true;
        }
    }
    if (held != NULL && chance(70)) {
        consumer_acks(held);
    } else if (held == NULL) {
        consumer_reads(consumer);
    }
}

static struct sweep *new_sweep(void)
{
    const struct sweep_options options = {
        .stream = bytes_of("s"),
        .group = bytes_of("g"),
        .policy = world->policy,
        .dead_letter = bytes_of("s:dead"),
        .interval_ms = 500,
        .settle = true,
        .action = world->action,
        .consumer_ttl_ms = chance(50) ? 2000 : -1,
        .seed = random_next(&world->random),
    };
    struct sweep *sweep = sweep_new(&options, world->now_ms);

    ASSERT(sweep != NULL);
    return sweep;
}

/* One request of one sweep: before it is carried out or after, it or its answer may be lost, or the sweep
 * with it. */
static void sweep_acts(size_t index)
{
    struct request *request = sweep_next(world->sweeps[index], 0, false, world->now_ms);
    bool faults = !world->quiet;

    if (request == NULL) {
        return;
    }
    bool lost = faults && chance(8);
    if (!lost) {
        apply(request);
    }
    if (lost || (faults && chance(8))) {
        seen.lost++;
        request->status = IMPEL_ERR_DISCONNECTED;
    }
    if (faults && chance(5)) {
        sweep_free(world->sweeps[index]);
        world->sweeps[index] = new_sweep();
    } else {
        sweep_done(world->sweeps[index], request, world->now_ms);
    }
    request_free(request);
}

/* Somebody puts a record back to work, by a copy or in its place; perhaps with a look that is old, so
 * that it was put back already. */
static void replay(void)
{
    struct model_stream *dead = state_stream(&world->model.state, bytes_of("s:dead"));
    struct replay_run run = {0, 1};
    bool back = chance(50);

    if (dead == NULL || dead->entry_count == 0) {
        return;
    }
    const struct entry *record = dead->entries[draw(dead->entry_count)]->entry;
    struct replay_item item = {.id = record->id, .field_count = (uint32_t)record->field_count};
    struct impel_bytes original = record->fields[1].value;
    if (id_parse(original, 0, &item.original_id) < 0) {
        fail("a record without its original's ID");
    }
    if (world->looked_at.field_count != 0 && chance(20)) {
        item = world->looked_at;
    }
    world->looked_at = item;
    item.runs = &run;
    item.run_count = 1;
    struct request *request = request_on(REQUEST_REPLAY);
    request->replay.mode = back ? REPLAY_BACK : REPLAY_ADD;
    request->replay.dead_letter = bytes_of("s:dead");
    request->replay.items = &item;
    request->replay.item_count = 1;
    (void)model_apply(&world->model, request);
    if (request->status >= 0 && item.result == REPLAY_DONE && !back) {
        struct life *life = life_of(item.original_id);
        if (life->place != PLACE_PARKED) {
            fail("%d-%d is replayed, but was not parked", (int)life->id.ms, (int)life->id.seq);
        }
        seen.replayed++;
        life->place = PLACE_OVER;
        begin_life(item.added, life->root, 0);
    }
    request_free(request);
    check_roots();
}

/* ---- faults ---- */

static void delete_entry(void)
{
    struct life *life = &world->book.lives[draw(world->book.count)];
    struct model_stream *stream = state_stream(&world->model.state, bytes_of("s"));

    if (life->gone || stream_entry(stream, life->id) == NULL) {
        return;
    }
    stream_remove(stream, stream_seek(stream, life->id), 1);
    life->gone = true;
    life->place = life->place == PLACE_NEW ? PLACE_LOST : life->place;
}

static void keep(void)
{
    if (world->has_kept) {
        state_release(&world->kept);
    }
    state_copy(&world->model.state, &world->kept);
    world->kept_book = world->book;
    world->has_kept = true;
}

/* A failover to who had not heard the last writes. Producers add again what was lost with them. */
static void roll_back(void)
{
    if (!world->has_kept) {
        return;
    }
    seen.rolled_back++;
    state_release(&world->model.state);
    state_copy(&world->kept, &world->model.state);
    world->book = world->kept_book;
    /* Who looked at a record before looks anew: if the clock was set back too, IDs come again. */
    world->looked_at = (struct replay_item){0};
    world->added = 0;
    for (size_t i = 0; i < world->book.count; i++) {
        int after = world->book.lives[i].root + 1;
        world->added = after > world->added ? after : world->added;
    }
}

static void go_wrong(void)
{
    switch (draw(24)) {
    case 0:
        world->model.now_ms += (int64_t)draw(40000) - 20000;
        world->stepped_ms = world->now_ms;
        break;
    case 1:
        world->model.refuse_writes = !world->model.refuse_writes;
        break;
    case 2:
        world->model.refuse_beats = !world->model.refuse_beats;
        break;
    case 3:
    case 4:
        keep();
        break;
    case 5:
        roll_back();
        break;
    case 6:
        if (world->book.count > 0) {
            delete_entry();
        }
        break;
    default:
        world->model.refuse_writes = world->model.refuse_beats = false;
        break;
    }
}

/* ---- the course ---- */

static void step(void)
{
    int64_t by_ms = (int64_t)draw(200);
    uint64_t who = draw(100);

    world->now_ms += by_ms;
    world->model.now_ms += by_ms;
    if (who < 5 && !world->quiet) {
        go_wrong();
    } else if (who < 8 && !world->quiet) {
        replay();
    } else if (who < 15 && world->added < ENTRIES) {
        produce();
    } else if (who < 55) {
        consumer_acts(&world->consumers[draw(CONSUMERS)]);
    } else {
        sweep_acts(draw(SWEEPS));
    }
}

static bool settled(void)
{
    for (size_t i = 0; i < world->book.count; i++) {
        if (world->book.lives[i].place == PLACE_NEW ||
            world->book.lives[i].place == PLACE_PENDING) {
            return false;
        }
    }
    return world->added == ENTRIES;
}

static void begin_world(uint64_t seed)
{
    static const unsigned actions[] = {CLAIM_REQUEUE, CLAIM_REQUEUE, CLAIM_HAND_OVER, CLAIM_PARK};

    *world = (struct world){.seed = seed, .random = seed, .stepped_ms = -1};
    (void)random_next(&world->random);
    model_init(&world->model, START_MS);
    world->model.observe = observe;
    policy_defaults(&world->policy);
    world->policy.dead_after_ms = 1000;
    world->policy.min_idle_ms = 1000 + (int64_t)draw(5000);
    world->policy.max_deliveries = 1 + (int64_t)draw(4);
    world->policy.backoff_base_ms = chance(50) ? 0 : (int64_t)draw(3000);
    world->policy.backoff_cap_ms = world->policy.backoff_base_ms * 4;
    world->action = actions[draw(ARRAY_SIZE(actions))];
    struct request *request = request_on(REQUEST_GROUP_CREATE);
    (void)model_apply(&world->model, request);
    request_free(request);
    for (size_t i = 0; i < CONSUMERS; i++) {
        consumer_born(&world->consumers[i], true);
    }
    for (size_t i = 0; i < SWEEPS; i++) {
        world->sweeps[i] = new_sweep();
    }
}

static void end_world(void)
{
    for (size_t i = 0; i < SWEEPS; i++) {
        sweep_free(world->sweeps[i]);
    }
    if (world->has_kept) {
        state_release(&world->kept);
    }
    model_release(&world->model);
}

static void run_world(void)
{
    for (int i = 0; i < STEPS; i++) {
        step();
        if (i % AUDIT_STEPS == 0) {
            audit();
        }
    }
    world->quiet = true;
    world->model.refuse_writes = world->model.refuse_beats = false;
    for (int i = 0; i < STEPS_LAST && !settled(); i++) {
        step();
    }
    audit();
    if (!settled()) {
        fail("somebody starves");
    }
}

static bool run_seed(uint64_t seed)
{
    begin_world(seed);
    bool held = setjmp(world->abandon) == 0;
    if (held) {
        run_world();
    } else {
        printf("# seed %" PRIu64 ": %s\n", seed, world->text);
    }
    end_world();
    return held;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, last = 1000;
    bool all = true;

    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        char *end = NULL;
        first = strtoull(argv[2], &end, 10);
        last = strncmp(end, "..", 2) == 0 ? strtoull(end + 2, NULL, 10) : first;
    }
    printf("TAP version 13\n1..%" PRIu64 "\n", (last - first) / SEEDS_A_TEST + 1);
    for (uint64_t test = 1; first <= last; test++) {
        bool held = true;
        uint64_t from = first;
        for (; first <= last && first < from + SEEDS_A_TEST; first++) {
            held = run_seed(first) && held;
        }
        printf("%s %" PRIu64 " - seeds %" PRIu64 " to %" PRIu64 " keep the promises\n",
               held ? "ok" : "not ok", test, from, first - 1);
        all = all && held;
    }
    printf("# %" PRIu64 " requeued, %" PRIu64 " handed over, %" PRIu64 " parked, %" PRIu64
           " reaped, %" PRIu64 " replayed, %" PRIu64 " put back; %" PRIu64
           " requests or answers lost, %" PRIu64 " rollbacks\n",
           seen.requeued, seen.handed_over, seen.parked, seen.reaped, seen.replayed, seen.put_back,
           seen.lost, seen.rolled_back);
    return all ? 0 : 1;
}
