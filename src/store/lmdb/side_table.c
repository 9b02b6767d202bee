/* side_table.c -- the workers tables in the side file: who beats, and who is dead.
 *
 * Every change under the lock leaves the tables whole at each single store, or side_repair() makes
 * them so: a row counts if its `group` is set; lists only order what the rows say. */
#include "store/lmdb/side.h"

#include <string.h>

enum {
    GROUP_NEVER_USED = 0,
    GROUP_FREE = 1, /* was used: a search goes on behind it. Object numbers start above */
    BEAT_TIME_BITS = 47,
};

/* ---- the beat word ---- */

static uint64_t beat_word(uint16_t generation, int64_t time_ms, bool dead)
{
    uint64_t time = (uint64_t)time_ms & (((uint64_t)1 << BEAT_TIME_BITS) - 1);
    return (uint64_t)generation << 48 | time << 1 | (dead ? 1 : 0);
}

static uint16_t word_generation(uint64_t word)
{
    return (uint16_t)(word >> 48);
}

static int64_t word_ms(uint64_t word)
{
    return (int64_t)(word << 16 >> 17);
}

static bool word_dead(uint64_t word)
{
    return (word & 1) != 0;
}

int64_t side_beat_ms(const struct side_row *row)
{
    return word_ms(atomic_load(&row->beat));
}

bool side_marked(const struct side_row *row)
{
    return word_dead(atomic_load(&row->beat));
}

/* ---- groups ---- */

struct side_group *side_group(struct side *side, uint64_t number, bool make)
{
    struct side_group *free_slot = NULL;

    for (uint32_t i = 0; i < SIDE_GROUPS_MAX; i++) {
        uint32_t at = (uint32_t)(number * 0x9e3779b1U + i) & (SIDE_GROUPS_MAX - 1);
        struct side_group *group = &side->groups[at];
        uint64_t found = atomic_load(&group->number);
        if (found == number) {
            return group;
        }
        if (found == GROUP_FREE && free_slot == NULL) {
            free_slot = group;
        }
        if (found == GROUP_NEVER_USED) {
            free_slot = free_slot == NULL ? group : free_slot;
            break;
        }
    }
    if (!make || free_slot == NULL) {
        return NULL;
    }
    atomic_store(&free_slot->last_ms, 0);
    atomic_store(&free_slot->since_ms, 0);
    atomic_store(&free_slot->dead_after_min_ms, 0);
    free_slot->stamp_ms = free_slot->left_ms = 0;
    free_slot->cursor_owner = 0;
    free_slot->cursor_ms = free_slot->cursor_seq = 0;
    free_slot->row_first = 0;
    atomic_store(&free_slot->number, number);
    return free_slot;
}

void side_group_remove(struct side *side, struct side_group *group)
{
    while (group->row_first != 0) {
        side_remove(side, group, side_row_at(side, group->row_first));
    }
    atomic_store(&group->number, GROUP_FREE);
}

/* ---- rows ---- */

void side_name_hash(struct impel_bytes name, uint64_t hash[2])
{
    hash[0] = hash_bytes(name, 1);
    hash[1] = hash_bytes(name, 0x9e3779b97f4a7c15U);
}

struct side_row *side_row_at(struct side *side, uint32_t index_plus_one)
{
    return index_plus_one == 0 || index_plus_one > SIDE_ROWS_MAX ? NULL
                                                                 : &side->rows[index_plus_one - 1];
}

static uint32_t row_index(const struct side *side, const struct side_row *row)
{
    return (uint32_t)(row - side->rows) + 1;
}

struct side_row *side_row(struct side *side, struct side_group *group, struct impel_bytes name)
{
    uint64_t hash[2];
    struct side_row *row = side_row_at(side, group->row_first);

    side_name_hash(name, hash);
    while (row != NULL && (row->name_hash[0] != hash[0] || row->name_hash[1] != hash[1])) {
        row = side_row_at(side, row->next);
    }
    return row;
}

static void dead_after_min(struct side *side, struct side_group *group)
{
    int64_t min_ms = 0;

    for (struct side_row *row = side_row_at(side, group->row_first); row != NULL;
         row = side_row_at(side, row->next)) {
        if (min_ms == 0 || row->dead_after_ms < min_ms) {
            min_ms = row->dead_after_ms;
        }
    }
    atomic_store(&group->dead_after_min_ms, min_ms);
}

