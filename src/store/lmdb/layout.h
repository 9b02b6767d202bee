/* layout.h -- the rows of the file, byte by byte. The databases are listed on top of stream.h.
 *
 * Keys:    one letter (catalog only), then object numbers, ms, seq as 8 bytes big-endian, then
 *          perhaps a name.
 * Values:  the structs below as they lie in memory (no padding, checked), followed by the name
 *          where the struct says so. LMDB aligns values to 2 bytes only: always memcpy.
 *
 * An entry's value:
 *
 *     varint field count | per field: varint name size, varint value size | name value name value
 *
 * varint: 7 bits a byte, the lowest first, bit 7 set on all but the last byte.
 *
 * To change the format: raise LMDB_FORMAT_VERSION and say here what differs; a newer file is refused
 * with a clear error. A file is made with version 1 and gets a higher one when the first row is
 * written that needs it (catalog_need_version), so that older programs open what they understand:
 *
 *     2   rows 't' (the order of CLAIM), and with them rows of the PEL that are nobody's;
 *         rows 'i', 'p', 'P', 'j', 'J', 'e' (idempotent adds); keys that hold a list or a set, and with
 *         them rows 'l' and 'S'
 *     3   rows 'a' (without them what is requeued would never reach its limit);
 *         rows 'f' (without them a group that is made again would be given all anew)
 *     4   rows of the PEL that hold more than one entry (block.h)
 *     5   row 'r', the area for records (redo.h): every commit has to leave one */
#ifndef IMPEL_STORE_LMDB_LAYOUT_H
#define IMPEL_STORE_LMDB_LAYOUT_H

#include "base/base.h"
#include "core/id.h"

#include <endian.h>
#include <string.h>

enum {
    LMDB_FORMAT_VERSION = 5,        /* the highest that is understood */
    LMDB_FORMAT_FIRST = 1,          /* a new file's */
    LMDB_FORMAT_ORDER_ROWS = 2,     /* needed for rows 't' */
    LMDB_FORMAT_IDMP_ROWS = 2,      /* needed for rows 'i' and what belongs to them */
    LMDB_FORMAT_COLLECTIONS = 2,    /* needed for lists and sets */
    LMDB_FORMAT_CARRIED_ROWS = 3,   /* needed for rows 'a' */
    LMDB_FORMAT_FLOOR_ROWS = 3,     /* needed for rows 'f' */
    LMDB_FORMAT_BLOCKS = 4,         /* needed for rows of the PEL with more than one entry */
    LMDB_FORMAT_REDO_AREA = 5,      /* needed for row 'r' */
    LMDB_FORMAT_ORDER = 0x01020304, /* as this machine writes it */
    NAME_KEY_SIZE_MAX = 400,        /* longer names: this much of them and a hash */
    NAME_HASH_SIZE = 16,
    KEY_SIZE_MAX = 1 + 8 + NAME_KEY_SIZE_MAX + NAME_HASH_SIZE,
    ROW_KEY_SIZE = 24, /* entries, nodes, pel, owned */
    NUMBER_FIRST = 16, /* object numbers below mean something else here and there */
};
#define LMDB_FORMAT_MAGIC 0x4c504d49 /* "IMPL" */

struct disk_meta {
    uint32_t magic;
    uint32_t version;
    uint32_t order; /* LMDB_FORMAT_ORDER: the byte order of the writer */
    uint32_t loose; /* 1 = written without fsync in the boot below: after a reboot it may be torn */
    uint8_t boot[16];
    uint8_t identity[16]; /* random, of this file: its side file has it too */
    uint64_t next_number; /* the next object's; never used twice */
    uint64_t key_count;   /* rows 'k' */
};

struct disk_key { /* then the name */
    uint32_t kind;
    uint32_t reserved;
    uint64_t number;    /* of the stream, or of the row 'v' of anything else */
    int64_t expires_ms; /* unix time; 0 = never */
};

struct disk_node {
    uint64_t last_ms, last_seq;
    uint32_t live, total;
    uint64_t size_bytes;
};

struct disk_stream { /* then the name */
    uint64_t length;
    uint64_t last_ms, last_seq;
    uint64_t first_ms, first_seq;
    uint64_t max_deleted_ms, max_deleted_seq;
    uint64_t entries_added;
    uint64_t group_count;
    uint64_t node_count;
    uint64_t tail_ms, tail_seq; /* first ID of the tail node */
    struct disk_node tail;
};

