/* sweep_pace.c -- the budget is spent in slices of about a tenth of a second, so that it is neither a
 * burst each second nor a wait before each command. */
#include "cli/sweep_pace.h"

enum {
    SLICE_MS = 100,
};

int64_t sweep_pace_take(struct sweep_pace *pace, int64_t now_ms)
{
    if (pace->budget == 0) {
        return 0;
    }
    int64_t slice = (pace->budget * SLICE_MS + 999) / 1000;
    int64_t slice_ms = slice * 1000 / pace->budget;
    int64_t age_ms = now_ms - pace->since_ms;
    if (age_ms >= slice_ms) {
        pace->spent = 0;
        pace->since_ms = now_ms;
        age_ms = 0;
    }
    if (pace->spent >= slice) {
        return slice_ms - age_ms;
    }
    pace->spent++;
    return 0;
}
