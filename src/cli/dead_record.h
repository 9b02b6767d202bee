/* dead_record.h -- a parked entry, taken apart: the fields of the original, and what Impel says of
 * it.
 *
 * A record is the original's fields, byte for byte, and behind them Impel's own, of which the last,
 * `impel_fields`, says how many these are. So names that collide do no harm. */
#ifndef IMPEL_CLI_DEAD_RECORD_H
#define IMPEL_CLI_DEAD_RECORD_H

#include "core/request.h"

struct dead_record {
    struct impel_id id; /* in the dead-letter stream */
    const struct impel_field *fields;
    size_t field_count; /* of the original */
    struct impel_bytes original_id;
    struct impel_bytes original_stream;
    struct impel_bytes original_group;
    struct impel_bytes consumer;
    struct impel_bytes reason;
    struct impel_bytes error;
    int64_t deliveries; /* -1 where it is not told */
    int64_t last_active_ms;
    int64_t parked_ms;
};

/* Takes an entry apart; the spans are the entry's. False if it is no such record. */
bool dead_record_parse(const struct entry *entry, struct dead_record *record);

#endif /* IMPEL_CLI_DEAD_RECORD_H */
