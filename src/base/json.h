/* json.h -- writing compact JSON into a bounded buffer: entries for handlers, `read`, logs.
 *
 * Bytes are kept: a span that is UTF-8 becomes a string; any other becomes {"base64":"..."} as a
 * value and "base64:..." as a name. A field name that begins with "base64:" itself is written in
 * base64 too, so that every name can be read back. Errors are the buffer's: see buf_status(). */
#ifndef IMPEL_BASE_JSON_H
#define IMPEL_BASE_JSON_H

#include "base/base.h"

/* True for well-formed UTF-8 (no surrogates, no overlong forms); a NUL is a character like others.
 */
bool utf8_valid(struct impel_bytes bytes);
/* A string in quotes. The bytes must be UTF-8; where they may not be, use json_value(). */
void json_string(struct buf *buf, struct impel_bytes bytes);
void json_text(struct buf *buf, const char *text); /* text that is UTF-8 for sure */
/* A string, or {"base64":"..."}. */
void json_value(struct buf *buf, struct impel_bytes bytes);
/* A key with its colon: "name": or "base64:...": */
void json_name(struct buf *buf, struct impel_bytes name);
/* {"name":"value",...} in order of first appearance; a name that repeats has an array of its
 * values. */
void json_fields(struct buf *buf, const struct impel_field *fields, size_t field_count);
/* Base64 with padding, no line breaks. */
void base64_append(struct buf *buf, struct impel_bytes bytes);
/* Decodes; false if `text` is not such base64. */
bool base64_decode(struct buf *buf, struct impel_bytes text);

#endif /* IMPEL_BASE_JSON_H */
