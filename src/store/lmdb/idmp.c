/* idmp.c -- idempotent adds: which producer added which entry under which idempotent ID (IID).
 *
 * An IID is kept for the stream's duration, and of each producer at most so many; then the oldest
 * goes. Whoever adds also clears away a few of the stream's oldest, so that producers who never
 * come back leave nothing behind. The rows are drawn in layout.h. */
#include "store/lmdb/txn.h"

enum {
    IDMP_EXPIRE_MAX = 8, /* cleared away with one add; it makes one row itself */
    IDMP_KEY_SIZE = 25,  /* letter, number, ms, seq */
};

static MDB_val val_of(const struct lmdb_key *key)
{
    return (MDB_val){key->size, (void *)key->data};
}

static MDB_val row_of(uint8_t *key, char letter, uint64_t number, struct impel_id id)
{
    key[0] = (uint8_t)letter;
    row_key(key + 1, number, id);
    return (MDB_val){IDMP_KEY_SIZE, key};
}

static int idmp_damaged(struct lmdb_txn *txn)
{
    return lmdb_fail(txn, IMPEL_ERR_CORRUPT, "the rows of idempotent adds do not agree");
}

/* What has to be there; a missing row is damage. */
static int must(struct lmdb_txn *txn, int rc)
{
    return rc == IMPEL_ERR_NOT_FOUND ? idmp_damaged(txn) : rc;
}

/* ---- the stream's own row ---- */

void lmdb_idmp_defaults(struct lmdb_txn *txn, uint32_t duration_s, uint32_t iids_max)
{
    txn->idmp_duration_s = duration_s;
    txn->idmp_iids_max = iids_max;
}

int lmdb_idmp_get(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_idmp *out)
{
    struct disk_idmp disk;
    struct lmdb_key key;
    MDB_val value;

    *out = (struct lmdb_idmp){.duration_s = txn->idmp_duration_s, .iids_max = txn->idmp_iids_max};
    key_of_number(&key, 'i', stream->number);
    int rc = row_get(txn, DB_CATALOG, val_of(&key), &value);
    if (rc < 0) {
        return rc;
    }
    if (value.mv_size != sizeof(disk)) {
        return idmp_damaged(txn);
    }
    memcpy(&disk, value.mv_data, sizeof(disk));
    *out = (struct lmdb_idmp){
        .duration_s = disk.duration_s,
        .iids_max = disk.iids_max,
        .producers = disk.producers,
        .iids = disk.iids,
        .added = disk.added,
        .duplicates = disk.duplicates,
    };
    return IMPEL_OK;
}

static int idmp_put(struct lmdb_txn *txn, struct lmdb_stream *stream, const struct lmdb_idmp *idmp)
{
    struct disk_idmp disk = {
        .duration_s = idmp->duration_s,
        .iids_max = idmp->iids_max,
        .producers = idmp->producers,
        .iids = idmp->iids,
        .added = idmp->added,
        .duplicates = idmp->duplicates,
    };
    struct lmdb_key key;
    int rc = catalog_need_version(txn, LMDB_FORMAT_IDMP_ROWS);

    key_of_number(&key, 'i', stream->number);
    return rc < 0 ? rc : row_put(txn, DB_CATALOG, val_of(&key), (MDB_val){sizeof(disk), &disk});
}

/* ---- producers ---- */

struct producer {
    uint64_t number;
    struct disk_producer disk;
    struct impel_bytes id; /* until the next write, unless it is the caller's own */
};

static int producer_get(struct lmdb_txn *txn, uint64_t number, struct producer *out)
{
    struct lmdb_key key;
    MDB_val value;

    key_of_number(&key, 'P', number);
    int rc = must(txn, row_get(txn, DB_CATALOG, val_of(&key), &value));
    if (rc >= 0 && value.mv_size < sizeof(out->disk)) {
        return idmp_damaged(txn);
    }
    if (rc >= 0) {
        out->number = number;
        memcpy(&out->disk, value.mv_data, sizeof(out->disk));
        out->id = (struct impel_bytes){(const uint8_t *)value.mv_data + sizeof(out->disk),
                                       value.mv_size - sizeof(out->disk)};
    }
    return rc;
}

