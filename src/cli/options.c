/* options.c -- finding an option and setting it from text, whatever place the text comes from. */
#include "cli/options.h"

#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_SIZE_MAX = 32,
};

const struct option_spec *option_find(struct impel_bytes name)
{
    for (size_t i = 0; i < option_table_size; i++) {
        if (bytes_equal(name, bytes_of(option_table[i].name))) {
            return &option_table[i];
        }
    }
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* How many letters must be put in, taken out or changed to come from one text to the other. */
static size_t text_distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t row[NAME_SIZE_MAX + 1];

    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = min3(change, row[j] + 1, row[j - 1] + 1);
        }
    }
    return row[b_size];
}

const char *nearest_text(struct impel_bytes text, const char *candidate, size_t *best)
{
    size_t size = strlen(candidate);

    if (text.size > NAME_SIZE_MAX || size > NAME_SIZE_MAX) {
        return NULL;
    }
    size_t distance = text_distance(text.data, text.size, candidate, size);
    if (distance >= *best) {
        return NULL;
    }
    *best = distance;
    return candidate;
}

const char *option_nearest(struct impel_bytes name, unsigned commands)
{
    size_t best = name.size < 4 ? 2 : 4;
    const char *nearest = NULL;

    for (size_t i = 0; i < option_table_size; i++) {
        const struct option_spec *spec = &option_table[i];
        const char *found =
            (spec->commands & commands) != 0 ? nearest_text(name, spec->name, &best) : NULL;
        nearest = found != NULL ? found : nearest;
    }
    return nearest;
}

bool text_list_add(struct arena *arena, struct text_list *list, const char *text)
{
    /* The list grows when its size is a power of two, so that no capacity need be kept. */
    if ((list->count & (list->count - 1)) == 0) {
        size_t capacity = list->count == 0 ? 1 : list->count * 2;
        const char **texts = arena_calloc(arena, capacity, sizeof(*texts));
        if (texts == NULL) {
            return false;
        }
        if (list->count > 0) {
            memcpy(texts, list->texts, list->count * sizeof(*texts));
        }
        list->texts = texts;
    }
    list->texts[list->count++] = text;
    return true;
}

/* ---- one value ---- */

/* A value that is being read: where it goes, and what to say if it is wrong. */
struct target {
    const struct option_spec *spec;
    void *member;
    const char *text;
    const char *where;
    struct arena *arena;
};

static int refuse(const struct target *target, const char *why, struct impel_error *err)
{
    char quoted[96];
    return error_set(err, IMPEL_ERR_INVALID, "bad value \"%s\" for %s: %s",
                     bytes_quote(bytes_of(target->text), quoted, sizeof(quoted)), target->where,
                     why);
}

static int set_flag(const struct target *target, struct impel_error *err)
{
    static const char *const yes[] = {"true", "yes", "on"};
    static const char *const no[] = {"false", "no", "off"};
    struct impel_bytes text = bytes_of(target->text);

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (bytes_equal_nocase(text, yes[i])) {
            *(bool *)target->member = true;
            return IMPEL_OK;
        }
        if (bytes_equal_nocase(text, no[i])) {
            *(bool *)target->member = false;
            return IMPEL_OK;
        }
    }
    return refuse(target, "it is either true or false", err);
}

static int set_number(const struct target *target, struct impel_error *err)
{
    const struct option_spec *spec = target->spec;
    char why[128], *end;
    int64_t number;

    if (spec->min == -1 && strcmp(target->text, "auto") == 0) {
        *(int64_t *)target->member = -1;
        return IMPEL_OK;
    }
    errno = 0;
    number = strtoll(target->text, &end, 10);
    if (end == target->text || *end != '\0' || errno != 0 || target->text[0] == ' ') {
        return refuse(target, "a whole number is needed", err);
    }
    if (number < spec->min || number > spec->max) {
        if (spec->max == INT64_MAX) {
            snprintf(why, sizeof(why), "it must be at least %lld", (long long)spec->min);
        } else {
            snprintf(why, sizeof(why), "it must be from %lld to %lld", (long long)spec->min,
                     (long long)spec->max);
        }
        return refuse(target, why, err);
    }
    *(int64_t *)target->member = number;
    return IMPEL_OK;
}

static int set_duration(const struct target *target, int64_t *out_ms, struct impel_error *err)
{
    char why[128], least[DURATION_TEXT_SIZE];
    int64_t ms;

    if (duration_parse(target->text, &ms) < 0) {
        return refuse(target, "a duration is a number with its unit: 500ms, 30s, 5m, 1h30m, 2d",
                      err);
    }
    if (ms < target->spec->min) {
        snprintf(why, sizeof(why), "it must be at least %s",
                 duration_format(target->spec->min, least));
        return refuse(target, why, err);
    }
    *out_ms = ms;
    return IMPEL_OK;
}

