/* metrics.h -- the counters of a worker, by stream, and their Prometheus text.
 *
 * Fed on the worker's own thread; read from any (each number by itself is exact, two of them may be
 * an instant apart). */
#ifndef IMPEL_OBSERVE_METRICS_H
#define IMPEL_OBSERVE_METRICS_H

#include "core/worker.h"
#include "impel/metrics.h"

struct metrics;

/* The names are copied. NULL if memory is out. */
struct metrics *
metrics_new(const struct impel_bytes *streams, size_t stream_count, struct impel_bytes group);
void metrics_free(struct metrics *metrics); /* NULL is fine */
void metrics_note(struct metrics *metrics, const struct worker_event *event);
void metrics_set_held(struct metrics *metrics, size_t stream_index, uint64_t held);
/* At the end: nothing is held, and nothing seen. */
void metrics_rest(struct metrics *metrics);
/* The sums over all streams. */
void metrics_sum(const struct metrics *metrics, struct impel_metrics *out);
/* The text of `metrics` goes on with that of `next`: several groups in one file, whose form wants all
 * series of a name together. `next` (NULL: none; and what follows it) must outlive every use. */
void metrics_link(struct metrics *metrics, const struct metrics *next);
/* The exposition format, version 0.0.4; of NULL without any series. Names that are not UTF-8 are
 * written with \xHH. */
void metrics_text(const struct metrics *metrics, struct buf *buf);
/* Writes the text to a file beside `path` and renames it over it: a reader sees the old or the new,
 * never half. Blocks for as long as a small write does. */
int metrics_write(const struct metrics *metrics, const char *path, struct impel_error *err);

#endif /* IMPEL_OBSERVE_METRICS_H */
