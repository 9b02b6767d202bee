/* version.c -- which library this is. The number itself is in the top meson.build, once. */
#include "impel/version.h"

const char *impel_version(void)
{
    return IMPEL_VERSION;
}
