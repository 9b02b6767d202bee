/* top.c -- from two gatherings to rows with rates, and from rows to lines. Nothing here knows of a
 * terminal. */
#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum {
    STREAM_COLUMNS = 15,
    GROUP_COLUMNS = 12,
    HEALTH_COLUMNS = 10,
};

void top_release(struct top *top)
{
    status_release(&top->now);
    status_release(&top->before);
    free(top->rows);
    arena_release(&top->names);
    *top = (struct top){0};
}

/* ---- gathering ---- */

bool top_gather(struct top *top, struct store *store, const struct options *options)
{
    struct status fresh = {.previous = top->now_ms > 0 ? &top->now : NULL};
    struct impel_error err = {0};

    if (status_gather(&fresh, store, options, &err) < 0) {
        (void)snprintf(top->error, sizeof(top->error), "%s", err.text);
        status_release(&fresh);
        return false;
    }
    fresh.previous = NULL;
    top->error[0] = '\0';
    status_release(&top->before);
    top->before = top->now;
    top->before_ms = top->now_ms;
    top->now = fresh;
    top->now_ms = clock_now_ms();
    return true;
}

/* ---- rates ---- */

static const struct status_group *
find_before(const struct top *top, const struct top_row *row, const struct status_stream **stream)
{
    for (size_t i = 0; i < top->before.stream_count; i++) {
        *stream = &top->before.streams[i];
        if (!bytes_equal((*stream)->name, row->stream->name)) {
            continue;
        }
        for (size_t j = 0; j < (*stream)->group_count; j++) {
            if (bytes_equal((*stream)->groups[j].name, row->group->name)) {
                return &(*stream)->groups[j];
            }
        }
    }
    return NULL;
}

/* How many entries a group has ever finished with; -1 = unknown. Only differences of it mean
 * anything. */
static int64_t finished(const struct status_stream *stream, const struct status_group *group)
{
    if (group->lag < 0) {
        return -1;
    }
    return (int64_t)stream->entries_added - group->lag - (int64_t)group->pending;
}

static double rate(int64_t from, int64_t to, int64_t ms)
{
    return from < 0 || to < from ? 0 : (double)(to - from) * 1000 / (double)ms;
}

static void find_rates(const struct top *top, struct top_row *row)
{
    const struct status_stream *stream = NULL;
    const struct status_group *group = NULL;
    int64_t ms = top->now_ms - top->before_ms;

    row->added_rate = row->done_rate = -1;
    if (top->before_ms > 0 && ms > 0) {
        group = find_before(top, row, &stream);
    }
    if (group != NULL) {
        row->added_rate =
            rate((int64_t)stream->entries_added, (int64_t)row->stream->entries_added, ms);
        row->done_rate = rate(finished(stream, group), finished(row->stream, row->group), ms);
    }
}

/* ---- sorting and filtering ---- */

static bool contains(struct impel_bytes name, const char *text)
{
    return text[0] == '\0' ||
           (name.size > 0 && memmem(name.data, name.size, text, strlen(text)) != NULL);
}

static int compare_numbers(double a, double b)
{
    return a < b ? -1 : a > b;
}

static int compare_names(const struct top_row *a, const struct top_row *b)
{
    int order = bytes_compare(a->stream->name, b->stream->name);
    return order != 0 ? order : bytes_compare(a->group->name, b->group->name);
}

/* The larger number first; the same numbers by name. */
static int compare_rows(const void *left, const void *right, void *user)
{
    const struct top_row *a = left;
    const struct top_row *b = right;
    const struct top *top = user;
    double numbers[2] = {0, 0};
    int order = 0;

    for (int i = 0; i < 2; i++) {
        const struct top_row *row = i == 0 ? a : b;
        const double by[TOP_SORTS] = {
            [TOP_BY_HEALTH] = (double)row->group->health,
            [TOP_BY_UNREAD] = (double)row->group->lag,
            [TOP_BY_PENDING] = (double)row->group->pending,
            [TOP_BY_DONE] = row->done_rate,
            [TOP_BY_OLDEST] = (double)row->group->oldest_idle_ms,
            [TOP_BY_PARKED] = (double)row->group->parked,
        };
        numbers[i] = by[top->sort];
    }
    order = compare_numbers(numbers[1], numbers[0]);
    order = order != 0 ? order : compare_names(a, b);
    return top->reverse ? -order : order;
}

