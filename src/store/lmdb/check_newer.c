/* check_newer.c -- the check of the rows that came with version 2 of the format: the order of CLAIM,
 * and idempotent adds. */
#include "store/lmdb/check_own.h"

#include <string.h>

enum {
    ORDER_KEY_SIZE = 33, /* letter, group, time, ms, seq */
    IDMP_KEY_SIZE = 25,  /* letter, number, ms, seq */
    NEWER_VERSION = LMDB_FORMAT_ORDER_ROWS,
};

static uint64_t number_of(MDB_val key)
{
    return get_be64((const uint8_t *)key.mv_data + 1);
}

static bool find(struct checking *checking, const struct lmdb_key *key, MDB_val *value)
{
    return row_get(checking->txn, DB_CATALOG, (MDB_val){key->size, (void *)key->data}, value) >= 0;
}

/* The row LETTER number id. */
static bool find_by_id(
    struct checking *checking, char letter, uint64_t number, const uint8_t *id, MDB_val *value)
{
    struct lmdb_key key;

    key_of_number(&key, letter, number);
    memcpy(key.data + key.size, id, 16);
    key.size += 16;
    return find(checking, &key, value);
}

/* ---- the order of CLAIM ---- */

static void check_order(struct checking *checking, MDB_val key)
{
    const uint8_t *bytes = key.mv_data;
    struct seen *group = NULL;
    struct lmdb_pending row = {.owner = 0};

    if (key.mv_size == ORDER_KEY_SIZE) {
        group = check_find(&checking->groups, number_of(key));
    }
    if (group == NULL) {
        check_problem(checking, "a row of the order of a group that is not there");
        return;
    }
    group->in_order++;
    bool there = check_pending_get(checking, group->number, get_id(bytes + 17), &row);
    int64_t time = row.owner == 0         ? (int64_t)(row.released ^ (1ULL << 63))
                   : row.delivered_ms < 0 ? 0
                                          : row.delivered_ms;
    if (!there || get_be64(bytes + 9) != ((uint64_t)time ^ (1ULL << 63))) {
        check_problem(checking, "group %llu: its order and its pending entries disagree",
                      NUMBER(group->number));
    }
}

/* ---- idempotent adds ---- */

void check_newer_object(struct checking *checking, MDB_val key, MDB_val value)
{
    uint8_t letter = *(const uint8_t *)key.mv_data;
    struct disk_producer producer;
    struct disk_idmp idmp;
    struct seen *seen = NULL;

    if (letter == 'P' && key.mv_size == 9 && value.mv_size > sizeof(producer)) {
        seen = check_add(checking, &checking->producers, number_of(key));
        memcpy(&producer, value.mv_data, sizeof(producer));
    } else if (letter == 'i' && key.mv_size == 9 && value.mv_size == sizeof(idmp)) {
        seen = check_add(checking, &checking->idmps, number_of(key));
        memcpy(&idmp, value.mv_data, sizeof(idmp));
    } else if (letter == 'P' || letter == 'i') {
        check_problem(checking, "catalog: a row '%c' is damaged", letter);
    }
    if (seen != NULL && letter == 'P') {
        seen->parent = producer.stream;
        seen->said = producer.iids;
    } else if (seen != NULL) {
        seen->said = idmp.iids;
        seen->children_said = idmp.producers;
    }
}

/* 'i' and 'P': what they belong to, and the name that leads there. */
static void check_idmp(struct checking *checking, MDB_val key)
{
    struct seen *seen = check_find(&checking->idmps, number_of(key));

    if (seen != NULL && check_find(&checking->streams, seen->number) != NULL) {
        seen->names++;
    }
}

static void check_producer(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *seen = check_find(&checking->producers, number_of(key));
    struct lmdb_key name;
    MDB_val found;
    uint64_t number = 0;

    if (seen == NULL) {
        return; /* damaged, and told so */
    }
    struct seen *idmp = check_find(&checking->idmps, seen->parent);
    struct impel_bytes id = {(const uint8_t *)value.mv_data + sizeof(struct disk_producer),
                             value.mv_size - sizeof(struct disk_producer)};
    key_of_name(&name, 'p', seen->parent, id);
    if (idmp != NULL && find(checking, &name, &found) && found.mv_size == sizeof(number)) {
        memcpy(&number, found.mv_data, sizeof(number));
        idmp->children++;
    }
    seen->names += number == seen->number;
}

