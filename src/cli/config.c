/* config.c -- the config file: YAML, whose keys are the names of options.
 *
 *     store: lmdb:/var/lib/orders
 *     max-deliveries: 8
 *     groups:
 *       - group: workers
 *         stream: [orders, refunds]
 *         backoff: 2s..10m
 *
 * Read event by event, so that each complaint can name its line. A key may be any option, also one
 * that another command takes: one file serves them all. */
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
    DEPTH_MAX = 8,
};

/* Reading the file: where we are, and what is being filled in. */
struct reader {
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted before the next is read */
    bool has_event;
    struct options *options;
    const char *path;
    struct group_config *group;         /* the list item that is being read, or NULL */
    struct group_setting **setting_end; /* its last link */
    struct group_config **group_end;
};

static size_t line_of(const struct reader *reader)
{
    return reader->event.start_mark.line + 1;
}

static int next_event(struct reader *reader, struct impel_error *err)
{
    if (reader->has_event) {
        yaml_event_delete(&reader->event);
        reader->has_event = false;
    }
    if (!yaml_parser_parse(&reader->parser, &reader->event)) {
        return error_set(err, IMPEL_ERR_INVALID, "%s, line %zu: not YAML: %s", reader->path,
                         reader->parser.problem_mark.line + 1,
                         reader->parser.problem == NULL ? "unreadable" : reader->parser.problem);
    }
    reader->has_event = true;
    return IMPEL_OK;
}

static int wrong(const struct reader *reader, const char *what, struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_INVALID, "%s, line %zu: %s", reader->path, line_of(reader),
                     what);
}

static const char *keep(struct reader *reader, const char *text)
{
    struct impel_bytes copy;
    return arena_copy(&reader->options->arena, (struct impel_bytes){text, strlen(text) + 1}, &copy)
               ? copy.data
               : NULL;
}

