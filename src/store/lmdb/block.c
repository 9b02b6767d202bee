/* block.c -- rows of the PEL, to bytes and back. */
#include "store/lmdb/block.h"

enum {
    DELIVERIES_MAX = UINT16_MAX,
    OWNERS_AT = BLOCK_UNIT,
    OWNER_SIZE = 8,
};

static size_t slots_at(const struct block *block)
{
    return BLOCK_UNIT + (size_t)OWNER_SIZE * block->head.owner_room;
}

static struct disk_slot slot_get(const struct block *block, size_t index)
{
    struct disk_slot slot;
    memcpy(&slot, block->bytes + slots_at(block) + index * BLOCK_UNIT, sizeof(slot));
    return slot;
}

static void slot_put(const struct block *block, size_t index, const struct disk_slot *slot)
{
    memcpy(block->bytes + slots_at(block) + index * BLOCK_UNIT, slot, sizeof(*slot));
}

static uint64_t owner_get(const struct block *block, size_t index)
{
    uint64_t owner = 0;

    if (index < block->head.owner_count) {
        memcpy(&owner, block->bytes + OWNERS_AT + index * OWNER_SIZE, sizeof(owner));
    }
    return owner;
}

static void head_put(const struct block *block)
{
    memcpy(block->bytes, &block->head, sizeof(block->head));
}

bool block_open(struct block *block, struct impel_id first, MDB_val row)
{
    *block = (struct block){.first = first, .bytes = row.mv_data, .size = row.mv_size};
    if (row.mv_size == sizeof(struct disk_pending)) {
        block->single = true;
        block->head.count = 1;
        return true;
    }
    if (row.mv_size % BLOCK_UNIT != 0 || row.mv_size > BLOCK_SIZE_MAX ||
        row.mv_size < (size_t)3 * BLOCK_UNIT) {
        return false;
    }
    __builtin_prefetch(block->bytes + block->size - 1); /* block_expect() asks for it */
    memcpy(&block->head, row.mv_data, sizeof(block->head));
    size_t units = row.mv_size / BLOCK_UNIT - 1;
    if (block->head.owner_room == 0 || block->head.owner_room > BLOCK_OWNERS_MAX ||
        block->head.owner_room % 2 != 0 || block->head.owner_room / 2U >= units ||
        block->head.owner_count > block->head.owner_room) {
        return false;
    }
    block->room = (uint16_t)(units - block->head.owner_room / 2U);
    return block->head.count > 0 && block->head.count <= block->room;
}

/* The place of an ID, or of the next one that has a place; false if none has. */
static bool place_of(const struct block *block, struct impel_id id, uint64_t *place)
{
    uint64_t ms = id.ms - block->first.ms;

    if (id.ms < block->first.ms) {
        *place = 0;
        return true;
    }
    if (id.seq > UINT32_MAX) {
        ms++;
        id.seq = 0;
    }
    *place = ms << 32 | id.seq;
    return ms <= UINT32_MAX;
}

static bool is_lower_bound(const struct block *block, size_t index, uint64_t place)
{
    return index <= block->head.count &&
           (index == block->head.count || slot_get(block, index).place >= place) &&
           (index == 0 || slot_get(block, index - 1).place < place);
}

/* Where a place would be if IDs came evenly. */
static size_t guess(const struct block *block, uint64_t place)
{
    size_t last = block->head.count - 1U;
    uint64_t ms_last = slot_get(block, last).place >> 32;
    uint64_t ms = place >> 32;

    return ms >= ms_last ? last : (size_t)(ms * last / ms_last);
}

void block_expect(struct block *block, struct impel_id id)
{
    uint64_t place = 0;

    if (!block->single && place_of(block, id, &place)) {
        block->hint = (uint16_t)guess(block, place);
        __builtin_prefetch(block->bytes + slots_at(block) + (size_t)block->hint * BLOCK_UNIT);
    }
}

