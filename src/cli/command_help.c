/* command_help.c -- impel help. */
#include "cli/command.h"
#include "cli/console.h"

static int
find_topic(const struct options *options, const struct command **topic, struct impel_error *err)
{
    char quoted[64];

    *topic = NULL;
    if (options->words.count == 0) {
        return IMPEL_OK;
    }
    *topic = command_find(options->words.texts[0]);
    if (*topic == NULL) {
        bytes_quote(bytes_of(options->words.texts[0]), quoted, sizeof(quoted));
        return error_set(err, IMPEL_ERR_INVALID, "there is no command '%s'; 'impel help' lists all",
                         quoted);
    }
    return IMPEL_OK;
}

int command_help(struct options *options, struct impel_error *err)
{
    const struct command *topic;
    struct buf out;
    int rc;

    rc = find_topic(options, &topic, err);
    if (rc < 0) {
        return rc;
    }
    buf_init(&out, 1 << 20);
    if (options->man) {
        help_man(&out, topic);
    } else if (options->completion) {
        help_completion(&out);
    } else if (options->sample_config) {
        help_sample_config(&out);
    } else if (topic != NULL) {
        help_command(&out, topic);
    } else {
        help_overview(&out);
    }
    rc = buf_status(&out);
    if (rc < 0) {
        error_set(err, rc, "out of memory");
    }
    console_out(buf_bytes(&out));
    buf_release(&out);
    return rc;
}