/* The choice stays with its group wherever that goes. */
static void find_chosen(struct top *top)
{
    size_t last = top->row_count == 0 ? 0 : top->row_count - 1;

    for (size_t i = 0; top->chosen_stream.data != NULL && i < top->row_count; i++) {
        if (bytes_equal(top->rows[i].stream->name, top->chosen_stream) &&
            bytes_equal(top->rows[i].group->name, top->chosen_group)) {
            top->chosen_at = i;
            return;
        }
    }
    top->chosen_at = top->chosen_at < last ? top->chosen_at : last;
}

/* A row more, unless the filter leaves it out. False if memory is out. */
static bool
add_row(struct top *top, const struct status_stream *stream, const struct status_group *group)
{
    struct top_row row = {.stream = stream, .group = group};

    if (!contains(stream->name, top->filter) && !contains(group->name, top->filter)) {
        return true;
    }
    if (top->row_count == top->row_room) {
        size_t room = top->row_room == 0 ? 64 : top->row_room * 2;
        struct top_row *rows = realloc(top->rows, room * sizeof(*rows));
        if (rows == NULL) {
            return false;
        }
        top->rows = rows;
        top->row_room = room;
    }
    find_rates(top, &row);
    top->rows[top->row_count++] = row;
    return true;
}

bool top_arrange(struct top *top)
{
    bool kept = true;

    top->row_count = 0;
    for (size_t i = 0; i < top->now.stream_count; i++) {
        const struct status_stream *stream = &top->now.streams[i];
        for (size_t j = 0; kept && j < stream->group_count; j++) {
            kept = add_row(top, stream, &stream->groups[j]);
        }
    }
    if (top->row_count > 0) {
        qsort_r(top->rows, top->row_count, sizeof(*top->rows), compare_rows, top);
    }
    find_chosen(top);
    return kept;
}

void top_move(struct top *top, long by)
{
    long at = (long)top->chosen_at + by;
    long last = (long)top->row_count - 1;

    if (top->row_count == 0) {
        return;
    }
    at = at < 0 ? 0 : at > last ? last : at;
    top->chosen_at = (size_t)at;
    /* Where memory is out, the choice stays with its line instead. */
    arena_release(&top->names);
    if (!arena_copy(&top->names, top->rows[at].stream->name, &top->chosen_stream) ||
        !arena_copy(&top->names, top->rows[at].group->name, &top->chosen_group)) {
        top->chosen_stream = (struct impel_bytes){0};
    }
}

/* ---- columns ---- */

