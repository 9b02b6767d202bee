/* sweep_choices.h -- what one `impel sweep` was told.
 *
 * A choice is the command line's or one item of the config file: names and patterns of streams and
 * groups, and the options that go with them. */
#ifndef IMPEL_CLI_SWEEP_CHOICES_H
#define IMPEL_CLI_SWEEP_CHOICES_H

#include "cli/options.h"

struct sweep_choice {
    struct options *options;
    unsigned action; /* enum claim_flags */
};

struct sweep_choices {
    struct sweep_choice *items; /* in the arena of the command's options */
    size_t count;
    struct options *of_item; /* of the config file's items */
    size_t item_count;
};

/* What the options mean; what contradicts itself is refused. To be released in any case. */
int sweep_choices_make(struct sweep_choices *choices,
                       struct options *options,
                       struct impel_error *err);
void sweep_choices_release(struct sweep_choices *choices);

/* True if the groups of this stream in this choice can only be learned from the store: there is a
 * pattern, or there are several groups, of which each stream need not have all. */
bool sweep_choice_asks(const struct sweep_choice *choice, struct impel_bytes stream);
/* The choice for a group. Of several the one that names more of it counts, stream before group, and
 * among equals the first. NULL if it is none's. */
const struct sweep_choice *sweep_choices_for(const struct sweep_choices *choices,
                                             struct impel_bytes stream,
                                             struct impel_bytes group);
/* True if some group of the stream may be meant and has to be looked for. `given`: by its name. */
bool sweep_choices_want(const struct sweep_choices *choices,
                        struct impel_bytes stream,
                        bool *given);

#endif /* IMPEL_CLI_SWEEP_CHOICES_H */
