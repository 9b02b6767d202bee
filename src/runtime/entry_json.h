/* entry_json.h -- an entry as programs in any language get it: one compact JSON object on a line. */
#ifndef IMPEL_RUNTIME_ENTRY_JSON_H
#define IMPEL_RUNTIME_ENTRY_JSON_H

#include "core/request.h"

/* Who hands it out. A group whose `data` is NULL leaves out "group", "consumer" and "attempt": an
 * entry that was read without any. */
struct entry_origin {
    struct impel_bytes stream;
    struct impel_bytes group;
    struct impel_bytes consumer;
    int64_t attempt;
};

/* {"id":"1-0","stream":"orders","group":"g","consumer":"c","attempt":1,"fields":{...}} and a line
 * feed. Bytes that are not UTF-8: see base/json.h. Errors are the buffer's. */
void entry_json(struct buf *buf, const struct entry *entry, const struct entry_origin *origin);

#endif /* IMPEL_RUNTIME_ENTRY_JSON_H */