/* `id` must not lie in the store's pages. */
static int
producer_put(struct lmdb_txn *txn, const struct producer *producer, struct impel_bytes id)
{
    struct lmdb_key key;
    void *room = NULL;

    key_of_number(&key, 'P', producer->number);
    int rc = row_reserve(txn, DB_CATALOG, val_of(&key), sizeof(producer->disk) + id.size, &room);
    if (rc >= 0) {
        memcpy(room, &producer->disk, sizeof(producer->disk));
        memcpy((uint8_t *)room + sizeof(producer->disk), id.data, id.size);
    }
    return rc;
}

/* IMPEL_OK, or NOT_FOUND. */
static int producer_find(struct lmdb_txn *txn,
                         struct lmdb_stream *stream,
                         struct impel_bytes id,
                         struct producer *out)
{
    uint64_t number = 0;
    int rc = catalog_find(txn, 'p', stream->number, id, &number);

    if (rc < 0 || number == 0) {
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    rc = producer_get(txn, number, out);
    if (rc >= 0 && !bytes_equal(out->id, id)) {
        return catalog_other_name(txn, id);
    }
    return rc;
}

/* One IID less; a producer without any goes. */
static int producer_less(struct lmdb_txn *txn, struct lmdb_idmp *idmp, uint64_t number)
{
    struct producer producer = {.number = 0};
    struct impel_bytes id = {NULL, 0};
    struct lmdb_key key;
    int rc = producer_get(txn, number, &producer);

    if (rc < 0) {
        return rc;
    }
    if (producer.disk.iids > 1) {
        producer.disk.iids--;
        return arena_copy(&txn->arena, producer.id, &id)
                   ? producer_put(txn, &producer, id)
                   : lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    idmp->producers--;
    key_of_name(&key, 'p', producer.disk.stream, producer.id);
    rc = must(txn, row_delete(txn, DB_CATALOG, val_of(&key)));
    key_of_number(&key, 'P', number);
    return rc < 0 ? rc : must(txn, row_delete(txn, DB_CATALOG, val_of(&key)));
}

/* ---- IIDs ---- */

/* The row of an IID by its entry; the IID lives until the next write. */
static int iid_get(struct lmdb_txn *txn,
                   uint64_t producer,
                   struct impel_id id,
                   int64_t *added_ms,
                   struct impel_bytes *iid)
{
    uint8_t key[IDMP_KEY_SIZE];
    struct disk_iid disk;
    MDB_val value;
    int rc = must(txn, row_get(txn, DB_CATALOG, row_of(key, 'J', producer, id), &value));

    if (rc >= 0 && value.mv_size < sizeof(disk)) {
        return idmp_damaged(txn);
    }
    if (rc >= 0) {
        memcpy(&disk, value.mv_data, sizeof(disk));
        *added_ms = disk.added_ms;
        *iid = (struct impel_bytes){(const uint8_t *)value.mv_data + sizeof(disk),
                                    value.mv_size - sizeof(disk)};
    }
    return rc;
}

static int iid_remove(struct lmdb_txn *txn,
                      struct lmdb_stream *stream,
                      struct lmdb_idmp *idmp,
                      uint64_t producer,
                      struct impel_id id)
{
    uint8_t key[IDMP_KEY_SIZE];
    struct lmdb_key by_iid;
    struct impel_bytes iid = {NULL, 0};
    int64_t added_ms = 0;
    int rc = iid_get(txn, producer, id, &added_ms, &iid);

    if (rc < 0) {
        return rc;
    }
    key_of_name(&by_iid, 'j', producer, iid);
    rc = must(txn, row_delete(txn, DB_CATALOG, val_of(&by_iid)));
    rc = rc < 0 ? rc : must(txn, row_delete(txn, DB_CATALOG, row_of(key, 'J', producer, id)));
    rc = rc < 0 ? rc : must(txn, row_delete(txn, DB_CATALOG, row_of(key, 'e', stream->number, id)));
    idmp->iids--;
    return rc < 0 ? rc : producer_less(txn, idmp, producer);
}

static bool too_old(const struct lmdb_txn *txn, const struct lmdb_idmp *idmp, int64_t added_ms)
{
    return sub_saturating(txn->now_ms, added_ms) >= (int64_t)idmp->duration_s * 1000;
}

/* The stream's first IID at or behind `from`. IMPEL_OK or NOT_FOUND. */
static int first_of_stream(struct lmdb_txn *txn,
                           struct lmdb_stream *stream,
                           struct impel_id from,
                           struct impel_id *id,
                           uint64_t *producer)
{
    uint8_t start[IDMP_KEY_SIZE];
    MDB_val key = row_of(start, 'e', stream->number, from);
    MDB_val value;
    int rc = row_seek(txn, DB_CATALOG, &key, 9, &value);

    if (rc >= 0 && (key.mv_size != IDMP_KEY_SIZE || value.mv_size != sizeof(*producer))) {
        return idmp_damaged(txn);
    }
    if (rc >= 0) {
        *id = get_id((const uint8_t *)key.mv_data + 9);
        memcpy(producer, value.mv_data, sizeof(*producer));
    }
    return rc;
}

/* Clears away what has become too old, a few at a time. */
static int expire(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_idmp *idmp)
{
    int rc = IMPEL_OK;

    for (int i = 0; rc >= 0 && i < IDMP_EXPIRE_MAX; i++) {
        struct impel_id id = ID_MIN;
        uint64_t producer = 0;
        int64_t added_ms = 0;
        struct impel_bytes iid = {NULL, 0};
        rc = first_of_stream(txn, stream, ID_MIN, &id, &producer);
        rc = rc < 0 ? rc : iid_get(txn, producer, id, &added_ms, &iid);
        if (rc < 0 || !too_old(txn, idmp, added_ms)) {
            break;
        }
        rc = iid_remove(txn, stream, idmp, producer, id);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

/* A producer's oldest IIDs go while it has too many; the newest never does. */
static int evict(struct lmdb_txn *txn,
                 struct lmdb_stream *stream,
                 struct lmdb_idmp *idmp,
                 const struct producer *producer)
{
    int rc = txn->status;

    for (uint64_t count = producer->disk.iids; rc >= 0 && count > idmp->iids_max; count--) {
        uint8_t start[IDMP_KEY_SIZE];
        MDB_val key = row_of(start, 'J', producer->number, ID_MIN);
        MDB_val value;
        rc = must(txn, row_seek(txn, DB_CATALOG, &key, 9, &value));
        if (rc >= 0) {
            struct impel_id oldest = get_id((const uint8_t *)key.mv_data + 9);
            rc = iid_remove(txn, stream, idmp, producer->number, oldest);
        }
    }
    return rc;
}

static int iid_find(struct lmdb_txn *txn,
                    struct lmdb_stream *stream,
                    struct lmdb_idmp *idmp,
                    const struct lmdb_iid *iid,
                    struct impel_id *out)
{
    struct producer producer = {.number = 0};
    struct lmdb_key key;
    struct impel_bytes same = {NULL, 0};
    MDB_val value;
    int64_t added_ms = 0;
    int rc = lmdb_idmp_get(txn, stream, idmp);

    rc = rc < 0 ? rc : producer_find(txn, stream, iid->producer, &producer);
    if (rc < 0) {
        return rc;
    }
    key_of_name(&key, 'j', producer.number, iid->iid);
    rc = row_get(txn, DB_CATALOG, val_of(&key), &value);
    if (rc < 0) {
        return rc;
    }
    if (value.mv_size != 16) {
        return idmp_damaged(txn);
    }
    struct impel_id id = get_id(value.mv_data);
    rc = iid_get(txn, producer.number, id, &added_ms, &same);
    if (rc < 0) {
        return rc;
    }
    if (!bytes_equal(same, iid->iid)) {
        return catalog_other_name(txn, iid->iid);
    }
    if (too_old(txn, idmp, added_ms)) {
        rc = iid_remove(txn, stream, idmp, producer.number, id);
        rc = rc < 0 ? rc : idmp_put(txn, stream, idmp);
        return rc < 0 ? rc : IMPEL_ERR_NOT_FOUND;
    }
    *out = id;
    return IMPEL_OK;
}

int lmdb_idmp_look(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_bytes producer,
                   struct impel_bytes iid,
                   struct impel_id *out)
{
    struct lmdb_iid wanted = {.producer = producer, .iid = iid};
    struct lmdb_idmp idmp;
    return iid_find(txn, stream, &idmp, &wanted, out);
}

int lmdb_idmp_find(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct impel_bytes producer,
                   struct impel_bytes iid,
                   struct impel_id *out)
{
    struct lmdb_iid wanted = {.producer = producer, .iid = iid};
    struct lmdb_idmp idmp;
    int rc = iid_find(txn, stream, &idmp, &wanted, out);

    if (rc >= 0) {
        idmp.duplicates++;
        rc = idmp_put(txn, stream, &idmp);
    }
    return rc;
}

int lmdb_idmp_has(struct lmdb_txn *txn, struct lmdb_stream *stream, struct impel_id id, bool *has)
{
    struct impel_id found = ID_MIN;
    uint64_t producer = 0;
    int rc = first_of_stream(txn, stream, id, &found, &producer);

    *has = rc >= 0 && id_equal(found, id);
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

/* The producer, made if need be. */
static int producer_open(struct lmdb_txn *txn,
                         struct lmdb_stream *stream,
                         struct lmdb_idmp *idmp,
                         struct impel_bytes id,
                         struct producer *out)
{
    int rc = producer_find(txn, stream, id, out);

    if (rc != IMPEL_ERR_NOT_FOUND) {
        return rc;
    }
    *out = (struct producer){.disk = {.stream = stream->number}};
    rc = catalog_new_number(txn, &out->number);
    idmp->producers++;
    return rc < 0 ? rc : catalog_set(txn, 'p', stream->number, id, out->number);
}

static int iid_put(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   uint64_t producer,
                   const struct lmdb_iid *iid)
{
    struct disk_iid disk = {.added_ms = iid->added_ms};
    uint8_t key[IDMP_KEY_SIZE];
    uint8_t entry[16];
    struct lmdb_key by_iid;
    void *room = NULL;

    put_be64(entry, iid->id.ms);
    put_be64(entry + 8, iid->id.seq);
    key_of_name(&by_iid, 'j', producer, iid->iid);
    int rc = row_put(txn, DB_CATALOG, val_of(&by_iid), (MDB_val){sizeof(entry), entry});
    rc = rc < 0 ? rc
                : row_put(txn, DB_CATALOG, row_of(key, 'e', stream->number, iid->id),
                          (MDB_val){sizeof(producer), &producer});
    rc = rc < 0 ? rc
                : row_reserve(txn, DB_CATALOG, row_of(key, 'J', producer, iid->id),
                              sizeof(disk) + iid->iid.size, &room);
    if (rc >= 0) {
        memcpy(room, &disk, sizeof(disk));
        memcpy((uint8_t *)room + sizeof(disk), iid->iid.data, iid->iid.size);
    }
    return rc;
}

/* Makes the ID free: XSETID may have made it possible to add an entry of an ID that was there
 * before, and then had an IID. */
static int free_id(struct lmdb_txn *txn,
                   struct lmdb_stream *stream,
                   struct lmdb_idmp *idmp,
                   struct impel_id id)
{
    struct impel_id found = ID_MIN;
    uint64_t producer = 0;
    int rc = first_of_stream(txn, stream, id, &found, &producer);

    if (rc >= 0 && id_equal(found, id)) {
        rc = iid_remove(txn, stream, idmp, producer, id);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

int lmdb_idmp_add(struct lmdb_txn *txn, struct lmdb_stream *stream, const struct lmdb_iid *iid)
{
    struct lmdb_idmp idmp;
    struct producer producer = {.number = 0};
    int rc = lmdb_idmp_get(txn, stream, &idmp);

    rc = rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    rc = rc < 0 ? rc : expire(txn, stream, &idmp);
    rc = rc < 0 ? rc : free_id(txn, stream, &idmp, iid->id);
    rc = rc < 0 ? rc : producer_open(txn, stream, &idmp, iid->producer, &producer);
    if (rc < 0) {
        return rc;
    }
    producer.disk.iids++;
    idmp.iids++;
    idmp.added++;
    rc = iid_put(txn, stream, producer.number, iid);
    rc = rc < 0 ? rc : producer_put(txn, &producer, iid->producer);
    rc = rc < 0 ? rc : evict(txn, stream, &idmp, &producer);
    return rc < 0 ? rc : idmp_put(txn, stream, &idmp);
}

/* ---- the whole of a stream's ---- */

static int forget_all(struct lmdb_txn *txn, struct lmdb_stream *stream, struct lmdb_idmp *idmp)
{
    int rc = txn->status;

    while (rc >= 0) {
        struct impel_id id = ID_MIN;
        uint64_t producer = 0;
        rc = first_of_stream(txn, stream, ID_MIN, &id, &producer);
        rc = rc < 0 ? rc : iid_remove(txn, stream, idmp, producer, id);
    }
    return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
}

int lmdb_idmp_set(struct lmdb_txn *txn,
                  struct lmdb_stream *stream,
                  uint32_t duration_s,
                  uint32_t iids_max)
{
    struct lmdb_idmp idmp;
    int rc = lmdb_idmp_get(txn, stream, &idmp);

    rc = rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    if (rc >= 0 && (idmp.duration_s != duration_s || idmp.iids_max != iids_max)) {
        rc = forget_all(txn, stream, &idmp);
    }
    idmp.duration_s = duration_s;
    idmp.iids_max = iids_max;
    return rc < 0 ? rc : idmp_put(txn, stream, &idmp);
}

int idmp_drop(struct lmdb_txn *txn, struct lmdb_stream *stream)
{
    struct lmdb_idmp idmp;
    struct lmdb_key key;
    int rc = lmdb_idmp_get(txn, stream, &idmp);

    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    }
    rc = forget_all(txn, stream, &idmp);
    key_of_number(&key, 'i', stream->number);
    return rc < 0 ? rc : row_delete(txn, DB_CATALOG, val_of(&key));
}

/* One IID, to another stream. */
static int
iid_copy(struct lmdb_txn *txn, struct lmdb_stream *to, uint64_t producer_number, struct impel_id id)
{
    struct lmdb_iid iid = {.id = id};
    struct producer producer = {.number = 0};
    int rc = producer_get(txn, producer_number, &producer);

    if (rc >= 0 && !arena_copy(&txn->arena, producer.id, &iid.producer)) {
        rc = lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    rc = rc < 0 ? rc : iid_get(txn, producer_number, id, &iid.added_ms, &iid.iid);
    if (rc >= 0 && !arena_copy(&txn->arena, iid.iid, &iid.iid)) {
        rc = lmdb_fail(txn, IMPEL_ERR_NOMEM, "out of memory");
    }
    return rc < 0 ? rc : lmdb_idmp_add(txn, to, &iid);
}

int idmp_copy(struct lmdb_txn *txn, struct lmdb_stream *from, struct lmdb_stream *to)
{
    struct lmdb_idmp idmp, copied;
    struct impel_id id = ID_MIN;
    uint64_t producer = 0;
    bool more = true;
    int rc = lmdb_idmp_get(txn, from, &idmp);

    if (rc < 0) {
        return rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    }
    rc = lmdb_idmp_set(txn, to, idmp.duration_s, idmp.iids_max);
    while (rc >= 0 && more) {
        rc = first_of_stream(txn, from, id, &id, &producer);
        rc = rc < 0 ? rc : iid_copy(txn, to, producer, id);
        more = id_next(&id);
    }
    rc = rc == IMPEL_ERR_NOT_FOUND ? txn->status : rc;
    rc = rc < 0 ? rc : lmdb_idmp_get(txn, to, &copied);
    copied.added = idmp.added;
    copied.duplicates = idmp.duplicates;
    return rc < 0 ? rc : idmp_put(txn, to, &copied);
}
