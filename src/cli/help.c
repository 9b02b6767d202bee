/* help.c -- help for the terminal, made from the tables of commands and options. */
#include "cli/command.h"
#include "cli/console.h"

#include <string.h>

enum {
    WIDTH = 92,
    TEXT_INDENT = 6,
    NAME_WIDTH = 10,
};

/* Paragraphs (separated by an empty line), broken at blanks, each line indented. */
static void wrap(struct buf *out, const char *text, size_t indent)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t size = strcspn(text, " \n");
        if (column > 0 && column + 1 + size > WIDTH) {
            buf_append_text(out, "\n");
            column = 0;
        }
        if (column == 0) {
            buf_appendf(out, "%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            buf_append_text(out, " ");
            column++;
        }
        buf_append(out, text, size);
        column += size;
        text += size;
        if (text[0] == '\n') {
            buf_append_text(out, text[1] == '\n' ? "\n\n" : "\n");
            column = 0;
        }
        text += strspn(text, " \n");
    }
    buf_append_text(out, "\n");
}

static void write_option(struct buf *out, const struct option_spec *spec)
{
    bool optional = spec->kind == OPTION_MAYBE;

    buf_appendf(out, "  %s--%s%s", console_style(1, STYLE_BOLD), spec->name,
                console_style(1, STYLE_END));
    if (spec->argument != NULL) {
        buf_appendf(out, optional ? "[=%s]" : " %s", spec->argument);
    }
    if (spec->initial != NULL || spec->env != NULL) {
        buf_append_text(out, "  (");
        if (spec->env != NULL) {
            buf_appendf(out, "$%s%s", spec->env, spec->initial == NULL ? "" : ", else ");
        }
        buf_appendf(out, "%s)", spec->initial == NULL ? "" : spec->initial);
    }
    buf_append_text(out, "\n");
    wrap(out, spec->help, TEXT_INDENT);
}

void help_command(struct buf *out, const struct command *command)
{
    const char *bold = console_style(1, STYLE_BOLD), *end = console_style(1, STYLE_END);

    buf_appendf(out, "%simpel %s%s: %s\n\n  impel %s [OPTION...]%s%s\n\n", bold, command->name, end,
                command->summary, command->name, *command->words == '\0' ? "" : " ",
                command->words);
    wrap(out, command->text, 0);
    buf_appendf(out, "\n%sOptions%s\n", bold, end);
    for (size_t i = 0; i < option_table_size; i++) {
        if ((option_table[i].commands & command->bit) != 0) {
            write_option(out, &option_table[i]);
        }
    }
    buf_appendf(out, "\n%sExamples%s\n", bold, end);
    for (const char *line = command->examples; *line != '\0';) {
        size_t size = strcspn(line, "\n");
        buf_appendf(out, "  %.*s\n", (int)size, line);
        line += size + (line[size] == '\n');
    }
}

void help_overview(struct buf *out)
{
    const char *bold = console_style(1, STYLE_BOLD), *end = console_style(1, STYLE_END);

    buf_appendf(out,
                "%simpel%s: crash recovery for Redis Streams\n\n"
                "  impel COMMAND [OPTION...]\n\n%sCommands%s\n",
                bold, end, bold, end);
    for (size_t i = 0; i < command_table_size; i++) {
        buf_appendf(out, "  %s%-*s%s %s\n", bold, NAME_WIDTH, command_table[i].name, end,
                    command_table[i].summary);
    }
    buf_append_text(out, "\n'impel help COMMAND' shows a command with its options and examples.\n");
}
