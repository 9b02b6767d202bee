/* add.c -- XADD.
 *
 *   XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT n]] [KEEPREF|DELREF|ACKED]
 *        [IDMPAUTO producer | IDMP producer iid] <* | ms-* | id> field value [field value ...]
 *
 * Options end at the first word that is "*" or an ID, so a misspelt option is reported as a bad ID.
 * Nothing is created before everything has been judged. */
#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/command/trim.h"
#include "store/lmdb/layout.h"

#include <stdlib.h>
#include <string.h>

enum add_id {
    ADD_ID_GIVEN,
    ADD_ID_AUTO,     /* "*" */
    ADD_ID_AUTO_SEQ, /* "5-*" */
};

struct xadd {
    struct trim_words trim;
    bool no_create;
    enum add_id id_kind;
    struct impel_id id;
    const struct impel_field *fields;
    size_t field_count;
    bool idempotent; /* IDMP or IDMPAUTO */
    struct impel_bytes producer;
    struct impel_bytes iid; /* IDMPAUTO: none until the fields are known */
};

/* An IID that a client gives and one that is made of the fields are never the same. */
enum {
    IID_GIVEN = 'i',
    IID_WHOLE = 'w',       /* made of the fields: these themselves */
    IID_HASHED = 'h',      /* of large ones: their beginning, their size and a hash */
    IID_WHOLE_MAX = 256,   /* bytes */
    IID_HASHED_HEAD = 128, /* bytes of the beginning */
};

/* "ms-*": the ms part is a number like any other, a NUL ends the word. */
static bool auto_seq_read(struct impel_bytes word, struct impel_id *id)
{
    size_t size = word.size == 0 ? 0 : strnlen(word.data, word.size);
    const char *text = word.data;
    const char *dash = size == 0 ? NULL : memchr(text, '-', size);

    if (dash == NULL || text + size != dash + 2 || dash[1] != '*' || word.size > 127) {
        return false;
    }
    return word_id((struct impel_bytes){text, (size_t)(dash - text)}, 0, id);
}

static bool id_read(struct call *call, size_t index, struct xadd *add)
{
    struct impel_bytes word = call->args[index];

    if (auto_seq_read(word, &add->id)) {
        add->id_kind = ADD_ID_AUTO_SEQ;
        return true;
    }
    add->id_kind = ADD_ID_GIVEN;
    return call_id(call, index, 0, &add->id);
}

/* IDMP and IDMPAUTO, with their values. */
static bool idempotent_read(struct call *call, struct xadd *add, size_t *index)
{
    bool automatic = call_word_is(call, *index, "IDMPAUTO");
    const char *word = automatic ? "IDMPAUTO" : "IDMP";
    size_t values = automatic ? 1 : 2;

    if (add->idempotent) {
        return call_error(call, "ERR IDMP/IDMPAUTO specified multiple times");
    }
    if (*index + values >= call->arg_count) {
        return call_error_syntax(call);
    }
    add->idempotent = true;
    add->producer = call->args[*index + 1];
    if (add->producer.size == 0) {
        return call_error(call, "ERR %s requires a non-empty producer ID", word);
    }
    if (!automatic) {
        add->iid = call->args[*index + 2];
        if (add->iid.size == 0) {
            return call_error(call, "ERR IDMP requires a non-empty idempotent ID");
        }
    }
    *index += 1 + values;
    return true;
}

/* Reads options and ID; `*index` is then the first field's. */
static bool options_read(struct call *call, struct xadd *add, size_t *index)
{
    while (*index < call->arg_count) {
        if (bytes_equal(call->args[*index], bytes_of("*"))) {
            add->id_kind = ADD_ID_AUTO;
            break;
        }
        enum trim_word word = trim_word_read(call, &add->trim, index);
        if (word == TRIM_WORD_ERROR) {
            return false;
        }
        if (word == TRIM_WORD_OTHER && call_word_is(call, *index, "NOMKSTREAM")) {
            add->no_create = true;
            ++*index;
        } else if (word == TRIM_WORD_OTHER &&
                   (call_word_is(call, *index, "IDMP") || call_word_is(call, *index, "IDMPAUTO"))) {
            if (!idempotent_read(call, add, index)) {
                return false;
            }
        } else if (word == TRIM_WORD_OTHER) {
            if (!id_read(call, *index, add)) {
                return false;
            }
            break;
        }
    }
    ++*index;
    if (add->idempotent && add->id_kind != ADD_ID_AUTO) {
        return call_error(call, "ERR IDMP/IDMPAUTO can be used only with auto-generated IDs");
    }
    return trim_words_check(call, &add->trim, false);
}

