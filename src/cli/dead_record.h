/* dead_record.h -- a parked entry, taken apart: the fields of the original, and what was said of it.
 *
 * A record of Impel's is the original's fields, byte for byte, and behind them Impel's own, of which
 * the last, `impel_fields`, says how many these are. So names that collide do no harm.
 *
 * Other tools write the common form: `original_id`, `reason` and the like somewhere among the
 * original's fields. What is theirs and what is the entry's cannot be told for sure there: only the
 * names that say so themselves (original_id, original_stream, original_group) and `reason` are taken
 * for theirs, and whatever else the user names. */
#ifndef IMPEL_CLI_DEAD_RECORD_H
#define IMPEL_CLI_DEAD_RECORD_H

#include "cli/options.h"
#include "core/request.h"

struct dead_record {
    struct impel_id id; /* in the dead-letter stream */
    bool foreign;       /* another tool wrote it */
    const struct impel_field *fields;
    size_t field_count; /* of the original; of a foreign record all */
    size_t total_count; /* of the record */
    struct impel_bytes original_id;
    struct impel_bytes original_stream; /* these may be empty in a foreign record */
    struct impel_bytes original_group;
    struct impel_bytes consumer;
    struct impel_bytes reason;
    struct impel_bytes error;
    int64_t deliveries; /* -1 where it is not told */
    int64_t last_active_ms;
    int64_t parked_ms; /* where it is not told: of the record's ID */
};

/* Takes an entry apart; the spans are the entry's. False if it is no such record. */
bool dead_record_parse(const struct entry *entry, struct dead_record *record);

/* The entry that is in a record, without what tools have added: as fields, and as runs for a replay.
 * `strip` names what else another tool has added. All in `arena`; IMPEL_ERR_NOMEM. */
struct dead_entry {
    const struct impel_field *fields;
    size_t field_count;
    const struct replay_run *runs;
    size_t run_count;
};
int dead_record_entry(const struct dead_record *record,
                      const struct text_list *strip,
                      struct arena *arena,
                      struct dead_entry *entry);

#endif /* IMPEL_CLI_DEAD_RECORD_H */
