/* redo_open.c -- after a power cut: which transaction is the last that counts, and its rows once more. */
#include "store/lmdb/pages.h"
#include "store/lmdb/redo.h"

#include <sys/stat.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What is found in the area. */
struct found {
    struct pages_metas metas;
    struct redo_pointer pointer;
    struct redo_head heads[2]; /* kind 0: that slot has no record */
    uint8_t *rows[2];
    bool copied; /* a record was written to another file */
};

static bool read_all(int fd, uint64_t at, void *to, size_t size)
{
    return pread(fd, to, size, (off_t)at) == (ssize_t)size;
}

static bool read_pointer(int fd, struct found *found)
{
    struct redo_pointer *pointer = &found->pointer;

    for (uint64_t page = 0; page < 2; page++) {
        if (read_all(fd, page * found->metas.page_size + REDO_POINTER_AT, pointer,
                     sizeof(*pointer)) &&
            pointer->magic == REDO_MAGIC && pointer->slot_size == REDO_SLOT_SIZE &&
            pointer->hash == redo_pointer_hash(pointer)) {
            return true;
        }
    }
    return false;
}

/* Reads one slot; what is not a whole record is none. IMPEL_OK or NOMEM. */
static int read_slot(int fd, uint64_t inode, unsigned slot, struct found *found)
{
    struct redo_head *head = &found->heads[slot];
    uint64_t at = found->pointer.at + (uint64_t)slot * REDO_SLOT_SIZE;
    uint8_t *rows = malloc(REDO_SLOT_SIZE);

    if (rows == NULL) {
        return IMPEL_ERR_NOMEM;
    }
    bool whole = read_all(fd, at, head, sizeof(*head)) && head->magic == REDO_MAGIC &&
                 head->size <= REDO_SLOT_SIZE - sizeof(*head) && head->txn % 2 == slot &&
                 read_all(fd, at + sizeof(*head), rows, head->size) &&
                 head->hash == redo_hash(head, rows);
    found->copied = found->copied || (whole && head->inode != inode);
    if (!whole) {
        *head = (struct redo_head){0};
    }
    found->rows[slot] = rows;
    return IMPEL_OK;
}

static int look(int fd, struct found *found)
{
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !pages_metas(fd, &found->metas) ||
        !read_pointer(fd, found)) {
        found->pointer.at = 0;
        return IMPEL_OK;
    }
    int rc = read_slot(fd, (uint64_t)st.st_ino, 0, found);
    return rc < 0 ? rc : read_slot(fd, (uint64_t)st.st_ino, 1, found);
}

/* The newest record with rows whose transaction before is one of the two in the file. */
static const struct redo_head *to_write_again(const struct found *found)
{
    const struct redo_head *newest = NULL;

    for (size_t i = 0; i < 2; i++) {
        const struct redo_head *head = &found->heads[i];
        bool fits = head->kind == REDO_ROWS && (head->txn - 1 == found->metas.txns[0] ||
                                                head->txn - 1 == found->metas.txns[1]);
        if (fits && (newest == NULL || head->txn > newest->txn)) {
            newest = head;
        }
    }
    return newest;
}

/* Has nothing been flushed since the transaction before `last`? Its own record is not there, as it would
 * be before any later one, and that of the one before is. */
static bool last_is_torn(const struct found *found, uint64_t last)
{
    return found->heads[last % 2].txn != last && found->heads[(last + 1) % 2].txn == last - 1 &&
           found->heads[(last + 1) % 2].kind != 0;
}

/* The machine went down since, as far as is known. */
static bool is_another_boot(const uint8_t *boot, const struct found *found)
{
    static const uint8_t unknown[SIDE_BOOT_SIZE];
    const struct redo_head *heads = found->heads;
    const struct redo_head *newest = heads[0].txn > heads[1].txn ? &heads[0] : &heads[1];

    return memcmp(boot, unknown, sizeof(unknown)) == 0 ||
           memcmp(boot, newest->boot, sizeof(newest->boot)) != 0;
}

/* A copy of a file that nobody had open, or that was made while nothing was torn. */
static bool is_settled(const struct found *found, uint64_t last)
{
    const struct redo_head *head = &found->heads[last % 2];

    return head->kind == REDO_PLAIN && head->txn == last;
}

