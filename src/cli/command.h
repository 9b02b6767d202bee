/* command.h -- the table of subcommands: one row each, one file each.
 *
 * A command gets its options parsed and returns its exit code, or a negative status with the error
 * filled in: main() then prints the one line and makes 2 of IMPEL_ERR_INVALID and 1 of the rest. */
#ifndef IMPEL_CLI_COMMAND_H
#define IMPEL_CLI_COMMAND_H

#include "cli/options.h"

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_MISUSE = 2,
    EXIT_ATTENTION = 3, /* it works, but somebody should look */
};

struct command {
    const char *name;
    unsigned bit;         /* enum command_bit */
    const char *words;    /* what follows the options: "FIELD=VALUE..."; "" if nothing may */
    const char *summary;  /* half a line */
    const char *text;     /* a few paragraphs, for help and the manual page */
    const char *examples; /* lines of "command   # what it does" */
    int words_max;        /* -1 = any number */
    bool own_words;       /* the first word ends the options */
    bool tail;            /* takes "-- CMD ARG..." */
    int (*run)(struct options *options, struct impel_error *err);
};

extern const struct command command_table[];
extern const size_t command_table_size;

const struct command *command_find(const char *name); /* NULL if there is none */

int command_run(struct options *options, struct impel_error *err);
int command_sweep(struct options *options, struct impel_error *err);
int command_status(struct options *options, struct impel_error *err);
int command_explain(struct options *options, struct impel_error *err);
int command_top(struct options *options, struct impel_error *err);
int command_trim(struct options *options, struct impel_error *err);
int command_dead(struct options *options, struct impel_error *err);
int command_add(struct options *options, struct impel_error *err);
int command_read(struct options *options, struct impel_error *err);
int command_call(struct options *options, struct impel_error *err);
int command_drill(struct options *options, struct impel_error *err);
int command_copy(struct options *options, struct impel_error *err);
int command_check(struct options *options, struct impel_error *err);
int command_compact(struct options *options, struct impel_error *err);
int command_bench(struct options *options, struct impel_error *err);
int command_serve(struct options *options, struct impel_error *err);
int command_version(struct options *options, struct impel_error *err);
int command_help(struct options *options, struct impel_error *err);

/* The error for an option that a command cannot do without. */
int command_needs(const char *option, struct impel_error *err);
/* The one stream, or the one group, that was given. */
int command_one_stream(const struct options *options,
                       struct impel_bytes *stream,
                       struct impel_error *err);

/* ---- help in its forms ---- */

struct buf;
void help_command(struct buf *out, const struct command *command);
void help_overview(struct buf *out);
void help_man(struct buf *out, const struct command *command); /* NULL: impel(1) itself */
void help_completion(struct buf *out);
void help_sample_config(struct buf *out);

#endif /* IMPEL_CLI_COMMAND_H */
