/* sweep.c -- one group's sweep: look, walk what is abandoned, claim as places fall free.
 *
 *   REST ──look due──► LOOK ──stamp taken──► WALK ──all walked, the empty dropped──► REST
 *                        └──somebody else's──► REST
 *
 * Each owner worth walking is a *target*. A step of the walk claims as many as there are places for
 * and otherwise only counts; what it left behind is remembered in the target, and claimed later,
 * whenever places come, without a new look. Targets and what is known of them outlive the look: an
 * owner whose pending list is longer than one sweep walks is gone on with in the next. */
#include "core/sweep.h"

#include <stdlib.h>
#include <string.h>

enum phase {
    PHASE_REST,
    PHASE_WALK,
};

struct target {
    struct impel_bytes name; /* in the arena */
    struct impel_bytes heir; /* with CLAIM_HAND_OVER; empty if there is none */
    enum owner_state state;
    bool nobody;          /* the unowned entries */
    bool drop;            /* holds nothing: to be deleted */
    bool walked;          /* as far as this sweep goes */
    struct impel_id from; /* where its walk goes on */
    uint32_t steps;       /* that only found, in this sweep */
    bool due;             /* something was left that a free handler could have */
    bool due_last;        /* ... that a handler could have that runs alone */
    struct impel_id due_from, last_from;
};

struct sweep {
    struct sweep_options options;
    struct arena names; /* of the options */
    struct arena arena; /* of the targets */
    enum phase phase;
    struct target *targets;
    size_t target_count;
    size_t at;           /* the target being walked or dropped */
    size_t claim_at;     /* the target whose turn it is to be claimed from */
    size_t due_count;    /* targets with `due` */
    size_t last_count;   /* targets with `due_last` */
    size_t left_out;     /* owners that there was no room for */
    struct request *out; /* at most one */
    struct target *out_target;
    int64_t look_ms; /* when the next look is due */
    bool hurried;    /* without asking for the stamp */
    bool free;       /* a handler is */
    bool limited;    /* by the steps of one sweep */
    uint32_t foreign_steps;
    uint64_t foreign_steps_max;  /* of this sweep */
    uint64_t foreign_short;      /* rows that its steps stopped short of SWEEP_ROWS_MAX */
    struct sweep_cursor foreign; /* where our own walk of foreign owners stopped */
    char *foreign_name;          /* its owner */
    uint64_t due_seen, not_due_seen;
    bool report;
    uint64_t report_due, report_not_due;
};

/* ---- life ---- */

struct sweep *sweep_new(const struct sweep_options *options, int64_t now_ms)
{
    struct sweep *sweep = calloc(1, sizeof(*sweep));

    if (sweep == NULL) {
        return NULL;
    }
    sweep->options = *options;
    sweep->look_ms = now_ms;
    sweep->limited = options->consumer.size > 0;
    if (!arena_copy(&sweep->names, options->stream, &sweep->options.stream) ||
        !arena_copy(&sweep->names, options->group, &sweep->options.group) ||
        !arena_copy(&sweep->names, options->consumer, &sweep->options.consumer) ||
        !arena_copy(&sweep->names, options->dead_letter, &sweep->options.dead_letter)) {
        sweep_free(sweep);
        return NULL;
    }
    return sweep;
}

void sweep_free(struct sweep *sweep)
{
    if (sweep == NULL) {
        return;
    }
    arena_release(&sweep->names);
    arena_release(&sweep->arena);
    free(sweep->foreign_name);
    free(sweep);
}

/* ---- when to look ---- */

static int64_t part_of(struct sweep *sweep, int64_t span_ms)
{
    return span_ms < 1 ? 0 : (int64_t)(random_next(&sweep->options.seed) % (uint64_t)span_ms);
}

/* After one's own look: always later than the stamp is old, or a sole worker would be refused and
 * sweep half as often. */
static void look_after_own(struct sweep *sweep, int64_t now_ms)
{
    int64_t interval_ms = sweep->options.interval_ms;
    sweep->look_ms = now_ms + interval_ms + 1 + interval_ms / 50 + part_of(sweep, interval_ms / 10);
}

