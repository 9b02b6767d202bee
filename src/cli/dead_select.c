/* dead_select.c -- which records are meant, and walking through them. */
#include "base/glob.h"
#include "cli/console.h"
#include "cli/dead.h"
#include "cli/pages.h"

#include <stdio.h>
#include <string.h>

/* ---- which ---- */

static bool has_field(const struct dead_record *record, const struct dead_match *match)
{
    for (size_t i = 0; i < record->field_count; i++) {
        if (bytes_equal(record->fields[i].name, match->name) &&
            glob_matches_text(match->pattern, record->fields[i].value)) {
            return true;
        }
    }
    return false;
}

/* A record that does not say where it came from may be from anywhere. */
static bool from(struct impel_bytes said, struct impel_bytes wanted)
{
    return said.size == 0 || wanted.size == 0 || bytes_equal(said, wanted);
}

static bool is_meant(const struct dead *dead, const struct dead_record *record)
{
    const struct options *options = dead->options;
    int64_t age_ms = sub_saturating(dead->now_ms, record->parked_ms);

    if (options->reason != NULL && !bytes_equal(record->reason, bytes_of(options->reason))) {
        return false;
    }
    if (!from(record->original_group,
              options->group == NULL ? (struct impel_bytes){0} : bytes_of(options->group)) ||
        !from(record->original_stream, dead->stream)) {
        return false;
    }
    if ((options->older_than_ms > 0 && age_ms < options->older_than_ms) ||
        (options->newer_than_ms > 0 && age_ms >= options->newer_than_ms)) {
        return false;
    }
    for (size_t i = 0; i < dead->match_count; i++) {
        if (!has_field(record, &dead->matches[i])) {
            return false;
        }
    }
    return true;
}

bool dead_selects(const struct dead *dead)
{
    const struct options *options = dead->options;

    return dead->id_count > 0 || dead->match_count > 0 || options->reason != NULL ||
           options->group != NULL || options->older_than_ms > 0 || options->newer_than_ms > 0 ||
           !id_is_zero(options->start) || option_given(options, "end");
}

/* ---- the walk ---- */

struct walking {
    const struct dead *dead;
    dead_record_fn *record;
    void *user;
    uint64_t *seen;
    uint64_t met;            /* entries of this walk, records or not */
    uint64_t meant, unmeant; /* records that were passed on, and that were not */
    bool skipped;            /* an entry that is no record was seen */
    struct impel_error *err;
    struct impel_error failure; /* what the record's function said */
};

static int pass(void *user, struct impel_bytes stream, const struct entry *entry)
{
    struct walking *walking = user;
    struct dead_record record;

    (void)stream;
    walking->met++;
    if (walking->seen != NULL) {
        ++*walking->seen;
    }
    if (!dead_record_parse(entry, &record)) {
        walking->skipped = true;
        return 1;
    }
    if (!is_meant(walking->dead, &record)) {
        walking->unmeant++;
        return 1;
    }
    walking->meant++;
    int rc = walking->record(walking->user, &record, &walking->failure);
    return rc < 0 ? rc : 0;
}

static int
walk_range(struct walking *walking, struct impel_id start, struct impel_id end, uint64_t count)
{
    struct pages pages = {
        .store = walking->dead->store,
        .stream = walking->dead->dead_letter,
        .start = start,
        .end = end,
        .count = count,
        .filtered = true,
        .reverse = walking->dead->options->reverse,
        .entry = pass,
        .user = walking,
    };
    int rc = pages_walk(&pages, walking->err);

    if (rc < 0 && walking->failure.status < 0) {
        *walking->err = walking->failure;
    }
    return rc;
}

int dead_look(struct dead *dead, struct impel_error *err)
{
    struct request *info =
        session_request(REQUEST_INFO, dead->dead_letter, (struct impel_bytes){0});
    int rc = session_ask(dead->store, info, err);

    if (rc >= 0) {
        dead->exists = info->info.exists;
        dead->length = info->info.exists ? info->info.length : 0;
        dead->last_id = info->info.exists ? info->info.last_id : ID_MIN;
        dead->now_ms = info->store_now_ms;
    }
    request_free(info);
    return rc;
}

/* Records that were named and are not there. */
enum {
    MISSING_NAMED = 8, /* at most, or the line has no end */
};

struct missing {
    size_t count;
    char ids[MISSING_NAMED * (ID_TEXT_SIZE + 2)];
};

static void note_missing(struct missing *missing, struct impel_id id)
{
    size_t size = strlen(missing->ids);
    char text[ID_TEXT_SIZE];

    if (missing->count++ < MISSING_NAMED) {
        (void)snprintf(missing->ids + size, sizeof(missing->ids) - size, "%s%s",
                       size > 0 ? ", " : "", id_format(id, text));
    }
}

/* What was named and is not meant by the other options, of `--stream` too, is not passed on in silence. */
static void note_unmeant(uint64_t count)
{
    if (count > 0) {
        console_note(
            "%llu of the records that were named %s passed over: the other options mean others",
            (unsigned long long)count, count == 1 ? "was" : "were");
    }
}

/* The records that were named, as far as the other options mean them as well. */
static int walk_named(struct walking *walking, struct impel_id end)
{
    const struct dead *dead = walking->dead;
    struct missing missing = {0};
    char name[100];
    int rc = IMPEL_OK;

    for (size_t i = 0; rc >= 0 && i < dead->id_count; i++) {
        struct impel_id id = dead->ids[dead->options->reverse ? dead->id_count - 1 - i : i];
        if (id_compare(id, dead->options->start) < 0 || id_compare(id, end) > 0 ||
            (dead->limit > 0 && walking->meant == dead->limit)) {
            walking->unmeant++;
            continue;
        }
        walking->met = 0;
        rc = walk_range(walking, id, id, 1);
        if (rc >= 0 && walking->met == 0) {
            note_missing(&missing, id);
        }
    }
    if (rc >= 0) {
        note_unmeant(walking->unmeant);
    }
    if (rc >= 0 && missing.count > 0) {
        rc = error_set(walking->err, IMPEL_ERR_NOT_FOUND, "there is no record %s%s in '%s'",
                       missing.ids, missing.count > MISSING_NAMED ? " and others" : "",
                       bytes_quote(dead->dead_letter, name, sizeof(name)));
    }
    return rc;
}

int dead_walk(
    struct dead *dead, dead_record_fn *record, void *user, uint64_t *seen, struct impel_error *err)
{
    struct walking walking = {
        .dead = dead, .record = record, .user = user, .seen = seen, .err = err};
    struct impel_id end = option_given(dead->options, "end") ? dead->options->end : ID_MAX;
    int rc = IMPEL_OK;

    if (dead->id_count > 0) {
        rc = walk_named(&walking, end);
    } else if (dead->exists) {
        end = id_compare(end, dead->last_id) > 0 ? dead->last_id : end;
        rc = walk_range(&walking, dead->options->start, end, dead->limit);
    }
    if (rc >= 0 && walking.skipped) {
        console_note(
            "some entries of this stream are no records of dead letters and were passed over");
    }
    return rc;
}
