/* entries.c -- adding entries and reading them back. */
#include "lib/store_state.h"

#include <stdlib.h>

enum {
    BATCH_MAX = 1000,                  /* entries submitted at once: one write of the store */
    BATCH_SIZE_MAX = 16 * 1024 * 1024, /* and their bytes */
    RANGE_COUNT = 100,                 /* entries of a range whose count is not given */
};

/* ---- adding ---- */

static int no_memory(struct impel_error *err)
{
    return error_set(err, IMPEL_ERR_NOMEM, "no memory for the entries");
}

/* A copy of everything in the request: it may outlive the caller's patience. NULL if memory is out.
 */
static struct request *make_add(struct impel_bytes stream, const struct impel_new_entry *entry)
{
    struct request *request = request_new(REQUEST_ADD);
    if (request == NULL) {
        return NULL;
    }
    struct impel_field *fields = arena_calloc(&request->arena, entry->field_count, sizeof *fields);
    bool ok = fields != NULL && arena_copy(&request->arena, stream, &request->stream);
    for (size_t i = 0; i < entry->field_count && ok; i++) {
        ok = arena_copy(&request->arena, entry->fields[i].name, &fields[i].name) &&
             arena_copy(&request->arena, entry->fields[i].value, &fields[i].value);
    }
    if (!ok) {
        request_free(request);
        return NULL;
    }
    request->add.id = entry->id;
    request->add.fields = fields;
    request->add.field_count = entry->field_count;
    request->add.length_max = -1;
    return request;
}

static size_t size_of(const struct impel_new_entry *entry)
{
    size_t size = 0;
    for (size_t i = 0; i < entry->field_count; i++) {
        size += entry->fields[i].name.size + entry->fields[i].value.size;
    }
    return size;
}

/* What became of a batch so far. */
struct tally {
    int64_t added;
    int status; /* of the first that was not; IMPEL_OK = none */
    struct impel_error error;
};

static void note_failure(struct tally *tally, const struct impel_error *error, int status)
{
    if (tally->status == IMPEL_OK) {
        tally->status = status;
        tally->error = *error;
        tally->error.status = status;
    }
}

/* Takes the answer out of a request, and frees it. */
static void take_answer(struct impel_store *store,
                        struct request *request,
                        struct impel_new_entry *entry,
                        struct tally *tally)
{
    entry->id = (struct impel_id){0, 0};
    if (request == NULL) {
        struct impel_error error;
        note_failure(tally, &error, store_timed_out(store, &error));
        return;
    }
    if (request->status < 0) {
        note_failure(tally, &request->error, request->status);
    } else {
        entry->id = request->add.id;
        tally->added++;
    }
    request_free(request);
}

/* Adds as many as go into one write; returns how many that was: 0 = memory is out. */
static size_t add_some(struct impel_store *store,
                       struct impel_bytes stream,
                       struct impel_new_entry *entries,
                       size_t count,
                       struct tally *tally)
{
    struct request *requests[BATCH_MAX];
    size_t made = 0, size = 0;
    while (made < count && made < BATCH_MAX && (made == 0 || size < BATCH_SIZE_MAX)) {
        requests[made] = make_add(stream, &entries[made]);
        if (requests[made] == NULL) {
            break;
        }
        size += size_of(&entries[made]);
        made++;
    }
    if (made > 0) {
        store_call_all(store, requests, made);
    }
    for (size_t i = 0; i < made; i++) {
        take_answer(store, requests[i], &entries[i], tally);
    }
    return made;
}

int64_t impel_add_batch(struct impel_store *store,
                        struct impel_bytes stream,
                        struct impel_new_entry *entries,
                        size_t count,
                        struct impel_error *err)
{
    struct tally tally = {0};
    for (size_t i = 0; i < count; i++) {
        if (entries[i].field_count == 0) {
            return error_set(err, IMPEL_ERR_INVALID, "entry %zu of the batch has no field", i);
        }
    }
    for (size_t done = 0; done < count;) {
        size_t some = add_some(store, stream, entries + done, count - done, &tally);
        done += some;
        if (some == 0) {
            struct impel_error error;
            note_failure(&tally, &error, no_memory(&error));
        }
        if (some == 0 || tally.status == IMPEL_ERR_TIMEOUT) {
            for (; done < count; done++) {
                entries[done].id = (struct impel_id){0, 0};
            }
        }
    }
    if (tally.status < 0 && err != NULL) {
        *err = tally.error;
    }
    return tally.added == 0 && tally.status < 0 ? tally.status : tally.added;
}

int impel_add(struct impel_store *store,
              struct impel_bytes stream,
              const struct impel_field *fields,
              size_t field_count,
              struct impel_id *id,
              struct impel_error *err)
{
    struct impel_new_entry entry = {.fields = fields, .field_count = field_count};
    if (field_count == 0) {
        return error_set(err, IMPEL_ERR_INVALID, "an entry needs at least one field");
    }
    int64_t added = impel_add_batch(store, stream, &entry, 1, err);
    if (added > 0 && id != NULL) {
        *id = entry.id;
    }
    return added > 0 ? IMPEL_OK : (int)added;
}

/* ---- reading ---- */

struct impel_range {
    struct request *request; /* NULL = nothing was asked, there is nothing */
};

static struct request *make_range(struct impel_bytes stream,
                                  const struct impel_range_options *options)
{
    struct request *request = request_new(REQUEST_RANGE);
    if (request == NULL || !arena_copy(&request->arena, stream, &request->stream)) {
        request_free(request);
        return NULL;
    }
    request->range.start = options->first;
    request->range.end = id_is_zero(options->last) ? ID_MAX : options->last;
    request->range.count = options->count > 0 ? options->count : RANGE_COUNT;
    request->range.reverse = options->reverse != 0;
    return request;
}

int impel_read(struct impel_store *store,
               struct impel_bytes stream,
               const struct impel_range_options *options,
               struct impel_range **out,
               struct impel_error *err)
{
    static const struct impel_range_options all = {0};
    *out = NULL;
    options = options != NULL ? options : &all;
    for (size_t i = 0; i < ARRAY_SIZE(options->reserved); i++) {
        if (options->reserved[i] != 0) {
            return error_set(err, IMPEL_ERR_INVALID, "the options of a range are not zeroed");
        }
    }
    struct impel_range *range = calloc(1, sizeof *range);
    if (range == NULL) {
        return no_memory(err);
    }
    if (id_is_zero(options->last) || id_compare(options->first, options->last) <= 0) {
        range->request = make_range(stream, options);
        int rc = range->request != NULL ? store_call(store, &range->request, err) : no_memory(err);
        if (rc < 0) {
            impel_range_free(range);
            return rc;
        }
    }
    *out = range;
    return IMPEL_OK;
}

size_t impel_range_count(const struct impel_range *range)
{
    return range->request != NULL ? range->request->range.entry_count : 0;
}

struct impel_id impel_range_id(const struct impel_range *range, size_t index)
{
    ASSERT(index < impel_range_count(range));
    return range->request->range.entries[index]->id;
}

const struct impel_field *
impel_range_fields(const struct impel_range *range, size_t index, size_t *field_count)
{
    ASSERT(index < impel_range_count(range));
    const struct entry *entry = range->request->range.entries[index];
    if (field_count != NULL) {
        *field_count = entry->field_count;
    }
    return entry->fields;
}

void impel_range_free(struct impel_range *range)
{
    if (range != NULL) {
        request_free(range->request);
        free(range);
    }
}