/* A process died between its record and its commit: nobody was told of it. */
static int forget_begun(int fd, const struct found *found, uint64_t last)
{
    const struct redo_head none = {0};
    unsigned slot = (unsigned)((last + 1) % 2);
    uint64_t at = found->pointer.at + (uint64_t)slot * REDO_SLOT_SIZE;

    if (found->heads[slot].txn != last + 1) {
        return 0;
    }
    return pwrite(fd, &none, sizeof(none), (off_t)at) == (ssize_t)sizeof(none) ? 0 : errno;
}

/* Takes the last transaction back where it may be torn, and keeps the rows that it, or the one after it,
 * would have left. 0, or an errno. */
static int step_back(struct redo *redo, int fd, struct found *found, uint64_t last)
{
    const struct redo_head *again = to_write_again(found);
    int code = 0;

    if (again != NULL ? again->txn == last : last_is_torn(found, last)) {
        code = pages_step_back(fd, &found->metas);
    }
    if (again != NULL && code == 0) {
        redo->rows = found->rows[again->txn % 2];
        redo->rows_size = again->size;
    }
    return code;
}

int redo_recover(struct redo *redo,
                 struct side_header *header,
                 int fd,
                 const char *path,
                 struct impel_error *err)
{
    struct found found = {0};
    int code = 0;
    int rc = look(fd, &found);

    atomic_store(&header->redo_at, found.pointer.at);
    atomic_store(&header->flushed, 0);
    if (rc >= 0 && found.pointer.at != 0) {
        const uint64_t *txns = found.metas.txns;
        uint64_t last = txns[0] > txns[1] ? txns[0] : txns[1];
        bool other_boot = is_another_boot(header->boot, &found);
        redo->copied = found.copied;
        redo->suspect = found.copied && other_boot && !is_settled(&found, last);
        if (redo->suspect) {
            atomic_store(&header->suspect, 1); /* so that all its pages are looked at */
        } else if (!found.copied && other_boot) {
            code = step_back(redo, fd, &found, last);
        } else if (!found.copied) {
            code = forget_begun(fd, &found, last);
        }
    }
    for (size_t slot = 0; slot < ARRAY_SIZE(found.rows); slot++) {
        if (found.rows[slot] != redo->rows) {
            free(found.rows[slot]);
        }
    }
    if (code != 0) {
        return error_set(err, lmdb_status_of(code), "%s: taking back its last transaction: %s",
                         path, strerror(code));
    }
    return rc < 0 ? error_set(err, rc, "%s: out of memory", path) : rc;
}

/* Reads the row at `at` and steps behind it. False: it is none. */
static bool
next_row(const struct redo *redo, size_t *at, struct redo_row *row, MDB_val *key, MDB_val *value)
{
    size_t left = redo->rows_size - *at;

    if (left < sizeof(*row)) {
        return false;
    }
    memcpy(row, redo->rows + *at, sizeof(*row));
    left -= sizeof(*row);
    if (row->database >= DB_COUNT || row->key_size == 0 || row->key_size > KEY_SIZE_MAX ||
        (row->database != DB_CATALOG && row->key_size != ROW_KEY_SIZE) || row->key_size > left ||
        row->value_size > left - row->key_size) {
        return false;
    }
    *at += sizeof(*row);
    *key = (MDB_val){row->key_size, redo->rows + *at};
    *at += row->key_size;
    *value = (MDB_val){row->value_size, redo->rows + *at};
    *at += row->value_size;
    return true;
}

int redo_rows(const struct redo *redo, struct lmdb_txn *txn)
{
    struct redo_row row;
    MDB_val key;
    MDB_val value;
    int rc = IMPEL_OK;

    for (size_t at = 0; rc >= 0 && at < redo->rows_size;) {
        if (!next_row(redo, &at, &row, &key, &value)) {
            return lmdb_fail(
                txn, IMPEL_ERR_CORRUPT,
                "the record of its last transaction is damaged: restore it from a copy");
        }
        enum lmdb_database db = (enum lmdb_database)row.database;
        if (row.gone) {
            rc = row_delete(txn, db, key);
            rc = rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
        } else {
            rc = row_put(txn, db, key, value);
        }
    }
    return rc;
}
