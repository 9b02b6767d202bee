/* native_parts.h -- what the files of the fenced steps share: reading words, building answers, and the
 * functions that the table in native.c points to. */
#ifndef IMPEL_SERVER_NATIVE_PARTS_H
#define IMPEL_SERVER_NATIVE_PARTS_H

#include "server/native.h"

enum {
    NATIVE_ITEMS_MAX = 200,
    NATIVE_PARK_COPY_LATER = -2, /* PARK: the caller has a copy, and sends it if it is asked for */
};

/* ---- words, and parts of answers (native_parts.c); false or NULL: no sense, or no memory ---- */

bool native_number(struct impel_bytes word, int64_t *out);
bool native_count(struct impel_bytes word, uint32_t *out);
bool native_flag(struct impel_bytes word);
bool native_id(struct impel_bytes word, struct impel_id *out);
bool native_token(struct impel_bytes word, struct token *out);
bool native_put_id(struct value *out, struct impel_id id, struct arena *arena);
bool native_put_fields(struct value *out, const struct entry *entry, struct arena *arena);
struct value *
native_list(const struct request *request, struct value *out, size_t count, struct arena *arena);
/* An answer of the time and a list of `count` results, to be filled in. `why`: the request's error, for
 * those that were refused. NULL if memory is out. */
struct value *native_results(const struct request *request,
                             struct value *out,
                             size_t count,
                             struct impel_bytes *why,
                             struct arena *arena);
bool native_put_results(struct value *out,
                        const struct request_item *items,
                        size_t count,
                        struct arena *arena);

/* ---- native_items.c ---- */

bool native_parse_items(struct request *request, const struct impel_bytes *words, size_t count);
bool native_parse_ack(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_take(const struct request *request, struct value *out, struct arena *arena);
bool native_answer_renew(const struct request *request, struct value *out, struct arena *arena);
bool native_answer_ack(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_release(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_release(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_park(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_park(const struct request *request, struct value *out, struct arena *arena);

/* ---- native_replay.c ---- */

bool native_parse_replay(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_replay(const struct request *request, struct value *out, struct arena *arena);

/* ---- native_worker.c ---- */

bool native_parse_beat(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_beat(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_create(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_create(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_leave(struct request *request, const struct impel_bytes *words, size_t count);
bool native_parse_drop(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_leave(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_claim(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_claim(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_look(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_look(const struct request *request, struct value *out, struct arena *arena);

/* ---- native_plain.c ---- */

bool native_parse_read(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_read(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_pending(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_pending(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_info(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_info(const struct request *request, struct value *out, struct arena *arena);
bool native_parse_trim(struct request *request, const struct impel_bytes *words, size_t count);
bool native_answer_trim(const struct request *request, struct value *out, struct arena *arena);

#endif /* IMPEL_SERVER_NATIVE_PARTS_H */