/* After somebody else's: any time in which the stamp may become free. */
static void look_after_other(struct sweep *sweep, int64_t now_ms)
{
    int64_t half_ms = sweep->options.interval_ms / 2;
    sweep->look_ms = now_ms + half_ms + 1 + part_of(sweep, half_ms);
}

void sweep_hurry(struct sweep *sweep, int64_t now_ms)
{
    sweep->look_ms = now_ms;
    sweep->hurried = true;
}

void sweep_set_free(struct sweep *sweep, bool free)
{
    sweep->free = free;
}

int64_t sweep_deadline(const struct sweep *sweep, int64_t now_ms)
{
    if (sweep->out != NULL) {
        return INT64_MAX;
    }
    if (sweep->phase != PHASE_REST || sweep->look_ms <= now_ms) {
        return 0;
    }
    return sweep->look_ms - now_ms;
}

bool sweep_due(const struct sweep *sweep, bool *last)
{
    if (last != NULL) {
        *last = sweep->last_count > 0;
    }
    return sweep->due_count + sweep->last_count > 0;
}

bool sweep_claimable(const struct sweep *sweep)
{
    return sweep->due_count > 0;
}

size_t sweep_left_out(const struct sweep *sweep)
{
    return sweep->left_out;
}

bool sweep_report(struct sweep *sweep, uint64_t *due, uint64_t *not_due)
{
    if (!sweep->report) {
        return false;
    }
    sweep->report = false;
    *due = sweep->report_due;
    *not_due = sweep->report_not_due;
    return true;
}

/* ---- targets ---- */

static void set_due(struct sweep *sweep, struct target *target, bool due, struct impel_id from)
{
    sweep->due_count += (size_t)due - (size_t)target->due;
    target->due = due;
    target->due_from = from;
}

static void set_last(struct sweep *sweep, struct target *target, bool due, struct impel_id from)
{
    sweep->last_count += (size_t)due - (size_t)target->due_last;
    target->due_last = due;
    target->last_from = from;
}

static const struct target *
find_target(const struct target *targets, size_t count, const struct target *like)
{
    for (size_t i = 0; i < count; i++) {
        if (targets[i].nobody == like->nobody && bytes_equal(targets[i].name, like->name)) {
            return &targets[i];
        }
    }
    return NULL;
}

static bool wants_walk(const struct look_owner *owner)
{
    return owner->pending > 0 && (owner->state == OWNER_DEAD || owner->state == OWNER_FOREIGN ||
                                  owner->state == OWNER_RELEASED);
}

bool sweep_wants_drop(const struct look_owner *owner, int64_t consumer_ttl_ms)
{
    if (owner->pending > 0) {
        return false;
    }
    if (owner->state == OWNER_DEAD) {
        return true;
    }
    return owner->state == OWNER_FOREIGN && consumer_ttl_ms >= 0 &&
           owner->seen_age_ms >= consumer_ttl_ms;
}

/* ---- heirs ---- */

/* Fewer entries, and then who was seen last. */
static bool better_heir(const struct look_owner *a, const struct look_owner *b)
{
    return b == NULL || a->pending < b->pending ||
           (a->pending == b->pending && a->seen_age_ms < b->seen_age_ms);
}

struct sweep_heirs sweep_find_heirs(const struct request *look, int64_t min_idle_ms)
{
    struct sweep_heirs heirs = {0};

    for (size_t i = 0; i < look->look.owner_count; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (owner->state != OWNER_FOREIGN || owner->seen_age_ms < 0 ||
            owner->seen_age_ms >= min_idle_ms) {
            continue;
        }
        if (better_heir(owner, heirs.best)) {
            heirs.second = heirs.best;
            heirs.best = owner;
        } else if (better_heir(owner, heirs.second)) {
            heirs.second = owner;
        }
    }
    return heirs;
}

struct impel_bytes sweep_heir_of(const struct sweep_heirs *heirs, struct impel_bytes name)
{
    const struct look_owner *heir = heirs->best;

    if (heir != NULL && bytes_equal(heir->name, name)) {
        heir = heirs->second;
    }
    return heir == NULL ? (struct impel_bytes){NULL, 0} : heir->name;
}

/* A worker finds by the way; a sweep without one sees all that foreigners hold within the time after
 * which it counts as abandoned: each owner's list takes a step, and one more for each SWEEP_ROWS_MAX. */
