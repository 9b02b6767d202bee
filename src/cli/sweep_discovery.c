/* sweep_discovery.c -- rounds of questions: which streams are there, and which groups have they? */
#include "cli/sweep_discovery.h"

#include "base/glob.h"
#include "cli/console.h"
#include "observe/events.h"

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

static void tell(const struct sweep_discovery *discovery,
                 const char *name,
                 enum impel_level level,
                 const char *text,
                 const struct impel_event *about)
{
    struct impel_event event;

    event_init(&event, name, level, text);
    event.stream = about->stream;
    event.group = about->group;
    event.error = about->error;
    event.count = about->count > 0 ? about->count : 1;
    logging_event(&event, discovery->list->logging);
}

/* ---- what has to be asked at all ---- */

/* The names and patterns of streams of which groups are looked for, one after the other; NULL at the
 * end. `at` counts them, from 0. */
static const char *wanted_stream(const struct sweep_choices *choices, size_t *at)
{
    size_t first = 0; /* the number of the choice's first stream */

    for (size_t i = 0; i < choices->count; i++) {
        const struct text_list *streams = &choices->items[i].options->streams;
        while (*at < first + streams->count) {
            const char *text = streams->texts[(*at)++ - first];
            if (sweep_choice_asks(&choices->items[i], bytes_of(text))) {
                return text;
            }
        }
        first += streams->count;
    }
    return NULL;
}

/* The one pattern, if there is only one, for the server to match. */
static const char *only_pattern(const struct sweep_choices *choices, bool *any)
{
    const char *pattern = NULL;
    size_t at = 0, count = 0;

    for (const char *text = wanted_stream(choices, &at); text != NULL;
         text = wanted_stream(choices, &at)) {
        if (glob_is_pattern(bytes_of(text))) {
            pattern = text;
            count++;
        }
    }
    *any = count > 0;
    return count == 1 ? pattern : NULL;
}

void sweep_discovery_init(struct sweep_discovery *discovery,
                          const struct sweep_choices *choices,
                          struct sweep_list *list,
                          bool strict)
{
    size_t at = 0;

    *discovery = (struct sweep_discovery){
        .choices = choices,
        .list = list,
        .needed = wanted_stream(choices, &at) != NULL,
        .strict = strict,
        .interval_ms = INT64_MAX / DISCOVERY_INTERVALS,
    };
    for (size_t i = 0; i < choices->count; i++) {
        int64_t own_ms = choices->items[i].options->interval_ms;
        discovery->interval_ms = own_ms < discovery->interval_ms ? own_ms : discovery->interval_ms;
    }
    discovery->interval_ms *= DISCOVERY_INTERVALS;
}

void sweep_discovery_release(struct sweep_discovery *discovery)
{
    arena_release(&discovery->arena);
    *discovery = (struct sweep_discovery){0};
}

int64_t sweep_discovery_deadline(const struct sweep_discovery *discovery, int64_t now_ms)
{
    if (!discovery->needed || (discovery->strict && discovery->last > 0)) {
        return INT64_MAX;
    }
    return discovery->running || discovery->due_ms <= now_ms ? 0 : discovery->due_ms - now_ms;
}

/* ---- a round ---- */

static bool begin_round(struct sweep_discovery *discovery)
{
    const char *pattern;
    size_t at = 0, count = 0;
    bool any;

    while (wanted_stream(discovery->choices, &at) != NULL) {
        count++;
    }
    arena_release(&discovery->arena);
    discovery->names = arena_calloc(&discovery->arena, count, sizeof(*discovery->names));
    if (discovery->names == NULL) {
        return false;
    }
    discovery->count = discovery->at = at = 0;
    for (const char *text = wanted_stream(discovery->choices, &at); text != NULL;
         text = wanted_stream(discovery->choices, &at)) {
        if (!glob_is_pattern(bytes_of(text))) {
            discovery->names[discovery->count++] = bytes_of(text);
        }
    }
    pattern = only_pattern(discovery->choices, &any);
    stream_scan_init(&discovery->scan, pattern);
    discovery->scan.over = !any;
    discovery->round++;
    discovery->running = true;
    return true;
}