static int set_range(const struct target *target, struct impel_error *err)
{
    struct duration_range *range = target->member;
    const char *dots = strstr(target->text, "..");
    char low_text[DURATION_TEXT_SIZE];
    int64_t low_ms, high_ms;
    size_t low_size = dots == NULL ? strlen(target->text) : (size_t)(dots - target->text);

    if (low_size >= sizeof(low_text)) {
        return refuse(target, "two durations are needed, like 1s..5m", err);
    }
    memcpy(low_text, target->text, low_size);
    low_text[low_size] = '\0';
    if (duration_parse(low_text, &low_ms) < 0 ||
        duration_parse(dots == NULL ? low_text : dots + 2, &high_ms) < 0) {
        return refuse(target, "two durations with their units are needed, like 1s..5m", err);
    }
    if (high_ms < low_ms) {
        return refuse(target, "the first duration is the shorter one, as in 1s..5m", err);
    }
    *range = (struct duration_range){low_ms, high_ms};
    return IMPEL_OK;
}

static int set_choice(const struct target *target, struct impel_error *err)
{
    struct impel_bytes text = bytes_of(target->text);
    char why[128];
    int index = 0;

    for (const char *choice = target->spec->choices; *choice != '\0'; index++) {
        size_t size = strcspn(choice, "|");
        if (bytes_equal(text, (struct impel_bytes){choice, size})) {
            *(int *)target->member = index;
            return IMPEL_OK;
        }
        choice += size + (choice[size] == '|');
    }
    snprintf(why, sizeof(why), "it is one of %s", target->spec->choices);
    return refuse(target, why, err);
}

static int set_maybe(const struct target *target, struct impel_error *err)
{
    struct maybe_duration *maybe = target->member;
    int64_t ms = 0;
    bool given = true;

    if (strcmp(target->text, "false") == 0) {
        given = false;
    } else if (strcmp(target->text, "true") != 0) {
        int rc = set_duration(target, &ms, err);
        if (rc < 0) {
            return rc;
        }
    }
    *maybe = (struct maybe_duration){given, ms};
    return IMPEL_OK;
}

static int set_keep(const struct target *target, struct impel_error *err)
{
    const char *text = target->text;
    struct keep keep = {0};

    if (text[0] != '\0' && strspn(text, "0123456789") == strlen(text)) {
        errno = 0;
        keep.length = strtoull(text, NULL, 10);
        if (errno != 0 || keep.length > INT64_MAX) {
            return refuse(target, "no stream is that long", err);
        }
    } else if (duration_parse(text, &keep.age_ms) < 0) {
        return refuse(target, "a duration like 1h, or a number of entries like 100000, is needed",
                      err);
    }
    *(struct keep *)target->member = keep;
    return IMPEL_OK;
}

static int set_text(const struct target *target, struct impel_error *err)
{
    struct impel_bytes copy;

    if (target->spec->min > 0 && target->text[0] == '\0') {
        return refuse(target, "a name is needed, not an empty text", err);
    }
    if (!arena_copy(target->arena, (struct impel_bytes){target->text, strlen(target->text) + 1},
                    &copy)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    if (target->spec->kind == OPTION_TEXT) {
        *(const char **)target->member = copy.data;
    } else if (!text_list_add(target->arena, target->member, copy.data)) {
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    return IMPEL_OK;
}

int option_set(struct options *options,
               const struct option_spec *spec,
               const char *text,
               const char *where,
               struct impel_error *err)
{
    struct target target = {spec, (char *)options + spec->offset, text, where, &options->arena};

    switch (spec->kind) {
    case OPTION_FLAG:
        return set_flag(&target, err);
    case OPTION_TEXT:
    case OPTION_LIST:
        return set_text(&target, err);
    case OPTION_NUMBER:
        return set_number(&target, err);
    case OPTION_DURATION:
        return set_duration(&target, target.member, err);
    case OPTION_MAYBE:
        return set_maybe(&target, err);
    case OPTION_RANGE:
        return set_range(&target, err);
    case OPTION_CHOICE:
        return set_choice(&target, err);
    case OPTION_KEEP:
        return set_keep(&target, err);
    case OPTION_ID:
        if (id_parse(bytes_of(text), spec->max == 0 ? 0 : UINT64_MAX, target.member) < 0) {
            return refuse(&target, "an ID is two numbers with a dash, like 1700000000000-0", err);
        }
        return IMPEL_OK;
    }
    return IMPEL_ERR_INVALID;
}

void option_clear(struct options *options, const struct option_spec *spec)
{
    if (spec->kind == OPTION_LIST) {
        *(struct text_list *)(void *)((char *)options + spec->offset) = (struct text_list){0};
    }
}

struct policy options_policy(const struct options *options)
{
    return (struct policy){
        .min_idle_ms = options->min_idle_ms,
        .dead_after_ms = options->dead_after_ms,
        .max_deliveries = options->max_deliveries,
        .backoff_base_ms = options->backoff.low_ms,
        .backoff_cap_ms = options->backoff.high_ms,
    };
}

bool options_dead_letter(const struct options *options,
                         struct arena *arena,
                         struct impel_bytes stream,
                         struct impel_bytes *out)
{
    if (options->dead_letter != NULL) {
        return arena_copy(arena, bytes_of(options->dead_letter), out);
    }
    return runtime_dead_letter(arena, stream, out);
}