static uint64_t foreign_steps_max(const struct sweep *sweep, uint64_t owners, uint64_t rows)
{
    uint64_t sweeps = (uint64_t)(sweep->options.policy.min_idle_ms /
                                 (sweep->options.interval_ms > 0 ? sweep->options.interval_ms : 1));
    uint64_t steps = (rows / SWEEP_ROWS_MAX + owners) / (sweeps > 0 ? sweeps : 1) + 1;

    return sweep->options.consumer.size > 0 || steps < SWEEP_STEPS_FOREIGN ? SWEEP_STEPS_FOREIGN
                                                                           : steps;
}

/* Abandoned work first, since it is known to be; then what may be healthy; then the empty ones. */
static int rank(const struct target *target)
{
    if (target->drop) {
        return 2;
    }
    return target->state == OWNER_FOREIGN;
}

static int target_order(const void *a, const void *b)
{
    const struct target *left = a;
    const struct target *right = b;
    int order = rank(left) - rank(right);
    return order != 0 ? order : bytes_compare(left->name, right->name);
}

/* Foreign owners are walked a few steps a sweep, so each sweep begins where one stopped: where the
 * group's cursor stands if it is with a foreign owner, else where our own last did. */
static void rotate_foreign(struct sweep *sweep, const struct sweep_cursor *cursor)
{
    size_t first = 0;
    while (first < sweep->target_count && rank(&sweep->targets[first]) < 1) {
        first++;
    }
    size_t end = first;
    while (end < sweep->target_count && rank(&sweep->targets[end]) == 1) {
        end++;
    }
    size_t count = end - first;
    const struct target like = {.name = cursor->owner};
    const struct target *at = find_target(&sweep->targets[first], count, &like);
    if (at == NULL) {
        cursor = &sweep->foreign;
    }
    size_t skip = 0;
    while (skip < count) {
        struct target *target = &sweep->targets[first + skip];
        int order = bytes_compare(target->name, cursor->owner);
        if (order > 0 || (order == 0 && !id_is_zero(cursor->id))) {
            target->from = order == 0 ? cursor->id : ID_MIN;
            break;
        }
        skip++;
    }
    if (skip == 0 || skip == count) {
        return;
    }
    struct target *turned = malloc(count * sizeof(*turned));
    if (turned == NULL) {
        return; /* walked in the order of names this time */
    }
    for (size_t i = 0; i < count; i++) {
        turned[i] = sweep->targets[first + (skip + i) % count];
    }
    memcpy(&sweep->targets[first], turned, count * sizeof(*turned));
    free(turned);
}

static int name_order(const void *a, const void *b)
{
    const struct target *left = a;
    const struct target *right = b;

    return left->nobody != right->nobody ? (int)left->nobody - (int)right->nobody
                                         : bytes_compare(left->name, right->name);
}

/* What was known of the same owner goes on to count. The old ones are put into another order: there may
 * be very many. */
static void carry_over(struct sweep *sweep, struct target *old, size_t old_count)
{
    sweep->due_count = sweep->last_count = 0;
    if (old_count > 0) {
        qsort(old, old_count, sizeof(*old), name_order);
    }
    for (size_t i = 0; i < sweep->target_count; i++) {
        struct target *target = &sweep->targets[i];
        const struct target *known =
            old_count == 0 ? NULL : bsearch(target, old, old_count, sizeof(*old), name_order);
        if (known == NULL || known->state != target->state || target->drop) {
            continue;
        }
        if (target->state != OWNER_FOREIGN) {
            target->from = known->from;
        }
        set_due(sweep, target, known->due, known->due_from);
        set_last(sweep, target, known->due_last, known->last_from);
    }
}

static bool add_target(struct sweep *sweep, struct arena *arena, const struct target *like)
{
    if (sweep->target_count == SWEEP_OWNERS_MAX) {
        return true; /* the next look may find room */
    }
    struct target *target = &sweep->targets[sweep->target_count];
    *target = *like;
    if (!arena_copy(arena, like->name, &target->name) ||
        !arena_copy(arena, like->heir, &target->heir)) {
        return false;
    }
    sweep->target_count++;
    return true;
}

