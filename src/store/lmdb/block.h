/* block.h -- a row of the PEL: one pending entry, or a block of them, byte by byte.
 *
 * Entries are read and acknowledged in about the order of their IDs. A row for each of them costs two
 * deletions in B-trees for an ack; a block is changed where it lies, and fewer pages are.
 *
 *     one        struct disk_pending                                 its key is the entry's ID
 *     a block    struct disk_block | owners, 8 bytes each | slots    16 bytes each
 *
 * A row holds the IDs from its key's up to the next row's. What does not fit a slot (an entry that is
 * nobody's, a seq above 32 bits, 65,536 deliveries) is a row by itself, as all were before version 4
 * of the format.
 *
 * Which slots of a block are acknowledged stands apart, in a bitmap of its own (row 'd'): acks come in
 * any order, and of these small rows a page holds those of ten thousand entries.
 *
 * Nothing here touches the store: these are views of bytes. Whoever changes bytes has made them
 * writable before, and writes the bitmap himself (pending.c). */
#ifndef IMPEL_STORE_LMDB_BLOCK_H
#define IMPEL_STORE_LMDB_BLOCK_H

#include "store/lmdb/layout.h"
#include "store/lmdb/stream.h"

enum {
    BLOCK_UNIT = 16,
    BLOCK_UNITS_MAX = 125, /* 2,000 bytes: two rows a page, and no page of its own */
    BLOCK_SIZE_MAX = BLOCK_UNIT * BLOCK_UNITS_MAX,
    BLOCK_OWNERS_MAX = 64,
    BLOCK_SLOTS_MAX = BLOCK_UNITS_MAX - 2,
    BLOCK_GONE_WORDS = 2, /* a bit a slot */
};

struct disk_block {
    int64_t base_ms; /* what the slots' `delivered` counts from */
    uint16_t count;  /* slots in use, ordered by ID; the others are free */
    uint16_t owner_count;
    uint16_t owner_room; /* even */
    uint16_t reserved;
};

struct disk_slot {
    uint64_t place; /* ms - the key's ms << 32 | seq */
    uint32_t delivered;
    uint16_t deliveries;
    uint8_t owner; /* index */
    uint8_t early; /* 1 = `delivered` is a time in itself, not a distance from base_ms */
};

_Static_assert(sizeof(struct disk_block) == BLOCK_UNIT, "layout");
_Static_assert(sizeof(struct disk_slot) == BLOCK_UNIT, "layout");
_Static_assert(BLOCK_SLOTS_MAX <= 64 * BLOCK_GONE_WORDS, "layout");

/* A view of a row. `count` is 1 if it is no block. */
struct block {
    struct impel_id first; /* its key's: no entry of it is before */
    uint8_t *bytes;        /* in the store's page */
    size_t size;
    bool single;   /* not a block, but a struct disk_pending */
    uint16_t room; /* slots */
    uint16_t hint; /* where the last search ended */
    struct disk_block head;
    uint64_t gone[BLOCK_GONE_WORDS]; /* the bitmap; whoever opens a block sets it */
};

/* How a change of one slot shows outside of it: who has no slot any more, who has its first. */
struct block_moved {
    uint64_t lost, gained; /* consumers' numbers, 0: nobody */
};

/* False if the row is damaged. */
bool block_open(struct block *block, struct impel_id first, MDB_val row);
/* How many slots are not gone; 0 in none that is whole. */
size_t block_live(const struct block *block);
/* The number of the first slot at or behind an ID, gone or not; `count` if there is none. */
size_t block_find(struct block *block, struct impel_id id);
/* This ID is looked for soon: its slot comes from memory meanwhile. */
void block_expect(struct block *block, struct impel_id id);
struct impel_id block_id(const struct block *block, size_t index);
/* The number of the live slot of an ID; `count` if there is none. */
size_t block_find_live(struct block *block, struct impel_id id);
bool block_is_live(const struct block *block, size_t index);
/* The first slot from `index` on that is live, and `owner`'s unless that is 0; `count` if none. */
size_t block_next(const struct block *block, size_t index, uint64_t owner);
/* False if it is damaged. */
bool block_read(const struct block *block, size_t index, struct lmdb_pending *out);
/* The owners of live slots, each once; returns how many. */
size_t block_owners(const struct block *block, uint64_t owners[BLOCK_OWNERS_MAX]);

/* A slot becomes `row`, which has its ID; or a free one behind all others does. False, and nothing has
 * changed, if it does not fit. Only blocks that are writable and not single. */
bool block_set(struct block *block,
               size_t index,
               const struct lmdb_pending *row,
               struct block_moved *moved);
bool block_append(struct block *block, const struct lmdb_pending *row, struct block_moved *moved);
/* A live slot is gone: in `block->gone` only. */
void block_remove(struct block *block, size_t index, struct block_moved *moved);

/* A new row. */
struct block_row {
    struct impel_id first;
    size_t count; /* how many of the rows are in it */
    size_t size;
    size_t owner_count;
    uint64_t owners[BLOCK_OWNERS_MAX];
    uint8_t bytes[BLOCK_SIZE_MAX];
};
/* Puts as many of the rows as fit, and at most `count_max`, into one row, with some free slots: one at
 * least. `first` is its key if it turns out a block; else it is the first row's ID. */
void block_build(struct block_row *out,
                 struct impel_id first,
                 const struct lmdb_pending *rows,
                 size_t count_max);

#endif /* IMPEL_STORE_LMDB_BLOCK_H */
