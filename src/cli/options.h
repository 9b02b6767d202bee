/* options.h -- one table of options, from which everything that knows options is made: the parser,
 * the config file, --help, the manual pages, the completion and the sample config.
 *
 * A value comes from four places; the later wins: the table's default, the config file, the
 * environment, the command line. Each place is checked, and a bad value is named with where it came
 * from. Options are the same words everywhere; a command takes those whose `commands` has its bit.
 */
#ifndef IMPEL_CLI_OPTIONS_H
#define IMPEL_CLI_OPTIONS_H

#include "base/base.h"
#include "core/id.h"
#include "core/policy.h"

/* A bit each, for option_spec.commands. */
enum command_bit {
    COMMAND_RUN = 1 << 0,
    COMMAND_SWEEP = 1 << 1,
    COMMAND_STATUS = 1 << 2,
    COMMAND_DEAD = 1 << 3,
    COMMAND_ADD = 1 << 4,
    COMMAND_READ = 1 << 5,
    COMMAND_CALL = 1 << 6,
    COMMAND_DRILL = 1 << 7,
    COMMAND_CHECK = 1 << 8,
    COMMAND_BENCH = 1 << 9,
    COMMAND_VERSION = 1 << 10,
    COMMAND_HELP = 1 << 11,
    COMMAND_SERVE = 1 << 12,
    COMMAND_EXPLAIN = 1 << 13,
    COMMAND_TRIM = 1 << 14,
    COMMAND_TOP = 1 << 15,
    COMMAND_COPY = 1 << 16,
    COMMAND_COMPACT = 1 << 17,
    COMMAND_ALL = (1 << 18) - 1,
};

enum option_kind {
    OPTION_FLAG,     /* bool: --strict; true or false in the config file */
    OPTION_TEXT,     /* const char * */
    OPTION_LIST,     /* struct text_list: may be repeated; a list in the config file */
    OPTION_NUMBER,   /* int64_t, min..max */
    OPTION_DURATION, /* int64_t, in ms: "30s" */
    OPTION_MAYBE,    /* struct maybe_duration: --until-idle or --until-idle=DURATION */
    OPTION_RANGE,    /* struct duration_range: "1s..5m" */
    OPTION_CHOICE,   /* int: the index in `choices` */
    OPTION_KEEP,     /* struct keep: "1h" or "100000" */
    OPTION_ID,       /* struct impel_id; without its second half 0, or with `max` the largest */
};

struct text_list {
    const char **texts;
    size_t count;
};

struct maybe_duration {
    bool given;
    int64_t ms; /* 0 without a value */
};

struct duration_range {
    int64_t low_ms, high_ms;
};

/* What a trim leaves although it is finished: by age or by number. */
struct keep {
    int64_t age_ms;
    uint64_t length;
};

struct group_config;
struct parse_input;

/* What the program was told. One member per row of the table, filled in by it. */
struct options {
    const char *store;
    const char *store_given; /* without the password and the patience that options_login() adds */
    int64_t connect_timeout_ms;
    const char *config;
    int log_level;  /* enum impel_level */
    int log_format; /* enum log_format */
    bool help;

    struct text_list streams;
    struct text_list group_names;
    const char *group; /* the first of them, for commands that take one; NULL = none */
    const char *consumer;
    const char *dead_letter;
    int64_t min_idle_ms;
    int64_t dead_after_ms;
    int64_t max_deliveries;
    struct duration_range backoff;

    int64_t concurrency;
    bool pipe;
    int64_t processes;
    int64_t prefetch; /* -1 = by recent handler times */
    int64_t max_waiting;
    int64_t timeout_ms;
    int64_t grace_ms;
    bool strict;
    bool recover_only;
    bool no_create;
    struct maybe_duration until_idle;
    const char *metrics_file;

    bool once;
    int64_t interval_ms;
    int64_t consumer_ttl_ms;
    bool requeue, hand_over, park; /* at most one */
    bool report;
    int64_t budget; /* commands per second; 0 = no limit */

    bool jsonl;
    struct impel_id id;
    int64_t max_length; /* -1 = keep all */

    struct impel_id start, end;
    int64_t count;
    bool reverse;

    bool trim;
    struct keep keep;
    struct text_list ignored_groups;
    int64_t stalled_after_ms;
    bool dry_run;

    bool json;
    const char *reason;
    struct text_list fields; /* NAME=PATTERN */
    int64_t older_than_ms;
    int64_t newer_than_ms;
    int64_t limit;
    const char *to;
    bool in_place;
    bool all_groups;
    bool all;
    const char *rate;
    struct text_list strip;
    const char *audit;

    int64_t workers;
    int64_t entries;
    int64_t kills;
    bool keep_scene;

