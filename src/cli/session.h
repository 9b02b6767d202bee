/* session.h -- one store, asked one thing at a time: what every command but `run` needs. */
#ifndef IMPEL_CLI_SESSION_H
#define IMPEL_CLI_SESSION_H

#include "cli/options.h"
#include "store/store.h"

/* Opens the store that the options name; events of the store (a stuck writer, a lost connection)
 * go to standard error. */
int session_open(const struct options *options, struct store **out, struct impel_error *err);
/* The same for a command that only looks: a store that is not there is IMPEL_ERR_NOT_FOUND instead of
 * made. */
int session_open_existing(const struct options *options,
                          struct store **out,
                          struct impel_error *err);

/* The path in "lmdb:PATH?sync=full", for what can be `done` ("checked") to a file only. */
int session_path(struct options *options,
                 const char *done,
                 const char **path,
                 struct impel_error *err);

/* Where the store is, for a message: its URL without a password and options. */
const char *session_place(const struct options *options, char *out, size_t size);

/* A new request about a stream and a group (either may be empty), or NULL if memory is out. The
 * spans are copied. */
struct request *
session_request(enum request_kind kind, struct impel_bytes stream, struct impel_bytes group);
/* From now on session_ask() looks now and then whether the command is to end: where `wanted` says so it
 * waits no longer, with IMPEL_ERR_CANCELLED. Such a request is freed as any other. */
void session_stop_when(bool (*wanted)(void));
/* Asks and waits. On failure `err` gets the store's words. */
int session_ask(struct store *store, struct request *request, struct impel_error *err);
/* IMPEL_ERR_NOT_FOUND if there is no such stream, lest a misspelt name pass for an empty one. */
int session_check_stream(struct store *store, struct impel_bytes stream, struct impel_error *err);
/* True if only the stream is the matter that was asked about: it is not there or has no such group, it is
 * no stream, it is damaged, or this user has no rights to it. Then others can be asked all the same. */
bool session_stream_refused(int status);
/* The store's words for what a request failed of. */
void session_failure(const struct request *request, struct impel_error *err);
/* One Redis command. The reply lives as long as the request; an error reply becomes
 * IMPEL_ERR_REPLY with `request` freed and NULL. */
int session_call(struct store *store,
                 const struct impel_bytes *args,
                 size_t arg_count,
                 struct request **out,
                 struct impel_error *err);

#endif /* IMPEL_CLI_SESSION_H */