static struct side_row *row_new(struct side *side)
{
    struct side_header *header = side->header;
    struct side_row *row = side_row_at(side, header->row_free);

    if (row != NULL) {
        header->row_free = row->next;
        return row;
    }
    if (header->rows_used >= SIDE_ROWS_MAX) {
        return NULL;
    }
    row = &side->rows[header->rows_used];
    if (side_reserve(side->fd, (size_t)((char *)row - (char *)header), sizeof(*row)) != 0) {
        return NULL;
    }
    header->rows_used++;
    return row;
}

struct side_row *side_take(struct side *side,
                           struct side_group *group,
                           struct impel_bytes name,
                           const struct token *token,
                           int64_t dead_after_ms,
                           int64_t now_ms)
{
    struct side_row *row = side_row(side, group, name);
    bool is_new = row == NULL;

    if (is_new) {
        row = row_new(side);
        if (row == NULL) {
            return NULL;
        }
        side_name_hash(name, row->name_hash);
        row->name_size = (uint32_t)(name.size < SIDE_NAME_MAX ? name.size : SIDE_NAME_MAX);
        if (name.size > 0) {
            memcpy(row->name, name.data, row->name_size);
        }
    }
    uint16_t generation = word_generation(atomic_load(&row->beat));
    if (is_new || !token_equal(&row->token, token)) {
        generation++;
    }
    /* Marked while the token changes: a taker killed here leaves a dead row, which anybody takes. */
    atomic_store(&row->beat, beat_word(generation, 0, true));
    row->token = *token;
    row->dead_after_ms = dead_after_ms;
    atomic_store(&row->beat, beat_word(generation, now_ms, false));
    if (is_new) {
        row->next = group->row_first;
        row->group = atomic_load(&group->number);
        group->row_first = row_index(side, row);
    }
    dead_after_min(side, group);
    return row;
}

void side_remove(struct side *side, struct side_group *group, struct side_row *row)
{
    uint32_t index = row_index(side, row);
    uint32_t *at = &group->row_first;

    while (*at != index) {
        struct side_row *other = side_row_at(side, *at);
        ASSERT(other != NULL);
        at = &other->next;
    }
    uint16_t generation = word_generation(atomic_load(&row->beat));
    atomic_store(&row->beat, beat_word((uint16_t)(generation + 1), 0, true));
    *at = row->next;
    row->group = 0;
    row->next = side->header->row_free;
    side->header->row_free = index;
    dead_after_min(side, group);
}

/* A row that says what it is: its name has the hash it is found by, unless the name was cut. */
static bool row_whole(const struct side_row *row)
{
    uint64_t hash[2];

    if (row->group < 2 || row->name_size > SIDE_NAME_MAX || row->dead_after_ms <= 0) {
        return false;
    }
    side_name_hash((struct impel_bytes){row->name, row->name_size}, hash);
    return row->name_size == SIDE_NAME_MAX ||
           (hash[0] == row->name_hash[0] && hash[1] == row->name_hash[1]);
}

void side_repair(struct side *side)
{
    struct side_header *header = side->header;

    header->row_free = 0;
    for (uint32_t i = 0; i < SIDE_GROUPS_MAX; i++) {
        side->groups[i].row_first = 0;
    }
    for (uint32_t i = 0; i < header->rows_used; i++) {
        struct side_row *row = &side->rows[i];
        struct side_group *group = row_whole(row) ? side_group(side, row->group, false) : NULL;
        uint32_t *list = group == NULL ? &header->row_free : &group->row_first;
        row->group = group == NULL ? 0 : row->group;
        row->next = *list;
        *list = i + 1;
    }
    for (uint32_t i = 0; i < SIDE_GROUPS_MAX; i++) {
        if (side->groups[i].row_first != 0) {
            dead_after_min(side, &side->groups[i]);
        }
    }
}

void side_bury(struct side *side)
{
    for (uint32_t i = 0; i < SIDE_GROUPS_MAX; i++) {
        struct side_group *group = &side->groups[i];
        atomic_store(&group->last_ms, 0);
        atomic_store(&group->since_ms, 0);
        group->stamp_ms = group->left_ms = 0;
    }
    for (uint32_t i = 0; i < side->header->rows_used; i++) {
        struct side_row *row = &side->rows[i];
        uint16_t generation = word_generation(atomic_load(&row->beat));
        atomic_store(&row->beat, beat_word(generation, 0, true));
    }
}

