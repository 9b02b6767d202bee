/* duration.c -- durations carry their units, in both directions. */
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *unit;
    int64_t ms;
} units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* One "30s"; returns what follows it, or NULL. */
static const char *parse_part(const char *text, int64_t *total_ms)
{
    char *end;
    size_t unit_size;

    if (*text < '0' || *text > '9') {
        return NULL;
    }
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    unit_size = strspn(end, "abcdefghijklmnopqrstuvwxyz");
    if (errno != 0) {
        return NULL;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].unit) == unit_size && memcmp(units[i].unit, end, unit_size) == 0) {
            *total_ms = add_saturating(*total_ms, mul_saturating(number, units[i].ms));
            return end + unit_size;
        }
    }
    return NULL;
}

int duration_parse(const char *text, int64_t *out_ms)
{
    int64_t total_ms = 0;

    if (strcmp(text, "0") == 0) {
        *out_ms = 0;
        return IMPEL_OK;
    }
    do {
        text = parse_part(text, &total_ms);
    } while (text != NULL && *text != '\0');
    /* A thousand years are enough, and leave room to add to a clock. */
    if (text == NULL || total_ms > INT64_C(1000) * 366 * 24 * 3600 * 1000) {
        return IMPEL_ERR_INVALID;
    }
    *out_ms = total_ms;
    return IMPEL_OK;
}

const char *duration_brief(int64_t ms, char *text)
{
    int64_t s = ms / 1000;

    if (ms < 1000) {
        snprintf(text, DURATION_TEXT_SIZE, "%lldms", (long long)(ms < 0 ? 0 : ms));
    } else if (s < 60) {
        snprintf(text, DURATION_TEXT_SIZE, "%.1fs", (double)ms / 1000);
    } else if (s < 3600) {
        snprintf(text, DURATION_TEXT_SIZE, "%lldm%02llds", (long long)s / 60, (long long)s % 60);
    } else if (s < 86400) {
        snprintf(text, DURATION_TEXT_SIZE, "%lldh%02lldm", (long long)s / 3600,
                 (long long)s / 60 % 60);
    } else {
        snprintf(text, DURATION_TEXT_SIZE, "%lldd%02lldh", (long long)s / 86400,
                 (long long)s / 3600 % 24);
    }
    return text;
}

const char *duration_format(int64_t ms, char *text)
{
    size_t used = 0;

    if (ms <= 0) {
        return memcpy(text, "0s", sizeof("0s"));
    }
    for (size_t i = ARRAY_SIZE(units); i-- > 0;) {
        int64_t count = ms / units[i].ms;
        if (count > 0) {
            used += (size_t)snprintf(text + used, DURATION_TEXT_SIZE - used, "%lld%s",
                                     (long long)count, units[i].unit);
            ms -= count * units[i].ms;
        }
    }
    return text;
}
