/* id.h -- entry IDs as text, and their order.
 *
 * An ID is two numbers, written `ms-seq`: usually the ms of the clock when the entry was added, and a
 * number that tells entries of one millisecond apart. All functions may be called from any thread. */
#ifndef IMPEL_ID_H
#define IMPEL_ID_H

#include "impel/types.h"
#include "impel/version.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    IMPEL_ID_TEXT_SIZE = 42, /* of the longest ID as text, with its NUL */
};

/* Writes "ms-seq" with a NUL and returns `text`, which has room for IMPEL_ID_TEXT_SIZE bytes. */
IMPEL_API const char *impel_id_format(struct impel_id id, char *text);
/* Reads "ms-seq", or "ms" for ms-0, with nothing around it. IMPEL_ERR_INVALID, and `id` left alone,
 * for anything else: "-", "+" and "$" are not IDs. */
IMPEL_API int impel_id_parse(struct impel_bytes text, struct impel_id *id);
/* Below 0, 0 or above 0, as `a` comes before `b`, is the same, or comes after it. */
IMPEL_API int impel_id_compare(struct impel_id a, struct impel_id b);

#ifdef __cplusplus
}
#endif

#endif /* IMPEL_ID_H */