static bool begins_character(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

size_t top_width(const char *text)
{
    size_t columns = 0;

    for (; *text != '\0'; text++) {
        columns += begins_character(*text);
    }
    return columns;
}

size_t top_cut(const char *text, size_t columns)
{
    size_t at = 0;

    for (; text[at] != '\0'; at++) {
        if (begins_character(text[at]) && columns-- == 0) {
            break;
        }
    }
    return at;
}

/* The name as it is, if the terminal can show it with a column for each character; else quoted. */
static void show_name(struct impel_bytes name, char *out, size_t size)
{
    const char *text = name.data;
    mbstate_t state = {0};
    size_t at = 0;

    while (at < name.size) {
        wchar_t wide;
        size_t used = mbrtowc(&wide, text + at, name.size - at, &state);
        if (used == 0 || used > name.size - at || wcwidth(wide) != 1) {
            break;
        }
        at += used;
    }
    if (at < name.size || name.size >= size) {
        (void)bytes_quote(name, out, size);
    } else {
        (void)snprintf(out, size, "%.*s", (int)name.size, name.size > 0 ? text : "");
    }
}

/* A name in so many columns, its end cut off for a "~" where it is too long. */
static const char *name_column(struct impel_bytes name, size_t columns, char *out, size_t size)
{
    char quoted[256];
    size_t width, at;

    show_name(name, quoted, sizeof(quoted));
    width = top_width(quoted);
    at = top_cut(quoted, width > columns ? columns - 1 : columns);
    (void)snprintf(out, size, "%.*s%s%*s", (int)at, quoted, width > columns ? "~" : "",
                   width < columns ? (int)(columns - width) : 0, "");
    return out;
}

/* A count in at most 6 columns: 12345, 1.2M. */
static const char *count_text(int64_t count, char *out, size_t size)
{
    static const char units[] = "kMGTP";
    double number = (double)count;
    size_t unit = 0;

    if (count < 0) {
        (void)snprintf(out, size, "?");
    } else if (count < 100000) {
        (void)snprintf(out, size, "%lld", (long long)count);
    } else {
        for (number /= 1000; number >= 999.5 && unit < sizeof(units) - 2; unit++) {
            number /= 1000;
        }
        (void)snprintf(out, size, number < 99.5 ? "%.1f%c" : "%.0f%c", number, units[unit]);
    }
    return out;
}

static const char *rate_text(double rate, char *out, size_t size)
{
    if (rate < 0) {
        (void)snprintf(out, size, "-");
    } else if (rate < 99.95) {
        (void)snprintf(out, size, rate == 0 ? "0" : "%.1f", rate);
    } else {
        (void)count_text((int64_t)(rate + 0.5), out, size);
    }
    return out;
}

const char *top_sort_name(enum top_sort sort)
{
    static const char *const names[TOP_SORTS] = {"health", "name",   "unread", "pending",
                                                 "done/s", "oldest", "parked"};
    return names[sort];
}

void top_heading(const struct top *top, struct top_line *line)
{
    (void)top;
    line->style = STYLE_BOLD;
    (void)snprintf(line->text, sizeof(line->text), "%-15s %-12s %-10s %6s %6s %6s %6s %6s %5s",
                   "STREAM", "GROUP", "HEALTH", "UNREAD", "PEND", "DONE/S", "OLDEST", "PARKED",
                   "ALIVE");
}

void top_row_line(const struct top_row *row, struct top_line *line)
{
    static const enum console_style styles[] = {STYLE_PLAIN, STYLE_WARN, STYLE_WARN, STYLE_BAD};
    const struct status_group *group = row->group;
    char stream[96], name[96], unread[16], pending[16], done[16], parked[16], alive[32];
    char oldest[DURATION_TEXT_SIZE] = "-";

    if (group->oldest_idle_ms >= 0) {
        (void)duration_brief(group->oldest_idle_ms, oldest);
    }
    (void)snprintf(alive, sizeof(alive), "%zu/%zu", group->live_count, group->worker_count);
    line->style = styles[group->health];
    (void)snprintf(line->text, sizeof(line->text), "%s %s %-*s %6s %6s %6s %6s %6s %5s",
                   name_column(row->stream->name, STREAM_COLUMNS, stream, sizeof(stream)),
                   name_column(group->name, GROUP_COLUMNS, name, sizeof(name)), HEALTH_COLUMNS,
                   health_name(group->health), count_text(group->lag, unread, sizeof(unread)),
                   count_text((int64_t)group->pending, pending, sizeof(pending)),
                   rate_text(row->done_rate, done, sizeof(done)), oldest,
                   count_text((int64_t)group->parked, parked, sizeof(parked)), alive);
}

void top_worker_line(const struct status_worker *worker, struct top_line *line)
{
    static const char *const alive[] = {"unknown", "alive", "dead"};
    static const enum console_style styles[] = {STYLE_WARN, STYLE_PLAIN, STYLE_BAD};
    char name[160], age[DURATION_TEXT_SIZE] = "", held[16];

    if (worker->beat_age_ms >= 0) {
        (void)duration_brief(worker->beat_age_ms, age);
    }
    line->style = worker->foreign ? STYLE_PLAIN : styles[worker->alive];
    (void)snprintf(line->text, sizeof(line->text), "  %s %-8s holds %6s%s%s%s",
                   name_column(worker->consumer, 30, name, sizeof(name)),
                   worker->foreign ? "foreign" : alive[worker->alive],
                   count_text((int64_t)worker->held, held, sizeof(held)),
                   age[0] == '\0' ? "" : "   beat ", age, age[0] == '\0' ? "" : " ago");
}

void top_summary(const struct top *top, struct top_line *line)
{
    size_t groups = 0, attention = 0, alive = 0, workers = 0;
    int64_t unread = 0;
    uint64_t pending = 0, parked = 0;
    char texts[3][16];

    for (size_t i = 0; i < top->now.stream_count; i++) {
        for (size_t j = 0; j < top->now.streams[i].group_count; j++) {
            const struct status_group *group = &top->now.streams[i].groups[j];
            groups++;
            attention += group->health >= HEALTH_UNKNOWN;
            alive += group->live_count;
            workers += group->worker_count;
            unread += group->lag > 0 ? group->lag : 0;
            pending += group->pending;
            parked += group->parked;
        }
    }
    line->style = attention > 0 ? STYLE_BAD : STYLE_PLAIN;
    (void)snprintf(line->text, sizeof(line->text),
                   "%zu %s, %zu %s attention; workers %zu/%zu; unread %s, pending %s, parked %s",
                   groups, groups == 1 ? "group" : "groups", attention,
                   attention == 1 ? "needs" : "need", alive, workers,
                   count_text(unread, texts[0], sizeof(texts[0])),
                   count_text((int64_t)pending, texts[1], sizeof(texts[1])),
                   count_text((int64_t)parked, texts[2], sizeof(texts[2])));
}
