/* lines.c -- lines from a descriptor, of any length up to a limit. */
#include "cli/jsonl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK_SIZE = 1 << 18,
};
/* An entry may weigh 1 GiB, and its JSON up to six times that; a line beyond this is no entry. */
#define LINE_SIZE_MAX ((size_t)6 << 30)

void line_reader_init(struct line_reader *reader, int fd)
{
    *reader = (struct line_reader){.fd = fd, .stop_fd = -1};
    buf_init(&reader->buf, LINE_SIZE_MAX);
}

void line_reader_release(struct line_reader *reader)
{
    buf_release(&reader->buf);
}

/* Some editors begin a file of UTF-8 with a byte order mark. */
static void drop_mark(struct impel_bytes *line)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t size = sizeof(mark) - 1;

    if (line->size >= size && memcmp(line->data, mark, size) == 0) {
        *line = (struct impel_bytes){(const char *)line->data + size, line->size - size};
    }
}

/* The line that is complete in the buffer; false if there is none. */
static bool take_line(struct line_reader *reader, struct impel_bytes *line)
{
    const uint8_t *data = reader->buf.data;
    const uint8_t *feed =
        reader->scanned == reader->buf.size
            ? NULL
            : memchr(data + reader->scanned, '\n', reader->buf.size - reader->scanned);
    size_t end;

    if (feed == NULL) {
        reader->scanned = reader->buf.size;
        if (!reader->over || reader->begin == reader->buf.size) {
            return false;
        }
    }
    end = feed == NULL ? reader->buf.size : (size_t)(feed - data);
    *line = (struct impel_bytes){data + reader->begin, end - reader->begin};
    reader->taken += end - reader->begin + (feed != NULL);
    reader->begin = end + (feed != NULL);
    reader->scanned = reader->begin;
    if (reader->line++ == 0) {
        drop_mark(line);
    }
    return true;
}

/* Waits until there is something to read, or it is stopped. */
static bool is_stopped(const struct line_reader *reader)
{
    struct pollfd fds[] = {{.fd = reader->stop_fd, .events = POLLIN},
                           {.fd = reader->fd, .events = POLLIN}};

    while (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno == EINTR) {
    }
    return reader->stop_fd >= 0 && (fds[0].revents & POLLIN) != 0;
}

/* Reads more. 1 = something came, 0 = the end. */
static int fill(struct line_reader *reader, struct impel_error *err)
{
    struct buf *buf = &reader->buf;
    ssize_t got;
    void *room;

    if (reader->begin > 0) {
        memmove(buf->data, buf->data + reader->begin, buf->size - reader->begin);
        buf->size -= reader->begin;
        reader->scanned -= reader->begin;
        reader->begin = 0;
    }
    room = buf_reserve(buf, CHUNK_SIZE);
    if (room == NULL) {
        return error_set(err, buf_status(buf), "line %llu is too long for the memory there is",
                         (unsigned long long)reader->line + 1);
    }
    if (is_stopped(reader)) {
        return error_set(err, IMPEL_ERR_CANCELLED, "stopped by a signal");
    }
    do {
        got = read(reader->fd, room, CHUNK_SIZE);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        return error_set(err, IMPEL_ERR_IO, "cannot read the input: %s", strerror(errno));
    }
    buf->size += (size_t)got;
    return got > 0;
}

int line_reader_next(struct line_reader *reader, struct impel_bytes *line, struct impel_error *err)
{
    for (;;) {
        if (take_line(reader, line)) {
            return 1;
        }
        if (reader->over) {
            return 0;
        }
        int rc = fill(reader, err);
        if (rc < 0) {
            return rc;
        }
        reader->over = rc == 0;
    }
}

bool line_reader_would_wait(const struct line_reader *reader)
{
    struct pollfd input = {.fd = reader->fd, .events = POLLIN};
    size_t left = reader->buf.size - reader->begin;

    if (reader->over || (left > 0 && memchr(reader->buf.data + reader->begin, '\n', left))) {
        return false;
    }
    return poll(&input, 1, 0) == 0;
}