/* The current event is a scalar: sets the option to it, or notes it for its group. */
static int
take_scalar(struct reader *reader, const struct option_spec *spec, struct impel_error *err)
{
    const char *text = (const char *)reader->event.data.scalar.value;
    struct group_setting *setting;
    char where[192];
    int rc;

    if (strlen(text) != reader->event.data.scalar.length) {
        return wrong(reader, "a value with a NUL in it", err);
    }
    snprintf(where, sizeof(where), "'%s' in %s, line %zu", spec->name, reader->path,
             line_of(reader));
    if (reader->group == NULL) {
        return option_set(reader->options, spec, text, where, err);
    }
    /* Checked now, on options that nobody uses, so that a wrong value for any group is found. */
    struct options scratch = {0};
    rc = option_set(&scratch, spec, text, where, err);
    options_release(&scratch);
    if (rc < 0) {
        return rc;
    }
    setting = arena_calloc(&reader->options->arena, 1, sizeof(*setting));
    if (setting == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    *setting = (struct group_setting){spec, keep(reader, text), keep(reader, where), NULL};
    if (setting->text == NULL || setting->where == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    *reader->setting_end = setting;
    reader->setting_end = &setting->next;
    return IMPEL_OK;
}

static int
take_value(struct reader *reader, const struct option_spec *spec, struct impel_error *err)
{
    if (reader->event.type == YAML_SCALAR_EVENT) {
        return take_scalar(reader, spec, err);
    }
    if (reader->event.type != YAML_SEQUENCE_START_EVENT || spec->kind != OPTION_LIST) {
        char what[96];
        snprintf(what, sizeof(what), "'%s' takes %s", spec->name,
                 spec->kind == OPTION_LIST ? "a value or a list of values" : "one value");
        return wrong(reader, what, err);
    }
    for (;;) {
        int rc = next_event(reader, err);
        if (rc < 0 || reader->event.type == YAML_SEQUENCE_END_EVENT) {
            return rc;
        }
        if (reader->event.type != YAML_SCALAR_EVENT) {
            return wrong(reader, "a list of plain values is needed", err);
        }
        rc = take_scalar(reader, spec, err);
        if (rc < 0) {
            return rc;
        }
    }
}

static int read_groups(struct reader *reader, struct impel_error *err);

static int take_key(struct reader *reader, struct impel_error *err)
{
    struct impel_bytes name = {reader->event.data.scalar.value, reader->event.data.scalar.length};
    const struct option_spec *spec = option_find(name);
    char what[160], quoted[64];

    bytes_quote(name, quoted, sizeof(quoted));
    if (reader->group == NULL && bytes_equal(name, bytes_of("groups"))) {
        int rc = next_event(reader, err);
        return rc < 0 ? rc : read_groups(reader, err);
    }
    if (spec == NULL) {
        const char *nearest = option_nearest(name, COMMAND_ALL);
        snprintf(what, sizeof(what), "unknown key '%s'%s%s%s", quoted,
                 nearest == NULL ? "" : "; did you mean '", nearest == NULL ? "" : nearest,
                 nearest == NULL ? "" : "'?");
        return wrong(reader, what, err);
    }
    if (spec->argv_only) {
        snprintf(what, sizeof(what), "'%s' belongs on the command line, not in a config file",
                 quoted);
        return wrong(reader, what, err);
    }
    int rc = next_event(reader, err);
    return rc < 0 ? rc : take_value(reader, spec, err);
}

/* The current event starts a mapping; reads to its end. */
static int read_mapping(struct reader *reader, struct impel_error *err)
{
    for (;;) {
        int rc = next_event(reader, err);
        if (rc < 0 || reader->event.type == YAML_MAPPING_END_EVENT) {
            return rc;
        }
        if (reader->event.type != YAML_SCALAR_EVENT) {
            return wrong(reader, "the name of an option is needed here", err);
        }
        rc = take_key(reader, err);
        if (rc < 0) {
            return rc;
        }
    }
}

/* True if the item says which groups it is about. */
static bool names_groups(const struct group_config *group)
{
    for (const struct group_setting *s = group->settings; s != NULL; s = s->next) {
        if (strcmp(s->spec->name, "group") == 0) {
            return true;
        }
    }
    return false;
}

static int read_group(struct reader *reader, struct impel_error *err)
{
    struct group_config *group = arena_calloc(&reader->options->arena, 1, sizeof(*group));
    int rc;

    if (group == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    reader->group = group;
    reader->setting_end = &group->settings;
    size_t line = line_of(reader);
    rc = read_mapping(reader, err);
    reader->group = NULL;
    if (rc < 0) {
        return rc;
    }
    if (!names_groups(group)) {
        return error_set(err, IMPEL_ERR_INVALID, "%s, line %zu: this group has no 'group'",
                         reader->path, line);
    }
    *reader->group_end = group;
    reader->group_end = &group->next;
    return IMPEL_OK;
}

static int read_groups(struct reader *reader, struct impel_error *err)
{
    if (reader->event.type != YAML_SEQUENCE_START_EVENT) {
        return wrong(reader, "'groups' is a list", err);
    }
    for (;;) {
        int rc = next_event(reader, err);
        if (rc < 0 || reader->event.type == YAML_SEQUENCE_END_EVENT) {
            return rc;
        }
        if (reader->event.type != YAML_MAPPING_START_EVENT) {
            return wrong(reader, "each of 'groups' is a mapping: '- group: NAME'", err);
        }
        rc = read_group(reader, err);
        if (rc < 0) {
            return rc;
        }
    }
}

static int read_document(struct reader *reader, struct impel_error *err)
{
    for (;;) {
        int rc = next_event(reader, err);
        if (rc < 0 || reader->event.type == YAML_STREAM_END_EVENT) {
            return rc;
        }
        switch (reader->event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_MAPPING_START_EVENT:
            rc = read_mapping(reader, err);
            if (rc < 0) {
                return rc;
            }
            break;
        case YAML_SCALAR_EVENT:
            /* A file of nothing but comments holds one empty scalar. */
            if (reader->event.data.scalar.length == 0) {
                break;
            }
            return wrong(reader, "lines like 'name: value' are needed", err);
        default:
            return wrong(reader, "lines like 'name: value' are needed", err);
        }
    }
}

int config_read(struct options *options, const char *path, struct impel_error *err)
{
    struct reader reader = {.options = options, .path = path, .group_end = &options->groups};
    FILE *file = fopen(path, "rb");
    int rc;

    if (file == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "cannot read the config file %s: %s", path,
                         strerror(errno));
    }
    if (!yaml_parser_initialize(&reader.parser)) {
        fclose(file);
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    yaml_parser_set_input_file(&reader.parser, file);
    rc = read_document(&reader, err);
    if (reader.has_event) {
        yaml_event_delete(&reader.event);
    }
    yaml_parser_delete(&reader.parser);
    fclose(file);
    return rc;
}