    int64_t runs;
    int64_t value_size;

    struct text_list listens;
    const char *unix_path;
    const char *password_file;
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
    int64_t max_clients;

    const char *from;
    bool replace;
    bool force;
    bool no_verify;

    bool man;
    bool completion;
    bool sample_config;

    /* What is no option: the words of the command, and what follows "--". */
    struct text_list words;
    struct text_list tail;
    bool has_tail;

    uint64_t given[2];               /* a bit for each row of the table that the command line set */
    const char *password;            /* $IMPEL_PASSWORD; NULL if there is none */
    struct group_config *groups;     /* the config file's, in its order */
    const struct parse_input *input; /* what these were made from; to do it again for a group */
    struct arena arena;              /* all texts live here */
};

struct option_spec {
    const char *name;
    const char *argument; /* "URL", in help; NULL for a flag */
    const char *initial;  /* the default, parsed like any other value; NULL = zero */
    const char *env;      /* the environment variable that sets it, or NULL */
    const char *choices;  /* OPTION_CHOICE: "text|logfmt|json" */
    const char *help;     /* one sentence or a few; the manual page shows it as it is */
    enum option_kind kind;
    unsigned commands; /* enum command_bit */
    int64_t min, max;  /* OPTION_NUMBER; OPTION_DURATION has min only; min 1 wants a text, not "" */
    size_t offset;     /* in struct options */
    bool argv_only;    /* makes no sense in a config file */
};

extern const struct option_spec option_table[];
extern const size_t option_table_size;

const struct option_spec *option_find(struct impel_bytes name);
/* The name nearest to a misspelt one among those a command takes, or NULL if none is near. */
const char *option_nearest(struct impel_bytes name, unsigned commands);

/* One step of a search for the nearest text: returns the candidate if it differs from `text` in
 * fewer letters than `*best`, which becomes that number; else NULL. */
const char *nearest_text(struct impel_bytes text, const char *candidate, size_t *best);

/* Sets one option from text. `where` names the place for people ("'--min-idle'",
 * "'min-idle' in impel.yaml, line 3"). A list grows by one. */
int option_set(struct options *options,
               const struct option_spec *spec,
               const char *text,
               const char *where,
               struct impel_error *err);
/* Empties a list before a stronger place fills it. */
void option_clear(struct options *options, const struct option_spec *spec);

/* Fills in everything for a command from all four places. `argv` holds what follows the command's
 * name. Words that are no options go to `words`, those behind "--" to `tail`; with `own_words` set
 * the first word ends the options (it and all that follows belong to somebody else). */
struct parse_input {
    unsigned command; /* enum command_bit */
    bool own_words;
    size_t group_item; /* 0, or which of the config file's groups is meant, counted from 1 */
    int argc;
    char **argv;
};
int options_parse(struct options *options,
                  const struct parse_input *input,
                  struct impel_error *err);
void options_release(struct options *options);
/* Puts the password, the connect timeout and what TLS needs into options->store, if that is a server's URL that
 * brings none of its own. */
int options_login(struct options *options, struct impel_error *err);

/* True if the command line has the option, so that its value is not just a default. */
bool option_given(const struct options *options, const char *name);

struct policy options_policy(const struct options *options);
/* The dead-letter stream of a stream, in `arena`; false if memory is out. */
bool options_dead_letter(const struct options *options,
                         struct arena *arena,
                         struct impel_bytes stream,
                         struct impel_bytes *out);

/* ---- texts ---- */

/* "1m30s", "500ms", "2d"; "0" needs no unit. IMPEL_ERR_INVALID otherwise. */
int duration_parse(const char *text, int64_t *out_ms);
/* The shortest exact text: 90000 is "1m30s". `text` holds at least DURATION_TEXT_SIZE bytes. */
enum {
    DURATION_TEXT_SIZE = 64,
};
const char *duration_format(int64_t ms, char *text);
const char *duration_brief(int64_t ms, char *text); /* rounded, for people: "3.2s", "2h05m" */
bool text_list_add(struct arena *arena, struct text_list *list, const char *text);

/* ---- config file ---- */

/* Reads a YAML file whose keys are option names. */
int config_read(struct options *options, const char *path, struct impel_error *err);

/* A group of the list `groups:`. The options that are set in it replace those of the whole file
 * for this group; the environment and the command line replace both. */
struct group_setting {
    const struct option_spec *spec;
    const char *text;
    const char *where;
    struct group_setting *next;
};
struct group_config {
    struct group_setting *settings; /* in the order of the file; at least one is of `group` */
    struct group_config *next;
};

#endif /* IMPEL_CLI_OPTIONS_H */
