/* help_man.c -- the manual pages, made from the tables of commands and options. */
#include "cli/command.h"
#include "impel/version.h"

#include <string.h>

/* Text in roff: backslashes, dashes, and dots and quotes at the begin of a line are its own. */
static void write_text(struct buf *out, const char *text)
{
    bool line_start = true;

    for (; *text != '\0'; text++) {
        if (text[0] == '\n' && text[1] == '\n') {
            buf_append_text(out, "\n.PP\n");
            line_start = true;
            text++;
            continue;
        }
        if (line_start && (*text == '.' || *text == '\'')) {
            buf_append_text(out, "\\&");
        }
        line_start = *text == '\n';
        if (*text == '\\') {
            buf_append_text(out, "\\e");
        } else if (*text == '-') {
            buf_append_text(out, "\\-");
        } else {
            buf_append(out, text, 1);
        }
    }
}

static void write_option(struct buf *out, const struct option_spec *spec)
{
    buf_append_text(out, ".TP\n\\fB");
    write_text(out, "--");
    write_text(out, spec->name);
    buf_append_text(out, "\\fR");
    if (spec->argument != NULL) {
        buf_append_text(out, spec->kind == OPTION_MAYBE ? "[=" : " ");
        buf_appendf(out, "\\fI%s\\fR%s", spec->argument, spec->kind == OPTION_MAYBE ? "]" : "");
    }
    buf_append_text(out, "\n");
    write_text(out, spec->help);
    if (spec->initial != NULL) {
        buf_append_text(out, " The default is \\fB");
        write_text(out, spec->initial);
        buf_append_text(out, "\\fR.");
    }
    if (spec->env != NULL) {
        buf_appendf(out, " The environment variable \\fB%s\\fR sets it too.", spec->env);
    }
    buf_append_text(out, "\n");
}

static void write_examples(struct buf *out, const char *examples)
{
    buf_append_text(out, ".SH EXAMPLES\n.nf\n");
    write_text(out, examples);
    buf_append_text(out, ".fi\n");
}

static void write_exit_codes(struct buf *out)
{
    buf_append_text(out, ".SH EXIT STATUS\n"
                         ".TP\n0\nDone.\n"
                         ".TP\n1\nFailed; also a worker whose name another one took.\n"
                         ".TP\n2\nMisuse: an unknown option, a bad value, a command that cannot be "
                         "run.\n"
                         ".TP\n3\nNeeds attention (status).\n");
}

static void man_overview(struct buf *out)
{
    buf_appendf(out,
                ".TH IMPEL 1 \"\" \"Impel %s\"\n.SH NAME\nimpel \\- crash recovery for Redis "
                "Streams\n.SH SYNOPSIS\n.B impel\n.I COMMAND\n[OPTION...]\n",
                impel_version());
    buf_append_text(out, ".SH DESCRIPTION\n");
    write_text(out, "Runs work from streams so that a worker may die at any moment and nothing is "
                    "lost: what it held is taken over by others, what keeps failing is parked.");
    buf_append_text(out, "\n.SH COMMANDS\n");
    for (size_t i = 0; i < command_table_size; i++) {
        buf_appendf(out, ".TP\n\\fBimpel\\-%s\\fR(1)\n", command_table[i].name);
        write_text(out, command_table[i].summary);
        buf_append_text(out, "\n");
    }
    buf_append_text(out, ".SH OPTIONS OF ALL COMMANDS\n");
    for (size_t i = 0; i < option_table_size; i++) {
        if (option_table[i].commands == COMMAND_ALL) {
            write_option(out, &option_table[i]);
        }
    }
    write_exit_codes(out);
}

void help_man(struct buf *out, const struct command *command)
{
    if (command == NULL) {
        man_overview(out);
        return;
    }
    buf_appendf(out, ".TH IMPEL\\-%s 1 \"\" \"Impel %s\"\n.SH NAME\nimpel\\-%s \\- ", command->name,
                impel_version(), command->name);
    write_text(out, command->summary);
    buf_appendf(out, "\n.SH SYNOPSIS\n.B impel %s\n[OPTION...] ", command->name);
    write_text(out, command->words);
    buf_append_text(out, "\n.SH DESCRIPTION\n");
    write_text(out, command->text);
    buf_append_text(out, "\n.SH OPTIONS\n");
    for (size_t i = 0; i < option_table_size; i++) {
        if ((option_table[i].commands & command->bit) != 0) {
            write_option(out, &option_table[i]);
        }
    }
    write_exit_codes(out);
    write_examples(out, command->examples);
    buf_append_text(out, ".SH SEE ALSO\n.BR impel (1)\n");
}
