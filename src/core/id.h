/* id.h -- entry IDs: ordering, text, parsing. The rules are Redis's (streams: "Entry IDs"). */
#ifndef IMPEL_CORE_ID_H
#define IMPEL_CORE_ID_H

#include "base/base.h"

#define ID_MIN ((struct impel_id){0, 0})
#define ID_MAX ((struct impel_id){UINT64_MAX, UINT64_MAX})
enum {
    ID_TEXT_SIZE = 42, /* two 20-digit numbers, a dash, a NUL */
};

int id_compare(struct impel_id a, struct impel_id b);
bool id_equal(struct impel_id a, struct impel_id b);
bool id_is_zero(struct impel_id id);
/* The next ID upward or downward; false (and `*id` untouched) at the end of the range. */
bool id_next(struct impel_id *id);
bool id_previous(struct impel_id *id);
/* Writes "ms-seq"; returns `text`, which holds at least ID_TEXT_SIZE bytes. */
const char *id_format(struct impel_id id, char *text);
/* Strict parsing as Redis does it (the sloppy number forms included): "5-1", or "5" with the seq
 * given by `seq_default`. Returns IMPEL_OK or IMPEL_ERR_INVALID. "-", "+", "$", ">" are not IDs. */
int id_parse(struct impel_bytes text, uint64_t seq_default, struct impel_id *out);

#endif /* IMPEL_CORE_ID_H */