/* 'p': it leads to a producer of its stream, whose row says that name (checked from there). */
static void check_producer_name(struct checking *checking, MDB_val key, MDB_val value)
{
    struct seen *producer = NULL;
    uint64_t number = 0;

    if (key.mv_size > 9 && value.mv_size == sizeof(number)) {
        memcpy(&number, value.mv_data, sizeof(number));
        producer = check_find(&checking->producers, number);
    }
    if (producer == NULL || producer->parent != number_of(key)) {
        check_problem(checking, "catalog: a name leads to producer %llu, which is not there",
                      NUMBER(number));
    }
}

/* 'J': counted, and both other rows of the IID say the same. */
static void check_iid(struct checking *checking, MDB_val key, MDB_val value)
{
    const uint8_t *bytes = key.mv_data;
    struct seen *producer = NULL;
    struct lmdb_key by_iid;
    MDB_val found;
    uint64_t number = 0;

    if (key.mv_size == IDMP_KEY_SIZE && value.mv_size > sizeof(struct disk_iid)) {
        producer = check_find(&checking->producers, number_of(key));
    }
    if (producer == NULL) {
        check_problem(checking, "an idempotent ID of a producer that is not there");
        return;
    }
    producer->counted++;
    struct impel_bytes iid = {(const uint8_t *)value.mv_data + sizeof(struct disk_iid),
                              value.mv_size - sizeof(struct disk_iid)};
    key_of_name(&by_iid, 'j', producer->number, iid);
    bool same = find(checking, &by_iid, &found) && found.mv_size == 16 &&
                memcmp(found.mv_data, bytes + 9, 16) == 0;
    if (same && find_by_id(checking, 'e', producer->parent, bytes + 9, &found) &&
        found.mv_size == sizeof(number)) {
        memcpy(&number, found.mv_data, sizeof(number));
    }
    if (number != producer->number) {
        check_problem(checking, "producer %llu: the rows of an idempotent ID disagree",
                      NUMBER(producer->number));
    }
}

/* 'j' and 'e': they lead to a row 'J', which is compared with them from there. */
static void check_iid_leads(struct checking *checking, MDB_val key, MDB_val value)
{
    const uint8_t *bytes = key.mv_data;
    bool by_iid = bytes[0] == 'j';
    struct seen *idmp = by_iid ? NULL : check_find(&checking->idmps, number_of(key));
    uint64_t producer = number_of(key);
    const uint8_t *id = value.mv_data;
    MDB_val found;
    bool good = by_iid ? value.mv_size == 16
                       : key.mv_size == IDMP_KEY_SIZE && value.mv_size == sizeof(producer);

    if (good && !by_iid) {
        memcpy(&producer, value.mv_data, sizeof(producer));
        id = bytes + 9;
    }
    if (!good || (!by_iid && idmp == NULL) || !find_by_id(checking, 'J', producer, id, &found)) {
        check_problem(checking, "catalog: a row '%c' leads to an idempotent ID that is not there",
                      bytes[0]);
        return;
    }
    if (idmp != NULL) {
        idmp->counted++;
    }
}

void check_version(struct checking *checking, uint32_t needed)
{
    if (checking->meta.version < needed) {
        check_problem(checking, "the file says version %u and has rows of version %u",
                      checking->meta.version, needed);
    }
}

bool check_newer_row(struct checking *checking, MDB_val key, MDB_val value)
{
    uint8_t letter = *(const uint8_t *)key.mv_data;

    if (strchr("tiPpJje", letter) == NULL) {
        return false;
    }
    if (key.mv_size < 9) {
        check_problem(checking, "catalog: a row '%c' is damaged", letter);
        return true;
    }
    check_version(checking, NEWER_VERSION);
    switch (letter) {
    case 't':
        check_order(checking, key);
        break;
    case 'i':
        check_idmp(checking, key);
        break;
    case 'P':
        check_producer(checking, key, value);
        break;
    case 'p':
        check_producer_name(checking, key, value);
        break;
    case 'J':
        check_iid(checking, key, value);
        break;
    default:
        check_iid_leads(checking, key, value);
        break;
    }
    return true;
}

void check_newer_counts(struct checking *checking)
{
    check_counts_of(checking, &checking->producers, "producer");
    check_counts_of(checking, &checking->idmps, "idempotent adds of stream");
    for (size_t i = 0; i < checking->groups.count && !checking->stop; i++) {
        const struct seen *group = &checking->groups.items[i];
        uint64_t want = group->ordered ? group->counted : group->nobodys;
        if (group->in_order != want) {
            check_problem(checking, "group %llu: its order has %llu rows, not %llu",
                          NUMBER(group->number), NUMBER(group->in_order), NUMBER(want));
        }
    }
}
