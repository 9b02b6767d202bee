/* options_parse.c -- the four places an option can come from, the weakest first.
 *
 * The command line is split first, because it may name the config file and the group whose part of
 * the file counts; its values are set last. */
#include "cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHERE_SIZE = 96,
};

/* One option of the command line, not set yet. */
struct given {
    const struct option_spec *spec;
    const char *text;
};

struct split {
    struct given *given;
    size_t given_count;
};

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

static int unknown_option(struct impel_bytes name, unsigned command, struct impel_error *err)
{
    const char *nearest = option_nearest(name, command);
    const struct option_spec *elsewhere = option_find(name);
    char quoted[64];

    bytes_quote(name, quoted, sizeof(quoted));
    if (elsewhere != NULL) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the option '--%s' does not belong to this command", quoted);
    }
    if (nearest != NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "unknown option '--%s'; did you mean '--%s'?",
                         quoted, nearest);
    }
    return error_set(err, IMPEL_ERR_INVALID, "unknown option '--%s'", quoted);
}

static bool takes_value(const struct option_spec *spec)
{
    return spec->kind != OPTION_FLAG && spec->kind != OPTION_MAYBE;
}

/* Reads the option at argv[*at] and moves past it and its value. */
static int
split_option(const struct parse_input *input, int *at, struct given *given, struct impel_error *err)
{
    const char *word = input->argv[*at] + 2;
    size_t name_size = strcspn(word, "=");
    const struct option_spec *spec = option_find((struct impel_bytes){word, name_size});

    if (strcmp(input->argv[*at], "-h") == 0) {
        spec = option_find(bytes_of("help"));
        *given = (struct given){spec, "true"};
        (*at)++;
        return IMPEL_OK;
    }
    if (spec == NULL || (spec->commands & input->command) == 0) {
        return unknown_option((struct impel_bytes){word, name_size}, input->command, err);
    }
    (*at)++;
    if (word[name_size] == '=') {
        *given = (struct given){spec, word + name_size + 1};
        return IMPEL_OK;
    }
    if (!takes_value(spec)) {
        *given = (struct given){spec, "true"};
        return IMPEL_OK;
    }
    if (*at >= input->argc) {
        return error_set(err, IMPEL_ERR_INVALID, "the option '--%s' needs a value: --%s %s",
                         spec->name, spec->name, spec->argument);
    }
    *given = (struct given){spec, input->argv[(*at)++]};
    return IMPEL_OK;
}

static bool is_option(const char *word)
{
    return (word[0] == '-' && word[1] == '-') || strcmp(word, "-h") == 0;
}

static int split_argv(struct options *options,
                      const struct parse_input *input,
                      struct split *split,
                      struct impel_error *err)
{
    bool options_over = false;
    int at = 0;

    split->given = arena_calloc(&options->arena, (size_t)input->argc + 1, sizeof(*split->given));
    if (split->given == NULL) {
        return no_memory(err);
    }
    while (at < input->argc) {
        char *word = input->argv[at];
        if (!options_over && strcmp(word, "--") == 0) {
            options->has_tail = true;
            at++;
            break;
        }
        if (!options_over && is_option(word)) {
            int rc = split_option(input, &at, &split->given[split->given_count], err);
            if (rc < 0) {
                return rc;
            }
            split->given_count++;
            continue;
        }
        options_over = input->own_words;
        if (!text_list_add(&options->arena, &options->words, word)) {
            return no_memory(err);
        }
        at++;
    }
    for (; at < input->argc; at++) {
        if (!text_list_add(&options->arena, &options->tail, input->argv[at])) {
            return no_memory(err);
        }
    }
    return IMPEL_OK;
}

/* ---- the places ---- */

static int set_defaults(struct options *options, struct impel_error *err)
{
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option_spec *spec = &option_table[i];
        if (spec->initial != NULL) {
            int rc = option_set(options, spec, spec->initial, spec->name, err);
            if (rc < 0) {
                return rc;
            }
        }
    }
    return IMPEL_OK;
}

