/* command_version.c -- impel version. */
#include "cli/command.h"
#include "cli/console.h"
#include "impel/version.h"

int command_version(struct options *options, struct impel_error *err)
{
    (void)options;
    (void)err;
    console_outf("impel %s\n", impel_version());
    return EXIT_DONE;
}
