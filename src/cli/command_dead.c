/* command_dead.c -- impel dead: which of its subcommands, and what each may be told. */
#include "cli/command.h"
#include "cli/console.h"
#include "cli/dead.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOVES = 1,   /* takes what says how records leave */
    REPLAYS = 2, /* and where to */
    WANTS_IDS = 4,
    ORDERED = 8, /* always oldest first */
};

struct subcommand {
    const char *name;
    unsigned flags;
    int (*run)(struct dead *dead, struct impel_error *err);
};

static const struct subcommand subcommands[] = {
    {"list", 0, dead_list},
    {"show", WANTS_IDS, dead_show},
    {"stats", ORDERED, dead_stats},
    {"replay", MOVES | REPLAYS | ORDERED, dead_replay},
    {"drop", MOVES | ORDERED, dead_drop},
};

static const struct subcommand *find(const struct options *options, struct impel_error *err)
{
    char word[64];

    if (options->words.count == 0) {
        error_set(err, IMPEL_ERR_INVALID,
                  "what to do? one of: list, show, stats, replay, drop ('impel help dead')");
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_SIZE(subcommands); i++) {
        if (strcmp(subcommands[i].name, options->words.texts[0]) == 0) {
            return &subcommands[i];
        }
    }
    error_set(err, IMPEL_ERR_INVALID,
              "'impel dead' knows list, show, stats, replay, drop, not '%s'",
              bytes_quote(bytes_of(options->words.texts[0]), word, sizeof(word)));
    return NULL;
}

/* Options that only some of them take, and options that exclude each other. */
static int
check(const struct options *options, const struct subcommand *subcommand, struct impel_error *err)
{
    static const struct {
        const char *name;
        unsigned flag;
        const char *whose;
    } owned[] = {
        {"dry-run", MOVES, "replay and drop"}, {"rate", MOVES, "replay and drop"},
        {"audit", MOVES, "replay and drop"},   {"to", REPLAYS, "replay"},
        {"in-place", REPLAYS, "replay"},       {"all-groups", REPLAYS, "replay"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(owned); i++) {
        if ((subcommand->flags & owned[i].flag) == 0 && option_given(options, owned[i].name)) {
            return error_set(err, IMPEL_ERR_INVALID, "'--%s' belongs to 'impel dead' %s, not to %s",
                             owned[i].name, owned[i].whose, subcommand->name);
        }
    }
    if (options->all && strcmp(subcommand->name, "drop") != 0) {
        return error_set(err, IMPEL_ERR_INVALID, "'--all' belongs to 'impel dead' drop, not to %s",
                         subcommand->name);
    }
    if (options->reverse && (subcommand->flags & ORDERED) != 0) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "'impel dead' %s goes from the oldest on: no "
                         "--reverse",
                         subcommand->name);
    }
    if (options->in_place + options->all_groups + (options->to != NULL) > 1) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "only one of --in-place, --to and --all-groups can be meant");
    }
    if ((subcommand->flags & WANTS_IDS) != 0 && options->words.count == 1) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "which records? IDs are needed ('impel dead list' shows them)");
    }
    return IMPEL_OK;
}

/* ---- which records ---- */

static int compare_ids(const void *a, const void *b)
{
    return id_compare(*(const struct impel_id *)a, *(const struct impel_id *)b);
}

static int read_ids(struct dead *dead, struct impel_error *err)
{
    const struct text_list *words = &dead->options->words;
    char word[64];
    size_t count = 0;

    dead->ids = arena_calloc(&dead->options->arena, words->count, sizeof(*dead->ids));
    if (dead->ids == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 1; i < words->count; i++) {
        if (id_parse(bytes_of(words->texts[i]), 0, &dead->ids[i - 1]) < 0) {
            return error_set(err, IMPEL_ERR_INVALID,
                             "'%s' is no ID of a record: two numbers with a dash, like "
                             "1700000000000-0",
                             bytes_quote(bytes_of(words->texts[i]), word, sizeof(word)));
        }
    }
    qsort(dead->ids, words->count - 1, sizeof(*dead->ids), compare_ids);
    for (size_t i = 0; i + 1 < words->count; i++) {
        if (count == 0 || !id_equal(dead->ids[count - 1], dead->ids[i])) {
            dead->ids[count++] = dead->ids[i];
        }
    }
    dead->id_count = count;
    return IMPEL_OK;
}