static int set_environment(struct options *options, struct impel_error *err)
{
    char where[WHERE_SIZE];

    for (size_t i = 0; i < option_table_size; i++) {
        const struct option_spec *spec = &option_table[i];
        const char *text = spec->env == NULL ? NULL : getenv(spec->env);
        if (text == NULL || *text == '\0') {
            continue;
        }
        snprintf(where, sizeof(where), "the environment variable %s", spec->env);
        int rc = option_set(options, spec, text, where, err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

/* Sets the options of the command line; with `only`, that one alone. */
static int set_given(struct options *options,
                     const struct split *split,
                     const struct option_spec *only,
                     struct impel_error *err)
{
    uint64_t *bits = options->given;
    char where[WHERE_SIZE];

    ASSERT(option_table_size <= sizeof(options->given) * 8);
    memset(bits, 0, sizeof(options->given));
    for (size_t i = 0; i < split->given_count; i++) {
        const struct option_spec *spec = split->given[i].spec;
        if (only != NULL && spec != only) {
            continue;
        }
        size_t row = (size_t)(spec - option_table);
        if ((bits[row / 64] & UINT64_C(1) << row % 64) == 0) {
            option_clear(options, spec);
            bits[row / 64] |= UINT64_C(1) << row % 64;
        }
        snprintf(where, sizeof(where), "'--%s'", spec->name);
        int rc = option_set(options, spec, split->given[i].text, where, err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

/* The one group, for commands that take one. */
static void note_group(struct options *options)
{
    const struct text_list *names = &options->group_names;
    options->group = names->count == 0 ? NULL : names->texts[0];
}

/* True if the group stands by this name in the item. */
static bool has_name(const struct group_config *group, const char *name)
{
    for (const struct group_setting *s = group->settings; s != NULL; s = s->next) {
        if (strcmp(s->spec->name, "group") == 0 && strcmp(s->text, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The item of the config file that is meant; where several groups are given none is. */
static const struct group_config *find_item(const struct options *options, size_t number)
{
    size_t at = 1;

    for (const struct group_config *group = options->groups; group != NULL; group = group->next) {
        if (number > 0 ? at++ == number
                       : options->group_names.count == 1 && has_name(group, options->group)) {
            return group;
        }
    }
    return NULL;
}

/* The config file's part for the group that this command works for. */
static int set_group(struct options *options, size_t number, struct impel_error *err)
{
    const struct group_config *group = find_item(options, number);
    const struct option_spec *previous = NULL;

    if (group == NULL) {
        return IMPEL_OK;
    }
    for (const struct group_setting *s = group->settings; s != NULL; s = s->next) {
        bool is_name = strcmp(s->spec->name, "group") == 0;
        if (is_name && number == 0) {
            continue; /* the item may name others, too */
        }
        if (s->spec != previous) {
            option_clear(options, s->spec);
        }
        previous = s->spec;
        int rc = option_set(options, s->spec, s->text, s->where, err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

/* Only these take several groups. */
static int check_groups(const struct options *options, unsigned command, struct impel_error *err)
{
    const unsigned several = COMMAND_SWEEP | COMMAND_STATUS | COMMAND_TOP;
    const struct option_spec *spec = option_find(bytes_of("group"));

    if (options->group_names.count > 1 && (spec->commands & command & ~several) != 0) {
        return error_set(err, IMPEL_ERR_INVALID, "--group may be given only once here");
    }
    return IMPEL_OK;
}

/* Whoever asks for help has perhaps just set the environment wrongly: it is not looked at then. */
static bool heeds_environment(const struct parse_input *input, const struct split *split)
{
    bool heeds = (input->command & (COMMAND_HELP | COMMAND_VERSION)) == 0;

    for (size_t i = 0; i < split->given_count; i++) {
        heeds = heeds && strcmp(split->given[i].spec->name, "help") != 0;
    }
    return heeds;
}

int options_parse(struct options *options, const struct parse_input *input, struct impel_error *err)
{
    const struct option_spec *config = option_find(bytes_of("config"));
    const struct option_spec *group = option_find(bytes_of("group"));
    struct split split = {0};
    bool environment;
    int rc;

    *options = (struct options){0};
    rc = split_argv(options, input, &split, err);
    environment = heeds_environment(input, &split);
    if (rc >= 0) {
        rc = set_defaults(options, err);
    }
    if (rc >= 0 && environment) {
        rc = set_environment(options, err);
    }
    if (rc >= 0) {
        rc = set_given(options, &split, config, err);
    }
    if (rc >= 0 && options->config != NULL) {
        rc = config_read(options, options->config, err);
    }
    if (rc >= 0) {
        rc = set_given(options, &split, group, err);
    }
    note_group(options);
    if (rc >= 0) {
        rc = set_group(options, input->group_item, err);
    }
    if (rc >= 0 && environment) {
        rc = set_environment(options, err);
    }
    if (rc >= 0) {
        rc = set_given(options, &split, NULL, err);
    }
    note_group(options);
    return rc < 0 ? rc : check_groups(options, input->command, err);
}

bool option_given(const struct options *options, const char *name)
{
    size_t row = (size_t)(option_find(bytes_of(name)) - option_table);
    return (options->given[row / 64] & UINT64_C(1) << row % 64) != 0;
}

void options_release(struct options *options)
{
    arena_release(&options->arena);
}
