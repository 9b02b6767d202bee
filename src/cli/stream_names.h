/* stream_names.h -- which streams and groups are meant: lists of names and patterns, and the scan
 * that finds what there is.
 *
 * A name in which one of `*?[` stands is a pattern (base/glob.h). Patterns never mean what is no
 * work: Impel's own keys, dead-letter streams and the audits beside them. Whoever wants these names
 * them. */
#ifndef IMPEL_CLI_STREAM_NAMES_H
#define IMPEL_CLI_STREAM_NAMES_H

#include "base/value.h"
#include "cli/session.h"

enum name_match {
    NAME_OTHER,
    NAME_PATTERN, /* a pattern of the list matches it */
    NAME_GIVEN,   /* it stands in the list */
};

/* How a list of names and patterns means a name. */
enum name_match names_match(const struct text_list *list, struct impel_bytes name);
bool names_have_pattern(const struct text_list *list);
/* True if a stream is not for patterns. `dead_letter` (may be NULL) is what --dead-letter says. */
bool stream_is_set_aside(struct impel_bytes name, const char *dead_letter);

/* ---- the scan ---- */

/* All streams of a store, a bounded step at a time. A name may come twice. What was there all the
 * time is found. On servers before Redis 6.0, which cannot tell streams from the rest, all keys. */
struct stream_scan {
    const char *pattern; /* NULL = all; only what it matches is answered */
    bool untyped;        /* the server cannot tell streams from the rest */
    bool over;           /* the last step was taken */
    char cursor[32];
};

void stream_scan_init(struct stream_scan *scan, const char *pattern);
/* The request of the next step, to be asked and freed; NULL if memory is out. */
struct request *stream_scan_next(const struct stream_scan *scan);
/* Takes its answer: `names` lives as long as the request. */
int stream_scan_done(struct stream_scan *scan,
                     const struct request *request,
                     const struct value **names,
                     size_t *count,
                     struct impel_error *err);

/* Names in an arena, sorted. */
struct stream_names {
    struct arena *arena;
    struct impel_bytes *items;
    size_t count, capacity;
};

/* The streams of a list of names and patterns: those that are named, whether they are there or not,
 * in the order of the list; then those of the patterns, sorted, each once. An empty list means all
 * streams, also those that are set aside. */
int stream_names_find(struct stream_names *names,
                      struct store *store,
                      const struct text_list *list,
                      const char *dead_letter,
                      struct impel_error *err);

#endif /* IMPEL_CLI_STREAM_NAMES_H */