struct side_ref
side_ref(const struct side *side, const struct side_group *group, const struct side_row *row)
{
    return (struct side_ref){
        .group_number = atomic_load(&group->number),
        .group = (uint32_t)(group - side->groups),
        .row = (uint32_t)(row - side->rows),
        .generation = word_generation(atomic_load(&row->beat)),
    };
}

/* ---- beating and judging ---- */

static void raise_to(_Atomic int64_t *at, int64_t value)
{
    int64_t seen = atomic_load(at);
    while (seen < value && !atomic_compare_exchange_weak(at, &seen, value)) {
    }
}

static int64_t gap_ms(const struct side_group *group, int64_t dead_after_ms)
{
    int64_t min_ms = atomic_load(&group->dead_after_min_ms);

    if (dead_after_ms > 0 && (min_ms == 0 || dead_after_ms < min_ms)) {
        min_ms = dead_after_ms;
    }
    return liveness_gap_ms(min_ms == 0 ? INT64_MAX : min_ms);
}

void side_note(struct side_group *group, int64_t dead_after_ms, int64_t now_ms)
{
    struct liveness seen = {.last_ms = atomic_load(&group->last_ms)};

    /* Several may note at once, and one may be stopped between any two lines for long: `since` is
     * raised before `last`, and neither is ever lowered. A `last` in the future is another's beat
     * of this very moment: this clock does not step. */
    now_ms = now_ms < seen.last_ms ? seen.last_ms : now_ms;
    if (liveness_stale(&seen, gap_ms(group, dead_after_ms), now_ms)) {
        raise_to(&group->since_ms, now_ms);
    }
    raise_to(&group->last_ms, now_ms);
}

bool side_beat(struct side *side, const struct side_ref *ref, int64_t dead_after_ms, int64_t now_ms)
{
    struct side_group *group = &side->groups[ref->group];
    struct side_row *row = &side->rows[ref->row];
    uint64_t seen = atomic_load(&row->beat);

    if (atomic_load(&group->number) != ref->group_number) {
        return false;
    }
    if (word_generation(seen) == ref->generation && !word_dead(seen)) {
        side_note(group, dead_after_ms, now_ms);
    }
    while (word_generation(seen) == ref->generation && !word_dead(seen)) {
        int64_t beat_ms = word_ms(seen) > now_ms ? word_ms(seen) : now_ms;
        if (atomic_compare_exchange_weak(&row->beat, &seen,
                                         beat_word(ref->generation, beat_ms, false))) {
            return true;
        }
    }
    return false;
}

static struct liveness liveness_of(const struct side_group *group)
{
    /* `last` first: whoever notes writes `since` before it. */
    struct liveness table = {.last_ms = atomic_load(&group->last_ms)};
    table.since_ms = atomic_load(&group->since_ms);
    return table;
}

static struct liveness_row liveness_row_of(const struct side_row *row)
{
    return (struct liveness_row){.beat_ms = side_beat_ms(row), .dead_after_ms = row->dead_after_ms};
}

int64_t side_silence_ms(const struct side_group *group, const struct side_row *row, int64_t now_ms)
{
    struct liveness table = liveness_of(group);
    struct liveness_row view = liveness_row_of(row);
    now_ms = now_ms < view.beat_ms ? view.beat_ms : now_ms; /* beaten at this very moment */
    return liveness_silence_ms(&table, &view, now_ms);
}

bool side_looks_dead(const struct side_group *group, const struct side_row *row, int64_t now_ms)
{
    return side_marked(row) || side_silence_ms(group, row, now_ms) >= row->dead_after_ms;
}

bool side_judge(struct side_group *group, struct side_row *row, int64_t now_ms)
{
    uint64_t seen = atomic_load(&row->beat);

    while (!word_dead(seen)) {
        struct liveness table = liveness_of(group);
        struct liveness_row view = {.beat_ms = word_ms(seen), .dead_after_ms = row->dead_after_ms};
        now_ms = now_ms < view.beat_ms ? view.beat_ms : now_ms;
        if (!liveness_dead(&table, &view, now_ms)) {
            return false;
        }
        if (atomic_compare_exchange_weak(&row->beat, &seen, seen | 1)) {
            group->left_ms = now_ms;
            return true;
        }
    }
    return true;
}

bool side_stale(const struct side_group *group, int64_t now_ms)
{
    struct liveness table = liveness_of(group);
    now_ms = now_ms < table.last_ms ? table.last_ms : now_ms;
    return liveness_stale(&table, gap_ms(group, 0), now_ms);
}
