/* help.h -- what the C tests of the embedded store share: a folder of their own, requests in a line.
 */
#ifndef TESTS_LMDB_HELP_H
#define TESTS_LMDB_HELP_H

#include "lib/tap.h"
#include "store/store.h"

/* A fresh folder, deleted at exit; and the URL of a store in it. */
const char *help_folder(void);
const char *help_path(const char *name);
const char *help_url(const char *name, const char *options);

/* Opens or fails the test. */
struct store *help_open(const char *url);
struct impel_bytes help_bytes(const char *text);
struct request *help_request(enum request_kind kind, const char *stream, const char *group);
/* Waits for it; returns its status, says the error on failure. */
int help_run(struct store *store, struct request *request);

int help_add(struct store *store, const char *stream, struct impel_id id, const char *value);
int help_group(struct store *store, const char *stream, const char *group);
/* Not submitted yet. */
struct request *help_read_request(
    const char *stream, const char *group, const char *consumer, uint32_t count, int64_t block_ms);
/* Reads up to `count` new entries; the request is the caller's to free. */
struct request *help_read(struct store *store,
                          const char *stream,
                          const char *group,
                          const char *consumer,
                          uint32_t count);
int help_ack(struct store *store, const char *stream, const char *group, struct impel_id id);
struct request *help_beat(struct store *store,
                          const char *stream,
                          const char *group,
                          const char *consumer,
                          uint8_t token,
                          int64_t dead_after_ms);
struct token help_token(uint8_t seed);
int64_t help_now_ms(void);

#endif /* TESTS_LMDB_HELP_H */
