/* worker_take.c -- recovered entries. */
#include "core/worker_state.h"
void take_enter(struct stream *s)
{
    (void)s;
}
void take_leave(struct stream *s)
{
    (void)s;
}
void take_step(struct worker *w)
{
    (void)w;
}
void take_sweep(struct stream *s)
{
    (void)s;
}
int64_t take_due_ms(const struct stream *s)
{
    (void)s;
    return INT64_MAX;
}
void take_note_due(struct stream *s)
{
    (void)s;
}
void take_done(struct stream *s, struct flight *flight)
{
    (void)s;
    (void)flight;
}
void take_ready(struct hold *hold, struct entry *entry)
{
    (void)hold;
    (void)entry;
}
