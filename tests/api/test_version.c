/* test_version.c -- the library and the build agree on the version. */
#include "impel/version.h"
#include "tap.h"

TEST(version_is_the_projects)
{
    CHECK(strcmp(impel_version(), IMPEL_VERSION) == 0);
}

TAP_MAIN
