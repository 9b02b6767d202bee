/* stores.c -- the stores that the conformance suite runs on, a row each. */
#include "store/model.h"
#include "store/suite.h"

#include <stdlib.h>

/* ---- the model: time passes when the suite says so ---- */

static struct store *model_open(void **context, const struct store_env *env, const char **why)
{
    struct model *model = calloc(1, sizeof(*model));

    (void)why;
    CHECK(model != NULL);
    model_init(model, 1700000000000);
    *context = model;
    return model_connect(model, env);
}

static struct store *model_open_again(void *context, const struct store_env *env)
{
    return model_connect(context, env);
}

static void model_remove(void *context)
{
    model_release(context);
    free(context);
}

static int64_t model_now_ms(void *context)
{
    return ((struct model *)context)->now_ms;
}

static void model_pause(void *context, int64_t ms)
{
    ((struct model *)context)->now_ms += ms;
}

const struct suite_store suite_stores[] = {
    {
        .name = "model",
        .open = model_open,
        .open_again = model_open_again,
        .remove = model_remove,
        .now_ms = model_now_ms,
        .pause = model_pause,
    },
};
const size_t suite_stores_count = ARRAY_SIZE(suite_stores);
