/* version.c -- which library this is, and its statuses in words. The number itself is in the top
 * meson.build, once. */
#include "impel/version.h"

#include "base/base.h"

const char *impel_version(void)
{
    return IMPEL_VERSION;
}

const char *impel_status_text(int status)
{
    return status_text(status);
}
