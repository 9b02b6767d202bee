/* read_claim.c -- XREADGROUP ... CLAIM min-idle: taking over, in the same call, what others have had
 * pending for too long.
 *
 * What is nobody's comes first, then the longest idle. A pending row whose entry is gone is passed
 * by and stays: XAUTOCLAIM removes such. */
#include "core/id.h"
#include "store/lmdb/command/read.h"

#include <string.h>

enum {
    CLAIMS_ROOM_FIRST = 64,
    WAIT_UNKNOWN_MS = 1000, /* nothing is pending yet: what will be is looked for this often */
};

/* How many bytes "$NUMBER" takes, or "*NUMBER". */
static uint64_t header_size(uint64_t number)
{
    uint64_t size = 4; /* the letter, a digit, CR LF */

    for (; number >= 10; number /= 10) {
        size++;
    }
    return size;
}

static uint64_t bulk_size(uint64_t size)
{
    return header_size(size) + size + 2;
}

/* What an entry takes in a reply. */
static bool entry_size(struct call *call, const struct lmdb_raw *raw, uint64_t *size)
{
    struct impel_field *fields;
    size_t count;
    char text[ID_TEXT_SIZE];

    id_format(raw->id, text);
    *size = header_size(2) + bulk_size(bytes_of(text).size);
    if (!call_check(call, lmdb_raw_fields(call->txn, raw, call->arena, &fields, &count))) {
        return false;
    }
    *size += header_size(2 * count);
    for (size_t i = 0; i < count; i++) {
        *size += bulk_size(fields[i].name.size) + bulk_size(fields[i].value.size);
    }
    return true;
}

bool budget_take(struct call *call,
                 struct read_budget *budget,
                 const struct lmdb_raw *raw,
                 bool *fits)
{
    uint64_t size = 0;

    *fits = budget->stream > 0 && budget->entries > 0;
    if (!*fits) {
        return true;
    }
    if (budget->bytes != UINT64_MAX && raw != NULL && !entry_size(call, raw, &size)) {
        return false;
    }
    if (budget->given && size > budget->bytes) {
        *fits = false;
        budget->entries = 0;
        return true;
    }
    budget->given = true;
    budget->stream -= budget->stream != UINT64_MAX;
    budget->entries -= budget->entries != UINT64_MAX;
    if (budget->bytes != UINT64_MAX) {
        budget->bytes -= size < budget->bytes ? size : budget->bytes;
    }
    return true;
}

static bool
claims_append(struct call *call, struct read_claims *claims, const struct lmdb_pending *row)
{
    if (claims->count == claims->room) {
        size_t room = claims->room == 0 ? CLAIMS_ROOM_FIRST : claims->room * 2;
        struct lmdb_pending *rows = arena_calloc(call->arena, room, sizeof(*rows));
        if (rows == NULL) {
            return call_fail(call, IMPEL_ERR_NOMEM);
        }
        if (claims->count > 0) {
            memcpy(rows, claims->rows, claims->count * sizeof(*rows));
        }
        claims->rows = rows;
        claims->room = room;
    }
    claims->rows[claims->count++] = *row;
    return true;
}

/* How long a row has been pending; nobody's for ever. */
static int64_t row_idle_ms(const struct call *call, const struct lmdb_pending *row)
{
    return row->owner == 0 ? INT64_MAX : sub_saturating(lmdb_now_ms(call->txn), row->delivered_ms);
}

bool claims_find(struct call *call,
                 struct lmdb_group *group,
                 int64_t min_idle_ms,
                 uint64_t count_max,
                 struct read_claims *claims)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    bool good = call_check(call, lmdb_group_order(call->txn, group)) &&
                call_check(call, lmdb_walk_order(&walk, call->txn, group));

    while (good && claims->count < count_max) {
        bool exists;
        int more = lmdb_next_pending(&walk, &row);
        good = call_check(call, more);
        if (!good || more == 0 || row_idle_ms(call, &row) < min_idle_ms) {
            break;
        }
        good = call_entry_exists(call, group->stream, row.id, NULL, &exists) &&
               (!exists || claims_append(call, claims, &row));
    }
    lmdb_walk_end(&walk);
    return good;
}

bool claims_entry(struct call *call,
                  struct value *out,
                  const struct lmdb_raw *raw,
                  int64_t idle_ms,
                  int64_t deliveries)
{
    struct value pair;

    if (!call_entry(call, &pair, raw)) {
        return false;
    }
    struct value *items = call_list(call, out, VALUE_ARRAY, 4);
    if (items == NULL) {
        return false;
    }
    items[0] = pair.items[0];
    items[1] = pair.items[1];
    items[2] = value_integer(idle_ms);
    items[3] = value_integer(deliveries);
    return true;
}

/* One row, to be this consumer's; `*fits` unless the reply is full. */
static bool claim_row(struct call *call,
                      const struct lmdb_pending *old,
                      struct lmdb_consumer *consumer,
                      struct read_budget *budget,
                      struct value *list)
{
    struct lmdb_pending row = *old;
    struct lmdb_raw raw;
    bool exists, fits;
    int64_t now_ms = lmdb_now_ms(call->txn);
    int64_t idle_ms = sub_saturating(now_ms, old->delivered_ms);

    if (!call_entry_exists(call, consumer->group->stream, old->id, &raw, &exists) ||
        !budget_take(call, budget, &raw, &fits)) {
        return false;
    }
    if (!fits) {
        return true;
    }
    struct value *item = call_append(call, list);
    if (item == NULL ||
        !claims_entry(call, item, &raw, idle_ms < 0 ? 0 : idle_ms, old->deliveries)) {
        return false;
    }
    row.owner = consumer->number;
    row.delivered_ms = now_ms;
    row.deliveries = (int64_t)((uint64_t)old->deliveries + 1); /* wraps, as Redis's does */
    consumer->active_ms = now_ms;
    lmdb_consumer_changed(call->txn, consumer);
    return call_check(call, lmdb_pending_put(call->txn, consumer->group, old, &row));
}

bool claims_serve(struct call *call,
                  const struct read_claims *claims,
                  struct lmdb_consumer *consumer,
                  struct read_budget *budget,
                  struct value *list)
{
    for (size_t i = 0; i < claims->count; i++) {
        if (!claim_row(call, &claims->rows[i], consumer, budget, list)) {
            return false;
        }
    }
    return true;
}

bool claims_wait(struct call *call, struct lmdb_group *group, int64_t min_idle_ms, int64_t *wait_ms)
{
    struct lmdb_walk walk = {.txn = NULL};
    struct lmdb_pending row;
    int64_t next_ms = min_idle_ms > WAIT_UNKNOWN_MS ? min_idle_ms : WAIT_UNKNOWN_MS;
    bool good = call_check(call, lmdb_walk_order(&walk, call->txn, group));

    while (good) {
        bool exists;
        int more = lmdb_next_pending(&walk, &row);
        good = call_check(call, more);
        if (!good || more == 0) {
            break;
        }
        if (!call_entry_exists(call, group->stream, row.id, NULL, &exists)) {
            good = false;
        } else if (exists) {
            int64_t due_ms = sub_saturating(min_idle_ms, row_idle_ms(call, &row));
            next_ms = due_ms < next_ms ? due_ms : next_ms;
            break;
        }
    }
    lmdb_walk_end(&walk);
    next_ms = next_ms < 1 ? 1 : next_ms;
    *wait_ms = next_ms < *wait_ms ? next_ms : *wait_ms;
    return good;
}
