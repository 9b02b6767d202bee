/* sweep_list.h -- which groups one `impel sweep` is for: what it was told (choices), and the groups
 * of the store that this means now (the list).
 *
 * A choice is the command line's or one item of the config file: names and patterns of streams and
 * groups, and the options that go with them. A group whose stream and name are both given by name is
 * in the list from the beginning and stays there, be it in the store or not; all others are found
 * (sweep_discovery.h) and leave the list, and its memory, when they are gone. */
#ifndef IMPEL_CLI_SWEEP_LIST_H
#define IMPEL_CLI_SWEEP_LIST_H

#include "cli/group_sweep.h"
#include "cli/stream_names.h"

enum {
    SWEEP_GROUPS_MAX = 10000, /* some 60 MiB; a budget of 200 a second is long spent by then */
};

struct sweep_choice {
    struct options *options;
    unsigned action; /* enum claim_flags */
};

struct sweep_choices {
    struct sweep_choice *items;
    size_t count;
};

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

/* One group of the list. */
struct swept {
    struct group_sweep sweep;
    const struct sweep_choice *choice;
    struct arena names;
    uint64_t round;    /* of the discovery that saw it last */
    bool found;        /* else it was given by name, and stays */
    bool stream_given; /* by name */
    bool gone;         /* the last whole round did not see it: it is to be dropped */
    bool over;         /* its one pass is over */
    bool trim_due;     /* its stream is to be trimmed, for which its first group stands */
};

struct sweep_list {
    struct logging *logging;
    struct swept **items; /* by stream, then by group */
    size_t count, capacity;
    bool full_told;
};

/* The group of the list, or NULL. */
struct swept *
sweep_list_find(const struct sweep_list *list, struct impel_bytes stream, struct impel_bytes group);
/* Adds a group that is not in it, under a choice. IMPEL_ERR_LIMIT: there are too many, which is told
 * once. */
int sweep_list_add(struct sweep_list *list,
                   const struct sweep_choice *choice,
                   struct impel_bytes stream,
                   struct impel_bytes group,
                   struct swept **out,
                   struct impel_error *err);
/* Adds what the choices name in full. */
int sweep_list_add_given(struct sweep_list *list,
                         const struct sweep_choices *choices,
                         struct impel_error *err);
/* Marks what was found before and was not seen in this round. */
void sweep_list_mark_unseen(struct sweep_list *list, uint64_t round);
/* Drops what is marked as gone and was asked about in vain; one event for each stream, or for each group of a stream that has
 * others. `forget` is told of streams of which no group is left. */
void sweep_list_drop_gone(struct sweep_list *list,
                          void (*forget)(void *user, struct impel_bytes stream),
                          void *user);
/* Writes the counters of all. */
int sweep_list_write_metrics(const struct sweep_list *list,
                             const char *path,
                             struct impel_error *err);
void sweep_list_release(struct sweep_list *list);

#endif /* IMPEL_CLI_SWEEP_LIST_H */