/* False if memory is out: then this sweep is left out. */
static bool make_targets(struct sweep *sweep, const struct request *look)
{
    struct arena arena = {0};
    struct target *old = sweep->targets;
    size_t old_count = sweep->target_count;
    size_t count = look->look.owner_count + 1;
    uint64_t owned = 0, foreign_owners = 0, foreign = 0;
    size_t left_out = 0;
    struct sweep_heirs heirs = sweep_find_heirs(look, sweep->options.policy.min_idle_ms);

    count = count > SWEEP_OWNERS_MAX ? SWEEP_OWNERS_MAX : count;
    struct target *targets = arena_calloc(&arena, count, sizeof(*targets));
    if (targets == NULL) {
        return false;
    }
    sweep->targets = targets;
    sweep->target_count = 0;
    bool kept = true;
    for (size_t i = 0; i < look->look.owner_count && kept; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        struct target like = {.name = owner->name, .state = owner->state};
        owned += owner->pending;
        if (owner->state == OWNER_FOREIGN && owner->pending > 0) {
            foreign_owners++;
            foreign += owner->pending;
        }
        like.heir = sweep_heir_of(&heirs, owner->name);
        like.drop = sweep_wants_drop(owner, sweep->options.consumer_ttl_ms);
        bool wanted = like.drop || wants_walk(owner);
        if (wanted && sweep->target_count + 1 < count) {
            kept = add_target(sweep, &arena, &like);
        } else {
            left_out += wanted;
        }
    }
    if (kept && look->look.pending > owned) {
        struct target like = {.state = OWNER_NOBODY, .nobody = true};
        like.heir = sweep_heir_of(&heirs, like.name);
        kept = add_target(sweep, &arena, &like);
    }
    sweep->foreign_steps_max = foreign_steps_max(sweep, foreign_owners, foreign);
    if (!kept) {
        sweep->targets = old;
        sweep->target_count = old_count;
        arena_release(&arena);
        return false;
    }
    sweep->left_out = left_out;
    qsort(sweep->targets, sweep->target_count, sizeof(*sweep->targets), target_order);
    carry_over(sweep, old, old_count);
    if (sweep->limited) { /* else all of it is walked at once, and from its beginning */
        rotate_foreign(sweep, &look->look.cursor);
    }
    arena_release(&sweep->arena);
    sweep->arena = arena;
    return true;
}

/* ---- requests ---- */

static struct request *request_of(struct sweep *sweep, enum request_kind kind)
{
    const struct sweep_options *options = &sweep->options;
    struct request *request = request_new(kind);

    if (request == NULL || !arena_copy(&request->arena, options->stream, &request->stream) ||
        !arena_copy(&request->arena, options->group, &request->group) ||
        !arena_copy(&request->arena, options->consumer, &request->consumer)) {
        request_free(request);
        return NULL;
    }
    request->token = options->token;
    /* Without a worker there is no row, and nobody beats as often as this would ask for. */
    request->dead_after_ms = options->consumer.size > 0 ? options->policy.dead_after_ms : 0;
    return request;
}

static struct request *send(struct sweep *sweep, struct request *request, struct target *target)
{
    sweep->out = request;
    sweep->out_target = target;
    return request;
}

static struct request *look(struct sweep *sweep, int64_t now_ms)
{
    struct request *request = request_of(sweep, REQUEST_LOOK);

    look_after_own(sweep, now_ms);
    if (request == NULL) {
        return NULL;
    }
    request->look.flags = LOOK_BEAT | (sweep->hurried ? 0U : LOOK_STAMP) |
                          (sweep->free && !sweep->hurried ? LOOK_FREE : 0U);
    request->look.interval_ms = sweep->options.interval_ms;
    sweep->hurried = false;
    return send(sweep, request, NULL);
}

