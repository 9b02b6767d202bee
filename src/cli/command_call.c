/* command_call.c -- impel call: one Redis command, its reply as redis-cli shows it. */
#include "cli/command.h"
#include "cli/console.h"
#include "cli/format_reply.h"
#include "cli/session.h"

static int print_reply(const struct value *reply, struct impel_error *err)
{
    enum reply_form form = console_is_terminal(1) ? REPLY_FORM_SHOW : REPLY_FORM_RAW;
    struct buf out;
    int rc;

    buf_init(&out, SIZE_MAX / 4);
    format_reply(reply, form, &out);
    rc = console_print(&out, err);
    if (rc < 0) {
        return rc;
    }
    return reply->kind == VALUE_ERROR ? EXIT_FAILED : EXIT_DONE;
}

int command_call(struct options *options, struct impel_error *err)
{
    const struct text_list *words = &options->words;
    struct impel_bytes *args;
    struct request *request;
    struct store *store = NULL;
    int rc;

    if (words->count == 0) {
        return error_set(err, IMPEL_ERR_INVALID, "a command is needed: impel call XLEN orders");
    }
    request = request_new(REQUEST_CALL);
    args = request == NULL ? NULL : arena_calloc(&request->arena, words->count, sizeof(*args));
    if (args == NULL) {
        request_free(request);
        return error_set(err, IMPEL_ERR_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < words->count; i++) {
        args[i] = bytes_of(words->texts[i]);
    }
    request->call.args = args;
    request->call.arg_count = words->count;
    rc = session_open(options, &store, err);
    if (rc >= 0) {
        rc = session_ask(store, request, err);
    }
    if (rc >= 0) {
        rc = print_reply(request->call.reply, err);
    }
    store_close(store);
    request_free(request);
    return rc;
}
