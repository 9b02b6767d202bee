/* sweep_list.c -- the groups that are swept, sorted, so that one of ten thousand is found quickly. */
#include "cli/sweep_list.h"

#include "base/glob.h"
#include "cli/console.h"
#include "cli/stream_names.h"
#include "observe/events.h"

#include <stdlib.h>
#include <string.h>

static int order(const struct swept *swept, struct impel_bytes stream, struct impel_bytes group)
{
    int by_stream = bytes_compare(swept->sweep.stream, stream);

    return by_stream != 0 ? by_stream : bytes_compare(swept->sweep.group, group);
}

/* Where the group is, or would be. */
static size_t
place_of(const struct sweep_list *list, struct impel_bytes stream, struct impel_bytes group)
{
    size_t low = 0, high = list->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(list->items[middle], stream, group) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct swept *
sweep_list_find(const struct sweep_list *list, struct impel_bytes stream, struct impel_bytes group)
{
    size_t at = place_of(list, stream, group);

    return at < list->count && order(list->items[at], stream, group) == 0 ? list->items[at] : NULL;
}

/* Its own question in vain comes first: with that the store forgets what it kept for the group. */
static bool may_go(const struct swept *swept)
{
    return swept->gone && group_sweep_missing(&swept->sweep);
}

static void swept_free(struct swept *swept)
{
    if (swept != NULL) {
        group_sweep_release(&swept->sweep);
        arena_release(&swept->names);
        free(swept);
    }
}

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

static int new_swept(struct swept *swept,
                     struct logging *logging,
                     struct impel_bytes stream,
                     struct impel_bytes group,
                     struct impel_error *err)
{
    const struct options *options = swept->choice->options;
    struct group_sweep_options sweep = {
        .policy = options_policy(options),
        .interval_ms = options->interval_ms,
        .consumer_ttl_ms = options->consumer_ttl_ms,
        .action = swept->choice->action,
        .may_vanish = swept->found,
    };

    if (!arena_copy(&swept->names, stream, &sweep.stream) ||
        !arena_copy(&swept->names, group, &sweep.group) ||
        !options_dead_letter(options, &swept->names, sweep.stream, &sweep.dead_letter)) {
        return no_memory(err);
    }
    if (bytes_equal(sweep.dead_letter, sweep.stream)) {
        return error_set(err, IMPEL_ERR_INVALID,
                         "the dead-letter stream must be another than the stream itself");
    }
    int rc = group_sweep_init(&swept->sweep, &sweep, logging, clock_now_ms());
    return rc < 0 ? error_set(err, rc, "%s", status_text(rc)) : rc;
}

static int refuse_more(struct sweep_list *list, struct impel_error *err)
{
    struct impel_event event;

    error_set(err, IMPEL_ERR_LIMIT, "more than %d groups are meant", SWEEP_GROUPS_MAX);
    if (!list->full_told) {
        event_init(&event, "too-many-groups", IMPEL_ERROR,
                   "more groups are meant than one sweep takes: the rest is not swept");
        event.count = SWEEP_GROUPS_MAX;
        logging_event(&event, list->logging);
    }
    list->full_told = true;
    return IMPEL_ERR_LIMIT;
}

static bool make_room(struct sweep_list *list)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
        struct swept **items = realloc(list->items, capacity * sizeof(void *));
        if (items == NULL) {
            return false;
        }
        list->items = items;
        list->capacity = capacity;
    }
    return true;
}

int sweep_list_add(struct sweep_list *list,
                   const struct sweep_choice *choice,
                   struct impel_bytes stream,
                   struct impel_bytes group,
                   struct swept **out,
                   struct impel_error *err)
{
    size_t at = place_of(list, stream, group);
    struct swept *swept;
    int rc;

    if (list->count == SWEEP_GROUPS_MAX) {
        return refuse_more(list, err);
    }
    swept = make_room(list) ? calloc(1, sizeof(*swept)) : NULL;
    if (swept == NULL) {
        return no_memory(err);
    }
    swept->choice = choice;
    swept->found = sweep_choice_asks(choice, stream);
    swept->stream_given = names_match(&choice->options->streams, stream) == NAME_GIVEN;
    rc = new_swept(swept, list->logging, stream, group, err);
    if (rc < 0) {
        swept_free(swept);
        return rc;
    }
    for (size_t i = list->count++; i > at; i--) {
        list->items[i] = list->items[i - 1];
    }
    list->items[at] = swept;
    *out = swept;
    return IMPEL_OK;
}

int sweep_list_add_given(struct sweep_list *list,
                         const struct sweep_choices *choices,
                         struct impel_error *err)
{
    for (size_t i = 0; i < choices->count; i++) {
        const struct options *options = choices->items[i].options;
        for (size_t j = 0; j < options->streams.count; j++) {
            struct impel_bytes stream = bytes_of(options->streams.texts[j]);
            struct impel_bytes group = bytes_of(options->group);
            struct swept *swept = NULL;
            if (glob_is_pattern(stream) || sweep_choice_asks(&choices->items[i], stream) ||
                sweep_list_find(list, stream, group) != NULL) {
                continue;
            }
            const struct sweep_choice *choice = sweep_choices_for(choices, stream, group);
            int rc = sweep_list_add(list, choice, stream, group, &swept, err);
            if (rc < 0) {
                return rc;
            }
            ASSERT(swept != NULL);
            swept->found = false;
        }
    }
    return IMPEL_OK;
}

void sweep_list_mark_unseen(struct sweep_list *list, uint64_t round)
{
    for (size_t i = 0; i < list->count; i++) {
        struct swept *swept = list->items[i];
        swept->gone = swept->found && swept->round != round;
    }
}

/* One event for a group, or for all `count` of a stream. */
static void tell_gone(const struct sweep_list *list, const struct swept *swept, uint64_t count)
{
    struct impel_event event;

    event_init(&event, "group-gone", IMPEL_INFO,
               "no longer in the store, and so not swept any more");
    event.stream = swept->sweep.stream;
    event.group = count > 1 ? (struct impel_bytes){0} : swept->sweep.group;
    event.count = count;
    logging_event(&event, list->logging);
}

void sweep_list_drop_gone(struct sweep_list *list,
                          void (*forget)(void *user, struct impel_bytes stream),
                          void *user)
{
    size_t kept = 0, end = 0;

    for (size_t i = 0; i < list->count; i = end) {
        struct impel_bytes stream = list->items[i]->sweep.stream;
        uint64_t gone = 0;
        for (end = i; end < list->count && bytes_equal(list->items[end]->sweep.stream, stream);
             end++) {
            gone += may_go(list->items[end]);
        }
        bool whole = gone == end - i;
        if (whole) {
            tell_gone(list, list->items[i], gone);
            forget(user, stream);
        }
        for (size_t j = i; j < end; j++) {
            struct swept *swept = list->items[j];
            bool goes = may_go(swept);
            if (goes && !whole) {
                tell_gone(list, swept, 1);
            }
            if (goes) {
                swept_free(swept);
            } else {
                list->items[kept++] = swept;
            }
        }
    }
    list->full_told &= kept == list->count;
    list->count = kept;
}

int sweep_list_write_metrics(const struct sweep_list *list,
                             const char *path,
                             struct impel_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        metrics_link(list->items[i]->sweep.metrics,
                     i + 1 < list->count ? list->items[i + 1]->sweep.metrics : NULL);
    }
    return metrics_write(list->count > 0 ? list->items[0]->sweep.metrics : NULL, path, err);
}

void sweep_list_release(struct sweep_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        swept_free(list->items[i]);
    }
    free(list->items);
    *list = (struct sweep_list){0};
}
