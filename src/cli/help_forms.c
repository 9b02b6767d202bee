/* help_forms.c -- what else is made from the tables: the completion for bash, and a config file
 * with every option and its default. */
#include "cli/command.h"

#include <string.h>

static void write_names(struct buf *out, unsigned bit)
{
    for (size_t i = 0; i < option_table_size; i++) {
        if ((option_table[i].commands & bit) != 0) {
            buf_appendf(out, " --%s", option_table[i].name);
        }
    }
}

static void write_choices(struct buf *out)
{
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option_spec *spec = &option_table[i];
        if (spec->kind != OPTION_CHOICE) {
            continue;
        }
        buf_appendf(out, "    --%s)\n        words='", spec->name);
        for (const char *c = spec->choices; *c != '\0'; c++) {
            buf_append(out, *c == '|' ? " " : c, 1);
        }
        buf_append_text(out, "'\n        ;;\n");
    }
}

void help_completion(struct buf *out)
{
    buf_append_text(out, "# bash completion for impel\n"
                         "_impel() {\n"
                         "    local current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
                         "    local previous=\"${COMP_WORDS[COMP_CWORD - 1]}\"\n"
                         "    local words=\n"
                         "    case \"$previous\" in\n");
    write_choices(out);
    buf_append_text(out, "    --config | --metrics-file)\n"
                         "        mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
                         "        return\n"
                         "        ;;\n"
                         "    esac\n"
                         "    if [[ $COMP_CWORD == 1 ]]; then\n"
                         "        words='");
    for (size_t i = 0; i < command_table_size; i++) {
        buf_appendf(out, "%s%s", i == 0 ? "" : " ", command_table[i].name);
    }
    buf_append_text(out,
                    "'\n    elif [[ -z $words ]]; then\n        case \"${COMP_WORDS[1]}\" in\n");
    for (size_t i = 0; i < command_table_size; i++) {
        buf_appendf(out, "        %s) words='", command_table[i].name);
        write_names(out, command_table[i].bit);
        buf_append_text(out, "' ;;\n");
    }
    buf_append_text(out, "        esac\n"
                         "    fi\n"
                         "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                         "}\n"
                         "complete -o default -F _impel impel\n");
}

/* A comment, broken at blanks. */
static void write_comment(struct buf *out, const char *text)
{
    size_t column = 0;

    while (*text != '\0') {
        size_t size = strcspn(text, " ");
        if (column + 1 + size > 90) {
            buf_append_text(out, "\n");
            column = 0;
        }
        buf_append_text(out, column == 0 ? "# " : " ");
        buf_append(out, text, size);
        column += size + 2;
        text += size;
        text += strspn(text, " ");
    }
    buf_append_text(out, "\n");
}

static const char *sample_value(const struct option_spec *spec)
{
    if (spec->initial != NULL) {
        return spec->initial;
    }
    switch (spec->kind) {
    case OPTION_FLAG:
    case OPTION_MAYBE:
        return "false";
    case OPTION_LIST:
        return "[orders]";
    case OPTION_KEEP:
        return "1h";
    default:
        return strcmp(spec->name, "group") == 0 ? "workers" : "name";
    }
}

void help_sample_config(struct buf *out)
{
    buf_append_text(out, "# A config file for impel: impel COMMAND --config THIS-FILE, or "
                         "$IMPEL_CONFIG.\n"
                         "# Every option is here with its default; take away the # before it to "
                         "change it.\n");
    for (size_t i = 0; i < option_table_size; i++) {
        const struct option_spec *spec = &option_table[i];
        if (spec->argv_only) {
            continue;
        }
        buf_append_text(out, "\n");
        write_comment(out, spec->help);
        buf_appendf(out, "#%s: %s\n", spec->name, sample_value(spec));
    }
    buf_append_text(out, "\n# Groups with options of their own. 'sweep' without --group sweeps all "
                         "of them.\n"
                         "#groups:\n"
                         "#  - group: workers\n"
                         "#    stream: [orders, refunds]\n"
                         "#    max-deliveries: 8\n"
                         "#  - group: '*'\n"
                         "#    stream: 'orders:*'\n");
}