static bool fields_take(struct call *call, struct xadd *add, size_t first)
{
    size_t count = first < call->arg_count ? (call->arg_count - first) / 2 : 0;

    if (count == 0 || (call->arg_count - first) % 2 != 0) {
        return call_error_arity(call);
    }
    struct impel_field *fields = arena_calloc(call->arena, count, sizeof(*fields));
    if (fields == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    for (size_t i = 0; i < count; i++) {
        fields[i].name = call->args[first + 2 * i];
        fields[i].value = call->args[first + 2 * i + 1];
    }
    add->fields = fields;
    add->field_count = count;
    return true;
}

static int field_order(const void *a, const void *b)
{
    const struct impel_field *one = a, *other = b;
    int order = bytes_compare(one->name, other->name);

    return order != 0 ? order : bytes_compare(one->value, other->value);
}

/* The IID that IDMPAUTO makes of the fields, in whatever order these are given. */
static bool iid_of_fields(struct call *call, struct xadd *add)
{
    size_t size = fields_size(add->fields, add->field_count);
    size_t bytes = add->field_count * sizeof(struct impel_field);
    struct impel_field *sorted = arena_alloc(call->arena, bytes);
    uint8_t *iid = arena_alloc(call->arena, 1 + size + 24);

    if (sorted == NULL || iid == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    memcpy(sorted, add->fields, bytes);
    qsort(sorted, add->field_count, sizeof(*sorted), field_order);
    iid[0] = IID_WHOLE;
    fields_write(iid + 1, sorted, add->field_count);
    if (size > IID_WHOLE_MAX) {
        struct impel_bytes all = {iid + 1, size};
        uint64_t low = hash_bytes(all, 0), high = hash_bytes(all, low ^ size);
        iid[0] = IID_HASHED;
        put_be64(iid + 1 + IID_HASHED_HEAD, size);
        put_be64(iid + 1 + IID_HASHED_HEAD + 8, low);
        put_be64(iid + 1 + IID_HASHED_HEAD + 16, high);
        size = IID_HASHED_HEAD + 24;
    }
    add->iid = (struct impel_bytes){iid, 1 + size};
    return true;
}

bool call_iid_given(struct call *call, struct impel_bytes word, struct impel_bytes *out)
{
    uint8_t *iid = arena_alloc(call->arena, 1 + word.size);

    if (iid == NULL) {
        return call_fail(call, IMPEL_ERR_NOMEM);
    }
    iid[0] = IID_GIVEN;
    memcpy(iid + 1, word.data, word.size);
    *out = (struct impel_bytes){iid, 1 + word.size};
    return true;
}

static bool iid_settle(struct call *call, struct xadd *add)
{
    if (!add->idempotent) {
        return true;
    }
    return add->iid.size == 0 ? iid_of_fields(call, add)
                              : call_iid_given(call, add->iid, &add->iid);
}

static bool xadd_parse(struct call *call, struct xadd *add)
{
    size_t index = 2;

    if (!options_read(call, add, &index) || !fields_take(call, add, index)) {
        return false;
    }
    if (add->id_kind == ADD_ID_GIVEN && id_is_zero(add->id)) {
        return call_error(call, "ERR The ID specified in XADD must be greater than 0-0");
    }
    return iid_settle(call, add);
}

/* Settles the ID of the new entry. `stream` is NULL if the key does not exist yet. */
static bool id_settle(struct call *call, struct xadd *add, const struct lmdb_stream *stream)
{
    static const struct lmdb_stream nothing = {.number = 0};
    const struct lmdb_stream *at = stream == NULL ? &nothing : stream;
    bool greater = true;

    if (id_equal(at->last_id, ID_MAX)) {
        return call_error(call, "ERR The stream has exhausted the last possible ID, unable to add "
                                "more items");
    }
    if (add->id_kind == ADD_ID_AUTO) {
        greater = lmdb_stream_next_id(at, lmdb_now_ms(call->txn), &add->id);
    } else if (add->id_kind == ADD_ID_AUTO_SEQ && add->id.ms == at->last_id.ms) {
        greater = at->last_id.seq != UINT64_MAX;
        add->id.seq = at->last_id.seq + 1;
    }
    if (!greater || id_compare(add->id, at->last_id) <= 0) {
        return call_error(call, "ERR The ID specified in XADD is equal or smaller than the target "
                                "stream top item");
    }
    return true;
}

/* What may refuse is asked first, so that a refused add does not leave an empty stream. */
static bool append(struct call *call, const struct xadd *add, struct lmdb_stream **stream)
{
    int rc = lmdb_append_check(call->txn, add->fields, add->field_count, false);

    if (rc == IMPEL_ERR_LIMIT) {
        return call_error(call, "ERR Elements are too large to be stored");
    }
    if (rc == IMPEL_ERR_FULL) {
        return call_error(call, lmdb_disk_full(call->txn)
                                    ? "OOM the disk is nearly full: adding is refused, while "
                                      "acknowledging, trimming and deleting go on"
                                    : "OOM the store is nearly full: adding is refused, while "
                                      "acknowledging, trimming and deleting go on");
    }
    if (!call_check(call, rc) ||
        (*stream == NULL &&
         !call_check(call, lmdb_stream_open(call->txn, call->args[1], stream)))) {
        return false;
    }
    if (!call_check(call, lmdb_stream_append(call->txn, *stream, add->id, add->fields,
                                             add->field_count, false))) {
        return false;
    }
    struct lmdb_iid iid = {.producer = add->producer,
                           .iid = add->iid,
                           .id = add->id,
                           .added_ms = lmdb_now_ms(call->txn)};
    return !add->idempotent || call_check(call, lmdb_idmp_add(call->txn, *stream, &iid));
}

/* `*known` if it was added before; then its ID is the reply. */
static bool
find_duplicate(struct call *call, const struct xadd *add, struct lmdb_stream *stream, bool *known)
{
    struct impel_id id;

    *known = false;
    if (!add->idempotent || stream == NULL) {
        return true;
    }
    int rc = lmdb_idmp_find(call->txn, stream, add->producer, add->iid, &id);
    if (rc == IMPEL_ERR_NOT_FOUND) {
        return true;
    }
    *known = rc >= 0;
    call_changed(call, 0);
    return call_check(call, rc) && call_bulk_id(call, call->reply, id);
}

void call_xadd(struct call *call)
{
    struct xadd add = {.id_kind = ADD_ID_GIVEN};
    struct lmdb_stream *stream;
    uint64_t removed;
    bool known;

    if (!xadd_parse(call, &add) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL && add.no_create) {
        return; /* a null */
    }
    if (!find_duplicate(call, &add, stream, &known) || known || !id_settle(call, &add, stream)) {
        return;
    }
    if (append(call, &add, &stream) && trim_apply(call, stream, &add.trim, &removed)) {
        call_bulk_id(call, call->reply, add.id);
    }
}