static struct request *claim_from(struct sweep *sweep,
                                  struct target *target,
                                  struct impel_id from,
                                  uint32_t claims_max,
                                  unsigned flags)
{
    struct request *request = request_of(sweep, REQUEST_CLAIM_FROM);

    if (request == NULL || !arena_copy(&request->arena, target->name, &request->claim_from.owner) ||
        !arena_copy(&request->arena, target->heir, &request->claim_from.heir) ||
        !arena_copy(&request->arena, sweep->options.dead_letter,
                    &request->claim_from.dead_letter)) {
        request_free(request);
        return NULL;
    }
    request->claim_from.nobody = target->nobody;
    request->claim_from.from = from;
    request->claim_from.rows_max = SWEEP_ROWS_MAX;
    request->claim_from.claims_max = claims_max > SWEEP_CLAIMS_MAX ? SWEEP_CLAIMS_MAX : claims_max;
    request->claim_from.flags =
        flags | sweep->options.action | (sweep->options.settle ? CLAIM_SETTLE : 0);
    request->claim_from.policy = sweep->options.policy;
    return send(sweep, request, target);
}

static struct request *drop(struct sweep *sweep, struct target *target)
{
    struct request *request = request_of(sweep, REQUEST_DROP);

    if (request == NULL || !arena_copy(&request->arena, target->name, &request->leave.name)) {
        request_free(request);
        return NULL;
    }
    request->leave.inactive_ms = sweep->options.consumer_ttl_ms;
    return send(sweep, request, target);
}

/* Known due work for the places there are, owner by owner in turn. */
static struct request *claim_due(struct sweep *sweep, uint32_t places, bool alone)
{
    for (size_t i = 0; i < sweep->target_count; i++) {
        struct target *target = &sweep->targets[(sweep->claim_at + i) % sweep->target_count];
        if (alone && target->due_last) {
            sweep->claim_at += i + 1;
            return claim_from(sweep, target, target->last_from, 1, CLAIM_LAST);
        }
        if (!alone && target->due) {
            sweep->claim_at += i + 1;
            return claim_from(sweep, target, target->due_from, places, 0);
        }
    }
    return NULL;
}

static void walk_over(struct sweep *sweep)
{
    sweep->phase = PHASE_REST;
    sweep->limited = true;
    sweep->report = true;
    sweep->report_due = sweep->due_seen;
    sweep->report_not_due = sweep->not_due_seen;
}

/* The next step of the walk, or NULL when all is walked and dropped. */
static struct request *walk(struct sweep *sweep, uint32_t places)
{
    for (; sweep->at < sweep->target_count; sweep->at++) {
        struct target *target = &sweep->targets[sweep->at];
        bool foreign = target->state == OWNER_FOREIGN;
        if (target->walked) {
            continue;
        }
        if (target->drop) {
            target->walked = true;
            return drop(sweep, target);
        }
        uint64_t steps_max = foreign ? UINT64_MAX : SWEEP_STEPS_MAX;
        if (sweep->limited && (target->steps >= steps_max ||
                               (foreign && sweep->foreign_steps >= sweep->foreign_steps_max))) {
            target->walked = true;
            continue;
        }
        bool acts = sweep->options.action != 0;
        target->steps += acts || places == 0;
        sweep->foreign_steps += foreign;
        return claim_from(sweep, target, target->from, acts ? SWEEP_CLAIMS_MAX : places, 0);
    }
    walk_over(sweep);
    return NULL;
}

struct request *sweep_next(struct sweep *sweep, uint32_t places, bool alone, int64_t now_ms)
{
    if (sweep->out != NULL) {
        return NULL;
    }
    if (alone && places > 0 && sweep->last_count > 0) {
        return claim_due(sweep, 1, true);
    }
    if (sweep->phase == PHASE_REST && sweep->look_ms <= now_ms) {
        return look(sweep, now_ms);
    }
    if (places > 0 && sweep->due_count > 0) {
        return claim_due(sweep, places, false);
    }
    return sweep->phase == PHASE_REST ? NULL : walk(sweep, places);
}

/* ---- answers ---- */

static void note_look(struct sweep *sweep, const struct request *request, int64_t now_ms)
{
    if (!request->look.stamped) {
        look_after_other(sweep, now_ms);
        return;
    }
    if (!make_targets(sweep, request)) {
        return;
    }
    sweep->phase = PHASE_WALK;
    sweep->at = 0;
    sweep->claim_at = 0;
    sweep->foreign_steps = 0;
    sweep->foreign_short = 0;
    sweep->due_seen = sweep->not_due_seen = 0;
}

