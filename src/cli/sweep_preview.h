/* sweep_preview.h -- what a sweep would do to one group, without doing any of it: no beat, no stamp,
 * no claim. Where nobody's beat was taken lately, workers are "unknown", and so is what they hold. */
#ifndef IMPEL_CLI_SWEEP_PREVIEW_H
#define IMPEL_CLI_SWEEP_PREVIEW_H

#include "cli/session.h"
#include "cli/sweep_pace.h"

struct sweep_preview {
    struct store *store;
    struct sweep_pace *pace;
    struct policy policy;
    int64_t consumer_ttl_ms; /* < 0: consumers stay */
    unsigned action;         /* enum claim_flags: the way of a dry run */
    bool list;               /* a dry run's list, entry by entry; else the report, owner by owner,
                                of what each way would do */
    bool json;
};

/* Prints what stands in one group to standard output. */
int sweep_preview_print(const struct sweep_preview *preview,
                        struct impel_bytes stream,
                        struct impel_bytes group,
                        struct impel_error *err);

#endif /* IMPEL_CLI_SWEEP_PREVIEW_H */