static void end_round(struct sweep_discovery *discovery, int64_t now_ms)
{
    struct impel_event about = {.count = discovery->list->count};

    sweep_list_mark_unseen(discovery->list, discovery->round);
    if (discovery->last == 0 && !discovery->strict) {
        tell(discovery, "groups-found", IMPEL_INFO,
             discovery->list->count > 0 ? "these groups are swept"
                                        : "no group is meant yet: none matches",
             &about);
    }
    discovery->last = discovery->round;
    discovery->running = false;
    discovery->due_ms = now_ms + discovery->interval_ms;
}

struct request *sweep_discovery_next(struct sweep_discovery *discovery, int64_t now_ms)
{
    if (sweep_discovery_deadline(discovery, now_ms) > 0 ||
        (!discovery->running && !begin_round(discovery))) {
        return NULL;
    }
    if (discovery->at < discovery->count) {
        return session_request(REQUEST_INFO, discovery->names[discovery->at],
                               (struct impel_bytes){0});
    }
    if (!discovery->scan.over) {
        return stream_scan_next(&discovery->scan);
    }
    end_round(discovery, now_ms);
    return NULL;
}

/* ---- answers ---- */

/* The names of a step that have to be asked about. */
static int
take_scan(struct sweep_discovery *discovery, const struct request *request, struct impel_error *err)
{
    const struct value *found = NULL;
    size_t count = 0;
    int rc = stream_scan_done(&discovery->scan, request, &found, &count, err);

    arena_release(&discovery->arena);
    discovery->count = discovery->at = 0;
    discovery->names =
        rc < 0 ? NULL : arena_calloc(&discovery->arena, count, sizeof(*discovery->names));
    if (discovery->names == NULL) {
        return rc < 0 ? rc : no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        bool given;
        if (sweep_choices_want(discovery->choices, found[i].bytes, &given) && !given &&
            !arena_copy(&discovery->arena, found[i].bytes, &discovery->names[discovery->count++])) {
            return no_memory(err);
        }
    }
    return IMPEL_OK;
}

static int take_group(struct sweep_discovery *discovery,
                      struct impel_bytes stream,
                      struct impel_bytes group,
                      struct impel_error *err)
{
    const struct sweep_choice *choice = sweep_choices_for(discovery->choices, stream, group);
    struct swept *swept = sweep_list_find(discovery->list, stream, group);

    if (choice == NULL) {
        return IMPEL_OK;
    }
    if (swept == NULL) {
        int rc = sweep_list_add(discovery->list, choice, stream, group, &swept, err);
        if (rc < 0) {
            return rc == IMPEL_ERR_LIMIT ? IMPEL_OK : rc;
        }
        /* Those of the first round are told together. */
        tell(discovery, "group-found", discovery->last == 0 ? IMPEL_DEBUG : IMPEL_INFO,
             "the group is swept from now on",
             &(struct impel_event){.stream = stream, .group = group});
    }
    swept->round = discovery->round;
    return IMPEL_OK;
}

/* In a strict round: the first is the command's error in the end, the others are told at once. */
static void miss(struct sweep_discovery *discovery, const struct impel_error *why)
{
    if (discovery->refused > 0) {
        console_error("%s", why->text);
    } else {
        discovery->refusal = *why;
    }
    discovery->refused = discovery->round;
}

