/* add.c -- XADD.
 *
 *   XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT n]] <* | ms-* | id> field value ...
 *
 * Options end at the first word that is "*" or an ID, so a misspelt option is reported as a bad ID.
 * Nothing is created before everything has been judged. */
#include "core/id.h"
#include "store/lmdb/command/call.h"
#include "store/lmdb/command/commands.h"
#include "store/lmdb/command/trim.h"

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
        } else if (word == TRIM_WORD_OTHER) {
            if (!id_read(call, *index, add)) {
                return false;
            }
            break;
        }
    }
    ++*index;
    return trim_words_check(call, &add->trim, false);
}

static bool fields_read(struct call *call, struct xadd *add, size_t first)
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

static bool xadd_parse(struct call *call, struct xadd *add)
{
    size_t index = 2;

    if (!options_read(call, add, &index) || !fields_read(call, add, index)) {
        return false;
    }
    if (add->id_kind == ADD_ID_GIVEN && id_is_zero(add->id)) {
        return call_error(call, "ERR The ID specified in XADD must be greater than 0-0");
    }
    return true;
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
        return call_error(call, "OOM the store is nearly full: adding is refused, while "
                                "acknowledging, trimming and deleting go on");
    }
    if (!call_check(call, rc) ||
        (*stream == NULL &&
         !call_check(call, lmdb_stream_open(call->txn, call->args[1], stream)))) {
        return false;
    }
    return call_check(call, lmdb_stream_append(call->txn, *stream, add->id, add->fields,
                                               add->field_count, false));
}

void call_xadd(struct call *call)
{
    struct xadd add = {.id_kind = ADD_ID_GIVEN};
    struct lmdb_stream *stream;
    uint64_t removed;

    if (!xadd_parse(call, &add) || !call_stream(call, call->args[1], &stream)) {
        return;
    }
    if (stream == NULL && add.no_create) {
        return; /* a null */
    }
    if (!id_settle(call, &add, stream)) {
        return;
    }
    if (append(call, &add, &stream) && trim_apply(call, stream, &add.trim, &removed)) {
        call_bulk_id(call, call->reply, add.id);
    }
}
