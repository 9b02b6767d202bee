/* stream_names.c -- matching names, and SCAN. */
#include "cli/stream_names.h"

#include "base/glob.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
}

/* ---- matching ---- */

enum name_match names_match(const struct text_list *list, struct impel_bytes name)
{
    enum name_match match = NAME_OTHER;

    for (size_t i = 0; i < list->count; i++) {
        struct impel_bytes wanted = bytes_of(list->texts[i]);
        bool pattern = glob_is_pattern(wanted);
        if (!pattern && bytes_equal(wanted, name)) {
            return NAME_GIVEN;
        }
        if (pattern && match == NAME_OTHER && glob_matches(wanted, name)) {
            match = NAME_PATTERN;
        }
    }
    return match;
}

bool names_have_pattern(const struct text_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (glob_is_pattern(bytes_of(list->texts[i]))) {
            return true;
        }
    }
    return false;
}

static bool ends_with(struct impel_bytes name, const char *suffix)
{
    size_t size = strlen(suffix);

    return name.size >= size &&
           memcmp((const char *)name.data + name.size - size, suffix, size) == 0;
}

bool stream_is_set_aside(struct impel_bytes name, const char *dead_letter)
{
    static const char own[] = "impel:{", audit[] = ":audit";
    struct impel_bytes parent = name;

    if (name.size >= sizeof(own) - 1 && memcmp(name.data, own, sizeof(own) - 1) == 0) {
        return true;
    }
    if (ends_with(name, audit)) {
        parent.size -= sizeof(audit) - 1;
    }
    return ends_with(parent, ":dead") ||
           (dead_letter != NULL && bytes_equal(parent, bytes_of(dead_letter)));
}

/* ---- the scan ---- */

void stream_scan_init(struct stream_scan *scan, const char *pattern)
{
    *scan = (struct stream_scan){.pattern = pattern, .cursor = "0"};
}

struct request *stream_scan_next(const struct stream_scan *scan)
{
    struct request *request = request_new(REQUEST_CALL);
    struct impel_bytes *args =
        request == NULL ? NULL : arena_calloc(&request->arena, 8, sizeof(*args));
    size_t count = 0;

    if (args == NULL || !arena_copy(&request->arena, bytes_of(scan->cursor), &args[1])) {
        request_free(request);
        return NULL;
    }
    args[count] = bytes_of("SCAN");
    count += 2;
    args[count++] = bytes_of("COUNT");
    args[count++] = bytes_of("1000");
    if (scan->pattern != NULL) {
        args[count++] = bytes_of("MATCH");
        args[count++] = bytes_of(scan->pattern);
    }
    if (!scan->untyped) {
        args[count++] = bytes_of("TYPE");
        args[count++] = bytes_of("stream");
    }
    request->call.args = args;
    request->call.arg_count = count;
    return request;
}

int stream_scan_done(struct stream_scan *scan,
                     const struct request *request,
                     const struct value **names,
                     size_t *count,
                     struct impel_error *err)
{
    const struct value *reply = request->call.reply;

    *count = 0;
    if (reply->kind == VALUE_ERROR && !scan->untyped) {
        stream_scan_init(scan, scan->pattern);
        scan->untyped = true;
        return IMPEL_OK;
    }
    if (reply->kind == VALUE_ERROR) {
        size_t size = reply->bytes.size > 300 ? 300 : reply->bytes.size;
        return error_set(err, IMPEL_ERR_REPLY, "%.*s", (int)size, (const char *)reply->bytes.data);
    }
    if (reply->item_count != 2 || reply->items[0].bytes.size >= sizeof(scan->cursor)) {
        return error_set(err, IMPEL_ERR_PROTOCOL, "SCAN was answered with something else");
    }
    memset(scan->cursor, 0, sizeof(scan->cursor));
    memcpy(scan->cursor, reply->items[0].bytes.data, reply->items[0].bytes.size);
    scan->over = strcmp(scan->cursor, "0") == 0;
    *names = reply->items[1].items;
    *count = reply->items[1].item_count;
    return IMPEL_OK;
}

/* ---- all at once ---- */

static bool add_name(struct stream_names *names, struct impel_bytes name)
{
    if (names->count == names->capacity) {
        size_t capacity = names->capacity == 0 ? 64 : names->capacity * 2;
        struct impel_bytes *items = arena_calloc(names->arena, capacity, sizeof(*items));
        if (items == NULL) {
            return false;
        }
        if (names->count > 0) {
            memcpy(items, names->items, names->count * sizeof(*items));
        }
        names->items = items;
        names->capacity = capacity;
    }
    return arena_copy(names->arena, name, &names->items[names->count++]);
}

static int compare_names(const void *a, const void *b)
{
    return bytes_compare(*(const struct impel_bytes *)a, *(const struct impel_bytes *)b);
}

/* Sorts what was found from `first` on, and drops what stands there twice. */
static void sort_names(struct stream_names *names, size_t first)
{
    size_t kept = first;

    if (names->count > first) {
        qsort(&names->items[first], names->count - first, sizeof(*names->items), compare_names);
    }
    for (size_t i = first; i < names->count; i++) {
        if (kept == first || !bytes_equal(names->items[kept - 1], names->items[i])) {
            names->items[kept++] = names->items[i];
        }
    }
    names->count = kept;
}

static int scan_all(struct stream_names *names,
                    struct store *store,
                    const struct text_list *list,
                    const char *dead_letter,
                    struct impel_error *err)
{
    struct stream_scan scan;
    int rc = IMPEL_OK;

    stream_scan_init(&scan, list->count == 1 ? list->texts[0] : NULL);
    while (rc >= 0 && !scan.over) {
        struct request *request = stream_scan_next(&scan);
        const struct value *found = NULL;
        size_t count = 0;
        rc = session_ask(store, request, err);
        rc = rc < 0 ? rc : stream_scan_done(&scan, request, &found, &count, err);
        for (size_t i = 0; rc >= 0 && i < count; i++) {
            struct impel_bytes name = found[i].bytes;
            bool wanted = list->count == 0 || (names_match(list, name) == NAME_PATTERN &&
                                               !stream_is_set_aside(name, dead_letter));
            rc = wanted && !add_name(names, name) ? no_memory(err) : IMPEL_OK;
        }
        request_free(request);
    }
    return rc;
}

int stream_names_find(struct stream_names *names,
                      struct store *store,
                      const struct text_list *list,
                      const char *dead_letter,
                      struct impel_error *err)
{
    bool scans = list->count == 0 || names_have_pattern(list);
    int rc = IMPEL_OK;

    for (size_t i = 0; i < list->count; i++) {
        struct impel_bytes name = bytes_of(list->texts[i]);
        if (!glob_is_pattern(name) && !add_name(names, name)) {
            return no_memory(err);
        }
    }
    size_t given = names->count;
    if (scans) {
        rc = scan_all(names, store, list, dead_letter, err);
        sort_names(names, given);
    }
    return rc;
}
