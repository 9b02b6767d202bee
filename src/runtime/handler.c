/* handler.c -- the table of kinds, and the simplest of them: a function on the loop's own thread. */
#include "runtime/handler.h"

#include <stdlib.h>

/* A new kind (an HTTP endpoint) is a row here and a file beside this one. */
static const struct handler_ops *const handler_table[] = {
    [HANDLER_INLINE] = &handler_inline,
    [HANDLER_POOL] = &handler_pool,
    [HANDLER_EXEC] = &handler_exec,
    [HANDLER_PIPE] = &handler_pipe,
};

int handler_open(const struct handler_env *env,
                 const struct runtime_handler *options,
                 struct handler **out,
                 struct impel_error *err)
{
    if ((size_t)options->kind >= ARRAY_SIZE(handler_table)) {
        return error_set(err, IMPEL_ERR_INVALID, "no such kind of handler: %d", (int)options->kind);
    }
    return handler_table[options->kind]->open(env, options, out, err);
}

struct handler_result
handler_result_of(const struct impel_delivery *delivery, enum impel_outcome outcome, bool stopped)
{
    struct handler_result result = {.outcome = OUTCOME_RETRY, .delay_ms = delivery->delay_ms};
    if (delivery->why != NULL) {
        result.error = bytes_of(delivery->why);
    }
    switch (outcome) {
    case IMPEL_DONE:
        result.outcome = OUTCOME_DONE;
        break;
    case IMPEL_REJECT:
        result.outcome = OUTCOME_REJECT;
        break;
    case IMPEL_RETRY:
        result.outcome = stopped ? OUTCOME_RELEASE : OUTCOME_RETRY;
        break;
    default:
        result.error = bytes_of("the handler returned an outcome that does not exist");
        break;
    }
    return result;
}

/* ---- inline ---- */

struct inline_handler {
    struct handler base;
    const struct handler_env *env;
    struct runtime_handler options;
};

static int inline_open(const struct handler_env *env,
                       const struct runtime_handler *options,
                       struct handler **out,
                       struct impel_error *err)
{
    if (options->call == NULL) {
        return error_set(err, IMPEL_ERR_INVALID, "the worker has no handler");
    }
    struct inline_handler *handler = calloc(1, sizeof *handler);
    if (handler == NULL) {
        return error_set(err, IMPEL_ERR_NOMEM, "no memory for a handler");
    }
    *handler =
        (struct inline_handler){.base.ops = &handler_inline, .env = env, .options = *options};
    *out = &handler->base;
    return IMPEL_OK;
}

static void inline_start(struct handler *base, struct delivery *delivery)
{
    struct inline_handler *handler = (struct inline_handler *)base;
    struct impel_delivery view = {.env = handler->env, .delivery = delivery, .delay_ms = -1};
    enum impel_outcome outcome = handler->options.call(&view, handler->options.user);
    struct handler_result result = handler_result_of(&view, outcome, false);
    handler->env->finished(handler->env->user, delivery, &result);
    free(view.why);
}

static void
inline_cancel(struct handler *base, struct delivery *delivery, enum cancel_reason reason)
{
    (void)base; /* it is over before anything else can happen */
    (void)delivery;
    (void)reason;
}

static void inline_close(struct handler *base)
{
    (void)base;
}

static void inline_free(struct handler *base)
{
    free(base);
}

const struct handler_ops handler_inline = {
    .open = inline_open,
    .start = inline_start,
    .cancel = inline_cancel,
    .close = inline_close,
    .free = inline_free,
};
