/* json_read.h -- reading JSON token by token: for lines whose shape is known beforehand.
 *
 * Strict: what RFC 8259 does not allow is refused, with the column. Nothing is rounded: a number is
 * its text. That the whole is UTF-8 is the caller's to check (utf8_valid()). */
#ifndef IMPEL_BASE_JSON_READ_H
#define IMPEL_BASE_JSON_READ_H

#include "base/json.h"

struct json_reader {
    const uint8_t *start, *at, *end;
    struct arena *arena;     /* of the strings that are taken */
    struct impel_error *err; /* what was wrong */
};

void json_reader_init(struct json_reader *reader,
                      struct impel_bytes text,
                      struct arena *arena,
                      struct impel_error *err);
/* "column N: what"; returns IMPEL_ERR_IO. */
int json_wrong(const struct json_reader *reader, const char *what);
void json_skip_blanks(struct json_reader *reader);
/* Moves past `c` and the blanks around it; false if something else stands there. */
bool json_take(struct json_reader *reader, char c);
/* A string; its opening quote is where the reader stands, what follows is where it stands then. */
int json_take_string(struct json_reader *reader, struct impel_bytes *text);
/* The text of a number, or of this word; false, and nothing taken, if something else stands there. */
bool json_take_number(struct json_reader *reader, struct impel_bytes *text);
bool json_take_word(struct json_reader *reader, const char *word, struct impel_bytes *text);
/* Moves past a value of any kind, and the blanks around it. */
int json_skip(struct json_reader *reader);

#endif /* IMPEL_BASE_JSON_READ_H */
