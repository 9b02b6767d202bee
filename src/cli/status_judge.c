/* status_judge.c -- from a group's numbers to what somebody on call should know.
 *
 * Asked in the order of urgency; the first that holds is told. */
#include "cli/status.h"

#include <stdarg.h>
#include <stdio.h>

const char *health_name(enum health health)
{
    static const char *const names[] = {
        [HEALTH_OK] = "ok",
        [HEALTH_RECOVERING] = "recovering",
        [HEALTH_UNKNOWN] = "unknown",
        [HEALTH_ATTENTION] = "attention",
    };
    return names[health];
}

static void say(struct status_group *group, enum health health, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct status_group *group, enum health health, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(group->reason, sizeof(group->reason), format, args);
    va_end(args);
    group->health = health;
}

static const char *entries(uint64_t count)
{
    return count == 1 ? "entry" : "entries";
}

static void say_lost(struct status_group *group)
{
    const char *pending = group->lost_pending == 1 ? "entry is" : "entries are";
    const char *unread = group->lost_unread == 1 ? "entry is" : "entries are";

    if (group->lost_unread == 0) {
        say(group, HEALTH_ATTENTION,
            "%llu pending %s gone from the stream: trimmed or deleted before the work was done",
            (unsigned long long)group->lost_pending, pending);
    } else if (group->lost_pending == 0) {
        say(group, HEALTH_ATTENTION,
            "%llu unread %s gone from the stream: trimmed or deleted before they were delivered",
            (unsigned long long)group->lost_unread, unread);
    } else {
        say(group, HEALTH_ATTENTION,
            "%llu pending and %llu unread %s gone from the stream: trimmed or deleted too early",
            (unsigned long long)group->lost_pending, (unsigned long long)group->lost_unread,
            unread);
    }
}

/* Undelivered work that nobody will read: 1 = no consumer at all, 2 = only some that do not come. */
static int nobody_reads(const struct status_group *group, const struct policy *policy)
{
    if (group->lag <= 0 || group->live_count > 0) {
        return 0;
    }
    if (group->foreign_count == 0) {
        return 1;
    }
    return group->seen_ms >= policy->min_idle_ms ? 2 : 0;
}

static void say_unread(struct status_group *group, int why)
{
    char seen[DURATION_TEXT_SIZE];

    if (why == 1) {
        say(group, HEALTH_ATTENTION,
            "%lld undelivered %s and no live worker: start one (impel run)", (long long)group->lag,
            entries((uint64_t)group->lag));
    } else {
        say(group, HEALTH_ATTENTION, "%lld undelivered %s, and no consumer came for %s",
            (long long)group->lag, entries((uint64_t)group->lag),
            duration_brief(group->seen_ms, seen));
    }
}

void status_judge(struct status_group *group,
                  struct impel_bytes stream,
                  const struct policy *policy)
{
    bool anybody = group->live_count > 0;
    char name[96];

    bytes_quote(stream, name, sizeof(name));
    if (group->lost > 0) {
        say_lost(group);
    } else if (group->abandoned > 0 && !anybody) {
        say(group, HEALTH_ATTENTION, "%llu abandoned %s and no live worker: start one (impel run)",
            (unsigned long long)group->abandoned, entries(group->abandoned));
    } else if (group->unknown > 0) {
        say(group, HEALTH_UNKNOWN,
            "%llu %s held by workers that may be dead, and nobody beats: start a worker (impel "
            "run), or find out with impel sweep --once",
            (unsigned long long)group->unknown, entries(group->unknown));
    } else if (nobody_reads(group, policy) > 0) {
        say_unread(group, nobody_reads(group, policy));
    } else if (group->parked > 0) {
        say(group, HEALTH_ATTENTION, "%llu parked %s: impel dead list --stream %s",
            (unsigned long long)group->parked, entries(group->parked), name);
    } else if (group->abandoned > 0) {
        say(group, HEALTH_RECOVERING, "%llu abandoned %s about to be taken over",
            (unsigned long long)group->abandoned, entries(group->abandoned));
    } else if (group->not_due > 0) {
        say(group, HEALTH_OK, "%llu abandoned or foreign %s not idle for long enough yet",
            (unsigned long long)group->not_due, entries(group->not_due));
    } else {
        say(group, HEALTH_OK, "%s",
            group->pending > 0 ? "work is under way"
            : group->lag > 0   ? "there is work to be read, and somebody who comes for it"
                               : "nothing to do");
    }
}
