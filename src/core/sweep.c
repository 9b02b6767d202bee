/* sweep.c -- one group's sweep. */
#include "core/sweep.h"
void sweep_free(struct sweep *sweep)
{
    (void)sweep;
}
