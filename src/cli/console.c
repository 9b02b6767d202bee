/* console.c -- the two streams of the program. */
#include "cli/console.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    BAR_WIDTH = 30,
    REDRAW_MS = 100,
};

static const char *command_name = "";
static int output_errno;

bool console_is_terminal(int stream)
{
    return isatty(stream) == 1;
}

const char *console_style(int stream, enum console_style style)
{
    static const char *const codes[] = {
        [STYLE_PLAIN] = "",        [STYLE_BOLD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
        [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[31m",
        [STYLE_END] = "\033[0m",
    };
    const char *no_color = getenv("NO_COLOR");

    if (!console_is_terminal(stream) || (no_color != NULL && *no_color != '\0')) {
        return "";
    }
    return codes[style];
}

void console_name(const char *command)
{
    command_name = command;
}

__attribute__((format(printf, 2, 0))) static void
talk(enum console_style style, const char *format, va_list args)
{
    fflush(stdout);
    fprintf(stderr, "%simpel%s%s:%s ", console_style(2, style), *command_name == '\0' ? "" : " ",
            command_name, console_style(2, STYLE_END));
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

void console_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    talk(STYLE_BAD, format, args);
    va_end(args);
}

void console_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    talk(STYLE_DIM, format, args);
    va_end(args);
}

void console_out(struct impel_bytes bytes)
{
    if (bytes.size > 0 && fwrite(bytes.data, 1, bytes.size, stdout) != bytes.size) {
        output_errno = output_errno == 0 ? errno : output_errno;
    }
}

int console_print(struct buf *out, struct impel_error *err)
{
    int rc = buf_status(out);

    if (rc < 0) {
        error_set(err, rc, "%s", status_text(rc));
    } else {
        console_out(buf_bytes(out));
    }
    buf_release(out);
    return rc;
}

void console_outf(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (vprintf(format, args) < 0) {
        output_errno = output_errno == 0 ? errno : output_errno;
    }
    va_end(args);
}

int console_flush(struct impel_error *err)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        output_errno = output_errno == 0 ? errno : output_errno;
    }
    if (output_errno == 0) {
        return IMPEL_OK;
    }
    if (output_errno == EPIPE) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return error_set(err, IMPEL_ERR_IO, "cannot write to standard output: %s",
                     strerror(output_errno));
}

/* ---- progress ---- */

int64_t clock_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void progress_init(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){.what = what, .total = total, .begun_ms = clock_now_ms()};
    progress->drawn_ms = progress->begun_ms;
}

static void draw_bar(const struct progress *progress, uint64_t at, int64_t spent_ms)
{
    char bar[BAR_WIDTH + 1];
    double part = (double)at / (double)progress->total;
    size_t filled;

    part = part > 1 ? 1 : part;
    filled = (size_t)(part * BAR_WIDTH);
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', filled);
    if (filled < BAR_WIDTH) {
        bar[filled] = '>';
    }
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "  [%s] %3.0f %%", bar, part * 100);
    if (part > 0.01) {
        fprintf(stderr, "  %.0f s left", (double)spent_ms / 1000 * (1 - part) / part);
    }
}

void progress_show(struct progress *progress, uint64_t at, uint64_t count)
{
    int64_t now_ms = clock_now_ms();
    int64_t spent_ms = now_ms - progress->begun_ms;

    if (now_ms - progress->drawn_ms < REDRAW_MS || !console_is_terminal(2)) {
        return;
    }
    progress->drawn_ms = now_ms;
    progress->shown = true;
    fprintf(stderr, "\r\033[K%s", progress->what);
    if (progress->total > 0) {
        draw_bar(progress, at, spent_ms);
    }
    fprintf(stderr, "  %llu, %.0f/s", (unsigned long long)count,
            spent_ms == 0 ? 0 : (double)count * 1000 / (double)spent_ms);
    fflush(stderr);
}

void progress_end(struct progress *progress)
{
    if (progress->shown) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
        progress->shown = false;
    }
}

struct counted counted(uint64_t count, const char *one, const char *many)
{
    struct counted words;

    (void)snprintf(words.text, sizeof(words.text), "%llu %s", (unsigned long long)count,
                   count == 1 ? one : many);
    return words;
}
