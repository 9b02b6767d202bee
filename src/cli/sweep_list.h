/* sweep_list.h -- the groups of the store that one `impel sweep` is for now.
 *
 * A group whose stream and name are both given by name (sweep_choices.h) is in the list from the
 * beginning and stays there, be it in the store or not; all others are found (sweep_discovery.h) and
 * leave the list, and its memory, when they are gone. */
#ifndef IMPEL_CLI_SWEEP_LIST_H
#define IMPEL_CLI_SWEEP_LIST_H

#include "cli/group_sweep.h"
#include "cli/sweep_choices.h"

enum {
    SWEEP_GROUPS_MAX = 10000, /* some 60 MiB; a budget of 200 a second is long spent by then */
};

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
