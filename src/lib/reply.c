/* reply.c -- any one command, and looking at what it answered.
 *
 * A public reply is a node of the reply tree; the root has the request beside it, in whose arena the
 * tree lives. */
#include "base/value.h"
#include "lib/store_state.h"

#include <stdlib.h>
#include <string.h>

struct impel_reply {
    struct value value;
};

struct root {
    struct impel_reply reply; /* first: the root is a reply as well */
    struct request *request;
};

static struct request *make_call(const struct impel_bytes *words, size_t count)
{
    struct request *request = request_new(REQUEST_CALL);
    if (request == NULL) {
        return NULL;
    }
    struct impel_bytes *args = arena_calloc(&request->arena, count, sizeof *args);
    bool ok = args != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        ok = arena_copy(&request->arena, words[i], &args[i]);
    }
    if (!ok) {
        request_free(request);
        return NULL;
    }
    request->call.args = args;
    request->call.arg_count = count;
    return request;
}

int impel_call(struct impel_store *store,
               const struct impel_bytes *words,
               size_t word_count,
               struct impel_reply **reply,
               struct impel_error *err)
{
    *reply = NULL;
    if (word_count == 0) {
        return error_set(err, IMPEL_ERR_INVALID, "a command needs at least its name");
    }
    struct root *root = calloc(1, sizeof *root);
    struct request *request = make_call(words, word_count);
    if (root == NULL || request == NULL) {
        free(root);
        request_free(request);
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a command");
    }
    int rc = store_call(store, &request, err);
    if (rc < 0) {
        request_free(request);
        free(root);
        return rc;
    }
    root->request = request;
    root->reply.value = *request->call.reply;
    *reply = &root->reply;
    return IMPEL_OK;
}

void impel_reply_free(struct impel_reply *reply)
{
    if (reply != NULL) {
        struct root *root = (struct root *)reply;
        request_free(root->request);
        free(root);
    }
}

enum impel_reply_kind impel_reply_kind(const struct impel_reply *reply)
{
    static const enum impel_reply_kind kinds[] = {
        [VALUE_NULL] = IMPEL_REPLY_NULL,        [VALUE_NULL_ARRAY] = IMPEL_REPLY_NULL,
        [VALUE_STATUS] = IMPEL_REPLY_STATUS,    [VALUE_ERROR] = IMPEL_REPLY_ERROR,
        [VALUE_INTEGER] = IMPEL_REPLY_INTEGER,  [VALUE_BULK] = IMPEL_REPLY_BYTES,
        [VALUE_ARRAY] = IMPEL_REPLY_ARRAY,      [VALUE_MAP] = IMPEL_REPLY_MAP,
        [VALUE_SET] = IMPEL_REPLY_ARRAY,        [VALUE_PUSH] = IMPEL_REPLY_ARRAY,
        [VALUE_DOUBLE] = IMPEL_REPLY_DOUBLE,    [VALUE_BOOLEAN] = IMPEL_REPLY_INTEGER,
        [VALUE_BIG_NUMBER] = IMPEL_REPLY_BYTES, [VALUE_VERBATIM] = IMPEL_REPLY_BYTES,
    };
    return reply != NULL ? kinds[reply->value.kind] : IMPEL_REPLY_NULL;
}

int64_t impel_reply_integer(const struct impel_reply *reply)
{
    return impel_reply_kind(reply) == IMPEL_REPLY_INTEGER ? reply->value.integer : 0;
}

double impel_reply_double(const struct impel_reply *reply)
{
    return impel_reply_kind(reply) == IMPEL_REPLY_DOUBLE ? reply->value.number : 0;
}

struct impel_bytes impel_reply_bytes(const struct impel_reply *reply)
{
    switch (impel_reply_kind(reply)) {
    case IMPEL_REPLY_STATUS:
    case IMPEL_REPLY_ERROR:
    case IMPEL_REPLY_BYTES:
        return reply->value.bytes;
    default:
        return (struct impel_bytes){NULL, 0};
    }
}

size_t impel_reply_count(const struct impel_reply *reply)
{
    enum impel_reply_kind kind = impel_reply_kind(reply);
    return kind == IMPEL_REPLY_ARRAY || kind == IMPEL_REPLY_MAP ? reply->value.item_count : 0;
}

const struct impel_reply *impel_reply_item(const struct impel_reply *reply, size_t index)
{
    return index < impel_reply_count(reply) ? (const struct impel_reply *)&reply->value.items[index]
                                            : NULL;
}
