/* console.h -- talking to people on standard error, and handing data out on standard output.
 *
 * Colour and progress bars appear only where standard error is a terminal, colour also only without
 * $NO_COLOR. Output errors (a full disk behind a pipe or a redirection) are failures, not silence:
 * see console_flush(). */
#ifndef IMPEL_CLI_CONSOLE_H
#define IMPEL_CLI_CONSOLE_H

#include "base/base.h"

enum console_style {
    STYLE_PLAIN,
    STYLE_BOLD,
    STYLE_DIM,
    STYLE_GOOD,
    STYLE_WARN,
    STYLE_BAD,
    STYLE_END, /* back to plain */
};

/* The escape sequence for a style, or "" where there is no colour on this stream (1 or 2). */
const char *console_style(int stream, enum console_style style);
bool console_is_terminal(int stream);

/* "impel add: ..." on standard error. */
void console_name(const char *command);
void console_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void console_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes bytes to standard output. Errors are kept for console_flush(). */
void console_out(struct impel_bytes bytes);
/* The same of a whole buffer, which is released; or the status with which it could not be filled, and
 * nothing is written. `err` may be NULL. */
int console_print(struct buf *out, struct impel_error *err);
void console_outf(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Writes out what is buffered. An IMPEL_ERR_IO if any of it could not be written; a reader that
 * went away (EPIPE) is one too. */
int console_flush(struct impel_error *err);

/* A bar for long work: "adding  [=====>    ]  52 %  124000/s  3 s left". Nothing where standard
 * error is no terminal. With total 0 it shows only the count. */
struct progress {
    const char *what;
    uint64_t total;
    int64_t begun_ms;
    int64_t drawn_ms;
    bool shown;
};
void progress_init(struct progress *progress, const char *what, uint64_t total);
/* `at` runs to `total`, `count` is what people want to
 * know. */
void progress_show(struct progress *progress, uint64_t at, uint64_t count);
void progress_end(struct progress *progress); /* wipes the bar */

int64_t clock_now_ms(void); /* CLOCK_BOOTTIME */

/* A number and its noun: "1 entry", "2 entries". */
struct counted {
    char text[48];
};
struct counted counted(uint64_t count, const char *one, const char *many);

#endif /* IMPEL_CLI_CONSOLE_H */
