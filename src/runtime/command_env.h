/* command_env.h -- the environment of a command: what this process has, and the entry.
 *
 * IMPEL_ID, IMPEL_STREAM, IMPEL_GROUP, IMPEL_CONSUMER, IMPEL_ATTEMPT, and IMPEL_FIELD_<name> for the
 * fields that a shell can use at all. Left out is what an environment cannot hold (a NUL) or the
 * kernel would refuse (strings of 128 KiB): the standard input has everything. Variables of these
 * names that this process inherited are taken away, and so are passwords. */
#ifndef IMPEL_RUNTIME_COMMAND_ENV_H
#define IMPEL_RUNTIME_COMMAND_ENV_H

#include "runtime/entry_json.h"

struct command_env {
    char **full;  /* out: NULL-terminated, valid until the next build */
    char **small; /* out: the same without fields, should the whole be too large for the kernel */

    struct arena arena; /* of `base` */
    char **base;        /* what all commands get */
    size_t base_count;
    struct buf text; /* the strings of one build */
    size_t *offsets; /* of each string in `text` */
    const struct impel_field **sorted;
    size_t capacity; /* in strings of one build */
};

int command_env_init(struct command_env *env, struct impel_error *err);
void command_env_release(struct command_env *env);
/* Builds `full` and `small` for one entry. False if memory is out. */
bool command_env_build(struct command_env *env,
                       const struct entry *entry,
                       const struct entry_origin *origin);
/* The same for a process that is given many: group and consumer, and the stream unless its data is
 * NULL. */
bool command_env_constant(struct command_env *env, const struct entry_origin *origin);

#endif /* IMPEL_RUNTIME_COMMAND_ENV_H */