static int
take_info(struct sweep_discovery *discovery, const struct request *info, struct impel_error *err)
{
    bool given;
    char quoted[64];
    int rc = IMPEL_OK;

    sweep_choices_want(discovery->choices, info->stream, &given);
    if (!info->info.exists && given && discovery->strict) {
        (void)error_set(err, IMPEL_ERR_NOT_FOUND, "there is no stream '%s' in this store",
                        bytes_quote(info->stream, quoted, sizeof(quoted)));
        miss(discovery, err);
        return IMPEL_OK;
    }
    if (!info->info.exists && given && discovery->last == 0) {
        tell(discovery, "stream-missing", IMPEL_WARNING, "the stream is not in this store yet",
             &(struct impel_event){.stream = info->stream});
    }
    for (size_t i = 0; rc >= 0 && i < info->info.group_count; i++) {
        rc = take_group(discovery, info->stream, info->info.groups[i].name, err);
    }
    return rc;
}

/* A stream that alone is the matter: told once, for as long as there is any; where this is the only
 * round each. */
static void pass_by(struct sweep_discovery *discovery, const struct request *request)
{
    struct impel_error err;
    bool told =
        discovery->refused > 0 && discovery->refused + 1 >= discovery->round && !discovery->strict;

    for (size_t i = 0; i < discovery->list->count; i++) {
        struct swept *swept = discovery->list->items[i];
        if (bytes_equal(swept->sweep.stream, request->stream)) {
            swept->round = discovery->round;
        }
    }
    session_failure(request, &err);
    tell(discovery, "store-error", told ? IMPEL_DEBUG : IMPEL_ERROR,
         "the stream could not be asked for its groups",
         &(struct impel_event){.stream = request->stream, .error = bytes_of(err.text)});
    if (discovery->refused == 0) {
        discovery->refusal = err;
    }
    discovery->refused = discovery->round;
}

static int take_answer(struct sweep_discovery *discovery,
                       const struct request *request,
                       struct impel_error *err)
{
    bool given = false;

    if (request->kind == REQUEST_CALL && request->status >= 0) {
        return take_scan(discovery, request, err);
    }
    discovery->at += request->kind == REQUEST_INFO;
    if (request->status >= 0) {
        return take_info(discovery, request, err);
    }
    sweep_choices_want(discovery->choices, request->stream, &given);
    if (request->status == IMPEL_ERR_WRONG_TYPE && !(given && discovery->strict)) {
        return IMPEL_OK; /* no stream, or not any more */
    }
    if (session_stream_refused(request->status)) {
        pass_by(discovery, request);
        return IMPEL_OK;
    }
    session_failure(request, err);
    return request->status;
}

int sweep_discovery_done(struct sweep_discovery *discovery,
                         struct request *request,
                         int64_t now_ms,
                         struct impel_error *err)
{
    int rc = take_answer(discovery, request, err);

    request_free(request);
    if (rc < 0) {
        discovery->running = false;
        discovery->due_ms = now_ms + discovery->interval_ms;
        if (rc != discovery->status && !discovery->strict) {
            tell(discovery, "store-error", IMPEL_ERROR, "the streams could not be looked for",
                 &(struct impel_event){.error = bytes_of(err->text)});
        }
    }
    discovery->status = rc;
    return rc;
}

void sweep_discovery_check(struct sweep_discovery *discovery)
{
    const struct sweep_choices *choices = discovery->choices;
    bool asked = discovery->refused == 0;
    struct impel_error err;
    char quoted[64];

    /* What could not be asked may have them. */
    for (size_t i = 0; i < choices->count && asked; i++) {
        const struct text_list *groups = &choices->items[i].options->group_names;
        for (size_t j = 0; j < groups->count; j++) {
            struct impel_bytes group = bytes_of(groups->texts[j]);
            bool found = glob_is_pattern(group);
            for (size_t k = 0; k < discovery->list->count && !found; k++) {
                found = bytes_equal(discovery->list->items[k]->sweep.group, group);
            }
            if (!found) {
                (void)error_set(&err, IMPEL_ERR_NOT_FOUND, "none of these streams has a group '%s'",
                                bytes_quote(group, quoted, sizeof(quoted)));
                miss(discovery, &err);
            }
        }
    }
}
