/* worker_audit.c -- own PEL. */
#include "core/worker_state.h"
void audit_step(struct stream *s)
{
    s->listed_once = true;
    s->audit_due_ms = INT64_MAX;
}
int64_t audit_due_ms(const struct stream *s)
{
    return s->audit_due_ms;
}
void audit_want(struct stream *s)
{
    (void)s;
}
void audit_done(struct stream *s, const struct flight *flight)
{
    (void)s;
    (void)flight;
}
bool audit_has_work(const struct stream *s, bool *last)
{
    (void)s;
    (void)last;
    return false;
}
void audit_adopt(struct stream *s, uint32_t places)
{
    (void)s;
    (void)places;
}
void audit_adopt_done(struct stream *s, struct flight *flight)
{
    (void)s;
    (void)flight;
}
void audit_reset(struct stream *s)
{
    (void)s;
}
