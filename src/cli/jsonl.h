/* jsonl.h -- entries from JSON Lines: reading lines, and making fields of one line.
 *
 * The values are kept as they are written: a number's text is the field's value (1.50 stays 1.50),
 * which a general JSON reader would round. */
#ifndef IMPEL_CLI_JSONL_H
#define IMPEL_CLI_JSONL_H

#include "base/base.h"

/* Parses one JSON object into fields, in the arena. Values: strings; numbers, true and false (their
 * text); {"base64":"..."}; lists of these (the name repeats). A name "base64:..." stands for the
 * bytes. The error names the column. */
int jsonl_parse(struct impel_bytes line,
                struct arena *arena,
                struct impel_field **fields,
                size_t *field_count,
                struct impel_error *err);

/* Reads a descriptor line by line. */
struct line_reader {
    int fd;
    struct buf buf;
    size_t begin;   /* of what is not handed out yet */
    size_t scanned; /* up to here there is no line feed */
    uint64_t taken; /* bytes handed out so far */
    uint64_t line;  /* the number of the line handed out last */
    bool over;      /* the end was read */
    int stop_fd;    /* where this can be read no more of the lines is; -1 = nothing stops it */
};
void line_reader_init(struct line_reader *reader, int fd);
void line_reader_release(struct line_reader *reader);
/* 1 = a line (without its line feed; valid until the next call), 0 = the end, < 0 an error:
 * IMPEL_ERR_CANCELLED if it was stopped. */
int line_reader_next(struct line_reader *reader, struct impel_bytes *line, struct impel_error *err);
/* True if the next call may have to wait for input. */
bool line_reader_would_wait(const struct line_reader *reader);

#endif /* IMPEL_CLI_JSONL_H */
