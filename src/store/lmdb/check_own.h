/* check_own.h -- what check.c and its companions share. */
#ifndef IMPEL_STORE_LMDB_CHECK_OWN_H
#define IMPEL_STORE_LMDB_CHECK_OWN_H

#include "store/lmdb/check.h"
#include "store/lmdb/txn.h"

/* A stream, group, consumer or the like, and what was counted for it. */
struct seen {
    uint64_t number;
    uint64_t parent;                  /* the stream of a group, the group of a consumer */
    uint64_t said;                    /* length, pending, pending */
    uint64_t counted;                 /* entries, pending rows, owned rows */
    uint64_t children_said, children; /* groups of a stream, consumers of a group */
    uint64_t nodes_said, nodes;
    struct impel_id first, last; /* of a stream: as it says */
    struct disk_node tail;
    struct impel_id tail_first;
    struct impel_id nodes_end;   /* of a stream: the last ID of its last node so far */
    struct impel_id pending_end; /* of a group: the last ID of its last row of the PEL so far */
    uint64_t in_nodes;           /* entries that its nodes have */
    unsigned names;              /* how often a name leads to it */
    bool ordered;                /* a group whose whole PEL is in the order of CLAIM */
    uint64_t nobodys, in_order;  /* of a group: rows that are nobody's, rows of that order */
    enum lmdb_key_kind kind;     /* of a row 'v' */
    bool sized;                  /* it may be a list's or a set's */
    uint64_t head;               /* where the list begins */
};

struct table {
    struct seen *items;
    size_t count, room;
};

struct checking {
    struct lmdb_txn *txn;
    struct disk_meta meta;
    struct table streams, groups, consumers;
    struct table producers, idmps; /* `idmps`: of each stream that has to do with idempotent adds */
    struct table others;           /* strings, lists, sets */
    uint64_t keys;
    int64_t expiring; /* keys that expire, less the rows that tell when */
    lmdb_check_report report;
    void *user;
    struct lmdb_check_counts counts;
    struct impel_error *first; /* the first problem */
    bool stop;
    int status; /* of reading itself */
};

#define NUMBER(N) ((unsigned long long)(N))

void check_problem(struct checking *checking, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A new one at the end of a table, which is sorted by number; NULL if memory is out. */
struct seen *check_add(struct checking *checking, struct table *table, uint64_t number);
struct seen *check_find(const struct table *table, uint64_t number);
/* What a table says of its members against what was counted. */
void check_counts_of(struct checking *checking, const struct table *table, const char *kind);

/* ---- check_pending.c: the rows of 'pel' and of 'owned' ---- */

void check_pending(struct checking *checking, MDB_val key, MDB_val value);
void check_owned(struct checking *checking, MDB_val key, MDB_val value);
/* A row 'd' of the catalog; false: it is none. */
bool check_bitmap(struct checking *checking, MDB_val key, MDB_val value);
/* The pending entry of an ID; false if there is none. */
bool check_pending_get(struct checking *checking,
                       uint64_t group,
                       struct impel_id id,
                       struct lmdb_pending *out);

/* ---- check_newer.c ---- */

/* Takes the rows 'P' and 'i' into their tables. */
void check_newer_object(struct checking *checking, MDB_val key, MDB_val value);
/* A problem if the file's version is one that does not know such rows. */
void check_version(struct checking *checking, uint32_t needed);
/* Compares a row of version 2 with what it belongs to. False: it is none. */
bool check_newer_row(struct checking *checking, MDB_val key, MDB_val value);
/* After all rows were seen. */
void check_newer_counts(struct checking *checking);

/* ---- check_others.c, in the same way ---- */

void check_other_object(struct checking *checking, MDB_val key, MDB_val value);
/* A key that holds no stream. */
void check_other_key(struct checking *checking, const struct disk_key *disk);
bool check_other_row(struct checking *checking, MDB_val key, MDB_val value);
void check_other_counts(struct checking *checking);

#endif /* IMPEL_STORE_LMDB_CHECK_OWN_H */
