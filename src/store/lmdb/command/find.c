/* find.c -- from the words of a command to the objects of the store. */
#include "store/lmdb/command/call.h"

bool call_stream(struct call *call, struct impel_bytes key, struct lmdb_stream **out)
{
    int rc = lmdb_stream_find(call->txn, key, out);

    if (rc == IMPEL_ERR_NOT_FOUND) {
        *out = NULL;
        return true;
    }
    if (rc == IMPEL_ERR_WRONG_TYPE) {
        return call_error_wrong_type(call);
    }
    return call_check(call, rc);
}

bool call_group(struct call *call,
                struct lmdb_stream *stream,
                struct impel_bytes name,
                struct lmdb_group **out)
{
    int rc = stream == NULL ? IMPEL_ERR_NO_GROUP : lmdb_group_find(call->txn, stream, name, out);

    if (rc == IMPEL_ERR_NO_GROUP) {
        *out = NULL;
        return true;
    }
    return call_check(call, rc);
}

bool call_key_and_group(struct call *call, size_t index, struct lmdb_group **out)
{
    struct lmdb_stream *stream;

    if (!call_stream(call, call->args[index], &stream) ||
        !call_group(call, stream, call->args[index + 1], out)) {
        return false;
    }
    return *out != NULL ||
           call_error(call, "NOGROUP No such key '%.*s' or consumer group '%.*s'",
                      CALL_TEXT(call->args[index]), CALL_TEXT(call->args[index + 1]));
}

bool call_consumer(struct call *call,
                   struct lmdb_group *group,
                   struct impel_bytes name,
                   struct lmdb_consumer **out)
{
    int created = lmdb_consumer_open(call->txn, group, name, out);

    if (!call_check(call, created)) {
        return false;
    }
    call_changed(call, created > 0);
    (*out)->seen_ms = lmdb_now_ms(call->txn);
    lmdb_consumer_changed(call->txn, *out);
    return true;
}

bool call_entry_exists(struct call *call,
                       struct lmdb_stream *stream,
                       struct impel_id id,
                       struct lmdb_raw *raw,
                       bool *exists)
{
    int rc = lmdb_entry_get(call->txn, stream, id, raw);

    *exists = rc >= 0;
    return rc == IMPEL_ERR_NOT_FOUND || call_check(call, rc);
}

bool call_owner_name(struct call *call,
                     struct lmdb_group *group,
                     uint64_t owner,
                     struct impel_bytes *name)
{
    struct lmdb_consumer *consumer;

    *name = (struct impel_bytes){NULL, 0};
    if (owner == 0) {
        return true;
    }
    if (!call_check(call, lmdb_consumer_get(call->txn, group, owner, &consumer))) {
        return false;
    }
    *name = consumer->name;
    return true;
}