size_t block_find(struct block *block, struct impel_id id)
{
    uint64_t place = 0;
    size_t low = 0;
    size_t high = block->head.count;

    if (block->single) {
        return id_compare(block->first, id) < 0 ? 1 : 0;
    }
    if (!place_of(block, id, &place)) {
        return high;
    }
    size_t likely = block->hint;
    for (int i = 0; i < 3; i++) {
        if (is_lower_bound(block, likely, place)) {
            block->hint = (uint16_t)likely;
            return likely;
        }
        likely = i == 0 ? likely + 1 : guess(block, place);
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (slot_get(block, middle).place < place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    block->hint = (uint16_t)low;
    return low;
}

struct impel_id block_id(const struct block *block, size_t index)
{
    if (block->single) {
        return block->first;
    }
    uint64_t place = slot_get(block, index).place;
    return (struct impel_id){block->first.ms + (place >> 32), place & UINT32_MAX};
}

bool block_is_live(const struct block *block, size_t index)
{
    return (block->gone[index / 64] >> index % 64 & 1) == 0;
}

size_t block_find_live(struct block *block, struct impel_id id)
{
    size_t index = block_find(block, id);

    return index < block->head.count && block_is_live(block, index) &&
                   id_equal(block_id(block, index), id)
               ? index
               : block->head.count;
}

size_t block_live(const struct block *block)
{
    size_t live = block->head.count;

    for (size_t i = 0; i < BLOCK_GONE_WORDS; i++) {
        live -= (size_t)__builtin_popcountll(block->gone[i]);
    }
    return live;
}

static uint64_t slot_owner(const struct block *block, size_t index)
{
    struct disk_pending disk;

    if (!block->single) {
        return owner_get(block, slot_get(block, index).owner);
    }
    memcpy(&disk, block->bytes, sizeof(disk));
    return disk.owner;
}

size_t block_next(const struct block *block, size_t index, uint64_t owner)
{
    while (index < block->head.count &&
           (!block_is_live(block, index) || (owner != 0 && slot_owner(block, index) != owner))) {
        index++;
    }
    return index;
}

size_t block_owners(const struct block *block, uint64_t owners[BLOCK_OWNERS_MAX])
{
    size_t count = 0;

    if (block->single) {
        owners[0] = slot_owner(block, 0);
        return owners[0] != 0;
    }
    for (size_t i = 0; i < block->head.owner_count; i++) {
        uint64_t owner = owner_get(block, i);
        if (block_next(block, 0, owner) < block->head.count) {
            owners[count++] = owner;
        }
    }
    return count;
}

bool block_read(const struct block *block, size_t index, struct lmdb_pending *out)
{
    *out = (struct lmdb_pending){.id = block_id(block, index)};
    if (block->single) {
        struct disk_pending disk;
        memcpy(&disk, block->bytes, sizeof(disk));
        out->owner = disk.owner;
        out->delivered_ms = disk.owner == 0 ? 0 : disk.delivered_ms;
        out->released = disk.owner == 0 ? (uint64_t)disk.delivered_ms : 0;
        out->deliveries = disk.deliveries;
        return true;
    }
    struct disk_slot slot = slot_get(block, index);
    out->owner = owner_get(block, slot.owner);
    out->deliveries = slot.deliveries;
    out->delivered_ms =
        slot.early != 0
            ? (int64_t)slot.delivered
            : (int64_t)((uint64_t)block->head.base_ms + (uint64_t)(int64_t)(int32_t)slot.delivered);
    return out->owner != 0;
}

/* ---- changing one ---- */

/* All of a slot but its owner; false if the row does not fit one. */
static bool
slot_encode(const struct block *block, const struct lmdb_pending *row, struct disk_slot *slot)
{
    uint64_t place = 0;
    int64_t distance = 0;

    if (row->owner == 0 || row->deliveries < 0 || row->deliveries > DELIVERIES_MAX ||
        row->id.seq > UINT32_MAX || row->id.ms < block->first.ms ||
        !place_of(block, row->id, &place)) {
        return false;
    }
    *slot = (struct disk_slot){.place = place, .deliveries = (uint16_t)row->deliveries};
    if (!__builtin_sub_overflow(row->delivered_ms, block->head.base_ms, &distance) &&
        distance >= INT32_MIN && distance <= INT32_MAX) {
        slot->delivered = (uint32_t)distance;
        return true;
    }
    slot->delivered = (uint32_t)row->delivered_ms;
    slot->early = 1;
    return row->delivered_ms >= 0 && row->delivered_ms <= UINT32_MAX;
}

/* The place of an owner in the block, which may be the next free one; false if none is. */
static bool owner_place(const struct block *block, uint64_t owner, size_t *place)
{
    for (*place = 0; *place < block->head.owner_count; (*place)++) {
        if (owner_get(block, *place) == owner) {
            return true;
        }
    }
    return *place < block->head.owner_room;
}

/* Has it live slots beside this one? Its neighbours are looked at first. */
static bool owns_another(const struct block *block, size_t index, uint64_t owner)
{
    for (size_t i = index; i > 0 && i + 4 > index; i--) {
        if (block_is_live(block, i - 1) && slot_owner(block, i - 1) == owner) {
            return true;
        }
    }
    if (block_next(block, index + 1, owner) < block->head.count) {
        return true;
    }
    return block_next(block, 0, owner) < index;
}

static bool slot_write(struct block *block, size_t index, const struct lmdb_pending *row)
{
    struct disk_slot slot;
    size_t place = 0;

    if (!slot_encode(block, row, &slot) || !owner_place(block, row->owner, &place)) {
        return false;
    }
    if (place == block->head.owner_count) {
        block->head.owner_count++;
        memcpy(block->bytes + OWNERS_AT + place * OWNER_SIZE, &row->owner, OWNER_SIZE);
    }
    slot.owner = (uint8_t)place;
    slot_put(block, index, &slot);
    return true;
}

bool block_set(struct block *block,
               size_t index,
               const struct lmdb_pending *row,
               struct block_moved *moved)
{
    uint64_t old = block_is_live(block, index) ? slot_owner(block, index) : 0;

    *moved = (struct block_moved){0, 0};
    if (!slot_write(block, index, row)) {
        return false;
    }
    block->gone[index / 64] &= ~(UINT64_C(1) << index % 64);
    head_put(block);
    if (old != row->owner) {
        moved->lost = old != 0 && !owns_another(block, index, old) ? old : 0;
        moved->gained = owns_another(block, index, row->owner) ? 0 : row->owner;
    }
    return true;
}

bool block_append(struct block *block, const struct lmdb_pending *row, struct block_moved *moved)
{
    size_t index = block->head.count;

    *moved = (struct block_moved){0, 0};
    if (index == block->room || !slot_write(block, index, row)) {
        return false;
    }
    block->head.count++;
    head_put(block);
    moved->gained = owns_another(block, index, row->owner) ? 0 : row->owner;
    return true;
}

void block_remove(struct block *block, size_t index, struct block_moved *moved)
{
    uint64_t owner = slot_owner(block, index);

    block->gone[index / 64] |= UINT64_C(1) << index % 64;
    *moved = (struct block_moved){.lost = owns_another(block, index, owner) ? 0 : owner};
}

/* ---- building one ---- */

/* Rooms grow by steps, so that an append rarely builds a new row. */
static size_t next_room(size_t count, size_t room_max)
{
    static const size_t steps[] = {4, 16, 48};

    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (count < steps[i]) {
            return steps[i] < room_max ? steps[i] : room_max;
        }
    }
    return room_max;
}

static void build_single(struct block_row *out, const struct lmdb_pending *row)
{
    struct disk_pending disk = {
        .owner = row->owner,
        .delivered_ms = row->owner == 0 ? (int64_t)row->released : row->delivered_ms,
        .deliveries = row->deliveries,
    };

    out->first = row->id;
    out->count = 1;
    out->size = sizeof(disk);
    out->owner_count = row->owner != 0;
    out->owners[0] = row->owner;
    memcpy(out->bytes, &disk, sizeof(disk));
}

/* How many of the rows fit one block, and whose they are. */
static size_t run_length(const struct block *block,
                         const struct lmdb_pending *rows,
                         size_t count_max,
                         struct block_row *out)
{
    struct disk_slot slot;
    size_t length = 0;

    out->owner_count = 0;
    while (length < count_max && slot_encode(block, &rows[length], &slot)) {
        size_t owner = 0;
        while (owner < out->owner_count && out->owners[owner] != rows[length].owner) {
            owner++;
        }
        if (owner == BLOCK_OWNERS_MAX) {
            break;
        }
        if (owner == out->owner_count) {
            out->owners[out->owner_count++] = rows[length].owner;
        }
        length++;
    }
    return length;
}

static size_t room_for_owners(size_t count)
{
    size_t room = 2;

    while (room < count) {
        room *= 2;
    }
    return room;
}

void block_build(struct block_row *out,
                 struct impel_id first,
                 const struct lmdb_pending *rows,
                 size_t count_max)
{
    struct block block = {.first = first, .bytes = out->bytes};
    struct block_moved moved;

    for (size_t i = 0; i < count_max && block.head.base_ms <= UINT32_MAX; i++) {
        block.head.base_ms = rows[i].delivered_ms; /* what is early needs none */
    }
    size_t count = run_length(&block, rows, count_max, out);
    size_t owner_room = room_for_owners(out->owner_count);
    size_t room_max = BLOCK_UNITS_MAX - 1 - owner_room / 2;
    count = count < room_max ? count : room_max;
    if (count < 2) {
        build_single(out, &rows[0]);
        return;
    }
    block.head.owner_room = (uint16_t)owner_room;
    block.room = (uint16_t)next_room(count, room_max);
    block.size = (1 + owner_room / 2 + block.room) * BLOCK_UNIT;
    memset(out->bytes, 0, block.size);
    out->owner_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool fits = block_append(&block, &rows[i], &moved);
        ASSERT(fits);
        if (moved.gained != 0) {
            out->owners[out->owner_count++] = moved.gained;
        }
    }
    out->first = first;
    out->count = count;
    out->size = block.size;
}
