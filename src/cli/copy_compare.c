/* copy_compare.c -- are two streams the same? Both are read side by side, so nothing of them is kept
 * and the first difference has a name. */
#include "cli/copy.h"

#include <stdio.h>

enum {
    CLOCKS_MS =
        1000, /* how far times of two servers may differ, beside the difference of their clocks */
};

static int differ(const struct copy_work *work, struct impel_error *err, const char *what)
{
    char stream[96];

    return error_set(err, IMPEL_ERR_EXISTS, "stream '%s' differs from its source: %s",
                     bytes_quote(work->stream, stream, sizeof(stream)), what);
}

static bool same_fields(const struct entry *a, const struct entry *b)
{
    if (a->field_count != b->field_count) {
        return false;
    }
    for (size_t i = 0; i < a->field_count; i++) {
        if (!bytes_equal(a->fields[i].name, b->fields[i].name) ||
            !bytes_equal(a->fields[i].value, b->fields[i].value)) {
            return false;
        }
    }
    return true;
}

static int
compare_entries(struct copy_work *work, struct impel_bytes other, struct impel_error *err)
{
    struct copy_entries right = {.store = work->to, .stream = other, .until = ID_MAX};
    struct copy_entries left = {
        .store = work->from, .stream = work->stream, .until = ID_MAX, .beside = &right};
    const struct entry *a = NULL;
    const struct entry *b = NULL;
    char what[128], id[ID_TEXT_SIZE];
    int rc;

    do {
        int more = copy_next_entry(&right, &b, err);
        rc = more < 0 ? more : copy_next_entry(&left, &a, err);
        if (rc >= 0 &&
            (rc != more || (rc > 0 && (!id_equal(a->id, b->id) || !same_fields(a, b))))) {
            struct impel_id first = rc == 0 ? b->id : a->id;
            snprintf(what, sizeof(what), "entry %s", id_format(first, id));
            rc = differ(work, err, what);
        }
        copy_went_on(work);
    } while (rc > 0);
    copy_entries_end(&left);
    copy_entries_end(&right);
    return rc;
}

/* A server tells counts above 2^53 through a script's doubles: only nearly. */
static bool same_deliveries(int64_t a, int64_t b)
{
    return a > b ? a - b <= a >> 53 : b - a <= b >> 53;
}

/* A time that the target's clock had not reached yet was set to its now. */
static bool same_row(const struct copy_row *a, const struct copy_row *b)
{
    int64_t clocks_ms = sub_saturating(a->now_ms, b->now_ms);
    int64_t apart_ms = sub_saturating(a->delivered_ms, b->delivered_ms);
    int64_t most_ms = CLOCKS_MS + (clocks_ms < 0 ? -clocks_ms : clocks_ms);

    return id_equal(a->id, b->id) && bytes_equal(a->owner, b->owner) &&
           same_deliveries(a->deliveries, b->deliveries) &&
           (a->nobodys || (apart_ms <= most_ms && apart_ms >= -most_ms));
}

static int compare_pending(struct copy_work *work,
                           struct impel_bytes other,
                           struct impel_bytes group,
                           struct impel_error *err)
{
    struct copy_pending left = {.store = work->from, .stream = work->stream, .group = group};
    struct copy_pending right = {.store = work->to, .stream = other, .group = group};
    struct copy_row a;
    struct copy_row b;
    char what[192], id[ID_TEXT_SIZE], name[96];
    int rc;

    do {
        int more = copy_next_row(&right, &b, err);
        rc = more < 0 ? more : copy_next_row(&left, &a, err);
        if (rc >= 0 && (rc != more || (rc > 0 && !same_row(&a, &b)))) {
            snprintf(what, sizeof(what), "pending entry %s of group '%s'",
                     id_format(rc == 0 ? b.id : a.id, id), bytes_quote(group, name, sizeof(name)));
            rc = differ(work, err, what);
        }
        copy_went_on(work);
    } while (rc > 0);
    copy_pending_end(&left);
    copy_pending_end(&right);
    return rc;
}

static bool same_consumers(const struct copy_group *a, const struct copy_group *b)
{
    for (size_t i = 0; i < a->consumer_count; i++) {
        if (!bytes_equal(a->consumers[i], b->consumers[i])) {
            return false;
        }
    }
    return true;
}

/* Servers before 7.0 neither say what is compared of a group here nor take it. */
static int compare_groups(const struct copy_work *work,
                          const struct copy_state *target,
                          struct impel_error *err)
{
    const struct copy_state *source = work->source;
    bool all = source->counts && target->counts;
    char what[192], name[96];

    for (size_t i = 0; i < source->group_count; i++) {
        const struct copy_group *a = &source->groups[i];
        const struct copy_group *b = &target->groups[i];
        const char *of = NULL;
        if (!bytes_equal(a->name, b->name)) {
            of = "name";
        } else if (!id_equal(a->last_id, b->last_id)) {
            of = "last delivered ID";
        } else if (all && a->entries_read != b->entries_read) {
            of = "count of entries read";
        } else if (a->pending != b->pending) {
            of = "number of pending entries";
        } else if (all && (a->consumer_count != b->consumer_count || !same_consumers(a, b))) {
            of = "consumers";
        }
        if (of != NULL) {
            snprintf(what, sizeof(what), "the %s of group '%s'", of,
                     bytes_quote(a->name, name, sizeof(name)));
            return differ(work, err, what);
        }
    }
    return IMPEL_OK;
}

static int compare_heads(const struct copy_work *work,
                         const struct copy_state *target,
                         struct impel_error *err)
{
    const struct copy_state *source = work->source;
    bool all = source->counts && target->counts;

    if (source->length != target->length) {
        return differ(work, err, "the number of entries");
    }
    if (!id_equal(source->last_id, target->last_id)) {
        return differ(work, err, "the last ID");
    }
    if (all && source->entries_added != target->entries_added) {
        return differ(work, err, "the number of entries added");
    }
    if (all && !id_equal(source->max_deleted_id, target->max_deleted_id)) {
        return differ(work, err, "the largest deleted ID");
    }
    if ((source->ttl_ms < 0) != (target->ttl_ms < 0)) {
        return differ(work, err, "whether it expires");
    }
    if (copy_state_idempotent(source) && target->idmp_duration_s >= 0 &&
        (source->idmp_duration_s != target->idmp_duration_s ||
         source->idmp_iids_max != target->idmp_iids_max)) {
        return differ(work, err, "how it keeps the IDs of idempotent adds");
    }
    if (source->group_count != target->group_count) {
        return differ(work, err, "the number of groups");
    }
    return compare_groups(work, target, err);
}

int copy_compare_heads(const struct copy_work *work,
                       struct impel_bytes other,
                       struct impel_error *err)
{
    struct copy_state target;
    int rc = copy_state_read(work->to, other, &target, err);

    if (rc >= 0) {
        rc = target.exists ? compare_heads(work, &target, err) : differ(work, err, "it is gone");
    }
    copy_state_release(&target);
    return rc;
}

int copy_compare(const struct copy_work *work, struct impel_bytes other, struct impel_error *err)
{
    struct copy_work walk = *work;
    int rc = copy_compare_heads(work, other, err);

    rc = rc < 0 ? rc : compare_entries(&walk, other, err);
    for (size_t i = 0; rc >= 0 && i < work->source->group_count; i++) {
        rc = compare_pending(&walk, other, work->source->groups[i].name, err);
    }
    return rc;
}
