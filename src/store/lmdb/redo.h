/* redo.h -- what the last transaction wrote, beside it in the file, so that one flush makes it last.
 *
 * LMDB flushes the pages of a transaction, then the meta page that makes them count: two waits for the
 * disk. With the rows of the transaction in the file once more, all three may go to the disk in any
 * order, and one wait is enough:
 *
 *     write the record of transaction N | pages and meta page of N | flush | only then begin N + 1
 *
 * After a power cut the file may have any part of what was written since the last flush. But N - 1 was
 * flushed, and LMDB does not touch its pages before N + 1 is over: so where the record of N is whole, the
 * file goes back to N - 1 and its rows are written again; where it is not, N was never answered, and
 * N - 1 it is. The death of processes needs none of this, as the kernel keeps what they wrote.
 *
 * THE AREA lies in a value of its own, row 'r' of the catalog, whose pages LMDB leaves where they are. It
 * has two slots, and transaction N uses slot N % 2, so that the record of N - 1 stays while that of N is
 * written. Where it is, both meta pages tell (struct redo_pointer), behind what LMDB keeps there:
 * it has to be found before a tree can be trusted. A file gets it when a process has committed
 * REDO_AFTER times with sync=full, and has format version 5 from then on.
 *
 * EVERY commit to a file with an area leaves a record, by any process: one that does not fit, or needs no
 * flush, says just that LMDB's own order was kept. Who wrote last may have died before its flush; the
 * next one sees that in the side file and flushes first.
 *
 * A COPY of the file has another inode. There the pages of transactions before the last one may be others,
 * so nothing is taken back: where that might be needed, all of the copy is looked at instead. Not where the
 * last record is a plain one, as whoever closes a file last leaves it.
 *
 * Everything here is under the side lock. */
#ifndef IMPEL_STORE_LMDB_REDO_H
#define IMPEL_STORE_LMDB_REDO_H

#include "store/lmdb/side.h"
#include "store/lmdb/txn.h"

enum {
    REDO_SLOT_SIZE = 256 << 10,
    REDO_KEYS_SIZE = 48 << 10, /* with more of them the work takes far longer than a flush */
    REDO_AFTER = 64,
    REDO_POINTER_AT = 1024, /* in each meta page */
    REDO_SEEN = 1024,       /* a power of two */
};
#define REDO_MAGIC 0x6f646572U /* "redo" */

struct redo_pointer {
    uint32_t magic;
    uint32_t slot_size;
    uint64_t at;   /* where slot 0 begins, in bytes */
    uint64_t hash; /* of the above */
};

enum redo_kind {
    REDO_PLAIN = 1, /* LMDB's own order of flushes, or none */
    REDO_ROWS = 2,
};

struct redo_head {
    uint32_t magic;
    uint32_t kind;
    uint64_t txn;
    uint64_t inode; /* of the file it was written to */
    uint8_t boot[SIDE_BOOT_SIZE];
    uint64_t size; /* of the rows that follow */
    uint64_t hash; /* of the above and of them */
};

/* One row, packed: this, the key, the value. Its order among the others does not matter: each is what
 * the row was at the end. */
struct redo_row {
    uint32_t value_size;
    uint16_t key_size;
    uint8_t database; /* enum lmdb_database */
    uint8_t gone;     /* 1 = there is none; then it has no value */
};

_Static_assert(sizeof(struct redo_pointer) == 24, "layout");
_Static_assert(sizeof(struct redo_head) == 56, "layout");
_Static_assert(sizeof(struct redo_row) == 8, "layout");

/* Of an open file; part of struct lmdb_env. */
struct redo {
    uint8_t *record;  /* the next one, of up to REDO_SLOT_SIZE bytes; NULL until it is needed */
    uint8_t *keys;    /* of the rows that this transaction wrote: REDO_KEYS_SIZE bytes */
    size_t keys_size; /* of those used */
    bool too_much;    /* they do not fit */
    uint32_t seen[REDO_SEEN]; /* where in `keys` one of this hash is, + 1 */
    unsigned commits;         /* with sync=full, while there was no area */
    bool refused;             /* it could not be made */
    uint8_t *rows;            /* to be written again, right after opening; NULL: none */
    size_t rows_size;
    bool copied;  /* the file is a copy, */
    bool suspect; /* perhaps of one whose machine had gone down */
};

/* ---- writing (redo.c) ---- */

/* Before a write transaction: makes the area if it is time. */
void redo_prepare(struct lmdb_env *env);
/* In a write transaction that has just begun: what went before is flushed, and what follows is noted. */
int redo_begin(struct lmdb_env *env, struct lmdb_txn *txn, struct impel_error *err);
/* This row is written or deleted. */
void redo_note(struct redo *redo, enum lmdb_database db, MDB_val key);
/* Commits what lmdb_txn_flush() has completed, and flushes as the file's users want it. 0, or a code of
 * LMDB's; then nothing was committed, but for `lost`: it was, the disk refused to keep it, and what the
 * file holds is not known any more. */
int redo_commit(struct lmdb_env *env, struct lmdb_txn *txn, bool *lost);
/* Nothing is under way: what is in the file is the last transaction, in LMDB's own order. */
void redo_settle(struct lmdb_env *env);
void redo_free(struct redo *redo);

/* ---- after a power cut (redo_open.c) ---- */

/* Alone with the file `fd` (-1: there is none yet), before anybody looks at it: finds the area, and where
 * the machine went down since the last record, the file goes back to the transaction before. Whoever
 * does this and then not redo_rows(), changes nothing: the next one finds the record again. */
int redo_recover(struct redo *redo,
                 struct side_header *header,
                 int fd,
                 const char *path,
                 struct impel_error *err);
/* In the first transaction, whose databases are open: writes the rows again. */
int redo_rows(const struct redo *redo, struct lmdb_txn *txn);
/* Completes a head: its hash. */
uint64_t redo_hash(const struct redo_head *head, const void *rows);
uint64_t redo_pointer_hash(const struct redo_pointer *pointer);

#endif /* IMPEL_STORE_LMDB_REDO_H */