/* Where the walk of foreign owners stands, for our own next sweep. */
static void note_foreign(struct sweep *sweep, const struct target *target)
{
    char *name = malloc(target->name.size + 1);

    if (name == NULL) {
        return; /* the next sweep begins where this one did */
    }
    if (target->name.size > 0) {
        memcpy(name, target->name.data, target->name.size);
    }
    free(sweep->foreign_name);
    sweep->foreign_name = name;
    sweep->foreign.owner = (struct impel_bytes){name, target->name.size};
    sweep->foreign.id = target->from;
}

static bool is_abandoned(enum owner_state state)
{
    return state == OWNER_DEAD || state == OWNER_FOREIGN || state == OWNER_RELEASED ||
           state == OWNER_NOBODY;
}

/* A busy store ends its steps early. Where all has to be seen in time, that makes more of them. */
static void note_short(struct sweep *sweep, size_t rows)
{
    if (sweep->options.consumer.size > 0 || rows == 0 || rows >= SWEEP_ROWS_MAX) {
        return;
    }
    sweep->foreign_short += SWEEP_ROWS_MAX - rows;
    if (sweep->foreign_short >= SWEEP_ROWS_MAX && sweep->foreign_steps > 0) {
        sweep->foreign_short -= SWEEP_ROWS_MAX;
        sweep->foreign_steps--;
    }
}

/* `from` is where this step began: a step of the walk began at target->from, one that claims what
 * was found earlier elsewhere. Only the former moves the walk. */
static void note_step(struct sweep *sweep, struct target *target, const struct request *request)
{
    bool last = request->claim_from.flags & CLAIM_LAST;
    bool walking = !last && id_equal(request->claim_from.from, target->from) && !target->walked;
    bool claiming = request->claim_from.claims_max > 0;
    bool ended = id_is_zero(request->claim_from.next);
    bool full = claiming && request->claim_from.entry_count >= request->claim_from.claims_max;
    struct impel_id next = request->claim_from.next;
    struct impel_id first = request->claim_from.due_first;
    size_t plain = request->claim_from.due - request->claim_from.due_last;

    if (last) {
        set_last(sweep, target, !ended, next);
        return;
    }
    if (request->claim_from.due_last > 0 && !target->due_last) {
        set_last(sweep, target, true, first);
    }
    if (target->due && claiming && id_equal(request->claim_from.from, target->due_from)) {
        set_due(sweep, target, !ended, next); /* claimed up to there */
    }
    if (!target->due && (plain > 0 || (full && !ended && !walking))) {
        set_due(sweep, target, true, plain > 0 ? first : next);
    }
    if (!walking) {
        return;
    }
    if (sweep->options.action != 0 &&
        request->claim_from.moved_count + request->claim_from.parked_count > 0) {
        target->steps--; /* what is found and done with at once has no limit */
        sweep->foreign_steps -= target->state == OWNER_FOREIGN;
    }
    if (target->state == OWNER_FOREIGN && !ended) {
        note_short(sweep, request->claim_from.rows);
    }
    sweep->due_seen += request->claim_from.due;
    sweep->not_due_seen += request->claim_from.not_due;
    target->from = next;
    target->walked = ended;
    if (target->state == OWNER_FOREIGN) {
        note_foreign(sweep, target);
    }
}

void sweep_done(struct sweep *sweep, struct request *request, int64_t now_ms)
{
    struct target *target = sweep->out_target;

    ASSERT(request == sweep->out);
    sweep->out = NULL;
    sweep->out_target = NULL;
    if (request->status < 0) {
        sweep->phase = PHASE_REST; /* what was due is found again by the next look */
        sweep->target_count = 0;
        sweep->due_count = sweep->last_count = 0;
        look_after_own(sweep, now_ms);
        return;
    }
    if (request->kind == REQUEST_LOOK) {
        note_look(sweep, request, now_ms);
    } else if (request->kind == REQUEST_CLAIM_FROM && !is_abandoned(request->claim_from.state)) {
        set_due(sweep, target, false, ID_MIN);
        set_last(sweep, target, false, ID_MIN);
        target->walked = true;
        target->from = ID_MIN;
    } else if (request->kind == REQUEST_CLAIM_FROM) {
        note_step(sweep, target, request);
    }
}
