/* top.h -- what `impel top` shows, apart from how: rows made of two gatherings of status, sorted,
 * filtered, and written as lines of a given width. The screen (command_top.c) and --once share it. */
#ifndef IMPEL_CLI_TOP_H
#define IMPEL_CLI_TOP_H

#include "cli/console.h"
#include "cli/status.h"

enum {
    TOP_TEXT_MAX = 128, /* of the filter */
};

enum top_sort {
    TOP_BY_HEALTH, /* the worst first: what an operator wants to see */
    TOP_BY_NAME,
    TOP_BY_UNREAD,
    TOP_BY_PENDING,
    TOP_BY_DONE,
    TOP_BY_OLDEST,
    TOP_BY_PARKED,
    TOP_SORTS,
};

/* One group. Rates are per second; below 0 = not known yet. */
struct top_row {
    const struct status_stream *stream;
    const struct status_group *group;
    double added_rate;
    double done_rate; /* acknowledged or parked */
};

struct top {
    struct status now, before;
    int64_t now_ms, before_ms; /* when they were gathered; 0 = never */
    struct top_row *rows;      /* of `now`, sorted and filtered */
    size_t row_count, row_room;
    enum top_sort sort;
    bool reverse;
    char filter[TOP_TEXT_MAX]; /* only rows whose stream or group contains it */
    struct impel_bytes chosen_stream, chosen_group; /* data NULL: nobody has chosen yet */
    struct arena names;                             /* of these two */
    size_t chosen_at;                               /* its row */
    char error[400];                                /* why the last gathering failed; "" */
};

void top_release(struct top *top);
/* Gathers anew; on failure the old numbers stay, and `error` says why. False then. */
bool top_gather(struct top *top, struct store *store, const struct options *options);
/* Makes the rows anew: after a gathering, and when sort or filter have changed. False if memory is
 * out. */
bool top_arrange(struct top *top);
/* Moves the choice by so many rows. */
void top_move(struct top *top, long by);

/* A line of text for a terminal, to be cut to its width; `style` is for all of it. */
struct top_line {
    char text[512];
    enum console_style style;
};
void top_summary(const struct top *top, struct top_line *line);
void top_heading(const struct top *top, struct top_line *line);
void top_row_line(const struct top_row *row, struct top_line *line);
/* Of a worker of the chosen group. */
void top_worker_line(const struct status_worker *worker, struct top_line *line);
const char *top_sort_name(enum top_sort sort);
/* How many columns the text takes, and where it must end to take at most so many. */
size_t top_width(const char *text);
size_t top_cut(const char *text, size_t columns);

#endif /* IMPEL_CLI_TOP_H */
