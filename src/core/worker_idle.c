/* worker_idle.c -- until idle. */
#include "core/worker_state.h"
void idle_step(struct worker *w)
{
    (void)w;
}
void idle_look_done(struct stream *s, const struct flight *flight)
{
    (void)s;
    (void)flight;
}
int64_t idle_due_ms(const struct worker *w)
{
    (void)w;
    return INT64_MAX;
}
