/* sweep_choices.c -- what the options say, and which choice a group belongs to. */
#include "cli/sweep_choices.h"

#include "cli/command.h"
#include "cli/stream_names.h"

/* ---- made from the options ---- */

static int action_of(const struct options *options, unsigned *action, struct impel_error *err)
{
    if (options->requeue + options->hand_over + options->park > 1) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "one entry has one way: give one of --requeue, --hand-over and --park");
    }
    if (options->report &&
        (options->dry_run || options->requeue || options->hand_over || options->park)) {
        return error_set(
            err, IMPEL_ERR_INVALID,
            "--report tells what each way would do: give it alone, or --dry-run with the "
            "one way");
    }
    *action = options->requeue     ? CLAIM_REQUEUE | (options->all_groups ? CLAIM_ALL_GROUPS : 0U)
              : options->hand_over ? (unsigned)CLAIM_HAND_OVER
              : options->park      ? (unsigned)CLAIM_PARK
              : options->report && options->all_groups ? (unsigned)CLAIM_ALL_GROUPS
                                                       : 0U;
    return IMPEL_OK;
}

static int
add_choice(struct sweep_choices *choices, struct options *options, struct impel_error *err)
{
    struct sweep_choice *choice = &choices->items[choices->count];

    if (options->streams.count == 0) {
        return command_needs("stream", err);
    }
    if (options->dead_letter != NULL &&
        names_match(&options->streams, bytes_of(options->dead_letter)) == NAME_GIVEN) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the dead-letter stream must be another than the stream itself");
    }
    choice->options = options;
    int rc = action_of(options, &choice->action, err);
    choices->count += rc >= 0;
    return rc;
}

/* The command line is one choice; without --group each item of the config file is one, with its own
 * options. */
static int make_choices(struct sweep_choices *choices,
                        struct options *options,
                        size_t item_count,
                        struct impel_error *err)
{
    choices->items = arena_calloc(&options->arena, item_count + 1, sizeof(*choices->items));
    choices->of_item = arena_calloc(&options->arena, item_count + 1, sizeof(*choices->of_item));
    if (choices->items == NULL || choices->of_item == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    choices->item_count = item_count;
    if (options->group != NULL) {
        return add_choice(choices, options, err);
    }
    for (size_t i = 0; i < item_count; i++) {
        struct parse_input input = *options->input;
        input.group_item = i + 1;
        int rc = options_parse(&choices->of_item[i], &input, err);
        rc = rc < 0 ? rc : add_choice(choices, &choices->of_item[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    return IMPEL_OK;
}

/* An option that does nothing without another one. In a config file it may stand for another command. */
static int needs_other(const struct options *options,
                       const char *name,
                       const char *other,
                       struct impel_error *err)
{
    return !option_given(options, name)
               ? IMPEL_OK
               : error_set(err, IMPEL_ERR_INVALID, "--%s does nothing without --%s", name, other);
}

static int check_company(const struct options *options,
                         const struct sweep_choices *choices,
                         struct impel_error *err)
{
    static const char *const trims[] = {"keep", "ignore-group", "stalled-after"};
    bool requeues = options->report;
    int rc = IMPEL_OK;

    for (size_t i = 0; i < choices->count; i++) {
        requeues |= choices->items[i].options->requeue;
    }
    rc = requeues ? rc : needs_other(options, "all-groups", "requeue", err);
    for (size_t i = 0; rc >= 0 && !options->trim && i < ARRAY_SIZE(trims); i++) {
        rc = needs_other(options, trims[i], "trim", err);
    }
    if (rc >= 0 && options->report && option_given(options, "trim")) {
        rc = error_set(err, IMPEL_ERR_INVALID,
                       "--report does not tell what --trim would remove: --dry-run does");
    }
    return rc;
}

static size_t count_items(const struct options *options)
{
    size_t count = 0;
    for (const struct group_config *group = options->groups; group != NULL; group = group->next) {
        count++;
    }
    return count;
}

int sweep_choices_make(struct sweep_choices *choices,
                       struct options *options,
                       struct impel_error *err)
{
    size_t item_count = count_items(options);

    *choices = (struct sweep_choices){0};
    if (options->group == NULL && item_count == 0) {
        return command_needs("group", err);
    }
    int rc = make_choices(choices, options, item_count, err);
    return rc < 0 ? rc : check_company(options, choices, err);
}

void sweep_choices_release(struct sweep_choices *choices)
{
    for (size_t i = 0; i < choices->item_count; i++) {
        options_release(&choices->of_item[i]);
    }
    *choices = (struct sweep_choices){0};
}

/* ---- what they mean ---- */

static bool is_set_aside(const struct sweep_choices *choices, struct impel_bytes stream)
{
    for (size_t i = 0; i < choices->count; i++) {
        if (stream_is_set_aside(stream, choices->items[i].options->dead_letter)) {
            return true;
        }
    }
    return false;
}

/* How the choice means the stream; what is set aside only by its name. */
static enum name_match match_stream(const struct sweep_choices *choices,
                                    const struct sweep_choice *choice,
                                    struct impel_bytes stream)
{
    enum name_match match = names_match(&choice->options->streams, stream);

    return match == NAME_PATTERN && is_set_aside(choices, stream) ? NAME_OTHER : match;
}

bool sweep_choice_asks(const struct sweep_choice *choice, struct impel_bytes stream)
{
    const struct text_list *groups = &choice->options->group_names;

    return groups->count > 1 || names_have_pattern(groups) ||
           names_match(&choice->options->streams, stream) != NAME_GIVEN;
}

const struct sweep_choice *sweep_choices_for(const struct sweep_choices *choices,
                                             struct impel_bytes stream,
                                             struct impel_bytes group)
{
    const struct sweep_choice *best = NULL;
    int best_rank = -1;

    for (size_t i = 0; i < choices->count; i++) {
        const struct sweep_choice *choice = &choices->items[i];
        enum name_match by_stream = match_stream(choices, choice, stream);
        enum name_match by_group = names_match(&choice->options->group_names, group);
        int rank = 2 * (by_stream == NAME_GIVEN) + (by_group == NAME_GIVEN);
        if (by_stream != NAME_OTHER && by_group != NAME_OTHER && rank > best_rank) {
            best = choice;
            best_rank = rank;
        }
    }
    return best;
}

bool sweep_choices_want(const struct sweep_choices *choices, struct impel_bytes stream, bool *given)
{
    bool wanted = false;

    *given = false;
    for (size_t i = 0; i < choices->count; i++) {
        const struct sweep_choice *choice = &choices->items[i];
        enum name_match match = match_stream(choices, choice, stream);
        if (match != NAME_OTHER && sweep_choice_asks(choice, stream)) {
            wanted = true;
            *given |= match == NAME_GIVEN;
        }
    }
    return wanted;
}
