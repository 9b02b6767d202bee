/* glob.h -- names and texts that are given as a pattern. */
#ifndef IMPEL_BASE_GLOB_H
#define IMPEL_BASE_GLOB_H

#include "base/base.h"

/* As KEYS has it: `*` any run, `?` any byte, `[a-c]` and `[^a-c]` one of a set, `\` takes the next
 * byte as it is. */
bool glob_matches(struct impel_bytes pattern, struct impel_bytes text);
/* The same with `*` and `?` alone, for texts in which the other signs are common. */
bool glob_matches_text(struct impel_bytes pattern, struct impel_bytes text);
/* True if a name is meant as a pattern: there is one of `*?[` in it, be it behind a `\`. */
bool glob_is_pattern(struct impel_bytes text);

#endif /* IMPEL_BASE_GLOB_H */
