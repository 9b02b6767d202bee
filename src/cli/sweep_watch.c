/* sweep_watch.c -- who may be dead yet. */
#include "cli/sweep_watch.h"

#include "cli/console.h"
#include "cli/options.h"

#include <stdio.h>

enum {
    TOLD_MS = 10000,
    /* A worker that lives is heard of sooner: nothing is said of that. */
    TOLD_FIRST_MS = 2 * BEAT_INTERVAL_MAX_MS,
};

void sweep_watch_init(struct sweep_watch *watch, int64_t dead_after_ms)
{
    *watch = (struct sweep_watch){.dead_after_ms = dead_after_ms, .begun_ms = clock_now_ms()};
}

void sweep_watch_round(struct sweep_watch *watch)
{
    watch->round_ms = clock_now_ms();
    watch->interval_ms = liveness_interval_ms(watch->dead_after_ms);
    watch->open_count = 0;
    watch->left_ms = 0;
}

static void
note_last(struct sweep_watch *watch, const struct request *look, const struct look_owner *owner)
{
    char stream[64], group[64], name[64], after[DURATION_TEXT_SIZE];

    (void)snprintf(watch->who, sizeof(watch->who),
                   "worker %s of group %s on %s, which is silent and dead after %s",
                   bytes_quote(owner->name, name, sizeof(name)),
                   bytes_quote(look->group, group, sizeof(group)),
                   bytes_quote(look->stream, stream, sizeof(stream)),
                   duration_format(owner->dead_after_ms, after));
}

void sweep_watch_take(struct sweep_watch *watch, const struct request *look, int64_t asked_ms)
{
    int64_t watched_ms = asked_ms - watch->begun_ms;

    for (size_t i = 0; i < look->look.owner_count; i++) {
        const struct look_owner *owner = &look->look.owners[i];
        if (!owner->in_table) {
            continue;
        }
        int64_t interval_ms = liveness_interval_ms(owner->dead_after_ms);
        watch->interval_ms = interval_ms < watch->interval_ms ? interval_ms : watch->interval_ms;
        bool heard = owner->beat_age_ms >= 0 && owner->beat_age_ms <= watched_ms;
        if (owner->state != OWNER_LIVE || owner->pending == 0 || heard) {
            continue;
        }
        int64_t left_ms = sub_saturating(owner->dead_after_ms, watched_ms);
        if (watch->open_count == 0 || left_ms > watch->left_ms) {
            watch->left_ms = left_ms;
            note_last(watch, look, owner);
        }
        watch->open_count++;
    }
}

static void tell(struct sweep_watch *watch)
{
    char left[DURATION_TEXT_SIZE], more[48] = "";

    if (watch->open_count > 1) {
        (void)snprintf(more, sizeof(more), ", and for %llu more",
                       (unsigned long long)watch->open_count - 1);
    }
    console_note("waiting for %s%s: %s more at least", watch->who, more,
                 duration_brief(watch->left_ms < 1000 ? 1000 : watch->left_ms, left));
}

bool sweep_watch_over(struct sweep_watch *watch)
{
    int64_t over_ms = watch->round_ms - watch->begun_ms - watch->dead_after_ms;

    if (over_ms > 0 && watch->open_count == 0) {
        return true;
    }
    if (over_ms > TOLD_FIRST_MS && watch->open_count > 0 &&
        (watch->told_ms == 0 || watch->round_ms - watch->told_ms >= TOLD_MS)) {
        watch->told_ms = watch->round_ms;
        tell(watch);
    }
    return false;
}