static int read_matches(struct dead *dead, struct impel_error *err)
{
    const struct text_list *fields = &dead->options->fields;
    char word[100];

    dead->matches = arena_calloc(&dead->options->arena, fields->count + 1, sizeof(*dead->matches));
    if (dead->matches == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < fields->count; i++) {
        const char *equals = strchr(fields->texts[i], '=');
        if (equals == NULL) {
            return error_set(err, IMPEL_ERR_INVALID,
                             "bad value \"%s\" for '--field': it is NAME=PATTERN, like city=Par*",
                             bytes_quote(bytes_of(fields->texts[i]), word, sizeof(word)));
        }
        dead->matches[i] = (struct dead_match){
            .name = {fields->texts[i], (size_t)(equals - fields->texts[i])},
            .pattern = bytes_of(equals + 1),
        };
    }
    dead->match_count = fields->count;
    return IMPEL_OK;
}

/* ---- where ---- */

static int default_audit(struct dead *dead, struct impel_error *err)
{
    struct buf name;

    buf_init(&name, SIZE_MAX / 4);
    buf_append_bytes(&name, dead->dead_letter);
    buf_append_text(&name, ":audit");
    int rc = buf_status(&name);
    if (rc < 0 || !arena_copy(&dead->options->arena, buf_bytes(&name), &dead->audit)) {
        rc = error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    buf_release(&name);
    return rc;
}

/* Records that were added to the dead-letter stream would be parked; the audit stream is cut to its
 * last lines, and lines in another stream would be work to do, or records. */
static int check_places(const struct dead *dead, struct impel_error *err)
{
    const struct options *options = dead->options;
    struct impel_bytes to = bytes_of(options->to != NULL ? options->to : "");

    if (options->to != NULL && bytes_equal(to, dead->dead_letter)) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--to needs another stream than the dead-letter stream");
    }
    if (dead->audit.size > 0 &&
        (bytes_equal(dead->audit, dead->stream) || bytes_equal(dead->audit, dead->dead_letter) ||
         bytes_equal(dead->audit, to))) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "--audit needs a stream of its own, without entries or records");
    }
    return IMPEL_OK;
}

static int read_places(struct dead *dead, struct impel_error *err)
{
    struct options *options = dead->options;
    int rc = IMPEL_OK;

    if (options->dead_letter == NULL || options->streams.count > 0) {
        rc = command_one_stream(options, &dead->stream, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (!options_dead_letter(options, &options->arena, dead->stream, &dead->dead_letter)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    if (options->audit != NULL) {
        dead->audit = bytes_of(options->audit);
    } else {
        rc = default_audit(dead, err);
    }
    return rc < 0 ? rc : check_places(dead, err);
}

int command_dead(struct options *options, struct impel_error *err)
{
    struct dead dead = {.options = options};
    const struct subcommand *subcommand = find(options, err);
    int rc = subcommand == NULL ? IMPEL_ERR_INVALID : check(options, subcommand, err);

    rc = rc < 0 ? rc : read_ids(&dead, err);
    rc = rc < 0 ? rc : read_matches(&dead, err);
    rc = rc < 0 ? rc : read_places(&dead, err);
    if (rc < 0) {
        return rc;
    }
    dead.limit = (uint64_t)(options->limit > 0 ? options->limit : options->count);
    if (subcommand->run == dead_drop && !options->all && !options->dry_run &&
        !dead_selects(&dead)) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "which records are to be dropped? Name IDs, filters, or --all");
    }
    rc = session_open_existing(options, &dead.store, err);
    rc = rc < 0 ? rc : dead_look(&dead, err);
    if (rc >= 0 && !dead.exists) {
        /* A stream of which nothing was parked yet has no dead-letter stream. */
        rc = session_check_stream(dead.store, dead.stream.size > 0 ? dead.stream : dead.dead_letter,
                                  err);
    }
    rc = rc < 0 ? rc : subcommand->run(&dead, err);
    store_close(dead.store);
    return rc;
}