struct disk_group { /* then the name */
    uint64_t stream;
    uint64_t last_ms, last_seq;
    int64_t entries_read;
    uint64_t pending;
    uint64_t consumers_and_flags; /* the number in the lower 56 bits, flags above */
};

#define DISK_GROUP_CONSUMERS ((UINT64_C(1) << 56) - 1)
#define DISK_GROUP_ORDERED   (UINT64_C(1) << 56) /* its whole PEL is in rows 't' */

struct disk_consumer { /* then the name */
    uint64_t group;
    int64_t seen_ms;
    int64_t active_ms;
    uint64_t pending;
};

struct disk_pending {
    uint64_t owner;       /* a consumer's number; 0 = nobody's */
    int64_t delivered_ms; /* nobody's: the number of its release */
    int64_t deliveries;
};

/* The row 'v' of a list or a set; never one of none. */
struct disk_collection {
    uint64_t count; /* rows 'l' or 'S' */
    uint64_t head;  /* of a list: the position of its first element; the others follow one by one */
    uint64_t changes; /* so that WATCH sees one that leaves the rest as it was */
};

/* Idempotent adds. An idempotent ID (IID) stands in three rows: by itself, so that a duplicate is
 * found; in its producer's order, so that the oldest goes where these are too many; and in the
 * stream's, so that what has become too old goes, whosever it is. */
struct disk_idmp {
    uint32_t duration_s, iids_max; /* how long, and how many of a producer */
    uint64_t producers, iids;      /* rows 'P' and 'J' of the stream */
    uint64_t added, duplicates;    /* ever */
};

struct disk_producer { /* then its ID */
    uint64_t stream;
    uint64_t iids;
};

struct disk_iid { /* then the IID */
    int64_t added_ms;
};

_Static_assert(sizeof(struct disk_collection) == 24, "layout");
_Static_assert(sizeof(struct disk_idmp) == 40, "layout");
_Static_assert(sizeof(struct disk_producer) == 16, "layout");
_Static_assert(sizeof(struct disk_iid) == 8, "layout");
_Static_assert(sizeof(struct disk_meta) == 64, "layout");
_Static_assert(sizeof(struct disk_key) == 24, "layout");
_Static_assert(sizeof(struct disk_node) == 32, "layout");
_Static_assert(sizeof(struct disk_stream) == 128, "layout");
_Static_assert(sizeof(struct disk_group) == 48, "layout");
_Static_assert(sizeof(struct disk_consumer) == 32, "layout");
_Static_assert(sizeof(struct disk_pending) == 24, "layout");

/* A key under construction. */
struct lmdb_key {
    size_t size;
    uint8_t data[KEY_SIZE_MAX];
};

static inline void put_be64(uint8_t *at, uint64_t value)
{
    value = htobe64(value);
    memcpy(at, &value, sizeof(value));
}

static inline uint64_t get_be64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof(value));
    return be64toh(value);
}

static inline struct impel_id get_id(const uint8_t *at)
{
    return (struct impel_id){get_be64(at), get_be64(at + 8)};
}

/* number ms seq: the key of an entry, a node, a pending row. */
static inline void row_key(uint8_t *key, uint64_t number, struct impel_id id)
{
    put_be64(key, number);
    put_be64(key + 8, id.ms);
    put_be64(key + 16, id.seq);
}

/* LETTER number, and LETTER [number] NAME; number 0 is left out of the latter. */
void key_of_number(struct lmdb_key *key, char letter, uint64_t number);
void key_of_name(struct lmdb_key *key, char letter, uint64_t number, struct impel_bytes name);

/* How large the fields are as an entry's value; and the value itself, that many bytes. */
size_t fields_size(const struct impel_field *fields, size_t field_count);
void fields_write(uint8_t *at, const struct impel_field *fields, size_t field_count);
/* How many fields a value has and where their sizes begin; -1 if it breaks the format. */
int64_t fields_count(struct impel_bytes raw, const uint8_t **sizes);
/* Reads the fields of a value that fields_count() took; false if it breaks the format. */
bool fields_read(struct impel_bytes raw,
                 const uint8_t *sizes,
                 struct impel_field *fields,
                 size_t field_count);

#endif /* IMPEL_STORE_LMDB_LAYOUT_H */
